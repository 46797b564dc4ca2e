"""The kernel calls the sandbox needs, by ctypes: namespaces, mounts, capabilities.

Every function raises `OSError` with the name of the call. The decisions are made elsewhere.
"""

import contextlib
import ctypes
import os
import platform
import stat
from collections.abc import Iterable

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


def restrict(*, readable: Iterable[str], writable: Iterable[str], no_links: Iterable[str] = ()) -> None:
    """Give up every file outside these trees, TCP, and signals to processes outside. `no_new_privs` must be set.

    In a `no_links` tree files and directories may be created, changed and removed, but not links or special files.
    """
    abi = version()
    files = (1 << _FILE_RIGHT_COUNT.get(abi, 16)) - 1
    governed = [files, _NETWORK_RIGHTS, _SCOPES][: 3 if abi >= 6 else 2 if abi >= 4 else 1]
    attributes = (ctypes.c_uint64 * len(governed))(*governed)
    size = ctypes.sizeof(attributes)
    ruleset = syscall("landlock_create_ruleset", _CREATE_RULESET, ctypes.byref(attributes), size, 0)
    try:
        for path in readable:
            _grant(ruleset, path, READ)
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
