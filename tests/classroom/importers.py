"""How Canvas and Moodle take grades, as far as it decides whose score becomes what: small models of their own sources.

Canvas: instructure/canvas-lms, lib/gradebook_exporter.rb, lib/gradebook_importer.rb, Assignment.title_and_id in
app/models/assignment.rb, and ui/features/gradebook_uploads/jquery/process_gradebook_upload.js, which posts the changes.
Its feedback files: Assignment.infer_comment_context_from_filename in app/models/assignment.rb.

Moodle: moodle/moodle, mod/assign/gradingtable.php (the worksheet), mod/assign/feedback/offline/importgradeslib.php and
locallib.php (its import), mod/assign/feedback/file/importziplib.php (feedback files), lib/csvlib.class.php.

Gradescope and GitHub Classroom import no grades.
"""

import csv
import io
import posixpath
import re
import zipfile
from dataclasses import dataclass, field
from datetime import datetime, timedelta

# Canvas


@dataclass
class CanvasStudent:
    """A student of a course. name: as it is shown, sortable: as it is exported."""

    id: int
    name: str
    sortable: str
    sis_user_id: str
    login: str


@dataclass
class CanvasCourse:
    """assignments: id -> title and points. scores: (student, assignment) -> score, where there is one."""

    students: list[CanvasStudent]
    assignments: dict[int, tuple[str, float]]
    scores: dict[tuple[int, int], str] = field(default_factory=dict)

    def export(self, *, first_last: bool = False, delimiter: str = ",", bom: bool = False) -> bytes:
        """The whole gradebook, as a file. first_last: names in two columns, a setting of the account."""
        header = [*(["LastName", "FirstName"] if first_last else ["Student"]), "ID", "SIS User ID", "SIS Login ID", "Section", "Notes"]
        header += [f"{title} ({key})" for key, (title, _) in self.assignments.items()] + ["Assignments Current Score", "Final Score"]
        blank = [""] * (len(header) - len(self.assignments) - 2)
        rows = [header, [*blank, *("Manual Posting" for _ in self.assignments), "", ""]]
        totals = [f"{points:.2f}" for _, points in self.assignments.values()]
        rows.append(["    Points Possible", *blank[1:], *totals, "(read only)", "(read only)"])
        for student in self.students:
            last, _, first = student.sortable.partition(", ")
            last, first, whole = (f'="{name}"' if name.startswith("=") else name for name in (last, first, student.sortable))
            name = [last, first] if first_last else [whole]
            facts = [*name, student.id, student.sis_user_id, student.login, "Section 1", "a note"]
            rows.append([*facts, *(self.scores.get((student.id, key), "") for key in self.assignments), "88.5", "80"])
        text = io.StringIO()
        csv.writer(text, delimiter=delimiter).writerows(rows)
        return text.getvalue().encode("utf-8-sig" if bom else "utf-8")

    def take(self, data: bytes) -> "CanvasUpload":
        """Imports a file, without a hand's turn. Raises ValueError where Canvas says that the header row is invalid."""
        text = data.decode("utf-8")  # CSV.foreach leaves a byte order mark in the first cell
        delimiter = _canvas_delimiter(text.splitlines()[:3])
        lines = [line for line in io.StringIO(text, newline="") if not re.fullmatch("[;, ]+", line.rstrip("\r\n"))]
        header, *rows = [[_canvas_number(cell) for cell in row] for row in csv.reader(lines, delimiter=delimiter, strict=True)]
        first_last = header[:2] == ["LastName", "FirstName"]
        names = ("Student", "ID"), ("LastName", "FirstName", "ID")
        if len(header) < 4 or not any(all(name in cell for name, cell in zip(own, header, strict=False)) for own in names):
            raise ValueError("Invalid header row")
        at = 4 if first_last else 3  # name, ID, Section
        sis = login = None
        if header[at - 1] == "SIS Login ID":
            login, at = at - 1, at + 1
        elif header[at - 1 : at + 1] == ["SIS User ID", "SIS Login ID"]:
            sis, login, at = at - 1, at, at + 2
        if "Section" not in header[at - 1]:
            raise ValueError("Invalid header row")
        upload = CanvasUpload()
        columns: dict[int, int] = {}
        for place, name in enumerate(header[at:], at):
            if re.search("Current Score|Current Points|Final Score|Final Points|Current Grade|Final Grade|Override", name):
                continue
            match = re.fullmatch(r"(.*)\s\((\d+)\)", name)
            key = int(match[2]) if match and int(match[2]) in self.assignments else None
            if key is None:
                key = next((key for key, (title, _) in self.assignments.items() if title == name), None)
            if key is None:  # Canvas asks, and makes an assignment of it
                key = max(self.assignments, default=0) + 1
                self.assignments[key] = (match[1] if match else name, 0.0)
                upload.new_assignments.append(key)
            columns[key] = place
        read_only: set[int] = set()
        for row in rows:
            if "Points Possible" in row[0]:
                read_only = {key for key, place in columns.items() if re.search(r"read\s+only", row[place])}
                for key in upload.new_assignments:
                    self.assignments[key] = (self.assignments[key][0], float(row[columns[key]]))
            elif all(re.fullmatch(r"\s*(Muted|Manual Posting.*)?\s*", cell, re.IGNORECASE) for cell in row):
                continue
            else:
                student = self._student(row, first_last, sis, login)
                if student is None:
                    upload.new_students.append(row[0])
                    continue
                for key, place in columns.items():
                    new, old = row[place].strip(), self.scores.get((student.id, key), "")
                    if key in read_only or new == old or {new, old} <= {"", "-"}:
                        continue
                    if new and old and float(new) == float(old):
                        continue
                    upload.changed[student.id, key] = new
        for place, score in upload.changed.items():  # a blank is posted as a blank: the score is gone
            self.scores.pop(place, None)
            if score:
                self.scores[place] = score
        return upload

    def take_feedback(self, data: bytes, uploads: dict[int, int]) -> tuple[dict[int, bytes], list[str]]:
        """Takes "Re-Upload Submissions". uploads: a file's id -> whose. Returns the file of each student, and what is ignored."""
        given, ignored = {}, []
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for info in archive.infolist():
                pieces = posixpath.basename(info.filename).split("_")
                user, upload = [*(int(piece) for piece in pieces if re.fullmatch("[0-9]+", piece)), 0, 0][:2]
                if uploads.get(upload) == user and not pieces[-1].startswith("link"):
                    given[user] = archive.read(info)
                else:
                    ignored.append(info.filename)
        return given, ignored

    def _student(self, row: list[str], first_last: bool, sis: int | None, login: int | None) -> CanvasStudent | None:
        by_id = {student.id: student for student in self.students}
        given = row[2 if first_last else 1]
        if given and (match := re.match(r"\s*(\d+)", given)) and int(match[1]) in by_id:  # Ruby's to_i
            return by_id[int(match[1])]
        for column, attribute in ((sis, "sis_user_id"), (login, "login")):
            for student in self.students:
                if column is not None and row[column] and getattr(student, attribute) == row[column]:
                    return student
        name = f"{row[1]} {row[0]}".strip() if first_last else row[0]
        return next((student for student in self.students if name in (student.name, student.sortable)), None)


