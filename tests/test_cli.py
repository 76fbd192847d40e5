"""`grader check` as a person and as a program use it."""

import importlib
import json
import signal
import sys
import time
import types

import pytest

from grader import cli
from grader.classroom.commands import new
from grader.cli import main, table
from grader.course.build import to_text
from grader.course.source import ROOT
from grader.course.trusted import import_torch
from grader.demo import write_hand_ins
from grader.feedback.release import answered
from grader.judge.verdict import Result, Verdict
from grader.mistakes import versions
from tests.classroom.toy import hand_in_bytes, put, toy_course
from tests.conftest import COURSE, EVERY_NOTEBOOK

NOTEBOOK = COURSE[1]
VERDICT = {"exercise", "check", "title", "points", "max_points", "passed", "message", "mistake", "open"}


@pytest.fixture(scope="module")
def hand_ins(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hand-ins")
    write_hand_ins(folder, [NOTEBOOK])
    return folder


def run(capsys, *arguments):
    status = main([str(a) for a in arguments])
    out, err = capsys.readouterr()
    return status, out, err


def test_json_is_an_object_for_a_notebook(hand_ins, capsys):
    status, out, err = run(capsys, "check", hand_ins / "ada_solved" / f"{NOTEBOOK.name}.ipynb", "--json")
    result = json.loads(out)
    assert (status, err) == (0, "")
    assert result.keys() == {"file", "notebook", "points", "max_points", "checks", "notes"}
    assert result["file"] == str(hand_ins / "ada_solved" / f"{NOTEBOOK.name}.ipynb")
    assert all(check.keys() == VERDICT for check in result["checks"])
    assert result["points"] == result["max_points"] == sum(c.points for c in NOTEBOOK.of_kind("check"))
    assert [c["check"] for c in result["checks"] if c["points"] is None] == [c.name for c in NOTEBOOK.of_kind("answer")]


def test_a_notebook_without_points_is_passed_over(capsys):
    (ungraded,) = [notebook for notebook in EVERY_NOTEBOOK if not notebook.graded]
    status, out, err = run(capsys, "check", ROOT / f"notebooks/{ungraded.name}.ipynb")
    assert (status, out) == (0, "") and err.endswith("05_language_model.ipynb: nothing to check, this notebook has no points\n")


def test_json_is_a_list_for_a_folder_and_the_table_says_what_failed(hand_ins, capsys):
    status, out, _ = run(capsys, "check", hand_ins, "--json")
    points = [result["points"] for result in json.loads(out)]
    assert status == 0
    assert points[0] == 33 and points[1] == 0 and 0 < points[2] < 33
    status, out, _ = run(capsys, "check", hand_ins)
    assert status == 0
    assert "ada_solved/02_grpo_loss.ipynb: 33 of 33 points" in out
    assert "compute_grpo_loss is not written yet." in out
    assert "on the separating batch the loss is 0.015724" in out


def test_what_cannot_be_graded_is_one_sentence_and_the_rest_is_graded(hand_ins, tmp_path, capsys):
    (tmp_path / "a.ipynb").write_text("%PDF-1.4 not a notebook")
    (tmp_path / "b.ipynb").write_text((hand_ins / "ben_unsolved" / f"{NOTEBOOK.name}.ipynb").read_text(encoding="utf-8"), encoding="utf-8")
    status, out, err = run(capsys, "check", tmp_path, "--json")
    assert status == 2
    assert len(json.loads(out)) == 1
    assert err.count("\n") == 1 and "a.ipynb" in err


@pytest.mark.parametrize("arguments", [("check", "nowhere.ipynb"), ("check", "{empty}"), ("check", "{empty}/none", "--json")])
def test_a_missing_input_is_refused_with_one_sentence(arguments, tmp_path, capsys):
    status, out, err = run(capsys, *(a.format(empty=tmp_path) for a in arguments))
    assert (status, out) == (2, "")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "command", [["grade"], ["report"], ["collect", "{empty}"], ["roster", "{empty}"], ["remove", "anna"]], ids=lambda command: command[0]
)
def test_a_command_of_a_class_refuses_what_is_no_class_with_one_sentence(command, tmp_path, capsys):
    name, *paths = command
    status, out, err = run(capsys, name, tmp_path, *(p.format(empty=tmp_path) for p in paths))
    assert (status, out) == (2, "")
    assert err.count("\n") == 1 and "makes one" in err


def plain(notebook, **answers):
    """A Python file that answers a notebook."""
    return "import torch\n\n\n" + "\n\n\n".join(answers.get(c.name, c.source) for c in notebook.of_kind("solution")) + "\n"


def test_a_python_file_gets_the_points_the_names_and_the_words_of_a_notebook(tmp_path, capsys):
    (wrong,) = [v for v in versions(NOTEBOOK.name) if v.name == "no_minus"]
    (tmp_path / "mine.ipynb").write_text(to_text(answered(NOTEBOOK, {wrong.exercise: wrong.source})), encoding="utf-8")
    (tmp_path / "mine.py").write_text(plain(NOTEBOOK, **{wrong.exercise: wrong.source}), encoding="utf-8")
    (tmp_path / "setup.py").write_text("import setuptools\n")
    for folder in (".cache", "venv"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "copy.py").write_text(plain(NOTEBOOK), encoding="utf-8")
    (tmp_path / "venv/pyvenv.cfg").write_text("home = /usr/bin\n")
    status, out, err = run(capsys, "check", tmp_path, "--json")
    notebook, script = json.loads(out)
    assert (status, err) == (0, "") and (notebook["file"], script["file"]) == (str(tmp_path / "mine.ipynb"), str(tmp_path / "mine.py"))
    assert script["checks"] == [check for check in notebook["checks"] if check["points"] is not None] and script["notes"] == []
    assert any(check["mistake"] == wrong.name for check in script["checks"])
    status, out, err = run(capsys, "check", tmp_path / "mine.py", "--json")
    assert (status, err) == (0, "") and json.loads(out) == [script], "a list: a file may answer several notebooks"


