# %% [markdown]
# # 4. Train a tiny model that learns to think
#
# Everything you wrote so far was a formula with a check behind it. Now it meets a model. A transformer of a hundred thousand
# parameters, small enough for one core of a laptop, can do two things with a sum: blurt out an answer, which is mostly
# wrong, or write the running totals down first, which is mostly right. It has a habit of blurting. Nobody will tell it
# to think. It will be paid for right answers, by your reward, your rollout, your loss and your training step, and in less
# than half a minute of computing it finds out by itself that thinking pays.
#
# ```text
# prompts → rollout → rewards → advantages → ratio, clip → KL → update ↺
# notebook     4         4          1             2        3      4
#            here      here                                      here
# ```
#
# | | |
# |---|---|
# | **Difficulty** | Medium: four short functions, the rollout, and the training step that joins everything |
# | **Time** | About 150 minutes to the end of the run; the experiments after it, most of them optional, take another hour |
# | **You should know** | Notebooks 1 to 3; keep your `group_advantages` and `grpo_objective` at hand |
# | **You will write** | `extract_answer`, `math_reward`, `token_log_probs`, `response_mask`, `collect`, `grpo_step` |
# | **Given** | the model, its sampler, its warm-up, the plots: read them as much as you like |
# | **Next** | Your own runs: the last section says what to read |

# %% given setup
import contextlib
import copy
import linecache
import math
import random
import re
import sys
import time
import traceback

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
# One cell decides what runs and where. `"auto"` takes a CUDA device where there is one and a CPU otherwise; the sizes
# are those of the laptop on either, since the larger rows of the table have not been measured yet. On a CPU the same seed gives
# the same run, number for number, on the same machine and the same version of torch. One thread is the default because a model
# this small gains nothing from two.
#
# **You can change the task.** `numbers` and `digits` say how many numbers stand in a sum and how long they are: 6 and 1
# give `7+0+5+9+2+8=`, and the run goes as with four; 3 and 2 give `70+05+92=`, which takes a longer warm-up before the model can think about it well. (With
# two numbers the only running total is the answer itself, so thinking cannot help.) All lengths below follow, and the checks stay as they
# are. Any number of a preset's row may stand in `settings` as well, `"warmup_steps"` for example. Start again from the top after a change.

