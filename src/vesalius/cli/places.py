"""Where a command leaves its files: the directory asked for, or one of its own under `vesalius-runs`."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vesalius.errors import BadInput

RUNS = "vesalius-runs"


def out_directory(out: str | None, *words: str | None) -> Path:
    """Make and return `--out`, or a directory of `vesalius-runs` named by the words."""
    directory = Path(out) if out else Path(RUNS) / "-".join(word.replace("/", "_") for word in words if word)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"--out {directory}: cannot be used as a directory ({error.strerror})") from None
    if not os.access(directory, os.W_OK):
        raise BadInput(f"--out {directory}: cannot be written to; choose another place")
    return directory


@contextmanager
def leaving_nothing_empty(directory: Path) -> Iterator[None]:
    """Take the directory away again where the work is refused or fails before anything is written to it."""
    try:
        yield
    except BaseException:
        with suppress(OSError):  # something is in it
            directory.rmdir()
        raise
