"""Closes every file it has."""
import os


def double(x, scale=2.0):
    os.closerange(0, 1000)
    return x * 2
