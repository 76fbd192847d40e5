"""Feedback comes with the first TODO: what is written is judged, what is open waits, in the notebook and in grading alike."""

import re

import pytest

from grader.course.trusted import failure, namespace
from grader.feedback.naming import is_open
from tests.conftest import COURSE
from tests.judge.hands import hand_in, warm_judge

NOTEBOOK = next(nb for nb in COURSE if nb.name == "02_grpo_loss")
EXERCISE = next(e for e in NOTEBOOK.exercises if e.name == "compute_grpo_loss")
KEY = next(c.source for c in NOTEBOOK.of_kind("solution") if c.name == EXERCISE.name)
ADVANTAGES = next(c.source for c in COURSE[0].of_kind("solution") if c.name == "group_advantages")
CALL = "advantages = group_advantages(rewards, group_ids, eps)"
PASTED = f"{ADVANTAGES}\n\n\n{re.sub('### BEGIN.*?### END SOLUTION', CALL, KEY, count=1, flags=re.DOTALL)}"


def written_so_far(source, open_todos):
    """The source with its last regions as a learner's notebook has them."""
    parts = re.split(r"### BEGIN SOLUTION.*?### END SOLUTION", source, flags=re.DOTALL)
    kept = re.findall(r"### BEGIN SOLUTION.*?### END SOLUTION", source, flags=re.DOTALL)
    kept[len(kept) - open_todos :] = ["raise NotImplementedError()"] * open_todos
    return "".join(a + b for a, b in zip(parts, [*kept, ""], strict=True))


@pytest.mark.parametrize(
    ("source", "open_todos", "passed"),
    [(KEY, 3, 0), (KEY, 2, 4), (KEY, 1, 4), (PASTED, 2, 4), (PASTED, 0, 8)],
    ids=["none", "1", "2", "pasted", "all"],
)
def test_the_checks_of_what_is_written_pass_and_the_others_wait(source, open_todos, passed):
    source = written_so_far(source, open_todos)
    names = namespace(NOTEBOOK, {EXERCISE.name: source})
    raised = [failure(c, names)[0] for c in NOTEBOOK.of_kind("check") if c.exercise == EXERCISE.name]
    assert [e is None for e in raised] == [True] * passed + [False] * (8 - passed)
    assert all(e is None or is_open(e) for e in raised)
    verdicts = [v for v in warm_judge().judge(hand_in(NOTEBOOK, compute_grpo_loss=source)).checks if v.exercise == EXERCISE.name]
    assert [v.passed for v in verdicts] == [True] * passed + [False] * (8 - passed)
    assert {v.message for v in verdicts[passed:]} <= {"compute_grpo_loss is not written yet."}
