"""Grading a class: nbgrader as it comes against `grader grade`, then what a hand-in costs as the class grows, then a class gone wrong.

`python -m benchmarks classroom [--sizes 16 100] [--scale 10 100 1000 10000] [--judged 100] [--class 1000]`: hand-ins of notebook 2,
gradebook and feedback included. Of the classes of --scale, --judged hand-ins are judged and the others were before: their files,
records and rows are there, copied from five that were. Where Ray is installed, `--ray local` grades the same hand-ins as the pool.
In --class one hand-in of twenty is broken or hostile, all accounted for. CPU seconds include all children. The parent is the
process that writes the gradebook; its seconds and memory are its own.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import ctypes
import importlib.util
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
PR_SET_CHILD_SUBREAPER = 36


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
    """wall, cpu: seconds, children included. parent: CPU seconds without children.

    memory: MiB of the parent. largest: MiB of the largest process so far.
    """

    wall: float
    cpu: float
    parent: float = 0.0
    memory: int = 0
    largest: int = 0

    def __sub__(self, other: Cost) -> Cost:
        return Cost(self.wall - other.wall, self.cpu - other.cpu, self.parent - other.parent, self.memory, self.largest)


def run(*command: str, cwd: Path) -> Cost:
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"  # nbgrader calls alembic by its name
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PATH": path, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, env=environment)
    if done.returncode not in (0, 2):
        raise SystemExit(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    wall = time.monotonic() - began
    reap()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu, memory = done.stdout.rpartition("parent ")[2].split() if "parent " in done.stdout else (0, 0)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(wall, spent, float(cpu), int(memory) // 1024, after.ru_maxrss // 1024)


def reap() -> None:
    """Waits for what a command left behind (Ray's processes end after it), so that its CPU seconds count."""
    deadline = time.monotonic() + 20
    with contextlib.suppress(ChildProcessError):  # none is left
        while time.monotonic() < deadline:
            if not os.waitpid(-1, os.WNOHANG)[0]:
                time.sleep(0.05)


PROGRAM = """
import re, sys, time
from pathlib import Path
from grader.cli import main
main(sys.argv[1:])
own = re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]
print("parent", time.process_time(), own)
"""


def grader(*arguments: str) -> Cost:
    """Runs a command of the grader's, which tells its own CPU seconds and memory at the end."""
    return run(sys.executable, "-c", PROGRAM, *arguments, cwd=ROOT)


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
    return Cost(graded.wall + told.wall, graded.cpu + told.cpu)


def ours(folder: Path, hand_ins: Mapping[str, str | bytes], *options: str) -> Cost:
    """`grader grade` with these hand-ins new in a class, which is made where there is none."""
    if not folder.exists():
        grader("new", str(folder))
    for student, data in hand_ins.items():
        submit(folder, student, data)
    return grader("grade", str(folder), "--jobs", "2", *options)


def copy(folder: Path, students: list[str], count: int) -> None:
    """Adds students to a class: files, records and rows of the gradebook are those of the graded ones named, in turn."""
    with sqlite3.connect(folder / "gradebook.db") as db:
        for i in range(count):
            model, student = students[i % len(students)], f"copy{i:05}"
            for part in ("submitted", "autograded", "feedback", ".grader/handins"):
                shutil.copytree(folder / part / model, folder / part / student)
            db.execute("insert into student (id) values (?)", [student])
            ((submission, *_),) = db.execute("select id from submitted_assignment where student_id = ?", [model])
            ((notebook, *_),) = db.execute("select id from submitted_notebook where assignment_id = ?", [submission])
            new, own = uuid.uuid4().hex, uuid.uuid4().hex
            again(db, "submitted_assignment", f"id = '{submission}'", id=new, student_id=student)
            again(db, "submitted_notebook", f"id = '{notebook}'", id=own, assignment_id=new)
            for table in ("grade", "comment"):
                again(db, table, f"notebook_id = '{notebook}'", notebook_id=own)
    db.close()


def again(db: sqlite3.Connection, table: str, rows: str, **new: str) -> None:
    """Inserts copies of rows of a table with other values in some columns; an id is drawn where none is given."""
    names = [name for _, name, *_ in db.execute(f"pragma table_info({table})")]
    values = [f"'{new[name]}'" if name in new else "lower(hex(randomblob(16)))" if name == "id" else name for name in names]
    db.execute(f"insert into {table} ({', '.join(names)}) select {', '.join(values)} from {table} where {rows}")


def spoiled(notebook: Notebook) -> list[str | bytes]:
    """Broken and hostile hand-ins, one of each kind."""
    clean = to_text(answered(notebook))
    broken = [build(json.loads(clean)) for name, (build, _, _) in mangled.REFUSED.items() if name not in ("another_courses_notebook",)]
    hostile = [to_text(answered(notebook, {"first_step_gradient": h.text})) for h in HOSTILE_HAND_INS]
    return [data if isinstance(data, str | bytes) else json.dumps(data) for data in [*broken, *hostile]]


def compare(sizes: list[int]) -> None:
    notebook = next(nb for nb in read_course(ROOT / "solutions") if nb.name == NAME)
    print("hand-ins   nbgrader: wall s   CPU s   per min   grader: wall s   CPU s   per min   times per minute")
    for count in sizes:
        hand_ins = texts(notebook, count)
        with tempfile.TemporaryDirectory() as scratch:
            theirs = stock(Path(scratch) / "stock", hand_ins)
            mine = ours(Path(scratch) / "ours", {f"s{i:04}": text for i, text in enumerate(hand_ins)})
        rates = [60 * count / cost.wall for cost in (theirs, mine)]
        line = f"{count:8} {theirs.wall:18.1f} {theirs.cpu:7.1f} {rates[0]:9.1f} {mine.wall:16.1f} {mine.cpu:7.1f} {rates[1]:9.1f}"
        print(f"{line} {rates[1] / rates[0]:18.1f}", flush=True)


def scale(sizes: list[int], judged: int) -> None:
    """What a hand-in costs in classes of these sizes, without what it takes to look through the class, which stands beside it.

    Five are graded before the clock starts, which works out the numbers of known mistakes, once a class.
    """
    notebook = next(nb for nb in read_course(ROOT / "solutions") if nb.name == NAME)
    runners = {"pool": [], "Ray": ["--ray", "local"]} if importlib.util.find_spec("ray") else {"pool": []}
    print(f"\n{'class   judged  by    each: wall s   CPU s   parent ms':58}", end=" ")
    print("MiB: parent  largest   nothing new: wall s  CPU s   KiB each: gradebook files")
    for size in sizes:
        count = min(size, judged)
        hand_ins = texts(notebook, count + 5)
        for by, options in runners.items():
            if by != "pool" and count < size:
                continue  # what is left out differs by the parent alone, which is the same one
            with tempfile.TemporaryDirectory() as scratch:
                folder, first = Path(scratch) / "class", [f"first{i}" for i in range(5)]
                ours(folder, dict(zip(first, hand_ins[count:], strict=True)))
                copy(folder, first, size - count)
                idle = grader("grade", str(folder))
                cost = ours(folder, {f"s{i:05}": text for i, text in enumerate(hand_ins[:count])}, *options)
                book = (folder / "gradebook.db").stat().st_size / (size + 5)
                own = sum(on_disk(folder / part / "s00000") for part in ("submitted", "autograded", "feedback", ".grader/handins"))
                own += on_disk(folder / ".grader" / "results") / (count + 5)
            new = cost - idle
            line = f"{size:5} {count:8}  {by:4} {new.wall / count:14.2f} {new.cpu / count:7.2f} {1000 * new.parent / count:11.1f}"
            line += f" {cost.memory:19} {cost.largest:8} {idle.wall:21.1f} {idle.cpu:6.1f}"
            print(f"{line} {book / 1024:20.1f} {own / 1024:6.1f}", flush=True)


def on_disk(folder: Path) -> int:
    """Bytes that a folder takes, by its blocks."""
    return sum(512 * path.lstat().st_blocks for path in [folder, *folder.rglob("*")])


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
    print(f"{cost.memory} MiB in the parent, {cost.largest} in the largest process, which may be a hostile hand-in")
    print(f"students in grades.csv: {len({r['student'] for r in rows})}; sums that do not agree with their parts: {len(wrong)}")
    shutil.rmtree(folder.parent)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks classroom", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=[16, 100], help="hand-ins of the comparison (default: 16 100)")
    sizes = [10, 100, 1000, 10000]
    parser.add_argument("--scale", type=int, nargs="*", default=sizes, help="hand-ins of classes that grow (default: 10 100 1000 10000)")
    parser.add_argument("--judged", type=int, default=100, help="hand-ins that are judged of each of these at most (default: 100)")
    parser.add_argument("--class", type=int, default=1000, dest="size", help="hand-ins, broken ones among them (default: 1000; 0: none)")
    options = parser.parse_args()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)  # what a command leaves behind becomes a child of ours
    if options.sizes:
        compare(options.sizes)
    if options.scale:
        scale(options.scale, options.judged)
    if options.size:
        whole_class(options.size)


if __name__ == "__main__":
    main()
