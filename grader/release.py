"""From a notebook's source text to the answer key and to the notebook a learner opens.

Each step is pure and deterministic: the same text gives the same bytes.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from nbgrader.preprocessors import (
    CheckCellMetadata,
    ClearHiddenTests,
    ClearOutput,
    ClearSolutions,
    ComputeChecksums,
    LockCells,
)

from grader.course import ROOT, Cell, Notebook, read_course
from grader.fingerprints import fingerprints
from grader.hints import hints, shapes
from grader.learner_cell import Feedback
from grader.mistakes import versions

FEEDBACK = Path(__file__).with_name("learner_cell.py")
STEPS = (LockCells, ClearSolutions, ClearOutput, CheckCellMetadata, ComputeChecksums, ClearHiddenTests, ComputeChecksums, CheckCellMetadata)


def answer_key(notebook: Notebook, following: str = "") -> NotebookNode:
    """The nbgrader source of a notebook: answers, hidden tests and the course's machinery in it.

    following: the name of the next notebook, for the last cell ("" if there is none).
    """
    texts = ROOT / "solutions"
    words = {"name": notebook.name, "launch": _launch(notebook.name)}
    opening = _machinery("opening", (texts / "opening.md").read_text(encoding="utf-8").format(**words), markdown=True)
    closing = _machinery("closing", (texts / "closing.md").read_text(encoding="utf-8").format(**words), markdown=True)
    feedback = _machinery("feedback", _feedback(notebook, following))
    feedback.metadata.update(jupyter={"source_hidden": True}, cellView="form", collapsed=True)
    score = _machinery("score", "feedback.score()")
    first, *rest = [_built(cell, id) for cell, id in _with_ids(notebook)]
    return new_notebook(
        cells=[first, opening, feedback, *rest, closing, score],
        metadata={
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
            "grader": {"notebook": notebook.name},
        },
        nbformat_minor=5,
    )


def learner_notebook(key: NotebookNode) -> NotebookNode:
    """What a learner opens: an answer key without answers and hidden tests."""
    nb = nbformat.from_dict(key)
    for step in STEPS:
        nb, _ = step().preprocess(nb, {})
    return go_on_after_errors(nb)


def go_on_after_errors(nb: NotebookNode) -> NotebookNode:
    """Tags the cells that may fail while an exercise is open, so that "Run all" goes on past them."""
    for cell in nb.cells:
        if cell.metadata.get("grader", {}).get("kind") in ("check", "show"):
            cell.metadata["tags"] = ["raises-exception"]
    return nb


def build(solutions: Path) -> dict[str, str]:
    """Every file that the source text gives: path relative to the course's folder -> its text."""
    course = read_course(solutions)
    files = {}
    for notebook, following in zip(course, [nb.name for nb in course[1:]] + [""], strict=True):
        key = answer_key(notebook, following)
        files[f"solutions/{notebook.name}.ipynb"] = to_text(key)
        files[f"notebooks/{notebook.name}.ipynb"] = to_text(learner_notebook(key))
    return files


def differences(files: dict[str, str], root: Path) -> Iterator[str]:
    """One sentence for each built file that is missing, stale or not ours."""
    for folder in ("solutions", "notebooks"):
        for path in sorted((root / folder).glob("*.ipynb")):
            if f"{folder}/{path.name}" not in files:
                yield f"{folder}/{path.name}: no source text builds it; delete it"
    for name, text in files.items():
        if not (root / name).exists():
            yield f"{name}: missing; run 'grader release'"
        elif not _same(text, (root / name).read_text(encoding="utf-8")):
            yield f"{name}: differs from its source text; run 'grader release'"


def to_text(nb: NotebookNode) -> str:
    """A notebook as the text of its file; equal notebooks give equal files."""
    return nbformat.writes(nb)


def _same(built: str, found: str) -> bool:
    """Byte for byte, but for the last digits of the fingerprints, which depend on the versions of torch and Python and the processor."""
    if built == found:
        return True
    try:
        (one, table), (other, its) = _apart(built), _apart(found)
        return one == other and len(table) == len(its) and all(map(_same_prints, table, its))
    except (ValueError, LookupError, TypeError, StopIteration):  # it was edited by hand
        return False


