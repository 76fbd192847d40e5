"""A class's gradebook: nbgrader's, with the rows of a hand-in written at once and those of a class read at once."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from nbformat import NotebookNode
from nbgrader.api import (
    Assignment,
    BaseCell,
    Comment,
    Grade,
    Gradebook,
    GradeCell,
    MissingEntry,
    SolutionCell,
    SourceCell,
    Student,
    SubmittedAssignment,
    SubmittedNotebook,
)
from nbgrader.coursedir import CourseDirectory
from nbgrader.plugins import BasePlugin
from nbgrader.preprocessors import AssignLatePenalties
from nbgrader.utils import compute_checksum, parse_utc
from sqlalchemy import Select, and_, delete, insert, select, text, update
from traitlets.config import Config

from grader.course.metadata import identity
from grader.judge.verdict import Result

LOOKED_UP = {"grade": "notebook_id", "comment": "notebook_id", "submitted_notebook": "assignment_id", "submitted_assignment": "student_id"}


class NotEnteredError(Exception):
    """A hand-in cannot be entered into the gradebook; the message is one sentence."""


@dataclass
class Marks:
    """Of one hand-in. scores: by check and written answer, None where nobody gave one yet. comments: by cell, those that a person wrote."""

    scores: dict[str, float | None] = field(default_factory=dict)
    comments: dict[str, str] = field(default_factory=dict)
    penalty: float = 0.0

    @property
    def digest(self) -> str:
        """Changes when anything does that a learner's page shows."""
        facts = sorted(self.scores.items()), sorted(self.comments.items()), self.penalty
        return hashlib.sha256(repr(facts).encode()).hexdigest()

    @property
    def score(self) -> float:
        """The points given so far, less the penalty for being late."""
        return max(0, sum(score for score in self.scores.values() if score is not None) - self.penalty)


AllMarks = dict[tuple[str, str], Marks]  # by student and assignment


@dataclass(frozen=True)
class Deadlines:
    """When each assignment is due, in UTC, and the extensions, by student and assignment."""

    due: dict[str, datetime | None]
    extensions: dict[tuple[str, str], timedelta]

    def lateness(self, student: str, assignment: str, when: datetime | None, penalty: float) -> str:
        """What a hand-in's line says of it, "" where it was in time without an extension or where no time is known."""
        due, extension = self.due.get(assignment), self.extensions.get((student, assignment), timedelta())
        if not due or not when or when <= due:
            return ""
        granted = f", with an extension of {_span(extension)}" if extension else ""
        if when <= due + extension:
            return f"{granted}: in time"
        late = _span(when - due - extension)
        return f"{granted}, {late + ' ' if late else ''}late: " + (f"less {penalty:g}" if penalty else "no penalty")


def _span(span: timedelta) -> str:
    """2.5 days, 3 hours, 4 minutes; "" for a second, which stands for an unknown time."""
    seconds = span.total_seconds()
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return "" if seconds <= 1 else f"{seconds:.0f} seconds"


