"""Grades go back: what a class exports goes through the platforms' importers, to the right people, and changes nothing else."""

import csv
import io
import itertools
import re
import shutil
import zipfile
from datetime import datetime, timedelta

import pytest
from nbgrader.api import Student

from grader.classroom.collecting import roster as give_roster
from grader.classroom.directory import ClassDirectory
from grader.classroom.exports import write_grades
from grader.classroom.gradebook import ClassGradebook, Marks
from grader.classroom.roster import sheets
from tests.classroom.importers import CanvasCourse, CanvasStudent, MoodleAssignment

NAMES = [  # last name, first name
    ("Lark", "Ada"),
    ("Lark", "Ada"),  # another one
    ("Müller", "Jörg"),
    ("O'Neil", 'Zoë "Z"'),
    ("van_der_Meer", "Anna_Maria"),
    ("Smith", "Bo; Jr."),
    ("", "王小明"),
    ("李", "雷"),
    ("=HYPERLINK(1)", "Eve"),
    ("-Dash", "+Cho"),
    ("A/B", "José, María"),
    ("Ødegård_12_file", "Åsa"),
]
STATES = ("final", "late", "nought", "waits", "refused", "nothing")
EXPORTED, IMPORTED = datetime(2026, 11, 20, 10, 12), datetime(2026, 12, 1, 9, 0)


@pytest.fixture
def cls(empty, tmp_path):
    """A class without hand-ins: what its gradebook says of scores is made up by the tests."""
    return ClassDirectory(shutil.copytree(empty, tmp_path / "class"))


def canvas_course(titles):
    """A course of those twelve and of one who is in no class of ours, with an assignment of another's."""
    people = [
        CanvasStudent(1000 + n, f"{first} {last}".strip(), ", ".join(filter(None, (last, first))), f"S{n:03}", f"login{n}")
        for n, (last, first) in enumerate([*NAMES, ("Guest", "Gil")])
    ]
    assignments = {50: ("An essay, (part 1)", 10.0)} | {60 + n: (title, points) for n, (title, points) in enumerate(titles)}
    scores = {(person.id, key): "7.5" for person in people for key in assignments if (person.id + key) % 3}
    return CanvasCourse(people, assignments, scores)


def enrolled(cls, tmp_path, files):
    """Gives exports to a class: file name -> its bytes, with a notebook's name in it for a worksheet. Returns all its students."""
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
        give_roster(cls.root, [tmp_path / name], say=lambda line: None)
    with ClassGradebook(f"sqlite:///{cls.gradebook}") as gradebook:
        return [Student(id=s.id, first_name=s.first_name, last_name=s.last_name, email=s.email) for s in gradebook.students]


def graded(cls, course, whose):
    """Marks and ungraded of a class, and the final scores: each student has one in the first or the second notebook. Writes the pages."""
    marks, ungraded, final = {}, [], {}
    for notebook, states in zip(course, (STATES, STATES[3:] + STATES[:3]), strict=True):
        cells = {cell.name: cell.points for cell in notebook.of_kind("check", "answer")}
        for n, (student, state) in enumerate(zip(whose, itertools.cycle(states), strict=False)):
            if state == "refused":
                ungraded.append((student, notebook.name, "no notebook"))
            elif state != "nothing":
                own = Marks({name: 0.0 if state == "nought" else points - n / 16 for name, points in cells.items()})
                own.penalty = 0.25 if state == "late" else 0.0
                if state == "waits":
                    own.scores[next(iter(own.scores))] = None
                else:
                    final[student, notebook.name] = own.score
                marks[student, notebook.name] = own
                page = cls.root / "feedback" / student / notebook.name / f"{notebook.name}.html"
                page.parent.mkdir(parents=True, exist_ok=True)
                page.write_text(f"{notebook.name} of {student}, {state}")
    return marks, ungraded, final


def export(cls, course, students, marks, ungraded):
    """Writes the grades. Returns what is said of the platforms' files."""
    lines = write_grades(cls.root, course, marks, students, ungraded, sheets(cls, students))
    return [line for line in lines if re.search("/grades/(canvas|moodle)-", line)]


def read(path):
    return list(csv.reader(io.StringIO(path.read_text(encoding="utf-8-sig"), newline="")))


MATCHED = ["GRPO 1: warm up", "Week 3: Squaring!"], ["01_double", "Hand in 02_square here"], ["grpo notebook 01", "GRPO HW 2 (b)"]


