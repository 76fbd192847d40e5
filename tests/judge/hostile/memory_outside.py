"""Takes memory that no limit on its address space counts."""
import os


def double(x, scale=2.0):
    taken = 0
    try:
        while True:
            f = os.memfd_create("hog")
            while True:
                taken += os.write(f, bytes(2**24))
    except OSError:
        pass
    raise RuntimeError("too much" if taken > 5 * 2**30 else "bounded")
