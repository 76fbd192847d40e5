"""The people of a class, as the learning platforms export them; who a row of theirs is in this class.

`grader roster` keeps a copy of each export, byte for byte, under CLASS/roster/: canvas.csv, moodle.csv (participants),
moodle-NOTEBOOK.csv (the grading worksheet of an assignment), gradescope.csv, github.csv, plain.csv. Grades go back in the
same files. The same person in two of them is one student here: found by an id, else by the address, else by a name that
nobody else has. Who was found is remembered, so that a namesake who comes later changes nothing.
"""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import chain, count
from pathlib import Path

import dateutil.parser
from nbgrader.api import Student

from grader.classroom.atomic import write_atomically
from grader.classroom.directory import ClassDirectory, ClassError
from grader.intake.platforms import Owner

CANVAS_TEST_STUDENT = "student, test"  # Canvas's own, whose work counts for nobody
HIGH = re.compile(rb"[\x80-\xff]+")
NOT_IN_KEYS = re.compile(r"[\W_]+")
UNSAFE = re.compile(r"[^\w.@+-]+")

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
    encoding: str
    delimiter: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    people: tuple[Person | None, ...]

    def column(self, *names: str) -> int | None:
        """The place of the first column that has one of these names, whatever their case."""
        header = [_plain(title) for title in self.header]
        return next((header.index(name) for name in names if name in header), None)

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
WORKSHEET = "moodle-"  # before the notebook's name
KNOWN = (
    "Canvas's gradebook export, Moodle's participants or grading worksheet, Gradescope's or GitHub Classroom's roster, "
    "or a CSV file with the columns name, email and id"
)


def read_sheet(path: Path, names: Sequence[str] = (), notebook: str = "") -> Sheet:
    """Reads an export; the ids in this class are left blank. Raises ClassError.

    names: the class's notebooks. notebook: the one that a grading worksheet of Moodle is of; without, its file name tells.
    """
    try:
        text, encoding = _decoded(path.read_bytes())
    except OSError as e:
        raise ClassError(f"{path}: {e.strerror}") from None
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
    people = tuple(_person(shape, dict(zip(titles, map(str.strip, row), strict=False))) for row in rows)
    if not any(people):
        raise ClassError(f"{path}: no row of it is a student; export it again when people are enrolled")
    sheet = Sheet(path, shape.platform, "", encoding, delimiter, header, tuple(rows), people)
    return replace(sheet, notebook=_notebook(path, names, notebook)) if sheet.worksheet else sheet


def resolved(sheet: Sheet, known: Mapping[str, Sequence[Person]], links: Mapping[str, str]) -> Sheet:
    """The sheet with the id in this class of everybody in it, a new one for who is new.

    known: student -> what the gradebook and other sheets say of them. links: `link` of a person -> student, of earlier.
    """
    sure, likely = _Index(known, _sure), _Index(known, _likely)
    here = Counter(key for key_set in ({*_likely(p)} for p in set(filter(None, sheet.people))) for key in key_set)
    found: dict[Person, str] = {}
    everybody = [person for person in dict.fromkeys(sheet.people) if person]
    for person in everybody:
        student = links.get(link(person), "") or sure.one(_sure(person))
        if student:
            found[person] = student
    for person in everybody:
        if person not in found:
            student = likely.one(key for key in _likely(person) if here[key] == 1)
            others = {other.email.casefold() for other in known.get(student, ()) if other.email}
            if not student or student in found.values() or (person.email and others and person.email.casefold() not in others):
                student = _new_id(person, {*known, *found.values()})
            found[person] = student
    return replace(sheet, people=tuple(replace(person, student=found[person]) if person else None for person in sheet.people))


def sheets(cls: ClassDirectory, students: Iterable[Student]) -> list[Sheet]:
    """What lies under CLASS/roster/, with everybody's id in this class. students: the gradebook's. Raises ClassError."""
    known, links, found = of_gradebook(students), cls.remembered("roster.json"), list[Sheet]()
    for path in sorted((cls.root / "roster").glob("*.csv")):
        sheet = read_sheet(path, cls.names(), path.stem.removeprefix(WORKSHEET) if path.stem.startswith(WORKSHEET) else "")
        found.append(resolved(sheet, known, links.get(sheet.platform, {})))
        _learn(known, found[-1])
    return found


