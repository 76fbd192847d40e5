"""The system calls that a hand-in may not make, and the program by which the kernel refuses them.

A deny-list: what torch, numpy, IPython and matplotlib may need stays allowed. What is refused fails with EPERM, some of it only
with certain arguments (clone3 with ENOSYS, so that libc falls back to clone); calls of another architecture or of x32 end the
process, because there the same numbers mean other calls.
"""

from __future__ import annotations

import struct

MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column in the tables below, the kernel's name

_NUMBER, _ARCHITECTURE, _FIRST, _SECOND, _THIRD = 0, 4, 16, 24, 32  # where the call, and the lower halves of its arguments, are found

# Name: its numbers on x86_64 and aarch64; -1 where there is none.
_REFUSED = {
    # new processes and programs: they could outlive their turn (threads come by clone, below)
    "fork": (57, -1), "vfork": (58, -1), "execve": (59, 221), "execveat": (322, 281),
    # signals to others
    "kill": (62, 129), "tkill": (200, 130), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
    "pidfd_open": (434, 434), "pidfd_send_signal": (424, 424),
    # the memory, the files and the scheduling of other processes of the same user
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272), "pidfd_getfd": (438, 438),
    "setpriority": (141, 140), "ioprio_set": (251, 30), "sched_setparam": (142, 118), "sched_setscheduler": (144, 119),
    "sched_setattr": (314, 274), "sched_setaffinity": (203, 122), "migrate_pages": (256, 238), "move_pages": (279, 239),
    # the network, and sockets by which hand-ins could meet
    "socket": (41, 198), "connect": (42, 203), "bind": (49, 200),
    # shared memory, queues and semaphores, which outlive a process; also by a guessed number
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195),
    "msgget": (68, 186), "msgsnd": (69, 189), "msgrcv": (70, 188), "msgctl": (71, 187),
    "semget": (64, 190), "semop": (65, 193), "semctl": (66, 191), "semtimedop": (220, 192), "mq_open": (240, 180), "mq_unlink": (241, 181),
    # ways out of its place in the tree of files
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "fsmount": (432, 432), "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    # mode, owner, times and attributes of files of the same user: Landlock lets them be changed
    "chmod": (90, -1), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, -1), "fchown": (93, 55), "lchown": (94, -1), "fchownat": (260, 54),
    "utime": (132, -1), "utimes": (235, -1), "futimesat": (261, -1), "utimensat": (280, 88),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "setxattrat": (463, 463),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16), "removexattrat": (466, 466), "file_setattr": (469, 469),
    # locks and news of shared files, and their place in the page cache: ways to send a word to another hand-in
    "flock": (73, 32), "inotify_init": (253, -1), "inotify_init1": (294, 26), "fanotify_init": (300, 262),
    "mincore": (27, 232), "cachestat": (451, 451), "fadvise64": (221, 223), "readahead": (187, 213),
    "preadv2": (327, 286), "pwritev2": (328, 287), "process_madvise": (440, 440),
    # memory that no limit counts
    "memfd_create": (319, 279), "memfd_secret": (447, 447),
    # large doors of the kernel that no notebook needs
    "bpf": (321, 280), "perf_event_open": (298, 241), "io_uring_setup": (425, 425), "userfaultfd": (323, 282),
    "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218),
}  # fmt: skip
# Refused with these values of one argument: numbers, which argument, its values.
_REFUSED_COMMANDS = {
    # F_SETLK, F_SETLKW, F_SETOWN, F_SETSIG, F_SETOWN_EX, F_OFD_SETLK, F_OFD_SETLKW, F_SETLEASE, F_NOTIFY, F_SET_RW_HINT,
    # F_SET_FILE_RW_HINT: locks, a signal to whomever is named owner, and words kept with a shared file
    "fcntl": ((72, 25), _SECOND, (6, 7, 8, 10, 15, 37, 38, 1024, 1026, 1036, 1038)),
    # FIOSETOWN, SIOCSPGRP: again an owner; FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR: attributes of a file
    "ioctl": ((16, 29), _SECOND, (0x8901, 0x8902, 0x40086602, 0x401C5820)),
    # MADV_COLD, MADV_PAGEOUT: who is pushed out of memory tells the next hand-in something
    "madvise": ((28, 233), _THIRD, (20, 21)),
}
# Allowed with just one value of the first argument: None stands for the process itself.
_ALLOWED_ON = {"tgkill": ((234, 131), None), "prlimit64": ((302, 261), 0)}
_CLONE, _CLONE3, _CLONE_THREAD = (56, 220), (435, 435), 0x10000

_LOAD, _EQUAL, _AT_LEAST, _HAS, _GIVE = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, REFUSE, UNKNOWN, KILL = 0x7FFF0000, 0x00050001, 0x00050026, 0x80000000  # go on, EPERM, ENOSYS, end the process


def program(machine: str, pid: int) -> bytes:
    """The filter for the process `pid` on `machine`, eight bytes a step. Raises KeyError for a machine without a table."""
    column, architecture = MACHINES[machine]
    steps = [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, architecture), (_GIVE, 0, 0, KILL)]
    steps += [(_LOAD, 0, 0, _NUMBER), (_AT_LEAST, 0, 1, 0x40000000), (_GIVE, 0, 0, KILL)]  # the x32 numbers of x86_64
    steps += [(_EQUAL, 0, 1, _CLONE3[column]), (_GIVE, 0, 0, UNKNOWN)]  # libc then asks with clone, whose flags can be seen
    for numbers in _REFUSED.values():
        if numbers[column] >= 0:
            steps += [(_EQUAL, 0, 1, numbers[column]), (_GIVE, 0, 0, REFUSE)]
    for numbers, place, commands in _REFUSED_COMMANDS.values():
        tests = [step for command in commands for step in ((_EQUAL, 0, 1, command), (_GIVE, 0, 0, REFUSE))]
        steps += [(_EQUAL, 0, len(tests) + 2, numbers[column]), (_LOAD, 0, 0, place), *tests, (_GIVE, 0, 0, ALLOW)]
    allowed = [(_CLONE, (_HAS, 0, 1, _CLONE_THREAD))]  # threads only
    allowed += [(numbers, (_EQUAL, 0, 1, pid if value is None else value)) for numbers, value in _ALLOWED_ON.values()]
    for numbers, test in allowed:
        steps += [(_EQUAL, 0, 4, numbers[column]), (_LOAD, 0, 0, _FIRST), test, (_GIVE, 0, 0, ALLOW), (_GIVE, 0, 0, REFUSE)]
    return b"".join(struct.pack("=HBBI", *step) for step in [*steps, (_GIVE, 0, 0, ALLOW)])
