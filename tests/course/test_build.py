"""What a learner opens holds no answer and no hidden test, and the built notebooks are what the source text gives."""

import base64
import json
import re
import shutil
import subprocess
import sys
import zlib

import nbformat
import pytest
from nbgrader.nbgraderformat import MetadataValidator

from grader.cli import main
from grader.course import build
from grader.course.build import BUTTONS, buttons, learner_notebook
from grader.course.source import HIDDEN, ROOT, SOLUTION
from grader.course.translation import languages, translated
from grader.feedback.release import answer_key, differences, feedback_text, released
from tests.conftest import COURSE, EVERY_NOTEBOOK

of_notebooks = pytest.mark.parametrize("source", EVERY_NOTEBOOK, ids=lambda nb: nb.name)


@pytest.fixture
def learner(source):
    return learner_notebook(answer_key(source))


def code_lines(text):
    """Lines that say something of their own."""
    return {line.strip() for line in text.splitlines() if len(line.strip()) > 12 and not line.strip().startswith("#")}


@of_notebooks
def test_no_hidden_test_reaches_the_learner(source, learner):
    cells = {c.metadata.grader.name: c.source for c in learner.cells}
    for check in source.of_kind("check"):
        assert "SEED" in check.hidden
        assert "SEED" not in cells[check.name]
        assert cells[check.name].replace("# @title ", "# ", 1).rstrip() == check.visible.rstrip()
    assert not any(HIDDEN[0] in text for text in cells.values())


@of_notebooks
def test_a_check_is_folded_under_its_title(source, learner):
    cells = {c.metadata.grader.name: c for c in learner.cells}
    for check in source.of_kind("check"):
        cell = cells[check.name]
        assert cell.source.startswith(f"# @title {check.title}")
        assert cell.metadata.jupyter.source_hidden and cell.metadata.cellView == "form"
    assert not any("cellView" in c.metadata for c in learner.cells if c.metadata.grader.kind in ("given", "show", "solution"))


@of_notebooks
def test_no_answer_reaches_the_learner(source, learner):
    cells = {c.metadata.grader.name: c.source for c in learner.cells if "grader" in c.metadata}
    for cell in source.of_kind("solution", "bring"):
        begin, end = SOLUTION
        regions = [r.partition(end)[0] for r in cell.source.split(begin)[1:]]
        assert cells[cell.name].count("raise NotImplementedError()") == len(regions)
        for region in regions:
            assert not code_lines(region) & code_lines(cells[cell.name])
    for cell in source.of_kind("answer"):
        assert cells[cell.name] == "YOUR ANSWER HERE"
    assert "SOLUTION" not in "".join(cells.values()) and HIDDEN[0] not in "".join(cells.values())


@of_notebooks
def test_the_notebook_is_valid_and_every_name_is_kept(source, learner):
    nbformat.validate(learner)
    for cell in learner.cells:
        MetadataValidator().validate_cell(cell)
    assert [c.metadata.grader.name for c in learner.cells if c.metadata.grader.kind not in ("machinery", "text")] == [
        c.name for c in source.cells if c.name
    ]
    assert len({c.id for c in learner.cells}) == len(learner.cells)


@pytest.mark.parametrize(("name", "points"), [("01_advantage", 20), ("02_grpo_loss", 35), ("03_kl", 25), ("04_train_a_tiny_model", 20)])
def test_the_points_of_the_course(name, points):
    (notebook,) = [nb for nb in COURSE if nb.name == name]
    assert sum(c.points for c in notebook.cells) == points


def test_a_notebook_without_checks_says_nothing_of_points_and_handing_in():
    (source,) = [notebook for notebook in EVERY_NOTEBOOK if not notebook.graded]
    learner = learner_notebook(answer_key(source))
    assert [c.id for c in learner.cells if c.metadata.grader.kind == "machinery"] == ["opening"]
    assert "hand in the" not in "".join(c.source for c in learner.cells).lower()
    assert any("Colab" in c.source for c in learner.cells)


@pytest.mark.parametrize("language", ["", *languages()])
@of_notebooks
def test_the_buttons_of_a_public_course_open_the_notebook_in_its_language(source, language, tmp_path, monkeypatch):
    edition = translated(source, language) if language else source
    assert (ROOT / "notebooks" / edition.path).exists()
    (tmp_path / "pyproject.toml").write_text('[tool.grader]\nrepository = "https://github.com/name/course"')
    monkeypatch.setattr(build, "ROOT", tmp_path)
    opening = next(cell.source for cell in learner_notebook(answer_key(edition)).cells if cell.id == "opening")
    found = re.findall(r"\[!\[Open in (\w+)\]\(https://\S+\)\]\((https://\S+)\)", opening)
    assert [platform for platform, _ in found] == list(BUTTONS)
    assert all(address.endswith(f"/name/course/blob/main/notebooks/{edition.path}") for _, address in found)


