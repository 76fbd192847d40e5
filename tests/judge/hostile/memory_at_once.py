"""Asks for 200 GB, then for 20."""


def double(x, scale=2.0):
    try:
        hog = bytearray(200 * 2**30)
    except MemoryError:
        hog = bytearray(20 * 2**30)
    return x + len(hog)
