"""A learner's notebook in a real browser: run everything, and be told what is open."""

import json
import shutil
import time
from pathlib import Path

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
OUTPUTS = """
const widgets = window.jupyterapp ? [...window.jupyterapp.shell.widgets("main")] : [];
const widget = widgets.find(each => each.content && each.content.model && each.content.model.cells);
if (!widget || !widget.sessionContext.session) return "{}";
window.jupyterapp.shell.activateById(widget.id);  // a window without the focus has no current notebook, and its commands do nothing
return JSON.stringify(Object.fromEntries([...widget.content.model.cells].map(cell => [cell.id, cell.toJSON().outputs || []])));
"""


def test_run_all_in_jupyterlab_goes_on_past_open_exercises(browser, jupyter, tmp_path):
    shutil.copy(NOTEBOOKS / "01_advantage.ipynb", tmp_path)
    with jupyter("lab", "--expose-app-in-browser", cwd=tmp_path) as address:
        browser.get(address.replace("/lab?", "/lab/tree/01_advantage.ipynb?"))
        until(lambda: outputs(browser), "the notebook did not open")
        browser.execute_script("window.jupyterapp.commands.execute('notebook:run-all-cells')")
        until(lambda: "01_advantage: 0 of " in json.dumps(outputs(browser)), "the last cell told no points")
        errors = {output["ename"] for cell in outputs(browser).values() for output in cell if output["output_type"] == "error"}
        assert errors == {"NotImplementedError"}
        pictures = {id for id, cell in outputs(browser).items() if any("image/png" in output.get("data", {}) for output in cell)}
        need_no_exercise = {"the_run_to_come", "noise_of_the_gradient", "models_in_memory", "right_answers_in_a_group"}
        assert pictures == need_no_exercise


def outputs(browser):
    return json.loads(browser.execute_script(OUTPUTS))


def until(true, otherwise):
    deadline = time.monotonic() + 300  # far more than it takes: a busy machine is no reason to fail
    while not true():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.5)
