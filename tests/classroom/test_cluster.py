"""A class graded on a Ray cluster: a head and two workers, each of processes of its own, one of which dies in the middle."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from grader.classroom.autograding import version
from grader.classroom.cluster import ClusterError, _judge
from grader.classroom.commands import ClassError, grade, new
from grader.classroom.gradebook import ClassGradebook
from grader.course.source import ROOT
from grader.sandbox.jail import JailError
from tests.classroom.toy import hand_in_bytes, put, toy_course
from tests.conftest import missing

CLASS = 8


class Cluster:
    """environment: of every process that has to do with it. address: the head's."""

    def __init__(self, home):
        self.folder = tempfile.mkdtemp(prefix="ray-")  # a short name: sockets lie in it
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        self.environment = os.environ | {"HOME": str(home), "PYTHONPATH": path, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "toy" * 12}
        told = self.start("--head", "--port=0", "--num-cpus=0", f"--temp-dir={self.folder}")
        self.address = re.search("--address='(.+?)'", told)[1]

    def start(self, *options):
        for _ in range(3):  # Ray gives up after 15 seconds, which a busy machine may need
            command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--disable-usage-stats", *options]
            done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
            if not done.returncode:
                return done.stdout + done.stderr
        pytest.fail(done.stdout + done.stderr)

    def processes(self):
        return [process for process in psutil.process_iter() if any(self.folder in word for word in words(process))]

    def kill_a_worker_at_work(self):
        """All processes of one machine that judges at this moment, at once, as when the power goes."""
        end = time.monotonic() + 100
        while time.monotonic() < end:
            for raylet in [process for process in self.processes() if words(process)[0].endswith("/raylet")]:
                own = raylet.children(recursive=True)
                if any(word.startswith("ray::_judge") for process in own for word in words(process)):
                    kill([raylet, *own])
                    return
        pytest.fail("no worker is at work")


def words(process):
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def kill(processes):
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    if why := missing("ray", "make extras"):
        pytest.skip(why)
    cluster = Cluster(tmp_path_factory.mktemp("home"))
    try:
        for _ in range(2):
            cluster.start(f"--address={cluster.address}", "--num-cpus=1")
        yield cluster
    finally:
        kill(cluster.processes())
        shutil.rmtree(cluster.folder, ignore_errors=True)


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    """A class with hand-ins of which none is graded; each is at work for some seconds."""
    folder = tmp_path_factory.mktemp("classes")
    course = toy_course(folder)
    new(folder / "fresh", course, say=lambda line: None)
    for number in range(CLASS):
        source = f"def double(x):\n    import time\n    time.sleep(0.3)\n    return x + x if {number} % 2 else x + {number}"
        put(folder / "fresh", f"student{number}", course[0], hand_in_bytes(course[0], double=source))
    put(folder / "fresh", "student0", course[1], hand_in_bytes(course[1]))
    put(folder / "fresh", "student1", course[1], b"%PDF-1.4 not a notebook")
    return folder / "fresh"


@pytest.fixture(scope="module")
def on_one_machine(fresh, tmp_path_factory):
    directory = shutil.copytree(fresh, tmp_path_factory.mktemp("here") / "class")
    grade(directory, jobs=2, say=lambda line: None)
    return directory


def grading(directory, cluster):
    command = [sys.executable, "-m", "grader", "grade", directory, "--ray", cluster.address]
    return subprocess.Popen(command, env=cluster.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def outcome(directory):
    """All that was made: the files' bytes, and what the gradebook says."""
    parts = ("autograded", "feedback", ".grader/results", ".grader/handins", "grades.csv")
    files = [path for part in parts for path in (directory / part, *(directory / part).rglob("*")) if path.is_file()]
    with ClassGradebook(f"sqlite:///{directory / 'gradebook.db'}") as gradebook:
        return {str(path.relative_to(directory)): path.read_bytes() for path in files}, gradebook.marks()


@pytest.mark.thorough
def test_a_killed_command_goes_on_where_it_was(cluster, fresh, on_one_machine, tmp_path):
    directory = Path(shutil.copytree(fresh, tmp_path / "class"))
    with grading(directory, cluster) as first:
        assert any("[ 2/" in line for line in first.stdout), first.stderr.read()
        first.kill()
    with grading(directory, cluster) as second:
        told, errors = second.communicate()
    assert (second.returncode, errors) == (2, "")  # one is no notebook
    assert int(re.search(r"(\d+) unchanged", told)[1]) >= 1
    assert outcome(directory) == outcome(on_one_machine)


@pytest.mark.thorough
def test_the_death_of_a_machine_loses_nothing(cluster, fresh, on_one_machine, tmp_path):
    directory = Path(shutil.copytree(fresh, tmp_path / "class"))
    told = []
    with grading(directory, cluster) as command:
        for line in command.stdout:
            told.append(line)
            if "[ 2/" in line:
                cluster.kill_a_worker_at_work()
        errors = command.stderr.read()
    assert (command.returncode, errors) == (2, ""), told
    assert f"Ray at {cluster.address}: machines 3, processors 2\n" in told
    assert [line for line in told if "died; it is tried again" in line]
    assert len([line for line in told if line.startswith("[")]) == CLASS + 2
    assert outcome(directory) == outcome(on_one_machine)


@pytest.mark.thorough
def test_where_no_cluster_is(cluster, fresh):
    cluster.address, there = "127.0.0.1:1", cluster.address
    with grading(fresh, cluster) as command:
        errors = command.stderr.read()
    cluster.address = there
    assert command.returncode == 2
    assert re.fullmatch(r"grader: no Ray cluster to work with at 127\.0\.0\.1:1 \(.*refused\); 'ray start --head' starts one\n", errors)


def test_without_ray_one_sentence_says_how_to_install_it(fresh, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ClassError, match=r"Ray, which is not installed; .* pip install .*\[cluster\]"):
        grade(fresh, ray="local", say=lambda line: None)


@pytest.mark.parametrize("error", [JailError("no jail"), OSError(28, "No space left on device", "/tmp/x"), None])
def test_what_is_wrong_with_a_machine_comes_with_its_name(error, monkeypatch):
    def judge(*arguments, allow_no_jail):
        raise error

    monkeypatch.setattr("grader.classroom.cluster.autograde_bytes", judge)
    monkeypatch.setattr("socket.gethostname", lambda: "node7")
    answer = _judge(version() if error else b"of another grader", b"", "", b"", Path(), None, False)
    words = {JailError: "no jail", OSError: "/tmp/x: No space left on device"}.get(type(error), "another version of the grader")
    assert isinstance(answer, ClusterError) and str(answer).startswith(f"machine node7: {words}")
