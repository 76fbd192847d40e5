"""What a learner opens holds no answer and no hidden test, and the built notebooks are what the source text gives."""

import nbformat
import pytest
from nbgrader.nbgraderformat import MetadataValidator

from grader.course.build import learner_notebook
from grader.course.source import HIDDEN, SOLUTION
from grader.feedback.release import answer_key, differences, released
from tests.conftest import COURSE, ROOT

BUILT = [(nb, learner_notebook(answer_key(nb))) for nb in COURSE]
built = pytest.mark.parametrize(("source", "learner"), BUILT, ids=lambda nb: nb.name if nb in COURSE else "")


def code_lines(text):
    """Lines that say something of their own."""
    return {line.strip() for line in text.splitlines() if len(line.strip()) > 12 and not line.strip().startswith("#")}


@built
def test_no_hidden_test_reaches_the_learner(source, learner):
    cells = {c.metadata.grader.name: c.source for c in learner.cells}
    for check in source.of_kind("check"):
        assert "SEED" in check.hidden
        assert "SEED" not in cells[check.name]
        assert cells[check.name].rstrip() == check.visible.rstrip()
    assert not any(HIDDEN[0] in text for text in cells.values())


@built
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


@built
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


def test_the_built_notebooks_are_fresh():
    assert not list(differences(released(ROOT / "solutions"), ROOT))


def test_a_changed_byte_or_a_stray_file_is_seen(tmp_path):
    files = released(ROOT / "solutions")
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert not list(differences(files, tmp_path))
    path = tmp_path / f"notebooks/{COURSE[0].name}.ipynb"
    path.write_text(path.read_text(encoding="utf-8").replace("raise NotImplementedError()", "return 0", 1), encoding="utf-8")
    (tmp_path / "notebooks/99_stray.ipynb").write_text("{}")
    (tmp_path / f"solutions/{COURSE[1].name}.ipynb").unlink()
    found = "\n".join(map(": ".join, differences(files, tmp_path)))
    assert "99_stray.ipynb: no source text" in found
    assert f"{COURSE[0].name}.ipynb: differs" in found
    assert f"solutions/{COURSE[1].name}.ipynb: missing" in found
    assert found.count("\n") == 2


def test_fingerprints_may_differ_in_the_last_digits_only(tmp_path):
    files = released(ROOT / "solutions")
    name = f"notebooks/{COURSE[0].name}.ipynb"
    for file, text in files.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text, encoding="utf-8")
    nb = nbformat.reads(files[name], as_version=4)
    (feedback,) = [c for c in nb.cells if c.id == "feedback"]
    line = next(line for line in feedback.source.splitlines() if line.startswith('  ["'))
    number = float(line.rstrip("],").rsplit(",", 1)[1])
    same = [
        f"{number * (1 + 1e-7)!r}]],",
        f"{number + 1e-17!r}]],",
        f"{number:.5g}]],",
    ]  # another processor, what is left of a zero, a digit less
    other = [f"{number * 1.01 + 0.01!r}]],", '"a"]],', f"{number}]", f"{number}]]," + "[1]]", f"{number}],[]],"]
    for end in same + other:
        changed = line.rstrip("],").rsplit(",", 1)[0] + "," + end
        (tmp_path / name).write_text(
            files[name].replace(line.replace('"', '\\"').rstrip(","), changed.replace('"', '\\"').rstrip(",")), encoding="utf-8"
        )
        stale = end in other
        assert bool(list(differences(files, tmp_path))) == stale
