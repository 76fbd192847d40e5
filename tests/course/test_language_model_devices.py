"""Notebook 5 on another device than the CPU, with a tiny random model: what test_devices.py asks of notebook 4."""

import contextlib
import dataclasses
import io
import types
from unittest import mock

import matplotlib.pyplot as plt
import pytest
import torch

from grader.course.trusted import execute, namespace
from grader.mistakes import versions
from tests.conftest import COURSE
from tests.course import test_language_model as on_cpu
from tests.course.fake_device import DEVICE, fake_device, queued, waits

pytestmark = on_cpu.pytestmark
COMES_FROM = {
    "extract_answer": "04_train_a_tiny_model",
    "math_reward": "04_train_a_tiny_model",
    "token_log_probs": "04_train_a_tiny_model",
    "response_mask": "04_train_a_tiny_model",
    "group_advantages": "01_advantage",
    "grpo_objective": "03_kl",
}


@pytest.fixture(scope="module")
def notebook():
    """The tiny notebook, whose run is on the device."""
    found = on_cpu.tiny_notebook()
    cells = [dataclasses.replace(c, source=f'{c.source}\nrun["device"] = {DEVICE!r}') if c.name == "presets" else c for c in found.cells]
    return dataclasses.replace(found, cells=tuple(cells))


@pytest.fixture(scope="module")
def device():
    with fake_device(), mock.patch.object(plt, "show", lambda: plt.close("all")):
        yield


@pytest.fixture(scope="module")
def names(device, notebook):
    return on_cpu.defined(notebook)


def trains(names, steps=1, **sizes):
    """Runs some steps with other sizes than the settings'."""
    with mock.patch.dict(names["run"], sizes), contextlib.redirect_stdout(io.StringIO()):
        names["train"](names["copy"].deepcopy(names["base"]), "a run", steps)


def test_every_exercise_that_is_brought_is_looked_at(notebook):
    assert {c.name for c in notebook.of_kind("bring")} == set(COMES_FROM)


def test_the_whole_notebook_runs_on_a_device_with_the_key(device, notebook):
    names = {"__name__": "__main__"}
    for cell in notebook.cells:
        if not cell.markdown:
            execute(cell.source, names, f"<{cell.name}>")
    for model in ("base", "policy", "fooled"):
        assert {p.device.type for p in names[model].parameters()} == {DEVICE}
    assert len(names["history"]) == names["run"]["steps"] and len(names["hacked"]) == names["run"]["hack_steps"]


def test_log_probs_are_those_of_the_cpu(names):
    tokens, mask = names["left_padded"]([names["prompt_tokens"](question) for question in ("1 + 2 =", "10 + 20 + 30 =")])
    base, written = names["copy"].deepcopy(names["base"]), torch.arange(20).view(4, 5)
    with torch.no_grad():
        there = names["answer_log_probs"](base, tokens.to(DEVICE), mask.to(DEVICE), written.to(DEVICE), chunk=3)
        here = names["answer_log_probs"](base.cpu(), tokens, mask, written, chunk=3)
    torch.testing.assert_close(there.cpu(), here, atol=1e-5, rtol=1e-5)


def waiting(names, **sizes):
    """How often a step makes the device wait: line -> times."""
    waits.clear()
    trains(names, **sizes)
    return dict(waits)


def test_waits_do_not_grow_with_tokens_prompts_or_answers(names):
    small = waiting(names, prompts=2, answers=2, room=3)
    assert small
    for more in ({"prompts": 5}, {"answers": 5}, {"room": 15}, {"inner_epochs": 4}):
        assert waiting(names, **{"prompts": 2, "answers": 2, "room": 3} | more) == small, more
    asked = sum(waiting(names, prompts=2, answers=2, room=40).values()) - sum(small.values())
    assert asked == 2  # after 16 tokens and after 32: have all ended?


def test_a_clock_is_read_when_the_device_has_done_its_work(names, notebook):
    left = []

    def perf_counter():
        left.append(list(queued))
        return 0.0

    with mock.patch.dict(names, time=types.SimpleNamespace(perf_counter=perf_counter)):
        trains(names, steps=2)
        assert len(left) == 4 and not any(left[1:])
        (cell,) = [c for c in notebook.cells if c.name == "in_reach"]
        execute(cell.source, names, "<in_reach>")
        assert len(left) == 6 and not left[-1]


@pytest.mark.parametrize("exercise", COMES_FROM)
def test_a_right_version_that_would_stop_the_run_is_told_on_arrival(names, notebook, exercise):
    home = next(nb for nb in COURSE if nb.name == COMES_FROM[exercise])
    (arrival,) = [c for c in notebook.cells if c.name == "on_arrival"]
    own, wrong = namespace(home), []
    for version in versions(home.name):
        if version.wrong or version.exercise != exercise:
            continue
        execute(version.source, own, f"<{version.name}>")
        with mock.patch.dict(names, {exercise: own[exercise]}):
            with contextlib.redirect_stdout(io.StringIO()) as said:
                exec(compile(arrival.source, "<on_arrival>", "exec"), names)
            told = next(line for line in said.getvalue().split("\n") if line.startswith(exercise))
            try:
                trains(names)
                stopped = ""
            except (RuntimeError, TypeError) as error:
                stopped = str(error)
        if ("is right" in told) == bool(stopped) or ("where it makes a tensor" in told) != bool(stopped):
            wrong.append(f"{version.name}: {told!r}, and then {stopped or 'the run goes on'!r}")
    assert not wrong, "\n".join(wrong)


def test_a_function_that_stops_is_told_by_its_line_and_what_to_do(names, notebook):
    (arrival,) = [c for c in notebook.cells if c.name == "on_arrival"]
    cases = {
        "return torch.ones(len(tokens)) * tokens": "device=tokens.device where it makes a tensor",
        "return somewhere_else(tokens)": "Paste that function too",
    }
    for line, remedy in cases.items():
        changed = dict(names)
        execute(f"def response_mask(tokens, eos_id):\n    {line}", changed, "<response_mask>")
        with contextlib.redirect_stdout(io.StringIO()) as said:
            exec(compile(arrival.source, "<on_arrival>", "exec"), changed)
        told = next(text for text in said.getvalue().split("\n") if text.startswith("response_mask"))
        assert f"stops at `{line}`" in told and told.endswith(remedy)
