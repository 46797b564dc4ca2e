"""A disk without room, and a place that is read-only, for tests of what is written."""

import ctypes
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Rights by which root writes and reads anything, by their numbers in the kernel, and the version of its call.
OVERRIDES, VERSION = (1, 2), 0x20080522


@contextmanager
def no_room(left: int = 0) -> Iterator[None]:
    """Every write beyond the first `left` bytes of a file fails, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (left, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def read_only(place: Path) -> Iterator[None]:
    """Nothing can be made or changed below a directory, by root neither."""
    libc = ctypes.CDLL(None, use_errno=True)
    header, before = (ctypes.c_uint32 * 2)(VERSION, 0), (ctypes.c_uint32 * 6)()
    assert libc.capget(header, before) == 0
    less = (ctypes.c_uint32 * 6)(*before)
    less[0] &= ~sum(1 << number for number in OVERRIDES)
    below = [place, *(path for path in place.rglob("*"))]
    rights = {path: path.stat().st_mode for path in below}
    for path in reversed(below):
        path.chmod(0o555 if path.is_dir() else 0o444)
    assert libc.capset(header, less) == 0
    try:
        yield
    finally:
        assert libc.capset(header, before) == 0
        for path, mode in rights.items():
            path.chmod(mode)
