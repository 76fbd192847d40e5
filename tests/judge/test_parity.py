"""A check is judged as it is in a notebook: the same verdict and the same words, whoever wrote the function.

One difference is meant: the judge also fails a function that changes its arguments, where no check looks.
"""

import functools
import re
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import zip_longest

import pytest

from grader.course.source import Notebook
from grader.course.trusted import failure, namespace
from grader.judge.remote import _snapshot
from grader.mistakes import versions
from grader.sandbox.protocol import NotData
from tests.conftest import COURSE
from tests.judge.hands import TOY, hand_in, warm_judge

CHEATS = {  # what stands behind the key, whose answer is _key(...)
    "nothing": "return None",
    "zeros": "return _each(_key(*args, **kwargs), torch.zeros_like)",
    "constant": "return _each(_key(*args, **kwargs), lambda t: torch.full_like(t, 0.5) if t.is_floating_point() else t)",
    "input": "return args[0] if args else next(iter(kwargs.values()))",
    "changes_its_input": "answer = _key(*args, **kwargs)\n    _each([args, kwargs], lambda t: t.data.zero_())\n    return answer",
    "raises": "raise ValueError('no')",
}
EACH = """
def _each(value, change):
    if torch.is_tensor(value):
        return change(value)
    if isinstance(value, dict):
        return {k: _each(v, change) for k, v in value.items()}
    return type(value)(_each(v, change) for v in value) if isinstance(value, list | tuple) else value
"""


def cheat(notebook: Notebook, exercise: str, body: str) -> str:
    key = next(c.source for c in notebook.of_kind("solution") if c.name == exercise)
    return f"import torch\n{key}\n_key = {exercise}\n{EACH}\ndef {exercise}(*args, _key=_key, **kwargs):\n    {body}\n"


def hand_ins(notebook: Notebook) -> Iterator[dict[str, tuple[str, str]]]:
    """Exercise -> (name, source), of few hand-ins that hold every version of every exercise.

    Exercises of which one calls another are not put into one hand-in: what one got wrong may never end in the other.
    """
    columns = {}
    for cell in notebook.of_kind("solution"):
        column = [("key", cell.source), *((name, cheat(notebook, cell.name, body)) for name, body in CHEATS.items())]
        known = [(v.name, v.source) for v in versions(notebook.name) if v.exercise == cell.name]
        trains = any(re.search(rf"\b{cell.name}\(", s.source) and "optim" in s.source for s in notebook.of_kind("scenario"))
        columns[cell.name] = column + known[:: 3 if trains else 1]  # a training step costs seconds on each side
    texts = {exercise: "\n".join(source for _, source in column) for exercise, column in columns.items()}
    texts |= {cell.name: cell.source for cell in notebook.of_kind("scenario")}
    strangers: list[list[str]] = []
    for exercise in columns:
        for group in strangers:
            if not any(_meet(texts.values(), exercise, other) for other in group):
                group.append(exercise)
                break
        else:
            strangers.append([exercise])
    for group in strangers:
        for row in zip_longest(*([(exercise, version) for version in columns[exercise]] for exercise in group)):
            yield dict(filter(None, row))


def _meet(texts: Iterable[str], one: str, other: str) -> bool:
    """Whether a text speaks of both: one that calls the other, or a third that calls both."""
    return any(re.search(rf"\b{one}\b", text) and re.search(rf"\b{other}\b", text) for text in texts)


def in_a_notebook(notebook: Notebook, sources: dict[str, str]) -> dict[str, tuple[bool, str, bool]]:
    """Check of these exercises -> whether it passes, the words of an error that a learner can see, whether an argument was changed."""
    names, found, changed = namespace(notebook, sources), {}, []
    for cell in notebook.of_kind("solution", "scenario"):
        names[cell.name] = watched(names[cell.name], changed)
    for check in notebook.of_kind("check"):
        changed.clear()
        error = failure(check, names)[0]
        lines = [line for f, line in traceback.walk_tb(error and error.__traceback__) if f.f_code.co_filename.startswith("<check:")]
        visible = isinstance(error, AssertionError) and lines[-1] <= check.visible.count("\n") + 1
        found[check.name] = (error is None, str(error) if visible else "", bool(changed))
    return found


def watched(function: Callable, changed: list[str]) -> Callable:
    """The function, which notes when it changes what it is given."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        before = seen(args, kwargs)
        try:
            return function(*args, **kwargs)
        finally:
            if seen(args, kwargs) != before:
                changed.append(function.__name__)

    return call


def seen(*values):
    """Equal for equal arguments; None where one is no data, such as the model that a scenario trains."""
    try:
        return _snapshot(values)
    except NotData:
        return None


@pytest.mark.parametrize(
    "notebook", [TOY, COURSE[0], *(pytest.param(nb, marks=pytest.mark.thorough) for nb in COURSE[1:])], ids=lambda nb: nb.name
)
def test_the_judge_agrees_with_the_notebook(notebook):
    differences = []
    for row in hand_ins(notebook):
        sources = {exercise: source for exercise, (_, source) in row.items()}
        own = replace(notebook, cells=tuple(c for c in notebook.cells if c.kind not in ("check", "answer") or c.exercise in row))
        expected = in_a_notebook(own, sources)
        for verdict in warm_judge().judge(hand_in(own, **sources)).checks:
            if verdict.points is not None:
                passes, words, changed = expected[verdict.check]
                if not changed and (passes != verdict.passed or words[:300] not in verdict.message):
                    differences.append((row[verdict.exercise][0], verdict.check, passes, words, verdict.message))
    assert not differences, "\n".join(map(str, differences))
