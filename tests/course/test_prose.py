"""The hints of the texts: for which check each is, where they send to read, in plain characters."""

import re

import pytest

from grader.course.prose import hints, plain
from tests.conftest import COURSE


@pytest.mark.parametrize("notebook", COURSE, ids=lambda nb: nb.name)
def test_hints_are_for_checks_that_exist(notebook):
    for exercise, (ideas, where) in hints(notebook).items():
        named = {check for checks, _ in ideas for check in checks.split()}
        assert named <= {c.name for c in notebook.of_kind("check") if c.exercise == exercise}
        assert where.startswith("Where to read: ")


@pytest.mark.parametrize("notebook", COURSE, ids=lambda nb: nb.name)
def test_hints_lead_to_the_exercise_and_are_written_in_plain_characters(notebook):
    for name, (ideas, where) in hints(notebook).items():
        assert not any(re.search(r"[$\\{}]", re.sub("`.*?`", "", words)) for _, words in ideas), name
        if name in [c.name for c in notebook.of_kind("solution")]:
            assert re.search(rf"[“ ]{name}”\.$", where), where
        assert "(" not in where and 1 <= where.count("“") <= 2, where


@pytest.mark.parametrize(
    ("tex", "words"),
    [
        ("divide by $G - 1$", "divide by G - 1"),
        (r"$\frac{1}{G} \sum_i A_{t+1}$, `x{$}` and $2, 3, \dots$", "(1) / (G) sum_i A_(t+1), `x{$}` and 2, 3, ..."),
        (r"$e^{x - c}$ with $\ell = 1$", "e^(x - c) with ell = 1"),
    ],
)
def test_formulas_are_told_in_plain_characters(tex, words):
    assert plain(tex) == words