def add(cls: ClassDirectory, path: Path, notebook: str, students: Sequence[Student]) -> Sheet:
    """Keeps a copy of an export and remembers who is who in it; the gradebook is left as it is. Raises ClassError.

    notebook: the one that a grading worksheet of Moodle is of ("": its file name tells).
    """
    sheet = read_sheet(path, cls.names(), notebook)
    known = of_gradebook(students)
    for other in sheets(cls, students):
        _learn(known, other)
    links = cls.remembered("roster.json")
    own = links.setdefault(sheet.platform, {})
    sheet = resolved(sheet, known, own)
    own |= {link(person): person.student for person in sheet.people if person}
    cls.remember("roster.json", links)
    name = WORKSHEET + sheet.notebook if sheet.worksheet else sheet.platform
    write_atomically(cls.root / "roster" / f"{name}.csv", path.read_bytes())
    return sheet


class Roster:
    """Who a file is of, by the words of its name; empty where the class has no roster."""

    def __init__(self, sheets: Sequence[Sheet], students: Iterable[Student]) -> None:
        self.sheets, known = sheets, of_gradebook(students)
        self.numbers: dict[tuple[str, str], str] = {}
        self.times: dict[tuple[str, str], float] = {}
        for sheet in sheets:
            _learn(known, sheet)
            when = sheet.column("last modified (submission)")
            for row, person in zip(sheet.rows, sheet.people, strict=True):
                if person and person.number:
                    self.numbers[sheet.platform, person.number] = person.student
                if person and when is not None and (handed_in := _moment(row[when])):
                    self.times[sheet.notebook, person.student] = handed_in
        self.sure, self.likely, self.pieces = (_Index(known, keys) for keys in (_sure, _likely, _pieces))
        self.names = {student: next((person.name for person in facts if person.name), "") for student, facts in known.items()}

    def student(self, owner: Owner) -> str:
        """Their id in this class; "" for nobody, and where a name is that of several or says two people's ids."""
        if owner.number and (student := self.numbers.get((owner.platform, owner.number))):
            return student
        if owner.platform == "canvas" and any(sheet.platform == "canvas" for sheet in self.sheets):
            return ""  # its number is of somebody whom the export does not have: a name could only be a namesake's
        words = owner.words or (owner.name,)
        for text in words:
            if student := self.sure.one([key(text)]) or self.likely.one([key(text)]):
                return student
        for text in words:  # 2023001_张三, "Group A-Ada Lark"
            found = {self.pieces.one([key(piece)]) for how in (r"[_+-]+", r"[\s_+-]+") for piece in re.split(how, text)} - {""}
            if found:
                return found.pop() if len(found) == 1 else ""
        return ""

    def nearest(self, owner: Owner) -> str:
        """The people whose names or ids are most like it, for a sentence."""
        said = {one: student for student, name in self.names.items() for one in (key(name), key(student)) if one}
        like = [one for text in owner.words or (owner.name,) for one in get_close_matches(key(text), said, 3, 0.5)]
        students = list(dict.fromkeys(said[one] for one in like))[:3]
        return ", ".join(f"{self.names[student]} ({student})" if self.names[student] else student for student in students)


def _moment(text: str) -> float | None:
    """Seconds since 1970 of a time as Moodle writes it, which is this machine's own time; None where it cannot be read."""
    if numbers := re.match(r"(\d{4})\D+(\d{1,2})\D+(\d{1,2})\D.*?(\d{1,2}):(\d\d)", text):  # 2026年06月10日 星期三 14:14
        text = "{}-{}-{} {}:{}".format(*numbers.groups())
    try:
        return dateutil.parser.parse(text).timestamp() if any(map(str.isdigit, text)) else None
    except (ValueError, OverflowError):
        return None


def _learn(known: dict[str, list[Person]], sheet: Sheet) -> None:
    for person in filter(None, sheet.people):
        known.setdefault(person.student, []).append(person)


def link(person: Person) -> str:
    """What a row of a sheet is remembered by."""
    return person.number or next(iter(person.ids), "") or person.email or person.name


