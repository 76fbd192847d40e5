"""Signals to itself."""
import os
import signal


def double(x, scale=2.0):
    for s in (signal.SIGSTOP, signal.SIGTSTP, signal.SIGKILL, signal.SIGSEGV):
        try:
            os.kill(os.getpid(), s)
            signal.raise_signal(s)
        except OSError:
            pass
    os.abort()
