"""A class: a directory that is an nbgrader course, with hand-ins coming in and grades going out.

What may happen at any moment (kill -9, a full disk) costs no more than the hand-in at work: the result of a judgement is
a file named by what it depends on (hand-in, tests, grader), and a hand-in's record says what stands in the gradebook.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import hashlib
import json
import os
import re
import secrets
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import nbgrader.api
import sqlalchemy.exc
from nbgrader.apps.api import NbGraderAPI
from nbgrader.coursedir import CourseDirectory
from nbgrader.utils import parse_utc
from traitlets.config import PyFileConfigLoader

from grader.classroom.atomic import write_whole
from grader.classroom.gradebook import Book, Ungraded, read_book, write_grades
from grader.classroom.nbgrader_steps import load_result, read_master, result_id
from grader.classroom.pool import judged
from grader.course.build import go_on_after_errors, to_text
from grader.course.source import CourseError, Notebook
from grader.feedback.release import answer_key
from grader.intake.match import Unreadable, read_submission
from grader.intake.platforms import HandIn as Collected
from grader.intake.platforms import Refusal, gather, placed
from grader.sandbox.jail import JailError

CONFIG = '''"""nbgrader's configuration of this class; all of nbgrader's options may be set here."""

import os

from grader.classroom.nbgrader_steps import configure

c = get_config()  # noqa: F821
configure(c)  # the judge grades: in `grader grade`, in `nbgrader autograde` and behind the formgrader's button
c.CourseDirectory.root = os.path.dirname(os.path.abspath(__file__))

# A hand-in after its due date (set it in the formgrader, extensions too) loses nothing unless you say so:
# c.LateSubmissionPlugin.penalty_method = "zero"
# or a rule of your own, a class with late_submission_penalty(self, student_id, score, total_seconds_late):
# c.AssignLatePenalties.plugin_class = "my_module.MyLatePenalty"
'''
Say = Callable[[str], None]


class ClassError(Exception):
    """The class cannot be worked on; the message is one sentence."""


@dataclass(frozen=True)
class HandIn:
    """A learner's file. result: the id of its judgement, entry: of all that its row in the gradebook depends on."""

    student: str
    notebook: str
    path: Path
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


@dataclass(frozen=True)
class Summary:
    """What `grade` did. ungraded: student, notebook and reason of each hand-in that has no grade."""

    graded: int
    unchanged: int
    ungraded: tuple[Ungraded, ...]


def new(directory: Path, course: Sequence[Notebook], say: Say = print) -> None:
    """Makes a class directory; completes one that was begun. Raises ClassError."""
    if directory.exists() and not (directory / ".grader").is_dir() and (not directory.is_dir() or any(directory.iterdir())):
        raise ClassError(f"{directory} is not empty and no class made by 'grader new'; name a new or an empty folder")
    with _clear_errors(directory):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)  # its tests are secret
        with _alone(directory):
            seed = secrets.randbelow(2**31)
            graded = [notebook for notebook in course if notebook.of_kind("check")]
            for notebook, following in zip(graded, [nb.name for nb in graded[1:]] + [""], strict=True):
                source = _source(directory, notebook.name)
                if not source.exists():
                    key = answer_key(notebook.with_seed(seed), following)
                    write_whole(source, to_text(go_on_after_errors(key)))
            if not (directory / "nbgrader_config.py").exists():
                write_whole(directory / "nbgrader_config.py", CONFIG)
            _make_gradebook(directory)
            _assign(_nbgrader(directory), directory, say)


def collect(directory: Path, paths: Sequence[Path], say: Say = print) -> list[Ungraded]:
    """Files what a learning platform or Colab gives under submitted/. Returns what it refused. Raises ClassError."""
    _be_a_class(directory)
    for path in paths:
        if not path.exists():
            raise ClassError(f"{path}: no such file or folder")
    with _clear_errors(directory), _alone(directory):
        masters = [read_master(_source(directory, name))[1] for name in _names(directory)]
        refused: dict[str, dict[str, str]] = {}
        before = _refused(directory)
        held = _remembered(directory / ".grader" / "numbers.json")
        for item in gather(paths):
            before.get(item.student, {}).pop(item.filename, None)  # the file has come again
            reason = item.reason if isinstance(item, Refusal) else _file(directory, item, masters, held, say)
            if reason:
                refused.setdefault(item.student, {})[item.filename] = reason
                say(f"{item.student or 'nobody'}  {item.filename}  refused: {reason}")
        kept = {student: before.get(student, {}) | refused.get(student, {}) for student in before | refused}
        write_whole(directory / ".grader" / "refused.json", json.dumps({s: r for s, r in kept.items() if r}, ensure_ascii=False))
        return [(student, name, reason) for student, reasons in refused.items() for name, reason in reasons.items()]


