"""The public interface: a warm process, started once, that runs each program in a separate fork.

    with Sandbox("mypackage.mymodule:names", "frac_prevs") as sandbox:
        outcome = sandbox.execute("result = decode(model(tokenize([['a', 'b']])))")

If the warm process dies it is replaced, and `restarts` counts that.
"""

import dataclasses
import hashlib
import json
import math
import os
import stat
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from vesalius.errors import BadInput, Failed
from vesalius.sandbox import warm_process as messages
from vesalius.sandbox.calls import OVERHEAD, CallState, Pipes, RecordReader, call_results, follow, outcome
from vesalius.sandbox.lockdown import CallResult, Limits, Outcome
from vesalius.sandbox.warm_process import LAYERS, Isolation, WarmProcess, not_contained
from vesalius.values import JsonObject

# List and read files of the toolbox directory, and nothing else.

MAX_ENTRIES = 1_000


def list_directory(toolbox: Path, path: str) -> list[str]:
    """Names in a directory of the toolbox, sorted; directories end in a slash."""
    descriptor = _open(toolbox, path, directory=True)
    try:
        with os.scandir(descriptor) as entries:
            names = [
                entry.name + ("/" if entry.is_dir(follow_symlinks=False) else "")
                for entry in entries
                if not entry.is_symlink()
            ]
    finally:
        os.close(descriptor)
    if len(names) > MAX_ENTRIES:
        return [*sorted(names)[:MAX_ENTRIES], f"... ({len(names)} in all)"]
    return sorted(names)


def read_file(toolbox: Path, path: str, *, limit: int) -> str:
    """The text of a file of the toolbox, cut after `limit` bytes."""
    descriptor = _open(toolbox, path, directory=False)
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(limit + 1)
    text = data[:limit].decode("utf-8", "replace")
    return text if len(data) <= limit else f"{text}\n... (cut after {limit} bytes)"


