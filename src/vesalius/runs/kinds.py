"""The kinds of run directories: what `run.json` names as its benchmark, and what can be done with such a run.

A benchmark is an entry point of the group `vesalius.benchmarks`, another long work that keeps a run directory one of
`vesalius.runs`; both are named as in `run.json`, and their value is a subclass of `RunKind`. Listing, comparing,
replaying, watching and drawing ask it, so that no lower room knows which benchmarks there are.
"""

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from vesalius.documents.difference import Compared, compared_explanations
from vesalius.documents.explanation import EXPLANATION_FILE
from vesalius.documents.kinds import kind_in
from vesalius.documents.scorecard import Scorecard
from vesalius.documents.trace import AgentRun, RunState
from vesalius.documents.view import Viewable
from vesalius.errors import BadInput, choices
from vesalius.plugins import BENCHMARKS, RUNS, Plugin, PluginGroup, find_plugin, plugin_names
from vesalius.progress import Progress
from vesalius.runs.directory import (
    EVENTS,
    EXPLANATIONS,
    SCORECARD,
    Run,
    Worker,
    read_explanation,
    read_own_run,
    read_run,
    require_benchmark,
    worker_of,
)
from vesalius.runs.engine import Engine
from vesalius.runs.ledger import read_ledger
from vesalius.runs.steps import ScoredSteps
from vesalius.values import JsonObject

#: The first main metrics of a scorecard.
MAIN = ("tag_accuracy", "task_exact", "success", "exact_match", "sweep.node_auroc_mean")


class RunKind:
    """What a run directory of one name is. What a kind does not say holds for a benchmark of explained circuits."""

    #: The name in `run.json`.
    NAME: ClassVar[str] = ""
    #: True if its ledger is a record of an agent's calls: it has no end of its own and is watched by `watch`.
    HAS_CALLS: ClassVar[bool] = False
    #: Names of plug-ins that are built in, by group of entry points.
    BUILT_IN: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    def listed(self, directory: Path, settings: Mapping[str, object]) -> JsonObject:
        """The fields of its row in a list of results: its scorecard, or how many cases have a result by now."""
        asked = ", ".join(str(settings[key]) for key in ("scientist", "backbone", "interpreter") if settings.get(key))
        if (directory / SCORECARD).is_file():
            card = Scorecard.read(directory / SCORECARD)
            main = [name for name in MAIN if name in card.metrics] or list(card.metrics)[:2]
            return {
                "title": f"bench {settings.get('benchmark')}, {card.subject}",
                "figures": ", ".join(f"{name} {card.metrics[name].figures}" for name in main[:2]),
                "cost": card.cost,
                "seconds": card.seconds,
                "done": card.n,
                "total": card.n + card.n_error,
            }
        cases, records = settings.get("specimens"), read_ledger(directory / EVENTS)
        number = len(cases) if isinstance(cases, dict) else settings.get("count")
        done = Counter(str(record.get("event")) for record in records)
        # What the calls of a ledger cost by now.
        used = [record["used"] for record in records if isinstance(record.get("used"), dict)]
        costs = [one.get("cost") for one in used]
        return {
            "title": f"bench {settings.get('benchmark')}, {asked}",
            "state": "unfinished",
            "done": max(done.values(), default=0),
            "total": number if type(number) is int and number > 0 else None,
            "cost": math.fsum(cost for cost in costs if isinstance(cost, int | float)) if used else None,
        }

    def compared(self, a: Path, b: Path) -> Compared:
        """How two finished runs differ, beside their metrics."""
        return compared_explanations(_explanations(a), _explanations(b))

    def settings_of(self, directory: Path, asked: JsonObject) -> Any:
        """The settings in `run.json`, to do the run again; refused where runs of this kind cannot be."""
        require_benchmark(directory, "circuits")

    def steps(
        self, run: Run, settings: Any, replayed: Path, *, engine: Engine | None, sandbox_unsafe: bool
    ) -> ScoredSteps:
        """Its steps in an open run directory, with the records of the run `replayed` in place of language models."""
        raise NotImplementedError

    def replay(self, directory: Path) -> Any:
        """Do the run again and compare, where that is not done by its steps; None where it is."""
        return None

    def page(self, directory: Path, *, progress: Progress | None = None) -> Path:
        """Write the pages of a finished run and return the path of the first: of a run without more, its result's."""
        kind = kind_in(directory)
        if kind is None or not issubclass(kind, Viewable):
            raise BadInput(f"{directory}: the run has no result with a page; the command that began it continues it")
        return kind.read(directory / str(kind.FILE)).page(directory)  # pyrefly: ignore[missing-attribute]

    def watch(self, directory: Path, *, case: str | None, first: int, most: int, common: JsonObject) -> AgentRun:
        """What an agent did in it, from call `first` on, where it has calls of its own."""
        raise NotImplementedError

    def text(self, directory: Path, *, case: str | None, number: int, part: str) -> str:
        """A whole text of one of these calls."""
        raise NotImplementedError


class Benchmark(RunKind):
    """A kind of run that `vesalius bench NAME` and `ves.bench(NAME)` start."""

    def run(self, *arguments: Any, **options: Any) -> Any:
        """Run it, or what is left of it, and return its scorecard."""
        raise NotImplementedError


def benchmark_names() -> list[str]:
    """Every benchmark by name; nothing is imported."""
    return plugin_names(BENCHMARKS, ())


def benchmark_named(name: str) -> Benchmark:
    """The benchmark of a name."""
    found = _found(BENCHMARKS, name)
    if not isinstance(found, Benchmark):
        raise BadInput(f"benchmark {name!r} does not exist; choose one of {choices(benchmark_names())}")
    return found


def kind_of_run(run: Mapping[str, Any] | None) -> RunKind:
    """The kind of run that `run.json` names; a common one where no installed package knows it."""
    name = str((run or {}).get("settings", {}).get("benchmark"))
    return _found(BENCHMARKS, name) or _found(RUNS, name) or RunKind()


def kind_of_directory(directory: Path) -> RunKind:
    """The kind of run in a directory."""
    return kind_of_run(read_run(directory))


def kind_of_calls() -> RunKind | None:
    """What lists a directory in which a language model's calls are recorded and no result is yet, where a package that
    reads them is installed.
    """
    return _found(RUNS, "calls")


def run_state(directory: Path, worker: Worker | None = None) -> RunState:
    """Whether a process works on a run, its result is there, or neither."""
    return "running" if worker or worker_of(directory) else state_of_files(directory, read_own_run(directory))


def state_of_files(directory: Path, run: Mapping[str, object] | None) -> RunState:
    """The state of a run that no process works on; `run` is its `run.json`, None of an explanation."""
    if kind_of_run(run).HAS_CALLS:
        return "finished"  # it has no end of its own
    result = EXPLANATION_FILE if run is None else SCORECARD
    return "finished" if (directory / result).is_file() else "stopped"


def _found(group: PluginGroup, name: str) -> RunKind | None:
    plugin = find_plugin(group, name, ())
    return None if plugin is None else offered_kind(plugin)


def offered_kind(plugin: Plugin) -> RunKind:
    """The kind of run that a plug-in is."""
    loaded = plugin.load()
    if not (isinstance(loaded, type) and issubclass(loaded, RunKind) and plugin.name == loaded.NAME):
        raise plugin.refused(f"is no RunKind of the name {plugin.name!r}")
    with plugin.running():
        return loaded()


def _explanations(run: Path) -> JsonObject:
    directory = run / EXPLANATIONS
    paths = sorted(directory.glob("*.json")) if directory.is_dir() else []
    return {path.stem: read_explanation(path) for path in paths}
