"""A backward whose gradients do not fit."""
from grader import worker

worker.Side._vjp = lambda self, head, tensors: ({"result": ["list", "no", "gradient"]}, [])


def double(x, scale=2.0):
    return x * 0
