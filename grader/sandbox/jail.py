"""What the learner's side may do: layers, limits, and a probe that tries what a hand-in could do inside.

Around the warm process stands bubblewrap: it binds an allow-list (interpreter, libraries, the learner's side of this
package), never the whole disk. Each hand-in is a fork of the warm process in namespaces of its own (user, pid, mount, net,
ipc) with an empty /tmp and an empty /proc, under Landlock, a seccomp filter and resource limits. Where one layer is refused,
another may do its work: `Layers.holds` says whether what is left is a jail.

Not defended against: bugs of the kernel; what can be told by timing, such as the load of the processor, its caches and the
page cache; systems other than Linux, where all layers but the resource limits are off; memory and disk that a hand-in takes
within its limits. Where bubblewrap is off, names, sizes and times of files outside can be seen. A hand-in may do what it
likes to its own process, the code that answers for it included: what comes from there is data that somebody hostile chose.

Only the standard library is imported, so that the probe starts fast.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import platform
import resource
import shutil
import site
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from grader.sandbox import seccomp

MEMORY = 2 * 2**30  # bytes a hand-in may take on top of what the warm process has
CPU = 600  # seconds of processor time of one fork; the judge's clock is shorter
FILE = 32 * 2**20  # bytes of one file
DISK = 64 * 2**20  # bytes of each scratch folder (they live in memory)
SCRATCH = ("/tmp", "/dev/shm")  # empty and writable in each fork, but for what of the allow-list lies there
FILES = 128  # open at once
PROCESSES = 64  # threads too; does not bind root, where seccomp and MEMORY do
HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parent


class JailError(Exception):
    """There is no jail, or the learner's side does not start; the message says what to do."""


TRIED = {
    "look": "see that a file outside exists, how large and how old it is",
    "read": "read it",
    "write": "write to it",
    "change": "change its mode, times or attributes",
    "spy": "read of the processes of others in /proc",
    "signal": "signal other processes",
    "outlive": "start a process that outlives it",
    "network": "reach the network",
}


@dataclass(frozen=True)
class Layers:
    """Which layers are on, and what of TRIED a hand-in can do inside: everything, until it was tried.

    landlock: its version (0: off).
    """

    bubblewrap: bool = False
    namespaces: bool = False
    landlock: int = 0
    seccomp: bool = False
    can: tuple[str, ...] = tuple(TRIED)

    @property
    def holds(self) -> bool:
        """Whether files are out of reach, and so are other processes and the network."""
        return set(self.can) <= {"look"}

    def describe(self) -> list[str]:
        """One line a layer, and one for each thing that was tried inside."""
        lines = [
            (self.bubblewrap, "bubblewrap: only the interpreter and its libraries are there"),
            (self.namespaces, "namespaces: each hand-in has processes, mounts and a network of its own"),
            (bool(self.landlock), f"Landlock {self.landlock}: files outside the allow-list cannot be opened"),
            (self.seccomp, "seccomp: no new processes, no sockets, no signals, no changes of mode or owner"),
            (True, "resource limits: memory, processor time, file size, open files"),
        ]
        tried = [f"a hand-in {'can' if name in self.can else 'cannot'} {words}" for name, words in TRIED.items()]
        return [f"{'on ' if on else 'off'}  {line}" for on, line in lines] + tried


@functools.cache
def layers() -> Layers:
    """Which layers work on this machine, by trying them."""
    if sys.platform != "linux":
        return Layers()
    every = Layers(bubblewrap=shutil.which("bwrap") is not None, namespaces=True, landlock=_LANDLOCK, seccomp=True)
    found = tried(every)
    return found if found.holds or not every.bubblewrap else tried(replace(every, bubblewrap=False))