@pytest.mark.parametrize("shape", [{}, {"first_last": True}, {"delimiter": ";", "bom": True}], ids=str)
@pytest.mark.parametrize("titles", [*MATCHED, ["Quiz 1", "Homework 2"]], ids=str)
def test_canvas_takes_the_final_scores_and_nothing_else_changes(cls, course, tmp_path, titles, shape):
    canvas = canvas_course([(title, 5.0) for title in titles])
    students = enrolled(cls, tmp_path, {"2026_Grades.csv": canvas.export(**shape)})
    sheet = sheets(cls, students)[0]
    whose = {person.student: int(person.number) for person in sheet.people if person}
    assert sorted(whose.values()) == [person.id for person in canvas.students], "the test's own roster is read"
    marks, ungraded, final = graded(cls, course, [student for student, key in whose.items() if key < 1012])
    lines = export(cls, course, students, marks, ungraded)
    canvas.scores |= {(person.id, 50): "9.75" for person in canvas.students}  # somebody graded the essay since
    canvas.scores[1004, 60] = "3.5"  # and gave points by hand to people whose file was refused
    canvas.scores[1001, 61] = "2.5"
    expected = dict(canvas.scores)
    for notebook, key in zip(course, (60, 61), strict=True):
        upload = canvas.take((cls.root / f"grades/canvas-{notebook.name}.csv").read_bytes())
        assert not upload.new_students
        assert bool(upload.new_assignments) == (titles not in MATCHED)
        if upload.new_assignments:
            (key,) = upload.new_assignments
            assert canvas.assignments[key] == (notebook.title, sum(cell.points for cell in notebook.of_kind("check", "answer")))
        expected |= {(whose[student], key): score for (student, name), score in final.items() if name == notebook.name}
    assert {place: float(score) for place, score in canvas.scores.items()} == {place: float(score) for place, score in expected.items()}
    assert len(lines) == 2 and all(("a new column" in line) == (titles not in MATCHED) for line in lines)


def test_canvas_takes_the_pages_of_whose_upload_it_knows(cls, course, tmp_path):
    canvas = canvas_course([("Doubling", 5.0)])
    students = enrolled(cls, tmp_path, {"canvas.csv": canvas.export()})
    whose = {person.student: int(person.number) for person in sheets(cls, students)[0].people if person}
    marks, ungraded, final = graded(cls, course, whose)
    uploads = {70_000 + n: number for n, number in enumerate(whose.values())}
    for student, (attempt, number) in zip(whose, uploads.items(), strict=True):
        known = {"platform": "canvas", "number": f"{number}", "attempt": attempt}
        cls.write_upload(student, "01_double", known if number % 4 else {"platform": "", "number": "", "attempt": 0})  # came by mail
    export(cls, course, students, marks, ungraded)
    given, ignored = canvas.take_feedback((cls.root / "grades/canvas-01_double-feedback.zip").read_bytes(), uploads)
    own = [student for student, name in final if name == "01_double" and whose[student] % 4]
    assert own and not ignored
    assert given == {whose[s]: (cls.root / f"feedback/{s}/01_double/01_double.html").read_bytes() for s in own}
    assert not (cls.root / "grades/canvas-02_square-feedback.zip").exists(), "nothing of it came from Canvas"


def test_a_column_that_is_not_surely_a_notebooks_is_not_written_to(cls, course, tmp_path):
    canvas = canvas_course([("Doubling, first try", 5), ("Doubling, second try", 5), ("Squaring the circle 2", 100)])
    students = enrolled(cls, tmp_path, {"canvas.csv": canvas.export()})
    one, two = export(cls, course, students, *graded(cls, course, [student.id for student in students])[:2])
    assert "several columns" in one and "first try (60)" in one and "second try (61)" in one
    assert 'the column "Squaring the circle 2 (62)"; it counts 100.00 points there and 3 here' in two
    assert len(canvas.take((cls.root / "grades/canvas-01_double.csv").read_bytes()).new_assignments) == 1


def test_no_column_is_two_notebooks(cls, course, tmp_path):
    students = enrolled(cls, tmp_path, {"canvas.csv": canvas_course([("GRPO 2: doubling", 5), ("Quiz", 5)]).export()})
    one, two = export(cls, course, students, *graded(cls, course, [student.id for student in students])[:2])
    assert 'the column "GRPO 2: doubling (60)"' in one and "a new column" in two


def moodle_assignment(first, maximum):
    """An assignment with numbers of its own for those twelve and one more; some have a grade and comments already."""
    people = {first + n: (f"{given} {last}".strip(), f"s{n}@example.org") for n, (last, given) in enumerate([*NAMES, ("Guest", "Gil")])}
    moodle = MoodleAssignment(people, maximum)
    moodle.grades = {number: (1.5, EXPORTED) for number in people if number % 4 == 0}
    moodle.comments = dict.fromkeys(people, "said before")
    return moodle


