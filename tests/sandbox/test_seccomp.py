"""The filter of system calls, read as data: every entry for both machines. What the kernel makes of it is tried in test_jail."""

import struct

import pytest

from grader.sandbox.seccomp import ALLOW, KILL, MACHINES, REFUSE, UNKNOWN, program

PID = 4711
NAMES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7, "i386": 0x40000003}

# The kernel's own numbers (asm/unistd_64.h and asm-generic/unistd.h) of what is refused whatever its arguments.
REFUSED = {
    "x86_64": """
        fork 57 vfork 58 execve 59 execveat 322
        kill 62 tkill 200 rt_sigqueueinfo 129 rt_tgsigqueueinfo 297 pidfd_open 434 pidfd_send_signal 424
        ptrace 101 process_vm_readv 310 process_vm_writev 311 kcmp 312 pidfd_getfd 438 setpriority 141 ioprio_set 251
        sched_setparam 142 sched_setscheduler 144 sched_setattr 314 sched_setaffinity 203 migrate_pages 256 move_pages 279
        socket 41 connect 42 bind 49
        shmget 29 shmat 30 shmctl 31 msgget 68 msgsnd 69 msgrcv 70 msgctl 71 semget 64 semop 65 semctl 66 semtimedop 220 mq_open
        240 mq_unlink 241
        unshare 272 setns 308 mount 165 umount2 166 pivot_root 155 chroot 161 open_tree 428 move_mount 429 fsopen 430 fsmount 432
        mount_setattr 442 open_tree_attr 467
        chmod 90 fchmod 91 fchmodat 268 fchmodat2 452 chown 92 fchown 93 lchown 94 fchownat 260 utime 132 utimes 235 futimesat 261
        utimensat 280 setxattr 188 lsetxattr 189 fsetxattr 190 setxattrat 463 removexattr 197 lremovexattr 198 fremovexattr 199
        removexattrat 466 file_setattr 469
        flock 73 inotify_init 253 inotify_init1 294 fanotify_init 300 mincore 27 cachestat 451 fadvise64 221 readahead 187 preadv2
        327 pwritev2 328 process_madvise 440 memfd_create 319 memfd_secret 447
        bpf 321 perf_event_open 298 io_uring_setup 425 userfaultfd 323 keyctl 250 add_key 248 request_key 249
    """,
    "aarch64": """
        execve 221 execveat 281
        kill 129 tkill 130 rt_sigqueueinfo 138 rt_tgsigqueueinfo 240 pidfd_open 434 pidfd_send_signal 424
        ptrace 117 process_vm_readv 270 process_vm_writev 271 kcmp 272 pidfd_getfd 438 setpriority 140 ioprio_set 30
        sched_setparam 118 sched_setscheduler 119 sched_setattr 274 sched_setaffinity 122 migrate_pages 238 move_pages 239
        socket 198 connect 203 bind 200
        shmget 194 shmat 196 shmctl 195 msgget 186 msgsnd 189 msgrcv 188 msgctl 187 semget 190 semop 193 semctl 191 semtimedop 192
        mq_open 180 mq_unlink 181
        unshare 97 setns 268 mount 40 umount2 39 pivot_root 41 chroot 51 open_tree 428 move_mount 429 fsopen 430 fsmount 432
        mount_setattr 442 open_tree_attr 467
        fchmod 52 fchmodat 53 fchmodat2 452 fchown 55 fchownat 54 utimensat 88 setxattr 5 lsetxattr 6 fsetxattr 7 setxattrat 463
        removexattr 14 lremovexattr 15 fremovexattr 16 removexattrat 466 file_setattr 469
        flock 32 inotify_init1 26 fanotify_init 262 mincore 232 cachestat 451 fadvise64 223 readahead 213 preadv2 286 pwritev2 287
        process_madvise 440 memfd_create 279 memfd_secret 447
        bpf 280 perf_event_open 241 io_uring_setup 425 userfaultfd 282 keyctl 219 add_key 217 request_key 218
    """,
}
REST = {  # what is looked at more closely
    "x86_64": "clone 56 clone3 435 tgkill 234 prlimit64 302 fcntl 72 ioctl 16 madvise 28",
    "aarch64": "clone 220 clone3 435 tgkill 131 prlimit64 261 fcntl 25 ioctl 29 madvise 233",
}
NEW_NAMESPACE, THREAD, VFORK = 0x10000000, 0x10000, 0x4111


def numbers(table: dict[str, str], machine: str) -> dict[str, int]:
    words = table[machine].split()
    return dict(zip(words[::2], map(int, words[1::2]), strict=True))


