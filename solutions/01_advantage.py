# %% [markdown]
# # 1. From PPO's critic to GRPO's group
#
# A language model answers a question and earns a reward of 1. Was that good? You cannot tell yet: for an easy
# question it is nothing, for a hard one it is a small miracle. A policy learns from the difference between
# what it got and what was to be expected, and the whole art is in "what was to be expected". PPO (*proximal policy
# optimisation*, the classic) trains a second network to know it. GRPO asks the other answers to the same question. In this notebook you write
# both, see what each costs, and find out when a group of answers has nothing to say.
#
# ```text
# prompts → rollout → rewards → advantages → ratio, clip → KL → update ↺
# notebook     4         4          1             2        3      4
#                                  here
# ```
#
# | | |
# |---|---|
# | **Difficulty** | Easy to medium: four short functions, no training |
# | **Time** | About 90 minutes: an hour for the exercises, the rest to read and guess; the sections marked "(optional)" take 15 more |
# | **You should know** | PyTorch tensors; the idea of a policy gradient: make what went well more likely |
# | **You will write** | `gae_advantages`, `group_advantages`, `dead_group_probability`, `smallest_group_size`, and a few sentences |
# | **Next** | Notebook 2, where the advantages enter the loss that GRPO minimises |

# %% given setup
import math

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import torch

SEED = 0  # draws of the hidden tests; a class has its own
BLUE, ORANGE, GREEN, PINK, YELLOW, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"  # told apart by everyone
mpl.rcParams.update({"figure.figsize": (7, 3.2), "axes.prop_cycle": mpl.cycler(color=[BLUE, ORANGE, GREEN, PINK, YELLOW, SKY]), "axes.spines.top": False, "axes.spines.right": False, "figure.constrained_layout.use": True})

# %% given in_words
def shown(x):
    """Any value as short text for a message: numbers to four decimals, whatever else it may be."""
    if torch.is_tensor(x):
        x = x.detach().tolist()
    if isinstance(x, (list, tuple)):
        return "[" + ", ".join(shown(y) for y in x[:16]) + (", ...]" if len(x) > 16 else "]")
    return f"{x:.4f}".rstrip("0").rstrip(".") if isinstance(x, float) else repr(x)[:60]


def is_vector(x, length):
    """Is x a tensor of floats of shape [length]?"""
    return torch.is_tensor(x) and x.shape == (length,) and x.is_floating_point()


def near(x, right, tolerance):
    """Are all numbers of x within the tolerance, and as many as there should be?"""
    return x.shape == right.shape and bool(((x - right).abs() <= tolerance).all())


def steps_that_differ(came, expected):
    """A line for each step whose number is not as expected, for a message."""
    wrong = [t for t, e in enumerate(expected) if not abs(came[t].item() - e) < 1e-4]
    return "\n".join(f"step {t + 1} of {len(expected)}: expected {shown(expected[t])}, you have {shown(came[t].item())}" for t in wrong)


def groups_that_differ(came, expected, rewards, ids, tolerance=2e-4):
    """A line for each group whose advantages are not as expected, for a message."""
    expected, lines = torch.tensor(expected).double(), []
    for g in dict.fromkeys(ids.tolist()):
        mine = ids == g
        if not near(came[mine].double(), expected[mine], tolerance):
            lines.append(f"group {g} earned {shown(rewards[mine])}: expected {shown(expected[mine])}, you have {shown(came[mine])}")
    return "\n".join(lines)


def what_is(x):
    """The kind of a value in words, for a message."""
    if torch.is_tensor(x):
        return f"a tensor of shape {list(x.shape)} and type {str(x.dtype).removeprefix('torch.')}"
    return "None (is there a return?)" if x is None else f"a {type(x).__name__}"


def is_number(x, *kinds):
    """Is x a plain number of Python's or numpy's (of these kinds), not a tensor, a text or None?"""
    return isinstance(x, kinds or (int, float, np.number))


def number(x):
    """x as a float if it is one number of any kind, else nan, which equals nothing."""
    try:
        return float(x)
    except Exception:
        return math.nan

# %% [markdown]
# ## What it is all for
#
# In notebook 4 you train a small language model to add four digits, on a CPU, in seconds. It has been shown how
# to think in running totals, and hardly ever does. This is what it writes before the run:
#
# ```text
# 0+7+0+7=<answer>15</answer>                             wrong
# 2+5+3+6=<answer>18</answer>                             wrong
# 4+6+7+8=<answer>21</answer>                             wrong
# ```
#
# And this after 50 steps of GRPO, to the same prompts:
#
# ```text
# 0+7+0+7=<think>07,07,14</think><answer>14</answer>      right
# 2+5+3+6=<think>07,10,16</think><answer>16</answer>      right
# 4+6+7+8=<think>10,17,25</think><answer>25</answer>      right
# ```
#
# It was paid for right answers and for nothing else. That thinking pays it found out by itself, from its own
# *rollouts*, the answers that it samples. The next cell draws that run, from twelve points that were recorded.
# **Guess** first: does the accuracy creep up, or jump?

# %% show the_run_to_come
step = [0, 4, 8, 12, 14, 16, 20, 26, 32, 38, 44, 50]
greedy = [0.13, 0.13, 0.15, 0.13, 1.00, 1.00, 1.00, 1.00, 1.00, 1.00, 1.00, 1.00]
thinks = [0.06, 0.08, 0.19, 0.41, 0.52, 0.57, 0.77, 0.92, 0.94, 1.00, 0.98, 0.98]
fig, ax = plt.subplots()
ax.plot(step, greedy, "o-", label="right answers, greedy, on held-out prompts")
ax.plot(step, thinks, "s--", label="sampled answers that think")
ax.set(xlabel="RL step", ylabel="share of answers", ylim=(0, 1.05))
ax.legend(loc="lower right", frameon=False)
plt.show()

# %% [markdown]
# See how the share of answers that think climbs smoothly, while the accuracy of the *greedy* answers, which take the
# most likely token each time, jumps from .13 to 1.00 between steps 12 and 14: `<think>` has become the most likely
# first token. *Held-out* prompts are prompts that nobody trained on. (This is one recorded run; yours will differ a
# little.)
#
# At the end of the course you can write what happens in that picture, from rollout to update; read its curves,
# and say what is wrong when they go wrong; and find your way in the code of TRL or verl, two libraries that train with GRPO.

# %% [markdown]
# ## The smallest example
#
# Two questions, two answers each. The answers to the first earn 1 and 2, those to the second 0.5 and 1.5.
#
# Reinforcement learning needs a number for each answer that says: more of this, or less? The reward itself will
# not do. A reward of 1.5 is the better one in the second group, and would be no more than average in the first. And
# since all four are positive, all four answers would be made more likely.
#
# So compare each answer with its own group, and measure the difference in units of that group's spread:
#
# $$A_i = \frac{r_i - \operatorname{mean}(r_{\text{group}})}{\operatorname{std}(r_{\text{group}})}$$
#
# In words: **how many standard deviations better than its siblings is this answer?** This is the
# *group-relative advantage*, the G and the R of GRPO: group relative policy optimisation.
#
# **Guess** before you run the next cell: which of the two groups gets the larger advantages? And what would change
# if the first group's rewards were 100 and 200?

# %% show two_groups
for rewards in ([1.0, 2.0], [0.5, 1.5], [100.0, 200.0]):
    r = torch.tensor(rewards)
    print(f"rewards {rewards} -> advantages {((r - r.mean()) / r.std(unbiased=False)).tolist()}")

# %% [markdown]
# The same advantages each time. Level and scale of the rewards are gone: only how an answer stands among its
# siblings is left.
#
# So **an advantage is not ability**: the advantages of a model that fails and of one that shines are 0 on average
# alike. Whether a model gets better is told by rewards on held-out prompts.

# %% [markdown]
# ## A reward needs a baseline
#
# The policy gradient pushes up the log-probability of each answer by a weight. With the bare reward as the
# weight it is right on average, and hopeless in practice: if rewards are 10, 11, 12 and 13, every answer is
# pushed up hard, and what distinguishes them drowns in the noise of which answers happened to be drawn.
#
# Subtract a number $b$ that does not depend on the answer: the average stays the same, and with a good $b$ the noise
# shrinks. That number is the **baseline**. The best simple choice is what this policy earns on this question on average, its
# *value* $V$; a function that gives it for every question is a **value function**. The trouble is only to
# know it.
#
# The next cell lets a policy over four possible answers draw groups of $G$, 5,000 times, and measures how far
# the gradient of a single group is off. **Predict**: how much worse is no baseline than a perfect one? And how
# close to perfect is the plain average of the group itself, for a group of 2 and for one of 8? (A *critic* is a
# network that estimates $V$; the perfect one knows it.)

# %% show noise_of_the_gradient
draw = np.random.default_rng(0)
policy = np.full(4, 0.25)  # four possible answers, equally likely
worth = np.array([10.0, 11.0, 12.0, 13.0])  # their rewards; V = 11.5
truth = policy * (worth - policy @ worth)  # the exact policy gradient for the four logits
sizes = [2, 4, 8, 16]
noise = {"no baseline": [], "mean of the group": [], "a perfect critic": []}
for size in sizes:
    answers = draw.integers(0, 4, (5000, size))  # 5,000 groups
    r = worth[answers]
    push = np.eye(4)[answers] - policy  # (5000, size, 4): gradient of log pi(answer)
    for name, baseline in zip(noise, (0.0, r.mean(1, keepdims=True), 11.5)):
        estimates = ((r - baseline)[..., None] * push).mean(1)
        signal = np.linalg.norm(truth) * (1 - 1 / size if name == "mean of the group" else 1)  # see the small print
        noise[name].append(np.sqrt(((estimates - estimates.mean(0)) ** 2).sum(1).mean()) / signal)
