"""The people of a class, as the learning platforms export them; who a row of theirs is in this class.

`grader roster` keeps a copy of each export, byte for byte, under CLASS/roster/: canvas.csv, moodle.csv (participants),
moodle-NOTEBOOK.csv (the grading worksheet of an assignment), gradescope.csv, github.csv, plain.csv. Grades go back in the
same files. The same person in two of them is one student here: found by an id, else by the address, else by a name that
nobody else has. Who was found is remembered, so that a namesake who comes later changes nothing.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from itertools import chain, count
from pathlib import Path

import dateutil.parser
from nbgrader.api import Student

from grader.classroom.atomic import write_atomically
from grader.classroom.directory import ClassDirectory, ClassError
from grader.classroom.sheets import Person, Sheet, read_sheet
from grader.intake.platforms import Owner

WORKSHEET = "moodle-"  # before the notebook's name, in the name of a copy
NOT_IN_KEYS = re.compile(r"[\W_]+")
UNSAFE = re.compile(r"[^\w.@+-]+")


def resolved(sheet: Sheet, known: Mapping[str, Sequence[Person]], links: Mapping[str, str]) -> Sheet:
    """The sheet with the id in this class of everybody in it, a new one for who is new.

    known: student -> what the gradebook and other sheets say of them. links: `link` of a person -> student, of earlier.
    """
    sure, likely = _Index(known, _sure), _Index(known, _likely)
    here = Counter(one for person in set(sheet.people) if person for one in _likely(person))
    everybody = [person for person in dict.fromkeys(sheet.people) if person]
    found = {person: student for person in everybody if (student := links.get(link(person), "") or sure.one(_sure(person)))}
    taken = {*found.values()}
    for person in everybody:
        if person not in found:
            student = likely.one(key for key in _likely(person) if here[key] == 1)
            others = {other.email.casefold() for other in known.get(student, ()) if other.email}
            if not student or student in taken or (person.email and others and person.email.casefold() not in others):
                student = _new_id(person, taken | known.keys())
            found[person] = student
            taken.add(student)
    return replace(sheet, people=tuple(replace(person, student=found[person]) if person else None for person in sheet.people))


def sheets(cls: ClassDirectory, students: Iterable[Student]) -> list[Sheet]:
    """What lies under CLASS/roster/, with everybody's id in this class. students: the gradebook's. Raises ClassError."""
    known, links, found = of_gradebook(students), cls.remembered("roster.json"), list[Sheet]()
    for path in sorted((cls.root / "roster").glob("*.csv")):
        sheet = read_sheet(path, cls.names(), path.stem.removeprefix(WORKSHEET) if path.stem.startswith(WORKSHEET) else "")
        found.append(resolved(sheet, known, links.get(sheet.platform, {})))
        _learn(known, found[-1])
    return found


def add(cls: ClassDirectory, path: Path, notebook: str, students: Sequence[Student]) -> tuple[Sheet, list[tuple[str, str]]]:
    """Keeps a copy of an export and remembers who is who in it; the gradebook is left as it is. Raises ClassError.

    notebook: the one that a grading worksheet of Moodle is of ("": its file name tells). Also returns pairs of students who
    are one person, as only this export tells: one by the address, say, and one by the number.
    """
    sheet = read_sheet(path, cls.names(), notebook)
    known = of_gradebook(students)
    for earlier in sheets(cls, students):
        _learn(known, earlier)
    links = cls.remembered("roster.json")
    own = links.setdefault(sheet.platform, {})
    sheet = resolved(sheet, known, own)
    here: dict[str, Person] = {}
    for person in filter(None, sheet.people):
        twin = here.setdefault(link(person), person)
        for before, where in ((twin, "in another row"), *((before, "in the class") for before in known.get(person.student, ()))):
            if _differ(person, before):
                raise ClassError(
                    f"{path}: '{link(person)}' is {person.name} here and {before.name} {where}; an id has to stay one person's"
                )
    sure = _Index(known, _sure)
    same = {(person.student, other) for person in sheet.people if person for one in _sure(person) if (other := sure.one([one]))}
    own |= {link(person): person.student for person in sheet.people if person}
    cls.remember("roster.json", links)
    name = WORKSHEET + sheet.notebook if sheet.worksheet else sheet.platform
    write_atomically(cls.root / "roster" / f"{name}.csv", path.read_bytes())
    return sheet, sorted((one, other) for one, other in same if one != other)


def merge(cls: ClassDirectory, kept: str, gone: str) -> None:
    """Remembers that two students are one person."""
    links = cls.remembered("roster.json")
    cls.remember("roster.json", {where: {one: kept if who == gone else who for one, who in own.items()} for where, own in links.items()})


class Roster:
    """Who a file is of, by the words of its name; empty where the class has no roster."""

    def __init__(self, sheets: Sequence[Sheet], students: Iterable[Student]) -> None:
        self.sheets, known = sheets, dict[str, list[Person]]()
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
        others = of_gradebook(students)
        for student in known:
            known[student] += others.pop(student, [])
        self.indexes = [[_Index(people, keys) for keys in (_sure, _likely, _pieces)] for people in (known, others)]
        known |= others
        self.told = {one: student for student, facts in known.items() for person in facts for one in _likely(person)}
        self.names = {student: next((person.name for person in facts if person.name), "") for student, facts in known.items()}

    def student(self, owner: Owner) -> str:
        """Their id in this class; "" for nobody, and where a name is that of several or says two people's ids."""
        if owner.number and (student := self.numbers.get((owner.platform, owner.number))):
            return student
        if owner.platform == "canvas" and any(sheet.platform == "canvas" for sheet in self.sheets):
            return ""  # its number is of somebody whom the export does not have: a name could only be a namesake's
        words = owner.words or (owner.name,)
        for sure, likely, pieces in self.indexes:  # who is in the gradebook alone comes last
            for text in words:
                if student := sure.one([key(text)]) or likely.one([key(text)]):
                    return student
            for text in words:  # 2023001_张三, "Group A-Ada Lark"
                found = {pieces.one([key(piece)]) for how in (r"[_+-]+", r"[\s_+-]+") for piece in re.split(how, text)} - {""}
                if found:
                    return found.pop() if len(found) == 1 else ""
        return ""

    def namesake(self, owner: Owner, student: str, platform: str, number: str) -> bool:
        """Whether a file is of another person than the one whose hand-in of the same notebook a platform gave under a number."""
        other = owner.platform == platform and "" not in (owner.number, number) and owner.number != number
        return other and self.numbers.get((platform, owner.number)) != student

    def nearest(self, owner: Owner) -> str:
        """The people whose names or ids are most like it, for a sentence."""
        like = [one for text in owner.words or (owner.name,) for one in get_close_matches(key(text), self.told, 3, 0.5)]
        students = list(dict.fromkeys(self.told[one] for one in like))[:3]
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


def _differ(one: Person, other: Person) -> bool:
    """Whether two cannot be one person: no word of their names is the same (王小明 and 王 小明 are), nor is their address."""
    first, second = ({key(word) for word in person.name.split()} for person in (one, other))
    joined = key(one.name) == key(other.name) or (one.email and one.email.casefold() == other.email.casefold())
    return bool(first and second and not first & second and not joined)


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
    """Keys that are one person's alone; the folders that file names made before there was a roster are among them."""
    first, last, number = person.first_name, person.last_name, person.number
    old = [f"{last}{first}{number}", f"{first}{last}{number}"] if number and person.name else [_unnamed(person)] if number else []
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


def _new_id(person: Person, taken: set[str]) -> str:
    best = next(filter(None, (*person.ids, person.email, person.name)), "") or _unnamed(person)
    plain = UNSAFE.sub("_", unicodedata.normalize("NFC", best)).strip("._- ")[:80] or "student"
    own = [plain, *([f"{plain}_{person.number}"] if person.number else [])]
    return next(id for id in chain(own, (f"{plain}_{n}" for n in count(2))) if id not in taken)


def _unnamed(person: Person) -> str:
    """Moodle's word for somebody whose name it keeps back."""
    return f"Participant_{person.number}"
