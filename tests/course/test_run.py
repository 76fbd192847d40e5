"""The run of notebook 4 with the answer key: it repeats itself, stops when asked, is read from its curves, refuses bad input in a sentence.

That it learns to think is measured by `make bench`, on twenty seeds: where a training run ends depends on the processor.
"""

import math
from itertools import pairwise, zip_longest

import numpy as np
import pytest
import torch

from grader.course.trusted import execute, namespace
from tests.conftest import COURSE

NOTEBOOK = next(nb for nb in COURSE if nb.name == "04_train_a_tiny_model")


@pytest.fixture(scope="module")
def names():
    torch.set_num_threads(1)
    names = namespace(NOTEBOOK)
    execute(next(c.source for c in NOTEBOOK.cells if c.name == "the_loop"), names, "<the_loop>")
    names["history"] = []  # what the doctor's cell reads at once
    execute(next(c.source for c in NOTEBOOK.cells if c.name == "doctor"), names, "<doctor>")
    return names


@pytest.fixture
def small(names):
    """A model so small that a step takes milliseconds; every weight of it is drawn, so that each part of it matters."""
    return names["tiny_policy"](0)


USUAL = {  # entry of the diary -> values spread evenly over the run, as they are with the answer key
    "seconds": [0.1],
    "reward": [0.12, 0.17, 0.29, 0.46, 0.6, 0.78, 0.93, 0.97],
    "beta": [0.04],
    "updates": [2],
    "answers": [8],
    "policy_loss": [-0.22, -0.4, -0.52, -0.3, -0.02],
    "kl": [0.0004, 0.03, 0.09, 0.15, 0.22, 0.17],
    "clip_fraction": [0.0, 0.003, 0.001, 0.0],
    "sampled": [0.12, 0.17, 0.29, 0.46, 0.6, 0.78, 0.93, 0.97],
    "thinks": [0.05, 0.3, 0.6, 0.98],
    "format": [0.05, 0.3, 0.6, 0.98],
    "dead": [0.38, 0.2, 0.06, 0.3, 0.8],
    "length": [4.5, 8.0, 12.0, 13.9],
    "distinct": [0.3, 0.28, 0.23, 0.16],
    "greedy": [0.12, 0.14, 1.0, 1.0],
    "entropy": [0.61, 0.35, 0.1, 0.02],
}
AS_BEFORE = {  # a run that goes on as the warm-up left it
    "reward": [0.12, 0.14, 0.2, 0.13, 0.15, 0.13],
    "sampled": [0.12, 0.14, 0.2, 0.13, 0.15, 0.13],
    "thinks": [0.05, 0.08, 0.06],
    "format": [0.05, 0.08, 0.06],
    "dead": [0.38, 0.19, 0.38, 0.25],
    "length": [4.5, 4.8, 4.5, 4.7],
    "distinct": [0.3, 0.25, 0.3, 0.22],
    "greedy": [0.13],
    "entropy": [0.61, 0.64, 0.58],
}


def diary(steps=30, **curves):
    """A made-up diary: the usual curves, but for those given. Between their values they are straight."""
    points = USUAL | curves
    rows = [
        {"step": k + 1} | {key: float(np.interp(k, np.linspace(0, steps - 1, len(ys)), ys)) for key, ys in points.items()}
        for k in range(steps)
    ]
    for row in rows:
        if row["step"] % 5 and row["step"] not in (1, steps):
            del row["greedy"], row["entropy"]
    return rows


@pytest.mark.parametrize(
    "healthy",
    [
        diary(50),
        diary(12, reward=[0.12, 0.2, 0.46], sampled=[0.12, 0.2, 0.46], kl=[0.0004, 0.09], length=[4.5, 8.1], dead=[0.38, 0.06]),
        diary(updates=[1], kl=[0.0, 0.03, 0.15], clip_fraction=[0.0]),  # one update: on policy, where nothing can be clipped
        diary(beta=[0.0], kl=[0.0004, 0.4, 0.7]),
    ],
    ids=["usual", "stopped by hand", "one update", "no leash"],
)
def test_nothing_is_said_of_a_healthy_run(names, healthy):
    assert names["read_curves"](healthy) == []


