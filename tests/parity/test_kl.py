"""The KL estimates against an enumeration of every answer: two tokens, three words, the second token's odds by the first."""

import itertools

import pytest
import torch

from grader.course.trusted import namespace
from tests.conftest import COURSE

ANSWERS = list(itertools.product(range(3), repeat=2))


def log_probs(logits):
    """Logits [4, 3], those of the first token and those of the second after each first -> [9, 2], both tokens' of every answer."""
    rows = logits.log_softmax(-1)
    return torch.stack([torch.stack([rows[0, a], rows[1 + a, b]]) for a, b in ANSWERS])


@pytest.fixture(scope="module")
def enumerated():
    """Name -> (a number, its gradient): the mean over all answers of the sum over tokens of each estimate, and the exact KL both ways."""
    estimates = namespace(COURSE[2])["kl_estimates"]
    draw = torch.Generator().manual_seed(3)
    logits, ref = torch.randn(2, 4, 3, generator=draw, dtype=torch.float64).unbind()
    logits.requires_grad_()
    new, old = log_probs(logits), log_probs(ref)
    p, q = new.sum(1).exp(), old.sum(1).exp()
    found = {name: p.detach() @ k.sum(1) for name, k in zip(("k1", "k2", "k3"), estimates(new, old), strict=True)}
    found["k3 by the ratio"] = p.detach() @ (torch.exp(new - new.detach()) * estimates(new, old)[2]).sum(1)
    found |= {"KL": p @ (p / q).log(), "KL the other way": q @ (q / p).log()}
    return {name: (x.detach(), torch.autograd.grad(x, logits, retain_graph=True)[0]) for name, x in found.items()}


def test_k1_and_k3_are_right_on_average(enumerated):
    torch.testing.assert_close(enumerated["k1"][0], enumerated["KL"][0])
    torch.testing.assert_close(enumerated["k3"][0], enumerated["KL"][0])
    assert abs(enumerated["k2"][0] - enumerated["KL"][0]) > 1e-3


def test_as_a_loss_k2_and_k3_by_the_ratio_are_right_for_a_token(enumerated):
    """For the last token, after which nothing comes: an estimate of one token does not know what it brings about later."""
    (_, k1), (_, k2), (_, k3), (_, weighted), (_, kl), (_, other) = enumerated.values()
    torch.testing.assert_close(k2[1:], kl[1:])
    torch.testing.assert_close(weighted[1:], kl[1:])
    torch.testing.assert_close(k1, torch.zeros_like(k1))
    torch.testing.assert_close(k3[0], other[0])  # k3 alone pulls as the other KL does
    assert (k3[1:] - kl[1:]).abs().max() > 1e-3
