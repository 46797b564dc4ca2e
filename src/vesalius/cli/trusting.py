"""The checks and the page that `discover` adds to its scores."""

from pathlib import Path
from typing import Any

from rich.table import Table

from vesalius.cli.console import stdout
from vesalius.discovery.methods import Discovery
from vesalius.discovery.trust import examine
from vesalius.model.specimen import Specimen
from vesalius.progress import shown
from vesalius.report.discovery import render_discovery


def checked(specimen: Specimen, found: Discovery, *, n: int, seed: int) -> dict[str, Any]:
    """The fields that the checks add to the document: `trust`, and its work in forward passes of the `n` prompts."""
    with shown() as tell:
        trust = examine(specimen, found, seed=seed, progress=tell)
    return {"trust": trust.as_data(), "trust_metrics": trust.metrics, "trust_forwards": trust.rows / n}


def draw(directory: Path) -> dict[str, str]:
    """Make the page and the pictures, and say where the page is."""
    return {"page": str(render_discovery(directory))}


def print_trust(document: dict[str, Any]) -> None:
    """The checks as a table: figure, interval, control."""
    trust = document["trust"]
    table = Table("check", "figure", "95 % interval", "control", box=None)
    curve, chance, stability = (trust[name] for name in ("faithfulness", "faithfulness_random", "stability"))
    if curve:
        for name in ("cmd", "cpr"):
            interval = f"{curve[f'{name}_low']:.3f} to {curve[f'{name}_high']:.3f}"
            control = f"{chance[name]:.3f} random order{' of heads, MLPs kept' if trust['heads_only'] else ''}"
            table.add_row(name, f"{curve[name]:.3f}", interval, control)
    if edges := trust["edge_faithfulness"]:
        for name in ("cmd", "cpr"):
            interval = f"{edges[f'{name}_low']:.3f} to {edges[f'{name}_high']:.3f}"
            table.add_row(f"edge_{name}", f"{edges[name]:.3f}", interval, "")
    if stability:
        interval = f"{stability['low']:.3f} to {stability['high']:.3f}"
        table.add_row("jaccard", f"{stability['value']:.3f}", interval, f"{stability['chance']:.3f} random circuits")
    if special := trust["specificity"]:
        own, mean, ratio = special["own"]["drop"], special["others_mean"], special["ratio"]
        shown = "-" if ratio is None else f"{ratio:.2f}"
        drops = " / ".join("not performed" if x is None else f"{x:.2f}" for x in (own, mean))
        table.add_row("specificity", shown, "", f"drop own / others {drops}")
    for name in ("detectors", "known_heads"):
        if overlap := trust[name]:
            control = f"{overlap['expected']:.2f} by chance, p {overlap['p']:.2g}"
            table.add_row(name, f"{overlap['share']:.2f}", "", control)
    stdout.print(table)
    for check, why in trust["missing"].items():
        stdout.print(f"{check}: not measured ({why})", markup=False, soft_wrap=True)
    fewer = "" if trust["n"] == trust["asked"] else f" (all that are unseen; {trust['asked']} were asked for)"
    stdout.print(
        f"checks: {trust['n']} held-out prompts{fewer}, circuit of {trust['size']}, {document['trust_forwards']:.1f} "
        f"forward-equivalents, {trust['seconds']:.1f} s (--quick leaves them out)"
    )