def _open(toolbox: Path, path: str, *, directory: bool) -> int:
    relative = Path(path)
    if relative.is_absolute():
        if not relative.is_relative_to(toolbox):
            raise BadInput(f"path {path!r} is outside the toolbox; give one relative to it")
        relative = relative.relative_to(toolbox)
    if ".." in relative.parts or "\0" in path:
        raise BadInput(f"path {path!r} is outside the toolbox; give one relative to it, without '..'")
    kind = "directory" if directory else "file"
    descriptor = os.open(toolbox, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in relative.parts:
            inner = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        mode = os.fstat(descriptor).st_mode
        is_kind = stat.S_ISDIR(mode) if directory else stat.S_ISREG(mode)
    except OSError as error:
        os.close(descriptor)
        raise BadInput(
            f"path {path!r} is not a {kind} of the toolbox ({error.strerror}); list_directory('.')"
        ) from None
    if not is_kind:
        os.close(descriptor)
        raise BadInput(f"path {path!r} is not a {kind} of the toolbox; list_directory('.') shows what there is")
    return descriptor


#: A function may overrun its time by this much before its process is killed rather than interrupted.
_OVERRUN_SECONDS = 0.5
#: The results of one process for many inputs, all together.
_MANY_RESULTS = 64 << 20
NO_VALUES: Mapping[str, object] = {}


class Sandbox:
    """Runs untrusted programs on names that were prepared once. Use it in a `with` statement.

    Args:
        preload: `module:function`; called with `argument` in the warm process, it returns the names (model, tokenize,
            ...) that every program starts with. It must load no answers: programs can read its whole memory.
        argument: JSON for the preload function.
        toolbox: a directory that programs may read, and that `list_directory` and `read_file` show.
        limits: what one call may use by default.
        unsafe: run even where programs cannot be contained.
        layers: which layers of isolation to try; fewer are for tests and for kernels where one fails.
        start_seconds: how long the preload may take.
    """

    def __init__(
        self,
        preload: str | None = None,
        argument: object = None,
        *,
        toolbox: Path | None = None,
        limits: Limits | None = None,
        unsafe: bool = False,
        layers: Collection[str] = LAYERS,
        start_seconds: float = 600.0,
    ) -> None:
        if preload is not None and not all(preload.partition(":")):
            raise BadInput(f"preload {preload!r} is not of the form 'module:function'")
        if toolbox is not None and not Path(toolbox).is_dir():
            raise BadInput(f"toolbox {str(toolbox)!r} is not a directory")
        if toolbox is not None and os.geteuid() == 0 and Path(toolbox).stat().st_mode & 0o005 != 0o005:
            raise BadInput(
                f"toolbox {str(toolbox)!r} cannot be read by user nobody, who programs run as; run chmod -R o+rX on it"
            )
        if unknown := set(layers) - set(LAYERS):
            raise BadInput(f"sandbox layer {min(unknown)!r} does not exist; use {', '.join(LAYERS)}")
        self.limits = limits or Limits()
        self.toolbox = None if toolbox is None else Path(toolbox).resolve()
        #: How often the warm process died and was replaced.
        self.restarts = 0
        self._unsafe = unsafe
        self._start_seconds = start_seconds
        self._start = {
            "preload": preload,
            "argument": argument,
            "layers": sorted(layers),
            "toolbox": None if self.toolbox is None else str(self.toolbox),
        }
        self._lock = threading.Lock()
        self._warm: WarmProcess | None = None
        self._open = False

    def __enter__(self) -> Self:
        with self._lock:
            self._warm = self._start_process()
            self._open = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the warm process and everything in it."""
        with self._lock:
            self._open = False
            if self._warm is not None:
                self._warm.end()
                self._warm = None

    @property
    def isolation(self) -> Isolation:
        """Which layers are active; `isolation.contained` says whether they are enough."""
        with self._lock:
            return self._running_process().isolation

    @property
    def process_id(self) -> int:
        """The warm process; everything that runs in the sandbox descends from it."""
        with self._lock:
            return self._running_process().pid

    def execute(self, code: str, values: Mapping[str, object] = NO_VALUES, *, limits: Limits | None = None) -> Outcome:
        """Run one program. It finds the prepared names and `values` (JSON), and must assign `result`.

        Nothing it does affects the next program: not names, not files, not changes to the model.
        """
        limits = limits or self.limits
        job = {"code": code, "values": dict(values), "result_bytes": limits.result_bytes}
        with self._lock:
            state = self._call(job, limits)
        return outcome(state, limits)

    def call_many(
        self,
        code: str,
        function: str,
        inputs: Sequence[object],
        *,
        per_call_seconds: float = 1.0,
        total_seconds: float | None = None,
    ) -> list[CallResult]:
        """Run a program that defines `function`, then call that on every input: one result each, in order.

        The calls share a process, so a function can remember earlier inputs. A call that kills its process, or cannot
        be interrupted, affects only that input: the others continue in a new process. `total_seconds` (by default the
        sandbox's wall time) bounds them all. What is printed is dropped.
        """
        total = self.limits.wall_seconds if total_seconds is None else total_seconds
        deadline = time.monotonic() + total
        results: list[CallResult] = []
        while len(results) < len(inputs):
            left = deadline - time.monotonic()
            if left <= 0:
                late = CallResult(error=f"not run: the {total:g} s for all inputs are used up", stopped_by="wall")
                return results + [late] * (len(inputs) - len(results))
            limits = dataclasses.replace(self.limits, wall_seconds=left, cpu_seconds=math.ceil(left))
            job = {
                "code": code,
                "values": {},
                "result_bytes": limits.result_bytes,
                "function": function,
                "inputs": list(inputs[len(results) :]),
                "per_call_seconds": per_call_seconds,
            }
            with self._lock:
                state = self._call(job, limits, pace=per_call_seconds + _OVERRUN_SECONDS)
            if state.stopped == "wall":
                limits = dataclasses.replace(limits, wall_seconds=per_call_seconds)
            results += call_results(state, limits, len(inputs) - len(results), per_call_seconds=per_call_seconds)
        return results

    def list_directory(self, path: str = ".") -> list[str]:
        """Names in a directory of the toolbox; directories end in a slash."""
        return list_directory(self._toolbox(), path)

    def read_file(self, path: str) -> str:
        """The text of a file of the toolbox, cut after `limits.output_bytes`."""
        return read_file(self._toolbox(), path, limit=self.limits.output_bytes)

    def _toolbox(self) -> Path:
        if self.toolbox is None:
            raise BadInput("this sandbox has no toolbox; give Sandbox(toolbox=DIRECTORY)")
        return self.toolbox

    def _running_process(self) -> WarmProcess:
        """The warm process; a new one if the last has died."""
        if not self._open:
            raise BadInput("the sandbox is not open; use it in a with statement")
        if self._warm is None or not self._warm.alive:
            self._drop_process()
            self._warm = self._start_process()
            self.restarts += 1
        return self._warm

    def _start_process(self) -> WarmProcess:
        if sys.platform == "win32":
            raise Failed("the sandbox needs fork, which Windows does not have; use Linux or WSL")
        if sys.platform != "linux" and not self._unsafe:
            raise Failed(not_contained(Isolation()))
        warm = WarmProcess(self._start, start_seconds=self._start_seconds)
        if not (warm.isolation.contained or self._unsafe):
            warm.end()
            raise Failed(not_contained(warm.isolation))
        limits = dataclasses.replace(Limits(), wall_seconds=60)
        job = {"code": "result = 1", "values": {}, "result_bytes": limits.result_bytes}
        trial = outcome(_run(warm, job, limits, pace=None), limits)
        if trial.result != 1:
            warm.kill()
            raise Failed(
                f"the sandbox cannot run even `result = 1` with this isolation ({warm.isolation}): {trial.error}"
            )
        return warm

    def _call(self, job: JsonObject, limits: Limits, *, pace: float | None = None) -> CallState:
        finished = False
        try:
            try:
                state = _run(self._running_process(), job, limits, pace=pace)
            except ConnectionError:  # it died since the last call: replace it and continue
                self._drop_process()
                state = _run(self._running_process(), job, limits, pace=pace)
            finished = state.ending is not None
            return state
        finally:
            if not finished:  # lost, or interrupted: its next reply would belong to this call
                self._drop_process()

    def _drop_process(self) -> None:
        if self._warm is not None:
            self._warm.end()
            self._warm = None


def _run(warm: WarmProcess, job: JsonObject, limits: Limits, *, pace: float | None) -> CallState:
    """One call of the warm process; `ConnectionError` if it ended before the call."""
    encoded = _encode(job)
    reader = RecordReader(1 + len(job.get("inputs", ())), limits.result_bytes + OVERHEAD, _MANY_RESULTS)
    output, output_end = os.pipe()
    report, report_end = os.pipe()
    ends = [output_end, report_end]
    try:
        with tempfile.TemporaryFile() as file:
            file.write(encoded)
            file.seek(0)
            if pace is not None:  # the output of many calls is not read
                ends[0] = os.open(os.devnull, os.O_WRONLY)
                os.close(output_end)
            messages.send(warm.control, {"limits": dataclasses.asdict(limits)}, [file.fileno(), *ends])
        while ends:
            os.close(ends.pop())
        return follow(warm.control, Pipes(output, report), limits=limits, reader=reader, pace=pace)
    finally:
        for descriptor in (*ends, output, report):
            os.close(descriptor)


def _encode(job: dict[str, object]) -> bytes:
    try:
        return json.dumps(job).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput(f"values and inputs for a program must be JSON: {error}") from None


# What executed code gave, kept in a file, so that a run can be repeated without running the code again.
#
# A program near its time limit may end one way today and another way tomorrow. `Executions` keeps one line per call of
# a sandbox; the same call, in the same order, is answered from the file. A line carries a checksum: half a line at the
# end is what a killed process leaves and is dropped, an altered one is refused.


class Executions:
    """The calls of one case. Without a path nothing is kept; one that is not `writable` answers what it has."""

    def __init__(self, path: Path | None = None, *, writable: bool = True) -> None:
        self._path, self._writable = path, writable
        self._results: JsonObject = {}
        self._repetitions: Counter[str] = Counter()
        #: How many calls were answered from the file, and how many were run.
        self.recalled, self.run = 0, 0
        if path is not None:
            self._read(path)

    def outcome(self, code: str, values: Mapping[str, object], run: Callable[[], Outcome]) -> Outcome:
        """What one program did: recorded, or else `run` and kept. `values` are all that it depends on beside itself."""
        data = self._result({"code": code, "values": dict(values)}, lambda: dataclasses.asdict(run()))
        return Outcome(**data)

    def results(self, call: Mapping[str, object], run: Callable[[], list[CallResult]]) -> list[CallResult]:
        """What a function returned for each input: recorded, or else `run` and kept."""
        data = self._result(call, lambda: [list(dataclasses.astuple(result)) for result in run()])
        return [CallResult(*result) for result in data]

    def _result(self, call: Mapping[str, object], run: Callable[[], object]) -> Any:
        if self._path is None:
            return run()
        key = _digest(call)
        self._repetitions[key] += 1
        key = f"{key}.{self._repetitions[key]}"
        if key in self._results:
            self.recalled += 1
        else:
            self.run += 1
            self._results[key] = run()
            if self._writable:
                self._append(self._path, {"key": key, "result": self._results[key]})
        return self._results[key]

    def _read(self, path: Path) -> None:
        try:
            lines = path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return
        except OSError as error:
            raise Failed(f"{path}: cannot be read ({error.strerror})") from None
        for number, line in enumerate(lines[:-1], 1):
            try:
                record = json.loads(line)
                check, key, result = record.pop("check"), record["key"], record["result"]
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                raise BadInput(f"{path}, line {number}: not a record of executed code; put back a good copy") from None
            if check != _digest(record):
                raise BadInput(f"{path}, line {number}: altered since it was recorded; put back a good copy")
            self._results[key] = result
        if lines[-1] and self._writable:
            os.truncate(path, sum(len(line) + 1 for line in lines[:-1]))

    @staticmethod
    def _append(path: Path, record: dict[str, object]) -> None:
        line = json.dumps({**record, "check": _digest(record)}).encode() + b"\n"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab") as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise Failed(
                f"{path}: could not be written ({error.strerror}); free some space, then the same command continues"
            ) from None


class RecordedSandbox(Sandbox):
    """A sandbox whose calls are kept in `executions`, which its user sets for each case."""

    executions: Executions | None = None

    def execute(self, code: str, values: Mapping[str, object] = NO_VALUES, *, limits: Limits | None = None) -> Outcome:
        """As in `Sandbox`, from the record where it is there."""

        def run() -> Outcome:
            return super(RecordedSandbox, self).execute(code, values, limits=limits)

        return run() if self.executions is None else self.executions.outcome(code, values, run)

    def call_many(
        self,
        code: str,
        function: str,
        inputs: Sequence[object],
        *,
        per_call_seconds: float = 1.0,
        total_seconds: float | None = None,
    ) -> list[CallResult]:
        """As in `Sandbox`, from the record where it is there."""

        def run() -> list[CallResult]:
            return super(RecordedSandbox, self).call_many(
                code, function, inputs, per_call_seconds=per_call_seconds, total_seconds=total_seconds
            )

        call = {"code": code, "function": function, "inputs": list(inputs)}
        return run() if self.executions is None else self.executions.results(call, run)


def _digest(data: object) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:32]
