# %% [markdown]
# # 3. The k3 KL estimator
#
# A policy that is paid for reward will do anything for it, including forgetting how to write. GRPO charges it for
# every step away from a frozen copy of itself, the **reference**. The charge is one short formula, $k_3$, and it
# hides more than it shows: why this formula and not the obvious one, which divergence it really pulls on, what a
# single NaN in the padding does to it, and how much to charge. At the end of this notebook you have written the whole
# objective of GRPO, and you can say what each of its terms does.
#
# ```text
# prompts → rollout → rewards → advantages → ratio, clip → KL → update ↺
# notebook     4         4          1             2        3      4
#                                                         here
# ```
#
# | | |
# |---|---|
# | **Difficulty** | Medium: little code, several traps |
# | **Time** | About 105 minutes: 75 for the exercises, the rest to read and guess; the sections marked (optional) take 10 more |
# | **You should know** | Notebooks 1 and 2: the group's advantages, the ratio, the clip |
# | **You will write** | `kl_estimates`, `masked_mean`, `grpo_objective`, `adapt_beta` |
# | **Next** | Notebook 4: a model learns to think, with the code you have written |

# %% given setup
import math
import time

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import torch

SEED = 0  # draws of the hidden tests; a class has its own
BLUE, ORANGE, GREEN, PINK, YELLOW, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"  # told apart by everyone
mpl.rcParams.update({"figure.figsize": (7, 3.2), "axes.prop_cycle": mpl.cycler(color=[BLUE, ORANGE, GREEN, PINK, YELLOW, SKY]) + mpl.cycler(ls=["-", "--", "-.", ":", (0, (6, 1)), (0, (3, 1, 1, 1, 1, 1))]), "axes.spines.top": False, "axes.spines.right": False, "figure.constrained_layout.use": True})

# %% [markdown]
# ## A price on drifting away
#
# Two models look at the same prompt. $\pi$ is the policy that we train. $\pi_{\text{ref}}$ is the model that it was
# when we began; nobody trains it. The habit of comparing the two comes from RLHF (reinforcement learning from human
# feedback): there the reward is itself a model, and a text unlike any that it has seen can fool it.
#
# How far apart are they? The usual measure is the Kullback-Leibler divergence, KL for short:
#
# $$\operatorname{KL}(\pi \,\|\, \pi_{\text{ref}}) = \sum_x \pi(x)\, \log \frac{\pi(x)}{\pi_{\text{ref}}(x)}$$
#
# In words: sample from the policy, and ask of every token how much more likely the policy found it than the
# reference did; then average. The unit is the *nat* (from the natural logarithm). The KL is 0 when the two agree
# and positive otherwise, and it is not symmetric: to sample from the *reference* and ask the same the other way round
# gives another number.
#
# All through the first half of this notebook we play with a vocabulary of five tokens. So small a world can be
# counted out completely, and nothing has to be believed.

# %% given two_policies
POLICY = torch.tensor([0.50, 0.20, 0.15, 0.10, 0.05], dtype=torch.float64)  # pi: what we train
REFERENCE = torch.tensor([0.20, 0.30, 0.20, 0.20, 0.10], dtype=torch.float64)  # pi_ref: frozen


def exact_kl(p, q):
    """KL(p || q), summed over the last dimension: every token of the vocabulary counted out."""
    return (p * (p.log() - q.log())).sum(-1)


# %% [markdown]
# **A guess first.** The policy likes token 0 much more than the reference does (0.50 against 0.20), and every other
# token a little less. Which is larger, KL(policy || reference) or KL(reference || policy)?

# %% show the_two_directions
print(f"KL(policy || reference) = {exact_kl(POLICY, REFERENCE):.4f}")
print(f"KL(reference || policy) = {exact_kl(REFERENCE, POLICY):.4f}")
tokens = np.arange(5)
plt.bar(tokens - 0.2, POLICY.numpy(), 0.4, label="policy")
plt.bar(tokens + 0.2, REFERENCE.numpy(), 0.4, hatch="//", label="reference")
plt.xlabel("token")
plt.ylabel("probability")
plt.title("Five tokens, two models")
plt.legend(frameon=False)
plt.show()

# %% [markdown]
# 0.2299 against 0.2039: alike here, and not the same. Keep both in mind: in *What each does as a loss* you will catch
# GRPO's penalty pulling on the second one.
#
# ## Why we estimate what we could compute
#
# For five tokens the sum is nothing. For a language model, the sum runs over the whole vocabulary, at every
# position of every answer, for both models. Before you run the next cell, guess: 8 prompts with 16 answers of 1,024
# tokens each. How much memory do the log-probs of the tokens that were *sampled* take, and how much do the full
# tables of log-probs take?

# %% show what_a_cache_costs
prompts, answers, length, vocabulary = 8, 16, 1024, 151_936  # the vocabulary of the smaller Qwen2.5 models
sampled = prompts * answers * length  # one number a token
print(f"sampled tokens only: {sampled:>14,} floats ({sampled / 2**10:.0f} K) = {sampled * 4 / 2**10:,.0f} KiB in float32")
print(f"whole vocabulary:    {sampled * vocabulary:>14,} floats = {sampled * vocabulary * 4 / 2**30:,.1f} GiB in float32")

# %% [markdown]
# 512 KiB against 74 GiB. (The figure "128 M floats, 256 MB" circulates for this very batch. It is
# 128 K: an M has crept in.) So we keep one number per sampled token and model, and estimate the KL from those.
#
# ### The reference, once a batch (optional)
#
# That number is cheap to keep, and dear to make: the reference has to run over the whole batch once. But it is
# *frozen*, so once is enough. If a batch is used for several inner epochs, compute the reference's log-probs when
# the answers are sampled, put them beside the old log-probs, and reuse them. One reads that such a cache saves 30 %
# of the time. Count: a forward pass is one unit of work, a backward pass about two. **Guess first**: what is saved
# with one update a batch, with 4, with very many?

# %% show reference_once
torch.manual_seed(0)


def small_model():
    layers = [torch.nn.Embedding(256, 128), torch.nn.Linear(128, 512), torch.nn.SiLU(), torch.nn.Linear(512, 256)]
    return torch.nn.Sequential(*layers)


def sampled_log_probs(model, tokens):  # [N, T] -> [N, T]
    return torch.distributions.Categorical(logits=model(tokens)).log_prob(tokens)


def seconds_per_batch(policy, reference, tokens, inner_epochs, cached):
    start = time.perf_counter()
    for epoch in range(inner_epochs):
        if epoch == 0 or not cached:
            with torch.no_grad():
                ref = sampled_log_probs(reference, tokens)
        gap = sampled_log_probs(policy, tokens) - ref  # some loss that needs both
        policy.zero_grad()
        gap.square().mean().backward()
    return time.perf_counter() - start


policy, reference = small_model(), small_model()
tokens = torch.randint(256, (16, 32))
for epochs in (1, 4, 100):
    without, with_cache = epochs * (1 + 1 + 2), 1 + epochs * (1 + 2)
    print(f"{epochs:3} updates a batch: {with_cache} units of work for {without}, saved {1 - with_cache / without:.0%}")
rounds = [[seconds_per_batch(policy, reference, tokens, 4, cached) for cached in (False, True)] for _ in range(15)]
recomputed, cached = (min(column) for column in zip(*rounds))  # the smallest time is the least disturbed
print(f"by the clock of this machine, for 4 updates of a small model: saved {1 - cached / recomputed:.0%}")

# %% [markdown]
# With one update a batch there is nothing to save: the reference runs once either way. With 4 it is 13 units of 16,
# a saving of 19 %, and it never passes a quarter of the *updates*; sampling, mostly the longest part of a step, is not
# counted yet. So 30 % of a run is out of reach. What saves a whole pass in every case is $\beta = 0$: then no reference is
# needed. The policy's own log-probs cannot be cached: they change with every step, and they carry the gradient.
#
# ## Three ways to estimate it
#
# A token $x$ was sampled from the policy. We hold two numbers, $\log\pi(x)$ and $\log\pi_{\text{ref}}(x)$. Let
#
# $$\ell = \log \pi(x) - \log \pi_{\text{ref}}(x).$$
#
# John Schulman's note *Approximating KL Divergence* (2020) gives three estimates of the KL from one such token. The
# first two are quickly told:
#
# - $k_1 = \ell$ is the definition itself: the average of $\ell$ *is* the KL. But a single $\ell$ is often negative.
# - $k_2 = \ell^2 / 2$ is the second-order approximation: never negative, and nearly right for small $\ell$.
#
# The third starts from $k_1$ and adds something that takes the negative values away and leaves the average alone:
#
# $$k_3 = k_1 + c\,(r - 1)$$
#
# Here $r$ is one of the two ratios between the models, $\pi(x)/\pi_{\text{ref}}(x)$ or $\pi_{\text{ref}}(x)/\pi(x)$, and $c$ is
# a number. **Which ratio and which number is yours to find.** Two properties settle it:
#
# 1. *Right on average*: over the policy's own samples the added part averages to 0, for any two models. So $r$ must
#    average to 1. Which of the two ratios does?
# 2. *Never negative*, and 0 where the two models agree. So $k_3$, drawn against $\ell$, has its lowest point at
#    $\ell = 0$. Which slope must it have there, and which $c$ gives it?

# %% [markdown]
# ### Exercise: `kl_estimates` (6 points, 15 minutes, ●●○)
#
# | in | shape | meaning |
# |---|---|---|
# | `log_probs` | any shape | $\log\pi$ of the sampled tokens; carries the gradient |
# | `ref_log_probs` | the same shape | $\log\pi_{\text{ref}}$ of the same tokens; arrives without gradient |
#
# Returns three tensors of that shape, `k1, k2, k3`, one number per sample, not averaged.
#
# A worked number: a token with $\log\pi = -2$ and $\log\pi_{\text{ref}} = -1$ has $\ell = -1$, so
# $k_1 = -1$, $k_2 = 0.5$ and $k_3 = 0.718$. (The other way round, $\ell = 1$, it is $1, 0.5, 0.368$.) Does what you
# found give both?
#
# - All three are differentiable with respect to `log_probs`: we shall use each as a loss and see what it does.
# - Any two log-probs will do: nothing is bounded, however far apart they are.
# - float64 in, float64 accuracy out. The inputs are not changed.
#
# <details data-checks="three_numbers_per_sample right_on_average"><summary>A hint: which ratio</summary>
#
# The average of r over the policy's samples is the sum of policy(x) times r(x) over the vocabulary. Write that sum
# down for both ratios and cancel what cancels. One of the two is 1, whatever the models are.
# </details>
#
# <details data-checks="three_numbers_per_sample right_on_average each_can_be_a_loss"><summary>A hint: which number</summary>
#
# In terms of the log-ratio l, the two ratios are exp(l) and exp(-l). At l = 0 their slopes are 1 and -1, and that
# of k1 is 1. At the lowest point of a curve the slopes of its parts add up to 0.
# </details>
#
# <details data-checks="each_can_be_a_loss any_shape_full_precision"><summary>A hint: the code</summary>
#
# One line for the log-ratio, one for each estimate. Subtract the log-probs before you take an exp: the exp of -5000
# alone is 0. Nothing here needs detach, float() or a loop.
# </details>

# %% given reading_answers
def close(got, expected, tolerance=1e-5):
    """Does `got` have the shape of `expected`, and equal it within the tolerance? (NaN is close to nothing.)"""
    try:
        got, expected = (torch.as_tensor(x, dtype=torch.float64).detach() for x in (got, expected))
    except (TypeError, ValueError, RuntimeError):
        return False
    return got.shape == expected.shape and bool(((got - expected).abs() <= tolerance).all())


def numbers(x):
    """Any answer as short text, for the messages of the checks."""
    try:
        x = torch.as_tensor(x, dtype=torch.float64).detach()
        return "[" + ", ".join(numbers(row) for row in x) + "]" if x.dim() else f"{x.item() + 0.0:.5g}"
    except (TypeError, ValueError, RuntimeError):
        return repr(x)[:80]


def beside(got, expected, names, tolerance=1e-5):
    """What came beside what was expected, one by one, where the two differ."""
    try:
        alike = [torch.as_tensor(x).shape for x in got] == [torch.as_tensor(x).shape for x in expected]
    except TypeError:
        alike = False
    if not alike:
        return f"{numbers(got)}, expected {numbers(expected)}"
    told = [(name, g, e) for name, g, e in zip(names, got, expected) if not close(g, e, tolerance)]
    return "; ".join(f"{name}: {numbers(g)}, expected {numbers(e)}" for name, g, e in told[:4]) + (" ..." if len(told) > 4 else "")


def three_tensors(result, shape):
    """The three tensors that kl_estimates returned, as one: [3, *shape]."""
    assert isinstance(result, (tuple, list)) and len(result) == 3, "kl_estimates returns three things: k1, k2, k3"
    for name, k in zip(("k1", "k2", "k3"), result):
        assert isinstance(k, torch.Tensor), f"{name} should be a tensor, and is of type {type(k).__name__}"
        assert k.shape == shape, f"{name} should have the shape of the log-probs, {tuple(shape)}, and has {tuple(k.shape)}"
    return torch.stack(tuple(result))


# %% solution kl_estimates
def kl_estimates(log_probs, ref_log_probs):
    """Three estimates of KL(policy || reference) from sampled tokens: k1, k2, k3, each shaped like log_probs."""
    ### BEGIN SOLUTION
    log_ratio = log_probs - ref_log_probs
    k1 = log_ratio
    k2 = log_ratio**2 / 2
    k3 = torch.expm1(-log_ratio) + log_ratio  # expm1(x) = e^x - 1, exact for small x too
    return k1, k2, k3
    ### END SOLUTION


