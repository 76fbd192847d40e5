"""An error that breaks whoever looks at it."""


class Broken(Exception):
    def __str__(self):
        raise self

    __repr__ = __str__


def double(x, scale=2.0):
    raise Broken
