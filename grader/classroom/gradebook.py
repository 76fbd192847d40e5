"""What stands in a class's gradebook, and the tables made of it: grades.csv, and one each that Canvas and Moodle import."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from nbgrader.api import Assignment, BaseCell, Comment, Grade, Gradebook, Student, SubmittedAssignment, SubmittedNotebook
from sqlalchemy import select

from grader.classroom.atomic import write_whole
from grader.course.source import Notebook

Ungraded = tuple[str, str, str]  # student, notebook, reason


@dataclass
class Marks:
    """Of one hand-in. scores: by check and written answer, None where nobody has given one yet. comments: by cell.

    digest: changes when anything does that a learner's page shows.
    """

    scores: dict[str, float | None]
    comments: dict[str, str]
    penalty: float
    extension: timedelta | None

    @property
    def digest(self) -> str:
        return hashlib.sha256(repr((self.scores, self.comments, self.penalty)).encode()).hexdigest()

    @property
    def score(self) -> float:
        """The points given so far, less the penalty for being late."""
        return max(0, sum(score for score in self.scores.values() if score is not None) - self.penalty)


@dataclass(frozen=True)
class Book:
    """A gradebook as it was read. marks: by student and notebook. due: by notebook."""

    marks: dict[tuple[str, str], Marks]
    due: dict[str, datetime | None]
    students: dict[str, Student]


def read_book(gradebook: Gradebook, student: str | None = None) -> Book:
    """All of a gradebook, or one student's rows of it. A handful of queries, whatever the size of the class."""
    db = gradebook.db
    mine = () if student is None else (SubmittedAssignment.student_id == student,)
    hand_ins = (
        select(SubmittedAssignment.student_id, Assignment.name, SubmittedNotebook.late_submission_penalty, SubmittedAssignment.extension)
        .join(Assignment, Assignment.id == SubmittedAssignment.assignment_id)
        .join(SubmittedNotebook, SubmittedNotebook.assignment_id == SubmittedAssignment.id)
        .where(*mine)
    )
    marks = {(who, notebook): Marks({}, {}, penalty or 0.0, extension) for who, notebook, penalty, extension in db.execute(hand_ins)}
    for table, columns in (
        (Grade, (Grade.auto_score, Grade.manual_score, Grade.extra_credit)),
        (Comment, (Comment.auto_comment, Comment.manual_comment)),
    ):
        rows = (
            select(SubmittedAssignment.student_id, Assignment.name, BaseCell.name, *columns)
            .join(SubmittedNotebook, SubmittedNotebook.id == table.notebook_id)
            .join(SubmittedAssignment, SubmittedAssignment.id == SubmittedNotebook.assignment_id)
            .join(Assignment, Assignment.id == SubmittedAssignment.assignment_id)
            .join(BaseCell, BaseCell.id == table.cell_id)
            .where(*mine)
            .order_by(BaseCell.name)
        )
        for who, notebook, cell, automatic, manual, *extra in db.execute(rows):
            value = automatic if manual is None else manual
            if table is Comment:
                marks[who, notebook].comments[cell] = value or ""
            else:
                marks[who, notebook].scores[cell] = None if value is None else value + (extra[0] or 0)
    due = {assignment.name: assignment.duedate for assignment in db.scalars(select(Assignment))}
    students = {person.id: person for person in db.scalars(select(Student))}
    db.expunge_all()
    return Book(marks, due, students)


def write_grades(directory: Path, notebooks: Iterable[Notebook], book: Book, ungraded: Iterable[Ungraded]) -> None:
    """Writes grades.csv, grades-canvas.csv and grades-moodle.csv, in UTF-8 with the mark that makes Excel read it as such."""
    notebooks = list(notebooks)
    reasons = {(student, notebook): reason for student, notebook, reason in ungraded}
    for name, rows in (
        ("grades.csv", _grades(notebooks, book, reasons)),
        ("grades-canvas.csv", _canvas(notebooks, book, reasons)),
        ("grades-moodle.csv", _moodle(notebooks, book, reasons)),
    ):
        text = io.StringIO()
        csv.writer(text).writerows([_safe(value) for value in row] for row in rows)
        write_whole(directory / name, text.getvalue().encode("utf-8-sig"))


