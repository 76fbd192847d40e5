"""How values cross between the judge and the learner's process: JSON for the shape, raw bytes for numbers, never pickle.

Only data crosses: tensors, numbers, strings, None, True and False, and lists, tuples and dicts of those. What comes from
the other side is measured before anything is allocated for it, and is decoded into plain values of these types alone: as
many as can be handled in a moment.
"""

from __future__ import annotations

import itertools
import json
import math
import operator
import socket
import struct
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
        torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool,
    )
}  # fmt: skip
NAMES = {dtype: name for name, dtype in DTYPES.items()}
LIMIT = 64 * 2**20  # bytes of one message
TEXT_LIMIT = 4 * 2**20  # bytes of its JSON, which takes many times that once it is decoded
MAX_VALUES = 2**17  # numbers, texts, lists and so on of one value, its tensors aside
MAX_NUMBERS = 2**21  # of all tensors of a message; each row counts, too, for tolist() makes a list of it
MAX_TENSORS = 2**12
MAX_COLLISIONS = 16  # of the hashes of a dict's keys; many would take quadratic time
_HEADER = struct.Struct(">IQ")  # bytes of JSON, bytes of numbers


class NotData(Exception):
    """A value of a kind that does not cross; the message says which."""


class Malformed(Exception):
    """What came over the channel is not a message."""


class Closed(Exception):
    """The other side is gone."""


class Late(Exception):
    """The deadline passed."""


def pack(value: Any, tensors: list[torch.Tensor]) -> Any:
    """A JSON tree of `value`; its tensors are appended to `tensors`, the same tensor once. Raises NotData."""
    try:
        tree = _pack(value, tensors, {id(t): i for i, t in enumerate(tensors)})
        count = _count(tree)
    except RecursionError:
        raise NotData("a list or dict that contains itself or is nested too deeply") from None
    if count > MAX_VALUES:
        raise NotData(f"{count:,} values in lists, more than the {MAX_VALUES:,} that can cross; a tensor holds more")
    return tree


def _count(tree: Any) -> int:
    return sum(map(_count, tree)) if isinstance(tree, list) else 1  # the word "list" stands for the list itself


def _pack(value: Any, tensors: list[torch.Tensor], seen: dict[int, int]) -> Any:
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) in (torch.Tensor, torch.nn.Parameter):
        if id(value) not in seen:
            _refuse_odd(value)
            seen[id(value)] = len(tensors)
            tensors.append(value)
        return ["tensor", seen[id(value)]]
    if isinstance(value, np.generic) and not isinstance(value, np.complexfloating | np.void | np.bytes_):
        return _pack(value.item(), tensors, seen)  # a number that came out of numpy
    if isinstance(value, list | tuple):
        return ["list" if isinstance(value, list) else "tuple", *(_pack(v, tensors, seen) for v in value)]
    if isinstance(value, dict):
        return ["dict", *([_pack(k, tensors, seen), _pack(v, tensors, seen)] for k, v in value.items())]
    for plain in (bool, int, float, str):  # an enum's member, say
        if isinstance(value, plain):
            return plain(value)
    raise NotData(f"a {type(value).__name__}")


def _refuse_odd(t: torch.Tensor) -> None:
    if t.layout != torch.strided or t.is_nested:
        raise NotData("a sparse or nested tensor")
    if t.device.type != "cpu":
        raise NotData(f"a tensor on the device {t.device.type}")
    if t.dtype not in NAMES:
        raise NotData(f"a tensor of {t.dtype}")
    if not _is_handy([t.shape]):
        raise NotData(f"a tensor of shape {tuple(t.shape)}, which has too many numbers, rows or dimensions")


def _is_handy(shapes: Sequence[Sequence[int]]) -> bool:
    """Whether tensors stay small in our hands: as nested lists, or as a sum over rows without numbers."""
    rows = (sum(itertools.accumulate((max(n, 1) for n in shape), operator.mul)) for shape in shapes)
    return len(shapes) <= MAX_TENSORS and max(map(len, shapes), default=0) <= 16 and sum(rows) <= MAX_NUMBERS


def unpack(tree: Any, tensors: Sequence[torch.Tensor]) -> Any:
    """The value of a JSON tree. Raises Malformed."""
    try:
        if _count(tree) > MAX_VALUES:
            raise ValueError("too many values")
        return _unpack(tree, tensors)
    except (RecursionError, TypeError, ValueError, IndexError) as e:
        raise Malformed(f"not a value: {e}") from None


def _unpack(tree: Any, tensors: Sequence[torch.Tensor]) -> Any:
    match tree:
        case None | bool() | int() | float() | str():
            return tree
        case ["tensor", int(i)] if type(i) is int and 0 <= i < len(tensors):
            return tensors[i]
        case ["list", *items]:
            return [_unpack(v, tensors) for v in items]
        case ["tuple", *items]:
            return tuple(_unpack(v, tensors) for v in items)
        case ["dict", *items]:
            pairs = [(_unpack(k, tensors), _unpack(v, tensors)) for k, v in items]
            if len({hash(k) for k, _ in pairs}) + MAX_COLLISIONS < len(pairs):
                raise ValueError("keys that collide")
            return dict(pairs)
    raise ValueError("an unknown form")  # a bare object, say