def of_gradebook(students: Iterable[Student]) -> dict[str, list[Person]]:
    """What the gradebook says of its students, for `resolved`."""
    return {s.id: [Person(s.id, s.first_name or "", s.last_name or "", s.email or "", (s.id,), "")] for s in students}


def key(text: str) -> str:
    """A name or an id without what platforms change in it: case, spaces, commas, underscores."""
    return NOT_IN_KEYS.sub("", unicodedata.normalize("NFKC", text).casefold())


class _Index:
    """Key -> the students who have it."""

    def __init__(self, known: Mapping[str, Sequence[Person]], keys: Callable[[Person], Iterable[str]]) -> None:
        self.students: dict[str, set[str]] = defaultdict(set)
        for student, facts in known.items():
            for person in facts:
                for one in keys(person):
                    self.students[one].add(student)

    def one(self, keys: Iterable[str]) -> str:
        """The student of the first key that is one student's alone, else ""."""
        return next((next(iter(found)) for one in keys if len(found := self.students.get(one, ())) == 1), "")


def _sure(person: Person) -> list[str]:
    """Keys that are one person's alone; the folder that Canvas's file names made before there was a roster is among them."""
    old = [f"{person.last_name}{person.first_name}{person.number}"] if person.number and person.name else []
    return [one for one in map(key, (person.email, *person.ids, *old)) if one]


def _likely(person: Person) -> list[str]:
    """Keys that namesakes share."""
    first, last = person.first_name, person.last_name
    texts = [first + last, last + first, person.email.partition("@")[0], *person.ids]
    return list(dict.fromkeys(one for one in map(key, texts) if one))


def _pieces(person: Person) -> list[str]:
    """Keys that are nobody else's first name: whole names, addresses, and ids with a digit in them."""
    first, last = person.first_name, person.last_name
    names = [first + last, last + first] if (first and last) or not (first + last).isascii() else []
    texts = [*names, person.email, *(one for one in person.ids if any(map(str.isdigit, one)))]
    return [one for one in map(key, texts) if one]


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


def _new_id(person: Person, taken: set[str]) -> str:
    best = next(filter(None, (*person.ids, person.email)), "") or (f"Participant_{person.number}" if not person.name else person.name)
    plain = UNSAFE.sub("_", unicodedata.normalize("NFC", best)).strip("._- ")[:80] or "student"
    own = [plain, *([f"{plain}_{person.number}"] if person.number else [])]
    return next(id for id in chain(own, (f"{plain}_{n}" for n in count(2))) if id not in taken)


def _notebook(path: Path, names: Sequence[str], asked: str) -> str:
    said = asked or path.stem
    numbers = {name: re.escape(name.partition("_")[0]) for name in names}
    found = [name for name in names if name in said]
    found = found or [name for name in names if re.search(rf"(?<!\d){numbers[name]}(?!\d)", said if asked else "")]
    if len(found) == 1:
        return found[0]
    if asked:
        raise ClassError(f"--notebook {asked}: the class has no such notebook; it has {', '.join(names)}")
    example = names[0] if names else "NOTEBOOK"
    raise ClassError(
        f"{path}: this is Moodle's grading worksheet of one assignment; say of which notebook with --notebook {example}, "
        f"or have the notebook's name in the file's ({', '.join(names)})"
    )


def _plain(title: str) -> str:
    return " ".join(title.casefold().split())


def _decoded(data: bytes) -> tuple[str, str]:
    """A file's text and its encoding: UTF-8 or UTF-16, with or without their marks, GB 18030, or Windows's for Western Europe."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        candidates = ["utf-16"]
    elif data[1:2] == b"\0":
        candidates = ["utf-16-le"]
    elif data.startswith(b"\xef\xbb\xbf"):
        candidates = ["utf-8-sig"]
    else:  # a Chinese character is two bytes, a letter with an accent one
        candidates = ["utf-8", *(["gb18030"] if all(len(run) % 2 == 0 for run in HIGH.findall(data)) else [])]
    for encoding in candidates:
        try:
            return data.decode(encoding), encoding
        except UnicodeDecodeError:
            continue
    return data.decode("cp1252", "replace"), "cp1252"