fig, ax = plt.subplots()
for (name, values), style in zip(noise.items(), ("o-", "s--", "^-.")):
    print(f"{name:18}", ", ".join(f"G = {size}: {x:.2f}" for size, x in zip(sizes, values)))
    ax.plot(sizes, values, style, label=name)
ax.axhline(1, color="black", linewidth=1, linestyle=":", label="as much noise as signal")
ax.set(xlabel="G, answers in the group", ylabel="noise of one group /\nlength of the gradient", xscale="log", yscale="log")
ax.set_xticks(sizes, sizes)
ax.set_yticks([0.5, 1, 2, 5, 10], ["0.5", "1", "2", "5", "10"])
ax.minorticks_off()
ax.legend(fontsize=9, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
plt.show()

# %% [markdown]
# See how far the top curve stays above the dotted line: without a baseline, a group of 8 has 6.35 times as much
# noise as signal. With a perfect critic the noise is half of the signal (.50). And the group's own mean, which needs
# no training at all, comes close: .57. In a group of 2 it does not: 1.75 against 1.00.
#
# The small print: the mean contains the answer itself, which shrinks the gradient by $1 - 1/G$ and leaves its
# direction; the cell divides by that.
#
# So there are two ways to know what was to be expected, a critic and a group, in the order of history.

# %% [markdown]
# ## Part 1: PPO asks a critic
#
# PPO trains a second network, the **critic**, to be the value function: $V(s_t)$ is its guess, *before* step
# $t$, of the reward still to come. ($s_t$ is the prompt with what was written before step $t$; a text has $T$ steps,
# counted from 0 as in Python, and a step is often one token.) With a guess before every step, every step can be judged by its *surprise*
#
# $$\delta_t = r_t + \gamma\, V(s_{t+1}) - V(s_t)$$
#
# In words: what I got now, plus what I expect from here on, minus what I had expected before this step. The
# discount $\gamma$ makes later reward count a little less. The field calls $\delta_t$ the **TD error**
# (temporal difference), and it calls it **bootstrapping** that the next guess stands in for what has not
# happened yet.
#
# But a critic is wrong, in the beginning very. **Generalised advantage estimation** (GAE) therefore lets a
# step also answer for the surprises that follow it, with a weight that fades by $\gamma\lambda$ a step:
#
# $$A_t = \delta_t + \gamma\lambda\,\delta_{t+1} + (\gamma\lambda)^2\,\delta_{t+2} + \dots$$
#
# $\lambda$ sets how much you trust the critic: the smaller, the more. At $\lambda = 0$ a step answers for its own surprise alone:
# little noise, but all of the critic's errors. At $\lambda = 1$ the guesses in between cancel. What is left is
# all that really followed, with all of its noise, and two guesses: $V(s_t)$, which is subtracted, and, where
# the text was cut off, $V(s_T)$ for what would have followed.
#
# ### Exercise: `gae_advantages` (5 points, 15 minutes, ●●○)
#
# | in | shape | meaning |
# |---|---|---|
# | `rewards` | `[T]`, any real number type | the reward after each step |
# | `values` | `[T + 1]`, floats | the critic's guess before each step, and one for the state after the last |
# | `gamma`, `lam` | floats | discount, and trust in what really happened |
#
# Returns a tensor of `[T]` floats: the advantage of each step, the first step first.
#
# One worked number: rewards `[0, 0, 1]`, values `[.5, .5, .5, 0]`, gamma = .8, lam = .5. The surprises are
# -.1, -.1 and +.5. The last step's advantage is .5; the middle one's is -.1 + .8 x .5 x .5 = .1; the first
# one's is -.1 + .8 x .5 x .1 = -.06.
#
# - Write in the cell below, in place of its line `raise NotImplementedError()`; then run the cells behind it.
# - `values[T]` is what the critic still expects after the last step: 0 if the text has ended, and not 0 if it
#   was cut off. Use it as it comes.
# - Rewards may be integers; the advantages are floats all the same. `rewards` and `values` stay as they are.
# - No normalisation and no bounds: PPO code often has both, and here they would hide the numbers.
#
# <details><summary>A hint</summary>
#
# Write the sum for $A_t$ and the one for $A_{t+1}$ below each other. One is hidden in the other. So which end
# of the text would you start from?
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
got = (
    gae_advantages(torch.tensor([0.0, 0.0, 1.0]), torch.tensor([0.5, 0.6, 0.2, 0.4]), gamma=0.9, lam=0.0),
    gae_advantages(torch.tensor([1.0]), torch.tensor([0.5, 0.75]), gamma=0.8, lam=0.0),
)
assert is_vector(got[0], 3), f"expected floats of shape [3], one for each step; you returned {what_is(got[0])}"
wrong = steps_that_differ(got[0], expected)
assert not wrong, (
    f"rewards 0, 0, 1, values .5, .6, .2, .4, gamma .9, lam 0: the surprises alone.\n{wrong}\n"
    "Which value stands before a step, which after it, and which of them is discounted?"
)
assert is_vector(got[1], 1) and abs(got[1].item() - 1.1) < 1e-4, (
    f"one step with reward 1, values .5, .75, gamma .8, lam 0: expected [1.1], you returned {what_is(got[1])}, {shown(got[1])}"
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
    assert near(answer.double(), torch.tensor(surprises).double(), 1e-5)
### END HIDDEN TESTS

# %% check gae_all_that_followed points=1
# With lam = 1 a step is worth all that really followed, minus the guess before it.
r, v, gamma = [1.0, 0.0, 2.0], [0.3, 0.9, 0.1, 0.8], 0.5
expected = [sum(gamma ** (k - t) * r[k] for k in range(t, 3)) + gamma ** (3 - t) * v[3] - v[t] for t in range(3)]
got = gae_advantages(torch.tensor(r), torch.tensor(v), gamma=gamma, lam=1.0)
assert is_vector(got, 3), f"expected floats of shape [3], one for each step; you returned {what_is(got)}"
wrong = steps_that_differ(got, expected)
assert not wrong, (
    f"rewards 1, 0, 2, values .3, .9, .1, .8, gamma .5, lam 1.\n{wrong}\n"
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
        sum(discount ** (k - t) * rewards[k] for k in range(t, steps))
        + discount ** (steps - t) * values[steps]
        - values[t]
        for t in range(steps)
    ]
    answer = gae_advantages(torch.tensor(rewards), torch.tensor(values), gamma=discount, lam=1.0)
    assert near(answer.double(), torch.tensor(followed).double(), 2e-5)
### END HIDDEN TESTS

# %% check gae_fading_surprises points=2
# In between, each later surprise counts gamma times lam less.
r, v = torch.tensor([0.1, 0.7, 0.0, 2.0]), torch.tensor([0.5, 0.4, 0.8, 0.29, 0.5])
expected = [0.3402, 1.0504, 0.276, 2.11]  # from surprises of -.08, .94, -.568 and 2.11
expected_by_default = [2.4037, 2.56, 1.5609, 2.205]  # gamma .99, lam .95: surprises of -.004, 1.092, -.5129 and 2.205
got = gae_advantages(r.clone(), v.clone(), gamma=0.8, lam=0.5), gae_advantages(r.clone(), v.clone())
assert is_vector(got[0], 4), f"expected floats of shape [4], one for each step; you returned {what_is(got[0])}"
wrong = steps_that_differ(got[0], expected)
assert not wrong, (
    f"rewards .1, .7, 0, 2, values .5, .4, .8, .29, .5, gamma .8, lam .5.\n{wrong}\n"
    "A step answers for the surprises after it, not before it; and each one further away fades by the same factor."
)
wrong = steps_that_differ(got[1], expected_by_default)
assert not wrong, f"the same without gamma and lam, which are .99 and .95 then.\n{wrong}"
end = gae_advantages(torch.ones(100), torch.zeros(101), gamma=0.5, lam=0.5)[-2:].tolist()
assert abs(end[0] - 1.25) < 1e-4 and abs(end[1] - 1) < 1e-4, (
    f"a text of 100 steps, each with reward 1 and value 0, gamma and lam .5: the last two advantages are 1.25 and 1, you have {shown(end)}. "
    "To the power of 100 their product, .25, is 0 in float32: is something divided by it?"
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
    assert near(answer.double(), torch.tensor(by_definition).double(), 2e-5)
### END HIDDEN TESTS

# %% check gae_whole_number_rewards points=1
# Whole-number rewards give floats, and what came in stays as it is.
rewards, floats, values = torch.tensor([0, -1, 30]), torch.tensor([0.0, -1.0, 30.0]), torch.tensor([0.5, 0.25, 0.75, 0.25])
expected = [0 - 0.5 * 1 + 0.25 * 30 + 0.125 * 0.25 - 0.5, -1 + 0.5 * 30 + 0.25 * 0.25 - 0.25, 30 + 0.5 * 0.25 - 0.75]
answer = gae_advantages(rewards, values, gamma=0.5, lam=1.0)
gae_advantages(floats, values.clone(), gamma=0.5, lam=1.0)  # the same as floats: do they stay as they are?
changed = [rewards.tolist(), floats.tolist()] != [[0, -1, 30]] * 2, values.tolist() != [0.5, 0.25, 0.75, 0.25]
got = answer, changed
assert is_vector(answer, 3), f"expected a tensor of floats of shape [3], you returned {what_is(answer)}"
wrong = steps_that_differ(answer, expected)
assert not wrong, (
    f"integer rewards 0, -1, 30, values .5, .25, .75, .25, gamma .5, lam 1.\n{wrong}\n"
    "If the checks above pass: which number type does the tensor have into which you write?"
)
assert not changed[0], f"the rewards that came in were 0, -1, 30 and are {shown(rewards)}, as floats {shown(floats)}, after the call"
assert not changed[1], f"the values that came in were changed, to {shown(values)}"
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
    assert near(answer.double(), torch.tensor(reference).double(), 2e-5)
    assert given_r.tolist() == r and given_v.tolist() == v, "an input was changed"
### END HIDDEN TESTS

# %% [markdown]
# ### What a critic can do that a group cannot
#
# A model works through a problem in eight steps. In the fifth it drops a sign; the answer is wrong, and the reward
# at the end is 0. Its critic noticed: the value falls from .8 to .15 at that step.
#
# **Predict**: which step gets the blame at $\lambda = 0$? And at $\lambda = .95$, do the four good steps before the
# slip stay clean?

# %% show blame_for_one_step
values = torch.tensor([0.7, 0.7, 0.75, 0.8, 0.8, 0.15, 0.1, 0.05, 0.0])
rewards = torch.zeros(8)  # a wrong answer: nothing at the end either
steps = np.arange(1, 9)
sharp, smooth = (gae_advantages(rewards, values, gamma=1.0, lam=lam) for lam in (0.0, 0.95))
print("lam = 0:  ", [round(a, 2) for a in sharp.tolist()], f"sum {sharp.sum():.2f}")
print("lam = .95:", [round(a, 2) for a in smooth.tolist()])
fig, ax = plt.subplots()
ax.bar(steps - 0.2, sharp, 0.4, label="critic, $\\lambda$ = 0", color=BLUE)
ax.bar(steps + 0.2, smooth, 0.4, label="critic, $\\lambda$ = .95", color=SKY, hatch="//")
ax.plot([0.6, 8.4], [-0.7, -0.7], color=ORANGE, linestyle="--", label="reward minus group mean")
ax.axhline(0, color="black", linewidth=0.8)
ax.set(xlabel="step of the answer", ylabel="advantage (units of reward)", xticks=steps, ylim=(-0.85, 0.15))
ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3, frameon=False, fontsize=9)
plt.show()

# %% [markdown]
# At $\lambda = 0$ the bar at step 5 stands out: the critic points at the slip. At $\lambda = .95$ the steps
# before it are blamed too, since they answer for what followed; only the steps after it are nearly spared.
#
# The dashed line is a group's verdict on the same answer, not yet divided by a std: seven of ten answers are right,
# so it is 0 - .7 = -.7, for every step alike. The critic's surprises add up to the same -.7. What a critic adds is
# *where*: credit for single steps, as good as the critic is. (We drew one that was right.)

# %% [markdown]
# ### What a critic costs
#
# **RLHF**, reinforcement learning from human feedback, came first: people rank answers, a *reward model* learns
# their taste, and PPO trains the policy against it. A *reference*, frozen, keeps the policy near its start.
#
# **DPO** then trained on the ranked pairs themselves: no reward model, no critic, no sampling, and so nothing
# that is not in the pairs. **GRPO** samples again, to try things out, and drops the critic. Where answers can be
# checked (sums, code with tests), a *rule* replaces the reward model, and weighs nothing: **RLVR**, reinforcement
# learning with verifiable rewards.
#
# With mixed precision and Adam, a trained parameter takes 16 bytes (2 for the weight, 2 for its gradient, 4 for a
# float32 copy, 8 for Adam's two averages), a frozen one 2. **Guess** the totals for a policy of 7 billion
# parameters, all models of the same size.

# %% show models_in_memory
TRAINED, FROZEN, BILLIONS = 16, 2, 7  # bytes for a parameter; billions of them
models = {
    "PPO": {"policy": TRAINED, "critic": TRAINED, "reference": FROZEN, "reward model": FROZEN},
    "DPO": {"policy": TRAINED, "reference": FROZEN},
    "GRPO, with a rule": {"policy": TRAINED, "reference": FROZEN},
}
looks = {"policy": (BLUE, ""), "critic": (ORANGE, "//"), "reference": (SKY, ".."), "reward model": (PINK, "xx")}
fig, ax = plt.subplots(figsize=(7, 2.4))
for method, parts in models.items():
    left = 0
    for part, size in parts.items():
        color, hatch = looks[part]
        ax.barh(method, size * BILLIONS, left=left, color=color, hatch=hatch, edgecolor="white", label=part if method == "PPO" else None)
        left += size * BILLIONS
    print(f"{method:18} {left} GB, the critic {parts.get('critic', 0) * BILLIONS} GB of them")
ax.set_xlabel("weights, gradients and optimiser state (GB), 7 billion parameters")
ax.invert_yaxis()
ax.legend(ncols=4, loc="lower center", bbox_to_anchor=(0.4, 1), frameon=False)
plt.show()

# %% [markdown]
# See the critic's bar: it is what GRPO saves, 112 of 252 GB. (Activations and the sampler's cache come on top.)
#
# | | PPO | DPO | GRPO |
# |---|---|---|---|
# | models | policy, critic, reference, reward model | policy, reference | policy, reference; a rule, or a reward model |
# | memory, as above | 252 GB | 126 GB | 126 GB with a rule |
# | data | prompts; the policy writes the answers | pairs of answers, ranked before | prompts; the policy writes a group of answers to each |
# | stability | the critic must keep up with the policy | that of supervised learning | no critic to lag; noisy where groups are small or all alike |
# | complexity | highest: sampling, GAE, two trainings at once | lowest: one loss, no sampling | between: sampling, one training |

# %% [markdown]
# ## Part 2: GRPO asks the group
#
# Now the formula from the top: the mean of the group is the baseline, its std the unit.
#
# | | one answer and a critic | a group |
# |---|---|---|
# | how the advantage comes about | TD errors, summed by GAE | reward minus the mean of the siblings, in stds |
# | what it costs | a second network, trained and held in memory | $G$ answers to every question |
# | what it cannot see | its own errors | which step was the good one; anything, if all siblings earn the same |
#
# **Guess**: four answers earn 2, 2, 2, 1. Whose advantage is larger in size, that of the three good answers or
# that of the one bad answer?

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
# The exception gets the largest advantage: -1.7321 for the one bad answer, .5774 for each of the three good
# ones. The sum is 0, as it always is.
#
# `torch.std` divides by $G - 1$ unless told otherwise, and then 1, 0, 0, 1 gives $\pm .866$ instead of $\pm
# 1$. Nobody is wrong here, but a whole course must choose; we divide by $G$.
#
# The last lines show that no advantage exceeds $\sqrt{G-1}$: 1 in a group of two, 2.6458 in one of eight.

# %% [markdown]
# ### A trap: numbers that are equal and yet are not
#
# Six answers, all with the reward 0.9. Nobody is better than anybody: the advantages are 0, surely?
#
# The mean is computed in float32, and comes out a hair off 0.9. The differences are that hair, the std is about
# that hair, and a hair over a hair is not small. **Guess** the worst that can come out below.

# %% show float_trap
r = torch.full((6,), 0.9)
centred, std = r - r.mean(), r.std(unbiased=False)
print(f"reward - mean = {centred[0]:.1e}, std = {std:.1e}")
print(f"clamped at 1e-6:  {(centred / std.clamp_min(1e-6))[0]:.2f}")
print(f"std + 1e-8:       {(centred / (std + 1e-8))[0]:.2f}")

# %% [markdown]
# -0.06 with the clamp of this course (see the card below), which is bad, and -0.86 with an eps of 1e-8: a full-grown advantage made of rounding.
# (Dividing by 0 is not the danger: 0/eps is 0. The residue is what bites.)
#
# There is more than one way out: compute where a sum of equal float32 numbers is exact, or look whether
# anything differs before you divide. You will choose yours now.

# %% [markdown]
# ### Conventions of this course
#
# Implementations of GRPO differ in small things that change numbers. This card says what we do; later notebooks
# add their rows. None of these choices is *the* truth; mixing two of them in one program is a bug.
#
# | what | this course | elsewhere |
# |---|---|---|
# | std in a group | population: divide by $G$ (`unbiased=False`) | sample, $G-1$: TRL, verl, CS336, tiny-grpo. Population: GRPO-Zero, minimind, TorchCode |
# | dividing by the std | `std.clamp_min(eps)`, eps = 1e-6 | TRL: std + 1e-4. verl: std + 1e-6. GRPO paper: no eps |
# | zero-variance group: all rewards equal, here a **dead group**; or a group of one | advantages 0: it teaches nothing | TRL refuses groups of one in training; verl keeps their raw reward |
# | types of rewards | any real number type in, floats out; the rewards that came in stay as they are | |

# %% [markdown]
# ### Exercise: `group_advantages` (8 points, 25 minutes, ●●○)
#
# A batch holds the answers to many questions, perhaps shuffled. So each answer carries the id of its group.
#
# | in | shape | meaning |
# |---|---|---|
# | `rewards` | `[N]`, any real number type | one reward for each answer |
# | `group_ids` | `[N]`, integers | answers with equal ids answer the same question |
# | `eps` | float | the smallest std to divide by: a smaller one counts as `eps` |
#
# Returns a tensor of `[N]` floats: every answer measured against its own group, in the order in which they came.
#
# One worked number: rewards `[2, 1, 2, 2, 0, 1]` with ids `[5, -1, 5, 5, -1, 5]` make two groups, 2, 2, 2, 1
# and 1, 0, so the advantages are `[.5774, 1, .5774, .5774, -1, -1.7321]`.
#
# First the groups:
#
# - Divide by the std of the group itself, with $G$, not $G - 1$.
# - Ids are labels. They may be negative or as large as int64 allows ($10^{15}$ and $10^{15} + 1$ are two
#   groups), unsorted and mixed; groups may differ in size.
# - A dead group gets 0, and so does a group of one.
# - A loop over the groups is fine here. Notebook 2 will ask for speed.
#
# Then the numbers:
#
# - Six rewards of 0.9 in float32 are equal, too: advantages below 1e-5. (A check of its own, worth one point;
#   elsewhere equal rewards are 0, .5 or 1, whose means are exact.)
# - Small is not equal: rewards of 0 and .001 get the advantages of 0 and 1. No threshold; how small is too small
#   is said by `eps` alone. Nor is anything cut off: one success among 442 answers gets 21.
# - A high level (all rewards near 1000) changes nothing: only distances matter.
# - Integers (int32, int64) and float64 come in as well as float32, and no digit of a float64 is dropped before
#   the mean is off. Floats come out; `rewards` and `group_ids` stay as they are.
# - New tensors lie where the rewards do (`device=rewards.device`). On a CPU you will not notice; in notebook 4, on a GPU, it decides.
#
# <details data-checks="group_zero_mean group_ids_are_labels group_nothing_to_learn"><summary>A hint: the groups</summary>
#
# `torch.unique(group_ids, return_inverse=True, return_counts=True)` renames any labels to 0, 1, 2, ... and
# counts them. With such names `index_add_` sums each group in one call, and indexing by the names hands each
# answer its group's result. Or: for each distinct id, a mask `group_ids == id` picks the group, and you can
# read and write through it.
#
# </details>
#
# <details data-checks="group_measured_in_stds group_scale_and_level"><summary>A hint: the std</summary>
#
# `torch.std` divides by G - 1 unless told otherwise. By hand: the distances from the group's mean first, then the mean of
# their squares, then the root. (Squares of rewards near 1000 have no digits left for the distances.)
#
# </details>
#
# <details data-checks="group_whole_number_rewards"><summary>A hint: the number types</summary>
#
# In which type do you compute, and of which type is the tensor into which you write? `zeros_like(rewards)` copies the
# type of the rewards. And a float32 has about seven digits: what does it leave of a float64 like 1000.00009?
#
# </details>
#
# <details data-checks="group_nothing_to_learn group_ties_in_float32"><summary>A hint: the ties</summary>
#
# A float64 has many more bits than a float32. What does the sum of six equal float32 numbers look like in it?
# Or ask the group first: are its largest and its smallest reward the same?
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
ids = torch.tensor([2, -3, 2, -3, 2, 9, 4, 4] + [-1] * 442)  # group 9 is a single answer, group 4 two equal ones
rewards = torch.tensor([1.0, 0.0, 0.0, 2.0, 3.0, 0.5, 1.0, 1.0, 1.0] + [0.0] * 441)  # group -1: one success among 442
got = group_advantages(rewards.clone(), ids.clone())
assert is_vector(got, 450), f"expected floats of shape [450], one for each answer; you returned {what_is(got)}"
for g, varied in ((2, True), (-3, True), (-1, True), (9, False), (4, False)):
    mine = got[ids == g]
    assert abs(mine.mean().item()) < 1e-5, (
        f"group {g} has the rewards {shown(rewards[ids == g])}; its advantages {shown(mine)} average "
        f"{mine.mean().item():.3f}, not 0. Is each answer compared with its own group, and is nothing lost of one "
        "that stands out?"
    )
    assert varied == bool(mine.max() - mine.min() > 0.5), (
        f"group {g} has the rewards {shown(rewards[ids == g])} and got the advantages {shown(mine)}: they differ "
        "exactly where the rewards do"
    )
### BEGIN HIDDEN TESTS
import random

draw = random.Random(SEED + 21)
labels = [0, 3, -3, 7, 7 + 2**60, 10**15, 10**15 + 1, -(2**62), 2**62]
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
            for value in earned[which == label].unique():
                alike = mine[earned[which == label] == value]
                assert alike.max() - alike.min() < 1e-4, "equal rewards in a group, unequal advantages"
### END HIDDEN TESTS

# %% check group_measured_in_stds points=1
# Each answer is measured in standard deviations of its own group.
ids = torch.tensor([4, 9, 9, 4, 4, 9, 4, 9])
rewards = torch.tensor([2.0, 3.0, 0.0, 1.0, 2.0, 0.0, 2.0, 3.0])
expected = [0.5774, 1.0, -1.0, -1.7321, 0.5774, -1.0, 0.5774, 1.0]  # 2, 1, 2, 2 in group 4; 3, 0, 0, 3 in group 9
answer = group_advantages(rewards.clone(), ids.clone())
tiny = group_advantages(torch.tensor([0.0, 2**-24]), torch.tensor([6, 6]), eps=1e-12)
huge = group_advantages(torch.tensor([0.0, 1.0]), torch.tensor([6, 6]), eps=8.0)
got = answer, tiny, huge
assert is_vector(answer, 8), f"expected floats of shape [8], one for each answer; you returned {what_is(answer)}"
wrong = groups_that_differ(answer, expected, rewards, ids)
assert not wrong, (
    f"Two groups, mixed.\n{wrong}\n"
    "Whose mean and whose std did each answer meet, and what does the std divide by?"
)
for mine, size, words in ((tiny, 1.0, "0 and 2^-24 with eps 1e-12"), (huge, 0.0625, "0 and 1 with eps 8")):
    assert near(mine.double(), torch.tensor([-size, size]).double(), 0.01), (
        f"rewards {words}: expected {shown([-size, size])}, you have {shown(mine)}. Who decides which std is too small?"
    )
### BEGIN HIDDEN TESTS
import random
from statistics import fmean, pstdev  # plain Python with exact sums: another way to the same numbers

draw = random.Random(SEED + 22)
for _ in range(20):
    groups = [[draw.choice([0, 0.5, 1, 1.5]) for _ in range(draw.randint(1, 7))] + [0, 1] for _ in range(5)]
    rows = [(3 * g - 7, float(v)) for g, values in enumerate(groups) for v in values]
    draw.shuffle(rows)
    of_group = {g: [v for h, v in rows if h == g] for g, _ in rows}
    by_hand = torch.tensor([(v - fmean(of_group[g])) / pstdev(of_group[g]) for g, v in rows], dtype=torch.float64)
    answer = group_advantages(torch.tensor([v for _, v in rows]), torch.tensor([g for g, _ in rows]))
    assert near(answer.double(), by_hand, 3e-5)
    spread, eps = draw.uniform(0.5, 2), 10 ** draw.uniform(1.5, 3)
    answer = group_advantages(torch.tensor([0.0, spread]), torch.tensor([-8, -8]), eps=eps)
    assert near(answer.double() * eps / spread, torch.tensor([-0.5, 0.5]).double(), 0.02)  # an eps that is added passes
    spread = 2 ** -draw.randint(20, 23)
    answer = group_advantages(torch.tensor([0.0, spread]), torch.tensor([-8, -8]), eps=spread / 1000)
    assert near(answer.double(), torch.tensor([-1.0, 1.0]).double(), 0.01)
rare = torch.tensor([0.0] * 121 + [1.0])  # one success among 122 answers: far out, and nobody cuts it off
by_hand = torch.tensor([-1 / 11] * 121 + [11.0])
assert near(group_advantages(rare, torch.full((122,), -8)).float(), by_hand, 1e-3)
### END HIDDEN TESTS

# %% check group_scale_and_level points=1
# Neither the scale of the rewards nor their level matters, but their distances do.
ids = torch.tensor([0, 1, 2, 1, 0, 2, 1])
rewards = torch.tensor([0.0, 1000.3, 1000.0, 1001.1, 2**-14, 1000 + 2**-7, 1004.2])
expected = [-1.0, -0.9315, -1.0, -0.4558, 1.0, 1.0, 1.3873]  # two answers that differ are -1 and 1, however near
got = group_advantages(rewards.clone(), ids.clone())
assert is_vector(got, 7), f"expected floats of shape [7], one for each answer; you returned {what_is(got)}"
wrong = groups_that_differ(got, expected, rewards, ids, tolerance=0.05)
assert not wrong, (
    f"Three groups, mixed; the smallest reward above 0 is 2^-14, .00006.\n{wrong}\n"
    "What happens in your code to a spread that is small, or small against the level?"
)
### BEGIN HIDDEN TESTS
import random
from statistics import fmean, pstdev

draw = random.Random(SEED + 27)
for trial in range(20):
    # (factor, level, tolerance): the tolerance lets float32 at its level, or an eps of 1e-6 that is added, pass
    factor, level, tolerance = [(1, 100, 1e-4), (-1, -100, 1e-4), (1e-3, 0, 1e-2), (64, 0, 3e-5)][trial % 4]
    groups = [[draw.choice([0, 0.5, 1, 1.5]) for _ in range(draw.randint(1, 7))] + [0, 1] for _ in range(5)]
    rows = [(2 * g - 5, factor * v + level) for g, values in enumerate(groups) for v in values]
    draw.shuffle(rows)
    of_group = {g: [v for h, v in rows if h == g] for g, _ in rows}
    by_hand = torch.tensor([(v - fmean(of_group[g])) / pstdev(of_group[g]) for g, v in rows], dtype=torch.float64)
    answer = group_advantages(torch.tensor([float(v) for _, v in rows]), torch.tensor([g for g, _ in rows]))
    assert near(answer.double(), by_hand, tolerance)
pairs = torch.tensor([0.0, 1000.0, 2**-14, 1000 + 2**-7])  # exact in float32; a pair is -1 and 1 at any scale and level
answer = group_advantages(pairs, torch.tensor([6, 2, 6, 2])).double()
assert near(answer, torch.tensor([-1.0, -1.0, 1.0, 1.0]).double(), 0.05)
### END HIDDEN TESTS

# %% check group_ids_are_labels points=1
# Ids are labels: renaming the groups and shuffling the answers changes nobody's advantage.
of_group = [0, 1, 2, 3, 1, 4, 0, 5, 2, 1, 3, 4, 5]  # six groups, mixed
rewards = torch.tensor([1.0, 2.0, 0.0, 4.0, 4.0, 5.0, 0.0, 9.0, 2.0, 0.0, 6.0, 3.0, 8.0])
expected = [1.0, 0.0, -1.0, -1.0, 1.2247, 1.0, -1.0, 1.0, 1.0, -1.2247, 1.0, -1.0, -1.0]
for labels in ([3, -3, 8, 0, 12, 1], [3, -3, 2**60 + 3, 10**15, 2**60 + 4, 10**15 + 1]):
    ids = torch.tensor([labels[g] for g in of_group])
    given = rewards.clone(), ids.clone()
    answer = group_advantages(*given)
    changed = given[0].tolist() != rewards.tolist(), given[1].tolist() != ids.tolist()
    got = answer, changed
    assert is_vector(answer, 13), f"expected floats of shape [13], one for each answer; you returned {what_is(answer)}"
    wrong = groups_that_differ(answer, expected, rewards, ids)
    assert not wrong, (
        f"Six groups, mixed.\n{wrong}\n"
        "Are these six groups in your code, and does each answer get its own number back?"
    )
    assert not changed[0], f"the rewards that came in were changed, from {shown(rewards)} to {shown(given[0])}"
    assert not changed[1], f"the ids that came in were changed, from {shown(ids)} to {shown(given[1])}"
### BEGIN HIDDEN TESTS
import random
from statistics import fmean, pstdev

draw = random.Random(SEED + 23)
labels = [0, 1, 3, -3, 7, 7 + 2**60, 7 - 2**60, 10**15, 10**15 + 1, -(10**15), 2**62, -(2**62), 2**62 + 1]
for _ in range(20):
    names = draw.sample(labels, 4) + [7, 7 + 2**60] * draw.randint(0, 1)
    sizes = {name: draw.randint(2, 6) for name in names}
    rows = [(name, [0, 1, *draw.choices([0, 0.5, 1], k=4)][k]) for name, size in sizes.items() for k in range(size)]
    draw.shuffle(rows)
    of_group = {g: [v for h, v in rows if h == g] for g, _ in rows}
    by_hand = torch.tensor([(v - fmean(of_group[g])) / pstdev(of_group[g]) for g, v in rows], dtype=torch.float64)
    which = torch.tensor([g for g, _ in rows])
    answer = group_advantages(torch.tensor([float(v) for _, v in rows]), which)
    assert near(answer.double(), by_hand, 3e-5)
    assert which.tolist() == [g for g, _ in rows], "the ids that came in were changed"
### END HIDDEN TESTS

# %% check group_nothing_to_learn points=1
# A group of one and a group of equals learn nothing, and do not disturb the others.
ids = torch.tensor([5, 8, 2, 8, 8, 2, 8, 2])
rewards = torch.tensor([3.0, 0.5, 3.0, 0.5, 0.5, 1.0, 0.5, 1.0])
expected = [0.0, 0.0, 1.4142, 0.0, 0.0, -0.7071, 0.0, -0.7071]
got = group_advantages(rewards.clone(), ids.clone())
assert is_vector(got, 8), f"expected floats of shape [8], one for each answer; you returned {what_is(got)}"
wrong = groups_that_differ(got, expected, rewards, ids, tolerance=1e-4)
assert not wrong, f"Three groups, mixed.\n{wrong}\nWho has anybody to be compared with?"
### BEGIN HIDDEN TESTS
import random

draw = random.Random(SEED + 24)
for _ in range(20):
    rows = [(-5, draw.choice([1.0, 2.0, -3.0]), 0.0), (12, draw.choice([-1.0, 0.5, 4.0]), 0.0)]  # id, reward, advantage
    for g in (1, 2):
        rows += [(g, draw.choice([0.5, 1.0, -0.5]), 0.0)] * draw.choice([2, 4, 8])
    low, wide, pairs = draw.choice([0.0, 1.0, -2.0]), draw.choice([1.0, 2.0]), draw.randint(1, 3)
    rows += [(40, low, -(0.5**0.5)), (40, low, -(0.5**0.5)), (40, low + wide, 2**0.5)] * pairs  # two below for one above
    draw.shuffle(rows)
    answer = group_advantages(torch.tensor([r for _, r, _ in rows]), torch.tensor([g for g, _, _ in rows]))
    assert near(answer.double(), torch.tensor([a for _, _, a in rows]).double(), 1e-5)
### END HIDDEN TESTS

# %% check group_whole_number_rewards points=1
# Rewards of any number type give floats, and the rewards that came in stay as they are.
rewards, ids = torch.tensor([3, 1, 3, 0, 3, 1]), torch.tensor([0, 6, 0, 6, 0, 0])
doubles = torch.tensor([1000.0, 1000.00009, 1000.00022], dtype=torch.float64)
expected, expected_of_doubles = [0.5774, 1.0, 0.5774, -1.0, 0.5774, -1.7321], [-1.1443, -0.1477, 1.292]
answer, of_doubles = group_advantages(rewards, ids), group_advantages(doubles, torch.tensor([4, 4, 4]))
changed = rewards.tolist() != [3, 1, 3, 0, 3, 1], doubles.tolist() != [1000.0, 1000.00009, 1000.00022]
got = answer, of_doubles, changed
assert is_vector(answer, 6), f"expected a tensor of floats of shape [6], you returned {what_is(answer)}"
wrong = groups_that_differ(answer, expected, torch.tensor([3, 1, 3, 0, 3, 1]), ids)
assert not wrong, (
    f"Integer rewards, two groups.\n{wrong}\n"
    "If the checks above pass: which number type does the tensor have into which you write?"
)
assert not any(changed), f"the rewards that came in were changed, to {shown((rewards, doubles)[changed[1]])}"
assert all(abs(a - e) < 0.05 for a, e in zip(of_doubles.tolist(), expected_of_doubles)), (
    f"rewards 1000, 1000.00009, 1000.00022 in float64: expected {shown(expected_of_doubles)}, you have {shown(of_doubles)}. "
    "How many digits has a float32?"
)
### BEGIN HIDDEN TESTS
import random
from statistics import fmean, pstdev

draw = random.Random(SEED + 26)
for dtype in (torch.int64, torch.int32, torch.float64, torch.float32) * 5:
    rows = [(g, draw.randint(-2, 3)) for g in (1, 1, 1, 5, 5, 5, 5, 9)] + [(1, 4), (5, 4), (1, -3), (5, -3)]
    draw.shuffle(rows)
    of_group = {g: [v for h, v in rows if h == g] for g, _ in rows}
    by_hand = [(v - fmean(of_group[g])) / max(pstdev(of_group[g]), 1e-6) for g, v in rows]
    given = torch.tensor([v for _, v in rows], dtype=dtype)
    answer = group_advantages(given, torch.tensor([g for g, _ in rows]))
    assert answer.is_floating_point()
    assert near(answer.double(), torch.tensor(by_hand, dtype=torch.float64), 3e-5)
    assert given.dtype == dtype and given.tolist() == [v for _, v in rows], "the rewards that came in were changed"
### END HIDDEN TESTS

# %% check group_ties_in_float32 points=1
# Equal rewards are equal in float32, too: six times 0.9 gives 0.
expected = [0.0] * 3 + [1.0] + [0.0] * 3 + [-1.0]
rewards, ids = torch.tensor([0.9, 0.9, 0.9, 1.0, 0.9, 0.9, 0.9, 0.0]), torch.tensor([3, 3, 3, 1, 3, 3, 3, 1])
got = group_advantages(rewards.clone(), ids.clone())
assert is_vector(got, 8), f"expected floats of shape [8], one for each answer; you returned {what_is(got)}"
wrong = groups_that_differ(got, expected, rewards, ids, tolerance=1e-5)
assert not wrong, (
    f"Two groups.\n{wrong}\n"
    "What is the mean of six times .9 in float32? See the trap above."
)
### BEGIN HIDDEN TESTS
import random

draw = random.Random(SEED + 25)
for _ in range(20):
    rows = []
    for g in range(4):
        equal = draw.choice([0.1, 0.2, 0.3, 0.6, 0.7, 0.9, -0.9, -0.3, round(draw.uniform(0.05, 1), 3)])
        rows += [(g, equal, 0.0)] * draw.randint(3, 12)
    rows += [(9, 0.0, -1.0), (9, 1.0, 1.0)] * draw.randint(1, 3)
    draw.shuffle(rows)
    answer = group_advantages(torch.tensor([r for _, r, _ in rows]), torch.tensor([g for g, _, _ in rows]))
    assert near(answer.double(), torch.tensor([a for _, _, a in rows]).double(), 1e-5)
### END HIDDEN TESTS

# %% [markdown]
# ### What dividing by the std favours
#
# Dividing by the std makes rewards of any scale comparable. It also decides which *questions* count most.
#
# Sixteen answers, $k$ of them right. **Predict**: for which $k$ is the distance between the advantages of a right
# and a wrong answer largest? And which group pushes harder in total, by the sum of its $|A|$: 1 of 16 right or 8
# of 16?

# %% show difficulty_bias
right_ones, in_total = np.arange(1, 16), {"divided by the std": [], "not divided": []}
for k in right_ones:
    r = torch.zeros(16)
    r[:k] = 1
    a = group_advantages(r, torch.zeros(16, dtype=torch.int64))
    totals = a.abs().sum().item(), (r - r.mean()).abs().sum().item()
    for name, total in zip(in_total, totals):
        in_total[name].append(total)
    if k in (1, 8):
        print(f"{k} of 16 right: right minus wrong {a[0] - a[-1]:.2f}, sum of |A| {totals[0]:.2f}; not divided 1.00 and {totals[1]:.2f}")
fig, ax = plt.subplots()
for side, (name, values), hatch in zip((-0.2, 0.2), in_total.items(), ("", "//")):
    shares = np.array(values) / max(values)
    print(f"{name:18}: 1 of 16 right weighs {shares[0]:.2f} of 8 of 16")
    ax.bar(right_ones + side, shares, 0.4, label=name, hatch=hatch, edgecolor="white")
ax.set(xlabel="right answers among 16", xticks=right_ones, ylabel="sum of |A| of the group,\n1 = that of 8 right", ylim=(0, 1.05))
ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2, frameon=False)
plt.show()

# %% [markdown]
# Between a right and a wrong *answer* the distance is largest at the ends: 4.13 for 1 of 16 right, 2.00 for
# 8 of 16. But the *group* at the end is still the lighter one: its $|A|$ add up to 7.75 against 16.00.
#
# See how the division lifts the ends, from .23 to .48 of the middle: very hard and very easy questions count more
# than they would without it. This is the **difficulty bias** of GRPO. Dr. GRPO leaves the division out for that
# reason; others want just this push for hard questions. The course keeps it, as the GRPO paper does.

# %% [markdown]
# ### Rewards that are not 0 or 1 (optional)
#
# A rule that pays by the length of a proof, or a reward model on a bad day, now and then returns a number like
# 30 among numbers below 1. The mean follows it, and so does the std.
#
# **Predict**: what happens to the *differences* between the seven ordinary answers?

# %% show outlier
r = torch.tensor([0.0, 0.2, 0.4, 0.5, 0.6, 0.8, 1.0, 30.0])
one_group = torch.zeros(8, dtype=torch.int64)
treatments = {"as they are": r, "clipped to [0, 1]": r.clamp(0, 1), "ranks": r.argsort().argsort().float()}
advantages = {name: group_advantages(rewards, one_group) for name, rewards in treatments.items()}
fig, ax = plt.subplots()
for k, ((name, a), hatch) in enumerate(zip(advantages.items(), ("", "//", ".."))):
    print(f"{name:18}", [round(x, 2) for x in a.tolist()], f"worst to best of the seven: {a[6] - a[0]:.2f}")
    ax.bar(np.arange(8) + 0.27 * (k - 1), a, 0.27, label=name, hatch=hatch, edgecolor="white")
ax.axhline(0, color="black", linewidth=0.8)
ax.set(xlabel="reward of the answer", ylabel="advantage (stds)", xticks=range(8), xticklabels=[f"{x:g}" for x in r.tolist()])
ax.legend(loc="upper left")
plt.show()

# %% [markdown]
# See that the plain bars of the ordinary answers are all but equal: from the worst to the best they span 0.10, and the
# best ordinary answer (1.0) is *punished*. One number has eaten the signal of seven. Clipping brings the
# differences back; ranks bring them back whatever happens, and throw away how large they were.
#
# The opposite: a reward model never gives the same number twice. Six equally good answers come out as .7 plus or
# minus a ten-thousandth, and the division blows that up to full size. A natural idea: call the group dead when
# the std is below .001. **Predict** what that threshold does to each of the two groups below.

# %% show threshold
ids = torch.zeros(6, dtype=torch.int64)
groups = {
    "noise of a reward model": torch.tensor([0.7001, 0.6999, 0.7000, 0.7002, 0.6998, 0.7000]),
    "a small, genuine bonus": torch.tensor([1.0015, 1.0015, 1.0, 1.0, 1.0, 1.0]),  # all right, two of them faster
}
for name, r in groups.items():
    std = r.double().std(unbiased=False).item()
    a = group_advantages(r, ids)
    kept = a if std >= 1e-3 else torch.zeros(6)
    print(f"{name}: std {std:.5f}\n   no threshold:   {shown(a)}\n   threshold .001: {shown(kept)}")

# %% [markdown]
# Without it, answers that differ by nothing but noise are pushed up and down by up to 1.55. With it, the small bonus
# for speed is lost too, which is a fact and not noise. The std cannot tell the two apart; you can, if you know where
# your rewards come from. Rules have no noise, so this course uses no threshold.

# %% [markdown]
# ### Other baselines and units (optional)
#
# - **Leave-one-out** (RLOO): compare an answer with the mean of the *others*. It is exactly $G/(G-1)$ times the
#   centred reward, so it takes back the shrinking of the small print.
# - **The std of several groups**: with $G = 2$ a group's own std says nothing; the two advantages are $\pm 1$
#   whether the rewards differ by little or by much. Centre in each group, but take the std over all of them.
# - **One advantage per component**: with rewards in different units (correct or not; brevity in words), the unit
#   with the larger numbers wins the sum. Normalise each component in its group, then weight.
#
# **Predict** for the last block: a right answer takes 40 words, a wrong one 10. Which one wins when the raw numbers
# are added?

# %% show other_baselines
r = torch.tensor([1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0])
others = (r.sum() - r) / 7
print("leave-one-out:        ", [round(x, 4) for x in (r - others)[:2].tolist()])
print("8/7 times r - mean:   ", [round(x, 4) for x in (8 / 7 * (r - r.mean()))[:2].tolist()])

pairs = torch.tensor([[0.9, 1.0], [0.0, 1.0], [0.4, 0.6], [0.3, 0.7]])  # four questions, two answers each
own = group_advantages(pairs.flatten(), torch.arange(4).repeat_interleave(2))
centred = pairs - pairs.mean(1, keepdim=True)
print("\npairs, own std:       ", [round(x, 2) for x in own.tolist()])
print("pairs, pooled std:    ", [round(x, 2) for x in (centred / centred.std(unbiased=False)).flatten().tolist()])

correct = torch.tensor([1.0, 0.0, 1.0, 0.0])
brevity = torch.tensor([-40.0, -10.0, -35.0, -15.0])  # minus the words used
one_group = torch.zeros(4, dtype=torch.int64)
print("\ncorrect:              ", correct.tolist())
print("sum, then advantage:  ", [round(x, 2) for x in group_advantages(correct + brevity, one_group).tolist()])
by_part = 1.0 * group_advantages(correct, one_group) + 0.3 * group_advantages(brevity, one_group)
print("advantages, then sum: ", [round(x, 2) for x in by_part.tolist()])

# %% [markdown]
# In the last block the sum praises the two wrong answers, because they are short: the unit "words" has won.
# Component by component, the right answers win, and among them the shorter one.

# %% [markdown]
# ## Part 3: when the group has nothing to say
#
# If all answers of a group are wrong, or all are right, every advantage is 0: a dead group. It costs as much to
# sample as any other, and teaches nothing.
#
# How often does that happen? Let each answer be right with probability $p$, independently. The number of
# right answers in a group of $G$ then follows the binomial distribution below. **Predict**: at $p = .3$, is a
# group of 4 dead more or less often than one time in ten?

# %% show right_answers_in_a_group
def draw_group(ax, p, size):
    chance = [math.comb(size, i) * p**i * (1 - p) ** (size - i) for i in range(size + 1)]
    ax.bar(range(size + 1), chance, color=[ORANGE, *[BLUE] * (size - 1), ORANGE], hatch=["//", *[""] * (size - 1), "//"], edgecolor="white")
    ax.set(title=f"p = {p:g}, G = {size}", xlabel="right answers in the group", ylim=(0, max(0.6, *chance)))
    return 1 - sum(chance[1:-1])


fig, axes = plt.subplots(1, 3, figsize=(9, 2.8), sharey=True)
for ax, (p, size) in zip(axes, [(0.3, 2), (0.3, 4), (0.1, 8)]):
    print(f"p = {p}, G = {size}: {draw_group(ax, p, size):.2f} of the groups are dead")
    ax.set_xticks(range(size + 1))
axes[0].set_ylabel("probability")
plt.show()


def play(p=0.3, G=4):
    _, ax = plt.subplots(figsize=(7, 2.6))
    dead = draw_group(ax, p, G)
    ax.set(ylabel="probability", title=f"{dead:.0%} of the groups are dead")
    plt.show()


try:
    import ipywidgets

    ipywidgets.interact(play, p=(0.0, 1.0, 0.02), G=(2, 32))
except ImportError:
    pass  # no sliders

# %% [markdown]
# See the two hatched bars at the ends: the dead groups, all wrong on the left and all right on the right. (In the
# second and the third picture the right one is too low to be seen: nearly all dead groups are wrong ones.) Between
# them are the groups that teach. At $p = .3$ a group of 4 is dead one time in four. Where `ipywidgets` is installed
# there are sliders for $p$ and $G$; watch when the hatched bars vanish.

# %% [markdown]
# ### Exercise: `dead_group_probability` (3 points, 5 minutes, ●○○)
#
# | in | type | meaning |
# |---|---|---|
# | `p` | float, 0 to 1 | the probability that an answer is right |
# | `group_size` | int, 1 or more | $G$ |
#
# Returns a float: the probability that all $G$ answers earn the same reward, where a right answer earns 1 and
# a wrong one 0.
#
# One worked number: `dead_group_probability(0.3, 2)` is .58.
#
# - $p = 0$ and $p = 1$ are allowed, and so is a group of one. Think what they must give.
# - Exact, please: no simulation and no rounding.
#
# <details><summary>A hint</summary>
#
# Two different things can happen to make a group dead, and they cannot both happen. What is the probability
# of each?
#
# </details>

# %% solution dead_group_probability
def dead_group_probability(p, group_size):
    """Probability that a group's answers are all right or all wrong, each right with probability p."""
    ### BEGIN SOLUTION
    return p**group_size + (1 - p) ** group_size
    ### END SOLUTION

# %% check dead_all_outcomes points=1
# The probability is that of the outcomes in which all answers are alike.
got = dead_group_probability(0.3, 4), dead_group_probability(0.5, 12)
assert abs(number(got[0]) - 0.2482) < 1e-6, (
    f"p = .3, G = 4: expected .2482, you have {shown(got[0])}. "
    "Which of the 16 possible outcomes leave nobody to compare with, and is their probability worked out, not estimated?"
)
assert abs(number(got[1]) - 2 / 4096) < 1e-9, (
    f"p = .5, G = 12: expected 2/4096 = .00048828125, you have {number(got[1]):.11f}. Is anything rounded or left to chance?"
)
for x in got:
    assert is_number(x), f"a float was expected, what came is {what_is(x)}"
### BEGIN HIDDEN TESTS
import itertools
import random

draw = random.Random(SEED + 31)
for _ in range(12):
    p, size = draw.uniform(0.05, 0.95), draw.randint(2, 7)
    total = 0.0
    for outcome in itertools.product([0, 1], repeat=size):  # every outcome, one by one
        if len(set(outcome)) == 1:
            total += math.prod(p if right else 1 - p for right in outcome)
    assert abs(number(dead_group_probability(p, size)) - total) < 1e-6
### END HIDDEN TESTS

# %% check dead_easy_as_hard points=1
# A question that is too easy is as dead as one that is too hard.
got = (dead_group_probability(0.1, 8), dead_group_probability(0.9, 8))
assert all(abs(number(x) - 0.43046722) < 1e-6 for x in got), (
    f"G = 8: p = .1 and p = .9 are dead equally often, .430467; you have {', '.join(f'{number(x):.6f}' for x in got)}. "
    "Are both kinds of dead groups in, and is nothing rounded?"
)
### BEGIN HIDDEN TESTS
import random

draw = random.Random(SEED + 32)
for _ in range(12):
    p, size = draw.uniform(0.02, 0.5), draw.randint(2, 9)
    alive = sum(math.comb(size, k) * p**k * (1 - p) ** (size - k) for k in range(1, size))
    for q in (p, 1 - p):
        assert abs(number(dead_group_probability(q, size)) - (1 - alive)) < 1e-6
### END HIDDEN TESTS

# %% check dead_for_certain points=1
# A group of one is always dead, and so is a question that never or always succeeds.
got = tuple(dead_group_probability(p, size) for p, size in [(0.4, 1), (0.0, 5), (1.0, 5), (0.5, 2)])
assert all(abs(number(x) - e) < 1e-6 for x, e in zip(got, (1, 1, 1, 0.5))), (
    f"(p, G) = (.4, 1), (0, 5), (1, 5) are dead for certain and (.5, 2) half of the time: "
    f"expected [1, 1, 1, .5], you have {shown(got)}"
)
### BEGIN HIDDEN TESTS
import random

draw = random.Random(SEED + 33)
for _ in range(12):
    p, size = draw.uniform(0.05, 0.95), draw.randint(1, 10)
    assert abs(number(dead_group_probability(p, 1)) - 1) < 1e-6
    assert abs(number(dead_group_probability(draw.choice([0.0, 1.0]), size)) - 1) < 1e-6
    for few in (2, 3):  # of two or three answers, 1 - G p (1 - p)
        assert abs(number(dead_group_probability(p, few)) - (1 - few * p * (1 - p))) < 1e-6
### END HIDDEN TESTS

# %% [markdown]
# ### The map of dead groups
#
# Every question of a training set has its $p$, and you choose $G$. **Predict**: for which $p$ does doubling
# $G$ from 8 to 16 help most?

# %% show map_of_dead_groups
for p, size in [(0.3, 2), (0.3, 4), (0.3, 8), (0.1, 8), (0.5, 8)]:
    print(f"p = {p:<4} G = {size}: {dead_group_probability(p, size):.4f} of the groups are dead")
ps = [k / 200 for k in range(1, 200)]
dead = {size: [dead_group_probability(p, size) for p in ps] for size in (2, 4, 8, 16, 32)}
gain, best = max((eight - sixteen, p) for eight, sixteen, p in zip(dead[8], dead[16], ps) if p < 0.5)
print(f"from 8 to 16 helps most at p = {best:.3f} (and {1 - best:.3f}): {dead_group_probability(best, 8):.2f} -> {dead_group_probability(best, 16):.2f}")
fig, ax = plt.subplots(figsize=(7, 3.6))
for (size, curve), style in zip(dead.items(), ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)))):
    ax.plot(ps, curve, linestyle=style, label=f"G = {size}")
