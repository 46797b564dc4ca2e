"""Tables of the papers for people: the published row, and ours of the same name below it."""

import sys
from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

from vesalius.cli.console import print_line, stdout, with_flags
from vesalius_bench.papers.documents import Cell, PaperContents, PaperPlan, PaperRow, PaperStep, PaperTable
from vesalius_bench.papers.run_tables import figure_cell

#: Options that reasons name.
OPTIONS = ("--backbone", "--max-cost", "--judge")


def print_table(table: PaperTable) -> None:
    """The rows, what they are, and where ours differs."""
    stdout.print(f"[bold]{table.id}[/bold]: {table.title}")
    print_line(f"published: {table.published_in}{f' ({table.note})' if table.note else ''}")
    if table.columns:
        shown = Table(box=None, pad_edge=False)
        shown.add_column("", overflow="fold")
        shown.add_column("source", overflow="fold")
        for column in table.columns:
            shown.add_column(column.replace("_", " "), overflow="fold")
        for row in _side_by_side(table):
            cells = (row.name, _source(row), *(_cell(name, row.values.get(name)) for name in table.columns))
            shown.add_row(*map(Text, cells))  # as they are: brackets in a cell are not markup
        stdout.print(shown)
    if not table.published:
        print_line("published as a picture without numbers")
    for source in dict.fromkeys(row.source for row in table.measured):
        print_line(source)
    if not table.measured:
        print_line(f"not measured here; to measure: {table.command}")
    print_line(f"differs: {table.differs}")
    for picture in table.pictures:
        print_line(f"picture: {picture}")


def _side_by_side(table: PaperTable) -> Iterable[PaperRow]:
    """Each published row, then the measured ones of its name; measured rows of other names last."""
    names = {row.name for row in table.published}
    for row in table.published:
        yield row
        yield from (own for own in table.measured if own.name == row.name)
    yield from (own for own in table.measured if own.name not in names)


def _source(row: PaperRow) -> str:
    return row.source if row.source == "published" else "ours"


def _cell(column: str, value: Cell) -> str:
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) and not column.endswith("tokens") else figure_cell(column, value)


def print_contents(contents: PaperContents) -> None:
    """Every table and figure, whether it is measured, and the command that measures it."""
    print_line(f"{contents.published_in}; {len(contents.results)} results read")
    shown = Table(box=None, pad_edge=False)
    shown.add_column("", no_wrap=True)
    shown.add_column("", overflow="fold")
    shown.add_column("published", justify="right", no_wrap=True)
    shown.add_column("measured", justify="right", no_wrap=True)
    shown.add_column("command", overflow="fold")
    for entry in contents.entries:
        measured = f"{entry.measured} rows" if entry.measured else "not here"
        published = f"{entry.published} rows" if entry.published else "a picture"
        shown.add_row(entry.id, entry.title, published, measured, entry.command)
    stdout.print(shown)


def print_paper_plan(plan: PaperPlan) -> None:
    """What would be run, on stdout."""
    for line in _plan_lines(plan):
        print_line(line)


def show_plan(plan: PaperPlan) -> None:
    """What is about to be run, on stderr."""
    for line in _plan_lines(plan):
        print(line, file=sys.stderr)


def _plan_lines(plan: PaperPlan) -> Iterable[str]:
    for step in plan.steps:
        yield f"run: {step.command_line}"
        yield f"  fills {', '.join(step.fills)}; {step.work}; {_cost(step)}"
    for id, reason in plan.left_out.items():
        yield f"left out: {id}: {with_flags(reason, OPTIONS)}"
    if not plan.steps:
        yield "nothing is run"


def _cost(step: PaperStep) -> str:
    if not step.models:
        return "asks no language model, costs nothing"
    asked = f"asks {' and '.join(dict.fromkeys(step.models))}"
    if step.cost is None:
        return f"{asked}, cost not known before the run; at most the spending cap"
    return f"{asked}, about ${step.cost:.2f} by the tokens of the paper's agent"
