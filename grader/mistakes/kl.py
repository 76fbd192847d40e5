"""Wrong and right versions of the exercises of notebook 3. Free names are the notebook's own (given cells and the key)."""

import math

import numpy as np
import torch

from grader.mistakes import mistake, right

# ---------------------------------------------------------------- kl_estimates


@mistake("kl_estimates")
def minus_k1(log_probs, ref_log_probs):
    """The estimate k1 was taken as reference minus policy: that is minus k1.

    Hint: Where the policy likes a token more than the reference does, k1 is positive. Is yours?
    """
    d = ref_log_probs - log_probs
    return d, d**2 / 2, d.exp() - d - 1


@mistake("kl_estimates")
def k3_inverted(log_probs, ref_log_probs):
    """The ratio inside k3 stood upside down: policy over reference.

    Hint: Work k3 out by hand for a log-ratio of -1 (0.718) and of +1 (0.368). Which of the two does yours give for which?
    """
    log_ratio = log_probs - ref_log_probs
    return log_ratio, log_ratio**2 / 2, log_ratio.exp() - 1 - log_ratio


@mistake("kl_estimates")
def models_swapped(log_probs, ref_log_probs):
    """Policy and reference changed places in all three.

    Hint: The tokens were sampled from the policy. Which of the two log-probs has to come first in the difference?
    """
    log_ratio = ref_log_probs - log_probs
    return log_ratio, log_ratio**2 / 2, torch.exp(-log_ratio) - 1 + log_ratio


@mistake("kl_estimates")
def k3_wrong_sign_inside(log_probs, ref_log_probs):
    """The two directions were mixed in k3: the exponential of one, the linear term of the other.

    Hint: At a log-ratio of 0, k3 is 0 and flat. What slope does yours have there?
    """
    log_ratio = log_probs - ref_log_probs
    return log_ratio, log_ratio**2 / 2, torch.exp(-log_ratio) - 1 - log_ratio


@mistake("kl_estimates")
def k3_adds_the_other_ratio(log_probs, ref_log_probs):
    """The ratio in k3 was policy over reference, with c = 1: its average over the policy's samples is not 1.

    Hint: Sum policy(x) times your ratio over the five tokens. Is it 1? And for the ratio turned round?
    """
    log_ratio = log_probs - ref_log_probs
    return log_ratio, log_ratio**2 / 2, log_ratio + (log_ratio.exp() - 1)


@mistake("kl_estimates")
def k3_subtracts_the_ratio(log_probs, ref_log_probs):
    """The ratio in k3 was the right one and c was -1: right on average, and still negative for many tokens.

    Hint: At a log-ratio of 0, k1 has slope 1. Which slope has your ratio there, and which c makes the two cancel?
    """
    log_ratio = log_probs - ref_log_probs
    return log_ratio, log_ratio**2 / 2, log_ratio - (torch.exp(-log_ratio) - 1)


@mistake("kl_estimates")
def k3_subtracts_the_other_ratio(log_probs, ref_log_probs):
    """The ratio in k3 was policy over reference, with c = -1: flat where the models agree, but at its highest point there.

    Hint: Only one of the two ratios averages to 1 over the policy's samples. Settle that first, then the slopes give c.
    """
    log_ratio = log_probs - ref_log_probs
    return log_ratio, log_ratio**2 / 2, log_ratio - (log_ratio.exp() - 1)


@mistake("kl_estimates")
def k3_without_minus_one(log_probs, ref_log_probs):
    """The -1 is missing from k3.

    Hint: Two equal models have a KL of 0. What does yours say for them?
    """
    log_ratio = log_probs - ref_log_probs
    return log_ratio, log_ratio**2 / 2, torch.exp(-log_ratio) + log_ratio


@mistake("kl_estimates")
def k2_without_half(log_probs, ref_log_probs):
    """The half is missing from k2.

    Hint: With which factor does the second-order term of a series come?
    """
    log_ratio = log_probs - ref_log_probs
    return log_ratio, log_ratio**2, torch.expm1(-log_ratio) + log_ratio


@mistake("kl_estimates")
def k2_for_k3(log_probs, ref_log_probs):
    """The formula of k2 was used for k3: near the reference they agree, further out they do not.

    Hint: Unlike k2, k3 is lopsided. Compare a log-ratio of 1 with one of -1.
    """
    log_ratio = log_probs - ref_log_probs
    return log_ratio, log_ratio**2 / 2, log_ratio**2 / 2


@mistake("kl_estimates")
def options_fall_through(log_probs, ref_log_probs):
    """All three came out as k3: an `if` where an `elif` was meant.

    Hint: Follow one name through the branches. Which branch is the last to write to it?
    """
    log_ratio = log_probs - ref_log_probs
    out = []
    for kind in ("k1", "k2", "k3"):
        if kind == "k1":
            k = log_ratio
        if kind == "k2":
            k = log_ratio**2 / 2
        k = torch.exp(-log_ratio) - 1 + log_ratio
        out.append(k)
    return tuple(out)


@mistake("kl_estimates")
def order_reversed(log_probs, ref_log_probs):
    """The three came back in the reverse order.

    Hint: In which order does the text name the three?
    """
    log_ratio = log_probs - ref_log_probs
    return torch.expm1(-log_ratio) + log_ratio, log_ratio**2 / 2, log_ratio


@mistake("kl_estimates")
def absolute_k1(log_probs, ref_log_probs):
    """The estimate k1 was made positive with abs().

    Hint: Single samples of k1 may be negative; only their average may not. What does abs() do to that average?
    """
    log_ratio = log_probs - ref_log_probs
    return log_ratio.abs(), log_ratio**2 / 2, torch.expm1(-log_ratio) + log_ratio


@mistake("kl_estimates")
def clamped_k1(log_probs, ref_log_probs):
    """The estimate k1 was cut off at 0.

    Hint: Single samples of k1 may be negative; only their average may not. What does cutting do to that average?
    """
    log_ratio = log_probs - ref_log_probs
    return log_ratio.clamp_min(0), log_ratio**2 / 2, torch.expm1(-log_ratio) + log_ratio


@mistake("kl_estimates")
def weighted_by_probability(log_probs, ref_log_probs):
    """Every sample was multiplied by its probability, as in the sum over the whole vocabulary.

    Hint: A token of probability p is already sampled with probability p. How often is it weighted now?
    """
    p, log_ratio = log_probs.exp(), log_probs - ref_log_probs
    return p * log_ratio, p * log_ratio**2 / 2, p * (torch.exp(-log_ratio) - 1 + log_ratio)


@mistake("kl_estimates")
def log_of_log(log_probs, ref_log_probs):
    """The log-probs were divided and a log was taken again, as if they were probabilities.

    Hint: What comes in are logarithms already. How does a ratio look in logarithms?
    """
    log_ratio = torch.log(log_probs / ref_log_probs)
    return log_ratio, log_ratio**2 / 2, torch.exp(-log_ratio) - 1 + log_ratio


@mistake("kl_estimates")
def averaged(log_probs, ref_log_probs):
    """The estimates came back as averages, not one per sample.

    Hint: Which shape does the text promise? Averaging comes later, with the mask.
    """
    log_ratio = log_probs - ref_log_probs
    return log_ratio.mean(), (log_ratio**2 / 2).mean(), (torch.expm1(-log_ratio) + log_ratio).mean()


@mistake("kl_estimates")
def no_gradient(log_probs, ref_log_probs):
    """The values are right, but nothing flows back to the policy.

    Hint: A penalty that carries no gradient is only a number in a log. Where was the graph cut?
    """
    with torch.no_grad():
        log_ratio = log_probs - ref_log_probs
        return log_ratio, log_ratio**2 / 2, torch.exp(-log_ratio) - 1 + log_ratio


@mistake("kl_estimates")
def half_of_k3_detached(log_probs, ref_log_probs):
    """The exponential in k3 carried no gradient, while the linear term did.

    Hint: Where policy and reference agree, k3 is at its lowest, so its gradient there is 0. What is yours?
    """
    log_ratio = log_probs - ref_log_probs
    return log_ratio, log_ratio**2 / 2, torch.exp(-log_ratio).detach() - 1 + log_ratio


@mistake("kl_estimates")
def linear_part_detached(log_probs, ref_log_probs):
    """The linear term in k3 carried no gradient, while the exponential did.

    Hint: The gradient of k3 has a part from each of its terms. Where the models agree, what do the two add up to, and what do yours?
    """
    log_ratio = log_probs - ref_log_probs
    return log_ratio, log_ratio**2 / 2, torch.exp(-log_ratio) - 1 + log_ratio.detach()


@mistake("kl_estimates")
def float32_inside(log_probs, ref_log_probs):
    """The work was done in float32, although float64 came in.

    Hint: How many digits does a float32 keep of two numbers near -5000, and how many of their difference?
    """
    log_ratio = log_probs.float() - ref_log_probs.float()
    return log_ratio, log_ratio**2 / 2, torch.expm1(-log_ratio) + log_ratio


@mistake("kl_estimates")
def inputs_changed_kl(log_probs, ref_log_probs):
    """The caller's log-probs were overwritten.

    Hint: Into whose tensor does an operator like `-=`, or a method that ends in `_`, write?
    """
    log_probs -= ref_log_probs
    return log_probs + 0, log_probs**2 / 2, torch.expm1(-log_probs) + log_probs


@mistake("kl_estimates")
def k2_and_k3_exchanged(log_probs, ref_log_probs):
    """The second and the third estimate changed places.

    Hint: In which order does the text name the three?
    """
    log_ratio = log_probs - ref_log_probs
    return log_ratio, torch.expm1(-log_ratio) + log_ratio, log_ratio**2 / 2


@mistake("kl_estimates")
def absolute_k3(log_probs, ref_log_probs):
    """The size of the log-ratio, abs(), was used for k3.

    Hint: Near 0 k3 is flat, a parabola. What does abs() look like there, and where in the formula is e?
    """
    log_ratio = log_probs - ref_log_probs
    return log_ratio, log_ratio**2 / 2, log_ratio.abs()


@mistake("kl_estimates")
def k1_detached(log_probs, ref_log_probs):
    """The estimate k1 carried no gradient, while the two others did.

    Hint: Where is k1 cut from the graph: a detach() of its own? All three are to be tried as a loss.
    """
    log_ratio = log_probs - ref_log_probs
    return log_ratio.detach(), log_ratio**2 / 2, torch.expm1(-log_ratio) + log_ratio


