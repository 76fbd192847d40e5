"""Conventions that published trainers keep and this course does not: other numbers, and no mistakes.

A convention is the course's own function with some choices made otherwise. What is said here of TRL and verl,
tests/parity reads off their installed code.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator

import torch


def group_advantages(rewards, group_ids, eps=1e-6, *, std="population", small="clamped", alone="zero", digits="float64"):
    """Rewards [N], group_ids [N] -> [N]."""
    r = rewards.double() if digits == "float64" else rewards.float()
    advantages = torch.zeros_like(r)
    for g in group_ids.unique():
        mine = group_ids == g
        own = r[mine]
        centred = own - own.mean()
        if len(own) == 1 and alone != "zero":
            advantages[mine] = own if alone == "raw" else torch.full_like(own, torch.nan)
        elif std == "none":
            advantages[mine] = centred
        else:
            spread = own.std(unbiased=std == "sample") if len(own) > 1 else own.new_zeros(())
            advantages[mine] = centred / (
                spread.clamp_min(eps) if small == "clamped" else spread + (eps if small == "eps" else float(small))
            )
    return advantages.to(rewards.dtype if rewards.is_floating_point() else torch.float32)


def compute_grpo_loss(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6, *, bound="none", **choices):
    """[N] four times -> (loss, a scalar; advantages [N])."""
    advantages = group_advantages(rewards, group_ids, eps, **choices).to(log_probs_new.dtype)
    ratio = torch.exp(log_probs_new - log_probs_old)
    return -_surrogate(ratio, advantages, clip_range, bound).mean(), advantages


def kl_estimates(log_probs, ref_log_probs, *, k3="whole"):
    """Two of any shape -> k1, k2, k3 of that shape."""
    k1 = log_probs - ref_log_probs
    return k1, k1**2 / 2, _k3(k1, k3)


def grpo_objective(
    log_probs_new,
    log_probs_old,
    ref_log_probs,
    advantages,
    mask,
    clip_range=0.2,
    beta=0.04,
    aggregate="sequence",
    max_length=None,
    *,
    mean="",
    empty="counted",
    ratio="token",
    bound="none",
    k3="whole",
):
    """[N, T] three times, [N], [N, T] -> (loss, a scalar; metrics)."""
    mask = mask.bool()
    new, old, ref = (x.masked_fill(~mask, 0.0) for x in (log_probs_new, log_probs_old, ref_log_probs))
    length = mask.sum(1, keepdim=True)
    log_ratio = new - old
    if ratio == "response":
        log_ratio = (log_ratio.sum(1, keepdim=True) / length.clamp_min(1)).expand_as(new)
    weight, advantage = log_ratio.exp(), advantages[:, None]
    surrogate = _surrogate(weight, advantage, clip_range, bound).masked_fill(~mask, 0.0)
    kl = _k3(new - ref, k3) * (weight if k3 == "weighted" else 1)
    per_token = -surrogate + (0 if k3 == "watched" else beta) * kl
    answers = len(mask) if empty == "counted" else (length > 0).sum().clamp_min(1)
    match mean or aggregate:
        case "sequence":
            loss = (per_token.sum(1, keepdim=True) / length.clamp_min(1)).sum() / answers
        case "token":
            loss = per_token.sum() / length.sum().clamp_min(1)
        case _:
            loss = per_token.sum() / (answers * (max_length or mask.shape[1]))
    taken = ((advantage > 0) & (weight > 1 + clip_range)) | ((advantage < 0) & (weight < 1 - clip_range))
    watched = {"policy_loss": -surrogate, "kl": kl, "clip_fraction": (taken & mask).float()}
    return loss, {name: (x.sum() / mask.sum().clamp_min(1)).detach() for name, x in watched.items()}


def response_mask(tokens, eos_id, *, cut_off="counted"):
    """Tokens [N, T] -> [N, T]."""
    ends = (tokens == eos_id).long()
    mask = ends.cumsum(-1) - ends == 0
    return mask if cut_off == "counted" else mask & (ends.sum(-1, keepdim=True) > 0)


def _surrogate(ratio, advantages, clip_range, bound):
    smaller = torch.minimum(ratio * advantages, ratio.clamp(1 - clip_range, 1 + clip_range) * advantages)
    return torch.where(advantages < 0, torch.maximum(smaller, 3 * advantages), smaller) if bound == "dual" else smaller


def _k3(k1, k3):
    if k3 == "none":
        return torch.zeros_like(k1)
    if k3 == "cut":
        k1 = k1.clamp(-20, 20)
    whole = torch.expm1(-k1) + k1
    return whole.clamp(-10, 10) if k3 == "cut" else whole


_ADVANTAGES = {
    "std": {
        "sample": "The std is the sample's, with G - 1 in the divisor (TRL, verl).",
        "none": "The std is left out (Dr. GRPO; TRL with scale_rewards='none', verl with norm_adv_by_std_in_grpo=False).",
    },
    "small": {
        "eps": "eps is added to the std, which is not clamped at it (verl, with 1e-6).",
        "1e-4": "1e-4 is added to the std, whatever eps is (TRL).",
        "1e-6": "1e-6 is added to the std, whatever eps is (verl).",
    },
    "alone": {
        "raw": "A group of one keeps its raw reward (verl).",
        "nan": "A group of one gets NaN, the sample std of one number (TRL refuses such groups).",
    },
    "digits": {"float32": "Means and stds are counted in float32, so that equal rewards can leave a residue (TRL, verl)."},
}
_BOUND = {"dual": "A bad answer's ratio is bounded at 3, too: dual-clip PPO (verl, clip_ratio_c=3)."}
_CUT = "The log-ratio in k3 is cut at 20 and k3 at 10 (verl's low_var_kl)."

# exercise -> its function, and the choices that can be made otherwise: name -> option -> what it is, and whose
CONVENTIONS: dict[str, tuple[Callable, dict[str, dict[str, str]]]] = {
    "group_advantages": (group_advantages, _ADVANTAGES),
    "compute_grpo_loss": (compute_grpo_loss, _ADVANTAGES | {"bound": _BOUND}),
    "kl_estimates": (kl_estimates, {"k3": {"cut": _CUT}}),
    "grpo_objective": (
        grpo_objective,
        {
            "mean": {
                "token": "The mean is over all tokens of the batch (DAPO; TRL's default loss_type 'dapo', verl's default 'token-mean').",
                "constant": "The sum over all tokens is divided by N and a constant length (Dr. GRPO; TRL's 'dr_grpo', verl's "
                "'seq-mean-token-sum-norm').",
                "sequence": "The mean is over each response, then over the responses (the GRPO paper; TRL's 'grpo', verl's "
                "'seq-mean-token-mean').",
            },
            "k3": {
                "none": "There is no KL term (DAPO, Dr. GRPO; TRL's default, beta=0).",
                "watched": "There is no KL term in the loss, k3 is only watched (DAPO, Dr. GRPO; TRL's default, beta=0).",
                "weighted": "k3 is weighted by the ratio, so that its gradient is the KL's (DeepSeek-V3.2; TRL's use_bias_correction_kl).",
                "cut": _CUT,
            },
            "bound": _BOUND,
            "ratio": {
                "response": "A response has one ratio, its tokens' geometric mean (GSPO; TRL's importance_sampling_level='sequence')."
            },
            "empty": {"left out": "A response without tokens does not count in N (verl)."},
        },
    ),
    "response_mask": (
        response_mask,
        {"cut_off": {"left out": "An answer that never ends does not count at all (DAPO; TRL with mask_truncated_completions=True)."}},
    ),
}


def conventions(exercise: str) -> Iterator[tuple[tuple[str, ...], Callable]]:
    """Every way to choose otherwise, the fewest departures first: what each departure is, and the function that makes them."""
    if exercise not in CONVENTIONS:
        return
    function, choices = CONVENTIONS[exercise]
    ways = itertools.product(*([(name, option) for option in ("", *options)] for name, options in choices.items()))
    for way in sorted(ways, key=lambda way: sum(bool(option) for _, option in way)):
        chosen = {name: option for name, option in way if option}
        added = "small" in chosen  # nobody adds to a std that is left out, and the residue of float32 is excused only in published formulas
        if chosen and added >= ("digits" in chosen) and not (added and chosen.get("std") == "none"):
            yield tuple(choices[name][option] for name, option in chosen.items()), functools.partial(function, **chosen)