ax.set(xlabel="p, the probability that an answer is right", ylabel="probability of a dead group", xlim=(0, 1), ylim=(0, 1))
ax.legend(loc="upper center", frameon=False)
plt.show()

# %% [markdown]
# See a valley for each $G$: in the middle groups teach, left and right they are dead. A larger $G$ widens the
# valley, at the price of more samples for every question. For $p$ near .5 little is left to gain beyond 8. It is
# on the slopes, $p$ around .1 or .9, that a larger group earns its cost: at $p = .1$ and $G = 8$, 43 % of what you
# sample is thrown away.

# %% [markdown]
# ### Exercise: `smallest_group_size` (2 points, 7 minutes, ●○○)
#
# Now read the picture the other way round: you know $p$, and you want no more than a certain share of dead
# groups.
#
# | in | type | meaning |
# |---|---|---|
# | `p` | float, 0 to 1 | the probability that an answer is right |
# | `target` | float, above 0 and below 1 | the largest share of dead groups that you accept |
#
# Returns an int: the smallest $G$ for which the probability of a dead group is **at most** `target`; `None`
# if no $G$ is large enough.
#
# Worked numbers: `smallest_group_size(0.1, 0.1)` is 22. `smallest_group_size(0.5, 0.25)` is 3, where the
# probability is .25 exactly.
#
# - Any $G$ may come out, not only powers of two.
# - Answers of a few thousand occur. So does `None`: think for which two values of `p`.
# - You may call your `dead_group_probability`.
#
# <details><summary>A hint</summary>
#
# A larger group is never dead more often than a smaller one. So you can try $G = 2, 3, 4, \dots$ and stop at
# the first that will do; only make sure first that there will be one.
#
# </details>

