"""A disk without room, for tests of what is written."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_room(left: int = 0) -> Iterator[None]:
    """Every write beyond the first `left` bytes of a file fails, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (left, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
