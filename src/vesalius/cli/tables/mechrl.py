"""The tables of MechRL in the published form."""

from typing import Any

from rich.table import Table

from vesalius.cli.console import print_line, stdout


def print_mechrl(document: dict[str, Any]) -> None:
    """Every table, the conclusions, and where the files are."""
    _print("Table 1: best reward found and the best there is", _gaps(document))
    _print("Table 2: rank of the heads that look like induction heads", _ranks(document))
    _print("Table 3: groups among the ten most picked heads", _groups(document))
    _print("Table 4: transfer to tasks never trained on", _transfer(document))
    _print("Regret against queries paid", _regret(document))
    for line in conclusions(document):
        print_line(line)
    print_line(f"numbers: {document['numbers']}")
    for picture in document["pictures"]:
        print_line(f"picture: {picture}")


def conclusions(document: dict[str, Any]) -> list[str]:
    """One line per task: at which budgets a learned policy wins, draws and loses, and against whom."""
    lines = []
    for task in dict.fromkeys(row["task"] for row in document["verdicts"]):
        rows = [row for row in document["verdicts"] if row["task"] == task]
        parts = []
        for result in ("wins", "draw", "loses"):
            at = [f"{row['budget']:g} ({row['policy']} / {row['rival']})" for row in rows if row["result"] == result]
            parts += [f"{result} at {', '.join(at)}"] if at else []
        held = " (held out)" if rows[0]["held_out"] else ""
        lines.append(f"{task}{held}: RL {'; '.join(parts)}")
    return lines


def _gaps(document: dict[str, Any]) -> Table:
    table = Table("task", "method", "policy", "oracle", "gap", box=None)
    for row in document["table1"]:
        task = f"{row['task']} (held-out)" if row["held_out"] else row["task"]
        table.add_row(task, row["method"], *(_interval(row[name]) for name in ("policy", "oracle", "gap")))
    return table


def _ranks(document: dict[str, Any]) -> Table:
    table = Table("head", "method", "policy rank (each seed)", "oracle rank", box=None)
    beyond = document["heads"] if document["mode"] == "paper" else float("inf")
    for row in document["table2"]:
        ranks = ", ".join("-" if rank > beyond else f"{rank:g}" for rank in row["policy_ranks"])
        table.add_row(row["head"], row["method"], ranks, f"{row['oracle_rank']:g}")
    return table


def _groups(document: dict[str, Any]) -> Table:
    table = Table("group", "heads", "method", "overlap (each seed)", box=None)
    for row in document["table3"]:
        table.add_row(
            row["group"], str(row["size"]), row["method"], ", ".join(f"{part:.3g}" for part in row["overlap"])
        )
    return table


def _transfer(document: dict[str, Any]) -> Table:
    table = Table("task", "method", "condition", "best reward found", box=None)
    for row in document["table4"]:
        table.add_row(row["task"], row["method"], row["condition"], _interval(row["found"]))
    return table


def _regret(document: dict[str, Any]) -> Table:
    budgets = document["regret"][0]["methods"][0]["budgets"]
    table = Table("task", "method", *(f"{budget:g}" for budget in budgets), box=None)
    for row in document["regret"]:
        for method in row["methods"]:
            table.add_row(row["task"], method["method"], *(f"{mean:.2f}" for mean in method["mean"]))
    return table


def _interval(figure: dict[str, Any]) -> str:
    if figure["low"] is None:
        return f"{figure['value']:.3f}"
    return f"{figure['value']:.3f} [{figure['low']:.3f}, {figure['high']:.3f}]"


def _print(title: str, table: Table) -> None:
    stdout.print(f"\n[bold]{title}[/bold]")
    stdout.print(table)
