"""The files, folders and zips that a learning platform gives -> one hand-in for each student and notebook.

Whose a file is, by the first of these that there is:

    Moodle's folder         Ada Lovelace_12345_assignsubmission_file_/anything.ipynb
    Canvas's file name      lovelaceada_LATE_123_456_02_grpo_loss.ipynb
    a folder of its own     ada/02_grpo_loss.ipynb, ada/02_grpo_loss/02_grpo_loss.ipynb
    its file name           ada_02_grpo_loss.ipynb, ada.ipynb, ada.zip
    what it was found in    02_grpo_loss.ipynb in the folder ada or in ada.zip

A zip named to `gather` may hold a whole class (one folder around all the rest is passed over). A zip inside it or inside
a folder is one student's, and nothing in it can claim to be somebody else's. Nothing is ever unpacked to disk: names
that come from outside are text, never paths.

When it was handed in is what the platform says: the date of the file, or of the entry in the zip named to `gather`.
Dates in a student's own zip are the student's: they only tell which of its versions is the newest.
"""

from __future__ import annotations

import functools
import io
import re
import stat
import time
import unicodedata
import zipfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from grader.intake.notebook_file import MAX_BYTES

MAX_DEPTH = 3  # a zip in a zip in a zip
MAX_ENTRIES = 50_000  # of a zip
PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
MAX_NAME = 255  # characters, as on a disk; bounds the time that patterns take
RATIO = 100  # a zip may unpack to this many times its own size, and MAX_BYTES on top

MOODLE = re.compile(r"(?P<name>.+)_(?P<number>\d+)_assignsubmission_(?:file|onlinetext)_?")
CANVAS = re.compile(r"(?P<name>[^_]+_)(?:LATE_)?(?P<number>\d+)_\d+_(?P<file>.+)")
NOTEBOOK = re.compile(r"(?P<name>(?:.+?[ _-]+)?)(?P<file>\d\d_[A-Za-z]\w*?)(?:-\d{1,2})?")  # the course's own file names; Canvas adds -1
COPIED = re.compile(r"^(?:copy[ _]of[ _]+|副本[ _-]*)|[ _]*\(\d{1,3}\)$|[ _]*-[ _]*copy$|[ _-]*的?副本$", re.IGNORECASE)
SUFFIX = re.compile(r"\.ipynb(?:\.(?:txt|json|download|bin))?$|\.json$|\.zip$", re.IGNORECASE)
LITTER = re.compile(r"__MACOSX|\..+|Thumbs\.db|desktop\.ini|__pycache__", re.IGNORECASE)
UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


@dataclass(frozen=True)
class CollectedFile:
    """A notebook of a student. filename: without what copying added. mtime: seconds since 1970, as the platform says.

    notes: a sentence each. number: Moodle's, "" where there is none; see `placed`.
    """

    student: str
    filename: str
    data: bytes
    mtime: float
    notes: tuple[str, ...] = ()
    number: str = ""


@dataclass(frozen=True)
class Refusal:
    """A file that was not taken. student: "" where nobody could be made out. reason: one sentence that names the file."""

    student: str
    filename: str
    reason: str


class _Refused(Exception):
    """Why a file is not taken, without its name and the full stop."""


class _Budget:
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
            raise _Refused("unpacks to far more than its size, as a zip bomb does")
        return data


@dataclass(frozen=True)
class _File:
    """A file in a folder or a zip. parts: folders and name. start: its first bytes. read: all bytes, or raises.

    mtime: the platform's. saved: what the zip around it says, which may be the student's.
    """

    shown: str
    parts: tuple[str, ...]
    start: bytes
    mtime: float
    saved: float
    budget: _Budget
    read: Callable[[], bytes]


@dataclass(frozen=True)
class _Owner:
    """Whose a file is. number: Moodle's, which tells namesakes apart."""

    name: str
    number: str = ""


@dataclass(frozen=True)
class _Found:
    """A notebook, or why a file is none, not yet read."""

    owner: _Owner
    filename: str
    file: _File
    refused: str = ""


def gather(paths: Iterable[Path]) -> Iterator[CollectedFile | Refusal]:
    """Every hand-in in the files, folders and zips, one in memory at a time; of versions with one name, the newest.

    Whatever goes wrong with a file is a Refusal of that file.
    """
    for path in paths:
        with ExitStack() as stack:
            try:
                files, container = _opened(path, stack)
                unzipped = functools.lru_cache(maxsize=MAX_DEPTH)(_unzipped)  # once for what is read in a row, and few in memory
                found = [item for file in files for item in _notebooks(file, container, unzipped)]
            except Exception as e:  # a damaged zip can raise anything
                yield Refusal("", path.name, f"{path}: {_why(e)}.")
                continue
            if not found:
                yield Refusal("", path.name, f"{path}: holds no file.")
            ids = _ids({item.owner for item in found})
            versions: dict[tuple[str, str], list[int]] = defaultdict(list)
            for place, item in enumerate(found):
                if item.refused:
                    yield Refusal(ids[item.owner], item.filename, f"{item.file.shown}: {item.refused}.")
                else:
                    versions[ids[item.owner], item.filename.lower()].append(place)
            newest = {max(places, key=lambda n: (found[n].file.mtime, found[n].file.saved, n)): places for places in versions.values()}
            for place in sorted(newest):  # in the order in which they lie, so that each zip is opened once
                item = found[place]
                yield _read(ids[item.owner], item, [found[n] for n in newest[place] if n != place])