# %% solution smallest_group_size
def smallest_group_size(p, target):
    """Smallest G whose groups are dead with a probability of at most target; None if there is none."""
    ### BEGIN SOLUTION
    if p <= 0 or p >= 1:  # every group is dead, however large
        return None
    size = 2
    while dead_group_probability(p, size) > target:
        size += 1
    return size
    ### END SOLUTION

# %% check size_one_less_is_not_enough points=1
# The group is large enough, and one answer less would not be.
got = tuple(smallest_group_size(p, target) for p, target in [(0.1, 0.1), (0.5, 0.25), (0.6, 0.26)])
assert [number(x) for x in got] == [22, 3, 4], (
    f"(p, target) = (.1, .1), (.5, .25), (.6, .26): expected [22, 3, 4], you have {shown(got)}. "
    "Try your sizes, and one less, in dead_group_probability."
)
got = *got, smallest_group_size(0.5, 0.5)
assert number(got[3]) == 2, f"(p, target) = (.5, .5): the smallest group that can teach is one of 2, you have {shown(got[3])}"
for x in got:
    assert is_number(x, int, np.integer), f"a group size is an int; {shown(x)} is {what_is(x)}"
### BEGIN HIDDEN TESTS
import random

draw = random.Random(SEED + 34)
for _ in range(20):
    p, target = draw.uniform(0.02, 0.98), draw.uniform(0.03, 0.9)
    size = smallest_group_size(p, target)
    assert number(size) == int(number(size)) and 2 <= size <= 1000
    dead = [math.prod([p] * n) + math.prod([1 - p] * n) for n in (int(size) - 1, int(size))]
    assert dead[1] <= target < dead[0] or min(abs(d - target) for d in dead) < 1e-9
