"""A tensor of 400 GB that takes no memory here."""


def double(x, scale=2.0):
    return x[:1].expand(10**11)