@pytest.mark.parametrize(
    ("text", "sentence"), [("def f(x)\n", "line 1 is not Python"), ("def f(x):\n    return x\n", "defines none of the exercises")]
)
def test_a_python_file_that_is_no_hand_in_is_one_sentence(text, sentence, tmp_path, capsys):
    path = tmp_path / "f.py"
    path.write_text(text)
    status, out, err = run(capsys, "check", path)
    assert (status, out) == (2, "") and err.startswith(f"grader: {path}: ") and err.count("\n") == 1 and sentence in err
    assert run(capsys, "check", tmp_path)[0] == 2, "nor is anything else in the folder"


def test_in_a_class_its_own_source_and_seed_are_used(tmp_path, capsys):
    (tmp_path / "course").mkdir()
    toy, *_ = toy_course(tmp_path / "course")
    directory = tmp_path / "autumn"
    new(directory, [toy.with_seed(0)], say=lambda line: None)  # the seed of the class comes before this one
    for student, answers in (("anna", {}), ("bo", {"double": "def double(x):\n    return x + 1"})):
        put(directory, student, toy, hand_in_bytes(toy, **answers))
    (tmp_path / "anna.py").write_text(plain(toy))
    for path in (directory, directory / "submitted", directory / "submitted/bo", directory / "submitted/bo/01_double/01_double.ipynb"):
        status, out, err = run(capsys, "check", path, "--json")
        found = json.loads(out)
        found = {r["file"].split("submitted/")[1].split("/")[0]: r["points"] for r in (found if isinstance(found, list) else [found])}
        assert status == 0 and found == ({"bo": 1} if "bo" in path.parts else {"anna": 3, "bo": 1})
        assert err == f"graded with the source and the seed of the class {directory}\n"
    assert run(capsys, "check", directory / "submitted", "--seed", 1)[0] == 2, "a class has its own"
    assert "it defines none of the exercises of 01_advantage" in run(capsys, "check", tmp_path / "anna.py")[2], "it lies in no class"
    (directory / "anna.py").write_text(plain(toy))
    assert json.loads(run(capsys, "check", directory / "anna.py", "--json")[1])[0]["points"] == 3


def test_notes_do_not_flood(capsys):
    notes = ("the same",) * 50 + tuple(f"note {number}" for number in range(50))
    verdict = Verdict("double", "doubles", "Every number is doubled", 2, 2, True)
    lines = table(Result("01_double", (verdict,), notes), "anna").splitlines()
    told = [line for line in lines if "note" in line]
    assert (
        len(told) < 10
        and sum("the same" in line for line in told) == 1
        and told[-1] == f"  and {51 - len(told) + 1} more notes (--json has them all)"
    )


def test_a_seed_changes_the_hidden_draws_and_no_right_answer_minds(hand_ins, capsys):
    for seed in (1, 987654321):
        _, out, _ = run(capsys, "check", hand_ins / "ada_solved", "--json", "--seed", seed)
        assert json.loads(out)[0]["points"] == 33


def test_an_answer_that_only_knows_the_visible_numbers_fails_on_the_hidden_ones(tmp_path, capsys):
    by_heart = "def first_step_gradient(advantages):\n    return torch.tensor([-0.25, 0.25, -0.5, 0.5])[: len(advantages)]"
    path = tmp_path / "by_heart.ipynb"
    path.write_text(to_text(answered(NOTEBOOK, {"first_step_gradient": by_heart})), encoding="utf-8")
    _, out, _ = run(capsys, "check", path, "--json")
    assert not any(c["passed"] for c in json.loads(out)["checks"] if c["exercise"] == "first_step_gradient")


def test_a_mistake_in_one_exercise_costs_that_exercise_only(tmp_path, capsys):
    (wrong,) = [v for v in versions(NOTEBOOK.name) if v.name == "no_minus"]
    path = tmp_path / "mistaken.ipynb"
    path.write_text(to_text(answered(NOTEBOOK, {wrong.exercise: wrong.source})), encoding="utf-8")
    _, out, _ = run(capsys, "check", path, "--json")
    assert {c["exercise"] for c in json.loads(out)["checks"] if c["points"] is not None and not c["passed"]} == {wrong.exercise}


def test_ctrl_c_waits_until_torch_is_there(monkeypatch):
    there = []

    def slow(name):
        signal.raise_signal(signal.SIGINT)
        there.append(name)

    monkeypatch.setattr(importlib, "import_module", slow)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            import_torch()
    finally:
        signal.signal(signal.SIGINT, before)
    assert there == ["torch"]


def test_ctrl_c_in_a_finalizer_is_not_lost(capsys, monkeypatch):
    class Finalized:
        def __del__(self):
            signal.raise_signal(signal.SIGINT)

    def command(options):
        Finalized()
        time.sleep(30)

    monkeypatch.setattr(cli, "_doctor", command)
    before, hook = signal.signal(signal.SIGINT, signal.default_int_handler), sys.unraisablehook
    try:
        assert main(["doctor"]) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err == "grader: stopped; run the same command again\n"
    assert sys.unraisablehook is hook


def test_another_error_in_a_finalizer_is_told_as_ever(monkeypatch):
    told = []
    monkeypatch.setattr(sys, "unraisablehook", lambda lost: told.append(lost.exc_type))
    with cli._no_lost_ctrl_c():
        sys.unraisablehook(types.SimpleNamespace(exc_type=ValueError))
    assert told == [ValueError]