# %% check three_numbers_per_sample points=2
# Each of the three estimates follows its formula.
log_probs, ref_log_probs = torch.tensor([-0.5, -2.0, -1.0, -3.0]), torch.tensor([-1.5, -1.0, -1.0, -2.5])
given, given_ref = log_probs.clone(), ref_log_probs.clone()
got = kl_estimates(given, given_ref)
got = three_tensors(got, (4,))
tokens = ["token 1 (l = 1)", "token 2 (l = -1)", "token 3 (l = 0)", "token 4 (l = -0.5)"]
expected = torch.tensor([[1.0, -1.0, 0.0, -0.5], [0.5, 0.5, 0.0, 0.125], [0.3679, 0.7183, 0.0, 0.1487]])
assert close(got[0], expected[0]), f"k1 of {beside(got[0], expected[0], tokens)}. It is positive where the policy likes the token more than the reference."
assert close(got[1], expected[1]), f"k2 of {beside(got[1], expected[1], tokens)}. Is it half of a square?"
assert close(got[2], expected[2], 1e-4), f"k3 of {beside(got[2], expected[2], tokens, 1e-4)}. Which ratio averages to 1, and which c makes 0 the lowest point?"
got = (given, given_ref)  # as they are afterwards
assert torch.equal(given, log_probs) and torch.equal(given_ref, ref_log_probs), (
    f"the log-probs that came in were changed, to {numbers(given)} and {numbers(given_ref)}. Which line writes into them?"
)
far = torch.tensor([-1.0, -19.0])
got = three_tensors(kl_estimates(far.clone(), far.flip(0)), (2,))
expected = torch.tensor([[18.0, -18.0], [162.0, 162.0], [17.0, 65659950.0]])
for k, mine, right in zip(("k1", "k2", "k3"), got, expected):
    apart = ["a token 18 nats above the reference", "a token 18 nats below it"]
    assert close(mine / right, [1.0, 1.0], 1e-4), f"{k} of {beside(mine, right, apart, 1e-3)}. Is something bounded?"
### BEGIN HIDDEN TESTS
draw = torch.Generator().manual_seed(SEED)
for _ in range(10):
    a, b = (-3 * torch.rand(2, 12, generator=draw)).unbind()
    given_a, given_b = a.clone(), b.clone()
    out = kl_estimates(given_a, given_b)
    by_hand = [(x - y, (x - y) * (x - y) / 2, math.exp(y) / math.exp(x) - 1 + x - y) for x, y in zip(a.tolist(), b.tolist())]
    for mine, theirs in zip(zip(*by_hand), out, strict=True):
        assert close(theirs, mine, 3e-5)
    assert torch.equal(given_a, a) and torch.equal(given_b, b), "the log-probs that came in were changed"
    far = (15 + 4 * torch.rand(12, generator=draw)).double()  # far apart
    wanted = torch.stack([far, far**2 / 2, far.neg().exp() - 1 + far]), torch.stack([-far, far**2 / 2, far.exp() - 1 - far])
    for sign, expected in zip((1, -1), wanted):
        out = torch.stack(list(kl_estimates(a.double() + sign * far, a.double())))
        assert close(out / expected, torch.ones(3, 12), 1e-5)
### END HIDDEN TESTS

# %% check right_on_average points=1
# Averaged over the policy's own tokens, k1 and k3 are the KL, and k2 is near it.
k = three_tensors(kl_estimates(POLICY.log(), REFERENCE.log()), (5,))
got = (k * POLICY).sum(1)
assert close(got[0], 0.2299, 1e-3), f"k1 averages {got[0]:.4f} over the policy's tokens; the KL is 0.2299. Which model is measured against which?"
assert close(got[2], 0.2299, 1e-3), f"k3 averages {got[2]:.4f} over the policy's tokens; the KL is 0.2299. Which of the two ratios averages to 1?"
assert close(got[1], 0.2686, 1e-3), f"k2 averages {got[1]:.4f}; expected 0.2686, near the KL but not equal to it"
### BEGIN HIDDEN TESTS
draw = torch.Generator().manual_seed(SEED + 1)
for _ in range(10):
    p, q = torch.softmax(1.5 * torch.randn(2, 6, generator=draw, dtype=torch.float64), -1).unbind()
    kl = sum(x * math.log(x / y) for x, y in zip(p.tolist(), q.tolist()))
    half_square = sum(x * math.log(x / y) ** 2 / 2 for x, y in zip(p.tolist(), q.tolist()))
    averages = [float((p * k).sum()) for k in kl_estimates(p.log(), q.log())]
    assert close(averages, [kl, half_square, kl], 1e-6)
### END HIDDEN TESTS

# %% check each_can_be_a_loss points=2
# Each estimate carries the right gradient to the policy's log-probs.
log_probs, ref_log_probs = torch.tensor([-0.5, -2.0, -1.0, -3.0], requires_grad=True), torch.tensor([-1.5, -1.0, -1.2, -2.5])
estimates = got = kl_estimates(log_probs.clone(), ref_log_probs.clone())
three_tensors(got, (4,))
got = [k.requires_grad for k in estimates]
assert all(got), f"no gradient to log_probs comes from {' and '.join(f'k{i}' for i in (1, 2, 3) if not got[i - 1])}: was something detached, or made into plain numbers?"
got = torch.stack([torch.autograd.grad(k.sum(), log_probs, retain_graph=True)[0] for k in estimates])
expected = torch.tensor([[1.0, 1.0, 1.0, 1.0], [1.0, -1.0, 0.2, -0.5], [0.6321, -1.7183, 0.1813, -0.6487]])
tokens = ["token 1 (l = 1)", "token 2 (l = -1)", "token 3 (l = 0.2)", "token 4 (l = -0.5)"]
for k, mine, right in zip(("k1", "k2", "k3"), got, expected):
    assert close(mine, right, 1e-4), f"the gradient of {k} at {beside(mine, right, tokens, 1e-4)}. Which slope has its formula there?"
### BEGIN HIDDEN TESTS
draw = torch.Generator().manual_seed(SEED + 2)
for _ in range(5):
    a, b = (-3 * torch.rand(2, 3, 4, generator=draw)).unbind()
    a.requires_grad_()
    weight = torch.randn(3, 3, 4, generator=draw)
    sum((w * k).sum() for w, k in zip(weight, kl_estimates(a.clone(), b.clone()))).backward()
    gap = a.detach().double() - b.double()
    assert close(a.grad, weight[0] + weight[1] * gap + weight[2] * (1 - torch.exp(-gap)), 1e-4)
### END HIDDEN TESTS

# %% check any_shape_full_precision points=1
# Any shape goes in and comes out, and float64 stays exact.
log_probs = torch.tensor([-5000.123, -4000.456, -3000.789, -10.1], dtype=torch.float64)  # of whole, long answers
d = torch.tensor([2.0123, -1.0234, 0.5345, 0.0], dtype=torch.float64)
for shape in ((2, 2), (), (1, 3, 1)):
    policy, ref = (x[: math.prod(shape)].view(shape).clone() for x in (log_probs, log_probs + d))
    expected = torch.stack([-(ref - policy), (ref - policy) ** 2 / 2, (ref - policy).exp() - (ref - policy) - 1])
    got = three_tensors(kl_estimates(policy, ref), shape)
    assert close(got, expected, 1e-8), (
        f"for float64 numbers of shape {shape}, k1, k2 and k3 are off by up to {numbers((got.detach() - expected).abs().reshape(3, -1).amax(1))}, "
        "where 1e-8 is allowed. " + ("Was precision lost on the way?" if close(got, expected, 0.01) else "So much is a formula, not precision, unless an exp was taken too early.")
    )
### BEGIN HIDDEN TESTS
draw = torch.Generator().manual_seed(SEED + 3)
for shape in ((), (1,), (7,), (2, 3), (2, 3, 4)):
    a = -9 * torch.rand(shape, generator=draw, dtype=torch.float64) - 1
    b = a - 2 * torch.rand(shape, generator=draw, dtype=torch.float64) - 0.1
    k1, k2, k3 = kl_estimates(a.clone(), b.clone())
    assert close(k1, a - b, 1e-9) and close(k2, (b - a).pow(2) * 0.5, 1e-9) and close(k3, b.exp() / a.exp() - 1 + a - b, 1e-9)
tiny = torch.tensor([1e-3, -1e-3, 1e-4, -1e-5, 0.0])
assert close(kl_estimates(tiny, torch.zeros(5))[2], tiny.double() ** 2 / 2, 1e-6)
### END HIDDEN TESTS

# %% [markdown]
# ### What they look like
#
# What you found: $r = e^{-\ell} = \pi_{\text{ref}}/\pi$, because its average over the policy's samples is
#
# $$\sum_x \pi(x)\, \frac{\pi_{\text{ref}}(x)}{\pi(x)} = \sum_x \pi_{\text{ref}}(x) = 1,$$
#
# and $c = 1$, because the slopes $1$ and $-c$ must cancel at $\ell = 0$. Most code writes $k_3$ with
# $d = -\ell = \log\pi_{\text{ref}} - \log\pi$:
#
# $$k_3 = e^{d} - d - 1$$
#
# (Statisticians call the part that was added a control variate.) Trainers differ here, so our row of conventions:
#
# | | this course | others |
# |---|---|---|
# | the KL | $k_3$ to the reference, $d$ = reference - policy, per token, in the loss, on tokens of the policy | the GRPO paper: the same; TRL: $k_3$ times the importance weight (see *Samples of an older policy*), with $\beta = 0$ unless you set it; verl: $k_1$, $k_2$ or $k_3$ by a setting, cut off at 10; DAPO and Dr. GRPO: no KL; PPO in RLHF: $k_1$, in the reward |
#
# Three curves against $\ell$. Where do they touch, and which side of 0 do they take?

# %% show three_curves
log_ratio = torch.linspace(-2, 2, 201, dtype=torch.float64)
for k, name in zip(kl_estimates(log_ratio, torch.zeros_like(log_ratio)), ("k1", "k2", "k3")):
    plt.plot(log_ratio.numpy(), k.numpy(), label=name)
plt.axhline(0, color="black", lw=0.6)
plt.ylim(-2.1, 4.6)
plt.xlabel("log policy - log reference, of one token (nats)")
plt.ylabel("estimate (nats)")
plt.title("k1 takes both signs; k2 and k3 do not")
plt.legend(frameon=False)
plt.show()

# %% [markdown]
# $k_2$ and $k_3$ share a tangent and a curvature at 0: for a policy near its reference they are the same. Further
# out $k_3$ is lopsided: it grows exponentially towards the left, where the policy gives a token *less* than the
# reference does, and only linearly towards the right. Remember that lean; it comes back when we look at gradients.
#
# ### Mean, spread, sign
#
# Now the claims, counted out over the five tokens. Guess which of the three has the smallest spread.

# %% show mean_spread_sign
k = torch.stack(kl_estimates(POLICY.log(), REFERENCE.log()))  # [3, 5]
mean = (k * POLICY).sum(1)
spread = ((k - mean[:, None]) ** 2 * POLICY).sum(1).sqrt()
print(f"exact KL(policy || reference) {exact_kl(POLICY, REFERENCE):.4f}\n")
print("      expectation   standard deviation   smallest   share of samples below 0")
for name, m, s, row in zip(("k1", "k2", "k3"), mean, spread, k):
    print(f"{name}    {m:10.4f}   {s:18.4f}   {row.min():8.3f}   {POLICY[row < -1e-12].sum():10.2f}")
upside_down = torch.stack(kl_estimates(REFERENCE.log(), POLICY.log()))[2]
print(f"\nk3 with its ratio upside down: expectation {(upside_down * POLICY).sum():.4f}, smallest {upside_down.min():.3f}")

# %% [markdown]
# $k_1$: the right mean, but the largest spread, 0.70, three times the quantity itself, and half of its samples are
# negative. $k_2$: small spread, never negative, and a mean of 0.2686 that is not the KL (0.2299). $k_3$: the right
# mean, never negative, and here the smallest spread of all, 0.12.
#
# **Mind the direction.** The ratio in $k_3$ is *reference over policy*, upside down compared with the ratio of the
# clip. Turned round, $e^{\ell} - \ell - 1$, it is never negative either, and 0 where the models agree: no single
# number betrays it. Only its average does, 0.3409, which is not the KL. And
# $\log\pi_{\text{ref}} - \log\pi$ by itself, sometimes called "the KL per token", is *minus* $k_1$.
#
# In training we see an average over a batch. So draw 64 tokens, average, write it down, and do it 2,000 times. Will
# the average of $k_1$ over 64 tokens still be negative now and then?

# %% show averages_over_64_tokens
draw = torch.Generator().manual_seed(0)
drawn = torch.multinomial(POLICY, 2000 * 64, replacement=True, generator=draw).view(2000, 64)
for row, name, style in zip(kl_estimates(POLICY.log(), REFERENCE.log()), ("k1", "k2", "k3"), ("-", "--", "-.")):
    averages = row[drawn].mean(1).numpy()
    print(f"{name}: mean of the averages {averages.mean():.4f}, standard deviation {averages.std():.4f}, below 0: {(averages < 0).sum()}")
    plt.hist(averages, bins=np.arange(-0.1, 0.6, 0.01), histtype="step", lw=1.6, ls=style, label=name)
plt.axvline(exact_kl(POLICY, REFERENCE).item(), color="black", lw=1)
plt.xlabel("average over 64 tokens (nats); the line is the exact KL")
plt.ylabel("batches")
plt.title("k3 sits on the line and is narrow; k2 is narrow beside it")
plt.legend(frameon=False)
plt.show()

# %% [markdown]
# The wide hill is $k_1$: it spills below 0, 13 times in 2,000, a negative "distance" from an estimator that is right on
# average. $k_3$ is as right and six times as narrow (0.0147 against 0.0867).
#
# ### Is k3 always the narrow one? (optional)
#
# Not always, and this is worth knowing before you trust a KL plot. Let the policy drift: $\pi \propto \pi_{\text{ref}}\, e^{s u}$
# with a fixed direction $u$ and a growing strength $s$. Before you run: what happens to the spread of $k_3$ when the
# policy has nearly given up a token that the reference still likes?

# %% show drift
direction = torch.tensor([1.2, -0.3, 0.1, -0.6, -1.0], dtype=torch.float64)


def drifted(strength):
    return torch.softmax(REFERENCE.log() + strength * direction, -1)


