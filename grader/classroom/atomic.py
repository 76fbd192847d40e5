"""Atomic writes: whoever looks at a file finds it whole, and each line of a log."""

from __future__ import annotations

import os
from pathlib import Path


def write_atomically(path: Path, content: str | bytes) -> None:
    """Writes a file such that at any moment it is there whole, old or new, or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{os.getpid()}.draft")
    try:
        with draft.open("wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def append_line(path: Path, line: str) -> None:
    """Adds a line to a file and returns when it is on the disk. What an earlier one left of its line (a full disk) is ended first."""
    with path.open("a+b", buffering=0) as file:
        if end := file.seek(0, os.SEEK_END):
            file.seek(end - 1)
            line = line if file.read(1) == b"\n" else f"\n{line}"
        file.write(f"{line}\n".encode())
        os.fsync(file.fileno())
