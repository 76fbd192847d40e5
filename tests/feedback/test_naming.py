"""Known mistakes are named, in the notebook as in grading; right answers and unknown mistakes are left in peace."""

import random
import shutil
from pathlib import Path

import pytest
import torch

from grader.course.source import Cell
from grader.course.trusted import failure, namespace
from grader.feedback import table
from grader.feedback.naming import NO_NUMBERS, by_mistake, candidates, evidence, fingerprint
from grader.feedback.table import fingerprints
from grader.mistakes import versions
from tests.conftest import COURSE
from tests.feedback.diagnosing import in_grading, in_the_notebook, judged_nearby, names_in
from tests.judge.hands import hand_in, warm_judge

A_CONVENTION = {"eps_added"}  # that checks let pass; a mistake that has the same numbers elsewhere says so in its name
of_notebooks = pytest.mark.parametrize("notebook", COURSE, ids=lambda nb: nb.name)


@of_notebooks
def test_every_known_mistake_is_named_or_told_by_a_sentence_of_its_own_and_none_by_anothers_name(notebook):
    for version in [v for v in versions(notebook.name) if v.wrong]:
        told = in_grading(notebook, version)
        names = {name for names in told.values() for name in names}
        assert version.name in names or not names, version.name
        if not names:
            verdicts = judged_nearby(notebook, namespace(notebook, {version.exercise: version.source}), version.source, version.exercise)
            own = [v for v in verdicts if v.exercise == version.exercise and not v.passed]
            assert own and any("in place" in v.message or " raised " in v.message for v in own), version.name


@pytest.mark.parametrize(
    "notebook", [pytest.param(nb, id=nb.name, marks=[] if nb is COURSE[0] else [pytest.mark.thorough]) for nb in COURSE]
)
def test_the_notebook_says_what_the_grade_says(notebook):
    for version in [v for v in versions(notebook.name) if v.wrong]:
        graded = {name for names in in_grading(notebook, version).values() for name in names}
        heard = in_the_notebook(notebook, namespace(notebook, {version.exercise: version.source}), {version.exercise})
        names = {name for said in heard.values() for name in names_in(said, notebook, version.exercise)}
        if graded:  # grading has a sentence of its own for arguments changed in place
            assert names == graded, version.name


@of_notebooks
def test_a_right_variant_is_never_accused(notebook):
    """Not even if every check of it failed: none of what it gives is what a mistake gives."""
    for version in [v for v in versions(notebook.name) if not v.wrong and v.name not in A_CONVENTION]:
        names, seen, decimals = namespace(notebook, {version.exercise: version.source}), {}, {}
        for check in notebook.of_kind("check"):
            if check.exercise == version.exercise:
                error, own = failure(check, names, hidden=False)
                assert error is None, (version.name, check.name)
                if "got" in own:
                    seen[check.name], decimals[check.name] = evidence(AssertionError(), own)
        prints = by_mistake(fingerprints(notebook, version.exercise), seen)
        assert candidates(seen, prints, decimals) == ([], False), version.name


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


@pytest.mark.parametrize("answers", [5, pytest.param(40, marks=pytest.mark.thorough)])
@of_notebooks
def test_a_random_wrong_answer_has_no_name(notebook, answers):
    draw, names = random.Random(notebook.name), namespace(notebook)
    exercises = [cell.name for cell in notebook.of_kind("solution")]
    for i in range(answers):
        exercise = exercises[i % len(exercises)]
        own = names | {exercise: randomly_wrong(names[exercise], draw)}
        assert not any(v.mistake for v in judged_nearby(notebook, own)), (i, exercise)
        assert not any(names_in(said, notebook, exercise) for said in in_the_notebook(notebook, own, {exercise}).values()), (i, exercise)


@of_notebooks
def test_the_judge_names_a_mistake(notebook):
    version = next(v for v in versions(notebook.name) if v.wrong)
    result = warm_judge().judge(hand_in(notebook.with_seed(5), **{version.exercise: version.source}))
    named = [v for v in result.checks if v.mistake]
    assert named and all(v.mistake == version.name and not v.passed for v in named)
    assert all(version.summary in v.message and version.hint in v.message and version.name not in v.message for v in named)


