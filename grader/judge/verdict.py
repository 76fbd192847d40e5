"""What a judge says: the verdict on each check of a hand-in, and what was seen besides."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Verdict:
    """Of one check. points: None for a written answer, which waits for a person. mistake: the name of a known one.

    open: it is not written yet.
    """

    exercise: str
    check: str
    title: str
    points: float | None
    max_points: int
    passed: bool
    message: str = ""
    mistake: str | None = None
    open: bool = False


def without_repeats(messages: Iterable[str]) -> list[str]:
    """The messages of an exercise's checks, less what an earlier one tells behind its first line: what the mistake looks like."""
    told, said = list[str](), set[str]()
    for message in messages:
        first, *more = message.split("\n")
        told.append("\n".join([first, *(line for line in more if line not in said)]))
        said.update(more)
    return told


@dataclass(frozen=True)
class Result:
    """Of one hand-in. notes: what was mended, and what went wrong outside of the checks, a sentence each."""

    notebook: str
    checks: tuple[Verdict, ...]
    notes: tuple[str, ...]

    @property
    def points(self) -> float:
        return sum(v.points for v in self.checks if v.points is not None)

    @property
    def max_points(self) -> int:
        """Without written answers."""
        return sum(v.max_points for v in self.checks if v.points is not None)

    def to_json(self) -> str:
        return json.dumps(asdict(self) | {"points": self.points, "max_points": self.max_points}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Result:
        """The result that `to_json` wrote. Raises ValueError where the text is damaged."""
        try:
            facts: dict[str, Any] = json.loads(text)
            checks = tuple(Verdict(**verdict) for verdict in facts["checks"])
            return cls(facts["notebook"], checks, tuple(facts["notes"]))
        except (KeyError, TypeError) as e:
            raise ValueError(f"not a result: {e}") from None