strengths = np.linspace(0.05, 4, 80)
table = []
for s in strengths:
    p = drifted(s)
    k = torch.stack(kl_estimates(p.log(), REFERENCE.log()))
    m = (k * p).sum(1)
    table.append(torch.cat([m, ((k - m[:, None]) ** 2 * p).sum(1).sqrt()]))
table = torch.stack(table).numpy()
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), sharex=True)
for i, name in enumerate(("k1", "k2", "k3")):
    left.plot(strengths, table[:, i], label=name)
    right.plot(strengths, table[:, 3 + i], label=name)
left.set(xlabel="strength of the drift", ylabel="expectation (nats)", title="k1 and k3 lie on each other")
right.set(xlabel="strength of the drift", ylabel="standard deviation (nats)", title="k3 is narrow near the reference only")
left.legend(frameon=False)
plt.show()

# %% [markdown]
# Near the reference $k_3$ has by far the smallest spread; far away its $e^{d}$ is the ratio of a common token to a rare one,
# and it becomes the noisiest. Here is what each token would report, first for a drift of 1, then in a picture that you
# can move, where sliders are available:


# %% show drift_by_hand
def draw_drift(strength=1.0):
    p = drifted(strength)
    k = torch.stack(kl_estimates(p.log(), REFERENCE.log()))
    fig, (left, right) = plt.subplots(1, 2, figsize=(9, 2.8))
    left.bar(tokens - 0.2, p.numpy(), 0.4, label="policy")
    left.bar(tokens + 0.2, REFERENCE.numpy(), 0.4, hatch="//", label="reference")
    left.set(xlabel="token", ylabel="probability", ylim=(0, 1), title=f"drift {strength:.1f}, KL {exact_kl(p, REFERENCE):.3f}")
    left.legend(frameon=False)
    for i, name in enumerate(("k1", "k2", "k3")):
        right.bar(tokens + 0.27 * (i - 1), k[i].numpy(), 0.27, hatch=("", "//", "..")[i], label=name)
    right.axhline(0, color="black", lw=0.6)
    right.set(xlabel="token", ylabel="estimate (nats)", title="what each token would report")
    right.legend(frameon=False)
    plt.show()


tokens = np.arange(5)
for strength in (1.0, 3.0):
    p = drifted(strength)
    print(f"drift {strength}: token 4 is one in {1 / p[4]:,.0f}, with a k3 of {kl_estimates(p.log(), REFERENCE.log())[2][4]:.0f}")
draw_drift(1.0)

# %% show drift_slider
try:
    from ipywidgets import FloatSlider, interact

    interact(draw_drift, strength=FloatSlider(value=3.0, min=0.1, max=4.0, step=0.1, description="drift", continuous_update=False))
except ImportError:
    print("No ipywidgets here, so no slider. Change the number by hand; this is a drift of 3:")
    draw_drift(3.0)

# %% [markdown]
# At a drift of 3, token 4 is one in 1,557 under the policy, and the $k_3$ that it reports, should it be sampled once, is 150. That is where spikes in a KL plot come from.
#
# ### Samples of an older policy
#
# Everything so far was *on-policy*: on tokens that the policy itself had sampled. In the second inner epoch that is no
# longer true: the tokens come from $\pi_{\text{old}}$. **Guess**: do $k_1$ and $k_3$ still average to the KL?

# %% show off_policy
OLD = torch.tensor([0.30, 0.30, 0.15, 0.15, 0.10], dtype=torch.float64)  # the policy that sampled
k = torch.stack(kl_estimates(POLICY.log(), REFERENCE.log()))
weight = POLICY / OLD
print(f"exact KL(policy || reference)     {exact_kl(POLICY, REFERENCE):.4f}\n")
print("                                      k1        k2        k3")
for label, average in (("tokens of the policy itself", k @ POLICY), ("tokens of the old policy", k @ OLD), ("... weighted by policy / old", k @ (OLD * weight))):
    print(f"{label:30}" + "".join(f"{a:10.4f}" for a in average))

# %% [markdown]
# On old tokens all three are off: $k_1$ even turns negative on average (-0.0632), $k_3$ says 0.2068 instead of
# 0.2299. The *importance weight* $\pi / \pi_{\text{old}}$ (the ratio of the clip!) restores each exactly to its on-policy
# value, since $\sum_x \pi_{\text{old}} \frac{\pi}{\pi_{\text{old}}} k = \sum_x \pi\, k$. GRPO leaves the weight out; it trusts that
# the policy is still near the old one. Later systems put it in (DeepSeek-V3.2; TRL by default today), and the next experiment
# shows a second reason to.
#
# ### What each does as a loss
#
# An estimator may have the right *value* and still be the wrong *loss*. To train, we differentiate the estimate, and
# the sampling itself passes no gradient: the average gradient is $\sum_x \pi(x)\, \nabla k(x)$, with the first $\pi$ held
# constant. What we would like to have is the gradient of the KL. **Write down your guess for each**: which of $k_1$,
# $k_2$, $k_3$ gives the gradient of $\operatorname{KL}(\pi\|\pi_{\text{ref}})$?
#
# With five tokens we can count out the expectation exactly: no samples, no noise. The picture is the proof.

# %% show gradients_counted_out
logits = POLICY.log().requires_grad_()  # softmax of these is the policy
ref = REFERENCE.log()


def gradient(loss):
    return torch.autograd.grad(loss, logits)[0]


log_pi = torch.log_softmax(logits, -1)
reverse = gradient(exact_kl(log_pi.exp(), REFERENCE))  # of KL(policy || reference)
log_pi = torch.log_softmax(logits, -1)
forward = gradient(exact_kl(REFERENCE, log_pi.exp()))  # of KL(reference || policy)

losses = {}
for name, i, weighted in (("k1", 0, False), ("k2", 1, False), ("k3", 2, False), ("k3 x policy / old", 2, True)):
    log_pi = torch.log_softmax(logits, -1)
    weight = torch.exp(log_pi - log_pi.detach()) if weighted else 1.0  # old = policy: the value is 1, the gradient is not 0
    losses[name] = gradient((POLICY * weight * kl_estimates(log_pi, ref)[i]).sum())

fig, axes = plt.subplots(1, 4, figsize=(11, 3.2), sharey=True)
for ax, (name, g) in zip(axes, losses.items()):
    ax.bar(tokens, g.numpy(), color="lightgray", label="the estimate as a loss")
    ax.plot(tokens, reverse.numpy(), "o", color=BLUE, mfc="none", ms=9, label="of KL(policy || reference)")
    ax.plot(tokens, forward.numpy(), "x", color=ORANGE, ms=8, label="of KL(reference || policy)")
    ax.axhline(0, color="black", lw=0.6)
    ax.set(xlabel="logit of token", title=name)
    gap = {label: float((g - other).abs().max()) for label, other in (("policy || reference", reverse), ("reference || policy", forward), ("zero", 0 * g))}
    print(f"{name:18} largest distance: " + ", ".join(f"to {label} {v:.1e}" for label, v in gap.items()))
one_sample = torch.eye(5, dtype=torch.float64) - POLICY  # the gradient of k1 when token 0, 1, ... was sampled
print(f"k1, token by token: gradients of length {POLICY @ one_sample.norm(dim=1):.2f} on average, which average to 0")
axes[0].set_ylabel("gradient (nats per logit)")
fig.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
plt.show()

# %% [markdown]
# Grey bars are what the loss does on average; they reach the mark of whatever they are the gradient of.
#
# | as a loss | its expected gradient | why |
# |---|---|---|
# | $k_1$ | exactly 0 | $\sum \pi \nabla\log\pi = \nabla \sum \pi = \nabla 1 = 0$: it never even looks at the reference; each sample pulls (by 0.79 on average), all together not: pure noise |
# | $k_2$ | that of KL(policy ‖ reference) | $\sum \pi\, \ell\, \nabla\log\pi$, which is the gradient of the KL |
# | $k_3$ | that of KL(reference ‖ policy) | $\sum \pi\,(1 - e^{-\ell})\nabla\log\pi = -\sum \pi_{\text{ref}} \nabla \log\pi$: the *other* KL |
# | $k_3 \cdot \pi/\pi_{\text{old}}$ | that of KL(policy ‖ reference) | the weight makes it $\nabla \sum \pi\, k_3 = \nabla\operatorname{KL}$ |
#
# So the estimator with the biased value is the one with the "right" gradient; the one with the perfect value $k_1$ has
# none at all; and GRPO's $k_3$, whose *value* is the KL from policy to reference, *pulls* along the KL from reference
# to policy. Is that bad? Both are 0 where the two agree and nowhere else, so both lead back. The second one minds most
# about tokens that the reference likes and the policy gave up (the lean to the left in the curves). (All this holds
# on-policy: at the first inner step of each batch.)
#
# ### A digit lost (optional)
#
# Early in training $d$ is tiny, and float32 holds about seven digits. $e^d$ is then 1.000…, and subtracting 1 throws
# away the digits that mattered. Guess: what does $e^d - d - 1$, written as it stands, give at $d = 10^{-4}$? Below it
# is beside the other order of the terms, *your* $k_3$, and $k_3$ to all digits (in float64):

# %% show small_differences
one = np.float32(1)
print("      d   exp(d) - d - 1   exp(d) - 1 - d     your k3      exact")
for d in (1e-2, 1e-3, 1e-4):
    x = np.float32(d)
    yours = kl_estimates(torch.tensor(-d), torch.tensor(0.0))[2].item()
    print(f"{d:7.0e}   {np.exp(x) - x - one:14.3e}   {np.exp(x) - one - x:14.3e}   {yours:.3e}  {math.expm1(d) - d:.3e}")
x = np.linspace(-2e-3, 2e-3, 4001).astype(np.float32)
print(f"the smallest exp(d) - d - 1 for d between -0.002 and 0.002: {(np.exp(x) - x - one).min():.0e}")

# %% [markdown]
# The plain formula is off in the third digit at the first $d$ and has none left at the last; it even turns negative, so never
# assert that a KL is not negative. `torch.expm1`, which is $e^d - 1$ in one piece, keeps the digits. The checks above
# take both, because the *gradient* is fine either way; but if your KL plot shows a staircase in the first steps, this
# is why.
#
# ## Padding
#
# Answers differ in length, tensors do not. So short answers are filled up, and a mask says which tokens are real.
# What stands in the padding is *anything*: log-probs of pad tokens, left-overs, NaN. It must not matter.
#
# The obvious way is to multiply by the mask. What will this print?

# %% show nan_times_zero
values = torch.tensor([1.0, 3.0, float("nan")], requires_grad=True)
mask = torch.tensor([1.0, 1.0, 0.0])
print("mean by multiplication:", ((values * mask).sum() / mask.sum()).item())

# %% [markdown]
# $\text{NaN} \times 0 = \text{NaN}$, and $\infty \times 0 = \text{NaN}$. Multiplying by 0 does not remove a number; it asks it to be
# finite. Padding has to be *replaced*, not multiplied.
#
# ### Exercise: `masked_mean` (5 points, 15 minutes, ●●○)
#
# | in | shape | meaning |
# |---|---|---|
# | `values` | any shape | floats; anything at all in the padding |
# | `mask` | the same shape | 1 or True for real, 0 or False for padding: bool, integer or float |
# | `dim` | `None` or an int | `None`: one mean over everything real; an int: a mean along that dimension |
#
# Returns a scalar tensor, or a tensor without the dimension `dim`.
#
# A worked example: values `[[1, 2, 9], [3, 9, 9]]` with mask `[[1, 1, 0], [1, 0, 0]]` have the mean 2 (three real tokens),
# and along `dim=1` the means 1.5 and 3.
#
# - NaN or infinity in the padding touches neither the value nor the gradient: the gradient there is exactly 0.
# - Only the mask says what is real: a value of 0 counts like any other.
# - A negative `dim` counts from the end, as everywhere in torch.
# - Where there is nothing to average the mean is 0 (not 0/0): a tensor like any other mean, with a gradient of 0.
# - float64 in, float64 accuracy out. The inputs are not changed.
#
# <details data-checks="only_real_tokens_count garbage_in_the_padding gradient_of_the_mean"><summary>A hint: the padding</summary>
#
# Two functions of torch *choose* instead of multiplying: `torch.where` and `masked_fill`. Make the mask a bool first.
# </details>
#
# <details data-checks="along_a_dimension nothing_to_average"><summary>A hint: the count</summary>
#
# `sum(dim)` of the mask counts the real tokens along a dimension. What is the smallest number you ever want to divide
# by? A sum that holds no real token is still a tensor, and backward() can go through it.
# </details>


# %% solution masked_mean
def masked_mean(values, mask, dim=None):
    """Mean of the real entries of values (mask 1), over everything or along dim. Nothing to average: 0."""
    ### BEGIN SOLUTION
    mask = mask.bool()
    real = values.masked_fill(~mask, 0.0)
    if dim is None:
        return real.sum() / mask.sum().clamp_min(1)
    return real.sum(dim) / mask.sum(dim).clamp_min(1)
    ### END SOLUTION


# %% check only_real_tokens_count points=1
# The mean counts every real token once and no padding.
values, mask = torch.tensor([[0.0, 2.0, 9.0], [4.0, 9.0, 9.0]]), torch.tensor([[1, 1, 0], [1, 0, 0]])
masks = {"truth values": mask.bool(), "integers": mask, "floats": mask.float()}
given, given_masks = values.clone(), [m.clone() for m in masks.values()]
got = [masked_mean(given, m) for m in given_masks]
for kind, mean in zip(masks, got):
    assert isinstance(mean, torch.Tensor) and mean.shape == (), f"without dim, a tensor of no dimensions is expected (one number); what came is a {type(mean).__name__}: {numbers(mean)}"
    assert close(mean, 2.0), f"the real values are 0, 2 and 4: expected a mean of 2; with a mask of {kind} it is {numbers(mean)}. What is in the sum, and what is it divided by?"
