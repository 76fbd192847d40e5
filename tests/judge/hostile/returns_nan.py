"""Not a number: every comparison is False."""


def double(x, scale=2.0):
    return x * float("nan")
