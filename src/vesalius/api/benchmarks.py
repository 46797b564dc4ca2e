"""Benchmarks: run one, or what is left of it, in a run directory, and sum it up in a scorecard.

A run that was interrupted continues when the same call is made again; what may change then are the spending cap, the
number of jobs and the engine. Without `out`, the directory is one under `vesalius-runs` named after the request.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

from vesalius.documents.scorecard import Scorecard
from vesalius.errors import note
from vesalius.progress import Progress, shown
from vesalius.runs.directory import Run
from vesalius.runs.kinds import benchmark_named, kind_of_directory
from vesalius.runs.steps import RunSettings, ScoredSteps
from vesalius.values import JsonObject

__all__ = ["bench"]


def bench(benchmark: str, **options: object) -> Any:
    """Run a benchmark: "circuits", "discovery", "functions", "mechrl" or one of a plug-in; returns its scorecard.

    The options are those of `bench_circuits`, `bench_discovery`, `bench_functions` and `bench_mechrl`.
    """
    return benchmark_named(benchmark).run(**options)


class RunLimits(Protocol):
    """What may change when a run is resumed: the results do not depend on it."""

    def as_data(self) -> JsonObject:
        """The limits as run.json holds them."""
        ...


def performed(
    directory: Path,
    settings: RunSettings,
    benchmark: Callable[[Run], ScoredSteps],
    limits: RunLimits | None = None,
    *,
    names: Mapping[str, str] | None = None,
    jobs: int,
    pages: bool = True,
    progress: Progress | bool | None,
) -> Scorecard:
    """The scorecard of a run after doing what is missing of it, with its pages."""
    kept = {} if limits is None else limits.as_data()
    priced = bool(getattr(settings, "models", ()))
    with (
        Run(directory, settings=settings.as_data(), notes=settings.notes(), limits=kept) as run,
        shown(progress) as report,
    ):
        work = benchmark(run)
        with closing(work.work(jobs=jobs)) as events:
            for event in events:
                report(event.label(names or {}, priced=priced), event.done, event.total)
        card = work.scorecard().model_copy(update={"directory": str(directory)})
        if pages:
            kind_of_directory(directory).page(directory, progress=report)
    return card


def note_errors(card: Scorecard, total: int, cases: str) -> None:
    """Say how many cases ended in an error, and why the first did."""
    if card.errors:
        first, failed = card.errors[0], len({error.case for error in card.errors})
        note(
            f"{failed} of {total} {cases} ended in an error and are not in the figures (the first, {first.case}: "
            f"{first.reason}); the same command tries them again"
        )


def absolute(path: str | Path | None) -> str | None:
    """A path that means the same in every worker."""
    return None if path is None else str(Path(path).resolve())


def selection_word(specimens: str | None, ids: Sequence[str] | None, limit: int | None) -> str | None:
    """The choice of cases as part of a directory's name."""
    words = [] if specimens is None else [Path(specimens).resolve().name]
    words += [] if ids is None else ["_".join(name.strip() for name in ids)[:60]]
    words += [] if limit is None else [f"first{limit}"]
    return "-".join(words) or None
