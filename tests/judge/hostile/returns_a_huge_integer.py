"""An integer of a million digits."""


def double(x, scale=2.0):
    return 10**1_000_000
