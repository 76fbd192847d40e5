"""What a learner's notebook says after a cell was run, in a real IPython shell."""

import re
from types import ModuleType

import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from grader.feedback import cell

CHECKS = {
    "Twice as much comes out": ["twice", "double", 2],
    "A list comes out twice as long": ["long", "double", 1],
    "Four times as much comes out": ["four", "quadruple", 1],
}
GIVEN = "def scaled(x, y):\n    return x + y"
RIGHT = "def double(x):\n    return 2 * x"
WRONG = "def double(x):\n    return 3 * x"
BROKEN = "def double(x):\n    return 2 * (x"
QUADRUPLE = "def quadruple(x):\n    return double(double(x))"
TWICE = "# Twice as much comes out.\ngot = double(3)\nassert got == 6, f'twice 3 is 6, and {got} came out'"
FOUR = "# Four times as much comes out.\ngot = quadruple(3)\nassert got == 12, f'four times 3 is 12, not {got}'"


class Notebook:
    """A shell with the feedback cell in it. It gives what a cell prints and shows."""

    def __init__(self, monkeypatch, capsys):
        # each shell has a main module of its own
        self.shell = InteractiveShell(config=Config({"HistoryManager": {"enabled": False}}), user_module=ModuleType("a_notebook"))
        self.capsys = capsys
        monkeypatch.setattr(cell, "get_ipython", lambda: self.shell)
        ideas = [("", "Think."), ("long", "Of lists."), ("twice", "Of numbers.")]
        places = {
            "double": (ideas, "Where to read: above."),
            "quadruple": ([], "Where to read: there."),
            "brought": ([], "Where to read: far."),
        }
        self.feedback = cell.Feedback("toy", "", 0, CHECKS, places, {"double": {"x": "[N]"}}, {}, [])

    def run(self, source):
        self.capsys.readouterr()
        self.shell.run_cell(source)
        return re.sub(r"\x1b\[[\d;]*m", "", self.capsys.readouterr().out)

    def hint(self, *exercise):
        self.capsys.readouterr()
        self.feedback.hint(*exercise)
        return self.capsys.readouterr().out


@pytest.fixture
def notebook(monkeypatch, capsys):
    return Notebook(monkeypatch, capsys)


ABOVE = ["", "\n\n", "%%time\n", "%%capture\n", '# @title Check 1 { display-mode: "form" }\n', "#@title\n", "# my own note: why?\n\n"]


@pytest.mark.parametrize("above", ABOVE)
def test_what_stands_above_a_check_changes_nothing(notebook, above):
    notebook.run(WRONG)
    said = notebook.run(above + TWICE)
    assert "✓" not in said and 'Stuck? hint("double")' in said and notebook.feedback.passed == {"twice": False}
    notebook.run(RIGHT)
    assert "✓ 2 points: this part of double is right." in notebook.run(above + TWICE)


def test_a_title_of_a_form_is_the_title(notebook):
    notebook.run(RIGHT)
    for mark in ("#@title ", "# @title ", "#  "):
        assert "✓" in notebook.run(TWICE.replace("# ", mark, 1).replace("out.", 'out. { display-mode: "form" }', 1)), mark


def test_an_error_that_a_magic_shows_and_passes_over_is_a_failure(notebook, monkeypatch):
    """%%time of IPython 7.34 shows an error and goes on, as if the cell had run."""
    notebook.run(WRONG)
    monkeypatch.setitem(notebook.shell.user_ns, "show", notebook.shell.showtraceback)
    swallowed = TWICE.replace("\n", "\ntry:\n    ", 1).replace("\nassert", "\n    assert", 1) + "\nexcept AssertionError:\n    show()"
    assert "✓ 2" not in notebook.run(swallowed) and notebook.feedback.passed == {"twice": False}


@pytest.mark.parametrize("broken", [BROKEN, "import no_such_module\n\n\n" + RIGHT, "%%time\n" + BROKEN])
def test_a_function_whose_cell_failed_is_not_judged_until_it_runs(notebook, broken):
    for earlier in (WRONG, RIGHT):
        notebook.run(earlier)
        assert "double is not defined by this cell: it stopped with an error." in notebook.run(broken)
        said = notebook.run(TWICE)
        assert "Not judged: double is not what its cell says" in said and "✓" not in said and "came out" not in said
        assert not notebook.feedback.passed["twice"]
    notebook.run(QUADRUPLE)
    assert "Not judged: double is" in notebook.run(FOUR)  # it calls double
    notebook.run(RIGHT)
    assert "✓" in notebook.run(TWICE) and "✓" in notebook.run(FOUR)


