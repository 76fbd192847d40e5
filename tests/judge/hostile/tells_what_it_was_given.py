"""Keeps every input, and tells them in its errors later."""
kept = []


def double(x, scale=2.0):
    kept.append(x.tolist())
    raise ValueError(f"I was given {kept}")
