"""Our side: runs the checks of a notebook, each name that the learner defines standing for a call to the learner's process.

The checks are the master's, unchanged, and run here; the learner's cells run in a jailed process that never sees one.
Each check is run twice: first what the learner can see, of all checks, then, of those that held, the whole. Whatever a hidden input
makes of the learner's code, its message is the same: else the code could tell what it was given.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from grader.course.prose import shapes
from grader.course.source import Cell, Notebook
from grader.course.trusted import execute
from grader.feedback.errors import meaning
from grader.feedback.naming import agrees, by_mistake, candidates, evidence, sentences
from grader.feedback.spoken import speaker
from grader.feedback.table import fingerprints
from grader.intake.match import Submission
from grader.intake.static_analysis import names_used
from grader.judge.process import WarmProcess
from grader.judge.remote import Limits, Session, Violation, printable
from grader.judge.verdict import Result, Verdict
from grader.mistakes import versions
from grader.sandbox.jail import JailError, layers
from grader.sandbox.lazy_import import import_lazily

PACKAGES = "Grading has Python's own library, torch, numpy and matplotlib."


class Judge:
    """A warm process of the learner's side, and what judges hand-ins with it, one after another."""

    def __init__(self, *, allow_no_jail: bool = False, limits: Limits | None = None):
        """Raises JailError where there is no jail, unless `allow_no_jail`."""
        if not layers().holds and not allow_no_jail:
            raise JailError(
                "this machine offers no jail for the learners' code: install bubblewrap (apt install bubblewrap) on Linux, "
                "or, for your own work only, grade with --no-jail (c.Judge.allow_no_jail for nbgrader): the code then can read and "
                "change your files, the answers and the scores"
            )
        import_lazily("matplotlib.pyplot")  # given cells import it, checks never draw
        self._limits = limits or Limits()
        self._process = WarmProcess()

    def judge(self, submission: Submission) -> Result:
        """The verdicts on one hand-in. Nothing of it is left afterwards. Raises JailError when the jail breaks."""
        session = Session(self._process, submission.cells, self._limits)
        try:
            verdicts = judged(submission, session)
        finally:
            session.close()
        say = speaker(submission.notebook.language, submission.notebook.name)
        told = (replace(verdict, message=say(verdict.message)) for verdict in verdicts)
        return Result(submission.notebook.name, tuple(told), tuple(map(say, submission.notes + tuple(session.notes))))

    def close(self) -> None:
        self._process.close()

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass
class _Seen:
    """What a check did: its message ("" when it passes), and what its visible part gave (see `naming.candidates`)."""

    message: str = ""
    explained: str = ""  # what an error of Python's usually means
    prints: Any = True
    decimals: int = 0
    open: bool = False


def judged(submission: Submission, session: Session) -> list[Verdict]:
    """The verdicts on a hand-in whose functions a session calls."""
    notebook = submission.notebook
    seen = {check.name: _Seen() for check in notebook.of_kind("check")}
    for hidden in (False, True):
        names = _names(notebook, session)
        for check in notebook.of_kind("check"):
            if not seen[check.name].message:
                error, own = session.run(check, names, hidden=hidden)
                if error:
                    seen[check.name] = (
                        _Seen(f"{check.title}: a hidden test fails.") if hidden else _visible(notebook, check, error, own, session)
                    )
    named = _named(submission, seen)
    verdicts = []
    for cell in notebook.of_kind("check", "answer"):
        if cell.kind == "answer":
            title = cell.name.replace("_", " ")
            verdicts.append(Verdict(cell.name, cell.name, title, None, cell.points, False, "This answer waits for a person."))
        else:
            mistake, words = named.get(cell.name, (None, seen[cell.name].explained))
            message = "\n".join(filter(None, (seen[cell.name].message, words)))
            passed = not message
            points = cell.points * passed
            verdicts.append(
                Verdict(cell.exercise, cell.name, cell.title, points, cell.points, passed, message, mistake, seen[cell.name].open)
            )
    return verdicts


def _names(notebook: Notebook, session: Session) -> dict[str, Any]:
    """The names that a check may use: given cells and brought functions of ours, and proxies for what the learner defines."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in notebook.of_kind("given", "bring"):
        execute(cell.source, names, f"<{notebook.name}:{cell.name}>")
    for cell in notebook.of_kind("solution", "scenario"):
        own = dict(names)
        execute(cell.source, own, f"<{notebook.name}:{cell.name}>")  # for its signature; it is called in the learner's process
        names[cell.name] = session.proxy(cell.name, inspect.signature(own[cell.name]))
    return names


def _visible(notebook: Notebook, check: Cell, error: Exception, own: Mapping[str, Any], session: Session) -> _Seen:
    remote = session.remote_error(error)
    if isinstance(error, Violation):
        return _Seen(printable(error.untrusted), prints=[])
    if remote and remote.is_open:
        return _Seen(f"{remote.where or remote.function} is not written yet.", prints=[], open=True)  # a scenario is ours
    if remote:
        explained = meaning(remote.kind, remote.text, shapes(notebook).get(check.exercise, {}), inside=bool(remote.where))
        if remote.kind in ("NameError", "ModuleNotFoundError") and (stops := [note for note in session.notes if " stopped with " in note]):
            explained = f"{stops[0]}\n{PACKAGES}"
        told = f"{remote.function} raised {remote.told}"
        if remote.where and remote.where != remote.function:
            told = f"{remote.function} raised {remote.told} (in {remote.where})"
        return _Seen(printable(told), explained, [])
    if not isinstance(error, AssertionError):
        explained = meaning(type(error).__name__, str(error), shapes(notebook).get(check.exercise, {}), inside=False)
        return _Seen(printable(f"The check could not use what came back: {type(error).__name__}: {error}"), explained, [])
    prints, decimals = evidence(error, own)
    return _Seen(printable(str(error)) or f"{check.title}: this does not hold.", "", prints, decimals)


def _named(submission: Submission, seen: Mapping[str, _Seen]) -> dict[str, tuple[str | None, str]]:
    """Check that failed -> the known mistakes that explain it, by name, and what to say of them."""
    notebook = submission.notebook
    found: dict[str, tuple[str | None, str]] = {}
    failed = {check.exercise for check in notebook.of_kind("check") if seen[check.name].message}
    known = {version.name: (version.summary, version.hint) for version in versions(notebook.name)}
    for exercise in [exercise for exercise in notebook.exercises if exercise.name in failed]:
        own = {check.name: seen[check.name] for check in exercise.checks}
        source = "\n".join(cell.source for cell in submission.cells if cell.name == exercise.name)
        if causes := (failed - {exercise.name}) & names_used(source):
            words = f"{exercise.name} calls {min(causes)}, which fails a check of its own: begin there."
            found |= {name: (None, words) for name, what in own.items() if what.message}
            continue
        if all(what.prints in (True, []) for what in own.values()):  # no numbers came out: nothing can be named
            continue
        prints = by_mistake(fingerprints(notebook, exercise.name), own)
        decimals = {name: what.decimals for name, what in own.items()}
        names, sure = candidates({name: what.prints for name, what in own.items()}, prints, decimals)
        for name, what in own.items():
            here = [mistake for mistake in names if agrees(prints[mistake].get(name), what.prints)]
            if words := sentences(here, sure, known):
                found[name] = " or ".join(here), "\n".join(words)
    return found
