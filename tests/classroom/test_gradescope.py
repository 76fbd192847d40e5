"""A class exported to Gradescope, and its autograder run in a folder that is laid out as theirs."""

import contextlib
import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
import zipfile

import pytest
from packaging.requirements import Requirement

from grader.classroom import gradescope
from grader.cli import main
from grader.course.source import ROOT
from grader.feedback import table
from grader.judge.judge import Judge
from grader.judge.verdict import Result, Verdict
from grader.sandbox.jail import Layers
from tests.classroom.toy import hand_in_bytes

PLUS_ONE = "def double(x):\n    return x + 1"
BY_HEART = "def double(x):\n    return torch.tensor([2.0, 4.0]) if x.shape == (2,) else x"
TEXTS = {"name": str, "number": str, "output": str, "output_format": str, "status": str, "visibility": str}
TEST = TEXTS | {"score": (int, float), "max_score": (int, float)}
WHOLE = {"score": (int, float), "execution_time": int, "output": str, "output_format": str, "visibility": str, "stdout_visibility": str}


@pytest.fixture
def autograder(empty, tmp_path):
    """/autograder, as Gradescope lays it out; the interpreter is this one, where setup.sh would have made another."""
    return unpacked(empty, tmp_path / "autograder")


def unpacked(directory, root, *options):
    out = root.with_suffix(".zip")
    assert main(["export", "gradescope", str(directory), str(out), *options]) == 0
    for folder in ("submission", "results", "venv/bin"):
        (root / folder).mkdir(parents=True)
    with zipfile.ZipFile(out) as archive:
        archive.extractall(root / "source")
    shutil.copyfile(root / "source/run_autograder", root / "run_autograder")
    python = root / "venv/bin/python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return root


@pytest.fixture(scope="module")
def warm():
    with Judge() as judge:
        yield judge


@pytest.fixture
def run(monkeypatch, warm):
    """What run_autograder starts, in this process and with a judge that stays warm."""
    monkeypatch.setattr(table, "_kept", None)
    monkeypatch.setattr(gradescope, "Judge", lambda *, allow_no_jail: contextlib.nullcontext(warm))

    def run(root, *options):
        status = gradescope.main([str(root), *options])
        results = root / "results/results.json"
        return status, json.loads(results.read_text(encoding="utf-8")) if results.exists() else None

    return run


def assert_valid(results):
    """By gradescope-autograders.readthedocs.io/en/latest/specs/."""
    assert results.keys() <= WHOLE.keys() | {"tests"} and isinstance(results["tests"], list)
    for said, fields in ((results, WHOLE), *((test, TEST) for test in results["tests"])):
        assert said.keys() <= fields.keys() | {"tests"}
        assert all(isinstance(said[key], kind) for key, kind in fields.items() if key in said)
        assert said["visibility"] in {"hidden", "after_due_date", "after_published", "visible"}
        assert said["output_format"] in {"text", "html", "simple_format", "md", "ansi"}
        assert said.get("status") in {None, "passed", "failed"}
    numbers = [test["number"] for test in results["tests"]]
    assert len(set(numbers)) == len(numbers)
    assert results["score"] == sum(test["score"] for test in results["tests"])
    assert all(0 <= test["score"] <= test["max_score"] for test in results["tests"])


def not_installed_by_setup(text):
    """Modules of this environment that belong to no package which setup.sh names, nor to what such a package needs."""
    named = re.search(r"download.pytorch.org\S+ (.*)", text)[1].split()
    wanted, todo = set(), named
    while todo:
        name = todo.pop().lower().replace("_", "-")
        if name not in wanted:
            wanted.add(name)
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                needs = [Requirement(line) for line in importlib.metadata.requires(name) or ()]
                todo += [need.name for need in needs if not need.marker or need.marker.evaluate({"extra": ""})]
    modules = importlib.metadata.packages_distributions()
    return [m for m, owners in modules.items() if m != "grader" and not {o.lower().replace("_", "-") for o in owners} & wanted]


