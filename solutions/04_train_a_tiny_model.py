# %% [markdown]
# # 4. Train a tiny model that learns to think
#
# Everything you wrote so far was a formula with a check behind it. Now it meets a model. A transformer of a hundred thousand
# parameters, small enough for one core of a laptop, can do two things with a sum: blurt out an answer, which is mostly
# wrong, or write the running totals down first, which is mostly right. It has a habit of blurting. Nobody will tell it
# to think. It will be paid for right answers, by your reward, your loss and your training step, and in less than ten
# seconds of computing it finds out by itself that thinking pays.
#
# | | |
# |---|---|
# | **Difficulty** | Medium: four short functions and the training step that joins everything |
# | **Time** | About 120 minutes, of which the computer works four |
# | **You should know** | Notebooks 1 to 3; keep your `group_advantages` and `grpo_objective` at hand |
# | **You will write** | `extract_answer`, `math_reward`, `token_log_probs`, `response_mask`, `grpo_step` |
# | **Next** | Your own runs: the last section says what to read |

# %% given setup
import copy
import math
import random
import re
import time

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

SEED = 0  # draws of the hidden tests; a class has its own
BLUE, ORANGE, GREEN, PINK, YELLOW, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"  # told apart by everyone
mpl.rcParams.update({"figure.figsize": (7, 3.2), "axes.prop_cycle": mpl.cycler(color=[BLUE, ORANGE, GREEN, PINK, YELLOW, SKY]), "axes.spines.top": False, "axes.spines.right": False, "figure.constrained_layout.use": True})

# %% [markdown]
# ## Settings
#
# One cell decides what runs and where. `"auto"` takes a CUDA device where there is one and a CPU otherwise. On a CPU
# the same seed gives the same run, number for number, on the same machine and the same version of torch. One thread
# is the default because it is the fastest for a model this small (two threads on a busy machine were up to 70 times
# slower than one).

# %% given settings
settings = {
    "device": "auto",  # "auto", "cpu" or "cuda"
    "preset": "auto",  # a row of the table in the next cell; "auto": laptop on a CPU, gpu on CUDA
    "seed": 0,
    "threads": 1,  # of the CPU
    "experiment_steps": 30,  # RL steps in the experiments after the run
}

