"""Records the run of notebook 4 for the replay: `python -m website.record` writes docs/replay/run.js (about two minutes).

The run is the notebook's own: its functions, solved by the key, its settings and its seed. After each step the policy answers the same
prompts, greedily and three times at a temperature of 1, and two more evaluations count what it does with the 500 prompts that are kept
to watch a run. Looking draws from generators of its own, so that the run stays what it would be unwatched.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import os
import sys

import matplotlib

from grader.course.source import ROOT, read_notebook
from grader.course.trusted import execute, namespace

PROMPTS = [7, 77, 177]  # those of the notebook's gallery
TARGET = ROOT / "docs" / "replay" / "run.js"


def look(nb: dict, policy) -> dict:
    """What a policy does now: shares of the prompts to watch, and four answers to each of PROMPTS, greedy first, right or not."""
    greedy, sampled = (nb["evaluate"](policy, nb["WATCH"], temperature=t) for t in (0.0, 1.0))
    answers = []
    for prompt in nb["VERDICT"][PROMPTS]:
        draw = nb["torch"].Generator().manual_seed(int(nb["totals"](prompt[None])))
        texts = [nb["sample"](policy, prompt[None], temperature=0.0), nb["sample"](policy, prompt[None], 3, draw=draw)]
        written = [text for tokens in texts for text in nb["decode"](tokens[:, nb["PROMPT"] :])]
        answers.append([*zip(written, [right for tokens in texts for right in nb["solved"](tokens).tolist()], strict=True)])
    shares = {"greedy": greedy["accuracy"], "sampled": sampled["accuracy"], "thinks": sampled["thinks"]}
    return {name: round(share, 3) for name, share in shares.items()} | {"kl": 0.0, "answers": answers}


def record(say=print) -> dict:
    """The whole run: its prompts and, before the first step and after each, what `look` sees and the KL (nats per token)."""
    source = read_notebook(ROOT / "solutions" / "04_train_a_tiny_model.py")
    with contextlib.redirect_stdout(io.StringIO()):
        nb = namespace(source)
        execute(next(cell.source for cell in source.cells if cell.name == "the_loop"), nb, "<the_loop>")
    run = nb["run"]
    policy = nb["warm_up"](run["seed"], run["warmup_steps"], run["width"], run["layers"], run["heads"])
    steps = [look(nb, policy)]

    def step(policy, *args, **kwargs):
        metrics = nb["grpo_step"](policy, *args, **kwargs)
        steps.append(look(nb, policy) | {"kl": round(float(metrics["kl"]), 4)})
        say(f"\rstep {len(steps) - 1} of {run['steps']}", end="", flush=True)
        return metrics

    with contextlib.redirect_stdout(io.StringIO()):
        nb["train"](copy.deepcopy(policy), "the run", run["steps"], update=step)
    return {"prompts": nb["decode"](nb["VERDICT"][PROMPTS]), "steps": steps}


if __name__ == "__main__":
    matplotlib.use("Agg")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # the same run on every machine
    text = f"const RUN = {json.dumps(record(lambda *words, **how: print(*words, **how, file=sys.stderr)), separators=(',', ':'))};\n"
    beside = TARGET.with_suffix(".new")
    beside.write_text(text, encoding="utf-8")
    beside.replace(TARGET)
    print(f"\n{TARGET.relative_to(ROOT)}: {len(text) // 1024} KiB")
