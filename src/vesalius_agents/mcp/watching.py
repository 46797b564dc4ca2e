"""A run of `vesalius mcp`, watched: what an agent called, with what, what came back, and what it cost.

Every connection is a case; consecutive calls of one tool are a stage. Records may come from elsewhere, so whatever a
field holds becomes text.
"""

import json
import math
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

from vesalius.documents.explanation import Verdict
from vesalius.documents.trace import AgentCall, AgentCase, AgentRun, Text, ToolUse
from vesalius.errors import BadInput, choices
from vesalius.runs.comparing import Replayed
from vesalius.runs.kinds import RunKind
from vesalius.runs.ledger import Record
from vesalius_agents.mcp.calls import MCP, recorded_calls, tool_calls
from vesalius_backbones.runs.conversation import LONGEST, LONGEST_WHOLE
from vesalius_backbones.runs.usage import summed

#: The tool whose argument is a program, and the argument.
_CODE_TOOL, _CODE = "run_code", "code"
_LONGEST_LABEL = 80


class ToolRuns(RunKind):
    """Run directories of `vesalius mcp`."""

    NAME = MCP
    HAS_CALLS = True

    def listed(self, directory: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
        """How many calls were made over how many connections, and what they cost."""
        calls = tool_calls(directory)
        clients = len({call["connection"] for call in calls})
        forwards = math.fsum(call["used"].get("forwards", 0.0) for call in calls)
        return {
            "kind": MCP,
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
        specimen=f"{MCP}, {chosen}" if chosen else MCP,
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
