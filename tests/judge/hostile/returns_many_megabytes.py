"""Strings and lists of megabytes, over and over."""


def double(x, scale=2.0):
    return [[0] * 3_000_000, "a" * 10**8]
