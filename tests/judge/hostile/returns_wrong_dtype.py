"""Whole numbers of eight bits."""
import torch


def double(x, scale=2.0):
    return (x * 2).clamp(-100, 100).to(torch.int8)
