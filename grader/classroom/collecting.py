"""Hand-ins filed under submitted/, by the class's roster where it has one, and the roster itself.

A hand-in's timestamp.txt, which nbgrader reads, is what a platform says of when it was handed in; where nothing is known
there is none, and no due date counts. Canvas says LATE and not by how much: the time is then a second after the due date,
which any extension makes good.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from nbgrader.api import Student

from grader.classroom.atomic import write_atomically
from grader.classroom.changes import still_refused
from grader.classroom.directory import ClassDirectory, ClassError, read_config
from grader.classroom.exports import Ungraded
from grader.classroom.gradebook import ClassGradebook, NotEnteredError, handed_in, open_gradebook
from grader.classroom.roster import Roster, add, key, merge, sheets
from grader.classroom.sheets import Person, Sheet
from grader.course.source import Notebook
from grader.intake.match import Unreadable, read_submission
from grader.intake.platforms import CollectedFile, Owner, Refusal, gather, placed

Say = Callable[[str], None]
NAMED = 10  # people whom one line names


@dataclass(frozen=True)
class Upload:
    """What is remembered of a hand-in, to compare with one that comes later. See CollectedFile; when: in whole seconds."""

    platform: str = ""
    number: str = ""
    attempt: int = 0
    when: int | None = None

    @property
    def said(self) -> str:
        return f"the one of {datetime.fromtimestamp(self.when, UTC):%Y-%m-%d %H:%M}" if self.when else "the one collected before"

    def newer(self, other: Upload) -> str:
        """Why this one stays where the other comes later, "" where it does not."""
        if self.platform == other.platform and other.attempt and self.attempt > other.attempt:
            return "an earlier upload than the one that is there, left out"
        if self.when and other.when and self.when > other.when:
            return f"older than {self.said}, left out"
        return ""


def roster(directory: Path, paths: Sequence[Path], notebook: str = "", say: Say = print) -> None:
    """Reads what platforms export of a class's people into the gradebook, and keeps it under roster/. Raises ClassError.

    notebook: the one that a grading worksheet of Moodle is of ("": its file name tells).
    """
    with ClassDirectory.at_work(directory) as cls, open_gradebook(read_config(cls)) as gradebook:
        for path in paths:
            known = _students(cls, gradebook)
            sheet, same = add(cls, path, notebook, known)
            people = {person.student: person for person in sheet.people if person}
            for person in people.values():
                _enter(gradebook, sheet, person)
            gradebook.db.commit()
            for one, other in same:
                _make_one(cls, gradebook, one, other, say)
            kind = f"Moodle's worksheet of {sheet.notebook}" if sheet.worksheet else sheet.platform
            new = people.keys() - {student.id for student in known}
            say(f"{path.name} ({kind}): {len(people)} people" + (f", new in the class: {_some(sorted(new))}" if new else ", nobody new"))
        everybody = _students(cls, gradebook)
        listed = {person.student for sheet in sheets(cls, everybody) for person in sheet.people if person}
        if others := sorted({student.id for student in everybody} - listed):
            say(f"in the class and in no roster, they stay: {_some(others)}")
        for students in _look_alikes(cls):
            say(f"is this one person? {_some(students)}: if so, put what is under submitted/ in one folder and delete the other")


def _enter(gradebook: ClassGradebook, sheet: Sheet, person: Person) -> None:
    row = gradebook.db.get(Student, person.student) or Student(id=person.student)
    if person.name and (sheet.splits_names or key(person.name) != key(f"{row.first_name or ''}{row.last_name or ''}")):
        row.first_name, row.last_name = person.first_name, person.last_name
    row.email = person.email or row.email
    if sheet.platform == "canvas":
        row.lms_user_id = person.number
    gradebook.db.add(row)


def _make_one(cls: ClassDirectory, gradebook: ClassGradebook, one: str, other: str, say: Say) -> None:
    """Makes one student of two of whom at most one has handed something in; says so where both have."""
    rows = {student: gradebook.db.get(Student, student) for student in (one, other)}
    busy = [student for student, row in rows.items() if student in cls.students() or (row and row.submissions)]
    if len(busy) == 2:
        say(f"{one} and {other} are one person: put what is under submitted/ in one folder and delete the other")
        return
    kept, gone = (other, one) if busy == [other] else (one, other)
    mine, theirs = rows[kept], rows[gone]
    if mine and theirs:
        for fact in ("first_name", "last_name", "email", "lms_user_id"):
            setattr(mine, fact, getattr(mine, fact) or getattr(theirs, fact))
        gradebook.db.delete(theirs)
        gradebook.db.commit()
    merge(cls, kept, gone)
    say(f"{gone} and {kept} are one person, called {kept} from now on")


def collect(directory: Path, paths: Sequence[Path], say: Say = print) -> list[Ungraded]:
    """Files what a learning platform or Colab gives under submitted/. Returns what it refused. Raises ClassError."""
    with ClassDirectory.at_work(directory) as cls:
        for path in paths:
            if not path.exists():
                raise ClassError(f"{path}: no such file or folder")
        with open_gradebook(read_config(cls)) as gradebook:
            students, due = _students(cls, gradebook), gradebook.deadlines().due
            filing = _Filing(cls, cls.masters(), Roster(sheets(cls, students), students), due, say)
        refused: dict[str, dict[str, str]] = {}
        before = cls.remembered("refused.json")  # student -> file -> why, where nothing better has come since
        for item in gather(paths):
            student, reason = filing.whose(item)
            before.get(student, {}).pop(item.filename, None)  # the file has come again
            if isinstance(item, Refusal):
                reason = item.reason
            elif not reason:
                notebook, reason = filing.file(item, student)
                for who in {student, item.student}:
                    before[who] = still_refused(before.get(who, {}), notebook, cls.names()) if notebook else before.get(who, {})
            if reason:
                refused.setdefault(student, {})[item.filename] = reason
                say(f"{student or '(no student)'}  {item.filename}  refused: {reason.removeprefix(f'{item.filename}: ')}")
        kept = {student: before.get(student, {}) | refused.get(student, {}) for student in before | refused}
        cls.remember("refused.json", {student: reasons for student, reasons in kept.items() if reasons})
        filing.sum_up(sum(map(len, refused.values())))
        return [(student, name, reason) for student, reasons in refused.items() for name, reason in reasons.items()]


class _Filing:
    """Files hand-ins one after the other, and remembers what to say of all of them."""

    def __init__(
        self, cls: ClassDirectory, masters: Sequence[Notebook], roster: Roster, due: Mapping[str, datetime | None], say: Say
    ) -> None:
        self.cls, self.masters, self.roster, self.due, self.say = cls, masters, roster, due, say
        self.new: set[str] = set()
        self.hidden: dict[str, str] = {}  # student -> platform
        self.count: Counter[str] = Counter()  # what became of hand-ins
        self.untouched: Counter[str] = Counter()  # by notebook
        self.timeless: Counter[str] = Counter()  # by platform
        self.late_without_due: Counter[str] = Counter()  # by notebook

    def whose(self, item: CollectedFile | Refusal) -> tuple[str, str]:
        """The student, and why the file cannot be filed ("" if it can)."""
        owner = item.owner
        if owner is None or not item.student or not self.roster.sheets:
            return item.student, ""
        if student := self.roster.student(owner):
            return student, ""
        return item.student, f"{item.filename}: {_stranger(owner, item.filename, self.roster.nearest(owner))}"

    def file(self, item: CollectedFile, student: str) -> tuple[str, str]:
        """Files one hand-in, unless a newer one lies there. Returns of which notebook it is, or "" and why it cannot be used."""
        try:
            name = read_submission(item.data, item.filename, self.masters).notebook.name
        except Unreadable as e:
            return "", str(e)
        except Exception as e:  # ours, of something that nobody thought of: one hand-in stops no other
            return "", f"{item.filename}: it cannot be read ({type(e).__name__}); hand in the course's notebook with your answers in it"
        notes = list(item.notes)
        if not self.roster.sheets:
            student = placed(item, lambda other: self._known(other, name).number)
            if student not in (item.student, item.student.removesuffix(f"_{item.owner.number}")):
                notes.append(f"Another {item.student} has handed this notebook in; a roster tells whether they are one person.")
        folder = self.cls.root / "submitted" / student / name
        path, stamp = folder / f"{name}.ipynb", folder / "timestamp.txt"
        if not folder.parent.exists():
            self.new.add(student)
        moodles = self.roster.times.get((name, student)) if item.owner.platform == "moodle" else None
        when = item.when or moodles
        upload = Upload(item.owner.platform, item.owner.number, item.attempt, int(when) if when else None)
        text = self._time(upload, item.late, name)
        known, there = self._known(student, name), path.exists()
        if item.owner.platform == "github" and not there and item.data == self._released(name):
            self.untouched[name] += 1  # every repository has all that was handed out
            return name, ""
        if there and self.roster.namesake(item.owner, student, known.platform, known.number):
            reason = f"{item.filename}: '{item.owner.name}' number {item.owner.number} is another person than number {known.number}, whose "
            reason += f"hand-in is filed as {student}; 'grader roster' with {item.owner.platform.capitalize()}'s export tells them apart"
            return "", reason
        if line := known.newer(upload) if there else "":
            self.say("  ".join([student, name, line, *notes]))
            self.count["left out"] += 1
            return name, ""
        same = there and path.read_bytes() == item.data
        if same and (not text or text == (stamp.read_text(encoding="utf-8") if stamp.exists() else "")):
            line, upload = "there already", replace(max(upload, known, key=lambda one: one.attempt), when=upload.when or known.when)
        else:
            line = "filed" if not there else "filed anew, its time has changed" if same else f"filed in the place of {known.said}"
            if text:
                write_atomically(stamp, text)
            else:
                stamp.unlink(missing_ok=True)
            if not same:
                write_atomically(path, item.data)
        self.cls.write_upload(student, name, asdict(upload))
        self.count["there already" if line == "there already" else "filed"] += 1
        self.say("  ".join([student, name, line, *(["late, says Canvas"] if item.late else []), *notes]))
        if item.late and not text:
            self.late_without_due[name] += 1
        elif upload.when is None and upload.platform != "canvas":  # that would have said LATE
            self.timeless[upload.platform] += 1
        if item.owner.hidden:
            self.hidden[student] = item.owner.platform
        return name, ""

    def _known(self, student: str, name: str) -> Upload:
        """The hand-in that is there: as it was collected, or as nbgrader's collecting left it."""
        facts = self.cls.upload(student, name)
        try:
            return Upload(**facts) if facts else Upload(when=_seconds(self.cls.root / "submitted" / student / name))
        except TypeError:
            return Upload()

    def _time(self, upload: Upload, late: bool, name: str) -> str:
        """What timestamp.txt is to hold, "" for no such file."""
        if upload.when is not None:
            return f"{datetime.fromtimestamp(upload.when, UTC):%Y-%m-%d %H:%M:%S} UTC"
        if late and (due := self.due.get(name)):
            return f"{due + timedelta(seconds=1):%Y-%m-%d %H:%M:%S} UTC"
        return ""

    def _released(self, name: str) -> bytes:
        """The notebook as students get it, b"" where there is none."""
        path = self.cls.root / "release" / name / f"{name}.ipynb"
        return path.read_bytes() if path.is_file() else b""

    def sum_up(self, refused: int) -> None:
        """Says what holds for many hand-ins, once. refused: how many files."""
        counted = [f"{self.count[what]} {what}" for what in ("filed", "there already", "left out") if self.count[what]]
        self.say(", ".join([*counted, *([f"{refused} refused, named above"] if refused else [])]) or "no hand-in")
        for name, count in self.untouched.items():
            self.say(f"{name}: {count} {'repository holds' if count == 1 else 'repositories hold'} it as it was handed out; no hand-in")
        for name, count in self.late_without_due.items():
            self.say(f"{name}: {count} late, says Canvas; that counts once you set the due date (formgrader) and collect the file again")
        if count := self.timeless.total():
            remedy = "; 'grader roster' with Moodle's grading worksheet tells it, then collect again" if self.timeless["moodle"] else ""
            self.say(f"no time known of {_hand_ins(count)}: no due date counts there{remedy}")
        for platform in sorted(set(self.hidden.values())):
            some = _some(student for student, where in self.hidden.items() if where == platform)
            self.say(f"{platform.capitalize()} keeps names back and calls a person otherwise in each assignment: {some}")
        if not self.roster.sheets:
            for students in _look_alikes(self.cls):
                if self.new & set(students):
                    self.say(f"is this one person? {_some(students)}: 'grader roster' with your platform's list of people tells")


