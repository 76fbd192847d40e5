"""The bytes of a hand-in -> its cells, whatever wrote the file and however it was mangled on the way.

nbformat would refuse most of what is mended here, and is slow on a notebook with 50 MB of outputs: only sources,
cell types and ids are looked at, nothing is validated.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Any

from grader.course.metadata import Identity, identity, notebook_name

MAX_BYTES = 100_000_000
MAX_PARTS = 8_000_000  # commas and brackets: bounds the memory that parsing takes
MAX_CELLS = 5_000
MAX_CODE = 1_000_000  # characters in all code cells: bounds the time that reading them takes
CLEAR = "clear its outputs (Edit > Clear all outputs) and hand it in again"
DOWNLOAD = "download the notebook itself (File > Download > Download .ipynb) and hand that in"
OTHER_FILES: tuple[tuple[str, *tuple[bytes, ...]], ...] = (  # how each begins, in small letters
    ("a PDF", b"%pdf"),
    ("a zip archive or an Office document", b"pk\x03\x04"),
    ("an empty zip archive", b"pk\x05\x06"),
    ("a gzip archive", b"\x1f\x8b"),
    ("a RAR archive", b"rar!"),
    ("a 7z archive", b"7z\xbc\xaf"),
    ("a picture", b"\x89png", b"\xff\xd8\xff"),
    ("an Office document", b"\xd0\xcf\x11\xe0"),
    ("a rich-text document", b"{\\rtf"),
    ("a web page", b"<!doctype html", b"<html"),
    ("a Git LFS pointer", b"version https://git-lfs"),
)


class Unreadable(Exception):
    """Nothing can be graded; the message is one clear sentence: what, where, what to do."""


@dataclass(frozen=True)
class RawCell:
    """A cell as it was handed in. number: its place, from 1; in plain Python its first line."""

    number: int
    code: bool
    source: str
    identity: Identity


@dataclass(frozen=True)
class RawNotebook:
    """The cells of a file. name: of the course's notebook, as far as the file's metadata says so. script: it is plain Python."""

    name: str
    cells: tuple[RawCell, ...]
    notes: tuple[str, ...]
    script: bool = False


def read_file(data: bytes, filename: str) -> RawNotebook:
    """The cells in the bytes of a notebook file, and notes of what was mended. Raises Unreadable."""
    try:
        return _read(data)
    except Unreadable as e:
        raise Unreadable(f"{filename}: {e}") from None


def _read(data: bytes) -> RawNotebook:
    if len(data) > MAX_BYTES:
        raise Unreadable(f"the file is larger than {MAX_BYTES // 10**6} MB; {CLEAR}")
    start = data[:100].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    for kind, *signatures in OTHER_FILES:
        if start.startswith(tuple(signatures)):
            raise Unreadable(f"this is {kind}, not a notebook; {DOWNLOAD}")
    text, notes = decoded(data)
    document, more = _parsed(text)
    cells, still_more = _cells(document)
    if len(cells) > MAX_CELLS:
        raise Unreadable(f"it has more than {MAX_CELLS} cells; hand in the notebook of the course with your answers in it")
    raw = tuple(_raw_cell(number, cell) for number, cell in enumerate(cells, 1))
    if sum(len(cell.source) for cell in raw if cell.code) > MAX_CODE:
        raise Unreadable(f"its code cells hold more than {MAX_CODE // 10**6} MB of text; take pasted data out of them and hand it in again")
    if any("\r" in cell.source for cell in raw):
        raw = tuple(replace(cell, source=cell.source.replace("\r\n", "\n").replace("\r", "\n")) for cell in raw)
        still_more.append("Windows line ends inside cells were turned into plain ones.")
    return RawNotebook(notebook_name(document), raw, (*notes, *more, *still_more))


def decoded(data: bytes) -> tuple[str, list[str]]:
    """The text in the bytes: UTF-8 as a notebook should be, or what else a text editor or a mail program makes of it."""
    encoding = json.detect_encoding(data)
    for name in (encoding, "gb18030", "latin-1"):
        try:
            text = data.decode(name)
        except UnicodeDecodeError:
            continue
        if not text.strip(" \t\r\n\0"):
            raise Unreadable("the file is empty; save the notebook, look whether it opens, and hand it in again")
        if name == "utf-8":
            return text, []
        if name == "utf-8-sig":
            return text.lstrip("\ufeff"), ["A byte order mark at the start of the file was left out."]
        return text, [f"The file was not in UTF-8; it was read as {name.upper()}."]
    raise AssertionError("latin-1 reads every byte")


def _parsed(text: str) -> tuple[dict[str, Any], list[str]]:
    """The JSON object at the start of the text."""
    if any(line in text for line in ("\n<<<<<<< ", "\n>>>>>>> ")) and re.search(r"^=======\s*$", text, re.MULTILINE):
        raise Unreadable("the file holds the marks of a Git merge conflict; resolve it, open the notebook once, and hand it in again")
    if text.count(",") + text.count("[") + text.count("{") > MAX_PARTS:
        raise Unreadable(f"the file has too many parts to be a notebook; {CLEAR}")
    body = text.strip(" \t\r\n\0")
    try:
        document, end = json.JSONDecoder(strict=False).raw_decode(body)
    except json.JSONDecodeError as e:
        line = body.count("\n", 0, e.pos) + 1
        if body.startswith("{") and (e.pos >= len(body) - 1 or e.msg.startswith("Unterminated")):
            raise Unreadable(
                f"the file breaks off in line {line}, so the copy is incomplete; save or download the notebook again"
            ) from None
        if re.search(r"^(import|from|def) \w+", body, re.MULTILINE) and not body.startswith("{"):
            raise Unreadable(f"this is Python code, not a notebook; {DOWNLOAD}") from None
        raise Unreadable(f"this is no notebook, since its line {line} is not JSON ({e.msg}); {DOWNLOAD}") from None
    except RecursionError:
        raise Unreadable(f"the file is nested deeper than any notebook; {DOWNLOAD}") from None
    except ValueError:  # a number of more than 4,300 digits
        raise Unreadable(f"the file holds a number too long to read; {DOWNLOAD}") from None
    if not isinstance(document, dict):
        raise Unreadable(f"this is JSON, but not a notebook; {DOWNLOAD}")
    return document, ["Text behind the end of the notebook was left out."] if body[end:].strip() else []


def _cells(document: dict[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
    found, notes = document.get("cells"), []
    if not isinstance(found, list) and isinstance(document.get("worksheets"), list):  # nbformat 3 and older
        sheets = [sheet["cells"] for sheet in document["worksheets"] if isinstance(sheet, dict) and isinstance(sheet.get("cells"), list)]
        found = [cell for cells in sheets for cell in cells]
        notes.append("The notebook is in the format of before 2015; it was read all the same.")
    if not isinstance(found, list):
        raise Unreadable(f"this is JSON without cells, not a notebook; {DOWNLOAD}")
    cells = [cell for cell in found if isinstance(cell, dict)]
    if len(cells) < len(found):
        notes.append(f"{len(found) - len(cells)} damaged cells could not be read and were left out.")
    return cells, notes


def _raw_cell(number: int, cell: dict[str, Any]) -> RawCell:
    kind = cell.get("cell_type")
    code = kind == "code" or (kind is None and "outputs" in cell)
    return RawCell(number, code, _source(cell.get("source", cell.get("input"))), identity(cell))


def _source(value: object) -> str:
    """A cell's text: a string or a list of lines, some writers of which forget the line ends."""
    lines = [line for line in (value if isinstance(value, list) else [value]) if isinstance(line, str)]
    bare = len(lines) > 1 and not any("\n" in line for line in lines)
    # half of a surrogate pair cannot be written into any file
    return ("\n" if bare else "").join(lines).encode("utf-8", "replace").decode("utf-8")
