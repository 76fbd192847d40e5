"""What a learner hears of a known mistake: in the notebook and in grading, without a jail and many times a second."""

import functools
import warnings
from dataclasses import replace
from types import SimpleNamespace

from grader.course.source import Cell, Notebook
from grader.course.trusted import failure, namespace
from grader.feedback.cell import Feedback
from grader.feedback.naming import is_open
from grader.feedback.table import fingerprints
from grader.intake.match import Submission
from grader.judge.judge import judged
from grader.judge.remote import Limits, Session
from grader.judge.verdict import Verdict
from grader.mistakes import Version, versions
from grader.sandbox.learner_process import Side


class Near:
    """A channel to a learner's side in this very process: the judge's own code at both ends, no jail between."""

    deadline, bytes = float("inf"), 0

    def __init__(self, names):
        self._side = Side(SimpleNamespace(user_ns=names))

    def send(self, head, tensors=()):
        flags = [(t.requires_grad, t.is_leaf) for t in tensors]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what torch thinks of a mistake
            reply, results = self._side.answer(head, [t.detach().clone() for t in tensors], flags)
        self._reply = reply | {"id": head["id"]}, [r.detach().clone() for r in results], [(r.requires_grad, r.is_leaf) for r in results]

    def receive(self):
        return self._reply

    def close(self):
        pass


def judged_nearby(notebook: Notebook, names: dict, source: str = "", exercise: str = "") -> list[Verdict]:
    """The verdicts on a hand-in whose functions are those of `names`, by the judge's own code and without a jail."""
    session = Session(SimpleNamespace(fork=lambda: Near(names), kill=lambda: None, cpu_seconds=lambda: 0.0), [], Limits())
    return judged(Submission(notebook, (Cell("solution", exercise, source),), ()), session)


@functools.cache
def in_grading(notebook: Notebook, version: Version) -> dict[str, list[str]]:
    """Failed check of the version's exercise -> the names that grading gives for it."""
    own = replace(notebook, cells=tuple(c for c in notebook.cells if c.kind != "check" or c.exercise == version.exercise))
    verdicts = judged_nearby(own, namespace(notebook, {version.exercise: version.source}), version.source, version.exercise)
    return {v.check: v.mistake.split(" or ") if v.mistake else [] for v in verdicts if v.points is not None and not v.passed}


def feedback_of(notebook: Notebook) -> Feedback:
    """What speaks in a learner's notebook, outside of one."""
    known = {v.name: [v.summary, v.hint] for v in versions(notebook.name) if v.wrong}
    checks = {c.title: [c.name, c.exercise, c.points] for c in notebook.of_kind("check")}
    return Feedback(notebook.name, "", 0, checks, {}, {}, known, fingerprints(notebook))


def in_the_notebook(notebook: Notebook, names: dict, exercises: set[str]) -> dict[str, list[str]]:
    """Failed check -> what the notebook says of known mistakes once the visible checks of the exercises have run twice.

    (The first time round it does not know yet what the later checks give.)
    """
    feedback, heard = feedback_of(notebook), {}
    for check in [c for c in notebook.of_kind("check") if c.exercise in exercises] * 2:
        error, own = failure(check, names, hidden=False)
        feedback.shell = SimpleNamespace(user_ns=own)
        feedback.passed[check.name] = error is None
        if error is None:
            feedback.seen[check.name] = True
        elif not is_open(error):
            heard[check.name] = feedback.named(check.name, check.exercise, error)
    return heard


def names_in(sentences: list[str], notebook: Notebook, exercise: str) -> list[str]:
    """The mistakes of an exercise that sentences tell, by name."""
    told = {v.summary: v.name for v in versions(notebook.name) if v.wrong and v.exercise == exercise}
    return [told[s.partition(": ")[2].partition("\n")[0]] for s in sentences if s.startswith(("It looks like this: ", "Perhaps: "))]
