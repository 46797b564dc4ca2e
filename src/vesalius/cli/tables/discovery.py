"""A discovered circuit with its checks."""

from pathlib import Path

from rich.table import Table

from vesalius.cli.console import print_line, stdout
from vesalius.documents import Checks, Discovery
from vesalius.documents.checks import Curve
from vesalius.documents.rivals import Rivals, circuit_name
from vesalius.documents.selection import Selection


def print_discovery(discovery: Discovery, top: int) -> None:
    """The `top` components and edges by score, the checks, and where the files are."""
    intervals = {str(part): f"[{low:+.4f}, {high:+.4f}]" for part, (low, high) in discovery.circuit.intervals.items()}
    for what, rows in (("components", discovery.components), ("edges", discovery.edges)):
        if rows:
            has_intervals = any(row.id in intervals for row in rows)
            table = Table(what, f"score ({discovery.unit})", *(["95 % interval"] if has_intervals else []), box=None)
            for row in rows[:top]:
                table.add_row(row.id, f"{row.score:+.4f}", *([intervals.get(row.id, "")] if has_intervals else []))
            stdout.print(table)
    if not any(row.score for row in discovery.components):
        stdout.print("nothing scores other than 0 on these prompts; use more of them (--n) or another method")
    if "seeds_jaccard" in discovery.metrics:
        alike, seeds = discovery.metrics["seeds_jaccard"], discovery.search["seeds"]
        print_line(f"seeds_jaccard {alike:.3f}: similarity of the ten strongest heads of {seeds} searches")
    for name, value in discovery.metrics.items():
        if name.endswith(("_auroc", "_all")):
            stdout.print(f"{name} {value:.3f}")
    stdout.print(
        f"{discovery.method}, {discovery.n} prompts, {discovery.forwards:.1f} forward-equivalents, "
        f"{discovery.seconds:.1f} s"
    )
    if discovery.selection is not None:
        _print_selection(discovery.selection)
    if discovery.checks is not None:
        _print_checks(discovery.checks, discovery.checks_forwards or 0.0)
    if discovery.rivals is not None:
        _print_rivals(discovery.rivals)
    if discovery.directory is not None:
        print_line(f"circuit: {Path(discovery.directory) / 'circuit.json'}")
        print_line(f"page: {Path(discovery.directory) / 'discovery.html'}")


def _print_selection(selection: Selection) -> None:
    """What each rule keeps at the budget, and the areas of its faithfulness curve over budgets."""
    table = Table("selected by", f"{selection.by} kept", "sum of scores", "faithfulness", "cmd", "cpr", box=None)
    for row in selection.rules:
        curve = row.curve
        figures = ("-",) * 3 if curve is None else (f"{row.faithfulness:.3f}", f"{curve.cmd:.3f}", f"{curve.cpr:.3f}")
        table.add_row(row.rule, f"{row.size} of {selection.candidates}", f"{row.value:.4g}", *figures)
    stdout.print(table)
    why = f"smallest that keeps {selection.least_kept:g} on these prompts" if selection.least_kept else "given"
    print_line(
        f"circuit: by {selection.rule.rule}, budget {selection.budget} ({why})"
        + (f"; faithfulness not measured: {selection.missing}" if selection.missing else "")
    )


def _print_rivals(rivals: Rivals) -> None:
    """The circuits, their core, what is exchangeable, and the experiments that distinguish them."""
    table = Table("circuit", rivals.by, "faithfulness", "overlap", "as faithful", box=None)
    for place, row in enumerate(rivals.circuits):
        name = circuit_name(place)
        yes = "yes" if row.as_faithful else "no"
        parts = " ".join(row.edges or row.components)
        table.add_row(name, parts, row.faithfulness.figures, f"{row.overlap:.2f}", yes)
    stdout.print(table)
    print_line(f"core of those as faithful as the best: {' '.join(rivals.core) or 'nothing'}")
    for pair in rivals.exchangeable:
        print_line(
            f"exchangeable: {pair.other} for {pair.one} (without {pair.without:.2f}, exchanged {pair.exchanged:.2f}, "
            f"synergy {pair.synergy:+.2f})"
        )
    for one in rivals.distinctions:
        print_line(
            f"ablating {' '.join(one.ablated)}: {circuit_name(one.first)} predicts {one.first_predicts:.2f}, "
            f"{circuit_name(one.second)} {one.second_predicts:.2f}; the model keeps {one.outcome.figures}, which "
            f"speaks for {one.verdict}"
        )
    print_line(
        f"rivals: {len(rivals.circuits) - 1} of {rivals.asked} found, {rivals.n} held-out prompts, "
        f"{rivals.forwards:.1f} forward-equivalents, {rivals.seconds:.1f} s"
    )


def _print_checks(checks: Checks, forwards: float) -> None:
    """The checks as a table: figure, interval, control."""
    table = Table("check", "figure", "95 % interval", "control", box=None)
    for row in _check_rows(checks):
        table.add_row(*row)
    stdout.print(table)
    if checks.guarantee is not None and (sentence := checks.guarantee.sentence()):
        print_line(f"guarantee on {checks.guarantee.n} further prompts: {sentence}")
    for check, reason in checks.missing.items():
        print_line(f"{check}: not measured ({reason})")
    fewer = "" if checks.n == checks.asked else f" (all that are unseen; {checks.asked} were asked for)"
    stdout.print(
        f"checks: {checks.n} held-out prompts{fewer}, circuit of {checks.size}, {forwards:.1f} forward-equivalents, "
        f"{checks.seconds:.1f} s (--quick leaves them out)"
    )


def _check_rows(checks: Checks) -> list[tuple[str, str, str, str]]:
    rows = []
    if (curve := checks.faithfulness) is not None and (chance := checks.faithfulness_random) is not None:
        order = f"random order{' of heads, MLPs kept' if checks.heads_only else ''}"
        rows += _areas(curve, "", (f"{chance.cmd:.3f} {order}", f"{chance.cpr:.3f} {order}"))
    if (edges := checks.edge_faithfulness) is not None:
        rows += _areas(edges, "edge_", ("", ""))
    if (stability := checks.stability) is not None:
        interval = f"{stability.low:.3f} to {stability.high:.3f}"
        rows.append(("jaccard", f"{stability.value:.3f}", interval, f"{stability.chance:.3f} random circuits"))
    if (specificity := checks.specificity) is not None:
        ratio = "-" if specificity.ratio is None else f"{specificity.ratio:.2f}"
        drops = (specificity.own.drop, specificity.others_mean)
        shown = " / ".join("not performed" if drop is None else f"{drop:.2f}" for drop in drops)
        rows.append(("specificity", ratio, "", f"drop own / others {shown}"))
    for name, overlap in (("detectors", checks.detectors), ("known_heads", checks.known_heads)):
        if overlap is not None:
            rows.append((name, f"{overlap.share:.2f}", "", f"{overlap.expected:.2f} by chance, p {overlap.p:.2g}"))
    return rows


def _areas(curve: Curve, prefix: str, controls: tuple[str, str]) -> list[tuple[str, str, str, str]]:
    """The two areas of a faithfulness curve."""
    return [
        (f"{prefix}cmd", f"{curve.cmd:.3f}", f"{curve.cmd_low:.3f} to {curve.cmd_high:.3f}", controls[0]),
        (f"{prefix}cpr", f"{curve.cpr:.3f}", f"{curve.cpr_low:.3f} to {curve.cpr_high:.3f}", controls[1]),
    ]
