# %% [markdown]
# # 1. From PPO's critic to GRPO's group
#
# A language model answers a question and earns a reward of 1. Was that good? You cannot tell yet: for an easy
# question it is nothing, for a hard one it is a small miracle. A policy learns from the difference between what it
# got and what was to be expected, and the whole art is in "what was to be expected". PPO trains a second network to
# know it. GRPO asks the other answers to the same question. In this notebook you write both, see what each costs,
# and find out when a group of answers has nothing to say.
#
# | | |
# |---|---|
# | **Difficulty** | Easy to medium: four short functions, no training |
# | **Time** | About 75 minutes |
# | **You should know** | PyTorch tensors; the idea of a policy gradient: make what went well more likely |
# | **You will write** | `gae_advantages`, `group_advantages`, `dead_group_probability`, `smallest_group_size`, and a few sentences |
# | **Next** | Notebook 2, where the advantages enter the loss that GRPO minimises |
#
# How it works: run the cells from top to bottom. Where a cell says `YOUR CODE HERE`, replace that line and the one
# below it by your answer. The cells after it check your answer and tell you in words what they found. You can run
# them as often as you like.

# %% given setup
import math

import matplotlib.pyplot as plt
import numpy as np
import torch

SEED = 0  # draws of the hidden tests; a class has its own
BLUE, ORANGE, GREEN, PINK, YELLOW, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"  # told apart by everyone
plt.rcParams.update({"figure.figsize": (7, 3.2), "axes.prop_cycle": plt.cycler(color=[BLUE, ORANGE, GREEN, PINK, YELLOW, SKY]), "axes.spines.top": False, "axes.spines.right": False, "figure.constrained_layout.use": True})

# %% given in_words
def shown(x):
    """Any value as short text for a message: numbers to four digits, whatever else it may be."""
    if torch.is_tensor(x):
        x = x.detach().tolist()
    if isinstance(x, (list, tuple)):
        return "[" + ", ".join(shown(y) for y in x[:12]) + (", ...]" if len(x) > 12 else "]")
    return f"{x:.4f}" if isinstance(x, float) else repr(x)[:60]


def is_vector(x, length):
    """Is x a tensor of floats of shape [length]?"""
    return torch.is_tensor(x) and x.shape == (length,) and x.is_floating_point()


def what_is(x):
    """The kind of a value in words, for a message."""
    if torch.is_tensor(x):
        return f"a tensor of shape {list(x.shape)} and type {str(x.dtype).removeprefix('torch.')}"
    return "None (is there a return?)" if x is None else f"a {type(x).__name__}"


def number(x):
    """x as a float if it is one number of any kind, else nan, which equals nothing."""
    try:
        return float(x)
    except Exception:
        return math.nan

# %% [markdown]
# ## The smallest example
#
# Two questions, two answers each. The answers to the first earn 1 and 2, those to the second 0.5 and 1.5.
#
# Reinforcement learning needs a number for each answer that says: more of this, or less? The reward itself will
# not do. The *better* answer to the second question (1.5) earned less than it takes to stand out from the first
# question's, and if all rewards are positive, everything is to become more likely, bad answers too.
#
# So compare each answer with its own group, and measure the difference in units of that group's spread:
#
# $$A_i = \frac{r_i - \operatorname{mean}(r_{\text{group}})}{\operatorname{std}(r_{\text{group}})}$$
#
# In words: **how many standard deviations better than its siblings is this answer?** This number is called the
# *group-relative advantage*, and it is the G and the R of GRPO: group relative policy optimisation.
#
# **Before you run the next cell**, guess: which of the two groups below gets the larger advantages? And what would
# change if the first group's rewards were 100 and 200?

# %% show two_groups
for rewards in ([1.0, 2.0], [0.5, 1.5], [100.0, 200.0]):
    r = torch.tensor(rewards)
    print(f"rewards {rewards} -> advantages {((r - r.mean()) / r.std(unbiased=False)).tolist()}")

# %% [markdown]
# The same advantages each time. The level of the rewards is gone (1.5 and 1 on average), and so is their scale
# (0.5 and 50): only how an answer stands among its siblings is left. Keep this picture; the rest of the notebook
# asks where it comes from, what it costs, and where it breaks.

# %% [markdown]
# ## Conventions of this course
#
# Implementations of GRPO differ in small things, and each of them changes numbers. This card is ours, from here to
# the last notebook, beside what you will meet elsewhere.
#
# | what | this course | elsewhere |
# |---|---|---|
# | std in a group | population: divide by $G$ (`unbiased=False`) | sample, $G-1$: TRL, verl, CS336, tiny-grpo. Population: GRPO-Zero, minimind, TorchCode |
# | dividing by the std | `std.clamp_min(eps)`, eps = 1e-6 | TRL: std + 1e-4. verl: std + 1e-6. GRPO paper: no eps |
# | a group whose rewards are all equal, or a group of one | advantages 0: it teaches nothing | verl keeps the raw reward of a group of one; TRL gives it 0 |
# | types of rewards | any real number type in, floats out; the rewards that came in stay as they are | |
# | ratio | $\exp(\text{new} - \text{old})$: per response in notebook 2, per token from there on | |
# | loss | a scalar to minimise: minus the mean of the pessimistic surrogate | |
# | average over tokens | default "sequence": mean over the tokens of each response, then over responses, as in the GRPO paper | "token": DAPO, and TRL's default today. "constant": Dr. GRPO |
# | KL | to the reference policy, k3 $= e^{d} - d - 1$ with $d = \text{ref} - \text{new}$, on tokens sampled from the policy | some published code has the ratio upside down |
# | log-probs | at the temperature that the answers were sampled with | |
#
# The lower half of the card belongs to the notebooks to come. None of these choices is *the* truth; mixing two of
# them in one program is a bug.

