"""A run done again from its records: no network, no key, and the same scorecard, or a list of what differs.

Every case is explained, graded and judged again in a temporary directory; language models are their recorded calls,
and code that was executed is what it gave then, unless it is to be executed again.
Everything in the scorecard is compared except how long things took and how it was asked for.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import isclose
from pathlib import Path
from typing import Any

from vesalius.documents.scorecard import Scorecard
from vesalius.errors import BadInput
from vesalius.runs.circuits import CircuitsBenchmark
from vesalius.runs.directory import CALLS, EVENTS, EXECUTIONS, RUN, Run, read_run, read_scorecard, require_benchmark
from vesalius.runs.engine import Engine
from vesalius.runs.ledger import REMEDY, read_ledger
from vesalius.runs.settings import BENCHMARK, RunLimits, Settings
from vesalius.runs.steps import StepProgress
from vesalius.runs.work import ModelAccess
from vesalius_functions.bench.benchmark import FunctionsBenchmark
from vesalius_functions.bench.settings import BENCHMARK as FUNCTIONS
from vesalius_functions.bench.settings import FunctionSettings
from vesalius_functions.bench.state import FunctionState

#: What is not compared. Scorecards of schema 1 do not say which statistic a metric is.
NOT_COMPARED = ("seconds", "request", "statistic")
MOST = 20


@dataclass(frozen=True)
class Replayed:
    """What replay found: the new scorecard, and where it differs from the stored one."""

    scorecard: Scorecard
    differences: tuple[str, ...]

    @property
    def equal(self) -> bool:
        """Whether the scorecard was reproduced."""
        return not self.differences


def replay(
    directory: Path,
    *,
    jobs: int = 2,
    execute: bool = False,
    engine: Engine | None = None,
    progress: Callable[[StepProgress], None] | None = None,
) -> Replayed:
    """Do a finished run again from its records and compare the scorecards; with `execute` code is run again."""
    of_functions = read_run(directory)["settings"].get("benchmark") == FUNCTIONS
    stored = read_scorecard(directory)
    asked = require_benchmark(directory, FUNCTIONS if of_functions else BENCHMARK)
    try:
        settings = FunctionSettings.of_run(asked) if of_functions else Settings.of_run(asked)
    except BadInput as error:
        raise BadInput(f"{directory}: {error}") from None
    except (AttributeError, LookupError, TypeError) as error:
        raise BadInput(f"{directory / RUN}: the settings cannot be read ({error}); {REMEDY}") from None
    if isinstance(settings, FunctionSettings) and settings.grading_seed is None:
        settings = replace(settings, grading_seed=stored_seed(directory, settings))
    unsafe = bool(asked.get("limits", {}).get("sandbox_unsafe"))

    def recorded(access: ModelAccess) -> ModelAccess:
        calls = (directory / CALLS / access.calls.name).resolve()
        return replace(access, calls=calls, cap=None, cap_file=None, replay=True)

    with (
        tempfile.TemporaryDirectory(prefix="vesalius-replay-") as place,
        Run(Path(place), settings=settings.as_data()) as run,
    ):
        limits = RunLimits(sandbox_unsafe=unsafe)
        if not execute and (directory / EXECUTIONS).is_dir():
            shutil.copytree(directory / EXECUTIONS, Path(place) / EXECUTIONS)
        benchmark = (
            FunctionsBenchmark(run, settings, limits=limits, engine=engine, access=recorded)
            if isinstance(settings, FunctionSettings)
            else CircuitsBenchmark(run, settings, limits=limits, engine=engine, access=recorded)
        )
        for event in benchmark.work(jobs=jobs):
            if progress is not None:
                progress(event)
        card = benchmark.scorecard()
    return Replayed(card, tuple(differences(stored.as_data(), card.as_data()))[:MOST])


def stored_seed(directory: Path, settings: FunctionSettings) -> int:
    """The grading seed that a run of functions has drawn."""
    drawn = FunctionState(read_ledger(directory / EVENTS)).grading_seed
    return settings.suite.usual_grading_seed if drawn is None else drawn


def differences(stored: Any, replayed: Any, where: str = "") -> Iterator[str]:
    """Every place at which two scorecards differ, times left out."""
    if isinstance(stored, dict) and isinstance(replayed, dict):
        for name in dict.fromkeys([*stored, *replayed]):
            if name not in NOT_COMPARED:
                yield from differences(stored.get(name), replayed.get(name), f"{where}.{name}" if where else str(name))
    elif isinstance(stored, list) and isinstance(replayed, list) and len(stored) == len(replayed):
        for index, (one, other) in enumerate(zip(stored, replayed, strict=True)):
            yield from differences(one, other, f"{where}[{index}]")
    elif not _same(stored, replayed):
        yield f"{where}: {stored!r:.80} is stored, {replayed!r:.80} came out"


def _same(stored: Any, replayed: Any) -> bool:
    """Whether two values are equal; figures may be rounded by another library or machine."""
    if isinstance(stored, float) and isinstance(replayed, float):
        return isclose(stored, replayed, rel_tol=1e-6, abs_tol=1e-9)
    return stored == replayed
