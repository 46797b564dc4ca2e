"""Runs while they are under way: what a language model has done so far."""

from pathlib import Path

from vesalius.documents.trace import AgentRun
from vesalius.errors import BadInput
from vesalius.progress import Stopped, stoppable
from vesalius.runs.directory import worker_of
from vesalius.runs.watching import Watcher, run_state

__all__ = ["Stopped", "Watcher", "run_state", "stoppable", "watch", "worker_of"]


def watch(run: str | Path, *, case: str | None = None) -> AgentRun:
    """What a run of a language model has done so far: its calls stage by stage, its hypotheses, tokens and cost.

    `run` is a directory that `vesalius explain` or `vesalius bench circuits` writes to, now or before; `case` is one
    circuit of a benchmark (default: the one that was asked about last).
    """
    directory = Path(run)
    if not directory.is_dir():
        raise BadInput(f"run {run}: no such directory")
    return Watcher().look(directory, case=case)