@dataclass
class CanvasUpload:
    """What Canvas makes of a file. new_*: what it knows nothing of and asks about."""

    changed: dict[tuple[int, int], str] = field(default_factory=dict)
    new_students: list[str] = field(default_factory=list)
    new_assignments: list[int] = field(default_factory=list)


def _canvas_delimiter(lines: list[str]) -> str:
    fields = {}
    for delimiter in ";,":
        try:
            sizes = {len(next(csv.reader([line], delimiter=delimiter, strict=True))) for line in lines}
        except csv.Error:
            sizes = set()
        fields[delimiter] = sizes.pop() if len(sizes) == 1 else 0
    return ";" if fields[";"] > fields[","] else ","


def _canvas_number(cell: str) -> str:
    """A number with a decimal comma, or commas between thousands, as one with a point."""
    if not re.fullmatch("-?[0-9.,]+%?", cell):
        return cell
    *before, last = re.split("[,.]", cell)
    return f"{''.join(before)}.{last}" if before else last


# Moodle

DATE = "%A, %d %B %Y, %I:%M %p"


@dataclass
class MoodleAssignment:
    """participants: number that this assignment has for somebody -> full name, email. submitted: number -> when.

    grades: number -> grade, when it was changed. comments, files: what people were told.
    """

    participants: dict[int, tuple[str, str]]
    maximum: float = 100.0
    submitted: dict[int, datetime] = field(default_factory=dict)
    grades: dict[int, tuple[float, datetime]] = field(default_factory=dict)
    comments: dict[int, str] = field(default_factory=dict)
    files: dict[tuple[int, str], bytes] = field(default_factory=dict)

    def export(self) -> bytes:
        """The grading worksheet."""
        header = ["Identifier", "Full name", "Email address", "Status", "Grade", "Maximum grade", "Grade can be changed"]
        rows = [[*header, "Last modified (submission)", "Last modified (grade)", "Feedback comments"]]
        for number, (name, email) in self.participants.items():
            grade, when = self.grades.get(number, (None, None))
            handed_in = self.submitted.get(number)
            status = "Submitted for grading - " if handed_in else "No submission - "
            facts = [f"Participant {number}", name, email, status, "" if grade is None else f"{grade:.2f}", f"{self.maximum:.2f}", "Yes"]
            rows.append([*facts, *(time.strftime(DATE) if time else "-" for time in (handed_in, when)), self.comments.get(number, "")])
        text = io.StringIO()
        csv.writer(text).writerows(rows)
        return text.getvalue().encode("utf-8-sig")

    def take(self, data: bytes, now: datetime, *, even_if_modified: bool = False) -> int:
        """Imports a worksheet. Returns how many grades were updated. Raises ValueError where Moodle refuses the file."""
        text = data.decode("utf-8").removeprefix("\ufeff").replace("\r\n", "\n").strip()
        header, *rows = [row for row in csv.reader(io.StringIO(text), strict=True) if row]
        if any(len(row) != len(header) for row in rows):
            raise ValueError("the CSV file has rows of another length than its header")
        if not {"Identifier", "Grade", "Last modified (grade)"} <= set(header):
            raise ValueError("the grading worksheet lacks a column")
        updated = 0
        for row in rows:
            cells = dict(zip(header, row, strict=True))
            digits = re.match(r"\d+", cells["Identifier"][len("Participant ") :])
            number = int(digits[0]) if digits else 0
            if number not in self.participants:
                continue
            grade = _unformat_float(cells["Grade"])
            before, when = self.grades.get(number, (None, None))
            stale = when is not None and when > _strtotime(cells["Last modified (grade)"]) + timedelta(seconds=60)
            if grade is not None and grade != before and 0 <= grade <= self.maximum and (even_if_modified or not stale):
                self.grades[number] = (grade, now)
                updated += 1
            if "Feedback comments" in header and (even_if_modified or not stale):
                self.comments[number] = cells["Feedback comments"]
        return updated

    def take_feedback(self, data: bytes, now: datetime) -> set[int]:
        """Imports a zip of feedback files. Returns who got one; a grade without points is made where there is none."""
        given = set()
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for info in archive.infolist():
                parts = info.filename.split("/")
                if info.is_dir() or parts[-1].startswith((".", "~")):
                    continue
                while parts:
                    pieces = parts.pop(0).split("_", 4)
                    plugin = tuple(pieces[2:4])
                    if len(pieces) < 4 or not pieces[1].isdecimal() or int(pieces[1]) not in self.participants:
                        continue
                    if plugin not in {("assignsubmission", "file"), ("assignsubmission", "onlinetext"), ("assignfeedback", "file")}:
                        continue
                    number = int(pieces[1])
                    name = posixpath.basename("/".join([*pieces[4:], *parts]))
                    if self.files.get((number, name)) != archive.read(info):
                        self.files[number, name] = archive.read(info)
                        self.grades.setdefault(number, (-1.0, now))
                        given.add(number)
                    break
        return given


def _unformat_float(text: str) -> float | None:
    """lib/moodlelib.php: without blanks; None where there is nothing."""
    text = text.replace(" ", "").replace("\xa0", "")
    return float(text) if text else None


def _strtotime(text: str) -> datetime:
    try:
        return datetime.strptime(text, DATE)  # Moodle's own time zone on both ways
    except ValueError:
        return datetime(1970, 1, 1)