# %% given settings
settings = {
    "device": "auto",  # "auto", "cpu" or "cuda"
    "preset": "laptop",  # a row of the table in the next cell
    "seed": 0,
    "threads": 1,  # of the CPU
    "numbers": 4,  # in a sum
    "digits": 1,  # of each number
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
    if preset not in PRESETS:
        raise ValueError(f"There is no preset {preset!r}: settings['preset'] is one of {', '.join(PRESETS)}.")
    chosen = {**PRESETS[preset], **settings, "device": device}
    for name, value in chosen.items():
        if name not in ("device", "preset", "seed") and not (isinstance(value, int) and value >= 1):
            raise ValueError(f"settings[{name!r}] is {value!r}; it needs a whole number of at least 1.")
    if chosen["numbers"] < 2 or not 4 <= chosen["numbers"] * chosen["digits"] <= 18:
        raise ValueError(f"A sum of {chosen['numbers']} numbers with {chosen['digits']} digits is too short or too long: settings['numbers'] is at least 2, and times settings['digits'] it is 4 to 18.")
    return chosen


def clock():
    """Seconds: those that the CPU worked, or on a GPU those of the wall, once all that it was given is done."""
    if run["device"] == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


@contextlib.contextmanager
def memory_of_gpu():
    """Says in a sentence that a GPU is full, and what to do."""
    try:
        yield
    except torch.cuda.OutOfMemoryError:
        raise RuntimeError(f"The GPU is out of memory. Set settings['preset'] = 'laptop', or halve settings['prompts'] (now {run['prompts']}), and run again from the settings.") from None


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
# It reads and writes characters; each of the four tags is a single token, and `</answer>` ends the text. With one
# for padding that makes 18 tokens in all. Of 10,000 prompts (all there are of four digits), about 500 are kept for watching the run and another 500 or so
# for the final verdict; the model never trains on either.
#
# All prompts are equally long. That saves this notebook what a real one needs: prompts of different lengths are padded on the
# **left**, so that all answers begin at the same place, and then an attention mask must hide the padding, and position ids
# must begin at the first real token. Both must be the same in the sampling pass and in the training pass: otherwise the
# log-probabilities are those of another text.

# %% given language
VOCAB = [*"0123456789+=,", "<think>", "</think>", "<answer>", "</answer>", "<pad>"]
ID = {token: i for i, token in enumerate(VOCAB)}
EOS, PAD, THINK = ID["</answer>"], ID["<pad>"], ID["<think>"]
NUMBERS, DIGITS = run["numbers"], run["digits"]
PROMPT = NUMBERS * (DIGITS + 1)  # tokens of a prompt: each number, and the + or = behind it
LONG = len(str(NUMBERS * (10**DIGITS - 1)))  # digits of a total
THOUGHT = (NUMBERS - 1) * (LONG + 1) + LONG + 3  # tokens of an answer that thinks: 14 for four digits
ROOM = THOUGHT + 2  # tokens an answer may have at most


def digits_of(numbers, count, base=10):
    """Numbers [...] -> their digits [..., count], zeros in front."""
    return torch.stack([numbers // base**k % base for k in reversed(range(count))], -1)


def encode(numbers):
    """Numbers [N, NUMBERS] -> prompts [N, PROMPT], such as 7+0+5+9=."""
    prompts = torch.full((len(numbers), NUMBERS, DIGITS + 1), ID["+"])
    prompts[..., :DIGITS], prompts[:, -1, DIGITS] = digits_of(numbers, DIGITS), ID["="]
    return prompts.flatten(1)


def decode(tokens):
    """Tokens [N, T] -> N texts, without padding."""
    return ["".join(VOCAB[t] for t in row if t != PAD) for row in tokens.tolist()]


def running_totals(prompts):
    """The total after each number [N, NUMBERS] of prompts [N, PROMPT], whatever follows them."""
    digits = prompts[:, :PROMPT].unflatten(1, (NUMBERS, DIGITS + 1))[..., :DIGITS]
    return sum(digits[..., k] * 10 ** (DIGITS - 1 - k) for k in range(DIGITS)).cumsum(1)


def totals(prompts):
    """The right answers [N] of prompts [N, PROMPT], whatever follows them."""
    return running_totals(prompts)[:, -1]


def all_prompts():
    """Prompts in three parts that never meet: to train on, to watch, and for the final verdict. All 10,000, or as many of a larger task."""
    count = 10 ** (NUMBERS * DIGITS)
    number = torch.arange(10_000) if count == 10_000 else torch.randint(count, (10_000,), generator=torch.Generator().manual_seed(0)).unique()
    prompts = encode(digits_of(number, NUMBERS, 10**DIGITS))
    part = number * 2654435761 % 2**32 // 2**16 % 20  # a hash, so that no part has a pattern
    return prompts[part > 1], prompts[part == 0], prompts[part == 1]


TRAIN, WATCH, VERDICT = all_prompts()
print(len(TRAIN), "prompts to train on,", len(WATCH), "to watch,", len(VERDICT), "for the verdict;", len(VOCAB), "tokens")
print(decode(VERDICT[:1])[0], "takes", PROMPT, "tokens, an answer that thinks", THOUGHT, "of at most", ROOM)

# %% [markdown]
# ## The model
#
# Given, and you need not read it: a transformer as you know it, embeddings, two blocks of attention and a small network, a head. Two things are worth a
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

    def __init__(self, width=64, layers=2, heads=4, seed=0, outputs=len(VOCAB), places=PROMPT + ROOM):
        super().__init__()
        self.token, self.place = nn.Embedding(len(VOCAB), width), nn.Embedding(places, width)
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
@memory_of_gpu()
@torch.no_grad()
def sample(model, prompts, answers=1, temperature=1.0, draw=None, force=None):
    """Answers to prompts [B, P]: the whole texts [B x answers, P + T]. Answers to one prompt stand together.

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
        if t + 1 == ROOM or prompts.device.type == "cpu" and done.all():  # to ask a GPU would cost more than the padding
            break
        logits = model(token[:, None], cache)[:, -1]
    return torch.cat([prompts[rows], torch.stack(tokens, 1)], 1)


def solved(tokens):
    """Is the answer right? [N, T] -> [N] bools. Written to judge you: it shares nothing with your reward."""
    wanted = [f"<answer>{total:0{LONG}d}</answer>" for total in totals(tokens).tolist()]
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
# A language model has read half the internet before anybody gives it a reward. Ours gets a warm-up by supervised learning (given, too):
# for most of it, nine of ten samples show how to think, and the rest are hasty answers, off by up to four. The last
# thirty steps turn the ratio around: nearly nine of ten are hasty. So the model knows how to think and is not in the
# habit of it.

# %% given warm_up
def examples(prompts, think, draw):
    """What the warm-up teaches: answers [N, THOUGHT], thought about where think [N] is true, hasty elsewhere."""
    running = running_totals(prompts)[:, 1:]  # [N, NUMBERS - 1]; the last is the answer
    guess = (running[:, -1] + torch.randint(-4, 5, (len(prompts),), generator=draw)).clamp(0, NUMBERS * (10**DIGITS - 1))
    thought, hasty = (torch.full((len(prompts), THOUGHT), PAD) for _ in range(2))
    steps = thought[:, 1 : -LONG - 2].unflatten(1, (NUMBERS - 1, LONG + 1))  # a total and the sign behind it
    steps[..., :LONG], steps[..., LONG], steps[:, -1, LONG] = digits_of(running, LONG), ID[","], ID["</think>"]
    thought[:, 0], thought[:, -LONG - 2], thought[:, -LONG - 1 : -1], thought[:, -1] = THINK, ID["<answer>"], digits_of(running[:, -1], LONG), EOS
    hasty[:, 0], hasty[:, 1 : LONG + 1], hasty[:, LONG + 1] = ID["<answer>"], digits_of(guess, LONG), EOS
    return torch.where(think[:, None], thought, hasty)


@memory_of_gpu()
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
began = clock()
base = warm_up(run["seed"], run["warmup_steps"], run["width"], run["layers"], run["heads"], run["device"])
print(f"warm-up: {clock() - began:.1f} s")
for name, how in (("greedy", {}), ("sampled", {"temperature": 1.0}), ("forced to think", {"force": THINK})):
    told = evaluate(base, VERDICT.to(run["device"]), **how)
    print(f"{name:16} right {told['accuracy']:.3f}   thinks {told['thinks']:.3f}")

# %% [markdown]
# Left alone, the model is right about one time in seven. Made to think by one forced token, it is right nearly always. Everything is there but the
# habit. Be clear about what this means for the rest: reinforcement learning will *elicit* an ability that the warm-up gave, and hardly teach a new one. After the
# run an optional section looks at models that half know how to add, and at one that does not.
#
# Here is what it writes, once greedily and four times at a temperature of 1.

# %% show gallery_before
def gallery(model, prompts):
    """Prints what a model writes, greedily and in four samples."""
    for prompt in prompts:
        texts = sample(model, prompt[None], temperature=0.0), sample(model, prompt[None], 4, draw=torch.Generator(prompt.device).manual_seed(int(totals(prompt[None]))))
        greedy, others = (list(zip(decode(t[:, PROMPT:]), solved(t).tolist())) for t in texts)
        for k, (text, right) in enumerate([*greedy, *others]):
            print(f"{' ' * PROMPT if k else decode(prompt[None])[0]}  {text}  {'right' if right else 'wrong'}")


gallery(base, VERDICT[[7, 77, 177]].to(run["device"]))

# %% [markdown]
# ## The reward
#
# ### Exercise: `extract_answer` (2 points, 10 minutes, ●○○)
#
# Before a rule can pay for an answer it has to find it. A verifier that takes the last number anywhere, or the first of two answers,
# is one that a policy learns to please without being right.
#
# | in | type | meaning |
# |---|---|---|
# | `text` | `str` | what the model wrote |
#
# Returns what stands inside the answer tag as a `str`, or `None`. `"<think>7+5</think><answer> 12 </answer>"` gives `"12"`.
#
# - There is an answer only where the text holds exactly one `<answer>` and exactly one `</answer>`, in this order; else `None`.
# - Spaces and line breaks at both ends are stripped. The answer may run over several lines or be empty: then it is `""`.
# - Full-width digits (`０` to `９`, common in Chinese text) become ASCII digits. Everything else stays as it is, be it a number or not.
#
# <details><summary>A hint</summary>
#
# `str.count` tells how often a tag occurs and `str.partition` cuts a text in two. `str.translate` replaces single
# characters by a table. In a regular expression a dot matches a line break only if you say so.
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
# The answer is what stands inside the tag, stripped, its full-width digits made ASCII.
cases = {
    "<think>7+5</think><answer> 12 </answer>": "12",
    "<answer>3.50</answer> and 99 more": "3.50",
    "I am sure that it is 12.": None,
    "<think>the answer could be 4</think>\n<answer>\n12\nor so\n</answer>": "12\nor so",
    "<answer>no idea</answer>": "no idea",
    "<answer>Twelve, and 5 < 7.</answer>": "Twelve, and 5 < 7.",
    "<answer> </answer>": "",
    "<answer>１２</answer>": "12",
    "<answer>　０4５0 </answer>": "0450",
    "<answer>１２元, ３４６７８９</answer>": "12元, 346789",
    "<answer>十二 5½ ١٢</answer>": "十二 5½ ١٢",
    "<answer>１２．５Ａ</answer>": "12．5Ａ",
}
got = [extract_answer(text) for text in cases]
for (text, right), mine in zip(cases.items(), got):
    assert mine == right, f"from {text!r} came {mine!r}; expected {right!r}"
### BEGIN HIDDEN TESTS
draw = random.Random(SEED)
full = "０１２３４５６７８９"
for _ in range(40):
    inside = "".join(draw.choice("0123456789 .,+-=abCD<\n") for _ in range(draw.randrange(9)))
    before, after = ("".join(draw.choice("0123456789 \n<>/=") for _ in range(draw.randrange(9))) for _ in range(2))
    assert extract_answer(f"{before}<answer>{inside}</answer>{after}") == inside.strip()
    assert extract_answer(f"{before}{inside}{after}") is None
    wide = [draw.choice(full + "0123456789.元-½㍍．Ａ－٣५") for _ in range(6)]
    narrow = "".join(str(full.index(c)) if c in full else c for c in wide)
    assert extract_answer(f"x<answer> {''.join(wide)}\n</answer>") == narrow
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

# %% [markdown]
# ### Exercise: `math_reward` (2 points, 15 minutes, ●○○)
#
# Two rules, each paying 0 or 1: rewards that a program can check, *verifiable rewards*. (DeepSeek-R1 was trained by two such signals, one for accuracy and one for
# the format.) They come back separately, so that a run can weigh, plot and distrust them one by one.
#
# | in | type | meaning |
# |---|---|---|
# | `text` | `str` | what the model wrote |
# | `answer` | `str` | the right number, such as `"12"` |
#
# Returns `{"accuracy": 0.0 or 1.0, "format": 0.0 or 1.0}`. `"<answer>012</answer>"` for `"12"` gives accuracy 1 and format 0.
#
# - **accuracy**: there is exactly one well-formed answer, and it is a number of the same *value* as the given one: 12, 12.0, 012 and +12 are
#   equal. A number is an optional sign, digits from 0 to 9, perhaps a decimal point and more digits; `十二`, `12 yuan`, `1,2`, `6+6` and `١٢` are none.
# - **format**: one `<think>…</think>` and one `<answer>…</answer>`, in this order, neither inside the other, and nothing but white
#   space outside. What stands inside them makes no difference.
#
# Equal means equal. If the right answer is 5/3 and the model writes 1.67, this rule pays nothing: say in the prompt how to round, or compare fractions. A tolerance
# is the other way, and it pays for being near: keep it far below the distance between a right answer and a wrong one.
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

# %% check by_value points=1
# Accuracy compares the one answer with the right number, by value.
def part(reward, name):
    return reward.get(name) if isinstance(reward, dict) else f"{reward!r}, which is no dict"

inside = {
    "12": 1, "12.0": 1, "012": 1, "+12": 1, " 12 ": 1, "１２": 1, "13": 0, "-12": 0, "1.2": 0, "120": 0, "112": 0, "12.5": 0, "12.25": 0, "12.09": 0, "12.009": 0, "12.0000004": 0,
    "十二": 0, "12 yuan": 0, "$12": 0, "12%": 0, "12...": 0, "1,2": 0, "١٢": 0, "twelve": 0, "6+6": 0, "24/2": 0, "3 12": 0, "": 0,
}
cases = [(f"<think>7+5</think><answer>{text}</answer>{'' if k % 2 else ' 99'}", "12", right) for k, (text, right) in enumerate(inside.items())]
cases += [(f"<answer>{text}</answer>", "-2.5", right) for text, right in (("-2.50", 1), ("2.5", 0), ("-2", 0))]
cases += [(text, "12", 1) for text in ("<answer>12</answer>", "7+5=<answer>12</answer>, I think", "<think>never closed <answer>12</answer>")]
cases += [(text, "12", 0) for text in ("12", "<think>12</think>", "<answer>12", "<think>12</think><answer>11</answer>", "<answer>11</answer> no, 12")]
cases += [(f"<answer>{a}</answer><answer>{b}</answer>", "12", 0) for a, b in ((12, 11), (11, 12), (12, 12))]
paid = [part(math_reward(text, answer), "accuracy") for text, answer, _ in cases]
got = [[k, mine] for k, (mine, (_, _, right)) in enumerate(zip(paid, cases)) if mine != right]  # where it differs, and what it is
for (text, answer, right), mine in zip(cases, paid):
    assert mine == right, f"the right number is {answer}; for {text!r} accuracy is {mine}, expected {float(right)}"
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
# ### The pencil problem (optional)
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
# The answer that breaks the format has by far the largest advantage, -1.7321 against .5774, although its number is right.
#
# You could add a third rule, "did it divide?", that pays for a `/` or the word *divide* in the think part. Each rule is one more thing to please: the
# tag rule is satisfied by `<think></think>`, the division rule by `<think>/</think>`, and a policy finds such corners faster than you do. That is why the
# run below pays for accuracy alone: then nothing pays for thinking but being right.

# %% [markdown]
# ## From logits to numbers for the loss
#
# ### Exercise: `token_log_probs` (3 points, 15 minutes, ●●○)
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
# | what | this course | others |
# |---|---|---|
# | log-probs in the ratio and the KL | at the temperature of sampling: logits divided by it first | TRL and verl do the same; a script that samples at .8 and computes at 1 compares two distributions |
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
    assert torch.is_tensor(mine) and mine.shape == (1, 2), f"expected a tensor of shape [1, 2], got {list(mine.shape) if torch.is_tensor(mine) else type(mine).__name__}"
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
assert torch.is_tensor(got) and got.shape == (2, 2), f"expected a tensor of shape [2, 2], got {list(got.shape) if torch.is_tensor(got) else type(got).__name__}"
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
# ### What it costs to remember (optional)
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
# ### Temperature, top-k and top-p (optional)
#
# Three knobs that every sampler has. Temperature reshapes the distribution; `token_log_probs` knows about it. Top-k keeps
# the k most likely tokens, top-p the fewest that together reach probability p, and both throw the rest away.
#
# **Before you run the cell**: a token has probability .12 under the model. Sampled with top-p, can its true
# probability of being drawn be larger than that? Smaller?

# %% show knobs
p = torch.tensor([0.45, 0.25, 0.12, 0.08, 0.05, 0.03, 0.02])
cold, warm = torch.softmax(p.log() / 0.5, -1), torch.softmax(p.log() / 1.5, -1)
top_k = torch.where(torch.arange(7) < 3, p, 0) / p[:3].sum()
reaches = p.cumsum(0) - p < 0.85  # the tokens needed to reach .85
top_p = torch.where(reaches, p, 0) / p[reaches].sum()
fig, axes = plt.subplots(1, 4, figsize=(9, 2.6), sharey=True)
for ax, q, title in zip(axes, (cold, warm, top_k, top_p), ("temperature 0.5", "temperature 1.5", "top-k, k = 3", "top-p, p = 0.85")):
    ax.bar(range(7), q, color=SKY, label="drawn from")
    ax.plot(range(7), p, "o", color="black", ms=4, label="model, temperature 1")
    ax.set(title=title, xlabel="token", ylim=(0, 0.8))
axes[0].set_ylabel("probability")
axes[1].legend(fontsize=8, frameon=False)
plt.show()
print("ratio of the third token, drawn over model:", {name: round((q[2] / p[2]).item(), 2) for name, q in (("cold", cold), ("warm", warm), ("top-k", top_k), ("top-p", top_p))})

# %% [markdown]
# The bars are what is drawn from, the dots what the model says at a temperature of 1. A low temperature sharpens, a high one flattens, and `token_log_probs` can follow
# both. Top-k and top-p draw the survivors *more* often than the model says, and the others never: then $\log \pi_{\text{old}}$ from the model is not the log-probability under
# which the token was drawn, and the ratio and the KL speak of another distribution than the samples come from. So we train on samples at temperature 1 with
# neither, and leave the knobs for the day when the model is used.

# %% [markdown]
# ### Exercise: `response_mask` (2 points, 10 minutes, ●●○)
#
# Answers have different lengths; a tensor has one. Which tokens did the policy really choose?
#
# | in | shape | meaning |
# |---|---|---|
# | `tokens` | `[N, T]`, integers | the answers alone, without their prompts |
# | `eos_id` | int | the token that ends an answer (EOS: end of sequence; ours is `</answer>`) |
#
# Returns `[N, T]`: 1 (or True) for tokens that belong to the answer, 0 (or False) for those after its end. With an EOS of 9:
# `[4, 9, 0]` gives `[1, 1, 0]`.
#
# - The first EOS belongs to the answer: to stop was a choice too, and a choice can be taught.
# - Nothing after the first EOS counts, whatever stands there: padding, more tokens, another EOS. Some tokenizers pad *with* the EOS.
# - An answer that never ends was cut off: all of its tokens count.
# - Any token may be the EOS, 0 too. The tokens that come in are not changed.
# - New tensors lie where the tokens do (`device=tokens.device`): a mask on the CPU stops a run on a GPU.
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
# The first EOS counts, and nothing after it, not even where the padding is the EOS itself.
tokens = torch.tensor([[4, 9, 0, 0, 0], [9, 0, 0, 0, 0], [4, 5, 6, 9, 7], [0, 4, 0, 9, 3], [4, 0, 9, 0, 9]])
expected = {9: [[1, 1, 0, 0, 0], [1, 0, 0, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 1, 0], [1, 1, 1, 0, 0]], 0: [[1, 1, 1, 0, 0], [1, 1, 0, 0, 0], [1] * 5, [1, 0, 0, 0, 0], [1, 1, 0, 0, 0]]}
given = tokens.clone()
got = [response_mask(given, eos) for eos in expected]
for eos, mine in zip(expected, got):
    assert torch.is_tensor(mine) and mine.shape == (5, 5), "expected a tensor of shape [5, 5], like the tokens"
    for row, mask, right in zip(tokens.tolist(), mine.double().tolist(), expected[eos]):
        assert mask == right, f"with an EOS of {eos} the answer {row} has the mask {right}, got {[int(x) for x in mask]}. Which EOS ended it? Does it count itself?"
assert torch.equal(given, tokens), f"the tokens that came in were changed, to {given.tolist()}: which line writes into them?"
got = response_mask(torch.zeros(1, 600, dtype=torch.int64), 0)  # a short answer beside a long one
counted = got[0].nonzero().flatten().tolist()
assert counted == [0], f"of 600 tokens, every one an EOS, only the first counts (place 0); got places {counted[:3]} and so on. How far can your count go?"
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
for room in (8, 8, 8, 700):
    lengths = torch.randint(1, 9, (12,), generator=draw)
    tokens = torch.randint(1, 9, (12, room), generator=draw)
    for row, n in zip(tokens, lengths.tolist()):
        row[n - 1 :] = 0
    mine = response_mask(tokens.clone(), 0)
    for mask, n in zip(mine.tolist(), lengths.tolist()):
        assert [float(x) for x in mask] == [1.0] * n + [0.0] * (room - n)
### END HIDDEN TESTS

# %% check answers_that_never_end points=1
# An answer without an end counts whole.
tokens = torch.tensor([[4, 5, 6, 7], [4, 9, 0, 0], [0, 0, 0, 0], [5, 6, 7, 9]])
expected = [[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 1], [1, 1, 1, 1]]
got = response_mask(tokens.clone(), 9)
assert torch.is_tensor(got) and got.shape == (4, 4), "expected a tensor of shape [4, 4], like the tokens"
for row, mask, right in zip(tokens.tolist(), got.double().tolist(), expected):
    assert mask == right, f"with an EOS of 9 the answer {row} has the mask {right}, got {[int(x) for x in mask]}. Does it ever end?"
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

# %% [markdown]
# ## The rollout
#
# ### Exercise: `collect` (4 points, 20 minutes, ●●○)
#
# Supervised learning is handed its data. Reinforcement learning makes its own: the policy answers, a rule pays, and both together are the next
# batch. This step is called the *rollout*, and nobody but the current policy can do it.
#
# | in | type | meaning |
# |---|---|---|
# | `policy` | model | the one that answers |
# | `prompts` | `[B, P]`, integers | the prompts |
# | `answers` | int | answers to each prompt, the size of a group: G |
# | `reward` | function | list of texts, list of right answers (both `str`) → list of numbers |
# | `temperature`, `draw` | float, generator | of sampling; passed on to `sample` |
#
# Returns the batch, a dict. With B prompts there are N = B x G answers; the whole texts have T tokens.
#
# | out | type | meaning |
# |---|---|---|
# | `"tokens"` | `[N, T]` | what `sample` gave: prompts and answers. Answers to one prompt stand together |
# | `"prompt_length"` | int | P |
# | `"mask"` | `[N, T - P]` | what `response_mask` says of the answers alone, with an EOS of `EOS` |
# | `"rewards"` | `[N]`, float | what `reward` pays each answer, also where it pays whole numbers |
# | `"group_ids"` | `[N]`, integers | equal for answers to one prompt, different for different prompts |
#
# Two prompts with three answers each: the ids are, for example, `[0, 0, 0, 1, 1, 1]`.
#
# - `sample`, `decode` and `totals` are given above. The texts are those of the answers, without their prompts. The right answer to a prompt is its total, as text: `"21"`.
# - Sample once per batch: the answers that are paid must be the answers that are learnt from. `sample` records no gradient, and none is needed:
#   the training step computes the log-probabilities again.
# - New tensors go where the tokens are (`device=tokens.device`); on a CPU you will not notice, on a GPU the first sum of two devices stops the run.
#
# <details data-checks="answers_in_groups"><summary>A hint</summary>
#
# `sample` puts the answers to one prompt together. `torch.arange` numbers the prompts, and `repeat_interleave` is what repeats each number in place; `repeat` is not.
#
# </details>
#
# <details data-checks="paid_for_its_own"><summary>A hint</summary>
#
# B right answers and B x G texts: `totals` looks at the beginning of each row, so it can be asked about all N rows. `torch.tensor` makes integers of whole numbers unless
# it is told a dtype.
#
# </details>
#
# <details data-checks="mask_of_the_answers"><summary>A hint</summary>
#
# `tokens[:, P:]` are the answers. A model may write `<pad>` in the midst of an answer, so padding does not tell where it ends.
#
# </details>

# %% solution collect
def collect(policy, prompts, answers, reward, temperature=1.0, draw=None):
    """A rollout: the policy answers prompts [B, P] several times each, and a rule pays. Returns the batch of grpo_step."""
    ### BEGIN SOLUTION
    tokens, start = sample(policy, prompts, answers, temperature, draw), prompts.shape[1]
    written = tokens[:, start:]
    paid = reward(decode(written), [str(total) for total in totals(tokens).tolist()])
    return {
        "tokens": tokens,
        "prompt_length": start,
        "mask": response_mask(written, EOS),
        "rewards": torch.as_tensor(paid, dtype=torch.float32, device=tokens.device),
        "group_ids": torch.arange(len(prompts), device=tokens.device).repeat_interleave(answers),
    }
    ### END SOLUTION

# %% given tiny_ground
def tiny_policy(seed, places=24):
    """A model so small that a step takes milliseconds, with opinions of its own."""
    model, draw = TinyModel(width=8, layers=1, heads=2, places=places), torch.Generator().manual_seed(seed)
    for name, p in model.named_parameters():
        if p.dim() == 2:
            p.data.normal_(0, 1.0 if name.startswith(("token", "place")) else 0.2, generator=draw)
    return model


def tokenised(texts, length):
    """Texts -> tokens [N, length], padded on the right."""
    rows = [[ID[token] for token in re.findall(r"<[^>]*>|.", text)] for text in texts]
    return torch.tensor([row + [PAD] * (length - len(row)) for row in rows])


def entry(batch, name, *shape):
    """An entry of a batch, if it is a tensor of this shape."""
    assert batch, "collect gave back no dict. Is a return missing?"
    value = batch.get(name)
    assert torch.is_tensor(value), f"batch[{name!r}] is {'missing' if value is None else type(value).__name__}; expected a tensor of shape {list(shape)}"
    assert value.shape == shape, f"batch[{name!r}] has shape {list(value.shape)}, expected {list(shape)}"
    return value


def same_draws(told, seed, temperature):
    """Whether `sample`, asked for the same in the same order, gives what the scenario told: then it was this policy, temperature and generator."""
    policy, own = tiny_policy(seed, PROMPT + ROOM), torch.Generator().manual_seed(seed)
    return all(torch.equal(sample(policy, call["prompts"], call["each"], temperature, own), tokens) for call, tokens in zip(told["asked"], told["sampled"]))


WRITTEN = tokenised(["<answer>21</answer>", "<think>07,12</think><answer>12</answer>", "<answer>5</answer>", "1,2,3,4,5,6,", "<think><pad>7</think><answer><pad>30</answer>", "</answer>"], 12)

# %% scenario tiny_rollout
def tiny_rollout(prompts, answers, written=None, temperature=None, whole=False, seed=0):
    """One call of collect with a tiny policy and a made-up reward: the batch, what `sample` was asked for and gave, what was paid.

    written: answers [N, T] that `sample` is made to give. whole: the reward pays whole numbers.
    """
    global sample
    policy, own, given = tiny_policy(seed, PROMPT + ROOM), torch.Generator().manual_seed(seed), sample
    told = {"asked": [], "sampled": [], "texts": [], "answers": []}

    def recorded(model, prompts, answers=1, temperature=1.0, draw=None, force=None):
        tokens = given(model, prompts, answers, temperature, draw, force)
        if written is not None:
            rows = (torch.arange(len(tokens)) + sum(map(len, told["sampled"]))) % len(written)
            tokens = torch.cat([tokens[:, : prompts.shape[1]], written[rows]], 1)
        told["asked"].append({"the policy": model is policy, "temperature": float(temperature), "the generator": draw is own, "answers": len(tokens), "prompts": prompts.clone(), "each": answers})
        told["sampled"].append(tokens.clone())
        return tokens

    def pay(texts, right):
        if isinstance(texts, str):
            raise TypeError("reward was given one text; it wants the list of all texts and the list of all right answers")
        told["texts"] += list(texts)
        told["answers"] += list(right)
        numbers = [int(a) if str(a).isdecimal() else 0 for a in right]
        return [a + len(t) if whole else 0.01 * a + len(t) for t, a in zip(texts, numbers)]

    try:
        sample = recorded
        batch = collect(policy, prompts, answers, pay, draw=own, **({} if temperature is None else {"temperature": temperature}))
    finally:
        sample = given
    return told | {"batch": batch if isinstance(batch, dict) else {}}

# %% check answers_in_groups points=1
# Each prompt gets its answers, which stand together and share a group id.
prompts = VERDICT[:3]
told = tiny_rollout(prompts, 2, WRITTEN)
got = batch = told["batch"]
tokens = entry(batch, "tokens", 6, PROMPT + 12)
right = torch.cat([prompts[[0, 0, 1, 1, 2, 2]], WRITTEN], 1)
for i, (mine, text) in enumerate(zip(decode(tokens), decode(right))):
    assert mine == text, f"with 3 prompts and 2 answers each row {i} of batch['tokens'] is {mine!r}, expected {text!r}"
assert batch.get("prompt_length") == PROMPT, f"batch['prompt_length'] is {batch.get('prompt_length')!r}, expected {PROMPT}"
ids = entry(batch, "group_ids", 6)
same = [[a == b for b in ids.tolist()] for a in ids.tolist()]
assert same == [[i // 2 == j // 2 for j in range(6)] for i in range(6)], f"with 3 prompts and 2 answers each the group ids are {ids.tolist()}; expected equal ids for rows 0 and 1, for 2 and 3, for 4 and 5, and no others, such as [0, 0, 1, 1, 2, 2]"
numbers = torch.arange(NUMBERS) % 10**DIGITS
prompts = encode(torch.stack([numbers, numbers.flip(0)]))  # two prompts of the same total
got = tiny_rollout(prompts, 3, WRITTEN)["batch"]
ids = entry(got, "group_ids", 6)
assert not ids.is_floating_point(), f"batch['group_ids'] is of {ids.dtype}, expected integers: labels are compared, not measured"
ids = ids.tolist()
assert ids[0] == ids[1] == ids[2] != ids[3] == ids[4] == ids[5], f"with the prompts {' and '.join(decode(prompts))} and 3 answers each the group ids are {ids}; expected for example [0, 0, 0, 1, 1, 1]"
### BEGIN HIDDEN TESTS
draw = torch.Generator().manual_seed(SEED)
for b, g, room in ((2, 5, 4), (4, 1, 7), (1, 3, 9)):
    prompts, written = WATCH[torch.randperm(len(WATCH), generator=draw)[:b]], torch.randint(EOS, (b * g, room), generator=draw)
    batch = tiny_rollout(prompts, g, written, seed=SEED % 1000)["batch"]
    assert batch["prompt_length"] == PROMPT and batch["tokens"].shape == (b * g, PROMPT + room) and batch["group_ids"].shape == (b * g,)
    for i in range(b * g):
        assert batch["tokens"][i].tolist() == prompts[i // g].tolist() + written[i].tolist()
        for j in range(b * g):
            assert (batch["group_ids"][i] == batch["group_ids"][j]).item() == (i // g == j // g)
### END HIDDEN TESTS

# %% check paid_for_its_own points=1
# Each answer is paid by its own text and its own right answer, in floats.
prompts = VERDICT[:3]
sums = [str(sum(map(int, text[:-1].split("+")))) for text in decode(prompts) for _ in range(2)]
texts = [text.replace("<pad>", "") for text in decode(WRITTEN)]
told = tiny_rollout(prompts, 2, WRITTEN)
got = [told["answers"], told["batch"].get("rewards"), told["batch"].get("tokens")]
assert told["texts"], "collect did not call `reward`, the function that came: what it pays is what counts"
for i, mine in enumerate(told["texts"]):
    assert i < 6 and mine == texts[i], f"text {i} that reward was given is {mine!r}, expected {texts[i] if i < 6 else 'none: there are 6'!r}. The answers alone, decoded, in their order"
for i, mine in enumerate(told["answers"]):
    assert i < 6 and mine == sums[i], f"right answer {i} that reward was given is {mine!r}, expected {sums[i] if i < 6 else 'none: there are 6'!r}, as text: the total of the prompt of answer {i}"
rewards = entry(told["batch"], "rewards", 6)
for i, (mine, text, right) in enumerate(zip(rewards.tolist(), texts, sums)):
    assert abs(mine - 0.01 * int(right) - len(text)) < 1e-4, f"the reward of answer {i} is {mine:.2f}, but {0.01 * int(right) + len(text):.2f} is what `reward` paid for it"
got = tiny_rollout(prompts[:2], 3, WRITTEN, whole=True)["batch"]  # a reward may pay whole numbers
rewards = entry(got, "rewards", 6)
assert rewards.is_floating_point(), f"where the reward pays whole numbers batch['rewards'] is of {rewards.dtype}, expected floats: integers have no mean"
sums = [str(sum(map(int, text[:-1].split("+")))) for text in decode(prompts[:2]) for _ in range(3)]
right = [float(int(a) + len(t)) for a, t in zip(sums, texts)]
assert rewards.tolist() == right, f"with 2 prompts and 3 answers each the rewards are {rewards.tolist()}, but {right} was paid"
### BEGIN HIDDEN TESTS
draw = torch.Generator().manual_seed(SEED + 1)
for b, g, room in ((2, 5, 4), (4, 2, 7), (3, 3, 9)):
    prompts, written = WATCH[torch.randperm(len(WATCH), generator=draw)[:b]], torch.randint(EOS, (b * g, room), generator=draw)
    told = tiny_rollout(prompts, g, written, seed=SEED % 1000)
    rewards = told["batch"]["rewards"]
    assert rewards.is_floating_point() and rewards.shape == (b * g,) and not rewards.requires_grad
    for i in range(b * g):
        total = sum(int(VOCAB[t]) * 10 ** (DIGITS - 1 - k % (DIGITS + 1)) for k, t in enumerate(prompts[i // g].tolist()) if k % (DIGITS + 1) < DIGITS)
        assert abs(rewards[i].item() - 0.01 * total - len("".join(VOCAB[t] for t in written[i].tolist()))) < 1e-3
### END HIDDEN TESTS

# %% check mask_of_the_answers points=1
# The mask is that of the answers, up to their first end.
prompts = VERDICT[:3]
got = tiny_rollout(prompts, 2, WRITTEN)["batch"]
mask = entry(got, "mask", 6, 12)
for i, (mine, n) in enumerate(zip(mask.double().tolist(), (4, 11, 3, 12, 9, 1))):
    right = [1] * n + [0] * (12 - n)
    assert mine == right, f"answer {i} is {decode(WRITTEN)[i]!r}{' with two <pad> inside' if i == 4 else ''}; its mask is {[int(x) for x in mine]}, expected {right}"
late = WRITTEN.clone()
late[2, 5:], late[5, 7] = ID["3"], EOS  # more text after the end
got = tiny_rollout(prompts[:2], 3, late)["batch"]
mask = entry(got, "mask", 6, 12)
counts = mask.double().sum(1).tolist()
assert counts == [4, 11, 3, 12, 9, 1], f"where text follows after an end the mask counts {[int(n) for n in counts]} tokens, expected [4, 11, 3, 12, 9, 1]"
### BEGIN HIDDEN TESTS
draw = torch.Generator().manual_seed(SEED + 2)
for b, g, room in ((2, 5, 9), (4, 2, 7), (3, 4, 16)):
    prompts, written = WATCH[torch.randperm(len(WATCH), generator=draw)[:b]], torch.randint(len(VOCAB), (b * g, room), generator=draw)
    written[torch.rand(b * g, room, generator=draw) < 0.1] = EOS
    mask = tiny_rollout(prompts, g, written, seed=SEED % 1000)["batch"]["mask"]
    for row, mine in zip(written.tolist(), mask.tolist()):
        n = row.index(EOS) + 1 if EOS in row else room
        assert [float(x) for x in mine] == [1.0] * n + [0.0] * (room - n)
### END HIDDEN TESTS

# %% check sampled_as_asked points=1
# The policy is sampled once, at the temperature asked, with the generator that came.
prompts = VERDICT[:3]
for temperature in (0.7, None):
    told = tiny_rollout(prompts, 2, temperature=temperature, seed=3)
    got = told["asked"]
    asked, right = told["asked"], temperature or 1.0
    assert asked, "collect did not call sample, which is given above"
    assert all(call["the policy"] for call in asked), "sample was given another model than the policy that came"
    off = [call["temperature"] for call in asked if call["temperature"] != right]
    assert not off, f"asked for a temperature of {right}{'' if temperature else ' (the default)'}, collect sampled at {off[0]}"
    assert all(call["the generator"] for call in asked), "the generator `draw` did not reach sample: the same seed would not give the same run"
    count = sum(call["answers"] for call in asked)
    assert count == 6, f"for 3 prompts with 2 answers each {count} answers were sampled, expected 6: those that are paid are those that are learnt from"
    given, tokens = torch.cat([F.pad(t, (0, PROMPT + ROOM - t.shape[1]), value=PAD) for t in told["sampled"]]), told["batch"].get("tokens")
    got = [[[call[name] for name in ("the policy", "temperature", "the generator", "answers")] for call in asked], tokens]
    assert told["batch"], "collect gave back no dict. Is a return missing?"
    width = max(t.shape[1] for t in told["sampled"])
    assert torch.is_tensor(tokens) and tokens.shape[0] == 6 and tokens.shape[1] >= width and torch.equal(tokens, given[:, : tokens.shape[1]]), "batch['tokens'] are not those that sample gave"
    assert same_draws(told, 3, right), "sample gave other answers than this policy gives at this temperature with the generator as it came. Was the generator reset, or a first token forced?"
### BEGIN HIDDEN TESTS
draw = torch.Generator().manual_seed(SEED + 3)
for temperature, g in ((0.0, 3), (1.3, 4), (0.5, 2)):
    prompts, seed = WATCH[torch.randperm(len(WATCH), generator=draw)[:4]], int(torch.randint(10**6, (1,), generator=draw))
    told = tiny_rollout(prompts, g, temperature=temperature, seed=seed)
    assert all(call["the policy"] and call["the generator"] and call["temperature"] == temperature for call in told["asked"])
    assert sum(call["answers"] for call in told["asked"]) == 4 * g
    given, tokens = torch.cat([F.pad(t, (0, PROMPT + ROOM - t.shape[1]), value=PAD) for t in told["sampled"]]), told["batch"]["tokens"]
    assert tokens.shape[0] == 4 * g and tokens.shape[1] >= max(t.shape[1] for t in told["sampled"]) and torch.equal(tokens, given[:, : tokens.shape[1]])
    assert len(told["asked"]) == len(told["sampled"]) and same_draws(told, seed, temperature)
### END HIDDEN TESTS

# %% [markdown]
# ## What you bring along
#
# Four functions from notebooks 1 and 3. Paste yours; if your `grpo_objective` uses functions of its own, such as `masked_mean`
# and `kl_estimates`, paste them into the same cell, above it. Nothing is graded here (grading puts the course's own in their
# place, so an early mistake costs you once), and each is looked at again on arrival: on the CPU and, where the run is on a GPU, there too.

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

# %% given where_tensors_lie
BESIDE = {"group_advantages": "rewards", "grpo_objective": "log_probs_new", "token_log_probs": "tokens", "response_mask": "tokens", "collect": "prompts", "grpo_step": 'batch["tokens"]'}  # where its new tensors belong


class Factories(torch.overrides.TorchFunctionMode):
    """Notes what to change where a tensor is made on the CPU out of no other tensor, while the function of this name runs."""

    def __init__(self, name):
        super().__init__()
        self.name, self.changes = name, {}

    def __torch_function__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        if torch.is_tensor(made) and made.device.type == "cpu" and not any(torch.is_tensor(x) for x in flattened([*args])):
            whose, line = last_line(reversed([*traceback.walk_stack(sys._getframe(1))]), self.name)
            self.changes[f"{'' if whose == self.name else 'in ' + whose + ', '}write device={BESIDE[whose]}.device into {line}"] = True
        return made


def last_line(frames, name):
    """The last line of these frames, the innermost last, that is not torch's own; and whose it is, of the functions that have a say."""
    own = [(frame.f_code, line) for frame, line in frames if not frame.f_globals.get("__name__", "").startswith("torch")]
    whose = [code.co_name for code, _ in own if code.co_name in BESIDE]
    return (whose or [name])[-1], f"`{linecache.getline(own[-1][0].co_filename, own[-1][1]).strip()}`"


def flattened(values):
    """What lies in lists, tuples and dicts."""
    for value in values:
        yield from flattened(value.values() if isinstance(value, dict) else value) if isinstance(value, (list, tuple, dict)) else [value]


def as_it_is(result):
    return result


def elsewhere(name, arguments, read=as_it_is):
    """What keeps the function of this name from working on the run's device; "" if nothing does.

    arguments: device -> arguments there. read: takes from the result what matters.
    """
    device, made, stopped = run["device"], Factories(name), ""
    there = arguments(device)
    try:
        with made:
            result = read(globals()[name](*there))
        away = any(torch.is_tensor(x) and x.device.type != device for x in flattened([result]))
        stopped = f"its result lies on the CPU: give it .to({BESIDE[name]}.device)" if away else ""
    except NotImplementedError:
        return "is not written yet"
    except Exception as error:
        stopped = f"it stops at {last_line(traceback.walk_tb(error.__traceback__), name)[1]} with {type(error).__name__}: {error}"
    stopped = stopped and (" and ".join(made.changes) or stopped)
    return stopped and f"works on the CPU alone, and this run is on {device}: {stopped}"


def fits(name, arguments, read=as_it_is):
    """Says whether a function of this notebook works on the run's device too, where that is no CPU; its checks looked at it there."""
    if run["device"] != "cpu":
        print(f"{name:17} {elsewhere(name, arguments, read) or 'works on ' + run['device']}")

# %% show on_arrival
def arrives(name, question, arguments, expected, read=as_it_is):
    """Says whether a function that was brought along does what it did before, on the CPU and, if it works on tensors of the run, there."""
    try:
        mine = torch.as_tensor(read(globals()[name](*arguments("cpu"))), dtype=torch.float32)
        if mine.shape != torch.tensor(expected).shape or not torch.allclose(mine, torch.tensor(expected), atol=1e-3):
            word = f"is not right yet: for {question} it gives {np.round(mine.tolist(), 4).tolist()}, expected {expected}"
        else:
            word = name in BESIDE and run["device"] != "cpu" and elsewhere(name, arguments, read) or "is right"
    except NotImplementedError:
        word = "is not here yet: paste yours into its cell above"
    except Exception as error:
        word = f"stops with {type(error).__name__}: {error}. If it is a missing name, paste that function too"
    print(f"{name:17} {word}")


def small_batch(device):
    lp = torch.tensor([[-1.0, -2.0, -0.5], [-0.7, -1.1, 0.0]])
    old = torch.tensor([[-1.4, -1.9, -0.5], [-0.7, -0.8, 0.0]])
    ref = torch.tensor([[-1.0, -1.5, -1.0], [-0.2, -1.1, 0.0]])
    return *(x.to(device) for x in (lp, old, ref, torch.tensor([1.0, -1.0]), torch.tensor([[1, 1, 1], [1, 1, 0]]))), 0.2, 0.5


def four_numbers(result):
    return [float(result[0]), *(float(result[1][k]) for k in ("policy_loss", "kl", "clip_fraction"))]


arrives("group_advantages", "rewards 2, 2, 2, 1 of one group and 3 of another", lambda device: (torch.tensor([2.0, 2, 3, 2, 1], device=device), torch.tensor([7, 7, -1, 7, 7], device=device)), [0.5774, 0.5774, 0.0, 0.5774, -1.7321])
arrives("grpo_objective", "a small batch (loss, policy_loss, kl, clip_fraction)", small_batch, [-0.0276, -0.261, 0.0808, 0.4], four_numbers)
arrives("gae_advantages", "rewards 0, 0, 1 and values .5, .5, .5, 0", lambda device: (torch.tensor([0.0, 0, 1]), torch.tensor([0.5, 0.5, 0.5, 0])), [0.4326, 0.4653, 0.5])
arrives("adapt_beta", "beta .04, kl .2, target .1", lambda device: (0.04, 0.2, 0.1), 0.04 * math.exp(0.1))
fits("token_log_probs", lambda device: (torch.zeros(2, 3, 4, device=device), torch.zeros(2, 3, dtype=torch.int64, device=device)))
fits("response_mask", lambda device: (WRITTEN.to(device), EOS))
fits("collect", lambda device: (tiny_policy(0, PROMPT + ROOM).to(device), VERDICT[:2].to(device), 2, lambda texts, answers: [1.0] * len(texts), 1.0, torch.Generator(device)))

# %% [markdown]
# ## The update
#
# ### Exercise: `grpo_step` (7 points, 35 minutes, ●●●)
#
# Everything meets here. One batch of answers comes in, the policy moves a few times, and the numbers to watch come out.
#
# | in | type | meaning |
# |---|---|---|
# | `policy`, `reference` | models | the one that learns; the one that it must not run away from (frozen) |
# | `optimizer` | `torch.optim` | holds the policy's parameters |
# | `batch` | dict | what `collect` gave, its answers in any order |
# | `inner_epochs`, `clip_range`, `beta` | numbers | updates per batch, and the two limits |
#
# Changes the policy and returns the metrics that `grpo_objective` gave in the **last** inner epoch. The checks look at each step by itself:
#
# 1. `group_advantages` gets the rewards of the whole batch, before anything is split.
# 2. Log-probabilities of the answers' tokens: `response_logits(model, tokens, prompt_length)`, then your `token_log_probs`. The logits at one place
#    chose the *next* token; `response_logits` has done this shift by one.
# 3. Those of the reference, and the *old* ones of the policy: once, without gradient, before the first update.
# 4. In each inner epoch: the policy's log-probabilities anew, and `grpo_objective` with the default aggregation.
# 5. Then the update: gradients to zero, backward, the norm of the gradient clipped at 1 (`nn.utils.clip_grad_norm_`), one step of the optimizer.
#
# Whatever stands in `.grad` when the batch comes has no say in it, and the batch is as it was afterwards.
#
# **A question first.** In the first inner epoch the ratio is exactly 1 everywhere. So is anything learnt in it?
# (Notebook 2 knows.) And what do the old log-probabilities do in the second?
#
# If memory is short you may split the answers into micro-batches, as long as the sum of their gradients is the gradient of the
# whole batch: weigh each part by its share of answers.
#
# <details data-checks="advantages_of_the_whole_batch"><summary>A hint</summary>
#
# Advantages come back in the order of the rewards. One call, with the rewards and ids as they are in the batch, is all it takes.
#
# </details>
#
# <details data-checks="what_the_objective_gets"><summary>A hint</summary>
#
# Write a small function that gives a model's log-probabilities of the answers' tokens, and call it for policy and reference. The answers begin at `prompt_length` in
# `tokens`, and nothing needs to be cut from what `response_logits` gives.
#
# </details>
#
# <details data-checks="old_stays_old"><summary>A hint</summary>
#
# Old log-probabilities that are computed again after an update are new ones: the ratio is 1 for ever and nothing is ever clipped. If they are not cut from the
# graph, the gradient of the ratio cancels.
#
# </details>
#
# <details data-checks="one_update next_batch norm_of_one"><summary>A hint</summary>
#
# Gradients add up until somebody sets them to zero. The order decides: zero, backward, clip the norm, step.
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


def tiny_batch(seed, prompt_length=5, room=4):
    """Ten answers to three prompts, mixed up, of different lengths; after their ends stand tokens that must not count."""
    draw = torch.Generator().manual_seed(seed)
    group_ids = torch.tensor([4, -2, 4, 9, -2, 4, 9, 9, 4, -2])
    prompts = {g: torch.randint(10, (prompt_length,), generator=draw) for g in (4, -2, 9)}
    different = 0
    while different < 10:  # two answers to a prompt that are the same could not be told apart
        answers = torch.randint(PAD, (10, room), generator=draw)
        lengths = torch.randint(1, room + 1, (10,), generator=draw)
        mask = torch.arange(room) < lengths[:, None]
        different = len(torch.cat([group_ids[:, None], answers.where(mask, PAD)], 1).unique(dim=0))
    rewards = torch.tensor([1.0, 0.0, 0.0, 2.0, 1.0, 0.5, 0.0, 1.0, 0.0, 0.0])
    return {
        "tokens": torch.cat([torch.stack([prompts[g] for g in group_ids.tolist()]), answers], 1),
        "prompt_length": prompt_length,
        "mask": mask,
        "rewards": rewards,
        "group_ids": group_ids,
    }


def tiny_log_probs(seed, batch, change=0.0):
    """The log-probs of the answers' tokens under a tiny policy whose parameters have changed by so much."""
    policy, start = tiny_policy(seed), batch["prompt_length"]
    nn.utils.vector_to_parameters(flat(policy) + change, policy.parameters())
    return policy(batch["tokens"])[:, start - 1 : -1].log_softmax(-1).gather(-1, batch["tokens"][:, start:, None])[..., 0].detach()


ROWS = ("log_probs_new", "log_probs_old", "ref_log_probs", "advantages", "mask")  # what grpo_objective gets for each answer


def reached_objective(told, update, expected, mask, by="log_probs_new"):
    """What reached grpo_objective between two updates, micro-batches put together in the order of the batch.

    expected: what `by` should be [N, T]; answers are recognised by it. Calls without a gradient (for metrics) are left out, where others are left.
    """
    calls = [call for call in told["objective"] if call["updates"] == update]
    calls = [call for call in calls if "log_probs_new" in call["needs gradient"]] or calls
    assert calls, f"grpo_objective was not called {'before the first update' if not update else 'after update ' + str(update)}"
    whole = {name: torch.cat([call[name] for call in calls]) for name in ROWS}
    count = len(whole["advantages"])
    assert count == len(mask), f"{count} answers reached grpo_objective in an inner epoch, expected all {len(mask)}"
    for name in {by, "mask"}:
        assert whole[name].shape == mask.shape, f"{name} of shape {list(whole[name].shape)} reached grpo_objective, expected {list(mask.shape)}: one for each token of the answers, with none cut off"
    far = torch.cdist(torch.where(mask, expected, 0.0), torch.where(whole["mask"].bool(), whole[by], 0.0))
    order = far.argmin(1)
    if len(set(order.tolist())) == count and (far.amin(1) < 1e-3).all():
        whole = {name: value[order] for name, value in whole.items()}
    return whole | {name: calls[0][name] for name in ("clip_range", "beta", "aggregate")}


def handed_on(told):
    """Looks whether the metrics that came back are those that grpo_objective gave, where it was called once for the last update."""
    calls = [call for call in told["objective"] if call["updates"] == told["updates"] - 1]
    kl = told["metrics"][-1].get("kl", math.nan)
    assert told["metrics"][-1], "grpo_step returned no metrics: expected the dict that grpo_objective gave in the last inner epoch. Is a return missing, or is it the loss that comes back?"
    assert math.isfinite(kl), "the metrics that grpo_step returned have no entry 'kl', or one that is not finite"
    assert len(calls) != 1 or abs(kl - calls[0]["kl"]) < 1e-5, f"grpo_step returned metrics with a kl of {kl:.4f}; grpo_objective gave {calls[0]['kl']:.4f} in the last inner epoch"
    assert not told["overwritten"], f"changed on the way: batch[{told['overwritten'][0]!r}]. Whoever made the batch may still read it"

# %% scenario tiny_training
def tiny_training(batches, seed=0, lr=0.1, inner_epochs=1, clip_range=0.2, beta=0.2, left_over=None, away=1.0, simple=None):
    """A few calls of grpo_step on a tiny policy: what each changed in its parameters, the metrics it gave, what it called with what.

    left_over: a number that stands everywhere in the gradients before the first call.
    away: what the reference's logits are multiplied by; 30 puts it more than 10 nats per token away.
    simple: in the place of grpo_objective stands a loss that needs nothing but the new log-probs, minus `simple` times their mean.
    """
    global group_advantages, grpo_objective
    policy, reference = tiny_policy(seed), tiny_policy(seed + 1).requires_grad_(False)
    reference.head.weight.data *= away
    optimizer, before = torch.optim.SGD(policy.parameters(), lr), flat(reference)
    for p in policy.parameters():
        p.grad = None if left_over is None else torch.full_like(p, left_over)
    told, came, brought = {"changes": [], "metrics": [], "advantages": [], "objective": [], "updates": 0}, copy.deepcopy(batches), (group_advantages, grpo_objective)

    def data(value):
        return value.detach().clone() if torch.is_tensor(value) else value

    def count(*_):
        told["updates"] += 1

    def recorded_advantages(*args, **kwargs):
        called = dict(zip(("rewards", "group_ids"), args)) | kwargs
        told["advantages"].append([data(called[name]) for name in ("rewards", "group_ids")])
        return brought[0](*args, **kwargs)

    def recorded_objective(*args, **kwargs):
        called = {"clip_range": 0.2, "beta": 0.04, "aggregate": "sequence"} | dict(zip((*ROWS, "clip_range", "beta", "aggregate"), args)) | kwargs
        gradients = [name for name in ROWS if torch.is_tensor(called[name]) and called[name].requires_grad]
        if simple is None:
            loss, metrics = brought[1](*args, **kwargs)
        else:
            new = called["log_probs_new"]
            loss, metrics = -simple * new.mean(), {"policy_loss": -new.detach().mean(), "kl": new.detach().square().mean(), "clip_fraction": 0.0}
        told["objective"].append({name: data(value) for name, value in called.items()} | {"updates": told["updates"], "needs gradient": gradients, "kl": float(metrics["kl"])})
        return loss, metrics

    optimizer.register_step_post_hook(count)
    try:
        group_advantages, grpo_objective = recorded_advantages, recorded_objective
        for batch in batches:
            start = flat(policy)
            metrics = grpo_step(policy, reference, optimizer, batch, inner_epochs=inner_epochs, clip_range=clip_range, beta=beta)
            told["changes"].append(flat(policy) - start)
            told["metrics"].append({k: float(v) for k, v in metrics.items()} if isinstance(metrics, dict) else {})
    finally:
        group_advantages, grpo_objective = brought
    told["reference_moved"] = float((flat(reference) - before).abs().max())
    told["overwritten"] = [k for a, b in zip(batches, came) for k in b if not torch.equal(torch.as_tensor(a[k]), torch.as_tensor(b[k]))]
    return told

# %% check advantages_of_the_whole_batch points=1
# Step 1: the advantages come from the whole batch, and each reaches the objective with its own answer.
batch, policy = tiny_batch(1), tiny_policy(0)
batch["rewards"][batch["group_ids"] == 9] = 1.0  # one group of three without a signal: it stays in the batch
right, answers = group_advantages(batch["rewards"], batch["group_ids"]), batch["tokens"][:, 5:, None]
policys = policy(batch["tokens"])[:, 4:-1].log_softmax(-1).gather(-1, answers)[..., 0].detach()
told = tiny_training([copy.deepcopy(batch)])
got = told["advantages"]
assert got, "grpo_step never called group_advantages, which you brought along"
for rewards, ids in got:
    assert len(rewards) == 10, f"the rewards of {len(rewards)} answers reached group_advantages at a time; expected all 10 of the batch, before anything is split"
    pairs, expected = (sorted(zip(b.tolist(), a.tolist())) for a, b in ((rewards, ids), (batch["rewards"], batch["group_ids"])))
    assert pairs == expected, f"rewards {rewards.tolist()} with ids {ids.tolist()} reached group_advantages; expected {batch['rewards'].tolist()} with {batch['group_ids'].tolist()}"
got = [list(call[name].shape) for call in told["objective"] for name in ROWS]
reached = reached_objective(told, 0, policys, batch["mask"])
got = reached["advantages"]
assert got.shape == (10,), f"advantages of shape {list(got.shape)} reached grpo_objective, expected [10]"
for i, (mine, a) in enumerate(zip(got.tolist(), right.tolist())):
    assert abs(mine - a) < 1e-4, f"the advantage of answer {i} reached grpo_objective as {mine:.4f}; group_advantages gives {a:.4f} for it"
got = told["metrics"]
handed_on(told)
### BEGIN HIDDEN TESTS
for k, p, room in ((80, 3, 5), (81, 8, 3)):
    batch, policy = tiny_batch(SEED + k, p, room), tiny_policy(drawn(SEED + k))
    policys = policy(batch["tokens"])[:, p - 1 : -1].log_softmax(-1).gather(-1, batch["tokens"][:, p:, None])[..., 0].detach()
    told = tiny_training([batch], seed=drawn(SEED + k))
    assert told["advantages"] and all(len(rewards) == 10 for rewards, _ in told["advantages"])
    rewards, ids = batch["rewards"].tolist(), batch["group_ids"].tolist()
    for a, reward, mine in zip(reached_objective(told, 0, policys, batch["mask"])["advantages"].tolist(), rewards, ids):
        group = [r for r, g in zip(rewards, ids) if g == mine]
        mean = sum(group) / len(group)
        std = (sum((r - mean) ** 2 for r in group) / len(group)) ** 0.5
        assert abs(a - (reward - mean) / max(std, 1e-6)) < 1e-3
    handed_on(told)
### END HIDDEN TESTS

# %% check what_the_objective_gets points=1
# Steps 2 and 4: the log-probs of the answers' own tokens reach the objective, with mask, clip range and beta.
batch, models = tiny_batch(2), {"policy": tiny_policy(0), "reference": tiny_policy(1)}
known = {name: m(batch["tokens"])[:, 4:-1].log_softmax(-1).gather(-1, batch["tokens"][:, 5:, None])[..., 0].detach() for name, m in models.items()}
told = tiny_training([copy.deepcopy(batch)], clip_range=0.15, beta=0.3)
reached = reached_objective(told, 0, known["policy"], batch["mask"])
got = [reached[name] for name in ROWS] + [reached["clip_range"], reached["beta"]]
assert torch.equal(reached["mask"].bool(), batch["mask"]), f"the mask that reached grpo_objective counts {reached['mask'].long().sum(1).tolist()} tokens of the ten answers, expected {batch['mask'].sum(1).tolist()}, as in the batch"
for name, whose in (("log_probs_new", "policy"), ("log_probs_old", "policy"), ("ref_log_probs", "reference")):
    mine, right = reached[name], known[whose]
    assert mine.shape == right.shape, f"{name} of shape {list(mine.shape)} reached grpo_objective, expected {list(right.shape)}: one for each token of the answers"
    same = {w: torch.allclose(mine[batch["mask"]], known[w][batch["mask"]], atol=1e-4) for w in known}
    other = next((w for w in same if same[w]), None)
    assert other in (None, whose), f"{name} that reached grpo_objective are those of the {other}, expected those of the {whose}"
    first = [[round(x, 3) for x in t[0].tolist()] for t in (mine, right)]
    assert same[whose], f"{name} of answer 0 reached grpo_objective as {first[0]}, expected {first[1]} (at a temperature of 1). Does each token meet the logits that chose it? The shift by one is done already"
assert reached["clip_range"] == 0.15, f"grpo_step was called with a clip_range of 0.15; grpo_objective got {reached['clip_range']}"
assert reached["beta"] == 0.3, f"grpo_step was called with a beta of 0.3; grpo_objective got {reached['beta']}"
assert reached["aggregate"] == "sequence", f"grpo_objective was asked for the aggregation {reached['aggregate']!r}, expected its default, 'sequence'"
got = told["metrics"]
handed_on(told)
### BEGIN HIDDEN TESTS
for k, p, room in ((90, 3, 5), (91, 8, 3)):
    batch, models = tiny_batch(SEED + k, p, room), (tiny_policy(drawn(SEED + k)), tiny_policy(drawn(SEED + k) + 1))
    policys, references = (torch.zeros(10, room) for _ in models)
    for model, into in zip(models, (policys, references)):
        for i in range(10):
            logits = model(batch["tokens"][i : i + 1])[0].detach()
            for t in range(room):
                into[i, t] = (logits[p + t - 1] - logits[p + t - 1].logsumexp(0))[batch["tokens"][i, p + t]]
    told = tiny_training([batch], seed=drawn(SEED + k), clip_range=0.07, beta=0.11)
    reached = reached_objective(told, 0, policys, batch["mask"])
    assert torch.equal(reached["mask"].bool(), batch["mask"]) and (reached["clip_range"], reached["beta"], reached["aggregate"]) == (0.07, 0.11, "sequence")
    for name, right in (("log_probs_new", policys), ("log_probs_old", policys), ("ref_log_probs", references)):
        assert torch.allclose(reached[name][batch["mask"]], right[batch["mask"]], atol=1e-3)
    handed_on(told)
### END HIDDEN TESTS

# %% check old_stays_old points=1
# Step 3: over several inner epochs the old log-probs stay the old ones, and the new ones do not.
told = tiny_training([tiny_batch(1)], inner_epochs=4, lr=1.0, clip_range=0.1, beta=0.05)
got = [told["updates"], *([call[name] for call in told["objective"] for name in ("log_probs_old", "log_probs_new")])]
assert told["updates"] == 4, f"in four inner epochs the number of steps that the optimizer took is {told['updates']}, expected 4"
for call in told["objective"]:
    assert "log_probs_old" not in call["needs gradient"], "log_probs_old carry a gradient: they are constants, cut from the graph"
    assert "ref_log_probs" not in call["needs gradient"], "ref_log_probs carry a gradient: they are constants"
for k in range(4):
    calls = [call for call in told["objective"] if call["updates"] == k]
    assert calls, f"grpo_objective was not called in inner epoch {k + 1}: each looks at the policy as it is then"
    old, new = (torch.cat([call[name] for call in calls])[:10].sort(0).values for name in ("log_probs_old", "log_probs_new"))  # in any order of answers
    if k:
        assert not torch.equal(new, last), f"log_probs_new of inner epoch {k + 1} are those of the epoch before. Did the update move the policy, and was it asked again?"
        assert torch.allclose(old, constant), f"log_probs_old have a mean of {old.mean():.4f} in inner epoch {k + 1} and of {constant.mean():.4f} in the first: they are those from before the first update, computed once"
    last, constant = new, constant if k else old
got = told["metrics"]
handed_on(told)
batch = tiny_batch(1)
once = tiny_training([batch], lr=1.0, clip_range=0.1, beta=0.05)["changes"][0]
twice = tiny_training([batch], inner_epochs=2, lr=1.0, clip_range=0.1, beta=0.05)
for update, name in ((0, "log_probs_old"), (0, "log_probs_new"), (1, "log_probs_new")):
    right = tiny_log_probs(0, batch, once if update else 0.0)
    got = reached_objective(twice, update, right, batch["mask"])[name]
    first = [[round(x, 3) for x in t[0].tolist()] for t in (got, right)]
    assert got.shape == right.shape and torch.allclose(got[batch["mask"]], right[batch["mask"]], atol=1e-4), f"{name} of answer 0 in inner epoch {update + 1} are {first[0]}; those of the policy {'as it is then' if update else 'before the first update'} are {first[1]}. If the check before this one fails too, begin there"
told = tiny_training([tiny_batch(1)], inner_epochs=3, lr=1e-3, away=30.0)
got = told["changes"]
assert told["updates"] == 3, f"with a reference far away the number of updates in three inner epochs is {told['updates']}, expected 3: every inner epoch makes its step, however large the KL"
### BEGIN HIDDEN TESTS
for k, p, room in ((30, 5, 4), (31, 3, 5)):
    batch = tiny_batch(SEED + k, p, room)
    told = tiny_training([batch], drawn(SEED + k), 1.0, 3, 0.2, 0.02)
    assert told["updates"] == 3
    assert not any({"log_probs_old", "ref_log_probs"} & set(call["needs gradient"]) for call in told["objective"])
    seen = [{name: torch.cat([call[name] for call in told["objective"] if call["updates"] == update])[:10].sort(0).values for name in ROWS[:3]} for update in range(3)]
    for name, constant in zip(ROWS, (False, True, True)):
        assert torch.allclose(seen[0][name], seen[1][name]) == torch.allclose(seen[1][name], seen[2][name]) == constant
    handed_on(told)
    moved = [0.0] + [tiny_training([batch], drawn(SEED + k), 1.0, n, 0.2, 0.02)["changes"][0] for n in (1, 2)]
    for update, by in enumerate(moved):  # where the policy stood then, by what fewer inner epochs have changed
        right = tiny_log_probs(drawn(SEED + k), batch, by)
        reached = reached_objective(told, update, right, batch["mask"])
        start = tiny_log_probs(drawn(SEED + k), batch)
        assert torch.allclose(reached["log_probs_new"][batch["mask"]], right[batch["mask"]], atol=1e-3)
        assert torch.allclose(reached["log_probs_old"][batch["mask"]], start[batch["mask"]], atol=1e-3)
        assert not update or (right - start).abs().max() > 1e-2
    far = [tiny_training([batch], drawn(SEED + k), 1e-3, n, away=30.0) for n in (1, 4)]
    assert [told["updates"] for told in far] == [1, 4]
    handed_on(far[0])
### END HIDDEN TESTS

# %% check one_update points=1
# Step 5: one update moves the policy the right way, and by the right amount.
batch = tiny_batch(1) | {"mask": torch.ones(10, 4)}  # here and in the next two checks the loss is a simple one: minus the mean log-prob
told = tiny_training([batch], simple=0.5)
got = told["changes"]
change, right = got[0], torch.tensor([-0.00129, -0.0016, 0.00465])  # three parameters of the head
three = change[-144:-141]
assert change.norm() > 0, "the policy did not move at all. Does a gradient reach its parameters, and does the optimizer take its step?"
assert told["reference_moved"] == 0, "the reference moved; only the policy learns"
assert not torch.allclose(three, -right, atol=2e-5), "the policy moved by the right amount, the wrong way: up the loss. Is there a minus too many?"
assert abs(change.norm() - 0.0298) < 2e-4, f"the policy moved by {change.norm():.4f} in all, expected 0.0298. Is there one step, of the gradient of the loss as it came, over all answers?"
assert torch.allclose(three, right, atol=2e-5), f"three parameters of the head moved by {[round(x, 5) for x in three.tolist()]}, expected {[round(x, 5) for x in right.tolist()]}"
many = {k: torch.cat([v] * 26) if torch.is_tensor(v) else v for k, v in batch.items()}  # every answer 26 times
many = tiny_training([many], simple=0.5)
got = many["changes"]
off = (got[0] - change).norm()
assert off < 2e-4, f"with 26 copies of every answer, 260 in all, the update should stay what it was; it is off by {off:.4f}. If you split the batch, how much does each part weigh?"
got = told["metrics"]
handed_on(told)
### BEGIN HIDDEN TESTS
def by_hand(batch, model, scale):
    """The update at a learning rate of 1 for a loss of minus `scale` times the mean log-prob, answer by answer."""
    loss, p = 0.0, batch["prompt_length"]
    for text in batch["tokens"]:
        logs = model(text[None])[0].log_softmax(-1)
        loss = loss - scale * sum(logs[t - 1, text[t]] for t in range(p, len(text))) / (len(text) - p) / len(batch["tokens"])
    gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])
    return -gradient / max(1.0, gradient.norm().item()), loss.item() / scale


for k, p, room in ((10, 3, 5), (11, 8, 3)):
    batch = tiny_batch(SEED + k, p, room) | {"mask": torch.ones(10, room)}
    right, _ = by_hand(batch, tiny_policy(drawn(SEED + k)), 0.4)
    many = {name: torch.cat([x] * 26) if torch.is_tensor(x) else x for name, x in batch.items()}
    for told in (tiny_training([b], seed=drawn(SEED + k), lr=0.3, simple=0.4) for b in (batch, many)):
        assert (told["changes"][0] - 0.3 * right).norm() < 2e-3 * 0.3 * right.norm()
        assert told["reference_moved"] == 0
        handed_on(told)
### END HIDDEN TESTS

# %% check next_batch points=1
# Step 5: every update starts from clean gradients.
batches = [tiny_batch(k) | {"mask": torch.ones(10, 4)} for k in (1, 2)]
told = tiny_training(batches, left_over=1.0, simple=0.5)  # as if somebody had called backward before
got = told["changes"]
sizes = [change.norm().item() for change in got]
assert abs(sizes[0] - 0.0298) < 3e-4, f"with something left in the gradients from before, the first batch moved the policy by {sizes[0]:.4f}, expected 0.0298. If the check before passes: when are they set to zero?"
assert abs(sizes[1] - 0.0327) < 3e-4, f"the second batch moved the policy by {sizes[1]:.4f}, expected 0.0327. If the check before passes: are the gradients of the first still there?"
told = tiny_training(batches[:1], inner_epochs=2, simple=0.5)
got = told["changes"]
assert abs(got[0].norm() - 0.0592) < 3e-4, f"in two inner epochs one batch moved the policy by {got[0].norm():.4f}, expected 0.0592. {'That is one update' if abs(got[0].norm() - 0.0298) < 3e-4 else 'If the check before passes: are the gradients of the first epoch still there in the second?'}"
got = told["metrics"]
handed_on(told)
### BEGIN HIDDEN TESTS
def by_hand(batch, model, scale):
    """The update at a learning rate of 1 for a loss of minus `scale` times the mean log-prob, answer by answer."""
    loss, p = 0.0, batch["prompt_length"]
    for text in batch["tokens"]:
        logs = model(text[None])[0].log_softmax(-1)
        loss = loss - scale * sum(logs[t - 1, text[t]] for t in range(p, len(text))) / (len(text) - p) / len(batch["tokens"])
    gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])
    return -gradient / max(1.0, gradient.norm().item()), loss.item() / scale


