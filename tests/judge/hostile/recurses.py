"""Recurses until the stack ends."""
import sys

sys.setrecursionlimit(10**9)


def double(x, scale=2.0):
    return double(x)
