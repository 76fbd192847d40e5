"""Known mistakes are named, everywhere and rightly; right answers and unknown mistakes are left in peace."""

import functools
import random
from types import SimpleNamespace

import pytest
import torch
from conftest import COURSE
from diagnosing import ALIKE, feedback_of, in_grading, in_the_notebook, is_named, judged
from hands import hand_in, warm_judge
from test_checks import CASES, names_of, seeded

from grader.diagnose import Call, _Catalogue, _memory_bounded, _too_long, _TooLong, diagnose, explain
from grader.inprocess import alarm, failure, namespace
from grader.mistakes import Version, versions

WRONG = [case for case in CASES if case[1].wrong]
A_CONVENTION = {"eps_added"}  # that checks let pass; a mistake that has the same numbers elsewhere says so in its name


@pytest.mark.parametrize("case", WRONG, ids=names_of)
def test_a_mistake_is_named_in_grading(case):
    notebook, version = case
    found = in_grading(seeded(notebook, version), version)
    assert is_named(version, found), found


@pytest.mark.parametrize("notebook", COURSE, ids=lambda nb: nb.name)
def test_a_mistake_is_named_in_the_notebook_where_something_is_seen_of_it(notebook):
    heard = {(v.exercise, v.name): in_the_notebook(notebook, v) for v in versions(notebook.name) if v.wrong}
    assert not {mistake: word for mistake, word in heard.items() if word in ("another", "nothing")}


def test_mistakes_that_are_alike_exist():
    known = {v.name for _, v in WRONG}
    assert all(group <= known for group in ALIKE)


@pytest.mark.parametrize("case", [c for c in CASES if not c[1].wrong], ids=names_of)
def test_a_right_variant_is_never_accused(case):
    """Not even if a check of it failed: none of what it says is what a mistake says."""
    notebook, version = case
    notebook = seeded(notebook, version)
    passed, traces = judged(notebook, version.exercise, namespace(notebook, {version.exercise: version.source}))
    assert all(passed.values())
    assert version.name in A_CONVENTION or not diagnose(notebook, dict.fromkeys(passed, False), traces)


def randomly_wrong(key, draw):
    """A function that is wrong in a way of its own: the key's answer, its floats distorted at random."""
    kind, a, b = draw.choice(["scaled", "moved", "random", "mixed", "bent"]), draw.uniform(-3, 3), draw.gauss(0, 1)
    noise = torch.Generator().manual_seed(draw.randrange(2**31))

    def distorted(t):
        if not t.is_floating_point():
            return t
        if kind == "scaled":
            return t * a
        if kind == "moved":
            return t + b
        if kind == "mixed":
            return t.flatten()[torch.randperm(t.numel(), generator=noise)].view(t.shape) * a + b
        return t * 0 + torch.randn(t.shape, generator=noise) if kind == "random" else (t * a).tanh() + b

    def each(value):
        if torch.is_tensor(value):
            return distorted(value)
        if isinstance(value, float):
            return distorted(torch.tensor(value, dtype=torch.float64)).item()
        if isinstance(value, dict):
            return {k: each(v) for k, v in value.items()}
        if isinstance(value, str) or value is None:
            return draw.choice([None, "0", "12", "", "no", value])
        return type(value)(each(v) for v in value) if isinstance(value, list | tuple) else draw.choice([value, 1 - value])

    return lambda *args, **kwargs: each(key(*args, **kwargs))


@functools.cache
def named_at_random(notebook, count, in_grading=True):
    """How many of `count` random wrong answers are given the name of a mistake."""
    draw, names, named = random.Random(notebook.name), namespace(notebook), []
    exercises = [c.name for c in notebook.of_kind("solution")]
    for i in range(count):
        exercise = exercises[i % len(exercises)]
        own = names | {exercise: randomly_wrong(names[exercise], draw)}
        if in_grading:
            named += [
                (exercise, name, [v.name for v in found]) for name, found in diagnose(notebook, *judged(notebook, exercise, own)).items()
            ]
        else:
            feedback = feedback_of(notebook)
            for check in notebook.of_kind("check"):
                if check.exercise == exercise:
                    error, after = failure(check, own, hidden=False)
                    feedback.shell = SimpleNamespace(user_ns=after)
                    named += [(exercise, check.name, told) for told in (feedback.named(check.name, exercise, error) if error else ())]
    return named


@pytest.mark.parametrize("where", ["grading", "notebook"])
@pytest.mark.parametrize("notebook", COURSE, ids=lambda nb: nb.name)
def test_a_random_wrong_answer_has_no_name(notebook, where):
    assert not named_at_random(notebook, 20, where == "grading")


@pytest.mark.parametrize("notebook", COURSE, ids=lambda nb: nb.name)
def test_the_judge_names_a_mistake(notebook):
    version = next(v for v in versions(notebook.name) if v.wrong)
    result = warm_judge().judge(hand_in(notebook.with_seed(5), **{version.exercise: version.source}))
    named = [v for v in result.checks if v.mistake]
    assert named and all(v.mistake == version.name and not v.passed for v in named)
    assert all(version.hint in v.message for v in named)


def test_a_class_costs_a_mistake_once(monkeypatch):
    notebook, version = WRONG[0]
    given = judged(notebook, version.exercise, namespace(notebook, {version.exercise: version.source}))
    first = diagnose(notebook, *given)
    monkeypatch.setattr("grader.diagnose.namespace", None)  # nothing is worked out anew
    monkeypatch.setattr("grader.diagnose.alarm", None)
    assert diagnose(notebook, *given) == first


def test_a_version_that_runs_on_or_wants_the_whole_memory_is_left_out(monkeypatch):
    with pytest.raises(_TooLong), alarm(0.05, _too_long):
        while True:
            pass
    with _memory_bounded(), pytest.raises(RuntimeError):
        torch.zeros(2**34)
    torch.zeros(2**20)  # and afterwards all is as before
    notebook = COURSE[0]
    exercise = notebook.of_kind("solution")[0].name
    endless = Version(exercise, "endless", True, "", "", f"def {exercise}(*args, **kwargs):\n    while True:\n        pass")
    catalogue = _Catalogue(notebook)
    with catalogue.guarded():
        monkeypatch.setattr("grader.diagnose.SECONDS_OF_A_CALL", 0.05)
        assert catalogue._answer(endless, Call(exercise, (), {}), b"asked") is None
        monkeypatch.setattr(catalogue, "_end", 0.0)
        with pytest.raises(_TooLong):
            catalogue._answer(endless, Call(exercise, (), {}), b"asked later")


def test_common_errors_of_python_are_explained_with_the_shapes_of_the_text():
    notebook = next(nb for nb in COURSE if nb.name.startswith("02"))
    message = (
        "grpo_token_loss raised RuntimeError: The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 1"
    )
    assert "advantages [N]" in explain(message, "grpo_token_loss", notebook)
    assert "a typing slip" in explain("grpo_token_loss raised NameError: name 'ratoi' is not defined", "grpo_token_loss", notebook)
    assert not explain("the loss is 1.5, not 1.2", "grpo_token_loss", notebook)
