"""How the command talks: JSON on stdout, tables for people, progress on stderr."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from vesalius.behaviours.performance import Performance

stdout = Console()
stderr = Console(stderr=True)


def print_json(document: Any) -> None:
    """One JSON document on stdout."""
    sys.stdout.write(json.dumps(document, ensure_ascii=False, allow_nan=False, indent=2) + "\n")


def warn_unperformed(name: str, behaviour: str | None, performance: "Performance | None") -> None:
    """Say on stderr that a model was dissected for something it does not do (somebody forced it)."""
    if performance is not None and not performance.performs:
        told = f"note: {name} does not perform {behaviour} ({performance.describe()}); what is found may be noise"
        stderr.print(told, markup=False, soft_wrap=True)


def _bar(*columns: ProgressColumn) -> Progress:
    """A bar for people only: where stderr is a file or a pipe, it holds the one line of a refusal and nothing else."""
    return Progress(*columns, console=stderr, transient=True, disable=not stderr.is_terminal)


@contextmanager
def progress(description: str) -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar on stderr; the function it gives is called with (done, total)."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with _bar(*columns) as bar:
        task = bar.add_task(description, total=None)
        yield lambda step, done, total: bar.update(task, completed=done, total=total)


@contextmanager
def steps() -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar whose label changes: called with (step, done, total)."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with _bar(*columns) as bar:
        task = bar.add_task("loading", total=None)
        yield lambda step, done, total: bar.update(task, description=step, completed=done, total=total)
