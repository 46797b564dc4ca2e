"""Finished runs beside the published tables."""

from rich.table import Table

from vesalius.api.runs import SOURCE, UNNUMBERED, Sheet
from vesalius.cli.console import print_line, stdout


def print_sheets(sheets: list[Sheet]) -> None:
    """Every table, with the sources of the rows that were measured."""
    for name, source, _ in sheets[0].rows:
        if source != SOURCE:
            print_line(f"{name}: {source}")
    for sheet in sheets:
        _print_sheet(sheet)
    print_line(f"\n* {SOURCE}. {UNNUMBERED}")


def _print_sheet(sheet: Sheet) -> None:
    scale = f" ({sheet.scale})" if sheet.scale else ""
    stdout.print(f"\n[bold]{sheet.id}[/bold]: {sheet.title}{scale}")
    if not sheet.columns:
        return stdout.print("nothing was counted in these runs")
    table = Table("", *(column.replace("_", " ") for column in sheet.columns), box=None, pad_edge=False)
    for name, source, figures in sheet.rows:
        marked = f"{name} *" if source.startswith(SOURCE) else name
        table.add_row(marked, *(_cell(column, figures.get(column)) for column in sheet.columns))
    return stdout.print(table)


def _cell(column: str, value: float | None) -> str:
    if value is None:
        return "-"
    if column.endswith("tokens"):
        return f"{value / 1e6:.2f}M" if value >= 1e6 else f"{value:.0f}"
    return f"${value:.2f}" if column.startswith("cost") else f"{value:.3f}"
