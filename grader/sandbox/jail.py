"""What the learner's side may do: layers, limits, and a probe that says which layers are on.

Around the warm process stands bubblewrap: it binds an allow-list (interpreter, libraries, the three modules of the
learner's side), never the whole disk. Each hand-in is a fork of the warm process in namespaces of its own (user, pid,
mount, net, ipc) with an empty /tmp and an empty /proc, under Landlock, a seccomp filter (no new
processes, no sockets, no signals to others) and resource limits. Where one layer is refused, another may do its work:
`Layers.holds` says whether what is left is a jail.

Only the standard library is imported, so that the probe starts fast; on other systems than Linux all layers but the
resource limits are off.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import platform
import resource
import shutil
import site
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

MEMORY = 2 * 2**30  # bytes a hand-in may take on top of what the warm process has
CPU = 600  # seconds of processor time of one fork; the judge's clock is shorter
FILE = 32 * 2**20  # bytes of one file
DISK = 64 * 2**20  # bytes of each scratch folder (they live in memory)
FILES = 128  # open at once
PROCESSES = 64  # threads too; does not bind root, where seccomp and MEMORY do
HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parent


class JailError(Exception):
    """There is no jail, or the learner's side does not start; the message says what to do."""


@dataclass(frozen=True)
class Layers:
    """Which layers are on. landlock: its version (0: off)."""

    bubblewrap: bool = False
    namespaces: bool = False
    landlock: int = 0
    seccomp: bool = False

    @property
    def holds(self) -> bool:
        """Whether files are out of reach, and so are other processes and the network."""
        return bool((self.bubblewrap and self.namespaces) or (self.landlock and (self.namespaces or self.seccomp)))

    def describe(self) -> list[str]:
        """One line a layer."""
        lines = [
            (self.bubblewrap, "bubblewrap: only the interpreter and its libraries can be read"),
            (self.namespaces, "namespaces: each hand-in has processes, mounts and a network of its own"),
            (bool(self.landlock), f"Landlock {self.landlock}: files outside the allow-list cannot be opened"),
            (self.seccomp, "seccomp: no new processes, no sockets, no signals to others"),
            (True, "resource limits: memory, processor time, file size, open files"),
        ]
        return [f"{'on ' if on else 'off'}  {line}" for on, line in lines]


@functools.cache
def layers() -> Layers:
    """Which layers work on this machine, by trying them."""
    if sys.platform != "linux":
        return Layers()
    probe = [sys.executable, "-I", "-S", str(HERE / "jail.py")]
    if shutil.which("bwrap"):
        done = subprocess.run(_bubblewrap(probe), capture_output=True, text=True, env=environment())
        if done.returncode == 0:
            return Layers(**json.loads(done.stdout) | {"bubblewrap": True})
    done = subprocess.run(probe, capture_output=True, text=True, env=environment())
    return Layers(**json.loads(done.stdout)) if done.returncode == 0 else Layers()


def command(arguments: list[str], on: Layers) -> list[str]:
    """The command line that runs `python ARGUMENTS` as the learner's side."""
    return _bubblewrap([sys.executable, *arguments]) if on.bubblewrap else [sys.executable, *arguments]


