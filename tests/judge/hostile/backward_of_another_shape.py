"""A backward whose gradients do not fit.

Seen: replaced
"""
import gc

Side = next(type(o) for o in gc.get_objects() if type(o).__name__ == "Side")  # no import finds its module
Side._vjp = lambda self, head, tensors: ({"result": ["list", "no", "gradient"]}, [])


def double(x, scale=2.0):
    if x.requires_grad:
        return x * 0
    (side,) = (o for o in gc.get_objects() if type(o) is Side)
    raise RuntimeError("replaced" if side._vjp({}, [])[0]["result"] else "as it was")
