"""A check is judged as it is in a notebook: the same verdict and the same words, whoever wrote the function.

One difference is meant: the judge also fails a function that changes its arguments, where no check looks.
"""

from dataclasses import replace

import pytest
from conftest import COURSE
from hands import TOY, hand_in, warm_judge

from grader.course import Notebook
from grader.inprocess import failure, namespace
from grader.mistakes import versions

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


def answers(notebook: Notebook) -> list[tuple[str, str, str]]:
    """(exercise, name, source) of everything that is compared."""
    compared = [(v.exercise, v.name, v.source) for v in versions(notebook.name)]
    for cell in notebook.of_kind("solution"):
        compared.append((cell.name, "key", cell.source))
        compared += [(cell.name, name, cheat(notebook, cell.name, body)) for name, body in CHEATS.items()]
    return compared


def in_a_notebook(notebook: Notebook, exercise: str, source: str) -> dict[str, tuple[bool, str | None]]:
    """Check -> whether it passes, and the words of the assert that failed where a learner can see it."""
    names = namespace(notebook, {exercise: source})
    found = {}
    for check in notebook.of_kind("check"):
        seen = failure(check, names, hidden=False)[0]
        words = str(seen) if isinstance(seen, AssertionError) else None
        found[check.name] = (seen is None and failure(check, names)[0] is None, words)
    return found


@pytest.mark.parametrize("notebook", [TOY, *COURSE], ids=lambda nb: nb.name)
def test_the_judge_agrees_with_the_notebook(notebook):
    differences = []
    for exercise, name, source in answers(notebook):
        own = replace(notebook, cells=tuple(c for c in notebook.cells if c.kind not in ("check", "answer") or c.exercise == exercise))
        expected = in_a_notebook(own, exercise, source)
        for verdict in warm_judge().judge(hand_in(own, **{exercise: source})).checks:
            if verdict.points is None or "changed its argument" in verdict.message:
                continue
            passes, words = expected[verdict.check]
            if passes != verdict.passed or (words and words[:1000] != verdict.message[:1000]):
                differences.append((exercise, name, verdict.check, passes, words, verdict.message))
    assert not differences, "\n".join(map(str, differences))