def moodle_class(cls, course, tmp_path):
    """Two worksheets, in Moodle's two orders, and who is who in them."""
    totals = [sum(cell.points for cell in notebook.of_kind("check", "answer")) for notebook in course]
    moodles = {nb.name: moodle_assignment(first, total) for nb, first, total in zip(course, (300, 7001), totals, strict=True)}
    files = {f"Grades-ML-{name}-4711.csv": moodle.export() for name, moodle in moodles.items()}
    return moodles, enrolled(cls, tmp_path, files)


def numbers(cls, students, name):
    (sheet,) = [sheet for sheet in sheets(cls, students) if sheet.notebook == name]
    return {person.student: int(person.number) for person in sheet.people if person}


def test_moodle_takes_the_final_scores_and_the_feedback_and_nothing_else_changes(cls, course, tmp_path):
    moodles, students = moodle_class(cls, course, tmp_path)
    marks, ungraded, final = graded(cls, course, [student.id for student in students if student.first_name != "Gil"])
    assert len(students) == 13
    lines = export(cls, course, students, marks, ungraded)
    assert len(lines) == 2 and all("points there" not in line for line in lines)
    for name, moodle in moodles.items():
        whose = numbers(cls, students, name)
        addresses = {student.id: student.email for student in students}
        assert all(moodle.participants[number][1] == addresses[student] for student, number in whose.items())
        before, own = dict(moodle.grades), {student: score for (student, notebook), score in final.items() if notebook == name}
        moodle.comments[next(iter(moodle.comments))] = "said since"
        comments = dict(moodle.comments)
        moodle.take((cls.root / f"grades/moodle-{name}.csv").read_bytes(), IMPORTED)
        grades = {number: grade for number, (grade, _) in moodle.grades.items()}
        ours = {whose[student]: score for student, score in own.items()}
        assert grades == {number: grade for number, (grade, _) in before.items()} | ours
        moodle.take_feedback((cls.root / f"grades/moodle-{name}-feedback.zip").read_bytes(), IMPORTED)
        pages = {(whose[s], f"{name}.html"): (cls.root / f"feedback/{s}/{name}/{name}.html").read_bytes() for s in own}
        assert moodle.files == pages and moodle.comments == comments
        assert {number: grade for number, (grade, _) in moodle.grades.items()} == grades, "feedback changes no grade"


def test_moodle_keeps_what_was_graded_there_since(cls, course, tmp_path):
    moodles, students = moodle_class(cls, course, tmp_path)
    marks, ungraded, final = graded(cls, course, [student.id for student in students])
    export(cls, course, students, marks, ungraded)
    (name, moodle), since = next(iter(moodles.items())), EXPORTED + timedelta(hours=1)
    moodle.grades = dict.fromkeys(moodle.participants, (2.25, since))
    assert moodle.take((cls.root / f"grades/moodle-{name}.csv").read_bytes(), IMPORTED) == 0
    number = numbers(cls, students, name)
    enrolled(cls, tmp_path, {f"again-{name}.csv": moodle.export()})
    export(cls, course, students, marks, ungraded)
    assert moodle.take((cls.root / f"grades/moodle-{name}.csv").read_bytes(), IMPORTED), "a worksheet of today says what it was made from"
    own = {student: score for (student, notebook), score in final.items() if notebook == name}
    assert {student: moodle.grades[number[student]][0] for student in own} == own


def test_moodle_is_told_of_another_maximum(cls, course, tmp_path):
    students = enrolled(cls, tmp_path, {"01_double.csv": moodle_assignment(300, 100).export()})
    (line, other) = export(cls, course, students, *graded(cls, course, [student.id for student in students])[:2])
    assert "it counts 100.00 points there and 5 here: set 5" in line and "worksheet, given to 'grader roster'" in other


def test_a_feedback_zip_is_packed_again_when_a_page_changed(cls, course, tmp_path):
    _, students = moodle_class(cls, course, tmp_path)
    marks, ungraded, final = graded(cls, course, [student.id for student in students])
    student, name = next(iter(final))
    path, page = cls.root / f"grades/moodle-{name}-feedback.zip", cls.root / f"feedback/{student}/{name}/{name}.html"
    export(cls, course, students, marks, ungraded)
    first = path.stat().st_ino
    export(cls, course, students, marks, ungraded)
    assert path.stat().st_ino == first, "3,000 pages are not packed at each run"
    page.write_text("other words")
    export(cls, course, students, marks, ungraded)
    assert path.stat().st_ino != first
    path.write_bytes(b"PK damaged")
    export(cls, course, students, marks, ungraded)
    with zipfile.ZipFile(path) as archive:
        assert b"other words" in [archive.read(packed) for packed in archive.namelist()]


GRADESCOPE = "First Name,Last Name,SID,Email,Role\n" + "".join(
    f'"{first.replace(chr(34), chr(34) * 2)}","{last}",0{n}77,g{n}@example.org,Student\n' for n, (last, first) in enumerate(NAMES)
)
GITHUB = "identifier,github_username,github_id,name\n" + "".join(f"roll-{n},octo{n},{900 + n},\n" for n in range(12))


