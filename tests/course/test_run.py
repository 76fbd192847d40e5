"""The run of notebook 4 with the answer key: it repeats itself, stops when asked, refuses bad input in a sentence.

That it learns to think is measured by `make bench`, on twenty seeds: where a training run ends depends on the processor.
"""

import math
from itertools import pairwise

import pytest
import torch

from grader.course.trusted import execute, namespace
from tests.conftest import COURSE
from tests.course.test_read_curves import diary

NOTEBOOK = next(nb for nb in COURSE if nb.name == "04_train_a_tiny_model")


@pytest.fixture(scope="module")
def names():
    torch.set_num_threads(1)
    names = namespace(NOTEBOOK)
    execute(next(c.source for c in NOTEBOOK.cells if c.name == "the_loop"), names, "<the_loop>")
    return names


@pytest.fixture
def small(names):
    """A model so small that a step takes milliseconds; every weight of it is drawn, so that each part of it matters."""
    return names["tiny_policy"](0)


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
    with pytest.raises(RuntimeError, match=r"halve settings\['prompts'\] \(now 16\)"):
        names["sample"](full, names["VERDICT"][:2])
