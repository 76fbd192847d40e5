"""Notebook 4 on another device than the CPU: the key runs, what would stop a run is told before it, and nothing waits needlessly."""

import contextlib
import io
import warnings

import matplotlib.pyplot as plt
import pytest
import torch

from grader.course.trusted import execute, namespace
from grader.mistakes import versions
from tests.conftest import COURSE
from tests.course.fake_device import DEVICE, fake_device, waits

NOTEBOOKS = {nb.name: nb for nb in COURSE}
RUN = NOTEBOOKS["04_train_a_tiny_model"]
SMALL = {"device": DEVICE, "warmup_steps": 3, "prompts": 2, "answers": 2, "steps": 1, "experiment_steps": 1}
LONGER = {"half_knows", "second_opinion"}  # warm up again, for hundreds of steps, and do nothing else that is new
ON_THE_DEVICE = {  # exercise -> where its versions are
    "group_advantages": "01_advantage",
    "grpo_objective": "03_kl",
    "token_log_probs": RUN.name,
    "response_mask": RUN.name,
    "collect": RUN.name,
    "grpo_step": RUN.name,
}


def cell(name):
    return next(c for c in RUN.cells if c.name == name)


SOURCES = {
    "presets": f"{cell('presets').source}\nrun |= {SMALL}",
    "language": f"{cell('language').source}\nWATCH, VERDICT = WATCH[:8], VERDICT[:178]",
}


@pytest.fixture
def device():
    with fake_device(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of pictures of a run of one step
        yield


@pytest.fixture
def names(device):
    return namespace(RUN, SOURCES)


def printed(names, *cells):
    """What cells print."""
    with contextlib.redirect_stdout(io.StringIO()) as said:
        for name in cells:
            exec(compile(cell(name).source, f"<{name}>", "exec"), names)
    return said.getvalue()


def test_the_device_refuses_what_a_gpu_refuses_and_counts_waits(device):
    x, rows = torch.ones(3, device=DEVICE), torch.tensor([0, 2])
    for mixes in (
        lambda: x + torch.ones(3),
        lambda: torch.zeros(3).add_(x),
        lambda: torch.zeros(3)[x > 0],
        lambda: torch.stack([x, torch.ones(3)]),
        lambda: x.exponential_(generator=torch.Generator()),
        lambda: torch.rand(3, generator=torch.Generator(DEVICE)),
    ):
        with pytest.raises(RuntimeError, match="device"):
            mixes()
    with pytest.raises(TypeError, match="numpy"):
        x.numpy()
    assert not waits
    assert (x * 2 + torch.tensor(1.0))[rows].device.type == DEVICE and not waits
    assert x.sum().item() == 3 and x.tolist() == [1, 1, 1] and len(x[x > 0]) == 3
    assert sum(waits.values()) == 3


@pytest.mark.thorough
def test_the_whole_notebook_runs_on_a_device_with_the_key(device):
    names = {"__name__": "__main__"}
    for part in RUN.cells:
        if not part.markdown and part.kind != "check" and part.name not in LONGER:
            execute(SOURCES.get(part.name, part.source), names, f"<{part.name}>")
            plt.close("all")
    assert {p.device.type for p in names["policy"].parameters()} == {DEVICE}


def waiting(names, prompts, answers):
    """How often a step makes the device wait: line -> times."""
    policy = names["tiny_policy"](0, names["PROMPT"] + names["ROOM"]).to(DEVICE)
    waits.clear()
    names["train"](policy, steps=2, prompts=prompts, answers=answers)
    return dict(waits)


def test_waits_do_not_grow_with_tokens_prompts_or_answers(names):
    printed(names, "the_loop")
    small = waiting(names, 2, 2)
    assert waiting(names, 6, 2) == waiting(names, 2, 6) == small
    assert sum(n for line, n in small.items() if line.startswith("synchronize")) == 4  # where time is taken, before and after two steps
    policy, prompts = names["tiny_policy"](0, names["PROMPT"] + names["ROOM"]), names["WATCH"]
    here = names["sample"](policy, prompts, temperature=0.0)
    waits.clear()
    there = names["sample"](policy.to(DEVICE), prompts.to(DEVICE), temperature=0.0)
    assert not waits
    assert there.tolist() == [row + [names["PAD"]] * (there.shape[1] - len(row)) for row in here.tolist()]


@pytest.mark.parametrize("exercise", ON_THE_DEVICE)
def test_a_right_version_that_would_stop_the_run_is_told_before_it(names, exercise):
    own = names if ON_THE_DEVICE[exercise] == RUN.name else namespace(NOTEBOOKS[ON_THE_DEVICE[exercise]])
    wrong = []
    for version in versions(ON_THE_DEVICE[exercise]):
        if version.wrong or version.exercise != exercise:
            continue
        execute(version.source, own, f"<{version.name}>")
        names[exercise] = own[exercise]
        told = next(line for line in printed(names, "on_arrival", "the_loop").split("\n") if line.startswith(exercise))
        try:
            names["train"](names["tiny_policy"](0, names["PROMPT"] + names["ROOM"]).to(DEVICE), steps=1)
            stopped = ""
        except (RuntimeError, TypeError) as error:
            stopped = str(error)
        helps = any(way in told for way in ("write device=", ".device)", "Use Tensor.cpu()"))
        if ("on the CPU alone" in told and helps) != bool(stopped):
            wrong.append(f"{version.name}: {told!r}, and then {stopped or 'the run goes on'!r}")
    assert not wrong, "\n".join(wrong)


def test_a_step_is_told_by_line_and_how_to_change_it(names):
    source = cell("collect").source.replace("dtype=torch.float32, device=tokens.device", "dtype=torch.float32")
    execute(source, names, "<changed>")
    told = next(line for line in printed(names, "on_arrival").split("\n") if line.startswith("collect"))
    assert told.partition(": ")[2] == 'write device=prompts.device into `"rewards": torch.as_tensor(paid, dtype=torch.float32),`'
    execute("def grpo_step(*args, **kwargs):\n    raise NotImplementedError", names, "<open>")
    assert "grpo_step         is not written yet" in printed(names, "the_loop")
