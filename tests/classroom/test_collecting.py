"""People and their hand-ins: one person is one student, whatever platforms call them, and late is who a platform says was late."""

import csv
import io
import itertools
import re
import shutil
import time
import zipfile
from datetime import datetime

import pytest
from nbgrader.api import Gradebook

from grader.classroom.collecting import collect, roster
from grader.classroom.commands import ClassError, grade, remove
from grader.classroom.directory import ClassDirectory
from grader.classroom.roster import read_sheet, resolved, sheets
from tests.classroom.toy import hand_in_bytes, judge_here

NAMES = ["01_double", "02_square"]
PEOPLE = [("Ada", "Lark"), ("Jörg", "Müller"), ("Anna", "van der Meer"), ("小明", "王")]
SHEETS = {  # platform -> header, a row for a person and the rows that are about nobody
    "canvas": (
        ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "HW (1)", "Final Score"],
        lambda first, last, n: [f"{last}, {first}", f"90{n}", f"u{n}", f"login{n}", "S1", "", ""],
        [["", "", "", "", "", "Manual Posting", ""], ["    Points Possible", "", "", "", "", "5.0", "(read only)"]],
        [["Student, Test", "77", "", "abcdef", "S1", "", ""]],
    ),
    "moodle": (
        ["First name", "Last name", "ID number", "Email address"],
        lambda first, last, n: [first, last, f"u{n}", f"p{n}@x.org"],
        [],
        [],
    ),
    "moodle-02_square": (
        ["Identifier", "Full name", "Email address", "Status", "Grade", "Maximum grade", "Grade can be changed", "Last modified (grade)"],
        lambda first, last, n: [f"Participant 80{n}", f"{first} {last}", f"p{n}@x.org", "No submission - ", "", "5", "Yes", "-"],
        [],
        [],
    ),
    "gradescope": (
        ["First Name", "Last Name", "SID", "Email", "Role", "Sections"],
        lambda first, last, n: [first, last, f"u{n}", f"p{n}@x.org", "Student", ""],
        [],
        [["Tea", "Cher", "", "t@x.org", "Instructor", ""]],
    ),
    "github": (
        ["identifier", "github_username", "github_id", "name"],
        lambda first, last, n: [f"p{n}@x.org", f"hub{n}", f"{n}", ""],
        [],
        [],
    ),
    "plain": (["姓名", "学号", "邮箱"], lambda first, last, n: [f"{first} {last}", f"u{n}", f"p{n}@x.org"], [], []),
}


def sheet_bytes(platform, people, encoding="utf-8-sig", delimiter=","):
    header, row, before, behind = SHEETS[platform]
    text = io.StringIO()
    rows = [row(first, last, n) for n, (first, last) in enumerate(people, 1)]
    csv.writer(text, delimiter=delimiter).writerows([header, *before, *rows, *behind])
    return text.getvalue().encode(encoding)


def export(folder, platform, people=PEOPLE, **form):
    folder.mkdir(exist_ok=True)
    path = folder / f"{platform}.csv"
    path.write_bytes(sheet_bytes(platform, people, **form))
    return path


ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "gb18030", "cp1252")
FORMS = [form for form in itertools.product(SHEETS, ENCODINGS) if form != ("plain", "cp1252")]  # whose header is Chinese


@pytest.mark.parametrize(("platform", "encoding"), FORMS)
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_an_export_says_the_same_in_any_encoding_and_with_any_delimiter(tmp_path, platform, encoding, delimiter):
    people = PEOPLE[:3] if encoding == "cp1252" else [PEOPLE[0], PEOPLE[3]] if encoding == "gb18030" else PEOPLE
    sheet = read_sheet(export(tmp_path, platform, people, encoding=encoding, delimiter=delimiter), NAMES)
    _, _, before, behind = SHEETS[platform]
    assert len(sheet.rows) == len(sheet.people) == len(before) + len(people) + len(behind)
    assert [i for i, person in enumerate(sheet.people) if person] == list(range(len(before), len(before) + len(people)))
    if platform != "github":  # that knows no names
        assert [(p.first_name, p.last_name) for p in sheet.people if p] == [
            person if platform not in ("plain", "moodle-02_square") else tuple(" ".join(person).rsplit(" ", 1)) for person in people
        ]
    assert (sheet.platform, sheet.notebook) == (platform.partition("-")[0], platform.partition("-")[2])


