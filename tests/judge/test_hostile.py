"""Hostile hand-ins: none gains a point, reads what is not its own, writes outside, outlives its turn, or hurts the next."""

import inspect
import os

import psutil
import pytest

from grader.judge.judge import Judge, Limits
from grader.sandbox import learner_process, protocol
from tests.judge.hands import HOSTILE_HAND_INS, hand_in, message, outcome, warm_judge

LEAVINGS = ("/tmp/hostile_was_here", "/dev/shm/hostile_was_here", "/hostile_was_here", "/root/hostile_was_here", "hostile_was_here")
HONEST = {"twice": True, "gradient": True, "sums": True}


def processes():
    """Pids of everything that the judge's warm process has started, itself included."""
    return {p.pid for p in psutil.Process().children(recursive=True)}


@pytest.fixture(scope="module")
def judge():
    os.environ["GRADER_TEST_SECRET"] = "SECRET"
    judge = warm_judge(5)  # so that hangs are noticed soon
    assert outcome(judge.judge(hand_in())) == HONEST
    return judge


@pytest.mark.parametrize("hostile", HOSTILE_HAND_INS, ids=lambda h: h.name)
def test_a_hostile_hand_in_gains_nothing(judge, hostile):
    before = processes()
    result = judge.judge(hostile.submission())
    honest = {"twice": False, "gradient": False, "sums": "sums" not in hostile.says("Loses: ")}
    assert outcome(result) == honest, "it earns just its honest part"
    assert processes() == before, "something outlived its turn"
    assert not any(os.path.exists(path) for path in LEAVINGS)
    told = result.to_json()
    assert "271828" not in told and "31415926" not in told, "a hidden input reached a message"
    assert "\x1b" not in told and "\\u001b" not in told and len(told) < 20_000
    for words in hostile.says("Seen: "):
        assert words in message(result, "twice")


def functions_of(module):
    """Every function of a module by its name, those of its classes too."""
    for name, value in vars(module).items():
        if inspect.isfunction(value) and value.__module__ == module.__name__:
            yield name
        elif inspect.isclass(value) and value.__module__ == module.__name__:
            yield from (f"{name}.{own}" for own, method in vars(value).items() if inspect.isfunction(method))


@pytest.mark.parametrize("gives", [pytest.param("zero", marks=pytest.mark.thorough), "its first"])
def test_no_function_of_the_worker_can_be_replaced_to_hide_what_was_changed(gives):
    (patched,) = [h.text for h in HOSTILE_HAND_INS if h.name == "patched_worker"]
    names = [*functions_of(learner_process), *functions_of(protocol)]
    assert {"Side._call", "_packed", "pack", "_pack", "unpack", "to_bytes", "from_bytes", "Channel.send"} <= set(names)
    found = {}
    with Judge(limits=Limits(check=2)) as judge:
        for name in names:
            text = patched.replace('"_packed", "nothing"', f"{name!r}, {gives!r}")
            found[name] = outcome(judge.judge(hand_in(double=text)))
    assert {name for name, passed in found.items() if passed["twice"] or passed["gradient"]} == set()


def test_an_honest_hand_in_after_all_of_them_gets_everything(judge):
    assert outcome(judge.judge(hand_in())) == HONEST


def test_there_are_enough_kinds():
    assert len(HOSTILE_HAND_INS) >= 60
