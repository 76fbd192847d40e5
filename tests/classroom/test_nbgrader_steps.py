"""Stock nbgrader grades with the judge: its own commands, its own gradebook, its own export."""

import contextlib
import re
import shutil
import sqlite3
import subprocess
import sys
from datetime import datetime

import nbformat
import pytest
from nbconvert.exporters import HTMLExporter
from nbgrader.api import Gradebook, MissingEntry
from nbgrader.preprocessors import ClearHiddenTests
from nbgrader.server_extensions.formgrader import handlers
from traitlets.config import Config

from grader.classroom.autograding import from_key, read_master, result_id
from grader.classroom.commands import grade, new
from grader.classroom.nbgrader_steps import Enter, Judge, configure
from grader.course.source import CourseError
from grader.feedback.release import answer_key
from tests.classroom.toy import hand_in_bytes, put
from tests.conftest import COURSE

PLUS_ONE = "def double(x):\n    return x + 1"


@pytest.fixture(scope="module")
def graded(course, tmp_path_factory):
    """A class graded by `nbgrader autograde`, `generate_feedback` and `export`; and what autograde said."""
    directory = tmp_path_factory.mktemp("classes") / "stock"
    new(directory, course[:1], say=lambda line: None)
    put(directory, "anna", course[0], hand_in_bytes(course[0], why="YOUR ANSWER HERE"))
    put(directory, "bo", course[0], hand_in_bytes(course[0], double=PLUS_ONE))
    put(directory, "cleo", course[0], b"%PDF-1.7")
    put(directory, "dora", course[0], hand_in_bytes(course[0]).decode().encode("utf-16"))
    said = [
        subprocess.run([sys.executable, "-m", "nbgrader", *command], cwd=directory, capture_output=True, text=True, check=False)
        for command in (["autograde", "01_double"], ["generate_feedback", "01_double"], ["export"])
    ]
    return directory, said


def test_the_judge_stands_where_a_kernel_stood():
    c = Config()
    configure(c)
    assert c.Autograde.sanitize_preprocessors == [Judge] and c.Autograde.autograde_preprocessors == [Enter]
    assert ClearHiddenTests in c.GenerateFeedback.preprocessors


def test_stock_autograde_gives_the_judges_points(graded):
    directory, _ = graded
    with Gradebook(f"sqlite:///{directory}/gradebook.db") as gradebook:
        scores = {s.student.id: s.score for s in gradebook.assignment_submissions("01_double")}
        assert scores == {"anna": 3, "bo": 1, "dora": 3}
        for student in scores:
            written = gradebook.find_grade("why", "01_double", "01_double", student)
            assert written.needs_manual_grade and written.auto_score is None
            assert not gradebook.find_grade("doubles", "01_double", "01_double", student).needs_manual_grade


def test_what_cannot_be_read_stops_nobody_and_gets_no_zero(graded):
    directory, (autograde, *_) = graded
    assert "Unreadable" in autograde.stderr and "PDF" in autograde.stderr
    with Gradebook(f"sqlite:///{directory}/gradebook.db") as gradebook, pytest.raises(MissingEntry):
        gradebook.find_submission("01_double", "cleo")


def test_stock_feedback_shows_no_hidden_test(graded):
    directory, (_, feedback, _) = graded
    assert feedback.returncode == 0, feedback.stderr
    pages = {path.parts[-3]: path.read_text(encoding="utf-8") for path in directory.glob("feedback/*/*/*.html")}
    assert pages.keys() == {"anna", "bo", "dora"}
    assert "1 and 2 become 2 and 4, not [2.0, 3.0]" in pages["bo"]
    assert not any("secret_draw" in page or "SEED" in page for page in pages.values())


@pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning")  # of nbgrader's add_submission
def test_grader_grade_and_nbgrader_write_the_same_gradebook_and_the_same_files(course, tmp_path):
    """Right, wrong, unsolved, late with a penalty, with cells of the learner's own, unreadable; some marked by a person before."""
    stock, ours = tmp_path / "stock", tmp_path / "ours"
    new(stock, course[:1], say=lambda line: None)
    config = stock / "nbgrader_config.py"
    config.write_text(config.read_text() + "\nc.LateSubmissionPlugin.penalty_method = 'zero'\n")
    added = nbformat.reads(hand_in_bytes(course[0]), 4)
    added.cells[1:1] = [nbformat.v4.new_code_cell("mine = 1"), nbformat.v4.new_code_cell("more = 2")]
    hand_ins = {
        "anna": hand_in_bytes(course[0], why="YOUR ANSWER HERE"),
        "bo": hand_in_bytes(course[0], double=PLUS_ONE),
        "cleo": b"%PDF-1.7",
        "dora": nbformat.writes(added).encode(),
        "eve": (stock / "release/01_double/01_double.ipynb").read_bytes(),
        "finn": hand_in_bytes(course[0], double=PLUS_ONE),
    }
    for student, data in hand_ins.items():
        put(stock, student, course[0], data)
    (stock / "submitted/finn/01_double/timestamp.txt").write_text("2026-11-03 12:00:00 UTC")
    (stock / "submitted/dora/01_double/data.csv").write_text("1,2")
    with Gradebook(f"sqlite:///{stock}/gradebook.db") as gradebook:
        gradebook.find_assignment("01_double").duedate = datetime(2026, 11, 1)
        for student in ("anna", "bo"):
            gradebook.add_student(student, last_name="Lark")
            gradebook.add_submission("01_double", student)
        gradebook.find_grade("why", "01_double", "01_double", "anna").manual_score = 1.5
        gradebook.find_grade("doubles", "01_double", "01_double", "bo").manual_score = 0.5
        gradebook.find_grade("doubles", "01_double", "01_double", "bo").extra_credit = 0.25
        gradebook.find_comment("double", "01_double", "01_double", "bo").manual_comment = "Nearly <there>."
        gradebook.db.commit()
    shutil.copytree(stock, ours)
    grade(ours, jobs=1, say=lambda line: None)
    for command in (["autograde", "01_double"], ["generate_feedback", "01_double"]):
        subprocess.run([sys.executable, "-m", "nbgrader", *command], cwd=stock, capture_output=True, check=False)
    one, other = rows(ours), rows(stock)
    assert one == other and len(one["grade"]) == 15 and {row["late_submission_penalty"] for row in one["submitted_notebook"]} == {None, 1.0}
    assert "No response." in {row["auto_comment"] for row in one["comment"]}
    one, other = files(ours), files(stock)
    assert one == other and len(one) == 2 * (5 + 2)