def test_an_exercise_that_calls_one_that_fails_is_not_accused():
    notebook = next(nb for nb in COURSE if nb.name == "01_advantage")
    wrong = next(v for v in versions(notebook.name) if v.exercise == "dead_group_probability" and v.wrong)
    key = next(c.source for c in notebook.of_kind("solution") if c.name == "smallest_group_size")
    assert "dead_group_probability(" in key
    names = namespace(notebook, {wrong.exercise: wrong.source})
    echo = [v for v in judged_nearby(notebook, names, key, "smallest_group_size") if v.exercise == "smallest_group_size" and not v.passed]
    words = "smallest_group_size calls dead_group_probability, which fails a check of its own: begin there."
    assert echo and all(v.mistake is None and words in v.message for v in echo)
    heard = in_the_notebook(notebook, names, {"dead_group_probability", "smallest_group_size"})
    assert [words] in heard.values()


A, B = fingerprint([0.25, 0.5]), fingerprint([3.5, 4.25])


@pytest.mark.parametrize(
    ("seen", "prints", "decimals", "expected"),
    [
        ({"one": [A], "two": True}, {"x": {"one": A}}, {"one": 2}, (["x"], True)),
        ({"one": [A], "two": True}, {"x": {"one": A}}, {"one": 1}, (["x"], False)),  # one number is a coincidence
        ({"one": [A]}, {"x": {"one": A}, "y": {"one": A}}, {"one": 2}, (["x", "y"], False)),
        ({"one": [A], "two": True}, {"x": {"one": A}, "y": {"one": A, "two": B}}, {"one": 9}, (["x"], True)),  # y would fail "two"
        ({"one": [A], "two": [B]}, {"x": {"one": A}}, {"one": 3}, (["x"], False)),  # something else is wrong, too
        ({"one": [A], "two": [B]}, {"x": {"one": A}}, {"one": 2}, ([], False)),
        ({"one": [A], "two": [B], "three": [B]}, {"x": {"one": A}}, {"one": 9}, ([], False)),  # more against it than for it
        ({"one": [A], "two": []}, {"x": {"one": A, "two": NO_NUMBERS}}, {"one": 2}, (["x"], True)),  # both break off
        ({"one": [A], "two": []}, {"x": {"one": A}}, {"one": 2}, ([], False)),  # x would pass "two"
        ({"one": []}, {"x": {"one": NO_NUMBERS}}, {}, ([], False)),  # an error alone names nothing
        ({"one": True}, {"x": {"one": A}}, {}, ([], False)),
    ],
)
def test_when_a_mistake_explains_what_was_seen(seen, prints, decimals, expected):
    assert candidates(seen, prints, decimals) == expected


def test_the_table_depends_on_nothing_hidden():
    notebook = COURSE[0]
    assert fingerprints(notebook.with_seed(77)) == fingerprints(notebook)


def test_numbers_are_compared_and_not_how_they_are_wrapped():
    assert fingerprint(torch.tensor(0.5)) == fingerprint(0.5) and fingerprint({"kl": torch.tensor(2.0)}) == fingerprint({"kl": 2.0})
    assert fingerprint(torch.zeros(2, 3)) != fingerprint(torch.zeros(3, 2, 1))


def test_a_process_that_outlives_a_class_leaves_nothing_behind(tmp_path, monkeypatch):
    """Its folder was named from where a command was called, and may be gone when the table is asked for again."""
    monkeypatch.setattr(table, "_kept", None)
    (tmp_path / "here" / "elsewhere").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    table.keep_in(Path("class/fingerprints"))
    monkeypatch.chdir("elsewhere")
    cells, check = (Cell("solution", "f", "def f():\n    return 1"),), (("one", "got = f()\nassert got == 1"),)
    table._of_exercise("a notebook", cells, "f", check)
    assert list(tmp_path.glob("here/class/fingerprints/*.json"))
    shutil.rmtree(tmp_path / "here" / "class")
    table._of_exercise("another notebook", cells, "f", check)
    assert not list(Path().iterdir()) and not (tmp_path / "here" / "class").exists()