got = [given, *given_masks]  # as they are afterwards
assert all(torch.equal(x, y) for x, y in zip(got, [values, *masks.values()])), f"what came in was changed: values to {numbers(given)}, the masks to {', '.join(map(numbers, given_masks))}"
got = masked_mean(torch.tensor([100_000_001.0, -100_000_000.0], dtype=torch.float64), torch.ones(2))
assert close(got, 0.5), f"the mean of 100000001 and -100000000, in float64, is 0.5; yours is {numbers(got)}. Was precision lost on the way?"
### BEGIN HIDDEN TESTS
draw = torch.Generator().manual_seed(SEED + 10)
for kind in (torch.bool, torch.int64, torch.float32, torch.uint8):
    values, mask = 5 * torch.randn(4, 7, generator=draw), torch.rand(4, 7, generator=draw) < 0.6
    values[:, 0] = 0.0  # a real token may be worth exactly 0
    real = [v for v, m in zip(values.flatten().tolist(), mask.flatten().tolist()) if m]
    given, given_mask = values.clone(), mask.to(kind)
    assert close(masked_mean(given, given_mask), sum(real) / len(real), 1e-5)
    assert torch.equal(given, values) and torch.equal(given_mask, mask.to(kind)), "what came in was changed"
    double = torch.cat([1e8 + values.double(), values.double() - 1e8])
    assert close(masked_mean(double, torch.ones(8, 7)), values.double().mean(), 1e-6)
### END HIDDEN TESTS

# %% check along_a_dimension points=1
# Along a dimension, each row or column has a mean of its own.
values, mask = torch.tensor([[0.0, 2.0, 7.0], [5.0, 9.0, 9.0]]), torch.tensor([[1, 1, 1], [1, 0, 0]])
got = [masked_mean(values.clone(), mask.clone(), dim=dim) for dim in (0, 1, -2)]
got += [masked_mean(values.clone()[:, None], mask.clone()[:, None], dim=dim) for dim in (0, -1)]  # of shape [2, 1, 3]
assert close(got[0], [2.5, 2.0, 7.0]), f"along dim=0 the means of the three columns are {numbers(got[0])}; expected 2.5, 2 and 7"
assert close(got[1], [3.0, 5.0]), f"along dim=1 the means of the two rows are {numbers(got[1])}; expected 3 and 5"
assert close(got[2], [2.5, 2.0, 7.0]), f"along dim=-2, the last but one, the means are {numbers(got[2])}; expected 2.5, 2 and 7. Which dimension is that in a table of rows and columns?"
assert close(got[3], [[2.5, 2.0, 7.0]]), f"of shape [2, 1, 3], the means along dim=0 are {numbers(got[3])}; expected [[2.5, 2, 7]]"
assert close(got[4], [[3.0], [5.0]]), f"of shape [2, 1, 3], the means along dim=-1 are {numbers(got[4])}; expected [[3], [5]]"
### BEGIN HIDDEN TESTS
draw = torch.Generator().manual_seed(SEED + 11)
values, mask = torch.randn(3, 4, 5, generator=draw), torch.rand(3, 4, 5, generator=draw) < 0.5
values[values.abs() < 0.3] = 0.0  # a real token may be worth exactly 0
mask |= torch.rand(3, 4, 5, generator=draw).argsort(-1) == 0  # a real one in every line along the last dimension
for dim in (0, 1, 2, -1, -2, -3):
    expected = []
    for line, keep in zip(values.movedim(dim, -1).reshape(-1, values.shape[dim]).tolist(), mask.movedim(dim, -1).reshape(-1, values.shape[dim]).tolist()):
        real = [v for v, k in zip(line, keep) if k]
        expected.append(sum(real) / max(len(real), 1))
    out = masked_mean(values.clone(), mask.float(), dim=dim)
    assert out.shape == values.sum(dim).shape and close(out.flatten(), expected, 1e-5)
### END HIDDEN TESTS

# %% check garbage_in_the_padding points=1
# NaN and infinity in the padding do not reach the mean.
nan, inf = float("nan"), float("inf")
values = torch.tensor([[1.0, 2.0, nan], [3.0, inf, -inf], [4.0, 9.0, 9.0]])
mask = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
got = [masked_mean(values.clone(), mask.clone(), dim=1), masked_mean(values.clone(), mask.clone())]
rows = ["row 1 (1, 2, nan in the padding)", "row 2 (3, inf and -inf in the padding)", "row 3 (4, 9 and 9 in the padding)"]
assert close(got[0], [1.5, 3.0, 4.0]), f"the means along dim=1. {beside(got[0], [1.5, 3.0, 4.0], rows)}. {'What is NaN times 0?' if 'nan' in numbers(got[0]) else 'What is in the sums, and what are they divided by?'}"
assert close(got[1], 2.5), f"the real values are 1, 2, 3 and 4: expected a mean of 2.5, not {numbers(got[1])}. {'What is NaN times 0?' if 'nan' in numbers(got[1]) else 'What is in the sum, and what is it divided by?'}"
### BEGIN HIDDEN TESTS
draw = torch.Generator().manual_seed(SEED + 12)
for _ in range(4):
    values, mask = torch.randn(5, 6, generator=draw) + 1, torch.rand(5, 6, generator=draw) < 0.5
    mask[:, 2] = True
    expected = torch.stack([row[keep].double().mean() for row, keep in zip(values, mask)])
    dirty = values.clone()
    dirty[~mask] = torch.tensor([nan, inf, -inf, 1e30])[torch.randint(4, (int((~mask).sum()),), generator=draw)]
    assert close(masked_mean(dirty.clone(), mask.clone(), dim=1), expected, 1e-5)
    assert close(masked_mean(dirty.clone(), mask.long()), values[mask].double().mean(), 1e-5)
### END HIDDEN TESTS

# %% check gradient_of_the_mean points=1
# Real tokens share the gradient equally, and padding gets exactly none.
values = torch.tensor([[1.0, 2.0, float("nan")], [3.0, float("inf"), -float("inf")]], requires_grad=True)
mask = torch.tensor([[True, True, False], [True, False, False]])
means = got = [masked_mean(values.clone(), mask.clone(), dim=dim) for dim in (None, 1)]
for mean, where in zip(means, ("mean", "mean along dim=1")):
    assert isinstance(mean, torch.Tensor) and mean.requires_grad, f"the {where} carries no gradient to the values: was something detached?"
got = [torch.autograd.grad(mean.sum(), values)[0] for mean in means]
assert close(got[0], [[1 / 3, 1 / 3, 0.0], [1 / 3, 0.0, 0.0]]), (
    f"the gradient is {numbers(got[0])}; each of the three real tokens should get 1/3 and the padding exactly 0"
)
assert close(got[1], [[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]), (
    f"along dim=1 the gradient of the means is {numbers(got[1])}; expected 1/2 and 1/2 in the first row, 1 in the second, 0 in the padding"
)
### BEGIN HIDDEN TESTS
draw = torch.Generator().manual_seed(SEED + 13)
for dim in (None, 0, 1, -1):
    values, mask = torch.randn(4, 5, generator=draw), torch.rand(4, 5, generator=draw) < 0.6
    mask[0], mask[:, 0] = True, True
    values[~mask] = float("nan")
    values.requires_grad_()
    weight = torch.randn(() if dim is None else (5,) if dim == 0 else (4,), generator=draw) + 2
    (weight * masked_mean(values.clone(), mask.clone(), dim=dim)).sum().backward()
    share = mask.double() * (weight if dim is None else weight.unsqueeze(dim))
    share = share / (mask.sum() if dim is None else mask.sum(dim, keepdim=True))
    assert close(values.grad, share, 1e-5) and bool((values.grad[~mask] == 0).all())
### END HIDDEN TESTS

# %% check nothing_to_average points=1
# Where nothing is real the mean is 0, not 0/0.
values, mask = torch.tensor([[5.0, 7.0], [1.0, 3.0]], requires_grad=True), torch.tensor([[False, False], [True, True]])
nothing = torch.zeros(2, 2, dtype=torch.bool)
means = got = [masked_mean(values.clone(), m.clone(), dim=dim) for m, dim in ((mask, 1), (nothing, None), (nothing, 1))]
assert close(got[0], [0.0, 2.0]), f"the first row has no real token, the second has mean 2: expected 0 and 2, not {numbers(got[0])}"
assert close(got[1], 0.0), f"nothing is real: the mean is 0, not {numbers(got[1])}"
assert close(got[2], [0.0, 0.0]), f"nothing is real in two rows: the means along dim=1 are [0, 0], not {numbers(got[2])}"
got = [isinstance(mean, torch.Tensor) and mean.requires_grad for mean in means]
assert all(got), "where nothing is real, the mean carries no gradient: a loss made of it could not go backward. Is it a tensor made of the values?"
got = torch.stack([torch.autograd.grad(mean.sum(), values)[0] for mean in means])
assert close(got, [[[0.0, 0.0], [0.5, 0.5]], [[0.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]]), (
    f"the three gradients are {', '.join(map(numbers, got))}; expected 1/2 for the two real tokens, and 0 wherever nothing is real"
)
### BEGIN HIDDEN TESTS
draw = torch.Generator().manual_seed(SEED + 14)
for kind in (torch.bool, torch.int64, torch.float32):
    values = (torch.randn(4, 3, generator=draw) + 2).requires_grad_()
    mask = torch.tensor([[1, 0, 1], [0, 0, 0], [1, 1, 1], [0, 0, 0]]).to(kind)
    out = masked_mean(values.clone(), mask.clone(), dim=1)
    assert close(out, torch.stack([(values[0, 0] + values[0, 2]) / 2, values.sum() * 0, values[2].mean(), values.sum() * 0]), 1e-5)
    out.sum().backward()
    assert close(values.grad[[1, 3]], torch.zeros(2, 3), 0.0) and close(values.grad[2], torch.full((3,), 1 / 3))
    for dim, shape in ((None, ()), (0, (3,)), (1, (4,))):
        out = masked_mean(values.clone(), torch.zeros(4, 3).to(kind), dim=dim)
        assert close(out, torch.zeros(shape), 0.0) and close(torch.autograd.grad(out.sum(), values)[0], torch.zeros(4, 3), 0.0)
### END HIDDEN TESTS

# %% [markdown]
# ### A sum is not a mean
#
# The penalty is $\beta$ times the *mean* of $k_3$ over an answer's tokens. It is easy to write `.sum()` where `.mean()`
# is meant, and nothing looks wrong: same sign, same direction, a finite number. Guess what it does to an answer of
# 512 tokens, and to the $\beta = 0.04$ that you tuned.

# %% show sum_against_mean
draw = torch.Generator().manual_seed(0)
lengths, pull = (8, 32, 128, 512), {"mean": [], "sum": []}
for length in lengths:
    ref = -2 * torch.rand(1, length, generator=draw)
    new = (ref - 0.3 * torch.randn(1, length, generator=draw)).requires_grad_()
    everything = torch.ones(1, length)
    k3 = kl_estimates(new, ref)[2]
    for name, penalty in (("mean", masked_mean(k3, everything)), ("sum", k3.sum())):
        pull[name].append(torch.autograd.grad(0.04 * penalty, new, retain_graph=True)[0].norm().item())
for i, length in enumerate(lengths):
    ratio = pull["sum"][i] / pull["mean"][i]
    print(f"{length:4} tokens: the sum pulls {ratio:5.0f} times as hard, as if beta were {0.04 * ratio:.2f}")
plt.loglog(lengths, pull["sum"], "o-", label="beta x sum")
plt.loglog(lengths, pull["mean"], "s-", label="beta x mean")
plt.xlabel("tokens in the answer")
plt.ylabel("norm of the KL gradient")
plt.title("The same beta: summed, it grows with the answer")
plt.legend(frameon=False)
plt.show()

# %% [markdown]
# The distance between the two lines is the number of tokens. At 512 tokens the sum turns $\beta = 0.04$ into 20.48:
# the policy cannot leave its reference and "does not learn". And at 8 tokens it is 0.32: one $\beta$ has become
# another for every length. If a policy barely moves, count what the KL is divided by before you blame the learning
# rate.
#
# ## Where the KL sits
#
# PPO in RLHF (InstructGPT and its heirs) subtracts the KL from the **reward**: token $t$ earns
# $r_t - \beta\, k_1(t)$, and everything that PPO does with rewards is done with that. GRPO adds $\beta\, k_3$ to the
# **loss**. Both are per token, both are against the reference, and neither is against $\pi_{\text{old}}$ (at the first
# step that would be 0, however far the reference is). But much changes with the place:
#
# | | in the reward (PPO) | in the loss (GRPO) |
# |---|---|---|
# | estimator | $k_1$: only its value is used, and its value is right | $k_3$: it needs a gradient, and $k_1$ has none |
# | how it acts | through the advantage: "this token was dear, make it rarer" | directly: downhill to the reference |
# | in expectation it follows | KL(policy ‖ reference) | KL(reference ‖ policy), on-policy |
# | credit | a token also pays for what the answer drifts *after* it | each token pays for itself |
# | what it passes through | critic, normalisation, clip | none of them: $\beta$ means what it says |
# | a token whose ratio is clipped | feels no KL | feels it |
#
# So a $\beta$ tuned for PPO does not carry over: there it is weighed against rewards, here against advantages of size 1.
#
# Normalisation is the row to think about. Suppose that we did put the KL into GRPO's reward. Four answers to one
# prompt, all correct: reward 1 each. They drifted a little, unequally. What are their advantages for
# $\beta = 0.04$, and what for $\beta = 0.0004$?

# %% show kl_in_the_reward
drift_of_answer = torch.tensor([0.10, 0.20, 0.30, 0.40])  # KL of each of four answers, all of them right
for beta in (0.04, 0.0004):
    rewards = 1 - beta * drift_of_answer
    advantages = (rewards - rewards.mean()) / rewards.std(unbiased=False)
    print(f"beta {beta}: rewards {[round(r, 5) for r in rewards.tolist()]}, advantages {[round(a, 2) for a in advantages.tolist()]}")

# %% [markdown]
# The same $\pm 1.34$ and $\pm 0.45$ for both: dividing by the group's std blows up whatever differences there are. A
# group that had nothing to teach now pushes at full strength, and $\beta$ has lost its meaning. That is one reason to
# keep the KL out of a reward that is normalised by its group. The paper gives a simpler one: the advantages stay simple.
# Without the division by the std the KL can sit in the reward, and in some trainers does.
#
# ### One more trap before you write it
#
# The loss of a token has an `exp` in it, twice. Suppose padding holds a log-prob so odd that the `exp` overflows, and
# suppose you choose with `torch.where` *after* the `exp`, as a careful person would. Guess the value and the gradient:

# %% show where_after_exp
log_ratio = torch.tensor([0.1, 200.0], requires_grad=True)  # one real token, one in the padding
keep = torch.tensor([True, False])
total = torch.where(keep, log_ratio.exp(), torch.zeros(2)).sum()
total.backward()
print("value", total.item(), "gradient", log_ratio.grad.tolist())

# %% [markdown]
# The value is right, and the gradient is NaN: backward sends 0 through the `exp` in the padding, and there $0 \times \infty$
# waits. One such token and every weight of the model is NaN after the step. So the rule of this course is: **padding
# is taken out before the `exp`**, and what goes into the `exp` is finite everywhere.
#
# ### Exercise: `grpo_objective` (11 points, 35 minutes, ●●●)
#
# This is the whole of it: everything GRPO minimises, in one function.
#
# $$\mathcal{L} = \operatorname{aggregate}\Big[\, -\min\big(\rho A,\ \operatorname{clip}(\rho,\, 1-\epsilon,\, 1+\epsilon)\, A\big) + \beta\, k_3 \,\Big], \qquad \rho = e^{\log\pi - \log\pi_{\text{old}}}$$
#
# | in | shape | meaning |
# |---|---|---|
# | `log_probs_new` | `[N, T]` | the policy's log-probs now; carries the gradient |
# | `log_probs_old` | `[N, T]` | those at sampling time; no gradient |
# | `ref_log_probs` | `[N, T]` | the reference's; no gradient |
# | `advantages` | `[N]` | one per response, for all of its tokens |
# | `mask` | `[N, T]` | 1 for a response's tokens, 0 for padding: bool, integer or float |
# | `clip_range`, `beta` | floats | $\epsilon$ and $\beta$ |
# | `aggregate` | `"sequence"`, `"token"` or `"constant"` | as in notebook 2 |
# | `max_length` | int or `None` | what `"constant"` divides by; `None`: the width of the batch, `mask.shape[1]` |
#
# Returns `(loss, metrics)`: a scalar to minimise, and a dictionary with three numbers to watch.
#
# **Write it in five steps**, and run the checks after each: those of a step need nothing of the later ones. Until its
# turn comes, a step is the one line on the right.
#
# | step | what | until then |
# |---|---|---|
# | 1 | the pessimistic surrogate of each token, from notebook 2 | |
# | 2 | the loss of each token: minus the surrogate, plus $\beta\, k_3$ | `token_loss = -surrogate` |
# | 3 | *one* aggregation for all of that. `"sequence"`: the mean over the tokens of each response, then over the responses. `"token"`: the mean over all tokens. `"constant"`: the sum over all tokens, divided by $N \times$ `max_length` | `loss = token_loss.mean()` |
# | 4 | the metrics, each a mean over all real tokens whatever `aggregate` says, and detached (plain numbers or tensors of no dimensions). `policy_loss`: minus the surrogate. `kl`: $k_3$, without $\beta$. `clip_fraction`: 1 where clipping took the gradient away ($A > 0$ and $\rho > 1 + \epsilon$, or $A < 0$ and $\rho < 1 - \epsilon$), else 0 | `return loss, {}` |
# | 5 | padding of NaN, infinity, or numbers whose `exp` overflows, in all three log-probs: neither the loss, nor its gradient (0 in the padding), nor a metric notices. A line at the top of step 1 | |
#
# - A response without tokens contributes 0, and counts in $N$. A batch without any token has loss 0.
# - The log-prob of a token may be -110 or less (its probability is then 0 in float32, its ratio is not).
# - Nothing is bounded but by the clip of the formula, however large a ratio, a $k_3$ or an advantage becomes.
# - The inputs are not changed.
#
# A worked example: one response of two tokens, $A = 1$, ratios 1.5 and 1, $d$ = 1 and 0, $\epsilon = 0.2$,
# $\beta = 0.04$. The surrogates are 1.2 and 1, so `policy_loss` is -1.1; $k_3$ is 0.7183 and 0, so `kl` is 0.3591; the
# loss is $-1.1 + 0.04 \times 0.3591 = -1.0856$; `clip_fraction` is 0.5.
#
# Give `max_length` yourself when you use `"constant"`: the width of a batch is the length of its longest answer, and
# the same two answers would weigh half as much in a batch that is padded to twice the width.
#
# You may call your `kl_estimates` and your `masked_mean`.
#
# <details data-checks="pessimistic_surrogate gradient_of_both_parts"><summary>A hint for step 1</summary>
#
# Three lines of notebook 2, now for every token: the ratio, the two surrogates, the smaller of them.
# `advantages[:, None]` stands a column beside the tokens. With beta = 0 and no padding this is nearly the whole loss.
# </details>
#
# <details data-checks="dead_group_feels_the_kl gradient_of_both_parts"><summary>A hint for step 2</summary>
#
# Your kl_estimates gives k3 from the new log-probs and those of the reference; the old ones have no part in it. The
# penalty is added: drifting away must cost.
# </details>
#
# <details data-checks="three_aggregations response_without_tokens"><summary>A hint for step 3</summary>
#
# "sequence" is a masked mean along one dimension and then a plain mean; "token" is one masked mean. "constant" is a sum
# in which the padding is replaced by 0, then a division by a number that the mask does not change. Which of your
# functions gives a response without tokens its 0?
# </details>
#
# <details data-checks="numbers_to_watch share_of_clipped_tokens"><summary>A hint for step 4</summary>
#
# Three masked means without dim. For the clipped tokens join two conditions with & and |, in brackets, and make the
# result a float. detach() cuts a metric from the graph.
# </details>
#
# <details data-checks="padding_is_silent"><summary>A hint for step 5</summary>
#
# The value can be right and the gradient NaN: that is the trap just above. Replace the padding of all three log-probs by
# one harmless number before anything else, in new tensors; the rest stays as it is.
# </details>


# %% given small_batches
def small_batch():
    """Four responses of up to four tokens, every ratio off the edge of the clip. Fresh tensors at each call."""
    ratio = torch.tensor([[0.5, 1.5, 1.1, 0.9], [1.5, 0.6, 0.9, 1.3], [0.7, 1.1, 1.25, 1.0], [6.0, 0.5, 0.95, 1.1]])
    d = torch.tensor([[1.0, -0.5, 0.2, 0.0], [-1.0, 0.4, 0.8, -0.3], [0.5, -0.8, 0.3, 0.6], [-0.2, 0.7, -0.6, 0.1]])
    old = torch.tensor([[-1.0, -2.0, -0.7, -1.3], [-0.5, -2.2, -1.1, -0.9], [-1.6, -0.8, -1.2, -2.0], [-0.6, -1.4, -1.0, -1.7]])
    new = old + ratio.log()
    return {
        "log_probs_new": new,
        "log_probs_old": old,
        "ref_log_probs": new + d,
        "advantages": torch.tensor([1.0, -1.0, 0.5, -2.0]),
        "mask": torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 0, 0]], dtype=torch.bool),
    }