def _file(directory: Path, item: Collected, masters: Sequence[Notebook], held: dict[str, str], say: Say) -> str:
    """Files one hand-in, unless a newer one lies there. Returns why it cannot be used ("" if it can)."""
    try:
        name = read_submission(item.data, item.filename, masters).notebook.name
    except Unreadable as e:
        return str(e)
    except Exception as e:  # ours, of something that nobody thought of: one hand-in stops no other
        return f"{item.filename}: it cannot be read ({type(e).__name__}); hand in the notebook of the course with your answers in it"
    student = placed(item, name, held)
    path = directory / "submitted" / student / name / f"{name}.ipynb"
    stamp = path.with_name("timestamp.txt")
    when = datetime.fromtimestamp(int(item.mtime), UTC)
    known = _time(stamp) if path.exists() else None
    if known and known > when:
        line = f"older than the one of {known:%Y-%m-%d %H:%M}, left out"
    elif known == when and path.read_bytes() == item.data:
        line = "there already"
    else:
        write_whole(directory / ".grader" / "numbers.json", json.dumps(held, ensure_ascii=False))
        write_whole(stamp, f"{when:%Y-%m-%d %H:%M:%S} UTC")
        write_whole(path, item.data)
        line = "filed" if known is None else f"filed in the place of the one of {known:%Y-%m-%d %H:%M}"
    say("  ".join([student, name, line, *item.notes]))
    return ""


def _time(stamp: Path) -> datetime | None:
    """The time that a timestamp.txt tells, nbgrader's way; None where there is none that can be read."""
    try:
        return parse_utc(stamp.read_text().strip()).replace(tzinfo=UTC)
    except (OSError, ValueError):
        return None


def _refused(directory: Path) -> dict[str, dict[str, str]]:
    """Student -> file -> why `collect` refused it, and nothing better has come since."""
    return _remembered(directory / ".grader" / "refused.json")


