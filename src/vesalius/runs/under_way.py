"""Which process works on a directory, and what it is doing: `under_way.json`, locked for as long as the work lasts.

The lock is what counts, not the file: a process that is killed leaves the file and loses the lock. Asking who holds it
(`F_GETLK`) takes no lock, so watching a run never disturbs it. Processes that the worker forks do not inherit it.
"""

import fcntl
import json
import os
import platform
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vesalius.errors import Failed
from vesalius.progress import Progress

FILE = "under_way.json"
#: Seconds between two notes of the same step.
EVERY = 0.5
#: Bytes of the file that are read.
MOST_BYTES = 20_000
#: Characters of a step's name.
LONGEST_STEP = 200
#: The kernel's `struct flock`, and where the type of the lock and the number of its process stand in it.
_LAYOUT, _KIND, _PID = ("qqihh", 3, 2) if sys.platform == "darwin" else ("hhqqi", 0, 4)
#: What this process holds: opening and closing one of these files again would give its lock away.
_held: "dict[Path, _Mark]" = {}


@dataclass(frozen=True)
class Worker:
    """A process at work. `here`: it runs on this machine, and the kernel and the file name the same process."""

    pid: int
    here: bool
    started: float | None = None
    step: str = ""
    done: int = 0
    total: int = 0


@contextmanager
def under_way(directory: Path | None, progress: Progress) -> Iterator[Progress]:
    """Mark a directory as being worked on; the progress that is reported is noted in the mark as well.

    A second process is refused. Where the file system has no locks there is no mark.
    """
    if directory is None:
        yield progress
        return
    path = _path(directory)
    file = _lock(path)
    if file is None:
        yield progress
        return
    mark = _held[path] = _Mark(file, progress)
    try:
        mark.write()
        yield mark
    finally:
        path.unlink(missing_ok=True)
        os.close(file)
        del _held[path]


def worker_of(directory: Path) -> Worker | None:
    """The process that works on a directory; None where there is none."""
    path = _path(directory)
    own = _held.get(path)
    pid = _holder(path) if own is None else os.getpid()
    if pid is None:
        return None
    noted = _noted(path) if own is None else own.noted
    here = pid > 0 and noted.get("pid") == pid and noted.get("host") == platform.node()
    count = {name: value for name in ("done", "total") if isinstance(value := noted.get(name), int) and value >= 0}
    started = noted.get("started")
    return Worker(
        pid,
        here,
        started=started if isinstance(started, float) else None,
        step=" ".join(str(noted.get("step", "")).split())[:LONGEST_STEP],
        **count,
    )


class _Mark:
    """The progress of the work, passed on and written into the locked file."""

    def __init__(self, file: int, progress: Progress) -> None:
        self._file, self._progress = file, progress
        self.noted: dict[str, Any] = {"pid": os.getpid(), "host": platform.node(), "started": time.time()}
        self._last = time.monotonic()

    def __call__(self, step: str, done: int, total: int) -> None:
        self._progress(step, done, total)
        now = time.monotonic()
        if step != self.noted.get("step") or now - self._last >= EVERY:
            self._last = now
            self.noted |= {"step": step[:LONGEST_STEP], "done": done, "total": total}
            self.write()

    def write(self) -> None:
        """Put down what is known; a full disk must not stop the work itself."""
        data = json.dumps(self.noted).encode()
        with suppress(OSError):
            os.pwrite(self._file, data, 0)
            os.ftruncate(self._file, len(data))


def _path(directory: Path) -> Path:
    """The file in a directory; a link in its place is not followed, since the file is overwritten and removed."""
    return directory.resolve() / FILE


def _lock(path: Path) -> int | None:
    """The open and locked file; None where files cannot be locked."""
    busy = Failed(f"{path.parent}: another process is working on it; wait for it or choose another `out`")
    if path in _held:
        raise busy
    while True:
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            raise Failed(f"{path}: cannot be opened ({error.strerror}); choose another place") from None
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            os.close(file)
            raise busy from None
        except OSError:
            os.close(file)
            return None
        if os.fstat(file).st_nlink:
            return file
        os.close(file)  # the process before removed it between the two calls


def _holder(path: Path) -> int | None:
    """The process that has locked a file; 0 where its number is not known here."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        asked = [0] * 5
        asked[_KIND] = fcntl.F_WRLCK
        answer = struct.unpack(_LAYOUT, fcntl.fcntl(file, fcntl.F_GETLK, struct.pack(_LAYOUT, *asked)))
    except OSError:
        return None
    finally:
        os.close(file)
    return None if answer[_KIND] == fcntl.F_UNLCK else max(0, answer[_PID])


def _noted(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            noted = json.loads(file.read(MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return noted if isinstance(noted, dict) else {}
