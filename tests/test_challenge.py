"""`grader challenge`: which settings are read out of a hand-in, what a race says, and that no code of a hand-in runs."""

import json
import math
import os
from pathlib import Path

import pytest

import grader.challenge
from grader.challenge import NOTEBOOK, NoSettings, Race, Referee, course_settings, read_settings
from grader.cli import main
from grader.course.source import ROOT
from grader.course.trusted import execute, namespace
from grader.intake.notebook_file import Unreadable
from tests.conftest import COURSE

SOURCE = next(nb for nb in COURSE if nb.name == NOTEBOOK)
HANDED_OUT = ROOT / "notebooks" / SOURCE.path
OWN = course_settings(SOURCE)
RATES = {name: value for name, value in OWN.items() if name != "steps"}
FASTER = 'CHALLENGE = {"lr": 1e-3, "prompts": 8}'


def hand_in(*cells: str) -> bytes:
    return json.dumps({"nbformat": 4, "cells": [{"cell_type": "code", "source": cell} for cell in cells]}).encode()


def test_the_settings_are_the_defaults_of_the_run_and_the_race():
    names = {}
    for cell in ("presets", "race"):
        source = next(c.source for c in SOURCE.cells if c.name == cell)
        exec(source.partition("\n\n\ndef ")[0], names)
    assert names["COURSE"] == OWN
    assert {name: names["PRESETS"]["laptop"][name] for name in ("steps", "prompts", "answers")}.items() <= OWN.items()
    train = next(c.source for c in SOURCE.cells if c.name == "the_loop")
    others = {name: value for name, value in OWN.items() if name not in ("steps", "prompts", "answers")}
    assert all(f"{name}={value}" in train.replace("5e-4", "0.0005") for name, value in others.items())


def test_a_notebook_as_it_was_handed_out_does_not_take_part():
    with pytest.raises(NoSettings, match="the course's own"):
        read_settings(HANDED_OUT.read_bytes(), "mine.ipynb", OWN)
    with pytest.raises(NoSettings, match="no cell that Python can read assigns to CHALLENGE"):
        read_settings(hand_in("CHALLENGES = {}", "def f():\n    CHALLENGE = {}"), "mine.ipynb", OWN)


@pytest.mark.parametrize(
    ("cells", "changed"),
    [
        ((FASTER,), {"lr": 1e-3, "prompts": 8}),
        ((FASTER, 'CHALLENGE = {"beta": 0}'), {"beta": 0.0}),
        (('CHALLENGE = {"steps": 1}\n%time race(CHALLENGE, models)', "not python ("), {"steps": 1}),
        (('mine = CHALLENGE = {"answers": 4.0}  # 更小的组',), {"answers": 4}),
        (('print("CHALLENGE = 3")', f"{FASTER}; race(CHALLENGE, [])"), {"lr": 1e-3, "prompts": 8}),
    ],
)
def test_the_last_settings_count_and_the_rest_is_the_courses(cells, changed):
    assert read_settings(hand_in(*cells), "mine.ipynb", OWN) == OWN | changed
    assert read_settings("\n\n".join(f"# %%\n{cell}" for cell in cells).encode(), "mine.py", OWN) == OWN | changed


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ('{"update": my_step}', "no dict of plain numbers"),
        ('dict(__import__("os").environ)', "no dict of plain numbers"),
        ("[1, 2]", "no dict of plain numbers"),
        ("{[]: 1}", "no dict of plain numbers"),
        ('{"lr": ' + "-" * 90 + "1}", "no dict of plain numbers"),
        ('{"learning_rate": 1e-3}', "'learning_rate', which is not raced; it may have lr, "),
        ("{1: 2}", "has 1, which is not raced"),
        ('{"' + "x" * 9999 + '": 1}', r"has 'x{39}\.\.\., which is not raced"),
        ('{"lr": -1e-3}', "a number of 0 to 1000"),
        ('{"lr": 1e999}', "a number of 0 to 1000"),
        ('{"lr": 1e39}', "a number of 0 to 1000"),  # no number of 32 bits
        ('{"beta": 1' + "0" * 400 + "}", "a number of 0 to 1000"),  # no float
        ('{"steps": 1' + "0" * 400 + "}", "whole number of 1 to 500"),
        ('{"lr": "fast"}', "is 'fast'; it needs a number"),
        ('{"beta": None}', "is None; it needs a number"),
        ('{"lr": True}', "is True; it needs a number"),
        ('{"clip_range": 1j}', "needs a number"),
        ('{"prompts": 2.5}', "whole number of 1 to 256"),
        ('{"prompts": 0}', "whole number of 1 to 256"),
        ('{"inner_epochs": 1e300}', "whole number of 1 to 16"),
        ('{"steps": 10**9}', "no dict of plain numbers"),
        ('{"steps": "' + "x" * 9999 + '"}', r"is 'x{39}\.\.\.; it needs"),
        ('{"prompts": 256, "answers": 256}', "more than 1024 answers a step"),
    ],
)
def test_what_is_no_number_to_race_is_refused_in_a_sentence(value, sentence):
    with pytest.raises(Unreadable, match=f"^mine.ipynb: CHALLENGE.*({sentence})") as e:
        read_settings(hand_in(f"CHALLENGE = {value}"), "mine.ipynb", OWN)
    assert not isinstance(e.value, NoSettings)
    assert "\n" not in str(e.value) and len(str(e.value)) < 250


