"""What known mistakes give on the visible part of a check: the table that lets a notebook name them."""

from __future__ import annotations

import functools
from pathlib import Path

from grader.course import Notebook
from grader.inprocess import execute, failure, namespace
from grader.mistakes import versions

Entry = list[str | int | float]  # [check, mistake, summary, hint, count of numbers, three sums]


@functools.cache
def fingerprints(notebook: Notebook) -> tuple[Entry, ...]:
    """An entry for each mistake and check whose variable `got` differs from the right answer's."""
    feedback: dict[str, object] = {}
    execute(Path(__file__).with_name("learner_cell.py").read_text(encoding="utf-8"), feedback, "<feedback>")
    fingerprint = feedback["Feedback"].fingerprint
    key, entries = namespace(notebook), []
    for version in versions(notebook.name):
        names = namespace(notebook, {version.exercise: version.source}) if version.wrong else {}
        for check in notebook.of_kind("check") if version.wrong else ():
            if check.exercise != version.exercise:
                continue
            error, own = failure(check, names, hidden=False)
            mine, expected = fingerprint(own.get("got", [])), fingerprint(failure(check, key, hidden=False)[1].get("got", []))
            if isinstance(error, AssertionError) and mine and mine != expected:
                entries.append([check.name, version.name, version.summary, version.hint, *mine])
    return tuple(entries)
