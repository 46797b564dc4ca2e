"""A run of tool calls that another agent made: its ledger, and the whole results beside it.

Every call that came to an end is one record `call`: who called which tool with what, what it cost, and what came back.
Whole results, which are too long for an answer, are files of their own, written before the record that names them.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ValidationError, model_validator

from vesalius.documents.base import first_error
from vesalius.errors import BadInput
from vesalius.files import read_json, write_json
from vesalius.runs.directory import EVENTS, Run, read_own_run
from vesalius.runs.ledger import REMEDY, Record, read_ledger

#: What `run.json` calls such a run, and the event of a call.
MCP, CALL = "mcp", "call"
RESULTS = "results"
#: Characters of the name of a result at most: it is a digest.
LONGEST_NAME = 64


class ToolRun:
    """An open run of tool calls. `settings` decide what the tools return; `limits` may change when it is resumed."""

    def __init__(self, directory: Path, *, settings: Mapping[str, Any], limits: Mapping[str, Any]) -> None:
        self.directory = directory
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(f"{directory}: cannot be made ({error.strerror}); choose another `run`") from None
        self._run = Run(directory, settings={"benchmark": MCP, **settings}, limits=limits)
        try:
            _require_calls(self._run.ledger.records, directory / EVENTS)
            (directory / RESULTS).mkdir(exist_ok=True)
        except (BadInput, OSError):
            self.close()
            raise

    @property
    def calls(self) -> list[Record]:
        """Every finished call, those of earlier processes first."""
        return [record for record in self._run.ledger.records if record["event"] == CALL]

    def append(self, **fields: Any) -> Record:
        """Write down a finished call; it is on the disk when this returns."""
        return self._run.ledger.append(CALL, **fields)

    def write_result(self, name: str, data: Any) -> None:
        """Keep a whole result."""
        write_json(self.result_path(name), data)

    def read_result(self, name: str) -> Any:
        """A whole result."""
        return read_json(self.result_path(name))

    def has_result(self, name: str, ending: str = "json") -> bool:
        """Whether a whole result is kept under this name, which may be any text; names are short and hold no path."""
        return name.isalnum() and len(name) <= LONGEST_NAME and self.result_path(name, ending).is_file()

    def result_path(self, name: str, ending: str = "json") -> Path:
        """Where a whole result is kept."""
        return self.directory / RESULTS / f"{name}.{ending}"

    def close(self) -> None:
        """Release the run for other processes."""
        self._run.__exit__(None, None, None)


def tool_calls(directory: Path) -> list[Record]:
    """The calls of a run that this process does not hold; refused where it is another run, or `run.json` a link."""
    run = read_own_run(directory)
    if run is None or run["settings"].get("benchmark") != MCP:
        raise BadInput(f"{directory}: holds no run of `vesalius mcp`; name one")
    return recorded_calls(directory)


def recorded_calls(directory: Path) -> list[Record]:
    """The calls in the ledger of what is known to be a run of tool calls."""
    records = read_ledger(directory / EVENTS)
    _require_calls(records, directory / EVENTS)
    return [record for record in records if record["event"] == CALL]


class _Decided(BaseModel):
    claim: dict[str, Any]
    record: dict[str, Any]


class _Noted(BaseModel):
    explanation: dict[str, dict[str, Any]] = {}
    answer: dict[str, dict[str, Any]] = {}
    asked: dict[str, list[Any]] = {}
    decided: dict[str, list[_Decided]] = {}


class _Call(BaseModel):
    """What is read of a call; a ledger without checksums may say anything."""

    connection: str
    tool: str
    arguments: dict[str, Any]
    ok: bool
    used: dict[str, float]
    key: str | None = None
    cached: bool = False
    result: dict[str, Any] | None = None
    noted: _Noted | None = None

    @model_validator(mode="after")
    def _answered(self) -> Self:
        if self.ok and not self.cached and self.result is None:
            raise ValueError("has no result")
        return self


def _require_calls(records: Iterable[Record], path: Path) -> None:
    for number, record in enumerate(records, 1):
        try:
            if record["event"] == CALL:
                _Call.model_validate(record)
        except ValidationError as error:
            raise BadInput(f"{path}, record {number}: {first_error(error)}; {REMEDY}") from None
