"""A class's source notebooks -> nbgrader's assignments: the answer key is tried, the gradebook told, release/ written."""

from __future__ import annotations

import ast
import contextlib
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import NoReturn

import sqlalchemy.exc
from nbgrader.converters import GenerateAssignment
from nbgrader.converters.base import NbGraderException
from nbgrader.coursedir import CourseDirectory
from traitlets.config import Config

from grader.classroom import pool
from grader.classroom.atomic import write_atomically
from grader.classroom.autograding import read_master
from grader.classroom.directory import ClassDirectory, ClassError
from grader.classroom.gradebook import ClassGradebook, NotEnteredError, open_gradebook
from grader.course.source import Cell, Notebook
from grader.course.trusted import alarm, failure, namespace
from grader.judge.verdict import Verdict

LONGEST = 120  # characters of a value in a sentence
PATIENCE = 30  # seconds for a key that failed already


class _Assignment(GenerateAssignment):
    """Remembers what nbgrader only logs."""

    error: Exception | None = None

    def convert_single_notebook(self, notebook_filename: str) -> None:
        try:
            super().convert_single_notebook(notebook_filename)
        except Exception as e:
            self.error = e
            raise


def assign(cls: ClassDirectory, config: Config, say: Callable[[str], None]) -> None:
    """Tells nbgrader of every source notebook that is new or was edited: gradebook and release/ then hold it. Raises ClassError.

    Of an edited one the answer key is judged first, by the checks that stand in it.
    """
    edited: dict[str, str] = {}  # name -> digest of the source
    masters = {master.name: master for master in cls.masters()}
    for name, master in masters.items():
        _require_seed(cls.source(name), master)
        digest = read_master(cls.source(name)).digest.hex()
        noted = _noted(cls, name)
        if not (noted.exists() and noted.read_text() == digest and (cls.root / "release" / name / f"{name}.ipynb").exists()):
            edited[name] = digest
    if edited:
        say(f"{', '.join(edited)}: the answer key is tried on its own checks")
        _require_sound(cls, [masters[name] for name in edited])
    for name, digest in edited.items():
        try:
            with open_gradebook(config) as gradebook:
                gradebook.add_cells(name, read_master(cls.source(name)).key)
        except NotEnteredError as e:
            raise ClassError(f"{cls.source(name)}: {e}") from None
        step = _Assignment(coursedir=CourseDirectory(config=config, assignment_id=name), config=config)
        step.force = True
        try:
            step.start()
        except NbGraderException as e:
            if isinstance(step.error, OSError | sqlalchemy.exc.DatabaseError):
                raise step.error from None
            raise ClassError(f"{cls.source(name)}: nbgrader does not take it: {step.error or e}") from None
        write_atomically(_noted(cls, name), digest)
        say(f"{name}: released to {cls.root / 'release' / name}")


def _noted(cls: ClassDirectory, name: str) -> Path:
    return cls.own / "assigned" / name


def _require_seed(source: Path, master: Notebook) -> None:
    for check in master.of_kind("check"):
        if "SEED" in check.hidden and not re.match(r"SEED = \d+\n", check.hidden):
            raise ClassError(
                f"{source}: the hidden part of check {check.name} has lost the class's secret seed; "
                f"restore the file from a copy or write 'SEED = ' and a number of your own as its first line"
            )


def _require_sound(cls: ClassDirectory, masters: list[Notebook]) -> None:
    """Judges each answer key as a hand-in. Raises ClassError where it fails a check of its own: so would everybody."""
    work = [(master, cls.source(master.name), cls.source(master.name), cls.results) for master in masters]
    jobs = min(len(work), os.cpu_count() or 1)
    with contextlib.closing(pool.judged(work, jobs, allow_no_jail=True)) as judged:  # it is the instructor's own code
        for master, answer in judged:
            source = cls.source(master.name)
            if isinstance(answer, str):
                raise ClassError(f"{source}: its answer key cannot be judged: {answer}")
            if failed := [verdict for verdict in answer[0].checks if verdict.points is not None and not verdict.passed]:
                what = "; ".join(_told(master, verdict) for verdict in failed)
                raise ClassError(f"{source}: its own answer key fails {what}. Correct the check or the key and run this again")


def _told(master: Notebook, verdict: Verdict) -> str:
    """The check that a key fails, with the condition that does not hold and the values in it."""
    (check,) = [cell for cell in master.of_kind("check") if cell.name == verdict.check]
    try:
        with alarm(PATIENCE, _late):
            error, _ = failure(check, namespace(master))
    except Exception as e:  # the key's own cells
        error = e
    if error is None:
        said = f"{verdict.message.splitlines()[0]} (in grading the functions live in another process: only data crosses)"
    elif isinstance(error, AssertionError):
        said = "; ".join(filter(None, (_shortened(str(error)), _condition(check, error.__traceback__))))
    else:
        said = f"{type(error).__name__}: {_shortened(str(error))}"
    return f"the check {verdict.check} of {verdict.exercise} ({said or check.title})"


def _late() -> NoReturn:
    raise TimeoutError(f"it does not end in {PATIENCE} seconds")


def _condition(check: Cell, trace: TracebackType | None) -> str:
    """The assertion that failed, and what its parts were ("" where it is not the check's own)."""
    frame, line = None, 0
    while trace:
        if trace.tb_frame.f_code.co_filename == f"<check:{check.name}>":
            frame, line = trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next
    asserts = [node for node in ast.walk(ast.parse(check.source)) if isinstance(node, ast.Assert)]
    test = next((node.test for node in asserts if node.lineno <= line <= (node.end_lineno or line)), None)
    if frame is None or test is None:
        return ""
    values = []
    for part in test.args if isinstance(test, ast.Call) else ast.iter_child_nodes(test):
        text = ast.unparse(part)
        with contextlib.suppress(Exception):  # what cannot be computed again is not told
            value = _shortened(repr(eval(text, frame.f_globals, frame.f_locals)))
            values += [f"{_shortened(text)} is {value}"] if value != text else []
    return f"`{_shortened(ast.unparse(test))}` does not hold" + (f" where {', '.join(values)}" if values else "")


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}…"


def make_gradebook(cls: ClassDirectory) -> None:
    """Makes the gradebook under another name first: nbgrader would go on with half of one."""
    if not cls.gradebook.exists():
        for noted in ("assigned", "handins"):
            shutil.rmtree(cls.own / noted, ignore_errors=True)
        draft = cls.root.resolve() / "gradebook.db.draft"
        draft.unlink(missing_ok=True)
        os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]  # nbgrader looks there for alembic
        ClassGradebook(f"sqlite:///{draft}").close()
        draft.replace(cls.gradebook)