def environment() -> dict[str, str]:
    """The whole environment of the learner's side: nothing of ours goes there."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    homes = dict.fromkeys(("HOME", "TMPDIR", "IPYTHONDIR", "MPLCONFIGDIR"), scratch())
    return {
        "PATH": "/usr/bin",
        "LANG": "C.UTF-8",
        "MPLBACKEND": "agg",
        "PYTHONPATH": str(PACKAGE.parent),
        "PYTHONDONTWRITEBYTECODE": "1",
        **threads,
        **homes,
    }


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


def scratch() -> str:
    """The folder that is empty and writable in each fork."""
    return "/dev/shm" if any(path.startswith("/tmp/") for path in readable()) else "/tmp"  # an interpreter may live in /tmp


def _bubblewrap(arguments: list[str]) -> list[str]:
    binds = [part for path in readable() for part in ("--ro-bind", path, path)]
    # The /proc of outside, which no hand-in sees: a new one is refused in containers that cover parts of theirs.
    # No --die-with-parent: it follows the thread that started us. The warm process ends when the socket of the judge closes.
    return [
        "bwrap", "--unshare-all", "--unshare-user", "--new-session", "--bind", "/proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp",
        *binds, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp", "--", *arguments,
    ]  # fmt: skip


# --- on the learner's side ---------------------------------------------------------------------------------------------

_CLONE_NEWNS, _CLONE_NEWIPC, _CLONE_NEWUSER, _CLONE_NEWPID, _CLONE_NEWNET = 0x20000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REC, _MS_PRIVATE = 1, 2, 4, 8, 0x4000, 0x40000
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP = 38, 22
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def _call(name: str, *arguments: object) -> int:
    """A function of libc. Raises OSError."""
    result = getattr(_libc, name)(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")
    return result


def settle(on: Layers) -> None:
    """Moves the warm process into namespaces of its own, in which it may make those of each hand-in."""
    if on.namespaces:
        _enter_namespaces(_CLONE_NEWPID)
        pid = os.fork()  # a process enters a pid namespace only by being born in it
        if pid:
            os.waitpid(pid, 0)
            os._exit(0)


def spawn(run: Callable[[], None], on: Layers) -> int:
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


def _in_child(run: Callable[[], None], on: Layers) -> None:
    try:
        _limit()
        if on.namespaces:
            _enter_namespaces()
            _mount()
        if sys.platform == "linux":
            _drop_capabilities()
            _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        if on.landlock:
            _landlock(on)
        if on.seccomp:
            _seccomp()
        run()
    finally:
        os._exit(0)


def _enter_namespaces(more: int = 0) -> None:
    user, group = os.getuid(), os.getgid()
    _call("unshare", _CLONE_NEWUSER | _CLONE_NEWNS | _CLONE_NEWNET | _CLONE_NEWIPC | more)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"1000 {user} 1")
    Path("/proc/self/gid_map").write_text(f"1000 {group} 1")


def _mount() -> None:
    if os.getpid() != 1:  # a mount outside a namespace of our own would be the machine's
        raise JailError("not in namespaces of its own")
    _call("mount", b"none", b"/", None, _MS_REC | _MS_PRIVATE, None)
    # An empty /proc rather than a new one: it is never refused, and nobody's processes are what should be seen.
    _call("mount", b"tmpfs", b"/proc", b"tmpfs", _MS_RDONLY | _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, b"size=4k,mode=555")
    for folder in _scratches():
        _call("mount", b"tmpfs", folder.encode(), b"tmpfs", _MS_NOSUID | _MS_NODEV, f"size={DISK},nr_inodes=4096,mode=700".encode())
    os.chdir(scratch())


def _scratches() -> set[str]:
    return {"/dev/shm", scratch()}


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
    header = struct.pack("=Ii", 0x20080522, 0)
    _call("capset", header, bytes(24))


def _landlock_version() -> int:
    return max(0, _libc.syscall(444, None, 0, 1))


def _landlock(on: Layers) -> None:
    version = min(on.landlock, 6)
    files = (1 << (13, 13, 14, 15, 15, 16, 16)[version]) - 1  # every right on files that this version knows
    look, write = 0b1101, 0b10 | (files & 1 << 14)  # run, read, list; write, truncate
    handled = struct.pack("=QQQ", files, 0b11 if version >= 4 else 0, 0b11 if version >= 6 else 0)
    ruleset = _call("syscall", 444, handled, ctypes.c_size_t(24 if version >= 6 else 16 if version >= 4 else 8), 0)
    allowed = dict.fromkeys(readable(), look)
    allowed |= dict.fromkeys(("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"), look | write)
    if on.namespaces:  # else there is no place to write that is the hand-in's own
        allowed |= dict.fromkeys(_scratches(), files)
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


# Numbers of system calls: (x86_64, aarch64); -1 where there is none. What is not here is harmless to others.
_REFUSED = {
    "fork": (57, -1), "vfork": (58, -1), "execve": (59, 221), "execveat": (322, 281),
    "kill": (62, 129), "tkill": (200, 130), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424), "pidfd_open": (434, 434), "pidfd_getfd": (438, 438),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "socket": (41, 198), "connect": (42, 203), "bind": (49, 200),
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "fsmount": (432, 432), "mount_setattr": (442, 442),
    "bpf": (321, 280), "perf_event_open": (298, 241), "io_uring_setup": (425, 425), "userfaultfd": (323, 282),
    "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218),
    "shmget": (29, 194), "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180),
}  # fmt: skip
_CLONE, _CLONE3, _TGKILL, _PRLIMIT = (56, 220), (435, 435), (234, 131), (302, 261)
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column above, the kernel's name


def _seccomp() -> None:
    column, machine = _MACHINES[platform.machine()]
    load, equal, at_least, has, give = 0x20, 0x15, 0x35, 0x45, 0x06
    allow, refuse, unknown, end = 0x7FFF0000, 0x00050001, 0x00050026, 0x80000000  # go on, EPERM, ENOSYS, kill

    def step(code: int, k: int, yes: int = 0, no: int = 0) -> bytes:
        return struct.pack("=HBBI", code, yes, no, k)

    program = [step(load, 4), step(equal, machine, 1, 0), step(give, end), step(load, 0)]
    program += [step(at_least, 0x40000000, 0, 1), step(give, end)]  # the x32 numbers of x86_64
    for number in (numbers[column] for numbers in _REFUSED.values() if numbers[column] >= 0):
        program += [step(equal, number, 0, 1), step(give, refuse)]
    program += [step(equal, _CLONE3[column], 0, 1), step(give, unknown)]  # libc then asks with clone, whose flags can be seen
    program += [
        step(equal, _CLONE[column], 0, 4),
        step(load, 16),
        step(has, 0x10000, 0, 1),
        step(give, allow),
        step(give, refuse),
    ]  # threads only
    program += [step(equal, _TGKILL[column], 0, 4), step(load, 16), step(equal, os.getpid(), 0, 1), step(give, allow), step(give, refuse)]
    program += [step(equal, _PRLIMIT[column], 0, 4), step(load, 16), step(equal, 0, 0, 1), step(give, allow), step(give, refuse)]
    program += [step(give, allow)]
    code = ctypes.create_string_buffer(b"".join(program))
    _call("prctl", _PR_SET_SECCOMP, 2, struct.pack("@HP", len(program), ctypes.addressof(code)), 0, 0)


def _probe() -> Layers:
    """Which layers work here, each tried in a fork."""

    def works(on: Layers, run: Callable[[], None]) -> bool:
        reader, writer = os.pipe()
        middle = os.fork()
        if middle == 0:
            try:
                settle(on)
                os.waitpid(spawn(lambda: (run(), os.write(writer, b"y")), on), 0)
            finally:
                os._exit(0)
        os.close(writer)
        said = os.read(reader, 1)
        os.close(reader)
        os.waitpid(middle, 0)
        return said == b"y"

    def fork_is_refused() -> None:
        try:
            os.fork()
        except PermissionError:
            return
        os._exit(1)

    version = _landlock_version()
    return Layers(
        namespaces=works(Layers(namespaces=True), lambda: None),
        landlock=version if version and works(Layers(landlock=version), lambda: None) else 0,
        seccomp=platform.machine() in _MACHINES and works(Layers(seccomp=True), fork_is_refused),
    )


if __name__ == "__main__":
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # refusals are an answer here, not an error
    print(json.dumps(asdict(_probe())))