seed = drawn(SEED + 20)
batches = [tiny_batch(SEED + k) | {"mask": torch.ones(10, 4)} for k in (20, 21, 20)]
told = tiny_training(batches, seed=seed, lr=3e-4, left_over=0.5, simple=0.4)  # so slow that the policy stays where it is
assert len(told["changes"]) == len(told["metrics"]) == 3
for batch, change, metrics in zip(batches, told["changes"], told["metrics"]):
    right, mean = by_hand(batch, tiny_policy(seed), 0.4)
    assert min((change / 3e-4 - way * right).norm() for way in (1, -1)) < 0.03 * right.norm()  # which way is another check's
    assert abs(metrics["policy_loss"] - mean) < 5e-3 * mean
told = tiny_training(batches[:1], seed=seed, lr=3e-4, inner_epochs=3, simple=0.4)
assert abs(told["changes"][0].norm() / 3e-4 - 3 * by_hand(batches[0], tiny_policy(seed), 0.4)[0].norm()) < 0.03 * right.norm()
### END HIDDEN TESTS

# %% check norm_of_one points=1
# Step 5: a gradient that is too long is cut to a norm of 1, as a whole.
told = tiny_training([tiny_batch(4) | {"mask": torch.ones(10, 4)}], simple=50.0)
got = told["changes"]
size, three, right = got[0].norm(), got[0][-144:-141], torch.tensor([-0.00533, 0.01179, -0.00325])
assert abs(size - 0.1) < 1e-4, f"with a learning rate of .1 and a huge gradient the policy moved by {size:.4f}, expected 0.1. At which norm is the gradient of all parameters together clipped, and when?"
assert torch.allclose(three, right, atol=2e-5), f"three parameters of the head moved by {[round(x, 5) for x in three.tolist()]}, expected {[round(x, 5) for x in right.tolist()]}. If the checks before pass: does the direction of the gradient stay as it is?"
got = told["metrics"]
handed_on(told)
### BEGIN HIDDEN TESTS
def by_hand(batch, model, scale):
    """The update at a learning rate of 1 for a loss of minus `scale` times the mean log-prob, answer by answer."""
    loss, p = 0.0, batch["prompt_length"]
    for text in batch["tokens"]:
        logs = model(text[None])[0].log_softmax(-1)
        loss = loss - scale * sum(logs[t - 1, text[t]] for t in range(p, len(text))) / (len(text) - p) / len(batch["tokens"])
    gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])
    return -gradient / max(1.0, gradient.norm().item()), loss.item() / scale


