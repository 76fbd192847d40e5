"""docs/scaling.md: the run on TRL, by one process and by two; and what its table says of the course, of TRL and of verl."""

import importlib.util
import inspect
import json
import os
import re
import subprocess
import sys

import pytest
import torch
import yaml

from grader.course.source import ROOT
from grader.course.trusted import namespace
from tests.conftest import COURSE, missing
from tests.parity.trainers import trl_defaults, verl_defaults

SCRIPT = ROOT / "examples/trl/train.py"
PAGE = ROOT / "docs/scaling.md"
MISSING = missing("trl", "make extras")
NO_VERL = missing("verl", "make extras")
needs_trl = pytest.mark.skipif(bool(MISSING), reason=MISSING)
pytestmark = pytest.mark.thorough
SMALL = ("--steps=2", "--prompts=4", "--group-size=4", "--max_completion_length=12", "--learning_rate=0.01")

# What each process of torchrun does: it trains, and leaves what it saw and what it ended with. A random model is never right, so
# that it is paid for digits here: there has to be something to learn.
RANK = f"""
import importlib.util, os, sys, torch
spec = importlib.util.spec_from_file_location("train", {str(SCRIPT)!r})
script = importlib.util.module_from_spec(spec)
spec.loader.exec_module(script)
verify, judged = script.verifier(), []

def for_digits(text, answer):
    judged.append((text, answer))
    return {{"accuracy": sum(map(str.isdigit, text)) / 12, "format": verify(text, answer)["format"]}}

out, *arguments = sys.argv[1:]
trainer = script.train([*arguments, "--out", out], for_digits)
torch.save(
    {{
        "processes": trainer.accelerator.num_processes,
        "updates": trainer.state.global_step,
        "judged": judged,
        "prompts": [row["answer"] for row in trainer.train_dataset],
        "parameters": [p.detach() for p in trainer.model.parameters()],
    }},
    f"{{out}}/rank{{os.environ.get('RANK', 0)}}.pt",
)
"""


def run(*command):
    environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")} | {"PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, *map(str, command)], env=environment, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("train", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@needs_trl
def test_two_processes_share_the_prompts_and_end_with_the_same_model(tmp_path):
    (tmp_path / "rank.py").write_text(RANK, encoding="utf-8")
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    ran = run(*torchrun, tmp_path / "rank.py", tmp_path / "out", *SMALL)
    assert ran.returncode == 0, ran.stderr
    ranks = [torch.load(tmp_path / f"out/rank{k}.pt") for k in range(2)]
    asked = []
    for rank in ranks:
        assert rank["processes"] == 2
        assert rank["updates"] == 4  # two steps of two inner epochs
        answers = [answer for _, answer in rank["judged"]]
        assert len(answers) == 2 * 2 * 2 * 4  # each batch: this rank's two of four prompts, four answers, judged for two parts
        asked.append([answers[k] for k in range(0, len(answers), 4)])
        assert answers == [answer for answer in asked[-1] for _ in range(4)]  # whole groups
    every_other = sorted(asked[0][k] for k in (0, 1, 4, 5)), sorted(asked[1][k] for k in (0, 1, 4, 5))
    assert sorted(every_other[0] + every_other[1]) == sorted(ranks[0]["prompts"])  # each prompt on one rank
    assert every_other[0] != every_other[1]
    assert {text for text, _ in ranks[0]["judged"]} != {text for text, _ in ranks[1]["judged"]}
    assert all(torch.equal(*pair) for pair in zip(*(rank["parameters"] for rank in ranks), strict=True))
    from transformers import AutoModelForCausalLM

    before, after = ([*AutoModelForCausalLM.from_pretrained(tmp_path / "out" / name).parameters()] for name in ("tiny", "."))
    assert not any(torch.equal(*pair) for pair in zip(before, after, strict=True))
    assert all(torch.equal(*pair) for pair in zip(ranks[0]["parameters"], after, strict=True))


@needs_trl
@pytest.mark.filterwarnings("ignore")  # theirs
def test_one_process_trains_a_chat_model_and_goes_on_where_it_was(script, tmp_path, capsys):
    script.save_tiny(tmp_path / "model")
    file = tmp_path / "model/tokenizer_config.json"
    template = "{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}>{% endif %}"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"chat_template": template}))
    arguments = [*SMALL, "--model", str(tmp_path / "model"), "--out", str(tmp_path)]
    ran = run(SCRIPT, *arguments)
    assert ran.returncode == 0, ran.stderr
    assert "rewards/accuracy/mean" in ran.stdout
    assert "rewards/format/mean" in ran.stdout
    assert "goes on" not in ran.stdout
    trainer = script.train([*arguments, "--steps=3"])
    assert f"goes on from {tmp_path / 'checkpoint-4'}\n" in capsys.readouterr().out
    assert trainer.state.global_step == 6
    assert sorted(path.name for path in tmp_path.glob("checkpoint-*")) == ["checkpoint-4", "checkpoint-6"]  # two are kept


