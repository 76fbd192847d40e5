"""`grader challenge`: notebook 4's standing challenge, settings out of hand-ins raced against the course's on seeds that nobody has seen.

Only numbers are read from a hand-in and none of its code runs: a function could bring a trained model along.
"""

from __future__ import annotations

import ast
import contextlib
import io
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from grader.course.source import Notebook
from grader.course.trusted import execute, namespace
from grader.intake.notebook_file import RawNotebook, Unreadable, read_file
from grader.intake.python_file import read_python_file
from grader.intake.static_analysis import parsed

NAME = "CHALLENGE"  # the variable that holds them
NOTEBOOK = "04_train_a_tiny_model"
MOST = {"steps": 500, "prompts": 256, "answers": 256, "inner_epochs": 16}  # whole numbers of at least 1
LARGEST = 1000  # of the others; far beyond what trains, and far below what torch cannot hold
MOST_ANSWERS = 1024  # of a step; bounds its time and memory
SEEDS = range(1_000, 1_000_000)  # to draw from; the texts of the course tell of smaller ones


class NoSettings(Unreadable):
    """A file that does not take part."""


@dataclass(frozen=True)
class Race:
    """ratios: seconds over the course's, for each seed (4 where it does not arrive)."""

    ratios: tuple[float, ...]

    @property
    def ratio(self) -> float:
        return sum(self.ratios) / len(self.ratios)


def course_settings(notebook: Notebook) -> dict[str, float]:
    """The settings that a notebook comes with."""
    (cell,) = (cell for cell in notebook.cells if cell.name == "challenge")
    found = _assigned(cell.source)
    assert isinstance(found, ast.Dict)
    return ast.literal_eval(found)


def read_settings(data: bytes, name: str, course: Mapping[str, float]) -> dict[str, float]:
    """The last settings that a notebook, or a Python file, assigns; what they leave out is the course's.

    Raises NoSettings where there are none but the course's, Unreadable where they are no numbers that can be raced. Both begin
    with the file's name.
    """
    try:
        raw = read_python_file(data) if name.lower().endswith(".py") else read_file(data)
        settings = _checked(_settings(raw), course)
        if settings == course:
            raise NoSettings(f"its last {NAME} = {{...}} is the course's own, which would race against itself")
        return settings
    except Unreadable as e:
        raise type(e)(f"{name}: {e}") from None


def _settings(raw: RawNotebook) -> dict[Any, Any]:
    found = [value for cell in raw.cells if cell.code and (value := _assigned(cell.source))]
    if not found:
        raise NoSettings(f"no cell that Python can read assigns to {NAME}; write {NAME} = {{...}}, as notebook 4 does")
    try:
        settings = ast.literal_eval(found[-1])
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        settings = None
    if not isinstance(settings, dict):
        raise Unreadable(f"{NAME} is no dict of plain numbers, as {{'lr': 0.001}} is; a function could bring a trained model along")
    return settings


def _assigned(source: str) -> ast.expr | None:
    """What the last assignment at the top of a cell gives to CHALLENGE."""
    tree = parsed(source)
    values = [
        node.value
        for node in (tree.body if tree else ())
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == NAME for t in node.targets)
    ]
    return values[-1] if values else None


def _checked(settings: dict[Any, Any], course: Mapping[str, float]) -> dict[str, float]:
    for name, value in settings.items():
        if name not in course:
            raise Unreadable(f"{NAME} has {_short(name)}, which is not raced; it may have {', '.join(course)}")
        kind, least, most = ("whole number", 1, MOST[name]) if name in MOST else ("number", 0, LARGEST)
        if type(value) not in (int, float) or not least <= value <= most or (name in MOST and value != int(value)):
            raise Unreadable(f"{NAME}[{name!r}] is {_short(value)}; it needs a {kind} of {least} to {most}")
    complete = {**course, **{name: int(value) if name in MOST else float(value) for name, value in settings.items()}}
    if complete["prompts"] * complete["answers"] > MOST_ANSWERS:
        raise Unreadable(f"{NAME} asks for more than {MOST_ANSWERS} answers a step; take fewer prompts or answers")
    return complete


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."


class Referee:
    """Models that the course's settings take to .95, each warmed up on a seed of its own, and the races from them.

    seed: says which seeds. say: is told what takes long.
    """

    def __init__(self, notebook: Notebook, seed: int, count: int, say: Callable[[str], None]) -> None:
        cells = {cell.name: cell.source for cell in notebook.cells}
        self._names = namespace(notebook, {"settings": cells["settings"].replace('"device": "auto"', '"device": "cpu"')})
        self._names["torch"].set_num_threads(1)
        for name in ("the_loop", "race"):
            execute(cells[name], self._names, f"<{name}>")
        draw = random.Random(seed)
        self._models: list[tuple[int, Any]] = []
        while len(self._models) < count:
            say(f"warming up model {len(self._models) + 1} of {count}")
            for start in self._quietly("starts", draw.choice(SEEDS), 1):
                if self._quietly("to_95", *start, self._names["COURSE"])[0] is not None:
                    self._models.append(start)

    def race(self, settings: Mapping[str, float]) -> Race:
        """The settings against the course's, one after the other from each model."""
        return Race(tuple(self._quietly("race", settings, [model]) for model in self._models))

    def _quietly(self, name: str, *args: Any) -> Any:
        with contextlib.redirect_stdout(io.StringIO()):
            return self._names[name](*args)