def verdict(machine: str, number: int, *arguments: int, speaks: str = "") -> int:
    """What the kernel would make of a call: the program run step by step (linux/filter.h), on struct seccomp_data."""
    values = [value & 2**64 - 1 for value in (*arguments, *[0] * (6 - len(arguments)))]
    data = struct.pack("=iIQ6Q", number, NAMES[speaks or machine], 0, *values)
    steps = list(struct.iter_unpack("=HBBI", program(machine, PID)))
    place = accumulator = 0
    while True:
        code, yes, no, k = steps[place]
        match code:
            case 0x20:
                (accumulator,) = struct.unpack_from("=I", data, k)
            case 0x06:
                return k
            case 0x15 | 0x35 | 0x45:
                holds = {0x15: accumulator == k, 0x35: accumulator >= k, 0x45: accumulator & k != 0}[code]
                place += yes if holds else no
            case _:
                raise AssertionError(f"{code:#x} is no step of a filter")
        place += 1


@pytest.mark.parametrize("machine", MACHINES)
def test_everything_that_reaches_others_is_refused_and_nothing_else(machine):
    refused, rest = numbers(REFUSED, machine), numbers(REST, machine)
    names = {number: name for name, number in refused.items()} | {rest["clone"]: "clone", rest["tgkill"]: "tgkill"}  # with zeros
    assert {names.get(number, number) for number in range(600) if verdict(machine, number) == REFUSE} == set(names.values())


@pytest.mark.parametrize("machine", MACHINES)
def test_threads_may_start_and_processes_may_not(machine):
    clone, clone3 = (numbers(REST, machine)[name] for name in ("clone", "clone3"))
    assert verdict(machine, clone, THREAD | 0x100) == ALLOW
    for flags in (17, VFORK, NEW_NAMESPACE):
        assert verdict(machine, clone, flags) == REFUSE
    assert verdict(machine, clone3, THREAD) == UNKNOWN, "whose flags a filter cannot see: libc falls back to clone"


@pytest.mark.parametrize("machine", MACHINES)
def test_a_process_signals_and_limits_itself_alone(machine):
    tgkill, prlimit = (numbers(REST, machine)[name] for name in ("tgkill", "prlimit64"))
    assert verdict(machine, tgkill, PID, 1, 9) == ALLOW and verdict(machine, tgkill, PID + 1, PID, 9) == REFUSE
    assert verdict(machine, prlimit, 0, 7) == ALLOW and verdict(machine, prlimit, PID, 7) == verdict(machine, prlimit, 1, 7) == REFUSE


@pytest.mark.parametrize("machine", MACHINES)
def test_memory_may_be_given_back_and_not_pushed_out(machine):
    madvise = numbers(REST, machine)["madvise"]
    for advice in range(32):
        assert verdict(machine, madvise, 0, 4096, advice) == (REFUSE if advice in (20, 21) else ALLOW)


@pytest.mark.parametrize("machine", MACHINES)
def test_locks_owners_and_attributes_of_files_are_refused_and_other_commands_are_not(machine):
    fcntl, ioctl = (numbers(REST, machine)[name] for name in ("fcntl", "ioctl"))
    refused = {
        "F_SETLK": 6, "F_SETLKW": 7, "F_SETOWN": 8, "F_SETSIG": 10, "F_SETOWN_EX": 15, "F_OFD_SETLK": 37, "F_OFD_SETLKW": 38,
        "F_SETLEASE": 1024, "F_NOTIFY": 1026, "F_SET_RW_HINT": 1036, "F_SET_FILE_RW_HINT": 1038,
    }  # fmt: skip
    needed = {"F_DUPFD": 0, "F_GETFD": 1, "F_SETFD": 2, "F_GETFL": 3, "F_SETFL": 4, "F_DUPFD_CLOEXEC": 1030, "F_ADD_SEALS": 1033}
    assert {name for name, command in refused.items() if verdict(machine, fcntl, 9, command) != REFUSE} == set()
    assert {name for name, command in needed.items() if verdict(machine, fcntl, 6, command) != ALLOW} == set()
    assert verdict(machine, fcntl, 9, 6 | 1 << 32) == REFUSE, "the kernel looks at the lower half alone"
    refused = {"FIOSETOWN": 0x8901, "SIOCSPGRP": 0x8902, "FS_IOC_SETFLAGS": 0x40086602, "FS_IOC_FSSETXATTR": 0x401C5820}
    needed = {"TCGETS": 0x5401, "TIOCGWINSZ": 0x5413, "FIONREAD": 0x541B, "FIONBIO": 0x5421, "FIOCLEX": 0x5451}
    assert {name for name, command in refused.items() if verdict(machine, ioctl, 9, command) != REFUSE} == set()
    assert {name for name, command in needed.items() if verdict(machine, ioctl, 9, command) != ALLOW} == set()


@pytest.mark.parametrize(("machine", "other"), [("x86_64", "i386"), ("x86_64", "aarch64"), ("aarch64", "x86_64")])
def test_calls_of_another_architecture_end_the_process(machine, other):
    assert verdict(machine, 3, speaks=other) == KILL and verdict(machine, 3, speaks=machine) == ALLOW


def test_the_numbers_of_x32_end_the_process():
    assert verdict("x86_64", 0x40000000) == verdict("x86_64", 0x40000000 + 520) == KILL
    assert verdict("x86_64", 0x3FFFFFFF) == ALLOW
