"""Leagues, submissions and rows."""

from rich.table import Table

from vesalius.cli.console import print_line, stdout
from vesalius.documents.base import Document
from vesalius.documents.league import LEAGUE_HEADLINES, League, LeagueRow, LeagueTable


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
    """Rows by headline metrics."""
    shown = [name for name in LEAGUE_HEADLINES if any(name in row.metrics for row in table.rows)]
    drawn = Table(box=None, pad_edge=False)
    for name in ("name", "n", *(name.replace("_", " ") for name in shown)):
        drawn.add_column(name)
    for row in table.rows:
        figures = [row.metrics[name].value if name in row.metrics else None for name in shown]
        drawn.add_row(row.name, str(row.n), *("–" if value is None else f"{value:.3f}" for value in figures))
    stdout.print(drawn)
    if table.note:
        print_line(table.note)
