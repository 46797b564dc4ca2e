"""The list of kernel calls that code in the sandbox may make; all others are refused.

On the list is what a numerical program needs: files, memory, clocks, its own signals. Not on the list: sockets of any
kind, new processes and threads, executing programs, tracing, mounts, namespaces, keys, BPF, shared memory, changing the
owner or mode of a file. Calls that can be dangerous are allowed for listed arguments only. A refused call returns an
error number, not a signal, so the program sees an ordinary Python exception.
"""

import ctypes
import errno
import struct

from vesalius.sandbox import kernel

#: name: (number on x86_64, number on aarch64); None where the architecture has no such call.
ALLOWED: dict[str, tuple[int | None, int | None]] = {
    # files
    "read": (0, 63), "write": (1, 64), "open": (2, None), "openat": (257, 56), "close": (3, 57),
    "close_range": (436, 436), "creat": (85, None), "lseek": (8, 62), "pread64": (17, 67), "pwrite64": (18, 68),
    "readv": (19, 65), "writev": (20, 66), "preadv": (295, 69), "pwritev": (296, 70), "stat": (4, None),
    "fstat": (5, 80), "lstat": (6, None), "newfstatat": (262, 79), "statx": (332, 291), "access": (21, None),
    "faccessat": (269, 48), "faccessat2": (439, 439), "dup": (32, 23), "dup2": (33, None), "dup3": (292, 24),
    "pipe": (22, None), "pipe2": (293, 59), "flock": (73, 32), "fsync": (74, 82), "fdatasync": (75, 83),
    "truncate": (76, 45), "ftruncate": (77, 46), "fallocate": (285, 47), "fadvise64": (221, 223),
    "getdents": (78, None), "getdents64": (217, 61), "getcwd": (79, 17), "chdir": (80, 49), "fchdir": (81, 50),
    "rename": (82, None), "renameat": (264, 38), "renameat2": (316, 276), "mkdir": (83, None), "mkdirat": (258, 34),
    "rmdir": (84, None), "link": (86, None), "linkat": (265, 37), "unlink": (87, None), "unlinkat": (263, 35),
    "symlink": (88, None), "symlinkat": (266, 36), "readlink": (89, None), "readlinkat": (267, 78),
    "umask": (95, 166), "statfs": (137, 43), "fstatfs": (138, 44), "sendfile": (40, 71), "splice": (275, 76),
    "copy_file_range": (326, 285),
    # waiting
    "poll": (7, None), "ppoll": (271, 73), "select": (23, None), "pselect6": (270, 72), "epoll_create": (213, None),
    "epoll_create1": (291, 20), "epoll_ctl": (233, 21), "epoll_wait": (232, None), "epoll_pwait": (281, 22),
    "eventfd": (284, None), "eventfd2": (290, 19), "timerfd_create": (283, 85), "timerfd_settime": (286, 86),
    "timerfd_gettime": (287, 87), "futex": (202, 98), "pause": (34, None), "restart_syscall": (219, 128),
    # memory
    "mmap": (9, 222), "mprotect": (10, 226), "munmap": (11, 215), "brk": (12, 214), "mremap": (25, 216),
    "msync": (26, 227), "mincore": (27, 232), "madvise": (28, 233), "get_mempolicy": (239, 236),
    "membarrier": (324, 283),
    # time
    "nanosleep": (35, 101), "clock_nanosleep": (230, 115), "clock_gettime": (228, 113), "clock_getres": (229, 114),
    "gettimeofday": (96, 169), "time": (201, None), "times": (100, 153), "alarm": (37, None),
    "getitimer": (36, 102), "setitimer": (38, 103), "timer_create": (222, 107), "timer_settime": (223, 110),
    "timer_gettime": (224, 108), "timer_getoverrun": (225, 109), "timer_delete": (226, 111),
    # its own signals
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "rt_sigpending": (127, 136),
    "rt_sigtimedwait": (128, 137), "rt_sigsuspend": (130, 133), "sigaltstack": (131, 132),
    # identity and resources
    "getpid": (39, 172), "getppid": (110, 173), "gettid": (186, 178), "getpgrp": (111, None), "getpgid": (121, 155),
    "getsid": (124, 156), "getuid": (102, 174), "geteuid": (107, 175), "getgid": (104, 176), "getegid": (108, 177),
    "getgroups": (115, 158), "getresuid": (118, 148), "getresgid": (120, 150), "capget": (125, 90),
    "uname": (63, 160), "sysinfo": (99, 179), "getrlimit": (97, 163), "getrusage": (98, 165), "getcpu": (309, 168),
    "getpriority": (140, 141), "sched_yield": (24, 124), "sched_getaffinity": (204, 123),
    "sched_getparam": (143, 121), "sched_getscheduler": (145, 120), "sched_get_priority_max": (146, 125),
    "sched_get_priority_min": (147, 126), "getrandom": (318, 278),
    # its one thread, and exit
    "arch_prctl": (158, None), "set_tid_address": (218, 96), "set_robust_list": (273, 99),
    "get_robust_list": (274, 100), "rseq": (334, 293), "exit": (60, 93), "exit_group": (231, 94),
}  # fmt: skip
#: Calls allowed for some values of one argument: name: (numbers, which argument, values). -1 is the process's own id.
OWN_ID = -1
CONDITIONAL: dict[str, tuple[tuple[int, int], int, tuple[int, ...]]] = {
    "kill": ((62, 129), 0, (OWN_ID,)),
    "tgkill": ((234, 131), 0, (OWN_ID,)),
    "prlimit64": ((302, 261), 0, (0, OWN_ID)),
    # set and get the thread's name, name a mapping
    "prctl": ((157, 167), 0, (15, 16, 0x53564D41)),
    # duplicate, flags, locks, pipe size; not the ones that send signals to an owner
    "fcntl": ((72, 25), 1, (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030, 1032)),
    # is it a terminal, its size, bytes waiting, non-blocking, close on exec
    "ioctl": ((16, 29), 1, (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)),
}
#: A second process or thread: refused with the error the kernel gives for a full process table.
_NEW_PROCESS = ((56, 220), (57, None), (58, None))
_CLONE3 = 435  # its flags are in memory, where a filter cannot read them; without it libc falls back to clone
_LAST_KNOWN = 450

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_ALLOW, _ERRNO, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
_LOAD, _JUMP_EQUAL, _JUMP_GREATER, _RETURN = 0x20, 0x15, 0x25, 0x06
_NUMBER_AT, _ARCH_AT, _ARGUMENTS_AT = 0, 4, 16
_X32_BIT = 0x40000000
_PR_GET_SECCOMP, _PR_SET_SECCOMP, _MODE_FILTER = 21, 22, 2