class ClassGradebook(Gradebook):
    """nbgrader's gradebook, with indexes for what is looked up for each hand-in: without, it takes the longer the larger the class is."""

    def __init__(self, url: str, course: str = "default_course") -> None:
        try:
            super().__init__(url, course)
            for table, column in LOOKED_UP.items():
                self.db.execute(text(f"CREATE INDEX IF NOT EXISTS ix_{table}_{column} ON {table} ({column})"))
            self.db.commit()
        except Exception:  # of a file that is locked or no database: nobody holds what could close it
            if hasattr(self, "db"):
                self.close()
            raise

    def enter(self, assignment: str, student: str, nb: NotebookNode, result: Result, rule: BasePlugin, when: datetime | None) -> Marks:
        """Writes a hand-in's scores, comments and late penalty. What a person gave stays, and is to be looked at again.

        nb: autograded. rule: see `late_penalties`. when: it was handed in (None: nothing is known). Raises NotEnteredError.
        """
        submission = self.db.scalar(_submissions(assignment, student)) or self._new_submission(assignment, student)
        submission.timestamp = when
        (mine,) = [notebook.id for notebook in submission.notebooks if notebook.name == result.notebook]
        marks = Marks()
        self._enter_scores(mine, result, marks)
        self._enter_comments(mine, nb, marks)
        penalty = _penalty(rule, student, marks.score, submission.total_seconds_late)
        self.db.execute(update(SubmittedNotebook), [{"id": mine, "late_submission_penalty": penalty}])
        self.db.commit()
        self.db.remove()  # nothing of this hand-in stays in memory
        marks.penalty = penalty or 0.0
        return marks

    def _new_submission(self, assignment: str, student: str) -> SubmittedAssignment:
        """The rows that Gradebook.add_student and add_submission make, without a commit after each."""
        course = self.find_assignment(assignment)
        self._require_student(student)
        submission = SubmittedAssignment(assignment_id=course.id, student_id=student)
        self.db.add(submission)
        for notebook in course.notebooks:
            own = SubmittedNotebook(notebook=notebook, assignment=submission)
            self.db.add(own)
            self.db.flush()
            cells = self.db.execute(select(BaseCell.id, BaseCell.type).where(BaseCell.notebook_id == notebook.id)).all()
            for table, kinds in ((Grade, ("GradeCell", "TaskCell")), (Comment, ("SolutionCell", "TaskCell"))):
                if rows := [{"cell_id": cell.id, "notebook_id": own.id} for cell in cells if cell.type in kinds]:
                    self.db.execute(insert(table), rows)
        return submission

    def _require_student(self, student: str) -> None:
        if self.db.get(Student, student) is None:
            self.db.add(Student(id=student))

    def _enter_scores(self, mine: str, result: Result, marks: Marks) -> None:
        verdicts = {verdict.check: verdict for verdict in result.checks}
        query = select(Grade.id, BaseCell.name, BaseCell.type, Grade.manual_score, Grade.extra_credit).where(Grade.notebook_id == mine)
        rows = [row for row in self.db.execute(query.join(BaseCell, BaseCell.id == Grade.cell_id)) if row.type != "TaskCell"]
        if {row.name for row in rows} != verdicts.keys():
            remedy = f"in the class, run nbgrader generate_assignment --force {result.notebook}"
            raise NotEnteredError(f"the gradebook knows other checks than the source; {remedy}")
        new = []
        for row in rows:
            points = verdicts[row.name].points
            new.append({"id": row.id, "auto_score": points, "needs_manual_grade": points is None or row.manual_score is not None})
            marks.scores[row.name] = _score(points, row.manual_score, row.extra_credit)
        self.db.execute(update(Grade), new)

    def _enter_comments(self, mine: str, nb: NotebookNode, marks: Marks) -> None:
        cells = {known.grade_id: cell for cell in nb.cells if (known := identity(cell)).grade_id and not known.graded}
        query = (
            select(Comment.id, BaseCell.name, BaseCell.type, Comment.manual_comment, SourceCell.checksum)
            .join(BaseCell, BaseCell.id == Comment.cell_id)
            .outerjoin(SourceCell, and_(SourceCell.notebook_id == BaseCell.notebook_id, SourceCell.name == BaseCell.name))
            .where(Comment.notebook_id == mine)
        )
        new = []
        for key, name, kind, manual, checksum in self.db.execute(query):
            untouched = kind == "SolutionCell" and name in cells and checksum == compute_checksum(cells[name])
            new.append({"id": key, "auto_comment": "No response." if untouched else None})
            if manual:
                marks.comments[name] = manual
        if new:
            self.db.execute(update(Comment), new)

    def add_cells(self, name: str, key: NotebookNode) -> None:
        """Makes room for what is new in a source notebook, in each hand-in too: nbgrader adds no cell once there is one.

        Raises NotEnteredError where cells are gone of which hand-ins have marks.
        """
        try:
            notebook = self.find_notebook(name, name)
        except MissingEntry:
            return
        if not notebook.submissions:
            return
        cells = {known.grade_id: cell for cell in key.cells if (known := identity(cell)).grade_id}
        if gone := sorted({cell.name for cell in notebook.source_cells} - cells.keys()):
            raise NotEnteredError(f"the cells {', '.join(gone)} are gone, and hand-ins have been graded with them; put them back")
        for grade_id in cells.keys() - {cell.name for cell in notebook.source_cells}:
            cell, known = cells[grade_id], identity(cells[grade_id])
            facts = {"name": grade_id, "notebook": notebook}
            self.db.add(SourceCell(cell_type=cell.cell_type, **facts))
            if known.graded:
                graded = GradeCell(max_score=float(known.points), cell_type=cell.cell_type, **facts)
                self.db.add_all(Grade(cell=graded, notebook=own) for own in notebook.submissions)
            if known.kind in ("solution", "bring", "answer"):
                commented = SolutionCell(**facts)
                self.db.add_all(Comment(cell=commented, notebook=own) for own in notebook.submissions)
        self.db.commit()
        self.db.remove()

    def withdraw(self, assignment: str, student: str) -> None:
        """Takes a hand-in's rows back, the student stays: what cannot be graded is blank, it does not keep the grade of another file."""
        self.db.rollback()
        self._require_student(student)
        if submission := self.db.scalar(_submissions(assignment, student)):
            own = [notebook.id for notebook in submission.notebooks]
            for table in (Grade, Comment):
                self.db.execute(delete(table).where(table.notebook_id.in_(own)))
            self.db.execute(delete(SubmittedNotebook).where(SubmittedNotebook.id.in_(own)))
            self.db.execute(delete(SubmittedAssignment).where(SubmittedAssignment.id == submission.id))
        self.db.commit()
        self.db.remove()

    def deadlines(self) -> Deadlines:
        due = dict(self.db.execute(select(Assignment.name, Assignment.duedate)).all())
        rows = select(SubmittedAssignment.student_id, Assignment.name, SubmittedAssignment.extension)
        rows = rows.join(Assignment, Assignment.id == SubmittedAssignment.assignment_id).where(SubmittedAssignment.extension.is_not(None))
        return Deadlines(due, {(student, assignment): extension for student, assignment, extension in self.db.execute(rows)})

    def marks(self, student: str | None = None) -> AllMarks:
        """The marks of everybody, or of one student. A handful of queries, whatever the size of the class."""
        names = dict(self.db.execute(select(BaseCell.id, BaseCell.name)).all())
        hand_ins = (
            select(SubmittedNotebook.id, SubmittedAssignment.student_id, Assignment.name, SubmittedNotebook.late_submission_penalty)
            .join(SubmittedAssignment, SubmittedAssignment.id == SubmittedNotebook.assignment_id)
            .join(Assignment, Assignment.id == SubmittedAssignment.assignment_id)
        )
        grades = select(Grade.notebook_id, Grade.cell_id, Grade.auto_score, Grade.manual_score, Grade.extra_credit)
        comments = select(Comment.notebook_id, Comment.cell_id, Comment.manual_comment).where(Comment.manual_comment.is_not(None))
        if student is not None:
            hand_ins = hand_ins.where(SubmittedAssignment.student_id == student)
            ids = select(hand_ins.subquery().c.id)
            grades, comments = grades.where(Grade.notebook_id.in_(ids)), comments.where(Comment.notebook_id.in_(ids))
        of: dict[str, Marks] = {}
        marks: AllMarks = {}
        for key, who, assignment, penalty in self.db.execute(hand_ins):
            of[key] = marks.setdefault((who, assignment), Marks())
            of[key].penalty += penalty or 0.0
        for key, cell, auto, manual, extra in self.db.execute(grades):
            of[key].scores[names[cell]] = _score(auto, manual, extra)
        for key, cell, comment in self.db.execute(comments):
            if comment:
                of[key].comments[names[cell]] = comment
        self.db.remove()
        return marks


