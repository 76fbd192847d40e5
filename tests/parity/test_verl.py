"""The answer key's numbers are verl's, but for the bounds that verl adds; and what the course says of verl is so."""

import functools
from types import SimpleNamespace

import pytest
import torch

from grader.feedback import conventions
from tests.conftest import missing
from tests.parity.test_trl import batch, key, value_and_gradient
from tests.parity.trainers import verl_core, verl_defaults

MISSING = missing("verl", "pip install --no-deps verl: what is tested needs no Ray") or missing("transformers", "pip install -e '.[bench]'")
pytestmark = [
    pytest.mark.thorough,
    pytest.mark.filterwarnings("ignore"),  # theirs
    pytest.mark.skipif(bool(MISSING), reason=MISSING),
]
MODES = [("seq-mean-token-mean", "sequence"), ("token-mean", "token"), ("seq-mean-token-sum-norm", "constant")]


@pytest.fixture(scope="module")
def verl():
    return verl_core()


def policy_loss(core, mode, new, old, advantages, mask, clip_range=0.2, low=None, high=None):
    config = SimpleNamespace(clip_ratio=clip_range, clip_ratio_low=low, clip_ratio_high=high, global_batch_info={})
    config.get = lambda name, default: default
    return core.compute_policy_loss_vanilla(old, new, advantages[:, None].expand_as(new), mask.float(), mode, config)[0]


def objective(core, mode, new, old, ref, advantages, mask, beta=0.04):
    """As verl's actor adds them up: each part aggregated, the KL with kl_loss_coef."""
    kl = core.agg_loss(core.kl_penalty(new, ref, "low_var_kl"), mask.float(), mode)
    return policy_loss(core, mode, new, old, advantages, mask) + beta * kl


@pytest.mark.parametrize(("mode", "how"), MODES)
def test_the_objective_is_that_of_verl(verl, mode, how):
    for seed in range(5):
        new, old, *rest = batch(seed)
        given = torch.minimum(new, old + 1), old, *rest  # a ratio above 3 is another test's
        theirs = value_and_gradient(functools.partial(objective, verl[0], mode), *given)
        ours = value_and_gradient(functools.partial(key(3)["grpo_objective"], aggregate=how), *given)
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=2e-7)


@pytest.mark.parametrize(("mode", "how"), MODES)
def test_beyond_the_bounds_it_is_of_the_convention_that_is_called_verls(verl, mode, how):
    new, old, ref, advantages, mask = batch(1)
    new, ref = new + 3, ref - 3  # ratios above 3, k3 above 10
    mask[3] = False  # verl does not count a response without tokens
    theirs = value_and_gradient(functools.partial(objective, verl[0], mode), new, old, ref + 8, advantages, mask)
    choices = {"mean": how, "bound": "dual", "k3": "cut", "empty": "left out"}
    ours = value_and_gradient(functools.partial(conventions.grpo_objective, **choices), new, old, ref + 8, advantages, mask)
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=2e-7)
    whole, _ = value_and_gradient(functools.partial(conventions.grpo_objective, aggregate=how), new, old, ref + 8, advantages, mask)
    assert abs(whole - theirs[0]) > 0.1


@pytest.mark.parametrize("by_std", [True, False])
def test_the_advantages_are_of_the_convention_that_is_called_verls(verl, by_std):
    rewards = torch.tensor([0.0, 1.0, 0.5, 3.0, 0.0, 2**-14, 0.9, 0.9, 0.9])
    ids = torch.tensor([5, 5, 5, 2, 7, 7, 1, 1, 1])
    theirs, _ = verl[0].compute_grpo_outcome_advantage(
        rewards[:, None].clone(), torch.ones(9, 1), ids.numpy(), norm_adv_by_std_in_grpo=by_std
    )
    choices = {"std": "sample", "small": "1e-6"} if by_std else {"std": "none"}
    ours = conventions.group_advantages(rewards, ids, **choices, alone="raw", digits="float32")
    torch.testing.assert_close(ours, theirs[:, 0], rtol=1e-5, atol=2e-6)


def test_the_three_kl_estimates_are_those_of_verl(verl):
    new, _, ref, *_ = batch(4)
    for ours, name in zip(key(3)["kl_estimates"](new, ref), ("k1", "k2", "k3"), strict=True):
        torch.testing.assert_close(ours, verl[0].kl_penalty(new, ref, name), rtol=1e-6, atol=5e-7)


def test_masks_and_log_probs_are_those_of_verl(verl):
    draw = torch.Generator().manual_seed(0)
    tokens = torch.randint(4, (20, 6), generator=draw)
    assert torch.equal(key(4)["response_mask"](tokens, 3).long(), verl[1].get_response_mask(tokens, 3))
    logits, tokens = 4 * torch.randn(3, 5, 7, generator=draw), torch.randint(7, (3, 5), generator=draw)
    torch.testing.assert_close(
        key(4)["token_log_probs"](logits, tokens), verl[1].logprobs_from_logits_v2(logits, tokens), rtol=1e-6, atol=1e-6
    )


def test_clip_ratio_alone_changes_nothing(verl):
    """Since the two sides have defaults of their own."""
    low, high = (verl_defaults(f"actor_rollout_ref.actor.clip_ratio_{side}") for side in ("low", "high"))
    new, old, _, advantages, mask = batch(2)
    losses = [policy_loss(verl[0], "token-mean", new, old, advantages, mask, clip, low, high) for clip in (0.2, 0.9)]
    assert losses[0] == losses[1] != policy_loss(verl[0], "token-mean", new, old, advantages, mask, 0.9)


def test_defaults_that_the_course_tells():
    told = {"clip_ratio": 0.2, "clip_ratio_c": 3.0, "loss_agg_mode": "token-mean", "use_kl_loss": False, "kl_loss_type": "low_var_kl"}
    assert {name: verl_defaults(f"actor_rollout_ref.actor.{name}") for name in told} == told
