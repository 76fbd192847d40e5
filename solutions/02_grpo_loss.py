# %% [markdown]
# # 2. The GRPO loss
#
# At the end of notebook 1 every answer carried a number: how much better than its siblings it is. This
# notebook turns that number into a push on the model, by a loss of one line. You will write the line, draw it,
# find three bugs that raise no error, and carry the loss from whole answers to single tokens.
#
# ```text
# prompts → rollout → rewards → advantages → ratio, clip → KL → update ↺
# notebook     4         4          1             2        3      4
#                                               here
# ```
#
# | | |
# |---|---|
# | **Difficulty** | Medium: few lines, each of which can go wrong |
# | **Time** | About 2 hours and 20 minutes: 100 minutes for the exercises, the rest to read and guess; the sections marked "(optional)" take 15 more |
# | **You should know** | PyTorch tensors and `backward()`; what an advantage is (notebook 1) |
# | **You will write** | `compute_grpo_loss`, `first_step_gradient`, three repaired functions, `grpo_token_loss`, one written answer |
# | **Next** | Notebook 3, the KL to a reference policy, and its estimator k3 |

# %% given setup
import math
import time
import traceback

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import torch

SEED = 0  # draws of the hidden tests; a class has its own
BLUE, ORANGE, GREEN, PINK, YELLOW, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"  # told apart by everyone
mpl.rcParams.update({"figure.figsize": (7, 3.2), "axes.prop_cycle": mpl.cycler(color=[BLUE, ORANGE, GREEN, PINK, YELLOW, SKY]), "axes.spines.top": False, "axes.spines.right": False, "figure.constrained_layout.use": True})

# %% [markdown]
# ## Several steps on one batch
#
# Sampling is the expensive part: in the *rollout* the model writes hundreds of answers, token by token. It would
# be a pity to take one gradient step and throw them away. So we take a few, the *inner steps* on one batch. But after
# the first of them the model is no longer the one that wrote the answers, and an average over its old answers is not an average over what it
# would write now.
#
# The remedy is an **importance weight**. An answer that has become twice as likely since it was sampled stands
# for twice as many:
#
# $$\rho_i = \frac{\pi_{\text{new}}(\text{answer}_i)}{\pi_{\text{old}}(\text{answer}_i)}
# = \exp\bigl(\log\pi_{\text{new}} - \log\pi_{\text{old}}\bigr)$$
#
# In words: how many times more likely is this answer now than when it was written? `old` is the policy that
# sampled the batch; its log-probs were written down then and never change. `new` is the policy being trained,
# and only `new` carries a gradient. (The reference model of notebook 3 is a third policy. It has no part in
# this ratio.)
#
# The subtraction comes before the exponential. An answer of a hundred tokens has a log-prob of about -110; its
# probability is no longer a number that float32 can hold.
#
# **Before you run the next cell**, guess: what does float32 make of $e^{-111} / e^{-110}$, whose true value
# is 0.368?

# %% show why_logs_first
new, old = torch.tensor(-111.0), torch.tensor(-110.0)
print("exp first, then divide:  ", (new.exp() / old.exp()).item())
print("subtract first, then exp:", round((new - old).exp().item(), 3))

# %% [markdown]
# ## The clipped surrogate
#
# The weighted advantage $\rho A$ is called a *surrogate*: push it up and the policy improves, as long as the policy
# stays near the one that sampled. Far away the weight means little, and a greedy optimiser would run there.
#
# PPO's answer, which GRPO takes over unchanged, is to clip the importance weight, to multiply with and without
# the clip, and, like a pessimist, to believe the worse of the two estimates:
#
# $$S_i = \min\bigl(\;\rho_i A_i,\;\; \operatorname{clip}(\rho_i,\, 1-\varepsilon,\, 1+\varepsilon)\, A_i\;\bigr)$$
#
# In words: the first is the honest estimate, the second pretends that the ratio never left the band around 1,
# and the minimum says "no credit beyond the band". What GRPO maximises is the expectation of $S$, over prompts
# $x$ and over $G$ answers to each from the policy that samples; the loss is minus the mean over the $N$ answers
# of a batch, which estimates it:
#
# $$J(\theta) = \mathbb{E}_{x,\; y_1 \ldots y_G \sim \pi_{\text{old}}(\cdot|x)}\Bigl[\,\frac1G \sum_{i=1}^{G} S_i(\theta)\Bigr],
# \qquad L = -\frac1N \sum_{i=1}^{N} S_i$$
#
# **Before you run the next cell**, draw it yourself, on paper: $S$ against $\rho$ from 0 to 2, once for $A = 1$ and
# once for $A = -1$, with $\varepsilon = 0.2$. On which side is the flat part in each?

# %% show surrogate_picture
def draw_surrogate(low=0.2, high=0.2, size=1.0, ratio=1.5):
    """The surrogate against the ratio, for a good and a bad answer, and where one ratio falls."""
    fig, axes = plt.subplots(1, 2, figsize=(9, 3.4), sharex=True)
    for ax, A, corner in ((axes[0], size, 1 + high), (axes[1], -size, 1 - low)):
        bend = [0, corner, 2.5]
        banded = [(1 - low) * A, (1 - low) * A, (1 + high) * A, (1 + high) * A]
        S = [0, corner * A, corner * A] if A > 0 else [corner * A, corner * A, 2.5 * A]  # straight lines, one corner
        ax.axvspan(1 - low, 1 + high, color=SKY, alpha=0.2, lw=0)
        ax.plot([0, 2.5], [0, 2.5 * A], ":", color="gray", label="unclipped: ratio x A")
        ax.plot([0, 1 - low, 1 + high, 2.5], banded, "--", color="gray", lw=1, label="clipped ratio x A")
        ax.plot(bend, S, color=BLUE if A > 0 else ORANGE, lw=2.5, label="the smaller one: S")
        here = np.interp(ratio, bend, S)
        flat = ratio > corner if A > 0 else ratio < corner
        ax.plot(ratio, here, "o", color="black")
        ax.set_title(f"A = {A:+.1f}, ratio {ratio:.2f}: S = {here:.2f}, slope {0 if flat else A:.1f}", fontsize=10)
        ax.set_xlabel("ratio new / old (no unit)")
        ax.set_ylabel("surrogate S (reward stds)")
        ax.legend(fontsize=8, frameon=False, loc="upper left" if A > 0 else "lower left")
    plt.show()


draw_surrogate()
for A, ratio in ((1.0, 1.5), (-1.0, 1.5), (-1.0, 6.0)):
    print(f"A = {A:+.0f}, ratio {ratio}: S = min({ratio * A:.1f}, {min(max(ratio, 0.8), 1.2) * A:.1f})")

# %% [markdown]
# See where each line is flat: to the *right* of the band for a good answer, to the *left* of it for a bad
# one. There the gradient is zero. Everywhere else, the other two outer regions included, it is active.
#
# | | ratio below $1-\varepsilon$ | inside the band | ratio above $1+\varepsilon$ |
# |---|---|---|---|
# | $A > 0$ | active: a good answer became rarer, bring it back | active | **flat**: already pushed up enough |
# | $A < 0$ | **flat**: already pushed down enough | active | active: a bad answer became likelier, stop it |
#
# So "a ratio of 1.5 is clipped to 1.2" is half the truth. For $A = 1$, $\rho = 1.5$ the surrogate is 1.2; for
# $A = -1$, $\rho = 1.5$ it is $-1.5$, the whole of it, and for $\rho = 6$ it is $-6$. The minimum only ever takes
# credit away, never blame.
#
# Now move it. The sliders start with the ratio at 0.5: which of the two dots has slope 0 there? Then pull the two ends
# of the band apart.

# %% show surrogate_sliders
try:
    from ipywidgets import FloatSlider, interact

    def slider(value, top, name):
        return FloatSlider(value=value, min=0.0, max=top, step=0.05, description=name, continuous_update=False)

    interact(
        draw_surrogate,
        low=slider(0.2, 0.9, "eps low"),
        high=slider(0.2, 1.0, "eps high"),
        size=slider(1.0, 2.0, "|A|"),
        ratio=slider(0.5, 2.4, "ratio"),
    )
except ImportError:
    print("No ipywidgets here, so no sliders. Change the numbers by hand; this is the ratio at 0.5:")
    draw_surrogate(low=0.2, high=0.2, size=1.0, ratio=0.5)

# %% [markdown]
# ### Clip-higher: a band that is wider upwards (optional)
#
# The two ends need not be equal. With one $\varepsilon$ of 0.2 a token of probability 0.9 may rise to 1.08,
# that is, as far as it likes, while a rare token of probability 0.01 stops earning at 0.012. Rare tokens are
# where new ideas come from, and a band that holds them down makes the policy less varied.
#
# DAPO therefore keeps $\varepsilon_{\text{low}} = 0.2$ and raises $\varepsilon_{\text{high}}$ to 0.28. The
# lower end stays: a wider one would let probabilities be pushed to zero, and what is never sampled never comes
# back.
#
# **Guess first**: how much more room does the rare token get from 0.28, in probability?

# %% show clip_higher
print("probability   earns up to, eps 0.20   earns up to, eps 0.28   more room")
for p in (0.01, 0.1, 0.5, 0.9):
    print(f"{p:11.2f}   {p * 1.20:23.4f}   {p * 1.28:23.4f}   {0.28 / 0.20 - 1:9.0%}")

# %% [markdown]
# A relative band is a small absolute one for a rare token: from 0.0120 to 0.0128. That is little in one batch,
# and 40 % more room in every batch. (In this course the band stays symmetric: one number, `clip_range`.)

# %% [markdown]
# ## Whose mean, whose std?
#
# The advantage is that of notebook 1: the mean and the std of the answer's **own group**. There is a tempting
# shortcut, one mean and one std for the whole batch. It is a line shorter. What does it cost?
#
# Let a reward model score the answers. Such scores often have a *level* for each prompt: one prompt's answers
# get 6 and 5, whatever they say, another's 1 and 0. **Predict** the signs of the four advantages under both
# normalisations.

# %% show group_or_batch
one, other = torch.tensor([6.0, 5.0]), torch.tensor([1.0, 0.0])  # two prompts, two answers each
both = torch.cat([one, other])
print("own group:  ", torch.cat([(r - r.mean()) / r.std(unbiased=False) for r in (one, other)]).tolist())
print("whole batch:", [round(a, 2) for a in ((both - both.mean()) / both.std(unbiased=False)).tolist()])

# %% [markdown]
# Over the whole batch the worse answer to the first prompt is pushed up (0.78), and the better answer to the second
# is pushed down (-0.78). Is the gradient wrong, then? By the rule of notebook 1, no: the mean of a large batch is a
# constant baseline, and a constant leaves the average push right. The price is noise. To a prompt with a high level
# *every* answer that happens to be drawn is pushed up, good or bad; and a policy that was pushed far enough towards
# a bad one seldom draws the good one again.
#
# How much does that cost? Sixteen prompts, from easy to hard; sixteen possible answers to each, one of them right; a
# table of logits for a policy. Each update draws 8 answers per prompt; 300 updates, in 100 runs at once. The
# rewards are 0 and 1 on the left; on the right each prompt adds a level of its own. A third way of normalising takes
# groups of 8, but shuffled, as when the ids are lost.
#
# **Predict**: which of the six curves lag behind?

# %% show levels_of_rewards
def share_of_right_answers(normalise, levels, prompts=16, answers=16, G=8, runs=100):
    """After each of 300 updates: the probability of the right answer, [runs, prompts]."""
    draw = torch.Generator().manual_seed(0)
    start = torch.linspace(0.9, 0.02, prompts)  # of the right answer, which is number 0
    logits = torch.zeros(runs, prompts, answers)
    logits[..., 0] = (start / (1 - start) * (answers - 1)).log()
    history = []
    for _ in range(300):
        policy = logits.softmax(-1)
        drawn = torch.multinomial(policy.view(-1, answers), G, replacement=True, generator=draw).view(runs, prompts, G)
        rewards = (drawn == 0) + levels[:, None]
        order = torch.arange(prompts * G).expand(runs, -1)
        if normalise == "shuffled groups":
            order = torch.rand(runs, prompts * G, generator=draw).argsort(-1)
        r = rewards.view(runs, -1).gather(1, order).view(runs, -1, prompts * G if normalise == "whole batch" else G)
        z = (r - r.mean(-1, keepdim=True)) / r.std(-1, unbiased=False, keepdim=True).clamp_min(1e-6)
        A = torch.zeros(runs, prompts * G).scatter(1, order, z.view(runs, -1)).view(runs, prompts, G)
        gradient = torch.zeros_like(logits).scatter_add(-1, drawn, A / G) - policy * A.mean(-1, keepdim=True)
        logits = logits + gradient
        history.append(logits.softmax(-1)[..., 0])
    return history


ways = {"own group": "-", "whole batch": "--", "shuffled groups": ":"}
levels = {"right or wrong": torch.zeros(16), "a level per prompt": 2 * torch.randn(16, generator=torch.Generator().manual_seed(5))}
curves = {(kind, way): share_of_right_answers(way, levels[kind]) for kind in levels for way in ways}
fig, axes = plt.subplots(1, 2, figsize=(9, 3.2), sharey=True)
for (kind, way), history in curves.items():
    ax = axes[list(levels).index(kind)]
    right = [p.mean().item() for p in history]
    ax.plot(range(1, 301), right, ways[way], lw=2, label=way)
    print(
        f"{kind:18} {way:15} .95 after {sum(p < 0.95 for p in right) + 1:3} updates; after 150: {right[149]:.3f}, "
        f"{(history[149] < 0.5).float().mean():4.1%} of the prompts below one half; after 300: {right[299]:.3f}"
    )
for ax, kind in zip(axes, levels):
    ax.set_title(f"rewards: {kind}", fontsize=10)
    ax.set_xlabel("updates")
axes[0].set_ylabel("probability of the right answer")
axes[1].legend(fontsize=8, frameon=False, loc="lower right")
plt.show()