assert [number(smallest_group_size(0.5, t)) for t in (0.5, 0.125, 0.03125)] == [2, 4, 6]  # exact: at most the target
assert number(smallest_group_size(0.01, 0.05)) == 299
### END HIDDEN TESTS

# %% check size_no_group_is_enough points=1
# Where every group is dead, no size is returned; where few can teach, a large one is.
got = tuple(smallest_group_size(p, 0.2) for p in (0.0, 1.0, 0.96, 0.004, 0.00047))
assert got[0] is None and got[1] is None and [number(x) for x in got[2:]] == [40, 402, 3424], (
    f"target .2: no G helps at p = 0 and p = 1 (None), 40 does at p = .96, 402 at .004, 3424 at .00047; you have {shown(got)}"
)
### BEGIN HIDDEN TESTS
import random

draw = random.Random(SEED + 35)
for _ in range(6):
    p, target = draw.uniform(0.01, 0.03), draw.uniform(0.05, 0.5)
    size = 2
    while (1 - p) ** size + p**size > target:
        size += 1
    near = min(abs((1 - p) ** n + p**n - target) for n in (size - 1, size)) < 1e-9
    for q in (p, 1 - p):
        assert number(smallest_group_size(q, target)) == size or near
    assert smallest_group_size(0.0, target) is None
    assert smallest_group_size(1.0, target) is None
