"""What happens after a hidden input was seen reaches no message and no note."""

from types import SimpleNamespace

import pytest

from grader.course.source import Cell
from grader.course.trusted import namespace
from grader.intake.match import Submission
from grader.judge.judge import judged
from grader.judge.remote import Limits, Session
from grader.sandbox.protocol import Closed
from tests.feedback.diagnosing import Near
from tests.judge.hands import TOY

OWN = Cell("extra", "", "two = 2")


class Fragile(Near):
    """The learner's process dies at a call with a tensor of `at` numbers; from the second one on, cells end it, too."""

    def __init__(self, names, at, again):
        super().__init__(names)
        self.at, self.again = at, again

    def send(self, head, tensors=()):
        if head["op"] == "run":
            self._reply = {"id": head["id"]}, [], []
            if self.again:
                raise Closed
        elif any(t.numel() == self.at for t in tensors):
            raise Closed
        else:
            super().send(head, tensors)


@pytest.mark.parametrize(("at", "notes"), [(7, 0), (2, 1)])  # in TOY, a tensor of 7 numbers is hidden, one of 2 is not
def test_when_a_cell_breaks_is_told_in_the_visible_round_alone(at, notes):
    started = []

    def fork():
        started.append(Fragile(namespace(TOY), at, again=bool(started)))
        return started[-1]

    session = Session(SimpleNamespace(fork=fork, kill=lambda: None, cpu_seconds=lambda: 0.0), [OWN], Limits())
    judged(Submission(TOY, (OWN,), ()), session)
    assert len(started) > 1 and len(session.notes) == notes