def random_batch(draw, n=5, t=6):
    """A random batch in which every ratio stays off the edge of a clip of 0.15 to 0.25, with responses of 1 to t tokens."""
    ratio = torch.tensor([0.4, 0.7, 0.9, 1.0, 1.1, 1.3, 1.7])[torch.randint(7, (n, t), generator=draw)]
    ratio = ratio * (0.98 + 0.04 * torch.rand(n, t, generator=draw))
    old = -3 * torch.rand(n, t, generator=draw) - 0.5
    new = old + ratio.log()
    sign = torch.tensor([1.0, -1.0])[torch.randint(2, (n,), generator=draw)]
    return {
        "log_probs_new": new,
        "log_probs_old": old,
        "ref_log_probs": new + torch.randn(n, t, generator=draw).clamp(-2, 2),
        "advantages": sign * (0.3 + 1.5 * torch.rand(n, generator=draw)),
        "mask": torch.arange(t) < torch.randint(1, t + 1, (n, 1), generator=draw),
    }


def loss_and_metrics(result):
    """The two things that grpo_objective returned, after a look at their kind."""
    assert isinstance(result, (tuple, list)) and len(result) == 2, "grpo_objective returns two things: loss, metrics"
    loss, metrics = result
    assert isinstance(loss, torch.Tensor), f"the loss should be a tensor, and is of type {type(loss).__name__}"
    assert loss.shape == (), f"the loss should be one number (a tensor of no dimensions), and has shape {tuple(loss.shape)}"
    assert isinstance(metrics, dict), f"metrics should be a dictionary, and is of type {type(metrics).__name__}"
    return loss, metrics


