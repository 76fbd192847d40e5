"""What changes in a class at work: a student leaves, a grade is to be made anew, a refused file is outlived."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path

from nbgrader.api import Student

from grader.classroom.atomic import write_atomically
from grader.classroom.directory import ClassDirectory, ClassError, named
from grader.classroom.gradebook import ClassGradebook


def grade_anew(cls: ClassDirectory, name: str) -> str:
    """Lets `grade` grade all hand-ins of a student, of a notebook, or of an exercise's notebook. Returns which. Raises ClassError."""
    students, notebooks = cls.students(), cls.names()
    exercises = {cell.name: master.name for master in cls.masters() for cell in master.of_kind("solution")}
    if name in students:
        wanted = [(name, notebook) for notebook in notebooks]
    elif notebook := exercises.get(name) or named(name, notebooks):
        wanted = [(student, notebook) for student in students]
    else:
        what = f"{name!r} is no student with a hand-in, no notebook and no exercise of {cls.root}"
        raise ClassError(what + _nearest(name, [*students, *notebooks, *exercises]))
    for student, notebook in wanted:
        record = f"handins/{student}/{notebook}.json"
        if facts := cls.remembered(record):
            cls.remember(record, facts | {"entry": ""})  # its score stays, so that a change is said
            (cls.results / f"{facts.get('result')}.json").unlink(missing_ok=True)  # last: a record without its result is never made good
    return f"{name} is an exercise of {exercises[name]}" if name in exercises and name not in students else ""


def take_out(cls: ClassDirectory, gradebook: ClassGradebook, student: str) -> Path:
    """Moves a student's files to removed/, their marks too, and takes them out of the gradebook. Returns where to. Raises ClassError.

    Stopped on the way, it goes on when it is called again: the records of the hand-ins, by which one is still known, stay.
    """
    parts = [cls.root / place / student for place in ("submitted", "autograded", "feedback")]
    refused = cls.remembered("refused.json")
    known = {person.id for person in gradebook.students}.union(cls.students(), (path.name for path in (cls.own / "handins").glob("*")))
    if student not in known | refused.keys() - {""}:
        raise ClassError(f"{cls.root} has no student {student!r}{_nearest(student, known)}")
    target = cls.root / "removed" / student
    marks = {
        notebook: {"score": own.score, "scores": own.scores, "comments": own.comments, "late penalty": own.penalty}
        for (_, notebook), own in gradebook.marks(student).items()
    }
    if marks:
        write_atomically(_free(target / "marks.json"), json.dumps(marks, ensure_ascii=False, indent=1) + "\n")
    target.mkdir(parents=True, exist_ok=True)
    for part in parts:
        if part.is_dir():
            part.rename(_free(target / part.parent.name))
    if gradebook.db.get(Student, student) is not None:
        gradebook.remove_student(student)
    if refused.pop(student, None) is not None:
        cls.remember("refused.json", refused)
    shutil.rmtree(cls.own / "collected" / student, ignore_errors=True)
    links = cls.remembered("roster.json")
    cls.remember("roster.json", {where: {one: who for one, who in own.items() if who != student} for where, own in links.items()})
    return target


def still_refused(refused: Mapping[str, str], filed: str, notebooks: Iterable[str]) -> dict[str, str]:
    """Those of a student's refused files, by name, that a hand-in of the notebook `filed` does not make good: of other notebooks."""
    others = [name for name in notebooks if name != filed]
    return {file: reason for file, reason in refused.items() if any(name in file for name in others)}


def _free(path: Path) -> Path:
    """The path, or where that is taken the first with a number that is not."""
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.stem}-{number}{path.suffix}")
    return free


def _nearest(name: str, names: Iterable[str]) -> str:
    near = get_close_matches(name, list(names), 3)
    return f"; nearest: {', '.join(near)}" if near else ""
