"""What known mistakes give on the visible part of a check: the table that lets a notebook name them."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator

from grader.course import Notebook
from grader.inprocess import failure, namespace
from grader.learner_cell import Feedback
from grader.mistakes import versions

Entry = list[str | int | float]  # [mistakes, how many numbers, their mean size, two sums]


@functools.cache
def fingerprints(notebook: Notebook) -> dict[str, list[Entry]]:
    """Check -> an entry for each way to fail it that known mistakes have; mistakes that are alike there share one, by name."""
    table: dict[str, list[Entry]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what torch thinks of a mistake
        for check, name, *mine in _entries(notebook):
            entries = table.setdefault(check, [])
            twin = next((entry for entry in entries if Feedback.equal(entry[1:], mine)), None)
            if twin:
                twin[0] = f"{twin[0]} {name}"
            else:
                entries.append([name, *mine])
    return table


def _entries(notebook: Notebook) -> Iterator[Entry]:
    """[check, mistake, how many numbers, their mean size, two sums]"""
    key = namespace(notebook)
    right = {c.name: Feedback.fingerprint(failure(c, key, hidden=False)[1].get("got", [])) for c in notebook.of_kind("check")}
    for version in versions(notebook.name):
        if not version.wrong:
            continue
        names = namespace(notebook, {version.exercise: version.source})
        for check in notebook.of_kind("check"):
            if check.exercise != version.exercise:
                continue
            error, own = failure(check, names, hidden=False)
            if isinstance(error, AssertionError):
                ways = Feedback.evidence(error, own)
                of_words = len(ways) > 1 and (not ways[0][0] or Feedback.equal(right[check.name], ways[0]))
                yield [check.name, version.name, *ways[of_words]]