ILL = {  # curves that differ from the usual ones, and how the sentences about them begin
    "a reward for nothing": (
        AS_BEFORE | {"reward": [0.0], "dead": [1.0], "kl": [0.0], "clip_fraction": [0.0]},
        ["Nearly all groups are dead"],
    ),
    "a reward for everything": (
        AS_BEFORE | {"reward": [1.0], "dead": [1.0], "kl": [0.0], "clip_fraction": [0.0]},
        ["Nearly all groups are dead"],
    ),
    "a collapse": (
        {"reward": [0.12, 0.64, 0.3, 0.05, 0.04], "sampled": [0.12, 0.64, 0.3, 0.05, 0.04], "kl": [0.5, 0.8, 1.7, 1.8]},
        ["The reward rose to 0.", "The KL explodes, up to 1.8"],
    ),
    "a wrong sign": (
        AS_BEFORE
        | {
            "reward": [0.13, 0.13, 0.09, 0.06, 0.03, 0.03],
            "sampled": [0.13, 0.13, 0.09, 0.06, 0.03, 0.03],
            "length": [4.6, 4.2],
            "kl": [0.0003, 0.05, 0.3, 4.9],
        },
        ["The reward falls, from 0.13 to 0.03", "The KL explodes, up to 4.9"],
    ),
    "a reward for 18": (
        {
            "reward": [0.08, 0.5, 0.96, 1.0],
            "sampled": [0.12, 0.1, 0.03, 0.05],
            "length": [4.8, 4.5, 4.1, 4.1],
            "distinct": [0.3, 0.2, 0.04, 0.03],
            "entropy": [0.6, 0.2, 0.04],
        },
        [
            "Reward and truth go apart: the reward goes from 0.",
            "Different prompts get the same answer (the entropy is 0.04)",
            "Answers get shorter",
        ],
    ),
    "no step": (AS_BEFORE | {"kl": [0.0], "clip_fraction": [0.0]}, ["The policy does not move at all"]),
    "beta 10": (AS_BEFORE | {"beta": [10.0], "kl": [0.0004, 0.0015, 0.0003, 0.0003]}, ["The policy barely moves: the KL is 0.000"]),
    "rewards of others": (AS_BEFORE, ["The policy moves (a KL of 0.19), but not towards the reward"]),
    "kl to the old policy": ({"kl": [0.0004, 0.0009, 0.0003, 0.0001]}, ["The policy learns, and yet the KL stays at 0.000"]),
    "another estimator": ({"kl": [0.0004, -0.02, 0.09, 0.17]}, ["The KL is negative (-0.0"]),
    "first metrics": ({"kl": [0.0, 0.03, 0.15]}, ["After the first step the KL is still exactly 0"]),
    "old recomputed": ({"clip_fraction": [0.0]}, ["Nothing is ever clipped"]),
    "a narrow clip": ({"clip_fraction": [0.09, 0.24, 0.15]}, ["Many tokens are clipped: 24 percent"]),
    "log-probs without a sign": ({"entropy": [-0.61, -0.35, -0.02]}, ["The entropy is -0.6 nats per token"]),
    "log-probs without a normaliser": ({"entropy": [5.5, 4.0]}, ["The entropy is 5.5 nats per token"]),
    "a mask of one token": ({"length": [1.0]}, ["Only 1.0 tokens of an answer count"]),
    "a charge for length": (
        AS_BEFORE | {"reward": [-0.05, -0.08, -0.03, 0.03, 0.05, 0.03], "dead": [0.6, 0.8, 0.95, 0.95], "length": [4.6, 4.4, 4.0, 4.0]},
        ["Nearly all groups are dead", "Answers get shorter, from 4.6 to 4.0"],
    ),
    "an end that nobody learns": ({"length": [9.0, 15.5, 16.0]}, ["Answers fill the room they have (15."]),
}