@pytest.fixture(scope="module")
def names():
    names = namespace(SOURCE)
    for cell in ("the_loop", "race"):
        execute(next(c.source for c in SOURCE.cells if c.name == cell), names, f"<{cell}>")
    return names


def made_up(arrives):
    """A `train` whose steps take a second; the greedy accuracy is 1 once `arrives` of its settings have passed, if ever."""

    def train(policy, title, steps, stop, seed, **settings):
        history = []
        while len(history) < steps and not (history and stop(history)):
            history.append({"seconds": 1.0, "greedy": float(len(history) + 1 >= arrives(settings))})
        return history

    return train


@pytest.mark.parametrize(
    ("steps", "ratio", "told"),
    [
        (5, 0.5, "yours 5 steps in 5.00 s"),
        (40, 4.0, "yours 40 steps in 40.00 s"),
        (41, 4.0, "yours not within 40.00 s"),
        (math.inf, 4.0, "not within"),
    ],
)
def test_a_race_divides_seconds_and_ends_after_four_times_the_courses(names, monkeypatch, capsys, steps, ratio, told):
    monkeypatch.setitem(names, "train", made_up(lambda settings: 10 if settings["lr"] == OWN["lr"] else steps))
    assert names["race"](OWN | {"lr": 1.0}, [(7, "a model")]) == ratio
    assert told in capsys.readouterr().out
    assert names["race"](OWN | {"lr": 1.0, "steps": 3}, [(7, "a model"), (8, "another")]) == 4.0  # its steps are over


def test_a_seed_on_which_the_course_does_not_arrive_is_left_out(names, monkeypatch, capsys):
    monkeypatch.setitem(names, "train", made_up(lambda settings: math.inf if settings["lr"] == OWN["lr"] else 1))
    assert math.isnan(names["race"]({"lr": 1.0}, [(7, "a model")]))
    assert "left out" in capsys.readouterr().out


def test_settings_that_are_left_out_are_the_courses(names, monkeypatch, capsys):
    monkeypatch.setitem(names, "train", made_up(lambda settings: 10 if settings == {**RATES, "lr": OWN["lr"]} else 5))
    assert names["race"]({"lr": 1.0}, [(7, "a model")]) == 0.5
    assert names["race"]({}, [(7, "a model")]) == 1.0


@pytest.mark.training
@pytest.mark.parametrize("step", [1, 3])  # the first, and the last, behind which there is nothing left to do
def test_ctrl_c_ends_the_race(names, monkeypatch, capsys, step):
    def show(live, history):
        if len(history) == step:
            raise KeyboardInterrupt

    monkeypatch.setattr(names["Live"], "show", show)
    monkeypatch.setitem(names, "COURSE", OWN | {"steps": 3, "prompts": 2, "answers": 2})
    with pytest.raises(KeyboardInterrupt):
        names["race"]({}, [(7, names["tiny_policy"](0))])
    assert "Stopped by hand" not in capsys.readouterr().out


@pytest.mark.training
def test_a_run_ends_where_it_is_told_to_and_its_seed_is_its_own(names):
    def some(texts, answers):
        return list(range(len(texts)))

    def diary(**more):
        return names["train"](names["tiny_policy"](0), steps=4, prompts=2, answers=2, reward=some, **more)

    stopped = diary(stop=lambda history: len(history) == 2)
    assert len(stopped) == 2 and all("greedy" in row for row in stopped)
    once, again, other = ([(row["length"], row["kl"]) for row in diary(seed=seed)] for seed in (1, 1, 2))
    assert once == again != other