for lr in (0.1, 0.02):
    batch = tiny_batch(SEED + 50) | {"mask": torch.ones(10, 4)}
    right, mean = by_hand(batch, tiny_policy(drawn(SEED + 50)), 40.0)
    told = tiny_training([batch], seed=drawn(SEED + 50), lr=lr, simple=40.0)
    assert abs(told["changes"][0].norm() - lr) < 1e-3 * lr
    assert (told["changes"][0] - lr * right).norm() < 2e-3 * lr
    assert abs(told["metrics"][0]["policy_loss"] - mean) < 1e-3 * mean
### END HIDDEN TESTS

# %% check last_metrics points=1
# All together: three inner epochs with the whole objective, and the metrics of the last.
told = tiny_training([tiny_batch(5)], inner_epochs=3, lr=1.0, beta=0.05)
metrics, change = told["metrics"][0], told["changes"][0]
assert {"policy_loss", "kl", "clip_fraction"} <= set(metrics), f"metrics has the entries {sorted(metrics)}; expected those of grpo_objective: policy_loss, kl, clip_fraction"
got = [metrics[k] for k in ("policy_loss", "kl", "clip_fraction")]
off = [k for k, mine, right in zip(("policy_loss", "kl", "clip_fraction"), got, [-0.0806, 0.376, 0.6667]) if abs(mine - right) > 1e-3]
assert not off, f"after three inner epochs metrics[{off[0]!r}] is {metrics[off[0]]:.4f}, expected {dict(policy_loss=-0.0806, kl=0.376, clip_fraction=0.6667)[off[0]]}. If the other checks pass: of which inner epoch is it?"
got = change
assert abs(change.norm() - 0.8214) < 2e-3, f"in three inner epochs the policy moved by {change.norm():.4f}, expected 0.8214"
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
# All parts are here: a step of the run draws prompts, calls your `collect`, and hands the batch to your `grpo_step`. That is the loop of `train` below, and there
# is nothing more to RL. What it writes into the diary is computed beside it. Three entries deserve a word:
#
# - **Two accuracies.** *Sampled* is what the policy does at temperature 1, in training: smooth. *Greedy* is the single most likely
#   answer on prompts it never trained on: a step, because at some point the most likely first token flips.
# - **An independent judge.** `solved` shares nothing with your `math_reward`. The reward is what the policy is paid; the judge is what you believe.
# - **Entropy.** How undecided the policy is about its next token: 0 where one token is certain, largest where all are equally likely.
#
# First the machinery (given): plots, a bar of progress, the stop button, a look at the rewards.

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
    names = {"greedy": "greedy answers", "sampled": "sampled answers", "thinks": "that think", "format": "in the format"}
    pictures = [
        ("accuracy", ("greedy", "sampled")), ("reward, mean of the batch", ("reward",)), ("share of answers", ("thinks", "format")), ("share of dead groups", ("dead",)),
        ("KL (nats per token)", ("kl",)), ("share of clipped tokens", ("clip_fraction",)), ("entropy (nats per token)", ("entropy",)), ("length (tokens)", ("length",)),
    ]
    for ax, (title, keys) in zip(axes.flat, pictures):
        ax.clear()
        for key, color, style in zip(keys, (BLUE, ORANGE), ("-", "--")):  # told apart where they coincide
            ax.plot(*series(history, key), style, color=color, label=names.get(key))
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


