"""How fast and how reliable the run of notebook 4 is: `python benchmarks/run.py [--seeds 20] [--no-trl]`.

Three parts, one thread each, everything side by side in one process:
1. the whole recipe on seeds that were never used for choosing its settings;
2. RL to .95 against TRL's GRPOTrainer from the same weights (extra `bench`; a GPT-2 of the same shape holds them);
3. sampling against transformers' generate, and its share of the float32 matmul peak.
Times are CPU seconds of this process.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import statistics
import sys
import tempfile
import time
import warnings
from pathlib import Path

import matplotlib
import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
matplotlib.use("Agg")

from grader.course.source import read_notebook  # noqa: E402
from grader.course.trusted import execute, namespace  # noqa: E402

FIRST_SEED = 200  # settings were chosen on 100 to 107
ENOUGH = 0.95


def notebook() -> dict:
    """The names of the solved notebook 4, its training loop included."""
    nb = read_notebook(ROOT / "solutions" / "04_train_a_tiny_model.py")
    with contextlib.redirect_stdout(io.StringIO()):
        names = namespace(nb)
        execute(next(c.source for c in nb.cells if c.name == "the_loop"), names, "<the_loop>")
    torch.set_num_threads(1)
    return names


def quietly(function, *args, **kwargs):
    with contextlib.redirect_stdout(io.StringIO()):
        return function(*args, **kwargs)


def warmed_up(nb: dict, seed: int) -> tuple[torch.nn.Module, float]:
    size, began = nb["PRESETS"]["laptop"], time.process_time()
    model = nb["warm_up"](seed, size["warmup_steps"], size["width"], size["layers"], size["heads"])
    return model, time.process_time() - began


def trained(nb: dict, model: torch.nn.Module, seed: int) -> list[dict]:
    return quietly(nb["train"], model, steps=nb["PRESETS"]["laptop"]["steps"], seed=seed)


def first_enough(history: list[dict]) -> float | None:
    """CPU seconds of RL until the first evaluation (every 5 steps) at .95; None if there is none."""
    spent = 0.0
    for row in history:
        spent += row["seconds"]
        if row.get("greedy", 0) >= ENOUGH:
            return spent
    return None


def recipe(nb: dict, seeds: int) -> None:
    print(f"The recipe on {seeds} seeds never used for tuning; accuracy on the held-out verdict half")
    print(
        "seed   CPU s: warm-up     RL   total  to .95 | before: greedy   thinks greedy, sampled   forced | after: greedy   thinks  sampled"
    )
    rows = []
    for seed in range(FIRST_SEED, FIRST_SEED + seeds):
        base, warm = warmed_up(nb, seed)
        policy = copy.deepcopy(base)
        history = trained(nb, policy, seed)
        rl = sum(row["seconds"] for row in history)
        before, after = (nb["evaluate"](m, nb["VERDICT"]) for m in (base, policy))
        drawn, drawn_after = (nb["evaluate"](m, nb["VERDICT"], temperature=1.0) for m in (base, policy))
        forced = nb["evaluate"](base, nb["VERDICT"], force=nb["THINK"])["accuracy"]
        first = first_enough(history)
        rows.append((warm + rl, first or float("inf"), before["accuracy"], drawn["thinks"], after["accuracy"], warm, rl))
        print(
            f"{seed} {warm:16.1f} {rl:8.1f} {warm + rl:7.1f} {first or float('nan'):8.1f} |"
            f" {before['accuracy']:15.3f} {before['thinks']:13.3f}, {drawn['thinks']:.3f} {forced:13.3f} |"
            f" {after['accuracy']:13.3f} {after['thinks']:8.3f} {drawn_after['accuracy']:9.3f}",
            flush=True,
        )
    total, first, before, thinks, after, warm, rl = zip(*rows, strict=True)
    print(
        f"at least .95 on {sum(a >= ENOUGH for a in after)} of {seeds}; lowest {min(after):.3f}, median {statistics.median(after):.3f}; "
        f"before at most {max(before):.3f}, thinking (sampled) at most {max(thinks):.3f}; medians of CPU seconds: "
        f"warm-up {statistics.median(warm):.1f}, RL {statistics.median(rl):.1f}, "
        f"total {statistics.median(total):.1f} (worst {max(total):.1f}), to .95 {statistics.median(first):.1f}"
    )


def as_gpt2(nb: dict, model: torch.nn.Module):
    """A GPT-2 of transformers that computes the same function: same shape, no biases that matter, squared ReLU."""
    from transformers import GPT2Config, GPT2LMHeadModel

    width, layers = model.token.weight.shape[1], len(model.blocks)
    config = GPT2Config(
        vocab_size=len(nb["VOCAB"]),
        n_positions=nb["PROMPT"] + nb["ROOM"],
        n_embd=width,
        n_layer=layers,
        n_head=model.blocks[0].heads,
        n_inner=4 * width,
        activation_function="relu2",
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=nb["EOS"],
        pad_token_id=nb["PAD"],
    )
    theirs = GPT2LMHeadModel(config)
    parts = {"wte": model.token, "wpe": model.place, "ln_f": model.norm}
    with torch.no_grad():
        for p in theirs.parameters():
            p.zero_()
        for name, mine in parts.items():
            getattr(theirs.transformer, name).load_state_dict(mine.state_dict())
        theirs.lm_head.weight.copy_(model.head.weight)
        for block, mine in zip(theirs.transformer.h, model.blocks, strict=True):
            block.ln_1.load_state_dict(mine.before_attention.state_dict())
            block.ln_2.load_state_dict(mine.before_network.state_dict())
            theirs_to_mine = {
                block.attn.c_attn: mine.qkv,
                block.attn.c_proj: mine.mix,
                block.mlp.c_fc: mine.up,
                block.mlp.c_proj: mine.down,
            }
            for conv, linear in theirs_to_mine.items():
                conv.weight.copy_(linear.weight.T)
        tokens = nb["TRAIN"][:4]
        assert torch.allclose(theirs(tokens).logits, model(tokens), atol=1e-4), "the GPT-2 computes something else"
    return theirs


def tokenizer(nb: dict):
    """The notebook's 18 tokens as a tokenizer of transformers."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(models.WordLevel(nb["ID"], unk_token="<pad>"))
    inner.pre_tokenizer = pre_tokenizers.Split(Regex(r"<[^>]*>|."), "isolated")
    return PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="</answer>", pad_token="<pad>", padding_side="left")


