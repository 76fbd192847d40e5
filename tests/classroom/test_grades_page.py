"""docs/grades.md: its commands, one after the other. `python -m tests.classroom.test_grades_page` writes its outputs anew."""

import contextlib
import io
import os
import re
import shlex
import tempfile
import zipfile
from datetime import datetime
from pathlib import Path

import pytest
from nbgrader.api import Gradebook

from grader.cli import main
from grader.course.build import to_text
from grader.course.source import ROOT
from grader.feedback.release import answered
from grader.mistakes import versions
from tests.classroom.importers import CanvasCourse, CanvasStudent, MoodleAssignment
from tests.conftest import COURSE

PAGE = ROOT / "docs/grades.md"
PEOPLE = [("Lark", "Ada"), ("Boon", "Bo"), ("Müller", "Jörg"), ("van der Meer", "Anna"), ("王", "小明")]
LOGINS = ["ada", "bo", "joerg", "anna", "xiaoming"]


def write_exports(folder):
    """What the platforms give of a class of five: four hand in notebook 1, one of them a PDF."""
    notebook = COURSE[0]
    slip = {v.exercise: v.source for v in versions(notebook.name) if v.name == "sample_std"}
    right, wrong = (to_text(answered(notebook, answers)).encode() for answers in ({}, slip))
    hand_ins = {"ada": right, "bo": wrong, "joerg": b"%PDF-1.7", "anna": right}
    names, addresses = [f"{first} {last}" for last, first in PEOPLE], {login: f"{login}@example.org" for login in LOGINS}

    students = zip(range(12345, 12350), names, PEOPLE, LOGINS, strict=True)
    everybody = [CanvasStudent(key, name, ", ".join(pair), "", addresses[login]) for key, name, pair, login in students]
    canvas = CanvasCourse(everybody, {4711: ("GRPO 1: advantages", 20.0), 4712: ("An essay", 10.0)})
    (folder / "2026-11-30_Grades-GRPO.csv").write_bytes(canvas.export())
    called = dict(zip(("larkada", "boonbo_LATE", "mllerjrg", "vandermeeranna"), range(12345, 12349), strict=True))
    files = {
        f"{name}_{key}_{key + 77000}_01_advantage.ipynb": data for (name, key), data in zip(called.items(), hand_ins.values(), strict=True)
    }
    _write_zip(folder / "submissions.zip", files)

    moodle = MoodleAssignment(
        {881 + n: (name, address) for n, (name, address) in enumerate(zip(names, addresses.values(), strict=True))}, 20.0
    )
    moodle.submitted = dict(zip(moodle.participants, [datetime(2026, 11, 20, 10, 12 + n) for n in range(4)], strict=False))
    (folder / "Grades-ML26-01_advantage-4711.csv").write_bytes(moodle.export())
    whose = [f"{name}_{number}_assignsubmission_file_" for number, (name, _) in moodle.participants.items()]
    files = {f"{name}/01_advantage.ipynb": data for name, data in zip(whose, hand_ins.values(), strict=False)}
    _write_zip(folder / "ML26-01_advantage-4711.zip", files)

    rows = [
        f"{first},{last},00{n},{addresses[login]},Student" for n, ((last, first), login) in enumerate(zip(PEOPLE, LOGINS, strict=True), 1)
    ]
    (folder / "roster.csv").write_text("\n".join(["First Name,Last Name,SID,Email,Role", *rows]), encoding="utf-8")
    told = ""
    for n, login in enumerate(hand_ins):
        told += f"submission_{n}:\n  :submitters:\n  - :name: {names[n]}\n    :sid: '00{n + 1}'\n    :email: {addresses[login]}\n"
        told += f"  :created_at: 2026-11-20 10:1{n}:00.000000000 Z\n"
    files = {f"submission_{n}/01_advantage.ipynb": data for n, data in enumerate(hand_ins.values())}
    _write_zip(folder / "assignment_4711_export.zip", {"submission_metadata.yml": told.encode()} | files)

    rows = [f"{addresses[login]},{login}-hub,{881 + n}," for n, login in enumerate(LOGINS)]
    (folder / "classroom_roster.csv").write_text("\n".join(["identifier,github_username,github_id,name", *rows]), encoding="utf-8")
    for login, data in hand_ins.items():
        clone = folder / f"advantage-submissions/advantage-{login}-hub"
        clone.mkdir(parents=True)
        (clone / "README.md").write_text("# Homework")
        (clone / "01_advantage.ipynb").write_bytes(data)


def _write_zip(path, files):
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(f"assignment_4711_export/{name}" if "export" in path.name else name, data)


def read_written_answers(directory):
    """As a person does in the formgrader: 1.5 points for each."""
    with Gradebook(f"sqlite:///{directory}/gradebook.db") as gradebook:
        for submission in gradebook.assignment_submissions(COURSE[0].name):
            for grade in submission.notebooks[0].grades:
                if grade.auto_score is None:
                    grade.manual_score, grade.needs_manual_grade = 1.5, False
        gradebook.db.commit()


def with_real_output(page):
    """The page, with what its commands print today below them."""
    graded = set()

    def output(block):
        told, words = io.StringIO(), shlex.split(block[1])
        if words[:2] == ["grader", "grade"]:
            if words[2] in graded:
                read_written_answers(words[2])
            graded.add(words[2])
        with contextlib.redirect_stdout(told):
            if words[0] == "cat":
                told.write(Path(words[1]).read_text(encoding="utf-8-sig"))
            else:
                main(words[1:])
        return f"```console\n$ {block[1]}\n{told.getvalue()}```"

    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        write_exports(Path())
        return re.sub(r"^```console\n\$ (.+)\n(?:.*\n)*?```", output, page, flags=re.MULTILINE)


def without_times(page):
    """Its lines in no order: which hand-in is graded first, and how long it takes, is the machine's affair."""
    return sorted(re.sub(r"^\[ *\d+/.*?\]", "", line) for line in page.splitlines())


@pytest.mark.thorough
def test_the_page_shows_what_is_printed():
    page = PAGE.read_text(encoding="utf-8")
    assert page.count("$ grader") == 18 and "the scores of 3 of 5 students" in page
    assert without_times(with_real_output(page)) == without_times(page)


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    PAGE.write_text(with_real_output(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
