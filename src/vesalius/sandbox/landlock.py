"""Landlock: a process gives up, for good, every file it has not listed. Needs no privileges.

The kernel calls have the same numbers on every architecture. A ruleset lists the rights it governs; a right that is
governed and not granted is refused.
"""

import contextlib
import ctypes
import os
import stat
from collections.abc import Iterable

from vesalius.sandbox import kernel

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
        return kernel.syscall("landlock_create_ruleset", _CREATE_RULESET, None, 0, _VERSION_QUERY)
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
    ruleset = kernel.syscall("landlock_create_ruleset", _CREATE_RULESET, ctypes.byref(attributes), size, 0)
    try:
        for path in readable:
            _grant(ruleset, path, READ)
        for path in writable:
            _grant(ruleset, path, files & ~_EXECUTE)
        for path in no_links:
            _grant(ruleset, path, _NO_LINKS & files)
        kernel.syscall("landlock_restrict_self", _RESTRICT_SELF, ruleset, 0)
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
            kernel.syscall("landlock_add_rule", _ADD_RULE, ruleset, number, ctypes.byref(rule), 0)
        finally:
            os.close(descriptor)
