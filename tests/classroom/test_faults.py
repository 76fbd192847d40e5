"""What may happen to a class at work: a command killed at any moment, a full disk, a locked gradebook, a lost seed."""

import contextlib
import errno
import multiprocessing
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time

import psutil
import pytest

from grader.classroom import pool
from grader.classroom.atomic import write_atomically
from grader.classroom.commands import ClassError, grade, new
from grader.classroom.pool import TRIES, judged
from tests.classroom.toy import hand_in_bytes, judge_here, put

GRADE = """import sys
from pathlib import Path
from grader.classroom.commands import ClassError, grade
if __name__ == "__main__":
    try:
        grade(Path(sys.argv[1]), jobs=1, say=lambda line: print(line, flush=True))
    except ClassError as e:
        print("ClassError:", e)
"""
CLASS = 5


@pytest.fixture(scope="module")
def fresh(course, tmp_path_factory):
    """A class with hand-ins of which none is graded."""
    directory = tmp_path_factory.mktemp("classes") / "faults"
    new(directory, course[:1], say=lambda line: None)
    for number in range(CLASS):
        source = f"def double(x):\n    return x + x if {number} % 2 else x + {number}"
        put(directory, f"student{number}", course[0], hand_in_bytes(course[0], double=source))
    return directory


@pytest.fixture(scope="module")
def undisturbed(fresh, tmp_path_factory):
    """The same class, graded without a fault."""
    directory = shutil.copytree(fresh, tmp_path_factory.mktemp("undisturbed") / "faults")
    grade(directory, jobs=2, say=lambda line: None)
    return directory


@pytest.fixture
def directory(fresh, tmp_path):
    return shutil.copytree(fresh, tmp_path / "faults")


@contextlib.contextmanager
def killed(directory):
    """Grades in another process, which is killed in the end."""
    path = directory.parent / "grade.py"  # a file: the pool's processes import it again
    path.write_text(GRADE)
    with subprocess.Popen([sys.executable, path, directory], stdout=subprocess.PIPE, text=True) as command:
        yield command
        command.kill()


def grades(directory):
    return (directory / "grades.csv").read_text(encoding="utf-8-sig")


@pytest.mark.parametrize("lines", [1, pytest.param(3, marks=pytest.mark.thorough), 1 + CLASS])
def test_a_command_killed_at_any_moment_goes_on_where_it_was(directory, undisturbed, lines, monkeypatch):
    judge_here(monkeypatch)
    with killed(directory) as command:
        for _ in range(lines):
            command.stdout.readline()
    kept = {path: path.stat().st_mtime_ns for path in (directory / ".grader").glob("results/*.json")}
    summary = grade(directory, say=lambda line: None)
    assert summary.graded + summary.unchanged == CLASS and not summary.ungraded
    assert summary.unchanged >= max(0, lines - 2), "what was in the gradebook is entered again"
    assert {path: path.stat().st_mtime_ns for path in kept} == kept, "what was judged is judged again"
    assert grades(directory) == grades(undisturbed)
    assert len(list(directory.glob("feedback/*/*/*.html"))) == CLASS
    assert not list(directory.rglob("*.draft"))


@pytest.mark.parametrize("lines", [1, 3])
def test_ctrl_c_is_one_sentence_and_the_next_run_goes_on(directory, undisturbed, lines, monkeypatch):
    run = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from grader.cli import main; raise SystemExit(main())"
    command = [sys.executable, "-c", run, "grade", directory, "--jobs", "1"]  # the handler: tests may run where Ctrl-C is ignored
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as stopped:
        for _ in range(lines):
            stopped.stdout.readline()
        stopped.send_signal(signal.SIGINT)
        assert stopped.wait(60) == 130
        assert stopped.stderr.read() == "grader: stopped; run the same command again\n"
    judge_here(monkeypatch)
    summary = grade(directory, say=lambda line: None)
    assert summary.graded + summary.unchanged == CLASS and summary.unchanged >= lines - 2
    assert grades(directory) == grades(undisturbed)


def test_ctrl_c_while_a_judge_starts_is_not_lost(directory, tmp_path, monkeypatch):
    start = multiprocessing.get_context("spawn").Process.start

    def interrupted(process):
        os.kill(os.getpid(), signal.SIGINT)
        start(process)

    monkeypatch.setattr(multiprocessing.get_context("spawn").Process, "start", interrupted)
    others = set(multiprocessing.active_children())
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), contextlib.closing(judged(work(directory, tmp_path), 1)) as results:
            next(results)
    finally:
        signal.signal(signal.SIGINT, before)
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    (process,) = set(multiprocessing.active_children()) - others
    process.join(60)
    assert process.exitcode == 0, "Ctrl-C reached the judge that was being started"


def test_the_judges_of_a_killed_command_end_too(directory):
    with killed(directory) as command:
        while "[1/" not in command.stdout.readline():
            pass
        judges = [child.pid for child in psutil.Process(command.pid).children(recursive=True)]
    assert len(judges) > 1
    end = time.monotonic() + 60
    while any(psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE for pid in judges):
        assert time.monotonic() < end, "a judge lives on"
        time.sleep(0.2)


def work(directory, tmp_path):
    hand_ins = sorted(directory.glob("submitted/*/*/*.ipynb"))[:2]
    return [(path, path, directory / "source/01_double/01_double.ipynb", tmp_path / "results") for path in hand_ins]


