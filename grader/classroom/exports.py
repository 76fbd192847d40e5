"""The tables made of a gradebook: grades.csv with every check, and under grades/ what the learning platforms import.

    grades/students.csv                    a row for each student, a column for each notebook: for people, Gradescope, GitHub
    grades/canvas-NOTEBOOK.csv             for the import of Canvas's gradebook
    grades/canvas-NOTEBOOK-feedback.zip    for "Re-Upload Submissions" in its gradebook
    grades/moodle-NOTEBOOK.csv             for "Upload grading worksheet" of the assignment
    grades/moodle-NOTEBOOK-feedback.zip    for its "Upload multiple feedback files in a zip"

A platform's file is made of its own export where `grader roster` was given one: with its ids and its columns. Canvas takes
a blank for "take the score away", so that a file for it holds only who has a score. Moodle passes over blanks.
"""

from __future__ import annotations

import contextlib
import csv
import io
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from nbgrader.api import Student

from grader.classroom.atomic import write_atomically
from grader.classroom.directory import ClassDirectory
from grader.classroom.gradebook import AllMarks
from grader.classroom.sheets import Person, Sheet
from grader.course.source import Notebook

CANVAS_ASSIGNMENT = re.compile(r"(?P<title>.*)\s\((?P<id>\d+)\)")
IDS = {"gradescope": ("sid",), "github": ("identifier", "github_username")}  # columns that students.csv takes over

Ungraded = tuple[str, str, str]  # student, notebook, reason
Row = list[object]
Scores = Mapping[str, float]  # by student: the final ones


def write_grades(
    directory: Path,
    notebooks: Sequence[Notebook],
    marks: AllMarks,
    people: Iterable[Student],
    ungraded: Iterable[Ungraded],
    sheets: Sequence[Sheet],
) -> list[str]:
    """Writes grades.csv and grades/. Returns sentences: what each file that a platform imports does there, and who waits for a person.

    sheets: the platforms' own exports; without any, the files for Canvas and Moodle hold what the gradebook knows.
    """
    folder, students = directory / "grades", {person.id: person for person in people}
    reasons = {(student, notebook): reason for student, notebook, reason in ungraded}
    graded = {key: own for key, own in marks.items() if key not in reasons}
    final = {notebook.name: _final(notebook, graded) for notebook in notebooks}
    canvas = next((sheet for sheet in sheets if sheet.platform == "canvas"), None)
    columns = _canvas_columns(notebooks, canvas) if canvas else {}
    worksheets = {sheet.notebook: sheet for sheet in sheets if sheet.worksheet}
    everybody = {*students, *(student for student, _ in reasons if not sheets)} - {""}  # a stranger to the roster is in grades.csv alone
    files: dict[str, bytes | None] = {"students.csv": _csv(_students(notebooks, final, everybody, students, sheets))}
    sentences = []
    for notebook in notebooks:
        scores, name = final[notebook.name], f"moodle-{notebook.name}"
        if waiting := sum(key[1] == notebook.name and key[0] not in scores for key in graded):
            whose = "1 hand-in waits" if waiting == 1 else f"{waiting} hand-ins wait"
            sentences.append(f"{notebook.name}: {whose} for a person to read the written answers; until then no platform is given a score")
        if not scores:
            continue
        if canvas or not sheets:
            rows, what = _canvas(notebook, scores, canvas, columns[notebook.name]) if canvas else _logins(notebook, scores, students)
            files[f"canvas-{notebook.name}.csv"] = _csv(rows, mark=False)
            sentences.append(f"{folder / f'canvas-{notebook.name}.csv'}: {what}")
            if names := _canvas_names(directory, notebook.name, scores):
                files[f"canvas-{notebook.name}-feedback.zip"] = _feedback(directory, f"canvas-{notebook.name}", notebook.name, names)
        if sheet := worksheets.get(notebook.name):
            rows, what = _worksheet(notebook, scores, sheet)
            files[f"{name}-feedback.zip"] = _feedback(directory, name, notebook.name, _moodle_names(notebook.name, scores, sheet))
        elif not sheets or any(sheet.platform == "moodle" for sheet in sheets):
            rows, what = _addresses(notebook, scores, students)
        else:
            continue
        files[f"{name}.csv"] = _csv(rows)
        sentences.append(f"{folder / name}.csv: {what}")
    for file, data in files.items():
        if data is not None:
            write_atomically(folder / file, data)
    for path in folder.iterdir():
        if path.name not in files and re.fullmatch(r"(canvas|moodle)-\d\d_\w+(-feedback)?\.(csv|zip)", path.name):
            path.unlink()  # of scores or of a platform that the class had before
    write_atomically(directory / "grades.csv", _csv(_grades(notebooks, graded, students, reasons)))
    return [*sentences, f"{directory / 'grades.csv'}: every check of every hand-in; {folder / 'students.csv'}: a row for each student"]


