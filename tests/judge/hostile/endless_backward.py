"""Never comes back from backward."""
import torch


class Endless(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 0

    @staticmethod
    def backward(ctx, g):
        while True:
            pass


def double(x, scale=2.0):
    return Endless.apply(x)