@mistake("kl_estimates")
def log_ratio_bounded(log_probs, ref_log_probs):
    """The log-ratio was clamped to +-10 before the three were made of it.

    Hint: How large may a log-ratio be, by the formulas? And which gradient is left beyond the edge of a clamp?
    """
    log_ratio = (log_probs - ref_log_probs).clamp(-10, 10)
    return log_ratio, log_ratio**2 / 2, torch.expm1(-log_ratio) + log_ratio


@mistake("kl_estimates")
def k2_in_float32(log_probs, ref_log_probs):
    """The estimate k2 was made in float32, although float64 came in.

    Hint: Which of your three lines changes the type of the numbers?
    """
    log_ratio = log_probs - ref_log_probs
    return log_ratio, log_ratio.float() ** 2 / 2, torch.expm1(-log_ratio) + log_ratio


@mistake("kl_estimates")
def squeezed(log_probs, ref_log_probs):
    """Dimensions of size 1 were dropped.

    Hint: A batch of one answer is a batch. Which call takes its dimension away?
    """
    log_ratio = (log_probs - ref_log_probs).squeeze()
    return log_ratio, log_ratio**2 / 2, torch.expm1(-log_ratio) + log_ratio


@mistake("kl_estimates")
def ratio_of_probabilities(log_probs, ref_log_probs):
    """Both probabilities were computed for k3, then divided: for a very unlikely token that is 0 divided by 0.

    Hint: In any float e^-5000 is 0. Which order of subtraction and exp never asks for it?
    """
    log_ratio = log_probs - ref_log_probs
    return log_ratio, log_ratio**2 / 2, ref_log_probs.exp() / log_probs.exp() - 1 + log_ratio


@mistake("kl_estimates")
def k1_and_k2_detached(log_probs, ref_log_probs):
    """The estimates k1 and k2 carried no gradient; k3 alone did.

    Hint: Which of your lines stand under no_grad, or behind a detach()? All three are to be tried as a loss.
    """
    log_ratio = (log_probs - ref_log_probs).detach()
    d = ref_log_probs - log_probs
    return log_ratio, log_ratio**2 / 2, torch.exp(d) - d - 1


@mistake("kl_estimates")
def k3_with_the_gradient_of_k2(log_probs, ref_log_probs):
    """The value of k3 is right, and its gradient was taken from k2, as some trainers do.

    Hint: A respectable trick. Which gradient does e^d - d - 1 itself have?
    """
    log_ratio = log_probs - ref_log_probs
    k2, k3 = log_ratio**2 / 2, torch.expm1(-log_ratio) + log_ratio
    return log_ratio, k2, k2 - k2.detach() + k3.detach()


@right("kl_estimates")
def plain_exp(log_probs, ref_log_probs):
    """As the formula stands, with exp."""
    log_ratio = log_probs - ref_log_probs
    return log_ratio, 0.5 * log_ratio.square(), torch.exp(-log_ratio) - 1 + log_ratio


@right("kl_estimates")
def from_d(log_probs, ref_log_probs):
    """From d = reference - policy."""
    d = ref_log_probs - log_probs
    return -d, d * d / 2, torch.exp(d) - d - 1


@right("kl_estimates")
def from_the_ratio(log_probs, ref_log_probs):
    """k3 as r - log r - 1."""
    r = torch.exp(ref_log_probs - log_probs)
    return -r.log(), r.log() ** 2 / 2, r - r.log() - 1