def test_a_platforms_number_is_that_of_its_files_names(tmp_path):
    for platform, number in (("canvas", "901"), ("moodle-02_square", "801"), ("gradescope", "")):
        sheet = read_sheet(export(tmp_path, platform), NAMES)
        assert next(filter(None, sheet.people)).number == number


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "is empty"),
        (b"a,b\n1,2\n", "columns a, b; known are"),
        (b"PK\3\4\0\0\0", "no CSV file"),
        (b"Student,ID,Section\n    Points Possible,,\n", "no row of it is a student"),
        (b"Identifier,Status,Grade\nParticipant 1,,\n", "--notebook 01_double"),
        ("ID,Vollständiger Name,Bewertung\nTeilnehmer/in1,A,\n".encode(), "set Moodle to English"),
    ],
)
def test_what_is_no_roster_is_refused_with_a_sentence(tmp_path, text, said):
    (tmp_path / "f.csv").write_bytes(text)
    with pytest.raises(ClassError, match=re.escape(said)) as caught:
        read_sheet(tmp_path / "f.csv", NAMES)
    assert "f.csv" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(("asked", "name"), [("02", "02_square"), ("02_square", "02_square"), ("01", "01_double")])
def test_a_worksheet_is_of_the_notebook_that_is_named(tmp_path, asked, name):
    assert read_sheet(export(tmp_path, "moodle-02_square"), NAMES, asked).notebook == name
    with pytest.raises(ClassError, match="has no such notebook"):
        read_sheet(tmp_path / "moodle-02_square.csv", NAMES, "07")


# A class


@pytest.fixture
def directory(empty, tmp_path):
    return shutil.copytree(empty, tmp_path / "autumn")


def students(directory):
    """{id: (first name, last name, email, Canvas's number)} in the gradebook."""
    with Gradebook(f"sqlite:///{directory}/gradebook.db") as gradebook:
        return {s.id: (s.first_name, s.last_name, s.email, s.lms_user_id) for s in gradebook.students}


def download(folder, *names, data):
    """A zip as a platform gives it; data: of all its files, or a list."""
    path = folder / f"download{len(list(folder.iterdir()))}.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for place, name in enumerate(names):
            archive.writestr(name, data[place] if isinstance(data, list) else data)
    return path


def quietly(function, *arguments, **options):
    said = []
    result = function(*arguments, **options, say=said.append)
    return result, "\n".join(said)


def filed(directory, notebook="01_double"):
    return sorted(path.parent.name for path in (directory / "submitted").glob(f"*/{notebook}"))


@pytest.mark.parametrize("order", list(itertools.permutations(["canvas", "moodle", "github"])), ids=" ".join)
def test_a_person_is_one_student_whatever_platforms_know_them_in_whatever_order(directory, tmp_path, order):
    paths = [export(tmp_path / "exports", platform) for platform in (*order, "gradescope", "moodle-02_square", "plain")]
    for path in paths:
        quietly(roster, directory, [path])
    once = students(directory)
    assert len(once) == len(PEOPLE) and {row[:2] for row in once.values()} == set(PEOPLE)
    assert {row[2:] for row in once.values()} == {(f"p{n}@x.org", f"90{n}") for n in range(1, len(PEOPLE) + 1)}
    quietly(roster, directory, paths)
    assert students(directory) == once, "a second time changes nothing"
    with Gradebook(f"sqlite:///{directory}/gradebook.db") as gradebook:
        found = sheets(ClassDirectory(directory), gradebook.students)
    assert {path.name: path.read_bytes() for path in paths} == {s.path.name: s.path.read_bytes() for s in found}, "copies, byte for byte"
    assert all({p.student for p in sheet.people if p} == set(once) for sheet in found)