# %% [markdown]
# ## A reward needs a baseline
#
# The policy gradient pushes up the log-probability of each answer by a weight. With the bare reward as the weight it is
# right on average, and hopeless in practice: if rewards are 10, 11, 12 and 13, every answer is pushed up hard, and
# the little that distinguishes them drowns in the noise of which answers happened to be drawn.
#
# Subtract a number $b$ that does not depend on the answer, and the average stays the same while the noise shrinks.
# That number is the **baseline**. The best simple choice is what this policy earns on this question on average:
# its *value* $V$. The trouble is only to know it.
#
# The next cell draws 5,000 batches of 8 answers from a policy over four possible answers, and measures how far the
# gradient of a single batch is off. **Predict**: how much worse is no baseline than a perfect one? And how close
# to perfect is the plain average of the batch itself?

# %% show noise_of_the_gradient
draw = np.random.default_rng(0)
policy = np.full(4, 0.25)  # four possible answers, equally likely
worth = np.array([10.0, 11.0, 12.0, 13.0])  # their rewards; V = 11.5
answers = draw.integers(0, 4, (5000, 8))  # 5,000 batches of 8 answers
r = worth[answers]
push = np.eye(4)[answers] - policy  # (5000, 8, 4): gradient of log pi(answer) for the four logits
truth = policy * (worth - policy @ worth)  # the exact policy gradient
noise = {}
for name, baseline in {"no baseline": 0.0, "a perfect critic": 11.5, "mean of the group": r.mean(1, keepdims=True)}.items():
    estimates = ((r - baseline)[..., None] * push).mean(1)
    noise[name] = np.sqrt(((estimates - estimates.mean(0)) ** 2).sum(1).mean()) / np.linalg.norm(truth)
    print(f"{name:18} noise of one batch: {noise[name]:.2f} times the length of the true gradient")
fig, ax = plt.subplots(figsize=(7, 2.2))
ax.barh(list(noise), list(noise.values()), color=[ORANGE, BLUE, GREEN])
ax.axvline(1, color="black", linewidth=1, linestyle=":")
ax.set_xlabel("noise of one batch / length of the true gradient (dotted: noise as large as the signal)")
ax.invert_yaxis()
plt.show()

# %% [markdown]
# See how far the orange bar runs past the dotted line, where noise and signal are equal. Without a baseline the noise
# of one batch is many times the signal. A critic that knows $V$ exactly brings it down to about the signal's size. And the group's own mean, which
# costs nothing, does as well.
#
# A small print: the group's mean contains the answer itself, which shrinks the gradient by the factor
# $1 - 1/G$ (here 7/8). The direction is untouched. We come back to it under "other baselines".
#
# So there are two ways to know what was to be expected. We take them in the order of history.

# %% [markdown]
# ## Part 1: PPO asks a critic
#
# PPO trains a second network, the **critic**: $V(s_t)$ is its guess, after token $t$, of the reward still to come.
# With such a guess at every step, every step can be judged. The judgement for one step is the *surprise*
#
# $$\delta_t = r_t + \gamma\, V(s_{t+1}) - V(s_t)$$
#
# In words: what I got now, plus what I expect from here on, minus what I had expected before this step. If the step was as
# good as expected, the surprise is 0. The discount $\gamma$ makes later reward count a little less.
#
# But a critic is wrong, in the beginning very. **Generalised advantage estimation** (GAE) therefore lets a step
# also answer for the surprises that follow it, with a weight that fades by $\gamma\lambda$ a step:
#
# $$A_t = \delta_t + \gamma\lambda\,\delta_{t+1} + (\gamma\lambda)^2\,\delta_{t+2} + \dots$$
#
# $\lambda$ sets how much you trust the critic. At $\lambda = 0$ a step answers for its own surprise alone: little noise,
# but all of the critic's errors. At $\lambda = 1$ the values in between cancel, and what is left is everything that really
# followed minus the guess at the start: no error of the critic's remains but that guess, and all of the noise.
#
# ### Exercise: `gae_advantages` (5 points)
#
# | in | shape | meaning |
# |---|---|---|
# | `rewards` | `[T]`, any real number type | the reward after each step |
# | `values` | `[T + 1]`, floats | the critic's guess before each step, and one for the state after the last |
# | `gamma`, `lam` | floats | discount, and trust in what really happened |
#
# Returns `[T]` floats: the advantage of each step.
#
# One worked number: rewards `[0, 0, 1]`, values `[.5, .5, .5, 0]`, gamma = lam = .5. The surprises are
# -.25, -.25 and +.5. The last step's advantage is .5; the middle one's is -.25 + .25 x .5 = -.125; the first
# one's is -.25 + .25 x (-.125) = -.28125.
#
# - `values[T]` is what the critic still expects after the last step: 0 if the text has ended, and not 0 if it was cut off.
#   Use it as it comes.
# - Rewards may be integers; the advantages are floats all the same. `rewards` and `values` stay as they are.
# - No normalisation: PPO often does that afterwards, and here it would hide the numbers.
#
# <details><summary>A hint</summary>
#
# Write the sum for $A_t$ and the one for $A_{t+1}$ below each other. One is hidden in the other. So which end of the
# text would you start from?
#
# </details>

