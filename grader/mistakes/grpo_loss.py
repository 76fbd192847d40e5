"""Wrong and right versions of the exercises of notebook 2. Free names are the notebook's own (given cells and the key)."""

from collections import defaultdict

import numpy as np
import torch

from grader.mistakes import mistake, right


def own_group_advantages(rewards, group_ids, eps=1e-6):
    """TODO 1 done right, by a mask per group: for versions whose point is elsewhere."""
    r = rewards.double()
    advantages = torch.zeros(len(r))
    for g in group_ids.unique():
        mine = group_ids == g
        centred = r[mine] - r[mine].mean()
        advantages[mine] = (centred / centred.square().mean().sqrt().clamp_min(eps)).float()
    return advantages


def clipped_loss(log_probs_new, log_probs_old, advantages, clip_range):
    """TODO 2 and 3 done right: for versions whose point is elsewhere."""
    ratio = torch.exp(log_probs_new - log_probs_old)
    return -torch.min(ratio * advantages, ratio.clamp(1 - clip_range, 1 + clip_range) * advantages).mean()


def places(mask, max_length):
    """What "constant" divides by."""
    return mask.shape[0] * (mask.shape[1] if max_length is None else max_length)


def aggregated(per_token, mask, aggregate, max_length):
    """Padding set to 0, then the three aggregations done right: for versions whose point is elsewhere."""
    per_token = per_token.masked_fill(~mask, 0.0)
    if aggregate == "sequence":
        return (per_token.sum(1) / mask.sum(1).clamp_min(1)).mean()
    return per_token.sum() / (mask.sum() if aggregate == "token" else places(mask, max_length))


def column(advantages):
    """One advantage per answer as a column [N, 1]; one per token as it is."""
    return advantages[:, None] if advantages.dim() == 1 else advantages


def token_ratio(log_probs_new, log_probs_old, mask):
    """One ratio per token, 1 in the padding: for versions whose point is elsewhere."""
    return torch.exp((log_probs_new - log_probs_old).masked_fill(~mask, 0.0))


def token_loss(log_probs_new, log_probs_old, advantages, mask, clip_range):
    """The loss per token done right: for versions whose point is elsewhere."""
    ratio, A = token_ratio(log_probs_new, log_probs_old, mask), advantages[:, None]
    return -torch.min(ratio * A, ratio.clamp(1 - clip_range, 1 + clip_range) * A)


# ---------------------------------------------------------------- compute_grpo_loss: the advantages


