"""The run of notebook 4 with the answer key: it learns to think, stops when asked, repeats itself, and refuses bad input in a sentence."""

import copy
import math

import pytest
import torch

from grader.course.trusted import execute, namespace
from grader.mistakes import versions
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


@pytest.fixture(scope="module")
def base(names):
    return names["warm_up"](names["run"]["seed"], names["run"]["warmup_steps"])


@pytest.fixture
def small(names):
    """A model without any training: enough for what is not about learning."""
    return names["TinyModel"]()


def test_the_model_learns_to_think_and_a_stopped_run_keeps_its_curves(names, base):
    before = names["evaluate"](base, names["VERDICT"])
    assert before["accuracy"] <= 0.5 and before["thinks"] <= 0.1
    assert names["evaluate"](base, names["VERDICT"], force=names["THINK"])["accuracy"] >= 0.9
    policy, seen = copy.deepcopy(base), []

    def stops_at_the_goal(texts, answers):
        seen.append(names["evaluate"](policy, names["WATCH"])["accuracy"] if len(seen) % 5 == 4 else 0)
        if seen[-1] >= 0.9:
            raise KeyboardInterrupt  # as the stop button does
        return names["accuracy"](texts, answers)

    history = names["train"](policy, steps=50, reward=stops_at_the_goal)
    after = names["evaluate"](policy, names["VERDICT"])
    assert after["accuracy"] > 0.9 and after["thinks"] > 0.9
    assert 5 < len(history) < 50
    assert all({"reward", "thinks", "kl", "clip_fraction", "dead", "length"} <= row.keys() for row in history)
    assert any(row["clip_fraction"] > 0 for row in history) and history[-1]["kl"] > 0
    assert names["read_curves"](history) == []


def mistaken(name):
    """A known wrong grpo_step."""
    version = next(v for v in versions(NOTEBOOK.name) if v.name == name)
    return namespace(NOTEBOOK, {"grpo_step": version.source})["grpo_step"]


ILL = {
    "wrong sign": ({"update": "wrong_sign"}, ["The reward falls"]),
    "no step": ({"update": "no_step"}, ["The policy does not move at all"]),
    "old recomputed": ({"update": "old_recomputed"}, ["Nothing is ever clipped"]),
    "first metrics": ({"update": "first_metrics"}, ["After the first step the KL is still exactly 0"]),
    "mask ignored": ({"update": "mask_ignored"}, ["The KL explodes"]),
    "kl to the old policy": ({"update": "kl_to_the_old_policy", "steps": 20}, ["The policy learns, and yet the KL stays"]),
    "beta 10": ({"beta": 10.0}, ["The policy barely moves"]),
    "lr x 20": ({"lr": 1e-2}, ["The KL explodes"]),
    "narrow clip": ({"clip_range": 0.02, "inner_epochs": 4}, ["Many tokens are clipped"]),
    "a reward for nothing": ({"reward": lambda texts, answers: [0.0] * len(texts)}, ["Nearly all groups are dead"]),
    "a reward for haste": (
        {"reward": lambda texts, answers: [float("<think>" not in t) - 0.05 * len(t) for t in texts], "steps": 25},
        ["Nearly all groups are dead", "Answers get shorter"],
    ),
    "a reward for 18": (
        {"reward": lambda texts, answers: [float("<answer>18" in t) for t in texts], "lr": 2e-3, "beta": 0.0},
        ["Different prompts get the same answer", "Reward and truth go apart", "Answers get shorter"],
    ),
}


@pytest.mark.parametrize("illness", ILL)
def test_an_ill_run_is_diagnosed_from_its_curves(names, base, illness):
    settings, symptoms = ILL[illness]
    update = {"update": mistaken(settings["update"])} if "update" in settings else {}
    history = names["train"](copy.deepcopy(base), **{"steps": 12} | settings | update)
    said = names["read_curves"](history)
    for symptom in symptoms:
        assert any(sentence.startswith(symptom) and "Likeliest: " in sentence for sentence in said), said


def test_curves_that_say_nothing_yet(names):
    assert names["read_curves"]([]) == ["Curves shorter than five steps say nothing yet."]
    assert "no KL" in names["read_curves"]([{"step": k, "reward": 0.0} for k in range(9)])[0]


def test_a_seed_repeats_a_run_bit_for_bit(names):
    runs = []
    for _ in range(2):
        policy = names["warm_up"](7, steps=20)
        names["train"](policy, steps=2, prompts=4, answers=4)
        runs.append(torch.cat([p.detach().flatten() for p in policy.parameters()]))
    assert torch.equal(*runs)


def test_sampling_with_a_cache_is_sampling_without(names, small):
    prompts = names["VERDICT"][:16]
    with torch.no_grad():
        cached = names["sample"](small, prompts, temperature=0.0)
        tokens = prompts
        while tokens.shape[1] < cached.shape[1]:
            following = small(tokens)[:, -1].argmax(-1)
            done = (tokens[:, prompts.shape[1] :] == names["EOS"]).any(1)
            tokens = torch.cat([tokens, following.masked_fill(done, names["PAD"])[:, None]], 1)
    assert torch.equal(tokens, cached)


def test_log_probs_of_shared_prompts_are_those_of_each_row_alone(names, small):
    tokens = names["sample"](small, names["TRAIN"][:3], answers=4, draw=torch.Generator().manual_seed(1))
    start = names["PROMPT"]
    torch.testing.assert_close(names["response_logits"](small, tokens, start), small(tokens)[:, start - 1 : -1], atol=1e-5, rtol=1e-4)


def test_no_prompt_is_trained_on_and_judged(names):
    parts = [{tuple(p) for p in names[part].tolist()} for part in ("TRAIN", "WATCH", "VERDICT")]
    assert sum(map(len, parts)) == len(set.union(*parts)) == 10_000
    assert min(map(len, parts)) > 400


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"device": "tpu"}, "There is no device 'tpu' here"),
        ({"preset": "huge"}, "There is no preset 'huge'"),
        ({"steps": 0}, "settings['steps'] is 0"),
        ({"steps": 2.5}, "settings['steps'] is 2.5"),
        ({"threads": "two"}, "settings['threads'] is 'two'"),
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