def test_namesakes_are_two_people_and_one_who_comes_later_changes_nothing(directory, tmp_path):
    quietly(roster, directory, [export(tmp_path, "canvas", [("Li", "Wei")])])
    quietly(roster, directory, [export(tmp_path, "moodle", [("Li", "Wei")])])
    (first,) = students(directory)
    header, row, *_ = SHEETS["moodle"]
    both = [header, ["Li", "Wei", "", "other@x.org"], row("Li", "Wei", 1)]
    (tmp_path / "moodle.csv").write_text("\n".join(map(",".join, both)))
    quietly(roster, directory, [tmp_path / "moodle.csv"])
    assert len(students(directory)) == 2 and students(directory)[first][2] == "p1@x.org"


def test_a_name_joins_nobody_whose_address_or_place_is_anothers(tmp_path):
    ada = read_sheet(export(tmp_path, "plain", [("Ada", "Lark")]), NAMES)
    (known,) = resolved(ada, {}, {}).people
    (tmp_path / "more.csv").write_text("name,email\nAda Lark,else@x.org\nLark Ada,third@x.org\n")
    more = resolved(read_sheet(tmp_path / "more.csv", NAMES), {known.student: [known]}, {})
    assert len({known.student, *(p.student for p in more.people)}) == 3


def test_an_id_that_is_suddenly_somebody_elses_is_refused_and_nothing_is_changed(directory, tmp_path):
    for text in ("id,name\n1,Ada Lark\n2,Bo Boon\n", "id,name\n2,Ada Lark\n1,Bo Boon\n"):
        (tmp_path / "list.csv").write_text(text)
        if text.startswith("id,name\n1"):
            quietly(roster, directory, [tmp_path / "list.csv"])
            before = students(directory), (directory / "roster/plain.csv").read_bytes()
    with pytest.raises(ClassError, match="'2' is Ada Lark here and Bo Boon in the class"):
        quietly(roster, directory, [tmp_path / "list.csv"])
    assert (students(directory), (directory / "roster/plain.csv").read_bytes()) == before
    (tmp_path / "list.csv").write_text("id,name\n1,Ada Lark\n3,Cleo Crow\n3,Dan Dove\n")
    with pytest.raises(ClassError, match="'3' is Dan Dove here and Cleo Crow in another row"):
        quietly(roster, directory, [tmp_path / "list.csv"])
    assert (students(directory), (directory / "roster/plain.csv").read_bytes()) == before


@pytest.mark.parametrize("name", ["\x1b[31mAda", "Ada\x1b]0;title\x07", "A\nda", "Ada\x9b2J", "A\tda\x7f"])
def test_a_name_that_a_terminal_would_obey_is_only_text(tmp_path, name):
    (tmp_path / "list.csv").write_text(f'id;name;email\n1;"{name} Lark";"{name}@a.b"\n', newline="")
    (person,) = read_sheet(tmp_path / "list.csv", NAMES).people
    assert all(text.isprintable() for text in (person.name, person.email, *person.ids)) and person.last_name == "Lark"


def test_two_students_whom_a_later_export_shows_to_be_one_person_become_one_or_are_said(directory, tmp_path, course):
    quietly(roster, directory, [export(tmp_path / "exports", platform) for platform in ("canvas", "github")])
    assert len(students(directory)) == 2 * len(PEOPLE), "Canvas knows no addresses, GitHub no names"
    for student in ("hub2", "login3", "hub3"):
        quietly(collect, directory, [download(tmp_path, f"{student}_01_double.ipynb", data=hand_in_bytes(course[0]))])
    _, said = quietly(roster, directory, [export(tmp_path / "exports", "moodle")])
    assert set(students(directory)) == {"hub1", "hub2", "login3", "hub3", "hub4"}
    assert "login3 and hub3 are one person: put" in said or "hub3 and login3 are one person: put" in said
    assert students(directory)["hub2"] == (*PEOPLE[1], "p2@x.org", "902")


def test_who_was_there_before_the_roster_is_found_again(directory, tmp_path, course):
    data = hand_in_bytes(course[0])
    quietly(
        collect,
        directory,
        [download(tmp_path, "larkada_901_5_01_double.ipynb", "Jörg Müller_802_assignsubmission_file_/a.ipynb", data=data)],
    )
    quietly(collect, directory, [download(tmp_path, "stranger_01_double.ipynb", data=data)])
    before = filed(directory)
    _, said = quietly(roster, directory, [export(tmp_path / "exports", "canvas"), export(tmp_path / "exports", "moodle-02_square")])
    assert filed(directory) == before and {"larkada_901", "Jörg_Müller"} <= set(students(directory))
    assert "in no roster, they stay: stranger" in said
    assert len(students(directory)) == len(PEOPLE)