@pytest.mark.parametrize("form", ["https://github.com/name/course", "https://github.com/name/course/", "https://github.com/name/course.git"])
def test_a_repository_may_be_written_as_github_shows_it(form):
    assert buttons(form, "zh/01.ipynb") == buttons("https://github.com/name/course", "zh/01.ipynb") != ""


@pytest.mark.parametrize("elsewhere", ["", "https://gitee.com/name/course", "https://github.com/name", "name/course"])
def test_what_no_platform_could_open_gets_no_button(elsewhere):
    assert buttons(elsewhere, "01.ipynb") == ""


def test_pythons_since_3_10_can_read_every_cell(tmp_path):
    """What learners' platforms have. ruff knows the grammar of each version; the control is a line that it must refuse."""
    for path in sorted((ROOT / "notebooks").rglob("*.ipynb")):
        cells = ["".join(cell["source"]) for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]]
        packed = re.findall(r'^packed = "(.*)"$', "\n".join(cells), re.MULTILINE)
        for number, text in enumerate(packed):
            unpacked = zlib.decompress(base64.b85decode(text))
            (tmp_path / f"{path.parent.name}_{path.stem}_{number}.py").write_bytes(unpacked)
    assert len(list(tmp_path.glob("*.py"))) > len(COURSE), "each graded notebook has its feedback, each translated one its pictures"
    (tmp_path / "control.py").write_text("try:\n    pass\nexcept* ValueError:\n    pass\n")
    settings = ["--isolated", "--target-version", "py310", "--select", "E9", "--output-format", "concise"]
    command = [sys.executable, "-m", "ruff", "check", *settings, str(ROOT / "notebooks"), str(tmp_path)]
    said = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path).stdout
    assert re.fullmatch(r"control.py:3:\d+: .*3\.10.*\nFound 1 error\.\n", said), said


@pytest.mark.training
def test_the_built_notebooks_are_fresh(capsys):
    assert main(["release", "--check"]) == 0, capsys.readouterr().err


@pytest.fixture
def files(tmp_path):
    """The files of a course that has only the first two notebooks, written into a folder."""
    (tmp_path / "solutions").mkdir()
    (tmp_path / "notebooks").mkdir()
    for notebook in COURSE[:2]:
        shutil.copy(ROOT / f"solutions/{notebook.name}.py", tmp_path / "solutions")
    files = released(tmp_path / "solutions")
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return files


def test_a_changed_byte_or_a_stray_file_is_seen(files, tmp_path):
    assert not list(differences(files, tmp_path))
    path = tmp_path / f"notebooks/{COURSE[0].name}.ipynb"
    path.write_text(path.read_text(encoding="utf-8").replace("raise NotImplementedError()", "return 0", 1), encoding="utf-8")
    (tmp_path / "notebooks/99_stray.ipynb").write_text("{}")
    (tmp_path / f"solutions/{COURSE[1].name}.ipynb").unlink()
    assert sorted(differences(files, tmp_path)) == [
        (f"notebooks/{COURSE[0].name}.ipynb", "differs from its source text; run 'make release'"),
        ("notebooks/99_stray.ipynb", "no source text builds it; delete it"),
        (f"solutions/{COURSE[1].name}.ipynb", "missing; run 'make release'"),
    ]


def test_fingerprints_may_differ_in_the_last_digits_only(files, tmp_path):
    def stale(changed):
        """Whether a built notebook is called stale once the text of its feedback cell was changed."""
        packed = base64.b85encode(zlib.compress(changed.encode(), 9)).decode()
        nb = json.loads(files[name])
        cell = next(c for c in nb["cells"] if c["id"] == "feedback")
        cell["source"] = [re.sub(r'(?<=^packed = ").*(?="$)', lambda _: packed, line) for line in cell["source"]]
        (tmp_path / name).write_text(json.dumps(nb), encoding="utf-8")
        return bool(list(differences(files, tmp_path)))

    name, text = f"notebooks/{COURSE[0].name}.ipynb", feedback_text(COURSE[0], COURSE[1].name)
    line = next(line for line in text.splitlines() if line.startswith('  ["'))
    head, _, last = line.rstrip("],").rpartition(",")
    number = float(last)
    for end in (last, repr(number * (1 + 1e-7)), repr(number + 1e-17), f"{number:.5g}"):  # another processor, a digit less
        assert not stale(text.replace(line, f"{head},{end}]],"))
    for end in (f"{number * 1.01 + 0.01!r}]],", '"a"]],', f"{last}]", f"{last}]],[1]]", f"{last}],[]],"):
        assert stale(text.replace(line, f"{head},{end}"))
    assert stale(text + "\n")
