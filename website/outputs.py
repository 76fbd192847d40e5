"""What the cells of a solved notebook print and draw: run once for each content, and kept."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import subprocess
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from grader.course.metadata import ANSWERED, identity

SHOWN = ("given", "show")  # kinds whose outputs a page has; what a check says is for whoever wrote an answer
SPEAKS = ("feedback", "score")  # machinery that has no checks to speak of here
PRELUDE = '''\
import sys

sys.modules["ipywidgets"] = None  # a page has no kernel that would follow a slider

from matplotlib.figure import Figure

%matplotlib inline
%config InlineBackend.figure_formats = ["retina"]


def described(figure, printer, cycle):
    """A figure in words, for those who do not see it: titles, axes and legends."""
    parts = [figure.get_suptitle()]
    for ax in figure.axes:
        axes = ", ".join(filter(None, (ax.get_xlabel(), ax.get_ylabel())))
        curves = ", ".join(text.get_text() for text in ax.get_legend().get_texts()) if ax.get_legend() else ""
        parts.append(" ".join(filter(None, (ax.get_title(), axes and f"({axes})", curves and f"[{curves}]"))))
    text = "; ".join(" ".join(part.split()) for part in parts if part.strip())
    printer.text(text.replace("$", "").replace(chr(92), ""))  # the signs of formulas


get_ipython().display_formatter.formatters["text/plain"].for_type(Figure, described)
'''


class Unrunnable(Exception):
    """A cell of a solved notebook failed; the message names the cell and the error in one line."""


def solved(learner: NotebookNode, key: NotebookNode) -> NotebookNode:
    """A learner's notebook, of whatever language, that runs: with the key's answers and without checks."""
    answers = {cell.id: cell.source for cell in key.cells}
    nb = nbformat.from_dict(learner)
    nb.cells = [cell for cell in nb.cells if cell.cell_type == "code" and (it := identity(cell)).kind != "check" and it.name not in SPEAKS]
    for cell in nb.cells:
        if identity(cell).kind in ANSWERED:
            cell.source = answers[cell.id]
    return nb


def outputs(nb: NotebookNode, kept: Path, say) -> dict[str, list[NotebookNode]]:
    """The outputs of a solved notebook's cells, by cell id; from the folder `kept` where the same cells ran before.

    say(done, count): how many cells have run. Raises Unrunnable.
    """
    text = json.dumps([PRELUDE, *([cell.id, cell.source] for cell in nb.cells)])
    path = kept / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
    if not path.exists():
        found = {cell.id: _visible(cell) for cell in _run(nb, say) if identity(cell).kind in SHOWN}
        kept.mkdir(parents=True, exist_ok=True)
        beside = path.with_suffix(".new")
        beside.write_text(json.dumps(found), encoding="utf-8")
        beside.replace(path)
    return {id: [NotebookNode(output) for output in cell] for id, cell in json.loads(path.read_text(encoding="utf-8")).items()}


def _run(nb: NotebookNode, say) -> list[NotebookNode]:
    nb = nbformat.from_dict(nb)
    nb.cells.insert(0, new_code_cell(PRELUDE, id="prelude"))
    for cell in nb.cells:
        cell.metadata.pop("tags", None)  # here no cell may fail
    logging.getLogger("traitlets").setLevel(logging.WARNING)  # once Sphinx has been at work, nbclient would tell of each notebook
    environment = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"} | {"HF_HUB_OFFLINE": "1"}
    client = NotebookClient(
        nb, timeout=None, kernel_name="python3", on_cell_executed=lambda cell, cell_index, execute_reply: say(cell_index, len(nb.cells) - 1)
    )
    try:
        client.execute(env=environment, stderr=subprocess.DEVNULL)
    except AssertionError:  # on Ctrl-C nbclient takes its kernel away from itself
        raise KeyboardInterrupt from None
    except DeadKernelError:
        raise Unrunnable("its kernel died; did the memory not suffice?") from None
    except CellExecutionError as e:
        failed = next(cell for cell in reversed(nb.cells) if any(output.output_type == "error" for output in cell.get("outputs", [])))
        raise Unrunnable(f"cell {identity(failed).name or failed.id}: {e.ename}: {' '.join(e.evalue.split())[:300]}") from None
    return nb.cells[1:]


def _visible(cell: NotebookNode) -> list[NotebookNode]:
    """A cell's outputs without what only a running notebook needs: numbers, ids and warnings."""
    kept = [output for output in cell.outputs if output.get("name") != "stderr"]
    for output in kept:
        output.pop("transient", None)
        if output.output_type == "execute_result":
            output.execution_count = None
    return kept