def _remembered(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # none yet, or damaged: the files can be collected again
        return {}


def grade(directory: Path, *, jobs: int | None = None, regrade: str = "", allow_no_jail: bool = False, say: Say = print) -> Summary:
    """Grades what is new or changed and writes grades*.csv; regrade: a student whose results are made again. Raises ClassError."""
    _be_a_class(directory)
    with _clear_errors(directory), _alone(directory):
        api = _nbgrader(directory)
        _assign(api, directory, say)
        if regrade:
            _forget(directory, regrade)
        found, ungraded = _found(directory, _book(api))
        todo = []
        for handin in found:
            record = _record(directory, handin)
            if record and record.entry == handin.entry and (record.reason or _autograded(directory, handin).exists()):
                if record.reason:
                    ungraded.append((handin.student, handin.notebook, record.reason))
            else:
                todo.append(handin)
        unchanged = len(found) - len(todo)
        say(f"{len(found)} hand-ins: {unchanged} unchanged, {len(todo)} to grade")
        began = time.monotonic()
        work = [(h, h.path, _source(directory, h.notebook), _result(directory, h.result)) for h in todo]
        with contextlib.closing(judged(work, jobs or os.cpu_count() or 1, allow_no_jail=allow_no_jail)) as results:
            for count, (handin, reason) in enumerate(results, 1):
                line, reason = _enter(api, directory, handin, reason)
                if reason:
                    ungraded.append((handin.student, handin.notebook, reason))
                say(f"{_progress(count, len(todo), began)}  {handin.notebook}  {handin.student}  {line}")
        book = _book(api)
        _pages(api, directory, found, book, say)
        write_grades(directory, [read_master(_source(directory, name))[1] for name in _names(directory)], book, ungraded)
        return Summary(len(todo), unchanged, tuple(ungraded))


def report(directory: Path, say: Say = print) -> Path:
    """Writes report.html, about what has been graded. Raises ClassError."""
    _be_a_class(directory)
    with _clear_errors(directory):
        from grader.classroom.report_page import Graded, own_code, page  # it draws: matplotlib is slow to come

        book = _book(_nbgrader(directory))
        found, ungraded = _found(directory, book)
        graded: dict[str, list[Graded]] = {}
        for handin in found:
            record, marks = _record(directory, handin), book.marks.get((handin.student, handin.notebook))
            result = load_result(_result(directory, record.result)) if record else None
            if record and marks and result and not record.reason:
                code = own_code(_autograded(directory, handin))
                graded.setdefault(handin.notebook, []).append(Graded(handin.student, marks.score, result, code))
            else:
                ungraded.append((handin.student, handin.notebook, record.reason if record and record.reason else "not graded yet"))
        notebooks = [read_master(_source(directory, name))[1] for name in _names(directory)]
        path = directory / "report.html"
        write_whole(path, page(directory.resolve().name, graded, notebooks, ungraded))
        say(f"report written to {path}")
        return path


def _enter(api: NbGraderAPI, directory: Path, handin: HandIn, reason: str) -> tuple[str, str]:
    """Puts a judged hand-in into the gradebook. Returns what to say, and why it has no grade ("" if it has)."""
    before = _record(directory, handin)
    record = Record(handin.entry, handin.result, reason)
    if not reason:
        reason = _step(directory, api.autograde, handin.notebook, handin.student)
        record = replace(record, reason=reason)
    if reason:
        _withdraw(api, directory, handin)
        line = f"not graded: {reason}"
    else:
        result = load_result(_result(directory, handin.result))
        record = replace(record, score=result["points"])
        line = f"{result['points']:g} of {result['max_points']:g}"
        if before and before.result != record.result:
            line += f" (was {before.score:g})" if before.score is not None else " (was not graded)"
    write_whole(_record_path(directory, handin), json.dumps(asdict(record), ensure_ascii=False))
    return line, reason


def _withdraw(api: NbGraderAPI, directory: Path, handin: HandIn) -> None:
    """Takes an earlier grade back: what cannot be graded stays blank, it does not keep the grade of another file."""
    for folder in (_autograded(directory, handin).parent, _page(directory, handin).parent):
        shutil.rmtree(folder, ignore_errors=True)
    with api.gradebook as gradebook, contextlib.suppress(ValueError):  # MissingEntry: it never had one
        gradebook.remove_submission(handin.notebook, handin.student)


def _pages(api: NbGraderAPI, directory: Path, found: list[HandIn], book: Book, say: Say) -> None:
    """A page for each hand-in whose marks (a person's too) are not those on its page."""
    stale = []
    for handin in found:
        record, mark = _record(directory, handin), book.marks.get((handin.student, handin.notebook))
        if mark and record and not record.reason and (record.page != mark.digest or not _page(directory, handin).exists()):
            stale.append((handin, replace(record, page=mark.digest)))
    for handin, record in stale:
        if reason := _step(directory, api.generate_feedback, handin.notebook, handin.student):
            say(f"{handin.notebook}  {handin.student}  no feedback page: {reason}")
        else:
            write_whole(_record_path(directory, handin), json.dumps(asdict(record), ensure_ascii=False))
    if stale:
        say(f"{len(stale)} feedback pages written under {directory / 'feedback'}")


def _found(directory: Path, book: Book) -> tuple[list[HandIn], list[Ungraded]]:
    """The hand-ins under submitted/, and those of which no file can be graded, with the reason."""
    names, config = set(_names(directory)), (directory / "nbgrader_config.py").read_bytes()
    found: list[HandIn] = []
    ungraded = [(student, file, reason) for student, files in _refused(directory).items() for file, reason in files.items()]
    for folder in sorted(path for path in (directory / "submitted").glob("*/*") if path.is_dir()):
        student, notebook = folder.parent.name, folder.name
        path = folder / f"{notebook}.ipynb"
        if notebook not in names:
            ungraded.append((student, notebook, f"the class has no notebook {notebook}"))
        elif set(student) & set("*?[]") or student != student.strip():
            ungraded.append((student, notebook, "nbgrader cannot open a folder of this name; rename it, without *, ?, [ and ]"))
        elif not path.is_file():
            ungraded.append((student, notebook, f"the folder holds no {path.name}; 'grader collect' files a notebook under its name"))
        else:
            try:
                result = result_id(path.read_bytes(), _source(directory, notebook))
            except OSError as e:
                ungraded.append((student, notebook, f"{path.name} cannot be read: {e.strerror}"))
                continue
            stamp = folder / "timestamp.txt"
            marks = book.marks.get((student, notebook))
            due = repr((book.due.get(notebook), marks.extension if marks else None))
            parts = [result.encode(), config, stamp.read_bytes() if stamp.exists() else b"", due.encode()]
            found.append(HandIn(student, notebook, path, result, hashlib.sha256(b"\0".join(parts)).hexdigest()))
    return found, ungraded


def _assign(api: NbGraderAPI, directory: Path, say: Say) -> None:
    """Tells nbgrader of every source notebook that is new or was edited: gradebook and release/ then hold it."""
    for name in _names(directory):
        source, noted = _source(directory, name), directory / ".grader" / "assigned" / name
        _, master = read_master(source)
        for check in master.of_kind("check"):
            if "SEED" in check.hidden and not re.match(r"SEED = \d+\n", check.hidden):
                raise ClassError(
                    f"{source}: the hidden part of check {check.name} has lost the class's secret seed; "
                    f"restore the file from a copy or write 'SEED = ' and a number of your own as its first line"
                )
        digest = hashlib.sha256(source.read_bytes()).hexdigest()
        if noted.exists() and noted.read_text() == digest and (directory / "release" / name / f"{name}.ipynb").exists():
            continue
        if reason := _step(directory, api.generate_assignment, name):
            raise ClassError(f"{source}: nbgrader does not take it: {reason}")
        write_whole(noted, digest)
        say(f"{name}: released to {directory / 'release' / name}")


def _make_gradebook(directory: Path) -> None:
    """Makes the gradebook under another name first: nbgrader would go on with half of one."""
    if not (directory / "gradebook.db").exists():
        for noted in ("assigned", "handins"):
            shutil.rmtree(directory / ".grader" / noted, ignore_errors=True)
        draft = directory.resolve() / "gradebook.db.draft"
        draft.unlink(missing_ok=True)
        os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]  # nbgrader looks there for alembic
        nbgrader.api.Gradebook(f"sqlite:///{draft}").close()
        draft.replace(directory / "gradebook.db")