### END HIDDEN TESTS

# %% [markdown]
# ### Many questions or large groups? (optional)
#
# You can afford $N = G \times B$ answers a step: $B$ questions, $G$ answers each. Rules of thumb circulate:
#
# 1. Start with $G$ of 8 to 16.
# 2. $G$ at least 8, and $B$ at least 4.
# 3. Rather 4 questions x 16 answers than 16 x 4: a wrong baseline is harder to mend than a noisy gradient.
# 4. A $G$ of 64 makes all answers equal.
#
# The next cell splits 64 answers in six ways. It computes the share of dead groups and the mean $|A|$ at $p =
# .1$, and measures the noise of the gradient, with the four answers from the beginning, in four cases: each group
# has its own mean as the baseline; the same, but only one question in four teaches anything; all groups share one
# mean, and the questions are alike; the same, but each question has a level of its own. **Predict** which of the
# rules hold, and where.

# %% show many_or_large
def noise_of_batch(size, pooled=False, level=0.0, teaches=1.0):
    """Noise over signal for 64 answers in groups of `size`; measured on 2,000 batches."""
    shape = 2000, 64 // size
    answers = draw.integers(0, 4, (*shape, size))
    r = np.where(draw.random((*shape, 1)) < teaches, worth[answers], 11.5) + level * draw.standard_normal((*shape, 1))
    centred = r - r.mean((1, 2) if pooled else 2, keepdims=True)
    estimates = (centred[..., None] * (np.eye(4)[answers] - policy)).mean((1, 2))
    return np.sqrt(((estimates - estimates.mean(0)) ** 2).sum(1).mean()) / np.linalg.norm(estimates.mean(0))


