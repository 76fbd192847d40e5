"""The tables made of a gradebook: grades.csv, and one each that Canvas and Moodle import."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from nbgrader.api import Student

from grader.classroom.atomic import write_atomically
from grader.classroom.gradebook import AllMarks
from grader.course.source import Notebook

Ungraded = tuple[str, str, str]  # student, notebook, reason
Row = list[object]


def write_grades(
    directory: Path, notebooks: Sequence[Notebook], marks: AllMarks, people: Iterable[Student], ungraded: Iterable[Ungraded]
) -> None:
    """Writes grades.csv, grades-canvas.csv and grades-moodle.csv, in UTF-8 with the mark that makes Excel read it as such."""
    students = {person.id: person for person in people}
    reasons = {(student, notebook): reason for student, notebook, reason in ungraded}
    graded = {key: own for key, own in marks.items() if key not in reasons}
    for name, rows in (
        ("grades.csv", _grades(notebooks, graded, students, reasons)),
        ("grades-canvas.csv", _canvas(notebooks, graded, students)),
        ("grades-moodle.csv", _moodle(notebooks, graded, students)),
    ):
        text = io.StringIO()
        csv.writer(text).writerows([_spreadsheet_value(value) for value in row] for row in rows)
        write_atomically(directory / name, text.getvalue().encode("utf-8-sig"))


def _grades(
    notebooks: Sequence[Notebook], graded: AllMarks, students: Mapping[str, Student], reasons: Mapping[tuple[str, str], str]
) -> list[Row]:
    """A row for each student and notebook, a column for each exercise, check and written answer; blank is not graded."""
    columns = {notebook.name: _columns(notebook) for notebook in notebooks}
    header: Row = ["student", "name", "notebook", "score", "max", "late penalty", "reason"]
    rows = [header + [f"{name}/{title}" for name, own in columns.items() for title in own]]
    wanted = {key for key in graded if key[1] in columns} | set(reasons)
    handed_in = {notebook for _, notebook in wanted if notebook in columns}
    wanted |= {(student, notebook) for student in students for notebook in handed_in}
    points = {notebook.name: {c.name: c.points for c in notebook.of_kind("check", "answer")} for notebook in notebooks}
    for student, notebook in sorted(wanted):
        marks = graded.get((student, notebook))
        row: Row = [student, _name(students.get(student)), notebook]
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
                row.append("" if None in scores else sum(filter(None, scores)))
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


def _canvas(notebooks: Sequence[Notebook], graded: AllMarks, students: Mapping[str, Student]) -> list[Row]:
    totals = [sum(cell.points for cell in notebook.of_kind("check", "answer")) for notebook in notebooks]
    rows: list[Row] = [
        ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", *[nb.title for nb in notebooks]],
        ["    Points Possible", "", "", "", "", *totals],
    ]
    for student, facts in sorted(students.items()):
        rows.append([_name(facts) or student, facts.lms_user_id or "", "", student, "", *_final(notebooks, graded, student)])
    return rows


def _moodle(notebooks: Sequence[Notebook], graded: AllMarks, students: Mapping[str, Student]) -> list[Row]:
    rows: list[Row] = [["Username", "Email address", *[nb.title for nb in notebooks]]]
    rows += [[student, facts.email or "", *_final(notebooks, graded, student)] for student, facts in sorted(students.items())]
    return rows


def _final(notebooks: Sequence[Notebook], graded: AllMarks, student: str) -> Row:
    """The score of each notebook, blank while a written answer waits: a learning platform would show the points so far as final."""
    marks = [graded.get((student, notebook.name)) for notebook in notebooks]
    return [own.score if own and None not in own.scores.values() else "" for own in marks]


def _name(facts: Student | None) -> str:
    return ", ".join(part for part in (facts.last_name, facts.first_name) if part) if facts else ""


def _spreadsheet_value(value: object) -> object:
    """A number as it is; a text that a spreadsheet would run as a formula with an apostrophe before it."""
    if isinstance(value, float):
        return f"{value:g}"
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value
