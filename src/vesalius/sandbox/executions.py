"""What executed code gave, kept in a file, so that a run can be repeated without running the code again.

A program near its time limit may end one way today and another way tomorrow. `Executions` keeps one line per call of a
sandbox; the same call, in the same order, is answered from the file. A line carries a checksum: half a line at the end
is what a killed process leaves and is dropped, an altered one is refused.
"""

import dataclasses
import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vesalius.errors import BadInput, Failed
from vesalius.sandbox.lockdown import CallResult, Limits, Outcome
from vesalius.sandbox.sandbox import NO_VALUES, Sandbox


class Executions:
    """The calls of one case. Without a path nothing is kept; one that is not `writable` answers what it has."""

    def __init__(self, path: Path | None = None, *, writable: bool = True) -> None:
        self._path, self._writable = path, writable
        self._results: dict[str, Any] = {}
        self._repetitions: Counter[str] = Counter()
        #: How many calls were answered from the file, and how many were run.
        self.recalled, self.run = 0, 0
        if path is not None:
            self._read(path)

    def outcome(self, code: str, values: Mapping[str, Any], run: Callable[[], Outcome]) -> Outcome:
        """What one program did: recorded, or else `run` and kept. `values` are all that it depends on beside itself."""
        data = self._result({"code": code, "values": dict(values)}, lambda: dataclasses.asdict(run()))
        return Outcome(**data)

    def results(self, call: Mapping[str, Any], run: Callable[[], list[CallResult]]) -> list[CallResult]:
        """What a function returned for each input: recorded, or else `run` and kept."""
        data = self._result(call, lambda: [list(dataclasses.astuple(result)) for result in run()])
        return [CallResult(*result) for result in data]

    def _result(self, call: Mapping[str, Any], run: Callable[[], Any]) -> Any:
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
    def _append(path: Path, record: dict[str, Any]) -> None:
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

    def execute(self, code: str, values: Mapping[str, Any] = NO_VALUES, *, limits: Limits | None = None) -> Outcome:
        """As in `Sandbox`, from the record where it is there."""

        def run() -> Outcome:
            return super(RecordedSandbox, self).execute(code, values, limits=limits)

        return run() if self.executions is None else self.executions.outcome(code, values, run)

    def call_many(
        self,
        code: str,
        function: str,
        inputs: Sequence[Any],
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


def _digest(data: Any) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:32]
