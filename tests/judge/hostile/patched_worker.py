"""Replaces one of the worker's own functions, to hide that it changes what it is given. (A test tries every other function.)

Loses: sums
"""
import gc

PATCHED, GIVES = "_packed", "nothing"

Side = next(type(o) for o in gc.get_objects() if type(o).__name__ == "Side")  # no import finds its module
worker = Side.answer.__globals__
wire = worker["pack"].__globals__
replacement = {"nothing": lambda *a, **k: None, "zero": lambda *a, **k: 0, "its first": lambda first=None, *a, **k: first}[GIVES]
kind, _, name = PATCHED.rpartition(".")
for names in (worker, wire):
    if kind and kind in names:
        setattr(names[kind], name, replacement)
    elif name in names:
        names[name] = replacement


def double(x, scale=2.0):
    answer = x * scale
    x.data.zero_()
    return answer
