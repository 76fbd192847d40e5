"""A learner's notebook -> a page: its text and code, what the key's cells show, no answer and no machinery."""

from __future__ import annotations

import re
from collections.abc import Mapping

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell

from grader.course.metadata import MACHINERY, identity, unfolded

LONG = 30  # lines of code from which a cell is folded, as checks and imports are: on a phone it would be three screens


def page(name: str, learner: NotebookNode, outputs: Mapping[str, list[NotebookNode]], words: Mapping[str, str]) -> NotebookNode:
    """The page of the notebook `name`. outputs: of its cells, by id. words: the site's own, in the notebook's language."""
    nb = nbformat.from_dict(learner)
    title, *rest = [cell for cell in nb.cells if identity(cell).kind != MACHINERY]
    download = f'<a href="notebooks/{name}.ipynb" download>{words["download"]}</a>'
    nb.cells = [title, new_markdown_cell(f"{download} · {opens(learner)}", id="links"), *rest]
    for cell in nb.cells:
        if cell.cell_type == "markdown":
            cell.source = re.sub(r"\[([^]]*)\]\(\.\./[^)]*\)", r"\1", cell.source)  # files of the repository that the site has not
        else:
            _code(cell, outputs.get(cell.id, []), words)
    for cell in rest:  # a page has one title; what a notebook heads like its own is a section of it
        cell.source = re.sub(r"\A# ", "## ", cell.source) if cell.cell_type == "markdown" else cell.source
    return nb


def opens(learner: NotebookNode) -> str:
    """Where else to open a notebook, as its opening says, in Markdown; of a button, its words instead of a picture from the network."""
    first = next(cell.source for cell in learner.cells if identity(cell).name == "opening").split("\n\n")[0]
    return re.sub(r"!\[(.*?)\]\([^)]*\)", r"\1", first)


def entry(name: str, learner: NotebookNode) -> str:
    """A notebook's entry on the first page: its title, its first paragraph, and what its table says of difficulty and time."""
    title, first = learner.cells[0].source.split("\n\n")[:2]
    rows = re.findall(r"^\| (\*\*.+?\*\*) \| (.+) \|$", learner.cells[0].source, re.MULTILINE)[:2]
    return "\n".join([f"## [{title.lstrip('# ')}]({name})", "", first, "", *(f"- {what}: {value}" for what, value in rows)])


def _code(cell: NotebookNode, outputs: list[NotebookNode], words: Mapping[str, str]) -> None:
    known, source = identity(cell), unfolded(cell.source)
    cell.outputs, cell.metadata = outputs, NotebookNode()
    if known.kind == "check":
        title, _, source = source.partition("\n")
        prompt = words["check"].format(title=title.lstrip("# ").rstrip(". "), points=round(known.points))
    else:
        prompt = words["code"].format(lines=source.count("\n") + 1)
    cell.source = source
    if known.kind == "check" or known.name == "setup" or source.count("\n") >= LONG:
        cell.metadata = NotebookNode(tags=["hide-input"], mystnb={"code_prompt_show": prompt})