def placed(item: CollectedFile, notebook: str, held: dict[str, str]) -> str:
    """The student id under which to file a hand-in, so that no namesake who comes later takes another's place.

    held: "student/notebook" -> Moodle's number of whose hand-in is filed there, from every `collect` of the class; is
    brought up to date. Moodle numbers people anew in each of its assignments: a number tells two people apart only
    within a notebook, and across notebooks there is but the name.
    """
    if not item.number:
        return item.student
    plain = item.student.removesuffix(f"_{item.number}")
    own = f"{plain}_{item.number}"
    for student in (plain, own):
        if held.get(f"{student}/{notebook}") == item.number:
            return student
    student = own if f"{item.student}/{notebook}" in held else item.student
    held[f"{student}/{notebook}"] = item.number
    return student


def clean_name(filename: str) -> str:
    """A file name without what downloads and copies add: "Copy of 02_grpo_loss (1).ipynb" -> "02_grpo_loss.ipynb"."""
    stem = _stem(filename)
    match = NOTEBOOK.fullmatch(stem)
    return (match["file"] if match else stem) + ".ipynb"


def _read(student: str, item: _Found, others: list[_Found]) -> CollectedFile | Refusal:
    notes: tuple[str, ...] = ()
    if others:
        older = ", ".join(other.file.shown for other in others)
        notes = (f"There are {len(others) + 1} versions of {item.filename}; the newest, {item.file.shown}, was taken, not {older}.",)
    try:
        return CollectedFile(student, item.filename, item.file.read(), item.file.mtime, notes, item.owner.number)
    except Exception as e:  # a damaged zip can raise anything
        return Refusal(student, item.filename, f"{item.file.shown}: {_why(e)}.")


def _why(error: Exception) -> str:
    """What went wrong, as the end of a sentence."""
    what = UNPRINTABLE.sub(" ", str(error)).strip(" .")
    return what if isinstance(error, _Refused) else f"cannot be read ({what or type(error).__name__})"


# Whose is it?

_Unzip = Callable[[_File], zipfile.ZipFile]


def _notebooks(file: _File, container: str, unzipped: _Unzip, owner: _Owner | None = None, depth: int = 0) -> Iterator[_Found]:
    """The notebook that a file is, or those in the zip that it is. owner: of the zip that the file was found in."""
    named, filename = _whose(file.parts, container)
    if owner and (CANVAS.fullmatch(file.parts[-1]) or any(MOODLE.fullmatch(part) for part in file.parts)):
        yield _Found(owner, filename, file, "is named as another's hand-in; where a zip holds a whole class, name it by itself")
        return
    owner = owner or named
    suffix = file.parts[-1].lower().rpartition(".")[2]
    if file.start.startswith(b"PK") and suffix in ("zip", "ipynb"):
        try:
            if depth == MAX_DEPTH:
                raise _Refused(f"is a zip within {MAX_DEPTH} others")
            inside = _in_zip(lambda: unzipped(file), file.shown, around=file)
            if not inside:
                raise _Refused("holds no file")
        except Exception as e:  # a damaged zip can raise anything
            yield _Found(owner, filename, file, _why(e))
            return
        for inner in inside:
            yield from _notebooks(inner, container, unzipped, owner, depth + 1)
    elif suffix != "zip" and SUFFIX.search(file.parts[-1]):
        yield _Found(owner, filename, file)
    else:
        yield _Found(owner, file.parts[-1], file, "is no notebook" if suffix != "zip" else "is no zip, whatever its name says")


def _whose(parts: tuple[str, ...], container: str) -> tuple[_Owner, str]:
    """Owner and cleaned file name; see the top of this module."""
    *folders, name = parts
    for folder in folders:
        if match := MOODLE.fullmatch(folder):
            return _Owner(match["name"], match["number"]), clean_name(name)
    if match := CANVAS.fullmatch(name):
        return _Owner(match["name"] + match["number"]), clean_name(match["file"])
    if own := [folder for folder in folders if not NOTEBOOK.fullmatch(folder)]:
        return _Owner(own[0]), clean_name(name)
    match = NOTEBOOK.fullmatch(_stem(name))
    return _Owner((match["name"] or container) if match else _stem(name)), clean_name(name)


def _stem(filename: str) -> str:
    stem = SUFFIX.sub("", filename)
    while (shorter := COPIED.sub("", stem).strip()) not in ("", stem):
        stem = shorter
    return stem


def _ids(owners: set[_Owner]) -> dict[_Owner, str]:
    """A student id for each: fit to name a folder, and different for different people."""
    plain = {owner: _safe(owner.name) for owner in owners}
    count = Counter(plain.values())
    return {owner: id if count[id] == 1 else f"{id}_{owner.number or _digest(owner.name)}" for owner, id in plain.items()}


