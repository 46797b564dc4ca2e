"""The results below a directory."""

from datetime import datetime

from rich.table import Table
from rich.text import Text

from vesalius.cli.console import print_line, stdout
from vesalius.documents.listing import ResultList, ResultRow
from vesalius.documents.views import shortened
from vesalius.report.html import duration

SHOWN = 40


def print_results(results: ResultList) -> None:
    """One line for each result, the latest first."""
    if not results.results:
        return print_line(f"no results in {results.directory}")
    table = Table("result", "kind", "state", "figures", "took", "changed", box=None, pad_edge=False)
    for row in results.results[:SHOWN]:
        took = "" if row.seconds is None else duration(row.seconds)
        changed = datetime.fromtimestamp(row.modified).strftime("%Y-%m-%d %H:%M")
        table.add_row(*map(Text, (row.path, row.kind, _state(row), shortened(_figures(row), 70), took, changed)))
    stdout.print(table)
    left = len(results.results) + results.left_out - SHOWN
    return print_line(f"... {left} more; --json has them all") if left > 0 else None


def _state(row: ResultRow) -> str:
    if row.state in ("running", "unfinished") and row.done is not None and row.total:
        return f"{row.state}, {row.done} of {row.total}"
    return row.state


def _figures(row: ResultRow) -> str:
    return row.problem or row.figures or row.title
