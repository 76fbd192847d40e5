"""What learning platforms export of a class's people: the file as it came, and who its rows are about."""

from __future__ import annotations

import contextlib
import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from grader.classroom.directory import ClassError, named
from grader.intake.archives import UNPRINTABLE
from grader.intake.platforms import HIDDEN

CANVAS_TEST_STUDENT = "student, test"  # Canvas's own, whose work counts for nobody
HIGH = re.compile(rb"[\x80-\xff]+")

FIRST = ("first name", "firstname", "given name", "vorname", "prénom", "nombre", "名")
LAST = ("last name", "lastname", "surname", "family name", "nachname", "nom", "nom de famille", "apellido(s)", "apellidos", "姓")
FULL = ("student", "full name", "name", "student name", "vollständiger name", "nom complet", "nombre completo", "全名", "姓名")
EMAIL = ("email", "email address", "e-mail", "mail", "e-mail-adresse", "adresse de courriel", "dirección de correo", "邮箱", "电子邮件地址")
PLAIN_ID = ("id", "student id", "student number", "username", "login", "user", "id number", "学号", "matrikelnummer", "anmeldename")


@dataclass(frozen=True)
class Person:
    """Somebody in a platform's export.

    student: the id in this class, nbgrader's and the name of the folder under submitted/. email: "" where none is told.
    ids: what else the platform calls them, the best name for a folder first. number: the one in the names of its files
    (Canvas's ID, the number in Moodle's "Participant 123"), "" where it has none.
    """

    student: str
    first_name: str
    last_name: str
    email: str
    ids: tuple[str, ...]
    number: str

    @property
    def name(self) -> str:
        return f"{self.first_name} {self.last_name}".strip()


@dataclass(frozen=True)
class Sheet:
    """An export: every row as it came, and who it is about.

    platform: canvas, moodle, gradescope, github or plain. notebook: whose grading worksheet it is, else "".
    people: one for each row, None where the row is no student's (Canvas's "Points Possible", a teacher).
    """

    path: Path
    platform: str
    notebook: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    people: tuple[Person | None, ...]

    def column(self, *names: str) -> int | None:
        """The place of the first column that has one of these names, whatever their case."""
        header = [_plain(title) for title in self.header]
        return next((header.index(name) for name in names if name in header), None)

    @property
    def splits_names(self) -> bool:
        """Whether it tells first from last names, so that nobody has to guess."""
        return self.platform == "canvas" or self.column(*LAST) is not None

    @property
    def worksheet(self) -> bool:
        """Whether it is Moodle's, of one assignment."""
        return self.platform == "moodle" and self.column("identifier") is not None


@dataclass(frozen=True)
class _Shape:
    """How an export is recognised, by one column of each of `needs`, and the columns that hold ids, the best first."""

    platform: str
    needs: tuple[tuple[str, ...], ...]
    ids: tuple[str, ...]
    number: str = ""


SHAPES = (
    _Shape("canvas", (("student", "lastname"), ("id",), ("section",)), ("sis login id", "sis user id", "integration id"), "id"),
    _Shape("moodle", (("identifier",), ("status", "grade")), ("username", "id number"), "identifier"),
    _Shape("github", (("identifier",), ("github_username",)), ("github_username", "identifier")),
    _Shape("gradescope", (("sid",), ("email",)), ("sid",)),
    _Shape("moodle", ((*FIRST, "full name", "username"), ("email address",)), ("username", "id number")),
    _Shape("plain", ((*PLAIN_ID, *EMAIL),), PLAIN_ID),
)
KNOWN = (
    "Canvas's gradebook export, Moodle's participants or grading worksheet, Gradescope's or GitHub Classroom's roster, "
    "or a CSV file with the columns name, email and id"
)