# %% given presets
PRESETS = {  # what a row says holds unless `settings` says otherwise
    "laptop": {"width": 64, "layers": 2, "heads": 4, "warmup_steps": 480, "prompts": 16, "answers": 8, "steps": 50},
    "gpu": {"width": 64, "layers": 2, "heads": 4, "warmup_steps": 480, "prompts": 64, "answers": 16, "steps": 50},  # not measured yet
    "gpu_large": {"width": 256, "layers": 4, "heads": 8, "warmup_steps": 1500, "prompts": 128, "answers": 16, "steps": 100},  # not measured yet
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
        preset = "gpu" if device == "cuda" else "laptop"
    if preset not in PRESETS:
        raise ValueError(f"There is no preset {preset!r}: settings['preset'] is 'auto' or one of {', '.join(PRESETS)}.")
    chosen = {**PRESETS[preset], **settings, "device": device, "preset": preset}
    for name, value in chosen.items():
        if name not in ("device", "preset", "seed") and not (isinstance(value, int) and value >= 1):
            raise ValueError(f"settings[{name!r}] is {value!r}; it needs a whole number of at least 1.")
    return chosen


run = configure(settings)
torch.set_num_threads(run["threads"])
print(f"{run['preset']} on {run['device']}, torch {torch.__version__}")

# %% [markdown]
# ## The task and its language
#
# Four digits to add: `7+0+5+9=`. The model may answer at once, or think first, in running totals:
#
# ```
# 7+0+5+9=<answer>23</answer>
# 7+0+5+9=<think>07,12,21</think><answer>21</answer>
# ```
#
# It reads and writes characters; each of the four tags is a single token, and `</answer>` ends the text. That makes 18
# tokens in all. Of the 10,000 possible prompts, about 500 are kept for watching the run and another 500 or so for the final
# verdict; the model never trains on either.

# %% given language
VOCAB = [*"0123456789+=,", "<think>", "</think>", "<answer>", "</answer>", "<pad>"]
ID = {token: i for i, token in enumerate(VOCAB)}
EOS, PAD, THINK = ID["</answer>"], ID["<pad>"], ID["<think>"]
PROMPT, ROOM = 8, 16  # tokens of a prompt; tokens an answer may have at most


def encode(digits):
    """Digits [N, 4] -> prompts [N, 8], such as 7+0+5+9=."""
    prompts = torch.full((len(digits), PROMPT), ID["+"])
    prompts[:, 0::2], prompts[:, -1] = digits, ID["="]
    return prompts


def decode(tokens):
    """Tokens [N, T] -> N texts, without padding."""
    return ["".join(VOCAB[t] for t in row if t != PAD) for row in tokens.tolist()]


def totals(prompts):
    """The right answers [N] of prompts [N, 8], whatever follows them."""
    return prompts[:, 0:PROMPT:2].sum(1)


def all_prompts():
    """All 10,000 prompts in three parts that never meet: to train on, to watch, and for the final verdict."""
    number = torch.arange(10_000)
    prompts = encode(torch.stack([number // 10**k % 10 for k in (3, 2, 1, 0)], 1))
    part = number * 2654435761 % 2**32 // 2**16 % 20  # a hash, so that no part has a pattern
    return prompts[part > 1], prompts[part == 0], prompts[part == 1]


TRAIN, WATCH, VERDICT = all_prompts()
print(len(TRAIN), "prompts to train on,", len(WATCH), "to watch,", len(VERDICT), "for the verdict")

# %% [markdown]
# ## The model
#
# A transformer as you know it: embeddings, two blocks of attention and a small network, a head. Two things are worth a
# look. `Cache` keeps the keys and values of what was read, so that each new token costs one token's work. And
# `response_logits` uses the same cache to read each prompt once for all its answers, which saves a third of the
# training's work: that is a gift that groups bring along.

# %% given model
class Cache:
    """Keys and values of the tokens read so far, for each layer a pair of [N, heads, T, size]."""

    def __init__(self, pairs=None, length=0, in_place=False):
        self.pairs, self.length, self.in_place = pairs or {}, length, in_place

    def add(self, layer, new):
        """Adds what a layer made of new tokens; gives all it has."""
        if self.in_place:  # sampling: there is room
            end = self.length + new[0].shape[2]
            for old, x in zip(self.pairs[layer], new):
                old[:, :, self.length : end] = x
            return [x[:, :, :end] for x in self.pairs[layer]]
        if layer in self.pairs:  # training: gradients want new tensors
            new = [torch.cat(pair, 2) for pair in zip(self.pairs[layer], new)]
        self.pairs[layer] = new
        return new

    def repeat(self, rows, room=0):
        """The cache of the rows with these numbers, with room for more tokens."""
        pairs = {layer: [F.pad(x[rows], (0, 0, 0, room)) if room else x[rows] for x in kv] for layer, kv in self.pairs.items()}
        return Cache(pairs, self.length, in_place=room > 0)


class Block(nn.Module):
    """Attention, then a small network, each added to what comes in: [N, T, width] -> [N, T, width]."""

    def __init__(self, layer, width, heads):
        super().__init__()
        self.layer, self.heads = layer, heads
        self.before_attention, self.before_network = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.mix = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x, cache, visible):
        n, t, width = x.shape
        q, k, v = self.qkv(self.before_attention(x)).view(n, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        k, v = cache.add(self.layer, [k, v])
        seen = F.scaled_dot_product_attention(q, k, v, attn_mask=visible)
        x = x + self.mix(seen.transpose(1, 2).reshape(n, t, width))
        hidden = F.relu(self.up(self.before_network(x)))
        return x + self.down(hidden * hidden)


class TinyModel(nn.Module):
    """A causal transformer: tokens [N, T] -> logits of the next token [N, T, outputs]."""

    def __init__(self, width=64, layers=2, heads=4, seed=0, outputs=len(VOCAB)):
        super().__init__()
        self.token, self.place = nn.Embedding(len(VOCAB), width), nn.Embedding(PROMPT + ROOM, width)
        self.blocks = nn.ModuleList(Block(layer, width, heads) for layer in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, outputs, bias=False)
        draw = torch.Generator().manual_seed(seed)
        for name, p in self.named_parameters():
            if p.dim() == 2:  # each block begins as the identity: mix and down are 0
                std = 0.2 if name.startswith(("token", "place")) else 0.02 if "head" in name else width**-0.5
                nn.init.zeros_(p) if "mix" in name or "down" in name else p.data.normal_(0, std, generator=draw)

    def forward(self, tokens, cache=None):
        cache = Cache() if cache is None else cache
        start, t = cache.length, tokens.shape[1]
        x = self.token(tokens) + self.place.weight[start : start + t]
        visible = None if t == 1 else torch.ones(t, start + t, dtype=torch.bool, device=tokens.device).tril(start)
        for block in self.blocks:
            x = block(x, cache, visible)
        cache.length = start + t
        return self.head(self.norm(x))


def response_logits(model, tokens, prompt_length):
    """Tokens [N, T] -> for each token after the prompt, the logits that chose it: [N, T - prompt_length, V].

    Equal prompts are read once: the last prompt token and all answer tokens but the last continue from there.
    """
    prompts, row = tokens[:, :prompt_length].unique(dim=0, return_inverse=True)
    cache = Cache()
    model(prompts[:, :-1], cache)
    return model(tokens[:, prompt_length - 1 : -1], cache.repeat(row))


print(f"{sum(p.numel() for p in TinyModel().parameters()):,} parameters")

# %% [markdown]
# ## Sampling
#
# At a temperature of 1 the next token is drawn from the model's own distribution, and that is the distribution the ratio
# and the KL of your loss speak of. A temperature of 0 means greedy: always the most likely token. The drawing is a race:
# each token arrives after a random time, exponential with its probability as the rate, and the first to arrive is
# chosen. That is an exact draw, and faster than `torch.multinomial`.

# %% given sampling
@torch.no_grad()
def sample(model, prompts, answers=1, temperature=1.0, draw=None, force=None):
    """Answers to prompts [B, 8]: the whole texts [B x answers, 8 + T]. Answers to one prompt stand together.

    draw: the generator. force: a first token for every answer. After </answer> there is only padding.
    """
    cache = Cache()
    logits = model(prompts, cache)[:, -1]
    rows = torch.arange(len(prompts), device=prompts.device).repeat_interleave(answers)
    cache, logits = cache.repeat(rows, ROOM), logits[rows]  # the prompt was read once for all its answers
    tokens, done = [], torch.zeros_like(rows, dtype=torch.bool)
    for t in range(ROOM):
        if t == 0 and force is not None:
            token = torch.full_like(rows, force)
        elif temperature == 0:
            token = logits.argmax(-1)
        else:
            times = torch.empty_like(logits).exponential_(generator=draw)
            token = (torch.softmax(logits / temperature, -1) / times).argmax(-1)
        token = token.masked_fill(done, PAD)
        tokens.append(token)
        done |= token == EOS
        if t + 1 == ROOM or done.all():
            break
        logits = model(token[:, None], cache)[:, -1]
    return torch.cat([prompts[rows], torch.stack(tokens, 1)], 1)


def solved(tokens):
    """Is the answer right? [N, T] -> [N] bools. Written to judge you: it shares nothing with your reward."""
    wanted = [f"<answer>{total:02d}</answer>" for total in totals(tokens).tolist()]
    texts = decode(tokens[:, PROMPT:])
    return torch.tensor([text.rpartition("</think>")[2] == right for text, right in zip(texts, wanted)])


def evaluate(model, prompts, temperature=0.0, force=None, seed=0):
    """What the model does with prompts it never trained on: accuracy, and the share of answers that think."""
    draw = torch.Generator(prompts.device).manual_seed(seed)
    tokens = sample(model, prompts, temperature=temperature, force=force, draw=draw)
    return {"accuracy": solved(tokens).float().mean().item(), "thinks": (tokens[:, PROMPT] == THINK).float().mean().item()}

# %% [markdown]
# ## Warm-up: two skills and a habit
#
# A language model has read half the internet before anybody gives it a reward. Ours gets a warm-up by supervised learning:
# for most of it, nine of ten samples show how to think, and the rest are hasty answers, off by up to four. The last
# thirty steps turn the ratio around: nearly nine of ten are hasty. So the model knows how to think and is not in the
# habit of it.

# %% given warm_up
def two(numbers):
    """Numbers [...] -> their two digits [..., 2]."""
    return torch.stack([numbers // 10, numbers % 10], -1)


def examples(prompts, think, draw):
    """What the warm-up teaches: answers [N, 14], thought about where think [N] is true, hasty elsewhere."""
    running = prompts[:, 0::2].cumsum(1)[:, 1:]  # [N, 3]; the last is the answer
    guess = (running[:, 2] + torch.randint(-4, 5, (len(prompts),), generator=draw)).clamp(0, 36)
    thought, hasty = (torch.full((len(prompts), 14), PAD) for _ in range(2))
    thought[:, 0], thought[:, [3, 6]], thought[:, 9], thought[:, 10], thought[:, 13] = THINK, ID[","], ID["</think>"], ID["<answer>"], EOS
    thought[:, [1, 2, 4, 5, 7, 8]], thought[:, 11:13] = two(running).flatten(1), two(running[:, 2])
    hasty[:, 0], hasty[:, 1:3], hasty[:, 3] = ID["<answer>"], two(guess), EOS
    return torch.where(think[:, None], thought, hasty)


def warm_up(seed, steps=480, width=64, layers=2, heads=4, device="cpu", batch=32, lr=1.2e-2):
    """A model that can think and does not, from random weights."""
    model = TinyModel(width, layers, heads, seed).to(device)
    draw = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr, betas=(0.9, 0.99), foreach=True)
    for step in range(steps):
        prompts = TRAIN[torch.randint(len(TRAIN), (batch,), generator=draw)]
        think = torch.rand(batch, generator=draw) < (0.9 if step < steps - 30 else 0.12)
        answers = examples(prompts, think, draw)
        tokens = torch.cat([prompts, answers], 1).to(device)
        logits = model(tokens[:, :-1])[:, PROMPT - 1 :]
        loss = F.cross_entropy(logits.flatten(0, 1), answers.flatten().to(device), ignore_index=PAD)
        for group in optimizer.param_groups:  # up over 100 steps, then down to 0
            group["lr"] = lr * min((step + 1) / 100, (steps - step) / max(steps - 100, 1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model


def restore(model, state):
    """Puts a checkpoint (a state_dict) into the model, or says why it does not fit."""
    mine, unlike = model.state_dict(), []
    for name in sorted(mine.keys() | state.keys()):
        sizes = [list(s[name].shape) if name in s else "missing" for s in (mine, state)]
        if sizes[0] != sizes[1]:
            unlike.append(f"{name} is {sizes[0]} in the model and {sizes[1]} in the checkpoint")
    if unlike:
        raise ValueError(f"This checkpoint belongs to a model of another shape: {unlike[0]} ({len(unlike)} such). Build the model with the checkpoint's width, layers and heads.")
    model.load_state_dict(state)
    return model

# %% show before_rl
began = time.process_time()
base = warm_up(run["seed"], run["warmup_steps"], run["width"], run["layers"], run["heads"], run["device"])
print(f"warm-up: {time.process_time() - began:.1f} CPU seconds")
for name, how in (("greedy", {}), ("sampled", {"temperature": 1.0}), ("forced to think", {"force": THINK})):
    told = evaluate(base, VERDICT.to(run["device"]), **how)
    print(f"{name:16} right {told['accuracy']:.3f}   thinks {told['thinks']:.3f}")

# %% [markdown]
# Left alone, the model is right about one time in seven. Made to think by one forced token, it is right nearly always. Everything is there but the
# habit. Be clear about what this means for the rest: reinforcement learning will *elicit* an ability that the warm-up gave. It will not teach
# arithmetic; a model that half knows how to add does not climb.
#
# Here is what it writes, once greedily and four times at a temperature of 1.

# %% show gallery_before
def gallery(model, prompts):
    """Prints what a model writes, greedily and in four samples."""
    for prompt in prompts:
        texts = sample(model, prompt[None], temperature=0.0), sample(model, prompt[None], 4, draw=torch.Generator(prompt.device).manual_seed(int(totals(prompt[None]))))
        greedy, others = (list(zip(decode(t[:, PROMPT:]), solved(t).tolist())) for t in texts)
        print(f"{decode(prompt[None])[0]}  {greedy[0][0]}  {'right' if greedy[0][1] else 'wrong'}")
        for text, right in others:
            print(f"             {text}  {'right' if right else 'wrong'}")


gallery(base, VERDICT[[7, 77, 177]].to(run["device"]))

# %% [markdown]
# ## Exercise: `extract_answer`
#
# Before a rule can pay for an answer it has to find it. Half of all reward bugs live here: a verifier that takes the last
# number anywhere, or the first of two answers, is a verifier that a policy learns to please without being right.
#
# | in | type | meaning |
# |---|---|---|
# | `text` | `str` | what the model wrote |
#
# Returns what stands inside the answer tag as a `str`, or `None`. `"<think>7+5</think><answer> 12 </answer>"` gives `"12"`.
#
# - There is an answer only where the text holds exactly one `<answer>` and exactly one `</answer>`, in this order. No
#   tag, a tag that is never closed, one inside the other, two answers: all `None`. `<ANSWER>` is no such tag.
# - Spaces and line breaks at both ends are stripped. The answer may run over several lines, and it may be empty: then it is `""`.
# - Full-width digits (`０` to `９`, common in Chinese text) become ASCII digits. Everything else stays as it is, other digits, signs and
#   letters too, be it a number or not: judging is the next exercise.
#
# <details><summary>A hint</summary>
#
# `str.count` tells how often a tag occurs and `str.partition` cuts a text in two. `str.translate` replaces single
# characters by a table. Regular expressions work too; mind that a dot does not match a line break unless you say so.
#
# </details>

# %% solution extract_answer
def extract_answer(text):
    """The text inside the one well-formed answer tag, or None."""
    ### BEGIN SOLUTION
    if text.count("<answer>") != 1 or text.count("</answer>") != 1:
        return None
    inside, closed, _ = text.partition("<answer>")[2].partition("</answer>")
    if not closed:  # the closing tag came first
        return None
    return inside.strip().translate({ord("０") + i: str(i) for i in range(10)})
    ### END SOLUTION

# %% check finds_the_answer points=1
# The answer is what stands inside the tag, stripped, and nothing else is.
texts = [
    "<think>7+5</think><answer> 12 </answer>",
    "<answer>3.50</answer> and 99 more",
    "I am sure that it is 12.",
    "<think>the answer could be 4</think>\n<answer>\n12\nor so\n</answer>",
    "<answer>no idea</answer>",
    "<answer>Twelve, and 5 < 7.</answer>",
    "<answer> </answer>",
]
expected = ["12", "3.50", None, "12\nor so", "no idea", "Twelve, and 5 < 7.", ""]
got = [extract_answer(text) for text in texts]
for text, mine, right in zip(texts, got, expected):
    assert mine == right, f"from {text!r} came {mine!r}; expected {right!r}. Which part of the text is the answer, if any?"
### BEGIN HIDDEN TESTS
draw = random.Random(SEED)
for _ in range(40):
    inside = "".join(draw.choice("0123456789 .,+-=abCD<\n") for _ in range(draw.randrange(9)))
    before, after = ("".join(draw.choice("0123456789 \n<>/=") for _ in range(draw.randrange(9))) for _ in range(2))
    assert extract_answer(f"{before}<answer>{inside}</answer>{after}") == inside.strip()
    assert extract_answer(f"{before}{inside}{after}") is None
### END HIDDEN TESTS

# %% check one_answer_only points=1
# Exactly one well-formed answer: unclosed, nested and doubled ones give None.
cases = {
    "<answer>12</answer>": "12",
    "<answer>12": None,
    "12</answer>": None,
    "<ANSWER>12</ANSWER>": None,
    "</answer>12<answer>": None,
    "<answer>11</answer><answer>12</answer>": None,
    "<answer>12</answer><answer>12</answer>": None,
    "<answer><answer>12</answer></answer>": None,
    "<answer>11<answer>12</answer>": None,
    "<answer>12</answer></answer>": None,
    "<answer>12</answer><answer>": None,
    "<think><answer>11</answer></think><answer>12</answer>": None,
}
got = [extract_answer(text) for text in cases]
for (text, right), mine in zip(cases.items(), got):
    assert mine == right, f"from {text!r} came {mine!r}; expected {right!r}. How many opening and closing tags are there, and in which order?"
### BEGIN HIDDEN TESTS
draw = random.Random(SEED + 1)
seen = 0
for k in range(300):
    tags = ["<answer>", "</answer>"] if k % 3 == 0 else [draw.choice(["<answer>", "</answer>"]) for _ in range(draw.randrange(5))]
    number = str(draw.randrange(100))
    text = str(draw.randrange(100)) + "".join(tag + (number if tag == "<answer>" else "<think>") for tag in tags)
    right = number if tags == ["<answer>", "</answer>"] else None
    seen += right is not None
    assert extract_answer(text) == right
assert seen > 90
### END HIDDEN TESTS

# %% check full_width_digits points=1
# Full-width digits become ASCII digits; other characters stay.
texts = [f"<answer>{inside}</answer>" for inside in ("１２", "　０4５0 ", "十二", "１２元", "３４６７８９", "５½", "１２．５Ａ", "١٢")]
expected = ["12", "0450", "十二", "12元", "346789", "5½", "12．5Ａ", "١٢"]
got = [extract_answer(text) for text in texts]
for text, mine, right in zip(texts, got, expected):
    assert mine == right, f"from {text!r} came {mine!r}; expected {right!r}. Which characters are full-width digits?"
### BEGIN HIDDEN TESTS
draw = random.Random(SEED + 2)
full = "０１２３４５６７８９"
for _ in range(40):
    wide = [draw.choice(full + "0123456789.元-½㍍．Ａ－٣५") for _ in range(6)]
    narrow = "".join(str(full.index(c)) if c in full else c for c in wide)
    assert extract_answer(f"x<answer> {''.join(wide)}\n</answer>") == narrow
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise: `math_reward`
#
# Two rules, each paying 0 or 1. They come back separately, so that a run can weigh, plot and distrust them one by one.
#
# | in | type | meaning |
# |---|---|---|
# | `text` | `str` | what the model wrote |
# | `answer` | `str` | the right number, such as `"12"` |
#
# Returns `{"accuracy": 0.0 or 1.0, "format": 0.0 or 1.0}`. `"<answer>012</answer>"` for `"12"` gives accuracy 1 and format 0.
#
# - **accuracy**: there is exactly one well-formed answer, and its number has the same *value* as the given one, not one that is near. 12, 12.0,
#   012 and +12 are equal. A number is an optional sign, digits from 0 to 9, perhaps a decimal point and more digits. Words, units, commas,
#   formulas, fractions, digits of other scripts and nothing at all are no numbers here: `十二`, `12 yuan`, `1,2`, `6+6`, `24/2` and `١٢`
#   earn 0. (What else Python's `float` reads as a number, such as `1.2e1`, is not asked about.) Whether it was thought about, and what else is written, makes no difference.
# - **format**: exactly one `<think>…</think>` and exactly one `<answer>…</answer>`, in this order, neither inside the other, and nothing outside.
#   White space around and between the two parts is no offence. What stands inside the parts, be it nothing or a `<`, and whether the answer
#   is right, makes no difference.
#
# <details><summary>A hint</summary>
#
# For the format, `re.fullmatch` with `re.DOTALL` describes the whole text; it does not by itself say "exactly one", so
# count the tags too. For the value, first make sure that it is a number and only then convert. Never `eval` what a model wrote.
#
# </details>

# %% solution math_reward
def math_reward(text, answer):
    """Pays for a right answer and for the agreed format, each 0.0 or 1.0."""
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

# %% check by_value points=2
# Accuracy compares numbers by value, and only numbers.
def part(reward, name):
    return reward.get(name) if isinstance(reward, dict) else f"{reward!r}, which is no dict"

cases = [
    ("12", 1), ("12.0", 1), ("012", 1), ("+12", 1), (" 12 ", 1), ("１２", 1), ("13", 0), ("-12", 0), ("1.2", 0), ("120", 0), ("112", 0),
    ("12.5", 0), ("12.25", 0), ("12.09", 0), ("12.009", 0), ("12.0000004", 0), ("十二", 0), ("12 yuan", 0), ("$12", 0), ("12%", 0), ("12...", 0),
    ("1,2", 0), ("١٢", 0), ("twelve", 0), ("6+6", 0), ("24/2", 0), ("3 12", 0), ("", 0),
]
texts = [f"<think>7+5</think><answer>{inside}</answer>{'' if k % 2 else ' 99'}" for k, (inside, _) in enumerate(cases)]  # every second one writes on
paid = [part(math_reward(text, "12"), "accuracy") for text in texts]
got = [[k, mine] for k, (mine, (_, right)) in enumerate(zip(paid, cases)) if mine != right]  # where it differs, and what it is
for text, (inside, right), mine in zip(texts, cases, paid):
    assert mine == right, f"the right number is 12; for {text!r} accuracy is {mine}, expected {float(right)}. Is {inside!r} a number, and of which value?"
got = [part(math_reward(f"<answer>{inside}</answer>", "-2.5"), "accuracy") for inside in ("-2.50", "2.5", "-2")]
for inside, right, mine in zip(("-2.50", "2.5", "-2"), (1, 0, 0), got):
    assert mine == right, f"the right number is -2.5; for an answer of {inside} accuracy is {mine}, expected {float(right)}. Are sign and decimals compared?"
### BEGIN HIDDEN TESTS
draw = random.Random(SEED + 3)
for _ in range(30):
    value = draw.randrange(-999, 999)
    spellings = [f"{value}.00", f"{'-' if value < 0 else '+'}0{abs(value)}", f" {value}"]
    others = [str(value + draw.choice([-1, 1, 10])), f"{value}.5", f"{value}1", f"{value}!", "x", f"{value},{value}", f"{value}-0"]
    others += [f"{value}.0{draw.randrange(1, 10)}", f"{value}.00000{draw.randrange(2, 10)}", f"{value}%", f"£{value}", f"{value}.."]
    others += [str(value).translate({ord(str(i)): chr(0x0660 + i) for i in range(10)})]  # Arabic digits
    for right, texts in ((1.0, spellings), (0.0, others)):
        for inside in texts:
            reward = math_reward(f"<think>{value}</think><answer>{inside}</answer>", str(value))
            assert reward["accuracy"] == right
    half = math_reward(f"<answer>{value}.50</answer>", f"{value}.5")
    assert half["accuracy"] == 1.0
### END HIDDEN TESTS

# %% check accuracy_needs_the_answer points=1
# Accuracy comes from the one answer, not from a number that stands elsewhere.
cases = {
    "<answer>12</answer>": 1,
    "<think>7+5</think><answer>12</answer>": 1,
    "7+5=<answer>12</answer>, I think": 1,
    "<think>never closed <answer>12</answer>": 1,
    "12": 0,
    "<think>12</think>": 0,
    "<answer>12": 0,
    "<think>12</think><answer>11</answer>": 0,
    "<answer>11</answer> no, 12": 0,
    "<answer>12</answer><answer>11</answer>": 0,
    "<answer>11</answer><answer>12</answer>": 0,
    "<answer>12</answer><answer>12</answer>": 0,
}
paid = [math_reward(text, "12") for text in cases]
paid = [reward.get("accuracy") if isinstance(reward, dict) else f"{reward!r}, which is no dict" for reward in paid]
got = [[k, mine] for k, (mine, right) in enumerate(zip(paid, cases.values())) if mine != right]  # where it differs, and what it is
for (text, right), mine in zip(cases.items(), paid):
    assert mine == right, f"the right number is 12; for {text!r} accuracy is {mine}, expected {float(right)}. Which number did the model commit to?"
### BEGIN HIDDEN TESTS
draw = random.Random(SEED + 4)
for _ in range(30):
    a, b = draw.sample(range(100), 2)
    for right, text in (
        (1.0, f"<answer>{a}</answer>"),
        (1.0, f"<think>{b}</think> <answer>{a}</answer>{b}"),
        (0.0, f"<think>{a}</think><answer>{b}</answer>{a}"),
        (0.0, f"<answer>{a}</answer><answer>{b}</answer>"),
        (0.0, f"<answer>{b}</answer><answer>{a}</answer>"),
        (0.0, f"{a}</answer>"),
    ):
        assert math_reward(text, str(a))["accuracy"] == right
### END HIDDEN TESTS

# %% check the_format points=1
# Format: one think, one answer, in this order, and nothing outside.
cases = {
    "<think>7+5</think><answer>12</answer>": 1,
    "<think>7+5\n=12</think><answer>12</answer>": 1,
    "<think>7+5</think>\n<answer>99</answer>\n": 1,
    " \n<think>7+5</think> <answer>12</answer>": 1,
    "<think></think><answer>12</answer>": 1,
    "<think>7+5</think><answer></answer>": 1,
    "<think>7+5</think><answer>who knows</answer>": 1,
    "<think>3<5</think><answer>7>5<9</answer>": 1,
    "<answer>12</answer>": 0,
    "<think>7+5</think>": 0,
    "<answer>12</answer><think>7+5</think>": 0,
    "Well. <think>7+5</think><answer>12</answer>": 0,
    "Well,\n<think>7+5</think><answer>12</answer>": 0,
    "<think>7+5</think><answer>12</answer>\nit is": 0,
    "<Think>7+5</Think><Answer>12</Answer>": 0,
    "<think>7+5</think> so <answer>12</answer>": 0,
    "<think>7+5</think><answer>12</answer>!": 0,
    "<think>7</think><think>5</think><answer>12</answer>": 0,
    "<think>7<think>5</think><answer>12</answer>": 0,
    "<think>7</think>5</think><answer>12</answer>": 0,
    "<think>7+5</think><answer>1<answer>2</answer>": 0,
    "<think>7+5</think><answer>1</answer>2</answer>": 0,
    "<think>7+5</think><answer>12</answer><answer>12</answer>": 0,
    "<think>7+5<answer>12</answer></think>": 0,
    "<think><answer>12</think></answer>": 0,
    "<think>7+5</think><answer>12": 0,
}
paid = [math_reward(text, "12") for text in cases]
paid = [reward.get("format") if isinstance(reward, dict) else f"{reward!r}, which is no dict" for reward in paid]
got = [[k, mine] for k, (mine, right) in enumerate(zip(paid, cases.values())) if mine != right]  # where it differs, and what it is
for (text, right), mine in zip(cases.items(), paid):
    assert mine == right, f"for {text!r} format is {mine}, expected {float(right)}. Is every tag there once, in order, with nothing outside?"
### BEGIN HIDDEN TESTS
draw = random.Random(SEED + 5)
seen = 0
for k in range(300):
    pieces = ["<think>", "</think>", "<answer>", "</answer>"]
    if k % 3 == 1:
        draw.shuffle(pieces)
    elif k % 3 == 2:
        pieces.insert(draw.randrange(5), draw.choice(pieces))
    inside = ["", "7\n5", "3<5", "who", str(draw.randrange(30))]
    text = "".join(p + draw.choice(inside if p in ("<think>", "<answer>") else ["", "\n", " "]) for p in pieces)
    text = draw.choice(["", "", "", "", " ", "\n", "x", "x\n"]) + text + draw.choice(["", "", "", "\n", " ", "\nx"])
    right = pieces == ["<think>", "</think>", "<answer>", "</answer>"] and "x" not in text
    seen += right
    reward = math_reward(text, "12")
    assert reward["format"] == float(right)
assert 40 < seen < 240
### END HIDDEN TESTS

# %% [markdown]
# ### The pencil problem
#
# *Three pencils cost 15 yuan. What does one cost?* Four answers; the fourth forgot the agreed format. With both rules
# added up, what will the rewards be, and which advantages does notebook 1 give them?

# %% show pencils
pencils = [
    "<think>15 divided by 3 is 5</think><answer>5</answer>",
    "<think>3 times 5 is 15</think>\n<answer>5.0</answer>",
    "<think>15/3</think><answer>5</answer>",
    "<answer>5</answer>",
]
sums = torch.tensor([sum(math_reward(text, "5").values()) for text in pencils])
print(sums.tolist(), "->", [round(a, 4) for a in ((sums - sums.mean()) / sums.std(unbiased=False)).tolist()])

# %% [markdown]
# The rewards and the advantages are those of notebook 1's first group: the answer that breaks the format speaks loudest, although its
# number is right.
#
# You could add a third rule, "did it divide?", that pays for a `/` or the word *divide* in the think part. It would multiply the ways to earn
# something, and each rule is a thing to please: the tag rule is satisfied by `<think></think>`, the division rule by `<think>/</think>`. A policy finds
# such corners faster than you do. That is why the run below pays for accuracy alone: then nothing pays for thinking but being
# right. A reward for the think tag would stage the discovery.

# %% [markdown]
# ## Exercise: `token_log_probs`
#
# The model gives logits; the loss wants the log-probability of each token that was written.
#
# $$\log \pi(y_t) = \log \operatorname{softmax}(z_t / \tau)_{y_t}$$
#
# In words: divide the logits by the temperature, normalise over the vocabulary, pick the entry of the token.
#
# | in | shape | meaning |
# |---|---|---|
# | `logits` | `[N, T, V]` | for each token, the logits that chose it (`response_logits` has done the shift by one) |
# | `tokens` | `[N, T]`, integers | the tokens |
# | `temperature` | float | the temperature at which they were sampled |
#
# Returns `[N, T]`. Logits of 0 and $\ln 3$, and the second token: $\ln 0.75 = -0.2877$; at a temperature of 2: $-0.4557$.
#
# - Gradients flow to the logits. The logits that come in are not changed.
# - It stays finite for logits of any size: probabilities that underflow must not become $\log 0$.
#
# <details><summary>A hint</summary>
#
# `torch.gather` picks along the last dimension and wants an index with as many dimensions as the logits.
#
# </details>

# %% solution token_log_probs
def token_log_probs(logits, tokens, temperature=1.0):
    """Log-probability of each token: logits [N, T, V], tokens [N, T] -> [N, T]."""
    ### BEGIN SOLUTION
    scaled = logits / temperature
    chosen = scaled.gather(-1, tokens[..., None])[..., 0]
    return chosen - scaled.logsumexp(-1)
    ### END SOLUTION

# %% check log_of_the_chosen points=1
# The log of the probability of the token that was chosen.
logits = torch.tensor([[[0.0, math.log(3)], [2.0, 2.0], [1.0, -1.0], [10000.0, 0.0]], [[5.0, 4.0], [0.0, 0.5], [-2.0, 1.0], [-10000.0, -10001.0]]])
tokens = torch.tensor([[1, 0, 0, 1], [1, 1, 0, 0]])
expected = torch.tensor([[-0.2877, -0.6931, -0.1269, -10000.0], [-1.3133, -0.4741, -3.0486, -0.3133]])
got = token_log_probs(logits.clone(), tokens.clone())
assert torch.is_tensor(got), f"expected a tensor of shape [2, 4], got {type(got).__name__}"
assert got.shape == (2, 4), f"expected one number per token, shape [2, 4], got shape {list(got.shape)}"
near = torch.isclose(got, expected, atol=2e-4)
right, mine = ([[round(x, 4) for x in row] for row in t.tolist()] for t in (expected, got))
assert near[:, :3].all(), f"expected {right}, got {mine}. Normalise over the vocabulary (the last dimension), then pick the token's entry"
assert near.all(), f"for logits as large as 10000 and as small as -10000 expected {[row[3] for row in right]}, got {[row[3] for row in mine]}. What is the exponential of such a number in float32?"
logits, tokens = torch.linspace(-1, 1, len(VOCAB)), torch.arange(len(VOCAB))[None]  # every token once
expected = logits - math.log(sum(math.exp(x) for x in logits.tolist()))
got = token_log_probs(logits.expand(1, len(VOCAB), len(VOCAB)).clone(), tokens.clone())
off = [name for name, same in zip(VOCAB, torch.isclose(got, expected[None], atol=2e-4)[0]) if not same]
assert not off, f"for {off[0]} expected {expected[ID[off[0]]]:.4f}, got {got[0, ID[off[0]]]:.4f}. Every token has a log-probability, <pad> too: leaving some out is the mask's work"
### BEGIN HIDDEN TESTS
draw = torch.Generator().manual_seed(SEED)
for n, t, v in ((3, 4, 5), (4, 4, 4), (1, 1, 2), (1, 18, 18)):
    logits = torch.randn(n, t, v, generator=draw) * 3
    tokens = torch.randperm(v, generator=draw)[None] if v == 18 else torch.randint(v, (n, t), generator=draw)
    mine = token_log_probs(logits.clone(), tokens.clone())
    for i in range(n):
        for j in range(t):
            weights = [math.exp(x) for x in logits[i, j].tolist()]
            assert abs(float(mine[i, j]) - math.log(weights[int(tokens[i, j])] / sum(weights))) < 1e-4
huge = torch.tensor([[[1000.0, -1000.0, 0.0], [-3000.0, -3001.0, -9999.0]]])
mine = token_log_probs(huge.clone(), torch.tensor([[1, 0]]))
assert torch.allclose(mine, torch.tensor([[-2000.0, -math.log(1 + math.exp(-1))]]), atol=1e-3)
### END HIDDEN TESTS

# %% check at_the_sampling_temperature points=1
# Log-probabilities at the temperature of sampling.
logits = torch.tensor([[[0.0, math.log(3), 0.0], [2.0, 1.0, -1.0]]])
tokens = torch.tensor([[1, 2]])
expected = torch.tensor([[[-0.7677, -2.1041]], [[-0.2007, -6.1291]]])
given = [logits.clone(), logits.clone()]
got = [token_log_probs(given[k], tokens.clone(), temperature=temperature) for k, temperature in enumerate((2.0, 0.5))]
for temperature, mine, right in zip((2, 0.5), got, expected):
    assert torch.is_tensor(mine) and mine.shape == (1, 2), "expected a tensor of shape [1, 2]"
    assert torch.allclose(mine, right, atol=2e-4), f"at a temperature of {temperature} expected {[round(x, 4) for x in right[0].tolist()]}, got {[round(x, 4) for x in mine[0].tolist()]}. What does the temperature divide, and before which step?"
got = given  # as it is afterwards
assert all(torch.equal(x, logits) for x in got), f"the logits that came in were changed, to {[[round(x, 4) for x in row] for row in got[0][0].tolist()]}: which line writes into them?"
### BEGIN HIDDEN TESTS
draw = torch.Generator().manual_seed(SEED + 1)
for temperature in (0.5, 1.0, 1.7, 3.0):
    logits = torch.randn(2, 3, 6, generator=draw) * 2
    tokens = torch.randint(6, (2, 3), generator=draw)
    mine = token_log_probs(logits.clone(), tokens.clone(), temperature=temperature)
    for i in range(2):
        for j in range(3):
            weights = [math.exp(x / temperature) for x in logits[i, j].tolist()]
            assert abs(float(mine[i, j]) - math.log(weights[int(tokens[i, j])] / sum(weights))) < 1e-4
### END HIDDEN TESTS

# %% check gradient_to_the_logits points=1
# The gradient raises the chosen token and lowers all others.
logits = torch.tensor([[[0.0, 1.0, 2.0], [1.0, 1.0, 1.0]], [[3.0, 0.0, -1.0], [0.5, 0.0, 0.0]]], requires_grad=True)
tokens = torch.tensor([[2, 0], [1, 2]])
got = token_log_probs(logits, tokens.clone())
assert torch.is_tensor(got) and got.shape == (2, 2), "expected a tensor of shape [2, 2]"
assert got.requires_grad, "no gradient flows from the log-probabilities to the logits: nothing could be learnt from them"
got.sum().backward()
got = logits.grad
expected = torch.tensor([[[-0.0900, -0.2447, 0.3348], [0.6667, -0.3333, -0.3333]], [[-0.9362, 0.9534, -0.0171], [-0.4519, -0.2741, 0.7259]]])
assert torch.allclose(got, expected, atol=2e-4), f"the gradient of the sum is {[[[round(x, 4) for x in v] for v in row] for row in got.tolist()]}; expected 1 minus the probability at the chosen token, minus the probability elsewhere"
### BEGIN HIDDEN TESTS
draw = torch.Generator().manual_seed(SEED + 2)
for temperature in (1.0, 0.7):
    logits = (torch.randn(3, 4, 5, generator=draw) * 2).requires_grad_()
    tokens = torch.randint(5, (3, 4), generator=draw)
    weight = torch.randn(3, 4, generator=draw)
    (token_log_probs(logits, tokens.clone(), temperature=temperature) * weight).sum().backward()
    for i in range(3):
        for j in range(4):
            weights = [math.exp(x / temperature) for x in logits[i, j].tolist()]
            for v in range(5):
                right = weight[i, j].item() * ((v == int(tokens[i, j])) - weights[v] / sum(weights)) / temperature
                assert abs(logits.grad[i, j, v].item() - right) < 1e-4
### END HIDDEN TESTS

# %% [markdown]
# ### What it costs to remember
#
# Two ways to the same numbers. `log_softmax` and then `gather` keeps a second tensor of the logits' size for the backward pass;
# the gathered logit minus `logsumexp` keeps one number per token. With a vocabulary of 18 nobody cares. With one of
# 50,000, guess how much the first way keeps for 4 answers of 32 tokens, beyond the logits themselves.

# %% given memory
def saved_bytes(function, beyond=()):
    """Bytes of different tensors that autograd keeps for backward while function() runs, without those in `beyond`."""
    kept = {}

    def note(x):
        storage = x.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        result = function()
    known = {x.untyped_storage().data_ptr() for x in beyond}
    size = sum(n for address, n in kept.items() if address not in known)
    del result  # held until now, so that no address was used twice
    return size

# %% show memory_of_log_probs
logits = torch.zeros(4, 32, 50_000, requires_grad=True)
tokens = torch.zeros(4, 32, dtype=torch.int64)
ways = {
    "log_softmax, then gather": lambda: torch.log_softmax(logits, -1).gather(-1, tokens[..., None])[..., 0],
    "logit minus logsumexp": lambda: logits.gather(-1, tokens[..., None])[..., 0] - logits.logsumexp(-1),
    "yours": lambda: token_log_probs(logits, tokens),
}
for name, way in ways.items():
    print(f"{name:26} keeps {saved_bytes(way, beyond=(logits,)) / 2**20:8.3f} MiB beyond the logits")

# %% [markdown]
# Before `logsumexp`, a division by the temperature makes one more copy of the logits; real trainers skip it where the temperature is 1.

# %% [markdown]
# ## Temperature, top-k and top-p
#
# Three knobs that every sampler has. Temperature reshapes the distribution; `token_log_probs` knows about it. Top-k keeps
# the k most likely tokens, top-p the fewest that together reach probability p, and both throw the rest away.
#
# **Before you run the cell**: a token has probability .12 under the model. Sampled with top-p, can its true
# probability of being drawn be larger than that? Smaller?

# %% show knobs
p = torch.tensor([0.45, 0.25, 0.12, 0.08, 0.05, 0.03, 0.02])
cold = torch.softmax(p.log() / 0.5, -1)
top_k = torch.where(torch.arange(7) < 3, p, 0) / p[:3].sum()
reaches = p.cumsum(0) - p < 0.8  # the tokens needed to reach .8
top_p = torch.where(reaches, p, 0) / p[reaches].sum()
fig, axes = plt.subplots(1, 4, figsize=(9, 2.4), sharey=True)
for ax, q, title in zip(axes, (p, cold, top_k, top_p), ("temperature 1", "temperature 0.5", "top-k, k = 3", "top-p, p = 0.8")):
    ax.bar(range(7), q, color=BLUE)
    ax.plot(range(7), p, "o", color=ORANGE, ms=4)
    ax.set(title=title, xlabel="token", ylim=(0, 0.8))
axes[0].set_ylabel("probability of being drawn")
plt.show()
print("ratio of the third token, drawn over model:", [round((q[2] / p[2]).item(), 2) for q in (p, cold, top_k, top_p)])

# %% [markdown]
# The bars are what is drawn from, the dots what the model says. Top-k and top-p draw the survivors *more* often than the model says, and
# the others never. Then $\log \pi_{\text{old}}$ from the model is not the log-probability under which the token was drawn: the
# ratio, and the KL, speak of another distribution than the samples come from. So we train on samples at temperature 1 with
# neither, and leave the knobs for the day when the model is used.

# %% [markdown]
# ## Exercise: `response_mask`
#
# Answers have different lengths; a tensor has one. Which tokens did the policy really choose?
#
# | in | shape | meaning |
# |---|---|---|
# | `tokens` | `[N, T]`, integers | the answers alone, without their prompts |
# | `eos_id` | int | the token that ends an answer |
#
# Returns `[N, T]`: 1 (or True) for tokens that belong to the answer, 0 (or False) for those after its end. With an EOS of 9:
# `[4, 9, 0]` gives `[1, 1, 0]`.
#
# - The first EOS belongs to the answer: to stop was a choice too, and a choice can be taught.
# - Nothing after the first EOS counts, whatever stands there: padding, more tokens, another EOS. Some tokenizers pad *with* the EOS.
# - An answer that never ends was cut off: all of its tokens count.
# - Any token may be the EOS, 0 too. The tokens that come in are not changed.
#
# <details><summary>A hint</summary>
#
# How many EOS have there been *before* this token? `cumsum` counts.
#
# </details>

# %% solution response_mask
def response_mask(tokens, eos_id):
    """Which tokens belong to the answer: tokens [N, T] -> [N, T]."""
    ### BEGIN SOLUTION
    ends = (tokens == eos_id).long()
    return ends.cumsum(-1) - ends == 0  # no EOS before this token
    ### END SOLUTION

# %% check first_eos_counts points=1
# The first EOS counts, and nothing after it.
tokens = torch.tensor([[4, 9, 0, 0, 0], [9, 0, 0, 0, 0], [4, 5, 6, 9, 7], [0, 4, 0, 9, 3]])
expected = torch.tensor([[1, 1, 0, 0, 0], [1, 0, 0, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 1, 0]])
given = tokens.clone()
got = response_mask(given, 9)
assert torch.is_tensor(got) and got.shape == (4, 5), "expected a tensor of shape [4, 5], like the tokens"
assert torch.equal(got.double(), expected.double()), f"with an EOS of 9, {tokens.tolist()} has the mask {expected.tolist()}, got {got.long().tolist()}. Does the end itself count? Does what follows?"
got = given  # as they are afterwards
assert torch.equal(got, tokens), f"the tokens that came in were changed, to {got.tolist()}: which line writes into them?"
### BEGIN HIDDEN TESTS
draw = torch.Generator().manual_seed(SEED)
for eos in (0, 3, 50):
    tokens = torch.randint(60, (30, 11), generator=draw)
    tokens[tokens == eos] = 7
    for row in range(30):
        tokens[row, int(torch.randint(11, (1,), generator=draw))] = eos
    given = tokens.clone()
    mine = response_mask(given, eos)
    for row, mask in zip(tokens.tolist(), mine.tolist()):
        end = row.index(eos)
        assert [float(x) for x in mask] == [1.0] * (end + 1) + [0.0] * (10 - end)
    assert torch.equal(given, tokens)
### END HIDDEN TESTS

# %% check answers_that_never_end points=1
# An answer without an end counts whole.
tokens = torch.tensor([[4, 5, 6, 7], [4, 9, 0, 0], [0, 0, 0, 0], [5, 6, 7, 9]])
expected = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 1], [1, 1, 1, 1]])
got = response_mask(tokens.clone(), 9)
assert torch.is_tensor(got) and got.shape == (4, 4), "expected a tensor of shape [4, 4], like the tokens"
assert torch.equal(got.double(), expected.double()), f"with an EOS of 9, {tokens.tolist()} has the mask {expected.tolist()}, got {got.long().tolist()}. Which rows never end?"
### BEGIN HIDDEN TESTS
draw = torch.Generator().manual_seed(SEED + 1)
endless = 0
for _ in range(10):
    tokens = torch.randint(5, (20, 6), generator=draw)
    mine = response_mask(tokens.clone(), 4)
    for row, mask in zip(tokens.tolist(), mine.tolist()):
        endless += 4 not in row
        count = row.index(4) + 1 if 4 in row else 6
        assert [float(x) for x in mask] == [1.0] * count + [0.0] * (6 - count)
assert 10 < endless < 190
### END HIDDEN TESTS

# %% check padding_is_eos points=1
# Where the padding is the EOS itself, only the first one counts.
tokens = torch.tensor([[4, 5, 0, 0, 0], [0, 0, 0, 0, 0], [4, 0, 5, 0, 5], [4, 5, 6, 9, 8]])
expected = torch.tensor([[1, 1, 1, 0, 0], [1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 1, 1]])
got = response_mask(tokens.clone(), 0)
assert torch.is_tensor(got) and got.shape == (4, 5), "expected a tensor of shape [4, 5], like the tokens"
assert torch.equal(got.double(), expected.double()), f"with an EOS of 0, {tokens.tolist()} has the mask {expected.tolist()}, got {got.long().tolist()}. Which EOS ended the answer?"
got = response_mask(torch.zeros(1, 600, dtype=torch.int64), 0)  # a short answer beside a long one
counted = got[0].nonzero().flatten().tolist()
assert counted == [0], f"of 600 tokens, every one an EOS, only the first counts (place 0); got places {counted[:3]} and so on. How far can your count go?"
### BEGIN HIDDEN TESTS
draw = torch.Generator().manual_seed(SEED + 2)
for room in (8, 8, 8, 700):
    lengths = torch.randint(1, 9, (12,), generator=draw)
    tokens = torch.randint(1, 9, (12, room), generator=draw)
    for row, n in zip(tokens, lengths.tolist()):
        row[n - 1 :] = 0
    mine = response_mask(tokens.clone(), 0)
    for mask, n in zip(mine.tolist(), lengths.tolist()):
        assert [float(x) for x in mask] == [1.0] * n + [0.0] * (room - n)
### END HIDDEN TESTS

# %% [markdown]
# ## What you bring along
#
# Four functions from notebooks 1 and 3. Paste yours; if your `grpo_objective` uses functions of its own, such as `masked_mean`
# and `kl_estimates`, paste them into the same cell, above it. Nothing is graded here (grading puts the course's own in their
# place, so an early mistake costs you once), and each is looked at again on arrival.

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
    log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, aggregate="sequence"
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
        loss = token_loss.sum() / (size.sum().clamp_min(1) if aggregate == "token" else mask.numel())
    clipped = ((advantage > 0) & (ratio > 1 + clip_range)) | ((advantage < 0) & (ratio < 1 - clip_range))
    watched = {"policy_loss": -surrogate, "kl": k3, "clip_fraction": clipped}
    return loss, {k: (x.detach() * mask).sum() / mask.sum().clamp_min(1) for k, x in watched.items()}
    ### END SOLUTION

# %% bring gae_advantages
def gae_advantages(rewards, values, gamma=0.99, lam=0.95):
    """Yours from notebook 1: rewards [T], values [T + 1] -> [T]."""
    ### BEGIN SOLUTION
    surprises = rewards + gamma * values[1:] - values[:-1]  # [T]
    advantages = torch.zeros_like(surprises)
    later = 0.0  # the advantage of the step after this one
    for t in reversed(range(len(surprises))):
        later = surprises[t] + gamma * lam * later
        advantages[t] = later
    return advantages
    ### END SOLUTION

# %% bring adapt_beta
def adapt_beta(beta, kl, target, rate=0.1, low=1e-4, high=1.0):
    """Yours from notebook 3: the next beta, larger when kl is above target."""
    ### BEGIN SOLUTION
    error = min(max(kl / target - 1, -1.0), 1.0)
    return min(max(beta * math.exp(rate * error), low), high)
    ### END SOLUTION

# %% show on_arrival
def arrives(name, question, answer, expected):
    """Says whether a function that was brought along does what it did before."""
    try:
        mine = torch.as_tensor(answer(), dtype=torch.float32)
        right = mine.shape == torch.tensor(expected).shape and torch.allclose(mine, torch.tensor(expected), atol=1e-3)
        word = "is right" if right else f"is not right yet: for {question} it gives {np.round(mine.tolist(), 4).tolist()}, expected {expected}"
    except NotImplementedError:
        word = "is not here yet: paste yours into its cell above"
    except Exception as error:
        word = f"stops with {type(error).__name__}: {error}. If it is a missing name, paste that function too"
    print(f"{name:17} {word}")


def small_objective():
    lp = torch.tensor([[-1.0, -2.0, -0.5], [-0.7, -1.1, 0.0]])
    old = torch.tensor([[-1.4, -1.9, -0.5], [-0.7, -0.8, 0.0]])
    ref = torch.tensor([[-1.0, -1.5, -1.0], [-0.2, -1.1, 0.0]])
    loss, metrics = grpo_objective(lp, old, ref, torch.tensor([1.0, -1.0]), torch.tensor([[1, 1, 1], [1, 1, 0]]), beta=0.5)
    return [loss.item(), *(float(metrics[k]) for k in ("policy_loss", "kl", "clip_fraction"))]


arrives("group_advantages", "rewards 2, 2, 2, 1 of one group and 3 of another", lambda: group_advantages(torch.tensor([2.0, 2, 3, 2, 1]), torch.tensor([7, 7, -1, 7, 7])), [0.5774, 0.5774, 0.0, 0.5774, -1.7321])
arrives("grpo_objective", "a small batch (loss, policy_loss, kl, clip_fraction)", small_objective, [-0.0276, -0.261, 0.0808, 0.4])
arrives("gae_advantages", "rewards 0, 0, 1 and values .5, .5, .5, 0", lambda: gae_advantages(torch.tensor([0.0, 0, 1]), torch.tensor([0.5, 0.5, 0.5, 0])), [0.4326, 0.4653, 0.5])
arrives("adapt_beta", "beta .04, kl .2, target .1", lambda: [adapt_beta(0.04, 0.2, 0.1)], [0.04 * math.exp(0.1)])

# %% [markdown]
# ## Exercise: `grpo_step`
#
# Everything meets here. One batch of answers comes in, the policy moves a few times, and the numbers to watch come out.
#
# | in | type | meaning |
# |---|---|---|
# | `policy`, `reference` | models | the one that learns; the one that it must not run away from (frozen) |
# | `optimizer` | `torch.optim` | holds the policy's parameters |
# | `batch["tokens"]` | `[N, T]` | prompts and answers, one text a row |
# | `batch["prompt_length"]` | int | how many tokens of each row are prompt |
# | `batch["mask"]` | `[N, T - prompt_length]` | what `response_mask` gave |
# | `batch["rewards"]`, `batch["group_ids"]` | `[N]` | one per answer |
# | `inner_epochs`, `clip_range`, `beta` | numbers | updates per batch, and the two leashes |
#
# Changes the policy and returns the metrics that `grpo_objective` gave in the **last** inner epoch.
#
# 1. Advantages from the rewards of the whole batch, before anything is split.
# 2. Log-probabilities of the answer tokens by `response_logits(model, tokens, prompt_length)` and your `token_log_probs`: those of the
#    reference and the old ones of the policy *once*, without gradient, before the first update.
# 3. In each inner epoch: the policy's log-probabilities anew, the objective (the default aggregation), then: gradients to zero, backward,
#    the norm of the gradient clipped at 1 (`nn.utils.clip_grad_norm_`), one step of the optimizer.
#
# Whatever stands in `.grad` when the batch comes has no say in it, and the batch is as it was afterwards.
#
# **A question first.** In the first inner epoch the ratio is exactly 1 everywhere. So is anything learnt in it?
# (Notebook 2 knows.) And what do the old log-probabilities do in the second?
#
# If memory is short you may split the answers into micro-batches, as long as the sum of their gradients is the gradient of the
# whole batch: weigh each part by its share of answers.
#
# <details><summary>A hint</summary>
#
# The order decides. Old log-probabilities that are computed again after an update are new ones: the ratio is 1 for ever and nothing is
# ever clipped. Gradients add up until somebody sets them to zero.
#
# </details>

# %% solution grpo_step
def grpo_step(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """One GRPO update on one batch of answers. Returns the metrics of the last inner epoch."""
    # ---- 1. Once per batch: advantages, and the log-probabilities that stay as they are ----
    ### BEGIN SOLUTION
    tokens, start = batch["tokens"], batch["prompt_length"]
    answers = tokens[:, start:]
    advantages = group_advantages(batch["rewards"], batch["group_ids"])
    with torch.no_grad():
        ref = token_log_probs(response_logits(reference, tokens, start), answers)
    old = None
    ### END SOLUTION

    # ---- 2. Each inner epoch: look again, and move ----
    ### BEGIN SOLUTION
    for _ in range(inner_epochs):
        new = token_log_probs(response_logits(policy, tokens, start), answers)
        if old is None:  # nothing has moved yet, so these are the old ones: one pass saved
            old = new.detach()
        loss, metrics = grpo_objective(new, old, ref, advantages, batch["mask"], clip_range, beta)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
    return metrics
    ### END SOLUTION

# %% given tiny_training_ground
def flat(model):
    """All parameters of a model as one vector."""
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def drawn(seed):
    """A number that a seed gives, for a model whose own seed may be seen."""
    return int(torch.randint(10**6, (1,), generator=torch.Generator().manual_seed(seed)))


def tiny_policy(seed):
    """A model so small that a step takes milliseconds, with opinions of its own."""
    model, draw = TinyModel(width=8, layers=1, heads=2), torch.Generator().manual_seed(seed)
    for name, p in model.named_parameters():
        if p.dim() == 2:
            p.data.normal_(0, 1.0 if name.startswith(("token", "place")) else 0.2, generator=draw)
    return model


def tiny_batch(seed, prompt_length=5, room=4):
    """Ten answers to three prompts, mixed up, of different lengths; after their ends stand tokens that must not count."""
    draw = torch.Generator().manual_seed(seed)
    group_ids = torch.tensor([4, -2, 4, 9, -2, 4, 9, 9, 4, -2])
    prompts = {g: torch.randint(10, (prompt_length,), generator=draw) for g in (4, -2, 9)}
    answers = torch.randint(PAD, (10, room), generator=draw)
    lengths = torch.randint(1, room + 1, (10,), generator=draw)
    rewards = torch.tensor([1.0, 0.0, 0.0, 2.0, 1.0, 0.5, 0.0, 1.0, 0.0, 0.0])
    return {
        "tokens": torch.cat([torch.stack([prompts[g] for g in group_ids.tolist()]), answers], 1),
        "prompt_length": prompt_length,
        "mask": torch.arange(room) < lengths[:, None],
        "rewards": rewards,
        "group_ids": group_ids,
    }

# %% scenario tiny_training
def tiny_training(batches, seed=0, lr=0.1, inner_epochs=1, clip_range=0.2, beta=0.2, left_over=None, away=1.0):
    """A few calls of grpo_step on a tiny policy: what each changed in its parameters, and the metrics it gave.

    left_over: a number that stands everywhere in the gradients before the first call.
    away: what the reference's logits are multiplied by; 30 puts it more than 10 nats per token away.
    """
    policy, reference = tiny_policy(seed), tiny_policy(seed + 1).requires_grad_(False)
    reference.head.weight.data *= away
    optimizer, before = torch.optim.SGD(policy.parameters(), lr), flat(reference)
    for p in policy.parameters():
        p.grad = None if left_over is None else torch.full_like(p, left_over)
    told, came = {"changes": [], "metrics": []}, copy.deepcopy(batches)
    for batch in batches:
        start = flat(policy)
        metrics = grpo_step(policy, reference, optimizer, batch, inner_epochs=inner_epochs, clip_range=clip_range, beta=beta)
        told["changes"].append(flat(policy) - start)
        told["metrics"].append({k: float(v) for k, v in metrics.items()} if isinstance(metrics, dict) else {})
    told["reference_moved"] = float((flat(reference) - before).abs().max())
    told["overwritten"] = [k for a, b in zip(batches, came) for k in b if not torch.equal(torch.as_tensor(a[k]), torch.as_tensor(b[k]))]
    return told

# %% check one_update points=2
# One update moves the policy the right way, and by the right amount.
told = tiny_training([tiny_batch(1)])
change, kl = told["changes"][0], told["metrics"][0].get("kl", math.nan)
got = {"change": change, "kl": kl}
assert change.norm() > 0, "the policy did not move at all. Does a gradient reach its parameters, and does the optimizer take its step?"
assert told["reference_moved"] == 0, "the reference moved; only the policy learns"
assert not told["overwritten"], f"changed on the way: batch[{told['overwritten'][0]!r}]. Whoever made the batch may still read it"
assert abs(change.norm() - 0.082) < 2e-4, f"the policy moved by {change.norm():.4f} in all, expected 0.082. Look at the size of the loss: mask, mean, beta, the clipped norm"
assert torch.allclose(change[-144:-141], torch.tensor([-0.00132, 0.00012, 0.00442]), atol=2e-5), f"three parameters of the head moved by {[round(x, 5) for x in change[-144:-141].tolist()]}, expected [-0.00132, 0.00012, 0.00442]. Which way does the loss point, and is every advantage with its own answer?"
assert abs(kl - 0.5414) < 2e-4, f"metrics['kl'] is {kl:.4f}, expected 0.5414. Return what grpo_objective gave, with the reference's log-probabilities in their place"
many = {k: torch.cat([v] * 26) if torch.is_tensor(v) else v for k, v in tiny_batch(1).items()}  # every answer 26 times
told = tiny_training([many])
got = {"change": told["changes"][0], "kl": told["metrics"][0].get("kl", math.nan)}
off = (got["change"] - change).norm()
assert off < 2e-4, f"with 26 copies of every answer, 260 in all, the update should stay what it was; it is off by {off:.4f}. If you split the batch, how much does each part weigh?"
assert abs(got["kl"] - 0.5414) < 2e-4, f"with 26 copies of every answer metrics['kl'] is {got['kl']:.4f}, expected 0.5414 as with one"
### BEGIN HIDDEN TESTS
def by_hand(batch, beta, seed):
    """The first update, token by token, at a learning rate of 1, and the mean k3. Nothing has moved: the ratio is 1, nothing is clipped."""
    policy, reference = tiny_policy(seed), tiny_policy(seed + 1)
    rewards, ids, start = batch["rewards"].tolist(), batch["group_ids"].tolist(), batch["prompt_length"]
    loss, kls = 0.0, []
    for text, keep, reward, mine in zip(batch["tokens"], batch["mask"].tolist(), rewards, ids):
        group = [r for r, g in zip(rewards, ids) if g == mine]
        mean = sum(group) / len(group)
        std = (sum((r - mean) ** 2 for r in group) / len(group)) ** 0.5
        now, ref = (model(text[None])[0].log_softmax(-1) for model in (policy, reference))
        for t in [start + k for k, real in enumerate(keep) if real]:
            d = (ref - now)[t - 1, text[t]].item()
            kls.append(math.exp(d) - 1 - d)
            slope = beta * (1 - math.exp(d)) - (reward - mean) / max(std, 1e-6)  # of the loss, by this log-probability
            loss = loss + slope * now[t - 1, text[t]] / sum(keep) / len(ids)
    gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(policy.parameters()))])
    return -gradient / max(1.0, gradient.norm().item()), sum(kls) / len(kls)


for k, p, room in ((10, 3, 5), (11, 8, 3)):
    batch = tiny_batch(SEED + k, p, room)
    right, kl_by_hand = by_hand(batch, 0.1, drawn(SEED + k))
    told = tiny_training([batch], seed=drawn(SEED + k), lr=0.3, beta=0.1)
    assert (told["changes"][0] - 0.3 * right).norm() < 2e-3 * 0.3 * right.norm()
    assert abs(told["metrics"][0]["kl"] - kl_by_hand) < 1e-3 * kl_by_hand
    assert told["reference_moved"] == 0
    many = {name: torch.cat([x] * 26) if torch.is_tensor(x) else x for name, x in batch.items()}
    assert (tiny_training([many], seed=drawn(SEED + k), lr=0.3, beta=0.1)["changes"][0] - 0.3 * right).norm() < 2e-3 * 0.3 * right.norm()
### END HIDDEN TESTS

# %% check next_batch points=1
# The next batch starts from clean gradients.
told = tiny_training([tiny_batch(1), tiny_batch(2)], left_over=1.0)  # as if somebody had called backward before
got = {"change": torch.stack(told["changes"]), "kl": told["metrics"][1].get("kl", math.nan)}
sizes = [round(change.norm().item(), 4) for change in got["change"]]
assert abs(sizes[0] - 0.082) < 3e-4 and abs(sizes[1] - 0.0691) < 3e-4, f"with two batches the policy moved by {sizes[0]} and by {sizes[1]}, expected 0.082 and 0.0691. What is left in the gradients from before?"
assert abs(got["kl"] - 0.3149) < 2e-4, f"metrics['kl'] of the second batch is {got['kl']:.4f}, expected 0.3149"
### BEGIN HIDDEN TESTS
def by_hand(batch, beta, seed):
    """The first update, token by token, at a learning rate of 1, and the mean k3. Nothing has moved: the ratio is 1, nothing is clipped."""
    policy, reference = tiny_policy(seed), tiny_policy(seed + 1)
    rewards, ids, start = batch["rewards"].tolist(), batch["group_ids"].tolist(), batch["prompt_length"]
    loss, kls = 0.0, []
    for text, keep, reward, mine in zip(batch["tokens"], batch["mask"].tolist(), rewards, ids):
        group = [r for r, g in zip(rewards, ids) if g == mine]
        mean = sum(group) / len(group)
        std = (sum((r - mean) ** 2 for r in group) / len(group)) ** 0.5
        now, ref = (model(text[None])[0].log_softmax(-1) for model in (policy, reference))
        for t in [start + k for k, real in enumerate(keep) if real]:
            d = (ref - now)[t - 1, text[t]].item()
            kls.append(math.exp(d) - 1 - d)
            slope = beta * (1 - math.exp(d)) - (reward - mean) / max(std, 1e-6)  # of the loss, by this log-probability
            loss = loss + slope * now[t - 1, text[t]] / sum(keep) / len(ids)
    gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(policy.parameters()))])
    return -gradient / max(1.0, gradient.norm().item()), sum(kls) / len(kls)


