"""One call from the caller's side: read what the program prints and reports, stop it when it exceeds its limits.

Everything a program sends is bytes in two pipes, read up to a bound and parsed as JSON. The warm process reports how
the program ended; what the program reports cannot change that.
"""

import json
import os
import selectors
import signal
import socket
import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast, get_args

from vesalius.sandbox import messages
from vesalius.sandbox.limits import MAX_OUTPUT_FACTOR, CallResult, Limits, Outcome, StoppedBy

#: How long after its wall time a program may be missing before the warm process is replaced.
GRACE_SECONDS = 2.0
_CHUNK = 1 << 16
_MAX_ERROR = 20_000


class Pipes(NamedTuple):
    """The reading ends of a program's output and report."""

    output: int
    report: int


@dataclass
class CallState:
    """What is known of a call so far."""

    output: bytearray = field(default_factory=bytearray)
    output_total: int = 0
    report: bytearray = field(default_factory=bytearray)
    #: How the program ended, from the warm process; None when the warm process was lost.
    ending: dict[str, Any] | None = None
    #: Why this side stopped it.
    stopped: StoppedBy | None = None
    last_record: float = field(default_factory=time.monotonic)


def follow(
    control: socket.socket, pipes: Pipes, *, limits: Limits, max_report: int, pace: float | None = None
) -> CallState:
    """Read a program's pipes until it ends. With `pace`, stop it when no record comes for that many seconds."""
    state = CallState()
    backstop = time.monotonic() + limits.wall_seconds + GRACE_SECONDS
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        for pipe in pipes:
            os.set_blocking(pipe, False)
            selector.register(pipe, selectors.EVENT_READ)
        while (now := time.monotonic()) < backstop:
            if pace is not None and now > state.last_record + pace:
                _stop(control, state, "wall")
            until = backstop if pace is None or state.stopped else min(backstop, state.last_record + pace)
            ready = {key.fileobj for key, _ in selector.select(max(until - now, 0.001))}
            for pipe in pipes:
                if pipe in ready and not _read(state, pipe, pipes, limits):
                    selector.unregister(pipe)
            if _exceeded(state, limits, max_report):
                _stop(control, state, "output")
            if control in ready:
                state.ending = _ending(control)
                break
    for pipe in pipes:
        while not _exceeded(state, limits, max_report) and _read(state, pipe, pipes, limits):
            pass
    return state


def _exceeded(state: CallState, limits: Limits, max_report: int) -> bool:
    return state.output_total > MAX_OUTPUT_FACTOR * limits.output_bytes or len(state.report) > max_report


def outcome(state: CallState, limits: Limits) -> Outcome:
    """The outcome of a call that runs one program."""
    stdout = state.output.decode("utf-8", "replace")
    if state.output_total > len(state.output):
        stdout += f"\n... ({state.output_total - len(state.output)} more bytes of output were dropped)"
    stopped = stopped_by(state, limits)
    records = parse(state.report)
    last = records[-1] if records and stopped is None else {}
    if stopped is None and not last:
        stopped = "crash"
    error = stop_message(state, stopped, limits) if stopped else error_text(last)
    ending = state.ending or {}
    return Outcome(
        result=last.get("value") if error is None else None,
        stdout=stdout,
        error=error,
        stopped_by=stopped or reported_limit(last),
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


def parse(report: bytes | bytearray) -> list[dict[str, Any]]:
    """The complete records of a report; anything else is left out."""
    records = []
    for line in bytes(report).split(b"\n")[:-1]:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            records.append(record)
    return records


def error_text(record: dict[str, Any]) -> str | None:
    """The error of a record, as bounded text."""
    error = record.get("error")
    return None if error is None else str(error)[:_MAX_ERROR]


def reported_limit(record: dict[str, Any]) -> StoppedBy | None:
    """The limit that a program reports to have exceeded."""
    name = record.get("stopped_by")
    return cast(StoppedBy, name) if isinstance(name, str) and name in get_args(StoppedBy) else None


def _read(state: CallState, pipe: int, pipes: Pipes, limits: Limits) -> bool:
    """Read what a pipe holds; returns whether more may come."""
    try:
        data = os.read(pipe, _CHUNK)
    except BlockingIOError:
        return False
    if pipe == pipes.report:
        state.report += data
        if b"\n" in data:
            state.last_record = time.monotonic()
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


def call_results(state: CallState, limits: Limits, count: int) -> list[CallResult]:
    """The results of a call that runs a function on `count` inputs; at least one, and fewer where it was stopped."""
    records = parse(state.report)
    stopped = stopped_by(state, limits) or "crash"
    if not records:
        return [CallResult(error=stop_message(state, stopped, limits), stopped_by=stopped)] * count
    if records[0].get("defined") is not True:
        return [
            CallResult(error=error_text(records[0]) or "it defined nothing", stopped_by=reported_limit(records[0]))
        ] * count
    results = [
        CallResult(_value(record), error_text(record), reported_limit(record)) for record in records[1 : count + 1]
    ]
    if len(results) < count:
        results.append(CallResult(error=stop_message(state, stopped, limits), stopped_by=stopped))
    return results


def _value(record: dict[str, Any]) -> Any:
    return record.get("value") if record.get("error") is None else None
