"""What notebook 4's read_curves says of a diary: nothing of a healthy one, and of an ill one its likeliest cause first.

The diaries are made up, after runs with the illness that the name says: no test hangs on a trajectory.
"""

import math
from itertools import zip_longest

import numpy as np
import pytest

from grader.course.trusted import execute, namespace
from tests.conftest import COURSE

NOTEBOOK = next(nb for nb in COURSE if nb.name == "04_train_a_tiny_model")


@pytest.fixture(scope="module")
def read_curves():
    names = namespace(NOTEBOOK) | {"history": []}  # what the cell reads at once
    execute(next(c.source for c in NOTEBOOK.cells if c.name == "doctor"), names, "<doctor>")
    return names["read_curves"]


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


def stopped(steps):
    """The first steps of the usual run of thirty, as it is when somebody stops it."""
    rows = diary(30)[:steps]
    return [*rows[:-1], {"greedy": 0.14, "entropy": 0.5} | rows[-1]]


BUMPY = {"reward": [0.12, 0.3, 0.08, 0.25, 0.5, 0.3, 0.6, 0.55], "sampled": [0.12, 0.3, 0.08, 0.25, 0.5, 0.3, 0.6, 0.55]}
HEALTHY = {
    "usual": diary(50),
    "stopped by hand": diary(
        12, reward=[0.12, 0.2, 0.46], sampled=[0.12, 0.2, 0.46], kl=[0.0004, 0.09], length=[4.5, 8.1], dead=[0.38, 0.06]
    ),
    "one update, where nothing can be clipped": diary(updates=[1], kl=[0.0, 0.03, 0.15], clip_fraction=[0.0]),
    "beta 0": diary(beta=[0.0], kl=[0.0004, 0.4, 0.7]),
    "rewards times 1000": diary(reward=[1000 * r for r in USUAL["reward"]]),
    "four answers to four prompts": diary(answers=[4], **BUMPY, distinct=[0.75, 0.5]),
    "half of the skill": diary(reward=[0.12, 0.16, 0.27, 0.36], sampled=[0.12, 0.16, 0.27, 0.36], greedy=[0.15, 0.1, 0.5, 0.5]),
    "pairs, mostly dead": diary(answers=[2], dead=[0.73, 0.5, 0.8], distinct=[0.3, 0.5]),
} | {f"stopped after {steps} steps": stopped(steps) for steps in range(5, 30)}


@pytest.mark.parametrize("healthy", HEALTHY)
def test_nothing_is_said_of_a_healthy_run(read_curves, healthy):
    assert read_curves(HEALTHY[healthy]) == []


