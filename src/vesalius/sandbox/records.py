"""The records that a program sends, read on the caller's side: bounded before they are parsed, cleaned once parsed.

A program can write what it likes to its report. A line counts only if it is no longer than one result may be, there
are no more lines than records to come (and a few to spare), and it is a JSON object; texts lose lone surrogates and
values their bottomless nesting, so that whatever is kept can be written to a file.
"""

import json
import time
from dataclasses import dataclass, field
from typing import Any

from vesalius.sandbox.bounded_json import bounded_json

Record = dict[str, Any]
#: Lines that are not records before the program is stopped.
SPARE_LINES = 100
#: JSON around a result: quotes, escapes, the record.
OVERHEAD = 64_000
MAX_ERROR = 20_000


@dataclass
class RecordReader:
    """The records of one call as they come. `expected` is how many an honest program sends."""

    expected: int
    #: The longest line that is parsed.
    max_line: int
    #: All lines together.
    max_bytes: int
    records: list[Record] = field(default_factory=list)
    #: Seconds from the start of the call to each record.
    arrivals: list[float] = field(default_factory=list)
    #: Set when the program has sent more than it may.
    exceeded: bool = False
    _lines: int = 0
    _bytes: int = 0
    _partial: bytearray = field(default_factory=bytearray)
    _began: float = field(default_factory=time.monotonic)
    _last: float = field(default_factory=time.monotonic)

    @property
    def last_record(self) -> float:
        """When the last record came, or the call began."""
        return self._last

    def feed(self, data: bytes) -> None:
        """Take in what was read from the pipe."""
        start = 0
        self._bytes += len(data)
        self.exceeded = self.exceeded or self._bytes > self.max_bytes
        while not self.exceeded and (end := data.find(b"\n", start)) >= 0:
            self._partial += data[start:end]
            self._line(bytes(self._partial))
            self._partial.clear()
            start = end + 1
        if not self.exceeded:
            self._partial += data[start:]
            self.exceeded = len(self._partial) > self.max_line

    def _line(self, line: bytes) -> None:
        self._lines += 1
        if len(line) > self.max_line or self._lines > self.expected + SPARE_LINES:
            self.exceeded = True
            return
        record = parse(line)
        if record is not None:
            self._last = time.monotonic()
            self.records.append(record)
            self.arrivals.append(self._last - self._began)


def parse(line: bytes) -> Record | None:
    """One record, cleaned; None if the line is none."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    cleaned: Record = {}
    if "value" in record:
        cleaned["value"] = bounded_json(record["value"], max_text=len(line))
    if record.get("error") is not None:
        error = record["error"] if isinstance(record["error"], str) else "it reported an error that is not text"
        cleaned["error"] = bounded_json(error, max_text=MAX_ERROR)
    if record.get("defined") is True:
        cleaned["defined"] = True
    if isinstance(record.get("stopped_by"), str):
        cleaned["stopped_by"] = record["stopped_by"]
    return cleaned
