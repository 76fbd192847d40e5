"""A quantized tensor."""
import torch


def double(x, scale=2.0):
    return torch.quantize_per_tensor(x * 2, 1.0, 0, torch.qint8)
