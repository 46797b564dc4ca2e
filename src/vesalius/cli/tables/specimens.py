"""Specimens, predictions and behaviours."""

from typing import Any

from rich.table import Column, Table

from vesalius.cli.console import stdout


def print_specimens(rows: list[dict[str, Any]]) -> None:
    """One line per specimen."""
    # A name that is cut off cannot be typed again, so names are never shortened.
    table = Table("id", Column("name", no_wrap=True, overflow="ignore"), "shape", "components", box=None)
    for row in rows:
        parts = row["components"]
        names = " ".join(parts) if len(parts) <= 10 else f"{parts[0]} ... {parts[-1]} ({len(parts)})"
        table.add_row(row["id"], row["name"], f"{row['layers']} x {row['heads']} x {row['d_model']}", names)
    stdout.print(table)
    stdout.print("shape: layers x heads x d_model")


def print_specimen(document: dict[str, Any]) -> None:
    """One specimen in full."""
    stdout.print(
        f"[bold]{document['name']}[/bold] ({document['kind']}): {document['layers']} layers x {document['heads']} "
        f"heads, d_model {document['d_model']}"
    )
    parts = document["components"]
    stdout.print(f"components: {' '.join(parts[:12])}{f' ... ({len(parts)} in all)' if len(parts) > 12 else ''}")
    stdout.print(
        f"inputs: {document['min_len']} to {document['max_len']} tokens; vocabulary: {document['vocab']}", markup=False
    )
    for example in document["examples"]:
        stdout.print(f"  {example['input']!r} -> {example['output']!r}", markup=False)
    if not document["examples"]:
        stdout.print("give --behaviour to see examples; `vesalius behaviours` lists them")


def print_outputs(inputs: list[Any], outputs: list[list[Any]]) -> None:
    """What the model made of each input."""
    for source, row in zip(inputs, outputs, strict=True):
        stdout.print(f"{source!r} -> {row!r}", markup=False)


def print_behaviours(rows: list[dict[str, Any]]) -> None:
    """The behaviours; how well a model does each, where that was measured."""
    if "performs" not in rows[0]:
        for row in rows:
            stdout.print(f"[bold]{row['name']}[/bold]: {row['description']}")
        return
    table = Table("behaviour", "performs", "accuracy [95 %]", "logit difference [95 %]", "top-1", "n", box=None)
    for row in rows:
        table.add_row(
            row["name"],
            "yes" if row["performs"] else "no",
            f"{row['accuracy']:.2f} [{row['accuracy_low']:.2f}, {row['accuracy_high']:.2f}]",
            f"{row['logit_difference']:.2f} [{row['ld_low']:.2f}, {row['ld_high']:.2f}]",
            f"{row['top1']:.2f}",
            str(row["n"]),
        )
    stdout.print(table)
