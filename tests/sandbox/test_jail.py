"""The jail: which layers are on, what each alone refuses, and that nothing of it touches this machine."""

import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

import pytest

import grader
from grader.sandbox import jail
from grader.sandbox.jail import SCRATCH, TRIED, Layers, command, environment, layers, readable, tried

HERE = Path(grader.__file__).parent
linux = pytest.mark.skipif(sys.platform != "linux", reason="there are no layers elsewhere")
INSIDE = """
import json, os, sys
from grader.sandbox.jail import Layers, settle, spawn
on = Layers(**json.loads(sys.argv[1]))
settle(on)
exec(sys.argv[3])
reader, writer = os.pipe()

def run():
    names = {}
    exec(sys.argv[2], names)
    os.write(writer, json.dumps(names["said"]).encode())

pid = spawn(run, on)
os.close(writer)
print(b"".join(iter(lambda: os.read(reader, 65536), b"")).decode())
"""


def inside(on: Layers, code: str, package: Path = HERE, before: str = "") -> object:
    """What `code`, run in the jail, calls `said`; `before` is run in the process that is forked then."""
    arguments = ["-P", "-c", INSIDE, json.dumps(asdict(on)), code, before]
    if package == HERE:
        arguments = command(arguments, on)
    else:  # the command is asked of the package that lies elsewhere
        ask = "import json, sys; from grader.sandbox.jail import *; on = Layers(**json.loads(sys.argv[1]))"
        ask += "; print(json.dumps(command(sys.argv[2:], on)))"
        ask = [sys.executable, "-P", "-c", ask, json.dumps(asdict(on)), *arguments]
        arguments = json.loads(subprocess.run(ask, env=environment() | {"PYTHONPATH": str(package.parent)}, capture_output=True).stdout)
    env = environment() | {"PYTHONPATH": str(package.parent)}
    done = subprocess.run(arguments, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@linux
def test_this_machine_has_every_layer_and_nothing_can_be_done_inside():
    """Where tests run, the whole jail is tested: install bubblewrap where this fails."""
    on = layers()
    assert on.bubblewrap and on.namespaces and on.landlock and on.seccomp
    assert on.can == () and on.holds


@linux
@pytest.mark.parametrize(
    ("on", "cannot", "holds"),
    [
        (Layers(), "", False),
        (Layers(seccomp=True), "change signal outlive network", False),
        (Layers(landlock=5), "read write spy", False),
        (Layers(namespaces=True), "write change spy signal outlive network", False),
        (Layers(bubblewrap=True), "look read write change network", False),
        (Layers(bubblewrap=True, seccomp=True), "look read write change signal outlive network", False),
        (Layers(namespaces=True, seccomp=True), "write change spy signal outlive network", False),
        (Layers(landlock=5, seccomp=True), "read write change spy signal outlive network", True),
        (Layers(landlock=5, namespaces=True), "read write change spy signal outlive network", True),
        (Layers(bubblewrap=True, namespaces=True), "look read write change spy signal outlive network", True),
    ],
    ids=lambda value: " ".join(k for k, v in asdict(value).items() if v and k != "can") if isinstance(value, Layers) else "",
)
def test_what_a_hand_in_can_do_is_tried_for_each_combination_of_layers(on, cannot, holds):
    found = tried(on)
    assert replace(found, can=on.can) == on, "every layer could be entered"
    assert set(TRIED) - set(found.can) == set(cannot.split()) and found.holds is holds


def test_doctor_says_what_was_tried():
    lines = Layers(landlock=3, can=("look",)).describe()
    assert [line[:3] for line in lines[:5]] == ["off", "off", "on ", "off", "on "]
    assert "a hand-in can see that a file outside exists, how large and how old it is" in lines
    assert "a hand-in cannot change its mode, times or attributes" in lines
    assert not Layers(True, True, 6, True).holds, "what was not tried is not promised"


@linux
@pytest.mark.parametrize("folder", SCRATCH)
@pytest.mark.parametrize("on", [Layers(namespaces=True), Layers(bubblewrap=True, namespaces=True)], ids=["namespaces", "bubblewrap"])
def test_each_fork_has_empty_writable_scratch_folders_whatever_lies_there(folder, on):
    """A checkout, say, or a virtual environment: it is there as well, and cannot be written to."""
    code = """
import os, tempfile
tempfile.tempdir = None
with tempfile.NamedTemporaryFile() as f:
    f.write(b"x")
for folder in ("/tmp", "/dev/shm"):
    open(folder + "/x-from-the-jail", "w").close()
from grader.sandbox import lazy_import
written = []
for path in (lazy_import.__file__, PLACE + "/x"):
    try:
        open(path, "a")
    except OSError as e:
        written.append(type(e).__name__)
said = [f.name.startswith("/tmp/"), os.getcwd(), os.listdir(PLACE), lazy_import.__file__, *written]
"""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        package = Path(place, "grader")
        package.mkdir()
        shutil.copy(HERE / "__init__.py", package)
        shutil.copytree(HERE / "sandbox", package / "sandbox", ignore=shutil.ignore_patterns("__pycache__"))
        Path(place, "hidden").touch()
        said = inside(on, code.replace("PLACE", repr(place)), package)
    assert said == [True, "/tmp", ["grader"], str(package / "sandbox" / "lazy_import.py"), "OSError", "PermissionError"]
    assert not any(os.path.exists(f"{scratch}/x-from-the-jail") for scratch in SCRATCH)


@linux
def test_what_can_be_read_may_overlap_and_be_reached_by_a_link():
    with tempfile.TemporaryDirectory(dir="/tmp") as real, tempfile.TemporaryDirectory(dir="/var/tmp") as other:
        Path(real, "inner").mkdir()
        for place in (real, f"{real}/inner"):
            Path(place, "file").write_text("x")
        Path(other, "link").symlink_to(real)
        own = (f"{real}/inner", f"{other}/link")
        before = f"from grader.sandbox import jail\nold = jail.readable()\njail.readable = lambda: (*old, *{own})"
        said = inside(Layers(namespaces=True), f"said = [open(p + '/file').read() for p in {own}]", before=before)
    assert said == ["x", "x"]


@linux
def test_inside_namespaces_it_is_the_only_process_and_proc_is_empty():
    assert inside(Layers(namespaces=True), "import os\nsaid = [os.getpid(), os.listdir('/proc')]") == [1, []]


@linux
def test_the_course_and_this_machines_files_are_out_of_reach():
    code = """
said = []
for path in ("/etc/passwd", COURSE):
    try:
        said.append(open(path).read())
    except OSError as e:
        said.append(type(e).__name__)
""".replace("COURSE", repr(str(HERE / "cli.py")))
    assert inside(Layers(bubblewrap=True), code) == ["FileNotFoundError"] * 2
    assert inside(Layers(landlock=layers().landlock), code) == ["PermissionError"] * 2


@linux
def test_nothing_can_be_written_among_what_bubblewrap_binds():
    code = """
said = []
for folder in ("/", "/dev", sys.prefix):
    try:
        open(folder + "/x-from-the-jail", "w")
    except OSError as e:
        said.append(errno.errorcode[e.errno])
"""
    assert inside(Layers(bubblewrap=True), "import errno, sys" + code) == ["EROFS"] * 3


@linux
@pytest.mark.skipif(layers().landlock < 6, reason="this kernel's Landlock has no rules for sockets and signals")
def test_landlock_alone_refuses_signals_and_connections_too():
    code = """
import os, socket
said = []
for attempt in (lambda: os.kill(os.getppid(), 0), lambda: socket.create_connection(("127.0.0.1", 9))):
    try:
        attempt()
    except OSError as e:
        said.append(type(e).__name__)
"""
    assert inside(Layers(landlock=6), code) == ["PermissionError"] * 2


@linux
def test_a_hand_in_has_no_capabilities():
    """Not even those that its own user namespace would give it."""
    code = """
import ctypes, struct
held, libc = ctypes.create_string_buffer(24), ctypes.CDLL(None)
libc.capget(struct.pack("=Ii", 0x20080522, 0), held)
said = [*struct.unpack("=6I", held.raw), libc.prctl(39, 0, 0, 0, 0)]
"""
    assert inside(Layers(namespaces=True), code) == [0] * 6 + [1], "and no program could give it new ones"


@linux
def test_every_limit_is_set():
    code = """
import resource
said = {name: getattr(resource, "RLIMIT_" + name) for name in ("CPU", "FSIZE", "NOFILE", "NPROC", "CORE", "MEMLOCK", "MSGQUEUE", "AS")}
said = {name: resource.getrlimit(limit) for name, limit in said.items()}
said |= {"oom": open("/proc/self/oom_score_adj").read().strip()}
"""
    said = inside(Layers(), code)
    soft, hard = said.pop("AS")
    assert soft == hard and 2 * 2**30 < soft < 4 * 2**30, "beside what the interpreter takes"
    expected = {"CPU": 600, "FSIZE": 32 * 2**20, "NOFILE": 128, "NPROC": 64, "CORE": 0, "MEMLOCK": 0, "MSGQUEUE": 0}
    assert said == {name: [amount, amount] for name, amount in expected.items()} | {"oom": "1000"}


@linux
def test_the_filter_of_system_calls_refuses_what_would_have_succeeded(tmp_path):
    """Each call in a fork that has the filter, and in one that has not."""
    (tmp_path / "file").write_text("x")
    code = """
import fcntl, os, resource, socket
path = PATH
descriptor = os.open(path, os.O_RDWR)
tries = {
    "fork": lambda: os.fork() or os._exit(0), "kill": lambda: os.kill(os.getppid(), 0), "socket": lambda: socket.socket().close(),
    "prlimit": lambda: resource.prlimit(os.getppid(), resource.RLIMIT_CPU),
    "setpriority": lambda: os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0)),
    "sched_setaffinity": lambda: os.sched_setaffinity(0, os.sched_getaffinity(0)),
    "chmod": lambda: os.chmod(path, 0o600), "fchmod": lambda: os.fchmod(descriptor, 0o600), "chown": lambda: os.chown(path, -1, -1),
    "fchown": lambda: os.fchown(descriptor, -1, -1), "utime": lambda: os.utime(path), "futime": lambda: os.utime(descriptor),
    "setxattr": lambda: os.setxattr(path, "user.x", b""), "removexattr": lambda: os.removexattr(descriptor, "user.x"),
    "flock": lambda: fcntl.flock(descriptor, fcntl.LOCK_EX), "lockf": lambda: fcntl.lockf(descriptor, fcntl.LOCK_EX),
    "owner": lambda: fcntl.fcntl(descriptor, fcntl.F_SETOWN, os.getppid()),
    "owner by ioctl": lambda: fcntl.ioctl(socket.socketpair()[0], 0x8901, os.getppid().to_bytes(4, "little")),
    "fadvise": lambda: os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED),
    "own command": lambda: fcntl.fcntl(descriptor, fcntl.F_GETFL), "own signal": lambda: __import__("signal").raise_signal(0),
}
said = {}
for name, attempt in tries.items():
    try:
        attempt()
        said[name] = 0
    except OSError as e:
        said[name] = e.errno
""".replace("PATH", repr(str(tmp_path / "file")))
    free, filtered = inside(Layers(), code), inside(Layers(seccomp=True), code)
    assert errno.EPERM not in free.values()
    assert {name for name, number in filtered.items() if number != errno.EPERM} == {"own command", "own signal"}


@linux
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")  # of the tests' own processes
def test_a_layer_that_cannot_be_entered_ends_the_process_before_it_runs(monkeypatch):
    monkeypatch.setattr(jail, "_drop_capabilities", lambda: (_ for _ in ()).throw(OSError("refused")))
    reader, writer = os.pipe()
    pid = jail.spawn(lambda: os.write(writer, b"ran"), Layers())
    os.waitpid(pid, 0)
    os.close(writer)
    assert os.read(reader, 3) == b""
    os.close(reader)


@linux
def test_nothing_is_mounted_outside_a_namespace_of_its_own():
    with pytest.raises(jail.JailError, match="not in namespaces of its own"):
        jail._mount(Layers())


def test_the_allow_list_has_the_learners_side_and_nothing_else_of_ours():
    ours = {path for path in readable() if Path(path).is_relative_to(HERE)}
    assert ours == {str(HERE / "__init__.py"), str(HERE / "sandbox")}
    assert not any(HERE.is_relative_to(path) for path in readable())
    assert "/" not in readable() and not any(Path.home() == Path(p) for p in readable())


def test_a_package_in_site_packages_is_left_out_of_the_allow_list(tmp_path):
    (tmp_path / "lib" / "site" / "grader").mkdir(parents=True)
    (tmp_path / "lib" / "site" / "torch").mkdir()
    (tmp_path / "lib" / "python").mkdir()
    left = jail._without(tmp_path, tmp_path / "lib" / "site" / "grader")
    assert left == [str(tmp_path / "lib" / "python"), str(tmp_path / "lib" / "site" / "torch")]


def test_other_systems_have_no_layers(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    layers.cache_clear()
    assert layers() == Layers()
    layers.cache_clear()


def test_the_learners_side_gets_nothing_of_our_environment(monkeypatch):
    monkeypatch.setenv("TOKEN", "secret")
    assert "TOKEN" not in environment() and "secret" not in environment().values()
