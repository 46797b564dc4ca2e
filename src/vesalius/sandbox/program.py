"""Run an untrusted program, inside the locked-down process.

Reads the job from a file, runs it in a fresh copy of the prepared names, writes records (one JSON document a line) to
the report, and exits without running anything the program may have registered: no atexit, no `__del__`.
"""

import builtins
import contextlib
import errno
import gc
import io
import os
import random
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from json import dumps, loads
from types import FrameType
from typing import Any

from vesalius.sandbox.bounded_json import PROGRAM, bounded_json, format_traceback

MISSING = "the program did not assign `result`; end it with result = ..."
#: Address space held back so that a program that ran out of memory can still be reported.
RESERVE = 32 << 20

Record = dict[str, Any]


class TimeUp(BaseException):
    """One input took too long. Not an `Exception`, so that `except Exception` in a program does not catch it."""


def perform(job_file: int, report: int, scope: dict[str, Any]) -> None:
    """Run the job and report."""
    with os.fdopen(job_file, "rb") as file:
        job = loads(file.read())
    gc.enable()
    random.seed(0)  # Python reseeds it in a fork; the same program must give the same result
    sys.stdout, sys.stderr = _text(1), _text(2)
    names = {**scope, **job["values"], "__name__": "__main__", "__builtins__": builtins}
    names.pop("result", None)
    send = _sender(report, job["result_bytes"])
    if "function" in job:
        _call_each(job, names, send)
    else:
        _run_once(job, names, send)


def _run_once(job: Record, names: dict[str, Any], send: Callable[[Record], None]) -> None:
    record = _attempt(lambda: exec(compile(job["code"], PROGRAM, "exec"), names), job["code"])
    if "error" not in record:
        if "result" not in names:
            record = {"error": MISSING}
        else:
            record = _attempt(lambda: bounded_json(names["result"], max_text=job["result_bytes"]), job["code"])
    elif "result" in names:
        # What a program that fails later had found by then is worth having; its error must get through all the same.
        partial = _attempt(lambda: bounded_json(names["result"], max_text=job["result_bytes"] // 2), job["code"])
        whole = {**record, "partial": partial.get("value")}
        record = whole if len(dumps(whole)) < job["result_bytes"] else record
    _flush()
    send(record)


def _call_each(job: Record, names: dict[str, Any], send: Callable[[Record], None]) -> None:
    defined = _attempt(lambda: exec(compile(job["code"], PROGRAM, "exec"), names), job["code"])
    function = names.get(job["function"])
    if "error" not in defined and not callable(function):
        defined = {"error": f"the program did not define a function {job['function']!r}"}
    send({"defined": "error" not in defined, **defined})
    if "error" in defined:
        return
    armed = [False]

    def interrupt(number: int, frame: FrameType | None) -> None:
        if armed[0]:
            raise TimeUp(f"more than {job['per_call_seconds']} s for one input")

    for value in job["inputs"]:
        signal.signal(signal.SIGALRM, interrupt)
        armed[0] = True
        signal.setitimer(signal.ITIMER_REAL, job["per_call_seconds"])
        record = _attempt(lambda value=value: bounded_json(function(value), max_text=job["result_bytes"]), job["code"])  # type: ignore[misc]
        armed[0] = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        send(record)


def _attempt(action: Callable[[], Any], source: str) -> Record:
    """The value of an action of the program, or its error and the limit that caused it, if one did."""
    try:
        return {"value": action()}
    except BaseException as error:
        with _reserve():
            record: Record = {"error": format_traceback(error, source)}
            if stopped := _stopped_by(error):
                record["stopped_by"] = stopped
            return record


def _stopped_by(error: BaseException) -> str | None:
    if isinstance(error, TimeUp):
        return "wall"
    if isinstance(error, MemoryError):
        return "memory"
    if isinstance(error, BlockingIOError) and error.errno == errno.EAGAIN:
        return "processes"
    if isinstance(error, RuntimeError):
        text = str(error)
        if "can't allocate memory" in text:
            return "memory"
        if "can't start new thread" in text:
            return "processes"
    return None


@contextlib.contextmanager
def _reserve() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _sender(report: int, max_bytes: int) -> Callable[[Record], None]:
    write = os.write  # the program may replace the name

    def send(record: Record) -> None:
        line = dumps(record).encode() + b"\n"
        if len(line) > max_bytes:
            note = f"the result is {len(line)} bytes as JSON; the limit is {max_bytes}: summarise or slice it"
            line = dumps({"error": note}).encode() + b"\n"
        while line:
            line = line[write(report, line) :]

    return send


def _text(descriptor: int) -> io.TextIOWrapper:
    """A new stream, because the one of the warm process was opened for another kind of file; complete lines survive a
    kill.
    """
    raw = io.BufferedWriter(io.FileIO(descriptor, "w", closefd=False))
    return io.TextIOWrapper(raw, encoding="utf-8", errors="replace", line_buffering=True)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:  # the program may have replaced it
            continue
