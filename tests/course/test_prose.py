"""hint() and the words after a failed check lead to the check that failed first, in steps."""

import pytest

from grader.course.prose import hints
from tests.conftest import COURSE
from tests.feedback.diagnosing import feedback_of


@pytest.mark.parametrize("notebook", COURSE, ids=lambda nb: nb.name)
def test_hints_are_for_checks_that_exist(notebook):
    for exercise, (ideas, where) in hints(notebook).items():
        named = {check for checks, _ in ideas for check in checks.split()}
        assert named <= {c.name for c in notebook.of_kind("check") if c.exercise == exercise}
        assert where.startswith("Where to read: ")


def told(capsys):
    return capsys.readouterr().out


def test_hints_begin_with_the_check_that_fails(capsys):
    notebook = next(nb for nb in COURSE if nb.name == "02_grpo_loss")
    feedback, exercise = feedback_of(notebook), "compute_grpo_loss"
    feedback.hints = hints(notebook)
    checks = [c.name for c in notebook.of_kind("check") if c.exercise == exercise]
    feedback.passed = dict.fromkeys(checks[:4], True) | {"ratio_positivity": False, "gradient_flow": False}
    for words in ("Hint 1 of 5: The property to look at: The ratio is positive", "Hint 2 of 5: The ratio and the band"):
        feedback.hint(exercise)
        assert told(capsys).startswith(words)
    assert feedback.failed_before("gradient_flow", exercise).startswith("The ratio is positive")
    assert not feedback.failed_before("ratio_positivity", exercise)
    feedback.passed |= dict.fromkeys(("ratio_positivity", "gradient_flow"), True)
    steps = []
    for _ in range(6):
        feedback.hint(exercise)
        steps.append(told(capsys))
    assert steps[0].startswith("Hint 1 of 5: The property to look at: The loss is minus") and "The loss, said aloud" in steps[1]
    assert len(set(steps)) == 6 and steps[4].startswith("Hint 5 of 5: Where to read") and steps[5].startswith("That was the last")
    feedback.hint("no_such")
    assert "There is no exercise 'no_such' here; there are compute_grpo_loss" in told(capsys)