seed = drawn(SEED + 20)
batches = [tiny_batch(SEED + k) for k in (20, 21, 20)]
told = tiny_training(batches, seed=seed, lr=3e-4, beta=0.1, left_over=0.5)  # so slow that the policy stays where it is
assert len(told["changes"]) == len(told["metrics"]) == 3
for batch, change, metrics in zip(batches, told["changes"], told["metrics"]):
    right, kl_by_hand = by_hand(batch, 0.1, seed)
    assert (change / 3e-4 - right).norm() < 0.03 * right.norm()
    assert abs(metrics["kl"] - kl_by_hand) < 5e-3 * kl_by_hand
### END HIDDEN TESTS

# %% check old_stays_old points=1
# Over several inner epochs the old log-probabilities stay the old ones.
told = tiny_training([tiny_batch(1)], inner_epochs=4, lr=1.0, clip_range=0.1, beta=0.05)
once = tiny_training([tiny_batch(1)], beta=0.05)["metrics"][0].get("kl", math.nan)
got = {"change": told["changes"][0], "kl": told["metrics"][0].get("kl", math.nan)}
size = got["change"].norm()
assert abs(size - 0.7021) < 2e-3, f"in four inner epochs with a clip_range of 0.1 the policy moved by {size:.4f}, expected 0.7021. Is there an update in each, what does the ratio compare with after the first, and where is it clipped?"
assert abs(once - 0.5414) < 2e-4, f"metrics['kl'] of a single inner epoch is {once:.4f}, expected 0.5414"
one, three = (tiny_training([tiny_batch(1)], inner_epochs=n, lr=1e-3, away=30.0)["changes"][0] for n in (1, 3))  # steps so small that they are alike
got = {"change": three}
times = three.norm() / one.norm()
assert abs(times - 3) < 0.1, f"with a reference far away three inner epochs move the policy {times:.2f} times as far as one, expected 3 times. Every inner epoch makes its step, however large the KL"
### BEGIN HIDDEN TESTS
def by_loops(batch, inner_epochs, clip_range, beta, lr, seed):
    """The same update, answer by answer and token by token: change of the parameters and the first mean k3."""
    policy, reference = tiny_policy(seed), tiny_policy(seed + 1)
    start, parameters = flat(policy), list(policy.parameters())
    rewards, ids, p = batch["rewards"].tolist(), batch["group_ids"].tolist(), batch["prompt_length"]

    def log_probs(model, i):  # of the answer of text i, all by itself
        logits = model(batch["tokens"][i : i + 1])[0]
        return [(logits[t - 1] - logits[t - 1].logsumexp(0))[batch["tokens"][i, t]] for t in own[i]]

    own = [[p + t for t, m in enumerate(row) if m] for row in batch["mask"].tolist()]
    groups = [[r for r, g in zip(rewards, ids) if g == mine] for mine in ids]
    with torch.no_grad():
        ref, old = ([log_probs(m, i) for i in range(len(own))] for m in (reference, policy))
    seen = []
    for _ in range(inner_epochs):
        loss, kls = 0.0, []
        for i, ts in enumerate(own):
            mean = sum(groups[i]) / len(groups[i])
            std = (sum((r - mean) ** 2 for r in groups[i]) / len(groups[i])) ** 0.5
            advantage = (rewards[i] - mean) / max(std, 1e-6)
            for k, now in enumerate(log_probs(policy, i)):
                ratio = (now - old[i][k]).exp()
                worse = min(ratio * advantage, ratio.clamp(1 - clip_range, 1 + clip_range) * advantage, key=torch.Tensor.item)
                away = (ref[i][k] - now).exp() - 1 - (ref[i][k] - now)
                kls.append(away.item())
                loss = loss - (worse - beta * away) / len(ts) / len(own)
        seen.append(sum(kls) / len(kls))
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        gradients = [torch.zeros_like(q) if g is None else g for g, q in zip(gradients, parameters)]
        norm = sum((g**2).sum() for g in gradients) ** 0.5
        with torch.no_grad():
            for q, g in zip(parameters, gradients):
                q -= lr * g / max(1.0, norm.item())
    return flat(policy) - start, seen[0]