# %% solution grpo_objective
def grpo_objective(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """GRPO's loss over tokens, KL included, and metrics: [N, T] x 3, [N], [N, T] -> (scalar, dict)."""
    # ---- Step 1: the pessimistic surrogate of each token [N, T] (and step 5, at the top: the padding) ----
    ### BEGIN SOLUTION
    mask = mask.bool()
    new, old, ref = (x.masked_fill(~mask, 0.0) for x in (log_probs_new, log_probs_old, ref_log_probs))  # before any exp
    advantage = advantages[:, None]  # one for all tokens of a response
    ratio = torch.exp(new - old)
    surrogate = torch.minimum(ratio * advantage, ratio.clamp(1 - clip_range, 1 + clip_range) * advantage)
    ### END SOLUTION

    # ---- Step 2: the KL penalty, and the loss of each token [N, T] ----
    ### BEGIN SOLUTION
    k3 = kl_estimates(new, ref)[2]
    token_loss = -surrogate + beta * k3
    ### END SOLUTION

    # ---- Step 3: from tokens to one number ----
    ### BEGIN SOLUTION
    if aggregate == "sequence":
        loss = masked_mean(token_loss, mask, dim=1).mean()
    elif aggregate == "token":
        loss = masked_mean(token_loss, mask)
    elif aggregate == "constant":
        width = mask.shape[1] if max_length is None else max_length
        loss = token_loss.masked_fill(~mask, 0.0).sum() / (len(mask) * width)
    else:
        raise ValueError(f"unknown aggregation: {aggregate}")
    ### END SOLUTION

    # ---- Step 4: three numbers to watch, and the answer ----
    ### BEGIN SOLUTION
    clipped = ((advantage > 0) & (ratio > 1 + clip_range)) | ((advantage < 0) & (ratio < 1 - clip_range))
    metrics = {
        "policy_loss": masked_mean(-surrogate, mask).detach(),
        "kl": masked_mean(k3, mask).detach(),
        "clip_fraction": masked_mean(clipped.float(), mask),
    }
    return loss, metrics
    ### END SOLUTION


# %% show worked_example
new = torch.tensor([[-1.0, -1.0]])
loss, metrics = grpo_objective(new, new - torch.tensor([[1.5, 1.0]]).log(), new + torch.tensor([[1.0, 0.0]]), torch.ones(1), torch.ones(1, 2))
print(f"the worked example: loss {loss.item():.4f}, " + ", ".join(f"{name} {float(x):.4f}" for name, x in metrics.items()))

# %% check pessimistic_surrogate points=2
# Step 1: without the KL, the loss is minus the mean of the pessimistic surrogate.
ratio, a = torch.tensor([0.5, 1.5, 0.5, 1.5]), torch.tensor([1.0, 1.0, -1.0, -1.0])
regions = ["A = 1, ratio 0.5", "A = 1, ratio 1.5", "A = -1, ratio 0.5", "A = -1, ratio 1.5"]
expected, got = [-0.5, -1.28, 0.72, 1.5], []
for r, x in zip(ratio, a):  # one response of one token at a time
    old = torch.full((1, 1), -1.0)
    got.append(loss_and_metrics(grpo_objective(old + r.log(), old, old.clone(), x[None], torch.ones(1, 1), clip_range=0.28, beta=0.0))[0])
assert close(torch.stack(got), expected, 1e-4), f"the loss of one token, with beta = 0 and a clip_range of 0.28. {beside(got, expected, regions, 1e-4)}"
batch = small_batch() | {"mask": torch.ones(4, 4)}
for name in ("log_probs_new", "log_probs_old", "ref_log_probs"):
    batch[name][2] -= 110  # a very unlikely response, with the same ratios
given = {name: x.clone() for name, x in batch.items()}
got = grpo_objective(**given, clip_range=0.28, beta=0.0)
got, _ = loss_and_metrics(got)
assert close(got, 1.00969, 1e-4), (
    f"single tokens are right, but four responses of four tokens have a loss of {numbers(got)}; expected 1.00969. Which advantage belongs to which "
    "token? (One ratio is 6, and the probabilities of one response are 0 in float32.)"
)
got = given  # as it is afterwards
assert all(torch.equal(got[name], batch[name]) for name in batch), (
    f"changed on the way: {', '.join(name for name in batch if not torch.equal(got[name], batch[name]))}. The next inner step needs what came in"
)
new, old = torch.tensor([[-1.0]]), torch.tensor([[-16.0]])
got, _ = loss_and_metrics(grpo_objective(new, old, new.clone(), torch.tensor([-30.0]), torch.ones(1, 1), beta=0.0))
assert close(got / 98070521, 1.0, 1e-4), (
    f"A = -30 and a token that has become e^15 times as likely: the loss is {numbers(got)}; expected 9.8071e+07. Is something bounded?"
)
### BEGIN HIDDEN TESTS
draw = torch.Generator().manual_seed(SEED + 20)
for clip, t in ((0.15, 6), (0.2, 1), (0.25, 6)):
    batch = random_batch(draw, 5, t) | {"mask": torch.ones(5, t)}
    expected = []
    for new, old, a in zip(batch["log_probs_new"].tolist(), batch["log_probs_old"].tolist(), batch["advantages"].tolist()):
        for x, y in zip(new, old):
            r = math.exp(x - y)
            expected.append(max(-r * a, -min(max(r, 1 - clip), 1 + clip) * a))
    given = {name: x.clone() for name, x in batch.items()}
    assert close(grpo_objective(**given, clip_range=clip, beta=0.0)[0], sum(expected) / len(expected), 1e-5)
    assert all(torch.equal(given[name], batch[name]) for name in batch), "what came in was changed"
new, old = torch.tensor([[-110.0, -0.5, -0.5]]), torch.tensor([[-110.5, -0.25, -2.5]])
loss = grpo_objective(new, old, new.clone(), torch.tensor([-8.0]), torch.ones(1, 3, dtype=torch.int64), beta=0.0)[0]
assert close(loss / 8, (math.exp(0.5) + 0.8 + math.exp(2)) / 3, 1e-5)  # a token of probability e^-110 has a ratio too
for far, a in (16 * torch.rand(6, 2, generator=draw) + 2).tolist():  # nothing is bounded
    loss = grpo_objective(torch.tensor([[far - 20]]), torch.full((1, 1), -20.0), torch.zeros(1, 1), torch.tensor([-a]), torch.ones(1, 1), beta=0.0)[0]
    assert close(loss / (a * math.exp(far)), 1.0, 1e-4)
### END HIDDEN TESTS

# %% check dead_group_feels_the_kl points=2
# Step 2: with all advantages 0 the loss is beta times the mean of k3 to the reference.
expected, got = [0.3 * (math.exp(d) - d - 1) for d in (1.0, -1.0, 3.0)], []
for d in (1.0, -1.0, 3.0):  # one token, whose old log-prob is another one
    new = torch.tensor([[-2.0]])
    got.append(loss_and_metrics(grpo_objective(new, new - 0.5, new + d, torch.zeros(1), torch.ones(1, 1), beta=0.3))[0])
words = [f"reference - policy = {d}" for d in (1, -1, 3)]
assert close(torch.stack(got), expected, 1e-4), (
    f"the loss of one token, with A = 0 and beta = 0.3. {beside(got, expected, words, 1e-4)}. Which estimate, and between which two models?"
)
batch = small_batch() | {"mask": torch.ones(4, 4), "advantages": torch.zeros(4)}
batch["ref_log_probs"][1, 0] += 4  # one token has drifted far: its d is 3
got, _ = loss_and_metrics(grpo_objective(**batch, beta=0.3))
assert close(got, 0.3496, 1e-4), (
    f"single tokens are right, but sixteen have a loss of {numbers(got)} with beta = 0.3 and A = 0; expected 0.3496. What is their k3 divided by?"
)
near, far = torch.tensor([[-1.0]]), torch.tensor([[-16.0]])
got = [loss_and_metrics(grpo_objective(x.clone(), x.clone(), y.clone(), torch.zeros(1), torch.ones(1, 1)))[0] for x, y in ((far, near), (near, far))]
assert close(got[0] / 130760.05, 1.0, 1e-4) and close(got[1], 0.56, 1e-4), (
    f"a token 15 nats below or above the reference, and beta left to its default of 0.04: the losses are {numbers(got[0])} and {numbers(got[1])}; "
    "expected 1.3076e+05 and 0.56. Is something bounded?"
)
### BEGIN HIDDEN TESTS
draw = torch.Generator().manual_seed(SEED + 21)
for beta in (0.04, 0.3, 2.0):
    batch = random_batch(draw) | {"mask": torch.ones(5, 6, dtype=torch.bool), "advantages": torch.zeros(5)}
    k3 = []
    for x, y in zip(batch["log_probs_new"].flatten().tolist(), batch["ref_log_probs"].flatten().tolist()):
        k3.append(math.exp(y) / math.exp(x) - 1 - y + x)
    assert close(grpo_objective(**batch, beta=beta)[0], beta * sum(k3) / len(k3), 2e-5)
    assert close(grpo_objective(**batch)[0], 0.04 * sum(k3) / len(k3), 2e-5)
    far = batch | {"ref_log_probs": batch["log_probs_new"] + 3.5}
    assert close(grpo_objective(**far)[0], 0.04 * (math.exp(3.5) - 4.5), 1e-4)  # however far it has drifted
### END HIDDEN TESTS

# %% check gradient_of_both_parts points=2
# Step 2: the gradient in every clip region, with the pull of the KL, is right.
batch = small_batch() | {"mask": torch.ones(4, 4)}
new = batch["log_probs_new"].clone().requires_grad_()
got, _ = loss_and_metrics(grpo_objective(**batch | {"log_probs_new": new.clone()}, beta=0.3))
assert got.requires_grad, "the loss carries no gradient to log_probs_new: was something detached?"
got.backward()
got = (new.grad, got.detach())
places = {
    "A = 1, ratio 0.5, both parts act": (0, 0, -0.5 + 0.3 * (1 - math.e)),
    "A = 1, ratio 1.5, clipped, so only the KL pulls": (0, 1, 0.3 * (1 - math.exp(-0.5))),
    "A = -1, ratio 0.6, clipped, so only the KL pulls": (1, 1, 0.3 * (1 - math.exp(0.4))),
    "A = -2, ratio 6, both parts act": (3, 0, 12 + 0.3 * (1 - math.exp(-0.2))),
}
there = [got[0][i, j] for i, j, _ in places.values()]
expected = [pull / 16 for _, _, pull in places.values()]
assert close(torch.stack(there), expected, 1e-4), f"the gradient at single tokens of sixteen, with beta = 0.3. {beside(there, expected, places, 1e-4)}"
### BEGIN HIDDEN TESTS
draw = torch.Generator().manual_seed(SEED + 22)
for beta, clip in ((0.04, 0.2), (0.5, 0.15), (1.0, 0.25), (0.0, 0.2)):
    batch = random_batch(draw, 4, 5) | {"mask": torch.ones(4, 5, dtype=torch.int64)}
    new = batch["log_probs_new"].clone().requires_grad_()
    grpo_objective(**batch | {"log_probs_new": new.clone()}, beta=beta, clip_range=clip)[0].backward()
    for i in range(4):
        a = batch["advantages"][i].item()
        for j in range(5):
            x, y, z = (batch[name][i, j].item() for name in ("log_probs_new", "log_probs_old", "ref_log_probs"))
            r = math.exp(x - y)
            held = r > 1 + clip if a > 0 else r < 1 - clip
            expected = (0.0 if held else -a * r) + beta * (1 - math.exp(z) / math.exp(x))
            assert close(new.grad[i, j], expected / 20, 1e-5)
### END HIDDEN TESTS

# %% check three_aggregations points=1
# Step 3: each way to aggregate weighs short and long answers as it promises, the KL included.
log_probs = torch.full((2, 10), -1.0)
ref_log_probs = log_probs + torch.tensor([[1.0], [0.0]]) * torch.tensor([0.5, -0.25]).repeat(5)  # only the short answer drifted
mask = torch.arange(10) < torch.tensor([[2], [8]])
ways = {'"sequence"': 0.0444, '"token"': 0.6178, '"constant"': 0.3089, '"constant" with max_length = 16': 0.1931}
got = []
for how in ways:
    arguments = [x.clone() for x in (log_probs, log_probs, ref_log_probs, torch.tensor([1.0, -1.0]), mask)]
    longest = {"max_length": 16} if "16" in how else {}
    got.append(loss_and_metrics(grpo_objective(*arguments, beta=1.0, aggregate=how.split('"')[1], **longest))[0])
expected = list(ways.values())
assert close(torch.stack(got), expected, 1e-4), (
    f"the loss of answers of 2 and 8 tokens, with padding up to 10. {beside(got, expected, ways, 1e-4)}. "
    "What is added up, what is it divided by, and does the KL go through the same?"
)
got = []
for how in ("sequence", "token"):
    arguments = [x.clone() for x in (log_probs, log_probs, ref_log_probs, torch.tensor([1.0, -1.0]), mask)]
    got.append(loss_and_metrics(grpo_objective(*arguments, beta=1.0, aggregate=how, max_length=16))[0])
assert close(torch.stack(got), expected[:2], 1e-4), f"max_length = 16, which is for \"constant\" alone. {beside(got, expected[:2], ways, 1e-4)}"
### BEGIN HIDDEN TESTS
draw = torch.Generator().manual_seed(SEED + 23)
for _ in range(4):
    batch = random_batch(draw)
    rows = []
    for new, old, ref, a, keep in zip(*(batch[name].tolist() for name in batch)):
        r = [math.exp(x - y) for x, y in zip(new, old)]
        k3 = [math.exp(z - x) - 1 - (z - x) for x, z in zip(new, ref)]
        rows.append([max(-q * a, -min(max(q, 0.8), 1.2) * a) + 0.3 * k for q, k, m in zip(r, k3, keep) if m])
    sums, lengths = [sum(row) for row in rows], [len(row) for row in rows]
    wanted = {"sequence": sum(s / n for s, n in zip(sums, lengths)) / 5, "token": sum(sums) / sum(lengths), "constant": sum(sums) / 30}
    longest = int(torch.randint(6, 99, (), generator=draw))
    for how, value in wanted.items():
        assert close(grpo_objective(**batch, beta=0.3, aggregate=how)[0], value, 2e-5)
        fixed = value * 6 / longest if how == "constant" else value
        assert close(grpo_objective(**batch, beta=0.3, aggregate=how, max_length=longest)[0], fixed, 2e-5)
    assert close(grpo_objective(**batch, beta=0.3)[0], wanted["sequence"], 2e-5)
### END HIDDEN TESTS

# %% check response_without_tokens points=1
# Step 3: a response without tokens adds 0 and still counts as a response.
batch = small_batch()
batch["mask"] = torch.tensor([[1, 1, 1, 1], [0, 0, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0]])
ways = {"sequence": -0.3130, "token": -0.7045, "constant": -0.2642}
expected = list(ways.values())
got = [loss_and_metrics(grpo_objective(**{name: x.clone() for name, x in batch.items()}, beta=0.3, aggregate=how))[0] for how in ways]
assert close(torch.stack(got), expected, 1e-4), (
    f"two of four responses are empty. {beside(got, expected, ways, 1e-4)}. If the checks above pass: what is 0 divided by 0, and how many responses are there?"
)
batch["mask"] = torch.zeros(4, 4)
got = [loss_and_metrics(grpo_objective(**{name: x.clone() for name, x in batch.items()}, aggregate=how))[0] for how in ways]
assert close(torch.stack(got), [0.0] * 3, 0.0), f"all four responses are empty. {beside(got, [0.0] * 3, ways, 0.0)}"
### BEGIN HIDDEN TESTS
def by_loops(batch, how):
    """The loss, token by token, at the default clip range and beta."""
    new, old, ref, mask = (batch[name].tolist() for name in ("log_probs_new", "log_probs_old", "ref_log_probs", "mask"))
    sums = []
    for n, a in enumerate(batch["advantages"].tolist()):
        sums.append(0.0)
        for t in [t for t, real in enumerate(mask[n]) if real]:
            ratio, d = math.exp(new[n][t] - old[n][t]), ref[n][t] - new[n][t]
            sums[-1] += 0.04 * (math.exp(d) - 1 - d) - min(ratio * a, min(max(ratio, 0.8), 1.2) * a)
    lengths = [sum(row) for row in mask]
    if how == "sequence":
        return sum(total / max(length, 1) for total, length in zip(sums, lengths)) / len(sums)
    return sum(sums) / (sum(lengths) if how == "token" else len(mask) * len(mask[0]))


draw = torch.Generator().manual_seed(SEED + 25)
for how in ("sequence", "token", "constant"):
    batch = random_batch(draw)
    batch["mask"][1] = batch["mask"][4] = False
    whole = {name: x[[0, 2, 3]] for name, x in batch.items()}
    new, new_whole = batch["log_probs_new"].clone().requires_grad_(), whole["log_probs_new"].clone().requires_grad_()
    loss = grpo_objective(**batch | {"log_probs_new": new.clone()}, aggregate=how)[0]
    loss_whole = grpo_objective(**whole | {"log_probs_new": new_whole.clone()}, aggregate=how)[0]
    loss.backward()
    loss_whole.backward()
    share = 1.0 if how == "token" else 3 / 5
    assert close(loss, by_loops(batch, how), 2e-5) and close(loss_whole, by_loops(whole, how), 2e-5)
    assert close(new.grad[[0, 2, 3]], share * new_whole.grad, 1e-6) and bool((new.grad[[1, 4]] == 0).all())
    assert bool((new.grad != 0).any())
    nothing = batch | {"mask": torch.zeros(5, 6, dtype=torch.bool)}
    assert close(grpo_objective(**nothing, aggregate=how)[0], 0.0, 0.0)
### END HIDDEN TESTS

# %% check numbers_to_watch points=1
# Step 4: policy_loss and kl are means over the real tokens, and carry no gradient.
batch = small_batch()
batch["log_probs_new"].requires_grad_()
told = [loss_and_metrics(grpo_objective(**batch, beta=0.3, aggregate=how))[1] for how in ("sequence", "token", "constant")]
for name in ("policy_loss", "kl"):
    assert name in told[0], f'metrics has no "{name}"; it has {sorted(told[0], key=str)}'
got = [[metrics[name] for name in ("policy_loss", "kl")] for metrics in told]
for how, (policy_loss, kl) in zip(("sequence", "token", "constant"), got):
    assert close(policy_loss, 0.9100, 1e-4), f'under "{how}" metrics["policy_loss"] is {numbers(policy_loss)}; expected 0.9100, the mean over the ten real tokens'
    assert close(kl, 0.1773, 1e-4), f'under "{how}" metrics["kl"] is {numbers(kl)}; expected 0.1773, the mean of k3 over the ten real tokens'
got = [getattr(x, "requires_grad", False) for row in got for x in row]
assert not any(got), "policy_loss or kl carries a gradient: kept in a list, such a number keeps the whole graph of its step"
### BEGIN HIDDEN TESTS
draw = torch.Generator().manual_seed(SEED + 26)
for how in ("sequence", "token", "constant"):
    batch = random_batch(draw)
    batch["log_probs_new"].requires_grad_()
    metrics = grpo_objective(**batch, beta=0.3, aggregate=how)[1]
    losses, kls = [], []
    for new, old, ref, a, keep in zip(*(batch[name].tolist() for name in batch)):
        for x, y, z, m in zip(new, old, ref, keep):
            if m:
                r = math.exp(x - y)
                losses.append(max(-r * a, -min(max(r, 0.8), 1.2) * a))
                kls.append(math.exp(z - x) - 1 - (z - x))
    assert close(metrics["policy_loss"], sum(losses) / len(losses), 2e-5) and close(metrics["kl"], sum(kls) / len(kls), 2e-5)
    assert not any(getattr(x, "requires_grad", False) for x in metrics.values())
### END HIDDEN TESTS

# %% check share_of_clipped_tokens points=1
# Step 4: clip_fraction counts the real tokens whose gradient the clip took away, and no others.
ratio = torch.tensor([[1.5, 1.4, 1.3, 1.25, 0.5], [1.5, 0.74, 0.73, 0.6, 0.5], [1.5, 1.4, 0.5, 1.5, 0.5]])
old, mask = torch.full((3, 5), -1.0), torch.arange(5) < torch.tensor([[5], [4], [3]])
advantages = torch.tensor([1.0, -2.0, 0.0])  # a good answer, a bad one and one of a dead group
answers = {"a good answer (A = 1) alone": [0], "a bad one (A = -2) alone": [1], "one of a dead group (A = 0) alone": [2], "all three": [0, 1, 2]}
expected, got = [3 / 5, 1 / 4, 0.0, 4 / 12], []
for rows in answers.values():
    new = (old + ratio.log())[rows]
    _, metrics = loss_and_metrics(grpo_objective(new, old[rows], old[rows], advantages[rows], mask[rows], clip_range=0.28))
    assert "clip_fraction" in metrics, f'metrics has no "clip_fraction"; it has {sorted(metrics, key=str)}'
    got.append(metrics["clip_fraction"])
assert all(map(close, got, expected)), (
    f'metrics["clip_fraction"], with clip_range = 0.28. {beside(got, expected, answers)}. '
    "A ratio outside the range is not always clipped: for which signs of A, and on which side, does clipping take a gradient away?"
)
### BEGIN HIDDEN TESTS
draw = torch.Generator().manual_seed(SEED + 27)
for clip in (0.15, 0.2, 0.25, 0.33, 0.5):
    batch = random_batch(draw, 8, 6)
    batch["advantages"][3], batch["mask"][3, :2] = 0.0, True  # a dead response far out on both sides: nothing to take away
    batch["log_probs_old"][3, :2] = batch["log_probs_new"][3, :2] + torch.tensor([1.0, -1.0])
    batch["advantages"][5], batch["mask"][5, 0] = 1.0, True  # outside by its ratio, though not by its logarithm
    batch["log_probs_old"][5, 0] = batch["log_probs_new"][5, 0] - (math.log1p(clip) + clip) / 2
    count = total = 0
    for new, old, _, a, keep in zip(*(batch[name].tolist() for name in batch)):
        for x, y, m in zip(new, old, keep):
            total += m
            count += bool(m) and ((a > 0 and math.exp(x - y) > 1 + clip) or (a < 0 and math.exp(x - y) < 1 - clip))
    assert close(grpo_objective(**batch, clip_range=clip)[1]["clip_fraction"], count / total, 1e-5)
### END HIDDEN TESTS

# %% check padding_is_silent points=1
# Step 5: whatever stands in the padding, the gradient is that of the real tokens, and 0 in the padding.
batch = small_batch()
dirt = torch.tensor([float("nan"), float("inf"), -float("inf"), 500.0])
for shift, name in enumerate(("log_probs_new", "log_probs_old", "ref_log_probs")):
    batch[name] = torch.where(batch["mask"], batch[name], dirt.roll(shift))
    batch[name][3, 1] = (300.0, 0.0, -300.0)[shift]  # finite, but not its exp
new = batch["log_probs_new"].clone().requires_grad_()
given = {name: x.clone() for name, x in (batch | {"log_probs_new": new}).items()}
got, metrics = loss_and_metrics(grpo_objective(**given, beta=0.3))
loss, hit = got, []
for name in ("log_probs_new", "log_probs_old", "ref_log_probs"):  # one kind of dirt, in one place at a time
    for filling in (math.nan, math.inf, -math.inf, 300.0, -300.0):
        trial = small_batch()
        trial[name][~trial["mask"]] = filling
        hit.append((name, filling, bool(torch.isfinite(loss_and_metrics(grpo_objective(**trial, beta=0.3))[0]))))
got = [finite for _, _, finite in hit]
through = [f"{filling} in {name}" for name, filling, finite in hit if not finite]
assert bool(torch.isfinite(loss)), f"the loss is {numbers(loss)}: something in the padding reached it. One at a time: {', '.join(through) or 'none of them'}"
got = loss
assert got.requires_grad, "the loss carries no gradient to log_probs_new: was something detached?"
told = [got.detach(), *(metrics.get(name) for name in ("policy_loss", "kl", "clip_fraction"))]
got.backward()
got = new.grad
hurt = [f"response {i + 1}, token {j + 1}: {numbers(got[i, j])}" for i, j in (~torch.isfinite(got)).nonzero().tolist()]
assert not hurt, f"the loss is right and its gradient is not finite: {'; '.join(hurt[:4])}. What did backward meet on its way through exp?"
assert bool((got[~batch["mask"]] == 0).all()), f"the gradient in the padding is {numbers(got[~batch['mask']])}, and should be 0"
assert close(got[1, :2], [0.2112, -0.0184], 1e-4), f"the gradient in the second response. {beside(got[1, :2], [0.2112, -0.0184], ['token 1', 'token 2'], 1e-4)}"
got = told
for value, expected, name in zip(got, (2.977, 0.91, 0.1773, 0.3), ("loss", "policy_loss", "kl", "clip_fraction")):
    assert close(value, expected, 1e-4), f"with NaN and infinity in the padding, {name} is {numbers(value)}; expected {expected}, as without them"
got = {name: x.detach() for name, x in given.items()}  # as it is afterwards
assert all(torch.equal(got[name].nan_to_num(), batch[name].nan_to_num()) for name in batch), "the padding that came in was overwritten: who else still reads it?"
### BEGIN HIDDEN TESTS
draw = torch.Generator().manual_seed(SEED + 24)
for how, kind in (("sequence", torch.bool), ("token", torch.int64), ("constant", torch.float32)):
    batch = random_batch(draw)
    batch["mask"][0, 3:] = False
    keep, seen = batch["mask"].clone(), []
    batch["mask"] = keep.to(kind)
    for filling in (None, 0.0, float("nan"), float("inf"), -float("inf"), 300.0):
        trial = {name: x.clone() for name, x in batch.items()}
        if filling is not None:
            for name in ("log_probs_new", "log_probs_old", "ref_log_probs"):
                trial[name][~keep] = filling if name != "ref_log_probs" else -filling
        new = trial["log_probs_new"].requires_grad_()
        loss, metrics = grpo_objective(**trial | {"log_probs_new": new.clone()}, beta=0.5, aggregate=how)
        loss.backward()
        assert bool((new.grad[~keep] == 0).all()) and bool((new.grad[keep] != 0).any())
        seen.append((new.grad, loss, [float(torch.as_tensor(metrics[m]).detach()) for m in ("policy_loss", "kl", "clip_fraction")]))
    assert all(close(a, b, 1e-6) for other in seen[1:] for a, b in zip(seen[0], other))
    weight = keep / {"sequence": 5 * keep.sum(1, keepdim=True), "token": keep.sum(), "constant": 30}[how]
    r, a = (batch["log_probs_new"] - batch["log_probs_old"]).double().exp(), batch["advantages"].double()[:, None]
    held = torch.where(a > 0, r > 1.2, r < 0.8)
    pull = 1 - (batch["ref_log_probs"] - batch["log_probs_new"]).double().exp()
    assert close(seen[0][0], weight * (0.5 * pull - a * r * ~held), 1e-5)
### END HIDDEN TESTS

# %% [markdown]
# ### Dead groups still feel the KL
#
# In notebook 1 a zero-variance group (a dead group), whose answers all earn the same, taught nothing. With the KL in
# the loss that is no longer quite true. Take a batch of dead groups only (advantages 0), a policy that has drifted,
# and step downhill. What will the policy do?

# %% show dead_groups_go_home
logits = (3 * POLICY.log()).clone().requires_grad_()  # drifted far from the reference
reference_logits = REFERENCE.log()
draw = torch.Generator().manual_seed(0)
path = []
for _ in range(300):
    with torch.no_grad():
        drawn = torch.multinomial(logits.softmax(-1), 64, replacement=True, generator=draw).view(16, 4)  # 16 answers of 4 tokens
        old = logits.log_softmax(-1)[drawn]
    loss, metrics = grpo_objective(
        logits.log_softmax(-1)[drawn], old, reference_logits[drawn], torch.zeros(16), torch.ones(16, 4), beta=0.04
    )
    (step,) = torch.autograd.grad(loss, logits)
    logits = (logits - 10 * step).detach().requires_grad_()
    path.append((exact_kl(logits.detach().softmax(-1), REFERENCE).item(), float(metrics["policy_loss"])))
print(f"KL to the reference: {path[0][0]:.3f} after one step, {path[-1][0]:.4f} after {len(path)}; policy_loss is {abs(path[-1][1]):.1f} all the way")
plt.plot([p[0] for p in path])
plt.xlabel("step")
plt.ylabel("exact KL(policy || reference) (nats)")
plt.title("Nothing but dead groups: the policy returns")
plt.show()

# %% [markdown]
# It forgets what it had learnt. When a model has become good and most of its groups are dead, the KL is all that is
# left in most of the batch. This is the first thing to think of when a run gets *worse* after it was nearly
# perfect; some recipes drop dead groups from the batch, others set $\beta$ to 0.
#
# ### How much? Sweep by factors of 3
#
# $\beta$ has no natural size; it is a price: how much reward is a nat of drift worth? The way to find it is to try
# values that differ by a factor of 3 and to look at two curves at once. The policy below writes four tokens; it earns
# a quarter for each token 4, which the reference writes one time in ten. **Before you run**: draw for yourself where
# the reward will end for $\beta = 0$, for $0.04$ and for $3$, and where the KL will.


# %% show beta_sweep
def train(beta, steps=100, inner_epochs=2, adapt=None, wanted=4, scale=1.0, divide=True):
    """A tiny GRPO run: 8 groups of 8 answers a step. Returns share of the wanted token, KL per token and beta, step by step."""
    draw = torch.Generator().manual_seed(1)
    ref = REFERENCE.log().float().expand(4, 5)  # a table: 4 positions, 5 tokens
    logits = ref.clone().requires_grad_()
    optimizer = torch.optim.Adam([logits], lr=0.05)
    position, history = torch.arange(4), []
    for _ in range(steps):
        with torch.no_grad():
            drawn = torch.multinomial(logits.softmax(-1), 64, replacement=True, generator=draw).T  # [64, 4]
            rewards = scale * (drawn == wanted).float().mean(1).view(8, 8)
            advantages = rewards - rewards.mean(1, keepdim=True)  # notebook 1, for groups in rows
            if divide:
                advantages = advantages / rewards.std(1, keepdim=True, unbiased=False).clamp_min(1e-6)
            advantages = advantages.flatten()
            old, ref_log_probs = logits.log_softmax(-1)[position, drawn], ref[position, drawn]  # once per batch
        for _ in range(inner_epochs):
            new = logits.log_softmax(-1)[position, drawn]
            loss, metrics = grpo_objective(new, old, ref_log_probs, advantages, torch.ones(64, 4), beta=beta)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        p = logits.detach().softmax(-1)
        history.append((p[:, wanted].mean().item(), exact_kl(p, ref.exp()).mean().item(), beta))
        if adapt:
            beta = adapt(beta, float(metrics["kl"]))
    return np.array(history)


print(f"the most that there is to pay: log 10 = {math.log(10):.2f} nats")
betas = (0.0, 0.04, 0.12, 0.36, 1.1, 3.2)
runs = {beta: train(beta).T for beta in betas}
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4))
for beta, (reward, kl, _) in runs.items():
    left.plot(reward, label=f"beta {beta:g}")
    right.plot(kl)
    print(f"beta {beta:<5g} reward at the end {reward[-1]:.2f}, KL per token {kl[-1]:.2f}")
