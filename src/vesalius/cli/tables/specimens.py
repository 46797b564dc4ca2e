"""Specimens, predictions and behaviours."""

from typing import Any

from rich.table import Column, Table

from vesalius.cli.console import print_line, stdout, with_flags
from vesalius.documents.catalogue import (
    BehaviourReport,
    Listing,
    ModelFamily,
    PluginEntry,
    SpecimenDescription,
    SpecimenEntry,
)
from vesalius.documents.views import title_of

#: Options that the reasons of rows name.
FLAGS = ("--metric",)
#: Lines of reasons, and numbers of rows in one of them.
MOST_REASONS, MOST_NUMBERS = 20, 5


def print_specimens(rows: Listing[SpecimenEntry]) -> None:
    """One line per specimen."""
    # A name that is cut off cannot be typed again, so names are never shortened.
    table = Table("id", Column("name", no_wrap=True, overflow="ignore"), "shape", "components", box=None)
    for row in rows:
        parts = row["components"]
        names = " ".join(parts) if len(parts) <= 10 else f"{parts[0]} ... {parts[-1]} ({len(parts)})"
        table.add_row(row["id"], row["name"], f"{row['layers']} x {row['heads']} x {row['d_model']}", names)
    stdout.print(table)
    stdout.print("shape: layers x heads x d_model")


def print_specimen(shown: SpecimenDescription) -> None:
    """One specimen in full."""
    stdout.print(
        f"[bold]{shown.name}[/bold] ({shown.kind}): {shown.layers} layers x {shown.heads} heads, "
        f"d_model {shown.d_model}"
    )
    parts = shown.components
    stdout.print(f"components: {' '.join(parts[:12])}{f' ... ({len(parts)} in all)' if len(parts) > 12 else ''}")
    vocabulary = list(shown.vocab) if isinstance(shown.vocab, tuple) else shown.vocab
    stdout.print(f"inputs: {shown.min_len} to {shown.max_len} tokens; vocabulary: {vocabulary}", markup=False)
    for example in shown.examples:
        stdout.print(f"  {example['input']!r} -> {example['output']!r}", markup=False)
    if not shown.examples:
        stdout.print("give --behaviour to see examples; `vesalius behaviours` lists them")


def print_outputs(inputs: list[Any], document: dict[str, Any]) -> None:
    """What the model made of each input, and the likeliest tokens after it where they were asked for."""
    top: list[list[dict[str, Any]]] | None = document.get("top")
    _print_bos(document["bos"])
    for place, (source, row) in enumerate(zip(inputs, document["outputs"], strict=True)):
        stdout.print(f"{source!r} -> {row!r}", markup=False)
        for one in top[place] if top else ():
            stdout.print(f"  {one['probability']:.4f}  {one['token']!r}", markup=False)


def _print_bos(bos: str | None) -> None:
    if bos is not None:
        print_line(f"before every text the model reads {bos}")


def print_behaviours(rows: Listing[Any]) -> None:
    """The behaviours; how well a model does each, where that was measured."""
    if "performs" not in rows[0]:
        for row in rows:
            stdout.print(f"[bold]{row['name']}[/bold]: {row['description']}")
        return
    table = Table("behaviour", "performs", "accuracy [95 %]", "logit difference [95 %]", "top-1", "n", box=None)
    for row in rows:
        if row["performs"] is None:
            table.add_row(row["name"], "not measured")
            continue
        table.add_row(
            row["name"],
            "yes" if row["performs"] else "no",
            f"{row['accuracy']:.2f} [{row['accuracy_low']:.2f}, {row['accuracy_high']:.2f}]",
            _with_interval(row["logit_difference"], row["ld_low"], row["ld_high"]),
            f"{row['top1']:.2f}",
            str(row["n"]),
        )
    stdout.print(table)
    for row in rows:
        if row["performs"] is None:
            print_line(row["reason"])


def print_rows(document: BehaviourReport) -> None:
    """One behaviour: dropped rows with their reasons, then accuracy and metric of each split."""
    print_line(
        f"{title_of(document['behaviour'])}: {document['n_kept']} of {_count(document['n_rows'], 'row')} can be used"
    )
    _print_bos(document["bos"])
    said = [row for row in document["rows"] if not row["kept"] or row["reason"]]
    lines = _same_reasons(said)
    for line in lines[:MOST_REASONS]:
        print_line(with_flags(f"  {line}", FLAGS))
    if len(lines) > MOST_REASONS:
        print_line(f"  and {len(lines) - MOST_REASONS} more reasons; --json says it for every row")
    lacking = [row for row in document["rows"] if row["kept"] and row["suggestion"]]
    if lacking:
        first = lacking[0]
        print_line(
            f"  {_count(len(lacking), 'row')} without a counterfactual; row {first['row']}: {first['suggestion']}"
        )
    if document["note"]:
        print_line(with_flags(f"  {document['note']}", FLAGS))
    name = f"{document['metric_name']} ({document['unit']})" if document["unit"] else document["metric_name"]
    table = Table("split", "accuracy [95 %]", f"{name} [95 %]", "n", box=None)
    shown = dict(document["splits"])
    if len(shown) > 1:
        shown["all"] = {**document, "n": sum(part["n"] for part in shown.values())}
    for split, part in shown.items():
        figures = [part[figure] or {"value": None, "low": None, "high": None} for figure in ("accuracy", "metric")]
        texts = [_with_interval(figure["value"], figure["low"], figure["high"]) for figure in figures]
        table.add_row(split, *texts, str(part["n"]))
    stdout.print(table)


def _same_reasons(rows: list[dict[str, Any]]) -> list[str]:
    """One line for each reason, with the rows that share it."""
    sharing: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        sharing.setdefault(row["reason"], []).append(row)
    lines = []
    for reason, same in sharing.items():
        numbers = [str(row["row"]) for row in same[:MOST_NUMBERS]]
        more = f" and {len(same) - MOST_NUMBERS} more" if len(same) > MOST_NUMBERS else ""
        hint = f" ({same[0]['suggestion']})" if not same[0]["kept"] and same[0]["suggestion"] else ""
        lines.append(f"row{'s' * (len(same) > 1)} {', '.join(numbers)}{more}: {reason}{hint}")
    return lines


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def _with_interval(value: float | None, low: float | None, high: float | None) -> str:
    """A figure with its interval, where it has one."""
    if value is None:
        return "-"
    return f"{value:.2f}" if low is None or high is None else f"{value:.2f} [{low:.2f}, {high:.2f}]"


def print_models(rows: Listing[ModelFamily]) -> None:
    """One line per family."""
    table = Table("family", "model types", "exact", box=None)
    for row in rows:
        table.add_row(row["family"], ", ".join(row["model_types"]), "yes" if row["exact"] else "no")
    stdout.print(table)


def print_plugins(rows: Listing[PluginEntry]) -> None:
    """One line per plug-in, and below what is wrong with some."""
    if not rows:
        print_line("no installed package offers plug-ins")
        return
    table = Table("kind", "name", "package", "usable", box=None)
    for row in rows:
        usable = "yes" if row["problem"] is None else "no"
        table.add_row(row["kind"], row["name"], f"{row['package']} {row['version']}", usable)
    stdout.print(table)
    for row in rows:
        if row["problem"] is not None:
            print_line(f"{row['kind']} {row['name']} of {row['package']}: {row['problem']}")


def print_agreement(document: dict[str, Any]) -> None:
    """How far a model is from transformers' own module."""
    print_line(f"{document['family']}: {document['summary']}")
