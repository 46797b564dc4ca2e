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
import types
from collections.abc import Callable, Iterator
from json import dumps, loads
from types import FrameType
from typing import Any

# Convert values and errors of a program to bounded JSON, inside the sandbox.
#
# The value may be of a class that lies, loops or raises: everything here runs within the program's time and memory
# limits, and the result is only text to the caller.

PROGRAM = "<program>"
MAX_DEPTH = 20
MAX_ITEMS = 20_000
MAX_TEXT = 2_000
_SHOWN_FRAMES = 6
#: Sent before a program that answers inputs is run: from here it has to keep its pace.
STARTED = {"started": True}


def bounded_json(value: object, *, max_text: int) -> Any:
    """`value` as JSON: containers item by item, small tensors and arrays as nested lists.

    `max_text` bounds the length of one string. After `MAX_ITEMS` items or `MAX_DEPTH` levels the rest is cut.
    """
    return _Converter(max_text).value(value, depth=0)


class _Converter:
    def __init__(self, max_text: int) -> None:
        self.left = MAX_ITEMS
        self.max_text = max_text

    def value(self, value: Any, *, depth: int) -> Any:
        self.left -= 1
        kind = type(value)
        if value is None or kind is bool or kind is float:
            return value
        if kind is int:
            return value if value.bit_length() <= 1024 else f"an integer of {value.bit_length()} bits"
        if kind is str:
            return _clip(value, self.max_text)
        if depth >= MAX_DEPTH or self.left <= 0:
            return "..."
        if issubclass(kind, (list, tuple, set, frozenset)):
            items = []
            for item in value:
                if self.left <= 0:
                    items.append("...")
                    break
                items.append(self.value(item, depth=depth + 1))
            return items
        if issubclass(kind, dict):
            return self._mapping(value, depth)
        if _is_array(kind):
            array = value.detach() if hasattr(value, "detach") else value
            count = 1
            for length in array.shape:
                count *= int(length)
            if count <= self.left and array.dtype != object:
                return self.value(array.tolist(), depth=depth)
            summary = {"shape": [int(length) for length in array.shape], "dtype": str(array.dtype)}
            first = bounded_repr(array.reshape(-1)[:8].tolist())
            return {**summary, "first": first, "note": f"{count} values, too many to hand over; summarise or slice"}
        return bounded_repr(value)

    def _mapping(self, value: dict[object, object], depth: int) -> dict[str, Any]:
        items = {}
        for key, item in value.items():
            if self.left <= 0:
                items["..."] = "..."
                break
            name = _clip(key, MAX_TEXT) if type(key) is str else bounded_repr(key)
            items[name] = self.value(item, depth=depth + 1)
        return items


def _is_array(kind: type) -> bool:
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and kind in (torch.Tensor, torch.nn.Parameter):
        return True
    return numpy is not None and (kind is numpy.ndarray or issubclass(kind, numpy.generic))


def bounded_repr(value: object) -> str:
    """A bounded repr; the class name if repr fails."""
    try:
        return _clip(str(repr(value)), MAX_TEXT)
    except MemoryError:
        raise
    except BaseException as error:
        return f"<{type(value).__name__} whose repr raised {type(error).__name__}>"


def format_traceback(error: BaseException, source: str) -> str:
    """The traceback with only the lines of the program, then the error."""
    lines = source.splitlines()
    frames = list(_frames(error.__traceback__))
    if len(frames) > 2 * _SHOWN_FRAMES:
        middle = f"  ... {len(frames) - 2 * _SHOWN_FRAMES} more frames ..."
        rows = [*_render(frames[:_SHOWN_FRAMES], lines), middle, *_render(frames[-_SHOWN_FRAMES:], lines)]
    else:
        rows = _render(frames, lines)
    if isinstance(error, SyntaxError) and error.filename == PROGRAM and error.lineno:
        rows += _render([(error.lineno, "<module>")], lines)
    name = type(error).__name__
    try:
        text = error.msg if isinstance(error, SyntaxError) else str(error)
    except BaseException as second:
        text = f"(its message raised {type(second).__name__})"
    return "\n".join([*rows, _clip(f"{name}: {text}" if text else name, MAX_TEXT)])


def _frames(trace: types.TracebackType | None) -> Any:
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_filename == PROGRAM:
            yield trace.tb_lineno, code.co_name
        trace = trace.tb_next


def _render(frames: list[tuple[int, str]], lines: list[str]) -> list[str]:
    def text(number: int) -> str:
        return _clip(lines[number - 1].strip(), 200) if 0 < number <= len(lines) else ""

    return [f"  line {number}, in {name}: {text(number)}" for number, name in frames]


def _clip(text: str, limit: int) -> str:
    text = text.encode("utf-8", "replace").decode("utf-8")
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"


MISSING = "the program did not assign `result`; end it with result = ..."
#: Address space held back so that a program that ran out of memory can still be reported.
RESERVE = 32 << 20

Record = dict[str, Any]


class TimeUp(BaseException):
    """One input took too long. Not an `Exception`, so that `except Exception` in a program does not catch it."""


def perform(job_file: int, report: int, scope: dict[str, object]) -> None:
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


def _run_once(job: Record, names: dict[str, object], send: Callable[[Record], None]) -> None:
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
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:  # the program may have replaced it
            continue
    send(record)


def _call_each(job: Record, names: dict[str, object], send: Callable[[Record], None]) -> None:
    send(STARTED)
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


def _attempt(action: Callable[[], object], source: str) -> Record:
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