def checked(batch):
    """The batch, if its rewards are one finite number per answer."""
    rewards, count = batch["rewards"], len(batch["tokens"])
    if rewards.shape != (count,):
        raise ValueError(f"The rewards have shape {list(rewards.shape)} for {count} answers; a reward must give one number per answer.")
    if not rewards.isfinite().all():
        raise ValueError(f"The reward of answer {int((~rewards.isfinite()).nonzero()[0])} is {rewards[~rewards.isfinite()][0].item()}; a NaN or inf would reach every parameter with the next update.")
    return batch


@contextlib.contextmanager
def stoppable(history, steps):
    """Keeps the diary when a run is stopped by hand."""
    try:
        with memory_of_gpu():
            yield
    except KeyboardInterrupt:
        print(f"Stopped by hand after {len(history)} of {steps} steps; the diary up to here is kept.")


def adamw(policy, lr):
    """An optimizer for the policy, and what sets its learning rate: up over 5 steps, then down to a tenth."""
    optimizer = torch.optim.AdamW(policy.parameters(), lr, betas=(0.9, 0.95), weight_decay=0.0, foreach=True)

    def set_rate(step, steps):
        for group in optimizer.param_groups:
            group["lr"] = lr * min(step / 5, 1 - 0.9 * max(0, step - 6) / max(1, steps - 5))

    return optimizer, set_rate

