"""Infinite."""


def double(x, scale=2.0):
    return x * float("inf")
