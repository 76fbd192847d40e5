"""Answers each call itself and lets the worker answer again."""
import json
import os
import stat
import struct
import sys


def double(x, scale=2.0):
    frame = sys._getframe()
    while "head" not in frame.f_locals:
        frame = frame.f_back
    head = frame.f_locals["head"]
    answer = {"id": head["id"], "result": ["tensor", 0], "changed": [], "tensors": [["float32", [2], False, True]]}
    text = json.dumps(answer).encode()
    for fd in range(3, 100):
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                for _ in range(3):
                    os.write(fd, struct.pack(">IQ", len(text), 8) + text + struct.pack("<ff", 1, 2))
        except OSError:
            pass
    return x * 0
