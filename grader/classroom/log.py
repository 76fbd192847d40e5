"""A class's grading.log: what was done to whom, when, and with which grader; it only ever grows."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from grader.classroom.atomic import append_line

COLUMNS = ("time", "notebook", "student", "before", "after", "what was said", "hand-in", "source", "grader")


def write_down(path: Path, *facts: object) -> None:
    """Adds a line of facts, one for each of COLUMNS behind the time, with tabs between them. None is blank.

    The last three are SHA-256 hashes of the files, their first 12 digits: `sha256sum` tells them, too.
    """
    if not path.exists():
        append_line(path, "\t".join(COLUMNS))
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    append_line(path, "\t".join(map(_text, (now, *facts))))


def _text(fact: object) -> str:
    """A fact on one line and without a tab."""
    if fact is None:
        return ""
    return f"{fact:g}" if isinstance(fact, float) else " ".join(str(fact).split())
