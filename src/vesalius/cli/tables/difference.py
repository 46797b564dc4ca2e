"""Two results side by side."""

from rich.table import Table

from vesalius.cli.console import print_line, stdout
from vesalius.documents.difference import ClaimDifference, ComponentDifference, Difference, FigurePair

#: Rows of each table that are printed; --json has them all.
SHOWN = 20


def print_difference(difference: Difference) -> None:
    """What flipped first, then what moved, then the figures."""
    print_line(f"A: {difference.a}\nB: {difference.b}")
    for name, (a, b) in difference.asked.items():
        print_line(f"  {name}: {a} | {b}")
    for note in difference.notes:
        print_line(f"note: {note}")
    if difference.claims_same or difference.claims_flipped or difference.claims_only:
        _print_claims(difference)
    _print_components(difference)
    if difference.metrics:
        _print_figures(difference)


def _print_claims(difference: Difference) -> None:
    print_line(
        f"\n{len(difference.claims_flipped)} claims flipped, {difference.claims_same} have the same verdict,"
        f" {len(difference.claims_only)} are made by one alone"
    )
    for claim in difference.claims_flipped[:SHOWN]:
        print_line(f"  {_case(claim)}{claim.text}\n      {claim.a} -> {claim.b}")
    _print_rest(len(difference.claims_flipped))


def _print_components(difference: Difference) -> None:
    print_line(
        f"\n{len({(one.specimen, one.component) for one in difference.components_moved})} components moved,"
        f" {difference.components_same} did not ({difference.rule})"
    )
    if difference.components_moved:
        table = Table("component", "what", "A", "B", box=None, pad_edge=False)
        for one in difference.components_moved[:SHOWN]:
            table.add_row(f"{_case(one)}{one.component}", one.what, _text(one.a), _text(one.b))
        stdout.print(table)
        _print_rest(len(difference.components_moved))


def _print_figures(difference: Difference) -> None:
    print_line("")
    table = Table("figure", "A", "B", "B - A", "", box=None, pad_edge=False)
    for name, pair in difference.metrics.items():
        change = "" if pair.difference is None else f"{pair.difference:+.4g}"
        apart = "intervals apart" if pair.apart else ""
        table.add_row(name, _figure(pair.a, pair.a_low, pair.a_high), _second(pair), change, apart)
    stdout.print(table)


def _second(pair: FigurePair) -> str:
    return _figure(pair.b, pair.b_low, pair.b_high)


def _figure(value: float | None, low: float | None, high: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if low is None or high is None else f"{value:.3f} [{low:.3f}, {high:.3f}]"


def _case(one: ClaimDifference | ComponentDifference) -> str:
    specimen = one.specimen
    return "" if specimen is None else f"{specimen}: "


def _text(value: str | float | None) -> str:
    return "-" if value is None else f"{value:+.3f}" if isinstance(value, float) else str(value)


def _print_rest(total: int) -> None:
    if total > SHOWN:
        print_line(f"  ... {total - SHOWN} more; --json has them all")
