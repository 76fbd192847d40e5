"""What a notebook's cells say of themselves: the course's metadata and nbgrader's, read and written here alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MACHINERY = "machinery"  # the kind of the cells that no source text holds: opening, feedback, closing, score
FORM = "# @title "  # begins a folded cell: Colab shows what follows as its title
SPEAKS = "Feedback: run this cell once. After each check it says what is right and which mistake it looks like."
DRAWS = "Pictures: run this cell once. It looks for a font with the letters of this language; where there is none, labels are English."
PACKED = "Its text, packed: print(feedback.text) shows it; in the course's repository it is in grader/feedback/."
MACHINERY_SOURCES = {  # "" where it is prose, or packed and different in each notebook
    "opening": "",
    "pictures": FORM + DRAWS,  # of a translated notebook
    "feedback": FORM + SPEAKS,
    "closing": "",
    "score": "feedback.score()",
}
ANSWERED = ("solution", "bring", "answer")  # kinds whose text is the learner's


@dataclass(frozen=True)
class Identity:
    """Who a cell is. kind: one of the source text's, of nbgrader's toolbar too, MACHINERY, "text", or "" for none of the course's.

    name: in the course, else nbgrader's grade id. cell_id: the notebook format's (Colab keeps it in the metadata).
    points: of a graded cell. graded: a check or a written answer. written: an answer that a person reads.
    """

    kind: str = ""
    name: str = ""
    grade_id: str = ""
    cell_id: str = ""
    points: float = 0
    graded: bool = False
    written: bool = False


def identity(cell: Mapping[str, Any]) -> Identity:
    """Reads a cell, whatever stands in it: what is not of its right type counts as not there."""
    metadata = _dict(cell.get("metadata"))
    ours, theirs = _dict(metadata.get("grader")), _dict(metadata.get("nbgrader"))
    graded = theirs.get("grade") is True
    points = theirs.get("points")
    return Identity(
        kind=_text(ours.get("kind")) or _toolbar_kind(cell.get("cell_type") == "code", theirs),
        name=_text(ours.get("name")) or _text(theirs.get("grade_id")),
        grade_id=_text(theirs.get("grade_id")),
        cell_id=_text(cell.get("id")) or _text(metadata.get("id")),
        points=points if graded and isinstance(points, int | float) else 0,
        graded=graded,
        written=graded and theirs.get("solution") is True,
    )


def _toolbar_kind(code: bool, theirs: Mapping[str, Any]) -> str:
    grade, solution, locked = (theirs.get(flag) is True for flag in ("grade", "solution", "locked"))
    if grade:
        return "answer" if solution else "check"
    return "solution" if code and solution else "given" if code and locked else ""


def cell_metadata(kind: str, name: str, points: int = 0) -> dict[str, Any]:
    """The metadata of a cell of the course. Prose and shown cells have none of nbgrader's."""
    graded, answered = kind in ("check", "answer"), kind in ANSWERED
    metadata: dict[str, Any] = {"grader": {"kind": kind, "name": name}}
    if graded or answered or kind in ("given", "scenario", MACHINERY):
        locked = {"grade_id": name, "grade": graded, "solution": answered, "locked": not answered, "task": False, "schema_version": 3}
        metadata["nbgrader"] = locked | ({"points": points} if graded else {})
    return metadata


def notebook_name(document: Mapping[str, Any]) -> str:
    """The course's notebook that a file says it is ("" where it says nothing)."""
    return _text(_dict(_dict(document.get("metadata")).get("grader")).get("notebook"))


def folded(source: str) -> str:
    """The text of a check, its title as that of a form."""
    return source.replace("# ", FORM, 1)


def unfolded(source: str) -> str:
    """The text of a cell as it was before its title became that of a form."""
    return source.replace(FORM, "# ")


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _dict(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
