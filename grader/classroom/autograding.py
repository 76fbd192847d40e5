"""A hand-in -> the judge's result and the autograded notebook. One way, for `grader grade` and for nbgrader's steps.

Nothing of nbgrader is imported here: the processes that judge would take a second longer to start.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import importlib.metadata
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_output

from grader.classroom.atomic import write_atomically
from grader.course.metadata import MACHINERY, folded, identity, unfolded
from grader.course.source import KINDS, Cell, CourseError, Notebook
from grader.course.translation import LOCALE
from grader.feedback.table import keep_in
from grader.intake.match import Submission, read_submission
from grader.intake.static_analysis import defines
from grader.judge.verdict import Result, Verdict

if TYPE_CHECKING:
    from grader.judge.judge import Judge

OPEN = "NotImplementedError"  # the name of what the check of an open exercise shows; it passes or shows one thing
BROUGHT = "# Your own function of an earlier notebook stood here; grading uses the course's, so that a slip costs points only once."


def autograde(path: Path, source: Path, results: Path, *, allow_no_jail: bool = False) -> tuple[Result, NotebookNode]:
    """A hand-in's result and its autograded notebook. It is judged where no result is kept yet, and that is kept.

    source: the class's own notebook. results: the folder of results. Raises Unreadable, CourseError, JailError and OSError.
    """
    data, master = path.read_bytes(), read_master(source)
    file = results / f"{result_id(data, master)}.json"
    kept = load_result(file)
    keep_tables(results.parent)
    result, nb = autograde_bytes(data, path.name, master.data, source, kept, allow_no_jail=allow_no_jail)
    if result is not kept:
        write_atomically(file, result.to_json())
    return result, nb


def autograde_bytes(
    data: bytes, filename: str, source: bytes, where: Path, kept: Result | None, *, allow_no_jail: bool = False
) -> tuple[Result, NotebookNode]:
    """The same without a file of the class, so that any machine can do it. data: the hand-in. source: the class's own notebook.

    where: that lies with the class. kept: the result, where there is one. Raises Unreadable, CourseError, JailError and OSError.
    """
    master = _master(source, where)
    submission = read_submission(data, filename, [master.notebook])
    result = kept or _warm_judge(allow_no_jail).judge(submission)
    return result, _autograded(master.key, submission, result, result_id(data, master))


def keep_tables(own: Path) -> None:
    """Lets the numbers of known mistakes, which take seconds a notebook, be worked out once a class. own: its folder .grader."""
    keep_in(own / "fingerprints" / version().hex())


@functools.cache
def _warm_judge(allow_no_jail: bool) -> Judge:
    """The judge of this process, started when it is first asked: a run that judges nothing does without torch."""
    from grader.judge.judge import Judge

    judge = Judge(allow_no_jail=allow_no_jail)
    atexit.register(judge.close)
    return judge


@dataclass(frozen=True)
class Master:
    """A class's own source notebook. data: the file. key: the same, without outputs. notebook: what it says. digest: of the data."""

    data: bytes
    key: NotebookNode
    notebook: Notebook
    digest: bytes


def read_master(source: Path) -> Master:
    """Raises CourseError and OSError."""
    stat = source.stat()
    return _read_master(source, stat.st_mtime_ns, stat.st_size)


@functools.lru_cache(maxsize=32)
def _read_master(source: Path, modified: int, size: int) -> Master:
    return _master(source.read_bytes(), source)


@functools.lru_cache(maxsize=32)
def _master(data: bytes, source: Path) -> Master:
    try:
        key = nbformat.reads(data.decode(), as_version=4)
    except (ValueError, nbformat.ValidationError) as e:
        raise CourseError(f"{source}: not a notebook ({str(e).splitlines()[0]}); restore it from a copy") from None
    for cell in key.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return Master(data, key, from_key(key, source.stem, source), hashlib.sha256(data).digest())


