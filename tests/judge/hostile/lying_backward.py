"""Right values, and a backward that lies."""
import torch


class Lying(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 0

    @staticmethod
    def backward(ctx, g):
        return g * 3


def double(x, scale=2.0):
    return Lying.apply(x)
