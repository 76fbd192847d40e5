"""A plain Python file is read as the notebook whose functions it defines, and what it holds besides costs nothing."""

import re

import pytest
from nbconvert import PythonExporter

from grader.feedback.release import answered
from grader.intake.match import NoExercise, Unreadable, read_python
from tests.conftest import COURSE
from tests.intake.submissions.toy import ANSWERS, toy_course
from tests.intake.test_match import answers, points

FULL = {"twice": 2, "zero_mean": 3}
PLAIN = "import torch\n\n\n" + "\n\n\n".join(ANSWERS[name] for name in ("doubled", "centred")) + "\n"
MAIN = 'if __name__ == "__main__":\n    raise SystemExit("a run of an hour")\n'
PERCENT = "# %% [markdown]\n# # Mine\n\n# %%\n" + PLAIN.replace("\n\n\ndef", "\n\n# %% answer\ndef")

SAME = {  # kinds of files that hold the answers -> a word of the note that is told of them
    "functions alone": (PLAIN, ""),
    "in the other order": ("import torch\n\n" + ANSWERS["centred"] + "\n" + ANSWERS["doubled"], ""),
    "percent cells": (PERCENT, ""),
    "a main block": (PLAIN + MAIN, "line"),
    "a main block the other way round": (PLAIN + MAIN.replace('__name__ == "__main__"', '"__main__" == __name__'), "line"),
    "a main block beside a cell that is not Python": (PERCENT + "\n# %%\nx = = 1\n\n# %%\n" + MAIN, "line"),
    "what an import would run": (PLAIN + MAIN + "else:\n    ready = True\n", "line"),
    "an import of what is not there": ("import no_such_package\n" + PLAIN, ""),
    "a test of its own that fails": (PLAIN + "assert doubled(1) == 3\n", ""),
    "helpers between": (PLAIN.replace("\n\n\ndef", "\n\n\nclass Helper:\n    pass\n\n\ndef helper(x):\n    return x\n\n\ndef"), ""),
    "an older version above": ("def doubled(x):\n    return x\n\n\n" + PLAIN, "several lines (1, "),
    "a function that the course gives": (PLAIN + "\n\ndef clip(x):\n    return 0 * x\n", "The course gives clip"),
    "one beside an answer": (PERCENT.replace("def doubled", "def clip(x):\n    return 0 * x\n\ndef doubled"), "The course gives clip"),
    "a name that the course gives to something else": ("Fraction = float\n" + PLAIN.replace("2 * x", "Fraction(2 * x)"), ""),
    "a version that builds on the one above": (PLAIN + "_first = doubled\ndef doubled(x):\n    return _first(x)\n", "several lines"),
    "answers that are values": ("doubled, centred = lambda x: 2 * x, lambda n: [x - sum(n) / len(n) for x in n]\n", ""),
    "a mark of cells inside a text": ('"""\n# In[1]: what was seen\n# %% and more\n"""\n' + PLAIN, ""),
    "a mark of cells inside a function": (PLAIN.replace("    return 2", "# %% now\n    return 2"), ""),
    "two answers in a cell": ("# %%\n" + PLAIN, ""),
    "Windows line ends": (PLAIN.replace("\n", "\r\n"), ""),
    "spaces of a web page": (PLAIN.replace("    ", "\u00a0   "), "Invisible"),
    "a magic line": ("%matplotlib inline\n" + PLAIN, ""),
    "an annotation of the future": ("from __future__ import annotations\n" + PLAIN + "\ndef f(x: Unknown) -> None:\n    pass\n", ""),
    "two statements on a line": ("a = 1; b = 2\n" + PLAIN + "c = 3; d = lambda x: x\n", ""),
}


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    return toy_course(tmp_path_factory.mktemp("course"))


@pytest.mark.parametrize("kind", SAME)
def test_it_is_graded_as_the_answers_in_a_notebook(kind, course):
    text, note = SAME[kind]
    (submission,) = read_python(text.encode(), "mine.py", course)
    assert submission.notebook.name == course[0].name
    assert points(submission) == FULL, submission
    assert (note in " ".join(submission.notes)) if note else not submission.notes
    assert all(n.endswith(".") and "\n" not in n for n in submission.notes)


def test_no_written_answer_is_asked_for(course):
    (submission,) = read_python(PLAIN.encode(), "mine.py", course)
    assert course[0].of_kind("answer") and not submission.notebook.of_kind("answer") and "why_zero" not in answers(submission)


@pytest.mark.parametrize("notebook", COURSE, ids=lambda notebook: notebook.name)
def test_a_notebook_saved_as_python_is_that_notebook(notebook):
    text, _ = PythonExporter().from_notebook_node(answered(notebook))
    (submission,) = read_python(text.encode(), f"Copy of {notebook.name}.py", COURSE)
    exercises = {cell.name for cell in notebook.of_kind("solution")}
    assert submission.notebook.name == notebook.name and not submission.notes
    assert exercises == {name for name, source in answers(submission).items() if source}


def test_a_file_may_answer_several_notebooks_and_its_name_may_say_which(course):
    text = "\n\n".join(f"def {cell.name}(*arguments):\n    return 1" for nb in COURSE for cell in nb.of_kind("solution")).encode()
    assert [s.notebook.name for s in read_python(text, "mine.py", COURSE)] == [nb.name for nb in COURSE]
    for notebook in COURSE:
        assert [s.notebook.name for s in read_python(text, f"{notebook.name}-v2.py", COURSE)] == [notebook.name]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("def double(x)\n    return 2 * x", r"mine.py: line 1 is not Python \(expected ':'\)"),
        ("x = 1\n\ndef doubled(x):\nreturn 2 * x", "mine.py: line 4 is not Python"),
        ("x = " + "(" * 300 + ")" * 300, "nested"),
        ("\0", "mine.py: the file is empty"),
        ("", "mine.py: the file is empty"),
        ("# " + "x" * 1_000_000, "mine.py: the file is larger than 1 MB"),
        ("# %%\nx\n" * 5001, "mine.py: it has more than 5000 parts"),
        ("x = 1\n\0\nx = 2", r"mine.py: it is not Python \("),
        ("%matplotlib inline\nx = '\\d'\nx = = 1", "mine.py: line 3 is not Python"),
    ],
)
def test_what_is_not_python_is_refused_with_its_line(text, reason, course):
    with pytest.raises(Unreadable, match=reason) as refused:
        read_python(text.encode(), "mine.py", course)
    assert "\n" not in str(refused.value)


def test_a_file_that_defines_no_exercise_is_told_of_the_nearest_name(course):
    with pytest.raises(NoExercise, match=r"^mine.py: it defines none of .*; is its double meant to be doubled\?$"):
        read_python(b"def double(x):\n    return 2 * x\n", "mine.py", course)
    with pytest.raises(NoExercise, match=r"under the names that the notebooks give$"):
        read_python(b"print('hello')\n", "mine.py", course)


def test_every_line_of_a_file_is_in_one_cell_at_its_place(course):
    text = PLAIN + "\nx = 1\n\n# a word\n\nfor i in range(3):\n    def inner():\n        return i\n\ny = 2\n# the end"
    from grader.intake.python_file import read_python_file

    lines = text.split("\n")
    cells = read_python_file(text.encode()).cells
    assert len(cells) == 6
    for cell in cells:
        own = cell.source.split("\n")
        assert lines[cell.number - 1 : cell.number - 1 + len(own)] == own
    assert re.sub(r"\s", "", "".join(cell.source for cell in cells)) == re.sub(r"\s", "", text)
