"""What known mistakes give on the visible part of a check: the table that lets a notebook name them."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator

from grader.course import Notebook
from grader.inprocess import failure, namespace
from grader.learner_cell import Feedback
from grader.mistakes import versions

Entry = list[str | int | float]  # [check, mistake, how many numbers, three sums of them]


@functools.cache
def fingerprints(notebook: Notebook) -> tuple[Entry, ...]:
    """An entry for each mistake and check whose variable `got` differs from the right answer's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what torch thinks of a mistake
        return tuple(_entries(notebook))


def _entries(notebook: Notebook) -> Iterator[Entry]:
    key = namespace(notebook)
    for version in versions(notebook.name):
        names = namespace(notebook, {version.exercise: version.source}) if version.wrong else {}
        for check in notebook.of_kind("check") if version.wrong else ():
            if check.exercise != version.exercise:
                continue
            error, own = failure(check, names, hidden=False)
            mine, right = (
                Feedback.fingerprint(own.get("got", [])),
                Feedback.fingerprint(failure(check, key, hidden=False)[1].get("got", [])),
            )
            if isinstance(error, AssertionError) and mine and not (right and Feedback.equal(right, mine)):
                yield [check.name, version.name, *mine]
