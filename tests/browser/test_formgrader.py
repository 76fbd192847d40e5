"""An instructor in nbgrader's formgrader, in a real browser: hand-ins autograded by its button, a written answer read and marked."""

import sys
import time
from pathlib import Path

from nbgrader.api import Gradebook
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

sys.path.append(str(Path(__file__).parents[1]))

from grader.classroom.commands import grade, new
from tests.classroom.toy import hand_in_bytes, put, toy_course

WRONG = "def double(x):\n    return x + 1"


def test_a_class_is_graded_and_marked_in_the_formgrader(browser, jupyter, tmp_path):
    (tmp_path / "course").mkdir()
    course = toy_course(tmp_path / "course")[:1]
    directory = tmp_path / "class"
    new(directory, course, say=lambda line: None)
    put(directory, "anna", course[0], hand_in_bytes(course[0], why="Because two is more than one."))
    grade(directory, jobs=1, say=lambda line: None)
    put(directory, "bo", course[0], hand_in_bytes(course[0], double=WRONG))
    with jupyter("server", cwd=directory) as address:
        base, token = address.split("?")
        browser.get(f"{base.removesuffix('tree').rstrip('/')}/formgrader?{token}")
        shows(browser, "01_double")
        click(browser, "//td[contains(@class, 'num-submissions')]//a")
        shows(browser, "anna", "bo")
        click(browser, "//tr[td[contains(., 'bo')]]//td[contains(@class, 'autograde')]//a")
        until(lambda: "Successfully autograded" in text(browser), browser)
        click(browser, "//button[contains(., 'OK')]")
        base = browser.current_url.split("/formgrader")[0]
        browser.get(f"{base}/formgrader/gradebook/01_double/01_double")
        shows(browser, "Submission #1", "Submission #2")
        click(browser, "//td[contains(@class, 'name')]//a[contains(., 'Submission')]")
        until(lambda: browser.find_elements(By.CSS_SELECTOR, "input.score"), browser)
        until(lambda: focused(browser) == "why", browser)  # the written answer waits for points, with no click
        visited = []
        while len(visited) < 10 and (not visited or visited[-1] != "why"):
            browser.switch_to.active_element.send_keys(Keys.TAB)
            visited.append(focused(browser))
            assert browser.switch_to.active_element.is_displayed(), "Tab leads to what is in sight"
        assert visited[-1] == "why" and {"why_extra_credit", "why-comment"} <= set(visited)
        browser.switch_to.active_element.send_keys("2", Keys.TAB)
        with Gradebook(f"sqlite:///{directory}/gradebook.db") as gradebook:
            until(lambda: {2.0} & {g.manual_score for s in marks(gradebook, "why") for g in s}, browser)
            points = {s.student.id: s.score for s in gradebook.assignment_submissions("01_double")}
        browser.get(f"{base}/formgrader/gradebook/01_double/01_double")
        shows(browser, *(f"{score:g} / 5" for score in points.values()))
    grade(directory, jobs=1, say=lambda line: None)
    marked = "bo" if points["bo"] == 3 else "anna"
    browser.get((directory / f"feedback/{marked}/01_double/01_double.html").resolve().as_uri())
    shows(browser, f"{points[marked]:g} of 5", "2 of 2")
    assert points["bo"] in (1, 3) and points["anna"] in (3, 5), "one of them has the written answer's 2 points on top"
    assert points["anna"] + points["bo"] == 6


def marks(gradebook, name):
    """The grades of every student in one cell, as they stand now."""
    gradebook.db.expire_all()
    return [[gradebook.find_grade(name, "01_double", "01_double", s.student.id)] for s in gradebook.assignment_submissions("01_double")]


def focused(browser):
    return browser.switch_to.active_element.get_attribute("id")


def click(browser, path):
    until(lambda: browser.find_elements(By.XPATH, path), browser)
    browser.find_elements(By.XPATH, path)[0].click()


def text(browser):
    return browser.find_element(By.TAG_NAME, "body").text


def shows(browser, *words):
    until(lambda: all(word in text(browser) for word in words), browser)


def until(true, browser, seconds=60):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, browser.current_url + "\n" + text(browser)[:3000]
        time.sleep(0.3)