@pytest.mark.parametrize(("text", "column"), [(GRADESCOPE, "SID"), (GITHUB, "identifier")], ids=["gradescope", "github"])
def test_platforms_that_import_no_grades_find_their_ids_in_a_row_for_each_student(cls, course, tmp_path, text, column):
    students = enrolled(cls, tmp_path, {"roster.csv": text.encode()})
    marks, ungraded, final = graded(cls, course, [student.id for student in students])
    assert export(cls, course, students, marks, ungraded) == []
    assert sorted(path.name for path in (cls.root / "grades").iterdir()) == ["students.csv"], "no files for platforms that are not used"
    header, *rows = read(cls.root / "grades/students.csv")
    ids = [row[2] if column == "SID" else row[0] for row in csv.reader(text.splitlines()[1:])]
    assert sorted(row[header.index(column)] for row in rows) == sorted(ids)
    for row in rows:
        cells = dict(zip(header, row, strict=True))
        for notebook in course:
            score = final.get((cells["student"], notebook.name))
            assert cells[notebook.title] == ("" if score is None else f"{score:g}")


def test_without_a_roster_canvas_finds_people_by_login_and_moodle_by_address(cls, course, tmp_path):
    canvas = canvas_course([("Doubling", 5.0)])
    students = [Student(id=f"login{n}", email=f"s{n}@example.org") for n in range(len(NAMES))]
    marks, ungraded, final = graded(cls, course, [student.id for student in students])
    before = dict(canvas.scores)
    assert len(export(cls, course, students, marks, ungraded)) == 4
    upload = canvas.take((cls.root / "grades/canvas-01_double.csv").read_bytes())
    assert not upload.new_students and len(upload.new_assignments) == 1
    (key,) = upload.new_assignments
    now = {(1000 + int(s.removeprefix("login")), key): f"{score:g}" for (s, name), score in final.items() if name == "01_double"}
    assert canvas.scores == before | now
    header, *rows = read(cls.root / "grades/moodle-02_square.csv")
    assert header == ["Username", "Email address", "2. Squaring"]
    assert {row[0]: float(row[2]) for row in rows} == {s: score for (s, name), score in final.items() if name == "02_square"}


def test_everybody_is_in_the_plain_file_with_the_reason_for_a_blank(cls, course, tmp_path):
    students = enrolled(cls, tmp_path, {"canvas.csv": canvas_course([]).export()})
    marks, ungraded, _ = graded(cls, course, [student.id for student in students])
    export(cls, course, students, marks, ungraded)
    header, *rows = read(cls.root / "grades.csv")
    cells = [dict(zip(header, row, strict=True)) for row in rows]
    assert {(row["student"], row["notebook"]) for row in cells} == {(s.id, notebook.name) for s in students for notebook in course}
    reasons = {(row["student"], row["notebook"]): row["reason"] for row in cells}
    assert all(reasons[student, notebook] == why for student, notebook, why in ungraded)
    assert all(row["score"] or row["reason"] for row in cells)
    assert {row[0] for row in read(cls.root / "grades/students.csv")[1:]} == {student.id for student in students}


def test_it_is_said_how_many_wait_for_a_person(cls, course):
    for waiting in (0, 1, 3):
        marks = {(f"s{n}", "01_double"): Marks({"doubles": 2.0, "why": None if n < waiting else 1.0}) for n in range(3)}
        lines = write_grades(cls.root, course, marks, [], [], [])
        assert ("01_double: 1 hand-in waits for a person" in lines[0]) == (waiting == 1)
        assert ("01_double: 3 hand-ins wait for a person" in lines[0]) == (waiting == 3)
        assert any("/grades/canvas-01_double.csv: " in line for line in lines) == (waiting < 3)


def test_no_file_runs_a_formula_and_none_of_another_day_stays(cls, course, tmp_path):
    students = enrolled(cls, tmp_path, {"canvas.csv": canvas_course([("Doubling", 5)]).export()})
    marks, ungraded, _ = graded(cls, course, [student.id for student in students])
    (cls.root / "grades").mkdir()
    for name in ("canvas-03_gone.csv", "moodle-01_double.csv", "moodle-01_double-feedback.zip", "canvas-mine.csv"):
        (cls.root / "grades" / name).write_text("old")
    export(cls, course, students, marks, ungraded)
    names = sorted(path.name for path in (cls.root / "grades").iterdir())
    assert names == ["canvas-01_double.csv", "canvas-02_square.csv", "canvas-mine.csv", "students.csv"]
    for path in (cls.root / "grades.csv", *(cls.root / "grades").glob("[cs]*.csv")):
        assert not any(cell.startswith(("=", "+", "-", "@")) for row in read(path) for cell in row)