@pytest.mark.thorough
@pytest.mark.training
def test_from_a_real_model_the_course_against_itself_takes_the_same_steps(capsys):
    referee = Referee(SOURCE, seed=1, count=1, say=print)
    ((seed, model),) = referee._models
    to_95 = referee._names["to_95"]
    assert to_95(seed, model, OWN)[0] == to_95(seed, model, OWN)[0] > 1
    assert referee.race(OWN | {"lr": 0.0}).ratios == (4.0,)
    assert capsys.readouterr().out.startswith("warming up model 1 of 1\n")


class QuickReferee:
    """Whose ratio is the learning rate."""

    def __init__(self, notebook, seed, count, say):
        say(f"seed {seed}, {count} models")

    def race(self, settings):
        return Race((settings["lr"], settings["lr"]))


def run(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(grader.challenge, "Referee", QuickReferee)
    status = main(["challenge", *map(str, arguments)])
    return status, *capsys.readouterr()


def test_the_fastest_of_a_folder_stands_first(tmp_path, monkeypatch, capsys):
    for name, lr in (("ada", 0.5), ("bo", 0.25)):
        tmp_path.joinpath(f"{name}.ipynb").write_bytes(hand_in(f'open("/tmp/nobody_runs_this", "w"); CHALLENGE = {{"lr": {lr}}}'))
    tmp_path.joinpath("unchanged.ipynb").write_bytes(HANDED_OUT.read_bytes())
    tmp_path.joinpath("another.ipynb").write_bytes((HANDED_OUT.parent / "01_advantage.ipynb").read_bytes())
    status, out, err = run(monkeypatch, capsys, tmp_path, "--seed", "12", "--models", "2")
    assert (status, err) == (0, "seed 12, 2 models\n")
    assert out.startswith("2 to race, 2 without settings of their own; --seed 12 ")
    assert "0.50 of the course's seconds (0.50 0.50)" in out
    assert out.endswith(f"fastest first\n  1  0.25  {tmp_path}/bo.ipynb\n  2  0.50  {tmp_path}/ada.ipynb\n")
    assert not Path("/tmp/nobody_runs_this").exists()


def test_a_name_of_several_lines_is_no_line_of_the_ranking(tmp_path, monkeypatch, capsys):
    for name in (b"slow\n  1  0.01  me.ipynb", b"\xff.ipynb", b"plain.ipynb"):
        Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), name))).write_bytes(hand_in(FASTER))
    _, out, _ = run(monkeypatch, capsys, tmp_path)
    assert out.count("me.ipynb") == out.count("slow\N{REPLACEMENT CHARACTER}  1  0.01  me.ipynb") == 2
    assert out.encode()


def test_a_link_to_a_device_is_not_read(tmp_path, monkeypatch, capsys):
    tmp_path.joinpath("good.ipynb").write_bytes(hand_in(FASTER))
    tmp_path.joinpath("endless.ipynb").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe.py")
    status, out, _ = run(monkeypatch, capsys, tmp_path)
    assert status == 0 and out.startswith("1 to race, 0 without")


def test_in_a_class_the_hand_ins_are_raced_and_not_their_copies(tmp_path, monkeypatch, capsys):
    tmp_path.joinpath(".grader").mkdir()
    tmp_path.joinpath("nbgrader_config.py").touch()
    for folder in ("submitted", "autograded"):
        tmp_path.joinpath(folder).mkdir()
        tmp_path.joinpath(folder, "ada.ipynb").write_bytes(hand_in(FASTER))
    _, out, _ = run(monkeypatch, capsys, tmp_path)
    assert out.startswith("1 to race, 0 without")


def test_one_that_cannot_be_raced_does_not_stop_the_others(tmp_path, monkeypatch, capsys):
    tmp_path.joinpath("bad.ipynb").write_bytes(hand_in('CHALLENGE = {"lr": -1}'))
    tmp_path.joinpath("good.ipynb").write_bytes(hand_in(FASTER))
    status, out, err = run(monkeypatch, capsys, tmp_path)
    assert status == 2 and "[1/1, 0 s left]  0.00" in out
    assert err.startswith(f"grader: {tmp_path}/bad.ipynb: CHALLENGE['lr'] is -1; ")


@pytest.mark.parametrize("name", ["missing.ipynb", "unchanged.ipynb", "."])
def test_nothing_to_race_is_said_in_a_sentence(tmp_path, monkeypatch, capsys, name):
    tmp_path.joinpath("unchanged.ipynb").write_bytes(HANDED_OUT.read_bytes())
    status, out, err = run(monkeypatch, capsys, tmp_path / name)
    assert (status, out) == (2, "") and err.count("\n") == 1
    assert any(words in err for words in ("No such file", "race against itself", "no settings to race: 1 files"))
