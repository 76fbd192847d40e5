"""Reads memory at address 0."""
import ctypes


def double(x, scale=2.0):
    return ctypes.string_at(0)
