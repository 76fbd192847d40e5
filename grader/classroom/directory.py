"""A class directory: where its files lie, and what every command does around its work."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import sqlalchemy.exc
from traitlets.config import Config, PyFileConfigLoader

from grader.classroom.atomic import write_atomically
from grader.classroom.autograding import read_master
from grader.classroom.cluster import ClusterError
from grader.course.source import CourseError, Notebook
from grader.sandbox.jail import JailError


class ClassError(Exception):
    """The class cannot be worked on; the message is one sentence."""


@dataclass(frozen=True)
class HandIn:
    """A learner's file. digest: of its bytes, result: the id of its judgement, entry: of all that its row in the gradebook depends on."""

    student: str
    notebook: str
    path: Path
    digest: str
    result: str
    entry: str


@dataclass(frozen=True)
class Record:
    """What was done with a hand-in. reason: why it has no grade ("" if it has). page: the marks that its page shows."""

    entry: str
    result: str
    reason: str = ""
    score: float | None = None
    page: str = ""


class ClassDirectory:
    """The files of a class; whatever in .grader/ is damaged counts as not there, and is made again."""

    def __init__(self, root: Path) -> None:
        self.root, self.own = root, root / ".grader"
        self.gradebook, self.config, self.results = root / "gradebook.db", root / "nbgrader_config.py", self.own / "results"
        self.log = root / "grading.log"

    def names(self) -> list[str]:
        return sorted(path.stem for path in (self.root / "source").glob("*/*.ipynb") if path.stem == path.parent.name)

    def students(self) -> list[str]:
        """Those who have a folder under submitted/."""
        return sorted(path.name for path in (self.root / "submitted").glob("*") if path.is_dir())

    def source(self, notebook: str) -> Path:
        return self.root / "source" / notebook / f"{notebook}.ipynb"

    def masters(self) -> list[Notebook]:
        """The notebooks of the class. Raises CourseError."""
        return [read_master(self.source(name)).notebook for name in self.names()]

    def autograded(self, hand_in: HandIn) -> Path:
        return self.root / "autograded" / hand_in.student / hand_in.notebook / f"{hand_in.notebook}.ipynb"

    def page(self, hand_in: HandIn) -> Path:
        return self.root / "feedback" / hand_in.student / hand_in.notebook / f"{hand_in.notebook}.html"

    def record(self, hand_in: HandIn) -> Record | None:
        facts = self.remembered(f"handins/{hand_in.student}/{hand_in.notebook}.json")
        try:
            return Record(**facts)
        except TypeError:
            return None

    def write_record(self, hand_in: HandIn, record: Record) -> None:
        self.remember(f"handins/{hand_in.student}/{hand_in.notebook}.json", asdict(record))

    def upload(self, student: str, notebook: str) -> dict[str, Any]:
        """What the platform said of a hand-in that was collected: the fields of collecting.Upload."""
        return self.remembered(f"collected/{student}/{notebook}.json")

    def write_upload(self, student: str, notebook: str, facts: dict[str, Any]) -> None:
        self.remember(f"collected/{student}/{notebook}.json", facts)

    def remembered(self, name: str) -> dict[str, Any]:
        """What a file of .grader/ holds; empty where there is none."""
        try:
            facts = json.loads((self.own / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return facts if isinstance(facts, dict) else {}

    def remember(self, name: str, facts: dict[str, Any]) -> None:
        write_atomically(self.own / name, json.dumps(facts, ensure_ascii=False))

    def require_class(self) -> None:
        """Raises ClassError where there is no class."""
        if not self.config.is_file() or not self.own.is_dir():
            raise ClassError(f"{self.root} is no class; 'grader new {self.root}' makes one")
        if not self.gradebook.is_file():
            raise ClassError(f"{self.gradebook} is missing; restore it from a copy ('grader new {self.root}' makes an empty one)")

    @contextlib.contextmanager
    def exclusive_lock(self) -> Iterator[None]:
        """Holds the class for one command. Raises ClassError when another holds it; the system lets go when a command dies."""
        self.own.mkdir(exist_ok=True)
        with (self.own / "lock").open("w") as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # flock would pass to a child that is just being started
            except (BlockingIOError, PermissionError):  # which of them: the system's choice
                raise ClassError(f"{self.root}: another grader command is at work in this class; wait until it has ended") from None
            kept = (self.root, self.root / "grades", self.root / "roster", *self.root.glob("removed/*"))
            for draft in (*chain.from_iterable(folder.glob(".*.draft") for folder in kept), *self.own.rglob(".*.draft")):
                draft.unlink(missing_ok=True)  # of a command that was killed
            yield

    @classmethod
    @contextlib.contextmanager
    def at_work(cls, root: Path) -> Iterator[ClassDirectory]:
        """A class that is there, held for one command. Raises ClassError, of what a machine may run into, too."""
        found = cls(root)
        found.require_class()
        with found.translate_errors(), found.exclusive_lock():
            yield found

    @contextlib.contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Turns what a machine may run into into one sentence: raises ClassError."""
        try:
            yield
        except (CourseError, JailError, ClusterError) as e:
            raise ClassError(str(e)) from None
        except (sqlalchemy.exc.DatabaseError, OSError) as e:
            raise ClassError(self._sentence(e)) from None

    def _sentence(self, e: sqlalchemy.exc.DatabaseError | OSError) -> str:
        if is_full(e):
            return f"{self.root}: the disk is full; free some space and run this again: what was graded is kept"
        if isinstance(e, OSError):
            return f"{e.filename or self.root}: {e.strerror}"
        if "locked" in str(e.orig) or "readonly" in str(e.orig):
            who = "another program holds the gradebook (a formgrader, a database tool, a sync client)"
            return f"{self.gradebook}: {who}; close it and run this again"
        remedy = "" if isinstance(e, sqlalchemy.exc.OperationalError) else "; restore it from a copy"
        return f"{self.gradebook}: {e.orig}{remedy}"


def named(asked: str, names: Iterable[str]) -> str:
    """The one of these notebooks that is meant by its name or its number ("02_grpo_loss", "02", "2"); "" for none."""
    number = asked.lstrip("0")
    found = [name for name in names if asked == name or (number and name.partition("_")[0].lstrip("0") == number)]
    return found[0] if len(found) == 1 else ""


def read_config(cls: ClassDirectory) -> Config:
    """The class's nbgrader_config.py. Raises ClassError."""
    try:
        return PyFileConfigLoader("nbgrader_config.py", path=str(cls.root.resolve())).load_config()
    except Exception as e:  # it is the instructor's own Python
        raise ClassError(f"{cls.config}: {type(e).__name__}: {e}") from None


def is_full(e: Exception) -> bool:
    """Whether the disk is full: every hand-in would run into it."""
    if isinstance(e, OSError):
        return e.errno in (errno.ENOSPC, errno.EDQUOT)
    return isinstance(e, sqlalchemy.exc.OperationalError) and "full" in str(e.orig)
