"""The pages of a class, read as a browser reads them: nothing of a learner's runs, nothing is told twice, every link leads somewhere."""

import re
import shutil
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

import pytest
from bs4 import BeautifulSoup
from nbgrader.api import Gradebook

from grader.classroom.autograding import autograde_bytes
from grader.classroom.commands import grade, report
from grader.classroom.gradebook import Marks
from grader.classroom.markdown import rendered
from grader.classroom.pages import feedback_page, told_once
from grader.course.build import to_text
from grader.course.translation import languages, translated
from grader.feedback.release import answer_key, answered
from grader.mistakes import versions
from tests.classroom.toy import hand_in_bytes, judge_here, put
from tests.conftest import COURSE

PLUS_ONE = "def double(x):\n    return x + 1"
OPEN = 'def double(x):\n    """Twice x: [N] -> [N]."""\n    raise NotImplementedError'
HIDING = "def double(x):\n    import base64\n    return eval(base64.b64decode('MiAqIHg=').decode(), {'x': x})"
WRITTEN = "Because **two** is $\\frac{4}{2}$ & more:\n\n$$x < y$$\n\n<script>alert(1)</script>\n\n<img src=x onerror=alert(1)>"
STUDENTS = {
    "anna": {"why": WRITTEN},
    "王小明": {"double": PLUS_ONE, "why": "Why not?"},
    "a#b 100%": {"double": OPEN, "why": "YOUR ANSWER HERE"},
    "hiding": {"double": HIDING},
}


@pytest.fixture(scope="module")
def classroom(course, empty, tmp_path_factory):
    """A class of four that handed in notebook 1, one whose file is none, and one who handed in nothing; one of them got a comment."""
    directory = shutil.copytree(empty, tmp_path_factory.mktemp("classes") / "autumn")
    for student, answers in STUDENTS.items():
        put(directory, student, course[0], hand_in_bytes(course[0], **answers))
    put(directory, "eve", course[0], b"%PDF-1.7")
    with Gradebook(f"sqlite:///{directory}/gradebook.db") as gradebook:
        gradebook.add_student("absent", last_name="Lark", first_name="Ada <b>")
    with pytest.MonkeyPatch.context() as patch:
        judge_here(patch)
        grade(directory, jobs=1, say=lambda line: None)
    with Gradebook(f"sqlite:///{directory}/gradebook.db") as gradebook:
        gradebook.find_comment("double", "01_double", "01_double", "王小明").manual_comment = "Look at *2 x*."
        gradebook.db.commit()
    grade(directory, jobs=1, say=lambda line: None)
    return directory


def page(directory, student):
    return BeautifulSoup((directory / f"feedback/{student}/01_double/01_double.html").read_text(encoding="utf-8"), "html.parser")


@pytest.fixture(scope="module")
def of_class(classroom):
    return BeautifulSoup(report(classroom, say=lambda line: None).read_text(encoding="utf-8"), "html.parser")


# what stands on every page


def test_a_page_needs_nothing_but_itself_and_runs_nothing_of_a_learners(classroom, of_class):
    for soup in [page(classroom, student) for student in STUDENTS] + [of_class]:
        assert not soup.find_all(["link", "iframe", "object", "form"]) and "@import" not in str(soup)
        assert not [tag for tag in soup.find_all(True) for name in tag.attrs if name.startswith("on")]
        assert not [tag for tag in soup.find_all(True) if re.match("(https?:)?//", tag.get("src") or tag.get("href") or "")]
        assert soup.html["lang"] and soup.find("meta", {"name": "viewport"}) and "prefers-color-scheme: dark" in soup.style.text
    assert not [script for student in STUDENTS for script in page(classroom, student).find_all("script")]
    assert len(of_class.find_all("script")) == 1  # ours, which sorts


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_every_colour_of_words_stands_out_in_the_light_and_in_the_dark(of_class):
    """WCAG AA: 4.5 to 1, on the white and on the near black (#121212) of a browser's canvas."""
    light, dark = (dict(re.findall(r"--(good|bad|wait): (#\w{6})", part)) for part in of_class.style.text.split("@media (prefers", 1))
    assert light.keys() == dark.keys() == {"good", "bad", "wait"}
    assert all(1.05 / (luminance(colour) + 0.05) >= 4.5 for colour in light.values())
    assert all((luminance(colour) + 0.05) / (luminance("#121212") + 0.05) >= 4.5 for colour in dark.values())


