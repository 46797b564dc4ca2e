"""A run of `vesalius mcp`, watched: what an agent called, with what, what came back, and what it cost.

Every connection is a case; consecutive calls of one tool are a stage. Records may come from elsewhere, so whatever a
field holds becomes text.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Self, get_args

from pydantic import BaseModel, ValidationError, model_validator

from vesalius.documents.base import first_error
from vesalius.documents.explanation import Verdict
from vesalius.documents.trace import AgentCall, AgentCase, AgentRun, Text, ToolUse
from vesalius.errors import BadInput, choices
from vesalius.files import read_json, write_json
from vesalius.runs.comparing import Replayed
from vesalius.runs.directory import EVENTS, Run, read_own_run
from vesalius.runs.kinds import RunKind
from vesalius.runs.ledger import REMEDY, Record, read_ledger
from vesalius_backbones.runs.conversation import LONGEST, LONGEST_WHOLE
from vesalius_backbones.runs.usage import summed

# A run of tool calls that another agent made: its ledger, and the whole results beside it.
#
# Every call that came to an end is one record `call`: who called which tool with what, what it cost, and what came
# back. Whole results, which are too long for an answer, are files of their own, written before the record that names
# them.

#: What `run.json` calls such a run, and the event of a call.
TOOLS, CALL = "mcp", "call"
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
        self._run = Run(directory, settings={"benchmark": TOOLS, **settings}, limits=limits)
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
    if run is None or run["settings"].get("benchmark") != TOOLS:
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


#: The tool whose argument is a program, and the argument.
_CODE_TOOL, _CODE = "run_code", "code"
_LONGEST_LABEL = 80


class ToolRuns(RunKind):
    """Run directories of `vesalius mcp`."""

    NAME = TOOLS
    HAS_CALLS = True

    def listed(self, directory: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
        """How many calls were made over how many connections, and what they cost."""
        calls = tool_calls(directory)
        clients = len({call["connection"] for call in calls})
        forwards = math.fsum(call["used"].get("forwards", 0.0) for call in calls)
        return {
            "kind": TOOLS,
            "title": f"mcp, {clients} connection{'s' if clients != 1 else ''}",
            "figures": f"{len(calls)} calls, {forwards:,.0f} forward passes",
            "seconds": math.fsum(call["used"].get("seconds", 0.0) for call in calls),
        }

    def replay(self, directory: Path) -> Replayed:
        """Make the calls again and compare what comes back."""
        try:
            replaying = import_module("vesalius_agents.mcp.replaying")
        except ModuleNotFoundError as missing:
            raise BadInput(f"calls of tools need {missing.name}; run: pip install 'vesalius[mcp]'") from None
        return replaying.replay_calls(directory)

    def watch(self, directory: Path, *, case: str | None, first: int, most: int, common: dict[str, Any]) -> AgentRun:
        """What an agent called over one connection."""
        return watch_tools(directory, case=case, first=first, most=most, common=common)

    def text(self, directory: Path, *, case: str | None, number: int, part: str) -> str:
        """The whole arguments or result of a call."""
        return whole_tool_text(directory, case=case, number=number, part=part)


def watch_tools(directory: Path, *, case: str | None, first: int, most: int, common: dict[str, Any]) -> AgentRun:
    """The calls of one connection from number `first` on, at most so many; by default of the one that called last."""
    records = recorded_calls(directory)
    connections = list(dict.fromkeys(_connection(record) for record in records))
    chosen = _chosen(case, connections)
    own = [record for record in records if _connection(record) == chosen]
    first = min(max(0, first), len(own))
    texts = _texts_by_key(records)
    counted = {name: sum(_connection(record) == name for record in records) for name in connections}
    cases = tuple(AgentCase(case=name, name=name, calls=counted[name], explained=False) for name in connections)
    return AgentRun(
        **common,
        scientist="another agent",
        specimen=f"{TOOLS}, {chosen}" if chosen else TOOLS,
        case=chosen,
        cases=cases,
        first=first,
        n_calls=len(own),
        calls=tuple(_call(number, own[number], texts) for number in range(first, min(first + most, len(own)))),
        forwards=math.fsum(_used(record, "forwards") for record in own),
        seconds=math.fsum(_used(record, "seconds") for record in own),
        usage=summed((), run=common["run"], scientist="", backbone=None),
    )


def whole_tool_text(directory: Path, *, case: str | None, number: int, part: str) -> str:
    """A whole text of one call: `tool.0.given` or `tool.0.result`."""
    records = recorded_calls(directory)
    chosen = _chosen(case, list(dict.fromkeys(_connection(record) for record in records)))
    own = [record for record in records if _connection(record) == chosen]
    if not 0 <= number < len(own):
        raise BadInput(f"call {number}: there are {len(own)} calls")
    texts = {"tool.0.given": _given(own[number]), "tool.0.result": _result(own[number], _texts_by_key(records)) or ""}
    if part not in texts:
        raise BadInput(f"part {part[:60]!r}: a call has {choices(texts)}")
    return texts[part][:LONGEST_WHOLE]


def _chosen(case: str | None, connections: Sequence[str]) -> str | None:
    if case is None:
        return connections[-1] if connections else None
    if case not in connections:
        raise BadInput(f"connection {case[:60]!r}: not in this run; it has {choices(connections)}")
    return case


def _call(number: int, record: Record, texts: dict[str, str]) -> AgentCall:
    tool, result, arguments = _tool(record), record.get("result"), record.get("arguments")
    verdict = result.get("verdict") if isinstance(result, dict) else None
    claim = arguments.get("claim") if isinstance(arguments, dict) else None
    kind = claim.get("kind") if isinstance(claim, dict) else None
    reply = _result(record, texts)
    use = ToolUse(
        tool=tool,
        given=_cut(_given(record)),
        is_code=tool == _CODE_TOOL,
        claim=kind[:_LONGEST_LABEL] if isinstance(kind, str) else None,
        result=None if reply is None else _cut(reply),
        verdict=verdict if verdict in get_args(Verdict) else None,
    )
    error = record.get("error")
    return AgentCall(
        number=number,
        label=tool,
        stage=tool,
        tools=(use,),
        failure=None if record.get("ok") else str(error or "no reason is on record")[:LONGEST],
        seconds=_used(record, "seconds"),
        forwards=_used(record, "forwards"),
    )


def _given(record: Record) -> str:
    """The arguments as text; of a program its code."""
    arguments = record.get("arguments")
    if _tool(record) == _CODE_TOOL and isinstance(arguments, dict) and isinstance(arguments.get(_CODE), str):
        return arguments[_CODE]
    return json.dumps(arguments, ensure_ascii=False, indent=1)


def _result(record: Record, texts: dict[str, str]) -> str | None:
    """What the agent was told; a call that was made before has the text of the first one."""
    if not record.get("ok"):
        return None
    if record.get("cached"):
        return texts.get(str(record.get("key")))
    return _text(record)


def _text(record: Record) -> str:
    result = record.get("result")
    text = result.get("text") if isinstance(result, dict) else None
    return text if isinstance(text, str) else json.dumps(result, ensure_ascii=False)


def _texts_by_key(records: Sequence[Record]) -> dict[str, str]:
    made = (record for record in records if record.get("ok") and record.get("key") and not record.get("cached"))
    return {str(record["key"]): _text(record) for record in made}


def _connection(record: Record) -> str:
    return str(record.get("connection", ""))[:_LONGEST_LABEL]


def _tool(record: Record) -> str:
    return str(record.get("tool", ""))[:_LONGEST_LABEL]


def _used(record: Record, name: str) -> float:
    used = record.get("used")
    value = used.get(name) if isinstance(used, dict) else None
    known = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if known and value is not None else 0.0


def _cut(text: str) -> Text:
    return Text(text=text[:LONGEST], length=len(text))