p, draw, policy, worth = 0.1, np.random.default_rng(0), np.full(4, 0.25), np.array([10.0, 11.0, 12.0, 13.0])
print("              p = .1           noise / signal, own mean     one mean for all groups")
print(" B x G     dead  mean |A|    all teach  one in four      alike   own levels")
for size in (2, 4, 8, 16, 32, 64):
    chance = [math.comb(size, k) * p**k * (1 - p) ** (size - k) for k in range(size + 1)]
    mean_a = sum(c * 2 * math.sqrt(k * (size - k)) / size for k, c in enumerate(chance))
    cases = {}, {"teaches": 0.25}, {"pooled": True}, {"pooled": True, "level": 3.0}
    own, few, alike, levels = (noise_of_batch(size, **case) for case in cases)
    print(f"{64 // size:2} x {size:2}    {dead_group_probability(p, size):.2f}    {mean_a:.2f}         {own:.2f}        {few:.2f}           {alike:.2f}      {levels:.2f}")
print(f"64 answers at p = .99 are dead groups with probability {dead_group_probability(0.99, 64):.2f}")

# %% [markdown]
# - **Rules 1 and 2** hold where all questions teach: from 2 to 8 answers dead groups fall from .82 to .43 and the
#   noise from .30 to .20, and beyond 16 the noise falls no further. Where few teach, fewer than 4 questions are bad:
#   1.27 and more.
# - **Rule 3** is true where all questions teach: 4 x 16 has fewer dead groups than 16 x 4 (.19 against .66) and less
#   noise (.18 against .23). Where one in four teaches it is untrue (.94 against .63): four questions may miss them
#   all. And a group's mean that is off is noise like any other, and averages out. What does not average out is the
#   error of a *critic* with $\lambda < 1$.
# - **Rule 4** is untrue as it stands: the mean $|A|$ grows with $G$. It is true of a policy that is nearly sure: at
#   $p = .99$ even 64 answers are all alike half of the time (.53). What a $G$ of 64 costs is questions.
#
# The right half answers another question: why not **the mean of several groups** as the baseline? With questions that
# are alike and groups of 2 it is better than the own mean (.18 against .30). Where questions have levels of their own
# it is worse (.60), and so GRPO compares siblings.

