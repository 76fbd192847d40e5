"""A cell that stops keeps what it defines: no line that grading cannot run costs a right answer its points."""

from dataclasses import replace

import pytest

from grader.course.source import Cell
from tests.judge.hands import TOY, hand_in, message, outcome, warm_judge

DOUBLE = next(cell.source for cell in TOY.of_kind("solution") if cell.name == "double")
ABOVE = {
    "a package that is not here": "import no_such_package as nsp\n",
    "Colab's drive": "from google.colab import drive\ndrive.mount('/content/drive')\n",
    "a magic": "%cd /content\n%load_ext no_such_extension\n!pip install -q einops\n",
    "a GPU": "import torch\nx = torch.zeros(3).to('cuda')\n",
    "a file": "open('/content/notes.txt').read()\n",
    "a question": "name = input('name? ')\n",
    "a cell magic": "%%time\nimport no_such_package\n",
    "two in a row": "import no_such_package\nundefined_name\n1 / 0\n",
    "an exit": "raise SystemExit\n",
}


@pytest.mark.parametrize("above", ABOVE.values(), ids=ABOVE)
def test_what_follows_a_line_that_fails_still_counts(above):
    result = warm_judge().judge(hand_in(double=above + DOUBLE))
    assert all(outcome(result).values())
    result = warm_judge().judge(hand_in(first=above + "two = 2", double="def double(x, scale=2.0):\n    return x * scale * two / 2"))
    assert all(outcome(result).values())


def test_what_stopped_is_a_note_and_said_where_it_matters():
    result = warm_judge().judge(hand_in(double="import no_such_package as nsp\ndef double(x, scale=2.0):\n    return nsp.twice(x)"))
    assert not outcome(result)["twice"]
    note = "Cell double stopped with ModuleNotFoundError: No module named 'no_such_package'; what follows it was run all the same."
    assert result.notes == (note,)
    assert "Grading has Python's own library, torch, numpy and matplotlib." in message(result, "twice") and note in message(result, "twice")


@pytest.mark.parametrize(("code", "where"), [("x = 1\nraise ValueError", "Line 8 stopped"), ("x = = 1", "The code from line 7 stopped")])
def test_what_stopped_in_a_python_file_has_its_line(code, where):
    submission = hand_in()
    (note,) = warm_judge().judge(replace(submission, cells=(*submission.cells, Cell("extra", "", code, line=7)))).notes
    assert note.startswith(where)


@pytest.mark.parametrize("below", ["\n%timeit -n 100000000 -r 100 double(x)\n", "\nwhile True: pass\n", "\nimport os\nos._exit(0)\n"])
def test_a_cell_that_never_ends_keeps_what_it_defines(below):
    result = warm_judge(5).judge(hand_in(double="import torch\nx = torch.ones(2)\n" + DOUBLE + below))
    assert all(outcome(result).values()) and len(result.notes) == 1


def test_code_that_torch_refuses_is_not_called_unwritten():
    result = warm_judge().judge(hand_in(double="def double(x, scale=2.0):\n    return x ^ 2"))
    assert "not written yet" not in message(result, "twice") and "In Python ^ is not a power" in message(result, "twice")


HUGE = "0x" + "f" * 5000
ODD_CELLS = {
    "raise ValueError('\\x1b[2J\\ud800')": 1,  # what a terminal obeys, and what no file can hold
    f"X = {HUGE}\nimport os\nos._exit(1)": 1,  # a number that Python reads and refuses to print
    "\n".join(f"undefined_{i}" for i in range(200)): 20,
}


@pytest.mark.parametrize(("source", "notes"), ODD_CELLS.items())
def test_whatever_a_cell_says_as_it_stops_the_result_can_be_kept_and_shown(source, notes):
    result = warm_judge().judge(hand_in(first=source))
    assert all(outcome(result).values()) and len(result.notes) == notes
    assert "\x1b" not in "".join(result.notes) and result.to_json().encode()


def test_a_process_that_always_stops_at_the_same_line_is_not_asked_for_ever():
    source = "from grader.sandbox.learner_process import Side\nSide._line = lambda self, error: 1"
    result = warm_judge().judge(hand_in(first=source, last="1 / 0\n2 / 0\n3 / 0"))
    assert len(result.notes) <= 2 and all(outcome(result).values())
