"""The kernel calls the sandbox needs, by ctypes: namespaces, mounts, capabilities.

Every function raises `OSError` with the name of the call. The decisions are made elsewhere.
"""

import contextlib
import ctypes
import errno
import os
import platform
import stat
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

MACHINE = {"arm64": "aarch64", "amd64": "x86_64"}.get(platform.machine().lower(), platform.machine().lower())

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV = 1, 2, 4
_MNT_DETACH = 2
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_MOUNT_SETATTR = 442
_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


def check(name: str, value: int) -> int:
    """The value of a call; `OSError` if it is -1."""
    if value == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return value


def syscall(name: str, number: int, *arguments: object) -> int:
    """A kernel call that libc has no function for."""
    words = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return check(name, _libc.syscall(ctypes.c_long(number), *words))


def prctl(option: int, *arguments: object) -> int:
    """`prctl(2)`; missing arguments are 0."""
    words = [ctypes.c_ulong(value) if isinstance(value, int) else value for value in arguments]
    words += [ctypes.c_ulong(0)] * (4 - len(words))
    return check("prctl", _libc.prctl(ctypes.c_int(option), *words))


def unshare(flags: int) -> None:
    """Leave the caller's namespaces for new ones."""
    check("unshare", _libc.unshare(flags))


def enter_pid_namespace(descriptor: int) -> None:
    """Create the next children in the PID namespace of `descriptor`."""
    check("setns", _libc.setns(descriptor, CLONE_NEWPID))


def mount(source: str, target: str, *, kind: str | None = None, flags: int = 0, options: str = "") -> None:
    """`mount(2)`."""
    kind_bytes = kind.encode() if kind else None
    data = options.encode() if options else None
    check("mount", _libc.mount(source.encode(), os.fsencode(target), kind_bytes, ctypes.c_ulong(flags), data))


def restrict_mount(target: str, attributes: int, *, recursive: bool) -> None:
    """Add attributes such as read-only to a mount, and to those beneath it; removes none."""
    change = (ctypes.c_uint64 * 4)(attributes, 0, 0, 0)
    flags = _AT_RECURSIVE if recursive else 0
    size = ctypes.sizeof(change)
    syscall("mount_setattr", _MOUNT_SETATTR, _AT_FDCWD, os.fsencode(target), flags, ctypes.byref(change), size)


def detach(target: str) -> None:
    """Unmount a mount and all beneath it."""
    check("umount2", _libc.umount2(os.fsencode(target), _MNT_DETACH))


def pivot_root(new_root: str, old_root: str) -> None:
    """Make `new_root` the root; the former root appears at `old_root`."""
    syscall("pivot_root", _PIVOT_ROOT[MACHINE], os.fsencode(new_root), os.fsencode(old_root))


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends."""
    prctl(_PR_SET_PDEATHSIG, 9)


def drop_privileges() -> None:
    """Give up every capability, and every way to gain one, for good."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    none = (ctypes.c_uint32 * 6)()
    check("capset", _libc.capset(header, none))
    prctl(_PR_SET_NO_NEW_PRIVS, 1)


# Landlock: a process gives up, for good, every file it has not listed. Needs no privileges.

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_QUERY, _RULE_PATH_BENEATH = 1, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE = 1 << 14
_REMOVE_DIR, _REMOVE_FILE, _MAKE_DIR, _MAKE_FILE = 1 << 4, 1 << 5, 1 << 7, 1 << 8
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
READ = _EXECUTE | _READ_FILE | _READ_DIR
_NO_LINKS = _READ_FILE | _READ_DIR | _WRITE_FILE | _TRUNCATE | _MAKE_FILE | _REMOVE_FILE | _MAKE_DIR | _REMOVE_DIR

#: The first version that governs every way to change a file's bytes (truncation came last).
SUFFICIENT_VERSION = 3
#: How many file rights each version governs: 13, then renaming across directories, truncation, device controls.
_FILE_RIGHT_COUNT = {1: 13, 2: 14, 3: 15, 4: 15}
_NETWORK_RIGHTS, _SCOPES = 0b11, 0b11


def version() -> int:
    """The Landlock version of this kernel; 0 where there is none."""
    try:
        return syscall("landlock_create_ruleset", _CREATE_RULESET, None, 0, _VERSION_QUERY)
    except OSError:
        return 0