# %% show the_loop
def accuracy(texts, answers):
    """What the run pays for: a right answer, and nothing else."""
    return [math_reward(text, answer)["accuracy"] for text, answer in zip(texts, answers)]


def train(policy, title="run", steps=run["experiment_steps"], reward=accuracy, update=grpo_step, tamper=None, lr=5e-4, prompts=run["prompts"], answers=run["answers"], inner_epochs=2, clip_range=0.2, beta=0.04, target_kl=None, seed=run["seed"], stop=None, plot=False):
    """GRPO on the task; changes the policy and returns the diary, a dict for each step.

    update: the training step. tamper: changes the batch before the update, for experiments. target_kl: beta follows it.
    seed: of the prompts and the answers. stop: is asked after each step whether this diary is long enough; without it a run
    that is stopped by hand keeps its diary.
    """
    device = next(policy.parameters()).device
    reference = copy.deepcopy(policy).requires_grad_(False)  # stays what the policy is now
    optimizer, set_rate = adamw(policy, lr)
    choose, draw = torch.Generator().manual_seed(seed), torch.Generator(device).manual_seed(seed)
    history, live = [], Live(title, steps, plot)
    with memory_of_gpu() if stop else stoppable(history, steps):
        for step in range(1, steps + 1):
            set_rate(step, steps)
            began = clock()
            questions = TRAIN[torch.randint(len(TRAIN), (prompts,), generator=choose)].to(device)
            batch = checked(collect(policy, questions, answers, reward, draw=draw))
            metrics = update(policy, reference, optimizer, tamper(dict(batch)) if tamper else batch, inner_epochs=inner_epochs, clip_range=clip_range, beta=beta)
            row = {"step": step, "seconds": clock() - began, "beta": beta, "updates": inner_epochs, "answers": answers}
            history.append(row | observed(policy, batch, metrics, now=stop is not None or step % 5 == 0 or step in (1, steps)))
            if target_kl:
                beta = adapt_beta(beta, history[-1]["kl"], target_kl, rate=0.3)
            if "greedy" in history[-1]:
                live.show(history)
            if stop and stop(history):
                break
    return history