# collect


def test_what_a_platform_gives_is_filed_by_student_and_notebook(directory, course, tmp_path):
    names = (
        "Ada Lark_1_assignsubmission_file_/Copy of 01_double (1).ipynb",
        "李雷_2_assignsubmission_file_/mine.ipynb",
        "Zoe_3_assignsubmission_file_/p.ipynb",
    )
    data = [hand_in_bytes(course[0]), hand_in_bytes(course[1]), b"\x89PNG"]
    refused, said = quietly(collect, directory, [download(tmp_path, *names, data=data)])
    assert filed(directory) == ["Ada_Lark"] and filed(directory, "02_square") == ["李雷"]
    assert [student for student, *_ in refused] == ["Zoe"] and "refused" in said


NAMED = [  # every way of naming the first of PEOPLE's hand-in
    "larkada_901_5_{}", "larkada_LATE_901_5_{}", "renamed_901_5_{}",  # Canvas's number counts, not the name
    "Ada Lark_801_assignsubmission_file_/{}", "A. Lark_801_assignsubmission_file_/{}", "Ada Lark_5_assignsubmission_file_/{}",
    "Group A-Ada Lark_5_assignsubmission_file_/{}", "Participant_801_assignsubmission_file_/{}",
    "H_login1_attempt_2026-11-20-10-00-00_{}", "5-67 - Ada Lark - Nov 20, 2026 1012 AM - {}",
    "login1/{}", "u1/{}", "p1@x.org/{}", "Ada Lark/{}", "Lark, Ada/{}", "hub1_{}", "ADA_LARK_{}", "Ada Lark - Copy of {}", "u1_somebody_{}",
]  # fmt: skip


@pytest.fixture(scope="module")
def enrolled(empty, tmp_path_factory):
    """A class with everybody's exports."""
    folder = tmp_path_factory.mktemp("enrolled")
    directory = shutil.copytree(empty, folder / "autumn")
    quietly(roster, directory, [export(folder / "exports", platform) for platform in SHEETS])
    return directory


@pytest.fixture
def by_roster(enrolled, tmp_path):
    return shutil.copytree(enrolled, tmp_path / "autumn")


def test_whatever_a_platform_calls_them_a_hand_in_is_filed_under_the_one_student(by_roster, course, tmp_path):
    for place, name in enumerate(NAMED):
        path = tmp_path / f"download{place}" / name.format("01_double.ipynb")
        path.parent.mkdir(parents=True)
        path.write_bytes(hand_in_bytes(course[0]))
    refused, _ = quietly(collect, by_roster, sorted(tmp_path.glob("download*")))
    assert not refused and filed(by_roster) == ["login1"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("larkadda_999_5_{}", "nearest: Ada Lark (login1)"),  # Canvas would know its number
        ("larkada_999_5_{}", "nearest: Ada Lark (login1)"),
        ("Ada Larkin_5_assignsubmission_file_/{}", "nearest: Ada Lark (login1)"),
        ("ada/{}", "more than one, is called"),
        ("lark_{}", "more than one, is called"),
        ("login1_login2_{}", "more than one, is called"),
        ("u1_u2_{}", "more than one, is called"),
        ("anon_xK3aB_5_{}", "show the names there"),
        ("Participant_9_assignsubmission_file_/{}", "grading worksheet tells it"),
        ("submission_5/{}", "submission_metadata.yml"),
    ],
)
def test_who_is_nobody_in_the_roster_is_refused_and_nothing_is_lost(by_roster, course, tmp_path, name, said):
    path = download(tmp_path, name.format("01_double.ipynb"), data=hand_in_bytes(course[0]))
    ((_, _, reason),), _ = quietly(collect, by_roster, [path])
    assert said in reason and "\n" not in reason
    assert not filed(by_roster) and len(students(by_roster)) == len(PEOPLE)


