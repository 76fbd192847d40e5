"""What is done with a class: made, hand-ins collected, graded, reported.

What may happen at any moment (kill -9, a full disk) costs no more than the hand-in at work: the result of a judgement is
a file named by what it depends on (hand-in, tests, grader), and a hand-in's record says what stands in the gradebook.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import nbformat.v4
import sqlalchemy.exc
from nbformat import NotebookNode
from nbgrader.converters import GenerateAssignment
from nbgrader.converters.base import NbGraderException
from nbgrader.coursedir import CourseDirectory
from nbgrader.plugins import BasePlugin
from nbgrader.utils import find_all_files, parse_utc
from traitlets.config import Config, PyFileConfigLoader

from grader.classroom import cluster, pool
from grader.classroom.atomic import write_atomically
from grader.classroom.autograding import keep_tables, load_result, result_id
from grader.classroom.directory import ClassDirectory, ClassError, HandIn, Record, is_full
from grader.classroom.exports import Ungraded, write_grades
from grader.classroom.gradebook import AllMarks, ClassGradebook, Marks, NotEnteredError, late_penalties
from grader.classroom.pages import Class, Graded, feedback_page, report_page
from grader.classroom.pool import Answer
from grader.classroom.similarity import own_code
from grader.course.build import go_on_after_errors, to_text
from grader.course.source import Notebook
from grader.feedback.release import answer_key
from grader.intake.match import Unreadable, read_submission
from grader.intake.platforms import CollectedFile, Refusal, gather, placed

CONFIG = '''"""nbgrader's configuration of this class. `grader grade` heeds late penalties alone, nbgrader's own commands all options."""

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


@dataclass(frozen=True)
class Summary:
    """What `grade` did. ungraded: student, notebook and reason of each hand-in that has no grade."""

    graded: int
    unchanged: int
    ungraded: tuple[Ungraded, ...]


def new(directory: Path, course: Sequence[Notebook], say: Say = print) -> None:
    """Makes a class directory; completes one that was begun. Raises ClassError."""
    cls = ClassDirectory(directory)
    if directory.exists() and not cls.own.is_dir() and (not directory.is_dir() or any(directory.iterdir())):
        raise ClassError(f"{directory} is not empty and no class made by 'grader new'; name a new or an empty folder")
    with cls.translate_errors():
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)  # its tests are secret
        with cls.exclusive_lock():
            keep_tables(cls.own)
            seed = secrets.randbelow(2**31)
            graded = [notebook for notebook in course if notebook.graded]
            for notebook, following in zip(graded, [nb.name for nb in graded[1:]] + [""], strict=True):
                source = cls.source(notebook.name)
                if not source.exists():
                    key = answer_key(notebook.with_seed(seed), following)
                    write_atomically(source, to_text(go_on_after_errors(key)))
            if not cls.config.exists():
                write_atomically(cls.config, CONFIG)
            _make_gradebook(cls)
            _assign(cls, _config(cls), say)


def collect(directory: Path, paths: Sequence[Path], say: Say = print) -> list[Ungraded]:
    """Files what a learning platform or Colab gives under submitted/. Returns what it refused. Raises ClassError."""
    cls = ClassDirectory(directory)
    cls.require_class()
    for path in paths:
        if not path.exists():
            raise ClassError(f"{path}: no such file or folder")
    with cls.translate_errors(), cls.exclusive_lock():
        masters = cls.masters()
        refused: dict[str, dict[str, str]] = {}
        before = cls.remembered("refused.json")  # student -> file -> why, where nothing better has come since
        held = cls.remembered("numbers.json")
        for item in gather(paths):
            before.get(item.student, {}).pop(item.filename, None)  # the file has come again
            reason = item.reason if isinstance(item, Refusal) else _file(cls, item, masters, held, say)
            if reason:
                refused.setdefault(item.student, {})[item.filename] = reason
                say(f"{item.student or '(no student)'}  {item.filename}  refused: {reason}")
        kept = {student: before.get(student, {}) | refused.get(student, {}) for student in before | refused}
        cls.remember("refused.json", {student: reasons for student, reasons in kept.items() if reasons})
        return [(student, name, reason) for student, reasons in refused.items() for name, reason in reasons.items()]


def _file(cls: ClassDirectory, item: CollectedFile, masters: Sequence[Notebook], held: dict[str, str], say: Say) -> str:
    """Files one hand-in, unless a newer one lies there. Returns why it cannot be used ("" if it can)."""
    try:
        name = read_submission(item.data, item.filename, masters).notebook.name
    except Unreadable as e:
        return str(e)
    except Exception as e:  # ours, of something that nobody thought of: one hand-in stops no other
        return f"{item.filename}: it cannot be read ({type(e).__name__}); hand in the notebook of the course with your answers in it"
    student = placed(item, name, held)
    folder = cls.root / "submitted" / student / name
    path = folder / f"{name}.ipynb"
    when = datetime.fromtimestamp(int(item.mtime), UTC).replace(tzinfo=None)
    known = None
    with contextlib.suppress(OSError, NotEnteredError):
        known = _handed_in(folder) if path.exists() else None
    if known and known > when:
        line = f"older than the one of {known:%Y-%m-%d %H:%M}, left out"
    elif known == when and path.read_bytes() == item.data:
        line = "there already"
    else:
        cls.remember("numbers.json", held)
        write_atomically(folder / "timestamp.txt", f"{when:%Y-%m-%d %H:%M:%S} UTC")
        write_atomically(path, item.data)
        line = "filed" if known is None else f"filed in the place of the one of {known:%Y-%m-%d %H:%M}"
    say("  ".join([student, name, line, *item.notes]))
    return ""


def _handed_in(folder: Path) -> datetime | None:
    """The time that a folder's timestamp.txt tells, in UTC, without a time zone; None where there is none. Raises NotEnteredError."""
    try:
        return parse_utc((folder / "timestamp.txt").read_text(encoding="utf-8").strip() or None)
    except FileNotFoundError:
        return None
    except (ValueError, OverflowError):
        raise NotEnteredError("its timestamp.txt holds no time; write one such as 2026-11-30 18:00:00 UTC, or delete the file") from None