# %% solution gae_advantages
def gae_advantages(rewards, values, gamma=0.99, lam=0.95):
    """Advantage of each step by a critic's values: rewards [T], values [T + 1] -> [T]."""
    ### BEGIN SOLUTION
    surprises = rewards + gamma * values[1:] - values[:-1]  # [T]
    advantages = torch.zeros_like(surprises)
    later = 0.0  # the advantage of the step after this one
    for t in reversed(range(len(surprises))):
        later = surprises[t] + gamma * lam * later
        advantages[t] = later
    return advantages
    ### END SOLUTION

# %% check gae_surprise_alone points=1
# With lam = 0 a step answers for its own surprise alone.
expected = [0.04, -0.42, 1.16]  # 0 + .9 x .6 - .5, and so on
got = gae_advantages(torch.tensor([0.0, 0.0, 1.0]), torch.tensor([0.5, 0.6, 0.2, 0.4]), gamma=0.9, lam=0.0)
assert is_vector(got, 3), f"three steps have three advantages, a tensor of floats of shape [3]; you returned {what_is(got)}"
assert all(abs(a - e) < 1e-4 for a, e in zip(got.tolist(), expected)), (
    f"rewards 0, 0, 1, values .5, .6, .2, .4, gamma .9, lam 0: the surprises are {shown(expected)}, you have {shown(got)}. "
    "Which value stands before a step, which after it, and which of them is discounted?"
)
### BEGIN HIDDEN TESTS
import random

draw = random.Random(SEED + 11)
for _ in range(20):
    steps = draw.randint(1, 12)
    r, v = [draw.uniform(-1, 1) for _ in range(steps)], [draw.uniform(-1, 1) for _ in range(steps + 1)]
    gamma = draw.uniform(0.3, 1)
    surprises = [r[t] + gamma * v[t + 1] - v[t] for t in range(steps)]
    answer = gae_advantages(torch.tensor(r), torch.tensor(v), gamma=gamma, lam=0.0)
    torch.testing.assert_close(answer.double(), torch.tensor(surprises).double(), atol=1e-5, rtol=0)
### END HIDDEN TESTS

# %% check gae_all_that_followed points=1
# With lam = 1 a step is worth all that really followed, minus the guess before it.
r, v, gamma = [1.0, 0.0, 2.0], [0.3, 0.9, 0.1, 0.8], 0.5
expected = [sum(gamma ** (k - t) * r[k] for k in range(t, 3)) + gamma ** (3 - t) * v[3] - v[t] for t in range(3)]
got = gae_advantages(torch.tensor(r), torch.tensor(v), gamma=gamma, lam=1.0)
assert is_vector(got, 3), f"three steps have three advantages, a tensor of floats of shape [3]; you returned {what_is(got)}"
assert all(abs(a - e) < 1e-4 for a, e in zip(got.tolist(), expected)), (
    f"rewards 1, 0, 2, values .3, .9, .1, .8, gamma .5, lam 1: expected {shown(expected)}, you have {shown(got)}. "
    "The last value (.8) is a guess of what is still to come; does it reach every step?"
)
### BEGIN HIDDEN TESTS
import random

draw = random.Random(SEED + 12)
for _ in range(20):
    steps = draw.randint(1, 12)
    rewards = [draw.uniform(-1, 1) for _ in range(steps)]
    values = [draw.uniform(-1, 1) for _ in range(steps + 1)]
    discount = draw.uniform(0.3, 1)
    followed = [
        sum(discount ** (k - t) * rewards[k] for k in range(t, steps)) + discount ** (steps - t) * values[steps] - values[t]
        for t in range(steps)
    ]
    answer = gae_advantages(torch.tensor(rewards), torch.tensor(values), gamma=discount, lam=1.0)
    torch.testing.assert_close(answer.double(), torch.tensor(followed).double(), atol=2e-5, rtol=0)
### END HIDDEN TESTS

# %% check gae_fading_surprises points=2
# In between, each later surprise counts gamma times lam less.
expected = [-0.28125, -0.125, 0.5]
got = gae_advantages(torch.tensor([0.0, 0.0, 1.0]), torch.tensor([0.5, 0.5, 0.5, 0.0]), gamma=0.5, lam=0.5)
assert is_vector(got, 3), f"three steps have three advantages, a tensor of floats of shape [3]; you returned {what_is(got)}"
assert all(abs(a - e) < 1e-4 for a, e in zip(got.tolist(), expected)), (
    f"the worked example gives {shown(expected)}, you have {shown(got)}. "
    "A step answers for the surprises after it, not before it; and each step further away fades by the same factor."
)
### BEGIN HIDDEN TESTS
import random

