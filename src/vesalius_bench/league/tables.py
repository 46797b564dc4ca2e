"""Leagues, submissions and rows."""

from collections.abc import Sequence

from rich.table import Table

from vesalius.cli.console import print_line, stdout
from vesalius.documents.base import Document
from vesalius_bench.league.documents import LEAGUE_HEADLINES, League, LeagueRow, LeagueTable

#: Columns that fit a terminal of 80; `league score` prints every metric.
EXPLANATION_COLUMNS = ("tag_accuracy", "component_iia", "power", "false_support", "coverage", "bias", "task_exact")
DISCOVERY_COLUMNS = ("power", "false_support", "node_auroc", "circuit_recall", "circuit_precision")


def print_league(league: League, place: str) -> None:
    """What was made, and what to do with it."""
    print_summary(league)
    print_line(f"give {place} away; explain it: vesalius league submit {place} --scientist builtin")


def print_summary(document: Document) -> None:
    """A document in a few lines."""
    for line in repr(document).splitlines():
        print_line(line)


def print_row(row: LeagueRow, place: str) -> None:
    """Every metric, one line each."""
    print_line(f"{row.name}: {row.n} circuits scored, {row.n_error} errors")
    order = [*(name for name in LEAGUE_HEADLINES if name in row.metrics), *row.metrics]
    for name in dict.fromkeys(order):
        metric = row.metrics[name]
        baseline = "" if metric.baseline is None else f", baseline {metric.baseline:.3f}"
        print_line(f"{name} {metric.figures}, n {metric.n}{baseline}")
    print_line(f"row and page in {place}/rows")


def print_table(table: LeagueTable) -> None:
    """Rows by headline metrics: explanations in one table, discoveries in another, each as wide as a terminal."""
    kinds: dict[tuple[str, ...], list[LeagueRow]] = {}
    for row in table.rows:
        is_discovery = "node_auroc" in row.metrics
        kinds.setdefault(DISCOVERY_COLUMNS if is_discovery else EXPLANATION_COLUMNS, []).append(row)
    for columns, rows in kinds.items():
        _print_rows(rows, [name for name in columns if any(name in row.metrics for row in rows)])
    if table.note:
        print_line(table.note)


def _print_rows(rows: Sequence[LeagueRow], columns: Sequence[str]) -> None:
    drawn = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    drawn.add_column("name", min_width=min(24, max(len(row.name) for row in rows)), overflow="fold")
    for name in ("n", *(name.replace("_", "\n") for name in columns)):
        drawn.add_column(name, justify="right")
    for row in rows:
        figures = [row.metrics[name].value if name in row.metrics else None for name in columns]
        drawn.add_row(row.name, str(row.n), *("–" if value is None else f"{value:.3f}" for value in figures))
    stdout.print(drawn)
