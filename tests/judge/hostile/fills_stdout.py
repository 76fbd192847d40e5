"""Prints without end."""
import sys


def double(x, scale=2.0):
    for _ in range(2000):
        print("x" * 100_000)
        print("x" * 100_000, file=sys.stderr)
        sys.__stdout__.write("x" * 1000)
    return x