# %% [markdown]
# ### A curriculum that nobody wrote (optional)
#
# Take a training set with questions from very easy to very hard, and a model whose skill grows. Each
# question's $p$ grows with it: $p = 1 / (1 + e^{\text{difficulty} - \text{skill}})$.
#
# **Predict**: which questions teach the weak model, which the strong one? And does the share of groups that
# teach rise or fall while the model improves?

# %% show implicit_curriculum
skills, difficulties = np.linspace(-4, 8, 121), [0, 2, 4]
names = ["easy", "medium", "hard"]


def teaching(skill, difficulty, size=8):
    return 1 - dead_group_probability(1 / (1 + math.exp(difficulty - skill)), size)


curves = [[teaching(s, d) for s in skills] for d in difficulties]
fig, ax = plt.subplots()
for curve, name, style in zip(curves, names, ["-", "--", "-."]):
    ax.plot(skills, curve, style, label=f"{name} questions")
ax.plot(skills, np.mean(curves, 0), color="black", linewidth=2.5, label="all together")
ax.set(xlabel="skill of the model (log-odds)", ylabel="groups that teach (share)", ylim=(0, 1.02))
ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=4, frameon=False, fontsize=9)
plt.show()
for skill in (-3, -1, 1, 3, 5, 7):
    right = np.mean([1 / (1 + math.exp(d - skill)) for d in difficulties])
    shares = [teaching(skill, d) for d in difficulties]
    parts = ", ".join(f"{n} {share:.2f}" for n, share in zip(names, shares))
    print(f"skill {skill:2}: {right:4.0%} right; groups that teach: {parts}; all {np.mean(shares):.2f}")

# %% [markdown]
# See the hills move from left to right. For the weak model only the easy questions have groups that teach; then
# those are solved, and the medium and the hard ones take over in turn. Nobody sorted the questions: the dead
# groups did it. This is the **implicit curriculum** of GRPO.
#
# See also the black curve at its left end: a weak model has little to learn from, so a run begins slowly,
# then the signal grows denser, and thins out at the end. If a run does not start at all, look at this first.

# %% [markdown]
# ### When most groups are dead: shaping the reward (optional)
#
# At $p = .1$ and $G = 8$, most groups that are dead are so because nobody was right. A tempting way out: pay a
# little for something easier. Say, .1 for an answer in the right format, which half of the answers have.
#
# **Predict** two things: how many groups are dead then? And in a group where *nobody* was right, how large is
# the advantage that a well-formatted wrong answer gets from its bonus of .1?

# %% show shaping
draw = torch.Generator().manual_seed(0)
correct = (torch.rand(2000, 8, generator=draw) < 0.1).float()  # 2,000 groups of 8
tidy = (torch.rand(2000, 8, generator=draw) < 0.5).float()
ids = torch.arange(2000).repeat_interleave(8)
nobody = correct.sum(1) == 0
for name, rewards in {"right or wrong": correct, "plus .1 for format": correct + 0.1 * tidy, "plus .01": correct + 0.01 * tidy}.items():
    a = group_advantages(rewards.flatten(), ids).view(2000, 8)
    dead = (a.abs().max(1).values < 1e-4).float().mean()
    print(f"{name:20} dead groups: {dead:5.1%}")
    kinds = {"right": correct == 1, "wrong, tidy": (correct == 0) & (tidy == 1), "wrong, untidy": (correct + tidy) == 0}
    for where, rows in {"somebody was right": ~nobody, "nobody was right": nobody}.items():
        means = {kind: a[rows][m[rows]].mean().item() for kind, m in kinds.items() if m[rows].any()}
        print(f"   {where:19}", ", ".join(f"{k} {v:+.2f}" for k, v in means.items()))

# %% [markdown]
# With the bonus nearly all groups teach. But see what. In a group where nobody was right, a tidy wrong answer
# gets an advantage near +1: the division by the std has blown the bonus of .1 up to full size, and .01 gives the
# same. In those groups the model learns format and nothing else.
#
# That can be what you want for the first hundred steps: a model that cannot keep the format cannot earn the other
# reward. But what you pay for is what you get. Other ways out: more answers per question (your
# `smallest_group_size`), easier questions first, drawing *other* questions until the batch is full of groups that
# teach (DAPO's dynamic sampling), credit that grows with how right an answer is, or a better start by supervised
# learning. Notebook 4 takes that last one.

# %% [markdown]
# ## Part 4: in your own words
#
# ### Written answer: when would you still want a critic? (2 points, 7 minutes, ●●○)
#
# GRPO trains well without a critic, and spares its memory. Name **two** situations in which you would want one all
# the same, and say for each **why** the group does not do there what a critic does. Four to six sentences, into the
# cell below; a person will read them. Think of the blame for one step, the price of a group, the dead groups.

# %% answer when_a_critic [markdown] points=2
# **A model answer.** A critic pays where *credit within an answer* matters. In a long chain of tool calls or
# moves, one step may decide everything; the group gives every token of the answer the same number, while a
# critic with GAE can put the blame where the value fell. It also pays where a *group cannot be had*: if an
# episode talks to a real user or a slow or changing environment, we cannot start eight times from the same
# state, and a critic needs only one attempt. And it pays where *groups are mostly dead or tiny*: at p = .1
# and G = 8, 43 % of the samples teach nothing, and with G = 2 the baseline is one other answer; a critic
# pools what it learned from all questions and all earlier steps, so it has a baseline even when all siblings
# agree. The price is a second network to train and to hold in memory, and an error of its own: a critic that
# lags behind misleads.
#
# **Rubric.** 1 point for each of two situations that differ in kind (at most 2): half a point for naming it
# (credit for single steps in long episodes; no repeated sampling from the same state; dead or very small
# groups; dense rewards along the way), half a point for saying why the group fails there and the critic does
# not. "PPO is more stable" or "better" without a reason earns nothing. No deduction for situations not in
# this list if the reason holds.

# %% [markdown]
# ## What you have now
#
# - `gae_advantages`: a critic's surprises (TD errors), summed with a fading weight. Credit for each step, at the
#   cost of a second network.
# - `group_advantages`: how many standard deviations an answer is better than its siblings. One number for
#   each answer, at the cost of a group.
# - `dead_group_probability` and `smallest_group_size`: when a group has nothing to say, and how large it must
#   be to have something.
#
# And two things that no formula shows: the mean of a small group is a noisy baseline, and six times 0.9 is not
# six times the same.
#
# **Next: notebook 2.** An advantage says more or less of this answer; it does not say how far to go. There
# the policy moves several steps on the same batch, and the loss has to hold it back: the ratio (the field's
# *importance weight*), the clip, and `compute_grpo_loss`. Keep `group_advantages` at hand.