def _forget(directory: Path, student: str) -> None:
    if not (directory / "submitted" / student).is_dir():
        raise ClassError(f"no hand-in of {student!r} under {directory / 'submitted'}")
    for path in (directory / ".grader" / "handins" / student).glob("*.json"):
        if record := _read_record(path):
            _result(directory, record.result).unlink(missing_ok=True)
        path.unlink()


def _nbgrader(directory: Path) -> NbGraderAPI:
    try:
        config = PyFileConfigLoader("nbgrader_config.py", path=str(directory.resolve())).load_config()
    except Exception as e:  # it is the instructor's own Python
        raise ClassError(f"{directory / 'nbgrader_config.py'}: {type(e).__name__}: {e}") from None
    _share_engine()
    return NbGraderAPI(CourseDirectory(config=config), config=config)


def _share_engine() -> None:
    """One database engine for all of nbgrader's steps: each would make its own and compile every query anew."""
    if not hasattr(nbgrader.api.create_engine, "cache_info"):
        nbgrader.api.create_engine = functools.cache(nbgrader.api.create_engine)


def _book(api: NbGraderAPI) -> Book:
    with api.gradebook as gradebook:
        return read_book(gradebook)


def _step(directory: Path, step: Callable[..., dict[str, Any]], *arguments: str) -> str:
    """Runs a step of nbgrader's. Returns why it failed ("" if it did not). Raises where no other hand-in would fare better."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SQLAlchemy warns of nbgrader's ways
        log = step(*arguments)
    if log["success"]:
        return ""
    if "KeyboardInterrupt" in log.get("error", ""):  # nbgrader's log catches everything; Ctrl-C is no fault of the hand-in
        raise KeyboardInterrupt
    text = log.get("log", "") + log.get("error", "")
    for words, number in (("No space left", errno.ENOSPC), ("disk is full", errno.ENOSPC), ("Disk quota", errno.EDQUOT)):
        if words in text:
            raise OSError(number, os.strerror(number))
    if "database is locked" in text or "readonly database" in text:
        raise ClassError(_LOCKED.format(directory / "gradebook.db"))
    told = [line for line in map(str.strip, text.splitlines()) if re.match(r"[\w.]+(Error|Exception|Unreadable|Entry): ", line)]
    told = [line for line in told if "NbGraderException" not in line]
    return told[-1].partition(": ")[2] if told else "nbgrader gave no reason"


_LOCKED = "{}: another program holds the gradebook (a formgrader, a database tool, a sync client); close it and run this again"
_FULL = "{}: the disk is full; free some space and run this again: what was graded is kept"


@contextlib.contextmanager
def _clear_errors(directory: Path) -> Iterator[None]:
    """Turns what a machine may run into into one sentence."""
    try:
        yield
    except (CourseError, JailError) as e:
        raise ClassError(str(e)) from None
    except sqlalchemy.exc.OperationalError as e:
        path, text = directory / "gradebook.db", str(e.orig)
        if "full" in text:
            raise ClassError(_FULL.format(directory)) from None
        raise ClassError(_LOCKED.format(path) if "locked" in text else f"{path}: {text}") from None
    except sqlalchemy.exc.DatabaseError as e:
        raise ClassError(f"{directory / 'gradebook.db'}: {e.orig}; restore it from a copy") from None
    except OSError as e:
        if e.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ClassError(_FULL.format(directory)) from None
        raise ClassError(f"{e.filename or directory}: {e.strerror}") from None


@contextlib.contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Holds the class for one command. Raises ClassError when another holds it; the system lets go when a command dies."""
    (directory / ".grader").mkdir(exist_ok=True)
    with (directory / ".grader" / "lock").open("w") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # flock would pass to a child that is just being started
        except (BlockingIOError, PermissionError):  # which of them: the system's choice
            raise ClassError(f"{directory}: another grader command is at work in this class; wait until it has ended") from None
        for draft in (*directory.glob(".*.draft"), *(directory / ".grader").rglob(".*.draft")):  # of a command that was killed
            draft.unlink(missing_ok=True)
        yield


