"""A class that changes: students leave, grades are made anew, refused files are outlived, an instructor edits the source."""

import csv
import hashlib
import json
import re
import shutil
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell
from nbgrader.api import Gradebook

from grader.classroom import commands
from grader.classroom.changes import still_refused
from grader.classroom.collecting import collect
from grader.classroom.commands import ClassError, grade, new, remove, report
from grader.classroom.directory import ClassDirectory
from grader.classroom.gradebook import ClassGradebook
from grader.classroom.log import COLUMNS
from tests.classroom.toy import hand_in_bytes, judge_here, put, rows

PLUS_ONE = "def double(x):\n    return x + 1"
HAND_INS = {("anna", "01_double"), ("anna", "02_square"), ("bo [2]", "01_double"), ("cleo", "02_square")}


@pytest.fixture(autouse=True)
def _one_warm_judge(monkeypatch):
    judge_here(monkeypatch)


@pytest.fixture(scope="module")
def graded_once(course, tmp_path_factory):
    """A class directory with four hand-ins, and what `new` said of it."""
    directory, said = tmp_path_factory.mktemp("classes") / "autumn", []
    with pytest.MonkeyPatch.context() as patch:
        judge_here(patch)
        new(directory, course, say=said.append)
        for student, name in HAND_INS:
            notebook = course[0] if name == course[0].name else course[1]
            put(directory, student, notebook, hand_in_bytes(notebook, **({"double": PLUS_ONE} if "bo" in student else {})))
        grade(directory, say=lambda line: None)
    return directory, said


@pytest.fixture
def directory(graded_once, tmp_path):
    """A copy of it that a test may change."""
    return shutil.copytree(graded_once[0], tmp_path / "autumn")


def quietly(directory, **options):
    said = []
    return grade(directory, jobs=1, say=said.append, **options), said


def log(directory):
    with (directory / "grading.log").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def standing(directory):
    """All that a command which refuses to work must leave as it was."""
    places = ("grades.csv", "grading.log", ".grader/handins", "release", "autograded", "feedback", "submitted")
    found = [path for place in places for path in (directory / place, *(directory / place).rglob("*")) if path.is_file()]
    return {path: path.read_bytes() for path in found}


def test_new_says_what_it_is_at(graded_once, course):
    _, said = graded_once
    for notebook in course:
        assert [line.split(": ")[1].split()[0] for line in said if line.startswith(f"{notebook.name}: ")] == ["written", "released"]
    assert any("answer key is tried" in line for line in said)


# grade --regrade


@pytest.mark.parametrize(
    ("name", "again"),
    [
        ("anna", {key for key in HAND_INS if key[0] == "anna"}),
        ("bo [2]", {key for key in HAND_INS if key[0] == "bo [2]"}),
        ("01_double", {key for key in HAND_INS if key[1] == "01_double"}),
        ("1", {key for key in HAND_INS if key[1] == "01_double"}),
        ("02", {key for key in HAND_INS if key[1] == "02_square"}),
        ("square", {key for key in HAND_INS if key[1] == "02_square"}),
    ],
)
def test_a_student_a_notebook_or_an_exercise_is_graded_anew(directory, name, again):
    before = rows(directory)
    summary, said = quietly(directory, regrade=name)
    lines = [line for line in said if line.startswith("[")]
    assert len(lines) == summary.graded == len(again)
    assert all(any(student in line and notebook in line for line in lines) for student, notebook in again)
    assert not any("(was" in line for line in lines) and rows(directory) == before


@pytest.mark.parametrize("step", ["remember", "results"])
@pytest.mark.parametrize("place", range(4))
def test_a_regrading_that_was_stopped_leaves_nobody_without_a_grade(directory, monkeypatch, step, place):
    def stopping(whole):
        steps = iter(range(place))

        def step(*arguments, **options):
            if next(steps, None) is None:
                raise KeyboardInterrupt
            return whole(*arguments, **options)

        return step

    before = rows(directory)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        if step == "remember":
            patch.setattr(ClassDirectory, "remember", stopping(ClassDirectory.remember))
        else:
            patch.setattr(Path, "unlink", stopping(Path.unlink))
        quietly(directory, regrade="anna")
    quietly(directory)
    report(directory, say=lambda line: None)
    assert rows(directory) == before and "not graded yet" not in (directory / "report.html").read_text(encoding="utf-8")


def test_a_score_that_a_new_judgement_changes_is_said(directory):
    path = directory / ".grader/handins/anna/01_double.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"score": 1.0}))
    _, said = quietly(directory, regrade="01_double")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"result": "of an older grader", "entry": ""}))
    _, again = quietly(directory)
    assert any("anna  3 of 3 (as before)" in line for line in again)
    assert any("anna  3 of 3 (was 1)" in line for line in said) and not any("bo" in line and "(was" in line for line in said)