draw = random.Random(SEED + 13)
for trial in range(20):
    steps = draw.randint(2, 16)
    r, v = [draw.uniform(-1, 1) for _ in range(steps)], [draw.uniform(-1, 1) for _ in range(steps + 1)]
    gamma, lam = (0.99, 0.95) if trial % 4 == 0 else (draw.uniform(0.4, 1), draw.uniform(0.2, 0.9))
    by_definition = [
        sum((gamma * lam) ** (k - t) * (r[k] + gamma * v[k + 1] - v[k]) for k in range(t, steps)) for t in range(steps)
    ]
    settings = {} if trial % 4 == 0 else {"gamma": gamma, "lam": lam}  # the defaults, too
    answer = gae_advantages(torch.tensor(r), torch.tensor(v), **settings)
    torch.testing.assert_close(answer.double(), torch.tensor(by_definition).double(), atol=2e-5, rtol=0)
### END HIDDEN TESTS

# %% check gae_whole_number_rewards points=1
# Whole-number rewards give floats, and what came in stays as it is.
rewards, values = torch.tensor([0, -1, 3]), torch.tensor([0.5, 0.25, 0.75, 0.25])
expected = [-0.1875, 0.6875, 2.375]  # gamma = .5, lam = 1: 0 - .5 + .75 + .03125 - .5 and so on
expected = [0 - 0.5 * 1 + 0.25 * 3 + 0.125 * 0.25 - 0.5, -1 + 0.5 * 3 + 0.25 * 0.25 - 0.25, 3 + 0.5 * 0.25 - 0.75]
got = gae_advantages(rewards, values, gamma=0.5, lam=1.0)
assert is_vector(got, 3), f"expected a tensor of floats of shape [3], you returned {what_is(got)}"
assert all(abs(a - e) < 1e-4 for a, e in zip(got.tolist(), expected)), (
    f"integer rewards 0, -1, 3, gamma .5, lam 1: expected {shown(expected)}, you have {shown(got)}. "
    "Which number type does the tensor have into which you write?"
)
assert rewards.tolist() == [0, -1, 3], f"the rewards that came in were changed, to {shown(rewards)}"
assert values.tolist() == [0.5, 0.25, 0.75, 0.25], f"the values that came in were changed, to {shown(values)}"
### BEGIN HIDDEN TESTS
import random

draw = random.Random(SEED + 14)
for dtype in (torch.int64, torch.int32, torch.float32) * 4:
    steps = draw.randint(2, 9)
    r, v = [draw.randint(-3, 3) for _ in range(steps)], [draw.randint(-8, 8) / 8 for _ in range(steps + 1)]
    advantage, reference = 0.0, []
    for t in reversed(range(steps)):
        advantage = r[t] + 0.9 * v[t + 1] - v[t] + 0.9 * 0.7 * advantage
        reference.insert(0, advantage)
    given_r, given_v = torch.tensor(r, dtype=dtype), torch.tensor(v)
    answer = gae_advantages(given_r, given_v, gamma=0.9, lam=0.7)
    assert answer.is_floating_point()
    torch.testing.assert_close(answer.double(), torch.tensor(reference).double(), atol=2e-5, rtol=0)
    assert given_r.tolist() == r and given_v.tolist() == v, "an input was changed"
### END HIDDEN TESTS

# %% [markdown]
# ### What a critic can do that a group cannot
#
# A model works through a problem in eight steps. All goes well until the fifth, where it drops a sign; the answer is wrong,
# and the reward at the end is 0. Its critic noticed: the value falls from .8 to .15 at that step.
#
# **Predict** before you run: which step gets the blame at $\lambda = 0$? And at $\lambda = .95$, do the four good steps
# before the slip stay clean?

# %% show blame_for_one_step
values = torch.tensor([0.7, 0.7, 0.75, 0.8, 0.8, 0.15, 0.1, 0.05, 0.0])
rewards = torch.zeros(8)  # a wrong answer: nothing at the end either
steps = np.arange(1, 9)
sharp, smooth = (gae_advantages(rewards, values, gamma=1.0, lam=lam) for lam in (0.0, 0.95))
print("lam = 0:  ", [round(a, 2) for a in sharp.tolist()])
print("lam = .95:", [round(a, 2) for a in smooth.tolist()])
fig, ax = plt.subplots()
ax.bar(steps - 0.2, sharp, 0.4, label="critic, $\\lambda$ = 0", color=BLUE)
ax.bar(steps + 0.2, smooth, 0.4, label="critic, $\\lambda$ = .95", color=SKY)
ax.plot([0.6, 8.4], [-1, -1], color=ORANGE, linestyle="--", label="group: one number for the whole answer")
ax.axhline(0, color="black", linewidth=0.8)
ax.set(xlabel="step of the answer", ylabel="advantage", xticks=steps, ylim=(-1.15, 0.25))
ax.legend(loc="lower right", bbox_to_anchor=(1, 0.12))
plt.show()