def test_a_name_that_two_people_have_is_refused(directory, course, tmp_path):
    (tmp_path / "list.csv").write_text("name,id\nAda Lark,1\nAda Lark,2\n")
    quietly(roster, directory, [tmp_path / "list.csv"])
    names = ["Ada Lark_5_assignsubmission_file_/a.ipynb", "2_a.ipynb"]
    refused, _ = quietly(collect, directory, [download(tmp_path, name, data=hand_in_bytes(course[0])) for name in names])
    assert len(refused) == 1 and filed(directory) == ["2"]


@pytest.mark.parametrize("numbers", [("5", "6"), ("6", "5")])
def test_two_people_of_one_name_never_take_each_others_place(by_roster, course, tmp_path, numbers):
    one, other = (hand_in_bytes(course[0], double=f"def double(x):\n    return x * {n}") for n in (7, 8))
    names = [f"Ada Lark_{number}_assignsubmission_file_/a.ipynb" for number in numbers]
    refused, _ = quietly(collect, by_roster, [download(tmp_path, *names, data=[one, other])])
    assert len(refused) == 1 and "is another person than number" in refused[0][2]
    assert "x * 7" in code(by_roster, "login1")
    known = download(tmp_path, "Ada Lark_801_assignsubmission_file_/02_square.ipynb", data=hand_in_bytes(course[1]))
    assert not quietly(collect, by_roster, [known])[0]


def test_without_a_roster_it_is_said_where_one_person_may_be_several(directory, course, tmp_path):
    data = hand_in_bytes(course[0])
    _, said = quietly(collect, directory, [download(tmp_path, "larkada_901_5_01_double.ipynb", data=data)])
    assert "one person?" not in said
    _, said = quietly(collect, directory, [download(tmp_path, "Ada Lark_801_assignsubmission_file_/01_double.ipynb", data=data)])
    assert "is this one person? Ada_Lark, larkada_901" in said
    _, said = quietly(collect, directory, [download(tmp_path, "anon_xK3aB_6_01_double.ipynb", data=data)])
    assert "keeps names back" in said and "anon_xK3aB" in said


# Which of two, and when


def code(directory, student="larkada_1"):
    return (directory / "submitted" / student / "01_double/01_double.ipynb").read_text()


def stamp(directory, student):
    path = directory / "submitted" / student / "01_double/timestamp.txt"
    return path.read_text() if path.exists() else ""


def test_a_later_upload_counts_whenever_it_is_collected(directory, course, tmp_path):
    old, last = (hand_in_bytes(course[0], double=f"def double(x):\n    return x * {n}") for n in (7, 8))
    early, late = (download(tmp_path, f"larkada_1_{n}_01_double.ipynb", data=data) for n, data in ((10, old), (20, last)))
    lines = [quietly(collect, directory, [path])[1] for path in (early, late, early, late)]
    assert "x * 8" in code(directory)
    assert "in the place of the one collected before" in lines[1] and "left out" in lines[2] and "there already" in lines[3]


def test_of_hand_ins_with_times_the_newest_counts_and_without_the_one_collected_last(directory, course, tmp_path):
    old, last = (hand_in_bytes(course[0], double=f"def double(x):\n    return x * {n}") for n in (7, 8))
    attempt = "H_ada42_attempt_2026-11-2{}-10-00-00_01_double.ipynb"
    early, late = (download(tmp_path, attempt.format(day), data=data) for day, data in ((1, old), (5, last)))
    lines = [quietly(collect, directory, [path])[1] for path in (late, early)]
    assert "x * 8" in code(directory, "ada42") and "older than the one of 2026-11-25" in lines[1]
    _, said = quietly(collect, directory, [download(tmp_path, "ada42_01_double.ipynb", data=old)])
    assert "x * 7" in code(directory, "ada42") and "filed in the place of the one of 2026-11-25" in said
    assert stamp(directory, "ada42") == "", "the time was the other hand-in's"


def due(directory, *when):
    with Gradebook(f"sqlite:///{directory}/gradebook.db") as gradebook:
        gradebook.find_assignment("01_double").duedate = datetime(*when)
        gradebook.db.commit()


