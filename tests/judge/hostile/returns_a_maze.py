"""A list that contains itself."""


def double(x, scale=2.0):
    maze = []
    maze.append(maze)
    return maze