# %% [markdown]
# On the left the prompts differ in difficulty, and hardly anything is lost: to reach .95 the whole batch is even a little
# faster (22 updates against 23), shuffled groups are a little slower (29). On the right the group's own mean takes the
# level away, and its curve is the same. The other two need about 150 updates for what it does in about 24; after 150
# about 3 % of the prompts are below one half still, pushed to a wrong answer early on. (How much it costs depends on the
# levels: with others it is three to seven times as many updates, and fewer or more prompts are left behind.) Here
# they come back in the end, since a table of logits with these steps still draws the right answer now and then; a
# language model that has stopped writing an answer may not. So right-or-wrong rewards forgive the shortcut, those with a
# level or a scale per prompt do not, and no error tells you which kind you have. A test of the advantages does.

# %% [markdown]
# ## A batch that separates right from wrong
#
# Many wrong losses agree with the right one on a tidy batch: two groups of two, side by side, ratios near 1.
# So ours is untidy on purpose. Three prompts with the labels 7, -1 and 42, mixed; one prompt with a single
# answer; every clip region visited. It comes from a function, so that every check gets a fresh copy.
#
# Two more rows for the card of conventions, whose first rows stand in notebook 1:
#
# | what | this course | elsewhere |
# |---|---|---|
# | ratio | exp(new - old), against the policy that sampled; per answer here, per token from `grpo_token_loss` on | GSPO: one per answer |
# | loss | a scalar to minimise: minus the mean of the pessimistic surrogate $S$ | papers write the objective, to be maximised |

# %% given separating_batch
def separating_batch():
    """Eight answers to three prompts, as keyword arguments of compute_grpo_loss."""
    old = torch.tensor([-1.0, -2.0, -0.7, -1.3, -0.5, -2.2, -1.1, -0.9])
    ratio = torch.tensor([0.5, 1.5, 1.5, 1.5, 1.1, 0.5, 0.9, 1.05])
    return {
        "log_probs_new": old + ratio.log(),
        "log_probs_old": old,
        "rewards": torch.tensor([1.0, 0.0, 0.0, 2.0, 3.0, -1.0, 0.5, 4.0]),
        "group_ids": torch.tensor([7, -1, 7, -1, 7, 7, -1, 42]),
    }

# %% given words_for_checks
# Small helpers of the checks below: they say in words what came out, whatever it was. You need not read them.
def describe(x):
    if isinstance(x, torch.Tensor):
        flat = [round(v, 4) for v in x.detach().double().flatten()[:12].tolist()]
        return f"a tensor of shape {tuple(x.shape)}: {flat}{' ...' if x.numel() > 12 else ''}"
    if x is None:
        return "None (is a return missing?)"
    return f"{type(x).__name__} {x!r:.80}" if isinstance(x, (bool, int, float, str)) else f"a {type(x).__name__}"


def rounded(x):
    """The numbers of a tensor, to four digits, row by row."""
    return [rounded(row) for row in x] if x.dim() else round(x.item(), 4)


def tensor_of_shape(x, shape, what):
    """x, once it is sure to be a tensor of that shape."""
    assert isinstance(x, torch.Tensor), f"{what}: a tensor of shape {shape} was expected, what came is {describe(x)}"
    assert tuple(x.shape) == shape, f"{what}: shape {shape} was expected, what came is {describe(x)}"
    return x


def loss_and_advantages(result, n):
    """The two results of compute_grpo_loss, once they are sure to be a scalar and n numbers."""
    assert isinstance(result, (tuple, list)) and len(result) == 2, (
        f"compute_grpo_loss returns (loss, advantages); what came is {describe(result)}"
    )
    loss = tensor_of_shape(result[0], (), "the loss, first of the two results, is one number")
    return loss, tensor_of_shape(result[1], (n,), "the advantages, second of the two results, one for each answer")


def first_off(x, right, tolerance):
    """The first place where x is not what is right, and both numbers; "" where all is right."""
    for place in torch.ones(right.shape).nonzero().tolist():
        mine, wanted = x[tuple(place)], right[tuple(place)]
        if not close(mine, wanted, tolerance):
            return ", ".join(f"{what} {i}" for what, i in zip(("answer", "token"), place)) + f": {mine:.4g}, not {wanted:.4g}"
    return ""


def gradient(value, x):
    """d value / d x, or a sentence that says why there is none."""
    assert value.requires_grad, (
        "no gradient can flow: the result is not connected to the new log-probs. Was something detached on the "
        "way, or computed under no_grad?"
    )
    value.sum().backward()
    assert x.grad is not None, "the gradient does not reach the new log-probs. Was something detached on the way?"
    return x.grad


def close(a, b, tolerance):
    """Same shape, and equal up to the tolerance (NaN is never close)."""
    a, b = torch.as_tensor(a).detach().double(), torch.as_tensor(b).detach().double()
    return a.shape == b.shape and bool(((a - b).abs() <= tolerance).all())

# %% scenario advantages_so_far
# Calls your function. Where TODO 2 or 3 is still open, it hands back what TODO 1 has left in `advantages`.
def advantages_so_far(log_probs_new, log_probs_old, rewards, group_ids, eps=1e-6):
    """(loss, advantages) of compute_grpo_loss; a loss of 0 where the function stops at an open TODO."""
    try:
        return compute_grpo_loss(log_probs_new, log_probs_old, rewards, group_ids, eps=eps)
    except NotImplementedError as stop:
        *_, (frame, _) = traceback.walk_tb(stop.__traceback__)  # where it stopped
        if str(stop) or frame.f_locals.get("advantages") is None:
            raise
        return torch.zeros(()), frame.f_locals["advantages"]

# %% [markdown]
# ### Exercise: `compute_grpo_loss` (16 points, 25 minutes, ●●●)
#
# All of the above in one function, in three steps, a TODO each: the rewards become **advantages**; the log-probs
# become a **ratio**, and with the advantages the two **surrogates**; the smaller surrogates become the **loss**.
#
# | in | shape | meaning |
# |---|---|---|
# | `log_probs_new` | `[N]` floats | log-prob of each whole answer under the policy being trained; carries the gradient |
# | `log_probs_old` | `[N]` floats | the same under the policy that sampled; arrives without gradient |
# | `rewards` | `[N]`, any real number type | one reward per answer; arrives without gradient |
# | `group_ids` | `[N]` integers | answers with equal ids belong to the same prompt |
# | `clip_range` | float | $\varepsilon$ of the band |
# | `eps` | float | the smallest std to divide by |
#
# Returns `(loss, advantages)`: a scalar tensor to minimise, and `[N]` floats. One worked number: one group
# with rewards 1 and 0, hence advantages 1 and -1, and ratios 1.5 and 1.5. The surrogates are 1.2 and -1.5,
# the loss is 0.15. On the separating batch the loss is 0.015724.
#
# **TODO 1 is `group_advantages` of notebook 1, and pasting is welcome**: put that function into the cell, above this
# one, and call it. The first four checks ask for TODO 1 alone, and look for it under the name `advantages`: run them as
# soon as it is written, with the `raise NotImplementedError()` of the other two still in its place.
#
# The small print:
#
# - The advantages follow notebook 1: any labels, any number type; zero-variance (*dead*) groups and
#   groups of one answer give 0; `eps` is the smallest std to divide by.
# - Log-probs may be as low as -400: think of the first cell of this notebook.
# - The band is the only bound: a bad answer that became $e^{18}$ times as likely is felt in full. (A log-ratio
#   cut at -20 and 20, against overflow, is allowed.)
# - Nothing that comes in is written to. A loop over the groups is fine for every check.
#
# <details data-checks="own_group_advantages zero_mean_in_every_group equal_rewards_teach_nothing rewards_of_any_number_type"><summary>A hint for TODO 1</summary>
#
# The groups: `group_ids.unique(return_inverse=True)` renames any labels to 0, 1, 2, … . A sum per label is then
# one `index_add_`, and indexing with the inverse hands each answer its group's number back. Count in float64: in
# float32 six rewards of 0.9 do not average to 0.9.
# </details>
#
# <details data-checks="ratio_positivity gradient_flow"><summary>A hint for TODO 2</summary>
#
# The ratio and the band: the formulas above, in the order in which they stand. `clamp` is torch's name for
# clip. Keep both surrogates: which of them counts is decided later, answer by answer.
# </details>
#
# <details data-checks="value_of_the_loss clip_range_is_obeyed gradient_flow"><summary>A hint for TODO 3</summary>
#
# The loss, said aloud: minus, the mean, of the smaller one. The minus stands outside of everything. What would
# become of "the smaller one" if each surrogate were negated first?
# </details>

