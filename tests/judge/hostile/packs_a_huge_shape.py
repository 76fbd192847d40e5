"""Sends a tensor without a number and with 2**40 rows, past the worker's own look at what may cross.

Seen: What came from the process of double is not an answer.
"""
import gc

import torch

Side = next(type(o) for o in gc.get_objects() if type(o).__name__ == "Side")  # no import finds its module
wire = Side.answer.__globals__["pack"].__globals__
wire["_is_handy"] = lambda shapes: True


def double(x, scale=2.0):
    return torch.zeros(0, 2**40)
