"""The jail: which layers are on, what each alone refuses, and that nothing of it touches this machine."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import grader
from grader.sandbox import jail
from grader.sandbox.jail import Layers, command, environment, layers, readable

HERE = Path(grader.__file__).parent
linux = pytest.mark.skipif(sys.platform != "linux", reason="there are no layers elsewhere")

OUTSIDE = Path("/tmp/x-from-the-jail")
TRIES = """
import json, os, sys, time
from grader.sandbox.jail import Layers, settle, spawn
on = Layers(**json.loads(sys.argv[1]))
settle(on)
reader, writer = os.pipe()

def attempt(f):
    try:
        result = f()
        return True if result is None else result
    except OSError as e:
        return type(e).__name__

def run():
    import socket
    said = {
        "pid": os.getpid(),
        "passwd": attempt(lambda: open("/etc/passwd").close()),
        "course": attempt(lambda: open(sys.argv[2]).close()),
        "write": attempt(lambda: open("/tmp/x-from-the-jail", "w").close()),
        "write libraries": attempt(lambda: open(os.path.join(sys.prefix, "x"), "w").close()),
        "proc": attempt(lambda: os.listdir("/proc")),
        "signal": attempt(lambda: os.kill(os.getppid() or 1, 0)),
        "socket": attempt(lambda: socket.socket().close()),
        "fork": attempt(lambda: os.fork() or os._exit(0)),
    }
    os.write(writer, json.dumps(said).encode())

pid = spawn(run, on)
os.close(writer)
text = b"".join(iter(lambda: os.read(reader, 65536), b""))
os.waitpid(pid, 0)
print(text.decode())
"""


def tried(on: Layers) -> dict:
    from dataclasses import asdict

    arguments = command(["-P", "-c", TRIES, json.dumps(asdict(on)), str(HERE / "cli.py")], on)
    done = subprocess.run(arguments, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    outside = OUTSIDE.exists()
    OUTSIDE.unlink(missing_ok=True)
    return json.loads(done.stdout) | {"written outside": outside}


@linux
def test_this_machine_has_every_layer():
    """Where tests run, the whole jail is tested: install bubblewrap where this fails."""
    on = layers()
    assert on.bubblewrap and on.namespaces and on.landlock and on.seccomp and on.holds


@linux
def test_the_whole_jail_refuses_everything():
    said = tried(layers())
    assert said.pop("pid") == 1
    assert said.pop("write") is True, "its own empty /tmp"
    assert not said.pop("written outside")
    assert said.pop("proc") in ([], "PermissionError")
    assert said.pop("signal") == "PermissionError" and said.pop("socket") == "PermissionError" and said.pop("fork") == "PermissionError"
    assert all(v in ("FileNotFoundError", "PermissionError", "OSError") for v in said.values()), said


@linux
def test_bubblewrap_alone_hides_files():
    said = tried(Layers(bubblewrap=True))
    assert said["passwd"] == said["course"] == "FileNotFoundError"
    assert said["write libraries"] == "OSError", "read-only"


@linux
def test_namespaces_alone_hide_processes_and_what_is_written():
    said = tried(Layers(namespaces=True))
    assert said["pid"] == 1 and said["proc"] == [] and said["write"] is True
    assert not said.pop("written outside")


@linux
def test_landlock_alone_refuses_files():
    said = tried(Layers(landlock=layers().landlock))
    assert said["passwd"] == said["course"] == said["write"] == said["write libraries"] == "PermissionError"


@linux
def test_seccomp_alone_refuses_processes_signals_and_sockets():
    said = tried(Layers(seccomp=True))
    assert said["signal"] == said["socket"] == said["fork"] == "PermissionError"


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
        jail._mount()


def test_what_holds():
    assert not Layers().holds and not Layers(bubblewrap=True).holds and not Layers(namespaces=True, seccomp=True).holds
    assert not Layers(bubblewrap=True, seccomp=True).holds, "it would see the /proc of outside"
    assert Layers(landlock=1, seccomp=True).holds and Layers(bubblewrap=True, namespaces=True).holds
    assert [line[:3] for line in Layers(landlock=3).describe()] == ["off", "off", "on ", "off", "on "]


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
