"""Starts programs.

Seen: started []
"""
import os
import subprocess
import sys


def double(x, scale=2.0):
    started = []
    for attempt in (
        lambda: subprocess.run([sys.executable, "-c", "1"], check=True),
        lambda: os.posix_spawn(sys.executable, [sys.executable], {}),
        lambda: os.execv(sys.executable, [sys.executable]),
    ):
        try:
            attempt()
            started.append(attempt)
        except OSError:
            pass
    raise RuntimeError(f"started {started}")
