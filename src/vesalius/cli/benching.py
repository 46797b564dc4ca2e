"""`bench circuits`: explain and grade many circuits, and print the scorecard.

The work is in `runs`; here are the choice of circuits, the progress on stderr and the table for people.
"""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from vesalius.cli.console import print_json, stderr, stdout, steps
from vesalius.cli.places import out_directory
from vesalius.documents.metric import Metric
from vesalius.documents.scorecard import Scorecard
from vesalius.report.run import render_run
from vesalius.runs.circuits import CircuitsBenchmark
from vesalius.runs.directory import Run
from vesalius.runs.engine import engine_named
from vesalius.runs.scientists import HYVE, PROTOCOLS
from vesalius.runs.selection import chosen_circuits, selection_word
from vesalius.runs.settings import Limits, Settings
from vesalius.runs.steps import Progress


@dataclass(frozen=True)
class Request:
    """What the command line asked for; None where an option was left out."""

    scientist: str
    specimens: str | None
    ids: list[str] | None
    limit: int | None
    circuit_from: str | None
    seed: int
    leave_out: str | None
    backbone: str | None
    protocol: str | None
    judges: tuple[str, ...]
    prices: str | None
    max_cost: float | None
    unsafe_sandbox: bool

    def settings(self) -> Settings:
        """What decides the results."""
        protocol = PROTOCOLS[0] if self.scientist == HYVE and self.protocol is None else self.protocol
        return Settings(
            circuits=tuple(chosen_circuits(self.specimens, self.ids, self.limit)),
            scientist=self.scientist,
            circuit_from=self.circuit_from,
            seed=self.seed,
            leave_out=self.leave_out,
            backbone=None if self.backbone is None else anywhere(self.backbone),
            protocol=protocol,
            judges=tuple(map(anywhere, self.judges)),
            prices=None if self.prices is None else str(Path(self.prices).resolve()),
        )

    def limits(self) -> Limits:
        """What only limits the run."""
        return Limits(max_cost=self.max_cost, sandbox_unsafe=self.unsafe_sandbox)

    def words(self) -> tuple[str | None, ...]:
        """The parts of the run directory's name, where none was asked for."""
        return (
            "bench-circuits",
            self.scientist.replace(":", "."),
            None if self.backbone is None else self.backbone.replace(":", "_"),
            self.protocol,
            selection_word(self.specimens, self.ids, self.limit),
            None if self.circuit_from is None else f"from-{self.circuit_from}",
            None if self.leave_out is None else f"without-{self.leave_out}",
            f"seed{self.seed}",
        )


def circuits(request: Request, *, jobs: int, engine: str, out: str | None, as_json: bool) -> None:
    """Run the benchmark, or what is left of it, and print its scorecard."""
    settings, limits, runs_on = request.settings(), request.limits(), engine_named(engine)
    limits.check_models(settings.models, settings.prices)
    directory = out_directory(out, *request.words())
    opened = Run(directory, settings=settings.as_data(), notes=settings.notes(), limits=limits.as_data())
    with opened as run, steps() as tell:
        benchmark = CircuitsBenchmark(run, settings, limits=limits, engine=runs_on)
        names = {circuit.id: circuit.name for circuit in settings.circuits}
        with closing(benchmark.work(jobs=jobs)) as work:
            for event in work:
                tell(label(event, names, paid=bool(settings.models)), event.done, event.total)
        scorecard = benchmark.scorecard()
        index = render_run(directory, progress=tell)
    _tell_errors(scorecard, len(settings.circuits))
    if as_json:
        return print_json(scorecard.as_data())
    _print(scorecard)
    stdout.print(f"index page: {index}", soft_wrap=True)
    return None


def label(event: Progress, names: dict[str, str], *, paid: bool) -> str:
    """One step of a run in a line: what is done and, where models are paid, the cost so far."""
    done = f"{event.step}: {names.get(event.case, event.case)}"
    if not paid:
        return done
    return f"{done}, cost so far {'unknown' if event.cost is None else f'${event.cost:.4f}'}"


def _tell_errors(scorecard: Scorecard, total: int) -> None:
    if not scorecard.errors:
        return
    first = scorecard.errors[0]
    stderr.print(
        f"{len({error.case for error in scorecard.errors})} of {total} circuits ended in an error and are not in "
        f"the figures (the first, {first.case}: {first.reason}); the same command tries them again",
        markup=False,
        soft_wrap=True,
    )


def anywhere(model: str) -> str:
    """A scripted model's file by its whole path, so that workers find it wherever they run."""
    provider, colon, name = model.partition(":")
    return f"scripted:{Path(name).resolve()}" if provider == "scripted" and colon and name else model


def _print(scorecard: Scorecard) -> None:
    inert = 0 if scorecard.inert is None else scorecard.inert.n
    stdout.print(
        f"[bold]{scorecard.benchmark}[/bold], {scorecard.subject}: {scorecard.n} circuits, "
        f"{scorecard.n_error} errors, {inert} components that no interchange shows"
    )
    table = metric_table(scorecard.metrics)
    for null, figures in (scorecard.nulls or {}).items():
        table.add_row(*_cells(f"null {null}: iia above chance", figures.component_iia_above_chance))
        table.add_row(*_cells(f"null {null}: iia changed above chance", figures.component_iia_changed_above_chance))
    stdout.print(table)
    for baseline in (scorecard.baselines or {}).get("tag_accuracy", ()):
        stdout.print(f"tag accuracy, {baseline.name}: {baseline.value:.3f} ({baseline.source})", markup=False)
    cost = "unknown" if scorecard.cost is None else f"${scorecard.cost:.2f}"
    calls = sum(part.calls for part in (scorecard.usage or {}).values())
    stdout.print(f"cost {cost}, {calls} calls of language models, {scorecard.seconds:.0f} s of work")


def metric_table(metrics: Mapping[str, Metric]) -> Table:
    """Metrics as a table: value, interval, count, baseline."""
    table = Table("metric", "value", "95 % interval", "n", "baseline", box=None, pad_edge=False)
    for name, metric in metrics.items():
        table.add_row(*_cells(name, metric))
    return table


def _cells(name: str, metric: Metric) -> tuple[str, ...]:
    baseline = "" if metric.baseline is None else f"{metric.baseline:.3f}"
    return name, f"{metric.value:.3f}", f"{metric.low:.3f} to {metric.high:.3f}", str(metric.n), baseline