for k, clip_range in ((30, 0.2), (31, 0.1)):
    batch = tiny_batch(SEED + k)
    right, first = by_loops(batch, 3, clip_range, 0.02, 1.0, drawn(SEED + k))
    assert (tiny_training([batch], drawn(SEED + k), 1.0, 3, clip_range, 0.02)["changes"][0] - right).norm() < 2e-3 * right.norm()
    assert abs(tiny_training([batch], drawn(SEED + k), 1.0, 1, clip_range, 0.02)["metrics"][0]["kl"] - first) < 1e-3 * first
    one, two = (tiny_training([batch], drawn(SEED + k), 1e-3, n, clip_range, away=30.0)["changes"][0] for n in (1, 2))
    assert (two - 2 * one).norm() < 0.1 * one.norm()  # a large KL stops nothing
### END HIDDEN TESTS

# %% check dead_groups_feel_the_leash points=1
# Where all rewards are equal, only the KL moves the policy.
equal = tiny_batch(3)
equal["rewards"] = torch.ones(10)
told = tiny_training([equal], beta=1.0)
got = {"change": told["changes"][0], "kl": told["metrics"][0].get("kl", math.nan)}
size = got["change"].norm()
assert size > 1e-6, "nothing moved. The advantages are all 0, but the reference still pulls: does beta reach the objective, and the gradient the KL?"
assert abs(size - 0.0406) < 2e-4, f"the KL moved the policy by {size:.4f}, expected 0.0406. Is beta passed on, and is the reference's own log-probability the one in the KL?"
assert abs(got["kl"] - 0.2073) < 2e-4, f"metrics['kl'] is {got['kl']:.4f}, expected 0.2073"
one_dead = tiny_batch(4)
one_dead["rewards"][one_dead["group_ids"] == 4] = 1.0
told = tiny_training([one_dead], beta=1.0)
got = {"change": told["changes"][0], "kl": told["metrics"][0].get("kl", math.nan)}
size = got["change"].norm()
assert abs(size - 0.0781) < 2e-4, f"where one group of three is dead the policy moved by {size:.4f}, expected 0.0781. Its answers count in N, and feel the KL"
assert abs(got["kl"] - 0.226) < 2e-4, f"where one group of three is dead metrics['kl'] is {got['kl']:.4f}, expected 0.226: the mean over all answers' tokens"
### BEGIN HIDDEN TESTS
def leash_alone(batch, beta, seed):
    """Where all advantages are 0: the first update, token by token, at a learning rate of 1, and the mean k3."""
    policy, reference, loss, kls = tiny_policy(seed), tiny_policy(seed + 1), 0.0, []
    for text, keep in zip(batch["tokens"], batch["mask"].tolist()):
        now, ref = (model(text[None])[0].log_softmax(-1) for model in (policy, reference))
        for t in [batch["prompt_length"] + k for k, real in enumerate(keep) if real]:
            d = (ref - now)[t - 1, text[t]].item()
            kls.append(math.exp(d) - 1 - d)
            loss = loss + beta * (1 - math.exp(d)) * now[t - 1, text[t]] / sum(keep) / len(batch["mask"])
    gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(policy.parameters()))])
    return -gradient / max(1.0, gradient.norm().item()), sum(kls) / len(kls)


