"""Finished runs and results: list them, repeat one from its records, compare two with each other."""

from pathlib import Path

from vesalius.api.places import RUNS, Out, directory_for, require_place
from vesalius.documents.base import Document
from vesalius.documents.difference import DIFFERENCE_FILE, Difference
from vesalius.documents.printed import ResultList
from vesalius.errors import BadInput
from vesalius.progress import Progress, shown
from vesalius.runs.comparing import Replayed, difference
from vesalius.runs.comparing import replay as replayed
from vesalius.runs.directory import is_run, read_run
from vesalius.runs.listing import ResultIndex, list_results

__all__ = ["Replayed", "ResultIndex", "diff", "replay", "require_run", "results"]


def replay(
    run: str | Path, *, jobs: int = 2, execute: bool = False, progress: Progress | bool | None = None
) -> Replayed:
    """Repeat a finished run from its recorded calls, without network or key, and compare the scorecards.

    What executed code gave is read from the run as well; `execute` runs it again.
    """
    directory = require_run(run)
    names = read_run(directory).get("names", {})
    with shown(progress) as report:
        return replayed(
            directory,
            jobs=jobs,
            execute=execute,
            progress=lambda event: report(event.label(names, priced=False), event.done, event.total),
        )


def results(directory: str | Path = RUNS) -> ResultList:
    """Every run and every result below a directory, the latest first: what it is, how far, its figures and cost."""
    return list_results(Path(directory))


def diff(a: Document | str | Path, b: Document | str | Path, *, out: Out = None) -> Difference:
    """What differs between two results of the same kind: claims that flipped, components that moved, figures side by
    side.

    Each is a result, a directory that `explain`, `discover`, `sweep` or `bench` wrote, or its JSON file: two seeds, two
    scientists, a base model and a fine-tuned one. Nothing is computed again. With `out` it is written there.
    """
    require_place(out)
    compared_results = difference(a, b)
    if out:
        compared_results.write(directory_for(out, "diff") / DIFFERENCE_FILE)
    return compared_results


def require_run(name: str | Path) -> Path:
    """The directory of a run of a benchmark."""
    if not is_run(Path(name)):
        raise BadInput(f"run {name}: no run there (expected {Path(name) / 'run.json'})")
    return Path(name)
