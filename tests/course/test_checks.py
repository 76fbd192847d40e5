"""The checks judge well: every check alone, on the key, on known mistakes, on right variants and on cheats."""

import functools
import random

import pytest
import torch

from grader.course.trusted import failure, namespace
from grader.mistakes import versions
from tests.conftest import COURSE, EVERY_NOTEBOOK

CASES = [(nb, v) for nb in COURSE for v in versions(nb.name)]
BROUGHT = [(nb, cell) for nb in EVERY_NOTEBOOK for cell in nb.of_kind("bring")]


def names_of(case):
    notebook, version = case
    return f"{notebook.name[:2]}-{version.exercise}-{version.name}"


def seeds(few, more):
    """Secret seeds of classes: a few for `make test`, more for `make thorough`."""
    return pytest.mark.parametrize("seeds", [pytest.param(few, id="few"), pytest.param(more, id="more", marks=pytest.mark.thorough)])


@functools.cache
def verdicts(notebook, exercise=None, source="", seed=0):
    """Check name -> what it raised (None: passed), each check alone in a fresh namespace."""
    names = namespace(notebook, {exercise: source} if source else {})
    checks = [c for c in notebook.with_seed(seed).of_kind("check") if exercise in (None, c.exercise)]
    return {c.name: failure(c, names)[0] for c in checks}


@pytest.mark.training
@seeds([0, 20261129], range(1, 19))
@pytest.mark.parametrize("notebook", COURSE, ids=lambda nb: nb.name)
def test_the_key_passes_every_check_whatever_a_class_draws(notebook, seeds):
    assert not {(seed, name): e for seed in seeds for name, e in verdicts(notebook, seed=seed).items() if e}


@pytest.mark.training
@seeds([0], [20261129, 1, 2])
@pytest.mark.parametrize("case", [c for c in CASES if not c[1].wrong], ids=names_of)
def test_a_right_variant_passes_every_check(case, seeds):
    notebook, version = case
    for seed in seeds:
        assert not {name: repr(e) for name, e in verdicts(notebook, version.exercise, version.source, seed).items() if e}


@pytest.mark.training
@pytest.mark.parametrize("case", BROUGHT, ids=lambda case: f"{case[0].name[:2]}-{case[1].name}")
def test_what_is_brought_passes_every_check_of_its_exercise(case):
    _, brought = case
    (home,) = [nb for nb in COURSE if brought.name in [c.name for c in nb.of_kind("solution")]]
    assert not {name: repr(e) for name, e in verdicts(home, brought.name, brought.source).items() if e}


@seeds([0], [20261129])
@pytest.mark.parametrize("case", [c for c in CASES if c[1].wrong], ids=names_of)
def test_a_mistake_loses_points(case, seeds):
    notebook, version = case
    assert version.hint, f"{version.name} has no 'Hint: ' paragraph"
    for seed in seeds:
        assert any(verdicts(notebook, version.exercise, version.source, seed).values())


@pytest.mark.parametrize("case", [c for c in CASES if c[1].wrong], ids=names_of)
def test_a_mistake_fails_where_the_learner_sees_it(case):
    """Whose visible checks are green loses nothing in the hidden part."""
    notebook, version = case
    names = namespace(notebook, {version.exercise: version.source})
    assert any(failure(c, names, hidden=False)[0] for c in notebook.of_kind("check") if c.exercise == version.exercise)


def flat(value):
    """Every tensor inside a value."""
    if torch.is_tensor(value):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for v in value for t in flat(v)] if isinstance(value, list | tuple) else []


def mapped(value, change):
    """The value with every number in it changed: what a cheat returns that only knows the right shapes."""
    if torch.is_tensor(value):
        return change(value)
    if isinstance(value, dict):
        return {k: mapped(v, change) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(mapped(v, change) for v in value)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float):
        return type(value)(change(torch.tensor(float(value))).item())
    return "0" if isinstance(value, str) else value


class Cheat:
    """A function that knows the shape of the right answer (it asks the key) and nothing else."""

    def __init__(self, key, kind):
        self.key, self.kind, self.worked = key, kind, None

    def __call__(self, *args, **kwargs):
        answer = self.key(*args, **kwargs)
        inputs = [t for t in flat([args, kwargs]) if t.is_floating_point()]
        anchor = sum((t.sum() * 0 for t in inputs if t.requires_grad), torch.zeros(()))  # so that backward() works
        if self.kind == "zeros":
            return mapped(answer, lambda t: (torch.zeros_like(t) + anchor).to(t.dtype))
        if self.kind == "constant":
            return mapped(answer, lambda t: (torch.ones_like(t) * 0.5 + anchor).to(t.dtype))
        if self.kind == "random":
            return mapped(
                answer, lambda t: (torch.tensor([random.gauss(0, 1) for _ in range(t.numel())]).view(t.shape) + anchor).to(t.dtype)
            )
        if self.kind == "input":
            return mapped(
                answer,
                lambda t: next((i * 1.0 for i in inputs if i.shape == t.shape), (inputs[0] if inputs else torch.zeros(1)).sum() + t * 0),
            )
        if self.worked is None:  # "by_heart": the first answer asked for, the inputs overwritten from then on
            self.worked = mapped(answer, lambda t: t.detach().clone())
        with torch.no_grad():
            for t in inputs:
                t.zero_()
        return mapped(self.worked, lambda t: t + anchor if t.is_floating_point() else t)


@pytest.mark.parametrize("kind", ["zeros", "constant", "random", "input", "by_heart"])
@pytest.mark.parametrize("notebook", COURSE, ids=lambda nb: nb.name)
def test_a_cheat_scores_nothing(notebook, kind):
    random.seed(1)
    names = namespace(notebook)
    passed = []
    for check in notebook.of_kind("check"):
        key = names[check.exercise]
        names[check.exercise] = Cheat(key, kind)  # where scenarios look for it, too
        if failure(check, names)[0] is None:
            passed.append(check.name)
        names[check.exercise] = key
    assert not passed


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("notebook", [nb for nb in COURSE if nb.of_kind("scenario")], ids=lambda nb: nb.name)
def test_a_scenario_that_tells_less_passes_nothing(notebook, count):
    """It runs on the learner's side, where a hand-in may put its own in the place of it."""
    names = namespace(notebook)
    for scenario in notebook.of_kind("scenario"):
        names[scenario.name] = lambda *args, **kwargs: {"changes": [torch.ones(9)] * count, "metrics": [{}] * count, "reference_moved": 0.0}
        checks = [c for c in notebook.of_kind("check") if scenario.name in c.source]
        assert checks and all(failure(c, names)[0] for c in checks)


@pytest.mark.parametrize("notebook", COURSE, ids=lambda nb: nb.name)
def test_every_check_catches_a_known_mistake(notebook):
    wrong = [v for v in versions(notebook.name) if v.wrong]
    caught = {name for v in wrong for name, error in verdicts(notebook, v.exercise, v.source).items() if error}
    assert {c.name for c in notebook.of_kind("check")} == caught
