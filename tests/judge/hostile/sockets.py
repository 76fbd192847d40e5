"""Calls home.

Seen: opened []
"""
import socket


def double(x, scale=2.0):
    opened = []
    for family, kind in ((socket.AF_INET, socket.SOCK_STREAM), (socket.AF_INET, socket.SOCK_DGRAM), (socket.AF_INET6, socket.SOCK_STREAM), (socket.AF_UNIX, socket.SOCK_STREAM)):
        try:
            socket.socket(family, kind)
            opened.append(family)
        except OSError:
            pass
    raise RuntimeError(f"opened {opened}")
