"""Make the calls of a run again, in the same order, on a fresh desk, and compare what comes back.

Every call that succeeded is repeated with its arguments and its connection. What it cost, how long it took and the
addresses of whole results are not compared; nor is the outcome of free code, which may depend on the time.
"""

import tempfile
from collections.abc import Iterator
from math import isclose
from pathlib import Path
from typing import Any

from vesalius.runs.comparing import Replayed
from vesalius.runs.directory import read_run
from vesalius_agents.mcp.calls import tool_calls
from vesalius_agents.mcp.desk import BUDGET, Call, Desk, Options
from vesalius_agents.mcp.server import Server
from vesalius_agents.mcp.tools import TOOLS
from vesalius_session.budget import Budget

#: Not compared: what was left, and addresses. A page is its address.
_LEFT_OUT = ("left", "resource", "text")
_NOT_REPEATED = ("run_code", "report")
MOST = 20


def replay_calls(run: str | Path, *, root: Path | None = None) -> Replayed:
    """Repeat a run of tool calls. `root` is where it found models by path (default: the current directory)."""
    calls = [one for one in tool_calls(Path(run)) if one["ok"] and not one.get("cached")]
    repeated = [one for one in calls if one["tool"] not in _NOT_REPEATED]
    settings = read_run(Path(run))["settings"]
    unlimited = Budget(memory=BUDGET.memory)
    entries = {entry.function.__name__: entry for entry in TOOLS}
    differences: list[str] = []
    with tempfile.TemporaryDirectory(prefix="vesalius-replay-") as place:
        chosen = {name: settings[name] for name in ("functions_seed", "functions") if name in settings}
        desk = Desk(Path(place) / "run", Options(root=root or Path.cwd(), budget=unlimited, **chosen))
        try:
            server = Server(desk)
            for number, record in enumerate(repeated, 1):
                call = Call(desk, desk.connection(record["connection"]), lambda *_: None)
                entry = entries[record["tool"]]
                answer = server.work(call, entry, record["arguments"], record["arguments"])
                came = {"error": answer.content} if answer.is_error else answer.structured_content
                where = f"call {number}, {record['tool']}"
                differences += differing(record["result"], came, where)
        finally:
            desk.close()
    return Replayed(None, tuple(differences[:MOST]), calls=len(repeated))


def differing(stored: Any, came: Any, where: str) -> Iterator[str]:
    """Every place at which two results differ."""
    if isinstance(stored, dict) and isinstance(came, dict):
        for name in dict.fromkeys([*stored, *came]):
            if name not in _LEFT_OUT:
                yield from differing(stored.get(name), came.get(name), f"{where}.{name}")
    elif isinstance(stored, list) and isinstance(came, list) and len(stored) == len(came):
        for index, (one, other) in enumerate(zip(stored, came, strict=True)):
            yield from differing(one, other, f"{where}[{index}]")
    elif isinstance(stored, float | int) and isinstance(came, float | int):
        if not isclose(stored, came, rel_tol=1e-4, abs_tol=1e-6):
            yield f"{where}: {stored} is stored, {came} came out"
    elif stored != came:
        yield f"{where}: {stored!r:.80} is stored, {came!r:.80} came out"
