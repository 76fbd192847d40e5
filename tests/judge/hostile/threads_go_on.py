"""Threads that never end, as many as it gets."""
import threading


def spin():
    while True:
        pass


for _ in range(1000):
    try:
        threading.Thread(target=spin, daemon=False).start()
    except BaseException:
        break


def double(x, scale=2.0):
    return x