# %% [markdown]
# At $\lambda = 0$ the blue bar at step 5 stands alone: the critic points at the slip. At $\lambda = .95$ the steps before it
# are blamed too, since they answer for what followed, and only the steps after it are spared. The dashed line is what
# a group says about a wrong answer to a question that half of the answers got right: $-1$, for every token alike.
#
# Credit for single steps is what a critic is for. It is also only as good as the critic, and here we drew a critic that was right.

# %% [markdown]
# ### What a critic costs
#
# In RLHF with PPO four models lie in memory: the **policy**, which is trained; the **critic**, which is as large and is trained as well; the
# **reference**, frozen, that keeps the policy near its start; and the **reward model**, frozen, that judges answers.
#
# GRPO drops the critic. Where answers can be checked (sums, code with tests), a *rule* takes the place of
# the reward model, and a rule weighs nothing. For context: DPO learns from pairs of answers that somebody ranked before; it holds policy and
# reference, and samples nothing at all while it trains.
#
# How much is that? With mixed precision and Adam, a parameter that is trained takes 16 bytes (2 for the weight, 2
# for its gradient, 4 for a float32 copy, 8 for Adam's two averages), a frozen one takes 2. **Guess** the totals
# for a policy of 7 billion parameters, all models of the same size.

# %% show models_in_memory
TRAINED, FROZEN, BILLIONS = 16, 2, 7  # bytes for a parameter; billions of them
models = {
    "PPO": {"policy": TRAINED, "critic": TRAINED, "reference": FROZEN, "reward model": FROZEN},
    "GRPO": {"policy": TRAINED, "reference": FROZEN},
    "DPO (samples nothing)": {"policy": TRAINED, "reference": FROZEN},
}
colors = {"policy": BLUE, "critic": ORANGE, "reference": SKY, "reward model": PINK}
fig, ax = plt.subplots(figsize=(7, 2.4))
for method, parts in models.items():
    left = 0
    for part, size in parts.items():
        ax.barh(method, size * BILLIONS, left=left, color=colors[part], label=part if method == "PPO" else None)
        left += size * BILLIONS
    print(f"{method:22} {left} GB")
ax.set_xlabel("weights, gradients and optimiser state (GB), 7 billion parameters")
ax.invert_yaxis()
ax.legend(ncols=4, loc="upper center", bbox_to_anchor=(0.4, 1.25), frameon=False)
plt.show()

# %% [markdown]
# The orange bar is what this course saves: 112 of 252 GB. (Activations and the cache of the sampler come on top,
# for all who sample. GRPO also runs without a reference when no KL is wanted; notebook 3 asks what that is worth.)
# What GRPO pays in return is samples: a group of answers to every question, instead of one.
#
# | | PPO | GRPO |
# |---|---|---|
# | models in memory | policy, reference, reward model, critic | policy, reference, and a rule where answers can be checked |
# | the baseline comes from | a trained network | the other answers to the same question |
# | answers per question | one is enough | several, always |
# | credit | for every token | one number for an answer |
# | can be wrong because | the critic lags behind or errs | the group is small, or all its answers are alike |

# %% [markdown]
# ## Part 2: GRPO asks the group
#
# Now the formula from the top, with real groups. $G$ answers to one question earn rewards; the mean of the group is the baseline, the
# std of the group is the unit.
#
# **Before you run the next cell**, guess: four answers earn 2, 2, 2, 1. Whose advantage is larger in size, that of the
# three good answers or that of the one bad answer?

# %% show one_group
for rewards in ([2.0, 2.0, 2.0, 1.0], [1.0, 0.0, 0.0, 1.0]):
    r = torch.tensor(rewards)
    centred = r - r.mean()
    print(rewards, "population:", [round(a, 4) for a in (centred / r.std(unbiased=False)).tolist()])
    print(" " * 20, "    sample:", [round(a, 4) for a in (centred / r.std()).tolist()], " <- not our convention")
for size in (2, 4, 8, 16, 64):
    r = torch.zeros(size)
    r[0] = 1  # one answer against all others
    print(f"G = {size:2}: the largest advantage there can be is {((r - r.mean()) / r.std(unbiased=False)).max():.4f}")

# %% [markdown]
# The exception speaks loudest: -1.7321 for the one bad answer, .5774 for each of the three good ones. The sum is 0, as it
# always is.
#
# `torch.std` divides by $G - 1$ unless told otherwise, and then 1, 0, 0, 1 gives $\pm .866$ instead of $\pm 1$. Nobody is
# wrong here, but a whole course must choose; we divide by $G$.
#
# The last lines show that an advantage cannot exceed $\sqrt{G-1}$: 1 for a group of two, 2.6458 for eight. A
# single brilliant answer in a large group is the loudest signal that GRPO knows.

# %% [markdown]
# ### A trap: numbers that are equal and yet are not
#
# Six answers, all with the reward 0.9. Nobody is better than anybody: the advantages are 0, surely?
#
# The mean is computed in float32, and comes out a hair off 0.9. The differences are that hair; the std is about
# that hair as well; and a hair over a hair is not small. **Guess** the worst that can come out of the three lines below.

