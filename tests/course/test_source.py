"""What is malformed in a source text is refused with one sentence that names file and line."""

import pytest

from grader.course.source import CourseError, read_course, read_notebook

TITLE = "# %% [markdown]\n# # 1. Title\n\n"
SOLUTION = "# %% solution f\ndef f(x):\n    ### BEGIN SOLUTION\n    return x\n    ### END SOLUTION\n\n"
CHECK = "# %% check c points=1\n# It works.\nassert f(1) == 1\n### BEGIN HIDDEN TESTS\nassert f(SEED) == SEED\n### END HIDDEN TESTS\n"


def read(tmp_path, text, encoding="utf-8"):
    path = tmp_path / "01_toy.py"
    path.write_bytes(text.encode(encoding))
    return read_notebook(path)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (TITLE + "# %% quiz f\n1\n", 4, "malformed cell header"),
        (TITLE + "# %%check c points=1\n1\n", 4, "malformed cell header"),
        (TITLE + "# %% check c points=two\n1\n", 4, "malformed cell header"),
        (TITLE + "# %%\n1\n", 4, "malformed cell header"),
        (TITLE + SOLUTION + "# %% check c\n# It works.\n1\n", 10, "no points"),
        (TITLE + "# %% given g points=2\n1\n", 4, "only a check or a written answer has points"),
        (TITLE + SOLUTION + SOLUTION, 10, "the name f is taken by the cell on line 4"),
        (TITLE + SOLUTION + CHECK + CHECK.replace("check c", "check d"), 16, "has the title of check c"),
        (TITLE + SOLUTION.replace("    ### END SOLUTION\n", ""), 6, "is never closed"),
        (TITLE + SOLUTION + CHECK.replace("### END HIDDEN TESTS", ""), 13, "is never closed"),
        (TITLE + SOLUTION.replace("    ### BEGIN SOLUTION\n", ""), 7, "without its partner"),
        (TITLE + "# %% solution f\ndef f(x):\n    return x\n", 4, "exercise f has no stub"),
        (TITLE + SOLUTION + "# %% check c points=1\n# It works.\nassert f(1) == 1\n", 10, "check c has no hidden part"),
        (TITLE + "# %% given g\n1\n### BEGIN HIDDEN TESTS\n### END HIDDEN TESTS\n", 6, "does not belong into a given cell"),
        (TITLE + "# %% given g\ny = 1\nz = f(y)\n\n" + SOLUTION, 6, "given cell g uses f, which the learner writes"),
        (TITLE + CHECK, 4, "before any solution"),
        (TITLE + SOLUTION.replace("def f", "def g"), 4, "does not define a function f"),
        (TITLE + SOLUTION + CHECK.replace("# It works.\n", ""), 10, "has no title"),
        (TITLE + "# %% answer a points=1\n# Why?\n", 4, "needs [markdown]"),
        (TITLE + "# %% given g [markdown]\n# text\n", 4, "is code"),
        (TITLE + "# %% [markdown]\nno comment mark\n", 5, "must begin with '# '"),
        (TITLE + "# %% given g\n1 +\n", 5, "invalid syntax in cell g"),
        (TITLE + "# %% given g\n\n", 4, "an empty cell"),
        ("import torch\n" + TITLE, 1, "text before the first cell header"),
        ("# %% given g\n1\n", 1, "begins with"),
    ],
)
def test_what_is_malformed_is_named_with_its_line(tmp_path, text, line, words):
    with pytest.raises(CourseError) as refused:
        read(tmp_path, text)
    assert f"01_toy.py:{line}: " in str(refused.value)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_byte_order_mark_loses_no_header(tmp_path):
    assert [c.kind for c in read(tmp_path, TITLE + SOLUTION, "utf-8-sig").cells] == ["text", "solution"]


def test_text_in_another_encoding_is_refused(tmp_path):
    with pytest.raises(CourseError, match="not UTF-8"):
        read(tmp_path, TITLE.replace("Title", "Größe"), "latin-1")


def test_a_given_cell_may_not_hold_another_notebooks_answer(tmp_path):
    (tmp_path / "01_one.py").write_text(TITLE + SOLUTION)
    (tmp_path / "02_two.py").write_text(TITLE + "# %% given helpers\ndef f(x):\n    return x\n")
    with pytest.raises(CourseError, match=r"02_two.py:5: the given cell helpers defines f, which is an exercise's answer"):
        read_course(tmp_path)


def test_a_folder_without_source_text_is_refused(tmp_path):
    with pytest.raises(CourseError, match="no source text"):
        read_course(tmp_path)


def test_a_check_knows_its_exercise_title_and_parts(tmp_path):
    check = read(tmp_path, TITLE + SOLUTION + CHECK).of_kind("check")[0]
    assert (check.exercise, check.title, check.points) == ("f", "It works", 1)
    assert check.hidden == "assert f(SEED) == SEED\n"
    assert "HIDDEN" not in check.visible
    assert "SEED = 7\nassert f(SEED)" in check.with_seed(7).source
