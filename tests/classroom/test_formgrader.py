"""The formgrader's page of a hand-in: all that nbgrader needs is on it once, what waits for a person is in sight, the rest folded."""

import nbformat
import pytest
from bs4 import BeautifulSoup
from nbconvert.exporters import HTMLExporter
from nbgrader.server_extensions.formgrader import handlers
from traitlets.config import Config

from grader.classroom.commands import grade, new
from grader.classroom.formgrader import MAX_COLOURED, coloured
from grader.classroom.nbgrader_steps import configure
from tests.classroom.toy import hand_in_bytes, judge_here, put, toy_course

PLUS_ONE = "def double(x):\n    return x + 1"
OPEN = 'def double(x):\n    """Twice x: [N] -> [N]."""\n    raise NotImplementedError'
LONG = "mine = 1\n" + "# a remark\n" * (MAX_COLOURED // 10)
STUDENTS = {
    "right": {"why": "Since $2 > 1$."},
    "wrong": {"double": PLUS_ONE, "why": "<div>" * 1000},
    "open": {"double": OPEN, "why": "YOUR ANSWER HERE"},
    "wordy": {},
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Student -> the page, as nbgrader's handler has it made."""
    course = toy_course(tmp_path_factory.mktemp("course"))[:1]
    directory = tmp_path_factory.mktemp("classes") / "autumn"
    new(directory, course, say=lambda line: None)
    for student, answers in STUDENTS.items():
        nb = nbformat.reads(hand_in_bytes(course[0], **answers), 4)
        if student == "wordy":
            place = next(i for i, cell in enumerate(nb.cells) if cell.id == "double")
            nb.cells.insert(place + 1, nbformat.v4.new_code_cell(LONG))
        put(directory, student, course[0], nbformat.writes(nb).encode())
    with pytest.MonkeyPatch.context() as patch:
        judge_here(patch)
        grade(directory, jobs=1, say=lambda line: None)
    c = Config()
    configure(c)
    c.CourseDirectory.root = str(directory)
    c.HTMLExporter.template_name, c.HTMLExporter.extra_template_basedirs = "formgrade", [handlers.template_path]  # as nbgrader sets them
    resources = {"index": 0, "total": 1, "base_url": "", "notebook_id": "01_double", "assignment_id": "01_double"}
    made = {}
    for student in STUDENTS:
        autograded = directory / f"autograded/{student}/01_double/01_double.ipynb"
        html, _ = HTMLExporter(config=c).from_filename(str(autograded), resources=resources)
        made[student] = BeautifulSoup(html, "html.parser")
    return made


def folded(tag):
    return any(not fold.has_attr("open") for fold in tag.find_parents("details"))


@pytest.mark.parametrize("student", STUDENTS)
def test_each_box_for_points_and_words_is_there_once_in_a_cell_of_nbgraders(pages, student):
    page = pages[student]
    assert sorted(box["id"] for box in page.find_all(class_="score")) == ["doubles", "keeps_the_shape", "why"]
    assert sorted(box["id"] for box in page.find_all("textarea")) == ["double-comment", "why-comment"]
    assert all(len(box.find_parents(class_="nbgrader_cell")) == 1 for box in page.find_all(["input", "textarea"]))


@pytest.mark.parametrize("student", STUDENTS)
def test_a_written_answer_stands_first_with_its_question_and_what_the_key_says(pages, student):
    first = pages[student].find(class_="section")
    box = first.find(id="why")
    assert box and not folded(box)
    assert "Why would one double?" in first.text and "To have more." in first.find(class_="model").text
    assert ("Nothing was written." in first.text) == (student == "open")


@pytest.mark.parametrize("student", STUDENTS)
def test_what_needs_no_look_is_folded_and_what_failed_is_not(pages, student):
    page = pages[student]
    expected = {"right": {"doubles", "keeps_the_shape"}, "wrong": {"keeps_the_shape"}, "open": {"doubles", "keeps_the_shape"}}
    expected["wordy"] = expected["right"]
    assert {box["id"] for box in page.find_all(class_="score") if folded(box)} == expected[student]
    in_sight = [text for text in page.find(id="notebook").find_all(string=True) if not folded(text)]
    assert "SEED" not in " ".join(in_sight) and "A small notebook." not in " ".join(in_sight)
    assert "A small notebook." in page.text and "secret_draw" in page.text, "it is all there, for who unfolds it"


def test_why_a_check_failed_is_in_sight(pages):
    (message,) = pages["wrong"].find_all(class_="message")
    assert "1 and 2 become 2 and 4, not [2.0, 3.0]" in message.text and not folded(message)


@pytest.mark.parametrize("student", STUDENTS)
def test_the_page_waits_for_no_network(pages, student):
    assert not [tag for tag in pages[student].find_all(True) if tag.get("src", "").startswith("http")]
    assert pages["right"].find("math").text == "2>1"


def test_a_long_cell_is_shown_whole_and_without_colours(pages):
    (cell,) = [pre for pre in pages["wordy"].find_all("pre") if pre.text.strip() == LONG.strip()]
    assert not cell.find("span") and pages["wordy"].find("pre").find("span")


@pytest.mark.parametrize("piece", ["a.", ".", "(", "%%html &", "x ="])
def test_what_is_no_python_has_no_colours(piece):  # some of it takes minutes to colour
    pre = BeautifulSoup(coloured(piece * 5_000), "html.parser").pre
    assert pre.text == piece * 5_000 and not pre.find("span")


@pytest.mark.parametrize("space", [" ", "\t", "\x0c", " \x0c\t"])
def test_spaces_at_the_ends_of_lines_are_not_coloured(space):  # cubic time
    pre = BeautifulSoup(coloured(f"x = 1{space}\n" + f"{space}\n" * 2_000 + "y = 2"), "html.parser").pre
    assert pre.text.strip("\n") == "x = 1" + "\n" * 2_001 + "y = 2" and pre.find("span")
