"""The source text of the course: notebooks, their cells, exercises and points.

A notebook is a file ``NN_name.py`` in percent format. Each cell has one header line::

    # %% KIND NAME [markdown]? points=N?      a named cell
    # %% [markdown]                           prose

What is malformed is refused with one sentence that names file and line.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[2]  # of the course: solutions/ and notebooks/ lie here
KINDS = ("given", "show", "solution", "bring", "scenario", "check", "answer")
HEADER = re.compile(r"# %% (?:(?P<kind>[a-z]+) (?P<name>[a-z][a-z0-9_]{0,47}))?(?P<markdown> ?\[markdown\])?(?: points=(?P<points>\d+))?")
SOLUTION = ("### BEGIN SOLUTION", "### END SOLUTION")
HIDDEN = ("### BEGIN HIDDEN TESTS", "### END HIDDEN TESTS")


class CourseError(Exception):
    """The course's text is malformed; the message names file and line."""


@dataclass(frozen=True)
class Cell:
    """One cell of a notebook.

    kind: one of KINDS, "text" for prose, "extra" for what a learner added. name: unique in its notebook ("" for those two).
    source: without the header, markdown without its comment marks. points: of a check or a written answer, else 0.
    exercise: the solution that a check belongs to, or the name itself. line: of the header, from 1.
    """

    kind: str
    name: str
    source: str
    markdown: bool = False
    points: int = 0
    exercise: str = ""
    line: int = 0

    @property
    def title(self) -> str:
        """The first comment line of a check, without its mark and full stop."""
        return self.source.split("\n", 1)[0].lstrip("# ").rstrip(".。 ")

    @property
    def hidden(self) -> str:
        """The hidden part of a check, without its markers ("" if there is none)."""
        _, _, rest = self.source.partition(HIDDEN[0] + "\n")
        return rest.partition(HIDDEN[1])[0]

    @property
    def visible(self) -> str:
        """The source without its hidden part."""
        return self.source.partition(HIDDEN[0])[0].rstrip("\n")

    def with_seed(self, seed: int) -> Cell:
        """The same check, its hidden draws made from `seed`."""
        return replace(self, source=self.source.replace(HIDDEN[0] + "\n", f"{HIDDEN[0]}\nSEED = {seed}\n"))


@dataclass(frozen=True)
class Exercise:
    """A function that the learner writes (or brings), its checks, and all the prose since the exercise before."""

    name: str
    checks: tuple[Cell, ...]
    prose: str


@dataclass(frozen=True)
class Notebook:
    """A notebook of the course.

    name: the file's stem, such as "02_grpo_loss". language: such as "zh_CN" ("": English). english: what it was translated from.
    """

    name: str
    cells: tuple[Cell, ...]
    language: str = ""
    english: Notebook | None = None

    @property
    def path(self) -> str:
        """Of its file, below solutions/ and notebooks/: "02_grpo_loss.ipynb", "zh/02_grpo_loss.ipynb"."""
        return f"{self.language.partition('_')[0]}/{self.name}.ipynb".removeprefix("/")

    def of_kind(self, *kinds: str) -> list[Cell]:
        return [cell for cell in self.cells if cell.kind in kinds]

    @property
    def graded(self) -> bool:
        """Whether there is anything to hand in. A notebook without checks is built and read, and belongs to no class."""
        return bool(self.of_kind("check"))

    @functools.cached_property
    def exercises(self) -> tuple[Exercise, ...]:
        """In their order; those without a check (brought functions) too."""
        found, prose = [], []
        for cell in self.cells:
            if cell.kind == "text":
                prose.append(cell.source)
            elif cell.kind in ("solution", "bring"):
                checks = tuple(check for check in self.of_kind("check") if check.exercise == cell.name)
                found.append(Exercise(cell.name, checks, "\n".join(prose)))
                prose = []
        return tuple(found)

    @property
    def title(self) -> str:
        return self.cells[0].source.split("\n", 1)[0].lstrip("# ")

    def with_seed(self, seed: int) -> Notebook:
        return replace(self, cells=tuple(c.with_seed(seed) if c.kind == "check" else c for c in self.cells))


def read_course(folder: Path) -> list[Notebook]:
    """Every notebook of the course, in order. Raises CourseError."""
    paths = sorted(folder.glob("[0-9][0-9]_*.py"))
    if not paths:
        raise CourseError(f"{folder}: no source text NN_name.py here; run grader from a checkout of the course, installed by 'make learn'")
    notebooks = [read_notebook(path) for path in paths]
    answers = {cell.name for nb in notebooks for cell in nb.of_kind("solution")}
    for path, nb in zip(paths, notebooks, strict=True):
        for cell in nb.of_kind("given", "scenario"):
            for name, line in _defined(cell):
                if name in answers:
                    raise _error(path, cell.line + line, f"the {cell.kind} cell {cell.name} defines {name}, which is an exercise's answer")
    return notebooks