def with_trl(nb: dict, base: torch.nn.Module, seed: int) -> tuple[float, float | None, float]:
    """CPU seconds of a whole run by GRPOTrainer, to the first .95, and the accuracy at the end."""
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    size = nb["PRESETS"]["laptop"]

    def judge(policy) -> float:
        with torch.no_grad():
            out = policy.generate(nb["WATCH"], attention_mask=torch.ones_like(nb["WATCH"]), do_sample=False, max_new_tokens=nb["ROOM"])
        return nb["solved"](out).float().mean().item()

    def reward(prompts, completions, completion_ids, **_):
        texts = nb["decode_rows"](completion_ids)
        truths = [str(sum(int(c) for c in prompt if c.isdigit())) for prompt in prompts]
        return nb["accuracy"](texts, truths)

    nb["decode_rows"] = lambda rows: ["".join(nb["VOCAB"][t] for t in row if t != nb["PAD"]) for row in rows]

    class Watch(TrainerCallback):
        spent, first, since = 0.0, None, None

        def on_step_begin(self, args, state, control, **_):
            self.since = self.since or time.process_time()

        def on_step_end(self, args, state, control, model=None, **_):
            if state.global_step % 10 == 0:  # two updates a batch: every 5 batches
                self.spent += time.process_time() - self.since
                if self.first is None and judge(model) >= ENOUGH:
                    self.first = self.spent
                self.since = time.process_time()

    choose = torch.Generator().manual_seed(seed)
    rows = nb["TRAIN"][torch.randint(len(nb["TRAIN"]), (size["prompts"] * size["steps"],), generator=choose)]
    watch = Watch()
    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder,
            per_device_train_batch_size=size["prompts"] * size["answers"],
            num_generations=size["answers"],
            max_completion_length=nb["ROOM"],
            num_iterations=2,
            max_steps=2 * size["steps"],
            learning_rate=5e-4,
            lr_scheduler_type="linear",
            warmup_steps=10,
            adam_beta2=0.95,
            weight_decay=0.0,
            max_grad_norm=1.0,
            epsilon=0.2,
            beta=0.04,
            loss_type="grpo",
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            seed=seed,
            shuffle_dataset=False,
            report_to="none",
            logging_strategy="no",
            save_strategy="no",
            disable_tqdm=True,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
        )
        as_gpt2(nb, base).save_pretrained(folder + "/model")  # the trainer reads the reference from there
        trainer = GRPOTrainer(
            model=folder + "/model",
            args=config,
            reward_funcs=reward,
            train_dataset=Dataset.from_list([{"prompt": text} for text in nb["decode"](rows)]),
            processing_class=tokenizer(nb),
            callbacks=[watch],
        )
        quietly(trainer.train)
    return watch.spent, watch.first, judge(trainer.model)