def tried(on: Layers) -> Layers:
    """`on` without what this machine refuses, and what a hand-in can do there. Layers() where nothing starts."""
    where = "/var/tmp" if os.access("/var/tmp", os.W_OK) else None  # in /tmp a file is hidden, whatever else can be seen
    with tempfile.NamedTemporaryFile(dir=where) as victim, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ear:
        ear.bind(("127.0.0.1", 0))
        ear.setblocking(False)
        arguments = ["-S", "-P", "-m", "grader.sandbox.jail", json.dumps(asdict(on)), victim.name, str(ear.getsockname()[1])]
        done = subprocess.run(command(arguments, on), capture_output=True, text=True, env=environment())
        if done.returncode:
            return Layers()
        found = json.loads(done.stdout)
        with contextlib.suppress(BlockingIOError):
            ear.recv(1)
            found["can"].append("network")
    return Layers(**found | {"can": tuple(found["can"])})


def command(arguments: list[str], on: Layers) -> list[str]:
    """The command line that runs `python ARGUMENTS` as the learner's side."""
    python = [sys.executable, *arguments]
    if not on.bubblewrap:
        return python
    binds = [part for path in readable() for part in ("--ro-bind", path, path)]
    # The /proc of outside, which no hand-in sees: a new one is refused in containers that cover parts of theirs.
    # No --die-with-parent: it follows the thread that started us. The warm process ends when the socket of the judge closes.
    return [
        "bwrap", "--unshare-all", "--unshare-user", "--new-session", "--bind", "/proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp",
        *binds, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp", "--", *python,
    ]  # fmt: skip


def environment() -> dict[str, str]:
    """The whole environment of the learner's side: nothing of ours goes there."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    homes = dict.fromkeys(("HOME", "TMPDIR", "IPYTHONDIR", "MPLCONFIGDIR"), SCRATCH[0])
    python = {"PYTHONPATH": str(PACKAGE.parent), "PYTHONDONTWRITEBYTECODE": "1", "MPLBACKEND": "agg"}
    return {"PATH": "/usr/bin", "LANG": "C.UTF-8", **python, **threads, **homes}


@functools.cache
def readable() -> tuple[str, ...]:
    """The allow-list: interpreter, libraries, fonts, and of this package the learner's side alone."""
    roots = [sys.prefix, sys.base_prefix, *site.getsitepackages(), site.getusersitepackages()]
    roots += ["/usr/lib", "/usr/lib64", "/usr/local/lib", "/lib", "/lib64", "/usr/share/fonts", "/usr/share/zoneinfo"]
    roots += ["/etc/ld.so.cache", "/etc/fonts", "/etc/localtime", os.path.realpath(sys.executable)]
    found: list[str] = []
    for root in dict.fromkeys(roots):
        if os.path.exists(root) and not any(Path(root).is_relative_to(other) for other in found):
            found += _without(Path(root), PACKAGE)
    return (*found, str(PACKAGE / "__init__.py"), str(HERE))


def _without(folder: Path, inside: Path) -> list[str]:
    """`folder`, or, where `inside` lies in it, everything in it but that."""
    if folder == inside:
        return []
    if not inside.is_relative_to(folder.resolve()):
        return [str(folder)]
    return [path for child in sorted(folder.iterdir()) for path in _without(child, inside)]


# --- on the learner's side ---------------------------------------------------------------------------------------------

