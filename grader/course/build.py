"""From a notebook's source text to the answer key and to the notebook a learner opens.

Each step is pure and deterministic: the same text gives the same bytes.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from nbgrader.preprocessors import CheckCellMetadata, ClearHiddenTests, ClearOutput, ClearSolutions, ComputeChecksums, LockCells

from grader.course.metadata import MACHINERY, MACHINERY_SOURCES, cell_metadata, folded, identity
from grader.course.source import ROOT, Cell, Notebook
from grader.course.texts import of_markdown, replaced
from grader.course.translation import translator

UPLOAD = (
    "**In a browser, nothing installed:** in [Colab](https://colab.research.google.com) choose *File > Upload notebook*, in "
    "[ModelScope](https://modelscope.cn/my/mynotebook) (魔搭) start a notebook and drag the file into its file list, in "
    "[Kaggle](https://www.kaggle.com/code) make a new notebook and choose *File > Import Notebook*; the file is `{name}.ipynb`."
)
BUTTONS = {  # platform -> its badge, and what it opens a notebook of GitHub's with
    "Colab": ("https://colab.research.google.com/assets/colab-badge.svg", "https://colab.research.google.com/github/"),
    "ModelScope": ("https://img.shields.io/badge/ModelScope-Notebook-624aff", "https://modelscope.cn/notebook/share/github/"),
    "Kaggle": ("https://kaggle.com/static/images/open-in-kaggle.svg", "https://kaggle.com/kernels/welcome?src=https://github.com/"),
}
# The words at the top and at the end of every notebook.
FRAMING = {name: (ROOT / "solutions" / f"{name}.md").read_text(encoding="utf-8") for name in ("opening", "closing")}
STEPS = (LockCells, ClearSolutions, ClearOutput, CheckCellMetadata, ComputeChecksums, ClearHiddenTests, ComputeChecksums, CheckCellMetadata)


def answer_key(notebook: Notebook, feedback: str, pictures: str = "") -> NotebookNode:
    """The nbgrader source of a notebook, answers and hidden tests in it. feedback, pictures: the sources of these cells ("": none).

    A notebook that is not graded has none of the cells about checks, points and handing in.
    """
    say = translator(notebook.language, notebook.name)
    words = {"name": notebook.name, "launch": _launch(notebook), "answers": f"solutions/{notebook.path}"}
    launch = _cell(MACHINERY, "opening", words["launch"], markdown=True)
    opening, closing = (
        _cell(MACHINERY, name, replaced(text, list(of_markdown(text)), say).format(**words), markdown=True)
        for name, text in FRAMING.items()
    )
    speaks, score = _folded(_cell(MACHINERY, "feedback", feedback)), _cell(MACHINERY, "score", MACHINERY_SOURCES["score"])
    draws = [_folded(_cell(MACHINERY, "pictures", pictures))] if pictures else []
    first, *rest = [
        _cell(cell.kind, cell.name, cell.source, id=id, markdown=cell.markdown, points=cell.points) for cell, id in with_ids(notebook)
    ]
    for check in rest:
        if identity(check).kind == "check":
            check.source = folded(check.source)
            _folded(check)
    return new_notebook(
        cells=[first, opening, *draws, speaks, *rest, closing, score] if notebook.graded else [first, launch, *draws, *rest],
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
        if identity(cell).kind in ("check", "show"):
            cell.metadata["tags"] = ["raises-exception"]
    return nb


def to_text(nb: NotebookNode) -> str:
    """A notebook as the text of its file; equal notebooks give equal files."""
    return nbformat.writes(nb)


def with_ids(notebook: Notebook) -> Iterator[tuple[Cell, str]]:
    """Cells with ids made from names; prose is numbered behind the named cell it follows."""
    before, count = "title", 0
    for cell in notebook.cells:
        if cell.name:
            before, count = cell.name, 0
            yield cell, cell.name
        else:
            count += 1
            yield cell, f"{before}-text{count}"


def _cell(kind: str, name: str, source: str, *, id: str = "", markdown: bool = False, points: int = 0) -> NotebookNode:
    new = new_markdown_cell if markdown else new_code_cell
    metadata = cell_metadata(kind, name, points)
    if markdown and kind == MACHINERY:
        metadata.pop("nbgrader")  # prose
    return new(source.strip("\n"), id=id or name, metadata=metadata)


def _folded(cell: NotebookNode) -> NotebookNode:
    """Shown as its first line where the platform folds: JupyterLab and VS Code by the first entry, Colab by the second and FORM."""
    cell.metadata.update(jupyter={"source_hidden": True}, cellView="form")
    return cell


def _launch(notebook: Notebook) -> str:
    """Buttons that open the notebook where the course's repository is public, or how to upload it."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["grader"]
    say = translator(notebook.language, notebook.name)
    return buttons(settings["repository"], notebook.path) or say(UPLOAD).format(name=notebook.name)


def buttons(repository: str, path: str) -> str:
    """A line of buttons for the notebook at a path below notebooks/ ("" where the repository is not on GitHub: they open nothing else)."""
    at = re.fullmatch(r"https://github\.com/([^/]+/[^/]+?)(\.git)?/?", repository)
    place = f"{at[1]}/blob/main/notebooks/{path}" if at else ""
    return " ".join(f"[![Open in {name}]({badge})]({opens}{place})" for name, (badge, opens) in BUTTONS.items()) if at else ""