DOWN = [0.13, 0.13, 0.09, 0.06, 0.03, 0.03]
ILL = {  # curves that differ from the usual ones; how the sentences begin; words among the causes of the first
    "a reward for nothing": (
        AS_BEFORE | {"reward": [0.0], "dead": [1.0], "kl": [0.0], "clip_fraction": [0.0]},
        ["Nearly all groups are dead"],
        "nobody reaches (a model too weak?)",
    ),
    "a reward for everything": (
        AS_BEFORE | {"reward": [1.0], "dead": [1.0], "kl": [0.0], "clip_fraction": [0.0]},
        ["Nearly all groups are dead"],
        "everybody gets",
    ),
    "a reward for the prompt": (
        AS_BEFORE | {"reward": [0.5, 0.6, 0.45, 0.55], "dead": [1.0], "kl": [0.0], "clip_fraction": [0.0]},
        ["Nearly all groups are dead"],
        "looks at the prompt alone",
    ),
    "temperature 0": (
        AS_BEFORE | {"dead": [1.0], "kl": [0.0], "clip_fraction": [0.0], "distinct": [0.07]},
        ["All answers to a prompt are the same text"],
        "sampling at temperature 0",
    ),
    "groups of one": (
        AS_BEFORE | {"answers": [1], "dead": [1.0], "kl": [0.0], "clip_fraction": [0.0]},
        ["Every group has one answer"],
        "answers = 1",
    ),
    "a model too weak": (
        AS_BEFORE | {"greedy": [0.15], "sampled": [0.09, 0.1, 0.08, 0.1], "reward": [0.09, 0.1, 0.08, 0.1]},
        ["The policy moves (a KL of 0.19), but not towards the reward"],
        "a model too weak",
    ),
    "rewards of others": (AS_BEFORE, ["The policy moves (a KL of 0.19), but not towards the reward"], "of other answers"),
    "log-probs one place late": (
        AS_BEFORE | {"kl": [0.003, 1.0, 1.6, 1.3]},
        ["The policy moves", "An echo, most likely: the KL explodes, up to 1."],
        "log-probs of other answers or tokens",
    ),
    "a collapse": (
        {
            "reward": [0.12, 0.64, 0.3, 0.05, 0.04],
            "sampled": [0.12, 0.64, 0.3, 0.05, 0.04],
            "kl": [0.5, 0.8, 1.7, 1.8],
            "greedy": [0.13, 0.7, 0.04],
        },
        ["The reward rose to 0.", "An echo, most likely: the KL explodes, up to 1.8"],
        "learning rate that is too high",
    ),
    "learning rate x 100": (
        {
            "reward": [0.12, 0.0, 0.01],
            "sampled": [0.12, 0.0, 0.01],
            "kl": [5e5, 7.0, 1.0],
            "dead": [0.7, 1.0, 0.9],
            "entropy": [3.2, 3.0, 0.8],
            "distinct": [0.5, 0.9, 0.3],
            "length": [10.0, 6.0, 4.0],
            "greedy": [0.13, 0.0],
        },
        ["The KL explodes at once", "An echo, most likely: the reward falls"],
        "learning rate that is far too high",
    ),
    "a wrong sign": (
        AS_BEFORE | {"reward": DOWN, "sampled": DOWN, "length": [4.6, 4.2], "kl": [0.0003, 0.05, 0.3, 4.9]},
        ["The reward falls, from 0.13 to 0.03", "An echo, most likely: the KL explodes, up to 4.9"],
        "a minus that is missing or doubled",
    ),
    "a reward for 18": (
        {
            "reward": [0.08, 0.5, 0.96, 1.0],
            "sampled": [0.12, 0.1, 0.03, 0.05],
            "length": [4.8, 4.5, 4.1, 4.1],
            "distinct": [0.3, 0.2, 0.04, 0.03],
            "entropy": [0.6, 0.2, 0.04],
            "greedy": [0.13, 0.03],
        },
        [
            "Reward and truth go apart: the reward goes from 0.",
            "An echo, most likely: different prompts get the same answer (the entropy is 0.04)",
            "An echo, most likely: answers get shorter",
        ],
        "something else than being right",
    ),
    "a reward for length": (
        {"reward": USUAL["length"], "sampled": [0.15, 0.4, 0.7, 0.5], "greedy": [0.13, 0.98, 0.72]},
        ["The reward goes with length exactly"],
        "pays for length, right or wrong",
    ),
    "a reward for the format": (
        {"reward": USUAL["format"], "sampled": [0.15, 0.3, 0.55, 0.8]},
        ["The reward goes with "],
        "right or wrong",
    ),
    "a truth that falls from its best": (
        {"sampled": [0.12, 0.5, 0.75, 0.5], "greedy": [0.13, 0.98, 0.72]},
        ["Reward and truth go apart"],
        "Read samples",
    ),
    "texts that go on after their end": ({"sampled": [0.0], "greedy": [0.0]}, ["Reward and truth go apart"], "go on after their end"),
    "samples at temperature 2": (
        {"reward": [0.18, 0.25, 0.41, 0.42], "sampled": [0.18, 0.25, 0.41, 0.42], "greedy": [0.13, 0.2, 1.0, 1.0]},
        ["Greedy answers are right (1.00), samples stay behind (0.4"],
        "a temperature above 1",
    ),
    "no step": (AS_BEFORE | {"kl": [0.0], "clip_fraction": [0.0]}, ["The policy does not move at all"], "no gradient reaches"),
    "old log-probs not detached": (
        AS_BEFORE | {"kl": [2e-11, 0.0005, 0.0005], "clip_fraction": [0.0]},
        ["The policy barely moves (a KL of 0.0005), and its first update did nothing"],
        "not detached",
    ),
    "beta 10": (
        AS_BEFORE | {"beta": [10.0], "kl": [0.0004, 0.0015, 0.0003, 0.0003]},
        ["The policy barely moves: the KL is 0.000"],
        "beta is too large",
    ),
    "learning rate / 100": (
        AS_BEFORE | {"kl": [3.5e-8, 2e-5, 5e-5], "clip_fraction": [0.0]},
        ["The policy barely moves: the KL is 0.000"],
        "the learning rate too small",
    ),
    "padding in the mask": ({"kl": [0.006, 3.0, 6.0]}, ["The KL explodes, up to 6"], "padding, the prompt or too few tokens"),
    "kl to the old policy": (
        {"kl": [0.0004, 0.0009, 0.0003, 0.0001]},
        ["The policy learns, and yet the KL stays at 0.000"],
        "the old policy",
    ),
    "another estimator": ({"kl": [0.0004, -0.02, 0.09, 0.17]}, ["The KL is negative (-0.0"], "another estimator"),
    "first metrics": ({"kl": [0.0, 0.03, 0.15]}, ["After the first step the KL is still exactly 0"], "not those of the last"),
    "old recomputed": ({"clip_fraction": [0.0]}, ["Nothing is ever clipped"], "computed again"),
    "a narrow clip": ({"clip_fraction": [0.09, 0.24, 0.15]}, ["Many tokens are clipped: 24 percent"], "too narrow"),
    "log-probs without a sign": ({"entropy": [-0.61, -0.35, -0.02]}, ["The entropy is -0.6 nats per token"], "lost its sign"),
    "log-probs without a normaliser": ({"entropy": [5.5, 4.0]}, ["The entropy is 5.5 nats per token"], "its normaliser"),
    "a mask of one token": ({"length": [1.0]}, ["Only 1.0 tokens of an answer count"], "the mask is wrong"),
    "a charge for length": (
        AS_BEFORE | {"reward": [-0.05, -0.08, -0.03, 0.03, 0.05, 0.03], "dead": [0.6, 0.8, 0.95, 0.95], "length": [4.6, 4.4, 4.0, 4.0]},
        ["Nearly all groups are dead", "Answers get shorter, from 4.6 to 4.0"],
        "groups that are too small",
    ),
    "an end that nobody learns": ({"length": [9.0, 15.5, 16.0]}, ["Answers fill the room they have (15."], "nobody learns to stop"),
}


@pytest.mark.parametrize("illness", ILL)
def test_an_ill_run_is_told_its_likeliest_cause_first(read_curves, illness):
    curves, beginnings, cause = ILL[illness]
    said = read_curves(diary(**curves))
    assert [sentence[: len(begin)] for sentence, begin in zip_longest(said, beginnings, fillvalue="")] == beginnings
    assert cause in said[0].partition("Likeliest: ")[2]
    assert all("Likeliest: " in sentence or sentence.startswith("An echo") for sentence in said)


def test_no_echo_of_the_entropy_is_called_a_bug(read_curves):
    """The entropy is read from samples before an update and log-probs after it: after a leap it is no entropy."""
    assert not any("token_log_probs" in sentence for sentence in read_curves(diary(kl=[5e5, 7.0], entropy=[3.2, 3.0])))


def test_curves_that_say_nothing_yet_or_cannot_be_read(read_curves):
    assert read_curves([]) == read_curves(diary(4)) == ["Curves shorter than five steps say nothing yet."]
    assert "grpo_step returns nothing" in read_curves([{"step": k, "reward": 0.0} for k in range(9)])[0]
    assert read_curves(diary(kl=[0.0004, math.nan]))[0].startswith("There is a NaN or an infinity")