for beta in (0.3, 0.05):
    batch = tiny_batch(SEED + 40) | {"rewards": torch.full((10,), 0.5)}
    right, kl_by_hand = leash_alone(batch, beta, drawn(SEED + 40))
    told = tiny_training([batch], seed=drawn(SEED + 40), beta=beta)
    assert (told["changes"][0] - 0.1 * right).norm() < 2e-3 * 0.1 * right.norm()
    assert abs(told["metrics"][0]["kl"] - kl_by_hand) < 1e-3 * kl_by_hand
### END HIDDEN TESTS

# %% check norm_of_one points=1
# A gradient that is too long is cut to a norm of 1, as a whole.
told = tiny_training([tiny_batch(4)], beta=50.0)
got = {"change": told["changes"][0], "kl": told["metrics"][0].get("kl", math.nan)}
size = got["change"].norm()
assert abs(size - 0.1) < 1e-4, f"with a learning rate of .1 and a huge gradient the policy moved by {size:.4f}, expected 0.1. At which norm is the gradient of all parameters together clipped, and when?"
assert torch.allclose(got["change"][-144:-141], torch.tensor([0.00364, -0.0131, -0.00894]), atol=2e-5), f"three parameters of the head moved by {[round(x, 5) for x in got['change'][-144:-141].tolist()]}, expected [0.00364, -0.0131, -0.00894]: the direction of the gradient stays as it is"
assert abs(got["kl"] - 0.226) < 2e-4, f"metrics['kl'] is {got['kl']:.4f}, expected 0.226"
### BEGIN HIDDEN TESTS
def leash_alone(batch, beta, seed):
    """Where all advantages are 0: the first update, token by token, at a learning rate of 1, and the mean k3."""
    policy, reference, loss, kls = tiny_policy(seed), tiny_policy(seed + 1), 0.0, []
    for text, keep in zip(batch["tokens"], batch["mask"].tolist()):
        now, ref = (model(text[None])[0].log_softmax(-1) for model in (policy, reference))
        for t in [batch["prompt_length"] + k for k, real in enumerate(keep) if real]:
            d = (ref - now)[t - 1, text[t]].item()
            kls.append(math.exp(d) - 1 - d)
            loss = loss + beta * (1 - math.exp(d)) * now[t - 1, text[t]] / sum(keep) / len(batch["mask"])
    gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(policy.parameters()))])
    return -gradient / max(1.0, gradient.norm().item()), sum(kls) / len(kls)


for lr in (0.1, 0.02):
    batch = tiny_batch(SEED + 50) | {"rewards": torch.full((10,), 0.5)}
    right, kl_by_hand = leash_alone(batch, 40.0, drawn(SEED + 50))
    told = tiny_training([batch], seed=drawn(SEED + 50), lr=lr, beta=40.0)
    assert abs(told["changes"][0].norm() - lr) < 1e-3 * lr
    assert (told["changes"][0] - lr * right).norm() < 2e-3 * lr
    assert abs(told["metrics"][0]["kl"] - kl_by_hand) < 1e-3 * kl_by_hand
### END HIDDEN TESTS

# %% check last_metrics points=1
# The metrics are those of the last inner epoch.
metrics = tiny_training([tiny_batch(5)], inner_epochs=3, lr=1.0, beta=0.05)["metrics"][0]
assert {"policy_loss", "kl", "clip_fraction"} <= set(metrics), f"metrics has the entries {sorted(metrics)}; expected those of grpo_objective: policy_loss, kl, clip_fraction"
got = [metrics[k] for k in ("policy_loss", "kl", "clip_fraction")]
assert all(abs(a - b) < 1e-3 for a, b in zip(got, [-0.0806, 0.376, 0.6667])), f"after three inner epochs policy_loss, kl and clip_fraction are {[round(x, 4) for x in got]}, expected [-0.0806, 0.376, 0.6667]. Of which inner epoch are these?"
### BEGIN HIDDEN TESTS
def by_loops(batch, inner_epochs, clip_range, beta, lr, seed):
    """The same update, answer by answer and token by token: the mean k3 of each inner epoch."""
    policy, reference = tiny_policy(seed), tiny_policy(seed + 1)
    parameters = list(policy.parameters())
    rewards, ids, p = batch["rewards"].tolist(), batch["group_ids"].tolist(), batch["prompt_length"]

    def log_probs(model, i):  # of the answer of text i, all by itself
        logits = model(batch["tokens"][i : i + 1])[0]
        return [(logits[t - 1] - logits[t - 1].logsumexp(0))[batch["tokens"][i, t]] for t in own[i]]

    own = [[p + t for t, m in enumerate(row) if m] for row in batch["mask"].tolist()]
    groups = [[r for r, g in zip(rewards, ids) if g == mine] for mine in ids]
    with torch.no_grad():
        ref, old = ([log_probs(m, i) for i in range(len(own))] for m in (reference, policy))
    seen = []
    for _ in range(inner_epochs):
        loss, kls = 0.0, []
        for i, ts in enumerate(own):
            mean = sum(groups[i]) / len(groups[i])
            std = (sum((r - mean) ** 2 for r in groups[i]) / len(groups[i])) ** 0.5
            advantage = (rewards[i] - mean) / max(std, 1e-6)
            for k, now in enumerate(log_probs(policy, i)):
                ratio = (now - old[i][k]).exp()
                worse = min(ratio * advantage, ratio.clamp(1 - clip_range, 1 + clip_range) * advantage, key=torch.Tensor.item)
                away = (ref[i][k] - now).exp() - 1 - (ref[i][k] - now)
                kls.append(away.item())
                loss = loss - (worse - beta * away) / len(ts) / len(own)
        seen.append(sum(kls) / len(kls))
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        gradients = [torch.zeros_like(q) if g is None else g for g, q in zip(gradients, parameters)]
        norm = sum((g**2).sum() for g in gradients) ** 0.5
        with torch.no_grad():
            for q, g in zip(parameters, gradients):
                q -= lr * g / max(1.0, norm.item())
    return seen


told_apart = 0
for k in range(60, 70):
    batch, seed = tiny_batch(SEED + k), drawn(SEED + k)
    first, *_, last = by_loops(batch, 3, 0.2, 0.05, 0.5, seed)
    if abs(last - first) > 0.03 * first:  # a batch that does not move the KL says nothing
        metrics = tiny_training([batch], seed, 0.5, 3, 0.2, 0.05)["metrics"][0]
        assert abs(metrics["kl"] - last) < 2e-3 * last
        told_apart += 1
    if told_apart == 2:
        break
assert told_apart == 2
### END HIDDEN TESTS

# %% [markdown]
# ## The run
#
# All parts are here. A step of the run: draw prompts, let the policy answer each several times, decode, pay, and call your `grpo_step`.
# `train` below does that, and keeps a diary. Two things in it deserve a word:
#
# - **Two accuracies.** *Sampled* is what the policy does at temperature 1, in training: smooth. *Greedy* is the single most likely
#   answer on prompts it never trained on: a step, because at some point the most likely first token flips.
# - **An independent judge.** `solved` shares nothing with your `math_reward`. The reward is what the policy is paid; the judge is what you believe.

# %% given diary
try:
    from IPython import get_ipython
    from IPython.display import display

    IN_NOTEBOOK = get_ipython() is not None
except ImportError:
    IN_NOTEBOOK = False


def series(history, key):
    """Steps and values of an entry of the diary, where it was written down."""
    rows = [row for row in history if key in row]
    return [row["step"] for row in rows], [row[key] for row in rows]


def draw_run(axes, history):
    """Ten curves of a run in eight pictures."""
    pictures = [
        ("accuracy", ("greedy", "sampled")), ("reward, mean of the batch", ("reward",)), ("share of answers", ("thinks", "format")), ("share of dead groups", ("dead",)),
        ("KL (nats per token)", ("kl",)), ("share of clipped tokens", ("clip_fraction",)), ("entropy (nats per token)", ("entropy",)), ("length (tokens)", ("length",)),
    ]
    for ax, (title, keys) in zip(axes.flat, pictures):
        ax.clear()
        for key, color, style in zip(keys, (BLUE, ORANGE), ("-", "--")):  # told apart where they coincide
            ax.plot(*series(history, key), style, color=color, label=key)
        ax.set(title=title, xlabel="RL step", ylim=(0, None))
        ax.title.set_fontsize(9)
        if len(keys) > 1:
            ax.legend(fontsize=8, frameon=False)


class Live:
    """A bar of progress in plain text and, in a notebook, a plot that draws itself anew."""

    def __init__(self, title, steps, plot):
        self.title, self.steps, self.text, self.picture = title, steps, None, None
        if plot:
            self.figure, self.axes = plt.subplots(2, 4, figsize=(12, 4.6))
            plt.close(self.figure)  # shown by hand, not a second time by itself
        self.plot = plot

    def show(self, history):
        now, done = history[-1], len(history)
        filled = 24 * done // self.steps
        words = f"{self.title:24} [{'#' * filled}{'.' * (24 - filled)}] {done}/{self.steps}  greedy {now.get('greedy', math.nan):.2f}  sampled {now['sampled']:.2f}  thinks {now['thinks']:.2f}  {sum(r['seconds'] for r in history):.1f} s"
        if not IN_NOTEBOOK:
            if done == self.steps:
                print(words)
            return
        words = {"text/plain": words}
        if self.text is None:
            self.text = display(words, raw=True, display_id=True)
        else:
            self.text.update(words, raw=True)
        if self.plot:
            draw_run(self.axes, history)
            if self.picture is None:
                self.picture = display(self.figure, display_id=True)
            else:
                self.picture.update(self.figure)


def checked(rewards, count):
    """Rewards as a tensor, if there is one finite number per answer."""
    rewards = torch.as_tensor(rewards, dtype=torch.float32)
    if rewards.shape != (count,):
        raise ValueError(f"The reward gave something of shape {list(rewards.shape)} for {count} answers; it must give one number per answer.")
    if not rewards.isfinite().all():
        raise ValueError(f"The reward of answer {int((~rewards.isfinite()).nonzero()[0])} is {rewards[~rewards.isfinite()][0].item()}; a NaN or inf would reach every parameter with the next update.")
    return rewards

# %% show the_loop
def accuracy(texts, answers):
    """What the run pays for: a right answer, and nothing else."""
    return [math_reward(text, answer)["accuracy"] for text, answer in zip(texts, answers)]


