"""`grader examine`: what a trainer's own function is told. `python -m tests.test_examine` writes the outputs of docs/examine.md anew."""

import contextlib
import functools
import io
import json
import re
import shlex
import sys
import tempfile
import types
from pathlib import Path

import pytest

from grader.cli import main
from grader.course.source import ROOT
from grader.course.trusted import namespace
from grader.examine import Examination, examine
from grader.feedback import conventions
from grader.feedback.conventions import CONVENTIONS
from grader.mistakes import versions
from tests.conftest import COURSE

PAGE = ROOT / "docs/examine.md"
EXERCISES = ("group_advantages", "compute_grpo_loss", "grpo_objective", "token_log_probs", "response_mask", "kl_estimates")
HOME = {e.name: notebook for notebook in COURSE for e in notebook.exercises if e.checks}


@contextlib.contextmanager
def folder_of_modules(folder):
    """As if the command were called there, in a process of its own."""
    path, before = [*sys.path], {*sys.modules}
    with contextlib.chdir(folder):
        try:
            yield
        finally:
            sys.path[:] = path
            for name in [
                name for name in {*sys.modules} - before if Path(getattr(sys.modules[name], "__file__", None) or "/").parent == Path.cwd()
            ]:
                del sys.modules[name]


def examined(exercise, function) -> Examination:
    sys.modules["theirs"] = module = types.ModuleType("theirs")
    module.function = function
    return examine("theirs:function", exercise, COURSE)


def told(exercise, version) -> set[str]:
    """The known mistakes that are named for a version of an exercise."""
    (source,) = [v.source for v in versions(HOME[exercise].name) if v.exercise == exercise and v.name == version]
    found = examined(exercise, namespace(HOME[exercise], {exercise: source})[exercise])
    assert not found.sound and not found.conventions
    return {mistake for p in found.properties for mistake in p.mistakes}


@pytest.mark.parametrize("exercise", EXERCISES)
def test_the_key_has_every_property(exercise):
    found = examined(exercise, namespace(HOME[exercise])[exercise])
    assert found.sound and not found.conventions and all(p.holds for p in found.properties)


@pytest.mark.parametrize(
    ("exercise", "version"),
    [
        ("group_advantages", "whole_batch"),
        ("group_advantages", "negated"),
        ("compute_grpo_loss", "no_minus"),
        ("compute_grpo_loss", "max_for_min"),
        ("grpo_objective", "kl_sign"),
        ("grpo_objective", "old_and_ref_swapped"),
        ("grpo_objective", "padding_counts"),
        ("token_log_probs", "no_temperature"),
        ("response_mask", "eos_dropped"),
        ("kl_estimates", "k3_inverted"),
    ],
)
def test_a_known_mistake_is_named(exercise, version):
    assert told(exercise, version) == {version}


def single_choices():
    """Every convention of one departure: exercise, choice, option. float32 is told only of a std to which something is added."""
    for exercise, (_, choices) in CONVENTIONS.items():
        for choice, options in choices.items():
            yield from ((exercise, choice, option) for option in options if choice != "digits")


@pytest.mark.parametrize(("exercise", "choice", "option"), list(single_choices()))
def test_a_convention_is_told_as_one_and_as_no_mistake(exercise, choice, option):
    function, choices = CONVENTIONS[exercise]
    found = examined(exercise, functools.partial(function, **{choice: option}))
    assert found.sound and not any(p.mistakes for p in found.properties)
    if (choice, option) in (("small", "eps"), ("small", "1e-6")):  # with 1e-6 nothing that is looked at tells added from clamped
        return
    assert found.conventions == [choices[choice][option]]


PARTLY = """
import torch

def trl_without_ids(rewards, group_ids, eps=1e-6):
    return (rewards - rewards.mean()) / (rewards.std() + 1e-4)

def needs_a_device(rewards, group_ids, eps=1e-6):
    return rewards.to("nowhere")

def other_arguments(scores, index):
    return scores

def other_order(rewards, group_ids, whiten=False, eps=1e-6):
    return rewards

number = 3
"""


