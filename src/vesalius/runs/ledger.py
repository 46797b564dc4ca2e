"""The file of events: one JSON record per line, appended whole or not at all.

Each record is one `write` to a file opened for appending, and is on the disk before `append` returns, so a result that
was paid for is never lost. A process killed in the middle leaves at most one half-written line at the end:
opening drops it. A damaged line anywhere else was not made by a crash, so it is refused. One process at a time holds a
ledger.

Each line ends in a checksum of itself and of all lines before it, so a line that was changed, removed, added or moved
is refused by its number. It shows accidents and careless edits; it does not stop an author who computes them all anew.
Ledgers of before 0.2 have no checksums: they are read with a note, and lines added to them have one.
"""

import fcntl
import hashlib
import json
import os
import re
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from vesalius.errors import BadInput, Failed, note

Record = dict[str, Any]
#: What to do about a damaged file, for commands that read a run and for those that would continue it.
REMEDY = "put back a good copy, or begin the run anew in another directory"
#: The end of a line: its checksum.
_CHECK = re.compile(rb', "check": "([0-9a-f]{32})"}\Z')


class Ledger:
    """An open file of events, locked. `records` are all whole records, those of earlier processes first."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise Failed(f"{path}: cannot be opened ({error.strerror}); choose another place") from None
        try:
            self._lock()
            self.records, self._digest, kept = _read(path)
            if kept < path.stat().st_size:
                os.ftruncate(self._file, kept)
                os.fsync(self._file)
        except (BadInput, Failed):
            os.close(self._file)
            raise

    def append(self, event: str, **fields: Any) -> Record:
        """Write one record down; it is on the disk when this returns."""
        record = {"event": event, "time": round(time.time(), 3), **fields}
        body = json.dumps(record, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")
        digest = _next_digest(self._digest, body)
        line = body[:-1] + b', "check": "' + digest.encode() + b'"}\n'
        size = os.fstat(self._file).st_size
        try:
            written = os.write(self._file, line)
            os.fsync(self._file)
        except OSError as error:
            raise self._unwritten(error.strerror or str(error), size) from None
        if written < len(line):
            raise self._unwritten("only part of a record fitted", size)
        self._digest = digest
        self.records.append(record)
        return record

    def close(self) -> None:
        """Release the ledger for other processes."""
        os.close(self._file)

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Failed(
                f"{self.path.parent}: another process is working on this run; wait for it or choose another `out`"
            ) from None
        except OSError as error:
            raise Failed(f"{self.path}: cannot be locked ({error.strerror}); choose another place") from None

    def _unwritten(self, why: str, size: int) -> Failed:
        """Half a record is taken away again, so that what this process appends next follows a whole one."""
        with suppress(OSError):
            os.ftruncate(self._file, size)
        return Failed(f"{self.path}: could not be written ({why}); free some space, then the same command continues")


def read_ledger(path: Path) -> list[Record]:
    """The records of a ledger that this process does not hold; nothing of the file is changed."""
    try:
        return _read(path)[0]
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror})") from None


def _read(path: Path) -> tuple[list[Record], str, int]:
    """The whole records, the digest after the last of them, and how many bytes they take."""
    data = path.read_bytes()
    *whole, rest = data.split(b"\n")
    records: list[Record] = []
    digest, checked = "", False
    for number, line in enumerate(whole, 1):
        record = _record(line)
        if record is None:
            if number < len(whole) + bool(rest):
                raise BadInput(f"{path}, line {number}: not a record; {REMEDY}")
            break
        check = _CHECK.search(line)
        digest = _next_digest(digest, line if check is None else line[: check.start()] + b"}")
        if check is None and checked:
            raise _altered(path, number, "has no checksum, as the lines before it have")
        if check is not None and check[1].decode() != digest:
            raise _altered(path, number, "does not match its checksum")
        checked = check is not None
        record.pop("check", None)
        records.append(record)
    if records and not checked:
        note(f"{path}: was written without checksums, so changes to it cannot be noticed")
    return records, digest, sum(len(line) + 1 for line in whole[: len(records)])


def _altered(path: Path, number: int, what: str) -> BadInput:
    return BadInput(
        f"{path}, line {number}: {what}; it, or a line before it, was changed after it was written: {REMEDY}"
    )


def _next_digest(digest: str, line: bytes) -> str:
    """The digest after one more line."""
    return hashlib.sha256(digest.encode() + line).hexdigest()[:32]


def _record(line: bytes) -> Record | None:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):  # neither JSON nor UTF-8
        return None
    return data if isinstance(data, dict) and isinstance(data.get("event"), str) else None
