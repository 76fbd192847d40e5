"""nbgrader's own pipeline with the judge in it: the steps that a class's nbgrader_config.py puts in.

``Rebuild`` comes first when a hand-in is sanitized: whatever was handed in becomes the master notebook with the
learner's answers in it. ``Judge`` takes the place of Execute: nothing of the learner's runs in a kernel. ``Marked`` and
``FeedbackPage`` make the learner's page. All else (points, comments, penalties, gradebook) is nbgrader's.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import importlib.metadata
import json
from pathlib import Path
from typing import Any

import bleach
import nbformat
from nbconvert.exporters import NotebookExporter
from nbconvert.filters import strip_files_prefix
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook, new_output
from nbgrader.api import Gradebook, MissingEntry
from nbgrader.converters.base import BaseConverter
from nbgrader.preprocessors import (
    AssignLatePenalties,
    ClearHiddenTests,
    ClearOutput,
    DeduplicateIds,
    IgnorePattern,
    LimitOutput,
    NbGraderPreprocessor,
    OverwriteCells,
    OverwriteKernelspec,
    SaveAutoGrades,
)
from traitlets import Bool
from traitlets.config import Config

from grader.classroom.atomic import write_whole
from grader.classroom.feedback_page import FeedbackPage
from grader.classroom.gradebook import read_book
from grader.course.source import KINDS, Cell, CourseError, Notebook
from grader.intake.match import Submission, Unreadable, read_submission

LEARNERS = ("solution", "answer")  # the cells whose source is the learner's
TAGS = bleach.ALLOWED_TAGS | {
    *("h1", "h2", "h3", "h4", "h5", "h6", "p", "br", "hr", "div", "span", "pre", "sub", "sup", "del", "dl", "dt", "dd"),
    *("img", "details", "summary", "table", "thead", "tbody", "tr", "th", "td"),
}
BROUGHT = "# Your own function of an earlier notebook stood here; grading uses the course's, so that a slip costs points only once."


def configure(c: Config) -> None:
    """Puts the judge into nbgrader's pipeline: what a class's nbgrader_config.py calls."""
    c.Autograde.exporter_class = HandInExporter
    c.HTMLExporter.filters = {"strip_files_prefix": harmless}  # what the formgrader's template sends all Markdown through
    c.Exporter.optimistic_validation = True  # once a notebook, not once a step
    # CheckCellMetadata and ClearMetadata are left out: no metadata of a learner's gets past Rebuild.
    c.Autograde.sanitize_preprocessors = [Rebuild, ClearOutput, DeduplicateIds, OverwriteKernelspec, OverwriteCells]
    c.Autograde.autograde_preprocessors = [Judge, IgnorePattern, LimitOutput, SaveAutoGrades, AssignLatePenalties]
    c.CsvExportPlugin.to = "nbgrader-export.csv"  # not over the grades.csv of `grader grade`
    c.GenerateFeedback.exporter_class = FeedbackPage
    c.GenerateFeedback.preprocessors = [Marked, ClearHiddenTests]


def harmless(html: str) -> str:
    """HTML without scripts: the formgrader shows what learners wrote, in the browser of whoever gives the points."""
    return bleach.clean(strip_files_prefix(html), tags=TAGS, attributes={"*": ["class", "id"], "a": ["href"], "img": ["src", "alt"]})


class HandInExporter(NotebookExporter):
    """Opens files that nbformat cannot (UTF-16, a byte order mark, half a file), for Rebuild to mend or to refuse."""

    def from_file(self, file_stream: Any, resources: dict[str, Any] | None = None, **kw: Any) -> tuple[str, dict[str, Any]]:
        try:
            return super().from_notebook_node(nbformat.read(file_stream, as_version=4), resources, **kw)
        except (ValueError, nbformat.ValidationError, AttributeError, KeyError, TypeError):
            return super().from_notebook_node(new_notebook(), resources, **kw)


class Rebuild(NbGraderPreprocessor):
    """Whatever was handed in -> the master notebook with the learner's answers in it. Raises Unreadable."""

    def preprocess(self, nb: NotebookNode, resources: dict[str, Any]) -> tuple[NotebookNode, dict[str, Any]]:
        path = Path(resources["metadata"]["path"], resources["metadata"]["name"] + ".ipynb")
        data, source = path.read_bytes(), _source(self, resources)
        key, master = read_master(source)
        try:
            submission = read_submission(data, path.name, [master])
        except Unreadable:
            with Gradebook(resources["nbgrader"]["db_url"]) as gradebook, contextlib.suppress(MissingEntry):
                gradebook.remove_submission(resources["nbgrader"]["assignment"], resources["nbgrader"]["student"])
            raise  # blank, not the 0 that nbgrader has just written down
        rebuilt = _rebuilt(key, submission)
        rebuilt.metadata["grader"] = {
            "notebook": master.name,
            "notes": list(submission.notes),
            "result": result_id(data, source),
        }
        return rebuilt, resources


