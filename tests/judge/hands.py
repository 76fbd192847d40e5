"""Hand-ins for tests: a toy notebook, a warm judge that the tests share, and hostile hand-ins by their files."""

import ast
import atexit
import functools
from dataclasses import dataclass, replace
from pathlib import Path

from grader.course.source import Cell, Notebook, read_notebook
from grader.intake.match import Submission
from grader.judge.judge import Judge, Limits

HOSTILE = Path(__file__).parent / "hostile"
TOY = read_notebook(HOSTILE / "09_toy.py")
RUN = ("given", "bring", "solution", "scenario")


@functools.cache
def warm_judge(seconds: float = 30) -> Judge:
    """One judge for all tests of a process that allow a check so many seconds."""
    judge = Judge(limits=Limits(check=seconds))
    atexit.register(judge.close)
    return judge


def hand_in(notebook: Notebook = TOY, *, first: str = "", last: str = "", **answers: str) -> Submission:
    """A submission with the key's answers but for those given by name; `first` and `last` are cells of the learner's own."""
    cells = [replace(c, source=answers.get(c.name, c.source)) for c in notebook.of_kind(*RUN)]
    own = [Cell("extra", "", source) if source else None for source in (first, last)]
    return Submission(notebook, tuple(c for c in (own[0], *cells, own[1]) if c), ())


@dataclass(frozen=True)
class Hostile:
    """A hostile hand-in. text: its file, the learner's code.

    The docstring says what it tries, after 'Seen: ' what its own error reports, after 'Loses: ' the check it spoils.
    """

    name: str
    text: str

    def says(self, word: str) -> list[str]:
        doc = ast.get_docstring(ast.parse(self.text)) or ""
        return [line.removeprefix(word) for line in doc.splitlines() if line.startswith(word)]

    def submission(self) -> Submission:
        """The whole file stands in the cell of the exercise `double`; `total` is answered honestly."""
        return hand_in(double=self.text)


HOSTILE_HAND_INS = [Hostile(path.stem, path.read_text()) for path in sorted(HOSTILE.glob("[a-z]*.py"))]


def outcome(result) -> dict[str, bool]:
    return {v.check: v.passed for v in result.checks if v.points is not None}


def message(result, check: str) -> str:
    return next(v.message for v in result.checks if v.check == check)
