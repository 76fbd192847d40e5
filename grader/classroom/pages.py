"""The HTML pages of a class: the one a learner gets back, and the report on all of them. Each needs nothing but itself."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
from nbformat import NotebookNode

from grader.classroom.autograding import failure, title
from grader.classroom.exports import Ungraded
from grader.classroom.gradebook import Marks
from grader.classroom.markdown import rendered
from grader.classroom.similarity import alike
from grader.course.metadata import identity
from grader.course.source import Exercise, Notebook
from grader.feedback.spoken import speaker
from grader.intake.static_analysis import hidden_code
from grader.judge.verdict import Result, Verdict, without_repeats
from grader.mistakes import versions


@functools.cache
def _template(name: str) -> jinja2.Template:
    loader = jinja2.FileSystemLoader(Path(__file__).with_name("templates"))
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"rendered": rendered, "quoted": quote}
    return environment.get_template(name)


def feedback_page(nb: NotebookNode, student: str, marks: Marks) -> str:
    """The page of a learner: points, what each check says, their own code, and what a person wrote. No source of a test is on it.

    nb: the autograded notebook.
    """
    heading, question, exercise = "", "", ""
    language = nb.metadata.grader.get("language", "")  # an earlier version wrote none
    exercises: dict[str, dict[str, Any]] = {}
    written = []
    for cell in nb.cells:
        known = identity(cell)
        if known.kind == "text" and not heading:
            heading = title(cell)
        if known.kind in ("solution", "bring"):
            exercise = known.name
        if known.kind == "solution" or (known.graded and not known.written):
            own = exercises.setdefault(exercise, {"name": exercise, "checks": [], "code": []})
            if known.kind == "solution":
                own["code"].append(cell.source)
            else:
                own["checks"].append(
                    {"title": title(cell), "score": marks.scores[known.name], "points": known.points, "failure": failure(cell)}
                )
        if known.written:
            facts = {"name": known.name, "text": cell.source, "points": known.points, "score": marks.scores[known.name]}
            written.append(facts | {"question": question})
        if cell.cell_type == "markdown":
            question = cell.source
    for own in exercises.values():
        for check, told in zip(own["checks"], told_once([check["failure"] for check in own["checks"]]), strict=True):
            check["told"] = told
    points = {known.name: known.points for cell in nb.cells if (known := identity(cell)).graded}
    waiting = sum(value for name, value in points.items() if marks.scores[name] is None)
    return _template("feedback.html").render(
        title=heading,
        language=language.replace("_", "-"),
        say=speaker(language, nb.metadata.grader.notebook),
        student=student,
        marks=marks,
        read=sum(points.values()) - waiting,
        waiting=waiting,
        notes=nb.metadata.grader.notes,
        exercises=exercises.values(),
        written=written,
    )


def told_once(failures: Sequence[str]) -> list[str]:
    """What to say under each check of an exercise: what neighbours share under the last of them, a mistake where it is first seen.

    failures: why each check failed, first what it saw and then what that looks like; "" where it passed.
    """
    alone = [failed if failed != following else "" for failed, following in zip_longest(failures, failures[1:])]
    return without_repeats(alone)


@dataclass(frozen=True)
class Graded:
    """One hand-in as a report sees it.

    score: as the gradebook has it, less `penalty` for being late; whole: nothing waits for a person. code: the learner's own cells.
    """

    student: str
    score: float
    whole: bool
    result: Result
    code: list[str]
    penalty: float = 0.0


@dataclass(frozen=True)
class Class:
    """A class as a report sees it. names: of the students, by id. graded, given (cells with nothing in them yet), key: by notebook."""

    title: str
    notebooks: Sequence[Notebook]
    names: Mapping[str, str]
    graded: Mapping[str, Sequence[Graded]]
    ungraded: Sequence[Ungraded]
    given: Mapping[str, Sequence[str]]
    key: Mapping[str, Sequence[str]]


def report_page(cls: Class) -> str:
    """A class at a glance: a row for each student, and for each notebook what most got wrong and what should be looked at."""
    hand_ins = {(own.student, name): own for name, graded in cls.graded.items() for own in graded}
    return _template("report.html").render(
        title=cls.title,
        total=len(hand_ins),
        columns=[notebook for notebook in cls.notebooks if notebook.graded],
        students=sorted({*cls.names, *(student for student, _ in hand_ins), *(student for student, *_ in cls.ungraded)} - {""}),
        names=cls.names,
        hand_ins=hand_ins,
        refused={(student, name) for student, name, _ in cls.ungraded},
        notebooks=[_of_notebook(notebook, cls) for notebook in cls.notebooks if cls.graded.get(notebook.name)],
        ungraded=sorted(cls.ungraded),
    )


def _of_notebook(notebook: Notebook, cls: Class) -> dict[str, Any]:
    graded = cls.graded[notebook.name]
    scores = [hand_in.score for hand_in in graded]
    maximum = notebook.points()
    bins = Counter(min(max(round(score), 0), maximum) for score in scores)
    return {
        "title": notebook.title,
        "name": notebook.name,
        "count": len(graded),
        "mean": sum(scores) / len(scores),
        "maximum": maximum,
        "histogram": [(points, bins[points], bins[points] / max(bins.values())) for points in range(maximum + 1)],
        "exercises": [_of_exercise(notebook, exercise, graded) for exercise in notebook.exercises if exercise.checks],
        "alike": alike({h.student: h.code for h in graded}, cls.given[notebook.name], cls.key[notebook.name]),
        "hidden": [(h.student, ", ".join(sorted(found))) for h in graded if (found := {n for cell in h.code for n in hidden_code(cell)})],
    }


def _of_exercise(notebook: Notebook, exercise: Exercise, graded: Sequence[Graded]) -> dict[str, Any]:
    """Who solves it, which checks fail, the most frequent first, and the mistakes seen, each once a hand-in."""
    told = {version.name: version.summary for version in versions(notebook.name)}
    own: list[list[Verdict]] = [[v for v in hand_in.result.checks if v.exercise == exercise.name] for hand_in in graded]
    failed = Counter(v.check for verdicts in own for v in verdicts if not v.passed)
    mistakes = Counter(name for verdicts in own for name in {n for v in verdicts if v.mistake for n in v.mistake.split(" or ")})
    return {
        "name": exercise.name,
        "solved": sum(all(v.passed for v in verdicts) for verdicts in own) / len(graded),
        "open": sum(all(v.open for v in verdicts) for verdicts in own),
        "checks": sorted(((check.title, failed[check.name]) for check in exercise.checks), key=lambda row: -row[1]),
        "mistakes": [(told[name], count) for name, count in mistakes.most_common() if name in told],
    }