def grade(
    directory: Path, *, jobs: int | None = None, ray: str = "", regrade: str = "", allow_no_jail: bool = False, say: Say = print
) -> Summary:
    """Grades what is new or changed and writes grades*.csv; regrade: a student whose results are made again. Raises ClassError.

    ray: the address of the Ray cluster that judges ("": this machine's processes do). jobs: hand-ins judged side by side.
    """
    cls = ClassDirectory(directory)
    cls.require_class()
    with cls.translate_errors(), cls.exclusive_lock():
        config = _config(cls)
        _assign(cls, config, say)
        if regrade:
            _forget(cls, regrade)
        course = CourseDirectory(config=config)
        with ClassGradebook(course.db_url, course.course_id) as gradebook:
            grading = _Grading(cls, config, gradebook)
            found, ungraded = _found(cls, gradebook)
            todo = []
            for hand_in in found:
                record = cls.record(hand_in)
                if record and record.entry == hand_in.entry and (record.reason or cls.autograded(hand_in).exists()):
                    if record.reason:
                        ungraded.append((hand_in.student, hand_in.notebook, record.reason))
                else:
                    todo.append(hand_in)
            unchanged = len(found) - len(todo)
            say(f"{len(found)} hand-ins: {unchanged} unchanged, {len(todo)} to grade")
            for master in cls.masters():
                if any(hand_in.notebook == master.name for hand_in in todo) and (brought := master.of_kind("bring")):
                    names = ", ".join(cell.name for cell in brought)
                    say(f"{master.name} runs with the course's own {names}, which a hand-in can read: close their notebooks first")
            began = time.monotonic()
            work = [(h, h.path, cls.source(h.notebook), cls.results) for h in todo]
            if ray:
                judged = cluster.judged(work, ray, jobs, allow_no_jail=allow_no_jail, say=say)
            else:
                judged = pool.judged(work, jobs or os.cpu_count() or 1, allow_no_jail=allow_no_jail)
            with contextlib.closing(judged):
                for count, (hand_in, answer) in enumerate(judged, 1):
                    line, reason = grading.grade(hand_in, answer)
                    if reason:
                        ungraded.append((hand_in.student, hand_in.notebook, reason))
                    say(f"{_progress(count, len(todo), began)}  {hand_in.notebook}  {hand_in.student}  {line}")
            marks = gradebook.marks()
            if pages := grading.pages + grading.renew_pages(found, marks):
                say(f"{pages} feedback pages written under {directory / 'feedback'}")
            write_grades(directory, cls.masters(), marks, gradebook.students, ungraded)
        return Summary(len(todo), unchanged, tuple(ungraded))


