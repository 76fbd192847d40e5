"""Writes garbage into the channel, another kind each time."""
import json
import os
import stat
import struct


def frame(head, data=b"", size=None):
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    return struct.pack(">IQ", len(text), len(data) if size is None else size) + text + data


GARBAGE = [
    b"\xff" * 100,
    frame(b"{", b""),
    frame(b"[" * 100_000),
    frame({"id": 1}),
    frame({"id": 1, "tensors": [["float32", [10**6, 10**6], False, True]]}, size=4 * 10**12),
    frame({"id": 1, "tensors": [["float32", [-1], False, True]]}, size=4),
    frame({"id": 1, "tensors": [["object", [1], False, True]]}, b"12345678"),
    frame({"id": 1, "tensors": [["float32", [2**47, 2**47, 0], False, True]]}),
    frame({"id": 1, "tensors": "float32"}),
    frame([]),
    frame(b"1" * 1_000_000),
]
turn = iter(GARBAGE * 100)


def double(x, scale=2.0):
    for fd in range(3, 100):
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                os.write(fd, next(turn))
        except OSError:
            pass
    return x * 0