@pytest.mark.parametrize(("name", "near"), [("ana", "anna"), ("01_doubel", "01_double"), ("sqare", "square"), ("..", "")])
def test_a_name_that_is_nothing_is_told_of_the_nearest(directory, name, near):
    before = standing(directory)
    with pytest.raises(ClassError, match=f"is no student with a hand-in, no notebook and no exercise .*{near}"):
        quietly(directory, regrade=name)
    assert standing(directory) == before


# grading.log


def test_the_log_has_a_line_for_each_hand_in_that_was_graded_and_it_can_be_checked(directory):
    lines = log(directory)
    assert (
        tuple(lines[0]) == COLUMNS and {(line["student"], line["notebook"]) for line in lines} == HAND_INS and len(lines) == len(HAND_INS)
    )
    for line in lines:
        name = line["notebook"]
        for column, path in (("hand-in", f"submitted/{line['student']}/{name}"), ("source", f"source/{name}")):
            assert hashlib.sha256((directory / path / f"{name}.ipynb").read_bytes()).hexdigest().startswith(line[column])
            assert len(line[column]) == len(line["grader"]) == 12
        assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", line["time"])
        assert (line["before"], line["after"]) == ("", "1" if "bo" in line["student"] else "3")


def test_the_log_only_grows_and_says_why_a_score_changed(directory, course):
    before = (directory / "grading.log").read_bytes()
    quietly(directory)
    assert (directory / "grading.log").read_bytes() == before, "nothing was graded"
    put(directory, "bo [2]", course[0], hand_in_bytes(course[0]))
    put(directory, "anna", course[0], b"%PDF-1.7 this is no notebook")
    quietly(directory)
    assert (directory / "grading.log").read_bytes().startswith(before)
    new_lines = {line["student"]: line for line in log(directory)[len(HAND_INS) :]}
    assert (new_lines["bo [2]"]["before"], new_lines["bo [2]"]["after"]) == ("1", "3")
    assert (new_lines["anna"]["before"], new_lines["anna"]["after"]) == ("3", "") and "PDF" in new_lines["anna"]["what was said"]


def test_what_stands_in_the_gradebook_stands_in_the_log_though_the_command_is_stopped(directory, course, monkeypatch):
    def stopped(*_):
        raise KeyboardInterrupt

    put(directory, "bo [2]", course[0], hand_in_bytes(course[0]))
    with monkeypatch.context() as patch:
        patch.setattr(ClassDirectory, "write_record", stopped)
        with pytest.raises(KeyboardInterrupt):
            quietly(directory)
    with (directory / "grading.log").open("ab") as file:
        file.write(b"half a li")  # as a full disk leaves it
    quietly(directory)
    assert [line["after"] for line in log(directory)[len(HAND_INS) :]] == ["3", None, "3"], "the half line stays, and ends"
    assert next(r for r in rows(directory) if r["student"] == "bo [2]")["score"] == "3"


# remove


def people(directory):
    with Gradebook(f"sqlite:///{directory}/gradebook.db") as gradebook:
        return {student.id for student in gradebook.students}


def test_a_student_who_leaves_is_in_no_table_and_nothing_of_theirs_is_lost(directory, course):
    with Gradebook(f"sqlite:///{directory}/gradebook.db") as gradebook:
        gradebook.find_grade("why", "01_double", "01_double", "anna").manual_score = 1.5
        gradebook.find_comment("why", "01_double", "01_double", "anna").manual_comment = "Half of it."
        gradebook.db.commit()
    quietly(directory)
    files = {p.relative_to(directory): p.read_bytes() for p in directory.glob("*/anna/**/*") if p.is_file()}
    others = [r for r in rows(directory) if r["student"] != "anna"]
    said = []
    remove(directory, "anna", say=said.append)
    assert people(directory) == {"bo [2]", "cleo"} and rows(directory) == others
    assert "anna" not in report(directory, say=lambda line: None).read_text(encoding="utf-8")
    assert len(said) == 1 and str(directory / "removed/anna") in said[0]
    assert {directory / "removed/anna" / p.parts[0] / p.relative_to(f"{p.parts[0]}/anna"): text for p, text in files.items()} == {
        p: p.read_bytes() for p in (directory / "removed/anna").rglob("*") if p.is_file() and p.name != "marks.json"
    }
    marks = json.loads((directory / "removed/anna/marks.json").read_text(encoding="utf-8"))
    assert (marks["01_double"]["score"], marks["01_double"]["comments"]["why"]) == (4.5, "Half of it.")
    assert log(directory)[-1]["student"] == "anna" and "removed" in log(directory)[-1]["what was said"]
    summary, _ = quietly(directory)
    assert summary.graded == 0 and rows(directory) == others
    (directory / "removed/anna/submitted").rename(directory / "submitted/anna")  # they come back
    assert quietly(directory)[0].graded == 2 and "anna" in people(directory)
    remove(directory, "anna", say=said.append)  # and leave again
    assert (directory / "removed/anna/marks-2.json").exists() and (directory / "removed/anna/feedback-2").exists()