def observed(policy, batch, metrics, now):
    """What the diary says of a step. now: whether also what costs time is looked at."""
    if not isinstance(metrics, dict):
        raise TypeError(f"The training step gave back {type(metrics).__name__}, not the metrics of grpo_objective. Is a return missing?")
    tokens, mask, rewards, ids = (batch[name] for name in ("tokens", "mask", "rewards", "group_ids"))
    rewards, ids = rewards.cpu(), ids.cpu()  # looked at group by group, and a GPU would wait for each look
    written = tokens[:, batch["prompt_length"] :]
    texts, count = decode(written), len(tokens)
    groups = [rewards[ids == i] for i in ids.unique()]
    row = {name: float(value) for name, value in metrics.items()} | {
        "reward": rewards.mean().item(),
        "sampled": solved(tokens).float().mean().item(),
        "thinks": (written[:, 0] == THINK).float().mean().item(),
        "format": sum(math_reward(text, "0")["format"] for text in texts) / count,
        "dead": sum((group == group[0]).all().item() for group in groups) / len(groups),
        "length": mask.sum().item() / count,
        "distinct": len(set(texts)) / count,
    }
    if now:
        row["greedy"] = evaluate(policy, WATCH.to(tokens.device))["accuracy"]
        with torch.no_grad():  # what the samples cost in nats is an honest estimate of the entropy
            log_probs = token_log_probs(response_logits(policy, tokens, batch["prompt_length"]), written)
        row["entropy"] = -(log_probs * mask).sum().item() / mask.sum().item()
    return row


