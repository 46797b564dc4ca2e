"""`bench circuits`: explain and grade many circuits, and print the scorecard.

The work is in `runs`; here are the choice of circuits, the progress on stderr and the table for people.
"""

from contextlib import closing
from pathlib import Path
from typing import Any

from rich.table import Table

from vesalius.cli.console import print_json, stderr, stdout, steps
from vesalius.cli.places import out_directory
from vesalius.errors import BadInput
from vesalius.report.run import render_run
from vesalius.runs.circuits import CircuitsBenchmark, Settings
from vesalius.runs.directory import Run
from vesalius.runs.selection import Circuit, benchmark_circuits, first, trained_circuits


def circuits(
    *,
    scientist: str,
    specimens: str | None,
    ids: list[str] | None,
    limit: int | None,
    seed: int,
    jobs: int,
    out: str | None,
    leave_out: str | None,
    as_json: bool,
) -> None:
    """Run the benchmark, or what is left of it, and print its scorecard."""
    settings = Settings(
        circuits=tuple(_chosen(specimens, ids, limit)), scientist=scientist, seed=seed, leave_out=leave_out
    )
    without = None if leave_out is None else f"without-{leave_out}"
    directory = out_directory(
        out, "bench-circuits", scientist, _selection(specimens, ids, limit), without, f"seed{seed}"
    )
    with Run(directory, settings=settings.as_data(), notes={"places": settings.places()}) as run, steps() as tell:
        benchmark = CircuitsBenchmark(run, settings)
        names = {circuit.id: circuit.name for circuit in settings.circuits}
        with closing(benchmark.work(jobs=jobs)) as work:
            for event in work:
                tell(f"{event.step}: {names[event.case]}", event.done, event.total)
        scorecard = benchmark.scorecard()
        index = render_run(directory, progress=tell)
    if scorecard["n_error"]:
        stderr.print(
            f"{scorecard['n_error']} of {len(settings.circuits)} circuits ended in an error and are not in the figures "
            f"(the first, {scorecard['errors'][0]['case']}: {scorecard['errors'][0]['reason']}); "
            "the same command tries them again",
            markup=False,
            soft_wrap=True,
        )
    if as_json:
        return print_json(scorecard)
    _print(scorecard)
    stdout.print(f"index page: {index}", soft_wrap=True)
    return None


def _chosen(specimens: str | None, ids: list[str] | None, limit: int | None) -> list[Circuit]:
    if specimens is not None and ids is not None:
        raise BadInput("--ids chooses among the benchmark circuits; leave it out with --specimens")
    return first(trained_circuits(Path(specimens)) if specimens is not None else benchmark_circuits(ids), limit)


def _selection(specimens: str | None, ids: list[str] | None, limit: int | None) -> str | None:
    """The choice as part of a directory's name."""
    words = [] if specimens is None else [Path(specimens).resolve().name]
    words += [] if ids is None else ["_".join(name.strip() for name in ids)[:60]]
    words += [] if limit is None else [f"first{limit}"]
    return "-".join(words) or None


def _print(scorecard: dict[str, Any]) -> None:
    table = Table("metric", "value", "95 % interval", "n", "baseline", box=None, pad_edge=False)
    for name, metric in scorecard["metrics"].items():
        table.add_row(*_cells(name, metric))
    for null, metrics in scorecard["nulls"].items():
        for name, short in (("component_iia", "iia"), ("component_iia_changed", "iia changed")):
            table.add_row(*_cells(f"null {null}: {short} above chance", metrics[f"{name}_above_chance"]))
    stdout.print(
        f"[bold]{scorecard['benchmark']}[/bold], {scorecard['subject']}: {scorecard['n']} circuits, "
        f"{scorecard['n_error']} errors, {scorecard['inert']['n']} components that no interchange shows"
    )
    stdout.print(table)
    for baseline in scorecard["baselines"]["tag_accuracy"]:
        stdout.print(f"tag accuracy, {baseline['name']}: {baseline['value']:.3f} ({baseline['source']})", markup=False)
    stdout.print(f"cost {scorecard['cost']:.2f}, {scorecard['seconds']:.0f} s of work")


def _cells(name: str, metric: dict[str, Any]) -> tuple[str, ...]:
    baseline = "" if metric.get("baseline") is None else f"{metric['baseline']:.3f}"
    return name, f"{metric['value']:.3f}", f"{metric['low']:.3f} to {metric['high']:.3f}", str(metric["n"]), baseline
