"""Complex numbers."""


def double(x, scale=2.0):
    return x * 2j