def restrict(
    *,
    readable: Iterable[str],
    writable: Iterable[str],
    no_links: Iterable[str] = (),
    listable: Iterable[str] = (),
    network: bool = False,
) -> None:
    """Give up every file outside these trees, TCP without `network`, and signals to processes outside. `no_new_privs`
    must be set.

    Of a `listable` tree only names can be read. In a `no_links` tree files and directories may be created, changed and
    removed, but not links or special files.
    """
    abi = version()
    files = (1 << _FILE_RIGHT_COUNT.get(abi, 16)) - 1
    governed = [files, 0 if network else _NETWORK_RIGHTS, _SCOPES][: 3 if abi >= 6 else 2 if abi >= 4 else 1]
    attributes = (ctypes.c_uint64 * len(governed))(*governed)
    size = ctypes.sizeof(attributes)
    ruleset = syscall("landlock_create_ruleset", _CREATE_RULESET, ctypes.byref(attributes), size, 0)
    try:
        for path in readable:
            _grant(ruleset, path, READ)
        for path in listable:
            _grant(ruleset, path, _READ_DIR)
        for path in writable:
            _grant(ruleset, path, files & ~_EXECUTE)
        for path in no_links:
            _grant(ruleset, path, _NO_LINKS & files)
        syscall("landlock_restrict_self", _RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def _grant(ruleset: int, path: str, rights: int) -> None:
    with contextlib.suppress(FileNotFoundError, PermissionError):  # a path that cannot be opened needs no right
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
                rights &= _FILE_RIGHTS
            rule = _PathBeneath(rights, descriptor)
            number = _RULE_PATH_BENEATH
            syscall("landlock_add_rule", _ADD_RULE, ruleset, number, ctypes.byref(rule), 0)
        finally:
            os.close(descriptor)


# The list of kernel calls that code in the sandbox may make; all others are refused.
#
# On the list is what a numerical program needs: files, memory, clocks, its own signals. Not on the list: sockets of any
# kind, new processes and threads, executing programs, tracing, mounts, namespaces, keys, BPF, shared memory, changing
# the owner or mode of a file. Calls that can be dangerous are allowed for listed arguments only. A refused call returns
# an error number, not a signal, so the program sees an ordinary Python exception.

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
#: Flags of clone that make a new namespace.
_NEW_NAMESPACES = 0x7E020000 | 0x80
_CLONE3 = 435  # its flags are in memory, where a filter cannot read them; without it libc falls back to clone
_LAST_KNOWN = 450

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_ALLOW, _ERRNO, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
_LOAD, _AND, _JUMP_EQUAL, _JUMP_GREATER, _RETURN = 0x20, 0x54, 0x15, 0x25, 0x06
_NUMBER_AT, _ARCH_AT, _ARGUMENTS_AT = 0, 4, 16
_X32_BIT = 0x40000000
_PR_GET_SECCOMP, _PR_SET_SECCOMP, _MODE_FILTER = 21, 22, 2

Instruction = tuple[int, int, int, int]


@dataclass(frozen=True)
class Rules:
    """Which calls a filter allows, in the form of `ALLOWED` and `CONDITIONAL`."""

    allowed: Mapping[str, tuple[int | None, int | None]]
    conditional: Mapping[str, tuple[tuple[int | None, int | None], int, tuple[int, ...]]]
    #: New processes and threads, in this process's namespaces.
    processes: bool = False
    #: The error that refuses a new process, and the calls that are said not to be supported.
    full: int = errno.EAGAIN
    unsupported: tuple[tuple[int, int], ...] = ()


#: What a program of the warm process may call.
PROGRAM_RULES = Rules(ALLOWED, CONDITIONAL)


def supported() -> bool:
    """Whether this kernel and architecture can filter calls."""
    if MACHINE not in _AUDIT_ARCH:
        return False
    try:
        prctl(_PR_GET_SECCOMP)
    except OSError:
        return False
    return True


def program(machine: str, own_id: int, rules: Rules = PROGRAM_RULES) -> list[Instruction]:
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
    clone, *plain = _NEW_PROCESS
    ordinary = [(_LOAD, 0, 0, _ARGUMENTS_AT), (_AND, 0, 0, _NEW_NAMESPACES), *_when(0, [_returns(_ALLOW)]), refuse]
    full = [_returns(_ERRNO | rules.full)]
    for numbers in rules.unsupported:
        steps += _when(numbers[column], [_returns(_ERRNO | errno.EOPNOTSUPP)])
    steps += _when(clone[column], ordinary if rules.processes else full)
    for numbers in plain:
        steps += _when(numbers[column], [_returns(_ALLOW)] if rules.processes else full)
    for numbers, argument, values in rules.conditional.values():
        check: list[Instruction] = [(_LOAD, 0, 0, _ARGUMENTS_AT + 8 * argument)]
        for value in values:
            check += _when((own_id if value == OWN_ID else value) & 0xFFFFFFFF, [_returns(_ALLOW)])
        steps += _when(numbers[column], [*check, refuse])
    for numbers in rules.allowed.values():
        steps += _when(numbers[column], [_returns(_ALLOW)])
    return [*steps, refuse]


def install(own_id: int, rules: Rules = PROGRAM_RULES) -> None:
    """Restrict this process to the list for good. `no_new_privs` must be set."""
    packed = b"".join(struct.pack("HBBI", *step) for step in program(MACHINE, own_id, rules))
    steps = ctypes.create_string_buffer(packed, len(packed))
    header = struct.pack("HP", len(packed) // 8, ctypes.addressof(steps))
    pointer = ctypes.create_string_buffer(header, len(header))
    prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.c_void_p(ctypes.addressof(pointer)))


def _returns(value: int) -> Instruction:
    return (_RETURN, 0, 0, value)


def _when(value: int | None, steps: Sequence[Instruction]) -> list[Instruction]:
    """Run `steps` (which end in a return) when the loaded word equals `value`; nothing where there is no such call."""
    return [] if value is None else [(_JUMP_EQUAL, 0, len(steps), value), *steps]