@needs_trl
@pytest.mark.filterwarnings("ignore")  # theirs
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--steps", "0"], "--steps is 0; it needs a whole number of at least 1"),
        (["--betta", "1"], "neither this script nor TRL's GRPOConfig knows --betta 1"),
        (["--group-size", "1"], "at least 2 generations"),
    ],
)
def test_what_cannot_be_is_one_sentence(script, capsys, arguments, said):
    with pytest.raises(SystemExit) as stop:
        script.train(arguments)
    assert stop.value.code == 2
    assert said in capsys.readouterr().err.splitlines()[-1]


def test_prompts_that_cannot_be_shared_are_one_sentence(script, monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(SystemExit):
        script.train(["--prompts", "3"])
    assert "--prompts 3 cannot be shared evenly by 2 processes; take a multiple of 2" in capsys.readouterr().err


@needs_trl
@pytest.mark.filterwarnings("ignore")  # theirs
def test_a_model_that_is_not_there_is_one_sentence(script, tmp_path):
    with pytest.raises(SystemExit, match=rf"^--model {tmp_path / 'none'}: .+"):
        script.train(["--model", str(tmp_path / "none"), "--out", str(tmp_path / "out")])


def test_the_reward_is_the_notebooks(script):
    judge = script.reward(script.verifier(), "accuracy")
    right = "<think>7+5</think><answer>12</answer>"
    assert judge([right, [{"role": "assistant", "content": right}], "12"], ["12", "13", "12"]) == [1.0, 0.0, 0.0]
    (row,) = script.sums(1, chat=False, seed=3)
    assert eval(re.search(r"[\d+]+", row["prompt"])[0]) == int(row["answer"])


@needs_trl
@pytest.mark.parametrize("name", ["fsdp.yaml", "deepspeed_zero2.yaml"])
def test_accelerate_reads_its_configurations(name):
    from accelerate.commands.config.config_args import load_config_from_file

    config = load_config_from_file(str(ROOT / "examples/trl" / name))  # raises where it knows an entry not
    assert config.distributed_type == {"fsdp.yaml": "FSDP", "deepspeed_zero2.yaml": "DEEPSPEED"}[name]


def column(title):
    """What the page's table says in a column: every `name=value` there."""
    page = PAGE.read_text(encoding="utf-8").splitlines()
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page if line.startswith("|")]
    header = next(line for line in lines if title in line)
    rows = [line[header.index(title)] for line in lines[lines.index(header) + 2 :] if len(line) == len(header)]
    found = {name: yaml.safe_load(value) for cell in rows for name, value in re.findall(r"`([\w.]+)=([^`]*)`", cell)}
    assert len(found) > 4
    return found


@needs_trl
def test_trl_has_the_defaults_of_the_table():
    told = column("TRL 1.16")
    assert {name: trl_defaults()[name] for name in told} == told


@pytest.mark.skipif(bool(NO_VERL), reason=NO_VERL)
def test_verl_has_the_defaults_of_the_table():
    told = column("verl 0.9")
    assert {name: verl_defaults(name) for name in told} == told


def test_the_course_has_the_defaults_of_the_table():
    names = namespace(COURSE[3])
    found = {k: p.default for f in ("grpo_step", "collect") for k, p in inspect.signature(names[f]).parameters.items()}
    objective = inspect.signature(namespace(COURSE[2])["grpo_objective"]).parameters
    found |= {k: objective[k].default for k in ("aggregate", "max_length")} | {"answers": names["run"]["answers"]}
    told = column("the course")
    assert {name: found[name] for name in told} == told
