"""Hides a lying object inside a list, a dict and a tuple of its own kind."""


class Dict(dict):
    def items(self):
        return [("a", self)]


def double(x, scale=2.0):
    return [Dict(a=1)]
