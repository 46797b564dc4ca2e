"""`replay` and `compare`: what finished runs are good for."""

from pathlib import Path

import typer
from rich.table import Table

from vesalius.cli.benching import label
from vesalius.cli.console import print_json, stderr, stdout, steps
from vesalius.errors import BadInput
from vesalius.runs.comparison import UNNUMBERED, Sheet, compare
from vesalius.runs.directory import is_run, read_run
from vesalius.runs.published import SOURCE
from vesalius.runs.replay import replay


def replay_run(run: str, *, jobs: int, as_json: bool) -> None:
    """Do a run again from its records; exit code 1 where the scorecard comes out otherwise."""
    directory = _run(run)
    names = read_run(directory).get("names", {})
    with steps() as tell:
        found = replay(
            directory,
            jobs=jobs,
            progress=lambda event: tell(label(event, names, paid=False), event.done, event.total),
        )
    if as_json:
        print_json({"run": str(directory), "equal": found.equal, "differences": list(found.differences)})
    elif found.equal:
        stdout.print(f"{directory}: the scorecard is reproduced from the records", soft_wrap=True)
    if not found.equal:
        stderr.print(
            f"vesalius: {directory}: the scorecard is not reproduced; {'; '.join(found.differences[:3])}",
            markup=False,
            soft_wrap=True,
        )
        raise typer.Exit(1)


def compare_runs(runs: list[str], *, as_json: bool) -> None:
    """Print the tables for these runs."""
    sheets = compare([_run(run) for run in runs])
    if as_json:
        return print_json({"runs": runs, "tables": [sheet.as_data() for sheet in sheets]})
    for name, source, _ in sheets[0].rows:
        if source != SOURCE:
            stdout.print(f"{name}: {source}", highlight=False, soft_wrap=True)
    for sheet in sheets:
        _print(sheet)
    stdout.print(f"\n* {SOURCE}. {UNNUMBERED}", soft_wrap=True)
    return None


def _run(name: str) -> Path:
    if not is_run(Path(name)):
        raise BadInput(f"run {name}: no run there (expected {Path(name) / 'run.json'})")
    return Path(name)


def _print(sheet: Sheet) -> None:
    scale = f" ({sheet.scale})" if sheet.scale else ""
    stdout.print(f"\n[bold]{sheet.id}[/bold]: {sheet.title}{scale}")
    if not sheet.columns:
        return stdout.print("nothing was counted in these runs")
    table = Table("", *(column.replace("_", " ") for column in sheet.columns), box=None, pad_edge=False)
    for name, source, figures in sheet.rows:
        marked = f"{name} *" if source.startswith(SOURCE) else name
        table.add_row(marked, *(_cell(column, figures.get(column)) for column in sheet.columns))
    stdout.print(table)


def _cell(column: str, value: float | None) -> str:
    if value is None:
        return "-"
    if column.endswith("tokens"):
        return f"{value / 1e6:.2f}M" if value >= 1e6 else f"{value:.0f}"
    return f"${value:.2f}" if column.startswith("cost") else f"{value:.3f}"