def train(policy, title="run", steps=run["experiment_steps"], reward=accuracy, update=grpo_step, tamper=None, lr=5e-4, prompts=run["prompts"], answers=run["answers"], inner_epochs=2, clip_range=0.2, beta=0.04, target_kl=None, plot=False):
    """GRPO on the task; changes the policy and returns the diary, a dict for each step.

    update: the training step. tamper: changes the batch before the update, for experiments. target_kl: beta follows it.
    """
    device = next(policy.parameters()).device
    reference = copy.deepcopy(policy).requires_grad_(False)
    optimizer = torch.optim.AdamW(policy.parameters(), lr, betas=(0.9, 0.95), weight_decay=0.0, foreach=True)
    draw, choose = torch.Generator(device).manual_seed(run["seed"]), torch.Generator().manual_seed(run["seed"])
    watch, history, live = WATCH.to(device), [], Live(title, steps, plot)
    try:
        for step in range(1, steps + 1):
            for group in optimizer.param_groups:  # up over 5 steps, then down to a tenth
                group["lr"] = lr * min(step / 5, 1 - 0.9 * max(0, step - 6) / max(1, steps - 5))
            began = time.process_time()
            questions = TRAIN[torch.randint(len(TRAIN), (prompts,), generator=choose)].to(device)
            tokens = sample(policy, questions, answers, draw=draw)
            written = tokens[:, PROMPT:]
            mask, texts, truths = response_mask(written, EOS), decode(written), [str(t) for t in totals(tokens).tolist()]
            rewards = checked(reward(texts, truths), len(texts)).to(device)
            group_ids = torch.arange(prompts, device=device).repeat_interleave(answers)
            batch = {"tokens": tokens, "prompt_length": PROMPT, "mask": mask, "rewards": rewards, "group_ids": group_ids}
            metrics = update(policy, reference, optimizer, tamper(dict(batch)) if tamper else batch, inner_epochs=inner_epochs, clip_range=clip_range, beta=beta)
            metrics = {name: float(value) for name, value in metrics.items()}
            row = {"step": step, "seconds": time.process_time() - began, "reward": rewards.mean().item(), "beta": beta, "updates": inner_epochs, "answers": answers, **metrics}
            if target_kl:
                beta = adapt_beta(beta, metrics["kl"], target_kl, rate=0.3)
            groups = rewards.view(prompts, answers)
            row["sampled"] = solved(tokens).float().mean().item()
            row["thinks"] = (written[:, 0] == THINK).float().mean().item()
            row["format"] = sum(math_reward(t, a)["format"] for t, a in zip(texts, truths)) / len(texts)
            row["dead"] = (groups == groups[:, :1]).all(1).float().mean().item()
            row["length"] = mask.sum().item() / len(texts)
            row["distinct"] = len(set(texts)) / len(texts)
            if step % 5 == 0 or step in (1, steps):
                row["greedy"] = evaluate(policy, watch)["accuracy"]
                with torch.no_grad():  # what the samples cost in nats is an honest estimate of the entropy
                    log_probs = token_log_probs(response_logits(policy, tokens, PROMPT), written)
                row["entropy"] = -(log_probs * mask).sum().item() / mask.sum().item()
            history.append(row)
            if "greedy" in row:
                live.show(history)
    except KeyboardInterrupt:
        print(f"Stopped by hand after {len(history)} of {steps} steps; the diary up to here is kept.")
    except torch.cuda.OutOfMemoryError:
        raise RuntimeError("The GPU is out of memory. Set settings['preset'] = 'laptop', or halve settings['prompts'], and run again from the settings.") from None
    return history

# %% [markdown]
# **Before you run it**, write down three guesses. After how many steps of 128 answers will thinking have become the habit? Will the KL
# come back down once it has? And when will the clip act most?

# %% show the_run
policy, history = copy.deepcopy(base), []
if run["device"] == "cuda":
    torch.cuda.reset_peak_memory_stats()
history = train(policy, "the run", run["steps"], plot=True)
if not IN_NOTEBOOK:
    draw_run(plt.subplots(2, 4, figsize=(12, 4.6))[1], history)
    plt.show()
if run["device"] == "cuda":
    print(f"peak memory on the GPU: {torch.cuda.max_memory_allocated() / 2**20:.0f} MiB")
for name, model in (("before", base), ("after", policy)):
    greedy, sampled = (evaluate(model, VERDICT.to(run["device"]), temperature=t) for t in (0.0, 1.0))
    print(f"{name:7} greedy: right {greedy['accuracy']:.3f}, thinks {greedy['thinks']:.3f}   sampled: right {sampled['accuracy']:.3f}, thinks {sampled['thinks']:.3f}")

# %% show in_numbers
if history:
    print("step  greedy  sampled  thinks    KL  clipped  dead groups")
    for row in history:
        if "greedy" in row and (row["step"] <= 20 or row["step"] % 10 == 0 or row is history[-1]):
            print(f"{row['step']:4}  {row['greedy']:6.2f}  {row['sampled']:7.2f}  {row['thinks']:6.2f}  {row['kl']:4.2f}  {100 * row['clip_fraction']:5.1f} %  {row['dead']:11.2f}")
    most = max(history, key=lambda row: row["clip_fraction"])
    print(f"Most tokens are clipped at step {most['step']}: {100 * most['clip_fraction']:.1f} %.")

# %% [markdown]
# **What to see.** The sampled curve climbs smoothly. The greedy one stays where it was for ten steps and is near 1 five steps later, when the most likely first token has become
# `<think>`. In 50 steps nearly all answers come to think, and held-out greedy accuracy on prompts that nobody looked at goes from about .13 to nearly 1.
# The KL rises to about .2 nats per token and stays: to think *is* to be far from a reference that does not. Clipping is rare, about one percent of the tokens at
# most, and it acts early, while the policy moves fastest. The dead groups come back at the end, for the best of reasons: all eight answers are right.
#
# Other seeds differ: the benchmark of this course runs twenty that were never used for choosing the settings. You can stop a run with the stop button (or
# Ctrl-C); the curves so far are kept in `history`.

# %% [markdown]
# ## What the curves say
#
# Eight pictures are a lot to read when something is wrong. `read_curves` reads the diary as an experienced colleague would and names the likeliest cause of what
# looks ill. What that cause explains too, it calls an echo: after a wrong sign the KL explodes as well, and you need to mend the sign alone.
#
# **Guess**: can a reward for thinking, right or wrong, be seen in the curves? A reward of 1 for every text that is long? Think before you read on.

# %% show doctor
def read_curves(history):
    """What looks ill in a diary, the likeliest cause first; a list of sentences, empty if nothing looks ill."""
    if len(history) < 5:
        return ["Curves shorter than five steps say nothing yet."]
    if any(not {"kl", "clip_fraction"} <= set(row) for row in history):
        return ["The diary has no KL or no share of clipped tokens. Likeliest: grpo_step returns nothing, or not the metrics that grpo_objective gave."]
    if not all(math.isfinite(value) for row in history for value in row.values()):
        return ["There is a NaN or an infinity. Likeliest: an exp of padding that is masked afterwards, a log of 0, a division by the size of an empty mask."]

    def mean(key, start, end):  # of a curve, over a part of the run between 0 and 1
        values = series(history, key)[1]
        part = values[int(start * len(values)) : max(1, math.ceil(end * len(values)))]
        return sum(part) / len(part)

    def line(key):  # how well a straight line through this curve gives the reward: 1 is exactly
        x = series(history, key)[1]
        return np.corrcoef(x, rewards)[0, 1] ** 2 if max(x) > min(x) and max(rewards) > min(rewards) else 0

    (before, after), (true_before, true_after), (length_before, length_after) = [(mean(key, 0, 0.1), mean(key, 0.8, 1)) for key in ("reward", "sampled", "length")]
    rewards, kls, clipped, entropies = (series(history, key)[1] for key in ("reward", "kl", "clip_fraction", "entropy"))
    best, true_best = (max(mean(key, k / 10, k / 10 + 0.1) for k in range(10)) for key in ("reward", "sampled"))
    size, twice, kl, nats = history[0]["answers"], history[0]["updates"] > 1, mean("kl", 0.8, 1), math.log(len(VOCAB))
    noise = (max(rewards) - min(rewards)) / 2  # a change of less than half of the range may be chance
    judged, climbs = len(history) >= 10, np.corrcoef(range(len(rewards)), rewards)[0, 1] > 0.6 if noise else False
    collapses = judged and noise > 0.1 and best - before > noise / 2 and best - after > noise
    falls = judged and not collapses and noise > 0.025 and before - after > noise
    rises = noise > 0.1 and after - before > noise
    down = collapses or falls
    paid = next((name for key, name in (("length", "length"), ("thinks", "thinking"), ("format", "the format")) if line(key) > 0.9999 > line("sampled")), None)
    parts = judged and not down and (true_after < true_before - 0.3 or rises and (true_after < true_before + 0.1 or true_after < true_best - 0.15))
    dead = not down and (mean("dead", 0, 0.3) > 0.9 or (not rises and mean("dead", 0.8, 1) > 0.9))
    same = dead and min(rewards) < max(rewards) and mean("dead", 0, 1) == 1 and mean("distinct", 0, 0.3) * size < 1.2  # one text for each prompt, or fewer
    sudden = max(kls[:5]) > 1  # before anything else happened
    flat, moved = len(history) >= 15 and not (down or rises or climbs or dead or parts), kl > 0.005
    apart = mean("greedy", 0.8, 1) > max(0.8, true_after + 0.3) and true_after - mean("sampled", 0.5, 0.7) < 0.1 and len(history) >= 15
    table = [  # name, does it show, what shows, likeliest causes, the signs above that explain it
        ("kl", sudden, f"The KL explodes at once, up to {max(kls):.3g} nats per token", "a learning rate that is far too high; log-probs of other tokens", ""),
        ("mask", length_before < 2, f"Only {length_before:.1f} tokens of an answer count", "the mask is wrong", ""),
        ("entropy", not sudden and not 0 <= entropies[0] <= nats, f"The entropy is {entropies[0]:.1f} nats per token before anything is learnt, and {len(VOCAB)} tokens allow 0 to {nats:.1f}", "token_log_probs has lost its sign or its normaliser; logits and tokens are shifted by one; padding counts", ""),
        ("negative", min(kls) < -1e-6, f"The KL is negative ({min(kls):.3f}), and k3 never is", "another estimator, or its two log-probs in the wrong order", ""),
        ("dead", size == 1, "Every group has one answer, and nothing to compare it with: all advantages are 0", "settings or options with answers = 1; take 8", ""),
        ("dead", same, "All answers to a prompt are the same text, so all groups are dead", "sampling at temperature 0", "dead kl"),
        ("dead", dead, "Nearly all groups are dead: the answers to a prompt all earn the same, and nothing is learnt from them", "a reward that nobody reaches (a model too weak?) or that everybody gets; a reward that looks at the prompt alone; groups that are too small", "dead kl"),
        ("falls", collapses, f"The reward rose to {best:.2f} and fell back to {after:.2f}", "a learning rate that is too high; too few prompts per step; too many updates per batch", "kl"),
        ("falls", falls, f"The reward falls, from {before:.2f} to {after:.2f}", "a minus that is missing or doubled, in the loss, the advantages or the log-probs; rewards or log-probs of other answers or tokens", "kl"),
        ("paid", paid and rises, f"The reward goes with {paid} exactly, and with the truth less", f"the verifier pays for {paid}, right or wrong", "kl"),
        ("parts", parts, f"Reward and truth go apart: the reward goes from {before:.2f} to {after:.2f}, the truth from {true_before:.2f} to {true_after:.2f} (at best {true_best:.2f})", "the verifier pays for something else than being right; texts that go on after their end. Read samples", "kl paid"),
        ("still", flat and max(kls) < 1e-6, "The policy does not move at all: the KL stays at 0", "no gradient reaches its parameters, or the optimizer takes no step after backward, or its learning rate is 0", ""),
        ("still", flat and max(kls) >= 1e-6 and not moved and kls[0] < 1e-6 * max(kls), f"The policy barely moves (a KL of {kl:.4f}), and its first update did nothing", "the old log-probs are not detached, so that the ratio has no gradient and only the KL has one", ""),
        ("still", flat and max(kls) >= 1e-6 and not moved, f"The policy barely moves: the KL is {kl:.4f}", "beta is too large, or the learning rate too small", "still"),
        ("lost", flat and moved and true_after < min(0.5, true_before + 0.1), f"The policy moves (a KL of {kl:.2f}), but not towards the reward, which stays at {after:.2f}", "a model too weak to be elicited: is it right more often with `force=THINK`? If it is: rewards, advantages or log-probs of other answers or tokens; samples at another temperature", "kl"),
        ("apart", apart, f"Greedy answers are right ({mean('greedy', 0.8, 1):.2f}), samples stay behind ({true_after:.2f})", "samples drawn at a temperature above 1; a large beta; advantages that are mostly noise", "kl falls parts paid"),
        ("kl", max(kls) > 1, f"The KL explodes, up to {max(kls):.3g} nats per token", "padding, the prompt or too few tokens in the mask; a learning rate that is too high; a wrong sign; a beta that is too small", "kl falls parts paid lost"),
        ("near", rises and not moved, f"The policy learns, and yet the KL stays at {kl:.4f}", "it is measured to the old policy, or the reference is no copy and learns too", ""),
        ("first", twice and moved and kls[0] == 0, "After the first step the KL is still exactly 0, although a step has more than one update", "there is only one, or the metrics are not those of the last", ""),
        ("never", twice and moved and kls[0] != 0 and len(history) >= 15 and not any(clipped), "Nothing is ever clipped", "the old log-probs are computed again after an update, so that the ratio is always 1; the clip range is too wide to act; no advantage is negative", "kl"),
        ("clip", judged and sum(clipped) > 0.05 * len(clipped), f"Many tokens are clipped: {100 * max(clipped):.0f} percent in one step", "a clip range too narrow for so many updates per batch; a learning rate that is too high; old log-probs that are not the old policy's", "kl falls"),
        ("same", mean("distinct", 0.8, 1) < 0.5 / size and size > 1, f"Different prompts get the same answer (the entropy is {entropies[-1]:.2f})", "a reward that does not look at the prompt; a learning rate that is too high; a beta of 0", "kl falls parts paid dead"),
        ("short", not falls and after >= before and length_after < 0.93 * length_before, f"Answers get shorter, from {length_before:.1f} to {length_after:.1f} tokens", "short answers are paid better, by a charge for length or because guessing is enough", "kl falls parts paid lost"),
        ("long", length_after > 0.9 * ROOM, f"Answers fill the room they have ({length_after:.1f} of {ROOM} tokens)", "the end of an answer is not in the mask, so nobody learns to stop; a reward that pays for length", "kl falls paid"),
    ]
    told, said, echoes = set(), [], []
    for name, shows, sign, causes, explained_by in table:
        if shows and name not in told:
            (echoes if told & set(explained_by.split()) else said).append((sign, causes))
            told.add(name)
    return [f"{sign}. Likeliest: {causes}." for sign, causes in said] + [f"An echo, most likely: {sign[0].lower() + sign[1:]}." for sign, _ in echoes]


print("\n".join(read_curves(history)) or "Nothing in these curves looks ill.")

# %% [markdown]
# If your run went as described above, it finds nothing; otherwise begin with its first sentence. A reward that is one of the curves to the last digit (the thoughts, the length) gives itself away. One for
# long texts does not: while thoughts are what makes texts long, and right, reward and truth rise together. Nor do these show in curves: a KL with the wrong sign at a small beta, a forgotten
# `zero_grad`, a gradient whose norm is not clipped, rewards used without a baseline. And one picture has two causes that no curve tells apart: a
# policy that moves and does not climb, because its **model is too weak** (the commonest cause in practice: there is nothing to elicit) or because its rewards belong to other answers. Force it to
# think, as the warm-up's cell did: if that does not help, no reward will.

# %% show gallery_after
gallery(policy, VERDICT[[7, 77, 177]].to(run["device"]))

# %% [markdown]
# The same prompts as before. The reward, the rollout, the advantages, the loss and the update that made this happen are yours. The model, its sampler and its
# warm-up were given, and so was the ability: what you trained is the habit of using it.

# %% [markdown]
# # Experiments
#
# From here on every experiment starts from the same warmed-up model and takes seconds. Each has a question first: answer it before you run the cell. The runs
# are short, on one seed, so trust large differences only; where a table shows four seeds, it was recorded beforehand.
#
# The first two sections are part of the course. **All others are optional**: run the cells, and read where you are curious.

# %% show usual
TITLES = {"greedy": "greedy accuracy", "sampled": "sampled accuracy", "thinks": "share that thinks", "kl": "KL (nats per token)", "clip_fraction": "share of clipped tokens", "dead": "share of dead groups", "length": "tokens per answer"}


def compare(runs, keys, titles={}, logs=()):
    """The same entries of several diaries, side by side."""
    fig, axes = plt.subplots(1, len(keys), figsize=(3.4 * len(keys), 2.8), squeeze=False)
    for ax, key in zip(axes[0], keys):
        for (name, diary), style in zip(runs.items(), ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)))):  # told apart where they coincide
            ax.plot(*series(diary, key), linestyle=style, label=name)
        ax.set(xlabel="RL step", title=(TITLES | titles).get(key, key), yscale="log" if key in logs else "linear")
        if key in ("greedy", "sampled", "thinks", "dead"):
            ax.set_ylim(-0.03, 1.03)
    fig.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=len(runs), fontsize=8, frameon=False)
    plt.show()


def last(history, key):
    """An entry at the end of a run: its mean over what was written down in the last five steps."""
    values = [row[key] for row in history[-5:] if key in row]
    return sum(values) / len(values)


def end(runs):
    """Prints where runs ended."""
    for name, diary in runs.items():
        print(f"{name:24} right: greedy {last(diary, 'greedy'):.2f}, sampled {last(diary, 'sampled'):.2f}   thinks {last(diary, 'thinks'):.2f}   KL {last(diary, 'kl'):.2f}")


def recorded(what, rows):
    """Prints what was recorded beforehand on four seeds."""
    print(f"\nrecorded, {what:32}  seed 0     1     2     3")
    for name, values in rows.items():
        print(f"{name:44}" + "".join(f"{v:6.2f}" for v in values))