@pytest.mark.parametrize("illness", ILL)
def test_an_ill_run_is_diagnosed_from_its_curves(names, illness):
    curves, symptoms = ILL[illness]
    said = names["read_curves"](diary(**curves))
    assert [sentence[: len(symptom)] for sentence, symptom in zip_longest(said, symptoms, fillvalue="")] == symptoms
    assert all("Likeliest: " in sentence for sentence in said)


def test_curves_that_say_nothing_yet_or_cannot_be_read(names):
    assert names["read_curves"]([]) == names["read_curves"](diary(4)) == ["Curves shorter than five steps say nothing yet."]
    assert "no KL" in names["read_curves"]([{"step": k, "reward": 0.0} for k in range(9)])[0]
    assert names["read_curves"](diary(kl=[0.0004, math.nan]))[0].startswith("There is a NaN or an infinity")


def some(texts, answers):
    """A reward that no group earns alike: every step of a run has something to learn."""
    return list(range(len(texts)))


@pytest.mark.training
def test_a_diary_has_the_entries_that_are_read_and_every_step_moves_the_policy(names, small):
    places = []

    def update(policy, *args, **kwargs):
        places.append(names["flat"](policy))
        return names["grpo_step"](policy, *args, **kwargs)

    history = names["train"](small, steps=6, prompts=4, answers=4, reward=some, update=update)
    assert [row.keys() for row in history] == [row.keys() for row in diary(6)]
    assert all(math.isfinite(value) for row in history for value in row.values())
    assert not any(torch.equal(a, b) for a, b in pairwise([*places, names["flat"](small)]))


@pytest.mark.training
def test_a_seed_repeats_a_run_bit_for_bit(names):
    runs = []
    for _ in range(2):
        policy = names["warm_up"](7, steps=20)
        names["train"](policy, steps=2, prompts=4, answers=4, reward=some)
        runs.append(names["flat"](policy))
    assert torch.equal(*runs)
    assert not torch.equal(runs[0], names["flat"](names["warm_up"](8, steps=20)))


@pytest.mark.training
def test_a_stopped_run_keeps_its_diary(names, small, capsys):
    paid = []

    def stops(texts, answers):
        paid.append(texts)
        if len(paid) == 4:
            raise KeyboardInterrupt  # as the stop button does
        return some(texts, answers)

    history = names["train"](small, steps=9, prompts=2, answers=2, reward=stops)
    assert [row["step"] for row in history] == [1, 2, 3]
    assert "Stopped by hand after 3 of 9 steps" in capsys.readouterr().out


def test_sampling_with_a_cache_is_sampling_without(names, small):
    prompts = names["VERDICT"][:16]
    tokens = names["sample"](small, prompts, temperature=0.0)
    with torch.no_grad():
        logits = small(tokens)[:, names["PROMPT"] - 1 : -1]
    answers = tokens[:, names["PROMPT"] :]
    greedy = logits.max(-1).values - logits.gather(-1, answers[..., None])[..., 0]
    counts = names["response_mask"](answers, names["EOS"])
    assert (greedy[counts] < 1e-4).all()  # not the same token: at a near-tie a processor may choose
    assert (answers[~counts] == names["PAD"]).all()


def test_log_probs_of_shared_prompts_are_those_of_each_row_alone(names, small):
    tokens = names["sample"](small, names["TRAIN"][:3], answers=4, draw=torch.Generator().manual_seed(1))
    start = names["PROMPT"]
    torch.testing.assert_close(names["response_logits"](small, tokens, start), small(tokens)[:, start - 1 : -1], atol=1e-5, rtol=1e-4)