def read_sheet(path: Path, names: Sequence[str] = (), notebook: str = "") -> Sheet:
    """Reads an export; the ids in this class are left blank. Raises ClassError.

    names: the class's notebooks. notebook: the one that a grading worksheet of Moodle is of; without, its file name tells.
    """
    try:
        text = _decoded(path.read_bytes())
    except OSError as e:
        raise ClassError(f"{path}: {e.strerror}") from None
    if "\0" in text:
        raise ClassError(f"{path}: this is no CSV file; save it as CSV, or export it again as CSV")
    first = next((line for line in text.splitlines() if line.strip()), "")
    delimiter = max(",;\t", key=first.count)
    try:
        header, *rows = [tuple(row) for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if any(map(str.strip, row))]
    except csv.Error as e:
        raise ClassError(f"{path}: this is no CSV file ({e}); export it again as CSV") from None
    except ValueError:
        raise ClassError(f"{path}: the file is empty; a roster is {KNOWN}") from None
    titles = [_plain(title) for title in header]
    shape = next((s for s in SHAPES if all(any(title in titles for title in group) for group in s.needs)), None)
    if shape is None:
        raise ClassError(f"{path}: no roster has the columns {', '.join(header)[:200]}; known are {KNOWN}")
    width = len(header)
    rows = [row + ("",) * (width - len(row)) for row in rows]
    people = tuple(_person(shape, dict(zip(titles, map(_printable, row), strict=False))) for row in rows)
    if shape.platform == "plain" and any(HIDDEN.fullmatch(row.rstrip("0123456789 ")) for row, *_ in rows):
        raise ClassError(f"{path}: this is a grading worksheet in a language not known here; set Moodle to English and download it again")
    if not any(people):
        raise ClassError(f"{path}: no row of it is a student; export it again when people are enrolled")
    sheet = Sheet(path, shape.platform, "", header, tuple(rows), people)
    return replace(sheet, notebook=_notebook(path, names, notebook)) if sheet.worksheet else sheet


def _person(shape: _Shape, row: Mapping[str, str]) -> Person | None:
    first, last = (_value(row, names) for names in (FIRST, LAST))
    if not (first or last):
        first, last = _split(_value(row, FULL))
    number = row.get(shape.number, "")
    if shape.platform == "moodle":
        number = "".join(re.findall(r"\d+$", number))
    ids = tuple(dict.fromkeys(filter(None, (row.get(name, "") for name in shape.ids))))
    email = _value(row, EMAIL) or next((value for value in ids if "@" in value), "")
    if shape.platform == "canvas" and (not number.isdecimal() or _value(row, FULL).casefold() == CANVAS_TEST_STUDENT):
        return None
    if _plain(row.get("role", "student")) not in ("student", "") or not (number or ids or email):
        return None  # a teacher of Gradescope's; a row of nobody
    return Person("", first, last, email, ids, number)


def _value(row: Mapping[str, str], names: Iterable[str]) -> str:
    text = next((row[name] for name in names if row.get(name)), "")
    return text.removeprefix('="').removesuffix('"') if text.startswith('="') else text  # Canvas, so that no formula runs


def _split(name: str) -> tuple[str, str]:
    """First and last name of "Lark, Ada", "Ada Lark" or "王小明"."""
    last, comma, first = name.partition(",")
    if not comma:
        first, _, last = name.rpartition(" ")
    return first.strip(), last.strip()


def _notebook(path: Path, names: Sequence[str], asked: str) -> str:
    said = asked or path.stem
    found = [name for name in names if name in said] or [name for name in (named(asked, names),) if name]
    if len(found) == 1:
        return found[0]
    if asked:
        raise ClassError(f"--notebook {asked}: the class has no such notebook; it has {', '.join(names)}")
    example = names[0] if names else "NOTEBOOK"
    raise ClassError(
        f"{path}: this is Moodle's grading worksheet of one assignment; say of which notebook with --notebook {example}, "
        f"or have the notebook's name in the file's ({', '.join(names)})"
    )


def _printable(text: str) -> str:
    """A cell without what a terminal would obey: people choose their names themselves."""
    return UNPRINTABLE.sub(" ", text).strip()


def _plain(title: str) -> str:
    return " ".join(title.casefold().split())


def _decoded(data: bytes) -> str:
    """A file's text: UTF-8, UTF-16, GB 18030, or Windows's for Western Europe."""
    pairs = all(len(run) % 2 == 0 for run in HIGH.findall(data))  # a Chinese character is two bytes, a letter with an accent one
    unicode = "utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    for encoding in (unicode, *(["gb18030"] if pairs else [])):
        with contextlib.suppress(UnicodeDecodeError):
            return data.decode(encoding)
    return data.decode("cp1252", "replace")