class Judge(NbGraderPreprocessor):
    """The verdicts on a rebuilt notebook, as outputs of its check cells. Raises JailError."""

    allow_no_jail = Bool(False, help="Grade even where this machine cannot lock a hand-in's code away.").tag(config=True)

    def preprocess(self, nb: NotebookNode, resources: dict[str, Any]) -> tuple[NotebookNode, dict[str, Any]]:
        cache = Path(_converter(self).coursedir.root, ".grader", "results", nb.metadata["grader"]["result"] + ".json")
        result = load_result(cache)
        if result is None:
            _, master = read_master(_source(self, resources))
            submission = read_submission(nbformat.writes(nb).encode(), master.name + ".ipynb", [master])
            write_whole(cache, _warm_judge(self.allow_no_jail).judge(submission).to_json())
            result = load_result(cache)
        facts = nb.metadata["grader"]
        facts["notes"] = list(dict.fromkeys([*facts["notes"], *result["notes"]]))  # what was mended, and how its cells ran
        verdicts = {verdict["check"]: verdict for verdict in result["checks"]}
        for cell in nb.cells:
            marks = cell.metadata.get("nbgrader", {})
            if marks.get("grade") and marks.get("solution"):
                marks.pop("checksum", None)  # nbgrader gives an untouched answer 0 by it; a person decides that
            elif marks.get("grade"):
                cell.outputs = [_told(verdicts.get(marks["grade_id"]))]
        return nb, resources


class Marked(NbGraderPreprocessor):
    """Puts points and comments into the notebook; a score that nobody has given yet is None, not 0."""

    def preprocess(self, nb: NotebookNode, resources: dict[str, Any]) -> tuple[NotebookNode, dict[str, Any]]:
        ids = resources["nbgrader"]
        with Gradebook(ids["db_url"]) as gradebook:
            marks = read_book(gradebook, ids["student"]).marks[ids["student"], ids["assignment"]]
        for cell in nb.cells:
            facts = cell.metadata.get("nbgrader", {})
            if facts.get("grade"):
                facts["score"] = marks.scores.get(facts["grade_id"])
            facts["comment"] = marks.comments.get(facts.get("grade_id"), "")
        ids["late_penalty"] = marks.penalty
        return nb, resources


def read_master(source: Path) -> tuple[NotebookNode, Notebook]:
    """A class's own source notebook: the file and what it says. Raises CourseError and OSError."""
    stat = source.stat()
    return _read_master(source, stat.st_mtime_ns, stat.st_size)


@functools.lru_cache(maxsize=32)
def _read_master(source: Path, modified: int, size: int) -> tuple[NotebookNode, Notebook]:
    try:
        key = nbformat.read(source, as_version=4)
    except (ValueError, nbformat.ValidationError) as e:
        raise CourseError(f"{source}: not a notebook ({str(e).splitlines()[0]}); restore it from a copy") from None
    return key, from_key(key, source.stem, source)