def report(directory: Path, say: Say = print) -> Path:
    """Writes report.html, about what has been graded. Raises ClassError."""
    cls = ClassDirectory(directory)
    cls.require_class()
    course = CourseDirectory(config=_config(cls))
    with cls.translate_errors(), ClassGradebook(course.db_url, course.course_id) as gradebook:
        marks = gradebook.marks()
        found, ungraded = _found(cls, gradebook)
        graded: dict[str, list[Graded]] = {}
        for hand_in in found:
            record, own = cls.record(hand_in), marks.get((hand_in.student, hand_in.notebook))
            result = load_result(cls.results / f"{record.result}.json") if record else None
            if record and own and result and not record.reason:
                whole, code = None not in own.scores.values(), own_code(cls.autograded(hand_in))
                graded.setdefault(hand_in.notebook, []).append(Graded(hand_in.student, own.score, whole, result, code))
            else:
                ungraded.append((hand_in.student, hand_in.notebook, record.reason if record and record.reason else "not graded yet"))
        given = {name: own_code(cls.root / "release" / name / f"{name}.ipynb") for name in graded}
        key = {name: own_code(cls.source(name)) for name in graded}
        names = {person.id: ", ".join(filter(None, (person.last_name, person.first_name))) for person in gradebook.students}
        path = directory / "report.html"
        write_atomically(path, report_page(Class(directory.resolve().name, cls.masters(), names, graded, ungraded, given, key)))
        say(f"report written to {path}")
        return path


class _Grading:
    """Puts what was judged into a class: the rows of the gradebook, autograded/, feedback/ and the records."""

    def __init__(self, cls: ClassDirectory, config: Config, gradebook: ClassGradebook) -> None:
        self.cls, self.gradebook = cls, gradebook
        self.rule: BasePlugin = late_penalties(config)
        self.ignored = [*CourseDirectory(config=config).ignore, "*.ipynb"]
        self.pages = 0

    def grade(self, hand_in: HandIn, answer: Answer) -> tuple[str, str]:
        """Returns what to say of a hand-in, and why it has no grade ("" if it has). Raises where no other would fare better."""
        before = self.cls.record(hand_in)
        try:
            record = self._enter(hand_in, answer)
        except (NotEnteredError, OSError) as e:
            if is_full(e):
                raise
            record = Record(hand_in.entry, hand_in.result, f"{e.filename}: {e.strerror}" if isinstance(e, OSError) else str(e))
        if record.reason:
            for path in (self.cls.autograded(hand_in), self.cls.page(hand_in)):
                shutil.rmtree(path.parent, ignore_errors=True)
            self.gradebook.withdraw(hand_in.notebook, hand_in.student)
            line = f"not graded: {record.reason}"
        else:
            assert not isinstance(answer, str)
            line = f"{answer[0].points:g} of {answer[0].max_points:g}"
            if before and before.result != record.result:
                line += f" (was {before.score:g})" if before.score is not None else " (was not graded)"
        self.cls.write_record(hand_in, record)
        return line, record.reason

    def _enter(self, hand_in: HandIn, answer: Answer) -> Record:
        if isinstance(answer, str):
            return Record(hand_in.entry, hand_in.result, reason=answer)
        result, text = answer
        when, nb = _handed_in(hand_in.path.parent), nbformat.v4.reads(text)
        source = self.cls.source(hand_in.notebook)
        self._place(self.cls.autograded(hand_in), text, hand_in.path.parent, source.parent)
        marks = self.gradebook.enter(hand_in.notebook, hand_in.student, nb, result, self.rule, when)
        self._write_page(hand_in, nb, marks)
        return Record(hand_in.entry, hand_in.result, score=result.points, page=marks.digest)

    def renew_pages(self, found: Sequence[HandIn], marks: AllMarks) -> int:
        """Makes the page of each hand-in anew whose marks (a person's too) are not those on its page. Returns how many."""
        before = self.pages
        for hand_in in found:
            record, own = self.cls.record(hand_in), marks.get((hand_in.student, hand_in.notebook))
            if own and record and not record.reason and (record.page != own.digest or not self.cls.page(hand_in).exists()):
                nb = nbformat.v4.reads(self.cls.autograded(hand_in).read_text(encoding="utf-8"))
                self._write_page(hand_in, nb, own)
                self.cls.write_record(hand_in, replace(record, page=own.digest))
        return self.pages - before

    def _write_page(self, hand_in: HandIn, nb: NotebookNode, marks: Marks) -> None:
        self._place(self.cls.page(hand_in), feedback_page(nb, hand_in.student, marks), self.cls.autograded(hand_in).parent)
        self.pages += 1

    def _place(self, path: Path, text: str, *origins: Path) -> None:
        """Makes a folder anew of a file of ours and what lay beside the files that it was made from, as nbgrader does."""
        shutil.rmtree(path.parent, ignore_errors=True)
        for origin in origins:
            for found in find_all_files(str(origin), self.ignored):
                target = path.parent / Path(found).relative_to(origin)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(found, target)
        write_atomically(path, text)


