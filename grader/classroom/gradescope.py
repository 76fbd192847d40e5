"""What runs in a Gradescope container: a hand-in -> results.json, in the form that Gradescope's autograder specification gives.

ROOT, /autograder there, holds source/ (the unpacked zip, the class's own notebooks in source/notebooks/), submission/ (what was
handed in) and results/. Imports only what setup.sh installs: nothing of nbgrader.

Where the fault is the learner's, results.json says so and gives no points. Where it is ours (no jail, say), no results.json is
written: Gradescope then shows that the autograder failed, and no score.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from grader.classroom.atomic import write_atomically
from grader.classroom.autograding import read_master
from grader.course.source import CourseError, Notebook
from grader.feedback.table import fingerprints, keep_in
from grader.intake.match import Submission, Unreadable, read_submission
from grader.judge.judge import Judge
from grader.judge.verdict import Result
from grader.sandbox.jail import JailError, layers

NO_JAIL = (
    "not graded: this container has no jail for the learners' code, which could read the secret tests and write its own score; "
    "the course's docs/gradescope.md says what to do"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Grades ROOT/submission. Returns 0 when there is a results.json, 1 when there is none."""
    parser = argparse.ArgumentParser(prog="grader.classroom.gradescope", description=main.__doc__)
    parser.add_argument("root", type=Path, metavar="ROOT")
    parser.add_argument("--no-jail", action="store_true")
    parser.add_argument("--rehearse", action="store_true", help="try the answer keys, work out what every run needs, and grade nothing")
    options = parser.parse_args(arguments)
    root: Path = options.root
    results = root / "results" / "results.json"
    keep_in(root / "source" / "fingerprints")
    try:
        notebooks = [read_master(path).notebook for path in sorted((root / "source" / "notebooks").glob("*.ipynb"))]
        if options.rehearse:
            return _rehearse(notebooks, root / "source" / "notebooks")
        results.unlink(missing_ok=True)
        if not layers().holds and not options.no_jail:
            raise JailError(NO_JAIL)
        write_atomically(results, json.dumps(_graded(root / "submission", notebooks, options.no_jail), ensure_ascii=False, indent=1))
    except (CourseError, JailError, OSError) as e:
        print(f"grader: {f'{e.filename}: {e.strerror}' if isinstance(e, OSError) else e}")
        return 1
    return 0


def _graded(folder: Path, notebooks: Sequence[Notebook], allow_no_jail: bool) -> dict[str, Any]:
    """What results.json holds for what was handed in."""
    began = time.monotonic()
    try:
        submission = _submission(folder, notebooks)
    except Unreadable as e:
        print(f"no points: {e}")
        return {"score": 0, "output": f"Not graded: {e}.", "output_format": "text", "visibility": "visible", "tests": []}
    with Judge(allow_no_jail=allow_no_jail) as judge:
        result = judge.judge(submission)
    print(f"{result.notebook}: {result.points:g} of {result.max_points} points")
    return gradescope_results(result) | {"execution_time": round(time.monotonic() - began)}


def _submission(folder: Path, notebooks: Sequence[Notebook]) -> Submission:
    """The one notebook of the course in a folder, which may hold other files. Raises Unreadable."""
    # A link may lead to the answer key.
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.resolve() == folder.resolve() / path.relative_to(folder)]
    wanted = [path for path in files if path.suffix == ".ipynb" and ".ipynb_checkpoints" not in path.parts] or files
    found: dict[str, Submission] = {}
    reasons = []
    for path in wanted:
        try:
            found[str(path.relative_to(folder))] = read_submission(path.read_bytes(), path.name, notebooks)
        except Unreadable as e:
            reasons.append(str(e))
    if len(found) > 1:
        raise Unreadable(f"{', '.join(found)}: more than one notebook of the course; hand in the one that is asked for")
    if not found:
        raise Unreadable(reasons[0] if reasons else "no file was handed in; hand in the notebook (.ipynb) with your answers")
    return next(iter(found.values()))


def gradescope_results(result: Result) -> dict[str, Any]:
    """A test for each check, in the words of `grader check`; what is said of a hidden test tells nothing of it."""
    tests: list[dict[str, Any]] = []
    checks = [verdict for verdict in result.checks if verdict.points is not None]
    for number, exercise in enumerate(dict.fromkeys(verdict.exercise for verdict in checks), 1):
        told: set[str] = set()  # a mistake that fails several checks is explained once
        for place, verdict in enumerate([verdict for verdict in checks if verdict.exercise == exercise], 1):
            said, *about = verdict.message.split("\n")
            tests.append(
                {
                    "number": f"{number}.{place}",
                    "name": f"{exercise}: {verdict.title}",
                    "score": verdict.points,
                    "max_score": verdict.max_points,
                    "status": "passed" if verdict.passed else "failed",
                    "output": "\n".join([said, *(line for line in about if line not in told)]),
                    "output_format": "text",
                    "visibility": "visible",
                }
            )
            told.update(about)
    waiting = [f"{verdict.title} ({verdict.max_points} points)" for verdict in result.checks if verdict.points is None]
    lines = [f"{result.points:g} of {result.max_points} points of {result.notebook}."]
    lines += [f"Written answers wait for a person: {', '.join(waiting)}."] if waiting else []
    lines += [f"Note: {note}" for note in dict.fromkeys(result.notes)]
    output = {"output": "\n".join(lines), "output_format": "text", "visibility": "visible", "stdout_visibility": "hidden"}
    return {"score": result.points, **output, "tests": tests}


def _rehearse(notebooks: Sequence[Notebook], folder: Path) -> int:
    """Runs when the container is built: what is wrong with it should be seen in the log of the build, before anybody hands in."""
    print("\n".join(layers().describe()))
    if not layers().holds:
        print("no jail here: where there is none when hand-ins are graded, they get no points; see docs/gradescope.md of the course")
    with Judge(allow_no_jail=True) as judge:  # the answer keys are ours
        for notebook in notebooks:
            fingerprints(notebook)
            name = f"{notebook.name}.ipynb"
            result = judge.judge(read_submission((folder / name).read_bytes(), name, [notebook]))
            if result.points < result.max_points:
                print(f"grader: {name}: the answer key gets {result.points:g} of {result.max_points} points; grade it with grader check")
                return 1
            print(f"{notebook.name}: the answer key gets {result.points:g} of {result.max_points} points", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
