"""What known mistakes give on the visible part of a check: the table by which they are named."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from grader.course.source import Cell, Notebook
from grader.course.trusted import REPLAYED, failure, namespace
from grader.feedback.naming import NO_NUMBERS, equal, evidence, fingerprint
from grader.mistakes import versions

Entry = list[Any]  # [mistakes, *fingerprint]
Table = list[list[Any]]
_kept: Path | None = None


def fingerprints(notebook: Notebook, *exercises: str) -> Table:
    """[check, entry, …], an entry for each way to fail the check that known mistakes have; mistakes that are alike there share one.

    exercises: only their checks (all, if none is given). What is hidden, and so the seed, plays no part; each exercise is
    worked out once a process, or once a class, see `keep_in`.
    """
    cells, table = tuple(notebook.of_kind(*REPLAYED)), []
    for exercise in notebook.exercises:
        if not exercises or exercise.name in exercises:
            checks = tuple((check.name, check.visible) for check in exercise.checks)
            table += [[check, *entries] for check, entries in _of_exercise(notebook.name, cells, exercise.name, checks).items()]
    return table


def keep_in(folder: Path) -> None:
    """From now on what is worked out is kept in files of this folder, for other processes. Another version of ours needs another folder."""
    global _kept
    folder.mkdir(parents=True, exist_ok=True)
    _kept = folder.absolute()


@functools.lru_cache(maxsize=256)
def _of_exercise(notebook: str, cells: tuple[Cell, ...], exercise: str, checks: tuple[tuple[str, str], ...]) -> dict[str, list[Entry]]:
    if _kept is None:
        return _worked_out(notebook, cells, exercise, checks)
    depends_on = notebook, [(cell.kind, cell.name, cell.source) for cell in cells], exercise, checks
    path = _kept / f"{hashlib.sha256(repr(depends_on).encode()).hexdigest()}.json"
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # not yet, or half of it
        found = _worked_out(notebook, cells, exercise, checks)
        with contextlib.suppress(FileNotFoundError):  # the folder is gone: this process has outlived the class
            path.write_text(json.dumps(found), encoding="utf-8")
        return found


def _worked_out(notebook: str, cells: tuple[Cell, ...], exercise: str, checks: tuple[tuple[str, str], ...]) -> dict[str, list[Entry]]:
    table: dict[str, list[Entry]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what torch thinks of a mistake
        for check, name, *mine in _entries(notebook, cells, exercise, [Cell("check", check, text) for check, text in checks]):
            entries = table.setdefault(check, [])
            twin = next((entry for entry in entries if entry[1:] == mine or equal(entry[1:], mine)), None)
            if twin:
                twin[0] = f"{twin[0]} {name}"
            else:
                entries.append([name, *mine])
    return table


def _entries(notebook: str, cells: tuple[Cell, ...], exercise: str, checks: list[Cell]) -> Iterator[Entry]:
    """[check, mistake, *fingerprint]"""
    wrong = [version for version in versions(notebook) if version.wrong and version.exercise == exercise]
    key = namespace(Notebook(notebook, cells)) if wrong else {}
    right = {check.name: fingerprint(failure(check, key)[1].get("got", [])) for check in checks if wrong}
    for version in wrong:
        names = namespace(Notebook(notebook, cells), {version.exercise: version.source})
        for check in checks:
            error, own = failure(check, names)
            if error:
                ways, _ = evidence(error, own)
                of_words = len(ways) > 1 and (not ways[0][0] or equal(right[check.name], ways[0]))
                yield [check.name, version.name, *(ways[of_words] if ways else NO_NUMBERS)]