left.set(xlabel="step", ylabel="expected reward", ylim=(0, 1.02), title="what it gains")
right.set(xlabel="step", ylabel="exact KL per token (nats)", title="what it pays")
fig.legend(loc="outside right center", frameon=False)
plt.show()

# %% [markdown]
# Without a penalty the policy writes token 4 only, for a KL of about 2.27 nats per token, close to
# $\log 10 = 2.30$, the most that there is to pay for a token that the reference writes one time in ten. At
# $\beta = 0.04$ hardly anything changes. Between 0.12 and 1.1 the trade turns: 0.36 gives about 0.70 of the reward for
# about half of the nats, 1.1 about 0.30. At 3.2 the policy barely moves.
#
# A few steps of 3 lead from "as if it were not there" to "nothing moves". That is why one sweeps by factors of 3:
# finer is wasted, coarser jumps over the interesting part.
#
# ### What one reads about beta (optional)
#
# "Start between 0.01 and 0.1." "It depends on how hard the task is, and on the size of the rewards." Two experiments
# with the tiny run. First, rewards ten times as large, with and without the division by the group's std; then tokens
# that the reference writes three, two or one time in ten. **Guess** which of these rows will differ.

# %% show what_beta_depends_on
print("beta 0.36, token 4:")
for divide in (True, False):
    for scale in (1.0, 10.0):
        reward, kl, _ = train(0.36, scale=scale, divide=divide)[-1]
        print(f"  advantages {'divided by the std' if divide else 'not divided':18}, rewards x {scale:<3g}: share of token 4 {reward:.2f}, KL {kl:.2f}")
print("beta 1.1, divided by the std:")
for wanted in (1, 0, 4):
    reward, kl, _ = train(1.1, wanted=wanted)[-1]
    print(f"  paid for a token that the reference writes {REFERENCE[wanted]:.0%} of the time: share {reward:.2f}, KL {kl:.2f}")

