"""The run of notebook 4, its sums and its verifier, on TRL's GRPOTrainer: on one device, or on several by torchrun."""

import argparse
import os
import random
import re
import string
import sys
from pathlib import Path

from grader.course.source import ROOT, read_notebook
from grader.course.trusted import execute

ASK = "What is {}? Think first, then answer, in this form: <think>your sum, step by step</think><answer>the number</answer>"


def verifier():
    """`math_reward` of notebook 4's answer key: (text, answer) -> {"accuracy": 0 or 1, "format": 0 or 1}."""
    names = {"re": re}
    for cell in read_notebook(ROOT / "solutions/04_train_a_tiny_model.py").of_kind("solution"):
        if cell.name in ("extract_answer", "math_reward"):
            execute(cell.source, names, f"<{cell.name}>")
    return names["math_reward"]


def reward(judge, part):
    """What TRL calls on each process with that process's completions: one part of the judgement, under its name."""

    def earned(completions, answer, **_):
        texts = [c if isinstance(c, str) else c[-1]["content"] for c in completions]  # plain text or chat messages
        return [judge(text, right)[part] for text, right in zip(texts, answer, strict=True)]

    earned.__name__ = part
    return earned


def sums(count, chat, seed):
    """Rows of a prompt, as text or as chat messages, and the answer: sums of four digits, as in the notebook."""
    draw, rows = random.Random(seed), []
    for _ in range(count):
        numbers = [draw.randrange(10) for _ in range(4)]
        ask = ASK.format("+".join(map(str, numbers)))
        rows.append({"prompt": [{"role": "user", "content": ask}] if chat else ask, "answer": str(sum(numbers))})
    return rows


def save_tiny(folder):
    """A random Llama of 4,000 parameters that reads and writes characters, for trying things without a download."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    signs = {sign: i for i, sign in enumerate(["<pad>", "</s>", *string.printable])}
    inner = Tokenizer(models.WordLevel(signs, unk_token="<pad>"))
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.Split("", "isolated"), decoders.Fuse()
    PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="</s>", pad_token="<pad>").save_pretrained(folder)
    torch.manual_seed(0)
    size = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    ids = {"bos_token_id": None, "eos_token_id": 1, "pad_token_id": 0}
    LlamaForCausalLM(LlamaConfig(vocab_size=len(signs), tie_word_embeddings=True, **size, **ids)).save_pretrained(folder)


def options(arguments):
    """Our options and TRL's GRPOConfig: the course's names and defaults first, everything else by TRL's own name."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        allow_abbrev=False,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        epilog="Every other option of TRL's GRPOConfig works under its own name: --learning_rate 1e-5, --use_vllm, --deepspeed FILE.",
    )
    parser.add_argument("--model", default="tiny", help="a name on the Hugging Face hub, a local folder, or tiny: random, no download")
    parser.add_argument("--steps", type=int, default=50, help="batches of answers to learn from")
    parser.add_argument("--prompts", type=int, default=16, help="prompts in a batch, of all processes together")
    parser.add_argument("--group-size", type=int, default=8, help="answers to a prompt")
    parser.add_argument("--micro-batch", type=int, default=8, help="answers that a device takes at once, at most")
    parser.add_argument("--inner-epochs", type=int, default=2, help="updates from a batch")
    parser.add_argument("--beta", type=float, default=0.04, help="weight of the KL to the model it began as")
    parser.add_argument("--epsilon", type=float, default=0.2, help="half the width of the clip range")
    parser.add_argument("--loss-type", default="grpo", help="grpo is the course's 'sequence', dapo 'token', dr_grpo 'constant'")
    parser.add_argument("--out", default="out", help="a folder; a run that was stopped there goes on")
    ours, rest = parser.parse_known_args(arguments)
    processes = int(os.environ.get("WORLD_SIZE", 1))
    for name in ("steps", "prompts", "group_size", "micro_batch", "inner_epochs"):
        if getattr(ours, name) < 1:
            parser.error(f"--{name.replace('_', '-')} is {getattr(ours, name)}; it needs a whole number of at least 1")
    if ours.prompts % processes:
        parser.error(f"--prompts {ours.prompts} cannot be shared evenly by {processes} processes; take a multiple of {processes}")
    try:
        import torch
        from transformers import HfArgumentParser
        from trl import GRPOConfig
    except ImportError as e:
        parser.error(f"{e.name} is not installed; in the course's folder: pip install -c constraints.txt -e '.[bench]'")
    answers = ours.prompts // processes * ours.group_size  # of a process
    micro_batch = max(n for n in range(1, ours.micro_batch + 1) if answers % n == 0)
    gpu = torch.cuda.is_available()
    theirs = HfArgumentParser(GRPOConfig, allow_abbrev=False)
    theirs.set_defaults(
        output_dir=ours.out,
        max_steps=ours.steps * ours.inner_epochs,
        num_generations=ours.group_size,
        per_device_train_batch_size=micro_batch,
        gradient_accumulation_steps=answers // micro_batch,
        num_iterations=ours.inner_epochs,
        beta=ours.beta,
        epsilon=ours.epsilon,
        loss_type=ours.loss_type,
        use_bias_correction_kl=False,  # the course's objective has k3 without the ratio
        reward_weights=[1.0, 0.0],  # paid for right answers; the format is only watched
        max_completion_length=128,
        lr_scheduler_type="constant",
        bf16=gpu and torch.cuda.is_bf16_supported(including_emulation=False),
        use_cpu=not gpu,
        logging_steps=1,
        save_steps=max(1, ours.steps // 10) * ours.inner_epochs,
        save_total_limit=2,
        report_to="none",
    )
    try:
        config, unknown = theirs.parse_args_into_dataclasses(rest, return_remaining_strings=True)
    except ValueError as e:
        parser.error(" ".join(str(e).split()))
    if unknown:
        parser.error(f"neither this script nor TRL's GRPOConfig knows {' '.join(unknown)}")
    return ours, config


def train(arguments=None, judge=None):
    """Trains as the arguments say (a list; by default the command line's) and returns the GRPOTrainer.

    judge: what verifies an answer in the place of `verifier()`'s. Exits with one sentence where it cannot be.
    """
    ours, config = options(arguments)
    from datasets import Dataset
    from transformers import AutoTokenizer
    from transformers.trainer_utils import get_last_checkpoint
    from trl import GRPOTrainer

    judge, model = judge or verifier(), ours.model
    if model == "tiny":
        model = str(Path(ours.out, "tiny"))  # TRL reads the reference from there, too
        with config.main_process_first(local=False):
            if config.process_index == 0:
                save_tiny(model)
    try:
        tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left")
        trainer = GRPOTrainer(
            model=model,
            args=config,
            reward_funcs=[reward(judge, part) for part in ("accuracy", "format")],
            train_dataset=Dataset.from_list(sums(ours.steps * ours.prompts, bool(tokenizer.chat_template), config.seed)),
            processing_class=tokenizer,
        )
    except (OSError, ValueError, ImportError) as e:
        sys.exit(f"--model {ours.model}: {' '.join(str(e).split())}")
    last = get_last_checkpoint(ours.out) if Path(ours.out).is_dir() else None
    if last and trainer.is_world_process_zero():
        print(f"goes on from {last}", flush=True)
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()
    return trainer


if __name__ == "__main__":
    try:
        train()
    except KeyboardInterrupt:
        sys.exit("stopped; the same command goes on from the last checkpoint, if there was one")
