"""A tensor without numbers, on another device."""


def double(x, scale=2.0):
    return (x * 2).to("meta")
