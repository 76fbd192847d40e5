"""Wrong and right versions of the exercises of notebook 1.

Free names are the notebook's own (given cells and the key).
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import torch

from grader.mistakes import mistake, right

# --- gae_advantages ---------------------------------------------------------------------------------------------------


@mistake("gae_advantages")
def gae_divided_by_powers(rewards, values, gamma=0.99, lam=0.95):
    """The sum was made with powers of gamma times lam counted from the first step and divided by them again, which fails for long texts.

    Hint: .25 to the power of 100 is 0 in float32. Can each advantage be made from the one after it?
    """
    surprises = rewards + gamma * values[1:] - values[:-1]
    weights = torch.cumprod(torch.full_like(surprises, gamma * lam), 0) / (gamma * lam) if gamma * lam else torch.ones_like(surprises)
    summed = (surprises * weights).flip(0).cumsum(0).flip(0)
    return summed / weights if gamma * lam else surprises


@mistake("gae_advantages")
def gae_forward_in_time(rewards, values, gamma=0.99, lam=0.95):
    """The sum was built from the first step to the last, so each step answers for the surprises before it.

    Hint: A step can have caused only what came after it. From which end of the text must the sum be built?
    """
    surprises = rewards + gamma * values[1:] - values[:-1]
    advantages = torch.zeros_like(surprises)
    running = 0.0
    for t in range(len(surprises)):
        running = surprises[t] + gamma * lam * running
        advantages[t] = running
    return advantages


@mistake("gae_advantages")
def gae_not_turned_back(rewards, values, gamma=0.99, lam=0.95):
    """The advantages were collected from the last step to the first and returned in that order.

    Hint: The numbers are right. Which step does the first one belong to?
    """
    running, advantages = 0.0, []
    for t in reversed(range(len(rewards))):
        running = rewards[t] + gamma * values[t + 1] - values[t] + gamma * lam * running
        advantages.append(running)
    return torch.stack(advantages)


@mistake("gae_advantages")
def gae_no_next_value(rewards, values, gamma=0.99, lam=0.95):
    """The surprise was taken as reward minus value, without what is still expected after the step.

    Hint: A step that earns nothing but leads to a promising place was not a bad one. Which term says so?
    """
    surprises = rewards - values[:-1]
    advantages, running = torch.zeros_like(surprises), 0.0
    for t in reversed(range(len(surprises))):
        running = surprises[t] + gamma * lam * running
        advantages[t] = running
    return advantages


@mistake("gae_advantages")
def gae_same_value_twice(rewards, values, gamma=0.99, lam=0.95):
    """The same value stood before and after the step: V(s_t) in both places.

    Hint: There is one value more than there are rewards. What is the extra one for?
    """
    advantages, running = torch.zeros_like(values[:-1]), 0.0
    for t in reversed(range(len(rewards))):
        running = rewards[t] + gamma * values[t] - values[t] + gamma * lam * running
        advantages[t] = running
    return advantages


@mistake("gae_advantages")
def gae_values_swapped(rewards, values, gamma=0.99, lam=0.95):
    """The values before and after the step changed places.

    Hint: The surprise is what I got and now expect, minus what I expected before. Which slice of values is "before"?
    """
    surprises = rewards + gamma * values[:-1] - values[1:]
    advantages, running = torch.zeros_like(surprises), 0.0
    for t in reversed(range(len(surprises))):
        running = surprises[t] + gamma * lam * running
        advantages[t] = running
    return advantages


@mistake("gae_advantages")
def gae_no_lambda(rewards, values, gamma=0.99, lam=0.95):
    """The factor lam was not used: each step got all that followed minus its value, as if lam were 1.

    Hint: What must be left of the later surprises when lam is 0?
    """
    surprises = rewards + gamma * values[1:] - values[:-1]
    advantages, running = torch.zeros_like(surprises), 0.0
    for t in reversed(range(len(surprises))):
        running = surprises[t] + gamma * running
        advantages[t] = running
    return advantages


@mistake("gae_advantages")
def gae_fades_by_lambda_alone(rewards, values, gamma=0.99, lam=0.95):
    """Later surprises faded by lam alone; the discount was left out of the sum.

    Hint: The discount gamma stands in two places in the formulas: in the surprise, and where else?
    """
    surprises = rewards + gamma * values[1:] - values[:-1]
    advantages, running = torch.zeros_like(surprises), 0.0
    for t in reversed(range(len(surprises))):
        running = surprises[t] + lam * running
        advantages[t] = running
    return advantages


@mistake("gae_advantages")
def gae_next_value_not_discounted(rewards, values, gamma=0.99, lam=0.95):
    """The value after the step was not discounted.

    Hint: What is expected after the step lies one step in the future. What does the formula do to it?
    """
    surprises = rewards + values[1:] - values[:-1]
    advantages, running = torch.zeros_like(surprises), 0.0
    for t in reversed(range(len(surprises))):
        running = surprises[t] + gamma * lam * running
        advantages[t] = running
    return advantages


@mistake("gae_advantages")
def gae_end_is_zero(rewards, values, gamma=0.99, lam=0.95):
    """The value after the last step was taken as 0, whatever values says.

    Hint: A text that was cut off has a future. Which entry of values speaks of it?
    """
    advantages, running, following = torch.zeros_like(values[:-1]), 0.0, 0.0
    for t in reversed(range(len(rewards))):
        running = rewards[t] + gamma * following - values[t] + gamma * lam * running
        following = values[t]
        advantages[t] = running
    return advantages


@mistake("gae_advantages")
def gae_returns(rewards, values, gamma=0.99, lam=0.95):
    """The values were added back: these are returns, what a critic is trained on, not advantages.

    Hint: Many programs compute both side by side. Which of the two answers "better than expected"?
    """
    surprises = rewards + gamma * values[1:] - values[:-1]
    advantages, running = torch.zeros_like(surprises), 0.0
    for t in reversed(range(len(surprises))):
        running = surprises[t] + gamma * lam * running
        advantages[t] = running
    return advantages + values[:-1]


@mistake("gae_advantages")
def gae_normalised(rewards, values, gamma=0.99, lam=0.95):
    """The advantages were normalised to mean 0 and std 1 at the end.

    Hint: PPO often does that later, over a batch. Is it part of the definition?
    """
    surprises = rewards + gamma * values[1:] - values[:-1]
    advantages, running = torch.zeros_like(surprises), 0.0
    for t in reversed(range(len(surprises))):
        running = surprises[t] + gamma * lam * running
        advantages[t] = running
    return (advantages - advantages.mean()) / (advantages.std(unbiased=False) + 1e-8)


@mistake("gae_advantages")
def gae_surprises_only(rewards, values, gamma=0.99, lam=0.95):
    """Each step got its own surprise and nothing of what followed.

    Hint: That is the case lam = 0. What does a larger lam add?
    """
    return rewards + gamma * values[1:] - values[:-1]


@mistake("gae_advantages")
def gae_two_surprises(rewards, values, gamma=0.99, lam=0.95):
    """Each step got its own surprise and the next one's, but none of those further on.

    Hint: Write the sums for two neighbouring steps below each other. Is it a single surprise that the two have in common?
    """
    surprises = rewards + gamma * values[1:] - values[:-1]
    advantages = surprises.clone()
    advantages[:-1] = surprises[:-1] + gamma * lam * surprises[1:]
    return advantages


@mistake("gae_advantages")
def gae_rewards_to_go(rewards, values, gamma=0.99, lam=0.95):
    """The critic was not asked: each step got the faded sum of its rewards, without any values.

    Hint: An advantage is a difference from what was expected. Where is the expectation?
    """
    running, advantages = 0.0, torch.zeros_like(values[:-1])
    for t in reversed(range(len(rewards))):
        running = rewards[t] + gamma * lam * running
        advantages[t] = running
    return advantages


@mistake("gae_advantages")
def gae_negated(rewards, values, gamma=0.99, lam=0.95):
    """The surprise was turned round: what was expected minus what came.

    Hint: A step that turned out better than expected must get a positive number.
    """
    surprises = values[:-1] - rewards - gamma * values[1:]
    advantages, running = torch.zeros_like(surprises), 0.0
    for t in reversed(range(len(surprises))):
        running = surprises[t] + gamma * lam * running
        advantages[t] = running
    return advantages


@mistake("gae_advantages")
def gae_fixed_settings(rewards, values, gamma=0.99, lam=0.95):
    """The values .99 and .95 were written into the formula, and the arguments gamma and lam were ignored.

    Hint: Which numbers in your code should be names?
    """
    surprises = rewards + 0.99 * values[1:] - values[:-1]
    advantages, running = torch.zeros_like(surprises), 0.0
    for t in reversed(range(len(surprises))):
        running = surprises[t] + 0.99 * 0.95 * running
        advantages[t] = running
    return advantages


@mistake("gae_advantages")
def gae_gamma_and_lambda_swapped(rewards, values, gamma=0.99, lam=0.95):
    """The discount gamma and the factor lam changed places.

    Hint: One of the two stands in the surprise, the other does not.
    """
    surprises = rewards + lam * values[1:] - values[:-1]
    advantages, running = torch.zeros_like(surprises), 0.0
    for t in reversed(range(len(surprises))):
        running = surprises[t] + gamma * lam * running
        advantages[t] = running
    return advantages


@mistake("gae_advantages")
def gae_weights_from_the_start(rewards, values, gamma=0.99, lam=0.95):
    """The weights were counted from the first step of the text, not from the step that is judged.

    Hint: For every step, its own surprise has the weight 1. Is that so for your last step?
    """
    surprises = rewards + gamma * values[1:] - values[:-1]
    weights = (gamma * lam) ** torch.arange(len(surprises))
    return (weights * surprises).flip(0).cumsum(0).flip(0)


@mistake("gae_advantages")
def gae_lambda_average(rewards, values, gamma=0.99, lam=0.95):
    """Each surprise was multiplied by (1 - lam).

    Hint: What would be left of a step's own surprise at lam = 1? Compare with its weight in the formula.
    """
    surprises = rewards + gamma * values[1:] - values[:-1]
    advantages, running = torch.zeros_like(surprises), 0.0
    for t in reversed(range(len(surprises))):
        running = (1 - lam) * surprises[t] + gamma * lam * running
        advantages[t] = running
    return advantages


@mistake("gae_advantages")
def gae_own_surprise_left_out(rewards, values, gamma=0.99, lam=0.95):
    """Each step got the sum of the surprises after it, without its own.

    Hint: What should the running sum hold at the moment when it is written down for a step?
    """
    surprises = rewards + gamma * values[1:] - values[:-1]
    advantages, running = torch.zeros_like(surprises), 0.0
    for t in reversed(range(len(surprises))):
        advantages[t] = running
        running = surprises[t] + gamma * lam * running
    return advantages


@mistake("gae_advantages")
def gae_last_step_forgotten(rewards, values, gamma=0.99, lam=0.95):
    """The loop left out the last step, whose advantage stayed 0.

    Hint: Which steps does your range visit?
    """
    surprises = rewards + gamma * values[1:] - values[:-1]
    advantages, running = torch.zeros_like(surprises), 0.0
    for t in range(len(surprises) - 2, -1, -1):
        running = surprises[t] + gamma * lam * running
        advantages[t] = running
    return advantages


@mistake("gae_advantages")
def gae_integer_table(rewards, values, gamma=0.99, lam=0.95):
    """The advantages were written into a tensor of the rewards' type, which cuts them to integers when rewards are.

    Hint: What does zeros_like copy besides the shape?
    """
    advantages, running = torch.zeros_like(rewards), 0.0
    for t in reversed(range(len(rewards))):
        running = rewards[t] + gamma * values[t + 1] - values[t] + gamma * lam * running
        advantages[t] = running
    return advantages * 1.0


@mistake("gae_advantages")
def gae_in_place(rewards, values, gamma=0.99, lam=0.95):
    """The values that came in were overwritten.

    Hint: Is a slice of a tensor a copy of its numbers, or a window onto them? Into what does your code write?
    """
    before = values[:-1].clone()
    advantages = values[:-1]
    advantages.copy_(rewards + gamma * values[1:] - before)
    for t in reversed(range(len(rewards) - 1)):
        advantages[t] += gamma * lam * advantages[t + 1]
    return advantages.clone()


@mistake("gae_advantages")
def gae_list(rewards, values, gamma=0.99, lam=0.95):
    """A Python list was returned in the place of a tensor.

    Hint: The numbers are right. What does the exercise say comes out?
    """
    running, advantages = 0.0, []
    for t in reversed(range(len(rewards))):
        running = rewards[t] + gamma * values[t + 1] - values[t] + gamma * lam * running
        advantages.insert(0, float(running))
    return advantages


@mistake("gae_advantages")
def gae_total(rewards, values, gamma=0.99, lam=0.95):
    """One number came out for the whole text: the advantage of its first step.

    Hint: The loop passes through every step's advantage. Are they kept?
    """
    running = torch.zeros(())
    for t in reversed(range(len(rewards))):
        running = rewards[t] + gamma * values[t + 1] - values[t] + gamma * lam * running
    return running


@mistake("gae_advantages")
def gae_other_defaults(rewards, values, gamma=1.0, lam=0.95):
    """The default of gamma became 1.

    Hint: What do gamma and lam mean when the caller leaves them out? The first line of the cell said so.
    """
    surprises = rewards + gamma * values[1:] - values[:-1]
    advantages, running = torch.zeros_like(surprises), 0.0
    for t in reversed(range(len(surprises))):
        running = surprises[t] + gamma * lam * running
        advantages[t] = running
    return advantages


@mistake("gae_advantages")
def gae_other_default_of_lambda(rewards, values, gamma=0.99, lam=1.0):
    """The default of lam became 1.

    Hint: What do gamma and lam mean when the caller leaves them out? The first line of the cell said so.
    """
    surprises = rewards + gamma * values[1:] - values[:-1]
    advantages, running = torch.zeros_like(surprises), 0.0
    for t in reversed(range(len(surprises))):
        running = surprises[t] + gamma * lam * running
        advantages[t] = running
    return advantages


@mistake("gae_advantages")
def gae_rewards_in_place(rewards, values, gamma=0.99, lam=0.95):
    """The surprises were added up in the rewards that came in: float() makes no copy of what is float already.

    Hint: What does rewards.float() return when the rewards are floats already: a copy, or the same tensor? Into what does += write?
    """
    surprises = rewards.float()
    surprises += gamma * values[1:] - values[:-1]
    advantages, running = torch.zeros_like(surprises), 0.0
    for t in reversed(range(len(surprises))):
        running = surprises[t] + gamma * lam * running
        advantages[t] = running
    return advantages


@mistake("gae_advantages")
def gae_normalised_by_sample_std(rewards, values, gamma=0.99, lam=0.95):
    """The advantages were normalised at the end, by torch's own std, as PPO code does before the loss.

    Hint: PPO often does that later, over a batch. Is it part of the definition?
    """
    surprises = rewards + gamma * values[1:] - values[:-1]
    advantages, running = torch.zeros_like(surprises), 0.0
    for t in reversed(range(len(surprises))):
        running = surprises[t] + gamma * lam * running
        advantages[t] = running
    return (advantages - advantages.mean()) / (advantages.std() + 1e-8)


@mistake("gae_advantages")
def gae_first_step_forgotten(rewards, values, gamma=0.99, lam=0.95):
    """The loop stopped before the first step, whose advantage stayed 0.

    Hint: Where does range(T - 1, 0, -1) end?
    """
    surprises = rewards + gamma * values[1:] - values[:-1]
    advantages, running = torch.zeros_like(surprises), 0.0
    for t in range(len(surprises) - 1, 0, -1):
        running = surprises[t] + gamma * lam * running
        advantages[t] = running
    return advantages


@mistake("gae_advantages")
def gae_clipped(rewards, values, gamma=0.99, lam=0.95):
    """The advantages were cut to -5 and 5, as some training code does against outliers.

    Hint: The clip of PPO belongs to the ratio. How large may a surprise be?
    """
    surprises = rewards + gamma * values[1:] - values[:-1]
    advantages, running = torch.zeros_like(surprises), 0.0
    for t in reversed(range(len(surprises))):
        running = surprises[t] + gamma * lam * running
        advantages[t] = running
    return advantages.clamp(-5, 5)


@mistake("gae_advantages")
def gae_end_stands_still(rewards, values, gamma=0.99, lam=0.95):
    """The last step was taken to lead nowhere else: its own value stood in the place of the one after it.

    Hint: There is one value more than there are rewards. Which entry of values speaks of what follows the last step?
    """
    after = torch.cat([values[1:-1], values[-2:-1]])
    surprises = rewards + gamma * after - values[:-1]
    advantages, running = torch.zeros_like(surprises), 0.0
    for t in reversed(range(len(surprises))):
        running = surprises[t] + gamma * lam * running
        advantages[t] = running
    return advantages


@right("gae_advantages")
def gae_stacked_list(rewards, values, gamma=0.99, lam=0.95):
    """A list, turned round and stacked."""
    running, advantages = 0.0, []
    for t in range(len(rewards) - 1, -1, -1):
        running = rewards[t] + gamma * values[t + 1] - values[t] + gamma * lam * running
        advantages.append(running)
    return torch.stack(advantages[::-1])


@right("gae_advantages")
def gae_matrix(rewards, values, gamma=0.99, lam=0.95):
    """A triangular matrix of weights times the surprises."""
    surprises = rewards + gamma * values[1:] - values[:-1]
    steps = torch.arange(len(surprises))
    distance = steps[None, :] - steps[:, None]
    weights = torch.where(distance >= 0, (gamma * lam) ** distance.clamp_min(0).to(values.dtype), 0.0)
    return weights @ surprises


@right("gae_advantages")
def gae_double_loop(rewards, values, gamma=0.99, lam=0.95):
    """The definition, word for word."""
    surprises = [float(rewards[t]) + gamma * float(values[t + 1]) - float(values[t]) for t in range(len(rewards))]
    steps = range(len(surprises))
    return torch.tensor([sum((gamma * lam) ** (k - t) * surprises[k] for k in steps if k >= t) for t in steps])


@right("gae_advantages")
def gae_numpy(rewards, values, gamma=0.99, lam=0.95):
    """numpy, in float64."""
    r, v = rewards.numpy().astype(float), values.numpy().astype(float)
    advantages, running = np.zeros(len(r)), 0.0
    for t in range(len(r))[::-1]:
        running = r[t] + gamma * v[t + 1] - v[t] + gamma * lam * running
        advantages[t] = running
    return torch.from_numpy(advantages).float()


@right("gae_advantages")
def gae_lambda_return(rewards, values, gamma=0.99, lam=0.95):
    """The lambda-return minus the value."""
    goal, advantages = values[-1], []
    for t in reversed(range(len(rewards))):
        goal = rewards[t] + gamma * ((1 - lam) * values[t + 1] + lam * goal)
        advantages.insert(0, goal - values[t])
    return torch.stack(advantages)


@right("gae_advantages")
def gae_recursion(rewards, values, gamma=0.99, lam=0.95):
    """Recursion, under no_grad."""

    def rest(t):
        if t == len(rewards):
            return []
        later = rest(t + 1)
        surprise = rewards[t] + gamma * values[t + 1] - values[t]
        return [surprise + gamma * lam * later[0] if later else surprise, *later]

    with torch.no_grad():
        return torch.stack(rest(0))


@right("gae_advantages")
def gae_accumulates_in_place(rewards: torch.Tensor, values: torch.Tensor, gamma: float = 0.99, lam: float = 0.95) -> torch.Tensor:
    """Accumulated in a tensor of its own, float64, with a print."""
    v = values.double()
    advantages = rewards.double() + gamma * v[1:] - v[:-1]
    for t in range(len(advantages) - 2, -1, -1):
        advantages[t] += gamma * lam * advantages[t + 1]
    print("advantages", tuple(advantages.shape))
    return advantages.to(values.dtype)


# --- group_advantages -------------------------------------------------------------------------------------------------


def by_group(rewards, group_ids, formula):
    """formula(float64 rewards of one group) for each group, put back into the order of the batch."""
    r = rewards.double()
    out = torch.zeros_like(r)
    for g in group_ids.unique():
        out[group_ids == g] = formula(r[group_ids == g])
    return out.to(rewards.dtype if rewards.is_floating_point() else torch.float32)


def in_stds(r, eps):
    """The rewards of one group in stds from their mean."""
    return (r - r.mean()) / r.std(unbiased=False).clamp_min(eps)


@mistake("group_advantages")
def sample_std(rewards, group_ids, eps=1e-6):
    """The sum of squares was divided by G - 1: the sample std, TRL's and verl's convention but not this course's.

    Hint: There are two conventions for the std. Which does the card above the exercise choose, and which does torch.std take by default?
    """
    return by_group(rewards, group_ids, lambda r: (r - r.mean()) / r.std(unbiased=len(r) > 1).clamp_min(eps))


@mistake("group_advantages")
def singleton_nan(rewards, group_ids, eps=1e-6):
    """The sample std was taken, which is NaN for a group of one and stays NaN, whatever is added or clamped.

    Hint: What is 0 divided by G - 1 when G is 1? And which convention does the card above the exercise choose?
    """
    out = torch.zeros(len(rewards))
    for g in group_ids.unique():
        r = rewards[group_ids == g].double()
        std = torch.sqrt(((r - r.mean()) ** 2).sum() / (len(r) - 1)).clamp_min(eps)
        out[group_ids == g] = ((r - r.mean()) / std).float()
    return out


@mistake("group_advantages")
def singleton_raw(rewards, group_ids, eps=1e-6):
    """A group of one kept its raw reward (as in verl).

    Hint: Whom is a lone answer compared with? What has it to teach?
    """
    return by_group(rewards, group_ids, lambda r: in_stds(r, eps) if len(r) > 1 else r)


@mistake("group_advantages")
def whole_batch(rewards, group_ids, eps=1e-6):
    """One mean and one std were taken over the whole batch; the ids were not used.

    Hint: An answer to an easy question should not be compared with answers to a hard one.
    """
    r = rewards.double()
    return ((r - r.mean()) / r.std(unbiased=False).clamp_min(eps)).float()


@mistake("group_advantages")
def batch_std(rewards, group_ids, eps=1e-6):
    """The mean was the group's own, the std that of all rewards in the batch.

    Hint: Two numbers describe a group. Which of them came from somewhere else?
    """
    std = rewards.double().std(unbiased=False).clamp_min(eps)
    return by_group(rewards, group_ids, lambda r: (r - r.mean()) / std)


@mistake("group_advantages")
def pooled_std(rewards, group_ids, eps=1e-6):
    """Each answer was centred in its group, but the std was pooled over the centred rewards of all groups.

    Hint: That is a baseline of its own, shown further down. Whose std does this exercise ask for?
    """
    centred = by_group(rewards, group_ids, lambda r: r - r.mean())
    return centred / centred.std(unbiased=False).clamp_min(eps)


@mistake("group_advantages")
def batch_mean(rewards, group_ids, eps=1e-6):
    """The std was the group's own, the mean that of all rewards in the batch.

    Hint: The advantages of a group should add up to 0. With whose mean do they?
    """
    mean = rewards.double().mean()
    return by_group(rewards, group_ids, lambda r: (r - mean) / r.std(unbiased=False).clamp_min(eps))


@mistake("group_advantages")
def unequal_merged(rewards, group_ids, eps=1e-6):
    """When groups differ in size, all answers fell into one group.

    Hint: A reshape to [groups, G] needs equal sizes. What happens in your code when they are not?
    """
    sizes = group_ids.unique(return_counts=True)[1]
    if (sizes == sizes[0]).all():
        return by_group(rewards, group_ids, lambda r: in_stds(r, eps))
    return by_group(rewards, torch.zeros_like(group_ids), lambda r: in_stds(r, eps))


@mistake("group_advantages")
def positional(rewards, group_ids, eps=1e-6):
    """The batch was cut into equal blocks by position, view(-1, G); the ids only gave their number.

    Hint: The loader may have shuffled the answers. Which of them are siblings then?
    """
    size = len(rewards) // len(group_ids.unique())
    r = rewards.double().view(-1, size)
    return ((r - r.mean(1, keepdim=True)) / r.std(1, unbiased=False, keepdim=True).clamp_min(eps)).flatten().float()


@mistake("group_advantages")
def consecutive_runs(rewards, group_ids, eps=1e-6):
    """A new group began wherever the id changed from one answer to the next.

    Hint: What happens in your code when an id comes back later?
    """
    runs = group_ids.unique_consecutive(return_inverse=True)[1]
    return by_group(rewards, runs, lambda r: in_stds(r, eps))


@mistake("group_advantages")
def new_id_each(rewards, group_ids, eps=1e-6):
    """Everything came out 0, as it does when every answer is taken for a group of its own.

    Hint: Who shares an id with whom? Print the groups that your code sees, and the result before it is returned.
    """
    return by_group(rewards, torch.arange(len(rewards)), lambda r: in_stds(r, eps))


@mistake("group_advantages")
def table_by_raw_id(rewards, group_ids, eps=1e-6):
    """The ids served as places in a table of size max(id) + 1.

    Hint: Ids are labels, not places. What does place -3 mean, and how large does a table for 10^15 get?
    """
    size = int(group_ids.max()) + 1
    r = rewards.double()
    count = torch.zeros(size).index_add_(0, group_ids, torch.ones(len(r)))
    mean = torch.zeros(size, dtype=r.dtype).index_add_(0, group_ids, r) / count
    centred = r - mean[group_ids]
    std = (torch.zeros(size, dtype=r.dtype).index_add_(0, group_ids, centred**2) / count).sqrt()
    return (centred / std[group_ids].clamp_min(eps)).float()


@mistake("group_advantages")
def ids_from_zero(rewards, group_ids, eps=1e-6):
    """The loop ran over the ids 0, 1, 2, ... and passed over all others.

    Hint: Ids are labels: any integers. Where can you get the list of those that occur?
    """
    r, out = rewards.double(), torch.zeros(len(rewards), dtype=torch.float64)
    for g in range(len(group_ids.unique())):
        mine = group_ids == g
        if mine.any():
            out[mine] = (r[mine] - r[mine].mean()) / r[mine].std(unbiased=False).clamp_min(eps)
    return out.float()


@mistake("group_advantages")
def ids_up_to_the_largest(rewards, group_ids, eps=1e-6):
    """The loop ran over all ids from 0 to the largest: negative ones were passed over, and with a huge one it never ends.

    Hint: Ids are labels: any integers. Where can you get the list of those that occur?
    """
    r, out = rewards.double(), torch.zeros(len(rewards), dtype=torch.float64)
    for g in range(int(group_ids.max()) + 1):
        if (group_ids == g).any():
            out[group_ids == g] = in_stds(r[group_ids == g], eps)
    return out.float()


@mistake("group_advantages")
def ids_as_floats(rewards, group_ids, eps=1e-6):
    """The ids were turned into float32, where neighbouring large ids are the same number.

    Hint: How many digits does a float32 hold, and how many has 10^15?
    """
    return by_group(rewards, group_ids.float(), lambda r: in_stds(r, eps))


@mistake("group_advantages")
def ids_as_int32(rewards, group_ids, eps=1e-6):
    """The ids were cut to 32 bits, where different large ids can become the same.

    Hint: How large can an int32 be?
    """
    return by_group(rewards, group_ids.int(), lambda r: in_stds(r, eps))


@mistake("group_advantages")
def ids_without_sign(rewards, group_ids, eps=1e-6):
    """The sign of the ids was dropped, so that 3 and -3 are one group.

    Hint: Ids are labels, and 3 and -3 are two of them. What does your code do to the labels before it compares them?
    """
    return by_group(rewards, group_ids.abs(), lambda r: in_stds(r, eps))


@mistake("group_advantages")
def sorted_and_left_so(rewards, group_ids, eps=1e-6):
    """The answers were sorted by group and the advantages returned in that order.

    Hint: The numbers are right. Whose are they?
    """
    order = group_ids.argsort(stable=True)
    sizes = group_ids.unique(return_counts=True)[1]
    parts = rewards[order].double().split(sizes.tolist())
    return torch.cat([(r - r.mean()) / r.std(unbiased=False).clamp_min(eps) for r in parts]).float()


@mistake("group_advantages")
def statistics_in_sorted_order(rewards, group_ids, eps=1e-6):
    """Means and stds were repeated in the order of the sorted ids and met answers in the order of the batch.

    Hint: In the order of which tensor does repeat_interleave hand out the statistics, and in which order do the answers stand?
    """
    names, sizes = group_ids.unique(return_counts=True)
    groups = [rewards[group_ids == g].double() for g in names]
    mean = torch.stack([r.mean() for r in groups]).repeat_interleave(sizes)
    std = torch.stack([r.std(unbiased=False) for r in groups]).repeat_interleave(sizes)
    return ((rewards - mean) / std.clamp_min(eps)).float()


@mistake("group_advantages")
def no_std(rewards, group_ids, eps=1e-6):
    """The mean was subtracted and the division by the std left out (as in Dr. GRPO).

    Hint: An advantage is measured in a unit. Which?
    """
    return by_group(rewards, group_ids, lambda r: r - r.mean())


@mistake("group_advantages")
def by_variance(rewards, group_ids, eps=1e-6):
    """The centred rewards were divided by the variance in the place of the std.

    Hint: Double all rewards: should the advantages halve?
    """
    return by_group(rewards, group_ids, lambda r: (r - r.mean()) / r.var(unbiased=False).clamp_min(eps))


@mistake("group_advantages")
def no_centring(rewards, group_ids, eps=1e-6):
    """The rewards were divided by the std, but the mean was never subtracted.

    Hint: What is the baseline in your formula?
    """
    return by_group(rewards, group_ids, lambda r: r / r.std(unbiased=False).clamp_min(eps))


@mistake("group_advantages")
def root_mean_square(rewards, group_ids, eps=1e-6):
    """The spread was taken about 0 and not about the group's mean.

    Hint: Add 100 to all rewards: the spread of a group must not change.
    """
    return by_group(rewards, group_ids, lambda r: (r - r.mean()) / (r**2).mean().sqrt().clamp_min(eps))


@mistake("group_advantages")
def mean_deviation(rewards, group_ids, eps=1e-6):
    """The centred rewards were divided by the mean absolute deviation in the place of the std.

    Hint: Both measure spread. Which one squares before it averages?
    """
    return by_group(rewards, group_ids, lambda r: (r - r.mean()) / (r - r.mean()).abs().mean().clamp_min(eps))


@mistake("group_advantages")
def range_for_std(rewards, group_ids, eps=1e-6):
    """The centred rewards were divided by the range, largest minus smallest reward, in the place of the std.

    Hint: For the rewards 2, 2, 2, 1 the range is 1. Is the std?
    """
    return by_group(rewards, group_ids, lambda r: (r - r.mean()) / (r.max() - r.min()).clamp_min(eps))


@mistake("group_advantages")
def median_centre(rewards, group_ids, eps=1e-6):
    """The median took the place of the mean.

    Hint: What one answer gains, its siblings lose: which centre makes the sum 0?
    """
    return by_group(rewards, group_ids, lambda r: (r - r.quantile(0.5)) / r.std(unbiased=False).clamp_min(eps))


@mistake("group_advantages")
def leave_one_out(rewards, group_ids, eps=1e-6):
    """Each answer was compared with the mean of the others (RLOO), without a std.

    Hint: That is a baseline of its own, shown further down. Whose rewards are in the group's mean here?
    """
    return by_group(rewards, group_ids, lambda r: r - (r.sum() - r) / (len(r) - 1) if len(r) > 1 else r * 0)


@mistake("group_advantages")
def leave_one_out_in_stds(rewards, group_ids, eps=1e-6):
    """Each answer was compared with the mean of the others and divided by the std of all.

    Hint: Compare the sizes with the worked numbers: by which factor are they off, and what has it to do with G?
    """

    def formula(r):
        others = (r.sum() - r) / max(len(r) - 1, 1)
        return (r - others) / r.std(unbiased=False).clamp_min(eps) * (len(r) > 1)

    return by_group(rewards, group_ids, formula)


@mistake("group_advantages")
def ranks(rewards, group_ids, eps=1e-6):
    """The rewards were replaced by their ranks before they were normalised.

    Hint: Rewards of 0, 1, 2 and of 0, 1, 10 must give different advantages.
    """

    def formula(r):
        place = r.unique(return_inverse=True)[1].double()
        return (place - place.mean()) / place.std(unbiased=False).clamp_min(eps)

    return by_group(rewards, group_ids, formula)


@mistake("group_advantages")
def sign_only(rewards, group_ids, eps=1e-6):
    """Only the sign was kept: above the mean 1, below it -1.

    Hint: How far an answer lies from the mean counts, too.
    """
    return by_group(rewards, group_ids, lambda r: (r - r.mean()).sign())


@mistake("group_advantages")
def clipped(rewards, group_ids, eps=1e-6):
    """The advantages were cut to -1 and 1.

    Hint: An advantage can be as large as the square root of G - 1. The clip of GRPO belongs to the ratio.
    """
    return by_group(rewards, group_ids, lambda r: ((r - r.mean()) / r.std(unbiased=False).clamp_min(eps)).clamp(-1, 1))


@mistake("group_advantages")
def whitened_again(rewards, group_ids, eps=1e-6):
    """The advantages were normalised a second time over the whole batch.

    Hint: After the group nothing is left to normalise. What do groups of equal rewards do to the std of the batch?
    """
    a = by_group(rewards, group_ids, lambda r: in_stds(r, eps))
    return (a - a.mean()) / a.std().clamp_min(eps)


@mistake("group_advantages")
def over_root_of_group_size(rewards, group_ids, eps=1e-6):
    """The squares were summed and not averaged: the norm of the group in the place of its std.

    Hint: Should the advantages shrink when the same rewards come twice?
    """
    return by_group(rewards, group_ids, lambda r: (r - r.mean()) / (r - r.mean()).norm().clamp_min(eps))


@mistake("group_advantages")
def divided_by_batch_size(rewards, group_ids, eps=1e-6):
    """The group's sums were divided by the number of answers in the batch.

    Hint: How many answers does a group have? Not N.
    """
    n = len(rewards)

    def formula(r):
        centred = r - r.sum() / n
        return centred / ((centred**2).sum() / n).sqrt().clamp_min(eps)

    return by_group(rewards, group_ids, formula)


@mistake("group_advantages")
def trl_eps(rewards, group_ids, eps=1e-6):
    """An eps of 1e-4 was added to the std, which is TRL's convention but not this course's.

    Hint: See the card above the exercise: what does this course do about a std that is nearly 0?
    """
    return by_group(rewards, group_ids, lambda r: (r - r.mean()) / (r.std(unbiased=False) + 1e-4))


@mistake("group_advantages")
def large_eps(rewards, group_ids, eps=1e-6):
    """An eps of .01 or more was added to the std, which shrinks every advantage.

    Hint: The eps is there for groups whose rewards are all equal. How much may it change the others?
    """
    return by_group(rewards, group_ids, lambda r: (r - r.mean()) / (r.std(unbiased=False) + 1e-2))


@mistake("group_advantages")
def eps_under_the_root(rewards, group_ids, eps=1e-6):
    """The eps was added to the variance, under the root, where 1e-6 acts like .001.

    Hint: What is the root of eps? And what becomes of rewards of 0 and .001?
    """
    return by_group(rewards, group_ids, lambda r: (r - r.mean()) / (r.var(unbiased=False) + eps).sqrt())


@mistake("group_advantages")
def std_threshold(rewards, group_ids, eps=1e-6):
    """Groups with a std below .001 were treated as if all their rewards were equal.

    Hint: A threshold silences noise and small genuine rewards alike. What does the exercise say about 0 and .001?
    """
    return by_group(rewards, group_ids, lambda r: in_stds(r, eps) * (r.std(unbiased=False) > 1e-3))


@mistake("group_advantages")
def no_eps(rewards, group_ids, eps=1e-6):
    """Nothing kept the std from being 0, so that a group of equal rewards became 0/0.

    Hint: Which of the three arguments is there for such a group?
    """
    return by_group(rewards, group_ids, lambda r: (r - r.mean()) / r.std(unbiased=False))


@mistake("group_advantages")
def dead_group_of_ones(rewards, group_ids, eps=1e-6):
    """Where the std is 0, the division was skipped and the rewards kept as they were.

    Hint: A group whose answers are all equal teaches nothing, even if all of them are right.
    """
    return by_group(rewards, group_ids, lambda r: in_stds(r, eps) if r.std(unbiased=False) > eps else r)


@mistake("group_advantages")
def tie_residue(rewards, group_ids, eps=1e-6):
    """The float32 residue of equal rewards was divided by a tiny std, and blown up.

    Hint: What is the mean of six times .9 in float32? In which precision is it exact, or how can you see first whether anything differs?
    """
    r = rewards if rewards.is_floating_point() else rewards.float()
    _, group, size = group_ids.unique(return_inverse=True, return_counts=True)
    mean = torch.zeros(len(size), dtype=r.dtype).index_add_(0, group, r) / size
    centred = r - mean[group]
    std = (torch.zeros(len(size), dtype=r.dtype).index_add_(0, group, centred**2) / size).sqrt()
    return centred / std[group].clamp_min(eps)


@mistake("group_advantages")
def all_in_float32(rewards, group_ids, eps=1e-6):
    """The work was done in float32: equal rewards leave a residue, and a float64 loses the digits it came with.

    Hint: What is the mean of six times .9 in float32? What does it leave of 1000.00009? Which type would hold both?
    """
    r, out = rewards.float(), torch.zeros(len(rewards))
    for g in group_ids.unique():
        mine = group_ids == g
        out[mine] = in_stds(r[mine], eps)
    return out


@mistake("group_advantages")
def tie_residue_eps_added(rewards, group_ids, eps=1e-6):
    """The work was done in float32 with eps added to the std, which leaves a residue of equal rewards.

    Hint: Six times .9 in float32 leaves a residue of about 6e-8. How does that compare with an eps of 1e-6? See the trap above.
    """
    r, out = rewards.float(), torch.zeros(len(rewards))
    for g in group_ids.unique():
        mine = group_ids == g
        out[mine] = (r[mine] - r[mine].mean()) / (r[mine].std(unbiased=False) + eps)
    return out


@mistake("group_advantages")
def tie_residue_tiny_eps(rewards, group_ids, eps=1e-6):
    """The work was done in float32 with an eps of 1e-8, so that the residue of equal rewards became a full-grown advantage.

    Hint: What is the mean of six times .9 in float32, and how does the difference compare with 1e-8?
    """
    r, out = rewards.float(), torch.zeros(len(rewards))
    for g in group_ids.unique():
        mine = group_ids == g
        out[mine] = (r[mine] - r[mine].mean()) / (r[mine].std(unbiased=False) + 1e-8)
    return out


@mistake("group_advantages")
def one_pass_in_float32(rewards, group_ids, eps=1e-6):
    """The variance was computed as mean of squares minus square of mean, in float32, where the two nearly cancel.

    Hint: Put 100 on every reward. How many digits are left of the difference of two numbers near 10,000?
    """
    r, out = rewards.float(), torch.zeros(len(rewards))
    for g in group_ids.unique():
        mine = r[group_ids == g]
        variance = ((mine**2).mean() - mine.mean() ** 2).clamp_min(0)
        alive = mine.max() > mine.min()
        out[group_ids == g] = (mine - mine.mean()) / variance.sqrt().clamp_min(eps) * alive
    return out


@mistake("group_advantages")
def integer_rewards_fail(rewards, group_ids, eps=1e-6):
    """The mean of a tensor of integers was asked for, which torch refuses.

    Hint: Of which number type is the mean of 2 and 1, and of which type are the rewards that came in?
    """
    out = torch.zeros(len(rewards), dtype=torch.float64)
    for g in group_ids.unique():
        r = rewards[group_ids == g]
        if r.max() > r.min():
            out[group_ids == g] = ((r - r.mean()) / r.std(unbiased=False)).double()
    return out


@mistake("group_advantages")
def integer_result(rewards, group_ids, eps=1e-6):
    """The advantages were written into a tensor of the rewards' type, which cuts them to integers when rewards are.

    Hint: What does zeros_like copy besides the shape?
    """
    out = torch.zeros_like(rewards)
    for g in group_ids.unique():
        r = rewards[group_ids == g].double()
        out[group_ids == g] = ((r - r.mean()) / r.std(unbiased=False).clamp_min(eps)).to(out.dtype)
    return out * 1.0


@mistake("group_advantages")
def in_place(rewards, group_ids, eps=1e-6):
    """The rewards that came in were overwritten.

    Hint: Somebody else may still need the rewards. Where do you write your result?
    """
    r = rewards.double()
    for g in group_ids.unique():
        mine = group_ids == g
        r[mine] = (r[mine] - r[mine].mean()) / r[mine].std(unbiased=False).clamp_min(eps)
    rewards.copy_(r)
    return r.float()


@mistake("group_advantages")
def negated(rewards, group_ids, eps=1e-6):
    """The sign was turned round: mean minus reward.

    Hint: Whose advantage must be positive, the better answer's or the worse one's?
    """
    return by_group(rewards, group_ids, lambda r: (r.mean() - r) / r.std(unbiased=False).clamp_min(eps))


@mistake("group_advantages")
def absolute(rewards, group_ids, eps=1e-6):
    """The distance from the mean was taken without its sign.

    Hint: A bad answer is as far from the mean as a good one. How does the policy tell them apart?
    """
    return by_group(rewards, group_ids, lambda r: (r - r.mean()).abs() / r.std(unbiased=False).clamp_min(eps))


@mistake("group_advantages")
def softmax_of_rewards(rewards, group_ids, eps=1e-6):
    """The rewards of a group were turned into a softmax.

    Hint: A softmax is never negative. Who is pushed down then?
    """
    return by_group(rewards, group_ids, lambda r: r.softmax(0))


@mistake("group_advantages")
def one_per_group(rewards, group_ids, eps=1e-6):
    """One number came out for each group, not for each answer.

    Hint: N answers come in, N numbers go out. How does a group's result get back to its answers?
    """
    groups = [rewards[group_ids == g].double() for g in group_ids.unique()]
    return torch.stack([(r.max() - r.mean()) / r.std(unbiased=False).clamp_min(eps) for r in groups]).float()


@mistake("group_advantages")
def raw_rewards(rewards, group_ids, eps=1e-6):
    """The rewards were returned as they came.

    Hint: A reward of 1 says little by itself. With what does it have to be compared?
    """
    return rewards.float()


@mistake("group_advantages")
def all_one(rewards, group_ids, eps=1e-6):
    """Every advantage came out as 1, whatever the rewards were.

    Hint: Is the result ever written into the tensor that you return?
    """
    return torch.ones(len(rewards))


@mistake("group_advantages")
def ids_as_float64(rewards, group_ids, eps=1e-6):
    """The ids were turned into float64, where neighbouring ids beyond 2^53 are the same number.

    Hint: An id is a name, not a quantity. How many whole numbers can a float tell apart?
    """
    return by_group(rewards, group_ids.double(), lambda r: in_stds(r, eps))


@mistake("group_advantages")
def minus_one_is_padding(rewards, group_ids, eps=1e-6):
    """Answers with the id -1 were taken for padding and got 0.

    Hint: Some loaders mark padding by -1. What does the text here say about negative ids?
    """
    return by_group(rewards, group_ids, lambda r: in_stds(r, eps)) * (group_ids != -1)


@mistake("group_advantages")
def about_equal_is_equal(rewards, group_ids, eps=1e-6):
    """A group whose rewards are about equal (torch.allclose) was treated as if they were all equal.

    Hint: What allclose forgives grows with the level. How far apart may two rewards near 1000 be for it?
    """
    return by_group(rewards, group_ids, lambda r: r * 0 if torch.allclose(r, r[:1].expand(len(r))) else in_stds(r, eps))


@mistake("group_advantages")
def clamped_at_1e_4(rewards, group_ids, eps=1e-6):
    """The std was kept above 1e-4, far above the eps that was asked for: small spreads shrink.

    Hint: Small is not equal. Which argument says from where on a std is too small to divide by?
    """
    return by_group(rewards, group_ids, lambda r: in_stds(r, 1e-4))


@mistake("group_advantages")
def clipped_at_three(rewards, group_ids, eps=1e-6):
    """The advantages were cut to -3 and 3, as some training code does against outliers.

    Hint: How many stds above its siblings is the one success among a hundred failures?
    """
    return by_group(rewards, group_ids, lambda r: in_stds(r, eps).clamp(-3, 3))


@mistake("group_advantages")
def padded_with_zeros(rewards, group_ids, eps=1e-6):
    """The groups were padded to one length with zeros, and the zeros counted in the std.

    Hint: The means are right. Whose distances from the mean are in the sum of squares of a short group?
    """
    _, group, size = group_ids.unique(return_inverse=True, return_counts=True)
    table, places, filled = torch.zeros(len(size), int(size.max()), dtype=torch.float64), [], [0] * len(size)
    for reward, g in zip(rewards.tolist(), group.tolist()):
        table[g, filled[g]] = reward
        places.append(filled[g])
        filled[g] += 1
    centred = table - table.sum(1, keepdim=True) / size[:, None]
    std = (centred.square().sum(1, keepdim=True) / size[:, None]).sqrt()
    return (centred / std.clamp_min(eps))[group, torch.tensor(places)].float()


@mistake("group_advantages")
def half_precision(rewards, group_ids, eps=1e-6):
    """The rewards went through 16-bit floats, in which 1000.3 and 1000.4 are the same number.

    Hint: The formula is right. How many digits of a reward near 1000 are left where it is applied?
    """
    return by_group(rewards.half().to(torch.float32), group_ids, lambda r: in_stds(r, eps))


@mistake("group_advantages")
def std_below_eps_is_dead(rewards, group_ids, eps=1e-6):
    """A group with a std below eps got 0, where such a std counts as eps.

    Hint: The smallest std to divide by is eps. By what is a smaller one replaced, and what is left of the differences then?
    """
    return by_group(rewards, group_ids, lambda r: in_stds(r, eps) * (r.std(unbiased=False) >= eps))


@mistake("group_advantages")
def tiny_std_is_dead(rewards, group_ids, eps=1e-6):
    """Groups whose rewards differ by very little were treated as if they were all equal, whatever eps says.

    Hint: Small is not equal. Which argument says how small a std may be, and is it looked at?
    """
    return by_group(rewards, group_ids, lambda r: in_stds(r, eps) * (r.std(unbiased=False) >= 1e-5))


@mistake("group_advantages")
def eps_ignored(rewards, group_ids, eps=1e-6):
    """The number 1e-6 was written into the formula, and the argument eps was ignored.

    Hint: Which number in your code should be a name?
    """
    return by_group(rewards, group_ids, lambda r: in_stds(r, 1e-6))


@mistake("group_advantages")
def float32_first(rewards, group_ids, eps=1e-6):
    """The rewards went through float32, which has seven digits, before the mean was taken off.

    Hint: Which digits of 1000.00009 does a float32 keep? Into which type does your first line turn the rewards?
    """
    return by_group(rewards.float(), group_ids, lambda r: in_stds(r, eps))


@mistake("group_advantages")
def clipped_at_five(rewards, group_ids, eps=1e-6):
    """The advantages were cut to -5 and 5, as some training code does against outliers.

    Hint: How many stds above its siblings is the one success among a hundred failures?
    """
    return by_group(rewards, group_ids, lambda r: in_stds(r, eps).clamp(-5, 5))


@mistake("group_advantages")
def clipped_at_ten(rewards, group_ids, eps=1e-6):
    """The advantages were cut to -10 and 10, as some training code does against outliers.

    Hint: How many stds above its siblings is the one success among 400 failures?
    """
    return by_group(rewards, group_ids, lambda r: in_stds(r, eps).clamp(-10, 10))


@mistake("group_advantages")
def trl_formula(rewards, group_ids, eps=1e-6):
    """Each group got TRL's own line, (r - mean) / (r.std() + 1e-4): the sample std, and another eps.

    Hint: Two conventions in one line are not this course's. Look at the card above the exercise: by what is the sum of squares divided, and
    what is done about a small std?
    """
    out = torch.zeros(len(rewards))
    for g in group_ids.unique():
        r = rewards[group_ids == g].float()
        out[group_ids == g] = (r - r.mean()) / (r.std() + 1e-4)
    return out


@mistake("group_advantages")
def whole_batch_sample_std(rewards, group_ids, eps=1e-6):
    """One mean and torch's own std, which divides by N - 1, were taken over the whole batch; the ids were not used.

    Hint: Two things to look at: with whom is an answer compared, and by what does the course's std divide?
    """
    r = rewards.float()
    return (r - r.mean()) / (r.std() + eps)


@mistake("group_advantages")
def float_rewards_in_place(rewards, group_ids, eps=1e-6):
    """The rewards that came in were overwritten where they are floats: float() and double() copy only where the type changes.

    Hint: What does rewards.float() return when the rewards are floats already: a copy, or the same tensor?
    """
    r = rewards if rewards.is_floating_point() else rewards.float()
    for g in group_ids.unique():
        r[group_ids == g] = in_stds(r[group_ids == g].double(), eps).to(r.dtype)
    return r.clone()


@mistake("group_advantages")
def ids_in_place(rewards, group_ids, eps=1e-6):
    """The ids that came in were renamed in place.

    Hint: To rename the ids is a good idea. In whose tensor should it happen?
    """
    group_ids.copy_(group_ids.unique(return_inverse=True)[1])
    return by_group(rewards, group_ids, lambda r: in_stds(r, eps))


@right("group_advantages")
def double_mask_loop(rewards, group_ids, eps=1e-6):
    """A loop over the ids with masks, float64 inside."""
    out = torch.empty(len(rewards))
    for g in group_ids.unique().tolist():
        mine = rewards[group_ids == g].to(torch.float64)
        out[group_ids == g] = ((mine - mine.mean()) / mine.std(correction=0).clamp(min=eps)).float()
    return out


@right("group_advantages")
def scatter_reduce(rewards, group_ids, eps=1e-6):
    """scatter_reduce with the mean, under no_grad."""
    with torch.no_grad():
        group = torch.unique(group_ids, return_inverse=True)[1]
        r = rewards.double()
        empty = torch.zeros(int(group.max()) + 1, dtype=r.dtype)
        centred = r - empty.scatter_reduce(0, group, r, "mean", include_self=False)[group]
        variance = empty.scatter_reduce(0, group, centred.square(), "mean", include_self=False)[group]
        return (centred / variance.sqrt().clamp_min(eps)).float()


@right("group_advantages")
def bincount(rewards, group_ids, eps=1e-6):
    """bincount with weights, which counts in float64."""
    _, group, size = group_ids.unique(return_inverse=True, return_counts=True)
    r = rewards.double()
    centred = r - (torch.bincount(group, weights=r) / size)[group]
    std = (torch.bincount(group, weights=centred**2) / size).sqrt()[group]
    return (centred / torch.maximum(std, torch.tensor(eps, dtype=std.dtype))).to(torch.get_default_dtype())


@right("group_advantages")
def one_hot_matrix(rewards, group_ids, eps=1e-6):
    """Group sums by a one-hot matrix product."""
    group = group_ids.unique(return_inverse=True)[1]
    member = torch.nn.functional.one_hot(group).double()  # [N, groups]
    r = rewards.double()
    size = member.sum(0)
    centred = r - member @ (member.T @ r / size)
    return (centred / (member @ (member.T @ centred**2 / size)).sqrt().clamp_min(eps)).float()


@right("group_advantages")
def pairwise_mask(rewards, group_ids, eps=1e-6):
    """An [N, N] mask of siblings, no float64, dead groups found by the largest and the smallest reward."""
    siblings = group_ids[:, None] == group_ids[None, :]
    r = rewards if rewards.is_floating_point() else rewards.float()
    size = siblings.sum(1)
    mean = (siblings * r).sum(1) / size
    std = ((siblings * (r - mean[:, None]) ** 2).sum(1) / size).sqrt()
    table = r.expand(len(r), -1)
    alive = table.masked_fill(~siblings, -torch.inf).amax(1) > table.masked_fill(~siblings, torch.inf).amin(1)
    return torch.where(alive, (r - mean) / std.clamp_min(eps), 0.0)


@right("group_advantages")
def sort_split_unsort(rewards, group_ids, eps=1e-6):
    """Sorted by id, split, normalised, put back."""
    order = torch.argsort(group_ids)
    sizes = torch.unique(group_ids, return_counts=True)[1].tolist()
    parts = [(r - r.mean()) / r.std(unbiased=False).clamp_min(eps) for r in rewards.double()[order].split(sizes)]
    out = torch.empty(len(rewards), dtype=torch.float64)
    out[order] = torch.cat(parts)
    return out


@right("group_advantages")
def python_dict(rewards, group_ids, eps=1e-6):
    """A dict of lists and plain Python, slow but right."""
    groups = {}
    for reward, g in zip(rewards.tolist(), group_ids.tolist()):
        groups.setdefault(g, []).append(reward)
    out = []
    for reward, g in zip(rewards.tolist(), group_ids.tolist()):
        mean = math.fsum(groups[g]) / len(groups[g])
        std = math.sqrt(math.fsum((x - mean) ** 2 for x in groups[g]) / len(groups[g]))
        out.append((reward - mean) / max(std, eps))
    return torch.tensor(out)


@right("group_advantages")
def numpy_inside(rewards, group_ids, eps=1e-6):
    """numpy inside, float64."""
    r, ids = rewards.detach().cpu().numpy().astype(np.float64), group_ids.cpu().numpy()
    out = np.zeros_like(r)
    for g in np.unique(ids):
        mine = r[ids == g]
        out[ids == g] = (mine - mine.mean()) / np.maximum(mine.std(), eps)
    return torch.from_numpy(out).float()


@right("group_advantages")
def eps_added(rewards, group_ids, eps=1e-6):
    """The eps added to the std and not clamped at, as verl does."""
    return by_group(rewards, group_ids, lambda r: (r - r.mean()) / (r.std(unbiased=False) + eps))


@right("group_advantages")
def float32_with_a_look_first(rewards: torch.Tensor, group_ids: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """The type of the rewards throughout; groups without a difference are passed over."""
    floats = rewards.float() if not torch.is_floating_point(rewards) else rewards
    out = torch.zeros_like(floats)
    for g in set(group_ids.tolist()):
        where = (group_ids == g).nonzero().squeeze(1)
        r = floats[where]
        if (r != r[0]).any():
            out[where] = (r - r.mean()) / max(torch.sqrt(torch.mean((r - r.mean()) ** 2)).item(), eps)
    return out


@right("group_advantages")
def shifted_first(rewards, group_ids, eps=1e-6):
    """Each group is shifted by its smallest reward before anything is averaged, so that ties are exactly 0."""
    floats = rewards.to(torch.promote_types(rewards.dtype, torch.float32))
    out = torch.zeros_like(floats)
    for g in group_ids.unique():
        r = floats[group_ids == g]
        r = r - r.min()
        out[group_ids == g] = (r - r.mean()) / r.std(unbiased=False).clamp_min(eps)
    return out


@right("group_advantages")
def one_pass_in_float64(rewards, group_ids, eps=1e-6):
    """Mean of squares minus square of mean, in float64, where it is good enough."""

    def formula(r):
        variance = (r**2).mean() - r.mean() ** 2
        return (r - r.mean()) / variance.clamp_min(eps**2).sqrt()

    return by_group(rewards, group_ids, formula)


# --- dead_group_probability -------------------------------------------------------------------------------------------


@mistake("dead_group_probability")
def dead_all_wrong_only(p, group_size):
    """Only the groups in which everybody is wrong were counted.

    Hint: What is the advantage of each answer when all of them are right?
    """
    return (1 - p) ** group_size


@mistake("dead_group_probability")
def dead_all_right_only(p, group_size):
    """Only the groups in which everybody is right were counted.

    Hint: What is the advantage of each answer when all of them are wrong?
    """
    return p**group_size


@mistake("dead_group_probability")
def dead_product(p, group_size):
    """The two probabilities were multiplied: all right and all wrong at once.

    Hint: One or the other makes a group dead. They never happen together.
    """
    return p**group_size * (1 - p) ** group_size


@mistake("dead_group_probability")
def dead_as_if_independent(p, group_size):
    """The product was subtracted, as if a group could be all right and all wrong at once.

    Hint: That correction counts what is in both events. How often does that happen here?
    """
    a, b = p**group_size, (1 - p) ** group_size
    return a + b - a * b


@mistake("dead_group_probability")
def dead_alive(p, group_size):
    """The probability that a group can teach came out, not that of a dead one.

    Hint: Should it grow or shrink when the group gets larger?
    """
    return 1 - p**group_size - (1 - p) ** group_size


@mistake("dead_group_probability")
def dead_misplaced_bracket(p, group_size):
    """The bracket was misplaced: 1 - p^G is the probability that not all answers are right.

    Hint: Is "not all are right" the same as "all are wrong"? Which probability has to be multiplied G times for the second?
    """
    return p**group_size + (1 - p**group_size)


@mistake("dead_group_probability")
def dead_times_for_power(p, group_size):
    """The probability was multiplied by G and not raised to the power G.

    Hint: The first is right, and the second is right, and the third: what happens to their probabilities?
    """
    return p * group_size + (1 - p) * group_size


@mistake("dead_group_probability")
def dead_first_is_free(p, group_size):
    """The powers were G - 1, as if the first answer did not count.

    Hint: Only G - 1 answers must agree with the first, but the first is itself right or wrong with some probability.
    """
    return p ** (group_size - 1) + (1 - p) ** (group_size - 1)


@mistake("dead_group_probability")
def dead_agrees_with_the_first(p, group_size):
    """The others were taken to agree with the first with probability one half each.

    Hint: Two answers agree more often the further p is from one half.
    """
    return 0.5 ** (group_size - 1)


@mistake("dead_group_probability")
def dead_pairs(p, group_size):
    """The probability that two answers agree was raised to the power G - 1.

    Hint: If one and two agree, and two and three, are the two events independent?
    """
    return (p**2 + (1 - p) ** 2) ** (group_size - 1)


@mistake("dead_group_probability")
def dead_group_of_two(p, group_size):
    """The probability is that for a group of two, whatever group_size says.

    Hint: Where in your formula does group_size stand?
    """
    return p**2 + (1 - p) ** 2


@mistake("dead_group_probability")
def dead_twice(p, group_size):
    """The probability of one end was doubled.

    Hint: Are the two ends equally likely? Try p = .9.
    """
    return 2 * (1 - p) ** group_size


@mistake("dead_group_probability")
def dead_simulated(p, group_size):
    """The probability was estimated by drawing groups.

    Hint: A thousand draws give two digits. There is a formula that gives them all.
    """
    draws = torch.rand(1000, group_size, generator=torch.Generator().manual_seed(0)) < p
    return (draws.all(1) | ~draws.any(1)).float().mean().item()


@mistake("dead_group_probability")
def dead_rounded(p, group_size):
    """The result was rounded.

    Hint: Leave rounding to whoever prints the number.
    """
    return round(p**group_size + (1 - p) ** group_size, 2)


@mistake("dead_group_probability")
def dead_percent(p, group_size):
    """The result came out in per cent.

    Hint: A probability lies between 0 and 1.
    """
    return 100 * (p**group_size + (1 - p) ** group_size)


@mistake("dead_group_probability")
def dead_caret(p, group_size):
    """The power was written as ^, which in Python is something else.

    Hint: How does Python write a power?
    """
    return p ^ group_size + (1 - p) ^ group_size


@mistake("dead_group_probability")
def dead_rounded_to_six(p, group_size):
    """The result was rounded to six digits.

    Hint: Leave rounding to whoever prints the number. What is left of a small probability?
    """
    return round(p**group_size + (1 - p) ** group_size, 6)


@mistake("dead_group_probability")
def dead_as_tensor(p, group_size):
    """A tensor came back where the exercise promises a float.

    Hint: The number is right. What does .item() do?
    """
    chances = torch.tensor([p, 1 - p], dtype=torch.float64)
    return (chances**group_size).sum()


@mistake("dead_group_probability")
def dead_printed(p, group_size):
    """The probability was printed, and nothing came back.

    Hint: Who calls the function gets what stands behind return. What stands there?
    """
    print(p**group_size + (1 - p) ** group_size)


@right("dead_group_probability")
def dead_loop(p, group_size):
    """Multiplied out in a loop."""
    everybody, nobody = 1.0, 1.0
    for _ in range(group_size):
        everybody *= p
        nobody *= 1 - p
    return everybody + nobody


@right("dead_group_probability")
def dead_complement(p, group_size):
    """One minus the groups that are mixed, by the binomial distribution."""
    mixed = 0.0
    for k in range(1, group_size):
        mixed += math.comb(group_size, k) * p**k * (1 - p) ** (group_size - k)
    return 1 - mixed


@right("dead_group_probability")
def dead_math_pow(p: float, group_size: int) -> float:
    """math.pow."""
    return math.pow(p, group_size) + math.pow(1 - p, group_size)


@right("dead_group_probability")
def dead_enumerated(p, group_size):
    """Every outcome, one by one."""
    total = 0.0
    for outcome in itertools.product((True, False), repeat=group_size):
        if all(outcome) or not any(outcome):
            total += math.prod(p if x else 1 - p for x in outcome)
    return total


@right("dead_group_probability")
def dead_torch(p, group_size):
    """torch, float64."""
    chances = torch.tensor([p, 1 - p], dtype=torch.float64)
    return (chances**group_size).sum().item()


@right("dead_group_probability")
def dead_numpy(p, group_size):
    """numpy, a Python float returned."""
    return float(np.power([p, 1 - p], float(group_size)).sum())


@right("dead_group_probability")
def dead_logs(p, group_size):
    """Exponentials of logs, the ends of p apart."""
    if p in (0, 1):
        return 1.0
    return math.exp(group_size * math.log(p)) + math.exp(group_size * math.log1p(-p))


@right("dead_group_probability")
def dead_recursion(p, group_size):
    """Recursion over the size of the group."""

    def all_alike(q, n):
        return 1.0 if n == 0 else q * all_alike(q, n - 1)

    return all_alike(p, group_size) + all_alike(1 - p, group_size)


# --- smallest_group_size ----------------------------------------------------------------------------------------------


def dead(p, size):
    return p**size + (1 - p) ** size


@mistake("smallest_group_size")
def size_powers_of_two(p, target):
    """Only powers of two were tried.

    Hint: A group of 32 is enough at p = .1 for a target of .1. Is one of 31 enough, too?
    """
    if p in (0, 1):
        return None
    size = 2
    while dead(p, size) > target:
        size *= 2
    return size


@mistake("smallest_group_size")
def size_one_too_many(p, target):
    """The loop went one step past the first size that will do.

    Hint: When your loop stops, which size was the last one that it tried?
    """
    if p in (0, 1):
        return None
    size, found = 1, False
    while not found:
        size += 1
        found = dead(p, size) <= target
    return size + 1


@mistake("smallest_group_size")
def size_one_too_few(p, target):
    """The last size that will not do was returned.

    Hint: Put your result into dead_group_probability. Is the target met?
    """
    if p in (0, 1):
        return None
    size = 2
    while dead(p, size) > target:
        size += 1
    return size - 1


@mistake("smallest_group_size")
def size_strictly_below(p, target):
    """A probability of exactly the target was not accepted.

    Hint: Is a share that equals the target still "at most" the target?
    """
    if p in (0, 1):
        return None
    size = 2
    while dead(p, size) >= target:
        size += 1
    return size


@mistake("smallest_group_size")
def size_by_one_logarithm(p, target):
    """Only the likelier of the two ends was counted, so that a logarithm gives the size.

    Hint: A good first guess. At p = .5 the other end counts as much; what does that do to the size?
    """
    if p in (0, 1):
        return None
    return max(2, math.ceil(math.log(target) / math.log(max(p, 1 - p)) - 1e-9))


@mistake("smallest_group_size")
def size_logarithm_rounded_down(p, target):
    """The logarithm was rounded down, which ends one answer short of the target.

    Hint: The solution lies between two whole numbers. Put both into dead_group_probability: which one meets the target?
    """
    if p in (0, 1):
        return None
    return max(2, int(math.log(target) / math.log(max(p, 1 - p))))


@mistake("smallest_group_size")
def size_wrong_answers_only(p, target):
    """Only groups in which everybody is wrong were counted.

    Hint: What about a question that is too easy, p = .9?
    """
    if p in (0, 1):
        return None
    size = 2
    while (1 - p) ** size > target:
        size += 1
    return size


@mistake("smallest_group_size")
def size_right_answers_only(p, target):
    """Only groups in which everybody is right were counted.

    Hint: What about a question that is too hard, p = .1?
    """
    if p in (0, 1):
        return None
    size = 2
    while p**size > target:
        size += 1
    return size


@mistake("smallest_group_size")
def size_target_alive(p, target):
    """The target was read as the share of groups that are not dead.

    Hint: Read the row of target in the table once more: of which groups is it the largest share?
    """
    if p in (0, 1):
        return None
    size = 2
    while 1 - dead(p, size) < target:
        size += 1
    return size


@mistake("smallest_group_size")
def size_first_that_fails(p, target):
    """The comparison was turned round: the loop stopped at the first size that does not meet the target.

    Hint: On which side of the target is the probability while the loop still has to go on?
    """
    size = 2
    while dead(p, size) <= target:
        size += 1
        if size > 5000:
            return None
    return size if 0 < p < 1 else None


@mistake("smallest_group_size")
def size_gives_up_early(p, target):
    """The search ended at a fixed size and said None, though a larger group would do.

    Hint: For which p is there really no G? All others have one, however large.
    """
    return next((size for size in range(2, 33) if dead(p, size) <= target), None)


@mistake("smallest_group_size")
def size_largest_tried(p, target):
    """Where no group is large enough, the largest size that was tried was returned.

    Hint: What does the exercise ask for when every group is dead?
    """
    size = 2
    while dead(p, size) > target and size < 10000:
        size += 1
    return size


@mistake("smallest_group_size")
def size_infinity(p, target):
    """Infinity was returned where no group is large enough.

    Hint: A sensible idea. What does the exercise ask for where no G is large enough?
    """
    if p in (0, 1):
        return math.inf
    size = 2
    while dead(p, size) > target:
        size += 1
    return size


@mistake("smallest_group_size")
def size_zero_for_none(p, target):
    """The number 0 was returned where no group is large enough.

    Hint: Somebody may compute with a 0. How does Python say "there is none"?
    """
    if p in (0, 1):
        return 0
    size = 2
    while dead(p, size) > target:
        size += 1
    return size


@mistake("smallest_group_size")
def size_only_zero_is_hopeless(p, target):
    """At p = 0 it was seen that no group is large enough; at p = 1 a size was returned.

    Hint: What is the std of a group in which everybody is always right?
    """
    if p == 0:
        return None
    size = 2
    while dead(p, size) > target and size < 10000:
        size += 1
    return size


@mistake("smallest_group_size")
def size_fractional(p, target):
    """The solution of the equation was not made a whole number.

    Hint: How many answers are 21.85 answers?
    """
    if p in (0, 1):
        return None
    return math.log(target) / math.log(max(p, 1 - p))


@mistake("smallest_group_size")
def size_probability_returned(p, target):
    """The probability that was reached came out, not the size that reached it.

    Hint: Which of the two does the exercise ask for?
    """
    if p in (0, 1):
        return None
    size = 2
    while dead(p, size) > target:
        size += 1
    return dead(p, size)


@mistake("smallest_group_size")
def size_one_logarithm_but_at_half(p, target):
    """Only the likelier of the two ends was counted, so that a logarithm gives the size, with p = .5 as the one exception.

    Hint: At p = .6 the other end still counts. Put your size, and one less, into dead_group_probability.
    """
    if p in (0, 1):
        return None
    both = 0.5 if p == 0.5 else 1
    return max(2, math.ceil(math.log(target * both) / math.log(max(p, 1 - p)) - 1e-9))


@mistake("smallest_group_size")
def size_search_ends(p, target):
    """The search ended at some size and said None, though a larger group would do.

    Hint: For which two p is there really no G? All others have one, however large.
    """
    return next((size for size in range(2, 513) if dead(p, size) <= target), None)


@mistake("smallest_group_size")
def size_near_the_ends_is_none(p, target):
    """No size was returned for a p close to 0 or 1, as if it were 0 or 1 itself.

    Hint: At p = .005 some groups are not dead. Which two values of p leave none?
    """
    if p < 0.01 or p > 0.99:
        return None
    size = 2
    while dead(p, size) > target:
        size += 1
    return size


@mistake("smallest_group_size")
def size_as_float(p, target):
    """The right size came back as a float.

    Hint: How many answers are 22.0 answers? Which type does the exercise promise?
    """
    if p in (0, 1):
        return None
    size = 2.0
    while dead(p, size) > target:
        size += 1
    return size


@right("smallest_group_size")
def size_own_formula(p, target):
    """Counts up with a formula of its own."""
    if not 0 < p < 1:
        return None
    size = 1
    while p**size + (1 - p) ** size > target:
        size += 1
    return size


@right("smallest_group_size")
def size_next(p, target):
    """A generator over all sizes."""
    if p == 0 or p == 1:
        return None
    return next(size for size in itertools.count(1) if dead_group_probability(p, size) <= target)


@right("smallest_group_size")
def size_bisection(p, target):
    """Doubling, then bisection."""
    if p <= 0 or p >= 1:
        return None
    low, high = 1, 2
    while dead_group_probability(p, high) > target:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if dead_group_probability(p, middle) > target else (low, middle)
    return high


@right("smallest_group_size")
def size_logarithm_then_walk(p, target):
    """A logarithm as a first guess, then a walk to the first size that will do."""
    if p in (0.0, 1.0):
        return None
    size = max(2, int(math.log(target) / math.log(max(p, 1 - p))) - 1)
    while dead_group_probability(p, size) > target:
        size += 1
    return size


@right("smallest_group_size")
def size_running_products(p, target):
    """The two powers are carried along."""
    everybody, nobody, size = p, 1 - p, 1
    while everybody + nobody > target:
        everybody, nobody, size = everybody * p, nobody * (1 - p), size + 1
        if max(p, 1 - p) == 1:
            return None
    return size


@right("smallest_group_size")
def size_bounded_search(p, target):
    """A search with an end that is far beyond anything asked for."""
    for size in range(2, 10_000):
        if dead_group_probability(p, size) <= target:
            return size
    return None


@right("smallest_group_size")
def size_numpy(p, target):
    """All sizes at once."""
    sizes = np.arange(1, 10_000)
    enough = np.flatnonzero(p**sizes + (1 - p) ** sizes <= target)
    return int(sizes[enough[0]]) if len(enough) else None


@right("group_advantages")
def cumulative_sums(rewards, group_ids, eps=1e-6):
    """Sorted by id; a group's sum is a difference of two running sums."""
    order = group_ids.argsort()
    r, ids = rewards[order].double(), group_ids[order]
    r = r - r[0]
    ends = torch.cat([(ids[1:] != ids[:-1]).nonzero().flatten() + 1, torch.tensor([len(ids)])])
    starts = torch.cat([torch.tensor([0]), ends[:-1]])
    size = ends - starts

    def mean(x):
        running = torch.cat([x.new_zeros(1), x.cumsum(0)])
        return ((running[ends] - running[starts]) / size).repeat_interleave(size)

    uniform = torch.cat([(r[a:b] == r[a]).all().expand(b - a) for a, b in zip(starts.tolist(), ends.tolist())])
    centred = (r - mean(r)).masked_fill(uniform, 0.0)
    out = torch.empty(len(r), dtype=torch.float64)
    out[order] = centred / mean(centred**2).clamp_min(0).sqrt().clamp_min(eps)
    return out.to(rewards.dtype if rewards.is_floating_point() else torch.float32)


