"""An integer that no float can hold."""


def double(x, scale=2.0):
    return 10**400