@mistake("compute_grpo_loss")
def sample_std(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The std of each group was taken with G - 1 in the divisor: the sample convention, not the course's.

    Hint: There are two conventions for the std. Which one did the card in notebook 1 choose, and which does torch.std take by default?
    """
    advantages = torch.zeros(len(rewards))
    for g in group_ids.unique():
        mine = group_ids == g
        r = rewards[mine].double()
        if len(r) > 1:
            advantages[mine] = ((r - r.mean()) / r.std().clamp_min(eps)).float()
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def singleton_nan(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The sample std was taken: NaN for a group of one answer, and not the course's convention for any other.

    Hint: What is 0/0, and which convention for the std would not ask for it?
    """
    advantages = torch.zeros(len(rewards))
    for g in group_ids.unique():
        mine = group_ids == g
        r = rewards[mine].double()
        advantages[mine] = ((r - r.mean()) / r.std().clamp_min(eps)).float()
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def singleton_raw(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """A lone answer kept its raw reward as its advantage.

    Hint: With whom could an answer be compared that has no siblings, and what should it teach?
    """
    advantages = torch.zeros(len(rewards))
    for g in group_ids.unique():
        mine = group_ids == g
        r = rewards[mine].double()
        mean, std = (r.mean(), r.std(correction=0)) if len(r) > 1 else (torch.tensor(0.0), torch.tensor(1.0))
        advantages[mine] = ((r - mean) / std.clamp_min(eps)).float()
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def whole_batch(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """One mean and one std were used for the whole batch; the group ids had no part in it.

    Hint: Go back to the two prompts with the rewards 6, 5 and 1, 0: whose mean is the baseline of an answer?
    """
    r = rewards.double()
    advantages = ((r - r.mean()) / r.std(unbiased=False).clamp_min(eps)).float()
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def whole_batch_sample_std(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """One mean and one std, with N - 1 in the divisor, were used for the whole batch.

    Hint: Two things to look at: whose mean is the baseline of an answer, and which convention for the std is the course's?
    """
    r = rewards.float()
    advantages = (r - r.mean()) / (r.std() + eps)
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def batch_std(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The mean was that of the group, the std that of the whole batch.

    Hint: The unit in which an answer is measured belongs to its group, too.
    """
    r = rewards.double()
    centred = r.clone()
    for g in group_ids.unique():
        centred[group_ids == g] -= r[group_ids == g].mean()
    advantages = (centred / r.std(unbiased=False).clamp_min(eps)).float()
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def centred_batch_std(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The group means were taken off, then one std over all centred rewards was the unit for everybody.

    Hint: Two groups, one with a wide and one with a narrow spread: should they share a unit?
    """
    r = rewards.double()
    centred = r.clone()
    for g in group_ids.unique():
        centred[group_ids == g] -= r[group_ids == g].mean()
    advantages = (centred / centred.square().mean().sqrt().clamp_min(eps)).float()
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def positional(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The groups were cut by position, as many answers each as an average group has; the ids were not looked at.

    Hint: Which prompt does the third answer of the separating batch belong to, and who are its siblings?
    """
    size = max(1, len(rewards) // len(group_ids.unique()))
    advantages = torch.zeros(len(rewards))
    for chunk in torch.arange(len(rewards)).split(size):
        r = rewards[chunk].double()
        advantages[chunk] = ((r - r.mean()) / r.std(unbiased=False).clamp_min(eps)).float()
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def neighbours_only(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """Only equal ids that stand next to each other were taken as one group.

    Hint: What happens in your code when an id comes back later?
    """
    _, runs = group_ids.unique_consecutive(return_inverse=True)
    advantages = own_group_advantages(rewards, runs, eps)
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def sorted_not_unsorted(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The answers were sorted by group, and the advantages were left in the sorted order.

    Hint: The log-probs still stand in the order in which they came. Do the advantages?
    """
    order = group_ids.argsort(stable=True)
    advantages = own_group_advantages(rewards[order], group_ids[order], eps)
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def new_id_each(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """Every answer was treated as its own group, so that nothing was left of the rewards.

    Hint: Two tensors are different keys of a dict, even if equal. How many groups does your code find in the separating batch?
    """
    groups = defaultdict(list)
    for i, g in enumerate(group_ids):
        groups[g].append(i)
    r = rewards.double()
    advantages = torch.zeros(len(rewards))
    for members in groups.values():
        own = r[members]
        advantages[members] = ((own - own.mean()) / own.std(unbiased=False).clamp_min(eps)).float()
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def table_by_raw_id(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The ids were used as places in a table: negative ids hit another group's row, and huge ones asked for all memory.

    Hint: Ids are labels. Which function gives them numbers from 0 upwards?
    """
    rows = int(group_ids.max()) + 1
    assert rows < 10**7, "a table with a row for every possible id does not fit into memory"
    group = group_ids % rows  # what indexing with a negative number does
    r = rewards.double()
    count = torch.zeros(rows).double().index_add_(0, group, torch.ones_like(r)).clamp_min(1)
    mean = torch.zeros(rows).double().index_add_(0, group, r) / count
    centred = r - mean[group]
    std = (torch.zeros(rows).double().index_add_(0, group, centred**2) / count).sqrt()
    advantages = (centred / std[group].clamp_min(eps)).float()
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def ids_from_zero(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The groups were taken to be numbered 0, 1, 2, …; answers with any other id got nothing.

    Hint: Which ids does your loop visit, and which ids does the separating batch hold?
    """
    r = rewards.double()
    advantages = torch.zeros(len(r))
    for g in range(len(group_ids.unique())):
        mine = group_ids == g
        if mine.any():
            advantages[mine] = ((r[mine] - r[mine].mean()) / r[mine].std(unbiased=False).clamp_min(eps)).float()
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def ids_up_to_the_largest(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The loop ran over all ids from 0 to the largest: negative ones were passed over, and with a huge one it never ends.

    Hint: Ids are labels: any integers. Where can you get the list of those that occur?
    """
    advantages = torch.zeros(len(rewards))
    for g in range(int(group_ids.max()) + 1):
        if (group_ids == g).any():
            advantages[group_ids == g] = own_group_advantages(rewards[group_ids == g], group_ids[group_ids == g], eps)
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def no_std(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The rewards were centred in their groups and not divided by the std (the convention of Dr. GRPO).

    Hint: In what unit is an advantage measured in this course?
    """
    r = rewards.double()
    advantages = torch.zeros(len(r))
    for g in group_ids.unique():
        advantages[group_ids == g] = (r[group_ids == g] - r[group_ids == g].mean()).float()
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def by_variance(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The centred rewards were divided by the variance of the group, not by its std.

    Hint: If all rewards were ten times as large, would your advantages stay what they are?
    """
    r = rewards.double()
    advantages = torch.zeros(len(r))
    for g in group_ids.unique():
        own = r[group_ids == g]
        advantages[group_ids == g] = ((own - own.mean()) / own.var(unbiased=False).clamp_min(eps)).float()
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def no_centring(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The rewards were divided by the std of their group without taking its mean off.

    Hint: An answer that is exactly average should be pushed neither up nor down.
    """
    r = rewards.double()
    advantages = torch.zeros(len(r))
    for g in group_ids.unique():
        own = r[group_ids == g]
        advantages[group_ids == g] = (own / own.std(unbiased=False).clamp_min(eps)).float()
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def raw_rewards(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The raw rewards were used as advantages.

    Hint: TODO 1 turns rewards into advantages. What does a reward of 1 say if all siblings have 1?
    """
    advantages = rewards.float()
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def best_of_group(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The baseline was the best reward of the group, not the mean.

    Hint: With your baseline no answer is ever praised. What should the advantages of a group add up to?
    """
    r = rewards.double()
    advantages = torch.zeros(len(r))
    for g in group_ids.unique():
        own = r[group_ids == g]
        advantages[group_ids == g] = ((own - own.max()) / own.std(unbiased=False).clamp_min(eps)).float()
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def median_baseline(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The baseline was the median of the group, not the mean.

    Hint: Which kind of middle makes the advantages of a group add up to zero?
    """
    r = rewards.double()
    advantages = torch.zeros(len(r))
    for g in group_ids.unique():
        own = r[group_ids == g]
        advantages[group_ids == g] = ((own - own.median()) / own.std(unbiased=False).clamp_min(eps)).float()
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def leave_one_out(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """Each answer was compared with the mean of the others (leave-one-out, as in RLOO), then divided by the std of all.

    Hint: A good baseline, but another method's. Whose rewards are in GRPO's mean?
    """
    r = rewards.double()
    advantages = torch.zeros(len(r))
    for g in group_ids.unique():
        own = r[group_ids == g]
        if len(own) > 1:
            others = (own.sum() - own) / (len(own) - 1)
            advantages[group_ids == g] = ((own - others) / own.std(unbiased=False).clamp_min(eps)).float()
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def mean_absolute_deviation(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The unit was the mean absolute deviation of the group, not its std.

    Hint: Both measure spread. What does the std do to each distance before it averages?
    """
    r = rewards.double()
    advantages = torch.zeros(len(r))
    for g in group_ids.unique():
        centred = r[group_ids == g] - r[group_ids == g].mean()
        advantages[group_ids == g] = (centred / centred.abs().mean().clamp_min(eps)).float()
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def negated_advantages(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The sign of the advantages was turned round: mean minus reward.

    Hint: An answer is better than its siblings. Which sign should its advantage have?
    """
    advantages = -own_group_advantages(rewards, group_ids, eps)
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def tie_residue(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The advantages were computed in float32, so that equal rewards left a rounding residue which the tiny std blew up.

    Hint: In float32, 0.9 minus the mean of six 0.9 is not 0. In which precision would it be (nearly) so?
    """
    _, group, size = group_ids.unique(return_inverse=True, return_counts=True)
    r = rewards.float()
    mean = torch.zeros(len(size)).index_add_(0, group, r) / size
    centred = r - mean[group]
    std = (torch.zeros(len(size)).index_add_(0, group, centred**2) / size).sqrt()
    advantages = centred / std[group].clamp_min(eps)
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def tie_residue_eps_added(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The work was done in float32, with eps added to the std, so that equal rewards left a rounding residue.

    Hint: What is left of 0.9 minus the mean of six 0.9 in float32, and how does that compare with eps?
    """
    advantages = torch.zeros(len(rewards))
    for g in group_ids.unique():
        r = rewards[group_ids == g].float()
        advantages[group_ids == g] = (r - r.mean()) / (r.std(unbiased=False) + eps)
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def tiny_eps_added(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """A tiny constant (1e-8) was added to a float32 std, which leaves the rounding residue of equal rewards as large as a signal.

    Hint: What is the residue of six 0.9 in float32, compared with 1e-8? And which argument is there for this purpose?
    """
    advantages = torch.zeros(len(rewards))
    for g in group_ids.unique():
        r = rewards[group_ids == g].float()
        advantages[group_ids == g] = (r - r.mean()) / (r.std(unbiased=False) + 1e-8)
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def no_eps(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """Nothing kept the std from being 0, so that a group of equal rewards divided 0 by 0.

    Hint: What is the argument `eps` for?
    """
    advantages = torch.zeros(len(rewards))
    for g in group_ids.unique():
        r = rewards[group_ids == g].double()
        advantages[group_ids == g] = ((r - r.mean()) / r.std(unbiased=False)).float()
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def large_eps_added(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The constant 1e-4 was added to the std: TRL's convention, close to the course's but not equal to it.

    Hint: How does the card in notebook 1 keep the std away from 0, and does it change a std that is large enough?
    """
    r = rewards.double()
    advantages = torch.zeros(len(r))
    for g in group_ids.unique():
        own = r[group_ids == g]
        advantages[group_ids == g] = ((own - own.mean()) / (own.std(unbiased=False) + 1e-4)).float()
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def clip_range_for_eps(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The two epsilons were mixed up: clip_range was added to the std.

    Hint: One epsilon is the width of the band, the other keeps a division safe. Which is which here?
    """
    r = rewards.double()
    advantages = torch.zeros(len(r))
    for g in group_ids.unique():
        own = r[group_ids == g]
        advantages[group_ids == g] = ((own - own.mean()) / (own.std(unbiased=False) + clip_range)).float()
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def integer_mean(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The mean was asked of whole-number rewards as they came, which torch refuses.

    Hint: A mean needs fractions. Where could the rewards become floats?
    """
    advantages = torch.zeros(len(rewards))
    for g in group_ids.unique():
        r = rewards[group_ids == g]
        centred = (r - r.mean()).double()
        centred -= centred.mean()
        advantages[group_ids == g] = (centred / centred.square().mean().sqrt().clamp_min(eps)).float()
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def integer_result(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The advantages were written into a tensor of the rewards' type, which cuts 1.73 to 1 where rewards are whole numbers.

    Hint: Of which type is zeros_like(rewards), if the rewards are whole numbers?
    """
    advantages = torch.zeros_like(rewards)
    for g in group_ids.unique():
        r = rewards[group_ids == g].double()
        advantages[group_ids == g] = ((r - r.mean()) / r.std(unbiased=False).clamp_min(eps)).to(rewards.dtype)
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def integer_mean_division(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The mean of whole-number rewards was rounded down by an integer division.

    Hint: What is the mean of 2, 2, 2, 1, and does your code keep what stands behind the point?
    """
    r = rewards if not rewards.is_floating_point() else rewards.double()
    advantages = torch.zeros(len(r))
    for g in group_ids.unique():
        own = r[group_ids == g]
        mean = own.sum() / len(own) if own.is_floating_point() else own.sum() // len(own)
        centred = (own - mean).double()
        advantages[group_ids == g] = (centred / centred.square().mean().sqrt().clamp_min(eps)).float()
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def in_place(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The caller's own rewards were overwritten on the way.

    Hint: Into whose tensor do `-=`, `/=` and functions that end in an underscore write?
    """
    advantages = own_group_advantages(rewards, group_ids, eps)
    for g in group_ids.unique():
        rewards[group_ids == g] -= rewards[group_ids == g].double().mean().to(rewards.dtype)
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def ids_in_place(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The caller's own group ids were shifted or renamed in place.

    Hint: To rename the ids is a good idea. In whose tensor should it happen?
    """
    group_ids -= group_ids.min()
    advantages = own_group_advantages(rewards, group_ids, eps)
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def scattered_squares(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The variance was taken as the mean of the squared rewards, without their mean.

    Hint: The mean of r^2 is not the variance. What is missing, or in which order should centring and squaring come?
    """
    _, group, size = group_ids.unique(return_inverse=True, return_counts=True)
    r = rewards.double()
    mean = torch.zeros(len(size)).double().index_add_(0, group, r) / size
    square = torch.zeros(len(size)).double().index_add_(0, group, r * r) / size
    advantages = ((r - mean[group]) / square[group].sqrt().clamp_min(eps)).float()
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def twice_standardised(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The advantages were normalised in their groups and then once more over the whole batch.

    Hint: After the first normalisation the work is done. What does the second do to a batch with dead groups?
    """
    advantages = own_group_advantages(rewards, group_ids, eps)
    advantages = (advantages - advantages.mean()) / advantages.std(unbiased=False).clamp_min(eps)
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def eps_ignored(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The number 1e-6 was written into the formula, and the argument eps was ignored.

    Hint: Which number in your code should be a name?
    """
    advantages = own_group_advantages(rewards, group_ids)
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def std_below_eps_is_dead(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """A group with a std below eps got 0, where such a std counts as eps.

    Hint: The smallest std to divide by is eps. By what is a smaller one replaced, and what is left of the differences then?
    """
    std = torch.stack([rewards[group_ids == g].double().std(unbiased=False) for g in group_ids])
    advantages = torch.where(std < eps, 0.0, own_group_advantages(rewards, group_ids, eps))
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def tiny_std_is_dead(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """Groups whose rewards differ by very little were taken for dead, whatever eps says.

    Hint: Small is not equal. Which argument says how small a std may be, and is it looked at?
    """
    std = torch.stack([rewards[group_ids == g].double().std(unbiased=False) for g in group_ids])
    advantages = torch.where(std < 1e-5, 0.0, own_group_advantages(rewards, group_ids, eps))
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def float32_first(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The rewards went through float32, which has seven digits, before the mean was taken off.

    Hint: Which digits of 1000.00009 does a float32 keep? Into which type does your first line turn the rewards?
    """
    advantages = own_group_advantages(rewards.float(), group_ids, eps)
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def clipped_rewards(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The rewards were cut to -10 and 10, as some training code does against outliers.

    Hint: Only the ratio has a band. What is left of the rewards 1000 and 1016?
    """
    advantages = own_group_advantages(rewards.double().clamp(-10, 10), group_ids, eps)
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def clipped_advantages_at_ten(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The advantages were cut to -10 and 10, as some training code does against outliers.

    Hint: Only the ratio has a band. How many stds above its siblings is one success among 400 failures?
    """
    advantages = own_group_advantages(rewards, group_ids, eps).clamp(-10, 10)
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def trl_formula(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """Each group got TRL's own line, (r - mean) / (r.std() + 1e-4): the sample std, and another eps.

    Hint: Two conventions in one line are not this course's. By what is the sum of squares divided, and what is done about a small std?
    """
    advantages = torch.zeros(len(rewards))
    for g in group_ids.unique():
        r = rewards[group_ids == g].float()
        advantages[group_ids == g] = (r - r.mean()) / (r.std() + 1e-4)
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def float_rewards_in_place(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The advantages were written into the caller's rewards where they are floats: float() and double() copy only if the type changes.

    Hint: What does rewards.float() return when the rewards are floats already: a copy, or the same tensor?
    """
    r = rewards if rewards.is_floating_point() else rewards.float()
    r.copy_(own_group_advantages(rewards, group_ids, eps))
    return clipped_loss(log_probs_new, log_probs_old, r.float(), clip_range), r.clone()


@mistake("compute_grpo_loss")
def old_log_probs_in_place(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The caller's old log-probs were overwritten on the way to the ratio.

    Hint: The same old log-probs serve every epoch on the batch. Into whose tensor do functions write that end in an underscore?
    """
    advantages = own_group_advantages(rewards, group_ids, eps)
    ratio = torch.exp(log_probs_old.neg_() + log_probs_new)
    return -torch.min(ratio * advantages, ratio.clamp(1 - clip_range, 1 + clip_range) * advantages).mean(), advantages


# ---------------------------------------------------------------- compute_grpo_loss: ratio, surrogates, loss


@mistake("compute_grpo_loss")
def no_minus(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The loss came out without its minus: minimising it makes good answers rarer.

    Hint: The surrogate is to be raised, a loss is to be lowered.
    """
    advantages = own_group_advantages(rewards, group_ids, eps)
    ratio = torch.exp(log_probs_new - log_probs_old)
    loss = torch.min(ratio * advantages, ratio.clamp(1 - clip_range, 1 + clip_range) * advantages).mean()
    return loss, advantages


@mistake("compute_grpo_loss")
def minus_and_sum(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The loss came out without its minus, and as a sum where the mean is asked for.

    Hint: Two things at once: which way is down, and should a batch twice as large have a loss twice as large?
    """
    advantages = own_group_advantages(rewards, group_ids, eps)
    ratio = torch.exp(log_probs_new - log_probs_old)
    loss = torch.min(ratio * advantages, ratio.clamp(1 - clip_range, 1 + clip_range) * advantages).sum()
    return loss, advantages


@mistake("compute_grpo_loss")
def sample_std_no_minus(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """Two things at once: the std was taken with G - 1, and the loss came out without its minus.

    Hint: First the convention of the std (TODO 1), then the direction of the loss (TODO 3).
    """
    advantages = torch.zeros(len(rewards))
    for g in group_ids.unique():
        mine = group_ids == g
        r = rewards[mine].double()
        if len(r) > 1:
            advantages[mine] = ((r - r.mean()) / r.std().clamp_min(eps)).float()
    return -clipped_loss(log_probs_new, log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def whole_batch_no_minus(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """Two things at once: one mean and std for the whole batch, and a loss without its minus.

    Hint: First whose mean and std these are (TODO 1), then the direction of the loss (TODO 3).
    """
    r = rewards.double()
    advantages = ((r - r.mean()) / r.std(unbiased=False).clamp_min(eps)).float()
    return -clipped_loss(log_probs_new, log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def whole_batch_sum(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """Two things at once: one mean and std for the whole batch, and a sum where the mean is asked for.

    Hint: First whose mean and std these are (TODO 1), then how N surrogates become one number (TODO 3).
    """
    r = rewards.double()
    advantages = ((r - r.mean()) / r.std(unbiased=False).clamp_min(eps)).float()
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range) * len(r), advantages


@mistake("compute_grpo_loss")
def sample_std_sum(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """Two things at once: the std was taken with G - 1, and the loss was a sum where the mean is asked for.

    Hint: First the convention of the std (TODO 1), then how N surrogates become one number (TODO 3).
    """
    advantages = torch.zeros(len(rewards))
    for g in group_ids.unique():
        mine = group_ids == g
        r = rewards[mine].double()
        if len(r) > 1:
            advantages[mine] = ((r - r.mean()) / r.std().clamp_min(eps)).float()
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range) * len(rewards), advantages


@mistake("compute_grpo_loss")
def max_for_min(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The larger surrogate was believed: the minus was pushed through the minimum, or max was written for min.

    Hint: A = 1 and ratio 1.5: the pessimist says 1.2. If both are negated first, which of the two is then the pessimist's?
    """
    advantages = own_group_advantages(rewards, group_ids, eps)
    ratio = torch.exp(log_probs_new - log_probs_old)
    loss = torch.min(-ratio * advantages, -ratio.clamp(1 - clip_range, 1 + clip_range) * advantages).mean()
    return loss, advantages


@mistake("compute_grpo_loss")
def max_without_minus(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The larger surrogate was believed, and the loss came out without its minus.

    Hint: Two things at once: which of the two surrogates is the pessimist's, and which way is down?
    """
    advantages = own_group_advantages(rewards, group_ids, eps)
    ratio = torch.exp(log_probs_new - log_probs_old)
    loss = torch.max(ratio * advantages, ratio.clamp(1 - clip_range, 1 + clip_range) * advantages).mean()
    return loss, advantages


@mistake("compute_grpo_loss")
def clip_ratio_only(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The minimum was taken of the two ratios and multiplied by the advantage afterwards.

    Hint: For a bad answer the order of the two turns round when they are multiplied. A = -1, ratio 1.5: what is the smaller surrogate?
    """
    advantages = own_group_advantages(rewards, group_ids, eps)
    ratio = torch.exp(log_probs_new - log_probs_old)
    loss = -(torch.min(ratio, ratio.clamp(1 - clip_range, 1 + clip_range)) * advantages).mean()
    return loss, advantages


@mistake("compute_grpo_loss")
def clip_ratio_only_no_minus(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The minimum was taken of the two ratios instead of the two surrogates, and the minus is missing.

    Hint: Two things at once: what does the pessimist compare, ratios or surrogates; and which way is down?
    """
    advantages = own_group_advantages(rewards, group_ids, eps)
    ratio = torch.exp(log_probs_new - log_probs_old)
    loss = (torch.min(ratio, ratio.clamp(1 - clip_range, 1 + clip_range)) * advantages).mean()
    return loss, advantages


@mistake("compute_grpo_loss")
def no_clip(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """Only the unclipped surrogate was used: nothing stops a good answer from being pushed on and on.

    Hint: Two estimates are made in TODO 2. Does your loss look at both?
    """
    advantages = own_group_advantages(rewards, group_ids, eps)
    return -(torch.exp(log_probs_new - log_probs_old) * advantages).mean(), advantages


@mistake("compute_grpo_loss")
def clip_only(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """Only the clipped surrogate was used: an answer that slipped the wrong way out of the band is never brought back.

    Hint: An answer with A = -1 has come to a ratio of 1.5. Does your loss still push it down?
    """
    advantages = own_group_advantages(rewards, group_ids, eps)
    ratio = torch.exp(log_probs_new - log_probs_old)
    return -(ratio.clamp(1 - clip_range, 1 + clip_range) * advantages).mean(), advantages


@mistake("compute_grpo_loss")
def bad_answers_capped_low(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """For bad answers the ratio was capped at 1 - clip_range from above, not held there from below.

    Hint: Work out both products for A = -1 and a ratio of 1.5. Which is the smaller one, and which was taken?
    """
    advantages = own_group_advantages(rewards, group_ids, eps)
    ratio = torch.exp(log_probs_new - log_probs_old)
    limited = torch.where(advantages > 0, ratio.clamp(max=1 + clip_range), ratio.clamp(max=1 - clip_range))
    return -(limited * advantages).mean(), advantages


@mistake("compute_grpo_loss")
def upper_edge_only(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The ratio was clipped at the upper edge alone.

    Hint: The band has two edges. For which answers does the lower one matter?
    """
    advantages = own_group_advantages(rewards, group_ids, eps)
    ratio = torch.exp(log_probs_new - log_probs_old)
    return -torch.min(ratio * advantages, ratio.clamp(max=1 + clip_range) * advantages).mean(), advantages


@mistake("compute_grpo_loss")
def band_around_zero(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The ratio was clipped to the band from -clip_range to +clip_range, around 0 instead of 1.

    Hint: Which ratio means "nothing has changed"?
    """
    advantages = own_group_advantages(rewards, group_ids, eps)
    ratio = torch.exp(log_probs_new - log_probs_old)
    return -torch.min(ratio * advantages, ratio.clamp(-clip_range, clip_range) * advantages).mean(), advantages


@mistake("compute_grpo_loss")
def clip_in_log_space(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The log-ratio was clipped to plus or minus clip_range, which gives the band from .82 to 1.22.

    Hint: The band is one of the ratio. Is exp(0.2) equal to 1.2?
    """
    advantages = own_group_advantages(rewards, group_ids, eps)
    log_ratio = log_probs_new - log_probs_old
    clipped = log_ratio.clamp(-clip_range, clip_range).exp() * advantages
    return -torch.min(log_ratio.exp() * advantages, clipped).mean(), advantages


@mistake("compute_grpo_loss")
def clipped_product(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The product of ratio and advantage was clipped, not the ratio.

    Hint: What has to stay near 1: how much likelier an answer became, or how good it was times that?
    """
    advantages = own_group_advantages(rewards, group_ids, eps)
    unclipped = torch.exp(log_probs_new - log_probs_old) * advantages
    return -torch.min(unclipped, unclipped.clamp(1 - clip_range, 1 + clip_range)).mean(), advantages


@mistake("compute_grpo_loss")
def fixed_clip_range(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The band was always 0.8 to 1.2, whatever clip_range says.

    Hint: Is there a 0.2, 0.8 or 1.2 in your code? Who should decide how wide the band is?
    """
    advantages = own_group_advantages(rewards, group_ids, eps)
    return clipped_loss(log_probs_new, log_probs_old, advantages, 0.2), advantages


@mistake("compute_grpo_loss")
def eps_as_band(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The two epsilons were mixed up: the band was 1 plus or minus eps.

    Hint: One epsilon is the width of the band, the other keeps a division safe. Which is which here?
    """
    advantages = own_group_advantages(rewards, group_ids, eps)
    return clipped_loss(log_probs_new, log_probs_old, advantages, eps), advantages


@mistake("compute_grpo_loss")
def ratio_is_one(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The old log-probs were not used: new.detach() stood in their place, so that every ratio is 1.

    Hint: Right for a single step on a batch, but here you are handed the old log-probs, and they differ.
    """
    advantages = own_group_advantages(rewards, group_ids, eps)
    return clipped_loss(log_probs_new, log_probs_new.detach(), advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def new_minus_new(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """Both sides of the ratio came from the new log-probs and carried the graph: the gradient is exactly 0.

    Hint: If something grows above and below a fraction line, what happens to the fraction? Which of the two may move?
    """
    advantages = own_group_advantages(rewards, group_ids, eps)
    return clipped_loss(log_probs_new, log_probs_new, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def inverted_ratio(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The importance ratio was upside down: old over new.

    Hint: Should an answer that became likelier have a ratio above 1 or below?
    """
    advantages = own_group_advantages(rewards, group_ids, eps)
    return clipped_loss(-log_probs_new, -log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def inverted_ratio_no_minus(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The importance ratio was upside down and the minus missing; at the first step the two cancel, later they do not.

    Hint: Two things at once: the ratio of an answer that became likelier, and the direction of the loss.
    """
    advantages = own_group_advantages(rewards, group_ids, eps)
    return -clipped_loss(-log_probs_new, -log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def probability_ratio(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """Each log-prob was exponentiated before dividing, which gives 0/0 for answers of many tokens.

    Hint: The first cell of the notebook divides exp(-111) by exp(-110). What came out, and what did better?
    """
    advantages = own_group_advantages(rewards, group_ids, eps)
    ratio = log_probs_new.exp() / log_probs_old.exp()
    return -torch.min(ratio * advantages, ratio.clamp(1 - clip_range, 1 + clip_range) * advantages).mean(), advantages


@mistake("compute_grpo_loss")
def probability_ratio_guarded(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """Each log-prob was exponentiated before dividing, with a tiny constant in the divisor: the ratio of a long answer becomes 0.

    Hint: The probability of a long answer is far smaller than any such constant. In which order do subtraction and exp avoid it?
    """
    advantages = own_group_advantages(rewards, group_ids, eps)
    ratio = log_probs_new.exp() / (log_probs_old.exp() + 1e-10)
    return -torch.min(ratio * advantages, ratio.clamp(1 - clip_range, 1 + clip_range) * advantages).mean(), advantages


@mistake("compute_grpo_loss")
def no_exp(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The difference of the log-probs was taken for the ratio, without exp.

    Hint: If nothing has changed, the difference is 0. What should the ratio be?
    """
    advantages = own_group_advantages(rewards, group_ids, eps)
    ratio = log_probs_new - log_probs_old
    return -torch.min(ratio * advantages, ratio.clamp(1 - clip_range, 1 + clip_range) * advantages).mean(), advantages


@mistake("compute_grpo_loss")
def one_plus_difference(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The ratio was taken as 1 + new - old, which agrees with exp only near 1 and can be negative.

    Hint: That is the beginning of a series. Which function is it the series of?
    """
    advantages = own_group_advantages(rewards, group_ids, eps)
    ratio = 1 + log_probs_new - log_probs_old
    return -torch.min(ratio * advantages, ratio.clamp(1 - clip_range, 1 + clip_range) * advantages).mean(), advantages


@mistake("compute_grpo_loss")
def ratio_of_log_probs(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The log-probs themselves were divided by each other.

    Hint: The ratio is one of probabilities. What does a division become among logarithms?
    """
    advantages = own_group_advantages(rewards, group_ids, eps)
    ratio = log_probs_new / log_probs_old
    return -torch.min(ratio * advantages, ratio.clamp(1 - clip_range, 1 + clip_range) * advantages).mean(), advantages


@mistake("compute_grpo_loss")
def reinforce(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """Advantage times log-prob: plain REINFORCE, without ratio and clip.

    Hint: This is right for one step on a fresh batch. What makes the second step on it right?
    """
    advantages = own_group_advantages(rewards, group_ids, eps)
    return -(advantages * log_probs_new).mean(), advantages


@mistake("compute_grpo_loss")
def no_graph(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The new log-probs were detached (or the loss was computed under no_grad): no gradient can flow.

    Hint: The advantages may be computed without a graph. What about the ratio?
    """
    advantages = own_group_advantages(rewards, group_ids, eps)
    with torch.no_grad():
        loss = clipped_loss(log_probs_new, log_probs_old, advantages, clip_range)
    return loss, advantages


@mistake("compute_grpo_loss")
def rewrapped(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The finished loss was wrapped into a new tensor (torch.tensor, .item()), which cuts the graph.

    Hint: A new tensor made of a number remembers nothing of where the number came from.
    """
    advantages = own_group_advantages(rewards, group_ids, eps)
    loss = clipped_loss(log_probs_new, log_probs_old, advantages, clip_range)
    return torch.tensor(loss.item(), requires_grad=True), advantages


@mistake("compute_grpo_loss")
def halved_gradient(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The ratio was detached in one of the two surrogates; inside the band, where they tie, half of the gradient is lost.

    Hint: Inside the band the minimum shares the gradient between two equal numbers. Do both pass it on?
    """
    advantages = own_group_advantages(rewards, group_ids, eps)
    ratio = torch.exp(log_probs_new - log_probs_old)
    clipped = ratio.detach().clamp(1 - clip_range, 1 + clip_range) * advantages
    return -torch.min(ratio * advantages, clipped).mean(), advantages


@mistake("compute_grpo_loss")
def detached_ratio(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The ratio was clipped, detached and used as a weight of the log-prob: the loss has another value, and ratios are clipped on both
    sides.

    Hint: The surrogate is ratio times advantage. Through which of its factors should the gradient run?
    """
    advantages = own_group_advantages(rewards, group_ids, eps)
    ratio = torch.exp(log_probs_new - log_probs_old).detach().clamp(1 - clip_range, 1 + clip_range)
    return -(ratio * advantages * log_probs_new).mean(), advantages


@mistake("compute_grpo_loss")
def sum_for_mean(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The surrogates were added up where the mean is asked for: N times too large.

    Hint: Should the step on a batch twice as large be twice as long?
    """
    advantages = own_group_advantages(rewards, group_ids, eps)
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range) * len(advantages), advantages


@mistake("compute_grpo_loss")
def mean_of_group_means(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The surrogates were averaged in each group first and then over the groups, so that small groups weigh more.

    Hint: How many means does the formula have, and over what?
    """
    advantages = own_group_advantages(rewards, group_ids, eps)
    ratio = torch.exp(log_probs_new - log_probs_old)
    surrogate = torch.min(ratio * advantages, ratio.clamp(1 - clip_range, 1 + clip_range) * advantages)
    return -torch.stack([surrogate[group_ids == g].mean() for g in group_ids.unique()]).mean(), advantages


@mistake("compute_grpo_loss")
def mean_of_the_alive(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """Only answers whose advantage is not 0 were counted in the mean.

    Hint: The formula divides by N. Do answers that teach nothing still count in it?
    """
    advantages = own_group_advantages(rewards, group_ids, eps)
    ratio = torch.exp(log_probs_new - log_probs_old)
    surrogate = torch.min(ratio * advantages, ratio.clamp(1 - clip_range, 1 + clip_range) * advantages)
    return -surrogate.sum() / (advantages.abs() > 1e-5).sum().clamp_min(1), advantages


@mistake("compute_grpo_loss")
def min_of_means(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The two surrogates were averaged first and the smaller of the two means was taken.

    Hint: The pessimist decides for every answer by itself. Where must the minimum stand then, inside of the mean or outside?
    """
    advantages = own_group_advantages(rewards, group_ids, eps)
    ratio = torch.exp(log_probs_new - log_probs_old)
    loss = -torch.min((ratio * advantages).mean(), (ratio.clamp(1 - clip_range, 1 + clip_range) * advantages).mean())
    return loss, advantages


@mistake("compute_grpo_loss")
def clipped_set_to_zero(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """Answers outside of the band were left out on both sides, whatever their advantage.

    Hint: Two of the four outer regions are active. Look at the table under the picture.
    """
    advantages = own_group_advantages(rewards, group_ids, eps)
    ratio = torch.exp(log_probs_new - log_probs_old)
    inside = (ratio - 1).abs() <= clip_range
    return -(ratio * advantages * inside).mean(), advantages


@mistake("compute_grpo_loss")
def results_swapped(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The two results came back in the other order: (advantages, loss).

    Hint: Which of the two does the docstring name first?
    """
    advantages = own_group_advantages(rewards, group_ids, eps)
    return advantages, clipped_loss(log_probs_new, log_probs_old, advantages, clip_range)


@mistake("compute_grpo_loss")
def loss_alone(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """Only the loss came back, without the advantages.

    Hint: How many things does the last line of the given function return?
    """
    advantages = own_group_advantages(rewards, group_ids, eps)
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range)


@mistake("compute_grpo_loss")
def loss_per_answer(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The loss was left as N numbers; the mean is missing.

    Hint: An optimiser minimises one number. How many does your loss have?
    """
    advantages = own_group_advantages(rewards, group_ids, eps)
    ratio = torch.exp(log_probs_new - log_probs_old)
    return -torch.min(ratio * advantages, ratio.clamp(1 - clip_range, 1 + clip_range) * advantages), advantages


@mistake("compute_grpo_loss")
def all_pairs(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """Ratios and advantages met as a table of all pairs ([N, 1] with [N]), so that every advantage met every ratio.

    Hint: Print the shape of your surrogates. It should be [N].
    """
    advantages = own_group_advantages(rewards, group_ids, eps)
    ratio = torch.exp(log_probs_new - log_probs_old)[:, None]
    return -torch.min(ratio * advantages, ratio.clamp(1 - clip_range, 1 + clip_range) * advantages).mean(), advantages


@mistake("compute_grpo_loss")
def ids_as_int32(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The ids were cut to 32 bits, where different large ids can become the same.

    Hint: An id is a name, not a quantity. What is left of 2^60 + 7 in 32 bits?
    """
    advantages = own_group_advantages(rewards, group_ids.int(), eps)
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def ids_as_floats(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The ids were turned into floats, in which neighbouring large ids are the same number.

    Hint: An id is a name, not a quantity. Can a float tell 10^15 from 10^15 + 1, and 2^62 from 2^62 + 1?
    """
    advantages = own_group_advantages(rewards, group_ids.double(), eps)
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def small_std_is_dead(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """Groups with a std below .01 were taken for dead.

    Hint: Small is not equal. Which argument says from where on a std is too small to divide by?
    """
    std = torch.stack([rewards[group_ids == g].double().std(unbiased=False) for g in group_ids])
    advantages = torch.where(std < 0.01, 0.0, own_group_advantages(rewards, group_ids, eps))
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def clipped_advantages(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The advantages were cut to -5 and 5, as some training code does against outliers.

    Hint: Only the ratio has a band. How many stds above its siblings is one success among a hundred failures?
    """
    advantages = own_group_advantages(rewards, group_ids, eps).clamp(-5, 5)
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def sixteen_bit_rewards(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The rewards went through bfloat16, which keeps about three digits of them.

    Hint: The formula is right. What is left of 1000.25 in a number of three digits?
    """
    advantages = own_group_advantages(rewards.bfloat16(), group_ids, eps)
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def dual_clip(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The ratio of a bad answer, or its loss, was bounded once more from above: dual-clip PPO, as verl has it, or a cap on the ratio.

    Hint: A bad answer that became far more likely is a slip that must be undone. Does your loss still feel it?
    """
    advantages = own_group_advantages(rewards, group_ids, eps)
    ratio = torch.exp(log_probs_new - log_probs_old)
    surrogate = torch.min(ratio * advantages, ratio.clamp(1 - clip_range, 1 + clip_range) * advantages)
    return -torch.where(advantages < 0, surrogate.max(3 * advantages), surrogate).mean(), advantages


@mistake("compute_grpo_loss")
def clip_higher(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The band reached further up than down, as DAPO's does.

    Hint: How far is it from 1 to the upper edge of your band, and how far to the lower one?
    """
    advantages = own_group_advantages(rewards, group_ids, eps)
    ratio = torch.exp(log_probs_new - log_probs_old)
    band = ratio.clamp(1 - clip_range, 1 + 1.4 * clip_range)
    return -torch.min(ratio * advantages, band * advantages).mean(), advantages


@mistake("compute_grpo_loss")
def loss_item(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The loss came back as a number of Python's (.item()), which has no graph.

    Hint: A number remembers nothing of where it came from. What does backward() need?
    """
    advantages = own_group_advantages(rewards, group_ids, eps)
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range).item(), advantages


@mistake("compute_grpo_loss")
def log_ratio_clamped(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The log-ratio was bounded on both sides, so that the gradient of far answers is 0.

    Hint: Against overflow a bound of -20 and 20 would do. What brings a bad answer back that lies beyond yours?
    """
    advantages = own_group_advantages(rewards, group_ids, eps)
    log_ratio = (log_probs_new - log_probs_old).clamp(-5, 5)
    return clipped_loss(log_ratio, torch.zeros_like(log_ratio), advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def missing_comma(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The two surrogates were multiplied with each other: a comma is missing between them.

    Hint: How many things does your minimum choose between? Read the line aloud, comma by comma.
    """
    advantages = own_group_advantages(rewards, group_ids, eps)
    ratio = torch.exp(log_probs_new - log_probs_old)
    return -(ratio * advantages * ratio.clamp(1 - clip_range, 1 + clip_range) * advantages).mean(), advantages


@mistake("compute_grpo_loss")
def missing_comma_in_min(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The two surrogates were multiplied with each other, a comma is missing, and the smallest of all products became the loss.

    Hint: How many things does your minimum choose between? Read the line aloud, comma by comma.
    """
    advantages = own_group_advantages(rewards, group_ids, eps)
    ratio = torch.exp(log_probs_new - log_probs_old)
    return -torch.min(ratio * advantages * ratio.clamp(1 - clip_range, 1 + clip_range) * advantages).mean(), advantages


@mistake("compute_grpo_loss")
def default_band_changed(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.28, eps=1e-6):
    """The default of clip_range became .28 (DAPO's upper end).

    Hint: How wide is the band when the caller says nothing? The first line of the cell said so.
    """
    advantages = own_group_advantages(rewards, group_ids, eps)
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range), advantages


@mistake("compute_grpo_loss")
def upper_edge_fixed(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The upper edge of the band was always 1.2, whatever clip_range says.

    Hint: The band has two edges. Which of them does clip_range move in your code?
    """
    advantages = own_group_advantages(rewards, group_ids, eps)
    ratio = torch.exp(log_probs_new - log_probs_old)
    return -torch.min(ratio * advantages, ratio.clamp(1 - clip_range, 1.2) * advantages).mean(), advantages


@mistake("compute_grpo_loss")
def upper_edge_fixed_at_dapos(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The upper edge of the band was always 1.28, whatever clip_range says.

    Hint: DAPO's upper edge is a choice. Who makes it here, and which edge does clip_range move in your code?
    """
    advantages = own_group_advantages(rewards, group_ids, eps)
    ratio = torch.exp(log_probs_new - log_probs_old)
    return -torch.min(ratio * advantages, ratio.clamp(1 - clip_range, 1.28) * advantages).mean(), advantages


@mistake("compute_grpo_loss")
def lower_edge_fixed(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The lower edge of the band was always 0.8, whatever clip_range says.

    Hint: The band has two edges. Which of them does clip_range move in your code?
    """
    advantages = own_group_advantages(rewards, group_ids, eps)
    ratio = torch.exp(log_probs_new - log_probs_old)
    return -torch.min(ratio * advantages, ratio.clamp(0.8, 1 + clip_range) * advantages).mean(), advantages


@right("compute_grpo_loss")
def mask_per_group(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """A loop over the groups, each by its mask: slow but right."""
    advantages = own_group_advantages(rewards, group_ids, eps)
    return clipped_loss(log_probs_new, log_probs_old, advantages, clip_range), advantages


@right("compute_grpo_loss")
def dict_of_lists(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """A Python dict from id to rewards, floats of Python, eps added, loss as a max of the negatives."""
    groups: dict[int, list[float]] = {}
    for g, r in zip(group_ids.tolist(), rewards.tolist()):
        groups.setdefault(g, []).append(r)
    advantages = []
    for g, r in zip(group_ids.tolist(), rewards.tolist()):
        own = groups[g]
        mean = sum(own) / len(own)
        std = (sum((x - mean) ** 2 for x in own) / len(own)) ** 0.5
        advantages.append((r - mean) / (std + eps))
    advantages = torch.tensor(advantages)
    ratio = (log_probs_new - log_probs_old).exp()
    loss = torch.max(-ratio * advantages, -ratio.clip(1 - clip_range, 1 + clip_range) * advantages).mean()
    return loss, advantages


@right("compute_grpo_loss")
def scatter_mean(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """scatter_reduce in float64 under no_grad; the clip by the sign of A with torch.where."""
    with torch.no_grad():
        labels, group = torch.unique(group_ids, return_inverse=True)
        r = rewards.to(torch.float64)
        zero = torch.zeros(labels.numel(), dtype=torch.float64)
        mean = zero.scatter_reduce(0, group, r, "mean", include_self=False)[group]
        var = zero.scatter_reduce(0, group, (r - mean) ** 2, "mean", include_self=False)[group]
        advantages = (r - mean) / var.sqrt().clamp(min=eps)
        advantages = advantages.float()
    ratio = torch.exp(log_probs_new - log_probs_old)
    clipped = torch.clamp(ratio, 1.0 - clip_range, 1.0 + clip_range)
    surrogate = torch.where(ratio * advantages < clipped * advantages, ratio * advantages, clipped * advantages)
    return torch.mean(-surrogate), advantages


@right("compute_grpo_loss")
def bincount_weights(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """bincount with weights; the smaller surrogate by stack and min."""
    inverse = group_ids.unique(return_inverse=True)[1]
    r, n = rewards.double(), torch.bincount(inverse)
    centred = r - (torch.bincount(inverse, weights=r) / n)[inverse]
    std = (torch.bincount(inverse, weights=centred**2) / n).sqrt()[inverse]
    advantages = (centred / (std + eps)).float()
    ratio = torch.exp(log_probs_new - log_probs_old)
    both = torch.stack([ratio * advantages, ratio.clamp(1 - clip_range, 1 + clip_range) * advantages])
    return -both.min(dim=0).values.mean(), advantages


@right("compute_grpo_loss")
def one_hot_matrix(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """Group sums by a one-hot matrix; one-sided clamps by the sign of A; everything in float64."""
    inverse = group_ids.unique(return_inverse=True)[1]
    member = torch.nn.functional.one_hot(inverse).double()  # [N, M]
    r = rewards.double()
    centred = r - member @ (member.T @ r / member.sum(0))
    std = (member @ (member.T @ centred**2 / member.sum(0))).sqrt()
    advantages = centred / torch.maximum(std, torch.full_like(std, eps))
    ratio = torch.exp(log_probs_new - log_probs_old)
    limited = torch.where(advantages >= 0, ratio.clamp(max=1 + clip_range), ratio.clamp(min=1 - clip_range))
    return -(limited * advantages).mean(), advantages


@right("compute_grpo_loss")
def pairwise_mask(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """A table of who is whose sibling, N by N; the ratio from a log-ratio clamped to plus or minus 20."""
    sibling = (group_ids[:, None] == group_ids[None, :]).double()
    n = sibling.sum(1)
    r = rewards.double()
    centred = r - sibling @ r / n
    advantages = (centred / ((sibling @ centred**2) / n).sqrt().clamp_min(eps)).float()
    ratio = torch.exp(torch.clamp(log_probs_new - log_probs_old, -20, 20))
    surrogate_1 = ratio * advantages
    surrogate_2 = torch.clamp(ratio, 1 - clip_range, 1 + clip_range) * advantages
    return -torch.minimum(surrogate_1, surrogate_2).mean(), advantages


@right("compute_grpo_loss")
def sort_split_unsort(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """argsort, split, normalise, unsort; std with correction=0; the sum divided by N."""
    order = group_ids.argsort()
    sizes = group_ids[order].unique_consecutive(return_counts=True)[1].tolist()
    chunks = []
    for r in rewards[order].double().split(sizes):
        chunks.append((r - r.mean()) / r.std(correction=0).clamp_min(eps))
    advantages = torch.cat(chunks)[order.argsort()].to(torch.float32)
    ratio = (log_probs_new - log_probs_old.detach()).exp()
    unclipped, clipped = ratio * advantages, ratio.clamp(1 - clip_range, 1 + clip_range) * advantages
    return -(torch.min(unclipped, clipped).sum() / len(ratio)), advantages


@right("compute_grpo_loss")
def numpy_inside(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """numpy for the advantages, where no gradient is needed."""
    r, ids = rewards.detach().numpy().astype(np.float64), group_ids.numpy()
    out = np.zeros(len(r))
    for g in np.unique(ids):
        own = r[ids == g]
        out[ids == g] = (own - own.mean()) / max(own.std(), eps)
    advantages = torch.from_numpy(out).float()
    print("mean advantage", float(advantages.mean()))
    log_ratio = log_probs_new - log_probs_old
    ratio = log_ratio.exp()
    return torch.maximum(-advantages * ratio, -advantages * ratio.clamp(1 - clip_range, 1 + clip_range)).mean(), advantages


@right("compute_grpo_loss")
def ties_by_hand(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """No float64 of its own, with groups of equal rewards found by max == min and set to 0."""
    r = rewards if rewards.is_floating_point() else rewards.float()
    advantages = torch.zeros_like(r)
    for g in group_ids.unique().tolist():
        mine = group_ids == g
        own = r[mine]
        if own.max() > own.min():
            advantages[mine] = (own - own.mean()) / (own.std(unbiased=False) + eps)
    ratio = torch.exp(log_probs_new - log_probs_old)
    return -torch.min(ratio * advantages, torch.clip(ratio, 1 - clip_range, 1 + clip_range) * advantages).mean(), advantages


@right("compute_grpo_loss")
def loop_over_answers(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """One answer at a time, with Python's own min; results in a list."""
    advantages, terms = [], []
    for i in range(len(rewards)):
        siblings = rewards[group_ids == group_ids[i]].to(torch.float64)
        A = (rewards[i].to(torch.float64) - siblings.mean()) / siblings.std(correction=0).clamp_min(eps)
        ratio = torch.exp(log_probs_new[i] - log_probs_old[i])
        terms.append(min(ratio * A, torch.clamp(ratio, 1 - clip_range, 1 + clip_range) * A))
        advantages.append(A)
    return [-sum(terms) / len(terms), torch.stack(advantages).float()]


@right("compute_grpo_loss")
def float64_throughout(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """Everything in float64, log-probs included; a loop over Python's set of ids; a weighted sum by einsum."""
    r = rewards.to(torch.float64)
    advantages = torch.zeros_like(r)
    for g in set(group_ids.tolist()):
        own = r[group_ids == g]
        advantages[group_ids == g] = (own - own.mean()) / torch.std(own, correction=0).clamp(min=eps)
    ratio = (log_probs_new.double() - log_probs_old.double()).exp()
    worse = torch.minimum(ratio * advantages, ratio.clip(1 - clip_range, 1 + clip_range) * advantages)
    return -torch.einsum("n->", worse) / len(r), advantages


@right("compute_grpo_loss")
def clamped_log_ratio(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The log-ratio cut at -20 and 20; the surrogates by torch.where."""
    advantages = own_group_advantages(rewards, group_ids, eps)
    ratio = torch.clamp(log_probs_new - log_probs_old, -20.0, 20.0).exp()
    clipped = torch.where(ratio > 1 + clip_range, 1 + clip_range, torch.where(ratio < 1 - clip_range, 1 - clip_range, ratio))
    return -torch.where(clipped * advantages < ratio * advantages, clipped * advantages, ratio * advantages).mean(), advantages


# ---------------------------------------------------------------- first_step_gradient


@mistake("first_step_gradient")
def no_minus_first(advantages):
    """The gradient has the sign of the advantage; the minus of the loss is missing.

    Hint: The optimiser walks against the gradient. Which sign makes a good answer likelier?
    """
    return advantages / len(advantages)


@mistake("first_step_gradient")
def no_mean_first(advantages):
    """The division by the number of answers is missing.

    Hint: The loss is a mean. What stands before the sum?
    """
    return -advantages


@mistake("first_step_gradient")
def advantage_alone(advantages):
    """The advantages came back as they are: neither the minus nor the mean of the loss is in it.

    Hint: Write the loss down for two answers and differentiate it with respect to the first log-prob.
    """
    return advantages.clone()


@mistake("first_step_gradient")
def zero_first(advantages):
    """The gradient was taken to be 0 because the loss is 0.

    Hint: A parabola shifted down until it crosses zero is 0 there. Is it flat there?
    """
    return torch.zeros_like(advantages)


@mistake("first_step_gradient")
def sign_only_first(advantages):
    """Only the sign of the advantage was used, not its size.

    Hint: The surrogate is ratio times advantage. Does its slope not depend on how large the advantage is?
    """
    return -advantages.sign() / len(advantages)


@mistake("first_step_gradient")
def mean_twice_first(advantages):
    """The advantages were divided by the number of answers twice.

    Hint: How many means does the loss have?
    """
    return -advantages / len(advantages) ** 2


@mistake("first_step_gradient")
def n_minus_one_first(advantages):
    """The advantages were divided by N - 1.

    Hint: By what does the mean of four numbers divide their sum?
    """
    return -advantages / max(len(advantages) - 1, 1)


@mistake("first_step_gradient")
def scalar_first(advantages):
    """One number came back: minus the mean of the advantages, which is the loss, not its gradient.

    Hint: With respect to how many log-probs can the loss be differentiated?
    """
    return -advantages.mean()


@mistake("first_step_gradient")
def repeated_loss_first(advantages):
    """Every answer got the same number: minus the mean of all advantages.

    Hint: Which of the N terms of the mean contains the log-prob of answer i?
    """
    return -advantages.mean().expand(len(advantages))


@mistake("first_step_gradient")
def clipped_first(advantages):
    """The advantages were clipped to the band, as if they were ratios.

    Hint: At the first step nothing is clipped: where is the ratio?
    """
    return -advantages.clamp(0.8, 1.2) / len(advantages)


@mistake("first_step_gradient")
def centred_first(advantages):
    """The mean of the advantages was taken off first.

    Hint: The advantages may be of any groups, and the formula takes them as they are. Does it centre them?
    """
    return -(advantages - advantages.mean() * (len(advantages) > 1)) / len(advantages)


@mistake("first_step_gradient")
def one_clipped_away_first(advantages):
    """Only answers with a positive advantage got a gradient.

    Hint: Is a bad answer clipped at a ratio of 1? Look at the table under the picture.
    """
    return -advantages.clamp_min(0) / len(advantages)


@mistake("first_step_gradient")
def in_place_first(advantages):
    """The caller's own advantages were overwritten.

    Hint: Into whose tensor do functions that end in an underscore, `*=` and `/=` write?
    """
    return advantages.neg_().div_(len(advantages))


@mistake("first_step_gradient")
def divided_by_the_living_first(advantages):
    """The advantages were divided by the number of answers whose advantage is not 0.

    Hint: The formula divides by N. Do answers that teach nothing still count in it?
    """
    return -advantages / (advantages != 0).sum().clamp_min(1)


@mistake("first_step_gradient")
def divided_by_four_first(advantages):
    """The advantages were divided by 4, the number of answers in the worked example.

    Hint: Which number in your code should be a name?
    """
    return -advantages / 4


@mistake("first_step_gradient")
def large_dropped_first(advantages):
    """Large advantages got no gradient, as if they had been clipped.

    Hint: The band is one of the ratio. What is the ratio at the first step, and does it depend on the advantage?
    """
    return torch.where(advantages.abs() > 1.2, 0.0, -advantages / len(advantages))


@mistake("first_step_gradient")
def capped_first(advantages):
    """The advantages were cut to -5 and 5, as some training code does against outliers.

    Hint: The formula takes the advantages as they are. How large may one be?
    """
    return -advantages.clamp(-5, 5) / len(advantages)


@right("first_step_gradient")
def autograd_first(advantages):
    """Asked of autograd after all."""
    x = torch.zeros(len(advantages), requires_grad=True)
    with torch.enable_grad():
        loss = -(torch.exp(x - x.detach()) * advantages).mean()
        loss.backward()
    return x.grad


@right("first_step_gradient")
def loop_first(advantages):
    """A list of Python floats."""
    return torch.tensor([-a / len(advantages) for a in advantages.tolist()])


@right("first_step_gradient")
def numel_first(advantages):
    """numel and a product."""
    return advantages * (-1.0 / advantages.numel())


@right("first_step_gradient")
def zeros_minus_first(advantages):
    """Written into a fresh tensor."""
    out = torch.zeros(advantages.shape[0])
    for i in range(advantages.shape[0]):
        out[i] = -advantages[i] / advantages.shape[0]
    return out


@right("first_step_gradient")
def by_the_whole_loss_first(advantages):
    """By autograd through both surrogates, in float64."""
    old = torch.full((len(advantages),), -1.0, dtype=torch.float64)
    new = old.clone().requires_grad_()
    ratio = (new - old).exp()
    return torch.autograd.grad(-torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean(), new)[0]


@right("first_step_gradient")
def numpy_first(advantages):
    """numpy."""
    return torch.from_numpy(-np.asarray(advantages) / len(advantages))


# ---------------------------------------------------------------- rewards_in_order


@mistake("rewards_in_order")
def unchanged_order(sorted_rewards, order):
    """The buggy function was handed in as it was: the order was applied a second time instead of being undone.

    Hint: Indexing with the order sorts. What undoes it: the same order again, or its inverse?
    """
    return sorted_rewards[order]


@mistake("rewards_in_order")
def rewards_as_keys_order(sorted_rewards, order):
    """The rewards were made the keys of a dict, so that of two answers with equal rewards one is lost.

    Hint: Two answers may earn the same. Which of the two columns has each of its numbers once?
    """
    place = dict(zip(sorted_rewards.tolist(), order.tolist()))
    return torch.tensor(sorted(place, key=place.get), dtype=sorted_rewards.dtype)


@mistake("rewards_in_order")
def left_sorted_order(sorted_rewards, order):
    """The rewards came back in the sorted order, as they were.

    Hint: Two orders are in play. In which one does the caller keep the log-probs?
    """
    return sorted_rewards.clone()


@mistake("rewards_in_order")
def reversed_order(sorted_rewards, order):
    """The rewards were turned round, last to first.

    Hint: Is the inverse of an order the order read backwards? Try it with three answers.
    """
    return sorted_rewards.flip(0)


@mistake("rewards_in_order")
def backwards_order(sorted_rewards, order):
    """The order was read backwards and applied.

    Hint: Is the inverse of an order the order read backwards? Try it with three answers.
    """
    return sorted_rewards[order.flip(0)]


@mistake("rewards_in_order")
def sorted_by_reward_order(sorted_rewards, order):
    """The rewards were sorted by their own size.

    Hint: They were sorted once, by length. Which tensor knows where each came from?
    """
    return sorted_rewards.sort().values


@mistake("rewards_in_order")
def order_of_rewards_order(sorted_rewards, order):
    """The argsort was taken of the rewards, not of the order.

    Hint: argsort of what gives the inverse of a permutation?
    """
    return sorted_rewards[sorted_rewards.argsort(stable=True)]


@mistake("rewards_in_order")
def in_place_order(sorted_rewards, order):
    """The rewards are in their places, and were written into the tensor that came in.

    Hint: Somebody else may still need the sorted rewards. In whose tensor does your result stand?
    """
    sorted_rewards[order] = sorted_rewards.clone()
    return sorted_rewards


@mistake("rewards_in_order")
def in_place_too_early_order(sorted_rewards, order):
    """The rewards were moved one by one within their own tensor, so that some were overwritten before their turn.

    Hint: Where does your loop read, and where has it written before?
    """
    moved = sorted_rewards.clone()
    for k, i in enumerate(order.tolist()):
        moved[i] = moved[k]
    return moved


@right("rewards_in_order")
def argsort_order(sorted_rewards, order):
    """The inverse of a permutation is its argsort."""
    return sorted_rewards[order.argsort()]


@right("rewards_in_order")
def scatter_order(sorted_rewards, order):
    """scatter."""
    return torch.zeros_like(sorted_rewards).scatter(0, order, sorted_rewards)


@right("rewards_in_order")
def index_copy_order(sorted_rewards, order):
    """index_copy."""
    return sorted_rewards.index_copy(0, order, sorted_rewards)


@right("rewards_in_order")
def loop_order(sorted_rewards, order):
    """One reward at a time, into a tensor of floats."""
    out = torch.zeros(len(order))
    for reward, place in zip(sorted_rewards, order):
        out[place] = reward
    return out


@right("rewards_in_order")
def dict_order(sorted_rewards, order):
    """A dict from answer to reward."""
    reward_of = dict(zip(order.tolist(), sorted_rewards.tolist()))
    return torch.tensor([reward_of[i] for i in range(len(order))])


@right("rewards_in_order")
def matrix_order(sorted_rewards, order):
    """A permutation matrix, transposed."""
    return torch.nn.functional.one_hot(order, len(order)).T.float() @ sorted_rewards.float()


# ---------------------------------------------------------------- response_ratio


@mistake("response_ratio")
def unchanged_ratio(log_probs_new, log_probs_old, mask):
    """The buggy function was handed in as it was: new counts the padding, old does not.

    Hint: Put the two sums side by side: which tokens does each of them count?
    """
    old = log_probs_old.masked_fill(~mask, 0.0).sum(dim=1)
    return torch.exp(log_probs_new.sum(dim=1) - old)


@mistake("response_ratio")
def both_unmasked(log_probs_new, log_probs_old, mask):
    """Both sides counted the padding.

    Hint: The two sides agree now. Do they count the tokens of the answer, and no others?
    """
    return torch.exp((log_probs_new - log_probs_old).sum(dim=1))


@mistake("response_ratio")
def sides_swapped(log_probs_new, log_probs_old, mask):
    """The mask moved to the other side: old counted the padding, new did not.

    Hint: Which tokens does each of the two sums count?
    """
    return torch.exp(log_probs_new.masked_fill(~mask, 0.0).sum(dim=1) - log_probs_old.sum(dim=1))


@mistake("response_ratio")
def multiplied_mask(log_probs_new, log_probs_old, mask):
    """The padding was multiplied by 0, which removes neither NaN nor infinity.

    Hint: What is 0 times NaN? And which functions put one value in the place of another?
    """
    return torch.exp((log_probs_new * mask).sum(dim=1) - (log_probs_old * mask).sum(dim=1))


@mistake("response_ratio")
def mean_for_sum_ratio(log_probs_new, log_probs_old, mask):
    """The mean over the tokens was taken instead of the sum: GSPO's ratio, not that of the whole answer.

    Hint: The probability of an answer is the product of its tokens' probabilities. What is it among logarithms?
    """
    new = log_probs_new.masked_fill(~mask, 0.0).sum(dim=1) / mask.sum(dim=1)
    old = log_probs_old.masked_fill(~mask, 0.0).sum(dim=1) / mask.sum(dim=1)
    return torch.exp(new - old)


@mistake("response_ratio")
def mean_of_ratios(log_probs_new, log_probs_old, mask):
    """The tokens' ratios were averaged instead of multiplied.

    Hint: Where does the sum stand: inside of exp or outside?
    """
    ratio = torch.exp((log_probs_new - log_probs_old).masked_fill(~mask, 0.0)).masked_fill(~mask, 0.0)
    return ratio.sum(dim=1) / mask.sum(dim=1)


@mistake("response_ratio")
def sum_of_ratios(log_probs_new, log_probs_old, mask):
    """The tokens' ratios were added up instead of multiplied.

    Hint: Where does the sum stand: inside of exp or outside?
    """
    return torch.exp((log_probs_new - log_probs_old).masked_fill(~mask, 0.0)).masked_fill(~mask, 0.0).sum(dim=1)


@mistake("response_ratio")
def inverted_response(log_probs_new, log_probs_old, mask):
    """The importance ratio was upside down: old over new.

    Hint: Should an answer that became likelier have a ratio above 1 or below?
    """
    return torch.exp((log_probs_old - log_probs_new).masked_fill(~mask, 0.0).sum(dim=1))


@mistake("response_ratio")
def no_exp_response(log_probs_new, log_probs_old, mask):
    """The difference of the log-probs came back, without exp.

    Hint: A ratio of probabilities is positive, and 1 where nothing changed.
    """
    return (log_probs_new - log_probs_old).masked_fill(~mask, 0.0).sum(dim=1)


@mistake("response_ratio")
def mask_turned_round(log_probs_new, log_probs_old, mask):
    """The padding was kept and the answer filled with 0.

    Hint: Where does masked_fill write: where its mask is True or where it is False?
    """
    return torch.exp((log_probs_new - log_probs_old).masked_fill(mask, 0.0).sum(dim=1))


@mistake("response_ratio")
def token_ratios(log_probs_new, log_probs_old, mask):
    """One ratio per token came back, not one per answer.

    Hint: The exercise asks for [N]. What has to happen along the tokens before the exponential?
    """
    return torch.exp((log_probs_new - log_probs_old).masked_fill(~mask, 0.0))


@mistake("response_ratio")
def summed_over_answers(log_probs_new, log_probs_old, mask):
    """The sum ran over the answers instead of over the tokens.

    Hint: Which axis of [N, T] holds the tokens?
    """
    return torch.exp((log_probs_new - log_probs_old).masked_fill(~mask, 0.0).sum(dim=0))


@mistake("response_ratio")
def detached_response(log_probs_new, log_probs_old, mask):
    """The sums are right, but the new log-probs were detached: no gradient flows.

    Hint: The gradient should reach the new log-probs. Where is it cut off?
    """
    return torch.exp((log_probs_new.detach() - log_probs_old).masked_fill(~mask, 0.0).sum(dim=1))


@mistake("response_ratio")
def probabilities_multiplied(log_probs_new, log_probs_old, mask):
    """The padding was replaced after exp: the ratio is clean, but the gradient meets 0 times infinity on its way back.

    Hint: The backward pass multiplies too. What had exp already met when the padding was taken out?
    """
    return torch.exp(log_probs_new - log_probs_old).masked_fill(~mask, 1.0).prod(1)


@mistake("response_ratio")
def product_of_probabilities(log_probs_new, log_probs_old, mask):
    """Each side was turned into a probability before the division, which gives 0/0 for a long answer.

    Hint: What does float32 make of exp(-200)? In which order do sum, difference and exp never ask for it?
    """
    new = log_probs_new.masked_fill(~mask, 0.0).exp().prod(dim=1)
    return new / log_probs_old.masked_fill(~mask, 0.0).exp().prod(dim=1)


@mistake("response_ratio")
def log_ratio_clamped_response(log_probs_new, log_probs_old, mask):
    """The log-ratio of the answer was bounded to -10 and 10.

    Hint: Against overflow a bound of -20 and 20 would do. Which ratio do you get for an answer whose log-prob rose by 18?
    """
    return torch.exp((log_probs_new - log_probs_old).masked_fill(~mask, 0.0).sum(dim=1).clamp(-10, 10))


@mistake("response_ratio")
def nan_to_num_ratio(log_probs_new, log_probs_old, mask):
    """NaN and infinity were replaced by 0 and the mask was not used: ordinary numbers in the padding count.

    Hint: Padding may hold anything, a -7 too. Which argument says where it is?
    """
    new, old = torch.nan_to_num(log_probs_new, 0.0, 0.0, 0.0), torch.nan_to_num(log_probs_old, 0.0, 0.0, 0.0)
    return torch.exp(new.sum(1) - old.sum(1))


@mistake("response_ratio")
def in_place_response(log_probs_new, log_probs_old, mask):
    """The ratio is right, and the padding of the caller's own log-probs was overwritten.

    Hint: masked_fill and masked_fill_ differ in one character. Into whose tensor does the second one write?
    """
    old = log_probs_old.masked_fill_(~mask, 0.0).sum(dim=1)
    return torch.exp(log_probs_new.masked_fill(~mask, 0.0).sum(dim=1) - old)


@right("response_ratio")
def nansum_ratio(log_probs_new, log_probs_old, mask):
    """Padding times 0, and a sum that passes over NaN."""
    return torch.exp(torch.nansum(log_probs_new * mask, dim=1) - torch.nansum(log_probs_old * mask, dim=1))


@right("response_ratio")
def clamped_ratio(log_probs_new, log_probs_old, mask):
    """float64 inside, the log-ratio of the answer cut at -20 and 20."""
    zero = torch.zeros((), dtype=torch.float64)
    difference = torch.where(mask, log_probs_new.double(), zero) - torch.where(mask, log_probs_old.double(), zero)
    return difference.sum(-1).clamp(-20, 20).exp().float()


@right("response_ratio")
def where_ratio(log_probs_new, log_probs_old, mask):
    """torch.where on the difference."""
    return torch.where(mask, log_probs_new - log_probs_old, torch.zeros(())).sum(-1).exp()


@right("response_ratio")
def selected_ratio(log_probs_new, log_probs_old, mask):
    """Row by row, the tokens picked by the mask."""
    return torch.stack([torch.exp(n[m].sum() - o[m].sum()) for n, o, m in zip(log_probs_new, log_probs_old, mask)])


@right("response_ratio")
def product_ratio(log_probs_new, log_probs_old, mask):
    """The product of the tokens' ratios, 1 in the padding."""
    return torch.exp((log_probs_new - log_probs_old).masked_fill(~mask, 0.0)).prod(dim=1)


@right("response_ratio")
def where_each_ratio(log_probs_new, log_probs_old, mask):
    """torch.where on each side, zeros_like."""
    new = torch.where(mask, log_probs_new, torch.zeros_like(log_probs_new)).sum(1)
    old = torch.where(mask, log_probs_old, torch.zeros_like(log_probs_old)).sum(1)
    return (new - old).exp()


@right("response_ratio")
def double_ratio(log_probs_new, log_probs_old, mask):
    """In float64, the mask as an index."""
    difference = torch.zeros(mask.shape, dtype=torch.float64)
    difference[mask] = (log_probs_new[mask] - log_probs_old[mask]).double()
    return difference.sum(1).exp().float()


@right("response_ratio")
def index_add_ratio(log_probs_new, log_probs_old, mask):
    """Only the tokens of the mask, added up by row."""
    row = mask.nonzero()[:, 0]
    return torch.zeros(len(mask)).index_add(0, row, log_probs_new[mask] - log_probs_old[mask]).exp()


# ---------------------------------------------------------------- weighted_log_probs


@mistake("weighted_log_probs")
def unchanged_weighted(advantages, log_probs):
    """The advantages ran along the tokens, [1, N] against [N, T], as in the buggy function.

    Hint: Broadcasting lines shapes up from the right. With which axis does the [N] of the advantages meet?
    """
    return advantages * log_probs


@mistake("weighted_log_probs")
def transposed_weighted(advantages, log_probs):
    """The products are right, but the result came back transposed: tokens in rows.

    Hint: Which shape does the exercise promise, and which one came out?
    """
    return column(advantages).T * log_probs.T


@mistake("weighted_log_probs")
def repeated_weighted(advantages, log_probs):
    """The advantages were repeated one after the other, so that a row mixes them.

    Hint: Print the repeated tensor: is each of its rows constant?
    """
    if advantages.dim() == 1:
        advantages = advantages.repeat(log_probs.shape[1]).view(log_probs.shape)
    return advantages * log_probs


@mistake("weighted_log_probs")
def summed_weighted(advantages, log_probs):
    """The products were summed over the answers.

    Hint: What goes out has the shape [N, T]. Which axis is missing from yours, and what does `@` do along it?
    """
    return advantages @ log_probs if advantages.dim() == 1 else (advantages * log_probs).sum(0)


@mistake("weighted_log_probs")
def negated_weighted(advantages, log_probs):
    """The products came out with a minus.

    Hint: The minus belongs to a loss. Does this exercise ask for one yet?
    """
    return -column(advantages) * log_probs


@mistake("weighted_log_probs")
def shared_weighted(advantages, log_probs):
    """The advantage was divided by the number of tokens.

    Hint: Does the exercise let the tokens share an advantage, or does each carry it whole?
    """
    return column(advantages) * log_probs / log_probs.shape[1]


@mistake("weighted_log_probs")
def detached_weighted(advantages, log_probs):
    """The products are right, but the log-probs were detached: no gradient flows.

    Hint: The gradient should reach the log-probs. Where is it cut off?
    """
    return column(advantages) * log_probs.detach()


@mistake("weighted_log_probs")
def square_only_weighted(advantages, log_probs):
    """The log-probs were turned and turned back only where the batch is square; other shapes failed.

    Hint: There is one way for every shape. Which shape of the advantages lines up with the rows?
    """
    square = advantages.dim() == 1 and log_probs.shape[0] == log_probs.shape[1]
    return (advantages * log_probs.T).T if square else advantages * log_probs


@mistake("weighted_log_probs")
def added_weighted(advantages, log_probs):
    """The advantage was added to the log-prob instead of multiplied with it.

    Hint: What should an advantage of 0 make of a log-prob, and what does yours make of it?
    """
    return column(advantages) + log_probs


@mistake("weighted_log_probs")
def in_place_weighted(advantages, log_probs):
    """The products are right, and the caller's own advantages were given another shape.

    Hint: unsqueeze and unsqueeze_ differ in one character. Whose tensor does the second one turn?
    """
    if advantages.dim() == 1:
        advantages.unsqueeze_(-1)
    return advantages * log_probs


@mistake("weighted_log_probs")
def always_a_column_weighted(advantages, log_probs):
    """The advantages were made a column whatever came: [N] works, and [N, T] became [N, 1, T].

    Hint: One more axis is right for one number per answer. What does it make of one number per token?
    """
    return advantages.unsqueeze(1) * log_probs


@mistake("weighted_log_probs")
def first_column_weighted(advantages, log_probs):
    """One advantage per answer was used even where there is one per token: the first, or the mean, of each row.

    Hint: PPO gives each token its own advantage. How many of them does your code look at?
    """
    return column(advantages if advantages.dim() == 1 else advantages[:, 0]) * log_probs


@mistake("weighted_log_probs")
def by_size_weighted(advantages, log_probs):
    """The advantages became a column only where the sizes do not fit, so that a square batch still goes wrong.

    Hint: In a square batch the sizes fit by chance. What tells [N] from [N, T] always?
    """
    return (column(advantages) if advantages.shape[-1] != log_probs.shape[-1] else advantages) * log_probs


@mistake("weighted_log_probs")
def by_count_weighted(advantages, log_probs):
    """Whether there is one advantage per answer was judged by their count, which answers of a single token confuse.

    Hint: Two answers of one token have two advantages either way. What tells [N] from [N, 1]?
    """
    one_each = advantages.numel() == len(log_probs)
    return (advantages.expand(log_probs.shape[1], -1).T if one_each else advantages) * log_probs


@right("weighted_log_probs")
def unsqueeze_weighted(advantages, log_probs):
    """unsqueeze where there is one axis."""
    return log_probs * (advantages.unsqueeze(-1) if advantages.dim() == 1 else advantages)


@right("weighted_log_probs")
def einsum_weighted(advantages, log_probs):
    """einsum, one for each case."""
    return torch.einsum("n,nt->nt" if advantages.ndim == 1 else "nt,nt->nt", advantages, log_probs)


@right("weighted_log_probs")
def reshaped_weighted(advantages, log_probs):
    """N rows, whatever comes."""
    return advantages.reshape(len(log_probs), -1) * log_probs


@right("weighted_log_probs")
def loop_weighted(advantages, log_probs):
    """Row by row: a number or a row of numbers."""
    return torch.stack([a * row for a, row in zip(advantages, log_probs)])


@right("weighted_log_probs")
def turned_weighted(advantages, log_probs):
    """Turned, multiplied, turned back."""
    return (log_probs.T * (advantages.T if advantages.dim() == 2 else advantages)).T


@right("weighted_log_probs")
def expanded_weighted(advantages, log_probs):
    """view and expand."""
    return advantages.view(log_probs.shape[0], -1).expand_as(log_probs).mul(log_probs)


# ---------------------------------------------------------------- grpo_token_loss


@mistake("grpo_token_loss")
def no_minus_token(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """The loss came out without its minus.

    Hint: The surrogate is to be raised, a loss is to be lowered.
    """
    return -aggregated(token_loss(log_probs_new, log_probs_old, advantages, mask, clip_range), mask, aggregate, max_length)


@mistake("grpo_token_loss")
def max_for_min_token(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """The larger surrogate was believed: the minus was pushed through the minimum, or max was written for min.

    Hint: A = 1 and ratio 1.5: the pessimist says 1.2. What becomes of min when both are negated first?
    """
    ratio, A = token_ratio(log_probs_new, log_probs_old, mask), advantages[:, None]
    per_token = torch.min(-ratio * A, -ratio.clamp(1 - clip_range, 1 + clip_range) * A)
    return aggregated(per_token, mask, aggregate, max_length)


@mistake("grpo_token_loss")
def clip_ratio_only_token(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """The minimum was taken of the two ratios and multiplied by the advantage afterwards.

    Hint: A = -1, ratio 1.5: what is the smaller surrogate?
    """
    ratio = token_ratio(log_probs_new, log_probs_old, mask)
    per_token = -torch.min(ratio, ratio.clamp(1 - clip_range, 1 + clip_range)) * advantages[:, None]
    return aggregated(per_token, mask, aggregate, max_length)


@mistake("grpo_token_loss")
def no_clip_token(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """Only the unclipped surrogate was used.

    Hint: The pessimist has two estimates for every token. Does your loss look at both?
    """
    return aggregated(-token_ratio(log_probs_new, log_probs_old, mask) * advantages[:, None], mask, aggregate, max_length)


@mistake("grpo_token_loss")
def clip_only_token(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """Only the clipped surrogate was used.

    Hint: A token with A = -1 has come to a ratio of 1.5. Does your loss still push it down?
    """
    ratio = token_ratio(log_probs_new, log_probs_old, mask).clamp(1 - clip_range, 1 + clip_range)
    return aggregated(-ratio * advantages[:, None], mask, aggregate, max_length)


@mistake("grpo_token_loss")
def bad_answers_capped_low_token(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """For bad answers the ratio was capped at 1 - clip_range from above, not held there from below.

    Hint: Work out both products for A = -1 and a ratio of 1.5. Which is the smaller one, and which was taken?
    """
    ratio, A = token_ratio(log_probs_new, log_probs_old, mask), advantages[:, None]
    limited = torch.where(A > 0, ratio.clamp(max=1 + clip_range), ratio.clamp(max=1 - clip_range))
    return aggregated(-limited * A, mask, aggregate, max_length)


@mistake("grpo_token_loss")
def fixed_clip_range_token(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """The band was always 0.8 to 1.2, whatever clip_range says.

    Hint: Is there a 0.2, 0.8 or 1.2 in your code? Who should decide how wide the band is?
    """
    return aggregated(token_loss(log_probs_new, log_probs_old, advantages, mask, 0.2), mask, aggregate, max_length)


@mistake("grpo_token_loss")
def clip_in_log_space_token(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """The log-ratio was clipped to plus or minus clip_range, which gives the band from .82 to 1.22.

    Hint: The band is one of the ratio. Is exp(0.2) equal to 1.2?
    """
    log_ratio, A = (log_probs_new - log_probs_old).masked_fill(~mask, 0.0), advantages[:, None]
    per_token = -torch.min(log_ratio.exp() * A, log_ratio.clamp(-clip_range, clip_range).exp() * A)
    return aggregated(per_token, mask, aggregate, max_length)


@mistake("grpo_token_loss")
def ratio_is_one_token(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """The old log-probs were not used: new.detach() stood in their place, so that every ratio is 1.

    Hint: You are handed the old log-probs, and they differ from the new ones. Where do they come into your function?
    """
    per_token = token_loss(log_probs_new, log_probs_new.detach(), advantages, mask, clip_range)
    return aggregated(per_token, mask, aggregate, max_length)


@mistake("grpo_token_loss")
def new_minus_new_token(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """Both sides of the ratio came from the new log-probs and carried the graph: the gradient is exactly 0.

    Hint: Which of the two sides of the ratio may move?
    """
    return aggregated(token_loss(log_probs_new, log_probs_new, advantages, mask, clip_range), mask, aggregate, max_length)


@mistake("grpo_token_loss")
def inverted_ratio_token(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """The importance ratio was upside down: old over new.

    Hint: Should a token that became likelier have a ratio above 1 or below?
    """
    return aggregated(token_loss(-log_probs_new, -log_probs_old, advantages, mask, clip_range), mask, aggregate, max_length)


@mistake("grpo_token_loss")
def probability_ratio_token(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """Each log-prob was exponentiated before dividing, which gives 0/0 for a very unlikely token.

    Hint: What is exp(-120) in float32? Which order of the two steps never asks for it?
    """
    zero = torch.zeros(())
    ratio = torch.where(mask, log_probs_new, zero).exp() / torch.where(mask, log_probs_old, zero).exp()
    A = advantages[:, None]
    per_token = -torch.min(ratio * A, ratio.clamp(1 - clip_range, 1 + clip_range) * A)
    return aggregated(per_token, mask, aggregate, max_length)


@mistake("grpo_token_loss")
def no_exp_token(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """The difference of the log-probs was taken for the ratio, without exp.

    Hint: If nothing has changed, the difference is 0. What should the ratio be?
    """
    ratio, A = (log_probs_new - log_probs_old).masked_fill(~mask, 0.0), advantages[:, None]
    per_token = -torch.min(ratio * A, ratio.clamp(1 - clip_range, 1 + clip_range) * A)
    return aggregated(per_token, mask, aggregate, max_length)


@mistake("grpo_token_loss")
def sequence_product(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """One ratio for the whole answer, the product over its tokens, was used at every token.

    Hint: Three tokens have the ratios 1.1, 0.9 and 1.5. How many ratios does the loss clip here, and is 1.485 one of them?
    """
    ratio = (log_probs_new - log_probs_old).masked_fill(~mask, 0.0).sum(1, keepdim=True).exp().expand(mask.shape)
    A = advantages[:, None]
    per_token = -torch.min(ratio * A, ratio.clamp(1 - clip_range, 1 + clip_range) * A)
    return aggregated(per_token, mask, aggregate, max_length)


@mistake("grpo_token_loss")
def geometric_mean(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """One ratio for the whole answer, the geometric mean of its tokens' (GSPO's), was used at every token.

    Hint: A good idea, and another method's. Here each token has its own ratio and its own clip.
    """
    log_ratio = (log_probs_new - log_probs_old).masked_fill(~mask, 0.0).sum(1, keepdim=True)
    ratio = (log_ratio / mask.sum(1, keepdim=True).clamp_min(1)).exp().expand(mask.shape)
    A = advantages[:, None]
    per_token = -torch.min(ratio * A, ratio.clamp(1 - clip_range, 1 + clip_range) * A)
    return aggregated(per_token, mask, aggregate, max_length)


@mistake("grpo_token_loss")
def rows_for_columns(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """The advantages ran along the tokens instead of along the answers: silent where N equals T, an error elsewhere.

    Hint: This is bug 3 again. Which shape lines up with the rows?
    """
    ratio = token_ratio(log_probs_new, log_probs_old, mask)
    per_token = -torch.min(ratio * advantages, ratio.clamp(1 - clip_range, 1 + clip_range) * advantages)
    return aggregated(per_token, mask, aggregate, max_length)


@mistake("grpo_token_loss")
def no_graph_token(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """The new log-probs were detached (or the loss was computed under no_grad): no gradient can flow.

    Hint: Which of the two log-probs are constants, and which must carry the gradient?
    """
    with torch.no_grad():
        return aggregated(token_loss(log_probs_new, log_probs_old, advantages, mask, clip_range), mask, aggregate, max_length)


@mistake("grpo_token_loss")
def halved_gradient_token(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """The ratio was detached in one of the two surrogates; inside the band, where they tie, half of the gradient is lost.

    Hint: Inside the band the minimum shares the gradient between two equal numbers. Do both pass it on?
    """
    ratio, A = token_ratio(log_probs_new, log_probs_old, mask), advantages[:, None]
    per_token = -torch.min(ratio * A, ratio.detach().clamp(1 - clip_range, 1 + clip_range) * A)
    return aggregated(per_token, mask, aggregate, max_length)


@mistake("grpo_token_loss")
def clipped_set_to_zero_token(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """Tokens outside of the band were left out on both sides, whatever their advantage.

    Hint: Two of the four outer regions are active.
    """
    ratio = token_ratio(log_probs_new, log_probs_old, mask)
    return aggregated(-ratio * advantages[:, None] * ((ratio - 1).abs() <= clip_range), mask, aggregate, max_length)


@mistake("grpo_token_loss")
def always_token(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """One mean over all tokens was taken, whatever `aggregate` says.

    Hint: Does your code look at `aggregate`, and what should "sequence" do?
    """
    return aggregated(token_loss(log_probs_new, log_probs_old, advantages, mask, clip_range), mask, "token", max_length)


@mistake("grpo_token_loss")
def always_sequence(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """A mean per answer and then over answers was taken, whatever `aggregate` says.

    Hint: Does your code look at `aggregate`?
    """
    return aggregated(token_loss(log_probs_new, log_probs_old, advantages, mask, clip_range), mask, "sequence", max_length)


@mistake("grpo_token_loss")
def sequence_and_token_swapped(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """The aggregations "sequence" and "token" were exchanged.

    Hint: Under which of the two has every answer the same weight?
    """
    other = {"sequence": "token", "token": "sequence"}.get(aggregate, aggregate)
    return aggregated(token_loss(log_probs_new, log_probs_old, advantages, mask, clip_range), mask, other, max_length)


@mistake("grpo_token_loss")
def options_fall_through(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """Under "sequence" the sum over all tokens was divided by N x T, as under "constant".

    Hint: Does your mean count the padded places too? Or is it the last of several branches that writes the loss, whichever was asked for?
    """
    per_token = token_loss(log_probs_new, log_probs_old, advantages, mask, clip_range).masked_fill(~mask, 0.0)
    if aggregate == "sequence":
        loss = (per_token.sum(1) / mask.sum(1).clamp_min(1)).mean()
    if aggregate == "token":
        loss = per_token.sum() / mask.sum()
    else:
        loss = per_token.sum() / places(mask, max_length)
    return loss


@mistake("grpo_token_loss")
def mask_not_used(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """The mask was not used: padding counted as if it were tokens of the answer.

    Hint: Which of the T places of a short answer are tokens, and how many are they?
    """
    ratio, A = torch.exp(log_probs_new - log_probs_old), advantages[:, None]
    return -torch.min(ratio * A, ratio.clamp(1 - clip_range, 1 + clip_range) * A).mean()


@mistake("grpo_token_loss")
def sequence_by_width(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """The padding was set to 0, but its places still counted: each answer was divided by T instead of its length.

    Hint: By what does mean(dim=1) divide a row, and by what should it be divided?
    """
    per_token = token_loss(log_probs_new, log_probs_old, advantages, mask, clip_range).masked_fill(~mask, 0.0)
    if aggregate == "sequence":
        return per_token.mean(dim=1).mean()
    return per_token.mean() if aggregate == "token" else per_token.sum() / places(mask, max_length)


@mistake("grpo_token_loss")
def constant_without_n(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """Under "constant" the sum was divided by the maximum length alone, without N.

    Hint: The constant is a product of two numbers. Which one is missing?
    """
    per_token = token_loss(log_probs_new, log_probs_old, advantages, mask, clip_range)
    if aggregate == "constant":
        return per_token.masked_fill(~mask, 0.0).sum() / (mask.shape[1] if max_length is None else max_length)
    return aggregated(per_token, mask, aggregate, max_length)


@mistake("grpo_token_loss")
def max_length_ignored(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """Under "constant" the length was the width of the batch, whatever max_length says.

    Hint: Who fixes the length that "constant" divides by, and does your code look at it?
    """
    return aggregated(token_loss(log_probs_new, log_probs_old, advantages, mask, clip_range), mask, aggregate, None)


@mistake("grpo_token_loss")
def max_length_without_n(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """Under "constant" with a max_length the sum was divided by max_length alone, without N.

    Hint: max_length takes the place of one of two factors. Is the other one still there?
    """
    per_token = token_loss(log_probs_new, log_probs_old, advantages, mask, clip_range)
    if aggregate == "constant" and max_length is not None:
        return per_token.masked_fill(~mask, 0.0).sum() / max_length
    return aggregated(per_token, mask, aggregate, None)


@mistake("grpo_token_loss")
def max_length_everywhere(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """A max_length was obeyed under every aggregation, not under "constant" alone.

    Hint: Which of the three divisors has a maximum length in it?
    """
    how = aggregate if max_length is None else "constant"
    return aggregated(token_loss(log_probs_new, log_probs_old, advantages, mask, clip_range), mask, how, max_length)


@mistake("grpo_token_loss")
def constant_by_longest(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """Under "constant" the length was that of the longest answer of the batch.

    Hint: The divisor must not depend on the lengths that happen to be in the batch. What is to be taken where max_length is None?
    """
    per_token = token_loss(log_probs_new, log_probs_old, advantages, mask, clip_range)
    if aggregate == "constant":
        return per_token.masked_fill(~mask, 0.0).sum() / (len(mask) * mask.sum(1).max())
    return aggregated(per_token, mask, aggregate, max_length)


@mistake("grpo_token_loss")
def constant_as_token(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """Under "constant" the sum was divided by the number of real tokens, which is what "token" does.

    Hint: What makes a constant constant?
    """
    per_token = token_loss(log_probs_new, log_probs_old, advantages, mask, clip_range)
    return aggregated(per_token, mask, "token" if aggregate == "constant" else aggregate, max_length)


@mistake("grpo_token_loss")
def sum_for_mean_token(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """The loss came out N times too large, as if the answers were added up and not averaged.

    Hint: Should the step on a batch twice as large be twice as long?
    """
    per_token = token_loss(log_probs_new, log_probs_old, advantages, mask, clip_range)
    return aggregated(per_token, mask, aggregate, max_length) * len(mask)


@mistake("grpo_token_loss")
def sequence_sum_token(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """Under "sequence" the tokens of an answer were added up, not averaged: one of 8 tokens became 8 times as loud.

    Hint: Under "sequence" there are two means, one inside the other. Is one of yours a sum?
    """
    per_token = token_loss(log_probs_new, log_probs_old, advantages, mask, clip_range)
    if aggregate == "sequence":
        return per_token.masked_fill(~mask, 0.0).sum(dim=1).mean()
    return aggregated(per_token, mask, aggregate, max_length)


@mistake("grpo_token_loss")
def empty_is_nan(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """An answer without tokens gave 0/0.

    Hint: The sum of no tokens is 0. By what may it be divided so that it stays 0?
    """
    per_token = token_loss(log_probs_new, log_probs_old, advantages, mask, clip_range).masked_fill(~mask, 0.0)
    if aggregate == "sequence":
        return (per_token.sum(1) / mask.sum(1)).mean()
    return aggregated(per_token, mask, aggregate, max_length)


@mistake("grpo_token_loss")
def empty_not_counted(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """Answers without tokens were left out of N.

    Hint: An answer without tokens contributes 0. Is it still one of the N?
    """
    per_token = token_loss(log_probs_new, log_probs_old, advantages, mask, clip_range)
    kept = mask.any(dim=1)
    return aggregated(per_token[kept], mask[kept], aggregate, max_length)


@mistake("grpo_token_loss")
def nan_leaks(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """The padding was multiplied by 0 at the end, which removes neither NaN nor infinity.

    Hint: What is 0 times NaN? Which functions put one value in the place of another, and before which step?
    """
    ratio, A = torch.exp(log_probs_new - log_probs_old), advantages[:, None]
    per_token = -torch.min(ratio * A, ratio.clamp(1 - clip_range, 1 + clip_range) * A) * mask
    if aggregate == "sequence":
        return (per_token.sum(1) / mask.sum(1).clamp_min(1)).mean()
    return per_token.sum() / (mask.sum() if aggregate == "token" else places(mask, max_length))


@mistake("grpo_token_loss")
def nan_in_the_gradient(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """The padding was replaced after exp: the value is clean, but the gradient meets 0 times infinity on its way back.

    Hint: The backward pass multiplies by the ratio itself, in the padding too. Before which step must the padding be gone?
    """
    ratio, A = torch.exp(log_probs_new - log_probs_old), advantages[:, None]
    per_token = -torch.min(ratio * A, ratio.clamp(1 - clip_range, 1 + clip_range) * A)
    return aggregated(torch.where(mask, per_token, torch.zeros(())), mask, aggregate, max_length)


@mistake("grpo_token_loss")
def clip_higher_token(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """The band reached further up than down, as DAPO's does.

    Hint: How far is it from 1 to the upper edge of your band, and how far to the lower one?
    """
    ratio, A = token_ratio(log_probs_new, log_probs_old, mask), advantages[:, None]
    return aggregated(-torch.min(ratio * A, ratio.clamp(1 - clip_range, 1 + 1.4 * clip_range) * A), mask, aggregate, max_length)


@mistake("grpo_token_loss")
def missing_comma_token(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """The two surrogates were multiplied with each other: a comma is missing between them.

    Hint: How many things does your minimum choose between? Read the line aloud, comma by comma.
    """
    ratio, A = token_ratio(log_probs_new, log_probs_old, mask), advantages[:, None]
    return aggregated(-(ratio * A * ratio.clamp(1 - clip_range, 1 + clip_range) * A), mask, aggregate, max_length)


@mistake("grpo_token_loss")
def nan_to_num_token(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """NaN and infinity were replaced by 0, and the padding masked after exp: a large number in it still becomes infinity there.

    Hint: Padding may hold anything, 300 too. What does exp make of it, and what does the backward pass?
    """
    ratio, A = torch.nan_to_num(log_probs_new - log_probs_old, 0.0, 0.0, 0.0).exp(), advantages[:, None]
    per_token = -torch.min(ratio * A, ratio.clamp(1 - clip_range, 1 + clip_range) * A)
    return aggregated(per_token, mask, aggregate, max_length)


@mistake("grpo_token_loss")
def min_of_means_token(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """The two surrogates were averaged first, and the smaller of the two averages was taken.

    Hint: The pessimist decides for every token by itself. Where must the minimum stand then, inside of the mean or outside?
    """
    ratio, A = token_ratio(log_probs_new, log_probs_old, mask), advantages[:, None]
    unclipped = aggregated(-ratio * A, mask, aggregate, max_length)
    return torch.max(unclipped, aggregated(-ratio.clamp(1 - clip_range, 1 + clip_range) * A, mask, aggregate, max_length))


@mistake("grpo_token_loss")
def no_minus_always_token(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """Two things at once: no minus, and one mean over all tokens whatever `aggregate` says.

    Hint: First the direction of the loss, then the three divisors.
    """
    return -aggregated(token_loss(log_probs_new, log_probs_old, advantages, mask, clip_range), mask, "token", max_length)


@mistake("grpo_token_loss")
def clip_ratio_only_always_token(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """Two things at once: the minimum was taken of the ratios, not of the surrogates, and one mean over all tokens whatever `aggregate`
    says.

    Hint: First what it is that the pessimist compares, then the three divisors.
    """
    ratio = token_ratio(log_probs_new, log_probs_old, mask)
    per_token = -torch.min(ratio, ratio.clamp(1 - clip_range, 1 + clip_range)) * advantages[:, None]
    return aggregated(per_token, mask, "token", max_length)


@mistake("grpo_token_loss")
def dual_clip_token(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """The ratio of a bad answer's token, or its loss, was bounded once more from above: dual-clip PPO, as verl has it, or a cap on it.

    Hint: A bad token that became far more likely is a slip that must be undone. Does your loss still feel it?
    """
    per_token = token_loss(log_probs_new, log_probs_old, advantages, mask, clip_range)
    A = advantages[:, None]
    return aggregated(torch.where(A < 0, per_token.min(-3 * A), per_token), mask, aggregate, max_length)


@mistake("grpo_token_loss")
def dead_tokens_not_counted(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """Under "token" the tokens of answers with an advantage of 0 were left out of the count.

    Hint: An answer that teaches nothing has tokens too. Does the number of all tokens depend on the advantages?
    """
    per_token = token_loss(log_probs_new, log_probs_old, advantages, mask, clip_range)
    if aggregate == "token":
        alive = mask & (advantages != 0)[:, None]
        return per_token.masked_fill(~alive, 0.0).sum() / alive.sum().clamp_min(1)
    return aggregated(per_token, mask, aggregate, max_length)


@mistake("grpo_token_loss")
def running_product_token(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """The ratio at each token was the product of all ratios up to it.

    Hint: Does the ratio of a token depend on the tokens before it? Where in your code do they come in?
    """
    ratio = (log_probs_new - log_probs_old).masked_fill(~mask, 0.0).cumsum(1).exp()
    A = advantages[:, None]
    return aggregated(-torch.min(ratio * A, ratio.clamp(1 - clip_range, 1 + clip_range) * A), mask, aggregate, max_length)


@mistake("grpo_token_loss")
def log_ratio_clamped_token(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """The log-ratio of each token was bounded on both sides, so that the gradient of far tokens is 0.

    Hint: Against overflow a bound of -20 and 20 would do. What brings a bad token back that lies beyond yours?
    """
    log_ratio = (log_probs_new - log_probs_old).masked_fill(~mask, 0.0).clamp(-5, 5)
    return aggregated(token_loss(log_ratio, torch.zeros_like(log_ratio), advantages, mask, clip_range), mask, aggregate, max_length)


@mistake("grpo_token_loss")
def clipped_advantages_token(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """The advantages were cut to -5 and 5, as some training code does against outliers.

    Hint: Only the ratio has a band. How many stds above its siblings may an answer be?
    """
    return aggregated(token_loss(log_probs_new, log_probs_old, advantages.clamp(-5, 5), mask, clip_range), mask, aggregate, max_length)


@mistake("grpo_token_loss")
def default_band_changed_token(log_probs_new, log_probs_old, advantages, mask, clip_range=0.28, aggregate="sequence", max_length=None):
    """The default of clip_range became .28 (DAPO's upper end).

    Hint: How wide is the band when the caller says nothing? The first line of the cell said so.
    """
    return aggregated(token_loss(log_probs_new, log_probs_old, advantages, mask, clip_range), mask, aggregate, max_length)


@mistake("grpo_token_loss")
def default_aggregate_changed_token(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="token", max_length=None):
    """The default of aggregate became "token".

    Hint: Which of the three is the default in this course? See the table.
    """
    return aggregated(token_loss(log_probs_new, log_probs_old, advantages, mask, clip_range), mask, aggregate, max_length)


@mistake("grpo_token_loss")
def padding_counted_token(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """The ratio in the padding was set to 1, and the padding then counted with minus its answer's advantage.

    Hint: A clean ratio of 1 is still a loss of minus A. What has to be done to the loss of each place before it is summed?
    """
    per_token = token_loss(log_probs_new, log_probs_old, advantages, mask, clip_range)
    if aggregate == "sequence":
        return (per_token.sum(1) / mask.sum(1).clamp_min(1)).mean()
    return per_token.sum() / (mask.sum() if aggregate == "token" else places(mask, max_length))


@mistake("grpo_token_loss")
def one_added_token(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """One was added to the length of each answer against 0/0, so that every mean is too small.

    Hint: For an answer without tokens a divisor of 1 is fine. What does your divisor do to one of 2 tokens?
    """
    per_token = token_loss(log_probs_new, log_probs_old, advantages, mask, clip_range).masked_fill(~mask, 0.0)
    if aggregate == "sequence":
        return (per_token.sum(1) / (mask.sum(1) + 1)).mean()
    return aggregated(per_token, mask, aggregate, max_length)


@mistake("grpo_token_loss")
def empty_counted_in_token(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """Under "token" an answer without tokens was counted as one token.

    Hint: The clamp at 1 protects a division by one answer's length. How many tokens are there in all?
    """
    per_token = token_loss(log_probs_new, log_probs_old, advantages, mask, clip_range)
    if aggregate == "token":
        return per_token.masked_fill(~mask, 0.0).sum() / mask.sum(1).clamp_min(1).sum()
    return aggregated(per_token, mask, aggregate, max_length)


@mistake("grpo_token_loss")
def dead_answers_not_counted(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """Answers with an advantage of 0 were left out of every mean.

    Hint: An answer that teaches nothing has tokens too, and is one of the N. Does the divisor depend on the advantages?
    """
    kept = advantages != 0
    per_token = token_loss(log_probs_new, log_probs_old, advantages, mask, clip_range)
    return aggregated(per_token[kept], mask[kept], aggregate, max_length)


@mistake("grpo_token_loss")
def in_place_token(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """The loss is right, and the padding of the caller's own log-probs was overwritten.

    Hint: masked_fill and masked_fill_ differ in one character. Into whose tensor does the second one write?
    """
    old = log_probs_old.masked_fill_(~mask, 0.0)
    return aggregated(token_loss(log_probs_new, old, advantages, mask, clip_range), mask, aggregate, max_length)


@right("grpo_token_loss")
def einsum_token(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """float64 throughout; a table of weights, and one einsum."""
    zero = torch.zeros((), dtype=torch.float64)
    new, old = torch.where(mask, log_probs_new.double(), zero), torch.where(mask, log_probs_old.double(), zero)
    ratio, A, m = (new - old).exp(), advantages.double()[:, None], mask.double()
    worse = torch.minimum(ratio * A, ratio.clip(1 - clip_range, 1 + clip_range) * A)
    weights = {"sequence": m / m.sum(-1, keepdim=True).clamp_min(1) / len(m), "token": m / m.sum()}
    weights["constant"] = m / places(mask, max_length)
    return -torch.einsum("nt,nt->", weights[aggregate], worse)


@right("grpo_token_loss")
def where_token(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """torch.where, max of the negatives, a dict of divisors."""
    zero = torch.zeros(())
    ratio = torch.where(mask, log_probs_new - log_probs_old, zero).exp()
    A = advantages.unsqueeze(1)
    loss = torch.where(mask, torch.max(-A * ratio, -A * ratio.clip(1 - clip_range, 1 + clip_range)), zero)
    weight = {
        "sequence": 1 / (len(mask) * mask.sum(1, keepdim=True).clamp(min=1)),
        "token": 1 / mask.sum(),
        "constant": torch.tensor(1 / (mask.shape[0] * (max_length or mask.shape[1]))),
    }[aggregate]
    return (weight * loss).sum()


@right("grpo_token_loss")
def picked_tokens(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """Only the tokens of the mask, picked by indexing; the weights of the table."""
    row = mask.nonzero()[:, 0]
    ratio, A = (log_probs_new[mask] - log_probs_old[mask]).exp(), advantages[row]
    surrogate = torch.minimum(ratio * A, ratio.clamp(1 - clip_range, 1 + clip_range) * A)
    if aggregate == "sequence":
        return -(surrogate / mask.sum(1)[row]).sum() / mask.shape[0]
    if aggregate == "token":
        return -surrogate.mean()
    max_length = mask.shape[1] if max_length is None else max_length
    return -surrogate.sum() / (mask.shape[0] * max_length)


@right("grpo_token_loss")
def loop_token(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """Answer by answer, token by token."""
    total = log_probs_new.new_zeros(())
    n, width, tokens = mask.shape[0], mask.shape[1], int(mask.sum())
    for i in range(n):
        length = int(mask[i].sum())
        for t in range(width):
            if mask[i, t]:
                ratio = torch.exp(log_probs_new[i, t] - log_probs_old[i, t])
                A = advantages[i]
                surrogate = min(ratio * A, ratio.clamp(1 - clip_range, 1 + clip_range) * A)
                total = total - surrogate / {"sequence": n * length, "token": tokens, "constant": n * (max_length or width)}[aggregate]
    return total


@right("grpo_token_loss")
def one_sided_token(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """One-sided clamps by the sign of A; a float mask, used after the padding is clean."""
    m = mask.float()
    ratio = (log_probs_new - log_probs_old).masked_fill(~mask, 0).clamp(-20, 20).exp()
    A = advantages.reshape(-1, 1)
    limited = torch.where(A > 0, ratio.clamp(max=1 + clip_range), ratio.clamp(min=1 - clip_range))
    loss = -limited * A * m
    if aggregate == "token":
        return loss.sum() / m.sum()
    if aggregate == "constant":
        return loss.sum(-1).mean() / (max_length if max_length is not None else loss.size(1))
    return ((loss * m).sum(-1) / torch.maximum(m.sum(-1), torch.ones(()))).mean()


@right("grpo_token_loss")
def stacked_token(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """float64 inside, the smaller by stack and min, nan_to_num for the empty answers' means."""
    new = torch.where(mask, log_probs_new, torch.zeros_like(log_probs_new)).double()
    old = torch.where(mask, log_probs_old, torch.zeros_like(log_probs_old)).double()
    ratio, A = torch.exp(new - old), advantages.double()[:, None]
    loss = -torch.stack([ratio * A, torch.clamp(ratio, 1 - clip_range, 1 + clip_range) * A]).min(dim=0).values
    loss = torch.where(mask, loss, torch.zeros_like(loss))
    match aggregate:
        case "sequence":
            lengths = mask.sum(1)
            return torch.where(lengths > 0, loss.sum(1) / torch.where(lengths > 0, lengths, 1), 0.0).mean().float()
        case "token":
            return (loss.sum() / mask.sum()).float()
        case "constant":
            return (loss.sum() / places(mask, max_length)).float()


@right("grpo_token_loss")
def row_lists_token(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """A list of one tensor per answer, padding cut off."""
    rows = []
    for new, old, A, m in zip(log_probs_new, log_probs_old, advantages, mask):
        ratio = (new[m] - old[m]).exp()
        rows.append(-torch.min(ratio * A, ratio.clamp(1 - clip_range, 1 + clip_range) * A))
    if aggregate == "sequence":
        return sum(row.mean() for row in rows if len(row)) / len(rows)
    return torch.cat(rows).sum() / (mask.sum() if aggregate == "token" else places(mask, max_length))


@right("grpo_token_loss")
def cleaned_padding_token(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """Old put into the padding of new, so that every ratio there is 1; no early return."""
    old = log_probs_old.masked_fill(~mask, 0.0)
    new = torch.where(mask, log_probs_new, old)
    ratio, A = torch.exp(new - old), advantages[:, None]
    surrogate = torch.min(ratio * A, ratio.clamp(1 - clip_range, 1 + clip_range) * A) * mask
    if aggregate == "sequence":
        loss = (surrogate.sum(-1) / mask.sum(-1).clamp(min=1)).mean()
    elif aggregate == "token":
        loss = surrogate.sum() / mask.sum()
    else:
        loss = surrogate.sum(dim=1).div(max_length or mask.size(1)).mean()
    return -loss


@right("compute_grpo_loss")
def four_regions(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The flat regions named one by one, the gradient stopped there by hand."""
    same = group_ids[:, None] == group_ids[None, :]
    r = rewards.double()
    size = same.sum(1)
    mean = torch.where(same, r[None, :], 0.0).sum(1) / size
    centred = r - mean
    std = (torch.where(same, centred[None, :] ** 2, 0.0).sum(1) / size).sqrt()
    advantages = (centred / std.clamp_min(eps)).to(log_probs_new.dtype)
    ratio = (log_probs_new - log_probs_old).exp()
    flat_above = (advantages > 0) & (ratio > 1 + clip_range)
    flat_below = (advantages < 0) & (ratio < 1 - clip_range)
    held = torch.where(flat_above, 1 + clip_range, torch.where(flat_below, 1 - clip_range, ratio))
    return -(held * advantages).sum() / len(rewards), advantages


@right("compute_grpo_loss")
def sorted_pair(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    """The smaller surrogate is the first of the two once sorted; groups walked through by their unique ids."""
    advantages = torch.zeros(len(rewards), dtype=log_probs_new.dtype)
    for g in group_ids.unique().tolist():
        mine = group_ids == g
        r = rewards[mine].double()
        advantages[mine] = ((r - r.mean()) / r.var(unbiased=False).sqrt().clamp(min=eps)).to(advantages.dtype)
    ratio = torch.exp(log_probs_new - log_probs_old)
    both = torch.stack([ratio * advantages, torch.clip(ratio, 1 - clip_range, 1 + clip_range) * advantages], dim=1)
    return both.sort(dim=1).values[:, 0].mean().neg(), advantages


@right("first_step_gradient")
def mean_of_one_each_first(advantages):
    """The gradient of minus a mean, by the chain rule with a vector of ones."""
    return torch.ones_like(advantages) / advantages.shape[0] * advantages * -1


@right("response_ratio")
def difference_once_ratio(log_probs_new, log_probs_old, mask):
    """The difference first, token by token, then one sum."""
    return torch.where(mask, log_probs_new, 0.0).sub(torch.where(mask, log_probs_old, 0.0)).sum(-1).exp()


@right("grpo_token_loss")
def weights_once_token(log_probs_new, log_probs_old, advantages, mask, clip_range=0.2, aggregate="sequence", max_length=None):
    """Each token's weight in the loss is worked out first; the rest is one weighted sum."""
    n, _ = mask.shape
    m = mask.double()
    lengths = m.sum(1, keepdim=True).clamp_min(1)
    weights = {"sequence": m / lengths / n, "token": m / m.sum().clamp_min(1), "constant": m / places(mask, max_length)}[aggregate]
    ratio = (torch.where(mask, log_probs_new, 0.0) - torch.where(mask, log_probs_old, 0.0)).exp()
    A = advantages.unsqueeze(-1)
    worse = torch.minimum(A * ratio, A * ratio.clamp(1 - clip_range, 1 + clip_range))
    return -(weights.to(worse.dtype) * worse).sum()