def test_a_removal_that_was_stopped_goes_on(directory, monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    stops = (
        (commands, "take_out"),
        (ClassGradebook, "remove_student"),
        (commands, "write_grades"),
        (commands, "write_down"),
        (shutil, "rmtree"),
    )
    for owner, name in stops:
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, stopped)
            with pytest.raises(KeyboardInterrupt):
                remove(directory, "anna", say=lambda line: None)
    (directory / "removed/anna/.1.draft").touch()  # of a kill
    remove(directory, "anna", say=lambda line: None)
    assert not list(directory.rglob("*.draft"))
    assert "anna" not in {r["student"] for r in rows(directory)} | people(directory) | {p.name for p in directory.glob(".grader/handins/*")}
    assert (directory / "removed/anna/submitted/01_double/01_double.ipynb").exists()


def test_one_whose_file_was_refused_can_be_removed(directory, tmp_path):
    (tmp_path / "all/dora").mkdir(parents=True)
    (tmp_path / "all/dora/photo.ipynb").write_bytes(b"\x89PNG")
    assert collect(directory, [tmp_path / "all"], say=lambda line: None)
    remove(directory, "dora", say=lambda line: None)
    quietly(directory)
    assert "dora" not in {r["student"] for r in rows(directory)}


@pytest.mark.parametrize("name", ["ana", "..", ".", "", "anna/../bo [2]", "anna/01_double"])
def test_who_is_not_in_the_class_is_not_removed(directory, name):
    before = standing(directory)
    with pytest.raises(ClassError, match="has no student" + (".*; nearest: anna" if name == "ana" else "")):
        remove(directory, name)
    assert standing(directory) == before and not (directory / "removed").exists()


# refused files


def test_a_refused_file_is_forgotten_once_a_good_one_of_its_notebook_may_be_it():
    refused = {"photo.ipynb": "a picture", "x/01_double.ipynb": "broken", "02_square (1).ipynb": "broken"}
    names = ["01_double", "02_square"]
    assert still_refused(refused, "01_double", names).keys() == {"02_square (1).ipynb"}
    assert still_refused(refused, "02_square", names).keys() == {"x/01_double.ipynb"}


def test_collecting_a_good_file_ends_the_reason_of_the_one_before(directory, course, tmp_path):
    folder = tmp_path / "all/dora"
    folder.mkdir(parents=True)
    (folder / "photo.ipynb").write_bytes(b"\x89PNG")
    (folder / "02_square.ipynb").write_bytes(b"{ half")
    collect(directory, [folder.parent], say=lambda line: None)
    for path in folder.iterdir():
        path.unlink()
    (folder / "mine.ipynb").write_bytes(hand_in_bytes(course[0]))
    collect(directory, [folder.parent], say=lambda line: None)
    quietly(directory)
    own = {r["notebook"]: r for r in rows(directory) if r["student"] == "dora"}
    assert own["01_double"]["score"] == "3" and "photo.ipynb" not in own and own["02_square.ipynb"]["reason"]


# the source, edited


