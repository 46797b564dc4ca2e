"""Benchmarks: run one, or what is left of it, in a run directory, and sum it up in a scorecard.

A run that was interrupted continues when the same call is made again; what may change then are the spending cap, the
number of jobs and the engine. Without `out`, the directory is one under `vesalius-runs` named after the request.
"""

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from vesalius.api.door import directory_for, findable_model, verb
from vesalius.discovery.discover import CORE_NAMES
from vesalius.documents.scorecard import Scorecard
from vesalius.errors import BadInput, note
from vesalius.json_lines import short_name
from vesalius.options import (
    BENCHED,
    Ask,
    Chosen,
    CircuitMethod,
    Compared,
    Jobs,
    Judges,
    Out,
    Published,
    Sample,
    Who,
    Workers,
)
from vesalius.progress import Progress, shown, silent
from vesalius.report.pages import render_circuits
from vesalius.runs.circuits import CircuitsBenchmark
from vesalius.runs.directory import Run
from vesalius.runs.discovery import DiscoveryBenchmark, DiscoverySettings
from vesalius.runs.discovery_cases import hard_circuits
from vesalius.runs.engine import engine_named
from vesalius.runs.kinds import Benchmark, benchmark_named, kind_of_directory
from vesalius.runs.settings import BenchmarkSettings, RunLimits, chosen_circuits, selection_word
from vesalius.runs.steps import RunSettings, ScoredSteps

__all__ = ["bench", "bench_circuits", "bench_discovery", "chosen_circuits"]


def bench(benchmark: str, **options: Any) -> Any:
    """Run a benchmark: "circuits", "discovery", "functions", "mechrl" or one of a plug-in; returns its scorecard.

    The options are those of `bench_circuits`, `bench_discovery`, `bench_functions` and `bench_mechrl`.
    """
    return benchmark_named(benchmark).run(**options)


@verb
def bench_circuits(
    *,
    who: Who,
    ask: Ask,
    judged: Judges,
    chosen: Published,
    source: CircuitMethod,
    workers: Workers,
    out: Out = None,
    progress: Progress = silent,
) -> Scorecard:
    """Explain circuits with known answers, grade tags and programs, and draw a page for each.

    `scientist` is "builtin", "hyve" (the default where there is a `backbone`) or `package.module:function`. `specimens`
    is a directory of specimens made by `vesalius train` instead of the 84, or of the published InterpBench models (a
    directory with one folder per case, or a hub id), which are graded against the published `annotations` (a directory
    or a hub dataset; default: `annotations` in or beside it). `ids` chooses among the 84, or among the cases;
    `circuit_from` names a method that discovers the circuit instead of taking the given one. `base_url`, `max_tokens`
    and `compact` are for the scientist's language model: where it is served, its longest reply, and short typed
    prompts.
    """
    model, annotations = ask.backbone, None if chosen.annotations is None else str(chosen.annotations)
    circuits = chosen_circuits(chosen.folder, chosen.names, chosen.limit, annotations)
    ask = replace(ask, backbone=findable_model(ask.backbone), prices=absolute(ask.prices))
    judges = tuple(findable_model(judge) or "" for judge in judged.judges)
    settings = BenchmarkSettings.of(circuits, who, ask, judges, source.circuit_from)
    if ask.base_url is not None and ask.backbone is None:
        raise BadInput("`base_url`: the scientist asks no language model; leave it out")
    limits, runs_on = RunLimits.of(ask, base_url=ask.base_url), engine_named(workers.engine)
    limits.check_models(settings.models, settings.prices)
    directory = directory_for(
        out,
        "bench-circuits",
        short_name(settings.scientist),
        None if model is None else model.replace(":", "_"),
        settings.protocol,
        "compact" if settings.compact else None,
        selection_word(chosen.folder, chosen.names, chosen.limit),
        None if source.circuit_from is None else f"from-{source.circuit_from}",
        None if settings.leave_out is None else f"without-{settings.leave_out}",
        f"seed{who.seed}",
    )

    def benchmark(run: Run) -> CircuitsBenchmark:
        return CircuitsBenchmark(run, settings, limits=limits, engine=runs_on)

    names = {circuit.id: circuit.name for circuit in settings.circuits}
    card = performed(directory, settings, benchmark, limits, names=names, jobs=workers.jobs, progress=progress)
    note_errors(card, len(settings.circuits), "circuits")
    return card


