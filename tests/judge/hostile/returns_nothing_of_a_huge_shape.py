"""A tensor without a number, of so many empty rows that they fill the memory once they are lists.

Seen: double gave back a tensor of shape (16777216, 0), which has too many numbers, rows or dimensions
"""
import torch


def double(x, scale=2.0):
    return torch.zeros(2**24, 0)
