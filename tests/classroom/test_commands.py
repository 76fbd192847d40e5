"""A class at work: made, collected, graded, graded again, reported."""

import contextlib
import csv
import json
import re
import shutil
import sqlite3
from datetime import datetime

import nbformat
import pytest
from nbgrader.api import Gradebook

from grader.classroom.autograding import read_master
from grader.classroom.collecting import collect
from grader.classroom.commands import ClassError, grade, new, report
from grader.feedback import table
from grader.feedback.table import fingerprints
from tests.classroom.toy import hand_in_bytes, judge_here, put, rows
from tests.conftest import COURSE, EVERY_NOTEBOOK

PLUS_ONE = "def double(x):\n    return x + 1"
STUDENTS = {"anna": {}, "王小明": {"double": PLUS_ONE}, "=HYPERLINK(1)": {"double": "def double(x):\n    return x.tolist()"}}


@pytest.fixture(scope="module")
def graded_once(course, empty, tmp_path_factory):
    """A class directory with three hand-ins of notebook 1, one of notebook 2 and two files that are none; and what was said."""
    directory = shutil.copytree(empty, tmp_path_factory.mktemp("classes") / "autumn")
    for student, answers in STUDENTS.items():
        put(directory, student, course[0], hand_in_bytes(course[0], **answers))
    put(directory, "anna", course[1], hand_in_bytes(course[1]))
    put(directory, "bo", course[0], b"%PDF-1.7 this is no notebook")
    (directory / "submitted" / "eve" / course[0].name).mkdir(parents=True)
    said = []
    grade(directory, jobs=2, say=said.append)
    return directory, said


@pytest.fixture
def directory(graded_once, tmp_path):
    """A copy of it that a test may change."""
    return shutil.copytree(graded_once[0], tmp_path / "autumn")


def row(directory, student, notebook="01_double"):
    (found,) = [r for r in rows(directory) if r["student"] == student and r["notebook"] == notebook]
    return found


def quietly(directory, **options):
    said = []
    return grade(directory, jobs=1, say=said.append, **options), "\n".join(said)


# new


@pytest.fixture(autouse=True)
def _one_warm_judge(monkeypatch):
    judge_here(monkeypatch)  # `graded_once` was graded by a pool


def test_a_new_class_has_one_secret_seed_in_its_sources_and_none_in_what_is_released(graded_once):
    directory, _ = graded_once
    seeds = set()
    for source in (directory / "source").glob("*/*.ipynb"):
        text = "\n".join(cell.source for cell in nbformat.read(source, 4).cells)
        seeds |= set(re.findall(r"HIDDEN TESTS\nSEED = (\d+)", text))
        released = (directory / "release" / source.parent.name / source.name).read_text(encoding="utf-8")
        assert "secret_draw" in text and "secret_draw" not in released and "return 2 * x" not in released
        assert not any(seed in released for seed in seeds)
        tags = {c.metadata.grader.kind: c.metadata.get("tags") for c in nbformat.reads(released, 4).cells if c.cell_type == "code"}
        assert tags["check"] == ["raises-exception"] and not tags["given"]
    assert len(seeds) == 1
    assert directory.stat().st_mode & 0o077 == 0, "others on this machine can read the tests"


def test_what_known_mistakes_give_is_worked_out_once_a_class(tmp_path, monkeypatch):
    monkeypatch.setattr(table, "_kept", None)
    table._of_exercise.cache_clear()
    new(tmp_path / "autumn", [COURSE[0], *(notebook for notebook in EVERY_NOTEBOOK if not notebook.graded)], say=lambda line: None)
    assert [path.name for path in (tmp_path / "autumn/release").iterdir()] == [COURSE[0].name], "what is not graded is not handed out"
    known = fingerprints(COURSE[0])
    table._of_exercise.cache_clear()  # as in another process
    monkeypatch.setattr(table, "_worked_out", None)
    assert known and fingerprints(read_master(tmp_path / "autumn/source/01_advantage/01_advantage.ipynb").notebook) == known


def test_another_class_has_another_seed(graded_once, course, tmp_path):
    new(tmp_path / "spring", course[:1], say=lambda line: None)
    sources = [folder / "source/01_double/01_double.ipynb" for folder in (graded_once[0], tmp_path / "spring")]
    one, other = (re.search(r"SEED = (\d\d+)", source.read_text(encoding="utf-8"))[1] for source in sources)
    assert one != other