def rows(directory):
    """Table -> its rows without what is made at random, a reference as what it refers to."""
    with contextlib.closing(sqlite3.connect(directory / "gradebook.db")) as database:
        database.row_factory = sqlite3.Row
        tables = [name for (name,) in database.execute("select name from sqlite_master where type = 'table'")]
        content = {name: [dict(row) for row in database.execute(f"select * from {name}")] for name in tables}
    named = {row["id"]: row for own in content.values() for row in own if len(str(row.get("id"))) == 32}

    def known(value):
        return [known(v) for key, v in named[value].items() if key != "id"] if value in named else value

    plain = {name: [{key: known(value) for key, value in row.items() if key != "id"} for row in own] for name, own in content.items()}
    return {name: sorted(own, key=repr) for name, own in plain.items()}


def files(directory):
    paths = [path for folder in ("autograded", "feedback") for path in (directory / folder).rglob("*") if path.is_file()]
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths}


def test_stock_export_works_and_leaves_our_grades_alone(graded):
    directory, (*_, export) = graded
    assert export.returncode == 0, export.stderr
    assert re.search("^01_double,.*,bo,.*,1.0,0.0,1.0,5.0$", (directory / "nbgrader-export.csv").read_text(), re.MULTILINE)
    assert not (directory / "grades.csv").exists()


def test_an_autograded_notebook_is_the_masters_with_the_learners_answers(graded, course):
    directory, _ = graded
    nb = nbformat.read(directory / "autograded/bo/01_double/01_double.ipynb", 4)
    source = nbformat.read(directory / "source/01_double/01_double.ipynb", 4)
    course_cells = [cell for cell in source.cells if cell.id not in ("feedback", "score")]  # those speak to the learner alone
    for cell, master in zip(nb.cells, course_cells, strict=True):
        assert cell.source == (PLUS_ONE if cell.id == "double" else master.source)


@pytest.mark.parametrize("notebook", COURSE, ids=lambda nb: nb.name)
def test_a_notebook_is_read_back_from_its_answer_key(notebook):
    back = from_key(answer_key(notebook), notebook.name)
    assert back.name == notebook.name
    for ours, theirs in zip(back.cells, notebook.cells, strict=True):
        assert (ours.kind, ours.name, ours.source, ours.markdown, ours.points, ours.exercise) == (
            (theirs.kind, theirs.name, theirs.source, theirs.markdown, theirs.points, theirs.exercise)
        )


def own_cell(new_cell, **marks):
    """A cell that an instructor made with nbgrader's toolbar."""
    facts = {"grade_id": "cell-1", "grade": True, "solution": False, "locked": True, "points": 4, "schema_version": 3, "task": False}
    return new_cell("# Mine.\nassert double(torch.zeros(1)) == 0", metadata={"nbgrader": facts | marks})


def test_a_check_of_the_instructors_own_is_judged_with_the_exercise_above(course):
    key = answer_key(course[0])
    key.cells.append(own_cell(nbformat.v4.new_code_cell))
    check = from_key(key, "01_double").of_kind("check")[-1]
    assert (check.name, check.exercise, check.points) == ("cell-1", "double", 4)
    key.cells.append(own_cell(nbformat.v4.new_code_cell, solution=True, locked=False))
    with pytest.raises(CourseError, match="cell-1 is graded by hand and is code"):
        from_key(key, "01_double")


def test_a_result_belongs_to_one_hand_in_and_one_set_of_tests(tmp_path):
    source = tmp_path / "source.ipynb"
    source.write_text(nbformat.writes(nbformat.v4.new_notebook()))
    first = result_id(b"hand-in", read_master(source))
    assert first == result_id(b"hand-in", read_master(source)) != result_id(b"other", read_master(source))
    source.write_text(nbformat.writes(nbformat.v4.new_notebook(metadata={"another": 1})))
    assert first != result_id(b"hand-in", read_master(source))


def test_what_a_learner_wrote_does_nothing_in_the_browser_of_a_grader():
    c = Config()
    configure(c)
    c.HTMLExporter.template_name, c.HTMLExporter.extra_template_basedirs = "formgrade", [handlers.template_path]
    marks = {"grade": True, "solution": True, "grade_id": "why", "points": 2, "schema_version": 3, "locked": False, "task": False}
    text = "# Why\n\nHello <script>alert(1)</script> <img src=x onerror=alert(2)> [here](javascript:alert(3)) **bold** $x < y$"
    text += "\n\n|a|b|\n|-|-|\n|1|2|"
    nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text, metadata={"nbgrader": marks})])
    page, _ = HTMLExporter(config=c).from_notebook_node(nb, resources={"index": 0, "total": 1, "nbgrader": {}, "mathjax_url": ""})
    cell = page[page.index("Hello") - 200 : page.index("<td>2</td>")]
    assert "<strong>bold</strong>" in cell and "<p>" in cell and "<h1" in cell
    assert "<script" not in cell and "<img src=x onerror" not in cell and "javascript:" not in cell
