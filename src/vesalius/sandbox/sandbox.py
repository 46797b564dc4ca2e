"""The sandbox as its user holds it: a warm process, started once, that runs each program in a fork of its own.

    with Sandbox("mypackage.mymodule:names", "frac_prevs") as sandbox:
        outcome = sandbox.execute("result = decode(model(tokenize([['a', 'b']])))")

If the warm process dies it is replaced, and `restarts` counts that.
"""

import dataclasses
import json
import math
import os
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from vesalius.errors import BadInput, Failed
from vesalius.sandbox import toolbox as tools
from vesalius.sandbox import wire
from vesalius.sandbox.calls import Gathered, Pipes, answers, gather, outcome
from vesalius.sandbox.isolation import LAYERS, Isolation, refusal
from vesalius.sandbox.limits import Answer, Limits, Outcome
from vesalius.sandbox.warm import WarmProcess

#: A function may overrun its time by this much before its process is killed rather than interrupted.
_OVERRUN_SECONDS = 0.5
#: JSON around a result: quotes, escapes, the record.
_REPORT_SLACK = 64_000
#: The answers of one process to many inputs, all together.
_MANY_RESULTS = 64 << 20
_NO_VALUES: Mapping[str, Any] = {}


class Sandbox:
    """Runs programs that nobody has read, on names that were prepared once. Use it in a `with` statement.

    Args:
        preload: `module:function`; called with `argument` in the warm process, it returns the names (model, tokenize,
            ...) that every program starts with. It must load no answers: programs can read its whole memory.
        argument: JSON for the preload function.
        toolbox: a directory that programs may read, and that `list_directory` and `read_file` show.
        limits: what one call may use, unless the call says otherwise.
        unsafe: run even where programs cannot be contained.
        layers: which walls to try; fewer are for tests and for kernels where one misbehaves.
        start_seconds: how long the preload may take.
    """

    def __init__(
        self,
        preload: str | None = None,
        argument: Any = None,
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
            raise BadInput(f"toolbox {str(toolbox)!r} is closed to user nobody, who programs run as; chmod -R o+rX it")
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
            self._warm = self._started()
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
            return self._living().isolation

    @property
    def process_id(self) -> int:
        """The warm process; everything that runs in the sandbox descends from it."""
        with self._lock:
            return self._living().pid

    def execute(self, code: str, values: Mapping[str, Any] = _NO_VALUES, *, limits: Limits | None = None) -> Outcome:
        """Run one program. It finds the prepared names and `values` (JSON), and must assign `result`.

        Nothing it does is there for the next one: not names, not files, not changes to the model.
        """
        limits = limits or self.limits
        job = {"code": code, "values": dict(values), "result_bytes": limits.result_bytes}
        with self._lock:
            found = self._call(job, limits, report_room=limits.result_bytes + _REPORT_SLACK)
        return outcome(found, limits)

    def call_many(
        self,
        code: str,
        function: str,
        inputs: Sequence[Any],
        *,
        per_call_seconds: float = 1.0,
        total_seconds: float | None = None,
    ) -> list[Answer]:
        """Run a program that defines `function`, then call that on every input: one answer each, in order.

        The calls share a process, so a function can remember earlier inputs. One that kills its process, or cannot be
        interrupted, costs that input alone: the rest go on in a fresh one. `total_seconds` (the sandbox's wall time
        unless given) bounds them all. What is printed is dropped.
        """
        total = self.limits.wall_seconds if total_seconds is None else total_seconds
        deadline = time.monotonic() + total
        given: list[Answer] = []
        while len(given) < len(inputs):
            left = deadline - time.monotonic()
            if left <= 0:
                late = Answer(error=f"not run: the {total:g} s for all inputs are used up", stopped_by="wall")
                return given + [late] * (len(inputs) - len(given))
            limits = dataclasses.replace(self.limits, wall_seconds=left, cpu_seconds=math.ceil(left))
            job = {
                "code": code,
                "values": {},
                "result_bytes": limits.result_bytes,
                "function": function,
                "inputs": list(inputs[len(given) :]),
                "per_call_seconds": per_call_seconds,
            }
            with self._lock:
                found = self._call(job, limits, report_room=_MANY_RESULTS, pace=per_call_seconds + _OVERRUN_SECONDS)
            if found.stopped == "wall":
                limits = dataclasses.replace(limits, wall_seconds=per_call_seconds)
            given += answers(found, limits, len(inputs) - len(given))
        return given

    def list_directory(self, path: str = ".") -> list[str]:
        """Names in a directory of the toolbox; directories end in a slash."""
        return tools.list_directory(self._toolbox(), path)

    def read_file(self, path: str) -> str:
        """The text of a file of the toolbox, cut after `limits.output_bytes`."""
        return tools.read_file(self._toolbox(), path, limit=self.limits.output_bytes)

    def _toolbox(self) -> Path:
        if self.toolbox is None:
            raise BadInput("this sandbox has no toolbox; give Sandbox(toolbox=DIRECTORY)")
        return self.toolbox

    def _living(self) -> WarmProcess:
        """The warm process, a new one where the last has died."""
        if not self._open:
            raise BadInput("the sandbox is not open; use it in a with statement")
        if self._warm is None or not self._warm.alive:
            self._give_up()
            self._warm = self._started()
            self.restarts += 1
        return self._warm

    def _started(self) -> WarmProcess:
        if sys.platform == "win32":
            raise Failed("the sandbox needs fork, which Windows does not have; use Linux or WSL")
        if sys.platform != "linux" and not self._unsafe:
            raise Failed(refusal(Isolation()))
        warm = WarmProcess(self._start, start_seconds=self._start_seconds)
        if not (warm.isolation.contained or self._unsafe):
            warm.end()
            raise Failed(refusal(warm.isolation))
        limits = dataclasses.replace(Limits(), wall_seconds=60)
        job = {"code": "result = 1", "values": {}, "result_bytes": limits.result_bytes}
        trial = outcome(_run(warm, _encoded(job), limits, report_room=_REPORT_SLACK, pace=None), limits)
        if trial.result != 1:
            warm.kill()
            raise Failed(
                f"the sandbox cannot run even `result = 1` behind these walls ({warm.isolation}): {trial.error}"
            )
        return warm

    def _call(self, job: dict[str, Any], limits: Limits, *, report_room: int, pace: float | None = None) -> Gathered:
        encoded = _encoded(job)
        finished = False
        try:
            try:
                found = _run(self._living(), encoded, limits, report_room=report_room, pace=pace)
            except ConnectionError:  # it died since the last call, before it saw this program: replace it and go on
                self._give_up()
                found = _run(self._living(), encoded, limits, report_room=report_room, pace=pace)
            finished = found.ending is not None
            return found
        finally:
            if not finished:  # lost, or interrupted, and then its next answer would be to this call
                self._give_up()

    def _give_up(self) -> None:
        if self._warm is not None:
            self._warm.end()
            self._warm = None


def _run(warm: WarmProcess, job: bytes, limits: Limits, *, report_room: int, pace: float | None) -> Gathered:
    """One call of the warm process; `ConnectionError` where it is gone before it was asked."""
    output, output_end = os.pipe()
    report, report_end = os.pipe()
    ends = [output_end, report_end]
    try:
        with tempfile.TemporaryFile() as file:
            file.write(job)
            file.seek(0)
            if pace is not None:  # nobody reads what many calls print
                ends[0] = os.open(os.devnull, os.O_WRONLY)
                os.close(output_end)
            wire.send(warm.control, {"limits": dataclasses.asdict(limits)}, [file.fileno(), *ends])
        while ends:
            os.close(ends.pop())
        return gather(warm.control, Pipes(output, report), limits=limits, report_room=report_room, pace=pace)
    finally:
        for descriptor in (*ends, output, report):
            os.close(descriptor)


def _encoded(job: dict[str, Any]) -> bytes:
    try:
        return json.dumps(job).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput(f"values and inputs for a program must be JSON: {error}") from None
