"""A course of two small notebooks, and hand-ins for it."""

import csv
from pathlib import Path

import nbformat

from grader.classroom.autograding import autograde
from grader.classroom.pool import answer_of
from grader.course.source import Notebook, read_course
from grader.feedback.release import answered

DOUBLE = '''# %% [markdown]
# # 1. Doubling
#
# A small notebook.

# %% given setup
import torch

SEED = 0

# %% solution double
def double(x):
    """Twice x: [N] -> [N]."""
    ### BEGIN SOLUTION
    return 2 * x
    ### END SOLUTION

# %% check doubles points=2
# Every number is doubled.
got = double(torch.tensor([1.0, 2.0]))
assert torch.is_tensor(got), f"a tensor is expected, not {got!r}"
assert got.tolist() == [2.0, 4.0], f"1 and 2 become 2 and 4, not {got.tolist()}"
### BEGIN HIDDEN TESTS
secret_draw = torch.randn(5, generator=torch.Generator().manual_seed(SEED))
assert torch.equal(double(secret_draw.clone()), secret_draw + secret_draw)
### END HIDDEN TESTS

# %% check keeps_the_shape points=1
# The shape stays.
got = double(torch.zeros(2, 3))
assert got.shape == (2, 3), "the shape changed"
### BEGIN HIDDEN TESTS
assert double(torch.zeros(1)).shape == (1,)
### END HIDDEN TESTS

# %% [markdown]
# Why would one double?

# %% answer why [markdown] points=2
# To have more.
'''
SQUARE = '''# %% [markdown]
# # 2. Squaring
#
# Another one.

# %% given setup
import torch

SEED = 0

# %% bring double
def double(x):
    """From notebook 1."""
    ### BEGIN SOLUTION
    return 2 * x
    ### END SOLUTION

# %% solution square
def square(x):
    """x times x."""
    ### BEGIN SOLUTION
    return x * x
    ### END SOLUTION

# %% check squares points=3
# Three squared is nine.
got = square(torch.tensor([3.0]))
assert got.tolist() == [9.0], "three times three is nine"
### BEGIN HIDDEN TESTS
secret_draw = torch.randn(5, generator=torch.Generator().manual_seed(SEED))
assert torch.equal(double(square(secret_draw.clone())), 2 * secret_draw**2)
### END HIDDEN TESTS
'''


def toy_course(folder: Path) -> list[Notebook]:
    for name, text in (("01_double", DOUBLE), ("02_square", SQUARE)):
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    return read_course(folder)


def hand_in_bytes(notebook: Notebook, **answers: str) -> bytes:
    """A notebook as a learner hands it in; an answer that is not given is the key's."""
    return nbformat.writes(answered(notebook, answers)).encode()


def put(directory: Path, student: str, notebook: Notebook, data: bytes) -> Path:
    """Puts a file where nbgrader's own collecting would."""
    path = directory / "submitted" / student / notebook.name / f"{notebook.name}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def judge_here(monkeypatch) -> None:
    """Lets `grade` judge in this process, with a judge that stays warm, so that a test does not wait for a new pool."""

    def judged(work, jobs, *, allow_no_jail):
        for whose, *files in work:
            yield whose, answer_of(autograde, *files, allow_no_jail=allow_no_jail)

    monkeypatch.setattr("grader.classroom.pool.judged", judged)


def rows(directory: Path, name: str = "grades.csv") -> list[dict[str, str]]:
    """Those of a table of a class, as a spreadsheet reads it."""
    with (directory / name).open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))