# the learner's page


def test_answers_and_comments_are_set_with_their_formulas(classroom):
    own = page(classroom, "anna").find(class_="own")
    assert own.strong.text == "two" and own.find("mfrac") and own.find("math", display="block").text == "x<y"
    assert page(classroom, "王小明").find(class_="person").em.text == "2 x"


def test_points_stand_beside_a_title_and_not_on_it(classroom):
    for student in STUDENTS:
        soup = page(classroom, student)
        assert soup.find_all(class_="points") and all("line" in tag.parent["class"] for tag in soup.find_all(class_="points"))
        assert "float" not in soup.style.text and ".line { display: flex" in soup.style.text


def test_a_sign_says_what_a_colour_says(classroom):
    checks = [check for student in STUDENTS for check in page(classroom, student).find_all(class_="check")]
    assert {(check.text.strip()[0], "good" in check["class"]) for check in checks} == {("✓", True), ("✗", False)}


def test_what_was_left_open_is_said_once_and_without_words_of_the_machinery(classroom):
    text = page(classroom, "a#b 100%").text
    assert text.count("double is not written yet.") == 1 and "Nothing was written." in text
    for student in STUDENTS:
        text = page(classroom, student).text
        assert not re.search(r"No response|YOUR ANSWER HERE|@title|keeps_the_shape|\bdoubles\b|01_double", text)


LOOKS_LIKE = "It looks like this: a sum.\n  What of the mean?"


@pytest.mark.parametrize(
    "failures",
    [
        ["", ""],
        ["open.", "open.", "open."],
        [f"1, not 2\n{LOOKS_LIKE}", "", f"3, not 4\n{LOOKS_LIKE}", f"5, not 6\n{LOOKS_LIKE}"],
        ["a hidden test fails.", "", "a hidden test fails."],
        [f"open.\n{LOOKS_LIKE}", f"open.\n{LOOKS_LIKE}", "", f"9\nPerhaps: b\n{LOOKS_LIKE}"],
    ],
)
def test_a_mistake_is_told_once_and_nothing_is_lost(failures):
    told = told_once(failures)
    assert len(told) == len(failures) and not any(words for words, failed in zip(told, failures, strict=True) if not failed)
    lines = "\n".join(told).split("\n")
    assert {line for failed in failures for line in failed.split("\n")} <= set(lines)
    assert all(lines.count(line) == 1 for failed in failures for line in failed.split("\n")[1:])
    assert all(told[i] == "" for i, (one, following) in enumerate(pairwise(failures)) if one == following)


# the report


def test_the_report_has_a_row_for_each_student_whose_links_lead_somewhere(classroom, of_class):
    rows = {row.th.get_text(" ", strip=True): row for row in of_class.find(class_="sortable").tbody.find_all("tr")}
    assert rows.keys() == {*STUDENTS, "eve", "Lark, Ada <b> absent"}
    for student in STUDENTS:
        links = [unquote(link["href"]) for link in rows[student].find_all("a")]
        assert [link.split("/")[:2] for link in links] == [["feedback", student], ["submitted", student]]
        assert all((classroom / link).is_file() for link in links)
    assert not rows["eve"].a and "not graded" in rows["eve"].text
    assert not rows["Lark, Ada <b> absent"].a
    assert {name for name, row in rows.items() if row.find_all("td")[-1].text == "–"} == {"eve", "Lark, Ada <b> absent"}, "no 0 in all"
    assert {link for link in of_class.find_all("a") if not (classroom / unquote(link["href"])).is_file()} == set()


def test_every_row_has_what_a_column_is_sorted_by(of_class):
    table = of_class.find(class_="sortable")
    columns = table.thead.tr.find_all("th")
    for row in table.tbody.find_all("tr"):
        cells = row.find_all(["th", "td"])
        assert len(cells) == len(columns) and all(re.fullmatch(r"-?[\d.]+", cell["data-value"]) for cell in cells[1:])


def test_the_report_says_per_exercise_what_most_got_wrong(of_class):
    (exercise,) = of_class.find_all(class_="exercise")
    assert "double: 50% solve it, 1 of 4 left it open" in " ".join(exercise.text.split())
    assert "fails most often: Every number is doubled (2)" in exercise.summary.text
    failed = [row.find_all("td")[1].text for row in exercise.find_all("tr")[1:]]
    assert failed == ["2 (50%)", "1 (25%)"], "the most often failed first"