def test_run_autograder_needs_only_the_zip_and_what_setup_installs(autograder, course):
    setup = (autograder / "source/setup.sh").read_text()
    absent = not_installed_by_setup(setup)
    assert {"nbgrader", "sqlalchemy", "pytest"} <= set(absent) and not {"torch", "nbformat", "IPython"} & set(absent)
    (autograder / "source/sitecustomize.py").write_text(f"import sys\nsys.modules.update(dict.fromkeys({absent!r}))\n")
    (autograder / "submission/homework 1.ipynb").write_bytes(hand_in_bytes(course[0], double=PLUS_ONE))
    for command in ([re.search(r"^venv/bin/python -m .*", setup, re.MULTILINE)[0].replace("$PWD", ".")], ["exec bash run_autograder"]):
        where = {"PATH": "/usr/bin:/bin", "PYTHONPATH": "source", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(["bash", "-euc", *command], cwd=autograder, env=where, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.strip().splitlines()[-1] in ("02_square: the answer key gets 3 of 3 points", "01_double: 1 of 3 points")
    results = json.loads((autograder / "results/results.json").read_text())
    assert_valid(results)
    assert [(test["number"], test["score"], test["max_score"]) for test in results["tests"]] == [("1.1", 0, 2), ("1.2", 1, 1)]
    assert "1 and 2 become 2 and 4, not [2.0, 3.0]" in results["tests"][0]["output"]


def test_the_scripts_parse_and_install_tested_versions(autograder):
    for name in ("setup.sh", "run_autograder"):
        assert subprocess.run(["bash", "-n", str(autograder / "source" / name)]).returncode == 0
    assert (autograder / "source/constraints.txt").read_bytes() == (ROOT / "constraints.txt").read_bytes()


@pytest.mark.parametrize(
    ("files", "score", "words"),
    [
        ({"a.ipynb": {}}, 3, ["3 of 3 points of 01_double.", "wait for a person: why (2 points)"]),
        ({"a.ipynb": {"double": BY_HEART}}, 1, ["Every number is doubled: a hidden test fails."]),
        ({"a.ipynb": {"double": "### no answer"}, "notes.txt": b"x", "data/b.ipynb": b"{}"}, 0, ["0 of 3"]),
        ({}, 0, ["Not graded: no file was handed in"]),
        ({"a.pdf": b"%PDF-1.7"}, 0, ["Not graded: a.pdf: this is a PDF"]),
        ({"a.ipynb": b"{"}, 0, ["Not graded: a.ipynb: the file breaks off"]),
        ({"a.ipynb": {}, "deep/b.ipynb": {}}, 0, ["a.ipynb, deep/b.ipynb: more than one notebook"]),
    ],
    ids=["solved", "by heart", "unsolved", "nothing", "pdf", "broken", "two"],
)
def test_results_say_what_holds_and_nothing_of_what_is_hidden(autograder, course, run, files, score, words):
    for name, content in files.items():
        path = autograder / "submission" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(hand_in_bytes(course[0], **content) if isinstance(content, dict) else content)
    status, results = run(autograder)
    assert status == 0 and results["score"] == score
    assert_valid(results)
    text = json.dumps(results)
    assert all(word in text for word in words)
    assert "secret_draw" not in text and "SEED" not in text


def test_a_mistake_that_fails_several_checks_is_explained_once():
    verdicts = [Verdict("double", name, name, 0.0, 1, False, f"{name} fails.\nIt looks like this: x.") for name in "abc"]
    outputs = [test["output"] for test in gradescope.gradescope_results(Result("01_double", tuple(verdicts), ()))["tests"]]
    assert outputs == ["a fails.\nIt looks like this: x.", "b fails.", "c fails."]


def test_a_link_to_the_answer_key_is_no_hand_in(autograder, run):
    key = autograder / "source/notebooks/01_double.ipynb"
    (autograder / "submission/a.ipynb").symlink_to(key)
    (autograder / "submission/folder").symlink_to(key.parent)
    _, results = run(autograder)
    assert results["score"] == 0 and "no file was handed in" in results["output"]


def test_without_a_jail_there_is_no_score_unless_that_was_exported(autograder, empty, course, run, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(gradescope, "layers", lambda: Layers())
    (autograder / "submission/a.ipynb").write_bytes(hand_in_bytes(course[0]))
    (autograder / "results/results.json").write_text("{}")  # of an earlier run
    assert run(autograder) == (1, None)
    assert "no jail" in capsys.readouterr().out
    other = unpacked(empty, tmp_path / "other", "--no-jail")
    command = (other / "run_autograder").read_text().rstrip().splitlines()[-1]
    (other / "submission/a.ipynb").write_bytes(hand_in_bytes(course[0]))
    _, results = run(other, *command.partition('"$PWD"')[2].split())
    assert results["score"] == 3


def test_a_disk_that_refuses_gives_a_sentence_and_no_traceback(autograder, course, run, capsys):
    (autograder / "submission/a.ipynb").write_bytes(hand_in_bytes(course[0]))
    (autograder / "results").rmdir()
    (autograder / "results").write_text("no folder")
    assert gradescope.main([str(autograder)]) == 1
    assert re.fullmatch(r"grader: .*results.json: Not a directory\n", capsys.readouterr().out)


def test_a_zip_for_one_notebook_takes_no_other(empty, course, run, tmp_path):
    root = unpacked(empty, tmp_path / "square", "--notebook", "2")
    (root / "submission/a.ipynb").write_bytes(hand_in_bytes(course[0]))
    assert "none of the exercises of 02_square" in run(root)[1]["output"]
    (root / "submission/b.ipynb").write_bytes(hand_in_bytes(course[1]))
    assert run(root)[1]["score"] == 3


def test_a_key_that_fails_its_own_checks_stops_the_build(autograder, run, monkeypatch, capsys):
    monkeypatch.setattr(Judge, "judge", lambda self, submission: Result("01_double", (Verdict("a", "b", "c", 0.0, 2, False),), ()))
    assert run(autograder, "--rehearse")[0] == 1
    assert "the answer key gets 0 of 2 points" in capsys.readouterr().out


def test_the_zip_is_the_same_each_time_private_and_executable(empty, tmp_path, capsys):
    for name in ("one.zip", "two.zip"):
        main(["export", "gradescope", str(empty), str(tmp_path / name)])
    one = tmp_path / "one.zip"
    assert one.read_bytes() == (tmp_path / "two.zip").read_bytes() and one.stat().st_mode & 0o777 == 0o600
    with zipfile.ZipFile(one) as archive:
        assert all(archive.getinfo(name).external_attr >> 16 & 0o111 for name in ("setup.sh", "run_autograder"))
        assert archive.read("notebooks/01_double.ipynb") == (empty / "source/01_double/01_double.ipynb").read_bytes()
    assert "01_double: 3 autograder points, 2 for written answers, by hand" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("where", "out", "options", "sentence"),
    [
        (".", "a.tar", [], "a.tar: name a file that ends in .zip"),
        (".", "a.zip", ["--notebook", "03_x"], "has no notebook '03_x'; it has 01_double, 02_square"),
        ("source", "a.zip", [], "is no class"),
    ],
)
def test_what_cannot_be_exported_gets_a_sentence(empty, tmp_path, capsys, where, out, options, sentence):
    assert main(["export", "gradescope", str(empty / where), str(tmp_path / out), *options]) == 2
    assert sentence in capsys.readouterr().err and not list(tmp_path.iterdir())
