"""Grading a class: nbgrader as it comes against `grader grade`, on the same hand-ins, gradebook and feedback included.

`python benchmarks/classroom.py [--sizes 16 100] [--class 1000]`: hand-ins of notebook 2 for the comparison, then a class in
which one hand-in of twenty is broken or hostile, all accounted for. Seconds of the clock and of the CPU, children included.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from grader.course.build import answer_key, learner_notebook, to_text  # noqa: E402
from grader.course.source import Notebook, read_course  # noqa: E402
from grader.feedback.release import answered  # noqa: E402
from grader.mistakes import versions  # noqa: E402
from tests.intake.submissions import mangled  # noqa: E402
from tests.judge.hands import HOSTILE_HAND_INS  # noqa: E402

NAME = "02_grpo_loss"
BIN = Path(sys.executable).parent


def texts(notebook: Notebook, count: int) -> list[str]:
    """Hand-ins as a class gives them: two of five right, one unsolved, two with a mistake; no two the same file."""
    right, open_ = to_text(answered(notebook)), to_text(learner_notebook(answer_key(notebook)))
    wrong = [v for v in versions(NAME) if v.wrong and v.name not in ("table_by_raw_id",)]
    chosen = [wrong[i * 7 % len(wrong)] for i in range(count)]
    kinds = (
        lambda i: right,
        lambda i: right,
        lambda i: open_,
        *[lambda i: to_text(answered(notebook, {chosen[i].exercise: chosen[i].source}))] * 2,
    )
    return [kinds[i % 5](i).replace('"nbformat": 4', f'"nbformat": 4{" " * (i + 1)}') for i in range(count)]


def submit(folder: Path, student: str, data: str | bytes) -> None:
    path = folder / "submitted" / student / NAME / f"{NAME}.ipynb"
    path.parent.mkdir(parents=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)


def run(*command: str, cwd: Path) -> tuple[float, float, int]:
    """Seconds of the clock, of the CPU, and MiB of the largest process so far."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"  # nbgrader calls alembic by its name
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1", "PATH": path})
    if done.returncode not in (0, 2):
        raise SystemExit(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.monotonic() - began, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, after.ru_maxrss // 1024


def stock(folder: Path, hand_ins: list[str]) -> tuple[float, float, int]:
    """nbgrader as it comes, no plug-in of ours."""
    notebook = next(nb for nb in read_course(ROOT / "solutions") if nb.name == NAME)
    source = folder / "source" / NAME / f"{NAME}.ipynb"
    source.parent.mkdir(parents=True)
    source.write_text(to_text(answer_key(notebook)), encoding="utf-8")
    (folder / "nbgrader_config.py").write_text("c = get_config()\nc.CourseDirectory.course_id = 'stock'\n")
    run(str(BIN / "nbgrader"), "generate_assignment", NAME, cwd=folder)
    for i, text in enumerate(hand_ins):
        submit(folder, f"s{i:04}", text)
    graded = run(str(BIN / "nbgrader"), "autograde", NAME, cwd=folder)
    told = run(str(BIN / "nbgrader"), "generate_feedback", NAME, cwd=folder)
    return graded[0] + told[0], graded[1] + told[1], max(graded[2], told[2])


def ours(folder: Path, hand_ins: dict[str, str | bytes]) -> tuple[float, float, int]:
    run(str(BIN / "grader"), "new", str(folder), cwd=ROOT)
    for student, data in hand_ins.items():
        submit(folder, student, data)
    return run(str(BIN / "grader"), "grade", str(folder), "--jobs", "2", cwd=ROOT)


def spoiled(notebook: Notebook) -> list[str | bytes]:
    """Broken and hostile hand-ins, one of each kind."""
    clean = to_text(answered(notebook))
    broken = [build(json.loads(clean)) for name, (build, _, _) in mangled.REFUSED.items() if name not in ("another_courses_notebook",)]
    hostile = [to_text(answered(notebook, {"first_step_gradient": h.text})) for h in HOSTILE_HAND_INS]
    return [data if isinstance(data, str | bytes) else json.dumps(data) for data in [*broken, *hostile]]


def compare(sizes: list[int]) -> None:
    notebook = next(nb for nb in read_course(ROOT / "solutions") if nb.name == NAME)
    print("hand-ins   nbgrader: wall s   CPU s   per min   grader: wall s   CPU s   per min   MiB   times the hand-ins per minute")
    for count in sizes:
        hand_ins = texts(notebook, count)
        with tempfile.TemporaryDirectory() as scratch:
            theirs = stock(Path(scratch) / "stock", hand_ins)
            mine = ours(Path(scratch) / "ours", {f"s{i:04}": text for i, text in enumerate(hand_ins)})
        rates = [60 * count / seconds for seconds in (theirs[0], mine[0])]
        line = f"{count:8} {theirs[0]:18.1f} {theirs[1]:7.1f} {rates[0]:9.1f} {mine[0]:16.1f} {mine[1]:7.1f} {rates[1]:9.1f} {mine[2]:5}"
        print(f"{line} {rates[1] / rates[0]:11.1f}", flush=True)


def whole_class(count: int) -> None:
    """Every hand-in of a large class has a grade or a reason, and the sums agree with their parts."""
    notebook = next(nb for nb in read_course(ROOT / "solutions") if nb.name == NAME)
    bad = spoiled(notebook)
    data: dict[str, str | bytes] = {f"s{i:04}": text for i, text in enumerate(texts(notebook, count))}
    for k, i in enumerate(range(7, count, 20)):
        data[f"s{i:04}"] = bad[k % len(bad)]
    folder = Path(tempfile.mkdtemp()) / "class"
    wall, cpu, memory = ours(folder, data)
    with (folder / "grades.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["notebook"] == NAME]
    kinds = Counter("a reason" if row["reason"] and not row["score"] else "a grade" for row in rows)
    checks = [c for c in rows[0] if c and c.count("/") == 2 and c.startswith(NAME)]
    wrong = [r["student"] for r in rows if r["score"] and abs(float(r["score"]) - sum(float(r[c] or 0) for c in checks)) > 1e-9]
    print(f"\na class of {count}: {wall:.0f} s of the clock, {cpu:.0f} CPU s, {dict(kinds)}")
    print(f"{memory} MiB in the largest process, which may be that of a hostile hand-in")
    print(f"students in grades.csv: {len({r['student'] for r in rows})}; sums that do not agree with their parts: {len(wrong)}")
    shutil.rmtree(folder.parent)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=[16, 100])
    parser.add_argument("--class", type=int, default=1000, dest="size", help="0: none")
    options = parser.parse_args()
    compare(options.sizes)
    if options.size:
        whole_class(options.size)