def _apart(text: str) -> tuple[object, list[str]]:
    """A notebook without its fingerprints and what depends on them, and the fingerprints' lines."""
    nb = json.loads(text)
    cell = next(c for c in nb["cells"] if c["id"] == "feedback")
    cell["metadata"]["nbgrader"].pop("checksum", None)
    table = [line for line in cell["source"] if line.startswith('  ["')]
    cell["source"] = [line for line in cell["source"] if not line.startswith('  ["')]
    return nb, table


def _same_prints(one: str, other: str) -> bool:
    (check, *entries), (its, *others) = (json.loads(line.rstrip(",\n")) for line in (one, other))
    alike = (a == b or (a[0] == b[0] and Feedback.equal(a[1:], b[1:])) for a, b in zip(entries, others, strict=False))
    return check == its and len(entries) == len(others) and all(alike)


def _with_ids(notebook: Notebook) -> Iterator[tuple[Cell, str]]:
    """Cells with ids made from names; prose is numbered behind the named cell it follows."""
    before, count = "title", 0
    for cell in notebook.cells:
        if cell.name:
            before, count = cell.name, 0
            yield cell, cell.name
        else:
            count += 1
            yield cell, f"{before}-text{count}"


def _built(cell: Cell, id: str) -> NotebookNode:
    new = new_markdown_cell if cell.markdown else new_code_cell
    built = new(cell.source, id=id, metadata={"grader": {"kind": cell.kind, "name": cell.name}})
    graded, answered = cell.kind in ("check", "answer"), cell.kind in ("solution", "bring", "answer")
    if graded or answered or cell.kind in ("given", "scenario"):
        built.metadata["nbgrader"] = _nbgrader(cell.name, grade=graded, solution=answered)
    if graded:
        built.metadata["nbgrader"]["points"] = cell.points
    return built


def _nbgrader(grade_id: str, *, grade: bool = False, solution: bool = False) -> dict[str, object]:
    return {"grade_id": grade_id, "grade": grade, "solution": solution, "locked": not solution, "task": False, "schema_version": 3}


def _machinery(name: str, source: str, *, markdown: bool = False) -> NotebookNode:
    new = new_markdown_cell if markdown else new_code_cell
    metadata: dict[str, object] = {"grader": {"kind": "machinery", "name": name}}
    if not markdown:
        metadata["nbgrader"] = _nbgrader(name)
    return new(source.strip("\n"), id=name, metadata=metadata)


def _feedback(notebook: Notebook, following: str) -> str:
    """The folded cell: learner_cell.py and, as data, what it has to know of this notebook."""
    known = {v.name: [v.summary, v.hint] for v in versions(notebook.name) if v.wrong}
    prints = fingerprints(notebook)
    tables = {
        "checks": {c.title: [c.name, c.exercise, c.points] for c in notebook.of_kind("check")},
        "hints": hints(notebook),
        "shapes": shapes(notebook),
        "mistakes": {name: known[name] for name in known if any(name in names.split() for of in prints.values() for names, *_ in of)},
    }
    written = sum(c.points for c in notebook.of_kind("answer"))
    call = "\n".join(
        [
            "feedback = Feedback(",
            f"  notebook={notebook.name!r}, following={following!r}, written={written},",
            *(f"  {name}={json.dumps(table, ensure_ascii=False)}," for name, table in tables.items()),
            "  fingerprints=[",
            *(f"  {json.dumps([check, *entries], ensure_ascii=False, separators=(',', ':'))}," for check, entries in prints.items()),
            "  ],",
            ")",
            "hint = feedback.hint",
        ]
    )
    return FEEDBACK.read_text(encoding="utf-8").rstrip("\n") + "\n\n\n" + call


def _launch(name: str) -> str:
    """Buttons that open the notebook where the course's repository is public, or how to upload it."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["grader"]
    if repository := settings["repository"].removeprefix("https://github.com/").strip("/"):
        colab, modelscope = "https://colab.research.google.com", "https://modelscope.cn/notebook/share"
        file = f"github/{repository}/blob/main/notebooks/{name}.ipynb"
        return (
            f"[![Open in Colab]({colab}/assets/colab-badge.svg)]({colab}/{file}) "
            f"[![Open in ModelScope](https://img.shields.io/badge/ModelScope-Notebook-624aff)]({modelscope}/{file})"
        )
    return (
        "**In a browser, nothing installed:** in [Colab](https://colab.research.google.com) choose *File > Upload notebook*, in "
        "[ModelScope](https://modelscope.cn/my/mynotebook) (魔搭) start a notebook and drag the file into its file list; "
        f"the file is `{name}.ipynb`."
    )