_CLONE_NEWNS, _CLONE_NEWIPC, _CLONE_NEWUSER, _CLONE_NEWPID, _CLONE_NEWNET = 0x20000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_BIND, _MS_REC, _MS_PRIVATE = 1, 2, 4, 8, 0x1000, 0x4000, 0x40000
_AT_FDCWD, _AT_RECURSIVE, _MOUNT_ATTR_RDONLY = -100, 0x8000, 1
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP = 38, 22
_LANDLOCK = 6  # the newest version whose rights are known here
_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: object) -> int:
    """A function of libc. Raises OSError."""
    result = getattr(_libc, name)(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")
    return result


def settle(on: Layers) -> None:
    """Moves the warm process into namespaces of its own, in which it may make those of each hand-in."""
    readable()  # once, for all forks
    if on.namespaces:
        _enter_namespaces(_CLONE_NEWPID)
        pid = os.fork()  # a process enters a pid namespace only by being born in it
        if pid:
            os.waitpid(pid, 0)
            os._exit(0)


def spawn(run: Callable[[], object], on: Layers) -> int:
    """Forks a process that is jailed by the layers of `on` and then runs `run`. Returns its pid; `kill` ends it.

    Where a layer cannot be entered, the process ends before `run`. Needs `settle` once before. Raises OSError.
    """
    if on.namespaces:  # the next child is process 1 of a new pid namespace, beside those before it
        own = os.open("/proc/self/ns/pid", os.O_RDONLY)
        _call("setns", own, _CLONE_NEWPID)
        os.close(own)
        _call("unshare", _CLONE_NEWPID)
    pid = os.fork()
    if pid == 0:
        _in_child(run, on)
    return pid


def kill(pid: int) -> None:
    """Ends a process of `spawn`, all that live in its pid namespace with it, and waits until they are gone."""
    os.kill(pid, 9)
    os.waitpid(pid, 0)


def _in_child(run: Callable[[], object], on: Layers) -> None:
    try:
        _limit()
        if on.namespaces:
            _enter_namespaces()
            _mount(on)
        if sys.platform == "linux":
            _drop_capabilities()
            _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        if on.landlock:
            _landlock(on)
        if on.seccomp:
            code = ctypes.create_string_buffer(program := seccomp.program(platform.machine(), os.getpid()))
            _call("prctl", _PR_SET_SECCOMP, 2, struct.pack("@HP", len(program) // 8, ctypes.addressof(code)), 0, 0)
        run()
    finally:
        os._exit(0)


def _enter_namespaces(more: int = 0) -> None:
    user, group = os.getuid(), os.getgid()
    _call("unshare", _CLONE_NEWUSER | _CLONE_NEWNS | _CLONE_NEWNET | _CLONE_NEWIPC | more)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"1000 {user} 1")
    Path("/proc/self/gid_map").write_text(f"1000 {group} 1")


def _mount(on: Layers) -> None:
    if os.getpid() != 1:  # a mount outside a namespace of our own would be the machine's
        raise JailError("not in namespaces of its own")
    _call("mount", b"none", b"/", None, _MS_REC | _MS_PRIVATE, None)
    if not on.bubblewrap:  # which made everything read-only
        _call("syscall", 442, _AT_FDCWD, b"/", _AT_RECURSIVE, struct.pack("=4Q", _MOUNT_ATTR_RDONLY, 0, 0, 0), ctypes.c_size_t(32))
    mask = os.umask(0o222)  # so that the folders around what is bound cannot be written to
    for folder in SCRATCH:
        paths = {path for entry in readable() for path in (entry, os.path.realpath(entry)) if Path(path).is_relative_to(folder)}
        held = {path: os.open(path, os.O_PATH) for path in sorted(paths)}
        _call("mount", b"tmpfs", folder.encode(), b"tmpfs", _MS_NOSUID | _MS_NODEV, f"size={DISK},nr_inodes=4096,mode=700".encode())
        for path, descriptor in held.items():  # an interpreter, say, or this very checkout
            source = f"/proc/self/fd/{descriptor}"
            if not os.path.lexists(path):  # else it came with a folder around it
                Path(path).parent.mkdir(parents=True, exist_ok=True)
                Path(path).mkdir() if os.path.isdir(source) else Path(path).touch()
                _call("mount", source.encode(), path.encode(), None, _MS_BIND | _MS_REC, None)
            os.close(descriptor)
    os.umask(mask)
    # An empty /proc rather than a new one: it is never refused, and nobody's processes are what should be seen.
    _call("mount", b"tmpfs", b"/proc", b"tmpfs", _MS_RDONLY | _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, b"size=4k,mode=555")
    os.chdir(SCRATCH[0])


def _limit() -> None:
    size = 0
    if sys.platform == "linux":
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        Path("/proc/self/oom_score_adj").write_text("1000")  # when the machine's memory runs out, this one goes
    for what, amount in (
        ("AS", size + MEMORY), ("CPU", CPU), ("FSIZE", FILE), ("NOFILE", FILES), ("NPROC", PROCESSES), ("CORE", 0), ("MEMLOCK", 0),
        ("MSGQUEUE", 0),
    ):  # fmt: skip
        limit = getattr(resource, f"RLIMIT_{what}", None)
        if limit is not None and not (what == "AS" and sys.platform != "linux"):  # macOS knows no such limit
            _, most = resource.getrlimit(limit)
            amount = amount if most == resource.RLIM_INFINITY else min(amount, most)
            resource.setrlimit(limit, (amount, amount))


def _drop_capabilities() -> None:
    _call("capset", struct.pack("=Ii", 0x20080522, 0), bytes(24))


def _landlock(on: Layers) -> None:
    version = on.landlock
    files = (1 << (13, 13, 14, 15, 15, 16, 16)[version]) - 1  # every right on files that this version knows
    look, write = 0b1101, 0b10 | (files & 1 << 14)  # run, read, list; write, truncate
    handled = struct.pack("=QQQ", files, 0b11 if version >= 4 else 0, 0b11 if version >= 6 else 0)
    ruleset = _call("syscall", 444, handled, ctypes.c_size_t(24 if version >= 6 else 16 if version >= 4 else 8), 0)
    allowed = dict.fromkeys(readable(), look)
    allowed |= dict.fromkeys(("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"), look | write)
    if on.namespaces:  # else there is no place to write that is the hand-in's own
        allowed |= dict.fromkeys(SCRATCH, files)
    for path, rights in allowed.items():
        try:
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        if not os.path.isdir(path):
            rights &= 0b101 | write
        _call("syscall", 445, ruleset, 1, struct.pack("=Qi", rights, place), 0)
        os.close(place)
    _call("syscall", 446, ruleset, 0)
    os.close(ruleset)


def _probe(wanted: Layers, victim: str, port: int) -> Layers:
    """See `tried`. Each layer is entered in a fork; then a fork inside all of them tries to do harm."""

    def said(on: Layers, run: Callable[[], str]) -> str | None:
        """What `run` gives inside `on`; None where it is never run."""
        reader, writer = os.pipe()
        middle = os.fork()
        if middle == 0:
            try:
                settle(on)
                os.waitpid(spawn(lambda: os.write(writer, b"ran " + run().encode()), on), 0)
            finally:
                os._exit(0)
        os.close(writer)
        words = os.read(reader, 1000).decode()
        os.close(reader)
        os.waitpid(middle, 0)
        return words.removeprefix("ran ") if words else None

    wanted = replace(wanted, landlock=min(wanted.landlock, max(0, _libc.syscall(444, None, 0, 1))))  # the kernel's version
    on = alone = Layers(bubblewrap=wanted.bubblewrap)
    for name in ("namespaces", "landlock", "seccomp"):
        layer = {name: getattr(wanted, name)}
        if layer[name] and said(replace(alone, **layer), str) is not None:
            on = replace(on, **layer)
    managed = said(on, lambda: " ".join(_managed(victim, port)))
    return on if managed is None else replace(on, can=tuple(managed.split()))


def _managed(victim: str, port: int) -> list[str]:
    """Tries everything of TRIED on a file outside and on a port of ours; what could be done."""

    def outlive() -> None:
        if os.getpid() == 1:
            raise OSError("it ends with its namespace")
        if not (child := os.fork()):
            os._exit(0)
        os.waitpid(child, 0)

    tries: list[tuple[str, Callable[[], object]]] = [
        ("look", lambda: os.stat(victim)),
        ("read", lambda: open(victim).close()),
        ("write", lambda: open(victim, "a").close()),
        ("change", lambda: os.chmod(victim, 0o600)),
        ("change", lambda: os.utime(victim)),
        ("change", lambda: os.setxattr(victim, "user.grader", b"")),
        ("spy", lambda: open("/proc/1/stat").close()),
        ("signal", lambda: os.kill(os.getppid() or 2**30, 0)),  # its parent, where it has one; a number that nobody has
        ("outlive", outlive),
        ("", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", port))),  # who hears it knows
    ]
    managed = set()
    for name, attempt in tries:
        with contextlib.suppress(OSError):
            attempt()
            managed.add(name)
    return [name for name in TRIED if name in managed]


if __name__ == "__main__":
    print(json.dumps(asdict(_probe(Layers(**json.loads(sys.argv[1])), sys.argv[2], int(sys.argv[3])))))