def open_gradebook(config: Config) -> ClassGradebook:
    """The one that a class's nbgrader_config.py names."""
    course = CourseDirectory(config=config)
    return ClassGradebook(course.db_url, course.course_id)


def handed_in(folder: Path) -> datetime | None:
    """The time that a folder's timestamp.txt tells, in UTC, without a time zone; None where there is none. Raises NotEnteredError."""
    try:
        return parse_utc((folder / "timestamp.txt").read_text(encoding="utf-8").strip() or None)
    except FileNotFoundError:
        return None
    except (ValueError, OverflowError):
        raise NotEnteredError("its timestamp.txt holds no time; write one such as 2026-11-30 18:00:00 UTC, or delete the file") from None


def late_penalties(config: Config) -> BasePlugin:
    """The class's rule for what is taken off when a hand-in is late: nbgrader's, or a plugin of the instructor's own."""
    step = AssignLatePenalties(config=config)
    step.init_plugin()
    return step.plugin_inst


def _submissions(assignment: str, student: str) -> Select[tuple[SubmittedAssignment]]:
    found = select(SubmittedAssignment).join(Assignment, Assignment.id == SubmittedAssignment.assignment_id)
    return found.where(Assignment.name == assignment, SubmittedAssignment.student_id == student)


def _score(auto: float | None, manual: float | None, extra: float | None) -> float | None:
    value = auto if manual is None else manual
    return None if value is None else float(value + (extra or 0))


def _penalty(rule: BasePlugin, student: str, score: float, seconds: float) -> float | None:
    """Points taken off, between none and all; None where the hand-in is in time or the rule says nothing."""
    if not seconds:
        return None
    try:
        penalty = rule.late_submission_penalty(student, score, seconds)
        return None if penalty is None else min(max(0, penalty), score)
    except Exception as e:  # it may be the instructor's own Python
        raise NotEnteredError(f"the rule for late penalties, {type(rule).__name__}, fails: {type(e).__name__}: {e}") from None
