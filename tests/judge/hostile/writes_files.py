"""Writes wherever it can.

Seen: wrote []
"""
import os
import sys


def double(x, scale=2.0):
    wrote = []
    here = [sys.prefix, sys.base_prefix, "/", "/root", "/home", "/usr", "/usr/lib", "/etc", "/dev", "/var", "/opt", "/mnt", *sys.path]
    for folder in here:
        try:
            open(os.path.join(folder, "hostile_was_here"), "w").close()
            wrote.append(folder)
        except OSError:
            pass
        try:
            os.mkdir(os.path.join(folder, "hostile_was_here_too"))
            wrote.append(folder)
        except OSError:
            pass
    raise RuntimeError(f"wrote {wrote}")