# %% show float_trap
r = torch.full((6,), 0.9)
centred, std = r - r.mean(), r.std(unbiased=False)
print(f"mean - 0.9 = {r.double().mean() - centred.double().mean() - 0.9:.1e}, centred {centred[0]:.1e}, std {std:.1e}")
print(f"clamped at 1e-6:  {(centred / std.clamp_min(1e-6))[0]:.2f}")
print(f"std + 1e-8:       {(centred / (std + 1e-8))[0]:.2f}")

# %% [markdown]
# -0.06 with our clamp, which is bad, and -0.86 with an eps of 1e-8, which is a full-grown advantage made of rounding. All six
# answers would be pushed down for nothing. (Textbooks warn of dividing by 0 here. That is harmless: 0/eps is 0. The
# residue is what bites.)
#
# There is more than one way out: compute where a sum of equal float32 numbers is exact, or look whether anything differs before
# you divide. You will choose yours now.

# %% [markdown]
# ### Exercise: `group_advantages` (8 points)
#
# A batch holds the answers to many questions, and a loader may have shuffled them. So each answer carries the id of its
# group.
#
# | in | shape | meaning |
# |---|---|---|
# | `rewards` | `[N]`, any real number type | one reward for each answer |
# | `group_ids` | `[N]`, integers | answers with equal ids answer the same question |
# | `eps` | float | the smallest std to divide by |
#
# Returns `[N]` floats: every answer measured against its own group, in the order in which they came.
#
# One worked number: rewards `[2, 1, 2, 2, 0, 2]` with ids `[5, -1, 5, 5, -1, 5]` make two groups, 2, 2, 2, 2 and 1, 0, so the
# advantages are `[0, 1, 0, 0, -1, 0]`.
#
# - Divide by the std of the group itself, with $G$, not $G - 1$.
# - Ids are labels. They may be negative or as large as int64 allows ($10^{15}$ and $10^{15} + 1$ are two groups), unsorted and mixed; groups may
#   differ in size.
# - A group whose rewards are all equal gets 0, and so does a group of one. Float32 included: six rewards of 0.9 give
#   advantages below 1e-5. (This is a check of its own, worth one point; elsewhere equal rewards are 0, .5 or 1, whose means are exact.)
# - But small is not equal: rewards of 0 and .001 differ, and their advantages are as large as those of 0 and 1. So no threshold.
# - A large common offset (all rewards near 100) changes nothing that matters.
# - Integers (int32, int64) and float64 come in as well as float32. Floats come out, and `rewards` stays as it is.
# - A loop over the groups is fine here. Notebook 2 will ask for speed.
#
# <details><summary>A hint: the groups</summary>
#
# `torch.unique(group_ids, return_inverse=True, return_counts=True)` renames any labels to 0, 1, 2, ... and counts them. With such names
# `index_add_` sums each group in one call, and indexing by the names hands each answer its group's result.
# Or: for each distinct id, a mask `group_ids == id` picks the group, and you can read and write through it.
#
# </details>
#
# <details><summary>A hint: the ties</summary>
#
# A float64 has 29 more bits than a float32. What does the sum of six equal float32 numbers look like in it? Or ask the group first: are its
# largest and its smallest reward the same?
#
# </details>

# %% solution group_advantages
def group_advantages(rewards, group_ids, eps=1e-6):
    """Advantage of each answer relative to its own group: rewards [N], group_ids [N] -> [N]."""
    ### BEGIN SOLUTION
    r = rewards.double()  # sums of equal float32 rewards are exact here, so ties centre to 0
    _, group, size = group_ids.unique(return_inverse=True, return_counts=True)  # any labels -> 0, 1, 2, ...

    def mean_of_group(x):  # [N] -> [N]: each entry gets the mean of its group
        return (torch.zeros_like(size, dtype=x.dtype).index_add_(0, group, x) / size)[group]

    centred = r - mean_of_group(r)
    std = mean_of_group(centred**2).sqrt()
    advantages = centred / std.clamp_min(eps)
    return advantages.to(rewards.dtype if rewards.is_floating_point() else torch.float32)
    ### END SOLUTION

# %% check group_zero_mean points=2
# Zero mean in every group: what one answer gains, its siblings lose.
ids, rewards = torch.tensor([7, -3, 7, -3, 7]), torch.tensor([1.0, 0.0, 0.0, 2.0, 3.0])
got = group_advantages(rewards.clone(), ids.clone())
assert is_vector(got, 5), f"five answers have five advantages, a tensor of floats of shape [5]; you returned {what_is(got)}"
for g in (7, -3):
    mine = got[ids == g]
    assert abs(mine.mean().item()) < 1e-5, (
        f"group {g} has the rewards {shown(rewards[ids == g])}; its advantages {shown(mine)} average "
        f"{mine.mean().item():.3f}, not 0. Is each answer compared with its own group?"
    )
    assert mine.max() - mine.min() > 0.5, f"group {g}: its rewards {shown(rewards[ids == g])} differ, its advantages {shown(mine)} hardly do"
### BEGIN HIDDEN TESTS
import random

