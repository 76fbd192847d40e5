import importlib.util
import os

os.environ["MPLBACKEND"] = "agg"
os.environ.setdefault("OMP_NUM_THREADS", "1")  # two threads on a busy machine can be far slower than one

import pytest

from grader.course.source import ROOT, Notebook, read_course

EVERY_NOTEBOOK = read_course(ROOT / "solutions")
COURSE = [notebook for notebook in EVERY_NOTEBOOK if notebook.graded]


def missing(library: str, how: str) -> str:
    """Why a library's tests are left out, or nothing; in CI they never are."""
    return "" if importlib.util.find_spec(library) or os.environ.get("CI") else f"{library} is not installed ({how})"


def pytest_collection_modifyitems(items):
    """Tests of one notebook run in one process (under `-n`): what they know of its mistakes is worked out once."""
    for item in items:
        for value in getattr(getattr(item, "callspec", None), "params", {}).values():
            notebook = value[0] if isinstance(value, tuple) and value else value
            if isinstance(notebook, Notebook):
                item.add_marker(pytest.mark.xdist_group(notebook.name))
