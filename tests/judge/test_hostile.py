"""Hostile hand-ins: none gains a point, reads what is not its own, writes outside, outlives its turn, or hurts the next."""

import os

import psutil
import pytest

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


def test_an_honest_hand_in_after_all_of_them_gets_everything(judge):
    assert outcome(judge.judge(hand_in())) == HONEST


def test_there_are_enough_kinds():
    assert len(HOSTILE_HAND_INS) >= 60
