"""Leaves the jail by system calls: mounts, namespaces, tracing.

Seen: managed []
"""
import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)


def double(x, scale=2.0):
    attempts = {
        "unshare": lambda: libc.unshare(0x10000000),
        "mount": lambda: libc.mount(b"none", b"/mnt", b"tmpfs", 0, None),
        "umount": lambda: libc.umount2(b"/tmp", 2),
        "chroot": lambda: libc.chroot(b"/"),
        "ptrace": lambda: libc.ptrace(16, os.getppid(), 0, 0),
        "setns": lambda: libc.setns(0, 0),
        "setuid": lambda: libc.setuid(0),
        "fork": lambda: libc.fork(),
        "vfork": lambda: libc.syscall(58),
        "keyctl": lambda: libc.syscall(250, 0, 0),
        "bpf": lambda: libc.syscall(321, 0, 0, 0),
        "io_uring": lambda: libc.syscall(425, 1, 0),
        "shmget": lambda: libc.shmget(1, 10**9, 0o1777),
    }
    managed = [name for name, attempt in attempts.items() if attempt() >= 0]
    raise RuntimeError(f"managed {managed}")