draw = random.Random(SEED + 21)
labels = [0, 3, -3, 7, 7 + 2**32, 10**15, 10**15 + 1, -(2**62), 2**62]
for trial in range(20):
    groups = {}
    for label in draw.sample(labels, 6):  # unequal sizes; 0 and 1 stand for what random draws rarely give
        values = [draw.choice([0, 0.5, 1]) for _ in range(draw.randint(1, 9))] + [0, 1]
        groups[label] = [2 * v - 1 for v in values] if trial % 2 else values
    lone, tied = list(groups)[:2]
    groups[lone], groups[tied] = [draw.choice([0.5, 1])], [draw.choice([0.5, 1])] * draw.choice([2, 4, 8])
    rows = [(label, float(value)) for label, values in groups.items() for value in values]
    draw.shuffle(rows)  # interleaved
    which = torch.tensor([label for label, _ in rows])
    earned = torch.tensor([value for _, value in rows])
    if trial % 4 == 3:
        earned = (2 * earned).long()  # whole-number rewards
    answer = group_advantages(earned.clone(), which.clone())
    assert answer.shape == earned.shape
    for label, values in groups.items():
        mine = answer[which == label].double()
        assert abs(mine.mean()) < 1e-5, "some group's advantages do not average 0"
        if label in (lone, tied):
            assert mine.abs().max() < 1e-5
        else:
            assert mine.max() - mine.min() > 0.5
### END HIDDEN TESTS

# %% check group_measured_in_stds points=2
# Each answer is measured in standard deviations of its own group.
ids = torch.tensor([4, 9, 4, 9, 4, 9, 4, 9])
rewards = torch.tensor([2.0, 3.0, 2.0, 0.0, 2.0, 0.0, 1.0, 3.0])
expected = [0.5774, 1.0, 0.5774, -1.0, 0.5774, -1.0, -1.7321, 1.0]  # 2, 2, 2, 1 in group 4; 3, 0, 0, 3 in group 9
got = group_advantages(rewards.clone(), ids.clone())
assert is_vector(got, 8), f"eight answers have eight advantages, a tensor of floats of shape [8]; you returned {what_is(got)}"
assert all(abs(a - e) < 2e-4 for a, e in zip(got.tolist(), expected)), (
    "group 4 earned 2, 2, 2, 1 and group 9 earned 3, 0, 0, 3, in turns. "
    f"Expected {shown(expected)}, you have {shown(got)}. Whose mean and whose std did each answer meet, and what does the std divide by?"
)
### BEGIN HIDDEN TESTS
import random
from statistics import fmean, pstdev  # plain Python with exact sums: another way to the same numbers

draw = random.Random(SEED + 22)
for trial in range(24):
    # as they are, offset, and tiny: (factor, offset, tolerance); the last lets an eps of 1e-6 be added instead of clamped
    factor, offset, tolerance = [(1, 0, 3e-5), (1, 100, 1e-4), (-1, -100, 1e-4), (1e-3, 0, 1e-2)][trial % 4]
    groups = [[draw.choice([0, 0.5, 1, 1.5]) for _ in range(draw.randint(1, 7))] + [0, 1] for _ in range(5)]
    rows = [(3 * g - 7, factor * v + offset) for g, values in enumerate(groups) for v in values]
    draw.shuffle(rows)
    of_group = {g: [v for h, v in rows if h == g] for g, _ in rows}
    by_hand = torch.tensor([(v - fmean(of_group[g])) / pstdev(of_group[g]) for g, v in rows], dtype=torch.float64)
    answer = group_advantages(torch.tensor([v for _, v in rows]), torch.tensor([g for g, _ in rows]))
    torch.testing.assert_close(answer.double(), by_hand, atol=tolerance, rtol=0)
### END HIDDEN TESTS

# %% check group_ids_are_labels points=1
# Ids are labels: renaming the groups and shuffling the answers changes nobody's advantage.
expected = [1.0, 0.0, -1.0, 1.0, 1.2247, -1.0, -1.2247]
got = group_advantages(
    torch.tensor([1.0, 2.0, 0.0, 5.0, 4.0, 3.0, 0.0]),
    torch.tensor([10**15, -7, 10**15, 10**15 + 1, -7, 10**15 + 1, -7]),
)
assert is_vector(got, 7), f"seven answers have seven advantages, a tensor of floats of shape [7]; you returned {what_is(got)}"
assert all(abs(a - e) < 2e-4 for a, e in zip(got.tolist(), expected)), (
    "the group 10^15 earned 1, 0, the group 10^15 + 1 earned 5, 3, and the group -7 earned 2, 4, 0, all mixed. "
    f"Expected {shown(expected)}, you have {shown(got)}. Are these three groups, and does each answer get its own number back?"
)
### BEGIN HIDDEN TESTS
import random
from statistics import fmean, pstdev

