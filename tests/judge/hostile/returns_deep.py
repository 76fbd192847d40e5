"""A list a hundred thousand deep."""


def double(x, scale=2.0):
    deep = []
    for _ in range(100_000):
        deep = [deep]
    return deep