def small_step(device):
    policy, batch = tiny_policy(0).to(device), {name: x.to(device) if torch.is_tensor(x) else x for name, x in tiny_batch(1).items()}
    return policy, tiny_policy(1).to(device), torch.optim.SGD(policy.parameters(), 0.1), batch


fits("grpo_step", small_step, lambda metrics: None)  # numbers to look at may lie anywhere

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
    print(f"Most tokens are clipped at step {most['step']}: {100 * most['clip_fraction']:.1f} %." if most["clip_fraction"] else "Nothing is clipped.")

# %% [markdown]
# **What to see.** The sampled curve climbs smoothly; the greedy one, measured every fifth step, stays about where it was for ten steps and is near 1 five steps later, when the
# most likely first token has become `<think>`. At the end nearly all answers think, and greedy accuracy on prompts that nobody looked at went from about .13 to about 1. The
# KL rises to about .2 nats per token and stays: to think *is* to be far from a reference that does not. Clipping is rare, about one token in a hundred at most, and it acts
# early, when the learning rate has just reached its top. And the dead groups come back at the end, for the best of reasons: all eight answers are right.
#
# What was yours and what was given? You wrote the reward, the rollout, the advantages, the objective and the update: what makes it GRPO. The model, its
# sampler, its warm-up and the plots were given, as they are to everybody who trains a language model today.
#
# Other seeds differ a little. You can stop a run with the stop button (or Ctrl-C); the curves so far are kept in `history`.

# %% [markdown]
# ### What if the model only half knows how to add? (optional)
#
# A shorter warm-up leaves less skill to elicit. **Guess**: after a warm-up of 120 and of 220 steps, will the same run climb? And will the model, forced to
# think, add better than before?

# %% show half_knows
for warm_up_steps in (120, 220):
    begins = warm_up(run["seed"], warm_up_steps, run["width"], run["layers"], run["heads"], run["device"])
    ends = copy.deepcopy(begins)
    train(ends, f"warm-up of {warm_up_steps} steps", run["steps"])
    for name, how in (("greedy", {}), ("forced to think", {"force": THINK})):
        a, b = (evaluate(model, VERDICT.to(run["device"]), **how)["accuracy"] for model in (begins, ends))
        print(f"warm-up of {warm_up_steps} steps, {name:15}: before {a:.2f}, after {b:.2f}")

# %% [markdown]
# After 220 steps the model adds about .6 of the sums rightly when it is made to think. Nobody made it, so it was right about one time in seven; RL takes it to about .6:
# as far as its adding carries it, and its adding hardly gets better. After 120 steps it cannot add even when it thinks, so that thinking does not pay, and the run climbs
# little or not at all. What RL reinforces must happen now and then by itself.

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


def log_scale(ax):
    """A logarithmic axis, where there is anything above 0 to draw."""
    if any(y > 0 for line in ax.lines for y in line.get_ydata()):
        ax.set_yscale("log")


def compare(runs, keys, titles={}, logs=()):
    """The same entries of several diaries, side by side."""
    fig, axes = plt.subplots(1, len(keys), figsize=(3.4 * len(keys), 2.8), squeeze=False)
    for ax, key in zip(axes[0], keys):
        for (name, diary), style in zip(runs.items(), ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)))):  # told apart where they coincide
            ax.plot(*series(diary, key), linestyle=style, label=name)
        ax.set(xlabel="RL step", title=(TITLES | titles).get(key, key))
        if key in logs:
            log_scale(ax)
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
    """Prints what was recorded beforehand on four seeds, with the settings as they came."""
    print(f"\nrecorded beforehand, with four digits and the laptop's settings:\n{what:44}seed 0     1     2     3")
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
        draw = torch.Generator(questions.device).manual_seed(int(batch["tokens"].sum()))
        return grpo_step(policy, reference, optimizer, collect(policy, questions, run["answers"], accuracy, temperature=t, draw=draw), **options)

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
    advantages, paid = torch.zeros_like(values), batch["rewards"].cpu()  # once, not answer by answer
    for i, n in enumerate(real.sum(1).tolist()):
        rewards = F.pad(paid[i : i + 1], (n - 1, 0))  # paid at the last token
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
print("        greedy  sampled      s   weights, gradients, Adam   activations of an update")
for name, diary, weights, activations in (("GRPO", usual, 5 * one, actor_keeps), ("PPO", with_critic, 9 * one, actor_keeps + critic_keeps)):
    print(f"{name:6}  {last(diary, 'greedy'):.3f}   {last(diary, 'sampled'):.3f}    {sum(r['seconds'] for r in diary):4.1f}    {weights:5.2f} MiB                  {activations:5.1f} MiB")

# %% [markdown]
# About the same curve. The critic about doubles the seconds (your loop over tokens in `gae_advantages` has a share in that) and nearly doubles the memory: the policy counts four times (weights, gradients, Adam's two
# states) and the frozen reference once; PPO has a trained critic on top. No more follows from one easy task and one setting of each: where credit must be given to
# single steps of long episodes, a critic can do what a group cannot.

# %% [markdown]
# ## The reference's log-probabilities, once or every time (optional)
#
# They depend on the batch and on a frozen model, so once per batch is enough. "The cache saves 30 percent" is a sentence that circulates. **Guess** what it saves with one, two and four inner epochs.

# %% show cached_or_not
def seconds(function, times=7):
    """Median seconds of a call."""
    took = []
    for _ in range(times):
        began = clock()
        function()
        took.append(clock() - began)
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
    "a rare reward": train(copy.deepcopy(base), "a rare reward", half, reward=lambda texts, answers: [a * (int(right) > 8 * NUMBERS * (10**DIGITS - 1) // 9) for a, right in zip(accuracy(texts, answers), answers)]),
    "beta 10": train(copy.deepcopy(base), "beta = 10", half, beta=10.0),
    "a reward for 18": train(copy.deepcopy(base), "a reward for 18", half, reward=lambda texts, answers: [float(extract_answer(t) == "18") for t in texts], lr=2e-3, beta=0.0),
    "clip .02": train(copy.deepcopy(base), "clip .02, four updates", half, clip_range=0.02, inner_epochs=4),
}
failures = failures | more
memory = {n: saved_bytes(lambda: response_logits(policy, tokens[:n], PROMPT)) / 2**20 for n in (8, 16, 32, 64, 128) if n <= len(tokens)}
pictures = [
    ("1 reward flat: dead groups", {"dead groups": (failures["a rare reward"], "dead"), "reward, as paid": (failures["a rare reward"], "reward")}),
    ("2 reward jumps or collapses", {"lr x 20": (failures["lr x 20"], "reward"), "usual": (usual, "reward")}),
    ("3 KL explodes", {"wrong sign": (failures["wrong sign"], "kl"), "lr x 20": (failures["lr x 20"], "kl"), "usual": (usual, "kl")}),
    ("4 policy barely moves (KL)", {"beta 10": (failures["beta 10"], "kl"), "beta .04": (usual, "kl")}),
    ("5 ratios pile up at the edge", {"clipped, clip .02": (failures["clip .02"], "clip_fraction"), "clipped, clip .2": (usual, "clip_fraction")}),
    ("6 outputs repeat (distinct)", {"always 18": (failures["a reward for 18"], "distinct"), "usual": (usual, "distinct")}),
    ("7 reward up, truth down", {"reward, as paid": (hacked, "reward"), "truth": (hacked, "sampled")}),
]
fig, axes = plt.subplots(2, 4, figsize=(12, 5))
for ax, (title, curves) in zip(axes.flat, pictures):
    for (name, (diary, key)), style in zip(curves.items(), ("-", "--", ":")):
        ax.plot(*series(diary, key), style, label=name)
    ax.set(xlabel="RL step")
    if title[0] in "34":
        log_scale(ax)
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
# ## A standing challenge: fewest seconds to .95 (optional)
#
# The course's settings are not the fastest. **How few seconds of GRPO take the warmed-up model to a greedy accuracy of .95?** Change the numbers in `CHALLENGE` and run its cell; those that you leave out stay the course's. It trains twice
# from the same model, first with the course's settings, then with yours, and divides the seconds: a ratio of .5 is twice as fast, and about the same on any CPU (a GPU may differ). What counts is
# sampling, rewarding and updating; to look at the accuracy after every step costs nothing here.
#
# **Guess** before you search: do you save more by a higher rate, by smaller batches or by fewer updates of each? And what does a setting that is tuned to one seed do on the next?

# %% show race
COURSE = {"lr": 5e-4, "steps": 50, "prompts": 16, "answers": 8, "inner_epochs": 2, "clip_range": 0.2, "beta": 0.04}


def starts(first, count):
    """Seeds and their warmed-up models that are right 97 times in 100 when they are made to think; others are held back by their adding."""
    found = []
    for seed in range(first, first + 10 * count):
        model = warm_up(seed, run["warmup_steps"], run["width"], run["layers"], run["heads"], run["device"])
        if evaluate(model, WATCH.to(run["device"]), force=THINK)["accuracy"] >= 0.97:
            found.append((seed, model))
        if len(found) == count:
            break
    return found


def to_95(seed, model, settings, most=math.inf):
    """Steps and seconds until the greedy accuracy is .95; None and `most`, if it takes longer or is not there after its last step."""
    def seconds(history):
        return sum(row["seconds"] for row in history)

    def over(history):
        return history[-1]["greedy"] >= 0.95 or seconds(history) > most

    history = train(copy.deepcopy(model), f"seed {seed}, {'the course' if settings is COURSE else 'yours'}", seed=seed, stop=over, **settings)
    return (len(history), seconds(history)) if history[-1]["greedy"] >= 0.95 and seconds(history) <= most else (None, most)


def race(settings, models):
    """Seconds with these settings over the course's, from each model that the course takes to .95; an attempt ends after four times as many."""
    ratios = []
    for seed, model in models:
        steps, course = to_95(seed, model, COURSE)
        if steps is None:
            print(f"seed {seed}: the course's settings do not get there; left out")
            continue
        its_steps, mine = to_95(seed, model, COURSE | settings, 4 * course)
        ratios.append(mine / course)
        print(f"seed {seed}: the course's {steps} steps in {course:.2f} s, yours {f'{its_steps} steps in' if its_steps else 'not within'} {mine:.2f} s: {ratios[-1]:.2f}")
    return sum(ratios) / len(ratios) if ratios else math.nan


print("recorded beforehand on five other seeds, seconds over the course's:")
for name, ratios in {"prompts 8": (0.58, 0.56, 0.58, 0.56, 0.54), "prompts 4, lr 1e-3": (0.21, 4.0, 0.24, 0.22, 0.21)}.items():
    print(f"{name:20}" + "".join(f"{ratio:6.2f}" for ratio in ratios) + f"   mean {sum(ratios) / 5:.2f}")

# %% show challenge
CHALLENGE = {"lr": 5e-4, "steps": 50, "prompts": 16, "answers": 8, "inner_epochs": 2, "clip_range": 0.2, "beta": 0.04}  # the course's; make them yours
print(f"yours over the course's: {race(CHALLENGE, [(run['seed'], base)]):.2f}")

# %% [markdown]
# As it came, it is a race against itself, and what differs from 1 is the clock's noise. One seed is luck: `race(CHALLENGE, starts(100, 3))` first warms up three models on which you tuned nothing. An attempt ends after
# four times the course's seconds and counts as 4. The recorded rows say what that does: half the prompts are nearly twice as fast everywhere; a quarter of them at twice the rate takes less than a
# quarter of the seconds on four seeds, breaks on the fifth, and is left with a mean of .98. There are settings whose mean is below .3.
#
# `grader challenge NOTEBOOK ...` is the judge: it reads the numbers in `CHALLENGE`, runs none of the notebook's code, and races them on a CPU against the course's, on five seeds that it draws itself. There are no points to be had. A
# function of your own can race, too (`race(CHALLENGE | {"update": my_step}, ...)`), but on your word alone: it could bring a trained model along, and then no seed is secret enough.

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
