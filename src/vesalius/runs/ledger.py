"""The file of events: one JSON record per line, appended whole or not at all.

Each record is one `write` to a file opened for appending, and is on the disk before `append` returns, so a result that
was paid for is never lost. A process killed in the middle leaves at most one half-written line at the end:
opening drops it. A damaged line anywhere else was not made by a crash, so it is refused. One process at a time holds a
ledger.
"""

import fcntl
import json
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from vesalius.errors import BadInput, Failed

Record = dict[str, Any]


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
            self.records = self._read()
        except (BadInput, Failed):
            os.close(self._file)
            raise

    def append(self, event: str, **fields: Any) -> Record:
        """Write one record down; it is on the disk when this returns."""
        record = {"event": event, "time": round(time.time(), 3), **fields}
        line = json.dumps(record, ensure_ascii=False, allow_nan=False).encode() + b"\n"
        try:
            written = os.write(self._file, line)
            os.fsync(self._file)
        except OSError as error:
            raise self._unwritten(error.strerror or str(error)) from None
        if written < len(line):
            raise self._unwritten("only part of a record fitted")
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
                f"{self.path.parent}: another process is working on this run; wait for it or choose another --out"
            ) from None
        except OSError as error:
            raise Failed(f"{self.path}: cannot be locked ({error.strerror}); choose another place") from None

    def _read(self) -> list[Record]:
        data = self.path.read_bytes()
        lines = data.split(b"\n")
        whole, rest = lines[:-1], lines[-1]
        records: list[Record] = []
        for number, line in enumerate(whole, 1):
            record = _record(line)
            if record is None and number < len(whole) + bool(rest):
                raise BadInput(
                    f"{self.path}, line {number}: not a record; put back a good copy or choose another --out"
                )
            if record is not None:
                records.append(record)
        kept = sum(len(line) + 1 for line in whole[: len(records)])
        if kept < len(data):
            os.ftruncate(self._file, kept)
            os.fsync(self._file)
        return records

    def _unwritten(self, why: str) -> Failed:
        return Failed(f"{self.path}: could not be written ({why}); free some space, then the same command continues")


def _record(line: bytes) -> Record | None:
    try:
        data = json.loads(line)
    except ValueError:  # neither JSON nor UTF-8
        return None
    return data if isinstance(data, dict) and isinstance(data.get("event"), str) else None
