"""The checks judge well: every check alone, on the key, on known mistakes, on right variants and on cheats."""

import functools
import random

import pytest
import torch
from conftest import COURSE
from diagnosing import in_grading, in_the_notebook, is_named

from grader.inprocess import failure, namespace
from grader.mistakes import versions

SEEDS = (0, 20261129)
CASES = [(nb, v) for nb in COURSE for v in versions(nb.name)]


def names_of(case):
    notebook, version = case
    return f"{notebook.name[:2]}-{version.exercise}-{version.name}"


def seeded(notebook, version):
    """The notebook on one of two secret seeds: half of the versions on each."""
    return notebook.with_seed(SEEDS[sum(map(ord, version.name)) % len(SEEDS)])


@functools.cache
def verdicts(notebook, exercise=None, source="", seed=0):
    """Check name -> what it raised (None: passed), each check alone in a fresh namespace."""
    names = namespace(notebook, {exercise: source} if source else {})
    checks = [c for c in notebook.with_seed(seed).of_kind("check") if exercise in (None, c.exercise)]
    return {c.name: failure(c, names)[0] for c in checks}


@pytest.mark.parametrize("notebook", COURSE, ids=lambda nb: nb.name)
def test_the_key_passes_every_check_whatever_a_class_draws(notebook):
    failed = {(seed, name): e for seed in (*SEEDS, *range(1, 19)) for name, e in verdicts(notebook, seed=seed).items() if e}
    assert not failed


@pytest.mark.parametrize("case", [c for c in CASES if not c[1].wrong], ids=names_of)
def test_a_right_variant_passes_every_check(case):
    notebook, version = case
    for seed in SEEDS:
        failed = {n: repr(e) for n, e in verdicts(notebook, version.exercise, version.source, seed).items() if e}
        assert not failed


@pytest.mark.parametrize("case", [c for c in CASES if c[1].wrong], ids=names_of)
def test_a_mistake_loses_points(case):
    notebook, version = case
    assert version.hint, f"{version.name} has no 'Hint: ' paragraph"
    for seed in SEEDS:
        assert any(verdicts(notebook, version.exercise, version.source, seed).values())


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
def test_a_scenario_that_tells_less_passes_nothing(count):
    """It runs on the learner's side, where a hand-in may put its own in the place of it."""
    notebook = next(nb for nb in COURSE if nb.of_kind("scenario"))
    names = namespace(notebook)
    for scenario in notebook.of_kind("scenario"):
        names[scenario.name] = lambda *args, **kwargs: {"changes": [torch.ones(9)] * count, "metrics": [{}] * count, "reference_moved": 0.0}
        checks = [c for c in notebook.of_kind("check") if scenario.name in c.source]
        assert checks and all(failure(c, names)[0] for c in checks)


@pytest.mark.parametrize("notebook", COURSE, ids=lambda nb: nb.name)
def test_the_table_of_mistakes_and_checks(notebook, record_property):
    """Printed, so that a check that catches nothing and a mistake without a name are seen; each check must catch a known mistake.

    A notebook names only what its visible checks see: "passes" is caught by a hidden test alone, "explained" raises an error.
    """
    lines, idle = [], []
    wrong = [v for v in versions(notebook.name) if v.wrong]
    for exercise in {v.exercise: None for v in wrong}:
        checks = [c.name for c in notebook.of_kind("check") if c.exercise == exercise]
        caught = dict.fromkeys(checks, 0)
        lines.append(f"\n{notebook.name} {exercise}: " + "  ".join(f"{i}={name}" for i, name in enumerate(checks, 1)))
        lines.append(" " * (34 + 3 * len(checks)) + "   in the notebook / in grading")
        for version in [v for v in wrong if v.exercise == exercise]:
            result = verdicts(notebook, exercise, version.source)
            for name in checks:
                caught[name] += bool(result[name])
            line = f"  {version.name:32}" + "".join(f"{i:>3}" if result[n] else "  ." for i, n in enumerate(checks, 1))
            found = in_grading(seeded(notebook, version), version)
            named = "named" if is_named(version, found) else f"NOT NAMED {found}"
            together = {name for names in found.values() for name in names if name != version.name}
            line += f"   {in_the_notebook(notebook, version):9} / {named}"
            lines.append(line + (f", as is {', '.join(sorted(together))}" if together else ""))
        idle += [name for name, n in caught.items() if not n]
    record_property("table", "\n".join(lines))
    assert not idle, f"checks that catch no known mistake: {idle}"
