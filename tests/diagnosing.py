"""What a learner hears of a known mistake: in the notebook and in grading, without a jail and many times a second.

`python tests/diagnosing.py 20` names every mistake on 20 secret seeds and prints what went wrong.
"""

import functools
import re
import sys
import time
import warnings
from pathlib import Path
from types import SimpleNamespace

from grader.course import Notebook, read_course
from grader.diagnose import diagnose
from grader.fingerprints import fingerprints
from grader.inprocess import failure, namespace
from grader.judge import Limits, _HandIn, _names
from grader.learner_cell import Feedback
from grader.mistakes import Version, versions
from grader.submission import Submission
from grader.worker import Side

ALIKE = (  # mistakes that give the same numbers whatever is asked: named together
    {"copy_trained", "no_step", "policy_without_gradient", "zero_grad_too_late"},
    {"old_after_the_update", "old_recomputed"},
    {"clipped_before_backward", "norm_not_clipped"},
)


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


def judged(notebook: Notebook, exercise: str, names: dict):
    """(check -> passed, check -> what crossed) of an exercise's checks, its function taken from `names`."""
    hand_in = _HandIn(SimpleNamespace(fork=lambda: Near(names), kill=lambda: None), Submission(notebook, (), ()), Limits())
    proxies, passed = _names(notebook, hand_in), {}
    for check in notebook.of_kind("check"):
        if check.exercise == exercise:
            passed[check.name] = not (hand_in.run(check, proxies, hidden=False) or hand_in.run(check, proxies, hidden=True))
    return passed, hand_in.traces


@functools.cache
def in_grading(notebook: Notebook, version: Version) -> dict[str, list[str]]:
    """Failed check -> the names that grading gives for it."""
    passed, traces = judged(notebook, version.exercise, namespace(notebook, {version.exercise: version.source}))
    found = diagnose(notebook, passed, traces)
    return {check: [v.name for v in found.get(check, [])] for check in passed if not passed[check]}


def is_named(version: Version, found: dict[str, list[str]]) -> bool:
    """Whether some check names the mistake, and none names another (but for those that are alike)."""
    same = next((group for group in ALIKE if version.name in group), {version.name})
    names = [set(names) for names in found.values() if names]
    return bool(names) and all(version.name in some <= same for some in names)


def in_the_notebook(notebook: Notebook, version: Version) -> str:
    """What the notebook says once the visible checks of the exercise were run in their order.

    "named", "perhaps" (among others), "explained" (an error of Python's), "passes" (nothing is wrong there), "another", "nothing".
    """
    names = namespace(notebook, {version.exercise: version.source})
    feedback = feedback_of(notebook)
    heard = []
    for check in notebook.of_kind("check"):
        if check.exercise != version.exercise:
            continue
        error, own = failure(check, names, hidden=False)
        feedback.seen[check.name] = error is None
        feedback.shell = SimpleNamespace(user_ns=own)
        if error:
            told = list(feedback.named(check.name, check.exercise, error))
            said = {name: words.startswith("It looks") for words in told for name in re.findall(r"\[(\w+)\]\n", words)}
            if said and version.name not in said:
                return "another"
            heard.append("named" if said.get(version.name) else "perhaps" if said else "")
            if not said and feedback.explained(check.exercise, error):
                heard.append("explained")
    return next((word for word in ("named", "perhaps", "explained") if word in heard), "nothing" if heard else "passes")


def feedback_of(notebook: Notebook) -> Feedback:
    """What speaks in a learner's notebook, outside of one."""
    known = {v.name: [v.summary, v.hint] for v in versions(notebook.name) if v.wrong}
    checks = {c.title: [c.name, c.exercise, c.points] for c in notebook.of_kind("check")}
    return Feedback(notebook.name, "", 0, checks, {}, {}, known, [[check, *entries] for check, entries in fingerprints(notebook).items()])


def not_named(notebook: Notebook, seeds) -> list[tuple]:
    """(seed, exercise, mistake, what was said) of every mistake that grading does not name rightly on one of the seeds."""
    missed = []
    for seed in seeds:
        seeded = notebook.with_seed(seed)
        for version in versions(notebook.name):
            if version.wrong and not is_named(version, found := in_grading.__wrapped__(seeded, version)):
                missed.append((seed, version.exercise, version.name, found))
    return missed


if __name__ == "__main__":
    for one in read_course(Path(__file__).parent.parent / "solutions"):
        started = time.process_time()
        missed = not_named(one, [7919 * k + 13 for k in range(int(sys.argv[1]))])
        wrong = sum(v.wrong for v in versions(one.name))
        print(
            f"{one.name}: {wrong} mistakes on {sys.argv[1]} seeds, {len(missed)} not named, {time.process_time() - started:.0f} s",
            *missed,
            sep="\n  ",
        )