# %% solution compute_grpo_loss
def compute_grpo_loss(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The GRPO loss of N answers: four tensors [N] -> (loss, a scalar to minimise; advantages [N])."""

    # ======================================================================
    # TODO 1: group-relative advantages. Leave them in `advantages` [N].
    # ======================================================================
    ### BEGIN SOLUTION
    # How: rename the ids to 0 … M-1, add up per group with index_add_, hand each answer its group's mean and std.
    # Core line: centred / std.clamp_min(eps)
    # Mathematics: A = (r - mean of the group) / std of the group, a z-score that no scale and no offset can change.
    # In practice: no critic to train or to keep in memory; a level or a scale that a prompt gives its rewards is gone.
    _, group, size = group_ids.unique(return_inverse=True, return_counts=True)

    def group_mean(x):  # [N] -> [N], each entry its group's mean
        return (x.new_zeros(len(size)).index_add_(0, group, x) / size)[group]

    r = rewards.double()  # so that equal float32 rewards centre to 0
    centred = r - group_mean(r)
    std = group_mean(centred**2).sqrt()
    advantages = (centred / std.clamp_min(eps)).to(log_probs_new.dtype)
    ### END SOLUTION

    # ======================================================================
    # TODO 2: the ratio, and from it the two surrogates, `unclipped` [N] and `clipped` [N].
    # ======================================================================
    ### BEGIN SOLUTION
    # How: subtract the log-probs, exponentiate once, and multiply by the advantage with and without the band.
    # Core line: ratio = torch.exp(log_probs_new - log_probs_old)
    # Mathematics: an importance weight, pi_new / pi_old; it is positive always, and 1 at the first step.
    # In practice: one batch of costly samples serves several gradient steps, and nothing under- or overflows.
    ratio = torch.exp(log_probs_new - log_probs_old)
    unclipped = ratio * advantages
    clipped = ratio.clamp(1 - clip_range, 1 + clip_range) * advantages
    ### END SOLUTION

    # ======================================================================
    # TODO 3: the loss, from the two surrogates. Leave it in `loss`, a scalar.
    # ======================================================================
    ### BEGIN SOLUTION
    # How: take the smaller surrogate of each answer, average over the answers, change the sign.
    # Core line: loss = -torch.min(unclipped, clipped).mean()
    # Mathematics: a lower bound on the unclipped surrogate; its slope is 0 only where A > 0, r > 1+eps or A < 0, r < 1-eps.
    # In practice: a good answer stops being pushed once it has moved enough, and a slip the wrong way is undone.
    loss = -torch.min(unclipped, clipped).mean()
    ### END SOLUTION

    return loss, advantages

# %% check own_group_advantages points=2
# Each answer is measured in standard deviations of its own group (TODO 1).
expected = torch.tensor([0.1690, -0.9806, -0.5071, 1.3728, 1.5213, -1.1832, -0.3922, 0.0])
_, answer = loss_and_advantages(advantages_so_far(**separating_batch()), 8)
tiny, huge = (
    loss_and_advantages(
        advantages_so_far(torch.zeros(2), torch.zeros(2), torch.tensor([0.0, reward]), torch.tensor([6, 6]), eps=eps), 2
    )[1]
    for reward, eps in ((2**-24, 1e-12), (1.0, 8.0))
)
got = answer, tiny, huge
assert answer.is_floating_point(), f"advantages are floats, not {answer.dtype}"
for i in range(8):
    group = separating_batch()["group_ids"][i].item()
    assert close(answer[i], expected[i], 1e-4), (
        f"answer {i} (group {group}): the advantage is {answer[i]:.4f}, not {expected[i]:.4f}. Which answers does "
        "it have to be compared with, and what is the unit?"
    )
for mine, size, words in ((tiny, 1.0, "0 and 2^-24 with eps 1e-12"), (huge, 0.0625, "0 and 1 with eps 8")):
    assert close(mine, torch.tensor([-size, size]), 0.01), (
        f"the rewards {words} give the advantages {[-size, size]}, not {rounded(mine)}. Who decides which std is too small?"
    )
### BEGIN HIDDEN TESTS
from statistics import fmean, pstdev  # an independent way: plain Python, exact means

draw = torch.Generator().manual_seed(SEED)
for _ in range(8):
    ids = torch.randint(-4, 4, (40,), generator=draw) * 10**13
    rewards = torch.randint(0, 3, (40,), generator=draw) / 2 + torch.randint(0, 20, (1,), generator=draw)
    log_probs = -torch.rand(40, generator=draw)
    groups = {g: [r for r, i in zip(rewards.tolist(), ids.tolist()) if i == g] for g in ids.tolist()}
    right = torch.tensor(
        [(r - fmean(groups[g])) / max(pstdev(groups[g]), 1e-6) for r, g in zip(rewards.tolist(), ids.tolist())]
    )
    _, mine = loss_and_advantages(advantages_so_far(log_probs + 0.1, log_probs, rewards.clone(), ids.clone()), 40)
    assert close(mine, right, 3e-5), "an advantage of a random batch is off"
for reward, eps in ((2**-21, 1e-11), (0.5, 50.0), (2.0, 400.0)):  # an eps that is added passes
    pair = torch.tensor([0.0, reward * (1 + float(torch.rand(1, generator=draw)))])
    _, mine = loss_and_advantages(
        advantages_so_far(torch.zeros(2), torch.zeros(2), pair.clone(), torch.tensor([6, 6]), eps=eps), 2
    )
    half = pair[1].item() / 2
    assert close(mine * max(half, eps) / half, torch.tensor([-1.0, 1.0]), 0.03), "eps is the smallest std to divide by"
rewards = torch.tensor([0, 2**-14, 1000, 1000.25] + [0.0] * 121 + [1.0])  # a small spread, a high level, one success in 122
right = torch.tensor([-1, 1, -1, 1] + [-1 / 11] * 121 + [11.0])
ids, log_probs = torch.tensor([6, 6, 2, 2] + [-1] * 122), torch.full((126,), -1.0)
_, mine = loss_and_advantages(advantages_so_far(log_probs.clone(), log_probs.clone(), rewards, ids), 126)
assert close(mine, right, 0.05), "an advantage of an extreme group is off"
### END HIDDEN TESTS

# %% check zero_mean_in_every_group points=3
# Zero mean in every group: what one answer gains, its siblings lose (TODO 1).
of_group = [0, 1, 0, 2, 1, 0, 2, 0, 3, 1] + [4] * 442  # a tie in group 2, one answer in group 3, one success in group 4
rewards = torch.tensor([0, 4, 0, 2, 1, 3, 2, 0, 7, 1, 1] + [0] * 441)  # whole numbers
for labels in ((3, -1, 8, 0, 20), (3, -1, 10**15, 2**60 + 3, 2**60 + 4)):
    ids = torch.tensor([labels[g] for g in of_group])
    _, got = loss_and_advantages(
        advantages_so_far(torch.full((452,), -2.0), torch.full((452,), -2.1), rewards.clone(), ids.clone()), 452
    )
    for g, varied in zip(labels, (True, True, False, False, True)):
        mine = got[ids == g].double()
        assert abs(mine.mean().item()) < 1e-5, (
            f"group {g}, of size {len(mine)}: the advantages average {mine.mean():.4f}, not 0. Is each answer compared "
            "with its own group? Is anything left where all rewards are equal, or lost where one answer stands out?"
        )
        assert varied == (mine.abs().sum().item() > 0.5), (
            f"the rewards of group {g} are {describe(rewards[ids == g])}, its advantages {describe(mine)}. A group "
            "teaches something exactly when its rewards differ."
        )
### BEGIN HIDDEN TESTS
draw = torch.Generator().manual_seed(SEED + 1)
for trial in range(12):
    ids = torch.randint(0, 6, (50,), generator=draw)
    labels = torch.randperm(2000, generator=draw)[:8] * 10 ** (13 * (trial // 2 % 2))  # huge, unsorted
    labels -= 10**6 * (trial % 3)  # negative
    if trial % 4 == 1:  # neighbours, alike in 32 bits or as floats
        labels[:6] = torch.tensor([7, 7 + 2**60, 2**62, 2**62 + 1, 10**15, 10**15 + 1])
    ids = labels[ids]
    rewards = torch.randint(-3, 4, (50,), generator=draw)
    ids[17], ids[[4, 30, 41]] = labels[6], labels[7]  # one answer alone, one group of ties
    rewards[[4, 30, 41]] = 2
    if trial % 2:
        rewards = rewards.float() / 4
    log_probs = -3 * torch.rand(50, generator=draw)
    _, mine = loss_and_advantages(
        advantages_so_far(log_probs.clone(), log_probs.clone(), rewards.clone(), ids.clone()), 50
    )
    for g in ids.unique():
        own = mine[ids == g].double()
        assert abs(own.mean().item()) < 1e-5, "the advantages of a group do not average 0"
        assert (own.abs().sum().item() > 0.5) == (rewards[ids == g].unique().numel() > 1), (
            "a varied group got nothing, or a uniform one something"
        )
        for value in rewards[ids == g].unique():
            alike = own[rewards[ids == g] == value]
            assert alike.max() - alike.min() < 1e-4, "equal rewards in a group, unequal advantages"
### END HIDDEN TESTS

# %% check equal_rewards_teach_nothing points=1
# Equal rewards teach nothing (six times 0.9 in float32 gives six times 0); those that hardly differ still do (TODO 1).
ids = torch.tensor([1, 2, 1, 1, 3, 1, 2, 1, 3, 1, 4, 4])
rewards = torch.tensor([0.9, 0.0, 0.9, 0.9, 1000.0, 0.9, 2**-14, 0.9, 1000.25, 0.9, 1000.0, 1016.0])
_, got = loss_and_advantages(
    advantages_so_far(torch.full((12,), -2.0), torch.full((12,), -2.0), rewards.clone(), ids.clone()), 12
)
assert close(got[ids == 1], torch.zeros(6), 1e-5), (
    f"six equal rewards gave the advantages {rounded(got[ids == 1])}, not zeros. What is left of 0.9 minus the mean "
    "in float32, and what does the division make of it?"
)
for g, words in ((2, "0 and 2^-14 (.00006)"), (3, "1000 and 1000.25"), (4, "1000 and 1016")):
    assert close(got[ids == g], torch.tensor([-1.0, 1.0]), 0.05), (
        f"the rewards {words} of group {g} gave the advantages {rounded(got[ids == g])}, not -1 and 1. What becomes "
        "in your code of a spread that is small, or small against the level?"
    )
### BEGIN HIDDEN TESTS
draw = torch.Generator().manual_seed(SEED + 2)
for n in (3, 6, 7, 11, 23, 40):
    value = torch.randint(1, 100, (1,), generator=draw) / 100 + 0.001
    rewards, ids = (
        torch.cat([value.expand(n), torch.tensor([2.0, 0.0])]),
        torch.cat([torch.full((n,), -5), torch.tensor([9, 9])]),
    )
    order = torch.randperm(n + 2, generator=draw)
    rewards, ids = rewards[order], ids[order]
    _, mine = loss_and_advantages(
        advantages_so_far(torch.full((n + 2,), -1.0), torch.full((n + 2,), -1.0), rewards.clone(), ids.clone()), n + 2
    )
    assert close(mine[ids == -5], torch.zeros(n), 1e-5), "equal rewards left a residue"
    assert close(mine[ids == 9], rewards[ids == 9] - 1, 1e-3), "a group that differs"
### END HIDDEN TESTS

# %% check rewards_of_any_number_type points=1
# Rewards of any number type give float advantages, and nothing that comes in is changed (TODO 1).
once, doubles = [0.5774, 0.5774, 0.5774, -1.7321], [1000.0, 1000.00009, 1000.00022, 1000.0003]
for rewards, words, expected in (
    (torch.tensor([2, 2, 2, 1]), "2, 2, 2, 1 (int64)", once),
    (torch.tensor([2.0, 2.0, 2.0, 1.0]), "2, 2, 2, 1 (float32)", once),
    (torch.tensor(doubles, dtype=torch.float64), f"{doubles} (float64)", [-1.3189, -0.5405, 0.5838, 1.2757]),
):
    batch = {
        "log_probs_new": torch.tensor([-1.0, -2.0, -3.0, -4.0]),
        "log_probs_old": torch.tensor([-1.1, -1.9, -3.0, -4.2]),
        "rewards": rewards,
        "group_ids": torch.tensor([8, 8, 8, 8]),
    }
    before = {name: x.clone() for name, x in batch.items()}
    _, advantages = loss_and_advantages(advantages_so_far(**batch), 4)
    changed = {name: not torch.equal(x, before[name]) for name, x in batch.items()}
    got = advantages, changed, rewards.is_floating_point()
    for name, x in batch.items():
        assert not changed[name], (
            f"{name} was {rounded(before[name])} and is {rounded(x)} after the call. Somebody else may still need "
            "it: work on a new tensor."
        )
    assert advantages.is_floating_point(), (
        f"advantages are floats, not {advantages.dtype}: what becomes of 0.577 in a tensor of whole numbers?"
    )
    off = first_off(advantages, torch.tensor(expected), 0.05 if rewards.dtype == torch.float64 else 1e-3)
    digits = ". How many digits has a float32?" if rewards.dtype == torch.float64 else ""
    assert not off, f"for the rewards {words} the advantage of {off}{digits}"
### BEGIN HIDDEN TESTS
draw = torch.Generator().manual_seed(SEED + 3)
for kind in (torch.int64, torch.int32, torch.uint8, torch.float64):
    k = int(torch.randint(2, 6, (1,), generator=draw))  # k groups with rewards c, c, c + 3
    ids = torch.arange(k).repeat(3)
    c = torch.randint(0, 50, (k,), generator=draw)
    order = torch.randperm(3 * k, generator=draw)
    ids, rewards = ids[order], torch.cat([c, c, c + 3])[order].to(kind)
    right = torch.where(order < 2 * k, -math.sqrt(0.5), math.sqrt(2))
    log_probs = -torch.rand(3 * k, generator=draw)
    given = [log_probs.clone(), log_probs - 0.1, rewards.clone(), ids.clone()]
    kept = [x.clone() for x in given]
    _, mine = loss_and_advantages(advantages_so_far(*given), 3 * k)
    assert mine.is_floating_point() and close(mine, right, 1e-3), f"rewards of type {kind}"
    assert all(torch.equal(a, b) for a, b in zip(given, kept)), "something that came in was changed"
### END HIDDEN TESTS

# %% check ratio_positivity points=3
# The ratio is positive and equals exp(new - old), as the gradient of your own loss shows it (TODO 2).
old = torch.tensor([-110.0, -64.0, -3.0, -400.0, -20.0, -27.0])
new = (old + torch.tensor([1.1, 0.9, math.exp(-18), 1.7, 0.85, math.exp(18)]).log()).requires_grad_()
expected = torch.tensor([math.exp(a - b) for a, b in zip(new.tolist(), old.tolist())])
advantages = torch.tensor([1.0, -1.0] * 3)  # what the rewards below come to; nothing here is in a flat region
rewards, ids = torch.tensor([1.0, 0.0, 5.0, 2.0, 3.0, -1.0]), torch.tensor([0, 0, 1, 1, 2, 2])
loss, _ = loss_and_advantages(compute_grpo_loss(new, old.clone(), rewards, ids), 6)
ratio = (
    gradient(loss, new) * -6 / advantages + 0.0
)  # undo sign, mean and advantage: what is left is the ratio your loss has used
got = (ratio / expected).asinh()  # like a logarithm where numbers are large, so that far ratios do not drown near ones
for i in range(6):
    assert ratio[i] > 0, (
        f"answer {i}, a ratio of {expected[i]:.4g}: your gradient corresponds to {ratio[i]:.4g}. A ratio of two "
        "probabilities is positive: no sign, no zero, no NaN. Which line could give this? (A gradient of exactly 0 also "
        "comes from a clip or another bound that acts where it should not. And if a check of TODO 1 fails, begin there.)"
    )
    assert close(ratio[i], expected[i], 1e-3 * expected[i]), (
        f"answer {i} is {expected[i]:.4g} times as likely as when it was sampled; your gradient corresponds to "
        f"{ratio[i]:.4g}. How does a ratio come out of two logarithms, and how is it averaged?"
    )
### BEGIN HIDDEN TESTS
draw = torch.Generator().manual_seed(SEED + 4)
for trial in range(10):
    k = 12  # pairs of answers with rewards c and c + d: advantages -1 and 1
    c, d = 3 * torch.rand(k, generator=draw), 0.6 + torch.rand(k, generator=draw)
    ids, rewards, sign = torch.arange(k).repeat(2), torch.cat([c, c + d]), torch.cat([-torch.ones(k), torch.ones(k)])
    u = torch.rand(2 * k, generator=draw)
    log_ratio = sign * (0.15 - 3 * u)  # ratios from 1/17 to 17, never in a flat region
    old = -torch.rand(2 * k, generator=draw) * (400 if trial % 2 else 5)
    order = torch.randperm(2 * k, generator=draw)
    ids, rewards, sign, old = ids[order], rewards[order], sign[order], old[order]
    new = (old + log_ratio[order]).requires_grad_()
    loss, _ = loss_and_advantages(compute_grpo_loss(new, old.clone(), rewards.clone(), ids.clone()), 2 * k)
    ratio = gradient(loss, new) * -2 * k / sign
    right = torch.tensor([math.exp(a - b) for a, b in zip(new.tolist(), old.tolist())])
    assert bool((ratio > 0).all()), "a ratio is not positive"
    assert close(ratio / right, torch.ones(2 * k), 1e-3), "a ratio is not exp(new - old)"
### END HIDDEN TESTS

# %% check gradient_flow points=3
# The gradient reaches the new log-probs with the right value in all four clip regions (TODO 2 and 3).
batch = separating_batch()
ratios, A = (0.5, 1.5, 1.5, 1.5, 1.1, 0.5, 0.9, 1.05), (1, -1, -1, 1, 1, -1, -1, 0)
new = batch.pop("log_probs_new").requires_grad_()  # old log-probs and rewards come without gradient
expected = torch.tensor([-0.0106, 0.1839, 0.0951, 0.0, -0.2092, 0.0, 0.0441, 0.0])
loss, _ = loss_and_advantages(compute_grpo_loss(new, **batch), 8)
got = gradient(loss, new)
for i in range(8):
    sign = ("A = 0", "A > 0", "A < 0")[A[i]]
    assert close(got[i], expected[i], 2e-4), (
        f"answer {i} ({sign}, ratio {ratios[i]}): the gradient is {got[i]:.4f}, not {expected[i]:.4f}. Look this "
        "region up in the table under the picture: is it flat or active, and which way should the answer be "
        "pushed? (If a check of TODO 1 fails, begin there.)"
    )
### BEGIN HIDDEN TESTS
from statistics import fmean, pstdev

draw = torch.Generator().manual_seed(SEED + 5)
seen = set()
for trial in range(8):
    n = 30
    ids = torch.randint(-3, 3, (n,), generator=draw)
    rewards = torch.randint(0, 3, (n,), generator=draw) / 2
    ratio = torch.tensor([0.4, 0.7, 0.85, 0.95, 1.1, 1.17, 1.3, 1.9], dtype=torch.float64)[
        torch.randint(0, 8, (n,), generator=draw)
    ]
    ratio = ratio * (1 + 0.02 * torch.rand(n, generator=draw, dtype=torch.float64))
    old = -5 * torch.rand(n, generator=draw)
    new = (old + ratio.log()).float().requires_grad_()
    groups = {g: [r for r, i in zip(rewards.tolist(), ids.tolist()) if i == g] for g in ids.tolist()}
    right = []
    for a, b, r, g in zip(new.tolist(), old.tolist(), rewards.tolist(), ids.tolist()):
        A, q = (r - fmean(groups[g])) / max(pstdev(groups[g]), 1e-6), math.exp(a - b)
        flat = (A > 0 and q > 1.2) or (A < 0 and q < 0.8)
        seen.add((A > 0, A < 0, q > 1.2, q < 0.8))
        right.append(0.0 if flat else -A * q / n)
    leaf = new.detach().clone().requires_grad_()
    loss, _ = loss_and_advantages(
        compute_grpo_loss(leaf * 1.0 if trial % 2 else leaf, old.clone(), rewards.clone(), ids.clone()), n
    )
    assert close(gradient(loss, leaf), torch.tensor(right), 1e-4), "a gradient of a random batch is off"
assert len({s for s in seen if (s[0] or s[1]) and (s[2] or s[3])}) == 4, "the draws have to visit all four regions"
### END HIDDEN TESTS

# %% check value_of_the_loss points=2
# The loss is minus the mean of the pessimistic surrogate (TODO 3).
loss, _ = loss_and_advantages(compute_grpo_loss(**separating_batch()), 8)
got = loss.item()
assert abs(got - 0.015724) < 1e-4, (
    f"on the separating batch the loss is 0.015724, not {got:.6f}. Which surrogate counts for each answer, and "
    "how do the eight become one number? (If a check above fails, begin there.)"
)
### BEGIN HIDDEN TESTS
from statistics import fmean, pstdev

draw = torch.Generator().manual_seed(SEED + 6)
for _ in range(10):
    n = int(torch.randint(10, 40, (1,), generator=draw))
    ids = torch.randint(-3, 3, (n,), generator=draw)
    rewards = torch.randint(0, 4, (n,), generator=draw) / 2
    old = -5 * torch.rand(n, generator=draw)
    new = old + 0.6 * torch.randn(n, generator=draw)
    groups = {g: [r for r, i in zip(rewards.tolist(), ids.tolist()) if i == g] for g in ids.tolist()}
    total = 0.0
    for a, b, r, g in zip(new.tolist(), old.tolist(), rewards.tolist(), ids.tolist()):
        A, q = (r - fmean(groups[g])) / max(pstdev(groups[g]), 1e-6), math.exp(a - b)
        q = min(q, 1.2) if A > 0 else max(q, 0.8)
        total += A * q
    loss, _ = loss_and_advantages(compute_grpo_loss(new.clone(), old.clone(), rewards.clone(), ids.clone()), n)
    assert close(loss, -total / n, 3e-4), "the loss of a random batch is off"
### END HIDDEN TESTS

# %% check clip_range_is_obeyed points=1
# The band is as wide as the caller asks (TODO 2).
expected = torch.tensor([0.45, 0.2125])  # of the surrogates 1.1, -.9, -2.5, .5 and 1.6, -.45, -2.5, .5
old = torch.tensor([-1.0, -2.0, -0.5, -1.5])
new = old + torch.tensor([2.0, 0.45, 2.5, 0.5]).log()
batch = new, old, torch.tensor([3.0, 1.0, 0.5, 2.5]), torch.tensor([4, 4, 2, 2])
narrow, _ = loss_and_advantages(compute_grpo_loss(*(x.clone() for x in batch), clip_range=0.1), 4)
wide, _ = loss_and_advantages(compute_grpo_loss(*(x.clone() for x in batch), clip_range=0.6), 4)
got = torch.stack([narrow.detach(), wide.detach()])
assert close(got, expected, 2e-4), (
    "A = 1, -1, -1, 1 at the ratios 2, .45, 2.5, .5: the losses are .45 with clip_range .1 and .2125 with clip_range .6; "
    f"what came is {got[0]:.4f} and {got[1]:.4f}. Who decides how wide the band is?"
)
### BEGIN HIDDEN TESTS
draw = torch.Generator().manual_seed(SEED + 7)
for clip in (0.05, 0.1, 0.3, 0.5, 0.7):
    up, down = (
        math.exp(0.8 + float(torch.rand(1, generator=draw))),
        math.exp(-1.5 - float(torch.rand(1, generator=draw))),
    )
    old = -torch.rand(4, generator=draw)
    new = old + torch.tensor([up, down, up, down]).log()
    loss, _ = loss_and_advantages(
        compute_grpo_loss(new, old, torch.tensor([3.0, 1.0, 0.5, 2.5]), torch.tensor([4, 4, 2, 2]), clip_range=clip), 4
    )
    right = -((1 + clip) - (1 - clip) - up + down) / 4  # A = 1, -1, -1, 1 at the ratios up, down, up, down
    assert close(loss, right, 5e-4), f"clip_range {clip}"
### END HIDDEN TESTS

# %% [markdown]
# ---
# ## STOP
#
# The next lines say where the answers are. If a check above still fails, the ten minutes before you look are
# the ones in which you learn the most. Have you opened the hints? Have you worked one answer of the
# separating batch by hand?
#
# The answer key is in the folder `solutions` of the course (an instructor may keep it back). For each of the three
# TODOs it says in four lines how it is done, which line is the core, what it means in mathematics and what it buys in
# practice. There are several right ways.
#
# ---

# %% [markdown]
# ## How fast is it? (optional)
#
# A batch of a few hundred answers never notices a Python loop over its groups. A cluster that collects 1,000,000
# answers to 125,000 prompts does: the loop takes minutes, a version without one less than a second.
#
# **Guess** your own time for 40,000 answers to 5,000 prompts. The million is only tried if that was quick.

# %% show how_fast_is_it
def seconds_for(groups, size=8):
    draw = torch.Generator().manual_seed(1)
    ids = torch.arange(groups).repeat(size) * 10**13
    log_probs = -torch.rand(groups * size, generator=draw)
    rewards = torch.randint(0, 2, (groups * size,), generator=draw).float()
    start = time.perf_counter()
    compute_grpo_loss(log_probs, log_probs, rewards, ids)
    return time.perf_counter() - start


few = seconds_for(5_000)
print(f"   40,000 answers: {few:.3f} s")
if few < 0.1:
    print(f"1,000,000 answers: {seconds_for(125_000):.3f} s")

# %% [markdown]
# ## "Why does the loss start at 0, and then increase?"
#
# So ask an issue of TRL (number 2703) and one of open-r1 (239), over a log that says `0.0000` or `-0.0000` for a
# while, and then *rises*, while the reward rises too. Both halves have an answer. First the 0.
#
# At the first step on a batch `new` and `old` are the same policy. Every ratio is 1, nothing is clipped, every
# surrogate is its advantage, and the advantages of a group sum to zero. So the loss **must** be 0. A loss is only
# something to differentiate, though, and how high a hill is says nothing about how steep it is.
#
# "But where old is new, the exponent is `x - x.detach()`, and that is 0: where is the gradient?" **Predict** the
# three numbers of the next cell.

# %% show detach_is_not_zero
x = torch.tensor(-1.5, requires_grad=True)
difference = x - x.detach()  # detach copies the number, and forgets that it depends on x
difference.exp().backward()
print("x - x.detach():", difference.item(), "  its exp:", difference.exp().item(), "  d exp / dx:", x.grad.item())

# %% [markdown]
# The value is 0, the slope is 1: backward sees a variable minus a constant. TRL computes its ratio in just this way
# where a batch gets a single update.
#
# ### Exercise: `first_step_gradient` (3 points, 10 minutes, ●●○)
#
# | in | shape | meaning |
# |---|---|---|
# | `advantages` | `[N]` floats | one per answer, of any groups |
#
# Returns `[N]`: the gradient of the GRPO loss with respect to `log_probs_new`, at `log_probs_new ==
# log_probs_old`. Work it out on paper, then write the formula; you need no autograd. One worked number: among
# four answers, an advantage of 1 gives -0.25, so the optimiser, which walks against the gradient, makes that
# answer likelier. (`advantages` stay as they are.)
#
# <details><summary>A hint</summary>
#
# What is the derivative of $e^{x - c}$ with respect to $x$, where $x = c$? And the advantages: are they of size one
# always, or did the worked number just choose them so?
# </details>

# %% solution first_step_gradient
def first_step_gradient(advantages):
    """Gradient of the loss with respect to the new log-probs, where new == old: [N] -> [N]."""
    ### BEGIN SOLUTION
    return -advantages / len(advantages)
    ### END SOLUTION

# %% check first_step_size_and_sign points=2
# At the first step every answer is pushed in proportion to its advantage.
advantages = torch.tensor([21.0, -0.5, -1.5, 0.5, -0.8, 0.0, 0.0])  # two answers of dead groups among them
expected = torch.tensor([-3.0, 0.07143, 0.21429, -0.07143, 0.11429, 0.0, 0.0])
given = advantages.clone()
result = tensor_of_shape(first_step_gradient(given), (7,), "the gradient has one entry per answer")
changed = not torch.equal(given, advantages)
got = result, changed
off = first_off(result, expected, 2e-4)
assert not off, (
    f"seven answers with the advantages {rounded(advantages)}: the gradient at {off}. Differentiate one term of the mean: "
    "what is left of the ratio, and of the minus?"
)
assert not changed, (
    f"the advantages that came in were {rounded(advantages)} and are {rounded(given)} after the call. Somebody else "
    "may still need them: work on a new tensor."
)
### BEGIN HIDDEN TESTS
draw = torch.Generator().manual_seed(SEED + 8)
for _ in range(10):
    n = int(torch.randint(2, 30, (1,), generator=draw))
    A = torch.randn(n, generator=draw)
    x = torch.zeros(n, dtype=torch.float64, requires_grad=True)  # the same by autograd, in float64
    (-(x - x.detach()).exp() @ A.double() / n).backward()
    given = A.clone()
    assert close(tensor_of_shape(first_step_gradient(given), (n,), "the gradient"), x.grad, 1e-6), "a random batch"
    assert torch.equal(given, A), "the advantages that came in were changed"
### END HIDDEN TESTS

# %% check first_step_shares_the_batch points=1
# Each answer has its share of one mean: a batch twice as large pushes each half as much.
expected = torch.tensor([-0.25, 0.5, -0.25, 0.5])
got = tensor_of_shape(
    first_step_gradient(torch.tensor([1.0, -2.0, 1.0, -2.0])), (4,), "the gradient has one entry per answer"
)
alone = tensor_of_shape(first_step_gradient(torch.tensor([1.0, -2.0])), (2,), "the gradient has one entry per answer")
off = first_off(got, expected, 1e-5)
assert not off, f"advantages 1, -2, 1, -2: the gradient at {off}"
assert close(alone, expected[:2] * 2, 1e-5), (
    f"for 1, -2 alone it is {(expected[:2] * 2).tolist()}, not {rounded(alone)}. How many terms does the mean "
    "have now?"
)
### BEGIN HIDDEN TESTS
draw = torch.Generator().manual_seed(SEED + 9)
for n in (1, 3, 8, 50):
    A = torch.randn(n, generator=draw) + 0.3
    once, thrice = first_step_gradient(A.clone()), first_step_gradient(A.repeat(3))
    assert close(once / 3, thrice[:n], 1e-6) and close(once.abs().sum(), A.abs().double().mean(), 1e-5), f"{n} answers"
    assert close((once * A).sum(), -(A.double() ** 2).mean(), 1e-5), f"{n} answers"
### END HIDDEN TESTS

# %% [markdown]
# Now let your own loss say the same. **Predict** the first two lines before you run the cell: the loss, and whether
# the two gradients agree. Then: on the second inner step, after one small step against the gradient, is the
# loss above or below 0?

# %% show first_loss_is_zero
batch = separating_batch()
batch["log_probs_new"] = batch["log_probs_old"].clone().requires_grad_()
loss, advantages = compute_grpo_loss(**batch)
loss.backward()
print(f"first loss: {loss.item():.6f}")
print("gradient by autograd:", [round(g, 3) for g in batch["log_probs_new"].grad.tolist()])
print("gradient by you:     ", [round(g, 3) for g in first_step_gradient(advantages).tolist()])
batch["log_probs_new"] = (batch["log_probs_old"] - 0.3 * batch["log_probs_new"].grad).requires_grad_()
print(f"second loss: {compute_grpo_loss(**batch)[0].item():.4f}")

# %% [markdown]
# A loss of zero with a gradient that is not: the normal beginning of every batch. One small step against the
# gradient takes the loss below 0, to -0.0331: the surrogate has risen.
#
# The ratio is 1 not only "early in training" but at the first inner step of *every* batch; with one inner step per
# batch, as many take, the clip never acts at all. It is *exactly* 1 only where sampler and trainer compute the same
# log-probs. Dropout that is left on, bf16, and above all a separate inference engine that samples (vLLM, SGLang) move
# it a little. So does another attention mask, or other position ids, when the trainer computes them again: notebook 4
# comes back to that, and to padding on the left.
#
# Now the other half. With one update per batch the policy term prints 0 for ever, so what you read is **beta times
# the KL** to the reference model, the term that notebook 3 adds: it measures how far the policy is from the model that it
# started as, and grows as the policy moves away. The next cell
# trains a table of 8 prompts with 12 possible answers each, 16 drawn for every update, with beta at 0.04. **Predict**
# which of the two columns the loss follows.

# %% show loss_that_rises
draw = torch.Generator().manual_seed(0)
logits = torch.zeros(8, 12, requires_grad=True)
reference, group_ids = logits.detach().log_softmax(-1), torch.arange(8).repeat_interleave(16)
print("update   reward   policy term   beta x KL     loss")
for update in range(51):
    log_policy = logits.log_softmax(-1)
    answers = torch.multinomial(log_policy.detach().exp(), 16, replacement=True, generator=draw)
    log_probs, rewards = log_policy.gather(1, answers).flatten(), (answers == 0).float().flatten()
    policy_term, _ = compute_grpo_loss(log_probs, log_probs.detach(), rewards, group_ids)
    penalty = 0.04 * (log_policy.exp() * (log_policy - reference)).sum(-1).mean()  # beta x KL(policy || reference)
    if update in (0, 5, 10, 20, 50):
        terms = abs(policy_term.item()), penalty.item(), (policy_term + penalty).item()
        print("{:6} {:8.2f} {:13.4f} {:11.4f} {:8.4f}".format(update, rewards.mean().item(), *terms))
    (slope,) = torch.autograd.grad(policy_term + penalty, logits)
    logits = (logits - 3.0 * slope).detach().requires_grad_()

# %% [markdown]
# The reward goes from below .1 to above .9 and the loss from 0 to about .09, all of it KL: a rising loss says
# that the policy moves away from the reference, and nothing about whether that is for the better. Watch the reward.

# %% [markdown]
# ## Clipping is not a fence (optional)
#
# It is tempting to read the band as a promise: with $\varepsilon = 0.2$ no ratio leaves [0.8, 1.2]. But
# clipping does not hold anything back. It stops pushing. An answer at the edge shares its parameters with all
# the others, and they push on; the optimiser has momentum besides.
#
# Let us measure it: four prompts, eight answers each, a small linear policy, one batch, 20 epochs of Adam on
# it with your loss. A second run has the band so wide that it never acts.
#
# **Predict** the largest ratio after 20 epochs with the band at 0.2. And without the band?

# %% show clipping_is_no_fence
def twenty_epochs(clip_range):
    """Extreme ratios before each of 20 epochs on one batch, and after the last."""
    draw = torch.Generator().manual_seed(0)
    features = torch.randn(4, 8, generator=draw)  # four prompts
    weights = (0.3 * torch.randn(8, 12, generator=draw)).requires_grad_()  # 12 possible answers
    optimizer = torch.optim.Adam([weights], lr=0.01)
    with torch.no_grad():
        log_policy = (features @ weights).log_softmax(-1)  # [4, 12]
    answers = torch.multinomial(log_policy.exp(), 8, replacement=True, generator=draw)  # [4, 8]
    good = (torch.rand(4, 12, generator=draw) < 0.4).float()
    rewards, group_ids = good.gather(1, answers).flatten(), torch.arange(4).repeat_interleave(8)
    old = log_policy.gather(1, answers).flatten()
    highest, lowest = [], []
    for epoch in range(21):
        new = (features @ weights).log_softmax(-1).gather(1, answers).flatten()
        ratio = (new.detach() - old).exp()
        highest.append(ratio.max().item())
        lowest.append(ratio.min().item())
        loss, _ = compute_grpo_loss(new, old, rewards, group_ids, clip_range=clip_range)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return highest, lowest


runs = {"clip range 0.2": twenty_epochs(0.2), "no clipping": twenty_epochs(1e9)}
fig, ax = plt.subplots()
ax.axhspan(0.8, 1.2, color=SKY, alpha=0.3, lw=0, label="the band, 0.8 to 1.2")
for (name, (highest, lowest)), style in zip(runs.items(), ("-", "--")):
    (line,) = ax.plot(highest, style, label=f"{name}: largest and smallest")
    ax.plot(lowest, style, color=line.get_color())
    print(
        f"{name}: ratios from {lowest[-1]:.2f} to {highest[-1]:.2f} after 20 epochs; past 1.2 first after epoch "
        f"{next(i for i, q in enumerate(highest) if q > 1.2)}"
    )
ax.set_yscale("log")
ax.set_yticks([0.2, 0.5, 0.8, 1.2, 2, 4], ["0.2", "0.5", "0.8", "1.2", "2", "4"])
ax.minorticks_off()
ax.set_xticks(range(0, 21, 5))
ax.set_xlabel("epochs on the same batch")
ax.set_ylabel("ratio new / old (log scale)")
ax.legend(fontsize=8, frameon=False)
plt.show()

# %% [markdown]
# Both runs leave the band after the second epoch, in step: until then the clip has had nothing to do. After
# 20 epochs the ratios run from about 0.45 to 2.1 with the band at 0.2, and from 0.17 to 5.7 without one. So the
# clip is a brake and not a fence: the solid lines flatten, they do not stop at the edge. What really limits
# the distance is the number of epochs, the learning rate, and (notebook 3) a penalty on the distance itself.

# %% [markdown]
# ## Three bugs that raise no error
#
# Each of the next three functions follows a pattern that occurs in training code. Each runs on its example and
# returns the right shape. Each is wrong. The buggy version stands first, under a name with `buggy_`, and is shown
# failing; find the line, and write the repaired function below. (Handed in unchanged, it earns nothing.)
#
# ### Find the bug 1: `rewards_in_order` (2 points, 10 minutes, ●●○)
#
# To waste little on padding, the answers were sorted by length before a reward model judged them:
# `order = lengths.argsort()`. Its rewards come in the sorted order: the one at place `k` belongs to answer
# `order[k]`. They have to go back to the order of the answers, where log-probs and group ids stand.
#
# | in | shape | meaning |
# |---|---|---|
# | `sorted_rewards` | `[N]`, any real number type | one per answer, shortest answer first |
# | `order` | `[N]` integers | which answer each belongs to: the numbers 0 to N - 1, each once |
#
# Returns `[N]` rewards, in the order of the answers. Nothing that comes in is written to.
#
# **Predict** before you run: whoever wrote this tested it on the first example. Does the second come back as it was?

# %% given buggy_rewards_in_order
def buggy_rewards_in_order(sorted_rewards, order):
    """Rewards in the order of the answers: [N], [N] -> [N]. Wrong: find out where."""
    return sorted_rewards[order]

# %% show bug_1_on_an_example
rewards = torch.tensor([1.0, 0.0, 0.5, 0.25])  # in the order of the answers
for lengths in ([5, 3, 9, 7], [9, 3, 5, 7]):
    order = torch.tensor(lengths).argsort()
    came_back = buggy_rewards_in_order(rewards[order], order)
    print(f"lengths {lengths}, order {order.tolist()}: rewards {rewards.tolist()} came back as {came_back.tolist()}")

# %% [markdown]
# The first example passes and the second does not. In a run nearly every answer would be praised or blamed for what
# another one did, and no line of code complains.
#
# <details><summary>A hint</summary>
#
# `x[order]` takes from place `order[k]` and puts at place `k`. Which of the two has to be at `order[k]` on the way
# back? And what is special about an order that only swaps?
# </details>

# %% solution rewards_in_order
def rewards_in_order(sorted_rewards, order):
    """Rewards in the order of the answers: [N], [N] -> [N]."""
    ### BEGIN SOLUTION
    rewards = torch.empty_like(sorted_rewards)
    rewards[order] = sorted_rewards  # put, not take
    return rewards
    ### END SOLUTION

# %% check every_reward_finds_its_answer points=1
# Every reward comes back to the answer that earned it.
order, sorted_rewards = torch.tensor([3, 0, 4, 1, 2]), torch.tensor([0.25, 0.9, 0.4, 1.75, -0.6])
expected = torch.tensor([0.9, 1.75, -0.6, 0.25, 0.4])
got = tensor_of_shape(rewards_in_order(sorted_rewards.clone(), order.clone()), (5,), "one reward per answer")
off = first_off(got, expected, 1e-6)
assert not off, (
    f"the order {order.tolist()} and the sorted rewards {rounded(sorted_rewards)}: the reward of {off}. At which place of "
    "the order does this answer stand?"
)
### BEGIN HIDDEN TESTS
draw = torch.Generator().manual_seed(SEED + 10)
for n in (1, 3, 4, 7, 20, 60):
    order = torch.randperm(n, generator=draw)
    if n > 2:
        order = order.roll(1) if bool((order[order] == torch.arange(n)).all()) else order  # not its own inverse
    sorted_rewards, right = torch.randn(n, generator=draw), [0.0] * n
    for reward, place in zip(sorted_rewards.tolist(), order.tolist()):
        right[place] = reward
    mine = tensor_of_shape(rewards_in_order(sorted_rewards.clone(), order.clone()), (n,), "rewards")
    assert close(mine, torch.tensor(right), 1e-6), "a random order"
### END HIDDEN TESTS

# %% check rewards_keep_their_value points=1
# Rewards of any number type keep their value, and what came in stays as it is.
order, sorted_rewards, expected = torch.tensor([2, 0, 4, 3, 1]), torch.tensor([3, 0, 2, 7, 0]), torch.tensor([0, 0, 3, 7, 2])
given = sorted_rewards.clone(), order.clone()
answer = tensor_of_shape(rewards_in_order(*given), (5,), "one reward per answer")
changed = not torch.equal(given[0], sorted_rewards), not torch.equal(given[1], order)
got = answer, changed
off = first_off(answer, expected, 1e-6)
assert not off, f"the order {order.tolist()} and the sorted rewards {sorted_rewards.tolist()} (int64): the reward of {off}"
assert not any(changed), (
    f"rewards and order were {sorted_rewards.tolist()} and {order.tolist()}, and are {given[0].tolist()} and "
    f"{given[1].tolist()} after the call. Somebody else may still need them: work on new tensors."
)
### BEGIN HIDDEN TESTS
draw = torch.Generator().manual_seed(SEED + 11)
for kind in (torch.int64, torch.int32, torch.float64, torch.float32):
    order = torch.randperm(9, generator=draw)
    sorted_rewards = torch.randint(0, 50, (9,), generator=draw).to(kind)
    given = sorted_rewards.clone(), order.clone()
    mine = tensor_of_shape(rewards_in_order(*given), (9,), "rewards")
    assert close(mine[order], sorted_rewards, 1e-6), f"rewards of type {kind}"
    assert torch.equal(given[0], sorted_rewards) and torch.equal(given[1], order), "something that came in was changed"
### END HIDDEN TESTS

# %% [markdown]
# ### Find the bug 2: `response_ratio` (2 points, 10 minutes, ●●○)
#
# Answers differ in length, so they are padded to one width. The mask is True on the tokens of the answer and
# False on the padding. The log-prob of a whole answer is the sum over its tokens; the ratio compares the two
# sums.
#
# | in | shape | meaning |
# |---|---|---|
# | `log_probs_new` | `[N, T]` | per token, under the policy being trained |
# | `log_probs_old` | `[N, T]` | per token, under the policy that sampled |
# | `mask` | `[N, T]` bool | True on the tokens of the answer |
#
# Returns `[N]`: one positive ratio for each answer, with a gradient to `log_probs_new`. Answers may be hundreds
# of tokens long, and nothing bounds a ratio (a log-ratio cut at -20 and 20 is allowed). Padding may hold
# anything, even NaN or infinity; it must touch neither the ratio nor the gradient (which is 0 there). Nothing
# that comes in is written to.
#
# **Predict**: in the example below nothing has changed, new equals old. Which ratio should each answer have?

# %% given buggy_response_ratio
def buggy_response_ratio(log_probs_new, log_probs_old, mask):
    """Ratio of each whole answer: three tensors [N, T] -> [N]. Wrong: find out where."""
    old = log_probs_old.masked_fill(~mask, 0.0).sum(dim=1)
    new = log_probs_new.sum(dim=1)
    return torch.exp(new - old)

# %% show bug_2_on_an_example
log_probs = torch.tensor([[-0.5, -1.0, -0.3, -0.2], [-0.7, -0.4, -2.0, -2.0], [-1.2, -2.0, -2.0, -2.0]])
mask = torch.tensor([[True, True, True, True], [True, True, False, False], [True, False, False, False]])
for length, ratio in zip(mask.sum(1).tolist(), buggy_response_ratio(log_probs, log_probs, mask).tolist()):
    print(f"answer of {length} tokens, nothing changed: ratio {ratio:.4f}")

# %% [markdown]
# Only the answer without padding comes out as 1. Worse, a clipped loss would hide it: ratios far below the band are
# flat for every $A < 0$, so short bad answers would silently teach nothing.
#
# <details><summary>A hint</summary>
#
# Put the two sums side by side and ask of each which tokens it counts. And mind the tool: 0 times NaN is NaN.
# </details>

# %% solution response_ratio
def response_ratio(log_probs_new, log_probs_old, mask):
    """Ratio of each whole answer, new / old: three tensors [N, T] -> [N]."""
    ### BEGIN SOLUTION
    old = log_probs_old.masked_fill(~mask, 0.0).sum(dim=1)
    new = log_probs_new.masked_fill(~mask, 0.0).sum(dim=1)
    return torch.exp(new - old)
    ### END SOLUTION

# %% check both_sides_count_the_same_tokens points=1
# New and old log-probs are summed over the same tokens.
mask = torch.tensor([[True, True, False], [True, False, False], [True, True, True]])
old = torch.tensor([[-1.0, -2.0, -3.0], [-0.5, -3.0, -3.0], [-1.0, -1.5, -0.5]])
new = old + torch.tensor([[0.2, -0.1, 0.7], [-0.3, 0.9, 0.4], [0.1, 0.1, -0.4]])
expected = torch.tensor([1.1052, 0.7408, 0.8187])
ratio = tensor_of_shape(response_ratio(new.clone(), old.clone(), mask.clone()), (3,), "one ratio per answer")
old, expected_far = torch.full((2, 200), -1.0), torch.tensor([18.0, -18.0]).exp()  # two answers of 200 tokens
new = old + torch.tensor([[0.09], [-0.09]])
far = tensor_of_shape(response_ratio(new, old, torch.ones(2, 200, dtype=torch.bool)), (2,), "one ratio per answer")
got = ratio, (far / expected_far).asinh()  # like a logarithm where numbers are large
for i in range(3):
    assert close(ratio[i], expected[i], 1e-4), (
        f"answer {i}, of {int(mask[i].sum())} tokens: the ratio is {ratio[i]:.4f}, not {expected[i]:.4f}. Which "
        "tokens does each of the two sums count?"
    )
assert close(far / expected_far, torch.ones(2), 1e-3), (
    f"two answers of 200 tokens, each token's log-prob .09 higher or lower than it was: the ratios are e^18 = 6.566e+07 and "
    f"e^-18 = 1.523e-08, not {far[0]:.4g} and {far[1]:.4g}. What can float32 not hold on the way?"
)
### BEGIN HIDDEN TESTS
draw = torch.Generator().manual_seed(SEED + 12)
for _ in range(10):
    lengths = torch.randint(1, 7, (5,), generator=draw)
    mask = torch.arange(7) < lengths[:, None]
    old = -3 * torch.rand(5, 7, generator=draw)
    new = (old + 0.3 * torch.randn(5, 7, generator=draw)).requires_grad_()
    right = torch.tensor(
        [math.exp(sum(a - b for a, b, m in zip(*rows) if m)) for rows in zip(new.tolist(), old.tolist(), mask.tolist())]
    )
    mine = tensor_of_shape(response_ratio(new, old.clone(), mask.clone()), (5,), "ratio")
    assert close(mine / right, torch.ones(5), 2e-5), "the ratio of a random batch is off"
    assert close(gradient(mine, new), right[:, None] * mask, 1e-4), "the gradient of a random batch is off"
### END HIDDEN TESTS

# %% check padding_is_not_looked_at points=1
# Whatever the padding holds, NaN included, touches neither ratio nor gradient.
mask = torch.tensor([[True, True, False, False], [True, False, False, False]])
old = torch.tensor([[-1.0, -1.0, float("nan"), -9.0], [-2.0, float("-inf"), 0.0, -1.0]])
new = torch.tensor([[-1.2, -0.9, -7.0, float("nan")], [-1.8, -5.0, float("inf"), -3.0]], requires_grad=True)
expected = torch.tensor([[0.9048, 0.9048, 0.0, 0.0], [1.2214, 0.0, 0.0, 0.0]])
given = old.clone(), mask.clone()
ratio = tensor_of_shape(response_ratio(new, *given), (2,), "one ratio per answer")
changed = not torch.equal(given[0].nan_to_num(7.0), old.nan_to_num(7.0)), not torch.equal(given[1], mask)
got = gradient(ratio, new), ratio.detach(), changed  # in a row, the ratio at each of the answer's tokens, and 0 in the padding
assert close(ratio, expected[:, 0], 1e-4), (
    f"with garbage in the padding the ratios are .9048 and 1.2214, not {rounded(ratio)}"
)
off = first_off(got[0], expected, 1e-4)
assert not off, f"with garbage in the padding the gradient at {off}. What does garbage times zero give?"
assert not any(changed), (
    f"{'log_probs_old' if changed[0] else 'mask'} was changed in place, to {(given[0] if changed[0] else given[1]).tolist()}. "
    "Into whose tensor do functions write that end in an underscore?"
)
### BEGIN HIDDEN TESTS
draw = torch.Generator().manual_seed(SEED + 13)
for junk in (float("nan"), float("inf"), 50.0, float("-inf")):
    mask = torch.arange(6) < torch.randint(1, 6, (4,), generator=draw)[:, None]
    clean = -torch.rand(4, 6, generator=draw)
    move = 0.2 * torch.randn(4, 6, generator=draw)
    new, old = (clean + move).masked_fill(~mask, junk).requires_grad_(), clean.masked_fill(~mask, junk)
    right = (move * mask).double().sum(1).exp()
    mine = tensor_of_shape(response_ratio(new, old, mask.clone()), (4,), "ratio")
    assert close(mine, right, 1e-4) and close(gradient(mine, new), right[:, None] * mask, 1e-4), "padding has leaked"
### END HIDDEN TESTS

# %% [markdown]
# ### Find the bug 3: `weighted_log_probs` (2 points, 10 minutes, ●●○)
#
# Every token's log-prob is weighted by an advantage: in GRPO by its answer's, in PPO by its own. One function
# shall serve both, as TRL's loss does.
#
# | in | shape | meaning |
# |---|---|---|
# | `advantages` | `[N]` or `[N, T]` | one per answer, or one per token |
# | `log_probs` | `[N, T]` | per token; carries the gradient |
#
# Returns `[N, T]`, the products. Both tensors that come in stay as they are, shape included.
#
# **Predict**: two answers of two tokens each, advantages 1 and -1, all log-probs -1. Write down the four products.

# %% given buggy_weighted_log_probs
def buggy_weighted_log_probs(advantages, log_probs):
    """Advantage times log-prob, token by token: [N] or [N, T], [N, T] -> [N, T]. Wrong: find out where."""
    return advantages * log_probs

# %% show bug_3_on_an_example
print(buggy_weighted_log_probs(torch.tensor([1.0, -1.0]), torch.full((2, 2), -1.0)))

# %% [markdown]
# One row is one answer. With three tokens instead of two PyTorch would have raised an error; in a square batch it
# says nothing, and the next change of `T` makes the bug vanish.
#
# <details><summary>A hint</summary>
#
# Broadcasting lines shapes up from the right. Which shape of the advantages would line up with the rows? And is
# that still right where they come as `[N, T]`, square or not?
# </details>

# %% solution weighted_log_probs
def weighted_log_probs(advantages, log_probs):
    """Each token's log-prob times its answer's, or its own, advantage: [N] or [N, T], [N, T] -> [N, T]."""
    ### BEGIN SOLUTION
    return (advantages[:, None] if advantages.dim() == 1 else advantages) * log_probs
    ### END SOLUTION

# %% check an_answer_is_a_row points=1
# In a square batch every token carries the advantage of its own row.
advantages, log_probs = (
    torch.tensor([1.0, -1.0, 2.0]),
    torch.tensor([[-1.0, -2.0, -3.0], [-1.0, -1.0, -1.0], [-0.5, -0.1, -0.2]]),
)
expected = torch.tensor([[-1.0, -2.0, -3.0], [1.0, 1.0, 1.0], [-1.0, -0.2, -0.4]])
given = advantages.clone(), log_probs.clone()
answer = tensor_of_shape(weighted_log_probs(*given), (3, 3), "one product per token")
changed = not torch.equal(given[0], advantages), not torch.equal(given[1], log_probs)
got = answer, changed
for i in range(3):
    assert close(answer[i], expected[i], 1e-5), (
        f"answer {i}, advantage {advantages[i]}: the row is {rounded(answer[i])}, not {rounded(expected[i])}. "
        "Along which axis is the advantage constant?"
    )
assert not any(changed), (
    f"{'the advantages' if changed[0] else 'the log-probs'} that came in are {describe(given[0] if changed[0] else given[1])} "
    "after the call. Into whose tensor does your code write, or whose shape does it change?"
)
### BEGIN HIDDEN TESTS
draw = torch.Generator().manual_seed(SEED + 14)
for n in (2, 4, 5):
    A, x = torch.randn(n, generator=draw), torch.randn(n, n, generator=draw)
    right = torch.tensor([[a * v for v in row] for a, row in zip(A.tolist(), x.tolist())])
    assert close(tensor_of_shape(weighted_log_probs(A.clone(), x.clone()), (n, n), "product"), right, 1e-6), (
        "a random square batch"
    )
### END HIDDEN TESTS

# %% check any_number_of_tokens points=1
# Any number of tokens, one advantage per answer or one per token; the gradient at each token is its advantage.
per_token, square = torch.tensor([[0.3, -1.0], [2.0, 0.7]]), torch.tensor([[-1.0, -2.0], [-0.5, -0.1]])
own = tensor_of_shape(weighted_log_probs(per_token.clone(), square.clone()), (2, 2), "with [N, T] advantages, one product per token")
advantages, expected = torch.tensor([0.5, -1.5]), torch.tensor([[0.5, 0.5, 0.5, 0.5], [-1.5, -1.5, -1.5, -1.5]])
log_probs = -torch.arange(1.0, 9.0).view(2, 4)
log_probs.requires_grad_()
result = weighted_log_probs(advantages.clone(), log_probs)
slopes = gradient(tensor_of_shape(result, (2, 4), "one product per token"), log_probs)
got = slopes, own
off = first_off(slopes, expected, 1e-5) or first_off(result, expected * log_probs, 1e-5)
assert not off, f"two answers of four tokens, advantages .5 and -1.5; of the gradient, or of the products, {off}"
off = first_off(own, per_token * square, 1e-5)
assert not off, f"one advantage per token, {rounded(per_token)}, log-probs {rounded(square)}: the product at {off}"
for A in (advantages, advantages[:, None]):  # answers of a single token
    got = tensor_of_shape(weighted_log_probs(A.clone(), square[:, :1].clone()), (2, 1), f"with advantages {list(A.shape)} and log-probs [2, 1]")
    off = first_off(got, torch.tensor([[-0.5], [0.75]]), 1e-5)
    assert not off, f"two answers of one token, advantages {rounded(A)}, log-probs {rounded(square[:, :1])}: the product at {off}"
### BEGIN HIDDEN TESTS
draw = torch.Generator().manual_seed(SEED + 15)
for n, t in ((1, 5), (3, 7), (6, 2), (4, 1), (3, 3)):
    A, x = torch.randn(n, generator=draw), torch.randn(n, t, generator=draw).requires_grad_()
    right = torch.tensor([[a] * t for a in A.tolist()])
    mine = tensor_of_shape(weighted_log_probs(A.clone(), x), (n, t), "product")
    assert close(mine, right * x, 1e-6) and close(gradient(mine, x), right, 1e-6), f"{n} answers of {t} tokens"
    each = torch.randn(n, t, generator=draw)
    mine = tensor_of_shape(weighted_log_probs(each.clone(), x.detach().clone()), (n, t), "product")
    right = torch.tensor([[a * v for a, v in zip(*rows)] for rows in zip(each.tolist(), x.tolist())])
    assert close(mine, right, 1e-6), f"{n} answers of {t} tokens, one advantage per token"
### END HIDDEN TESTS

# %% [markdown]
# ## From answers to tokens
#
# So far an answer was one number. A language model gives one log-prob per token, and the GRPO paper puts the
# ratio and the clip there: one ratio per token, each with its answer's advantage.
#
# In memory there are $B$ prompts with $G$ answers each, padded to $T$ tokens: `[B, G, T]`. The loss does not
# care which prompt a row belongs to (the advantages have already seen to that), so the first two axes are
# flattened into $N = B \times G$ rows. Row $b \cdot G + g$ is answer $g$ to prompt $b$.

# %% show layout_picture
B, G, T = 2, 3, 6
lengths = [[4, 2, 6], [3, 5, 1]]
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4))
for b in range(B):
    for g in range(G):
        for t in range(T):
            real = t < lengths[b][g]
            style = {
                "facecolor": (BLUE, ORANGE)[b] if real else "white",
                "alpha": 0.45 + 0.2 * g if real else 1,
                "edgecolor": "gray",
            }
            left.add_patch(plt.Rectangle((t + 1.6 * b, -g - 4.2 * b), 0.92, 0.85, **style))
            right.add_patch(plt.Rectangle((t, -(b * G + g)), 0.92, 0.85, **style))
        left.text(1.6 * b - 0.2, 0.3 - g - 4.2 * b, f"b={b}, g={g}", ha="right", fontsize=8)
        right.text(-0.2, 0.3 - (b * G + g), f"row {b * G + g}, id {b}", ha="right", fontsize=8)
left.set(xlim=(-2, 8), ylim=(-7, 1.3), title=f"[B, G, T] = [{B}, {G}, {T}]")
right.set(xlim=(-2.5, 7), ylim=(-7, 1.3), title=f"flattened: [B x G, T] = [{B * G}, {T}]")
for ax in (left, right):
    ax.axis("off")
right.annotate("T tokens", (5.9, -5.7), (2.9, -5.7), arrowprops={"arrowstyle": "->"}, va="center", fontsize=8)
plt.show()
x = torch.arange(B * G * T).view(B, G, T)
print("x[1, 0] is row 3 of the flattened tensor:", torch.equal(x[1, 0], x.view(B * G, T)[3]))
print("group ids of the rows:", torch.arange(B).repeat_interleave(G).tolist())

# %% [markdown]
# Blue rows are answers to prompt 0, orange ones to prompt 1; white cells are padding, where the mask is False.
#
# ## Three ways to average tokens
#
# One loss per token, one number wanted. How much should a token count? There are three answers in use. With $N$
# answers of lengths $\ell_i$, and a maximum length $T_{\max}$ that the caller fixes (`max_length`; not the width $T$,
# which follows the longest answer of a batch):
#
# | `aggregate` | in words | weight of a token of answer $i$ | who |
# |---|---|---|---|
# | `"sequence"` | mean over the tokens of each answer, then over answers | $1 / (N \ell_i)$ | the GRPO paper; the default of this course |
# | `"token"` | mean over all tokens of the batch | $1 / \sum_j \ell_j$ | DAPO; TRL's default today |
# | `"constant"` | sum over all tokens, divided by a constant | $1 / (N\, T_{\max})$ | Dr. GRPO |
#
# Take two answers, of 2 and of 8 tokens, and $T_{\max} = 8$. **Predict**: under "sequence", how many times heavier is a token
# of the short answer? And which of the two weighs more as a whole under "token"?

# %% show length_bias
def draw_weights(short=2, long=8, max_length=8):
    """What a token, and what an answer as a whole, weighs under the three aggregations."""
    lengths = np.array([short, long])
    weights = {
        "sequence": 1 / (2 * lengths),
        "token": np.full(2, 1 / lengths.sum()),
        "constant": np.full(2, 1 / (2 * max(max_length, short, long))),
    }
    fig, axes = plt.subplots(1, 2, figsize=(9, 3.2))
    for ax, factor in ((axes[0], 1), (axes[1], lengths)):
        for i, (name, hatch, color) in enumerate(((f"{short} tokens", "", SKY), (f"{long} tokens", "//", BLUE))):
            height = [(w * factor)[i] for w in weights.values()]
            bars = ax.bar(np.arange(3) + 0.4 * i - 0.2, height, 0.38, color=color, hatch=hatch, edgecolor="white", label=name)
            ax.bar_label(bars, [f"{h:.4g}" for h in height], fontsize=8)
    for ax, title in zip(axes, ("one token", "the whole answer")):
        ax.set_xticks(range(3), list(weights))
        ax.set_title(f"weight of {title}", fontsize=10)
        ax.set_xlabel("aggregation")
        ax.set_ylabel("weight in the loss (no unit)")
        ax.margins(y=0.15)
    axes[0].legend(fontsize=8, frameon=False)
    plt.show()
    for name, w in weights.items():
        print(
            f"{name:8}: one token weighs {w.round(4).tolist()}, the whole answer {(w * lengths).round(4).tolist()}; "
            f"A = 1 and -1, first loss {w @ (lengths * [-1, 1]):.3f}"
        )


draw_weights()

# %% show length_bias_sliders
try:
    from ipywidgets import IntSlider, interact

    interact(
        draw_weights,
        short=IntSlider(2, 1, 32, description="short answer"),
        long=IntSlider(32, 1, 64, description="long answer"),
        max_length=IntSlider(64, 1, 64),
    )
except ImportError:
    print("No ipywidgets here, so no sliders. Change the numbers by hand; these are lengths 2 and 32:")
    draw_weights(2, 32, 64)

# %% [markdown]
# Look at the left picture: .25 against .0625 under "sequence", .1 against .1 under "token", .0625 against
# .0625 under "constant". This is the *length bias*. Under "sequence" every answer weighs the same, so a token
# of a short answer is four times as heavy. A wrong answer can thin out its punishment by rambling, and a
# right one is praised most, token for token, if it is curt. Under "token" and "constant" all tokens weigh the
# same, and a long answer weighs more (.8 against .2 in the right picture). They differ in the divisor: "token"
# depends on who else is in the batch, "constant" does not, as long as the caller fixes $T_{\max}$, as TRL and Dr. GRPO do.
#
# None is wrong. All three are in use, and mixing them up is a common reason why two implementations disagree.
#
# One more thing follows. The first loss is 0 under "sequence" only, because there each advantage counts once.
# With $A = +1$ for 2 tokens and $A = -1$ for 8, "token" gives $-(2 \cdot 1 - 8 \cdot 1)/10 = 0.6$ at the
# first step. Still no bug.
#
# ### Exercise: `grpo_token_loss` (8 points, 25 minutes, ●●●)
#
# | in | shape | meaning |
# |---|---|---|
# | `log_probs_new` | `[N, T]` | per token, under the policy being trained; carries the gradient |
# | `log_probs_old` | `[N, T]` | per token, under the policy that sampled; no gradient |
# | `advantages` | `[N]` | one per answer, as computed before; no gradient |
# | `mask` | `[N, T]` bool | True on the tokens of the answer |
# | `clip_range` | float | $\varepsilon$ of the band |
# | `aggregate` | str | `"sequence"`, `"token"` or `"constant"` |
# | `max_length` | int or None | what "constant" divides by, times $N$; None is the width of the batch, `mask.shape[1]` |
#
# Returns a scalar to minimise: minus the clipped surrogate of each token, aggregated over the tokens of
# the mask. One worked number: lengths 2 and 8, $A = 1$ and $-1$, new equal to old, `"token"`: the loss is
# 0.6.
#
# - One ratio per token. It is not the ratio of the answer, which is the product: three tokens
#   have three ratios. The band is the only bound, on ratios and advantages alike (a log-ratio cut at -20
#   and 20 is allowed).
# - Padding may hold anything, even NaN or infinity; it touches neither the value nor the gradient. (A ratio that is
#   masked after `exp` has already met the infinity.)
# - The tokens of an answer whose advantage is 0 are tokens like all others: they count in every mean.
# - An answer without tokens contributes 0 and counts in $N$. At least one answer of a batch has tokens.
# - `max_length` matters to "constant" alone. Do not rely on its None: the width follows the longest answer of the batch.
# - Nothing that comes in is written to.
#
# <details><summary>A hint</summary>
#
# Four steps, each a line or two: log-ratio with 0 in the padding (`torch.where` or `masked_fill`); ratio and
# surrogate as in `compute_grpo_loss`, the advantage as a column (bug 3); the loss per token with 0 in the
# padding; the three divisors. For an answer without tokens the sum is 0 already: what must its divisor not
# be?
# </details>

# %% solution grpo_token_loss
def grpo_token_loss(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """The GRPO loss over tokens: [N, T], [N, T], [N], mask [N, T] -> scalar."""
    ### BEGIN SOLUTION
    log_ratio = (log_probs_new - log_probs_old).masked_fill(~mask, 0.0)  # before exp: inf never gets in
    ratio = log_ratio.exp()  # [N, T]
    A = advantages[:, None]
    surrogate = torch.min(ratio * A, ratio.clamp(1 - clip_range, 1 + clip_range) * A)
    per_token = (-surrogate).masked_fill(~mask, 0.0)
    if aggregate == "sequence":
        return (per_token.sum(dim=1) / mask.sum(dim=1).clamp_min(1)).mean()
    if aggregate == "token":
        return per_token.sum() / mask.sum()
    if aggregate == "constant":
        return per_token.sum() / (len(mask) * (mask.shape[1] if max_length is None else max_length))
    raise ValueError(f"aggregate is 'sequence', 'token' or 'constant', not {aggregate!r}")
    ### END SOLUTION

# %% given ragged_batch
def ragged_batch(lengths=(2, 8), advantages=(1.0, -1.0)):
    """Answers of these lengths in a batch of width 9, new equal to old, as keyword arguments of grpo_token_loss."""
    log_probs = -torch.arange(1.0, 9 * len(lengths) + 1).view(-1, 9) / 10
    return {
        "log_probs_new": log_probs,
        "log_probs_old": log_probs.clone(),
        "advantages": torch.tensor(advantages),
        "mask": torch.arange(9) < torch.tensor(lengths)[:, None],
    }

# %% check token_surrogates points=1
# The loss per token is minus the pessimistic surrogate of one ratio per token, in the band that was asked for.
ratio = torch.tensor([[1.1, 0.9, 2.5], [1.1, 0.6, 1.7]])
old = torch.tensor([[-1.0, -0.4, -2.0], [-0.3, -1.7, -0.8]])
got = [
    tensor_of_shape(
        grpo_token_loss(
            old + ratio.log(), old.clone(), torch.tensor([1.0, -2.0]), torch.ones(2, 3, dtype=torch.bool), **band
        ),
        (),
        "the loss is one number",
    ).item()
    for band in ({"clip_range": 0.3}, {})
]
assert abs(got[0] - 0.616667) < 1e-5, (
    "clip_range 0.3, A = 1 at the ratios 1.1, .9, 2.5 and A = -2 at 1.1, .6, 1.7: the surrogates are 1.1, .9, "
    f"1.3 and -2.2, -1.4, -3.4, their mean is -.6167, so the loss is .6167. What came is {got[0]:.4f}."
)
assert abs(got[1] - 0.666667) < 1e-5, (
    "the same without a clip_range, which is .2 then: the surrogates are 1.1, .9, 1.2 and -2.2, -1.6, -3.4, the loss is "
    f".6667. What came is {got[1]:.4f}."
)
### BEGIN HIDDEN TESTS
draw = torch.Generator().manual_seed(SEED + 16)
for trial in range(12):
    n, t = ((5, 7), (5, 5), (1, 4), (4, 1))[trial % 4]
    clip = (0.2, 0.1, 0.35)[trial % 3]
    far = 4 if trial % 5 == 1 else 1  # some ratios up to 20, some advantages beyond 5
    mask = torch.arange(t) < torch.randint(1, t + 1, (n, 1), generator=draw)
    A, old = far * torch.randn(n, generator=draw), -3 * torch.rand(n, t, generator=draw)
    new = old + (0.4 * far * torch.randn(n, t, generator=draw)).clamp(-3, 3)
    if far > 1:
        A[0], new[0, 0] = -2.0, old[0, 0] + 2.0  # a bad token seven times as likely, in every draw
    total = 0.0
    for a, news, olds, real in zip(A.tolist(), new.tolist(), old.tolist(), mask.tolist()):
        terms = [
            a * (min(math.exp(x - y), 1 + clip) if a > 0 else max(math.exp(x - y), 1 - clip))
            for x, y, m in zip(news, olds, real)
            if m
        ]
        total -= sum(terms) / len(terms) / n
    loss = grpo_token_loss(new.clone(), old.clone(), A.clone(), mask.clone(), clip_range=clip)
    tolerance = 1e-5 if far == 1 else 3e-4
    assert close(tensor_of_shape(loss, (), "loss"), total, tolerance), "the loss of a random batch is off"
### END HIDDEN TESTS

# %% check token_gradient points=2
# The gradient of each token is right in all four clip regions.
ratio = torch.tensor([[math.exp(-18), 0.9, 1.5], [0.5, 1.1, math.exp(18)], [4.0, 0.7, 1.1]])
old = torch.tensor([[-1.0, -0.4, -2.0], [-0.3, -120.0, -20.0], [-0.6, -0.2, -1.4]])  # one very unlikely token
new = (old + ratio.log()).requires_grad_()
advantages = torch.tensor([1.0, -1.0, 21.0])
expected = -advantages[:, None] * ratio * torch.tensor([[1, 1, 0], [0, 1, 1], [0, 1, 1]]) / 9  # 0 where it is flat
loss = grpo_token_loss(new, old.clone(), advantages.clone(), torch.ones(3, 3, dtype=torch.bool))
slopes = gradient(tensor_of_shape(loss, (), "the loss is one number"), new)
got = (slopes / torch.where(expected == 0, 1.0, expected)).asinh()  # like a logarithm where numbers are large
for i in range(3):
    for t in range(3):
        assert close(slopes[i, t], expected[i, t], 1e-3 * expected[i, t].abs() + 1e-12), (
            f"answer {i} (A = {advantages[i]:g}), token {t} (ratio {ratio[i, t]:.4g}): the gradient is {slopes[i, t]:.4g}, not "
            f"{expected[i, t]:.4g}. Is this region flat or active, and is this the advantage of its own row?"
        )
### BEGIN HIDDEN TESTS
draw = torch.Generator().manual_seed(SEED + 17)
for trial in range(12):
    n, t = 6, 6 if trial % 2 else 4
    mask = torch.arange(t) < torch.randint(1, t + 1, (n, 1), generator=draw)
    A, old = torch.randn(n, generator=draw), -torch.rand(n, t, generator=draw) * (120 if trial % 3 == 0 else 3)
    u = torch.tensor([0.4, 0.7, 0.85, 0.95, 1.1, 1.17, 1.3, 1.9])[torch.randint(0, 8, (n, t), generator=draw)]
    new = (old + (u * (1 + 0.02 * torch.rand(n, t, generator=draw))).log()).requires_grad_()
    right = torch.zeros(n, t)
    for i in range(n):
        for j in range(t):
            q, a = math.exp(new[i, j].item() - old[i, j].item()), A[i].item()
            active = mask[i, j] and not (a > 0 and q > 1.2) and not (a < 0 and q < 0.8)
            right[i, j] = -a * q / (n * int(mask[i].sum())) if active else 0.0
    loss = grpo_token_loss(new, old.clone(), A.clone(), mask.clone())
    assert close(gradient(tensor_of_shape(loss, (), "loss"), new), right, 1e-5), "a gradient of a random batch is off"
### END HIDDEN TESTS

# %% check sequence_weights points=1
# Under "sequence" every answer has the same weight.
batch = ragged_batch(lengths=(2, 8, 5), advantages=(1.0, -1.0, 0.0))
new = batch["log_probs_new"].requires_grad_()
expected = torch.tensor([[1 / 6, 0.0], [1 / 24, 0.0]])
loss = grpo_token_loss(**batch, aggregate="sequence", max_length=20)  # of which only "constant" takes notice
weights = gradient(tensor_of_shape(loss, (), "the loss is one number"), new)[:2] * torch.tensor([[-1.0], [1.0]])
got = weights[:, [0, 8]] + 0.0  # of the first token, and of a place in the padding, where A is not 0
assert close(got, expected, 1e-5), (
    "answers of 2, 8 and 5 tokens, A = 1, -1 and 0: a token of the first two weighs 1/6 and 1/24 (.1667, .0417) under "
    f"'sequence', padding nothing; with yours it is {rounded(got[:, 0])}, and {rounded(got[:, 1])} for padding. In which "
    "order are the two means taken, and over what?"
)
### BEGIN HIDDEN TESTS
draw = torch.Generator().manual_seed(SEED + 18)
for _ in range(8):
    n, t = int(torch.randint(2, 7, (1,), generator=draw)), 9
    lengths = torch.randint(1, t, (n,), generator=draw)
    A, old = torch.randn(n, generator=draw), -torch.rand(n, t, generator=draw)
    A[1] *= n % 2  # an answer that teaches nothing counts, too
    new = old.clone().requires_grad_()
    loss = grpo_token_loss(new, old, A.clone(), torch.arange(t) < lengths[:, None], aggregate="sequence")
    right = torch.tensor(
        [[-a / (n * k) if j < k else 0.0 for j in range(t)] for a, k in zip(A.tolist(), lengths.tolist())]
    )
    assert close(gradient(tensor_of_shape(loss, (), "loss"), new), right, 1e-6) and close(
        loss, -A.double().mean(), 1e-5
    ), "random lengths"
### END HIDDEN TESTS

# %% check token_weights points=1
# Under "token" every token of the batch has the same weight.
batch = ragged_batch(lengths=(2, 8, 5), advantages=(1.0, -1.0, 0.0))
new = batch["log_probs_new"].requires_grad_()
expected = torch.tensor([[1 / 15, 0.0], [1 / 15, 0.0]])
loss = grpo_token_loss(**batch, aggregate="token", max_length=20)  # of which only "constant" takes notice
weights = gradient(tensor_of_shape(loss, (), "the loss is one number"), new)[:2] * torch.tensor([[-1.0], [1.0]])
got = weights[:, [0, 8]] + 0.0  # of the first token, and of a place in the padding, where A is not 0
assert close(got, expected, 1e-5), (
    "answers of 2, 8 and 5 tokens, A = 1, -1 and 0: every token weighs 1/15 = .0667 under 'token', padding nothing; "
    f"with yours it is {rounded(got[:, 0])} in the first two, and {rounded(got[:, 1])} for padding. How many tokens "
    "are there in all?"
)
### BEGIN HIDDEN TESTS
draw = torch.Generator().manual_seed(SEED + 19)
for _ in range(8):
    n, t = int(torch.randint(2, 7, (1,), generator=draw)), 9
    lengths = torch.randint(1, t, (n,), generator=draw)
    lengths[0] = 8 if lengths[1] < 5 else 2  # lengths that differ
    A, old = torch.randn(n, generator=draw), -torch.rand(n, t, generator=draw)
    A[1] *= n % 2  # an answer that teaches nothing has tokens too
    new = old.clone().requires_grad_()
    loss = grpo_token_loss(new, old, A.clone(), torch.arange(t) < lengths[:, None], aggregate="token")
    all_tokens = sum(lengths.tolist())
    right = torch.tensor(
        [[-a / all_tokens if j < k else 0.0 for j in range(t)] for a, k in zip(A.tolist(), lengths.tolist())]
    )
    assert close(gradient(tensor_of_shape(loss, (), "loss"), new), right, 1e-6) and close(
        loss, right.double().sum(), 1e-5
    ), "random lengths"
### END HIDDEN TESTS

# %% check constant_weights points=1
# Under "constant" the divisor is the number of answers times max_length, or times the width where there is none.
got = []
for longest, divisor in ((None, 27), (20, 60)):  # three answers, width 9
    batch = ragged_batch(lengths=(2, 8, 5), advantages=(1.0, -1.0, 0.0))
    new = batch["log_probs_new"].requires_grad_()
    loss = grpo_token_loss(**batch, aggregate="constant", max_length=longest)
    weights = gradient(tensor_of_shape(loss, (), "the loss is one number"), new)[:2] * torch.tensor([[-1.0], [1.0]])
    got.append(weights[:, [0, 8]] + 0.0)  # of the first token, and of a place in the padding, where A is not 0
for longest, divisor, w in zip((None, 20), (27, 60), got):
    assert close(w, torch.tensor([[1 / divisor, 0.0], [1 / divisor, 0.0]]), 1e-5), (
        f"three answers in a batch of width 9, max_length {longest}, A = 1, -1 and 0: every token weighs 1/{divisor} = "
        f"{1 / divisor:.4f} under 'constant', padding nothing; with yours it is {rounded(w[:, 0])} in the first two, and "
        f"{rounded(w[:, 1])} for padding. What is the divisor, and what must it not depend on?"
    )
### BEGIN HIDDEN TESTS
draw = torch.Generator().manual_seed(SEED + 20)
for longest in (None, 40, 17, None) * 2:
    n, t = int(torch.randint(2, 7, (1,), generator=draw)), int(torch.randint(5, 12, (1,), generator=draw))
    lengths = torch.randint(1, t - 1, (n,), generator=draw)
    A, old = torch.randn(n, generator=draw), -torch.rand(n, t, generator=draw)
    A[1] *= n % 2
    new = old.clone().requires_grad_()
    loss = grpo_token_loss(new, old, A.clone(), torch.arange(t) < lengths[:, None], aggregate="constant", max_length=longest)
    right = torch.tensor(
        [[-a / (n * (longest or t)) if j < k else 0.0 for j in range(t)] for a, k in zip(A.tolist(), lengths.tolist())]
    )
    assert close(gradient(tensor_of_shape(loss, (), "loss"), new), right, 1e-6) and close(
        loss, right.double().sum(), 1e-5
    ), "random lengths"
### END HIDDEN TESTS

# %% check garbage_in_the_padding points=1
# Whatever the padding holds, NaN and infinity included, touches neither loss nor gradient.
mask = torch.tensor([[True, True, False, False], [True, True, True, False]])
old = torch.tensor([[-1.0, -1.0, float("nan"), -9.0], [-2.0, -0.5, -1.0, float("-inf")]])
new = old + torch.tensor([[1.1, 0.9, 1.0, 1.0], [1.5, 0.9, 0.95, 1.0]]).log()
new = torch.where(mask, new, torch.tensor([0.0, 0.0, float("inf"), 300.0])).requires_grad_()
expected = torch.tensor([[-0.275, -0.225, 0.0, 0.0], [0.25, 0.15, 0.15833, 0.0]])
given = {"log_probs_old": old.clone(), "advantages": torch.tensor([1.0, -1.0]), "mask": mask.clone()}
before = {name: x.clone() for name, x in given.items()}
loss = tensor_of_shape(grpo_token_loss(new, **given), (), "the loss is one number")
changed = {name: not torch.equal(x.nan_to_num(7.0), before[name].nan_to_num(7.0)) for name, x in given.items()}
got = gradient(loss, new), loss.detach(), changed
assert abs(loss.item() - 0.05833) < 1e-4, (
    f"with garbage in the padding the loss is .0583, not {loss.item():.4f}. What does garbage times zero give?"
)
off = first_off(got[0], expected, 1e-4)
assert not off, f"with garbage in the padding the gradient at {off}. The backward pass multiplies too: where did it get in?"
for name, x in given.items():
    assert not changed[name], (
        f"{name} was {describe(before[name])} and is {describe(x)} after the call. Somebody else may still need it: "
        "work on a new tensor."
    )
### BEGIN HIDDEN TESTS
draw = torch.Generator().manual_seed(SEED + 21)
for junk in (float("nan"), float("inf"), float("-inf"), 300.0, -1e4):
    for how in ("sequence", "token", "constant"):
        mask = torch.arange(6) < torch.randint(1, 6, (4, 1), generator=draw)
        A, old = torch.randn(4, generator=draw), -torch.rand(4, 6, generator=draw)
        clean = (
            old + 0.1 * torch.randn(4, 6, generator=draw).clamp(-1.5, 1.5)
        ).requires_grad_()  # ratios stay in the band
        weight = {
            "sequence": 1 / (4.0 * mask.sum(1, keepdim=True)),
            "token": 1 / mask.sum(),
            "constant": torch.tensor(1 / 24),
        }[how] * mask
        value = -(weight.double() * A.double()[:, None] * (clean - old).double().exp()).sum()
        value.backward()
        new = clean.detach().masked_fill(~mask, junk).requires_grad_()
        spoilt = old.masked_fill(~mask, 0.0 if junk == 300.0 else junk)
        loss = tensor_of_shape(grpo_token_loss(new, spoilt, A.clone(), mask.clone(), aggregate=how), (), "loss")
        assert close(loss, value, 1e-5) and close(gradient(loss, new), clean.grad, 1e-5), "padding has leaked"
### END HIDDEN TESTS

# %% check answer_without_tokens points=1
# An answer without tokens contributes 0 and still counts as an answer.
mask = torch.tensor([[True, True], [False, False], [True, False], [False, False]])
log_probs = torch.tensor([[-1.0, -2.0], [-3.0, -4.0], [-1.0, -1.0], [-0.5, -0.5]])
ways = {"sequence": (-1 / 8, 3 / 4), "token": (-1 / 3, 1.0), "constant": (-1 / 8, 3 / 8)}  # gradient at a token of the two
got = []
for how in ways:
    new = log_probs.clone().requires_grad_()
    loss = grpo_token_loss(new, log_probs.clone(), torch.tensor([1.0, 3.0, -3.0, 1.0]), mask.clone(), aggregate=how)
    got.append((gradient(tensor_of_shape(loss, (), "the loss is one number"), new), loss.detach()))
for (how, (first, third)), (slopes, loss) in zip(ways.items(), got):
    assert abs(loss.item() - 2 * first - third) < 1e-5, (
        f"four answers of 2, 0, 1 and 0 tokens, A = 1 and -3 where there are any: the loss under {how!r} is "
        f"{2 * first + third:.4f}, not {loss.item():.4f}. How many answers and tokens share the mean, and what is 0/0?"
    )
    expected = torch.tensor([[first, first], [0.0, 0.0], [third, 0.0], [0.0, 0.0]])
    off = first_off(slopes, expected, 1e-5)
    assert not off, f"the gradient under {how!r} at {off}. Which answers have a share in the loss?"
### BEGIN HIDDEN TESTS
draw = torch.Generator().manual_seed(SEED + 22)
for how in ("sequence", "token", "constant") * 2:
    lengths = torch.tensor([0, 3, 0, 5, 1])[torch.randperm(5, generator=draw)]
    A, old = torch.randn(5, generator=draw), -torch.rand(5, 6, generator=draw)
    new = old.clone().requires_grad_()
    loss = tensor_of_shape(
        grpo_token_loss(new, old, A.clone(), torch.arange(6) < lengths[:, None], aggregate=how), (), "loss"
    )
    right = torch.tensor(
        [
            [-a / {"sequence": 5 * k, "token": 9, "constant": 30}[how] if j < k else 0.0 for j in range(6)]
            for a, k in zip(A.tolist(), lengths.tolist())
        ]
    )
    assert close(gradient(loss, new), right, 1e-6) and close(loss, right.double().sum(), 1e-5), f"{how}"
### END HIDDEN TESTS

# %% [markdown]
# Your own function can now say what a token weighs: at the first step the gradient of a token is minus the
# weight times its advantage. For lengths 2 and 8, $A = 1$ and $-1$, you have seen the first losses, in a batch as wide
# as the longer answer. **Predict**: which of them change when the same answers are padded to a width of 16?

# %% show first_loss_of_each_aggregation
for options in ({"aggregate": "sequence"}, {"aggregate": "token"}, {"aggregate": "constant"}, {"aggregate": "constant", "max_length": 16}):
    told = []
    for width in (8, 16):
        new = torch.full((2, width), -1.0, requires_grad=True)
        mask = torch.arange(width) < torch.tensor([[2], [8]])
        loss = grpo_token_loss(new, new.detach(), torch.tensor([1.0, -1.0]), mask, **options)
        loss.backward()
        short, long = new.grad[:, 0].abs().tolist()
        told.append(f"width {width}: loss {loss.item():.4f}, a token weighs {short:.4f} and {long:.4f}")
    print(", ".join(map(str, options.values())) + "\n   " + "\n   ".join(told))

# %% [markdown]
# Only "constant" without a `max_length` notices the padding: .375 at width 8 and .1875 at width 16, for the same two
# answers. There the longest answer of a batch sets the size of everybody's step. With a fixed number it is .1875
# twice.

# %% [markdown]
# ## One ratio per token, or one per answer? (optional)
#
# The reward judges the whole answer, yet the loss clips token by token. GSPO (*Group Sequence Policy
# Optimization*, the Qwen team, 2025) finds that inconsistent and goes back to one ratio per answer. The plain
# product of a thousand token ratios would be useless: small random changes pile up in it. So GSPO takes the
# geometric mean of the token ratios,
#
# $$s_i = \Bigl(\frac{\pi_{\text{new}}(y_i)}{\pi_{\text{old}}(y_i)}\Bigr)^{1/\ell_i}
# = \exp\Bigl(\frac{1}{\ell_i}\sum_t \bigl(\log\pi_{\text{new}} - \log\pi_{\text{old}}\bigr)\Bigr),$$
#
# and clips that. Because a mean over many tokens hardly moves, its band is far narrower (the paper's ends are 3e-4
# below and 4e-4 above 1), and an answer is kept or clipped as a whole. It helps most with mixture-of-experts models,
# where a few tokens change experts from one update to the next and their single ratios jump.
#
# **Guess**: 1,000 tokens, each log-ratio noise of std 0.01. How far from 1 is a typical token ratio, the
# product, and $s$? And how many of each lie outside their band?

# %% show token_or_sequence_ratio
log_ratios = 0.01 * torch.randn(2000, 1000, generator=torch.Generator().manual_seed(0))  # 2,000 answers of 1,000 tokens
for name, x, low, high in (
    ("token ratio", log_ratios, 0.8, 1.2),
    ("product", log_ratios.sum(1), 0.8, 1.2),
    ("GSPO's s", log_ratios.mean(1), 1 - 3e-4, 1 + 4e-4),
):
    ratio, std = x.exp(), x.std().item()
    outside = ((ratio < low) | (ratio > high)).float().mean()
    print(
        f"{name:11}: two thirds of all between {math.exp(-std):.4f} and {math.exp(std):.4f}; "
        f"outside of {low} to {high}: {outside:.0%}"
    )

# %% [markdown]
# A token's ratio mostly lies between 0.99 and 1.01. The product of a thousand of them runs from about 0.73 to 1.37,
# from noise alone, and about 52 % of the answers leave the band from 0.8 to 1.2. The geometric mean mostly lies between 0.9997 and 1.0003:
# that band would never act on it, and its own, narrow one leaves about 28 % of the answers outside. That is no slip.
# By the paper's own count GSPO clips a share of the tokens that is a hundred times GRPO's, and trains better for it. The
# width of a band belongs to the kind of ratio.

# %% [markdown]
# ## In your own words
#
# ### A written answer (2 points, read by a person, 10 minutes, ●●○)
#
# Answer in the next cell, in some six to ten sentences. (1) What is the same in PPO's and in GRPO's
# surrogate? (2) What is not? Think of where the advantage comes from, and how finely it is resolved in time.
# (3) What would change if the advantages were normalised over the whole batch instead of within each group: for
# which rewards does it cost something, and for which not? Give an example with numbers.

# %% answer ppo_and_grpo [markdown] points=2
# **Model answer.** The surrogate itself is the same, symbol for symbol: an importance weight exp(new - old)
# against the policy that sampled, multiplied by an advantage, and the minimum of the unclipped and the
# clipped product. So are the flat regions (A > 0 above the band, A < 0 below it), the reuse of a batch for
# several steps, and the fact that clipping is not a hard bound.
#
# The advantage is not the same. In PPO it comes from a learned critic by GAE and differs from token to token,
# so it can say which step was good; it costs a second model, its training and its errors. In GRPO it comes
# from the rewards of the other answers to the same prompt, divided by their std; it is one number for all
# tokens of an answer, costs no model but several answers per prompt, and is zero when all of them earn the
# same. (PPO for language models also tends to put the KL into the reward, GRPO into the loss.)
#
# With whole-batch normalisation an answer is compared with answers to other prompts. The batch's mean is a constant
# baseline, so the average push stays right; what it costs is noise, where rewards have a level or a scale for each
# prompt. With 6 and 5 for one prompt and 1 and 0 for another the advantages are 1.18, 0.78, -0.78 and -1.18 instead of
# 1, -1, 1 and -1: the worse answer to the first prompt is pushed up, the better one to the second down. In the experiment
# that took several times as many updates. Where prompts differed in difficulty alone, with rewards of 0 and 1, it cost
# nothing.
#
# **Rubric.** 1 point: what is the same (importance weight and clipped minimum) and what is not (source of the advantage,
# critic against group; per token against per answer). 1 point: whole-batch normalisation compares across prompts, so
# that levels or scales of prompts enter the advantage, with an example in numbers; it is noise rather than a wrong
# average, or: with right-or-wrong rewards it does little harm. Half points for one half of either.

# %% [markdown]
# ## What you have now
#
# - `compute_grpo_loss`: group-relative advantages, the ratio and the clipped surrogate, for whole answers.
# - `grpo_token_loss`: the same per token, with the three averages in use and padding that cannot leak.
# - An explanation for a loss of 0.0000 and for one that rises, and an eye for three bugs that raise no error.
#
# What is still missing: nothing here keeps the policy near the model it started from. The ratio only looks back to
# the last batch, and the clip does not hold a policy that is pushed again and again. **Notebook 3** adds the KL to a
# reference model, in three estimators of which one has a gradient that is pure noise.
