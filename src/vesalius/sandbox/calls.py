"""One call from the caller's side: read what the program prints and reports, stop it when it exceeds its limits.

Everything a program sends is bytes in two pipes: output, read up to a bound, and records (`records.py`). The warm
process reports how the program ended; what the program reports cannot change that.
"""

import json
import math
import os
import selectors
import signal
import socket
import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast, get_args

from vesalius.sandbox import warm_process as messages
from vesalius.sandbox.lockdown import (
    MAX_OUTPUT_FACTOR,
    CallResult,
    Limits,
    Outcome,
    ReportedLimit,
    StoppedBy,
)
from vesalius.sandbox.program import STARTED, bounded_json

# The records that a program sends, read on the caller's side: bounded before they are parsed, cleaned once parsed.

Record = dict[str, Any]
#: Lines that are not records before the program is stopped.
SPARE_LINES = 100
#: JSON around a result: quotes, escapes, the record.
OVERHEAD = 64_000
MAX_ERROR = 20_000
_STARTED = json.dumps(STARTED).encode()


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
    _last: float = math.inf

    @property
    def last_record(self) -> float:
        """When the last record came, or the program was started; infinite before, for a fork has no pace to keep."""
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
        if self._lines == 1 and line == _STARTED:  # written before the program runs, which cannot write a first line
            self._last = time.monotonic()
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
    for name in ("value", "partial"):
        if name in record:
            cleaned[name] = bounded_json(record[name], max_text=len(line))
    if record.get("error") is not None:
        error = record["error"] if isinstance(record["error"], str) else "it reported an error that is not text"
        cleaned["error"] = bounded_json(error, max_text=MAX_ERROR)
    if record.get("defined") is True:
        cleaned["defined"] = True
    if isinstance(record.get("stopped_by"), str):
        cleaned["stopped_by"] = record["stopped_by"]
    return cleaned


#: How long after its wall time a program may be missing before the warm process is replaced.
GRACE_SECONDS = 2.0
_CHUNK = 1 << 16


class Pipes(NamedTuple):
    """The reading ends of a program's output and report."""

    output: int
    report: int


@dataclass
class CallState:
    """What is known of a call so far."""

    reader: RecordReader
    output: bytearray = field(default_factory=bytearray)
    output_total: int = 0
    #: How the program ended, from the warm process; None when the warm process was lost.
    ending: dict[str, Any] | None = None
    #: Why this side stopped it.
    stopped: StoppedBy | None = None


def follow(
    control: socket.socket, pipes: Pipes, *, limits: Limits, reader: RecordReader, pace: float | None = None
) -> CallState:
    """Read a program's pipes until it ends. With `pace`, stop it when no record comes for that many seconds."""
    state = CallState(reader)
    backstop = time.monotonic() + limits.wall_seconds + GRACE_SECONDS
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        for pipe in pipes:
            os.set_blocking(pipe, False)
            selector.register(pipe, selectors.EVENT_READ)
        while (now := time.monotonic()) < backstop:
            if pace is not None and now > reader.last_record + pace:
                _stop(control, state, "wall")
            until = backstop if pace is None or state.stopped else min(backstop, reader.last_record + pace)
            ready = {key.fileobj for key, _ in selector.select(max(until - now, 0.001))}
            for pipe in pipes:
                if pipe in ready and not _read(state, pipe, pipes, limits):
                    selector.unregister(pipe)
            if _exceeded(state, limits):
                _stop(control, state, "output")
            if control in ready:
                state.ending = _ending(control)
                break
    for pipe in pipes:
        while not _exceeded(state, limits) and _read(state, pipe, pipes, limits):
            pass
    return state


def _exceeded(state: CallState, limits: Limits) -> bool:
    return state.output_total > MAX_OUTPUT_FACTOR * limits.output_bytes or state.reader.exceeded


def outcome(state: CallState, limits: Limits) -> Outcome:
    """The outcome of a call that runs one program."""
    stdout = state.output.decode("utf-8", "replace")
    if state.output_total > len(state.output):
        stdout += f"\n... ({state.output_total - len(state.output)} more bytes of output were dropped)"
    stopped = stopped_by(state, limits)
    records = state.reader.records
    last = records[-1] if records and stopped is None else {}
    if stopped is None and not last:
        stopped = "crash"
    error = stop_message(state, stopped, limits) if stopped else last.get("error")
    ending = state.ending or {}
    return Outcome(
        result=last.get("value" if error is None else "partial"),
        stdout=stdout,
        error=error,
        stopped_by=stopped,
        reported_limit=reported_limit(last),
        seconds=ending.get("seconds", limits.wall_seconds + GRACE_SECONDS),
        cpu_seconds=ending.get("cpu", 0.0) + ending.get("warm_cpu", 0.0),
    )


