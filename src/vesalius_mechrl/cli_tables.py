"""The tables of MechRL in the published form, and sets of heads."""

from rich.table import Table

from vesalius.cli.console import print_line, stdout
from vesalius.documents.metric import Figure
from vesalius_mechrl.documents import MechrlStudy
from vesalius_mechrl.sets.document import BackupGroup, HeadSets, MeasuredSet


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


def print_sets(head_sets: HeadSets, top: int) -> None:
    """The best sets, the groups of heads that back each other up, and what the search cost."""
    metrics = head_sets.metrics
    print_line(
        f"clean {metrics['clean']:.3f} {head_sets.unit}; effect = clean minus edited, value = effect less "
        f"{head_sets.price:.3g} per head"
    )
    table = Table("set", "effect", "95 % interval", "value", box=None)
    for row in head_sets.sets[: min(top, 5)]:
        heads = " ".join(row.heads[:8]) + (f" ... ({len(row.heads)})" if len(row.heads) > 8 else "")
        table.add_row(heads, *_effect(row), f"{row.value:+.3f}")
    stdout.print(table)
    groups = Table("backup group", "together", "95 % interval", "alone", "sum alone", "synergy", box=None)
    for group in head_sets.backup_groups[:top]:
        alone = " ".join(f"{member.effect:+.3f}" for member in group.alone)
        groups.add_row(
            " ".join(group.heads), *_effect(group), alone, f"{group.sum_alone:+.3f}", f"{group.synergy:+.3f}"
        )
    stdout.print(groups if head_sets.backup_groups else "no backup group held on the held-out prompts")
    print_line(
        f"{head_sets.search} search: {metrics['queries']} of {head_sets.budget} queries"
        f"{'' if head_sets.complete else ' (budget spent)'}, {metrics['queries_to_confirm']} to confirm; "
        f"all pairs: {metrics['all_pairs']}; {head_sets.forwards:.1f} forward-equivalents, {head_sets.seconds:.1f} s"
    )
    for name, place in (("picture", head_sets.picture), ("directory", head_sets.directory)):
        if place is not None:
            print_line(f"{name}: {place}")


def _effect(row: MeasuredSet | BackupGroup) -> tuple[str, str]:
    return f"{row.effect:+.3f}", f"[{row.low:+.3f}, {row.high:+.3f}]"
