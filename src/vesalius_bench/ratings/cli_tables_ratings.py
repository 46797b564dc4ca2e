"""Ratings of people and judges."""

from rich.table import Table

from vesalius.cli.console import print_line, stdout
from vesalius_bench.papers.comparison import Sheet
from vesalius_bench.papers.published import SOURCE
from vesalius_bench.papers.run_tables import print_sheet
from vesalius_bench.ratings.documents_ratings import AgentScore, Ratings


def print_ratings(ratings: Ratings, sheets: list[Sheet]) -> None:
    """Raters, pairs, the score of each agent, and the published tables beside."""
    print_line(f"{len(ratings.items)} texts, {sum(one.n for one in ratings.raters)} scores")
    for note in ratings.notes:
        print_line(f"note: {note}")
    table = Table("rater", "", "scores", "means", box=None, pad_edge=False)
    for one in ratings.raters:
        means = ", ".join(f"{name.replace('_', ' ')} {value:.2f}" for name, value in one.means.items())
        table.add_row(one.rater, one.kind, str(one.n), means)
    stdout.print(table)
    _print_pairs(ratings)
    _print_agents("majority of the people", ratings.majority)
    _print_agents("lowest score of the people", ratings.lowest)
    for sheet in sheets:
        if sheet.rows:
            print_sheet(sheet)
    print_line(f"\n* {SOURCE}")


def _print_pairs(ratings: Ratings) -> None:
    if not ratings.pairs:
        return print_line("\nno two raters scored the same text, so there is no agreement to print")
    table = Table("pair", "measure", "kappa", "n", "equal", box=None, pad_edge=False, title_justify="left")
    for pair in ratings.pairs:
        ends = "" if pair.low is None or pair.high is None else f" [{pair.low:.2f}, {pair.high:.2f}]"
        kappa = "undefined" if pair.kappa is None else f"{pair.kappa:.3f}{ends}"
        equal = "" if pair.agreement is None else f"{pair.agreement:.2f}"
        table.add_row(f"{pair.a} | {pair.b}", pair.measure.replace("_", " "), kappa, str(pair.n), equal)
    print_line("")
    return stdout.print(table)


def _print_agents(title: str, scores: tuple[AgentScore, ...]) -> None:
    split = any(one.n_split for one in scores)
    table = Table("agent", "measure", title, "n", *(["no majority"] if split else []), box=None, pad_edge=False)
    for one in scores:
        value = "no value" if one.value is None else f"{one.value:.3f}"
        ends = "" if one.low is None or one.high is None else f" [{one.low:.3f}, {one.high:.3f}]"
        name = ", ".join(filter(None, (one.agent, one.run))) or "all"
        table.add_row(
            name, one.measure.replace("_", " "), f"{value}{ends}", str(one.n), *([str(one.n_split)] if split else [])
        )
    print_line("")
    stdout.print(table)