def read_notebook(path: Path) -> Notebook:
    """The notebook that a source text describes. Raises CourseError."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as e:
        raise CourseError(f"{path}: not UTF-8 text ({e.reason} at byte {e.start}); save it as UTF-8") from None
    cells: list[Cell] = []
    exercise = ""
    for line, header, body in _split(path, text):
        cell = _parse(path, line, header, body)
        if cell.kind in ("solution", "bring"):
            exercise = cell.name
        if cell.kind == "check" and not exercise:
            raise _error(path, line, f"check {cell.name} stands before any solution; put it behind the exercise it checks")
        cells.append(replace(cell, exercise=exercise if cell.kind == "check" else cell.name))
    if not cells or not cells[0].markdown:
        raise _error(path, 1, "a notebook begins with a '# %% [markdown]' cell that holds its title")
    notebook = Notebook(path.stem, tuple(cells))
    _refuse_duplicates(path, notebook)
    _refuse_calls_of_answers(path, notebook)
    return notebook


def _split(path: Path, text: str) -> Iterator[tuple[int, str, list[str]]]:
    """(line of the header, header, the lines below it) for each cell."""
    lines = text.splitlines()
    starts = [number for number, content in enumerate(lines) if re.match(r"#\s*%%", content)]
    for number, content in enumerate(lines[: starts[0] if starts else None], 1):
        if content.strip():
            raise _error(path, number, "text before the first cell header; begin the file with '# %% [markdown]'")
    for start, end in pairwise([*starts, len(lines)]):
        yield start + 1, lines[start], lines[start + 1 : end]


def _parse(path: Path, line: int, header: str, body: list[str]) -> Cell:
    match = HEADER.fullmatch(header)
    kind, name = (match["kind"], match["name"]) if match else (None, None)
    if not match or (kind or "given") not in KINDS or not (kind or match["markdown"]):
        raise _error(
            path, line, f"malformed cell header {header!r}; write '# %% KIND NAME [markdown]? points=N?', KIND one of {', '.join(KINDS)}"
        )
    markdown = bool(match["markdown"])
    points = int(match["points"] or 0)
    if markdown and kind not in (None, "answer"):
        raise _error(path, line, f"a {kind} cell is code; take [markdown] out of its header")
    if kind == "answer" and not markdown:
        raise _error(path, line, f"written answer {name} needs [markdown] in its header")
    if kind in ("check", "answer") and points < 1:
        raise _error(path, line, f"{kind} {name} has no points; add points=N to its header")
    if kind not in ("check", "answer") and match["points"]:
        raise _error(path, line, f"only a check or a written answer has points, not a {kind or 'text'} cell")
    if markdown:
        for offset, content in enumerate(body, 1):
            if content.strip() and content != "#" and not content.startswith("# "):
                raise _error(path, line + offset, "a line of a markdown cell must begin with '# '")
        body = [content[2:] for content in body]
    source = "\n".join(body).strip("\n")
    if not source.strip():
        raise _error(path, line, "an empty cell; fill it or delete its header")
    cell = Cell(kind or "text", name or "", source, markdown, points, line=line)
    _check_markers(path, cell)
    if not markdown:
        _check_code(path, cell)
    return cell


def _check_markers(path: Path, cell: Cell) -> None:
    for (begin, end), kind in ((SOLUTION, ("solution", "bring")), (HIDDEN, ("check",))):
        lines = enumerate(map(str.strip, cell.source.split("\n")), cell.line + 1)
        markers = [(line, content) for line, content in lines if content in (begin, end)]
        for place, (line, marker) in enumerate(markers):
            if cell.kind not in kind:
                raise _error(path, line, f"'{marker}' does not belong into a {cell.kind} cell")
            if marker != (begin, end)[place % 2]:
                raise _error(path, line, f"'{marker}' without its partner")
        if len(markers) % 2:
            raise _error(path, markers[-1][0], f"'{begin}' is never closed; add '{end}'")
        if cell.kind in kind and not markers:
            what = f"exercise {cell.name} has no stub" if begin == SOLUTION[0] else f"check {cell.name} has no hidden part"
            raise _error(path, cell.line, f"{what}; put what learners must not see between '{begin}' and '{end}'")


def _check_code(path: Path, cell: Cell) -> None:
    try:
        ast.parse(cell.source)
    except SyntaxError as e:
        raise _error(path, cell.line + (e.lineno or 0), f"{e.msg} in cell {cell.name}") from None
    if cell.kind in ("solution", "bring", "scenario") and cell.name not in {name for name, _ in _defined(cell)}:
        raise _error(path, cell.line, f"{cell.kind} {cell.name} does not define a function {cell.name}")
    if cell.kind == "check" and not cell.source.startswith("# "):
        raise _error(path, cell.line, f"check {cell.name} has no title; make its first line a comment that says what it checks")


def _defined(cell: Cell) -> list[tuple[str, int]]:
    return [(node.name, node.lineno) for node in ast.parse(cell.source).body if isinstance(node, ast.FunctionDef | ast.ClassDef)]


def _refuse_duplicates(path: Path, notebook: Notebook) -> None:
    named: dict[str, Cell] = {}
    titled: dict[str, Cell] = {}
    for cell in notebook.of_kind(*KINDS):
        if other := named.get(cell.name):
            raise _error(path, cell.line, f"the name {cell.name} is taken by the cell on line {other.line}; names are unique in a notebook")
        named[cell.name] = cell
        if cell.kind == "check":
            if other := titled.get(cell.title):
                raise _error(path, cell.line, f"check {cell.name} has the title of check {other.name}; say what is different")
            titled[cell.title] = cell


def _refuse_calls_of_answers(path: Path, notebook: Notebook) -> None:
    answers = {cell.name for cell in notebook.of_kind("solution", "bring")}
    for cell in notebook.of_kind("given"):
        for node in ast.walk(ast.parse(cell.source)):
            if isinstance(node, ast.Name) and node.id in answers:
                sentence = f"given cell {cell.name} uses {node.id}, which the learner writes; make it a show or scenario cell"
                raise _error(path, cell.line + node.lineno, sentence)


def _error(path: Path, line: int, sentence: str) -> CourseError:
    return CourseError(f"{path}:{line}: {sentence}")
