"""What is done with a class: made, graded, reported.

What may happen at any moment (kill -9, a full disk) costs no more than the hand-in at work: the result of a judgement is
a file named by what it depends on (hand-in, tests, grader), and a hand-in's record says what stands in the gradebook.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import nbformat.v4
from nbformat import NotebookNode
from nbgrader.coursedir import CourseDirectory
from nbgrader.plugins import BasePlugin
from nbgrader.utils import find_all_files
from traitlets.config import Config

from grader.classroom import cluster, pool
from grader.classroom.assigning import assign, make_gradebook
from grader.classroom.atomic import write_atomically
from grader.classroom.autograding import keep_tables, load_result, read_master, result_id, version
from grader.classroom.changes import grade_anew, take_out
from grader.classroom.collecting import Say
from grader.classroom.directory import ClassDirectory, ClassError, HandIn, Record, is_full, read_config
from grader.classroom.exports import Ungraded, last_first, write_grades
from grader.classroom.gradebook import AllMarks, ClassGradebook, Marks, NotEnteredError, handed_in, late_penalties, open_gradebook
from grader.classroom.log import write_down
from grader.classroom.pages import Class, Graded, feedback_page, report_page
from grader.classroom.pool import Answer
from grader.classroom.roster import sheets
from grader.classroom.similarity import own_code
from grader.course.build import go_on_after_errors, to_text
from grader.course.source import Notebook
from grader.feedback.release import answer_key

CONFIG = '''"""nbgrader's configuration of this class. `grader grade` heeds late penalties alone, nbgrader's own commands all options."""

import os

from grader.classroom.nbgrader_steps import configure

c = get_config()  # noqa: F821
configure(c)  # the judge grades: in `grader grade`, in `nbgrader autograde` and behind the formgrader's button
c.CourseDirectory.root = os.path.dirname(os.path.abspath(__file__))

# On a JupyterHub, the name of this course in nbgrader's exchange; no two courses of a hub may share one.
c.CourseDirectory.course_id = {course!r}

# A hand-in after its due date (set it in the formgrader, extensions too) loses nothing unless you say so:
# c.LateSubmissionPlugin.penalty_method = "zero"
# or a rule of your own, a class with late_submission_penalty(self, student_id, score, total_seconds_late):
# c.AssignLatePenalties.plugin_class = "my_module.MyLatePenalty"
'''


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
                    say(f"{notebook.name}: written with a secret seed to {source.parent}")
                    key = answer_key(notebook.with_seed(seed), following)
                    write_atomically(source, to_text(go_on_after_errors(key)))
            if not cls.config.exists():
                write_atomically(cls.config, CONFIG.format(course=directory.resolve().name))
            make_gradebook(cls)
            assign(cls, read_config(cls), say)


def grade(
    directory: Path, *, jobs: int | None = None, ray: str = "", regrade: str = "", allow_no_jail: bool = False, say: Say = print
) -> Summary:
    """Grades what is new or changed and writes grades.csv, grades/ and the log. Raises ClassError.

    ray: the address of the Ray cluster that judges ("": this machine's processes do). jobs: hand-ins judged side by side.
    regrade: a student, a notebook or an exercise whose results are made again.
    """
    with ClassDirectory.at_work(directory) as cls:
        config = read_config(cls)
        assign(cls, config, say)
        if regrade and (what := grade_anew(cls, regrade)):
            say(what)
        with open_gradebook(config) as gradebook:
            grading = _Grading(cls, config, gradebook)
            exported = sheets(cls, gradebook.students)
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
            for line in write_grades(directory, cls.masters(), marks, gradebook.students, ungraded, exported):
                say(line)
        return Summary(len(todo), unchanged, tuple(ungraded))


def remove(directory: Path, student: str, say: Say = print) -> None:
    """Takes a student who has left out of the gradebook and the tables, and moves what there is of them aside. Raises ClassError."""
    with ClassDirectory.at_work(directory) as cls:
        with open_gradebook(read_config(cls)) as gradebook:
            place = take_out(cls, gradebook, student)
            found, ungraded = _found(cls, gradebook)
            ungraded += [(h.student, h.notebook, record.reason) for h in found if (record := cls.record(h)) and record.reason]
            write_grades(directory, cls.masters(), gradebook.marks(), gradebook.students, ungraded, sheets(cls, gradebook.students))
        kept = any(place.iterdir())
        line = "removed from the class" + (f"; the files and marks lie in {place}" if kept else ", where nothing was graded")
        write_down(cls.log, "", student, None, None, line, "", "", version().hex()[:12])
        shutil.rmtree(cls.own / "handins" / student, ignore_errors=True)
        undo = f"; to undo it, move {place / 'submitted'} back to {cls.root / 'submitted' / student} and grade"
        say(f"{student}: {line}{undo if (place / 'submitted').is_dir() else ''}")


def report(directory: Path, say: Say = print) -> Path:
    """Writes report.html, about what has been graded. Raises ClassError."""
    cls = ClassDirectory(directory)
    cls.require_class()
    with cls.translate_errors(), open_gradebook(read_config(cls)) as gradebook:
        marks = gradebook.marks()
        found, ungraded = _found(cls, gradebook)
        graded: dict[str, list[Graded]] = {}
        for hand_in in found:
            record, own = cls.record(hand_in), marks.get((hand_in.student, hand_in.notebook))
            result = load_result(cls.results / f"{record.result}.json") if record else None
            if record and own and result and not record.reason:
                whole, code = None not in own.scores.values(), own_code(cls.autograded(hand_in))
                graded.setdefault(hand_in.notebook, []).append(Graded(hand_in.student, own.score, whole, result, code, own.penalty))
            else:
                ungraded.append((hand_in.student, hand_in.notebook, record.reason if record and record.reason else "not graded yet"))
        given = {name: own_code(cls.root / "release" / name / f"{name}.ipynb") for name in graded}
        key = {name: own_code(cls.source(name)) for name in graded}
        names = {person.id: last_first(person) for person in gradebook.students}
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
        self.deadlines = gradebook.deadlines()
        self.pages = 0

    def grade(self, hand_in: HandIn, answer: Answer) -> tuple[str, str]:
        """Returns what to say of a hand-in, and why it has no grade ("" if it has). Raises where no other would fare better."""
        before = self.cls.record(hand_in)
        try:
            record, lateness = self._enter(hand_in, answer)
        except (NotEnteredError, OSError) as e:
            if is_full(e):
                raise
            reason = f"{e.filename}: {e.strerror}" if isinstance(e, OSError) else str(e)
            record, lateness = Record(hand_in.entry, hand_in.result, reason), ""
        if record.reason:
            for path in (self.cls.autograded(hand_in), self.cls.page(hand_in)):
                shutil.rmtree(path.parent, ignore_errors=True)
            self.gradebook.withdraw(hand_in.notebook, hand_in.student)
            line = f"not graded: {record.reason}"
        else:
            assert not isinstance(answer, str)
            line = f"{answer[0].points:g} of {answer[0].max_points:g}{lateness}"
            if before and before.score != record.score:
                line += f" (was {before.score:g})" if before.score is not None else " (was not graded)"
            elif before and before.result != record.result:
                line += " (as before)"
        was, source = before.score if before else None, read_master(self.cls.source(hand_in.notebook)).digest.hex()
        digests = (digest[:12] for digest in (hand_in.digest, source, version().hex()))
        write_down(self.cls.log, hand_in.notebook, hand_in.student, was, record.score, line, *digests)
        self.cls.write_record(hand_in, record)  # behind the log: what a kill lets through is graded and logged again
        return line, record.reason

    def _enter(self, hand_in: HandIn, answer: Answer) -> tuple[Record, str]:
        """The record, and what to say of lateness."""
        if isinstance(answer, str):
            return Record(hand_in.entry, hand_in.result, reason=answer), ""
        result, text = answer
        when, nb = handed_in(hand_in.path.parent), nbformat.v4.reads(text)
        source = self.cls.source(hand_in.notebook)
        self._place(self.cls.autograded(hand_in), text, hand_in.path.parent, source.parent)
        marks = self.gradebook.enter(hand_in.notebook, hand_in.student, nb, result, self.rule, when)
        self._write_page(hand_in, nb, marks)
        record = Record(hand_in.entry, hand_in.result, score=result.points, page=marks.digest)
        return record, self.deadlines.lateness(hand_in.student, hand_in.notebook, when, marks.penalty)

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
    names, config, deadlines = set(cls.names()), cls.config.read_bytes(), gradebook.deadlines()
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
                data = path.read_bytes()
                result = result_id(data, read_master(cls.source(notebook)))
            except OSError as e:
                ungraded.append((student, notebook, f"{path.name} cannot be read: {e.strerror}"))
                continue
            stamp = folder / "timestamp.txt"
            late = repr((deadlines.due.get(notebook), deadlines.extensions.get((student, notebook))))
            parts = [result.encode(), config, stamp.read_bytes() if stamp.exists() else b"", late.encode()]
            digest = hashlib.sha256(data).hexdigest()
            found.append(HandIn(student, notebook, path, digest, result, hashlib.sha256(b"\0".join(parts)).hexdigest()))
    return found, ungraded


def _progress(count: int, total: int, began: float) -> str:
    left = (time.monotonic() - began) / count * (total - count)
    estimate = f"{left:.0f} s" if left < 100 else f"{left / 60:.0f} min"
    return f"[{count:>{len(str(total))}}/{total}, {estimate} left]" if count < total else f"[{count}/{total}]"