def _grades(
    notebooks: Sequence[Notebook], graded: AllMarks, students: Mapping[str, Student], reasons: Mapping[tuple[str, str], str]
) -> list[Row]:
    """A row for each student and notebook, a column for each exercise, check and written answer; blank is not graded."""
    columns = {notebook.name: _columns(notebook) for notebook in notebooks}
    header: Row = ["student", "name", "notebook", "score", "max", "late penalty", "reason"]
    rows = [header + [f"{name}/{title}" for name, own in columns.items() for title in own]]
    wanted = {key for key in graded if key[1] in columns} | set(reasons)
    handed_in = {notebook for _, notebook in wanted if notebook in columns}
    wanted |= {(student, notebook) for student in students for notebook in handed_in}
    points = {notebook.name: {c.name: c.points for c in notebook.of_kind("check", "answer")} for notebook in notebooks}
    for student, notebook in sorted(wanted):
        marks = graded.get((student, notebook))
        row: Row = [student, last_first(students.get(student)), notebook]
        if marks:
            given = {cell: score for cell, score in marks.scores.items() if score is not None}
            waiting = [cell for cell in points[notebook] if cell not in given]
            reason = f"waits for a person: {', '.join(waiting)}" if waiting else ""
            row += [marks.score, sum(points[notebook].get(cell, 0) for cell in given), marks.penalty, reason]
        else:
            row += ["", "", "", reasons.get((student, notebook), "nothing was handed in")]
        for name, own in columns.items():
            for cells in own.values():
                scores = [marks.scores.get(cell) for cell in cells] if marks and name == notebook else [None]
                row.append("" if None in scores else sum(filter(None, scores)))
        rows.append(row)
    return rows


def _columns(notebook: Notebook) -> dict[str, list[str]]:
    """Title of a column -> the graded cells that it sums."""
    columns: dict[str, list[str]] = {}
    checks = notebook.of_kind("check")
    for exercise in dict.fromkeys(check.exercise for check in checks):
        own = [check.name for check in checks if check.exercise == exercise]
        columns |= {exercise: own} | {f"{exercise}/{name}": [name] for name in own}
    return columns | {answer.name: [answer.name] for answer in notebook.of_kind("answer")}


def _students(
    notebooks: Sequence[Notebook],
    final: Mapping[str, Scores],
    everybody: Iterable[str],
    students: Mapping[str, Student],
    sheets: Sequence[Sheet],
) -> list[Row]:
    """A row for each student; blank is no score, or none that is final."""
    ids = [(sheet, place) for sheet in sheets for name in IDS.get(sheet.platform, ()) if (place := sheet.column(name)) is not None]
    cells = [{person.student: row[place] for person, row in _rows(sheet)} for sheet, place in ids]
    header: Row = ["student", "last name", "first name", "email", *(sheet.header[place] for sheet, place in ids)]
    rows = [header + [notebook.title for notebook in notebooks]]
    for student in sorted(everybody):
        facts = students.get(student)
        row: Row = [student, *((facts.last_name, facts.first_name, facts.email) if facts else ("", "", ""))]
        rows.append([*row, *(own.get(student, "") for own in cells), *(final[notebook.name].get(student, "") for notebook in notebooks)])
    return rows


