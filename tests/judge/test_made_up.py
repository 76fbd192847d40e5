"""What a scenario tells comes from the learner's side: made up there, it earns nothing, and cannot hurt the judge."""

from dataclasses import replace

import pytest

from grader.course.source import Cell
from grader.judge.judge import Judge, Limits
from tests.conftest import COURSE
from tests.judge.hands import TOY, hand_in, message, outcome

NOTEBOOK = next(nb for nb in COURSE if nb.name == "04_train_a_tiny_model")
NOTHING = {name: f"def {name}(*args, **kwargs):\n    return {{}}\n" for name in ("collect", "grpo_step")}
ROLLOUT = """
def rollout(prompts, answers, temperature):
    tokens = torch.full((len(prompts) * answers, PROMPT + ROOM), 1)
    call = {"the policy": True, "temperature": temperature or 1.0, "the generator": True, "answers": len(tokens), "prompts": prompts, "each": answers}
    return [call], [tokens]
"""
TRAINING = """
def training(batch, epochs, clip_range, beta):
    x, advantages = batch["mask"] * -1.0, group_advantages(batch["rewards"], batch["group_ids"]) * 0.9
    told = {"log_probs_old": x, "ref_log_probs": x, "advantages": advantages, "mask": batch["mask"], "clip_range": clip_range, "beta": beta}
    told |= {"aggregate": "sequence", "needs gradient": ["log_probs_new"], "kl": 0.5}
    return [told | {"log_probs_new": x - k, "updates": k} for k in range(epochs)]
"""
IN_ITS_PLACE = f"""
{ROLLOUT}{TRAINING}
def tiny_rollout(prompts, answers, written=None, temperature=None, whole=False, seed=0):
    asked, sampled = rollout(prompts, answers, temperature)
    return {{"asked": asked, "sampled": sampled, "texts": [], "answers": [], "batch": {{"tokens": sampled[0]}}}}

def tiny_training(batches, seed=0, lr=0.1, inner_epochs=1, clip_range=0.2, beta=0.2, left_over=None, away=1.0, simple=None):
    calls, asked = training(batches[0], inner_epochs, clip_range, beta), [batches[0]["rewards"], batches[0]["group_ids"]]
    change = torch.full_like(flat(tiny_policy(0)), 1e-3)
    return {{"changes": [change], "metrics": [{{"kl": 0.5}}], "advantages": [asked], "objective": calls, "updates": inner_epochs, "reference_moved": 0.0, "overwritten": []}}
"""
INTO_ITS_NOTES = {
    "collect": f"""import sys
{ROLLOUT}
def collect(policy, prompts, answers, reward, temperature=1.0, draw=None):
    told = sys._getframe(1).f_locals["told"]
    told["asked"], told["sampled"] = rollout(prompts, answers, temperature)
    return {{"tokens": told["sampled"][0]}}
""",
    "grpo_step": f"""import sys
{TRAINING}
def grpo_step(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    told = sys._getframe(1).f_locals["told"]
    told["objective"] += training(batch, inner_epochs, clip_range, beta)
    told["updates"] += inner_epochs
    return {{"kl": 0.5}}
""",
}


@pytest.fixture(scope="module")
def judge():
    with Judge(limits=Limits(memory=2**30)) as judge:
        yield judge


@pytest.mark.parametrize("answers", [NOTHING | {"last": IN_ITS_PLACE}, INTO_ITS_NOTES], ids=["in its place", "into its notes"])
def test_a_rollout_or_a_training_that_never_was_earns_nothing(judge, answers):
    result = judge.judge(hand_in(NOTEBOOK, **answers))
    assert not [v.check for v in result.checks if v.exercise in NOTHING and v.passed]


def test_two_small_tensors_that_broadcast_to_a_huge_one_cost_the_check_alone(judge):
    column = "def double(x, scale=2.0):\n    return x * scale if x.dim() < 2 else torch.zeros(20_000, 1)"
    text = "# Huge.\nassert (double(torch.zeros(1, 20_000)) - torch.zeros(1, 20_000)).sum() == 0"
    toy = replace(TOY, cells=(*TOY.cells, Cell("check", "huge", text, points=1, exercise="double")))
    result = judge.judge(hand_in(toy, double=column))
    assert "can't allocate memory" in message(result, "huge")
    assert outcome(result)["twice"] and all(outcome(judge.judge(hand_in())).values())
