"""The tables of MechRL in the published form."""

from rich.table import Table

from vesalius.cli.console import print_line, stdout
from vesalius.documents.metric import Figure
from vesalius_mechrl.documents import MechrlStudy


def print_mechrl(document: MechrlStudy) -> None:
    """Every table, the conclusions, and where the files are."""
    _print("Table 1: best reward found and the best there is", _gaps(document))
    canonical = document.canonical
    _print("Table 2: rank of the canonical heads", _ranks(document), canonical.get("table2"))
    _print("Table 3: categories among the ten most picked heads", _groups(document), canonical.get("table3"))
    _print("Table 4: transfer to tasks never trained on", _transfer(document))
    _print("Most picked heads (in how many episodes)", _picks(document))
    _print("Regret against queries paid", _regret(document))
    print_line(f"reward in {document.unit}; control text: {document.control}")
    for line in document.conclusions():
        print_line(line)
    print_line(f"numbers: {document.numbers}")
    for picture in document.pictures:
        print_line(f"picture: {picture}")


def _gaps(document: MechrlStudy) -> Table:
    table = Table("task", "method", "policy", "oracle", "gap", box=None)
    for row in document.table1:
        task = f"{row.task} (held-out)" if row.held_out else row.task
        table.add_row(task, row.method, *(_interval(getattr(row, name)) for name in ("policy", "oracle", "gap")))
    return table


def _ranks(document: MechrlStudy) -> Table:
    table = Table("head", "method", "policy rank (each seed)", "oracle rank", box=None)
    beyond = document.heads if document.mode == "paper" else float("inf")
    for row in document.table2:
        ranks = ", ".join("-" if rank > beyond else f"{rank:g}" for rank in row.policy_ranks)
        table.add_row(row.head, row.method, ranks, f"{row.oracle_rank:g}")
    return table


def _groups(document: MechrlStudy) -> Table:
    table = Table("category", "heads", "method", "overlap (each seed)", box=None)
    for row in document.table3:
        overlap = ", ".join(f"{part:.3g}" for part in row.overlap)
        table.add_row(row.group, str(row.size), row.method, overlap or "not told by attention")
    return table


def _picks(document: MechrlStudy) -> Table:
    table = Table("task", "method", "seed", "heads", "tied with the last", box=None)
    for row in document.picks:
        heads = ", ".join(f"{pick.head} {pick.count}/{row.episodes}" for pick in row.heads)
        table.add_row(row.task, row.method, str(row.seed), heads, str(row.tied_with_last))
    return table


def _transfer(document: MechrlStudy) -> Table:
    table = Table("task", "method", "condition", "best reward found", box=None)
    for row in document.table4:
        table.add_row(row.task, row.method, row.condition, _interval(row.found))
    return table


def _regret(document: MechrlStudy) -> Table:
    budgets = document.regret[0].methods[0].budgets
    table = Table("task", "method", *(f"{budget:g}" for budget in budgets), box=None)
    for row in document.regret:
        for method in row.methods:
            table.add_row(row.task, method.method, *(f"{mean:.2f}" for mean in method.mean))
    return table


def _interval(figure: Figure) -> str:
    if figure.low is None:
        return f"{figure.value:.3f}"
    return f"{figure.value:.3f} [{figure.low:.3f}, {figure.high:.3f}]"


def _print(title: str, table: Table, source: str | None = None) -> None:
    stdout.print(f"\n[bold]{title}[/bold]")
    if source:
        print_line(f"heads: {source}")
    stdout.print(table)