def against_trl(nb: dict, seeds: int = 3) -> None:
    try:
        import trl
    except ImportError:
        print("TRL is not installed (pip install -e '.[bench]'): its part is left out")
        return
    print(f"\nRL from the same weights, prompts a step, reward and settings; TRL {trl.__version__}; CPU seconds, evaluations not counted")
    print("seed   ours: all, to .95, greedy   TRL: all, to .95, greedy   ours / TRL to .95")
    ratios = []
    for seed in range(FIRST_SEED, FIRST_SEED + seeds):
        base, _ = warmed_up(nb, seed)
        policy = copy.deepcopy(base)
        history = trained(nb, policy, seed)
        mine = sum(row["seconds"] for row in history), first_enough(history), history[-1]["greedy"]
        theirs = with_trl(nb, base, seed)
        ratios.append((mine[1] or float("inf")) / (theirs[1] or float("inf")))
        both = "        ".join(f"{spent:6.1f}  {first or float('nan'):6.1f}  {greedy:.3f}" for spent, first, greedy in (mine, theirs))
        print(f"{seed}   {both}       {ratios[-1]:.2f}", flush=True)
    print(f"median of ours / TRL to .95: {statistics.median(ratios):.2f}")


def sampling(nb: dict, repeats: int = 9) -> None:
    model = nb["TinyModel"]()
    model.norm.bias.data.fill_(1.0)
    model.head.weight.data[nb["EOS"]] = -100.0  # </answer> is never drawn: every row writes all its tokens
    try:
        theirs = as_gpt2(nb, model).eval()
    except ImportError:
        theirs = None
        print("\ntransformers is not installed (pip install -e '.[bench]'): its column is left out")
    weights = sum(p.numel() for name, p in model.named_parameters() if p.dim() == 2 and not name.startswith(("token", "place")))
    a, draw = torch.randn(1024, 1024), torch.Generator().manual_seed(0)

    def seconds(function) -> float:
        began = time.process_time()
        function()
        return time.process_time() - began

    print(f"\nSampling {nb['ROOM']} tokens a row, one thread, medians of {repeats} interleaved rounds")
    print("rows   ours, 8 answers a prompt   ours, 1 answer a prompt   transformers generate   matmul peak     share of it, ours")
    for rows in (32, 128, 512):
        prompts = nb["TRAIN"][:rows]
        ways = {
            "group": lambda p=prompts, r=rows: nb["sample"](model, p[: r // 8], 8, draw=draw),
            "single": lambda p=prompts: nb["sample"](model, p, 1, draw=draw),
            "peak": lambda: a @ a,
        }
        if theirs is not None:
            ways["generate"] = lambda p=prompts: theirs.generate(
                p, attention_mask=torch.ones_like(p), do_sample=True, top_k=0, max_new_tokens=nb["ROOM"], min_new_tokens=nb["ROOM"]
            )
        took = {name: [] for name in ways}
        for way in ways.values():
            with torch.no_grad():
                way()
        for _ in range(repeats):
            for name, way in ways.items():
                with torch.no_grad():
                    took[name].append(seconds(way))
        median = {name: statistics.median(t) for name, t in took.items()}
        rate = {name: rows * nb["ROOM"] / median[name] for name in median if name != "peak"}
        peak = 2 * 1024**3 / median["peak"]
        other = f"{rate['generate']:10,.0f} tokens/s" if theirs is not None else "                  -"
        print(
            f"{rows:4}   {rate['group']:10,.0f} tokens/s        {rate['single']:10,.0f} tokens/s       {other}"
            f"    {peak / 1e9:5.1f} GFLOP/s   {rate['group'] * 2 * weights / peak:6.1%}",
            flush=True,
        )


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20, help="how many seeds of the whole recipe (default 20)")
    parser.add_argument("--no-trl", action="store_true", help="leave the comparison with TRL out")
    options = parser.parse_args(argv)
    warnings.filterwarnings("ignore")
    nb = notebook()
    sampling(nb)
    if not options.no_trl:
        against_trl(nb)
    if options.seeds:
        recipe(nb, options.seeds)


if __name__ == "__main__":
    main()