def _found(cls: ClassDirectory, gradebook: ClassGradebook) -> tuple[list[HandIn], list[Ungraded]]:
    """The hand-ins under submitted/, and those of which no file can be graded, with the reason."""
    names, config, (due, extensions) = set(cls.names()), cls.config.read_bytes(), gradebook.deadlines()
    found: list[HandIn] = []
    ungraded = [(student, file, reason) for student, files in cls.remembered("refused.json").items() for file, reason in files.items()]
    for folder in sorted(path for path in (cls.root / "submitted").glob("*/*") if path.is_dir()):
        student, notebook = folder.parent.name, folder.name
        path = folder / f"{notebook}.ipynb"
        if notebook not in names:
            ungraded.append((student, notebook, f"the class has no notebook {notebook}"))
        elif not path.is_file():
            ungraded.append((student, notebook, f"the folder holds no {path.name}; 'grader collect' files a notebook under its name"))
        else:
            try:
                result = result_id(path.read_bytes(), cls.source(notebook))
            except OSError as e:
                ungraded.append((student, notebook, f"{path.name} cannot be read: {e.strerror}"))
                continue
            stamp = folder / "timestamp.txt"
            late = repr((due.get(notebook), extensions.get((student, notebook))))
            parts = [result.encode(), config, stamp.read_bytes() if stamp.exists() else b"", late.encode()]
            found.append(HandIn(student, notebook, path, result, hashlib.sha256(b"\0".join(parts)).hexdigest()))
    return found, ungraded


class _Assignment(GenerateAssignment):
    """Remembers what nbgrader only logs."""

    error: Exception | None = None

    def convert_single_notebook(self, notebook_filename: str) -> None:
        try:
            super().convert_single_notebook(notebook_filename)
        except Exception as e:
            self.error = e
            raise


def _assign(cls: ClassDirectory, config: Config, say: Say) -> None:
    """Tells nbgrader of every source notebook that is new or was edited: gradebook and release/ then hold it."""
    for master in cls.masters():
        name = master.name
        source, noted, released = cls.source(name), cls.own / "assigned" / name, cls.root / "release" / name
        for check in master.of_kind("check"):
            if "SEED" in check.hidden and not re.match(r"SEED = \d+\n", check.hidden):
                raise ClassError(
                    f"{source}: the hidden part of check {check.name} has lost the class's secret seed; "
                    f"restore the file from a copy or write 'SEED = ' and a number of your own as its first line"
                )
        digest = hashlib.sha256(source.read_bytes()).hexdigest()
        if noted.exists() and noted.read_text() == digest and (released / f"{name}.ipynb").exists():
            continue
        step = _Assignment(coursedir=CourseDirectory(config=config, assignment_id=name), config=config)
        step.force = True
        try:
            step.start()
        except NbGraderException as e:
            if isinstance(step.error, OSError | sqlalchemy.exc.DatabaseError):
                raise step.error from None
            raise ClassError(f"{source}: nbgrader does not take it: {step.error or e}") from None
        write_atomically(noted, digest)
        say(f"{name}: released to {released}")


def _make_gradebook(cls: ClassDirectory) -> None:
    """Makes the gradebook under another name first: nbgrader would go on with half of one."""
    if not cls.gradebook.exists():
        for noted in ("assigned", "handins"):
            shutil.rmtree(cls.own / noted, ignore_errors=True)
        draft = cls.root.resolve() / "gradebook.db.draft"
        draft.unlink(missing_ok=True)
        os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]  # nbgrader looks there for alembic
        ClassGradebook(f"sqlite:///{draft}").close()
        draft.replace(cls.gradebook)


def _forget(cls: ClassDirectory, student: str) -> None:
    if not (cls.root / "submitted" / student).is_dir():
        raise ClassError(f"no hand-in of {student!r} under {cls.root / 'submitted'}")
    for path in (cls.own / "handins" / student).glob("*.json"):
        result = cls.remembered(f"handins/{student}/{path.name}").get("result")
        (cls.results / f"{result}.json").unlink(missing_ok=True)
        path.unlink()


def _config(cls: ClassDirectory) -> Config:
    try:
        return PyFileConfigLoader("nbgrader_config.py", path=str(cls.root.resolve())).load_config()
    except Exception as e:  # it is the instructor's own Python
        raise ClassError(f"{cls.config}: {type(e).__name__}: {e}") from None


def _progress(count: int, total: int, began: float) -> str:
    left = (time.monotonic() - began) / count * (total - count)
    estimate = f"{left:.0f} s" if left < 100 else f"{left / 60:.0f} min"
    return f"[{count:>{len(str(total))}}/{total}, {estimate} left]" if count < total else f"[{count}/{total}]"
