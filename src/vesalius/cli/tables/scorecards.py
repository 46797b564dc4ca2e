"""Scorecards of the benchmarks."""

from collections.abc import Mapping

from rich.table import Table

from vesalius.cli.console import print_line, stdout
from vesalius.documents import Metric, Scorecard
from vesalius.documents.scorecard import AREAS

SHOWN_FAMILIES = 8


def print_circuits(card: Scorecard) -> None:
    """The metrics beside their baselines and what null explanations earn."""
    inert = 0 if card.inert is None else card.inert.n
    stdout.print(
        f"[bold]{card.benchmark}[/bold], {card.subject}: {card.n} circuits, {card.n_error} errors, {inert} components "
        "that no interchange shows"
    )
    if card.inert is not None and card.inert.components:
        print_line(f"no interchange shows: {', '.join(card.inert.components)}")
    table = _metrics(card.metrics)
    for null, figures in (card.nulls or {}).items():
        table.add_row(*_cells(f"null {null}: iia above chance", figures.component_iia_above_chance))
        table.add_row(*_cells(f"null {null}: iia changed above chance", figures.component_iia_changed_above_chance))
    stdout.print(table)
    for baseline in (card.baselines or {}).get("tag_accuracy", ()):
        stdout.print(f"tag accuracy, {baseline.name}: {baseline.value:.3f} ({baseline.source})", markup=False)
    calls = sum(part.calls for part in (card.usage or {}).values())
    stdout.print(f"cost {_cost(card)}, {calls} calls of language models, {card.seconds:.0f} s of work")
    print_line(f"index page: {card.directory}/report.html")


#: What `bench discovery --hard` adds.
HARD_FIGURES = ("node_precision", "edge_precision", "guarantee_coverage", "best_false", "false_rivals")


def print_discovery(card: Scorecard) -> None:
    """Medians and means of every method, and what they cost."""
    columns = ("method", "figure", "median", "95 % interval", "mean", "95 % interval", "n", "chance")
    table = Table(*columns, box=None, pad_edge=False)
    methods = card.methods or {}
    for method, figures in methods.items():
        for name in AREAS:
            if (area := figures.area(name)) is not None:
                cells = [_figures(metric, ", ") for metric in area]
                baseline = "" if area[0].baseline is None else f"{area[0].baseline:.3f}"
                table.add_row(method, name, *cells[0], *cells[1], str(area[0].n), baseline)
    stdout.print(table)
    hard = {name: metric for name, metric in card.metrics.items() if name.endswith(HARD_FIGURES)}
    if hard:
        stdout.print(_metrics(hard))
    for method, figures in methods.items():
        stdout.print(
            f"{method}: {figures.forwards:.1f} forward-equivalents per circuit, {figures.seconds:.1f} s in all, "
            f"{figures.n_error} errors"
        )
    print_line(f"numbers: {card.directory}/scorecard.json")


def print_functions(card: Scorecard) -> None:
    """The metrics, the families that went wrong most often, and what to know about the figures."""
    print_line(f"{card.benchmark}, {card.category}, {card.subject}: {card.n} functions, {card.n_error} errors")
    stdout.print(_metrics(card.metrics))
    worst = [(name, row) for name, row in (card.families or {}).items() if row.failed][:SHOWN_FAMILIES]
    if worst:
        failed = ", ".join(f"{name} {row.failed} of {row.n}" for name, row in worst)
        stdout.print(f"less than right: {failed}", markup=False)
    for caveat in card.caveats or ():
        stdout.print(caveat, markup=False)
    stdout.print(f"cost {_cost(card)}, {card.seconds:.0f} s of work", markup=False)
    print_line(f"page: {card.directory}/report.html")


def _metrics(metrics: Mapping[str, Metric]) -> Table:
    table = Table("metric", "value", "95 % interval", "n", "baseline", box=None, pad_edge=False)
    for name, metric in metrics.items():
        table.add_row(*_cells(name, metric))
    return table


def _cells(name: str, metric: Metric) -> tuple[str, ...]:
    baseline = "" if metric.baseline is None else f"{metric.baseline:.3f}"
    return name, *_figures(metric, " to "), str(metric.n), baseline


def _figures(metric: Metric, between: str) -> tuple[str, str]:
    """The value and its interval; a dash where there is none."""
    if metric.value is None or metric.low is None or metric.high is None:
        return "-", "-"
    return f"{metric.value:.3f}", f"{metric.low:.3f}{between}{metric.high:.3f}"


def _cost(card: Scorecard) -> str:
    return "unknown" if card.cost is None else f"${card.cost:.2f}"