def stopped_by(state: CallState, limits: Limits) -> StoppedBy | None:
    """What stopped the program, according to the warm process."""
    if state.ending is None:
        return state.stopped or "crash"
    if state.ending["killed"] == "wall":
        return "wall"
    if state.ending["killed"] == "scratch":
        return "output"
    if state.ending["killed"]:
        return state.stopped or "crash"
    status = state.ending["status"]
    # The kernel's limit counts ticks, its accounting is exact; on a busy machine the two differ considerably.
    if status in (-signal.SIGKILL, -signal.SIGXCPU) and state.ending["cpu"] > limits.cpu_seconds / 2:
        return "cpu"
    return None if status == 0 else "crash"


def stop_message(state: CallState, stopped: StoppedBy, limits: Limits) -> str:
    """One line for a program that was stopped."""
    if stopped == "crash":
        if state.ending is None:
            return "stopped: the warm process was lost while the program ran; it has been replaced"
        status = state.ending["status"]
        if status < 0:
            return f"stopped: the program died of {signal.Signals(-status).name}"
        return f"stopped: the program ended its process (exit status {status}) before it could report"
    if state.ending is not None and state.ending["killed"] == "scratch":
        return f"stopped: its files outgrew the {limits.scratch_bytes} bytes of its scratch directory"
    reasons = {
        "cpu": f"it used its {limits.cpu_seconds} s of CPU time",
        "wall": f"it ran for {limits.wall_seconds:g} s, the time it has",
        "output": f"it wrote far more than the {limits.output_bytes} bytes that are kept",
    }
    return f"stopped: {reasons.get(stopped, stopped)}"


def reported_limit(record: Record) -> ReportedLimit | None:
    """The refusal that a program reports."""
    name = record.get("stopped_by")
    return cast(ReportedLimit, name) if name in get_args(ReportedLimit) else None


def _read(state: CallState, pipe: int, pipes: Pipes, limits: Limits) -> bool:
    """Read what a pipe holds; returns whether more may come."""
    try:
        data = os.read(pipe, _CHUNK)
    except BlockingIOError:
        return False
    if pipe == pipes.report:
        state.reader.feed(data)
    else:
        state.output_total += len(data)
        state.output += data[: max(limits.output_bytes - len(state.output), 0)]
    return bool(data)


def _stop(control: socket.socket, state: CallState, reason: StoppedBy) -> None:
    if state.stopped is None:
        state.stopped = reason
        try:
            messages.send(control, {"stop": reason})
        except ConnectionError:
            return  # the loss of the warm process is noticed when its reply is read


def _ending(control: socket.socket) -> dict[str, Any] | None:
    try:
        document, _ = messages.receive(control)
    except (EOFError, ConnectionError):
        return None
    return document


def call_results(state: CallState, limits: Limits, count: int, *, per_call_seconds: float) -> list[CallResult]:
    """The results of a call that runs a function on `count` inputs; at least one, and fewer where it was stopped."""
    records = state.reader.records
    stopped = stopped_by(state, limits) or "crash"
    if not records:
        return [CallResult(error=stop_message(state, stopped, limits), stopped_by=stopped)] * count
    if records[0].get("defined") is not True:
        error = records[0].get("error") or "it defined nothing"
        return [CallResult(error=error, reported_limit=reported_limit(records[0]))] * count
    results, timeouts = [], 0
    for record, seconds in zip(records[1 : count + 1], state.reader.arrivals[1:], strict=False):
        # A timeout that a program reports is believed only if so much time has passed here.
        late = record.get("stopped_by") == "wall" and seconds >= (timeouts + 1) * per_call_seconds
        timeouts += late
        error = record.get("error")
        value = record.get("value") if error is None else None
        results.append(CallResult(value, error, "wall" if late else None, reported_limit(record)))
    if len(results) < count:
        results.append(CallResult(error=stop_message(state, stopped, limits), stopped_by=stopped))
    return results
