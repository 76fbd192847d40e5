"""A learner's notebook stands alone: it runs with nothing of ours installed, unsolved and solved."""

import json
import os
import sys
from pathlib import Path

import nbformat
import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

from grader.course.source import ROOT
from grader.feedback.release import answered
from tests.conftest import COURSE

OLD_IPYTHON = Path(sys.prefix) / "ipython7"  # 7.34, which Colab has; `make extras` puts it there


def run_alone(nb, folder, *also, path=""):
    """Executes a copy of the notebook in an empty folder, in a kernel that has torch, numpy, matplotlib and the packages in `also` only.

    path: a folder whose packages come before the others.
    """
    kernel = folder / ".kernel" / "alone"
    kernel.mkdir(parents=True)
    argv = [sys.executable, str(Path(__file__).with_name("alone.py")), "-f", "{connection_file}"]
    spec = {"argv": argv, "display_name": "alone", "language": "python", "env": {"ALSO": " ".join(also), "PYTHONPATH": str(path)}}
    (kernel / "kernel.json").write_text(json.dumps(spec))
    manager = AsyncKernelManager(kernel_name="alone", kernel_spec_manager=KernelSpecManager(kernel_dirs=[str(kernel.parent)]))
    work = folder / "empty"
    work.mkdir()
    NotebookClient(nb, km=manager, timeout=300, resources={"metadata": {"path": str(work)}}).execute()
    assert not list(work.iterdir()), "the notebook left files behind"
    return nb


def errors(nb):
    return [(c.id, o) for c in nb.cells for o in c.get("outputs", []) if o.output_type == "error"]


def printed(nb, id):
    (cell,) = [c for c in nb.cells if c.id == id]
    return "".join(o.get("text", "") for o in cell.outputs)


def opened(notebook):
    return nbformat.read(ROOT / f"notebooks/{notebook.name}.ipynb", as_version=4)


def shortened(nb):
    """The same notebook with short training runs, if it has settings for them."""
    for cell in nb.cells:
        if cell.id == "settings":
            cell.source = cell.source.replace('"experiment_steps": 30', '"experiment_steps": 2, "steps": 2, "warmup_steps": 20')
            assert '"steps": 2' in cell.source
    return nb


@pytest.mark.parametrize("notebook", COURSE, ids=lambda nb: nb.name)
def test_unsolved_nothing_fails_but_what_is_not_written(notebook, tmp_path):
    nb = run_alone(shortened(opened(notebook)), tmp_path)
    assert {o.ename for _, o in errors(nb)} == {"NotImplementedError"}
    assert all(len(o.traceback) == 1 for _, o in errors(nb)), "an open exercise is told in one line, not in a page of traceback"
    assert f"{notebook.name}: 0 of " in printed(nb, "score")


@pytest.mark.thorough
@pytest.mark.skipif(not OLD_IPYTHON.exists() and not os.environ.get("CI"), reason="IPython 7.34 is not there (make extras)")
@pytest.mark.parametrize("notebook", COURSE, ids=lambda nb: nb.name)
def test_the_ipython_of_colab_does_as_well(notebook, tmp_path):
    nb = shortened(answered(notebook))
    nb.cells.append(nbformat.v4.new_code_cell("import IPython; print(IPython.__version__)", id="version"))
    assert not errors(run_alone(nb, tmp_path, path=OLD_IPYTHON))
    assert printed(nb, "version").startswith("7.34")
    points = sum(c.points for c in notebook.of_kind("check"))
    assert f"{notebook.name}: {points} of {points} points" in printed(nb, "score")


@pytest.mark.parametrize("notebook", COURSE, ids=lambda nb: nb.name)
def test_solved_nothing_fails_and_every_visible_point_is_earned(notebook, tmp_path):
    nb = run_alone(shortened(answered(notebook)), tmp_path)
    assert not errors(nb)
    points = sum(c.points for c in notebook.of_kind("check"))
    assert f"{notebook.name}: {points} of {points} points" in printed(nb, "score")
    for check in notebook.of_kind("check"):
        assert "is right" in printed(nb, check.name)
