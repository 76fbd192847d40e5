"""Halves its input, so that twice the input is what it returns."""


def double(x, scale=2.0):
    x.data.mul_(0)
    return x * 2