def test_late_is_who_canvas_says_and_an_extension_makes_it_good(directory, course, tmp_path, monkeypatch):
    judge_here(monkeypatch)
    names = "ontime_1_10_01_double.ipynb", "later_LATE_2_11_01_double.ipynb"
    path = download(tmp_path, *names, data=hand_in_bytes(course[0]))
    _, said = quietly(collect, directory, [path])
    assert "that counts once you set the due date" in said and stamp(directory, "later_2") == ""
    due(directory, 2026, 11, 1)
    with (directory / "nbgrader_config.py").open("a") as config:
        config.write("\nc.LateSubmissionPlugin.penalty_method = 'zero'\n")
    _, said = quietly(collect, directory, [path])
    assert "that counts" not in said
    assert (stamp(directory, "ontime_1"), stamp(directory, "later_2")) == ("", "2026-11-01 00:00:01 UTC")
    _, said = quietly(grade, directory)
    assert re.search(r"ontime_1  3 of 3$", said, re.MULTILINE) and "later_2  3 of 3, late: less 3" in said
    with Gradebook(f"sqlite:///{directory}/gradebook.db") as gradebook:
        gradebook.grant_extension("01_double", "later_2", days=7)
    _, said = quietly(grade, directory)
    assert "later_2  3 of 3, with an extension of 7 days: in time" in said


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("Wednesday, 10 June 2026, 2:14 PM", (2026, 6, 10, 14, 14)),
        ("Wednesday, June 10, 2026, 2:14 PM", (2026, 6, 10, 14, 14)),
        ("2026年06月10日 星期三 14:14", (2026, 6, 10, 14, 14)),
        ("-", None),
        ("", None),
        ("gestern", None),
    ],
)
def test_moodles_worksheet_says_when(directory, course, tmp_path, text, when):
    sheet = f'Identifier,Full name,Status,Grade,Last modified (submission)\nParticipant 801,Ada Lark,,,"{text}"\n'
    (tmp_path / "01_double.csv").write_text(sheet)
    quietly(roster, directory, [tmp_path / "01_double.csv"])
    path = download(tmp_path, "Ada Lark_801_assignsubmission_file_/a.ipynb", data=hand_in_bytes(course[0]))
    _, said = quietly(collect, directory, [path])
    (student,) = filed(directory)
    if when:
        seconds = time.mktime((*when, 0, 0, 0, -1))
        assert stamp(directory, student) == time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds)) and "no time known" not in said
    else:
        assert stamp(directory, student) == "" and said.count("no time known of 1 hand-in:") == 1


def test_dates_of_files_make_nobody_late(directory, course, tmp_path, monkeypatch):
    judge_here(monkeypatch)
    due(directory, 2000, 1, 1)
    path = download(tmp_path, "ada/01_double.ipynb", "Bo_1_assignsubmission_file_/a.ipynb", data=hand_in_bytes(course[0]))
    quietly(collect, directory, [path])
    _, said = quietly(grade, directory)
    assert filed(directory) == ["Bo", "ada"] and "late" not in said


def test_the_nearest_names_are_told_in_either_order(by_roster, course, tmp_path):
    for name in ("larkadda_999_5_{}", "Ada Larc_5_assignsubmission_file_/{}", "login11/{}"):
        path = download(tmp_path, name.format("01_double.ipynb"), "zoe_png", data=hand_in_bytes(course[0]))
        refused, _ = quietly(collect, by_roster, [path])
        assert any("Ada Lark (login1)" in reason for *_, reason in refused)


@pytest.mark.parametrize("asked", ["02_square", "02", "2"])
def test_a_worksheets_notebook_is_told_by_its_name_or_its_number(tmp_path, asked):
    path = export(tmp_path, "moodle-02_square").rename(tmp_path / "Grades.csv")
    assert read_sheet(path, NAMES, asked).notebook == "02_square"