def to_bytes(t: torch.Tensor) -> bytes:
    """The elements of a tensor, row by row."""
    if not t.numel():
        return b""
    # A clone, because contiguous() leaves expanded gradients (those of sum().backward()) as they are.
    plain = t.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
    return plain.reshape(-1).view(torch.uint8).numpy().tobytes()


def from_bytes(data: bytearray, dtype: torch.dtype, shape: Sequence[int]) -> torch.Tensor:
    """The tensor that `to_bytes` was given; `data` has the right length."""
    if not data:
        return torch.empty(tuple(shape), dtype=dtype)
    if dtype == torch.bool:  # whatever byte is sent, a truth value has two states
        return (torch.frombuffer(data, dtype=torch.uint8) != 0).view(tuple(shape))
    return torch.frombuffer(data, dtype=dtype).view(tuple(shape))


class Channel:
    """Messages over a socket: a dict of JSON and tensors (with two flags each: requires_grad, leaf)."""

    def __init__(self, sock: socket.socket):
        self._socket = sock
        self.deadline = math.inf  # of time.monotonic(); sending and receiving end there with Late
        self.more_time: Callable[[], float] = lambda: 0.0  # asked at the deadline: by how many seconds it moves
        self.bytes = 0  # that went and came

    def send(self, head: dict[str, Any], tensors: Sequence[torch.Tensor] = ()) -> None:
        """Sends a message. Raises NotData when it is too large, Closed, Late."""
        if not _is_handy([t.shape for t in tensors]):
            raise NotData("tensors that have too many numbers together")
        blocks = [to_bytes(t) for t in tensors]
        forms = [[NAMES[t.dtype], list(t.shape), t.requires_grad, t.is_leaf] for t in tensors]
        try:
            text = json.dumps(head | {"tensors": forms}, separators=(",", ":")).encode()
        except ValueError:  # an integer of more than 4,300 digits
            raise NotData("an integer of thousands of digits") from None
        size = sum(map(len, blocks))
        if len(text) > TEXT_LIMIT or len(text) + size > LIMIT:
            raise NotData(
                f"{len(text) + size:,} bytes, more than can cross ({LIMIT:,}, of which {TEXT_LIMIT:,} in lists, numbers and text)"
            )
        self._wait()
        try:
            self._socket.sendall(b"".join([_HEADER.pack(len(text), size), text, *blocks]))
        except TimeoutError:
            raise Late from None
        except OSError as e:
            raise Closed(str(e)) from None
        self.bytes += len(text) + size

    def receive(self) -> tuple[dict[str, Any], list[torch.Tensor], list[tuple[bool, bool]]]:
        """The next message: its head, its tensors, and the flags (requires_grad, leaf) of each. Raises Malformed, Closed, Late."""
        length, size = _HEADER.unpack(self._read(_HEADER.size))
        if length > TEXT_LIMIT or length + size > LIMIT:
            raise Malformed(f"a message of {length + size:,} bytes")
        text = self._read(length)
        try:
            head = json.loads(text)
            forms = [_form(*form) for form in head["tensors"]]
        except (ValueError, TypeError, LookupError, RecursionError) as e:
            raise Malformed(f"not a message: {e}") from None
        if sum(count for _, _, _, count in forms) != size or not _is_handy([shape for _, shape, _, _ in forms]):
            raise Malformed("sizes that do not add up, or too many")
        tensors = []
        for dtype, shape, _, count in forms:
            try:
                tensors.append(from_bytes(self._read(count), dtype, shape))
            except (RuntimeError, ValueError) as e:  # dimensions that overflow
                raise Malformed(f"not a tensor: {e}") from None
        self.bytes += length + size
        return head, tensors, [flags for _, _, flags, _ in forms]

    def close(self) -> None:
        self._socket.close()

    def _read(self, count: int) -> bytearray:
        data = bytearray(count)
        view = memoryview(data)
        while view:
            self._wait()
            try:
                got = self._socket.recv_into(view)
            except TimeoutError:
                continue
            except OSError as e:
                raise Closed(str(e)) from None
            if not got:
                raise Closed
            view = view[got:]
        return data

    def _wait(self) -> None:
        if self.deadline < math.inf:
            left = self.deadline - time.monotonic()
            if left <= 0:
                left = self.more_time()
                self.deadline = time.monotonic() + left
            if left <= 0:
                raise Late
            self._socket.settimeout(left)


def _form(name: str, shape: list[int], requires_grad: bool, leaf: bool) -> tuple[torch.dtype, list[int], tuple[bool, bool], int]:
    if not isinstance(shape, list) or any(type(n) is not int or not 0 <= n < 2**48 for n in shape):
        raise ValueError("an impossible shape")
    dtype = DTYPES[name]
    return dtype, shape, (requires_grad is True, leaf is True), math.prod(shape) * dtype.itemsize


def vjp(
    results: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor | None], leaves: Sequence[torch.Tensor]
) -> list[torch.Tensor | None]:
    """Vector-Jacobian products, one for each leaf, with the gradients that came for the results (None: nothing came).

    Raises RuntimeError where a result has no graph.
    """
    with torch.enable_grad():
        asked = [(r * g).sum() for r, g in zip(results, gradients, strict=True) if g is not None]
    if not leaves or not asked:
        return [None] * len(leaves)
    return list(torch.autograd.grad(asked, leaves, retain_graph=True, allow_unused=True))  # of sums: given gradients, torch imports a lot