@right("group_advantages")
def exact_fractions(rewards, group_ids, eps=1e-6):
    """Exact sums of fractions, one group at a time."""
    places = {}
    for i, g in enumerate(group_ids.tolist()):
        places.setdefault(g, []).append(i)
    out = [0.0] * len(rewards)
    for group in places.values():
        r = [Fraction(rewards[i].item()) for i in group]
        mean = sum(r) / len(r)
        std = math.sqrt(sum((x - mean) ** 2 for x in r) / len(r))
        for i, x in zip(group, r):
            out[i] = float(x - mean) / max(std, eps)
    return torch.tensor(out, dtype=rewards.dtype if rewards.is_floating_point() else torch.float32)


@right("group_advantages")
def running_mean_and_spread(rewards, group_ids, eps=1e-6):
    """Mean and spread kept up to date answer by answer (Welford)."""
    state = {}
    for r, g in zip(rewards.tolist(), group_ids.tolist()):
        n, mean, spread = state.get(g, (0, 0.0, 0.0))
        n, step = n + 1, r - mean
        mean = mean + step / n
        state[g] = n, mean, spread + step * (r - mean)
    out = [(r - state[g][1]) / max((state[g][2] / state[g][0]) ** 0.5, eps) for r, g in zip(rewards.tolist(), group_ids.tolist())]
    return torch.tensor(out, dtype=rewards.dtype if rewards.dtype.is_floating_point else torch.float32)


@right("dead_group_probability")
def dead_binomial(p, group_size):
    """The two ends of the binomial distribution."""
    return sum(math.comb(group_size, k) * p**k * (1 - p) ** (group_size - k) for k in {0, group_size}) + 0.0


@right("gae_advantages")
def gae_convolution(rewards, values, gamma=0.99, lam=0.95):
    """Surprises weighted by powers, as one product with a triangle of exponents."""
    surprises = rewards + gamma * values[1:] - values[:-1]
    n = len(surprises)
    ahead = torch.arange(n)[None, :] - torch.arange(n)[:, None]
    weights = torch.where(ahead >= 0, (gamma * lam) ** ahead.clamp_min(0).double(), 0.0)
    return (weights @ surprises.double()).to(surprises.dtype)