def test_a_function_that_was_never_defined_waits_too(notebook):
    assert "double is not defined by this cell" in notebook.run(BROKEN)
    said = notebook.run(TWICE)
    assert "Not judged" in said and "NameError" not in said
    assert notebook.run("x = 1 +").endswith("SyntaxError: invalid syntax\n\n")  # what defines nothing has the error alone


def test_an_error_below_a_function_leaves_it_defined(notebook):
    said = notebook.run(RIGHT + "\n\n\nundefined")
    assert "NameError" in said and "not defined by this cell" not in said
    assert "✓" in notebook.run(TWICE)


def test_an_error_inside_a_function_is_told_in_words_wherever_it_is_called(notebook):
    notebook.run("def double(x):\n    return x + [None][1]")
    notebook.run(QUADRUPLE)
    said = notebook.run("print(quadruple(1))")
    assert "In double: An index points outside: n entries have the indices 0 to n - 1." in " ".join(said.split())
    assert "IndexError" in said
    assert "In " not in notebook.run("[1][3]").replace("In [", "")  # not the learner's function
    notebook.run("def double(x):\n    raise NotImplementedError()")
    said = notebook.run("print(quadruple(1))")
    assert said.split("\n") == ["NotImplementedError: double is not written yet: line 2 of its cell is still open.", ""]


def test_shapes_that_do_not_fit_are_told_beside_those_of_the_text(notebook):
    notebook.run("import torch\n\n\ndef double(x, y=2):\n    return x + torch.zeros(3)")
    for source in ("double(torch.zeros(2))", TWICE.replace("3)", "torch.zeros(2))")):
        said = " ".join(notebook.run(source).split())
        assert "Two tensors do not fit: compare their shapes axis by axis, from the right." in said
        assert "The text gives the shapes x [N]; here they came as x [2]." in said


def test_a_cause_is_named_only_where_the_function_is_called(notebook):
    notebook.run(WRONG)
    notebook.run(TWICE)
    notebook.run(QUADRUPLE)
    assert "quadruple calls double, which fails a check of its own: begin there." in notebook.run(FOUR)
    notebook.run("def quadruple(x):\n    return 5 * x")
    said = notebook.run(FOUR)
    assert "calls" not in said and "echo" not in said
    notebook.run(QUADRUPLE)
    notebook.run(RIGHT.replace("2 *", "1 *"))  # it may be right now: its check was not run again
    assert "calls" not in notebook.run(FOUR)


def test_long_messages_are_wrapped_and_tables_are_not(notebook):
    notebook.run(WRONG)
    long = TWICE.replace("came out'", f"came out. {'Many words. ' * 20}\\n    1    2\\n    3    4'")
    said = notebook.run(long).split("\n")
    assert len(said) > 4 and max(map(len, said)) <= 80 and "    1    2" in said
    assert cell.wrapped("one\n  " + "two " * 30).split("\n")[2].startswith("  two")
    assert cell.wrapped("a\n\nb") == "a\n\nb"


def test_hints_are_for_the_check_that_failed(notebook):
    notebook.run(WRONG)
    notebook.run(TWICE)
    assert notebook.hint() == "Hint 1 of 4: The property to look at: Twice as much comes out.\n"
    steps = [notebook.hint("double") for _ in range(4)]
    assert [step.partition(": ")[2] for step in steps[:3]] == ["Think.\n", "Of numbers.\n", "Where to read: above.\n"]
    assert steps[3].startswith("That was the last hint")
    notebook.feedback.passed = {"long": False}  # the one that failed, before the one that was not run
    assert "A list comes out" in notebook.hint("double") and "Think" in notebook.hint("double") and "Of lists" in notebook.hint("double")
    notebook.feedback.passed = {"long": True, "twice": True}
    assert notebook.hint("double") == "Hint 1 of 5: All checks are passed.\n"
    assert notebook.hint("no_such").startswith("There is no exercise 'no_such' here; there are double, quadruple")
    assert notebook.hint("brought") == "Hint 1 of 1: Where to read: far.\n"