def task(numbers, digits):
    """The names of the notebook's given cells for sums of so many numbers."""
    names = {"__name__": "__main__"}
    for cell in NOTEBOOK.of_kind("given"):
        change = f"settings |= {{'numbers': {numbers}, 'digits': {digits}}}" if cell.name == "settings" else ""
        execute(f"{cell.source}\n{change}", names, f"<{cell.name}>")
    return names


@pytest.mark.parametrize(("numbers", "digits"), [(4, 1), (6, 1), (3, 2), (2, 9)])
def test_the_task_follows_its_settings(numbers, digits):
    names = task(numbers, digits)
    parts = [{tuple(p) for p in names[part].tolist()} for part in ("TRAIN", "WATCH", "VERDICT")]
    assert sum(map(len, parts)) == len(set.union(*parts)) >= 9_900  # no prompt is trained on and judged
    assert min(map(len, parts)) > 400
    prompts, think = names["WATCH"][:20], torch.arange(20) % 2 == 0
    examples = names["examples"](prompts, think, torch.Generator().manual_seed(0))
    assert examples.shape[1] == names["THOUGHT"] == names["ROOM"] - 2
    for prompt, answer, thinks in zip(names["decode"](prompts), names["decode"](examples), think.tolist(), strict=True):
        terms = [int(term) for term in prompt.removesuffix("=").split("+")]
        steps = [f"{sum(terms[: k + 1]):0{names['LONG']}d}" for k in range(1, numbers)]
        assert len(terms) == numbers and len(prompt) == names["PROMPT"]
        if thinks:
            assert answer == f"<think>{','.join(steps)}</think><answer>{steps[-1]}</answer>"
        else:
            assert abs(int(answer.removeprefix("<answer>").removesuffix("</answer>")) - sum(terms)) <= 4
    assert names["solved"](torch.cat([prompts, examples], 1))[think].all()
    with torch.no_grad():
        assert names["TinyModel"]()(torch.cat([prompts, examples], 1)).shape[-1] == len(names["VOCAB"])


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"device": "tpu"}, "There is no device 'tpu' here"),
        ({"preset": "huge"}, "There is no preset 'huge'"),
        ({"steps": 0}, "settings['steps'] is 0"),
        ({"steps": 2.5}, "settings['steps'] is 2.5"),
        ({"threads": "two"}, "settings['threads'] is 'two'"),
        ({"numbers": 1}, "A sum of 1 numbers with 1 digits"),
        ({"digits": 5}, "A sum of 4 numbers with 5 digits"),
    ],
)
def test_settings_that_cannot_run_are_refused_in_a_sentence(names, setting, words):
    with pytest.raises(ValueError, match=r".") as refused:
        names["configure"](names["settings"] | setting)
    assert words in str(refused.value) and "\n" not in str(refused.value)


def test_cuda_where_there_is_none_is_refused(names):
    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    with pytest.raises(ValueError, match="torch sees no CUDA device"):
        names["configure"](names["settings"] | {"device": "cuda"})


@pytest.mark.parametrize(
    ("reward", "words"),
    [
        (lambda texts, answers: [math.nan] * len(texts), "The reward of answer 0 is nan"),
        (lambda texts, answers: [1.0] * (len(texts) - 1), "one number per answer"),
        (lambda texts, answers: 1.0, "one number per answer"),
    ],
)
def test_a_reward_that_is_no_reward_is_refused(names, small, reward, words):
    with pytest.raises(ValueError, match=words):
        names["train"](small, steps=1, prompts=2, answers=2, reward=reward)


def test_a_checkpoint_of_another_shape_is_refused(names, small):
    with pytest.raises(ValueError, match="belongs to a model of another shape"):
        names["restore"](small, names["TinyModel"](width=32).state_dict())


def test_a_full_gpu_names_the_preset_to_take(names, small):
    def full(*args, **kwargs):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(RuntimeError, match=r"out of memory. Set settings\['preset'\] = 'laptop'"):
        names["train"](small, steps=1, prompts=2, answers=2, update=full)