def test_the_report_points_at_hidden_code_and_counts_what_is_not_graded(of_class):
    text = " ".join(of_class.text.split())
    assert "4 hand-ins graded, 1 not." in text and "hiding: base64, eval" in text and "PDF" in text
    assert "Nearly the same" not in text, "nobody is alike for an answer of one line"


# Markdown


PIECES = ["[", "[a]: <", "![a](", "*a **a ", "`a``b", "> ", "|a", "<div>", "<!--", "$a $", "$$", r"\[", r"\begin{a}", r"$\frac{"]


@pytest.mark.parametrize("piece", PIECES)
def test_what_is_made_of_a_text_grows_as_the_text_does(piece):
    short, long = (len(rendered(piece * (length // len(piece)))) for length in (2_500, 5_000))
    assert long <= 2.5 * short + 100 and long <= 50 * 5_000


@pytest.mark.parametrize("piece", PIECES)
def test_a_text_cannot_leave_its_place_on_the_page(piece):
    soup = BeautifulSoup(f"<main>{rendered(piece * 50)}</main><p id=after></p>", "html.parser")
    assert soup.find(id="after").parent is soup and not soup.main.find_all(["script", "style"])


PICTURES = ["![a](/logout)", "![](http://a.b/c.png)", "![a][b]\n\n[b]: /logout", "<img src=/logout>", "<video poster=/logout>"]


@pytest.mark.parametrize("text", PICTURES)
def test_a_text_fetches_nothing_when_it_is_read(text):
    tags = BeautifulSoup(rendered(text), "html.parser").find_all(True)
    assert not [tag for tag in tags if {"src", "srcset", "poster", "data", "background"} & tag.attrs.keys()]
    assert "!" not in text or any(tag.name == "a" and tag.text for tag in tags)  # a picture is a link


NO_FORMULAS = [r"\text{a<b & c}", r"\text{<img src=x onerror=alert(1)>}", r"\href{javascript:alert(1)}{x}", "}{", "{" * 3000, ""]


@pytest.mark.parametrize("tex", ["x < y", *NO_FORMULAS])
@pytest.mark.parametrize("around", ["${}$", "$$\n{}\n$$", "\\begin{{align}}{}\\end{{align}}"])
def test_a_formula_shows_something_and_runs_nothing(around, tex):
    soup = BeautifulSoup(rendered("before " + around.format(tex) + " after"), "html.parser")
    assert "before" in soup.text and "after" in soup.text
    assert not soup.find_all(["img", "script", "a"]) and not [tag for tag in soup.find_all(True) if "href" in tag.attrs]


@pytest.mark.parametrize("name", ["aligned", "align", "align*", "gather", "equation", "cases", "pmatrix"])
def test_an_environment_is_set_with_and_without_dollars(name):
    tex = rf"\begin{{{name}}}a &= b \\ c &= d\end{{{name}}}"
    for text in (tex, f"$$\n{tex}\n$$"):
        assert len(BeautifulSoup(rendered(text), "html.parser").find_all("mtr")) == 2


@pytest.mark.parametrize("language", languages())
def test_a_page_speaks_the_language_of_the_hand_in(language, monkeypatch):
    notebook, name = COURSE[0], f"{COURSE[0].name}.ipynb"
    wrong = {version.exercise: version.source for version in versions(notebook.name) if version.wrong}
    data = to_text(answered(translated(notebook, language), wrong)).encode()
    judge_here(monkeypatch)
    result, nb = autograde_bytes(data, name, to_text(answer_key(notebook)).encode(), Path(name), None)
    scores = {verdict.check: verdict.points for verdict in result.checks}
    soup = BeautifulSoup(feedback_page(nb, "ada", Marks(scores, {"group_advantages": "!"}, penalty=1)), "html.parser")
    assert soup.html["lang"] == language.replace("_", "-")
    for tag in soup.find_all(["style", "code", "pre"]):
        tag.decompose()
    del nb.metadata.grader["language"]  # as an earlier version left it
    assert '<html lang="en">' in feedback_page(nb, "ada", Marks(scores))
    assert len(soup.find_all(class_="bad")) > 3 and not re.findall(r"\b[a-z]{2,} [a-z]{2,} [a-z]{2,}\b", soup.body.text)
