"""Grading a class: nbgrader as it comes against `grader grade`, on the same hand-ins, gradebook and feedback included.

`python -m benchmarks classroom [--sizes 16 100] [--students N] [--class 1000]`: hand-ins of notebook 2 for the comparison,
then a class in which one hand-in of twenty is broken or hostile, all accounted for. Seconds of the clock and of the CPU,
children included; the parent is the process that writes the gradebook, without what it takes when there is nothing to grade.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from grader.course.build import learner_notebook, to_text  # noqa: E402
from grader.course.source import Notebook, read_course  # noqa: E402
from grader.feedback.release import answer_key, answered  # noqa: E402
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


@dataclass
class Cost:
    """wall, cpu: seconds, children included. memory: MiB of the largest process so far. parent: CPU seconds without children."""

    wall: float
    cpu: float
    memory: int
    parent: float = 0.0


def run(*command: str, cwd: Path) -> Cost:
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"  # nbgrader calls alembic by its name
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PATH": path, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, env=environment)
    if done.returncode not in (0, 2):
        raise SystemExit(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    parent = float(done.stdout.rpartition("parent ")[2] or 0) if "parent " in done.stdout else 0.0
    return Cost(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, after.ru_maxrss // 1024, parent)


def grader(*arguments: str) -> Cost:
    """Runs a command of the grader's, which tells its own CPU seconds at the end."""
    program = "import sys, time; from grader.cli import main; main(sys.argv[1:]); print('parent', time.process_time())"
    return run(sys.executable, "-c", program, *arguments, cwd=ROOT)


def stock(folder: Path, hand_ins: list[str]) -> Cost:
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
    return Cost(graded.wall + told.wall, graded.cpu + told.cpu, max(graded.memory, told.memory))


def ours(folder: Path, hand_ins: Mapping[str, str | bytes], others: int = 0) -> Cost:
    """`grader grade` in a new class. others: how many students have been graded before."""
    grader("new", str(folder))
    fill(folder / "gradebook.db", others)
    for student, data in hand_ins.items():
        submit(folder, student, data)
    cost = grader("grade", str(folder), "--jobs", "2")
    cost.parent -= grader("grade", str(folder)).parent
    return cost


def fill(database: Path, students: int) -> None:
    """Puts graded students into a gradebook, without files."""
    with sqlite3.connect(database) as db:
        ((assignment,),) = db.execute("select id from assignment where name = ?", [NAME])
        ((notebook,),) = db.execute("select id from notebook where assignment_id = ?", [assignment])
        cells = db.execute("select id, type from base_cell where notebook_id = ?", [notebook]).fetchall()
        for i in range(students):
            submitted, own = uuid.uuid4().hex, uuid.uuid4().hex
            db.execute("insert into student (id) values (?)", [f"other{i:05}"])
            row = [submitted, assignment, f"other{i:05}"]
            db.execute("insert into submitted_assignment (id, assignment_id, student_id) values (?, ?, ?)", row)
            row = [own, submitted, notebook]
            db.execute("insert into submitted_notebook (id, assignment_id, notebook_id, flagged) values (?, ?, ?, 0)", row)
            grades = [(uuid.uuid4().hex, own, cell) for cell, kind in cells if kind == "GradeCell"]
            db.executemany("insert into grade (id, notebook_id, cell_id, auto_score, needs_manual_grade) values (?, ?, ?, 1.0, 0)", grades)
            comments = [(uuid.uuid4().hex, own, cell) for cell, kind in cells if kind == "SolutionCell"]
            db.executemany("insert into comment (id, notebook_id, cell_id) values (?, ?, ?)", comments)
    db.close()


def spoiled(notebook: Notebook) -> list[str | bytes]:
    """Broken and hostile hand-ins, one of each kind."""
    clean = to_text(answered(notebook))
    broken = [build(json.loads(clean)) for name, (build, _, _) in mangled.REFUSED.items() if name not in ("another_courses_notebook",)]
    hostile = [to_text(answered(notebook, {"first_step_gradient": h.text})) for h in HOSTILE_HAND_INS]
    return [data if isinstance(data, str | bytes) else json.dumps(data) for data in [*broken, *hostile]]


def compare(sizes: list[int], others: int, with_stock: bool) -> None:
    notebook = next(nb for nb in read_course(ROOT / "solutions") if nb.name == NAME)
    if others:
        print(f"{others} more students in the grader's gradebook")
    print("hand-ins   nbgrader: wall s   CPU s   per min   grader: wall s   CPU s   per min   MiB   parent ms each   times per minute")
    for count in sizes:
        hand_ins = texts(notebook, count)
        with tempfile.TemporaryDirectory() as scratch:
            theirs = stock(Path(scratch) / "stock", hand_ins) if with_stock else Cost(float("nan"), float("nan"), 0)
            mine = ours(Path(scratch) / "ours", {f"s{i:04}": text for i, text in enumerate(hand_ins)}, others)
        rates = [60 * count / cost.wall for cost in (theirs, mine)]
        line = f"{count:8} {theirs.wall:18.1f} {theirs.cpu:7.1f} {rates[0]:9.1f} {mine.wall:16.1f} {mine.cpu:7.1f} {rates[1]:9.1f}"
        print(f"{line} {mine.memory:5} {1000 * mine.parent / count:16.1f} {rates[1] / rates[0]:18.1f}", flush=True)


def whole_class(count: int) -> None:
    """Every hand-in of a large class has a grade or a reason, and the sums agree with their parts."""
    notebook = next(nb for nb in read_course(ROOT / "solutions") if nb.name == NAME)
    bad = spoiled(notebook)
    data: dict[str, str | bytes] = {f"s{i:04}": text for i, text in enumerate(texts(notebook, count))}
    for k, i in enumerate(range(7, count, 20)):
        data[f"s{i:04}"] = bad[k % len(bad)]
    folder = Path(tempfile.mkdtemp()) / "class"
    cost = ours(folder, data)
    with (folder / "grades.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["notebook"] == NAME]
    kinds = Counter("a reason" if row["reason"] and not row["score"] else "a grade" for row in rows)
    checks = [c for c in rows[0] if c and c.count("/") == 2 and c.startswith(NAME)]
    wrong = [r["student"] for r in rows if r["score"] and abs(float(r["score"]) - sum(float(r[c] or 0) for c in checks)) > 1e-9]
    print(f"\na class of {count}: {cost.wall:.0f} s of the clock, {cost.cpu:.0f} CPU s, {dict(kinds)}")
    print(f"{cost.memory} MiB in the largest process, which may be that of a hostile hand-in")
    print(f"students in grades.csv: {len({r['student'] for r in rows})}; sums that do not agree with their parts: {len(wrong)}")
    shutil.rmtree(folder.parent)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks classroom", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=[16, 100], help="hand-ins of the comparison (default: 16 100)")
    parser.add_argument("--students", type=int, default=0, help="graded before and in the gradebook already (default: 0)")
    parser.add_argument("--no-stock", action="store_true", help="leave nbgrader out, which takes 10 s and more a hand-in")
    parser.add_argument("--class", type=int, default=1000, dest="size", help="hand-ins, broken ones among them (default: 1000; 0: none)")
    options = parser.parse_args()
    compare(options.sizes, options.students, not options.no_stock)
    if options.size:
        whole_class(options.size)


if __name__ == "__main__":
    main()
