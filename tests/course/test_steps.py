"""An exercise in steps is checked in steps: the checks of a step pass while later steps are one line each."""

from grader.course.trusted import failure, namespace
from tests.conftest import COURSE

SIGNATURE = (
    "log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate='sequence', max_length=None"
)
SURROGATE = """
    ratio, a = torch.exp(log_probs_new - log_probs_old), advantages[:, None]
    surrogate = torch.minimum(ratio * a, ratio.clamp(1 - clip_range, 1 + clip_range) * a)"""
KL = """
    k3 = kl_estimates(log_probs_new, ref_log_probs)[2]
    token_loss = beta * k3 - surrogate"""
AGGREGATION = """
    total = token_loss.masked_fill(~mask.bool(), 0.0).sum()
    loss = {
        "sequence": masked_mean(token_loss, mask, dim=1).mean(),
        "token": masked_mean(token_loss, mask),
        "constant": total / len(mask) / (max_length or mask.shape[1]),
    }[aggregate]"""
METRICS = """
    clipped = (a > 0) & (ratio > 1 + clip_range) | (a < 0) & (ratio < 1 - clip_range)
    watched = {"policy_loss": -surrogate, "kl": k3, "clip_fraction": clipped.float()}
    return loss, {name: masked_mean(x, mask).detach() for name, x in watched.items()}"""
PADDING = """
    log_probs_new, log_probs_old, ref_log_probs = (
        x.masked_fill(~mask.bool(), 0.0) for x in (log_probs_new, log_probs_old, ref_log_probs)
    )"""
UNTIL_THEN = {KL: "token_loss = -surrogate", AGGREGATION: "loss = token_loss.mean()", METRICS: "return loss, {}"}


def test_each_step_of_grpo_objective_passes_its_checks_before_the_next_is_written():
    notebook = next(nb for nb in COURSE if nb.name == "03_kl")
    text = next(e.prose for e in notebook.exercises if e.name == "grpo_objective")
    assert all(f"`{line}`" in text for line in UNTIL_THEN.values())
    checks = [c for c in notebook.of_kind("check") if c.exercise == "grpo_objective"]
    steps = [SURROGATE, KL, AGGREGATION, METRICS, PADDING]
    for step in range(1, 6):
        parts = [part if i < step else f"\n    {UNTIL_THEN.get(part, 'pass')}" for i, part in enumerate(steps)]
        names = namespace(notebook, {"grpo_objective": f"def grpo_objective({SIGNATURE}):{''.join(parts[4:] + parts[:4])}"})
        passed = {c.title for c in checks if failure(c, names)[0] is None}
        assert passed == {c.title for c in checks if int(c.title.removeprefix("Step ")[0]) <= step}