# %% [markdown]
# | one reads | what holds |
# |---|---|
# | Start between .01 and .1 | A fair first guess: the GRPO paper has .04. DeepSeek-R1 has .001, TRL's default is 0. Then sweep |
# | It depends on the rewards' scale | Only without the std (the two lower rows of four); with it the scale is divided out |
# | It depends on difficulty | Yes: at one $\beta$ the rarest token ends with the smallest share (about .30 against .51) and the most nats (.15 against .10). What a price buys depends on the task |
# | PPO's $\beta$ can be kept | No: other estimator, other place, other scale (*Where the KL sits*) |
# | GRPO needs the KL more than PPO, since no critic smooths | A critic is a baseline: it makes *advantages* less noisy and holds no policy back. What holds a single step is the clip; what holds the sum of all steps is the KL, in both. Many GRPO recipes (DAPO, Dr. GRPO) do without it |
# | Too small a $\beta$ invites reward hacking | Where the reward can be fooled, yes. Notebook 4 shows it: against a lenient verifier the usual $\beta$ gives way, and a much larger one holds. Where the reward is right, many runs do with none |
#
# What people do besides: *clip the KL* (cap $k_3$ or $d$ of a token, so that one odd token cannot own the batch; beyond
# the cap it pulls no more), *add an entropy bonus* (subtract a little of the policy's entropy from the loss, against
# answers that all become alike; the KL punishes that only as far as the reference is varied), and *replace the
# reference* by the policy now and then (the price starts again at 0).
#
# ## Holding the drift instead of the price
#
# A sweep costs a run for every value. There is another way: decide how much drift you want, and let $\beta$ find
# itself. If the measured KL is above the target, raise it; if it is below, lower it. The first PPO of
# language models (Ziegler and others, 2019) did this, with a factor of 1 + rate × error; ours is the exponential of
# it, so that a step up and an equal step down cancel:
#
# $$\beta \leftarrow \operatorname{clip}\Big(\beta \cdot \exp\big(\text{rate} \cdot \operatorname{clip}(\tfrac{\text{kl}}{\text{target}} - 1,\, -1,\, 1)\big),\ \text{low},\ \text{high}\Big)$$
#
# In words: how far off is the KL, in units of the target, but never more than 1 either way (one odd batch must not
# fling $\beta$ away); move $\log\beta$ by that, at most `rate` a step; and never leave the range from low to high.
#
# ### Exercise: `adapt_beta` (3 points, 10 minutes, ●○○)
#
# | in | | meaning |
# |---|---|---|
# | `beta` | float | today's coefficient |
# | `kl` | float | the measured KL; may be 0 |
# | `target` | float, positive | the KL we want |
# | `rate` | float | the largest change of $\log\beta$ in one step |
# | `low`, `high` | floats | the range that $\beta$ may never leave |
#
# Returns the next $\beta$, a number.
#
# A worked number: $\beta = 0.04$, KL 0.03, target 0.02: the KL is half a target too high, so
# $\beta \cdot e^{0.1 \times 0.5} = 0.04205$.
#
# <details data-checks="follows_the_drift"><summary>A hint: the step</summary>
#
# How far off is the KL, in targets? Clip that first, then multiply by the rate, then take the exp: it is a factor on beta.
# </details>
#
# <details data-checks="stays_inside_the_fence"><summary>A hint: the range</summary>
#
# `min(max(x, low), high)` is a clip in plain Python. It comes last, on the new beta.
# </details>


# %% solution adapt_beta
def adapt_beta(beta, kl, target, rate=0.1, low=1e-4, high=1.0):
    """The next beta: larger when kl is above target, smaller when below, within low and high."""
    ### BEGIN SOLUTION
    error = min(max(kl / target - 1, -1.0), 1.0)
    return min(max(beta * math.exp(rate * error), low), high)
    ### END SOLUTION


# %% check follows_the_drift points=2
# Beta moves by the right factor, and a wild KL moves it by no more than the rate.
got = [adapt_beta(0.2, kl, 0.02, rate=0.8) for kl in (0.03, 0.014, 0.02, 2.0, 0.0)]
got += [adapt_beta(0.2, 0.03, 0.02), adapt_beta(0.00036, 0.022, 0.02)]
words = ("half a target too high", "0.3 of a target too low", "on target", "a hundred times too high", "0")
words = [f"beta 0.2, rate 0.8, and a KL that is {word}" for word in words]
words += ["beta 0.2, the usual rate, and a KL that is half a target too high", "beta 0.00036, the usual rate, and a KL that is a tenth of a target too high"]
for value, expected, case in zip(got, (0.298365, 0.157326, 0.2, 0.445108, 0.0898658, 0.210254, 0.000363618), words):
    assert close(value, expected, 1e-5 * expected), (
        f"{case}: the next beta is {numbers(value)}; expected {expected:.5g}. Too much drift raises beta; which of the two clips comes first?"
    )
### BEGIN HIDDEN TESTS
import random

draw = random.Random(SEED + 30)
for _ in range(40):
    beta, target, rate = 10 ** draw.uniform(-3.5, -1), 10 ** draw.uniform(-3, 0), draw.uniform(0.05, 0.9)
    off = draw.choice((draw.uniform(-0.95, 0.95), draw.uniform(1.05, 50)))
    step = adapt_beta(beta, target * (1 + off), target, rate=rate)
    assert abs(math.log(float(step) / beta) - rate * (1 if off > 1 else off)) < 1e-5
assert abs(math.log(float(adapt_beta(0.04, 0.03, 0.02)) / 0.04) - 0.05) < 1e-5
### END HIDDEN TESTS

# %% check stays_inside_the_fence points=1
# Beta never leaves the range from low to high.
usual, narrow = {}, {"low": 0.1, "high": 0.35}
cases = [(0.9, 5.0, usual, 1.0), (1.2e-4, 0.0, usual, 1e-4), (0.3, 0.15, narrow, 0.35), (0.12, 0.0, narrow, 0.1), (0.3, 0.15, usual, 0.38521)]
got = [adapt_beta(beta, kl, 0.1, rate=0.5, **fence) for beta, kl, fence, _ in cases]
for value, (beta, kl, fence, expected) in zip(got, cases):
    assert close(value, expected, 1e-5 if expected > 0.01 else 1e-8), (
        f"from {beta:g}, with a KL of {kl:g}, a target of 0.1 and {'the usual range' if fence is usual else 'a range from 0.1 to 0.35'}: "
        f"the next beta is {numbers(value)}; expected {expected:g}"
    )
### BEGIN HIDDEN TESTS
import random

draw = random.Random(SEED + 31)
for _ in range(40):
    low, high = 10 ** draw.uniform(-4, -2), 10 ** draw.uniform(-1, 1)
    beta, up = low * (high / low) ** draw.random(), draw.random() < 0.5
    step = float(adapt_beta(beta, 7.0 if up else 0.1, 1.0, rate=20.0, low=low, high=high))
    assert abs(step / (high if up else low) - 1) < 1e-5
    free = float(adapt_beta(math.sqrt(low * high), 1.2 if up else 0.8, 1.0, rate=0.5, low=low, high=high))
    assert abs(free / (math.sqrt(low * high) * math.exp(0.1 if up else -0.1)) - 1) < 1e-5
### END HIDDEN TESTS

# %% [markdown]
# Now close the loop. The same tiny run, with a target of 1 nat per token and three starting values: much too small,
# about right, too large. Will they meet, and where (the sweep has told you)? And which way will $\beta$ go first?

# %% show beta_finds_itself
def toward_one_nat(beta, kl):
    return adapt_beta(beta, kl, target=1.0)


print(f"the worked number: {adapt_beta(0.04, 0.03, 0.02):.5f}")
runs = {beta: train(beta, steps=200, adapt=toward_one_nat).T for beta in (0.03, 0.3, 1.0)}
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2))
for beta, (reward, kl, path) in runs.items():
    left.plot(kl, label=f"beta begins at {beta:g}")
    right.semilogy(path)
    print(f"beta from {beta:g}: lowest {path.min():.3f} after {path.argmin()} steps, at the end {path[-1]:.2f}; KL at most {kl.max():.1f}, at the end {kl[-50:].mean():.2f}")
left.axhline(1.0, color="black", lw=0.8, ls=":")
left.set(xlabel="step", ylabel="exact KL per token (nats)", title="the drift finds its target")
right.set(xlabel="step", ylabel="beta", title="and beta its price")
left.legend(frameon=False, fontsize=8)
plt.show()

# %% [markdown]
# All three end at a $\beta$ of about 0.37 and a KL of about 1.0, as the sweep had it. Look at the way there. At first the
# policy has not moved, the KL is far below its target, and $\beta$ *falls*, by up to a tenth a step, to less than a third
# of where it began. When the policy moves, $\beta$ comes back no faster: the KL shoots past its target, to about
# 2.2, 1.9 and 1.4 nats, and $\beta$ past its own. A third of the `rate` is calmer: try it. A controller holds the drift you
# chose, in the long run; it does not tell you which drift is good.
#
# ## Does it fit? (optional)
#
# The arithmetic of a real run: 8 prompts x 16 answers x 1,024 tokens, a model of 7 billion parameters (the shape is
# Qwen2.5-7B's), bfloat16, gradient checkpointing, micro-batches of 4 answers, one card of 80 GB. **Guess** first: which line
# is the largest, and what is the sum?


# %% show does_it_fit
def memory_of_a_run(prompts=8, answers=16, tokens=1024, micro_batch=4, billions=7.6, trained=1.0, state_bytes=12, reference=True):
    """What lies on the card, in GB (10^9 bytes). trained: the share of the weights; state_bytes: the optimizer's, for each."""
    layers, hidden, mlp, vocabulary, kv_heads, head_size = 28, 3584, 18_944, 152_064, 4, 128
    at_once, bf16, float32 = micro_batch * tokens, 2, 4
    parts = {
        "policy, weights": billions * bf16,
        "reference, weights": billions * bf16 * reference,
        "gradients": billions * bf16 * trained,
        "optimizer (AdamW)": billions * state_bytes * trained,  # two moments and a float32 copy of the weights: 12
        "update: activations kept": at_once * layers * hidden * bf16 / 1e9,  # what enters each layer
        "update: one layer recomputed": at_once * (3 * mlp + 6 * hidden) * bf16 / 1e9,
        "update: logits and gradient": at_once * vocabulary * 2 * float32 / 1e9,
        "sampling: KV cache": prompts * answers * tokens * layers * 2 * kv_heads * head_size * bf16 / 1e9,
    }
    update, sampling = (sum(v for name, v in parts.items() if name.startswith(when)) for when in ("update", "sampling"))
    parts["peak"] = sum(list(parts.values())[:4]) + max(update, sampling)  # update and sampling take turns
    return parts


variants = {
    "all in full": memory_of_a_run(),
    "B 4, G 8": memory_of_a_run(prompts=4, answers=8),
    "8-bit states": memory_of_a_run(state_bytes=2),
    "LoRA": memory_of_a_run(trained=0.005, reference=False),  # the reference is the policy with its adapters off
}
print(f"{'GB':30}" + "".join(f"{name:>14}" for name in variants))
for part in variants["LoRA"]:
    print(f"{part:30}" + "".join(f"{parts[part]:14.1f}" for parts in variants.values()))

# %% show does_it_fit_sliders
def draw_memory(**settings):
    parts = memory_of_a_run(**settings)
    plt.figure(figsize=(7, 2.8))
    bars = plt.barh(list(parts), list(parts.values()), color=[BLUE] * 8 + [ORANGE])
    plt.bar_label(bars, fmt="%.1f", padding=3)
    plt.axvline(80, color="black", lw=0.8, ls=":")
    plt.gca().invert_yaxis()
    plt.xlabel("GB; the dotted line is a card of 80")
    plt.title(f"peak: {list(parts.values())[-1]:.0f} GB")
    plt.show()


try:
    from ipywidgets import Checkbox, FloatSlider, IntSlider, interact

    interact(
        draw_memory,
        prompts=IntSlider(8, 1, 64, description="prompts"),
        answers=IntSlider(16, 2, 64, description="answers"),
        tokens=IntSlider(1024, 256, 16_384, 256, description="tokens"),
        micro_batch=IntSlider(4, 1, 32, description="micro-batch"),
        billions=FloatSlider(value=7.6, min=0.5, max=32, step=0.1, description="billions"),
        trained=FloatSlider(value=1.0, min=0.0, max=1.0, step=0.005, description="trained", readout_format=".3f"),
        state_bytes=IntSlider(12, 2, 12, description="state bytes"),
        reference=Checkbox(True, description="reference"),
    )
except ImportError:
    print("No ipywidgets here, so no sliders. Change the numbers by hand; this is all in full:")
    draw_memory()

# %% [markdown]
# In full it takes 144 GB, and what fills the card is the optimizer, 91 GB: AdamW keeps three float32 numbers for each
# weight. The batch is small beside it. So the advice "take B 4 and G 8" shrinks the cache from 7.5 to 1.9 GB and
# changes the sum hardly at all; it buys time and, with it, noise. What helps: *8-bit states* (68 GB, and the weights are
# then stepped in bfloat16), *LoRA* (23 GB: 0.5 % of the weights are trained, and the reference comes free), *offloading*
# states or reference to the CPU's memory, more cards, $\beta = 0$. And micro-batches: the logits of all answers at
# once would be the table of the beginning.
#
# ## What you have now
#
# - Three estimates of the KL, and the knowledge of which is right in value ($k_1$, $k_3$) and which as a loss ($k_2$,
#   and $k_3$ with a weight), shown by counting out rather than by trust.
# - A mean that padding cannot reach.
# - `grpo_objective`: the ratio, the clip, the KL, the aggregation and the numbers to watch. It is the loss that
#   the next notebook trains with, unchanged.
# - `adapt_beta`, for when you would rather choose the drift than the price.
#
# **Next: notebook 4.** A small model that can add in its head badly, or on a scratchpad well, and by habit does not use
# the scratchpad. Nobody tells it to. Your objective does.