def from_key(key: NotebookNode, name: str, where: Path | str = "") -> Notebook:
    """The notebook that an answer key says, edits of an instructor included. Raises CourseError."""
    cells, exercise = [], ""
    for cell in key.cells:
        ours, marks = cell.metadata.get("grader", {}), cell.metadata.get("nbgrader", {})
        kind, cell_name = ours.get("kind"), ours.get("name") or marks.get("grade_id", "")
        if not kind and marks.get("grade"):  # an instructor's own, made with nbgrader's toolbar
            kind = "answer" if marks["solution"] else "check"
            if kind == "answer" and cell.cell_type == "code":
                raise CourseError(f"{where}: cell {cell_name} is graded by hand and is code; make it a written answer or a test")
        if kind in ("solution", "bring"):
            exercise = cell_name
        if kind in KINDS or kind == "text":
            points = marks.get("points", 0) if kind in ("check", "answer") else 0
            belongs_to = exercise if kind == "check" else cell_name
            cells.append(Cell(kind, cell_name, cell.source, cell.cell_type == "markdown", points, belongs_to))
    return Notebook(name, tuple(cells))


def result_id(data: bytes, source: Path) -> str:
    """Names the result of a hand-in: another hand-in, another test or another grader gives another name."""
    stat = source.stat()
    return hashlib.sha256(_digest(source, stat.st_mtime_ns, stat.st_size) + _version() + data).hexdigest()


@functools.lru_cache(maxsize=32)
def _digest(source: Path, modified: int, size: int) -> bytes:
    return hashlib.sha256(source.read_bytes()).digest()


@functools.cache
def _version() -> bytes:
    """The grader's own text and the version of torch: what else a verdict depends on."""
    here = Path(__file__).parents[1]
    texts = [path.read_bytes() for path in sorted(here.rglob("*.py"))]
    return hashlib.sha256(b"\0".join([importlib.metadata.version("torch").encode(), *texts])).digest()


def load_result(path: Path) -> dict[str, Any] | None:
    """A result that was saved before, as JSON (None: there is none, or the file is damaged)."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _converter(step: NbGraderPreprocessor) -> BaseConverter:
    return step.parent.parent


def _source(step: NbGraderPreprocessor, resources: dict[str, Any]) -> Path:
    course, ids = _converter(step).coursedir, resources["nbgrader"]
    return Path(course.format_path(course.source_directory, ".", ids["assignment"]), ids["notebook"] + ".ipynb")


def _rebuilt(key: NotebookNode, submission: Submission) -> NotebookNode:
    """The master notebook with the learner's answers, and extra cells of the learner's behind the cell they followed."""
    theirs = {cell.name: cell.source for cell in submission.cells if cell.kind in LEARNERS}
    extra: dict[str, list[str]] = {}
    before = ""
    for cell in submission.cells:
        if cell.kind == "extra":
            extra.setdefault(before, []).append(cell.source)
        else:
            before = cell.name
    nb = nbformat.from_dict(key)
    cells = [new_code_cell(source) for source in extra.get("", [])]
    for cell in nb.cells:
        ours = cell.metadata.get("grader", {})
        name = ours.get("name") or cell.metadata.get("nbgrader", {}).get("grade_id", "")
        if ours.get("kind") == "bring":
            cell.source = BROUGHT
        cell.source = theirs.get(name, cell.source) if name else cell.source
        if ours.get("kind") != "machinery" or cell.cell_type != "code":  # that speaks to the learner alone
            cells.append(cell)
        cells += [new_code_cell(source) for source in extra.get(name, []) if name]
    nb.cells = cells
    return nb


@functools.cache
def _warm_judge(allow_no_jail: bool) -> Any:
    """The judge of this process. It is imported late: nbgrader's other commands have no use for torch."""
    from grader.judge.judge import Judge

    judge = Judge(allow_no_jail=allow_no_jail)
    atexit.register(judge.close)
    return judge


def _told(verdict: dict[str, Any] | None) -> NotebookNode:
    """A verdict as nbgrader understands it: an error costs the points, any other output does not."""
    if verdict is None:
        words = "This check was not judged: the class's source does not hold it."
        return new_output("error", ename="NotJudged", evalue="", traceback=[words])
    title = verdict["title"]
    if verdict["passed"]:
        return new_output("stream", name="stdout", text=f"✓ {title}: {verdict['points']:g} of {verdict['max_points']:g}\n")
    return new_output("error", ename="Failed", evalue=title, traceback=[f"✗ {title}", verdict["message"].removeprefix(f"{title}: ")])