draw = random.Random(SEED + 23)
labels = [0, 1, 3, -3, 7, 7 + 2**32, 7 - 2**32, 10**15, 10**15 + 1, -(10**15), 2**62, -(2**62), 2**62 + 1]
for _ in range(20):
    names = draw.sample(labels, 4) + [7, 7 + 2**32] * draw.randint(0, 1)
    sizes = {name: draw.randint(2, 6) for name in names}
    rows = [(name, draw.choice([0, 0.5, 1]) if k > 1 else float(k)) for name, size in sizes.items() for k in range(size)]
    draw.shuffle(rows)
    of_group = {g: [v for h, v in rows if h == g] for g, _ in rows}
    by_hand = torch.tensor([(v - fmean(of_group[g])) / pstdev(of_group[g]) for g, v in rows], dtype=torch.float64)
    which = torch.tensor([g for g, _ in rows])
    answer = group_advantages(torch.tensor([float(v) for _, v in rows]), which)
    torch.testing.assert_close(answer.double(), by_hand, atol=3e-5, rtol=0)
    assert which.tolist() == [g for g, _ in rows], "the ids that came in were changed"
### END HIDDEN TESTS

# %% check group_nothing_to_learn points=1
# A group of one and a group of equals learn nothing, and do not disturb the others.
ids, rewards = torch.tensor([5, 8, 2, 8, 8, 2, 8]), torch.tensor([3.0, 0.5, 1.0, 0.5, 0.5, 0.0, 0.5])
expected = [0.0, 0.0, 1.0, 0.0, 0.0, -1.0, 0.0]
got = group_advantages(rewards.clone(), ids.clone())
assert is_vector(got, 7), f"seven answers have seven advantages, a tensor of floats of shape [7]; you returned {what_is(got)}"
assert all(abs(a - e) < 1e-4 for a, e in zip(got.tolist(), expected)), (
    "group 5 is a single answer (3), group 8 has four rewards of .5, group 2 has 1 and 0. "
    f"Expected {shown(expected)}, you have {shown(got)}. Who has anybody to be compared with?"
)
### BEGIN HIDDEN TESTS
import random

draw = random.Random(SEED + 24)
for _ in range(20):
    rows = [(-5, draw.choice([1.0, 2.0, -3.0]), 0.0), (12, draw.choice([-1.0, 0.5, 4.0]), 0.0)]  # id, reward, advantage
    for g in (1, 2):
        rows += [(g, draw.choice([0.5, 1.0, -0.5]), 0.0)] * draw.choice([2, 4, 8])
    low, wide, pairs = draw.choice([0.0, 1.0, -2.0]), draw.choice([1.0, 2.0]), draw.randint(1, 3)
    rows += [(40, low, -1.0), (40, low + wide, 1.0)] * pairs  # as many below as above: -1 and 1
    draw.shuffle(rows)
    answer = group_advantages(torch.tensor([r for _, r, _ in rows]), torch.tensor([g for g, _, _ in rows]))
    torch.testing.assert_close(answer.double(), torch.tensor([a for _, _, a in rows]).double(), atol=1e-5, rtol=0)
### END HIDDEN TESTS

# %% check group_whole_number_rewards points=1
# Whole-number rewards give floats, and the rewards that came in stay as they are.
rewards, ids = torch.tensor([2, 1, 2, 0, 2, 1]), torch.tensor([0, 6, 0, 6, 1, 1])
expected = [0.0, 1.0, 0.0, -1.0, 1.0, -1.0]
rewards, ids = torch.tensor([2, 1, 2, 0, 2, 2]), torch.tensor([0, 6, 0, 6, 6, 0])  # integers: 2, 2, 2 and 1, 0, 2
rewards, ids = torch.tensor([3, 1, 3, 0, 5, 3, 1]), torch.tensor([0, 6, 0, 6, 6, 0, 0])
got = group_advantages(rewards, ids)
assert is_vector(got, 7), f"expected a tensor of floats of shape [7], you returned {what_is(got)}"
### BEGIN HIDDEN TESTS
pass
### END HIDDEN TESTS

# %% check group_ties_in_float32 points=1
# Equal rewards are equal in float32, too: six times 0.9 gives 0.
expected = [0.0] * 3 + [1.0] + [0.0] * 3 + [-1.0]
got = group_advantages(torch.tensor([0.9, 0.9, 0.9, 1.0, 0.9, 0.9, 0.9, 0.0]), torch.tensor([3, 3, 3, 1, 3, 3, 3, 1]))
assert is_vector(got, 8), f"eight answers have eight advantages, a tensor of floats of shape [8]; you returned {what_is(got)}"
assert all(abs(a - e) < 1e-5 for a, e in zip(got.tolist(), expected)), (
    f"six rewards of .9 in one group, 1 and 0 in another: expected {shown(expected)}, you have {shown(got)}. "
    "What is the mean of six times .9 in float32? See the trap above."
)
### BEGIN HIDDEN TESTS
import random

draw = random.Random(SEED + 25)
for _ in range(20):
    rows = []
    for g in range(4):
        rows += [(g, draw.choice([0.1, 0.2, 0.3, 0.6, 0.7, 0.9, -0.9, -0.3, round(draw.uniform(0.05, 1), 3)]), 0.0)] * draw.randint(3, 12)
    rows += [(9, 0.0, -1.0), (9, 1.0, 1.0)] * draw.randint(1, 3)
    draw.shuffle(rows)
    answer = group_advantages(torch.tensor([r for _, r, _ in rows]), torch.tensor([g for g, _, _ in rows]))
    torch.testing.assert_close(answer.double(), torch.tensor([a for _, _, a in rows]).double(), atol=1e-5, rtol=0)
### END HIDDEN TESTS