def edit(directory, before, after, notebook="02_square"):
    path = directory / f"source/{notebook}/{notebook}.ipynb"
    document = nbformat.read(path, 4)
    cells = [cell for cell in document.cells if before in cell.source]
    assert cells
    for cell in cells:
        cell.source = cell.source.replace(before, after)
    nbformat.write(document, path)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (
            "[9.0]",
            "[8.0]",
            r"the check squares of square (three times three is nine; `got.tolist() == [8.0]` does not hold where got.tolist() is [9.0])",
        ),
        (
            "2 * secret_draw**2",
            "3 * secret_draw**2",
            "`torch.equal(double(square(secret_draw.clone())), 3 * secret_draw ** 2)` does not hold where",
        ),
        ("got.tolist() ==", "got.shape == (1,) and [8.0] ==", "where got.shape == (1,) is True, [8.0] == [9.0] is False"),
        ("got.tolist() == [9.0]", "not got.tolist()", "`not got.tolist()` does not hold where got.tolist() is [9.0]"),
        ("return x * x", "return x * y", "NameError: name 'y' is not defined"),
        ("[9.0]", "[9.0] and square.__closure__ is None", "only data crosses"),
        (
            "got = ",
            "def inner(value):\n    assert value == 8, 'no eight'\n\ninner(9)\ngot = ",
            "no eight; `value == 8` does not hold where value is 9",
        ),
    ],
    ids=["a visible value", "a hidden value", "one of two", "none", "the key", "what does not cross", "a function of the check's own"],
)
def test_a_check_that_the_key_fails_is_told_before_anything_is_graded(directory, before, after, told, course):
    put(directory, "dora", course[0], hand_in_bytes(course[0]))
    kept = standing(directory)
    edit(directory, before, after)
    with pytest.raises(ClassError) as refused:
        quietly(directory)
    assert (
        told in str(refused.value) and "02_square.ipynb: its own answer key fails" in str(refused.value) and "\n" not in str(refused.value)
    )
    assert standing(directory) == kept
    edit(directory, after, before)
    assert quietly(directory)[0].graded >= 1


def toolbar(name, source, *, grade, points=0):
    """A cell as nbgrader's Create Assignment toolbar makes one."""
    facts = {"grade_id": name, "grade": grade, "solution": not grade, "locked": grade, "task": False, "schema_version": 3}
    return new_code_cell(source, metadata={"nbgrader": facts | ({"points": points} if grade else {})})


TRIPLE = "def triple(x):\n    ### BEGIN SOLUTION\n    return 3 * x\n    ### END SOLUTION"
TRIPLES = "# Three times.\ngot = triple(2)\nassert got == 2 * THREE\n### BEGIN HIDDEN TESTS\nassert triple(5) == 15\n### END HIDDEN TESTS"


def add(directory, *cells):
    path = directory / "source/02_square/02_square.ipynb"
    document = nbformat.read(path, 4)
    document.cells += cells
    nbformat.write(document, path)


def test_an_exercise_of_the_instructors_own_is_handed_out_and_graded(directory):
    helper = toolbar("helper", "THREE = 3", grade=False)
    helper.metadata.nbgrader |= {"solution": False, "locked": True}  # "Read-only" in the toolbar
    add(directory, helper, toolbar("triple", TRIPLE, grade=False), toolbar("triples", TRIPLES, grade=True, points=4))
    quietly(directory)
    released = nbformat.read(directory / "release/02_square/02_square.ipynb", 4)
    (stub,) = [cell for cell in released.cells if "def triple" in cell.source]
    assert "return 3" not in stub.source and not any("triple(5)" in cell.source for cell in released.cells)
    for student, source in (("dora", "def triple(x):\n    return x + x + x"), ("emil", "def triple(x):\n    return 6")):
        stub.source = source
        path = directory / f"submitted/{student}/02_square/02_square.ipynb"
        path.parent.mkdir(parents=True)
        nbformat.write(released, path)
    quietly(directory)
    found = {r["student"]: r for r in rows(directory) if r["notebook"] == "02_square"}
    assert {student: found[student]["02_square/triple"] for student in ("anna", "dora", "emil")} == {"anna": "0", "dora": "4", "emil": "0"}
    assert found["anna"]["02_square/square"] == "3", "what was handed in before the exercise came keeps the rest"
    page = (directory / "feedback/dora/02_square/02_square.html").read_text(encoding="utf-8")
    assert "x + x + x" in page and "triple(5)" not in page


def test_a_check_that_hand_ins_were_graded_with_is_not_taken_away(directory):
    kept = standing(directory)
    path = directory / "source/01_double/01_double.ipynb"
    text = path.read_bytes()
    document = nbformat.read(path, 4)
    document.cells = [cell for cell in document.cells if "The shape stays" not in cell.source]
    nbformat.write(document, path)
    with pytest.raises(ClassError, match=r"01_double.ipynb: the cells keeps_the_shape are gone.*; put them back"):
        quietly(directory)
    assert standing(directory) == kept
    path.write_bytes(text)
    assert quietly(directory)[0].graded == 0


def test_an_exercise_whose_id_is_not_its_functions_name_is_told(directory):
    kept = standing(directory)
    add(directory, toolbar("cell-8f3a", TRIPLE, grade=False), toolbar("triples", TRIPLES, grade=True, points=4))
    with pytest.raises(ClassError, match="the cell cell-8f3a is an answer; give it as its ID the name of its function"):
        quietly(directory)
    assert standing(directory) == kept