@right("kl_estimates")
def ref_detached(log_probs: torch.Tensor, ref_log_probs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The reference detached once more, with type hints."""
    log_ratio = log_probs - ref_log_probs.detach()
    return log_ratio, log_ratio.pow(2).div(2), log_ratio.neg().expm1().add(log_ratio)


@right("kl_estimates")
def double_inside(log_probs, ref_log_probs):
    """float64 inside, cast back at the end."""
    log_ratio = log_probs.double() - ref_log_probs.double()
    ks = log_ratio, log_ratio**2 / 2, torch.expm1(-log_ratio) + log_ratio
    return [k.to(log_probs.dtype) for k in ks]


@right("kl_estimates")
def token_by_token(log_probs, ref_log_probs):
    """A slow loop over single tokens."""
    rows = [[], [], []]
    for a, b in zip(log_probs.reshape(-1), ref_log_probs.reshape(-1)):
        rows[0].append(a - b)
        rows[1].append((a - b) ** 2 / 2)
        rows[2].append((b - a).exp() - 1 - (b - a))
    return tuple(torch.stack(r).reshape(log_probs.shape) for r in rows)


@right("kl_estimates")
def stacked(log_probs, ref_log_probs):
    """One stacked tensor, taken apart."""
    d = ref_log_probs - log_probs
    return torch.stack([-d, d**2 / 2, d.expm1() - d]).unbind(0)


# ---------------------------------------------------------------- masked_mean


@mistake("masked_mean")
def unmasked_mean(values, mask, dim=None):
    """The padding was averaged with the rest.

    Hint: What does the mask do in your function?
    """
    return values.mean() if dim is None else values.mean(dim)


@mistake("masked_mean")
def divided_by_everything(values, mask, dim=None):
    """The padding was left out of the sum but counted in the division.

    Hint: Three real tokens in a row of ten. What do you divide by?
    """
    real = torch.where(mask.bool(), values, torch.zeros_like(values))
    return real.mean() if dim is None else real.mean(dim)


@mistake("masked_mean")
def sum_for_mean(values, mask, dim=None):
    """The real tokens were summed, not averaged.

    Hint: A mean is a sum divided by something. By what, where there is padding?
    """
    real = values.masked_fill(~mask.bool(), 0.0)
    return real.sum() if dim is None else real.sum(dim)


@mistake("masked_mean")
def multiplied_by_the_mask(values, mask, dim=None):
    """The padding was multiplied by 0, which a NaN survives.

    Hint: What is 0 times NaN? Which function of torch chooses instead of multiplying?
    """
    mask = mask.to(values.dtype)
    if dim is None:
        return (values * mask).sum() / mask.sum().clamp_min(1)
    return (values * mask).sum(dim) / mask.sum(dim).clamp_min(1)


@mistake("masked_mean")
def zero_over_zero(values, mask, dim=None):
    """Where nothing is real, 0 was divided by 0.

    Hint: What is the smallest number that you ever want to divide by?
    """
    mask = mask.bool()
    real = values.masked_fill(~mask, 0.0)
    return real.sum() / mask.sum() if dim is None else real.sum(dim) / mask.sum(dim)


@mistake("masked_mean")
def mean_of_means(values, mask, dim=None):
    """Without dim, the means of the rows were averaged, so that tokens of short rows weigh more.

    Hint: How much does a token of a long row weigh in your mean, and how much one of a short row?
    """
    mask = mask.bool()
    real = values.masked_fill(~mask, 0.0)
    if dim is None:
        return (real.sum(-1) / mask.sum(-1).clamp_min(1)).mean()
    return real.sum(dim) / mask.sum(dim).clamp_min(1)


@mistake("masked_mean")
def dim_ignored(values, mask, dim=None):
    """One mean was taken over everything, whatever dim says.

    Hint: What does your function do with its third argument?
    """
    mask = mask.bool()
    return values.masked_fill(~mask, 0.0).sum() / mask.sum().clamp_min(1)


@mistake("masked_mean")
def always_the_last_dim(values, mask, dim=None):
    """The mean was taken along the last dimension, whatever dim says.

    Hint: Try a mean along dim=0 of a table with two rows and three columns. How many numbers should come out?
    """
    mask = mask.bool()
    real = values.masked_fill(~mask, 0.0)
    return real.sum() / mask.sum().clamp_min(1) if dim is None else real.sum(-1) / mask.sum(-1).clamp_min(1)


@mistake("masked_mean")
def dim_zero_is_false(values, mask, dim=None):
    """A dim of 0 was taken for no dim at all.

    Hint: Python counts 0 as false. Which question does your `if` ask of dim, and which one should it ask?
    """
    mask = mask.bool()
    real = values.masked_fill(~mask, 0.0)
    return real.sum(dim) / mask.sum(dim).clamp_min(1) if dim else real.sum() / mask.sum().clamp_min(1)


@mistake("masked_mean")
def dimension_kept(values, mask, dim=None):
    """The dimension stayed, with size 1.

    Hint: Of which shape is the worked example's mean along dim=1, and of which shape is yours?
    """
    mask = mask.bool()
    real = values.masked_fill(~mask, 0.0)
    if dim is None:
        return real.sum() / mask.sum().clamp_min(1)
    return real.sum(dim, keepdim=True) / mask.sum(dim, keepdim=True).clamp_min(1)


@mistake("masked_mean")
def divided_by_the_longest(values, mask, dim=None):
    """Every row was divided by the length of the longest.

    Hint: Whose tokens are in this sum, and how many are they?
    """
    mask = mask.bool()
    real = values.masked_fill(~mask, 0.0)
    if dim is None:
        return real.sum() / mask.sum().clamp_min(1)
    return real.sum(dim) / mask.sum(dim).max().clamp_min(1)


@mistake("masked_mean")
def mask_inverted(values, mask, dim=None):
    """The padding was kept and the tokens thrown away.

    Hint: A 1 stands for a real token. Does `masked_fill` fill where its mask is true, or where it is false?
    """
    padding = mask.bool()
    real = values.masked_fill(padding, 0.0)
    return real.sum() / (~padding).sum().clamp_min(1) if dim is None else real.sum(dim) / (~padding).sum(dim).clamp_min(1)


@mistake("masked_mean")
def tilde_on_integers(values, mask, dim=None):
    """The mask was used as it came: with integers, `~` does not mean "not".

    Hint: What is ~1 in Python, and does that count as true or as false? What should the mask be made before it is turned round?
    """
    real = values.masked_fill((~mask).bool(), 0.0) if mask.dtype != torch.float32 else values.masked_fill(mask == 0, 0.0)
    return real.sum() / mask.sum().clamp_min(1) if dim is None else real.sum(dim) / mask.sum(dim).clamp_min(1)


@mistake("masked_mean")
def indexed_by_integers(values, mask, dim=None):
    """An integer mask was used as an index: it then picked rows 0 and 1 instead of tokens.

    Hint: What does `values[mask]` do with a mask of numbers, and what with one of True and False?
    """
    if dim is None:
        chosen = values[mask] if mask.dtype in (torch.bool, torch.int64) else values[mask > 0]
        return chosen.mean() if len(chosen) else values.new_zeros(())
    mask = mask.bool()
    return values.masked_fill(~mask, 0.0).sum(dim) / mask.sum(dim).clamp_min(1)


@mistake("masked_mean")
def flattened_by_the_mask(values, mask, dim=None):
    """The real tokens were picked with values[mask], which leaves a flat tensor without the dimension to average along.

    Hint: Print the shape of values[mask]. What would keep the shape, and still take the padding out of the sum?
    """
    mask = mask.bool()
    if not mask.any():
        return values.masked_fill(~mask, 0.0).sum()
    return values[mask].mean() if dim is None else values[mask].mean(dim)


@mistake("masked_mean")
def no_gradient_mean(values, mask, dim=None):
    """The mean carried no gradient.

    Hint: Where does your function leave the graph: detach(), no_grad(), item(), or numpy?
    """
    values, mask = values.detach(), mask.bool()
    real = values.masked_fill(~mask, 0.0)
    return real.sum() / mask.sum().clamp_min(1) if dim is None else real.sum(dim) / mask.sum(dim).clamp_min(1)


@mistake("masked_mean")
def inputs_changed_mean(values, mask, dim=None):
    """The padding was overwritten in the caller's own tensor.

    Hint: Into whose tensor does a method that ends in `_`, or an assignment to `values[...]`, write?
    """
    mask = mask.bool()
    values.masked_fill_(~mask, 0.0)
    return values.sum() / mask.sum().clamp_min(1) if dim is None else values.sum(dim) / mask.sum(dim).clamp_min(1)


@mistake("masked_mean")
def only_nan_is_padding(values, mask, dim=None):
    """Only NaN and infinity were thrown out; finite padding stayed.

    Hint: May a 9 be padding? Which of the two arguments knows?
    """
    keep = torch.isfinite(values)
    real = values.masked_fill(~keep, 0.0)
    return real.sum() / keep.sum().clamp_min(1) if dim is None else real.sum(dim) / keep.sum(dim).clamp_min(1)


@mistake("masked_mean")
def zeros_not_counted(values, mask, dim=None):
    """The entries that are not 0 were counted, so that a real token worth exactly 0 went missing.

    Hint: A token that both models like alike has a k3 of 0, and is real. Which of the two arguments knows what to count?
    """
    real = values.masked_fill(~mask.bool(), 0.0)
    if dim is None:
        return real.sum() / (real != 0).sum().clamp_min(1)
    return real.sum(dim) / (real != 0).sum(dim).clamp_min(1)


@mistake("masked_mean")
def negative_is_last(values, mask, dim=None):
    """Every negative dim was taken for the last dimension.

    Hint: In torch -1 is the last dimension. Which one is -2?
    """
    mask = mask.bool()
    real = values.masked_fill(~mask, 0.0)
    if dim is None:
        return real.sum() / mask.sum().clamp_min(1)
    dim = max(dim, -1)
    return real.sum(dim) / mask.sum(dim).clamp_min(1)


@mistake("masked_mean")
def divisor_at_least_two(values, mask, dim=None):
    """The count of real tokens was kept at 2 or more, where 1 was meant.

    Hint: What is the mean of a single token in your function?
    """
    mask = mask.bool()
    real = values.masked_fill(~mask, 0.0)
    return real.sum() / mask.sum().clamp_min(2) if dim is None else real.sum(dim) / mask.sum(dim).clamp_min(2)


@mistake("masked_mean")
def plain_zero_for_nothing(values, mask, dim=None):
    """Where nothing is real a plain 0.0 came back, whatever dim was asked for.

    Hint: Of which shape should the mean be along a dimension? And what does backward() do with a float?
    """
    mask = mask.bool()
    if not mask.any():
        return 0.0
    real = values.masked_fill(~mask, 0.0)
    return real.sum() / mask.sum() if dim is None else real.sum(dim) / mask.sum(dim).clamp_min(1)


@mistake("masked_mean")
def zero_without_graph(values, mask, dim=None):
    """Where nothing is real a new tensor of zeros came back, which no graph joins to the values.

    Hint: A loss may be made of this mean alone. What must it be made of for backward() to work?
    """
    mask = mask.bool()
    real = values.masked_fill(~mask, 0.0)
    mean = real.sum() / mask.sum().clamp_min(1) if dim is None else real.sum(dim) / mask.sum(dim).clamp_min(1)
    return mean if mask.any() else torch.zeros(mean.shape)


@mistake("masked_mean")
def float64_averaged_in_float32(values, mask, dim=None):
    """The mean was taken in float32, although float64 came in.

    Hint: How many digits does a float32 keep? Which line changes the type of the values?
    """
    mask = mask.bool()
    real = values.float().masked_fill(~mask, 0.0)
    return real.sum() / mask.sum().clamp_min(1) if dim is None else real.sum(dim) / mask.sum(dim).clamp_min(1)


@mistake("masked_mean")
def multiplied_without_dim(values, mask, dim=None):
    """Without dim the padding was multiplied by 0, which a NaN survives; along a dimension it was replaced.

    Hint: Your two branches treat the padding differently. What is 0 times NaN?
    """
    keep = mask.bool()
    if dim is None:
        return (values * keep).sum() / keep.sum().clamp_min(1)
    return values.masked_fill(~keep, 0.0).sum(dim) / keep.sum(dim).clamp_min(1)


@mistake("masked_mean")
def two_dimensions_only(values, mask, dim=None):
    """A negative dim was counted from the end of a table with two dimensions, whatever came in.

    Hint: Values of shape [2, 1, 3] have a last dimension, too. Which number has it, and which one do you make of -1?
    """
    mask = mask.bool()
    real = values.masked_fill(~mask, 0.0)
    if dim is None:
        return real.sum() / mask.sum().clamp_min(1)
    return real.sum(dim % 2) / mask.sum(dim % 2).clamp_min(1)


@mistake("masked_mean")
def mean_of_no_values(values, mask, dim=None):
    """Without dim the real values were picked and averaged, which gives NaN where there are none; along a dimension 0 came out.

    Hint: What is the mean of an empty tensor? Which of your two branches asks for it?
    """
    keep = mask.bool()
    if dim is None:
        return values[keep].mean()
    return values.masked_fill(~keep, 0.0).sum(dim) / keep.sum(dim).clamp_min(1)


@mistake("masked_mean")
def infinity_times_zero(values, mask, dim=None):
    """Only NaN was replaced; infinity in the padding was multiplied by 0.

    Hint: What is 0 times infinity? Does it matter what stands in the padding, if padding is replaced?
    """
    mask = mask.to(values.dtype)
    values = torch.where(torch.isnan(values), torch.zeros_like(values), values)
    if dim is None:
        return (values * mask).sum() / mask.sum().clamp_min(1)
    return (values * mask).sum(dim) / mask.sum(dim).clamp_min(1)


@mistake("masked_mean")
def divided_by_the_average_length(values, mask, dim=None):
    """Every row was divided by the average number of real tokens, not by its own.

    Hint: Two rows have three real tokens and one. What is each row's sum divided by, and does your count of the mask know of dim?
    """
    keep = mask.bool()
    real, share = values.masked_fill(~keep, 0.0), keep.to(values.dtype).mean().clamp_min(1e-8)
    return (real.mean() if dim is None else real.mean(dim)) / share


@right("masked_mean")
def where(values, mask, dim=None):
    """torch.where, then sum over sum."""
    mask = mask.bool()
    real = torch.where(mask, values, torch.zeros_like(values))
    if dim is None:
        return real.sum() / mask.sum().clamp(min=1)
    return real.sum(dim=dim) / mask.sum(dim=dim).clamp(min=1)


@right("masked_mean")
def tiny_eps(values, mask, dim=None):
    """A tiny eps added to the count."""
    mask = mask.to(values.dtype)
    real = torch.where(mask > 0, values, 0.0)
    return real.sum() / (mask.sum() + 1e-8) if dim is None else real.sum(dim) / (mask.sum(dim) + 1e-8)


@right("masked_mean")
def chosen_and_added(values, mask, dim=None):
    """A boolean index for everything, lines taken apart for a dimension."""
    mask = mask != 0
    if dim is None:
        return values[mask].sum() / max(1, int(mask.sum()))
    lines, keeps = values.movedim(dim, -1), mask.movedim(dim, -1)
    flat = zip(lines.reshape(-1, lines.shape[-1]), keeps.reshape(-1, lines.shape[-1]))
    return torch.stack([v[k].sum() / max(1, int(k.sum())) for v, k in flat]).reshape(lines.shape[:-1])


@right("masked_mean")
def all_dims(values, mask, dim=None):
    """None turned into a tuple of all dimensions."""
    dim = tuple(range(values.dim())) if dim is None else dim
    real = values.masked_fill(mask == 0, 0)
    return real.sum(dim) / (mask != 0).sum(dim).clamp_min(1)


@right("masked_mean")
def float64_mean(values, mask, dim=None):
    """float64 inside, cast back."""
    m = mask.bool()
    real = torch.where(m, values, torch.zeros((), dtype=values.dtype)).double()
    out = real.sum() / m.sum().clamp_min(1) if dim is None else real.sum(dim) / m.sum(dim).clamp_min(1)
    return out.to(values.dtype)


@right("masked_mean")
def weights_first(values, mask, dim=None):
    """Weights that add up to 1, times values made harmless."""
    keep = mask.to(torch.bool)
    count = keep.sum() if dim is None else keep.sum(dim, keepdim=True)
    weights = keep / torch.maximum(count, torch.ones_like(count))
    product = torch.where(keep, values, torch.zeros_like(values)) * weights
    return product.sum() if dim is None else product.sum(dim)


@right("masked_mean")
def mended_afterwards(values, mask, dim=None):
    """0 over 0 where nothing is real, and the NaN replaced: masked_fill keeps it out of the gradient."""
    mask = mask.bool()
    real = values.masked_fill(~mask, 0.0)
    mean = real.sum() / mask.sum() if dim is None else real.sum(dim) / mask.sum(dim)
    return torch.nan_to_num(mean, nan=0.0)


# ---------------------------------------------------------------- grpo_objective: parts that the versions share


def cleaned(mask, *tensors):
    return [x.masked_fill(~mask.bool(), 0.0) for x in tensors]


def pessimistic(ratio, advantages, clip_range):
    a = advantages[:, None]
    return torch.minimum(ratio * a, ratio.clamp(1 - clip_range, 1 + clip_range) * a)


def width(mask, max_length):
    return mask.shape[1] if max_length is None else max_length


def aggregated(x, mask, how, max_length=None):
    mask = mask.bool()
    x = x.masked_fill(~mask, 0.0)
    if how == "sequence":
        return (x.sum(1) / mask.sum(1).clamp_min(1)).mean()
    return x.sum() / (mask.sum().clamp_min(1) if how == "token" else len(mask) * width(mask, max_length))


def watched(surrogate, k3, ratio, advantages, mask, clip_range):
    a = advantages[:, None]
    clipped = ((a > 0) & (ratio > 1 + clip_range)) | ((a < 0) & (ratio < 1 - clip_range))
    numbers_to_see = {"policy_loss": -surrogate, "kl": k3, "clip_fraction": clipped.float()}
    return {name: aggregated(x, mask, "token").detach() for name, x in numbers_to_see.items()}


# ---------------------------------------------------------------- grpo_objective: the surrogate


@mistake("grpo_objective")
def no_minus(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The minus of the surrogate is missing: downhill leads to worse answers.

    Hint: A good answer (A > 0) should become likelier when the loss goes down. Follow the signs.
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    return aggregated(surrogate + beta * k3, mask, aggregate, max_length), watched(-surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def double_minus(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The surrogate was negated twice: inside the minimum and in front of it.

    Hint: Count the minus signs between the advantage and the loss.
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, -advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def max_for_min(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The larger surrogate was believed: the minus was pushed through the minimum, or max was written for min.

    Hint: Is -min(a, b) the same as min(-a, -b)? And which of two surrogates does the pessimist pick?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio, a = torch.exp(new - old), advantages[:, None]
    surrogate = torch.maximum(ratio * a, ratio.clamp(1 - clip_range, 1 + clip_range) * a)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def clip_ratio_only(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The smaller of the two ratios was taken, and the advantage multiplied afterwards.

    Hint: The minimum compares surrogates, not ratios. Try A = -1 with a ratio of 1.5.
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = torch.minimum(ratio, ratio.clamp(1 - clip_range, 1 + clip_range)) * advantages[:, None]
    k3 = torch.exp(ref - new) - (ref - new) - 1
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def no_clip(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """Nothing was clipped.

    Hint: Where does clip_range come in?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = ratio * advantages[:, None]
    k3 = torch.exp(ref - new) - (ref - new) - 1
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def clip_only(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """Only the clipped surrogate was used; the unclipped one never got a say.

    Hint: A bad answer that has become likelier (A < 0, ratio 1.5) must still be pushed down.
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = ratio.clamp(1 - clip_range, 1 + clip_range) * advantages[:, None]
    k3 = torch.exp(ref - new) - (ref - new) - 1
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def clip_of_log_ratio(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The log-ratio was clipped to +-eps instead of the ratio to 1 +- eps: nearly the same, not the same.

    Hint: Is e^0.2 equal to 1.2? Which quantity does the formula clip?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio, a = torch.exp(new - old), advantages[:, None]
    surrogate = torch.minimum(ratio * a, (new - old).clamp(-clip_range, clip_range).exp() * a)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def clip_range_fixed(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The clip range was always 0.2, whatever clip_range says.

    Hint: Is there a number in your function that should be the name of an argument?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, 0.2)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), watched(surrogate, k3, ratio, advantages, mask, 0.2)


@mistake("grpo_objective")
def ratio_is_one(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The old log-probs were replaced by today's, so that the ratio is always 1.

    Hint: From the second inner step on, old and new differ. Where do the old ones go in?
    """
    new, ref = cleaned(mask, log_probs_new, ref_log_probs)
    ratio = torch.exp(new - new.detach())
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def new_minus_new(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The new log-probs stood on both sides of the ratio, with their gradient: it cancels exactly.

    Hint: What is the derivative of x - x?
    """
    new, ref = cleaned(mask, log_probs_new, ref_log_probs)
    ratio = torch.exp(new - new)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def ratio_to_reference(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The importance ratio was taken to the reference, not to the policy that sampled.

    Hint: Three models are in this loss. Which of them produced the tokens?
    """
    new, ref = cleaned(mask, log_probs_new, ref_log_probs)
    ratio = torch.exp(new - ref)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def old_and_ref_swapped(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """Old policy and reference changed places, in the ratio and in the KL.

    Hint: The ratio speaks of the policy that sampled, the KL of the model we began with.
    """
    new, old, ref = cleaned(mask, log_probs_new, ref_log_probs, log_probs_old)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def inverted_ratio(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The importance ratio was upside down: old over new.

    Hint: When the policy likes a token more than before, should the ratio be above 1 or below?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(old - new)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def ratio_without_exp(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The difference of the log-probs was used as the ratio.

    Hint: For two equal policies the ratio is 1. What is yours?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = new - old
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def ratio_of_logs(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The log-probs themselves were divided by each other.

    Hint: The ratio is one of probabilities. What does a division become among logarithms?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = new / old.masked_fill(~mask.bool(), 1.0)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def probability_ratio(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """Both probabilities were computed, then divided: for a very unlikely token that is 0 divided by 0.

    Hint: In float32, e^-110 is 0. Which order of subtraction and exp never asks for it?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new) / torch.exp(old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def sequence_product(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """One importance ratio per response (the product over its tokens) was used where one per token is asked for.

    Hint: How many ratios does a response of three tokens have here?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp((new - old).sum(1, keepdim=True)).expand_as(new)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def sequence_ratio(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """One length-normalised ratio per response was used: that is GSPO, a relative of GRPO.

    Hint: A fine algorithm, but another one. Here every token has a ratio of its own.
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    lengths = mask.bool().sum(1, keepdim=True).clamp_min(1)
    ratio = torch.exp((new - old).sum(1, keepdim=True) / lengths).expand_as(new)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def rows_for_columns(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The advantages were laid along the tokens, not along the responses; with N = T nothing complains.

    Hint: Against [N, T], a tensor of shape [N] lines up with the last dimension. Which shape must the advantages have?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = torch.minimum(ratio * advantages, ratio.clamp(1 - clip_range, 1 + clip_range) * advantages)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def normalised_again(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The advantages were normalised once more, over the whole batch.

    Hint: The advantages arrive finished. Batch statistics mix the prompts.
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    advantages = (advantages - advantages.mean()) / (advantages.std(correction=0) + 1e-8)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def no_graph(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """Nothing flows back: the new log-probs were detached.

    Hint: Which of the three log-probs must keep its gradient?
    """
    new, old, ref = cleaned(mask, log_probs_new.detach(), log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def ratio_detached(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The ratio carried no gradient; only the KL did.

    Hint: With beta = 0 nothing would be left to learn from. Where does the surrogate get its gradient?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old).detach()
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


# ---------------------------------------------------------------- grpo_objective: the KL


@mistake("grpo_objective")
def kl_sign(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The KL was subtracted: the loss falls as the policy drifts away.

    Hint: When the policy drifts away from the reference, should the loss rise or fall?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    return aggregated(-(surrogate + beta * k3), mask, aggregate, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def k3_inverted_in_loss(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The ratio inside k3 stood upside down: policy over reference.

    Hint: For d = ref - new = 1 the text has a k3 of 0.718. Is yours 0.368?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(new - ref) - (new - ref) - 1
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def minus_k1_in_loss(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """Reference minus policy was used as the KL: that is minus k1.

    Hint: A penalty that can be negative is no penalty. Which of the three estimates is never negative and right on average?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    kl = ref - new
    return aggregated(-surrogate + beta * kl, mask, aggregate, max_length), watched(surrogate, kl, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def k1_as_loss(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The estimate k1 was put into the loss: its gradient does not even look at the reference.

    Hint: Right on average as a number, useless as a loss. What does the picture of the gradients show for k1?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    kl = new - ref
    return aggregated(-surrogate + beta * kl, mask, aggregate, max_length), watched(surrogate, kl, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def k2_as_loss(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The estimate k2 was put into the loss in the place of k3.

    Hint: A respectable choice. Which of the three estimates does the formula of this exercise name?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    kl = (new - ref) ** 2 / 2
    return aggregated(-surrogate + beta * kl, mask, aggregate, max_length), watched(surrogate, kl, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def torch_kl_div(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The kl_div of torch was used; it weighs every entry by a probability, as if all of the vocabulary were there.

    Hint: The function kl_div expects whole distributions. We hold one sampled token at each place: what did the weighing already?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    kl = torch.nn.functional.kl_div(new, ref, reduction="none", log_target=True)
    return aggregated(-surrogate + beta * kl, mask, aggregate, max_length), watched(surrogate, kl, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def kl_weighted_by_ratio(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The KL was weighted by the ratio policy / old: the unbiased version that later systems use.

    Hint: Good to know. Does the formula of this exercise, which is the GRPO paper's, have that weight?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = ratio * (torch.exp(ref - new) - (ref - new) - 1)
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def kl_to_old(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The KL was taken to the old policy, not to the reference.

    Hint: At the first inner step new equals old, and such a penalty would be 0 however far the policy went.
    """
    new, old = cleaned(mask, log_probs_new, log_probs_old)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(old - new) - (old - new) - 1
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def kl_of_old_policy(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The KL was taken between the old policy and the reference: it cannot change, and pulls on nothing.

    Hint: Which of the log-probs in your k3 carries a gradient?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - old) - (ref - old) - 1
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def kl_no_grad(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The KL is in the loss as a number only: it carries no gradient.

    Hint: The loss has the right value, but what pulls the policy back?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    with torch.no_grad():
        k3 = torch.exp(ref - new) - (ref - new) - 1
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def kl_sum(log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None):
    """The KL was summed over the tokens of a response, not averaged.

    Hint: Over 512 tokens that makes beta 512 times larger. What happens to the rest of the loss on its way to one number?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    loss = aggregated(-surrogate, mask, aggregate, max_length) + beta * k3.sum(1).mean()
    return loss, watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def kl_aggregated_apart(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The KL was averaged over all tokens, whatever aggregate says, and added afterwards.

    Hint: How many aggregations does the formula have, and what stands inside of them?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    loss = aggregated(-surrogate, mask, aggregate, max_length) + beta * aggregated(k3, mask, "token")
    return loss, watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def kl_in_the_advantage(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The KL was taken off the advantage, as PPO does with the reward.

    Hint: Where does the KL stand in the formula: inside of the minimum or beside it?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    a = advantages[:, None] - beta * k3.detach()
    surrogate = torch.minimum(ratio * a, ratio.clamp(1 - clip_range, 1 + clip_range) * a)
    return aggregated(-surrogate, mask, aggregate, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def kl_inside_the_clip(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """Clipped tokens lost their KL as well.

    Hint: What does the clip limit: the surrogate, or the KL as well? Look at what the minimum encloses.
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio, a = torch.exp(new - old), advantages[:, None]
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    clipped = torch.where(a > 0, ratio > 1 + clip_range, ratio < 1 - clip_range)
    loss = aggregated(-surrogate + beta * k3.masked_fill(clipped, 0.0), mask, aggregate, max_length)
    return loss, watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def dead_groups_dropped(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """Responses with an advantage of 0 were left out altogether, their KL too.

    Hint: Some recipes do this on purpose. Which part of a dead group's loss is not 0 here?
    """
    mask = mask.bool() & (advantages != 0)[:, None]
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def beta_forgotten(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The KL entered the loss with its full weight, without beta.

    Hint: Where does beta come into your function?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    return aggregated(-surrogate + k3, mask, aggregate, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def beta_fixed(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The KL was always weighted by 0.04, whatever beta says.

    Hint: Is there a number in your function that should be the name of an argument?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    return aggregated(-surrogate + 0.04 * k3, mask, aggregate, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def no_kl(log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None):
    """The KL was measured, but it never entered the loss.

    Hint: The metrics watch; only the loss pulls. Is there anything in your loss that looks at the reference?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    return aggregated(-surrogate, mask, aggregate, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


# ---------------------------------------------------------------- grpo_objective: aggregation and padding


@mistake("grpo_objective")
def sum_of_all(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The responses were summed, not averaged.

    Hint: Should a batch twice as large make the step twice as long?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    loss = aggregated(-surrogate + beta * k3, mask, aggregate, max_length) * len(advantages)
    return loss, watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def padding_counts(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The mask was not used: padding counted like any token.

    Hint: Where does the mask come into your function?
    """
    ratio = torch.exp(log_probs_new - log_probs_old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref_log_probs - log_probs_new) - (ref_log_probs - log_probs_new) - 1
    everything = torch.ones_like(mask)
    loss = (-surrogate + beta * k3).mean()
    return loss, watched(surrogate, k3, ratio, advantages, everything, clip_range)


@mistake("grpo_objective")
def zeroed_padding_counts(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The padding was set to 0 before the exp, and its ratio of 1 then counted as a token.

    Hint: A log-ratio of 0 is a ratio of 1. What does that, times the advantage, add to the sum?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    lengths = mask.bool().sum(1).clamp_min(1)
    token_loss = -surrogate + beta * k3
    by = {
        "sequence": (token_loss.sum(1) / lengths).mean(),
        "token": token_loss.sum() / lengths.sum(),
        "constant": token_loss.sum() / len(mask) / width(mask, max_length),
    }
    return by[aggregate], watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def token_for_sequence(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """All tokens were averaged at once, also where the mean per response comes first.

    Hint: Under "sequence" every response weighs the same, however long it is.
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    how = "token" if aggregate == "sequence" else aggregate
    return aggregated(-surrogate + beta * k3, mask, how, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def sequence_for_token(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The mean per response came first, also where all tokens weigh the same.

    Hint: Under "token" a response of 8 tokens has four times the say of one with 2.
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    how = "sequence" if aggregate == "token" else aggregate
    return aggregated(-surrogate + beta * k3, mask, how, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def aggregate_ignored(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The loss was aggregated as under "sequence", whatever aggregate says.

    Hint: Where does the argument aggregate come into your function?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    return aggregated(-surrogate + beta * k3, mask, "sequence"), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def aggregate_falls_through(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """Under "sequence" the sum was divided by N x T, as under "constant": a padded length, or an `if` where an `elif` was meant.

    Hint: A response of two tokens has a mean over two. And follow the name of the loss through the branches: which one writes to it last?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    token_loss = -surrogate + beta * k3
    if aggregate == "sequence":
        loss = masked_mean(token_loss, mask, dim=1).mean()
    if aggregate == "token":
        loss = masked_mean(token_loss, mask)
    else:
        loss = aggregated(token_loss, mask, "constant", max_length)
    return loss, watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def constant_by_responses(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """Under "constant" the sum was divided by the number of responses only.

    Hint: The constant is a product of two numbers. Which one is missing?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    loss = aggregated(-surrogate + beta * k3, mask, aggregate, max_length)
    loss = loss * width(mask, max_length) if aggregate == "constant" else loss
    return loss, watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def constant_by_longest(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """Under "constant" T was the longest response that happens to be there, which changes from batch to batch.

    Hint: Should the divisor depend on how long these answers are? What does the text say T is?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    loss = aggregated(-surrogate + beta * k3, mask, aggregate, max_length)
    longest = mask.bool().sum(1).max().clamp_min(1)
    loss = loss * width(mask, max_length) / longest if aggregate == "constant" else loss
    return loss, watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def max_length_ignored(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """Under "constant" T was always the width of the batch, whatever max_length says.

    Hint: Where does the argument max_length come into your function?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    return aggregated(-surrogate + beta * k3, mask, aggregate), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def max_length_without_responses(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """Under "constant" the sum was divided by T alone, without the number of responses.

    Hint: The constant is a product of two numbers. Which one is missing?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    loss = aggregated(-surrogate + beta * k3, mask, aggregate, max_length)
    return loss * (len(mask) if aggregate == "constant" else 1), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def max_length_under_sequence(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """Under "sequence", too, the sum was divided by max_length where one was given.

    Hint: A mean over the tokens of a response is divided by their number. For which of the three ways is max_length?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    how = "constant" if max_length and aggregate == "sequence" else aggregate
    return aggregated(-surrogate + beta * k3, mask, how, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def empty_response_nan(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """A response without tokens was divided by its length, 0.

    Hint: What is the smallest number that you ever want to divide by?
    """
    mask = mask.bool()
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    token_loss = (-surrogate + beta * k3).masked_fill(~mask, 0.0)
    if aggregate == "sequence":
        loss = (token_loss.sum(1) / mask.sum(1)).mean()
    else:
        loss = token_loss.sum() / (mask.sum() if aggregate == "token" else len(mask) * width(mask, max_length))
    return loss, watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def empty_response_dropped(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """Responses without tokens were not counted among the N.

    Hint: An empty response adds 0. Is it one of the N responses all the same?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    loss = aggregated(-surrogate + beta * k3, mask, aggregate, max_length)
    if aggregate != "token":
        loss = loss * len(advantages) / mask.bool().any(1).sum().clamp_min(1)
    return loss, watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def masked_after_exp(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The padding was taken out after the exp: the value is right, and the gradient is NaN.

    Hint: Backward goes through the exp in the padding too. What does it meet there, and before which step should it have been gone?
    """
    ratio = torch.exp(log_probs_new - log_probs_old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    d = ref_log_probs - log_probs_new
    k3 = torch.exp(d) - d - 1
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def multiplied_padding(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The loss was multiplied by the mask, which a NaN survives.

    Hint: What is 0 times NaN? What can be done with the padding instead, and before which step?
    """
    m = mask.to(log_probs_new.dtype)
    ratio = torch.exp(log_probs_new - log_probs_old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    d = ref_log_probs - log_probs_new
    k3 = torch.exp(d) - d - 1
    token_loss = (-surrogate + beta * k3) * m
    if aggregate == "sequence":
        loss = (token_loss.sum(1) / m.sum(1).clamp_min(1)).mean()
    else:
        loss = token_loss.sum() / (m.sum().clamp_min(1) if aggregate == "token" else len(m) * width(m, max_length))
    return loss, watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def bool_mask_only(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The mask was used as it came: with integers, `~` does not mean "not", and with floats it fails.

    Hint: What is ~1 in Python, and does that count as true or as false? What should the mask be made before it is turned round?
    """
    new, old, ref = (x.masked_fill((~mask).bool(), 0.0) for x in (log_probs_new, log_probs_old, ref_log_probs))
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def inputs_changed(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The caller's log-probs were overwritten.

    Hint: The old and the reference log-probs are cached for the next inner step. What does a method that ends in `_` do to them?
    """
    mask = mask.bool()
    new = log_probs_new.masked_fill(~mask, 0.0)
    old, ref = log_probs_old.masked_fill_(~mask, 0.0), ref_log_probs.masked_fill_(~mask, 0.0)
    log_ratio, d = old.neg_().add(new), ref.sub_(new.detach()) + (new.detach() - new)
    ratio = torch.exp(log_ratio)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(d) - d - 1
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def one_loss_per_response(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """One loss per response came back, not one number.

    Hint: The mean over the tokens is there; the mean over the responses is not.
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    return masked_mean(-surrogate + beta * k3, mask, dim=1), watched(surrogate, k3, ratio, advantages, mask, clip_range)


# ---------------------------------------------------------------- grpo_objective: the metrics


@mistake("grpo_objective")
def metrics_with_graph(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The metrics carried a gradient: kept in a list, they keep every step's graph in memory.

    Hint: Does a number that is only watched need the graph behind it?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    metrics = watched(surrogate, k3, ratio, advantages, mask, clip_range)
    metrics |= {"policy_loss": masked_mean(-surrogate, mask), "kl": masked_mean(k3, mask)}
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), metrics


@mistake("grpo_objective")
def kl_metric_times_beta(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The entry "kl" of the metrics was multiplied by beta.

    Hint: Should the KL that you watch shrink when you make beta smaller?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    metrics = watched(surrogate, beta * k3, ratio, advantages, mask, clip_range)
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), metrics


@mistake("grpo_objective")
def kl_metric_is_k1(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The entry "kl" of the metrics was the mean of k1.

    Hint: Right on average, and noisy enough to turn negative. Which estimate is in the loss?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    metrics = watched(surrogate, new - ref, ratio, advantages, mask, clip_range)
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), metrics


@mistake("grpo_objective")
def policy_loss_with_kl(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The entry "policy_loss" of the metrics contained the KL.

    Hint: The metric is there to tell the two parts of the loss apart.
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    metrics = watched(surrogate - beta * k3, k3, ratio, advantages, mask, clip_range)
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), metrics


@mistake("grpo_objective")
def policy_loss_positive(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The entry "policy_loss" of the metrics was the surrogate, without its minus.

    Hint: It is called a loss. Is smaller better for yours?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    metrics = watched(-surrogate, k3, ratio, advantages, mask, clip_range)
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), metrics


@mistake("grpo_objective")
def metrics_by_sequence(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The metrics went through the aggregation of the loss.

    Hint: Should what you watch change with aggregate? Over what are the metrics means?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio, a = torch.exp(new - old), advantages[:, None]
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    clipped = torch.where(a > 0, ratio > 1 + clip_range, (ratio < 1 - clip_range) & (a < 0)).float()
    parts = {"policy_loss": -surrogate, "kl": k3, "clip_fraction": clipped}
    metrics = {name: aggregated(x, mask, aggregate, max_length).detach() for name, x in parts.items()}
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), metrics


@mistake("grpo_objective")
def metrics_over_padding(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The metrics were averaged over padding as well.

    Hint: The share of clipped tokens must not fall because somebody else's answer is long.
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    metrics = watched(surrogate, k3, ratio, advantages, torch.ones_like(mask), clip_range)
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), metrics


@mistake("grpo_objective")
def clip_share_two_sided(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """Every ratio outside the range was counted in clip_fraction, whatever the sign of the advantage.

    Hint: For A > 0 and a small ratio the pessimist keeps the unclipped surrogate, and its gradient.
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    metrics = watched(surrogate, k3, ratio, advantages, mask, clip_range)
    metrics["clip_fraction"] = masked_mean(((ratio - 1).abs() > clip_range).float(), mask)
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), metrics


@mistake("grpo_objective")
def clip_share_above_only(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """Only the clipped tokens of good responses were counted in clip_fraction.

    Hint: At which edge are the tokens of bad responses (A < 0) clipped?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    metrics = watched(surrogate, k3, ratio, advantages, mask, clip_range)
    metrics["clip_fraction"] = masked_mean(((advantages[:, None] > 0) & (ratio > 1 + clip_range)).float(), mask)
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), metrics


@mistake("grpo_objective")
def clip_count(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The number of clipped tokens was given as clip_fraction, not their share.

    Hint: A fraction lies between 0 and 1. The share of what is it?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    metrics = watched(surrogate, k3, ratio, advantages, mask, clip_range)
    metrics["clip_fraction"] = metrics["clip_fraction"] * mask.bool().sum()
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), metrics


@mistake("grpo_objective")
def dual_clip(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The loss of a bad response's token was bounded once more, at a ratio of 3: dual-clip PPO, as verl has it.

    Hint: A bad token that became far more likely is a slip that must be undone. Does your loss still feel it?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio, a = torch.exp(new - old), advantages[:, None]
    surrogate = pessimistic(ratio, advantages, clip_range)
    surrogate = torch.where(a < 0, torch.maximum(surrogate, 3 * a), surrogate)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def kl_cut_at_ten(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """Each token's k3 was cut at 10, as verl does: a token that drifted far is no longer pulled back.

    Hint: Where the drift is largest the KL must pull hardest. What is the gradient of a clamp beyond its edge?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = (torch.exp(ref - new) - (ref - new) - 1).clamp(max=10)
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def zero_beta_is_default(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """A beta of 0 was taken for none at all, and replaced by 0.04 (`beta or 0.04`).

    Hint: Python counts 0 as false, yet it is a beta like any other. What does a caller want who says beta=0?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    loss = aggregated(-surrogate + (beta or 0.04) * k3, mask, aggregate, max_length)
    return loss, watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def clip_share_in_log_space(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """For clip_fraction the log-ratio was compared with +-eps, not the ratio with 1 +- eps: nearly the same, not the same.

    Hint: With eps = 0.33, is a ratio of 0.7 inside the range? Is its logarithm within 0.33 of 0?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio, a = torch.exp(new - old), advantages[:, None]
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    metrics = watched(surrogate, k3, ratio, advantages, mask, clip_range)
    clipped = ((a > 0) & (new - old > clip_range)) | ((a < 0) & (new - old < -clip_range))
    metrics["clip_fraction"] = masked_mean(clipped.float(), mask)
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), metrics


@mistake("grpo_objective")
def clip_share_with_the_dead(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """Tokens of dead groups were counted in clip_fraction as well: A = 0 was treated like A > 0.

    Hint: A token counts when clipping took its gradient away. Which gradient has a response with an advantage of 0?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio, a = torch.exp(new - old), advantages[:, None]
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    metrics = watched(surrogate, k3, ratio, advantages, mask, clip_range)
    clipped = ((a >= 0) & (ratio > 1 + clip_range)) | ((a < 0) & (ratio < 1 - clip_range))
    metrics["clip_fraction"] = masked_mean(clipped.float(), mask)
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), metrics


@mistake("grpo_objective")
def objective_negated(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The sign of the whole objective was turned round: uphill for the surrogate, and away from the reference.

    Hint: The loss is minimised. Does it fall when good answers become likelier and the policy stays near the reference?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    loss = -aggregated(-surrogate + beta * k3, mask, aggregate, max_length)
    return loss, watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def comma_missing(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The two surrogates were multiplied inside of torch.min, which then gives the one smallest number of all.

    Hint: How many arguments does your min have, and of which shape is what it gives?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    a = advantages[:, None]
    surrogate = torch.min(ratio * a * ratio.clamp(1 - clip_range, 1 + clip_range) * a).expand_as(ratio)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def loss_clip_fixed(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The loss was clipped at 0.2 whatever clip_range says; clip_fraction alone looked at it.

    Hint: Is there a number in your function that should be the name of an argument?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, 0.2)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def ratio_bounded(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The ratio of a bad token was bounded at 10, by a clamp or a dual clip: if it became far likelier, it is no longer pushed down.

    Hint: What does the minimum do with the clip where A < 0? What is the gradient of a clamp beyond its edge?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old).clamp(max=10)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def log_ratio_to_old_bounded(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The log-ratio to the old policy was clamped to +-5 before the exp.

    Hint: Which clip does the formula have? What is the gradient of a clamp beyond its edge?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp((new - old).clamp(-5, 5))
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def advantages_bounded(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The advantages were clamped to +-10.

    Hint: The advantages arrive finished. Which bound does the formula put on them?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages.clamp(-10, 10), clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def log_ratio_in_k3_bounded(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The log-ratio inside k3 was clamped to +-10: a token that drifted further is no longer pulled back.

    Hint: Where the drift is largest the KL must pull hardest. What is the gradient of a clamp beyond its edge?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    d = (ref - new).clamp(-10, 10)
    k3 = torch.exp(d) - d - 1
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def absolute_d_in_loss(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The size of the log-ratio, abs(), was used as the KL.

    Hint: Near the reference k3 is flat. How hard does yours pull on a token that has hardly drifted?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = (ref - new).abs()
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def kl_twice(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The KL entered the loss twice: with the surrogate, and once more behind it.

    Hint: How many terms of the formula carry a beta, and how many of yours?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    loss = aggregated(-surrogate + 2 * beta * k3, mask, aggregate, max_length)
    return loss, watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def log_probs_times_mask(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The log-probs were multiplied by the mask, which NaN and infinity survive.

    Hint: What is 0 times NaN? Which function of torch chooses instead of multiplying?
    """
    new, old, ref = (x * mask for x in (log_probs_new, log_probs_old, ref_log_probs))
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def padding_overwritten(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The padding was cleaned in the caller's own log-probs.

    Hint: The old and the reference log-probs are cached for the next inner step. What does a method that ends in `_` do to them?
    """
    padding = ~mask.bool()
    new = log_probs_new.masked_fill(padding, 0.0)
    old, ref = log_probs_old.masked_fill_(padding, 0.0), ref_log_probs.masked_fill_(padding, 0.0)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def metrics_times_mask(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The metrics were multiplied by the mask without being cleaned before, so that a NaN of the padding reached them.

    Hint: What is 0 times NaN? Of which log-probs are your metrics made?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    metrics = watched(surrogate, k3, ratio, advantages, mask, clip_range)
    dirty = torch.exp(ref_log_probs - log_probs_new) - (ref_log_probs - log_probs_new) - 1
    metrics["kl"] = ((dirty * mask).sum() / mask.sum().clamp_min(1)).detach()
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), metrics


@mistake("grpo_objective")
def no_tokens_at_all(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """In a batch without any token 0 was divided by 0.

    Hint: Which of the three aggregations divides by the number of all tokens, and how many may there be?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    loss = aggregated(-surrogate + beta * k3, mask, aggregate, max_length)
    loss = loss * mask.bool().sum().clamp_min(1) / mask.bool().sum() if aggregate == "token" else loss
    return loss, watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def only_nan_cleaned_before_exp(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """NaN was replaced before the exp, and the rest of the padding after it: where the exp overflows, the gradient is NaN.

    Hint: Which finite numbers have an exp that is infinite? What would stand in the padding if the mask chose before the exp?
    """
    keep = mask.bool()
    ratio = torch.nan_to_num(log_probs_new - log_probs_old).exp()
    surrogate = pessimistic(ratio, advantages, clip_range).masked_fill(~keep, 0.0)
    d = torch.nan_to_num(ref_log_probs - log_probs_new)
    k3 = (d.exp() - d - 1).masked_fill(~keep, 0.0)
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def empty_response_dropped_by_sequence(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """Under "sequence" the responses without tokens were not counted among the N.

    Hint: An empty response adds 0. Is it one of the N responses all the same?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    loss = aggregated(-surrogate + beta * k3, mask, aggregate, max_length)
    if aggregate == "sequence":
        loss = loss * len(advantages) / mask.bool().any(1).sum().clamp_min(1)
    return loss, watched(surrogate, k3, ratio, advantages, mask, clip_range)


@mistake("grpo_objective")
def losses_watched_by_sequence(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The entries policy_loss and kl of the metrics went through the aggregation of the loss; clip_fraction did not.

    Hint: Should what you watch change with aggregate? Over what are the metrics means?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    metrics = watched(surrogate, k3, ratio, advantages, mask, clip_range)
    metrics |= {name: aggregated(x, mask, aggregate, max_length).detach() for name, x in (("policy_loss", -surrogate), ("kl", k3))}
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), metrics


@mistake("grpo_objective")
def loss_alone(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """Only the loss came back, without the metrics.

    Hint: Two things are asked for. Which ones, and in which order?
    """
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    surrogate = pessimistic(torch.exp(new - old), advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length)


# ---------------------------------------------------------------- grpo_objective: right


@right("grpo_objective")
def max_of_negatives(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The loss as the maximum of the negatives; k3 as r - log r - 1."""
    m = mask.bool()
    zero = torch.zeros_like(log_probs_new)
    log_ratio = torch.where(m, log_probs_new, zero) - torch.where(m, log_probs_old, zero)
    log_r = torch.where(m, ref_log_probs, zero) - torch.where(m, log_probs_new, zero)
    rho, r, a = log_ratio.exp(), log_r.exp(), advantages.unsqueeze(-1)
    policy = torch.max(-rho * a, -torch.clamp(rho, 1 - clip_range, 1 + clip_range) * a)
    k3 = r - log_r - 1
    loss = policy + beta * k3
    if aggregate == "sequence":
        loss = ((loss * m).sum(1) / m.sum(1).clamp(min=1)).sum() / len(m)
    elif aggregate == "token":
        loss = (loss * m).sum() / m.sum().clamp(min=1)
    else:
        loss = (loss * m).sum() / (m.shape[0] * width(m, max_length))
    n = m.sum().clamp(min=1)
    held = (a > 0) & (rho > 1 + clip_range) | (a < 0) & (rho < 1 - clip_range)
    metrics = {
        "policy_loss": ((policy * m).sum() / n).item(),
        "kl": ((k3 * m).sum() / n).item(),
        "clip_fraction": ((held & m).sum() / n).item(),
    }
    return loss, metrics


@right("grpo_objective")
def own_functions(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """With masked_mean and kl_estimates; the difference is cleaned, not the log-probs."""
    keep = mask != 0
    log_ratio = torch.where(keep, log_probs_new - log_probs_old, 0.0)
    drift = torch.where(keep, log_probs_new - ref_log_probs, 0.0)
    ratio, a = log_ratio.exp(), advantages.view(-1, 1)
    surrogate = torch.stack([ratio * a, ratio.clamp(1 - clip_range, 1 + clip_range) * a]).min(0).values
    _, _, k3 = kl_estimates(drift, torch.zeros_like(drift))
    token = beta * k3 - surrogate
    loss = {
        "sequence": lambda: masked_mean(token, keep, 1).mean(),
        "token": lambda: masked_mean(token, keep),
        "constant": lambda: masked_mean(token, keep) * keep.sum() / len(keep) / width(keep, max_length),
    }[aggregate]()
    with torch.no_grad():
        held = torch.where(a > 0, ratio > 1 + clip_range, (a < 0) & (ratio < 1 - clip_range))
        metrics = {
            "policy_loss": -masked_mean(surrogate, keep),
            "kl": masked_mean(k3, keep),
            "clip_fraction": masked_mean(held.double(), keep),
        }
    return loss, metrics


@right("grpo_objective")
def by_the_sign(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """One-sided clamps, chosen by the sign of the advantage; the log-ratio clamped to +-20."""
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = (new - old).clamp(-20, 20).exp()
    a = advantages[:, None].expand_as(ratio)
    surrogate = torch.where(a >= 0, ratio.clamp(max=1 + clip_range) * a, ratio.clamp(min=1 - clip_range) * a)
    k3 = torch.expm1(ref - new) - (ref - new)
    return aggregated(beta * k3 - surrogate, mask, aggregate, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@right("grpo_objective")
def from_new_minus_ref(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """k3 from new - ref, float64 inside."""
    new, old, ref = cleaned(mask, log_probs_new.double(), log_probs_old.double(), ref_log_probs.double())
    ratio, drift = torch.exp(new - old), new - ref
    surrogate = pessimistic(ratio, advantages.double(), clip_range)
    k3 = torch.exp(-drift) - 1 + drift
    loss = aggregated(-surrogate + beta * k3, mask, aggregate, max_length).to(log_probs_new.dtype)
    return loss, watched(surrogate, k3, ratio, advantages, mask, clip_range)


@right("grpo_objective")
def only_real_tokens(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The real tokens picked out first, and added up by row."""
    keep = mask.bool()
    row = keep.nonzero()[:, 0]
    new, old, ref, a = log_probs_new[keep], log_probs_old[keep], ref_log_probs[keep], advantages[row]
    ratio, d = (new - old).exp(), ref - new
    policy = -torch.min(ratio * a, ratio.clip(1 - clip_range, 1 + clip_range) * a)
    k3 = d.exp() - d - 1
    loss = policy + beta * k3
    n = len(keep)
    if aggregate == "sequence":
        loss = (loss / keep.sum(1)[row]).sum() / n
    elif aggregate == "token":
        loss = loss.sum() / max(len(row), 1)
    elif aggregate == "constant":
        loss = loss.sum() / (n * (max_length or keep.shape[1]))
    held = torch.logical_or((a > 0) & (ratio > 1 + clip_range), (a < 0) & (ratio < 1 - clip_range))
    count = max(len(row), 1)
    metrics = {"policy_loss": policy.sum() / count, "kl": k3.sum() / count, "clip_fraction": held.sum() / count}
    return loss, {name: x.detach() for name, x in metrics.items()}


@right("grpo_objective")
def response_by_response(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """A loop over responses and tokens."""
    losses, policies, kls, held = [], [], [], []
    for i in range(len(advantages)):
        row, a = [], advantages[i]
        for t in range(mask.shape[1]):
            if not mask[i, t]:
                continue
            r = torch.exp(log_probs_new[i, t] - log_probs_old[i, t])
            policy = -torch.minimum(r * a, torch.clamp(r, 1 - clip_range, 1 + clip_range) * a)
            d = ref_log_probs[i, t] - log_probs_new[i, t]
            k3 = torch.exp(d) - d - 1
            row.append(policy + beta * k3)
            policies.append(policy.item())
            kls.append(k3.item())
            held.append(bool((a > 0 and r > 1 + clip_range) or (a < 0 and r < 1 - clip_range)))
        losses.append(row)
    zero = log_probs_new.new_zeros(())
    if aggregate == "sequence":
        loss = sum((sum(row) / len(row) for row in losses if row), zero) / len(losses)
    else:
        loss = sum((x for row in losses for x in row), zero) / (
            max(len(kls), 1) if aggregate == "token" else len(mask) * width(mask, max_length)
        )
    n = max(len(kls), 1)
    return loss, {"policy_loss": sum(policies) / n, "kl": sum(kls) / n, "clip_fraction": sum(held) / n}


@right("grpo_objective")
def reference_cleaned_later(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """New and old cleaned before, the reference only by the aggregation: nothing flows back to the padding."""
    new, old = cleaned(mask, log_probs_new, log_probs_old)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    d = ref_log_probs - new
    k3 = torch.exp(d) - d - 1
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@right("grpo_objective")
def weights_of_tokens(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """A table of weights per token, one sum; the graph of a clipped token is cut with detach."""
    m = mask.float()
    lengths = m.sum(1, keepdim=True).clamp(min=1)
    weights = {"sequence": m / lengths / len(m), "token": m / m.sum().clamp(min=1), "constant": m / len(m) / width(m, max_length)}[
        aggregate
    ]
    new, old, ref = [torch.nan_to_num(x.masked_fill(m == 0, 0.0)) for x in (log_probs_new, log_probs_old, ref_log_probs)]
    ratio, a = torch.exp(new - old), advantages.reshape(-1, 1)
    bound = torch.where(a > 0, 1 + clip_range, 1 - clip_range)
    held = torch.where(a > 0, ratio > bound, ratio < bound) & (a != 0)
    policy = -torch.where(held, bound.expand_as(ratio), ratio) * a
    k3 = torch.exp(ref - new) - 1 - (ref - new)
    per_token = m / m.sum().clamp(min=1)
    metrics = {"policy_loss": policy, "kl": k3, "clip_fraction": held}
    return ((policy + beta * k3) * weights).sum(), {k: float((x.detach() * per_token).sum()) for k, x in metrics.items()}


@right("grpo_objective")
def bounded_at_twenty(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """Both log-ratios clamped to +-20, k3 kept from rounding below 0."""
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio, d = torch.exp((new - old).clamp(-20, 20)), (ref - new).clamp(-20, 20)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.relu(torch.exp(d) - d - 1)
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@right("grpo_objective")
def metrics_as_floats(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """Metrics by .item(), and one more of them."""
    new, old, ref = cleaned(mask, log_probs_new, log_probs_old, ref_log_probs)
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    metrics = watched(surrogate, k3, ratio, advantages, mask, clip_range) | {"ratio": ratio.mean()}
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), {name: x.item() for name, x in metrics.items()}


# ---------------------------------------------------------------- adapt_beta


@mistake("adapt_beta")
def wrong_way(beta, kl, target, rate=0.1, low=1e-4, high=1.0):
    """Too much drift made beta smaller.

    Hint: Think of beta as the price of drift. When there is too much drift, should the price rise or fall?
    """
    error = min(max(kl / target - 1, -1), 1)
    return min(max(beta * math.exp(-rate * error), low), high)


@mistake("adapt_beta")
def linear_step(beta, kl, target, rate=0.1, low=1e-4, high=1.0):
    """The step multiplied beta by 1 + rate x error, as in PPO's controller, without the exponential.

    Hint: The two agree to first order only. Which one undoes an error of +0.5 with an error of -0.5?
    """
    error = min(max(kl / target - 1, -1), 1)
    return min(max(beta * (1 + rate * error), low), high)


@mistake("adapt_beta")
def added_step(beta, kl, target, rate=0.1, low=1e-4, high=1.0):
    """The step was added to beta, not multiplied.

    Hint: Should a beta of 0.001 and one of 1 move by equal amounts or by equal factors?
    """
    error = min(max(kl / target - 1, -1), 1)
    return min(max(beta + rate * error, low), high)


@mistake("adapt_beta")
def wild_error(beta, kl, target, rate=0.1, low=1e-4, high=1.0):
    """The error was not limited: one odd batch flings beta away.

    Hint: There are two clips in the formula. What does the inner one stand around?
    """
    return min(max(beta * math.exp(min(rate * (kl / target - 1), 50)), low), high)


@mistake("adapt_beta")
def no_fence(beta, kl, target, rate=0.1, low=1e-4, high=1.0):
    """Nothing kept beta between low and high.

    Hint: There are two clips in the formula. What does the outer one stand around?
    """
    error = min(max(kl / target - 1, -1), 1)
    return beta * math.exp(rate * error)


@mistake("adapt_beta")
def fence_below_only(beta, kl, target, rate=0.1, low=1e-4, high=1.0):
    """The next beta was kept above low, and nothing kept it below high.

    Hint: A range has two ends. Where would your beta be after a hundred steps of too much drift?
    """
    error = min(max(kl / target - 1, -1), 1)
    return max(beta * math.exp(rate * error), low)


@mistake("adapt_beta")
def fence_above_only(beta, kl, target, rate=0.1, low=1e-4, high=1.0):
    """The next beta was kept below high, and nothing kept it above low.

    Hint: A range has two ends. How many steps would bring beta back, once it has come close to 0?
    """
    error = min(max(kl / target - 1, -1), 1)
    return min(beta * math.exp(rate * error), high)


@mistake("adapt_beta")
def fence_fixed(beta, kl, target, rate=0.1, low=1e-4, high=1.0):
    """The range was 0.0001 to 1, whatever low and high say.

    Hint: Are there numbers in your function that should be names of arguments?
    """
    error = min(max(kl / target - 1, -1), 1)
    return min(max(beta * math.exp(rate * error), 1e-4), 1.0)


@mistake("adapt_beta")
def fence_inside_out(beta, kl, target, rate=0.1, low=1e-4, high=1.0):
    """The two functions min and max changed places in the outer clip.

    Hint: To keep x from falling below low, which of the two is to be taken, the larger or the smaller?
    """
    error = min(max(kl / target - 1, -1), 1)
    return max(min(beta * math.exp(rate * error), low), high)


@mistake("adapt_beta")
def no_minus_one(beta, kl, target, rate=0.1, low=1e-4, high=1.0):
    """The -1 is missing from the error: on target, beta still grows.

    Hint: When the KL is exactly on target, beta should stay. Does yours?
    """
    error = min(max(kl / target, -1), 1)
    return min(max(beta * math.exp(rate * error), low), high)


@mistake("adapt_beta")
def minus_one_outside(beta, kl, target, rate=0.1, low=1e-4, high=1.0):
    """The quotient was clipped before 1 was taken off, so that the error is never positive.

    Hint: Which of the two comes first, the subtraction or the clip?
    """
    error = min(max(kl / target, -1), 1) - 1
    return min(max(beta * math.exp(rate * error), low), high)


@mistake("adapt_beta")
def absolute_error(beta, kl, target, rate=0.1, low=1e-4, high=1.0):
    """The error was measured in nats, not in units of the target.

    Hint: Is 0.01 too much a little or a lot? Compare a target of 1 with one of 0.01.
    """
    error = min(max(kl - target, -1), 1)
    return min(max(beta * math.exp(rate * error), low), high)


@mistake("adapt_beta")
def quotient_inverted(beta, kl, target, rate=0.1, low=1e-4, high=1.0):
    """Target over KL stood where KL over target was meant.

    Hint: Which of the two may be 0?
    """
    error = min(max(target / max(kl, 1e-8) - 1, -1), 1)
    return min(max(beta * math.exp(rate * error), low), high)


@mistake("adapt_beta")
def logarithm_of_the_quotient(beta, kl, target, rate=0.1, low=1e-4, high=1.0):
    """The error was taken as the logarithm of KL over target, not as the quotient less 1.

    Hint: In the worked number the KL is half a target too high and the error 0.5. What is yours there?
    """
    error = min(max(math.log(max(kl, 1e-9) / target), -1), 1)
    return min(max(beta * math.exp(rate * error), low), high)


@mistake("adapt_beta")
def clip_after_rate(beta, kl, target, rate=0.1, low=1e-4, high=1.0):
    """The error was multiplied by the rate first and clipped to +-1 afterwards.

    Hint: What is then the largest step for a rate of 0.1?
    """
    return min(max(beta * math.exp(min(max(rate * (kl / target - 1), -1), 1)), low), high)


@mistake("adapt_beta")
def ppo_clip(beta, kl, target, rate=0.1, low=1e-4, high=1.0):
    """The error was limited to 0.2, as in PPO's controller.

    Hint: How large may the error become here, either way? Look at the inner clip.
    """
    error = min(max(kl / target - 1, -0.2), 0.2)
    return min(max(beta * math.exp(rate * error), low), high)


@mistake("adapt_beta")
def doubled_or_halved(beta, kl, target, rate=0.1, low=1e-4, high=1.0):
    """The weight beta was doubled or halved when the KL left a band, as in the first PPO paper.

    Hint: The formula has no thresholds. How far does its beta move when the KL is a little too high?
    """
    if kl > 1.5 * target:
        beta = beta * 2
    elif kl < target / 1.5:
        beta = beta / 2
    return min(max(beta, low), high)


@mistake("adapt_beta")
def rate_fixed(beta, kl, target, rate=0.1, low=1e-4, high=1.0):
    """The rate was always 0.1, whatever the argument says.

    Hint: Is there a number in your function that should be the name of an argument?
    """
    error = min(max(kl / target - 1, -1), 1)
    return min(max(beta * math.exp(0.1 * error), low), high)


@mistake("adapt_beta")
def never_down(beta, kl, target, rate=0.1, low=1e-4, high=1.0):
    """Errors below 0 were cut off, so that beta could only rise.

    Hint: What should happen to the beta of a policy that drifts too little?
    """
    error = min(max(kl / target - 1, 0), 1)
    return min(max(beta * math.exp(rate * error), low), high)


@mistake("adapt_beta")
def old_beta_beyond_the_fence(beta, kl, target, rate=0.1, low=1e-4, high=1.0):
    """A step that would leave the range was not taken, so that beta stayed where it was, short of its end.

    Hint: From 0.9, upward, with high = 1: does beta stop where it is, or at 1?
    """
    new = beta * math.exp(rate * min(max(kl / target - 1, -1), 1))
    return new if low <= new <= high else beta


@mistake("adapt_beta")
def rounded_to_four_decimals(beta, kl, target, rate=0.1, low=1e-4, high=1.0):
    """The next beta was rounded to four decimals.

    Hint: How many digits of a beta of 0.0004 are left, and which steps can it still take? Round where you print.
    """
    error = min(max(kl / target - 1, -1), 1)
    return round(min(max(beta * math.exp(rate * error), low), high), 4)


@mistake("adapt_beta")
def rounded_to_five_decimals(beta, kl, target, rate=0.1, low=1e-4, high=1.0):
    """The next beta was rounded to five decimals.

    Hint: How many digits of a beta of 0.0004 are left, and which steps can it still take? Round where you print.
    """
    error = min(max(kl / target - 1, -1), 1)
    return round(min(max(beta * math.exp(rate * error), low), high), 5)


@right("adapt_beta")
def numpy_clip(beta, kl, target, rate=0.1, low=1e-4, high=1.0):
    """np.clip, np.exp."""
    return float(np.clip(beta * np.exp(rate * np.clip(kl / target - 1, -1, 1)), low, high))


@right("adapt_beta")
def torch_clamp(beta, kl, target, rate=0.1, low=1e-4, high=1.0):
    """torch.clamp on float64 scalars; a tensor comes out."""
    error = torch.as_tensor(kl / target - 1, dtype=torch.float64).clamp(-1, 1)
    return (beta * torch.exp(rate * error)).clamp(low, high)


@right("adapt_beta")
def float32_tensors(beta, kl, target, rate=0.1, low=1e-4, high=1.0):
    """The same in float32."""
    error = torch.tensor(kl / target - 1).clamp(-1, 1)
    return torch.clamp(beta * torch.exp(rate * error), low, high).item()


@right("adapt_beta")
def in_log_space(beta, kl, target, rate=0.1, low=1e-4, high=1.0):
    """The logarithm of beta moves."""
    log_beta = math.log(beta) + rate * max(-1.0, min(1.0, (kl - target) / target))
    return math.exp(max(math.log(low), min(math.log(high), log_beta)))


@right("adapt_beta")
def with_ifs(beta, kl, target, rate=0.1, low=1e-4, high=1.0):
    """Every clip as an if."""
    error = (kl - target) / target
    if error > 1:
        error = 1
    elif error < -1:
        error = -1
    new = beta * math.e ** (rate * error)
    if new < low:
        return low
    return high if new > high else new


@right("adapt_beta")
def middle_of_three(beta, kl, target, rate=0.1, low=1e-4, high=1.0):
    """The middle of three sorted numbers."""
    error = sorted((-1, kl / target - 1, 1))[1]
    return sorted((low, beta * math.exp(rate * error), high))[1]


@right("kl_estimates")
def by_the_inverse_ratio(log_probs, ref_log_probs):
    """All three from ref - new."""
    back = torch.sub(ref_log_probs, log_probs)
    return back.neg(), back.square().mul(0.5), torch.special.expm1(back).sub(back)


@right("masked_mean")
def zeros_multiplied_in(values, mask, dim=None):
    """Cleaned, then one product of weights."""
    keep = mask != 0
    clean = torch.where(keep, values, torch.zeros((), dtype=values.dtype))
    count = keep.to(values.dtype)
    if dim is None:
        clean, count, dim = clean.flatten(), count.flatten(), 0
    return (clean * count).sum(dim=dim) / torch.maximum(count.sum(dim=dim), torch.ones((), dtype=values.dtype))


@right("adapt_beta")
def sorted_in_the_middle(beta, kl, target, rate=0.1, low=1e-4, high=1.0):
    """The middle of three, twice."""
    error = sorted([-1.0, (kl - target) / target, 1.0])[1]
    return sorted([low, math.e ** (rate * error) * beta, high])[1]


@mistake("grpo_objective")
def padding_of_new_overwritten(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The padding was cleaned in the caller's own new log-probs, behind autograd's back.

    Hint: `.data` writes into the tensor that came in. What is a new tensor made by?
    """
    padding = ~mask.bool()
    log_probs_new.data[padding] = 0.0
    new, old, ref = (x.masked_fill(padding, 0.0) for x in (log_probs_new, log_probs_old, ref_log_probs))
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    k3 = torch.exp(ref - new) - (ref - new) - 1
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@right("grpo_objective")
def reference_cleaned_at_the_end(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """The reference's padding is left until the aggregation; what it makes of the gradient ends where that of the policy was cut off."""
    padding = ~mask.bool()
    new, old = (x.masked_fill(padding, 0.0) for x in (log_probs_new, log_probs_old))
    ratio = torch.exp(new - old)
    surrogate = pessimistic(ratio, advantages, clip_range)
    d = ref_log_probs - new
    k3 = torch.exp(d) - d - 1
    return aggregated(-surrogate + beta * k3, mask, aggregate, max_length), watched(surrogate, k3, ratio, advantages, mask, clip_range)


@right("grpo_objective")
def one_sum_of_weights(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """Each token's weight first, then one weighted sum for the loss and for every metric."""
    keep = mask.bool()
    per_token = keep.double() / keep.sum().clamp_min(1)
    weights = {
        "sequence": keep.double() / keep.sum(1, keepdim=True).clamp_min(1) / len(keep),
        "token": per_token,
        "constant": keep.double() / (len(keep) * width(keep, max_length)),
    }[aggregate]
    new, old, ref = (torch.where(keep, x, 0.0) for x in (log_probs_new, log_probs_old, ref_log_probs))
    a = advantages.unsqueeze(1)
    ratio = (new - old).exp()
    bound = torch.where(a >= 0, ratio.clamp(max=1 + clip_range), ratio.clamp(min=1 - clip_range))
    drift = torch.expm1(ref - new) - (ref - new)
    loss = ((beta * drift - bound * a) * weights.to(new.dtype)).sum()
    share = (bound.ne(ratio) & (a != 0)).to(new.dtype)
    with torch.no_grad():
        told = [(x * per_token.to(x.dtype)).sum() for x in (-bound * a, drift, share)]
    return loss, dict(zip(("policy_loss", "kl", "clip_fraction"), told))