@verb
def bench_discovery(
    *,
    compared: Compared,
    chosen: Chosen,
    sample: Sample = BENCHED,
    workers: Jobs,
    out: Out = None,
    progress: Progress = silent,
) -> Scorecard:
    """Find circuits with known answers by each method, on `n` prompts, and grade the scores against the answer.

    `hard` takes models written by hand that mislead discovery (redundant, negative, cancelling and position-only parts,
    a second task, noise) instead of the 84, each also with a behaviour of which a share of the answers is wrong, and
    adds precision at the true size, the coverage of guarantees and how often faithful circuits are false; `limit` is
    the number of models. With `specimens` or `ids` these are asked the same instead. `steps` is the number of gradients
    that EAP-IG averages (0: 5).
    """
    folder, named, limit, hard = chosen.folder, chosen.names, chosen.limit, compared.hard
    planted = hard and folder is None and named is None
    method_word = None if compared.names == CORE_NAMES else "_".join(compared.names)
    settings_words = (f"steps{compared.steps}" if compared.steps else None, f"n{sample.n}", f"seed{sample.seed}")
    words = (method_word, selection_word(None, None, limit), *settings_words)
    place = directory_for(out, "bench-discovery-hard", *words) if planted else None
    circuits = (
        chosen_circuits(folder, named, limit)
        if place is None
        else hard_circuits(place.with_name(f"{place.name}-models"), limit)
    )
    if any(circuit.annotation is not None for circuit in circuits):
        raise BadInput(f"`specimens` {folder}: holds published models, which `bench circuits` grades; use that")
    settings = DiscoverySettings(tuple(circuits), compared.names, sample.n, sample.seed, hard, compared.steps)
    directory = place or directory_for(
        out,
        "bench-discovery-hard" if hard else "bench-discovery",
        method_word,
        selection_word(folder, named, limit),
        *settings_words,
    )
    names = {circuit.id: circuit.name for circuit in settings.circuits}
    card = performed(
        directory,
        settings,
        lambda run: DiscoveryBenchmark(run, settings),
        names=names,
        jobs=workers.jobs,
        pages=False,
        progress=progress,
    )
    if card.errors:
        first = card.errors[0]
        note(
            f"{len(card.errors)} cases ended in an error and are not in the figures (the first, {first.method} on "
            f"{first.case}: {first.reason}); the same command tries them again"
        )
    return card


class CircuitsBench(Benchmark):
    """`vesalius bench circuits`."""

    NAME = "circuits"

    def run(self, **options: Any) -> Scorecard:
        """Explain and grade."""
        return bench_circuits(**options)

    def settings_of(self, directory: Path, asked: dict[str, Any]) -> BenchmarkSettings:
        """What was asked."""
        return BenchmarkSettings.of_run(asked)

    def steps(self, run: Run, settings: BenchmarkSettings, **options: Any) -> CircuitsBenchmark:
        """Explain, grade, judge."""
        return CircuitsBenchmark(run, settings, **options)

    def page(self, directory: Path, *, progress: Progress | None = None) -> Path:
        """The index page, and one page per circuit."""
        return render_circuits(directory, progress=progress)


class DiscoveryBench(Benchmark):
    """`vesalius bench discovery`."""

    NAME = "discovery"

    def run(self, **options: Any) -> Scorecard:
        """Discover and grade."""
        return bench_discovery(**options)


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