Reasons = Mapping[tuple[str, str], str]
Row = list[object]


def _grades(notebooks: list[Notebook], book: Book, reasons: Reasons) -> list[Row]:
    """A row for each student and notebook, a column for each exercise, check and written answer; blank is not graded."""
    columns = {notebook.name: _columns(notebook) for notebook in notebooks}
    header: Row = ["student", "name", "notebook", "score", "max", "late penalty", "reason"]
    rows = [header + [f"{name}/{title}" for name, own in columns.items() for title in own]]
    wanted = {key for key in book.marks if key[1] in columns} | set(reasons)
    handed_in = {notebook for _, notebook in wanted if notebook in columns}
    wanted |= {(student, notebook) for student in book.students for notebook in handed_in}
    points = {notebook.name: {c.name: c.points for c in notebook.of_kind("check", "answer")} for notebook in notebooks}
    for student, notebook in sorted(wanted):
        marks = None if (student, notebook) in reasons else book.marks.get((student, notebook))
        row: Row = [student, _name(book, student), notebook]
        if marks:
            given = {cell: score for cell, score in marks.scores.items() if score is not None}
            waiting = [cell for cell in points[notebook] if cell not in given]
            reason = f"waits for a person: {', '.join(waiting)}" if waiting else ""
            row += [marks.score, sum(points[notebook].get(cell, 0) for cell in given), marks.penalty, reason]
        else:
            row += ["", "", "", reasons.get((student, notebook), "nothing was handed in")]
        for name, own in columns.items():
            for cells in own.values():
                scores = [marks.scores.get(cell) for cell in cells] if marks and name == notebook else [None]
                row.append("" if None in scores else sum(scores))
        rows.append(row)
    return rows


def _columns(notebook: Notebook) -> dict[str, list[str]]:
    """Title of a column -> the graded cells that it sums."""
    columns: dict[str, list[str]] = {}
    checks = notebook.of_kind("check")
    for exercise in dict.fromkeys(check.exercise for check in checks):
        own = [check.name for check in checks if check.exercise == exercise]
        columns |= {exercise: own} | {f"{exercise}/{name}": [name] for name in own}
    return columns | {answer.name: [answer.name] for answer in notebook.of_kind("answer")}


def _canvas(notebooks: list[Notebook], book: Book, reasons: Reasons) -> list[Row]:
    rows: list[Row] = [
        ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", *[nb.title for nb in notebooks]],
        ["    Points Possible", "", "", "", "", *[_total(nb) for nb in notebooks]],
    ]
    for student, facts in sorted(book.students.items()):
        rows.append([_name(book, student) or student, facts.lms_user_id or "", "", student, "", *_final(notebooks, book, reasons, student)])
    return rows


def _moodle(notebooks: list[Notebook], book: Book, reasons: Reasons) -> list[Row]:
    rows: list[Row] = [["Username", "Email address", *[nb.title for nb in notebooks]]]
    for student, facts in sorted(book.students.items()):
        rows.append([student, facts.email or "", *_final(notebooks, book, reasons, student)])
    return rows


def _final(notebooks: list[Notebook], book: Book, reasons: Reasons, student: str) -> Row:
    """The score of each notebook, blank while a written answer waits: a learning platform would show the points so far as final."""
    row: Row = []
    for notebook in notebooks:
        marks = None if (student, notebook.name) in reasons else book.marks.get((student, notebook.name))
        row.append(marks.score if marks and None not in marks.scores.values() else "")
    return row


def _total(notebook: Notebook) -> float:
    return sum(cell.points for cell in notebook.of_kind("check", "answer"))


def _name(book: Book, student: str) -> str:
    facts = book.students.get(student)
    return ", ".join(part for part in (facts.last_name, facts.first_name) if part) if facts else ""


def _safe(value: object) -> object:
    """A number as it is; a text that a spreadsheet would run as a formula with an apostrophe before it."""
    if isinstance(value, float):
        return f"{value:g}"
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value