usual = train(copy.deepcopy(base), "the usual settings")
tokens = sample(policy, TRAIN[: run["prompts"]].to(run["device"]), run["answers"], draw=torch.Generator(run["device"]).manual_seed(0))  # a batch to measure on

# %% [markdown]
# ## What "group relative" is for
#
# So far every reward was 0 or 1. The scores of a reward model have a *level* per prompt: whatever you answer to a pleasant question gets more than whatever you answer to an awkward one. We
# bring that about in one line: every reward gets 3 times the prompt's first digit on top, standardised. Which answer to a prompt is the better one stays as it was.
#
# Then three ways to normalise: in the answer's own group; over the whole batch, as one group; and in groups that are shifted by half a group, so that every answer is
# compared with half of another prompt's answers.
#
# **Guess**: which of the three will notice the levels? Will it move less, or move elsewhere?

# %% show levels
def with_levels(batch):
    return batch | {"rewards": batch["rewards"] + 3 * (batch["tokens"][:, 0].float() - 4.5) / 2.87}  # a digit is its own token


def whole_batch(batch):
    return batch | {"group_ids": torch.zeros_like(batch["group_ids"])}


def wrong_groups(batch):
    return batch | {"group_ids": batch["group_ids"].roll(run["answers"] // 2)}


levels = {
    "own groups": train(copy.deepcopy(base), "own groups", tamper=with_levels),
    "whole batch": train(copy.deepcopy(base), "whole batch", tamper=lambda batch: whole_batch(with_levels(batch))),
    "wrong groups": train(copy.deepcopy(base), "wrong groups", tamper=lambda batch: wrong_groups(with_levels(batch))),
}
compare({"no levels": usual} | levels, ("greedy", "sampled", "kl"))
end({"no levels": usual} | levels)
recorded("right among the last samples", {"own groups": (0.83, 0.77, 0.92, 0.83), "whole batch": (0.59, 0.18, 0.66, 0.59), "wrong groups": (0.74, 0.47, 0.83, 0.80)})

# %% [markdown]
# Own groups do not notice: the level is the same for all answers to a prompt, so it leaves with the group's mean, and the run is the run without levels. The whole batch ends far below, and its KL
# is not much smaller: it moves, and part of the way leads nowhere. A baseline for all is no bias, since a constant leaves the expected gradient right; but now most of an "advantage" says which
# prompt was drawn, and one batch does not average that away. Wrong groups lie between, for a reason: half of each group is right.
#
# Without levels the whole batch does as well as groups do (a later section has the run), though here, too, some prompts are harder than others. It is levels and scales that break it, not difficulty. And
# note what no curve of the shifted groups says: that they are wrong. **A unit test says it at once.**

# %% [markdown]
# ## A verifier that can be fooled, and what the KL is for
#
# Somebody means well: an answer that is off by a little should earn something too, and long answers are expensive. So the new reward pays 1 for
# an answer within 4 of the truth and takes .02 for every token. We start from the policy you trained, which thinks and is right, and it is its own
# reference: at first the KL is 0.
#
# **Guess**: what happens to the reward, and to the truth, at a beta of .04? And at a beta of 1?

# %% show hacked
def near(text, answer):
    """Is there an answer within 4 of the truth?"""
    inside = extract_answer(text)
    return float(inside is not None and inside.isdecimal() and abs(int(inside) - int(answer)) <= 4)


def lenient(texts, answers):
    """Pays for being near, charges for length. Somebody meant well."""
    return [near(text, answer) - 0.02 * len(re.findall(r"<[^>]*>|.", text)) for text, answer in zip(texts, answers)]


fooled, held = copy.deepcopy(policy), copy.deepcopy(policy)
long = 2 * run["experiment_steps"]
hacked = train(fooled, "lenient, beta .04", long, reward=lenient, lr=1e-3)
held = {"beta .04": hacked, "beta 1": train(held, "lenient, beta 1", long, reward=lenient, lr=1e-3, beta=1.0)}
compare(held, ("reward", "sampled", "thinks", "kl"), {"reward": "reward, as paid", "sampled": "truth, by an independent judge"})
for name, diary in held.items():
    print(f"{name}: reward {diary[0]['reward']:.2f} -> {last(diary, 'reward'):.2f}, truth {diary[0]['sampled']:.2f} -> {last(diary, 'sampled'):.2f}, thinks {last(diary, 'thinks'):.2f}")
gallery(fooled, VERDICT[[7]].to(run["device"]))
recorded("truth at the end, 60 steps", {"beta .04": (0.10, 0.22, 0.17, 0.12), "beta 1": (0.80, 0.79, 0.85, 0.98), "beta 3": (0.96, 0.83, 0.95, 0.97)})

# %% [markdown]
# At .04 the reward goes up by about .1 and the truth falls to about where the warm-up left it; thinking disappears. A hasty guess lands within 4 of the truth nearly always and is ten tokens shorter:
# the policy found what you pay for. This is **reward hacking**, and nothing in the curve of the reward gives it away. At a beta of 1 the way from the reference costs more than the cheat earns, and the
# policy stays mostly right. That is what the KL is for: not to make learning better, but to bound what a wrong reward can do. All four recorded seeds say the same.
#
# So which beta? Texts start between .01 and .1, and go on by factors of 3 until the policy moves and does not run away. It depends on how far from the reference the wanted behaviour is and
# on how far you trust the reward: with a verifier that cannot be fooled, 0 does as well (a later section), and here .04 was far too little. PPO's beta does not carry over.
#
# What to keep of every run, so that you can see this afterwards: the verifier's version, the reward's components one by one, an independent evaluation, and failed
# samples as text.

# %% [markdown]
# ## Verifiable rewards as a craft (optional)
#
# Reinforcement learning with verifiable rewards (RLVR) moves the work from the reward model to the verifier. DeepSeek-R1-Zero's signals were two rules, accuracy and format, and no learned model of
# the reward, just because that would be hacked. But rules are hacked too, as you saw. Checks that cost nothing come before the run. First: **counterexamples**, right answers in odd
# forms and wrong ones in pretty forms.
#
# **Guess**: which of these eight does your `math_reward` pay, and which does `near` pay?

# %% show counterexamples
cases = [("<answer>12</answer>", "12"), ("<answer>012</answer>", "12"), ("<answer>12.0</answer>", "12"), ("<answer>１２</answer>", "12"), ("12", "12"), ("<answer>7</answer><answer>12</answer>", "12"), ("<think>1</think><answer>15</answer>", "12"), ("<answer>1.67</answer>", "1.6667")]
for text, truth in cases:
    print(f"math_reward {math_reward(text, truth)['accuracy']:.0f}   near {near(text, truth if truth.isdecimal() else '2'):.0f}   truth {truth:6}  {text}")

# %% [markdown]
# Yours pays the first four and refuses what has no tag, hedges or is wrong. The last is a decision, not a bug: a rounded 1.67 for 5/3 is right to whoever rounds. A tolerance pays it, and
# pays near misses with it; say in the question how many digits you want, and compare exactly. `near` fails both ways: it refuses 12.0 and pays 15.
#
# Second: **which answers will a reward breed?** Take groups of four thoughts and four hasty answers of the policy you trained, pay them in different ways, and look at the mean advantage of the thoughts. No
# training is needed.
#
# **Guess**: is it the tolerance or the charge for length that bred the cheat? (This is an *ablation*: leave out one component and look.)

# %% show components
questions = WATCH[:200].to(run["device"])
ids = torch.arange(len(questions)).repeat_interleave(4).repeat(2)


def forced(model):
    """Four thoughts and four hasty answers to each question, and what they could be paid for."""
    kinds = [sample(model, questions, 4, draw=torch.Generator(run["device"]).manual_seed(0), force=first)[:, PROMPT:] for first in (THINK, ID["<answer>"])]
    written = torch.cat([F.pad(t, (0, ROOM - t.shape[1]), value=PAD) for t in kinds]).cpu()
    texts, truths = decode(written), [str(t) for t in totals(questions).tolist() for _ in range(4)] * 2
    length = response_mask(written, EOS).sum(1).float()
    return torch.tensor(accuracy(texts, truths)), torch.tensor([near(t, a) for t, a in zip(texts, truths)]), -0.02 * length


right, within, brief = forced(policy)
print("component       mean    std   correlation with length")
for name, x in (("right", right), ("within 4", within), ("-.02 x tokens", brief)):
    print(f"{name:14} {x.mean():5.2f}  {x.std():5.2f}   {np.corrcoef(x, -brief)[0, 1]:5.2f}")
ways = {
    "right": lambda right, within, brief: group_advantages(right, ids),
    "within 4": lambda right, within, brief: group_advantages(within, ids),
    "right, charged for length": lambda right, within, brief: group_advantages(right + brief, ids),
    "within 4, charged for length": lambda right, within, brief: group_advantages(within + brief, ids),
    "each normalised, brevity x .1": lambda right, within, brief: group_advantages(right, ids) + 0.1 * group_advantages(brief, ids),
    "each normalised, brevity x 1": lambda right, within, brief: group_advantages(right, ids) + group_advantages(brief, ids),
}
print("\nmean advantage of a thought      trained   after the cheat")
for name, way in ways.items():
    print(f"{name:30}  {way(*forced(policy))[: len(ids) // 2].mean():7.2f}   {way(*forced(fooled))[: len(ids) // 2].mean():7.2f}")
print("\nadvantages of four wrong answers that earn .1, 0, 0, 0:", [round(a, 2) for a in group_advantages(torch.tensor([0.1, 0, 0, 0]), torch.zeros(4, dtype=torch.int64)).tolist()])

# %% [markdown]
# Neither alone: only together do they leave a thought no advantage, and as soon as guesses land a little nearer (the second column), it is worth less than a guess. The slope grows steeper on the way down. The last two rows give each component an advantage of its own and add those with weights (as some
# do, so that forgotten scales do no harm): at a weight of 1 brevity, which is always within reach, wins against being right. And **advantage is not ability**: in a group of four wrong answers the least
# bad has an advantage of 1.73, as large as the only right one among four would have. Means of advantages are 0 before and after training; whether a policy can do
# anything is seen outside the groups.
#
# | check | how | here |
# |---|---|---|
# | independent questions, data kept apart | evaluate on prompts that nobody trained on or tuned by | `TRAIN`, `WATCH`, `VERDICT` |
# | evaluation outside the groups | accuracy by a judge that is not the reward | `solved`, greedy on `WATCH` |
# | spot checks by a person | read twenty paid and twenty unpaid answers | `gallery`; not enough here: read more |
# | counterexamples | right in odd forms, wrong in pretty forms | the cell above, your checks of `math_reward` |
# | each component by itself | mean, std, and how it goes with length | the first table |
# | ablation of a component | leave it out: which answers win now? | the second table |
# | hidden tests | what judges must not stand where the policy can read it | this course's own grading; not shown here |
#
# | how a verifier fails | what it means | here |
# |---|---|---|
# | too narrow | it refuses right forms, or pleases form: who writes as it likes earns more | `near` refuses 12.0 |
# | too wide | it pays wrong answers | `near` pays 15 |
# | terms out of balance | one term decides more than the one you mean | brevity x 1 |
# | speculation in the group | an answer wins because its siblings are worse or longer | one guess among thoughts |
# | leaked | the policy reaches what judges it: the answer in the prompt, a test file it can edit, a judge it can talk to | not shown here: our policy sees only the sum |

# %% [markdown]
# ## What the clip is for (optional)
#
# One batch, used for eight inner epochs at four times the learning rate: by the eighth the samples are old. **Guess**: a clip range of .2 or none (a billion), which run is better in the end? How
# far are the ratios from 1?

# %% show clipped
def overhear(act):
    """What each update inside act() gave to grpo_objective: its ratios, its loss, and beta x KL, which is the loss without advantages."""
    global grpo_objective
    yours, heard = grpo_objective, []

    def listens(log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range=0.2, beta=0.04, *more, **named):
        loss, metrics = yours(log_probs_new, log_probs_old, ref_log_probs, advantages, mask, clip_range, beta, *more, **named)
        pull, _ = yours(log_probs_new.detach(), log_probs_old, ref_log_probs, 0 * advantages, mask, clip_range, beta, *more, **named)
        heard.append({"loss": loss.item(), "pull": pull.item(), "ratios": (log_probs_new.detach() - log_probs_old).exp()[mask.bool()].cpu()})
        return loss, metrics

    grpo_objective = listens
    try:
        return act(), heard
    finally:
        grpo_objective = yours


clips = {name: overhear(lambda: train(copy.deepcopy(base), f"8 epochs, {name}", lr=2e-3, inner_epochs=8, clip_range=e)) for name, e in (("clip .2", 0.2), ("no clip", 1e9))}
at = min(5, run["experiment_steps"])  # the step whose ratios are drawn
fig, axes = plt.subplots(1, 3, figsize=(10, 2.8))
for (name, (diary, heard)), style in zip(clips.items(), ("-", "--")):
    axes[0].plot(*series(diary, "sampled"), style, label=name)
    axes[1].plot(*series(diary, "clip_fraction"), style)
    axes[2].hist(heard[8 * at - 1]["ratios"].log10().clamp(-2, 2), torch.linspace(-2, 2, 60), histtype="step", linestyle=style, log=True)
axes[0].set(xlabel="RL step", title="sampled accuracy", ylim=(0, 1))
axes[1].set(xlabel="RL step", title="share of clipped tokens")
axes[2].set(xlabel="log10 of the ratio; 0 is no change", ylabel="tokens", title=f"step {at}, eighth update")
axes[0].legend(fontsize=8, frameon=False)
plt.show()
for name, (diary, heard) in clips.items():
    ratios = heard[8 * at - 1]["ratios"]
    print(f"{name}: sampled {last(diary, 'sampled'):.2f}, most clipped {100 * max(series(diary, 'clip_fraction')[1]):.0f} %; step {at}, eighth update: {100 * ((ratios < 0.8) | (ratios > 1.2)).float().mean():.0f} % of the ratios outside .8 to 1.2, the largest {ratios.max():.1f}")
recorded("right among the last samples", {"clip .2": (0.85, 0.67, 0.84, 0.88), "no clip": (0.43, 0.29, 0.55, 0.80)})

# %% [markdown]
# With the clip the run learns; without it, it goes back and forth below. On the recorded seeds the
# same, by more or less.
#
# The histogram says more than the clip fraction, which counts only the tokens whose gradient the clip removed: ratios leave the range with the clip as well, but go less far. Clipping is a brake, not a wall: it stops pushing a token
# further, and cannot pull it back. At the usual rate and two epochs it hardly acts, and no clip does as well.

# %% [markdown]
# ## The loss starts at 0, and then it rises while the reward rises (optional)
#
# You know from notebook 2 why it starts at 0. We use each batch once (at twice the learning rate) and draw what the loss is made of. **Guess**: will it fall?

# %% show loss
once, heard = overhear(lambda: train(copy.deepcopy(base), "one update a batch", lr=1e-3, inner_epochs=1))
steps = range(1, len(heard) + 1)
fig, axes = plt.subplots(1, 2, figsize=(8, 2.8))
axes[0].plot(*series(once, "reward"))
axes[0].set(xlabel="RL step", title="reward, mean of the batch", ylim=(0, 1))
axes[1].plot(steps, [h["loss"] for h in heard], label="loss")
axes[1].plot(steps, [h["pull"] for h in heard], "--", label="beta x KL")
axes[1].plot(steps, [h["loss"] - h["pull"] for h in heard], ":", label="policy term")
axes[1].set(xlabel="RL step", title="the loss and its two terms")
axes[1].legend(fontsize=8, frameon=False)
plt.show()
print(f"loss {abs(heard[0]['loss']):.4f} -> {heard[-1]['loss']:.4f}, of which the policy term is {max(abs(h['loss'] - h['pull']) for h in heard):.4f} at most; reward {once[0]['reward']:.2f} -> {last(once, 'reward'):.2f}")

# %% [markdown]
# It rises, and all is well. With one update a batch every ratio is 1, so the policy term is minus the mean of the advantages, which is 0 at every step; its *gradient* is not. What is left of the loss is beta
# times the KL, and that grows because the policy learns. Watch the reward and an independent judge; the loss says nothing.

# %% [markdown]
# ## What does not matter here, and where it does (optional)
#
# Seven changes that texts argue about, each in a run of its own. **Guess**: in which order will they finish?

# %% show no_matter
def at_temperature(t):
    """A grpo_step whose batch was sampled at another temperature, while its log-probs are those at 1."""
    def update(policy, reference, optimizer, batch, **options):
        questions = batch["tokens"][:: run["answers"], :PROMPT]
        tokens = sample(policy, questions, run["answers"], temperature=t, draw=torch.Generator(questions.device).manual_seed(int(batch["tokens"].sum())))
        written = tokens[:, PROMPT:]
        rewards = torch.tensor(accuracy(decode(written), [str(a) for a in totals(tokens).tolist()]), device=tokens.device)
        return grpo_step(policy, reference, optimizer, batch | {"tokens": tokens, "mask": response_mask(written, EOS), "rewards": rewards}, **options)

    return update


total = run["prompts"] * run["answers"]
changed = {
    "G = 2": train(copy.deepcopy(base), "G = 2", prompts=total // 2, answers=2),
    "G = 32": train(copy.deepcopy(base), "G = 32", prompts=max(1, total // 32), answers=32),
    "beta 0": train(copy.deepcopy(base), "beta 0", beta=0.0),
    "KL target .05": train(copy.deepcopy(base), "KL target .05", target_kl=0.05),
    "whole batch": train(copy.deepcopy(base), "whole batch, no levels", tamper=whole_batch),
    "sampled at .8": train(copy.deepcopy(base), "sampled at .8", update=at_temperature(0.8)),
    "sampled at .3": train(copy.deepcopy(base), "sampled at .3", update=at_temperature(0.3)),
}
changed = {"usual": usual} | changed
fig, axes = plt.subplots(1, 3, figsize=(11, 3))
for ax, key in zip(axes, ("sampled", "dead", "kl")):
    for (name, diary), style in zip(changed.items(), ("-", "--", ":", "-", "-.", "--", ":", "-.")):
        ax.plot(*series(diary, key), linestyle=style, lw=2.5 if name in ("usual", "sampled at .3") else 1, color="black" if name == "usual" else None, label=name)
    ax.set(xlabel="RL step", title=TITLES[key])
axes[2].legend(fontsize=7, frameon=False)
plt.show()
end(changed)
print("dead groups at the first step:", {name: round(changed[name][0]["dead"], 2) for name in ("G = 2", "usual", "G = 32")})
print(f"pairs that are dead where one answer in 100 is right: {100 * (0.99**2 + 0.01**2):.0f} in 100")
print("beta on its way to the KL target:", [round(b, 3) for b in series(changed["KL target .05"], "beta")[1][::6]])

# %% [markdown]
# Seven runs end alike; only the dead groups tell them apart. The one that fails samples at .3 and takes its log-probs at 1: it hardly ever draws a thought, so it never learns that thoughts pay.
#
# | change | why it does not matter here | where it does |
# |---|---|---|
# | G of 2 or 32 for the same number of answers | pairs are mostly dead, but there are many of them; what counts is the number of samples | with one right answer in 100, 98 of 100 pairs are dead; with noisy rewards a baseline from two is a poor one |
# | beta 0 | a short run, a verifier that cannot be fooled | the section on the verifier |
# | beta that follows a KL target | it falls first, and comes back when the learning rate is nearly gone | in runs of thousands of steps; but a target below the KL of the very behaviour you want is a wish for two things at once |
# | one group for the whole batch | no levels | the first experiment |
# | sampling at .8, log-probs at 1 | the two distributions are still close | at .3 above; with a separate engine that samples |
#
# Rules about G and the number of prompts circulate: begin with 8 to 16 answers; at least 8 answers and 4 prompts; 4 prompts x 16 rather than 16 x 4, since a wrong baseline is harder to mend than a noisy gradient.
# They are fair places to begin; none of them could be told from the others here. That large groups make all answers equal is untrue: they make dead groups rarer.

# %% [markdown]
# ## PPO with a critic, side by side (optional)
#
# The same task, model and samples per step. PPO gets a critic as large as the policy, which begins as a copy of it with a new head,
# and gives each token its own advantage by your `gae_advantages`. If every token counts as an answer of its own, your `grpo_objective` is
# PPO's loss: the surrogate never asked where advantages come from.
#
# **Guess**: which learns in fewer steps? What does the critic cost in seconds and in memory?

# %% show ppo
critic = TinyModel(run["width"], run["layers"], run["heads"], outputs=1).to(run["device"])
critic.load_state_dict({**base.state_dict(), "head.weight": torch.zeros(1, run["width"])})
critic_optimizer = torch.optim.AdamW(critic.parameters(), 1e-3, betas=(0.9, 0.95), weight_decay=0.0, foreach=True)


def ppo_step(policy, reference, optimizer, batch, inner_epochs, clip_range, beta):
    """PPO on the same batch: group_ids are not used, every token has an advantage from the critic."""
    tokens, start, real = batch["tokens"], batch["prompt_length"], batch["mask"].bool()

    def look(model):
        return token_log_probs(response_logits(model, tokens, start), tokens[:, start:])[real][:, None]

    def judge():  # before each token: what is to be expected?
        return response_logits(critic, tokens, start)[..., 0]

    with torch.no_grad():
        ref, old, values = look(reference), look(policy), judge().cpu()
    advantages = torch.zeros_like(values)
    for i, n in enumerate(real.sum(1).tolist()):
        rewards = F.pad(batch["rewards"][i : i + 1].cpu(), (n - 1, 0))  # paid at the last token
        advantages[i, :n] = gae_advantages(rewards, F.pad(values[i, :n], (0, 1)), gamma=1.0, lam=0.95)
    returns, a = (values + advantages).to(tokens.device), advantages.to(tokens.device)[real]
    a = (a - a.mean()) / a.std().clamp_min(1e-6)
    for _ in range(inner_epochs):
        loss, metrics = grpo_objective(look(policy), old, ref, a, torch.ones_like(old), clip_range, beta)
        value_loss = (judge() - returns)[real].square().mean()
        for model, its_optimizer, its_loss in ((policy, optimizer, loss), (critic, critic_optimizer, value_loss)):
            its_optimizer.zero_grad()
            its_loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            its_optimizer.step()
    return metrics


with_critic = train(copy.deepcopy(base), "PPO", update=ppo_step)
compare({"GRPO": usual, "PPO": with_critic}, ("greedy", "sampled", "thinks"))
actor_keeps, critic_keeps = (saved_bytes(lambda: response_logits(m, tokens, PROMPT)) / 2**20 for m in (policy, critic))
one = sum(p.numel() for p in policy.parameters()) * 4 / 2**20  # MiB of float32 weights; gradient and Adam make it four times
print("        greedy  sampled  CPU s   weights, gradients, Adam   activations of an update")
for name, diary, weights, activations in (("GRPO", usual, 5 * one, actor_keeps), ("PPO", with_critic, 9 * one, actor_keeps + critic_keeps)):
    print(f"{name:6}  {last(diary, 'greedy'):.3f}   {last(diary, 'sampled'):.3f}    {sum(r['seconds'] for r in diary):4.1f}    {weights:5.2f} MiB                  {activations:5.1f} MiB")

# %% [markdown]
# About the same curve. The critic more than doubles the seconds (your loop over tokens in `gae_advantages` has a share in that) and nearly doubles the memory: the policy counts four times (weights, gradients, Adam's two
# states) and the frozen reference once; PPO has a trained critic on top. No more follows from one easy task and one setting of each: where credit must be given to
# single steps of long episodes, a critic can do what a group cannot.

# %% [markdown]
# ## The reference's log-probabilities, once or every time (optional)
#
# They depend on the batch and on a frozen model, so once per batch is enough. "The cache saves 30 percent" is a sentence that circulates. **Guess** what it saves with one, two and four inner epochs.

# %% show cached_or_not
def seconds(function, times=7):
    """Median CPU seconds of a call."""
    took = []
    for _ in range(times):
        began = time.process_time()
        function()
        took.append(time.process_time() - began)
    return sorted(took)[times // 2]


reference, learner = copy.deepcopy(base).requires_grad_(False), copy.deepcopy(policy)
its_optimizer = torch.optim.AdamW(learner.parameters(), 1e-6, foreach=True)
batch = {"tokens": tokens, "prompt_length": PROMPT, "mask": response_mask(tokens[:, PROMPT:], EOS), "rewards": solved(tokens).float().to(run["device"]), "group_ids": torch.arange(len(tokens), device=run["device"]) // run["answers"]}
with torch.no_grad():
    a_pass = seconds(lambda: token_log_probs(response_logits(reference, tokens, PROMPT), tokens[:, PROMPT:]))
for epochs in (1, 2, 4):
    step = seconds(lambda: grpo_step(learner, reference, its_optimizer, batch, inner_epochs=epochs), 5)
    print(f"inner epochs {epochs}: an update takes {1000 * step:.0f} ms; without the cache {1000 * (step + (epochs - 1) * a_pass):.0f} ms ({100 * (epochs - 1) * a_pass / step:.0f} % more)")
cache = tokens[:, PROMPT:].numel() * 4
print(f"the cache holds {cache / 1024:.1f} KiB")

# %% [markdown]
# With one update a batch it saves nothing, since every batch needs its one pass anyway; then it grows with the epochs, for one float per token. So 30 percent may be true of four epochs or more, and is
# not true of GRPO as such. The old log-probabilities are cheaper still: before the first update they are the new ones, detached. To compute them later would not be slower only; it would be wrong.

# %% [markdown]
# ## When your own run is ill: symptoms, causes, remedies (optional, to look things up)
#
# First the three classics: a learning rate that is 20 times too high, a wrong sign, and rewards that belong to other answers (a loader shuffled them; the shapes are right and nothing complains).
#
# **Guess**: which of the three is the most treacherous?

# %% show failures
def negate(batch):
    return batch | {"rewards": -batch["rewards"]}


def shuffle(batch):
    order = torch.randperm(len(batch["rewards"]), generator=torch.Generator().manual_seed(int(batch["tokens"].sum())))
    return batch | {"rewards": batch["rewards"][order.to(batch["rewards"].device)]}


failures = {
    "lr x 20": train(copy.deepcopy(base), "learning rate x 20", lr=1e-2),
    "wrong sign": train(copy.deepcopy(base), "wrong sign", tamper=negate),
    "misaligned": train(copy.deepcopy(base), "misaligned rewards", tamper=shuffle),
}
compare({"usual": usual} | failures, ("greedy", "sampled", "kl"), logs=("kl",))
for name, diary in failures.items():
    print(f"{name:10} greedy every fifth step:", [round(a, 2) for a in series(diary, "greedy")[1]], f"  largest KL {max(series(diary, 'kl')[1]):.3g}")

# %% [markdown]
# The high rate learns to think within a few steps and breaks: the KL leaps to many nats per token, and the policy never fully recovers. The wrong sign goes to nearly no right answer in half the run; it
# learnt perfectly what it was told. Misaligned rewards are the treacherous ones: nothing explodes, the KL stays small, and accuracy drifts down to about .1 or below, as if the task were too hard. A
# batch of two groups and a unit test find it in a millisecond.

# %% [markdown]
# Four more, in half as many steps: a reward that nearly nobody ever gets, a beta of 10, a reward for the answer 18 whatever the question, at a beta of 0, and a clip range of .02 for four updates.

# %% show symptoms
half = max(2, run["experiment_steps"] // 2)
more = {
    "a rare reward": train(copy.deepcopy(base), "a rare reward", half, reward=lambda texts, answers: [a * (int(right) > 32) for a, right in zip(accuracy(texts, answers), answers)]),
    "beta 10": train(copy.deepcopy(base), "beta = 10", half, beta=10.0),
    "a reward for 18": train(copy.deepcopy(base), "a reward for 18", half, reward=lambda texts, answers: [float(extract_answer(t) == "18") for t in texts], lr=2e-3, beta=0.0),
    "clip .02": train(copy.deepcopy(base), "clip .02, four updates", half, clip_range=0.02, inner_epochs=4),
}
failures = failures | more
memory = {n: saved_bytes(lambda: response_logits(policy, tokens[:n], PROMPT)) / 2**20 for n in (8, 16, 32, 64, 128) if n <= len(tokens)}
pictures = [
    ("1 reward flat: dead groups", {"dead groups": (failures["a rare reward"], "dead"), "reward": (failures["a rare reward"], "reward")}),
    ("2 reward jumps or collapses", {"lr x 20": (failures["lr x 20"], "reward"), "usual": (usual, "reward")}),
    ("3 KL explodes", {"wrong sign": (failures["wrong sign"], "kl"), "lr x 20": (failures["lr x 20"], "kl"), "usual": (usual, "kl")}),
    ("4 policy barely moves (KL)", {"beta 10": (failures["beta 10"], "kl"), "beta .04": (usual, "kl")}),
    ("5 ratios pile up at the edge", {"clipped, clip .02": (failures["clip .02"], "clip_fraction"), "clipped, clip .2": (usual, "clip_fraction")}),
    ("6 outputs repeat (distinct)", {"always 18": (failures["a reward for 18"], "distinct"), "usual": (usual, "distinct")}),
    ("7 reward up, truth down", {"reward": (hacked, "reward"), "truth": (hacked, "sampled")}),
]
fig, axes = plt.subplots(2, 4, figsize=(12, 5))
for ax, (title, curves) in zip(axes.flat, pictures):
    for (name, (diary, key)), style in zip(curves.items(), ("-", "--", ":")):
        ax.plot(*series(diary, key), style, label=name)
    ax.set(xlabel="RL step", yscale="log" if title[0] in "34" else "linear")
    ax.set_title(title, fontsize=9)
    ax.legend(fontsize=7, frameon=False)
axes.flat[7].plot(memory.keys(), memory.values(), "o-")
axes.flat[7].set(xlabel="answers per backward pass", ylabel="MiB kept", ylim=(0, None))
axes.flat[7].set_title("8 out of memory", fontsize=9)
plt.show()
recorded("right among the last samples", {"learning rate 4e-3": (0.87, 0.34, 0.84, 0.87), "epsilon .1": (0.89, 0.26, 0.71, 0.86), "beta .3": (0.76, 0.15, 0.79, 0.76), "twice the prompts": (0.93, 0.59, 0.94, 0.92), "learning rate 1e-3": (0.97, 0.83, 0.96, 0.96)})

# %% [markdown]
# | | symptom | cause | how to see it | remedy |
# |---|---|---|---|---|
# | 1 | reward flat | dead groups: all answers of a prompt earn the same; or a model too weak | share of dead groups near 1; accuracy when forced to think | larger groups, easier prompts, a reward with steps; more supervised training |
# | 2 | reward oscillates or collapses | learning rate too high, or batches too small | it falls back far below its best | lower the rate; then more prompts per step, fewer epochs, epsilon .1, a larger beta |
# | 3 | KL explodes | wrong sign, rate too high, padding in the mask, beta too small | KL near 1 nat per token and above | the sign by a unit test, then rate, mask, beta |
# | 4 | policy barely moves | beta too large, rate too small | KL near 0, reward where it was | lower beta by factors of 3 |
# | 5 | ratios pile up at the clip edge | clip range too narrow for so many inner epochs | large share of clipped tokens; the ratios' histogram | fewer inner epochs or a wider range |
# | 6 | outputs repeat | the entropy has collapsed, or the reward is fooled by one phrase | few distinct answers; is the reward up and the truth down? | in the first case a lower rate, a larger beta, clip-higher, a bonus for diversity; in the second the verifier |
# | 7 | reward rises, truth falls | the verifier is hacked | an independent judge disagrees | mend the verifier, start again from before |
# | 8 | out of memory | activations of a backward pass grow with answers x tokens | picture 8 | micro-batches with advantages from the whole batch; shorter answers |
#
# Is the order in row 2 right? The last cell printed what was recorded at eight times the usual rate, where runs do oscillate.
#
# The lower rate ends best on every seed, and twice the prompts come second. An epsilon of .1 is often advised; here it changed little or cost something, and a larger beta cost something on every seed. And one row without
# a picture: **everything looks fine**. Then run the unit tests.
#
# What does `read_curves` make of all these runs, and of a model whose warm-up stopped at 100 steps? **Guess**: which causes does it name first?

# %% show second_opinion
weak = train(warm_up(run["seed"], 100, run["width"], run["layers"], run["heads"], run["device"]), "a model too weak")  # it cannot add yet
for name, diary in (failures | {"a model too weak": weak} | {"lenient verifier": hacked} | levels).items():
    print(f"{name}:")
    for sentence in read_curves(diary) or ["nothing looks ill"]:
        print(f"  - {sentence}")

# %% [markdown]
# Curves say that something is wrong sooner than they say what. The first sentence is where to begin; a symptom has several causes, and shuffled rewards look like a weak model until you force the
# model to think. Wrong groups are a case that no curve shows.

# %% [markdown]
# ## What you have now
#
# - `extract_answer` and `math_reward`: a verifier that says what it pays for, and is tested on what it must refuse.
# - `token_log_probs` and `response_mask`: from a model's logits to the numbers that your loss speaks of.
# - The rollout and `grpo_step`: advantages, ratio, clip, KL and inner epochs, joined. That is all there is to GRPO.
# - Three things you saw cost something: a baseline from the wrong group, a KL too weak for a bad verifier, old samples without a clip.
#
# **To read next**: *DeepSeekMath* (where GRPO comes from), *DeepSeek-R1* (the same idea at scale), *Understanding R1-Zero-Like Training* (Dr. GRPO: what the
# two divisions bias), *DAPO* (token mean, clip-higher, dynamic sampling), *Group Sequence Policy Optimization* (GSPO), Schulman's
# note *Approximating KL Divergence* (k1, k2, k3), *Proximal Policy Optimization Algorithms* and *High-Dimensional Continuous Control Using Generalized Advantage
# Estimation*.
#
# **Where next**: change the task (`settings`, the prompts, the verifier) and predict what the curves will do; then a real language model with a verifier of your own, by the documentation of TRL's
# `GRPOTrainer` or of verl. Their options are the names you know now: group size, epsilon, beta, loss type, inner epochs.