def from_key(key: NotebookNode, name: str, where: Path | str = "") -> Notebook:
    """The notebook that an answer key says, edits of an instructor included. Raises CourseError."""
    cells, exercise = [], ""
    for cell in key.cells:
        known = identity(cell)
        kind = known.kind
        if kind == "answer" and cell.cell_type == "code":
            raise CourseError(f"{where}: cell {known.name} is graded by hand and is code; make it a written answer or a test")
        if kind == "solution" and known.name not in defines(cell.source):
            raise CourseError(f"{where}: the cell {known.name} is an answer; give it as its ID the name of its function")
        if kind in ("solution", "bring"):
            exercise = known.name
        if kind in KINDS or kind == "text":
            belongs_to = exercise if kind == "check" else known.name
            text = unfolded(cell.source) if kind == "check" else cell.source
            cells.append(Cell(kind, known.name, text, cell.cell_type == "markdown", int(known.points), belongs_to))
    return Notebook(name, tuple(cells))


def result_id(data: bytes, master: Master) -> str:
    """Names the result of a hand-in: another hand-in, another test or another grader gives another name."""
    return hashlib.sha256(master.digest + version() + data).hexdigest()


@functools.cache
def version() -> bytes:
    """The grader's own text, that of the translations and the version of torch: what else a verdict depends on."""
    texts = [path.read_bytes() for path in sorted([*Path(__file__).parents[1].rglob("*.py"), *LOCALE.rglob("*.po")])]
    return hashlib.sha256(b"\0".join([importlib.metadata.version("torch").encode(), *texts])).digest()


def load_result(path: Path) -> Result | None:
    """A result that was kept (None: there is none, or the file is damaged)."""
    try:
        return Result.from_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _autograded(key: NotebookNode, submission: Submission, result: Result, name: str) -> NotebookNode:
    """The master notebook with the learner's answers and the verdicts, extra cells of the learner's behind the cell they followed."""
    theirs = {cell.name: cell.source for cell in submission.cells if cell.kind in ("solution", "answer")}
    verdicts = {verdict.check: verdict for verdict in result.checks}
    extra = defaultdict[str, list[NotebookNode]](list)
    before = ""
    for number, added in enumerate(submission.cells):
        if added.kind == "extra":
            extra[before].append(new_code_cell(added.source, id=f"extra-{number}"))
        else:
            before = added.name
    nb = nbformat.from_dict(key)
    cells, own = extra[""], iter(submission.notebook.cells)
    for cell in nb.cells:
        known = identity(cell)
        if known.kind in (*KINDS, "text"):
            text = next(own).source  # in the learner's language
            cell.source = text if unfolded(cell.source) == cell.source else folded(text)
        if known.kind == "bring":
            cell.source = BROUGHT
        elif known.name:
            cell.source = theirs.get(known.name, cell.source)
        if known.graded and not known.written:
            cell.outputs = [_output(verdicts[known.name])]
        if known.kind != MACHINERY or cell.cell_type != "code":  # that speaks to the learner alone
            cells.append(cell)
        if known.name:
            cells += extra[known.name]
    nb.cells = cells
    about = {"notebook": submission.notebook.name, "language": submission.notebook.language, "result": name}
    nb.metadata["grader"] = about | {"notes": list(dict.fromkeys(result.notes))}
    return nb


def _output(verdict: Verdict) -> NotebookNode:
    """A verdict as the formgrader shows it under the check."""
    title = verdict.title
    if verdict.passed:
        return new_output("stream", name="stdout", text=f"✓ {title}: {verdict.points:g} of {verdict.max_points:g}\n")
    kind = OPEN if verdict.open else "Failed"
    return new_output("error", ename=kind, evalue=title, traceback=[f"✗ {title}", verdict.message.removeprefix(f"{title}: ")])


def title(check: NotebookNode) -> str:
    """What a check of an autograded notebook says that it checks."""
    return unfolded(check.source.split("\n", 1)[0]).lstrip("# ").rstrip(". ")


def failure(check: NotebookNode) -> str:
    """Why it failed, as `_output` has it; "" where it passed."""
    return "\n".join(line for output in check.outputs if output.output_type == "error" for line in output.traceback[1:] or output.traceback)
