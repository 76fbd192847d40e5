"""The answer key's numbers are TRL's, and what the course says of TRL is so in the release that is installed."""

import functools

import pytest
import torch

from grader.course.trusted import namespace
from grader.feedback import conventions
from tests.conftest import COURSE, missing
from tests.parity.trainers import trl_advantages, trl_defaults, trl_loss, trl_trainer

MISSING = missing("trl", "pip install -e '.[bench]'")
pytestmark = [
    pytest.mark.thorough,
    pytest.mark.filterwarnings("ignore"),  # theirs
    pytest.mark.skipif(bool(MISSING), reason=MISSING),
]
T = 6


@pytest.fixture(scope="module")
def trainer(tmp_path_factory):
    return trl_trainer(tmp_path_factory.mktemp("trl"), beta=0.04)


@functools.cache
def key(number):
    return namespace(COURSE[number - 1])


def batch(seed):
    """Tokens [5, T] in every clip region, answers of 1 to T tokens, one advantage 0."""
    draw = torch.Generator().manual_seed(seed)
    old = -3 * torch.rand(5, T, generator=draw) - 0.1
    new = old + 0.6 * torch.randn(5, T, generator=draw)
    ref = new + 0.5 * torch.randn(5, T, generator=draw)
    advantages = torch.tensor([1.5, -1.0, 0.0, 0.7, -2.0])
    mask = torch.arange(T) < torch.tensor([[6], [1], [4], [3], [5]])
    return new, old, ref, advantages, mask


def value_and_gradient(loss, new, *rest):
    new = new.clone().requires_grad_()
    value = loss(new, *rest)
    (value[0] if isinstance(value, tuple) else value).backward()
    return (value[0] if isinstance(value, tuple) else value).detach(), new.grad


@pytest.mark.parametrize("beta", [0.0, 0.04])
@pytest.mark.parametrize(("loss_type", "how"), [("grpo", "sequence"), ("bnpo", "token"), ("dapo", "token"), ("dr_grpo", "constant")])
def test_the_objective_is_that_of_trl(trainer, monkeypatch, loss_type, how, beta):
    monkeypatch.setattr(trainer, "loss_type", loss_type)
    monkeypatch.setattr(trainer, "beta", beta)
    monkeypatch.setattr(trainer.args, "use_bias_correction_kl", False)
    assert trainer.max_completion_length == T  # the length of dr_grpo
    for seed in range(5):
        given = batch(seed)
        theirs, their_gradient = value_and_gradient(functools.partial(trl_loss, trainer), *given)
        ours, our_gradient = value_and_gradient(functools.partial(key(3)["grpo_objective"], beta=beta, aggregate=how), *given)
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=2e-7)
        torch.testing.assert_close(our_gradient, their_gradient, rtol=1e-6, atol=2e-7)
        conventional = functools.partial(conventions.grpo_objective, beta=beta, aggregate="", mean=how)
        value, gradient = value_and_gradient(conventional, *given)
        torch.testing.assert_close(value, theirs, rtol=1e-6, atol=2e-7)
        torch.testing.assert_close(gradient, their_gradient, rtol=1e-6, atol=2e-7)


@pytest.mark.parametrize(("loss_type", "how"), [("grpo", "sequence"), ("dapo", "token"), ("dr_grpo", "constant")])
def test_so_is_the_token_loss_of_notebook_2(trainer, monkeypatch, loss_type, how):
    monkeypatch.setattr(trainer, "loss_type", loss_type)
    monkeypatch.setattr(trainer, "beta", 0.0)
    new, old, ref, advantages, mask = batch(9)
    theirs, their_gradient = value_and_gradient(functools.partial(trl_loss, trainer), new, old, ref, advantages, mask)
    ours, our_gradient = value_and_gradient(functools.partial(key(2)["grpo_token_loss"], aggregate=how), new, old, advantages, mask)
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=2e-7)
    torch.testing.assert_close(our_gradient, their_gradient, rtol=1e-6, atol=2e-7)


def test_by_default_trl_weights_k3_by_the_ratio(trainer, monkeypatch):
    monkeypatch.setattr(trainer, "loss_type", "grpo")
    assert trainer.args.use_bias_correction_kl
    theirs = value_and_gradient(functools.partial(trl_loss, trainer), *batch(3))
    ours = value_and_gradient(functools.partial(conventions.grpo_objective, k3="weighted"), *batch(3))
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=2e-7)


def test_gspo_has_one_ratio_for_a_response(trainer, monkeypatch):
    monkeypatch.setattr(trainer, "loss_type", "grpo")
    monkeypatch.setattr(trainer, "beta", 0.0)
    monkeypatch.setattr(trainer, "importance_sampling_level", "sequence")
    theirs = value_and_gradient(functools.partial(trl_loss, trainer), *batch(3))
    ours = value_and_gradient(functools.partial(conventions.grpo_objective, beta=0.0, ratio="response"), *batch(3))
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=2e-7)


@pytest.mark.parametrize("scale", ["group", "none"])
@pytest.mark.parametrize("rewards", [[0.0, 1.0, 0.0, 0.5], [0.0, 2**-14, 0.0, 0.0], [0.9] * 4, [1000.0, 1000.25, 1000.5, 1000.0]])
def test_the_advantages_are_of_the_convention_that_is_called_trls(trainer, monkeypatch, rewards, scale):
    monkeypatch.setattr(trainer, "scale_rewards", scale)
    theirs = trl_advantages(trainer, rewards)
    choices = {"std": "sample", "small": "1e-4"} if scale == "group" else {"std": "none"}
    ours = conventions.group_advantages(torch.tensor(rewards), torch.zeros(4, dtype=torch.long), **choices, digits="float32")
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-3 if rewards == [0.9] * 4 else 1e-6)  # ties leave a residue


def test_a_group_of_one_gets_0_where_there_can_be_one(trainer, monkeypatch):
    monkeypatch.setattr(trainer, "num_generations", 1)  # as in an evaluation; to train with it is refused, see below
    assert trl_advantages(trainer, [3.0]).tolist() == [0.0]


def test_log_probs_are_those_of_trl():
    from trl.trainer.utils import selective_log_softmax

    draw = torch.Generator().manual_seed(0)
    logits, tokens = 4 * torch.randn(3, 5, 7, generator=draw), torch.randint(7, (3, 5), generator=draw)
    for temperature in (1.0, 0.7):
        ours = key(4)["token_log_probs"](logits.clone(), tokens, temperature=temperature)
        torch.testing.assert_close(ours, selective_log_softmax(logits / temperature, tokens), rtol=1e-6, atol=1e-6)


def test_defaults_that_the_course_tells():
    told = {"loss_type": "dapo", "beta": 0.0, "epsilon": 0.2, "epsilon_high": None, "scale_rewards": "group"}
    told |= {
        "importance_sampling_level": "token",
        "mask_truncated_completions": False,
        "num_generations": 8,
        "use_bias_correction_kl": True,
    }
    assert {name: trl_defaults()[name] for name in told} == told


def test_dr_grpo_leaves_the_std_in(tmp_path):
    from trl import GRPOConfig

    config = GRPOConfig(output_dir=str(tmp_path), loss_type="dr_grpo", use_cpu=True, bf16=False, report_to="none")
    assert config.scale_rewards == "group"


def test_a_group_of_one_is_refused(tmp_path):
    from trl import GRPOConfig

    with pytest.raises(ValueError, match="at least 2 generations"):
        GRPOConfig(output_dir=str(tmp_path), num_generations=1, use_cpu=True, bf16=False, report_to="none")