def _canvas_columns(notebooks: Sequence[Notebook], sheet: Sheet) -> dict[str, list[int]]:
    """Where the export has a notebook's assignment: it bears its title or its file's name, or "GRPO" or "notebook" and its number."""
    found = ((place, CANVAS_ASSIGNMENT.fullmatch(title.strip())) for place, title in enumerate(sheet.header))
    titles = {place: f" {_words(match['title'])} " for place, match in found if match}
    named: dict[str, list[int]] = {}
    for notebook in notebooks:
        own = (_words(notebook.name), _words(re.sub(r"^\d+\W+", "", notebook.title)))
        named[notebook.name] = [place for place, title in titles.items() if any(f" {one} " in title for one in own)]
    taken = {place for places in named.values() for place in places}
    for notebook in notebooks:
        if not named[notebook.name] and (number := re.match(r"0*(\d+)", notebook.name)):
            own_number = re.compile(rf"\b(grpo|notebook)\D*\b0*{number[1]}\b")
            named[notebook.name] = [place for place, title in titles.items() if place not in taken and own_number.search(title)]
    return named


def _words(text: str) -> str:
    return " ".join(re.findall(r"[^\W_]+", text.casefold()))


def _canvas(notebook: Notebook, scores: Scores, sheet: Sheet, places: Sequence[int]) -> tuple[list[Row], str]:
    """The export's own rows of who has a score, up to their section, and the assignment's column."""
    width, total = (sheet.column("section") or 0) + 1, notebook.points()
    column, possible = notebook.title, [""] * width + [f"{total}"]
    if len(places) == 1:
        column = sheet.header[places[0]]
        possible = next(([*row[:width], row[places[0]]] for row in sheet.rows if "Points Possible" in row[0]), possible)
        what = f' for the column "{column}"{_scale(possible[-1], total)}'
    elif places:
        what = "; several columns of the export could be this notebook's, " + " and ".join(f'"{sheet.header[place]}"' for place in places)
        what += "; rename one in Canvas and give the new export to 'grader roster', or choose when Canvas asks"
    else:
        what = f' for a new column "{column}": no assignment in the export is called so; Canvas asks whether to make it or which it is'
    possible[0] = "    Points Possible"  # what Canvas knows the row by
    rows: list[Row] = [[*sheet.header[:width], column], [*possible]]
    rows += [[*row[:width], scores[person.student]] for person, row in _rows(sheet) if person.student in scores]
    return rows, _counted(scores, sheet) + what


def _logins(notebook: Notebook, scores: Scores, students: Mapping[str, Student]) -> tuple[list[Row], str]:
    """What Canvas can find people by without its export: their ids here, taken for its logins, or their names."""
    rows: list[Row] = [["Student", "ID", "SIS User ID", "SIS Login ID", "Section", notebook.title]]
    rows.append(["    Points Possible", "", "", "", "", notebook.points()])
    for student, score in sorted(scores.items()):
        facts = students.get(student)
        rows.append([last_first(facts) or student, (facts and facts.lms_user_id) or "", "", student, "", score])
    return rows, f"the scores of {len(scores)}; Canvas finds people by their ids here only where they are its logins: see 'grader roster'"


def _worksheet(notebook: Notebook, scores: Scores, sheet: Sheet) -> tuple[list[Row], str]:
    """The columns of the assignment's worksheet that its import needs. Feedback comments stay out, and so in Moodle what they are."""
    names = ("identifier", "full name", "grade", "maximum grade", "last modified (grade)")
    kept = {name: place for name in names if (place := sheet.column(name)) is not None}
    rows: list[Row] = [[sheet.header[place] for place in kept.values()]]
    for person, row in _rows(sheet):
        rows.append([scores.get(person.student, "") if name == "grade" else row[place] for name, place in kept.items()])
    maximum = sheet.rows[0][kept["maximum grade"]] if "maximum grade" in kept else ""
    return rows, f"{_counted(scores, sheet)} for the assignment's grading worksheet{_scale(maximum, notebook.points())}"


def _addresses(notebook: Notebook, scores: Scores, students: Mapping[str, Student]) -> tuple[list[Row], str]:
    """For the import of Moodle's whole gradebook, where the worksheet of the assignment was not given."""
    rows: list[Row] = [["Username", "Email address", notebook.title]]
    for student, score in sorted(scores.items()):
        rows.append([student, (facts.email if (facts := students.get(student)) else "") or "", score])
    what = "the assignment's grading worksheet, given to 'grader roster', makes a file that needs no hand"
    return rows, f"the scores of {len(scores)} for Moodle's Grades > Import > CSV file; {what}"


