"""A learner in JupyterLab, in a real browser: what is open, what is wrong, what moves, what the Validate button says."""

import contextlib
import json
import shutil
import sys
import time
from pathlib import Path

import pytest
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

sys.path.append(str(Path(__file__).parents[1]))

from grader.course.source import ROOT, read_course
from grader.course.translation import languages, translated, translator
from grader.mistakes import versions

COURSE = {notebook.name: notebook for notebook in read_course(ROOT / "solutions")}
WIDGET = """
const widgets = window.jupyterapp ? [...window.jupyterapp.shell.widgets("main")] : [];
const widget = widgets.find(each => each.content && each.content.model && each.content.model.cells);
if (!widget || !widget.sessionContext.session) return "{}";
window.jupyterapp.shell.activateById(widget.id);  // a window without the focus has no current notebook, and its commands do nothing
const cells = [...widget.content.model.cells];
const place = id => cells.findIndex(cell => cell.id === id);
"""
OUTPUTS = WIDGET + "return JSON.stringify(Object.fromEntries(cells.map(cell => [cell.id, cell.toJSON().outputs || []])))"
WRITE = WIDGET + "cells[place(arguments[0])].sharedModel.setSource(arguments[1])"
RUN = WIDGET + "widget.content.activeCellIndex = place(arguments[0]); window.jupyterapp.commands.execute(arguments[1])"
SAVE = WIDGET + "widget.context.save()"


class Lab:
    """A notebook that is open in JupyterLab, its cells by their ids."""

    def __init__(self, browser, address, name):
        self.browser = browser
        browser.get(address.replace("/lab?", f"/lab/tree/{name}.ipynb?"))
        until(self.outputs, "the notebook did not open")

    def outputs(self):
        return json.loads(self.browser.execute_script(OUTPUTS))

    def said(self, cell):
        """The letters that a cell printed, however its lines were wrapped."""
        return letters("".join("".join(output.get("text", "")) for output in self.outputs()[cell]))

    def pictures(self, cell):
        return [output["data"]["image/png"] for output in self.outputs()[cell] if "image/png" in output.get("data", {})]

    def write(self, cell, source):
        self.browser.execute_script(WRITE, cell, source)

    def run(self, cell, command="notebook:run-cell"):
        self.browser.execute_script(RUN, cell, command)


@contextlib.contextmanager
def opened(browser, jupyter, folder, course):
    shutil.copy(ROOT / "notebooks" / course.path, folder)
    with jupyter("lab", "--expose-app-in-browser", cwd=folder) as address:
        yield Lab(browser, address, course.name)


def test_run_all_goes_on_past_open_exercises(browser, jupyter, tmp_path):
    with opened(browser, jupyter, tmp_path, COURSE["01_advantage"]) as lab:
        lab.run("the_run_to_come", "notebook:run-all-cells")
        until(lambda: "01_advantage: 0 of " in json.dumps(lab.outputs()), "the last cell told no points")
        errors = {output["ename"] for cell in lab.outputs().values() for output in cell if output["output_type"] == "error"}
        assert errors == {"NotImplementedError"}
        need_no_exercise = {"the_run_to_come", "noise_of_the_gradient", "models_in_memory", "right_answers_in_a_group"}
        assert {cell for cell in lab.outputs() if lab.pictures(cell)} == need_no_exercise


@pytest.mark.parametrize("edition", ["", *languages()])
def test_a_wrong_answer_is_named_and_a_right_one_passes_a_slider_moves_the_picture_and_validate_answers(
    edition, browser, jupyter, tmp_path
):
    course = translated(COURSE["02_grpo_loss"], edition) if edition else COURSE["02_grpo_loss"]
    wrong = next(v for v in versions(course.name) if v.name == "no_minus")
    summary = translator(edition, course.name)(wrong.summary)
    right = next(cell for cell in course.of_kind("solution") if cell.name == wrong.exercise)
    check = next(cell.name for cell in course.of_kind("check") if cell.exercise == wrong.exercise and cell.name == "value_of_the_loss")
    with opened(browser, jupyter, tmp_path, course) as lab:
        lab.run(check, "notebook:run-all-above")
        until(lambda: "NotImplementedError" in json.dumps(lab.outputs()), "the cells above did not run")
        until(lambda: browser.find_elements(By.CSS_SELECTOR, ".noUi-handle"), "no slider came")
        until(lambda: pictures_of_widgets(browser), "the sliders have no picture")
        before = pictures_of_widgets(browser)[0]

        def moved():
            with contextlib.suppress(StaleElementReferenceException):
                browser.find_element(By.CSS_SELECTOR, ".noUi-handle").send_keys(Keys.ARROW_RIGHT)  # as who has no mouse does
            return pictures_of_widgets(browser)[:1] not in ([], [before])

        until(moved, "the picture did not change")
        for source, word in ((wrong.source, letters(summary)), (right.source, "\u2713")):
            lab.write(right.name, source)
            lab.run(right.name)
            lab.run(check)
            until(lambda word=word: word in lab.said(check), f"the check did not say {word!r}")
        browser.execute_script(SAVE)
        browser.find_element(By.CSS_SELECTOR, ".validate-button").click()
        until(lambda: "Validation Results" in browser.find_element(By.TAG_NAME, "body").text, "Validate gave no answer")


def test_the_run_draws_itself_anew_while_it_trains(browser, jupyter, tmp_path):
    course = COURSE["04_train_a_tiny_model"]
    settings = next(cell for cell in course.cells if cell.name == "settings").source
    with opened(browser, jupyter, tmp_path, course) as lab:
        lab.write("settings", f'{settings}\nsettings |= {{"warmup_steps": 20, "steps": 20, "prompts": 4}}')
        for cell in course.of_kind("solution", "bring"):
            lab.write(cell.name, cell.source)
        lab.run("in_numbers", "notebook:run-all-above")
        seen = set()
        until(lambda: seen.update(lab.pictures("the_run")) or "after" in lab.said("the_run"), "the run did not end")
        assert len(seen) > 1 and len(lab.pictures("the_run")) == 1, "one picture, drawn more than once"


def letters(text):
    return "".join(text.split())


def pictures_of_widgets(browser):
    """Read at once: JupyterLab draws anew at any moment."""
    return browser.execute_script("return [...document.querySelectorAll('.jupyter-widgets .jp-RenderedImage img')].map(image => image.src)")


def until(true, otherwise):
    deadline = time.monotonic() + 300  # far more than it takes: a busy machine is no reason to fail
    while not true():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.3)
