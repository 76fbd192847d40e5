"""The workflow for a classroom repository: what its steps do, run here as GitHub would. GitHub itself is not asked."""

import os
import shutil
import subprocess
import sys

import pytest
import yaml

from grader.course.build import to_text
from grader.course.source import ROOT
from grader.feedback.release import answered
from grader.mistakes import versions
from tests.conftest import COURSE

WORKFLOW = yaml.safe_load((ROOT / "examples/github-classroom/check.yml").read_text(encoding="utf-8"))
STEPS = WORKFLOW["jobs"]["check"]["steps"]
ADVANTAGE = COURSE[0]


def test_the_workflow_may_only_read_and_its_checks_come_from_elsewhere():
    assert WORKFLOW["permissions"] == {"contents": "read"}
    student, course = [step["with"] for step in STEPS if "checkout" in step.get("uses", "")]
    assert "repository" not in student and course["repository"] and course["path"] != student["path"]
    assert not student["persist-credentials"] and not course["persist-credentials"]
    used = [line for step in STEPS for line in step.get("run", "").splitlines() if student["path"] in line]
    assert used == ["grader check --json student > results.json 2> said.txt || true"]
    assert "secrets" not in (ROOT / "examples/github-classroom/check.yml").read_text(encoding="utf-8")


@pytest.fixture
def run(tmp_path):
    """The last step, with `files` in the student's repository: exit status, summary, what was said."""
    if not shutil.which("jq") and not os.environ.get("CI"):
        pytest.skip("jq, which GitHub's runners have, is not installed")
    grader = tmp_path / "bin" / "grader"
    grader.parent.mkdir()
    grader.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m grader "$@"\n')
    grader.chmod(0o755)

    def run(files):
        for name, text in files.items():
            path = tmp_path / "student" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        summary = tmp_path / "summary.md"
        known = {"PATH": f"{grader.parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "GITHUB_STEP_SUMMARY": str(summary)}
        done = subprocess.run(["bash", "-e", "-c", STEPS[-1]["run"]], cwd=tmp_path, env=os.environ | known, capture_output=True, text=True)
        return done.returncode, summary.read_text(encoding="utf-8"), done.stderr

    return run


def test_the_table_has_a_row_for_each_check_whatever_the_learner_wrote(run):
    wrong = {v.exercise: v.source for v in versions(ADVANTAGE.name) if v.name == "sample_std"}
    wrong["gae_advantages"] = "def gae_advantages(*args, **kwargs):\n    raise ValueError('a | b <script> & c\\nd')"
    traps = {"grader.py": "1/0", "grader/cli.py": "1/0", "sitecustomize.py": "1/0"}
    status, summary, said = run({"one.ipynb": to_text(answered(ADVANTAGE, wrong)), "b/broken.ipynb": "{"} | traps)
    assert status == 1
    rows = [line for line in summary.splitlines() if line.startswith(("| ✓", "| ✗", "| –"))]
    assert len(rows) == len(ADVANTAGE.of_kind("check", "answer"))
    assert all(row.replace("\\|", "").count("|") == 6 for row in rows)
    assert "a \\| b &lt;script> &amp; c" in summary and summary.count("It looks like this") == 1
    assert "broken.ipynb: the file breaks off" in summary and "broken.ipynb" in said


def test_the_tick_is_green_when_every_point_is_there_and_only_then(run):
    assert run({})[0] != 0
    solved = to_text(answered(ADVANTAGE))
    status, summary, _ = run({"01_advantage.ipynb": solved})
    assert status == 0 and "18 of 18 points" in summary and "✗" not in summary