@pytest.mark.parametrize("with_roster", [True, False])
def test_of_a_repository_only_the_notebooks_that_were_worked_on_are_hand_ins(enrolled, empty, course, tmp_path, with_roster):
    cls = shutil.copytree(enrolled if with_roster else empty, tmp_path / "autumn")
    given = {notebook.name: (cls / f"release/{notebook.name}/{notebook.name}.ipynb").read_bytes() for notebook in course}
    clones = tmp_path / "hw-1-submissions"
    for user, own in (("hub1", {"01_double": hand_in_bytes(course[0])}), ("hub2", {})):
        (clones / f"hw-1-{user}").mkdir(parents=True)
        (clones / f"hw-1-{user}/README.md").write_text("# Homework")
        for name, data in (given | own).items():
            (clones / f"hw-1-{user}/{name}.ipynb").write_bytes(data)
    refused, said = quietly(collect, cls, [clones])
    assert not refused and filed(cls) == ["login1" if with_roster else "hub1"] and not filed(cls, "02_square")
    assert "1 filed" in said and "02_square: 2 repositories hold it as it was handed out" in said
    (clones / "hw-1-hub1/01_double.ipynb").write_bytes(given["01_double"])
    _, said = quietly(collect, cls, [clones])
    assert "filed in the place of" in said, "whoever takes an answer back has handed that in"


@pytest.mark.parametrize("counts", [(0, 0, 0), (3, 0, 0), (1, 2, 1), (0, 0, 2)], ids=str)
def test_collect_ends_with_how_many_were_filed_and_refused(directory, course, tmp_path, counts):
    new_ones, again, bad = counts
    (tmp_path / "in").mkdir()
    for n in range(again):
        (tmp_path / f"in/a{n}_01_double.ipynb").write_bytes(hand_in_bytes(course[0]))
    quietly(collect, directory, [tmp_path / "in"])
    for n in range(new_ones):
        (tmp_path / f"in/n{n}_01_double.ipynb").write_bytes(hand_in_bytes(course[0]))
    for n in range(bad):
        (tmp_path / f"in/b{n}_01_double.ipynb").write_bytes(b"%PDF-1.7")
    _, said = quietly(collect, directory, [tmp_path / "in"])
    parts = ((new_ones, "filed"), (again, "there already"), (bad or any(counts) == 0, "refused, named above"))
    assert ", ".join(f"{int(count)} {what}" for count, what in parts if count) in said.splitlines()


def test_a_file_of_nobody_is_no_student_and_can_be_put_aside(by_roster, course, tmp_path, monkeypatch):
    judge_here(monkeypatch)
    path = download(tmp_path, "Nobody Known_01_double.ipynb", data=hand_in_bytes(course[0]))
    quietly(collect, by_roster, [path])
    summary, _ = quietly(grade, by_roster)
    assert [student for student, *_ in summary.ungraded] == ["Nobody_Known"]
    assert "Nobody" in (by_roster / "grades.csv").read_text() and "Nobody" not in (by_roster / "grades/students.csv").read_text()
    _, said = quietly(remove, by_roster, "Nobody_Known")
    assert "nothing was graded" in said and "undo" not in said
    assert not quietly(grade, by_roster)[0].ungraded


def test_a_whole_roster_that_cannot_be_kept_is_a_sentence(directory, tmp_path):
    quietly(roster, directory, [export(tmp_path, "canvas")])
    (directory / "roster/canvas.csv").write_bytes(b"PK\0")
    with pytest.raises(ClassError, match=r"roster/canvas.csv: this is no CSV file"):
        quietly(collect, directory, [tmp_path])


def test_a_copy_without_a_time_or_a_number_takes_nothing_from_what_is_known(directory, course, tmp_path):
    timed, newer = (hand_in_bytes(course[0], double=f"def double(x):\n    return x * {n}") for n in (7, 8))
    quietly(collect, directory, [download(tmp_path, "H_ada42_attempt_2026-11-25-10-00-00_01_double.ipynb", data=timed)])
    before = stamp(directory, "ada42")
    _, said = quietly(collect, directory, [download(tmp_path, "ada42_01_double.ipynb", data=timed)])
    assert stamp(directory, "ada42") == before and "there already" in said
    _, said = quietly(collect, directory, [download(tmp_path, "H_ada42_attempt_2026-11-21-10-00-00_01_double.ipynb", data=newer)])
    assert stamp(directory, "ada42") == before and "older than the one of 2026-11-25" in said
