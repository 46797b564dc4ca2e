"""Runs of tool calls that other agents make: open one to write it, or read what one holds."""

from pathlib import Path
from typing import Any

from vesalius.api.places import RUNS
from vesalius.runs.directory import read_run
from vesalius.runs.tools import ToolRun, is_tool_run, tool_calls

__all__ = ["RUNS", "ToolRun", "is_tool_run", "run_settings", "tool_calls"]


def run_settings(run: str | Path) -> dict[str, Any]:
    """What a run was started with."""
    return read_run(Path(run))["settings"]