def _look_alikes(cls: ClassDirectory) -> list[list[str]]:
    """Students with hand-ins whose ids are made of the same letters: Ada_Lark, larkada_12345, ada-lark."""
    groups = defaultdict[str, list[str]](list)
    for student in cls.students():
        groups["".join(sorted(re.sub(r"\d", "", key(student))))].append(student)
    return [students for letters, students in groups.items() if len(students) > 1 and (len(letters) > 4 or not letters.isascii())]


def _students(cls: ClassDirectory, gradebook: ClassGradebook) -> list[Student]:
    """Those of the gradebook, and those who only have a hand-in yet."""
    entered = {student.id: student for student in gradebook.students}
    return [*entered.values(), *(Student(id=student) for student in cls.students() if student not in entered)]


def _stranger(owner: Owner, filename: str, nearest: str) -> str:
    """Why a file fits nobody in the roster, and what to do."""
    if owner.hidden and owner.platform == "moodle":
        return f"Moodle keeps the name of {owner.name} back; 'grader roster' with this assignment's grading worksheet tells it"
    if owner.hidden:
        return f"{owner.platform.capitalize()} keeps the name of {owner.name} back; show the names there and download it again"
    who = (owner.words or (owner.name,))[-1]
    like = f"; nearest: {nearest}" if nearest else ""
    remedy = f"give 'grader roster' a new export, or call the file ID_{filename}, by an id of the roster, and collect it by itself"
    return f"nobody in the roster, or more than one, is called '{who}'{like}; {remedy}"


def _seconds(folder: Path) -> int | None:
    try:
        when = handed_in(folder)
    except (NotEnteredError, OSError):
        return None
    return int(when.replace(tzinfo=UTC).timestamp()) if when else None


def _hand_ins(count: int) -> str:
    return "1 hand-in" if count == 1 else f"{count} hand-ins"


def _some(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
