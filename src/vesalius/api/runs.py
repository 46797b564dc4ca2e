"""Finished runs: repeat one from its records, compare several with the published tables and by what they asked."""

from collections.abc import Sequence
from pathlib import Path

from vesalius.errors import BadInput
from vesalius.progress import Progress, shown
from vesalius.runs.comparison import UNNUMBERED, Comparison, Sheet
from vesalius.runs.comparison import compare as compared
from vesalius.runs.directory import is_run, read_run
from vesalius.runs.published import SOURCE
from vesalius.runs.replay import Replayed
from vesalius.runs.replay import replay as replayed

__all__ = ["SOURCE", "UNNUMBERED", "Comparison", "Replayed", "Sheet", "compare", "replay"]


def replay(
    run: str | Path, *, jobs: int = 2, execute: bool = False, progress: Progress | bool | None = None
) -> Replayed:
    """Repeat a finished run from its recorded calls, without network or key, and compare the scorecards.

    What executed code gave is read from the run as well; `execute` runs it again.
    """
    directory = _run(run)
    names = read_run(directory).get("names", {})
    with shown(progress) as report:
        return replayed(
            directory,
            jobs=jobs,
            execute=execute,
            progress=lambda event: report(event.label(names, priced=False), event.done, event.total),
        )


def compare(runs: Sequence[str | Path]) -> Comparison:
    """Runs side by side: of the circuits benchmark in the published tables, and of these and of explanations (made by
    `ves.explain` with `out`) the calls, tokens, cost and seconds by stage and by component.
    """
    return compared([Path(run) for run in runs])


def _run(name: str | Path) -> Path:
    if not is_run(Path(name)):
        raise BadInput(f"run {name}: no run there (expected {Path(name) / 'run.json'})")
    return Path(name)
