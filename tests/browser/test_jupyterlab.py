"""A learner's notebook in a real browser: run everything, and be told what is open."""

import json
import shutil
import time
from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
OUTPUTS = """
const widget = window.jupyterapp && window.jupyterapp.shell.currentWidget;
if (!widget || !widget.content || !widget.content.model || !widget.sessionContext.session) return "[]";
return JSON.stringify([...widget.content.model.cells].map(cell => cell.toJSON().outputs || []));
"""


@pytest.mark.xfail(reason="run-all is sometimes lost in a headless browser; the cause is not found yet", strict=False)
def test_run_all_in_jupyterlab_goes_on_past_open_exercises(browser, jupyter, tmp_path):
    shutil.copy(NOTEBOOKS / "01_advantage.ipynb", tmp_path)
    with jupyter("lab", "--expose-app-in-browser", cwd=tmp_path) as address:
        browser.get(address.replace("/lab?", "/lab/tree/01_advantage.ipynb?"))
        until(lambda: outputs(browser), "the notebook did not open")
        for _ in range(10):  # what comes before the kernel is ready is lost
            browser.execute_script("window.jupyterapp.commands.execute('notebook:run-all-cells')")
            time.sleep(10)
            if any(outputs(browser)):
                break
        until(lambda: "01_advantage: 0 of " in json.dumps(outputs(browser)), "the last cell told no points")
        errors = {output["ename"] for cell in outputs(browser) for output in cell if output["output_type"] == "error"}
        assert errors == {"NotImplementedError"}
        pictures = sum("image/png" in output.get("data", {}) for cell in outputs(browser) for output in cell)
        assert pictures >= 5


def outputs(browser):
    return json.loads(browser.execute_script(OUTPUTS))


def until(true, otherwise):
    deadline = time.monotonic() + 60  # far more than it takes: a busy machine is no reason to fail
    while not true():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.5)