def test_a_folder_with_other_things_in_it_is_refused(course, tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(ClassError, match="is not empty"):
        new(tmp_path, course)
    with pytest.raises(ClassError, match="is not empty"):
        new(tmp_path / "thesis.txt", course)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_making_a_class_again_completes_it_and_changes_nothing(directory, course):
    source = directory / "source/01_double/01_double.ipynb"
    before = source.read_bytes()
    shutil.rmtree(directory / "source/02_square")
    new(directory, course, say=lambda line: None)
    assert source.read_bytes() == before and (directory / "source/02_square/02_square.ipynb").exists()


def test_what_is_no_class_is_refused(tmp_path):
    for command in (grade, report, lambda folder: collect(folder, [])):
        with pytest.raises(ClassError, match=r"'grader new .*' makes one"):
            command(tmp_path)


# grade


def test_scores_are_those_of_the_judge_and_nothing_is_graded_silently_as_zero(graded_once):
    directory, said = graded_once
    scores = {r["student"]: r["score"] for r in rows(directory) if r["notebook"] == "01_double"}
    assert scores == {"anna": "3", "王小明": "1", "'=HYPERLINK(1)": "0", "bo": "", "eve": ""}
    assert row(directory, "王小明")["01_double/double"] == "1"
    assert row(directory, "王小明")["01_double/double/doubles"] == "0"
    assert row(directory, "王小明")["01_double/double/keeps_the_shape"] == "1"
    for student, reason in (("bo", "PDF"), ("eve", "holds no 01_double.ipynb")):
        blank = row(directory, student)
        assert reason in blank["reason"]
        assert not any(blank[column] for column in blank if column not in ("student", "notebook", "reason"))
    assert row(directory, "王小明", "02_square")["reason"] == "nothing was handed in"
    lines = [line for line in said if line.startswith("[")]
    assert len(lines) == 5 and any("left]" in line for line in lines) and any("not graded: " in line and "bo" in line for line in lines)


def test_sums_agree_with_parts(graded_once):
    for r in rows(graded_once[0]):
        if r["score"]:
            parts = [float(v) for column, v in r.items() if column.count("/") == 2 and v]
            assert float(r["score"]) == sum(parts) == sum(float(v) for column, v in r.items() if column.count("/") == 1 and v)


def test_a_written_answer_waits_for_a_person_and_is_never_zero(directory):
    waiting = row(directory, "anna")
    assert (waiting["01_double/why"], waiting["score"], waiting["max"]) == ("", "3", "3") and "waits for a person: why" in waiting["reason"]
    assert "2 points, not read yet" in (directory / "feedback/anna/01_double/01_double.html").read_text()
    assert not (directory / "grades/canvas-01_double.csv").exists(), "in Canvas a blank takes a score away"
    with Gradebook(f"sqlite:///{directory}/gradebook.db") as gradebook:
        grade_of_it = gradebook.find_grade("why", "01_double", "01_double", "anna")
        assert grade_of_it.needs_manual_grade and grade_of_it.auto_score is None
        grade_of_it.manual_score, grade_of_it.needs_manual_grade = 1.5, False
        gradebook.find_comment("why", "01_double", "01_double", "anna").manual_comment = "Half of *it*: $x^2$ <script>"
        gradebook.db.commit()
    summary, said = quietly(directory)
    assert summary.graded == 0 and "1 feedback pages" in said
    read = row(directory, "anna")
    assert (read["01_double/why"], read["score"], read["max"], read["reason"]) == ("1.5", "4.5", "5", "")
    page = (directory / "feedback/anna/01_double/01_double.html").read_text()
    assert "1.5 of 2" in page and "Half of <em>it</em>: <math" in page and "4.5 of 5" in page and "<script" not in page
    assert "grades/canvas-01_double.csv: the scores of 1;" in said
    assert [r["1. Doubling"] for r in rows(directory, "grades/canvas-01_double.csv") if r["Student"] == "anna"] == ["4.5"]
    assert [r["2. Squaring"] for r in rows(directory, "grades/moodle-02_square.csv") if r["Username"] == "anna"] == ["3"]


def test_an_untouched_written_answer_waits_too(directory, course):
    put(directory, "dora", course[0], hand_in_bytes(course[0], why="YOUR ANSWER HERE"))
    quietly(directory)
    assert row(directory, "dora")["01_double/why"] == "" and "waits" in row(directory, "dora")["reason"]


def test_what_was_graded_is_not_graded_again(directory):
    before = {path: path.stat().st_mtime_ns for path in (directory / ".grader/results").iterdir()}
    summary, _ = quietly(directory)
    assert summary.graded == 0 and summary.unchanged == 5
    assert {path: path.stat().st_mtime_ns for path in (directory / ".grader/results").iterdir()} == before
    assert {reason[0] for reason in summary.ungraded} == {"bo", "eve"}


def test_a_changed_hand_in_is_graded_again_and_the_change_is_said(directory, course):
    put(directory, "王小明", course[0], hand_in_bytes(course[0]))
    summary, said = quietly(directory)
    assert summary.graded == 1 and "王小明  3 of 3 (was 1)" in said
    assert row(directory, "王小明")["score"] == "3"


def test_a_hand_in_that_became_unreadable_loses_its_grade(directory, course):
    put(directory, "anna", course[0], b"half a file {")
    quietly(directory)
    assert row(directory, "anna")["score"] == "" and row(directory, "anna")["reason"]
    assert not (directory / "feedback/anna/01_double").exists()
    assert row(directory, "anna", "02_square")["score"] == "3"


def test_a_changed_test_is_graded_again_for_everybody(directory):
    source = directory / "source/01_double/01_double.ipynb"
    text = source.read_text(encoding="utf-8").replace("got.shape == (2, 3)", "got.shape == (6,)")
    source.write_text(text.replace("return 2 * x", "return (2 * x).reshape(-1)"), encoding="utf-8")
    summary, said = quietly(directory)
    assert summary.graded == 4 and "anna  2 of 3 (was 3)" in said
    assert row(directory, "anna")["01_double/double/keeps_the_shape"] == "0"
    assert "(6,)" in (directory / "release/01_double/01_double.ipynb").read_text(encoding="utf-8")


def test_late_penalties_and_extensions_are_nbgraders(directory):
    (directory / "submitted/anna/01_double/timestamp.txt").write_text("2026-11-03 12:00:00 UTC")
    with Gradebook(f"sqlite:///{directory}/gradebook.db") as gradebook:
        gradebook.find_assignment("01_double").duedate = datetime(2026, 11, 1)
        gradebook.db.commit()
    quietly(directory)
    assert row(directory, "anna")["score"] == "3"
    config = directory / "nbgrader_config.py"
    config.write_text(config.read_text() + "\nc.LateSubmissionPlugin.penalty_method = 'zero'\n")
    quietly(directory)
    assert (row(directory, "anna")["score"], row(directory, "anna")["late penalty"]) == ("0", "3")
    assert "3 points were taken off" in (directory / "feedback/anna/01_double/01_double.html").read_text()
    with Gradebook(f"sqlite:///{directory}/gradebook.db") as gradebook:
        gradebook.grant_extension("01_double", "anna", days=7)
    quietly(directory)
    assert (row(directory, "anna")["score"], row(directory, "anna")["late penalty"]) == ("3", "0")


RULE = """
from nbgrader.plugins import BasePlugin

class PerDay(BasePlugin):
    def late_submission_penalty(self, student_id, score, total_seconds_late):
        return total_seconds_late / 86400 / (student_id == "anna")

c.AssignLatePenalties.plugin_class = PerDay
"""


def test_a_late_rule_of_the_instructors_own_counts_and_where_it_fails_there_is_a_reason(directory):
    for student in ("anna", "王小明"):
        (directory / f"submitted/{student}/01_double/timestamp.txt").write_text("2026-11-03 12:00:00 UTC")
    (directory / "submitted/=HYPERLINK(1)/01_double/timestamp.txt").write_text("yesterday or so")
    with Gradebook(f"sqlite:///{directory}/gradebook.db") as gradebook:
        gradebook.find_assignment("01_double").duedate = datetime(2026, 11, 2)
        gradebook.db.commit()
    config = directory / "nbgrader_config.py"
    config.write_text(config.read_text() + RULE)
    quietly(directory)
    assert (row(directory, "anna")["score"], row(directory, "anna")["late penalty"]) == ("1.5", "1.5")
    for student, reason in (("王小明", "PerDay, fails: ZeroDivisionError"), ("'=HYPERLINK(1)", "timestamp.txt holds no time")):
        assert row(directory, student)["score"] == "" and reason in row(directory, student)["reason"]
    assert not (directory / "feedback/王小明/01_double").exists()


def test_a_spreadsheet_reads_names_in_any_script_and_runs_no_formula(graded_once):
    directory, _ = graded_once
    for name in ("grades.csv", "grades/students.csv"):
        data = (directory / name).read_bytes()
        assert data.startswith(b"\xef\xbb\xbf") and "王小明".encode() in data
        for cells in csv.reader(data.decode("utf-8-sig").splitlines()):
            assert not any(cell.startswith(("=", "+", "-", "@")) for cell in cells)


def test_feedback_says_what_failed_and_shows_no_hidden_test(graded_once):
    directory, _ = graded_once
    page = (directory / "feedback/王小明/01_double/01_double.html").read_text(encoding="utf-8")
    assert "Every number is doubled" in page and "1 and 2 become 2 and 4, not [2.0, 3.0]" in page and "0 of 2" in page
    for other in directory.glob("feedback/*/*/*.html"):
        text = other.read_text(encoding="utf-8")
        assert "secret_draw" not in text and "SEED" not in text and "<script" not in text and "http" not in text


def test_a_learners_markup_stays_text(directory, course):
    put(directory, "mallory", course[0], hand_in_bytes(course[0], why="<script>alert(1)</script>", double=PLUS_ONE + "  # </pre><script>"))
    quietly(directory)
    assert "<script" not in (directory / "feedback/mallory/01_double/01_double.html").read_text()


def test_the_records_are_readable_by_other_programs(graded_once):
    directory, _ = graded_once
    record = json.loads((directory / ".grader/handins/anna/01_double.json").read_text())
    assert record["score"] == 3 and (directory / ".grader/results" / f"{record['result']}.json").exists()
    with contextlib.closing(sqlite3.connect(directory / "gradebook.db")) as database:
        assert database.execute("select count(*) from submitted_notebook").fetchone() == (4,)
