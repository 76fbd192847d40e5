"""`compute_grpo_loss` of the answer key on 1,000,000 rewards in 125,000 groups, against a loop over the groups."""

import time
from pathlib import Path

import torch

from grader.course.source import read_notebook
from grader.course.trusted import namespace

ROOT = Path(__file__).parent.parent
LOOP = """
def compute_grpo_loss(log_probs_new, log_probs_old, rewards, group_ids, clip_range=0.2, eps=1e-6):
    advantages = torch.zeros_like(log_probs_new)
    for g in group_ids.unique():
        mine = group_ids == g
        r = rewards[mine].double()
        advantages[mine] = ((r - r.mean()) / r.std(unbiased=False).clamp_min(eps)).to(advantages.dtype)
    ratio = torch.exp(log_probs_new - log_probs_old)
    return -torch.min(ratio * advantages, ratio.clamp(1 - clip_range, 1 + clip_range) * advantages).mean(), advantages
"""


def seconds(loss, groups: int) -> float:
    """CPU seconds of one call on groups of eight."""
    draw = torch.Generator().manual_seed(groups)
    n = 8 * groups
    old = -torch.rand(n, generator=draw)
    ids = torch.arange(groups).repeat(8)[torch.randperm(n, generator=draw)]
    new, rewards = old + 0.1 * torch.randn(n, generator=draw), torch.rand(n, generator=draw)
    began = time.process_time()
    loss(new, old, rewards, ids)
    return time.process_time() - began


if __name__ == "__main__":
    torch.set_num_threads(1)
    notebook = read_notebook(ROOT / "solutions/02_grpo_loss.py")
    key = namespace(notebook)["compute_grpo_loss"]
    loop = namespace(notebook, {"compute_grpo_loss": LOOP})["compute_grpo_loss"]
    seconds(key, 1000)
    print("groups of 8    answer key, CPU s    loop over groups, CPU s")
    for groups in (500, 2000, 8000):
        print(f"{groups:11,} {seconds(key, groups):19.4f} {seconds(loop, groups):26.2f}")
    loops = seconds(loop, 8000) * (125_000 / 8000) ** 2  # it looks at every answer for every group
    print(f"{125_000:11,} {seconds(key, 125_000):19.4f} {loops:26.0f}, extrapolated")
