"""The ledger of a run, and what it says (`LedgerState`). It is the file of events: one JSON record per line,
appended whole or not at all.

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
import math
import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from vesalius.documents.base import first_error
from vesalius.documents.scorecard import CaseError
from vesalius.errors import BadInput, Failed, note, shortened
from vesalius.values import JsonObject

Record = JsonObject
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

    def append(self, event: str, **fields: object) -> Record:
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


# What the ledger of a benchmark says: the latest result of every step of every case, what failed, and what calls used.
#
# Every benchmark replays its ledger through `LedgerState`. It names its steps in order; a new result (or failure) of
# the first step makes everything known of the case void, because the later steps were about the old one.

FAILED = "failed"


class Totals(BaseModel):
    """Totals of recorded calls of language models. `cost` is the sum of known costs, None where one is not known;
    `at_most` also counts what may have been charged without a bill, such as a call whose process was killed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost: float | None = 0.0
    at_most: float = 0.0

    @classmethod
    def together(cls, parts: Iterable["Totals"]) -> "Totals":
        """The sum of several totals; the cost is not known where one part's is not."""
        parts = list(parts)
        costs = [part.cost for part in parts if part.cost is not None]
        return cls(
            calls=sum(part.calls for part in parts),
            input_tokens=sum(part.input_tokens for part in parts),
            output_tokens=sum(part.output_tokens for part in parts),
            cached_tokens=sum(part.cached_tokens for part in parts),
            cost=math.fsum(costs) if len(costs) == len(parts) else None,
            at_most=math.fsum(part.at_most for part in parts),
        )


@dataclass(frozen=True)
class LedgerStep:
    """A step of a benchmark: its name, the event that its results are written under, and what is kept of a record."""

    name: str
    event: str
    result: Callable[[Record], Any]


class LedgerState:
    """A run so far. `results` is by step and case, `failed` and `used` by case and step, the latest of each."""

    def __init__(self, steps: Sequence[LedgerStep], records: Iterable[Record] = ()) -> None:
        self._steps = steps
        self.results: dict[str, dict[Any, Any]] = {step.name: {} for step in steps}
        self.failed: dict[tuple[Any, str], CaseError] = {}
        self.used: dict[tuple[Any, str], Totals] = {}
        for number, record in enumerate(records, 1):
            try:
                self.note(record)
            except (AttributeError, LookupError, TypeError, ValueError) as error:  # ledgers without checksums are read
                why = first_error(error) if isinstance(error, ValidationError) else f"{type(error).__name__}: {error}"
                raise BadInput(
                    f"events.jsonl, record {number}: is not one of this benchmark ({shortened(why, 160)}); {REMEDY}"
                ) from None

    def note(self, record: Record) -> None:
        """Take one record in."""
        step = self._step(record)
        if step is None:
            return
        case = self.key(record)
        if step is self._steps[0]:
            self._forget(case)
        if record["event"] == FAILED:
            named = {name: record.get(name) for name in ("step", "method")}
            self.failed[case, step.name] = CaseError(
                case=record["case"], kind=record["kind"], reason=record["reason"], **named
            )
        else:
            self.results[step.name][case] = step.result(record)
            self.failed.pop((case, step.name), None)
        if record.get("used"):
            self.used[case, step.name] = Totals.model_validate(record["used"])

    def key(self, record: Record) -> Any:
        """What a record is about: its case."""
        return record.get("case", "")

    def total(self, step: str | None = None, case: str | None = None) -> Totals:
        """What calls used, over all cases and steps or one of them."""
        return Totals.together(
            used
            for (whose, which), used in sorted(self.used.items())
            if step in (None, which) and case in (None, whose)
        )

    @property
    def first_failure(self) -> str:
        """Why the first case failed, for a run that has no result at all."""
        return next((error.reason for error in self.failed.values()), "nothing was run")

    @property
    def errors(self) -> tuple[CaseError, ...]:
        """Every failure, by case and step."""
        return tuple(error for _, error in sorted(self.failed.items()))

    def _step(self, record: Record) -> LedgerStep | None:
        if record["event"] == FAILED:
            name = record.get("step", self._steps[0].name)
            return {step.name: step for step in self._steps}[name]
        return next((step for step in self._steps if step.event == record["event"]), None)

    def _forget(self, case: object) -> None:
        for step in self._steps:
            self.results[step.name].pop(case, None)
            self.failed.pop((case, step.name), None)