Instruction = tuple[int, int, int, int]


def supported() -> bool:
    """Whether this kernel and architecture can filter calls."""
    if kernel.MACHINE not in _AUDIT_ARCH:
        return False
    try:
        kernel.prctl(_PR_GET_SECCOMP)
    except OSError:
        return False
    return True


def program(machine: str, own_id: int) -> list[Instruction]:
    """The filter for one process, as BPF instructions (code, jump if true, jump if false, value)."""
    column = list(_AUDIT_ARCH).index(machine)
    refuse = _returns(_ERRNO | errno.EPERM)
    steps: list[Instruction] = [
        (_LOAD, 0, 0, _ARCH_AT),
        (_JUMP_EQUAL, 1, 0, _AUDIT_ARCH[machine]),
        _returns(_KILL_PROCESS),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_JUMP_GREATER, 0, 1, _X32_BIT - 1),
        _returns(_KILL_PROCESS),
        (_JUMP_GREATER, 0, 1, _LAST_KNOWN),
        _returns(_ERRNO | errno.ENOSYS),
        *_when(_CLONE3, [_returns(_ERRNO | errno.ENOSYS)]),
    ]
    for numbers in _NEW_PROCESS:
        steps += _when(numbers[column], [_returns(_ERRNO | errno.EAGAIN)])
    for numbers, argument, values in CONDITIONAL.values():
        check: list[Instruction] = [(_LOAD, 0, 0, _ARGUMENTS_AT + 8 * argument)]
        for value in values:
            check += _when((own_id if value == OWN_ID else value) & 0xFFFFFFFF, [_returns(_ALLOW)])
        steps += _when(numbers[column], [*check, refuse])
    for numbers in ALLOWED.values():
        steps += _when(numbers[column], [_returns(_ALLOW)])
    return [*steps, refuse]


def install(own_id: int) -> None:
    """Restrict this process to the list for good. `no_new_privs` must be set."""
    packed = b"".join(struct.pack("HBBI", *step) for step in program(kernel.MACHINE, own_id))
    steps = ctypes.create_string_buffer(packed, len(packed))
    header = struct.pack("HP", len(packed) // 8, ctypes.addressof(steps))
    pointer = ctypes.create_string_buffer(header, len(header))
    kernel.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.c_void_p(ctypes.addressof(pointer)))


def _returns(value: int) -> Instruction:
    return (_RETURN, 0, 0, value)


def _when(value: int | None, steps: list[Instruction]) -> list[Instruction]:
    """Run `steps` (which end in a return) when the loaded word equals `value`; nothing where there is no such call."""
    return [] if value is None else [(_JUMP_EQUAL, 0, len(steps), value), *steps]
