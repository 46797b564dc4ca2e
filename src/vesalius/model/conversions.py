"""Models that were converted once and are kept in the user's cache.

A conversion is written to a temporary directory, checksummed, then renamed, so that a directory of the cache is always
complete. One that was damaged since is removed, to be made again.
"""

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from vesalius.errors import BadInput, Failed
from vesalius.files import read_json, sha256, write_json
from vesalius.values import JsonObject

RECEIPT = "receipt.json"
#: A file written less than this ago may be changed again without a later time of its own.
SETTLED_NS = 2 * 10**9


def cache_directory() -> Path:
    """Where converted models are kept: $VESALIUS_CACHE, else the user's cache directory."""
    if directory := os.environ.get("VESALIUS_CACHE"):
        return Path(directory)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vesalius"


@dataclass(frozen=True)
class Conversion:
    """A directory of the cache by its `name`, and what it must have been made from: a digest of the `source`."""

    name: str
    source: str

    @property
    def directory(self) -> Path:
        """Where it is, or would be."""
        return cache_directory() / self.name

    @property
    def receipt(self) -> JsonObject:
        """What is known of it: its source, the checksums of its files, and what its maker noted."""
        return read_json(self.directory / RECEIPT)

    def is_complete(self) -> bool:
        """True if it is there and unchanged; a damaged one is removed. Files whose size and time are those of the last
        check are not read again.
        """
        target = self.directory
        if not target.exists():
            return False
        try:
            receipt = self.receipt
            files = receipt.get("files")
            files = files if isinstance(files, dict) else {}
            complete = (
                receipt.get("source") == self.source and bool(files) and all((target / n).is_file() for n in files)
            )
            stamps = {name: _stamp(target / name) for name in files} if complete else {}
            if complete and stamps != receipt.get("checked"):
                complete = all(sha256(target / name) == digest for name, digest in files.items())
                if complete and all(time.time_ns() - written > SETTLED_NS for _, written in stamps.values()):
                    self._note_checked({**receipt, "checked": stamps})
        except BadInput:
            complete = False
        if not complete:
            shutil.rmtree(target)
        return complete

    def make(self, write: Callable[[Path], None], about: Mapping[str, object] | None = None) -> Path:
        """Have `write` fill a directory and put it in its place, with what is to be noted about it. Of two processes
        that do so at once, the first to finish is kept.
        """
        target = self.directory
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(target.parent)
        partial = Path(tempfile.mkdtemp(prefix=f"{self.name}.partial-{os.getpid()}-", dir=target.parent))
        try:
            write(partial)
            names = sorted(path.name for path in partial.iterdir())
            files = {name: sha256(partial / name) for name in names}
            write_json(partial / RECEIPT, {"source": self.source, "files": files, **(about or {})})
            try:
                os.rename(partial, target)
            except OSError:
                if not self.is_complete():  # another process may have finished first
                    raise
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return target

    def _note_checked(self, receipt: dict[str, object]) -> None:
        """Keep the stamps of checked files; where the cache may only be read, they are read again next time."""
        with contextlib.suppress(Failed):
            write_json(self.directory / RECEIPT, receipt)


def _stamp(file: Path) -> list[int]:
    """Size, and when it was last written."""
    about = file.stat()
    return [about.st_size, about.st_mtime_ns]


def _remove_leftovers(cache: Path) -> None:
    """Remove partial conversions of processes that have ended."""
    for leftover in cache.glob("*.partial-*"):
        pid = leftover.name.partition(".partial-")[2].split("-")[0]
        if leftover.is_dir() and (not pid.isdigit() or not _alive(int(pid))):
            shutil.rmtree(leftover, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