def kill_judges():
    for process in multiprocessing.active_children():
        os.kill(process.pid, signal.SIGKILL)


def test_a_judge_that_is_killed_is_replaced(directory, tmp_path):
    todo = work(directory, tmp_path)
    results = judged(todo, 1)
    first = next(results)
    kill_judges()
    judged_ones = [first, *results]
    assert [whose for whose, _ in judged_ones] == [item[0] for item in todo]
    assert all(answer[0].notebook == "01_double" and "def double" in answer[1] for _, answer in judged_ones)
    assert len(list((tmp_path / "results").iterdir())) == 2


def test_a_hand_in_that_ends_every_judge_gets_a_reason_and_the_next_one_its_points(directory, tmp_path, monkeypatch):
    todo = work(directory, tmp_path)
    started = []

    start = pool._start

    def killed_at_once(allow_no_jail):
        pipe = start(allow_no_jail)
        started.append(pipe)
        if len(started) <= TRIES:
            kill_judges()
        return pipe

    monkeypatch.setattr("grader.classroom.pool._start", killed_at_once)
    (bad, reason), (good, answer) = judged(todo, 1)
    assert bad == todo[0][0] and "killed" in reason
    assert good == todo[1][0] and answer[0].notebook == "01_double"


def test_two_gradings_of_one_class_at_once(directory):
    with killed(directory) as command:
        command.stdout.readline()
        command.send_signal(signal.SIGSTOP)
        with pytest.raises(ClassError, match="another grader command is at work"):
            grade(directory)
    assert not (directory / "grades.csv").exists()


def test_a_locked_gradebook_is_one_clear_sentence(directory):
    with sqlite3.connect(directory / "gradebook.db", isolation_level=None) as database:
        database.execute("begin exclusive")
        with pytest.raises(ClassError, match=re.escape("gradebook.db: another program holds the gradebook")):
            grade(directory, say=lambda line: None)
        database.execute("rollback")
    database.close()


def test_a_lost_gradebook_and_a_damaged_one(directory):
    (directory / "gradebook.db").write_bytes(b"this was a database once" * 50)
    with pytest.raises(ClassError, match=r"gradebook\.db: .*; restore it from a copy"):
        grade(directory, say=lambda line: None)
    (directory / "gradebook.db").unlink()
    with pytest.raises(ClassError, match="is missing; restore it from a copy"):
        grade(directory)


def test_a_lost_seed_is_one_clear_sentence(directory):
    source = directory / "source/01_double/01_double.ipynb"
    source.write_text(re.sub(r"SEED = \d{3,}", "", source.read_text(encoding="utf-8")), encoding="utf-8")
    with pytest.raises(ClassError, match="check doubles has lost the class's secret seed"):
        grade(directory, say=lambda line: None)


def test_a_damaged_source_and_a_damaged_configuration(directory):
    config = directory / "nbgrader_config.py"
    config.write_text(config.read_text() + "\nc.Exporter.note = undefined_name\n")
    with pytest.raises(ClassError, match=r"nbgrader_config\.py: NameError"):
        grade(directory)
    config.write_text(config.read_text().replace("undefined_name", "1"))
    (directory / "source/01_double/01_double.ipynb").write_text("{")
    with pytest.raises(ClassError, match=r"01_double\.ipynb: not a notebook"):
        grade(directory, say=lambda line: None)


def test_damaged_results_and_records_are_made_again(undisturbed, tmp_path, monkeypatch):
    judge_here(monkeypatch)
    directory = shutil.copytree(undisturbed, tmp_path / "faults")
    for path in [*directory.glob(".grader/results/*"), *directory.glob(".grader/handins/*/*")]:
        path.write_bytes(path.read_bytes()[:20])
    assert grade(directory, jobs=2, say=lambda line: None).graded == CLASS
    assert grades(directory) == grades(undisturbed)


def test_a_file_is_whole_or_not_there(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    write_atomically(tmp_path / "file", "old")
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(tmp_path / "file", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["file"] and (tmp_path / "file").read_text() == "old"


def test_a_full_disk_is_one_clear_sentence_and_costs_nothing(directory, tmp_path, undisturbed):
    """The disk is a small one in memory, mounted where no other process can see it."""
    small = tmp_path / "small"
    small.mkdir()
    script = tmp_path / "full.sh"
    script.write_text(f"""set -e
[ "$(readlink /proc/self/ns/mnt)" != "$1" ]
mount -t tmpfs -o size=2m tmpfs {small}
cp -r {directory} {small}/class
dd if=/dev/zero of={small}/filler bs=1k count=100000 2>/dev/null || true
set +e
for left in 8k 72k; do
    truncate -s -$left {small}/filler
    {sys.executable} {tmp_path}/grade.py {small}/class 2>&1
done
rm {small}/filler
{sys.executable} {tmp_path}/grade.py {small}/class 2>&1
cp {small}/class/grades.csv {tmp_path}/grades.csv
""")
    (tmp_path / "grade.py").write_text(GRADE)
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", script, os.readlink("/proc/self/ns/mnt")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "unshare" in done.stderr:
        pytest.skip("this machine gives no namespace to mount a small disk in")
    assert (
        re.findall("^ClassError: .*$", done.stdout, re.MULTILINE)
        == [f"ClassError: {small}/class: the disk is full; free some space and run this again: what was graded is kept"] * 2
    ), done.stdout + done.stderr
    assert (tmp_path / "grades.csv").read_text(encoding="utf-8-sig") == grades(undisturbed)