def run(capsys, folder, *arguments):
    with folder_of_modules(folder):
        status = main(["examine", *arguments])
    return status, *capsys.readouterr()


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "trainer_x.py").write_text(PARTLY, encoding="utf-8")
    (tmp_path / "raises_x.py").write_text("print('hello')\n\nraise KeyError('no such preset')\n", encoding="utf-8")
    (tmp_path / "needs_x.py").write_text("import no_such_package_x\n", encoding="utf-8")
    (tmp_path / "broken_x.py").write_text("def f(:\n", encoding="utf-8")
    (tmp_path / "leaves_x.py").write_text("import sys\nsys.exit(0)\n", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("function", "exercise", "words"),
    [
        ("trainer_x.py", "group_advantages", "module:function"),
        ("./trainer_x.py:f", "group_advantages", "module:function"),
        ("no_such_module_x:f", "group_advantages", "no module 'no_such_module_x'"),
        ("trainer_x.losses:f", "group_advantages", "trainer_x.losses"),
        ("trainer_x:f", "group_advantages", "no function 'f'"),
        ("trainer_x:number", "group_advantages", "trainer_x:number is no function"),
        ("trainer_x:other_arguments", "group_advantages", "takes (scores, index)"),
        ("trainer_x:other_order", "group_advantages", "write a small function"),
        ("trainer_x:trl_without_ids", "group_advantage", "there are gae_advantages, group_advantages"),
        ("raises_x:f", "group_advantages", "KeyError: 'no such preset' (line 3 of"),
        ("needs_x:f", "group_advantages", "needs 'no_such_package_x'"),
        ("broken_x:f", "group_advantages", "SyntaxError"),
        ("leaves_x:f", "group_advantages", "SystemExit"),
    ],
)
def test_what_cannot_be_examined_is_told_in_a_sentence(folder, capsys, function, exercise, words):
    status, out, err = run(capsys, folder, function, "--as", exercise, "--json")
    err = err.removeprefix("hello\n")  # what an import prints goes where errors go
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert words in err and err.startswith("grader: ")


def test_an_error_of_theirs_is_told_once_with_its_line(folder, capsys):
    status, out, _ = run(capsys, folder, "trainer_x:needs_a_device", "--as", "group_advantages")
    assert status == 1
    assert out.count("raised RuntimeError") == 1 and "(line 8 of" in " ".join(out.split()) and "0 of 7" in out


def test_what_fails_on_drawn_inputs_only_is_told_as_that():
    key = namespace(HOME["token_log_probs"])["token_log_probs"]

    def by_heart(logits, tokens, temperature=1.0):  # knows the temperatures that a learner can see
        return key(logits, tokens, temperature if temperature in (0.5, 1.0, 2.0) else 1.0)

    failed = [p for p in examined("token_log_probs", by_heart).properties if not p.holds]
    assert failed and all(p.message.startswith("On drawn inputs: ") and not p.mistakes for p in failed)


def test_json_is_an_object(folder, capsys):
    status, out, err = run(capsys, folder, "trainer_x:trl_without_ids", "--as", "group_advantages", "--json")
    found = json.loads(out)
    assert (status, err, found["sound"]) == (1, "", False)
    assert found.keys() == {"function", "exercise", "notebook", "properties", "conventions", "sound"}
    assert {tuple(p) for p in found["properties"]} == {("check", "title", "holds", "by_convention", "message", "mistakes")}


def test_a_convention_and_what_is_no_part_of_it_are_told_apart():
    """DAPO's mean over tokens, from a function that gives no numbers to watch."""

    def objective(*args, **kwargs):
        return conventions.grpo_objective(*args, **kwargs, mean="token")[0], {}

    found = examined("grpo_objective", functools.wraps(conventions.grpo_objective)(objective))
    assert not found.sound and found.conventions == [CONVENTIONS["grpo_objective"][1]["mean"]["token"]]
    assert any(p.by_convention for p in found.properties)
    assert {p.check for p in found.properties if not p.holds and not p.by_convention} == {"numbers_to_watch", "share_of_clipped_tokens"}


def with_real_output(page: str) -> str:
    """The page, with what its commands print today below them."""

    def output(block: re.Match) -> str:
        told = io.StringIO()
        with contextlib.redirect_stdout(told), folder_of_modules(folder):
            main(shlex.split(block[1])[1:])
        return f"```console\n$ {block[1]}\n{told.getvalue()}```"

    with tempfile.TemporaryDirectory() as folder:
        for name, text in re.findall(r"^Save this as `(\w+\.py)`.*?^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
            Path(folder, name).write_text(text, encoding="utf-8")
        return re.sub(r"^```console\n\$ (.+)\n(?:.*\n)*?```", output, page, flags=re.MULTILINE)


def test_the_page_shows_what_is_printed():
    page = PAGE.read_text(encoding="utf-8")
    assert page.count("$ grader examine") == 4 and "≈" in page and "✗" in page
    assert with_real_output(page) == page


if __name__ == "__main__":
    PAGE.write_text(with_real_output(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
