"""One call seen from the caller's side: gather what the program prints and reports, stop it when it overdoes it.

Everything a program sends is bytes in two pipes, read up to a bound and parsed as JSON. The warm process says how the
program ended; what the program says of itself cannot change that.
"""

import json
import os
import selectors
import signal
import socket
import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast, get_args

from vesalius.sandbox import wire
from vesalius.sandbox.limits import OUTPUT_PATIENCE, Answer, Limits, Outcome, StoppedBy

#: How long past its time a program may be unaccounted for before the warm process itself is given up.
GRACE_SECONDS = 2.0
_CHUNK = 1 << 16
_MAX_ERROR = 20_000


class Pipes(NamedTuple):
    """Where a program's output and report come out."""

    output: int
    report: int


@dataclass
class Gathered:
    """What came of a call so far."""

    output: bytearray = field(default_factory=bytearray)
    output_total: int = 0
    report: bytearray = field(default_factory=bytearray)
    #: How the warm process says the program ended; None when the warm process was lost.
    ending: dict[str, Any] | None = None
    #: Why this side had it stopped.
    stopped: StoppedBy | None = None
    last_record: float = field(default_factory=time.monotonic)


def gather(
    control: socket.socket, pipes: Pipes, *, limits: Limits, report_room: int, pace: float | None = None
) -> Gathered:
    """Follow a program to its end. With `pace`, stop it when no record comes for that many seconds."""
    found = Gathered()
    backstop = time.monotonic() + limits.wall_seconds + GRACE_SECONDS
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        for pipe in pipes:
            os.set_blocking(pipe, False)
            selector.register(pipe, selectors.EVENT_READ)
        while (now := time.monotonic()) < backstop:
            if pace is not None and now > found.last_record + pace:
                _stop(control, found, "wall")
            until = backstop if pace is None or found.stopped else min(backstop, found.last_record + pace)
            ready = {key.fileobj for key, _ in selector.select(max(until - now, 0.001))}
            for pipe in pipes:
                if pipe in ready and not _read(found, pipe, pipes, limits):
                    selector.unregister(pipe)
            if _too_much(found, limits, report_room):
                _stop(control, found, "output")
            if control in ready:
                found.ending = _ending(control)
                break
    for pipe in pipes:
        while not _too_much(found, limits, report_room) and _read(found, pipe, pipes, limits):
            pass
    return found


def _too_much(found: Gathered, limits: Limits, report_room: int) -> bool:
    return found.output_total > OUTPUT_PATIENCE * limits.output_bytes or len(found.report) > report_room


def outcome(found: Gathered, limits: Limits) -> Outcome:
    """The finding of a call that runs one program."""
    stdout = found.output.decode("utf-8", "replace")
    if found.output_total > len(found.output):
        stdout += f"\n... ({found.output_total - len(found.output)} more bytes of output were dropped)"
    stopped = stopped_by(found, limits)
    records = parse(found.report)
    last = records[-1] if records and stopped is None else {}
    if stopped is None and not last:
        stopped = "crash"
    error = why(found, stopped, limits) if stopped else error_of(last)
    ending = found.ending or {}
    return Outcome(
        result=last.get("value") if error is None else None,
        stdout=stdout,
        error=error,
        stopped_by=stopped or claimed(last),
        seconds=ending.get("seconds", limits.wall_seconds + GRACE_SECONDS),
        cpu_seconds=ending.get("cpu", 0.0) + ending.get("warm_cpu", 0.0),
    )


def stopped_by(found: Gathered, limits: Limits) -> StoppedBy | None:
    """What ended the program from outside, by the warm process's account."""
    if found.ending is None:
        return found.stopped or "crash"
    if found.ending["killed"] == "wall":
        return "wall"
    if found.ending["killed"] == "scratch":
        return "output"
    if found.ending["killed"]:
        return found.stopped or "crash"
    status = found.ending["status"]
    # The kernel's limit counts in ticks, its account exactly; on a busy machine the two differ by a good part.
    if status in (-signal.SIGKILL, -signal.SIGXCPU) and found.ending["cpu"] > limits.cpu_seconds / 2:
        return "cpu"
    return None if status == 0 else "crash"


def why(found: Gathered, stopped: StoppedBy, limits: Limits) -> str:
    """One line for a program that was stopped."""
    if stopped == "crash":
        if found.ending is None:
            return "stopped: the warm process was lost while the program ran; it has been replaced"
        status = found.ending["status"]
        if status < 0:
            return f"stopped: the program died of {signal.Signals(-status).name}"
        return f"stopped: the program ended its process (exit status {status}) before it could report"
    if found.ending is not None and found.ending["killed"] == "scratch":
        return f"stopped: its files outgrew the {limits.scratch_bytes} bytes of its scratch directory"
    reasons = {
        "cpu": f"it used its {limits.cpu_seconds} s of CPU time",
        "wall": f"it ran for {limits.wall_seconds:g} s, the time it has",
        "output": f"it wrote far more than the {limits.output_bytes} bytes that are kept",
    }
    return f"stopped: {reasons.get(stopped, stopped)}"


def parse(report: bytes | bytearray) -> list[dict[str, Any]]:
    """The whole records of a report; whatever is not one is left out."""
    records = []
    for line in bytes(report).split(b"\n")[:-1]:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            records.append(record)
    return records


def error_of(record: dict[str, Any]) -> str | None:
    """The error a record tells of, as bounded text."""
    error = record.get("error")
    return None if error is None else str(error)[:_MAX_ERROR]


def claimed(record: dict[str, Any]) -> StoppedBy | None:
    """The limit that, by its own account, a program ran into."""
    name = record.get("stopped_by")
    return cast(StoppedBy, name) if isinstance(name, str) and name in get_args(StoppedBy) else None


def _read(found: Gathered, pipe: int, pipes: Pipes, limits: Limits) -> bool:
    """Take what a pipe holds; whether more may come."""
    try:
        data = os.read(pipe, _CHUNK)
    except BlockingIOError:
        return False
    if pipe == pipes.report:
        found.report += data
        if b"\n" in data:
            found.last_record = time.monotonic()
    else:
        found.output_total += len(data)
        found.output += data[: max(limits.output_bytes - len(found.output), 0)]
    return bool(data)


def _stop(control: socket.socket, found: Gathered, reason: StoppedBy) -> None:
    if found.stopped is None:
        found.stopped = reason
        try:
            wire.send(control, {"stop": reason})
        except ConnectionError:
            return  # the loss of the warm process shows when its answer is read


def _ending(control: socket.socket) -> dict[str, Any] | None:
    try:
        document, _ = wire.receive(control)
    except (EOFError, ConnectionError):
        return None
    return document


def answers(found: Gathered, limits: Limits, count: int) -> list[Answer]:
    """The findings of a call that runs a function on `count` inputs; at least one, and fewer where it was stopped."""
    records = parse(found.report)
    stopped = stopped_by(found, limits) or "crash"
    if not records:
        return [Answer(error=why(found, stopped, limits), stopped_by=stopped)] * count
    if records[0].get("defined") is not True:
        return [Answer(error=error_of(records[0]) or "it defined nothing", stopped_by=claimed(records[0]))] * count
    given = [Answer(_value(record), error_of(record), claimed(record)) for record in records[1 : count + 1]]
    if len(given) < count:
        given.append(Answer(error=why(found, stopped, limits), stopped_by=stopped))
    return given


def _value(record: dict[str, Any]) -> Any:
    return record.get("value") if record.get("error") is None else None