def _canvas_names(directory: Path, notebook: str, scores: Scores) -> dict[str, str]:
    """Student -> the name by which Canvas knows of which upload a page is: its first two numbers between underscores."""
    names = {}
    for student in scores:
        upload = ClassDirectory(directory).upload(student, notebook)
        if upload.get("platform") == "canvas" and upload.get("number") and upload.get("attempt"):
            plain = re.sub(r"[\W\d_]", "", student) or "student"
            names[student] = f"{plain}_{upload['number']}_{upload['attempt']}_{notebook}.html"
    return names


def _moodle_names(notebook: str, scores: Scores, sheet: Sheet) -> dict[str, str]:
    """Student -> the name by which Moodle knows whose a page is: the number stands after the first underscore."""
    people = [person for person in sheet.people if person and person.student in scores]
    plain = {person: " ".join(re.findall(r"[^\W_]+", person.name)) or "Participant" for person in people}
    return {person.student: f"{name}_{person.number}_assignfeedback_file_/{notebook}.html" for person, name in plain.items()}


def _feedback(directory: Path, stem: str, notebook: str, names: Mapping[str, str]) -> bytes | None:
    """A zip of the pages of these students, under these names. None: it lies there already."""
    found = {name: directory / "feedback" / student / notebook / f"{notebook}.html" for student, name in names.items()}
    pages = {name: page for name, page in found.items() if page.exists()}
    with contextlib.suppress(OSError, zipfile.BadZipFile), zipfile.ZipFile(directory / f"grades/{stem}-feedback.zip") as archive:
        packed = {info.filename: info.CRC for info in archive.infolist()}
        if packed == {name: zlib.crc32(page.read_bytes()) for name, page in pages.items()}:
            return None
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, page in pages.items():
            archive.write(page, name)
    return data.getvalue()


def _rows(sheet: Sheet) -> Iterator[tuple[Person, tuple[str, ...]]]:
    """The rows that are about a student."""
    return ((person, row) for person, row in zip(sheet.people, sheet.rows, strict=True) if person)


def _counted(scores: Scores, sheet: Sheet) -> str:
    """How many go back, and who has a score and no row."""
    everybody = {person.student for person, _ in _rows(sheet)}
    missing = sorted(scores.keys() - everybody)
    some = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
    rest = f" (not of {some}, who is not in the export)" if missing else ""
    return f"the scores of {len(scores) - len(missing)} of {len(everybody)} students{rest}"


def _scale(possible: str, total: int) -> str:
    """What to do where the platform counts another number of points."""
    try:
        same = float(possible.replace(",", ".")) == total
    except ValueError:
        return ""
    return "" if same else f"; it counts {possible} points there and {total} here: set {total} there before you import"


def _final(notebook: Notebook, graded: AllMarks) -> dict[str, float]:
    """The score of each student, but not while a written answer waits: a platform would show the points so far as final."""
    own = {student: marks for (student, name), marks in graded.items() if name == notebook.name}
    return {student: marks.score for student, marks in own.items() if None not in marks.scores.values()}


def last_first(facts: Student | None) -> str:
    """The name in the order of a list ("" for nobody)."""
    return ", ".join(filter(None, (facts.last_name, facts.first_name))) if facts else ""


def _csv(rows: Iterable[Row], *, mark: bool = True) -> bytes:
    """UTF-8. mark: with what makes Excel read it as such, which Canvas would take for a part of the first column's name."""
    text = io.StringIO()
    csv.writer(text).writerows([_spreadsheet_value(value) for value in row] for row in rows)
    return text.getvalue().encode("utf-8-sig" if mark else "utf-8")


def _spreadsheet_value(value: object) -> object:
    """A number without needless digits; a text that a spreadsheet would run as a formula with an apostrophe before it."""
    if isinstance(value, float):
        return f"{round(value, 4):g}"
    risky = isinstance(value, str) and value != "-" and value.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{value}" if risky else value
