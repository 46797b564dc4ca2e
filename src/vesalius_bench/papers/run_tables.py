"""Finished runs beside the published tables, and what they asked of language models."""

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from vesalius.cli.console import print_line, stdout
from vesalius.documents.printed import RunUsage
from vesalius_bench.papers.comparison import Comparison, Sheet
from vesalius_bench.papers.published import NOT_MEASURED

#: Components that are printed, those that took most input tokens; --json has all.
MOST_COMPONENTS = 20
#: The columns of figures, and their headings.
FIGURES = {
    "calls": "calls",
    "input_tokens": "tokens in",
    "cached_tokens": "cached",
    "output_tokens": "out",
    "cost": "cost",
    "seconds": "seconds",
}


def print_comparison(comparison: Comparison) -> None:
    """Every published table, then the calls."""
    if comparison.tables:
        _print_sheets(comparison.tables)
    if comparison.usage:
        _print_stages(comparison.usage)
        _print_components(comparison.usage)


def _print_sheets(sheets: Sequence[Sheet]) -> None:
    """Every table, with the sources of the rows that were measured."""
    rows = dict.fromkeys((name, source) for sheet in sheets for name, source, _ in sheet.rows)
    for name, source in rows:
        if NOT_MEASURED not in source:
            print_line(f"{name}: {source}")
    for sheet in sheets:
        print_sheet(sheet)
    # Of a paper whose figures have no numbers the longer note says that as well.
    notes = dict.fromkeys(source for _, source in rows if NOT_MEASURED in source)
    for note in notes:
        if not any(other != note and other.startswith(note) for other in notes):
            print_line(f"\n* {note}")


def print_sheet(sheet: Sheet) -> None:
    """One table."""
    scale = f" ({sheet.scale})" if sheet.scale else ""
    stdout.print(f"\n[bold]{sheet.id}[/bold]: {sheet.title}{scale}")
    if not sheet.columns:
        return stdout.print("nothing was counted in these runs")
    table = Table("", *(column.replace("_", " ") for column in sheet.columns), box=None, pad_edge=False)
    for name, source, figures in sheet.rows:
        marked = f"{name} *" if NOT_MEASURED in source else name
        table.add_row(marked, *(figure_cell(column, figures.get(column)) for column in sheet.columns))
    return stdout.print(table)


def _print_stages(usage: Sequence[RunUsage]) -> None:
    stdout.print("\n[bold]Calls[/bold] by stage (per component: the scientist's, no judges)")
    table = _calls_table("run", "stage")
    for run in usage:
        for stage in run.stages:
            table.add_row(run.run, stage.stage, *_figures(stage.as_data()))
        table.add_row(run.run, "all", *_figures(run.total.as_data()))
        if run.per_component is not None:
            table.add_row(run.run, "per component", *_figures(run.per_component))
    stdout.print(table)


def _print_components(usage: Sequence[RunUsage]) -> None:
    rows = [(run.run, one) for run in usage for one in run.components]
    if not rows:
        return
    rows.sort(key=lambda row: -row[1].input_tokens)
    stdout.print("\n[bold]Calls[/bold] by component (the scientist's, no judges)")
    table = _calls_table("run", "case", "component")
    for run, one in rows[:MOST_COMPONENTS]:
        table.add_row(run, one.case, one.component or "(all)", *_figures(one.as_data()))
    stdout.print(table)
    if len(rows) > MOST_COMPONENTS:
        print_line(f"the {MOST_COMPONENTS} of {len(rows)} with most input tokens; --json has all")


def _calls_table(*names: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in names:
        table.add_column(name, overflow="fold")
    for heading in FIGURES.values():
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _figures(used: dict[str, Any]) -> list[str]:
    return [figure_cell(name, used[name]) for name in FIGURES]


def figure_cell(column: str, value: float | None) -> str:
    """A figure as its column prints it: tokens in millions, dollars, counts, else three places."""
    if value is None:
        return "-"
    if column.endswith("tokens"):
        return f"{value / 1e6:.2f}M" if value >= 1e6 else f"{value:.0f}"
    if column in ("calls", "seconds"):
        return f"{value:.0f}" if isinstance(value, int) else f"{value:.1f}"
    if column.startswith("cost"):
        return f"${value:.4f}" if 0 < value < 0.1 else f"${value:.2f}"
    return f"{value:.3f}"
