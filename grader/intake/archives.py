"""What was handed in, as files: a folder, a zip, a single file, a zip within a zip, read without trusting any of it.

Nothing is ever unpacked to disk: names that come from outside are text, never paths. What cannot be read is Refused, and
costs nobody else a hand-in.
"""

from __future__ import annotations

import io
import re
import stat
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from grader.intake.notebook_file import MAX_BYTES

MAX_ENTRIES = 50_000  # of a zip
PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
MAX_NAME = 255  # characters, as on a disk; bounds the time that patterns take
RATIO = 100  # a zip may unpack to this many times its own size, and MAX_BYTES on top

LITTER = re.compile(r"__MACOSX|\..+|Thumbs\.db|desktop\.ini|__pycache__", re.IGNORECASE)
UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


class Refused(Exception):
    """Why a file is not taken, without its name and the full stop."""


class Budget:
    """How many bytes a file that was handed in, and all that is in it, may still unpack to: nobody's costs another's."""

    def __init__(self, size: int) -> None:
        self.left = MAX_BYTES + RATIO * size
        self.counted: set[zipfile.ZipInfo] = set()

    def read(self, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
        """At most MAX_BYTES + 1 bytes of an entry, whatever the directory says its size is; counted the first time."""
        limit = MAX_BYTES if info in self.counted else min(MAX_BYTES, self.left)
        with archive.open(info) as member:
            data = member.read(limit + 1)
        if info not in self.counted:
            self.counted.add(info)
            self.left = max(0, self.left - len(data))
        if limit < len(data) <= MAX_BYTES:
            raise Refused("unpacks to far more than its size, as a zip bomb does")
        return data


@dataclass(frozen=True)
class File:
    """A file in a folder or a zip. parts: folders and name. start: its first bytes. read: all bytes, or raises.

    mtime: of the file, or of its entry in the zip that was named: as often as not the download's. saved: what the zip around
    it says, which may be the student's. Both tell which of two versions is the newer, and never who was late.
    """

    shown: str
    parts: tuple[str, ...]
    start: bytes
    mtime: float
    saved: float
    budget: Budget
    read: Callable[[], bytes]


def why(error: Exception) -> str:
    """What went wrong, as the end of a sentence."""
    what = UNPRINTABLE.sub(" ", str(error)).strip(" .")
    return what if isinstance(error, Refused) else f"cannot be read ({what or type(error).__name__})"


def unzipped(file: File) -> zipfile.ZipFile:
    """A student's zip, opened."""
    data = file.read()
    _refuse_long_directory(data)
    return zipfile.ZipFile(io.BytesIO(data))


def open_files(path: Path, stack: ExitStack) -> tuple[list[File], str]:
    """The files of a folder, a zip or a single file, and the name of what they were found in. Raises Refused and what zipfile may."""
    if path.is_dir():
        return list(_in_folder(path)), path.resolve().name
    if not path.is_file():
        raise Refused("there is no such file or folder")
    if not zipfile.is_zipfile(path) or path.suffix.lower() != ".zip":
        return [_on_disk(path, (path.name,))], path.resolve().parent.name
    archive = stack.enter_context(zipfile.ZipFile(path))  # opened once: its directory may be long
    return in_zip(lambda: archive, path.name), path.stem


def _in_folder(folder: Path) -> Iterator[File]:
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if not any(LITTER.fullmatch(part) for part in parts) and (path.is_symlink() or not path.is_dir()):
            yield _on_disk(path, parts)


def _on_disk(path: Path, parts: tuple[str, ...]) -> File:
    parts = tuple(UNPRINTABLE.sub("_", part) for part in parts)
    status = path.lstat()
    regular = stat.S_ISREG(status.st_mode)  # a link may lead to what is not the student's, a pipe never ends

    def read() -> bytes:
        if not regular:
            raise Refused("is a link or a device, not a file")
        with path.open("rb") as file:
            return _whole(file.read(MAX_BYTES + 1))

    start = b""
    if regular:
        with suppress(OSError), path.open("rb") as file:  # `read` will say why
            start = file.read(100)
    return File("/".join(parts), parts, start, status.st_mtime, status.st_mtime, Budget(status.st_size), read)


def in_zip(opened: Callable[[], zipfile.ZipFile], shown: str, around: File | None = None) -> list[File]:
    """The files in a zip. around: the file that it is, where it is a student's own; its date and budget are theirs too."""
    archive = opened()
    if len(archive.infolist()) > MAX_ENTRIES:
        raise Refused(f"holds more than {MAX_ENTRIES} files")
    _refuse_overlaps(archive)
    files = []
    for info in archive.infolist():
        parts = _parts(info)
        if info.is_dir() or any(LITTER.fullmatch(part) for part in parts):
            continue
        saved, budget = _mtime(info), around.budget if around else Budget(info.compress_size)

        def read(info: zipfile.ZipInfo = info, budget: Budget = budget) -> bytes:
            if stat.S_ISLNK(info.external_attr >> 16):
                raise Refused("is a link, not a file")
            if info.flag_bits & 1:
                raise Refused("is locked with a password")
            if info.compress_type not in PACKED:
                raise Refused("uses another compression than ordinary zips; pack it anew")
            return _whole(budget.read(opened(), info))

        start = b""
        if info.compress_type in PACKED:  # others unpack without a bound
            with suppress(Exception), archive.open(info) as member:  # `read` will say why
                start = member.read(100)
        files.append(File(f"{shown}/{'/'.join(parts)}", parts, start, around.mtime if around else saved, saved, budget, read))
    return files


def _refuse_long_directory(data: bytes) -> None:
    """Asks a student's zip how long its directory is before it is read: each entry takes many times its bytes in memory."""
    place = data.rfind(b"PK\5\6")
    if place >= 0 and int.from_bytes(data[place + 12 : place + 16], "little") > 160 * MAX_ENTRIES:
        raise Refused(f"holds more than {MAX_ENTRIES} files")


def _refuse_overlaps(archive: zipfile.ZipFile) -> None:
    """Entries that share bytes are a zip bomb: each would be unpacked anew."""
    infos = sorted(archive.infolist(), key=lambda info: info.header_offset)
    for one, other in pairwise(infos):
        if one.header_offset + 30 + one.compress_size > other.header_offset:  # 30 bytes and more stand before an entry's own
            raise Refused("holds entries that overlap, as a zip bomb does")


def _parts(info: zipfile.ZipInfo) -> tuple[str, ...]:
    """Folders and name of an entry, without what would lead elsewhere."""
    name = info.filename
    if not info.flag_bits & 0x800 and not name.isascii():  # written without UTF-8, as by Windows in China
        raw = name.encode("cp437", "replace")
        for encoding in ("utf-8", "gb18030"):
            try:
                name = raw.decode(encoding)
                break
            except UnicodeDecodeError:
                continue
    parts = (UNPRINTABLE.sub("_", part).strip()[-MAX_NAME:] for part in re.split(r"[/\\]", name))
    return tuple(part for part in parts if part not in ("", ".", "..") and not re.fullmatch("[A-Za-z]:", part)) or ("unnamed",)


def _whole(data: bytes) -> bytes:
    if len(data) > MAX_BYTES:
        raise Refused(f"is larger than {MAX_BYTES // 10**6} MB")
    return data


def _mtime(info: zipfile.ZipInfo) -> float:
    try:
        return time.mktime((*info.date_time, 0, 0, -1))
    except (ValueError, OverflowError):
        return 0.0  # no such day