def _be_a_class(directory: Path) -> None:
    if not (directory / "nbgrader_config.py").is_file() or not (directory / ".grader").is_dir():
        raise ClassError(f"{directory} is no class; 'grader new {directory}' makes one")
    if not (directory / "gradebook.db").is_file():
        raise ClassError(f"{directory / 'gradebook.db'} is missing; restore it from a copy ('grader new {directory}' makes an empty one)")


def _names(directory: Path) -> list[str]:
    return sorted(path.stem for path in (directory / "source").glob("*/*.ipynb") if path.stem == path.parent.name)


def _source(directory: Path, notebook: str) -> Path:
    return directory / "source" / notebook / f"{notebook}.ipynb"


def _result(directory: Path, result: str) -> Path:
    return directory / ".grader" / "results" / f"{result}.json"


def _autograded(directory: Path, handin: HandIn) -> Path:
    return directory / "autograded" / handin.student / handin.notebook / f"{handin.notebook}.ipynb"


def _page(directory: Path, handin: HandIn) -> Path:
    return directory / "feedback" / handin.student / handin.notebook / f"{handin.notebook}.html"


def _record_path(directory: Path, handin: HandIn) -> Path:
    return directory / ".grader" / "handins" / handin.student / f"{handin.notebook}.json"


def _record(directory: Path, handin: HandIn) -> Record | None:
    return _read_record(_record_path(directory, handin))


def _read_record(path: Path) -> Record | None:
    try:
        return Record(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _progress(count: int, total: int, began: float) -> str:
    left = (time.monotonic() - began) / count * (total - count)
    estimate = f"{left:.0f} s" if left < 100 else f"{left / 60:.0f} min"
    return f"[{count:>{len(str(total))}}/{total}, {estimate} left]" if count < total else f"[{count}/{total}]"