def _safe(name: str) -> str:
    name = unicodedata.normalize("NFC", name)
    safe = re.sub(r"[^\w.@+-]+", "_", name).strip("._- ")
    return safe if 0 < len(safe) <= 80 else f"{safe[:80] or 'unknown'}_{_digest(name)}"  # what was cut off told it from others


def _digest(name: str) -> str:
    return format(zlib.crc32(name.encode("utf-8", "replace")), "08x")


# What is in it?


def _unzipped(file: _File) -> zipfile.ZipFile:
    """A student's zip, opened."""
    data = file.read()
    _refuse_long_directory(data)
    return zipfile.ZipFile(io.BytesIO(data))


def _opened(path: Path, stack: ExitStack) -> tuple[Iterable[_File], str]:
    """The files of a folder, a zip or a single file, and the name of what they were found in."""
    if path.is_dir():
        return _in_folder(path), path.resolve().name
    if not path.is_file():
        raise _Refused("there is no such file or folder")
    if not zipfile.is_zipfile(path) or path.suffix.lower() != ".zip":
        return [_on_disk(path, (path.name,))], path.resolve().parent.name
    archive = stack.enter_context(zipfile.ZipFile(path))  # opened once: its directory may be long
    files = _in_zip(lambda: archive, path.name)
    roots = {file.parts[0] for file in files}
    if len(roots) == 1 and all(len(file.parts) > 1 for file in files) and not MOODLE.fullmatch(roots.pop()):
        files = [replace(file, parts=file.parts[1:]) for file in files]
    return files, _stem(path.name)


def _in_folder(folder: Path) -> Iterator[_File]:
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if not any(LITTER.fullmatch(part) for part in parts) and (path.is_symlink() or not path.is_dir()):
            yield _on_disk(path, parts)


def _on_disk(path: Path, parts: tuple[str, ...]) -> _File:
    parts = tuple(UNPRINTABLE.sub("_", part) for part in parts)
    status = path.lstat()
    regular = stat.S_ISREG(status.st_mode)  # a link may lead to what is not the student's, a pipe never ends

    def read() -> bytes:
        if not regular:
            raise _Refused("is a link or a device, not a file")
        with path.open("rb") as file:
            return _whole(file.read(MAX_BYTES + 1))

    start = b""
    if regular:
        with suppress(OSError), path.open("rb") as file:  # `read` will say why
            start = file.read(100)
    return _File("/".join(parts), parts, start, status.st_mtime, status.st_mtime, _Budget(status.st_size), read)


def _in_zip(opened: Callable[[], zipfile.ZipFile], shown: str, around: _File | None = None) -> list[_File]:
    """The files in a zip. around: the file that it is, where it is a student's own; its date and budget are theirs too."""
    archive = opened()
    if len(archive.infolist()) > MAX_ENTRIES:
        raise _Refused(f"holds more than {MAX_ENTRIES} files")
    _refuse_overlaps(archive)
    files = []
    for info in archive.infolist():
        parts = _parts(info)
        if info.is_dir() or any(LITTER.fullmatch(part) for part in parts):
            continue
        saved, budget = _mtime(info), around.budget if around else _Budget(info.compress_size)

        def read(info: zipfile.ZipInfo = info, budget: _Budget = budget) -> bytes:
            if stat.S_ISLNK(info.external_attr >> 16):
                raise _Refused("is a link, not a file")
            if info.flag_bits & 1:
                raise _Refused("is locked with a password")
            if info.compress_type not in PACKED:
                raise _Refused("uses another compression than ordinary zips; pack it anew")
            return _whole(budget.read(opened(), info))

        start = b""
        if info.compress_type in PACKED:  # others unpack without a bound
            with suppress(Exception), archive.open(info) as member:  # `read` will say why
                start = member.read(100)
        files.append(_File(f"{shown}/{'/'.join(parts)}", parts, start, around.mtime if around else saved, saved, budget, read))
    return files


def _refuse_long_directory(data: bytes) -> None:
    """Asks a student's zip how long its directory is before it is read: each entry takes many times its bytes in memory."""
    place = data.rfind(b"PK\5\6")
    if place >= 0 and int.from_bytes(data[place + 12 : place + 16], "little") > 160 * MAX_ENTRIES:
        raise _Refused(f"holds more than {MAX_ENTRIES} files")


def _refuse_overlaps(archive: zipfile.ZipFile) -> None:
    """Entries that share bytes are a zip bomb: each would be unpacked anew."""
    infos = sorted(archive.infolist(), key=lambda info: info.header_offset)
    for one, other in pairwise(infos):
        if one.header_offset + 30 + one.compress_size > other.header_offset:  # 30 bytes and more stand before an entry's own
            raise _Refused("holds entries that overlap, as a zip bomb does")


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
        raise _Refused(f"is larger than {MAX_BYTES // 10**6} MB")
    return data


def _mtime(info: zipfile.ZipInfo) -> float:
    try:
        return time.mktime((*info.date_time, 0, 0, -1))
    except (ValueError, OverflowError):
        return 0.0  # no such day
