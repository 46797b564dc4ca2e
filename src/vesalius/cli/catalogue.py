"""`specimens`, `show`, `predict`, `behaviours`: what there is, and what it does."""

import json
import sys
from pathlib import Path
from typing import Any

from rich.table import Column, Table

from vesalius.api import load
from vesalius.api import specimens as all_specimens
from vesalius.behaviours import behaviours as all_behaviours
from vesalius.behaviours import measure
from vesalius.cli.console import print_json, progress, stdout, steps
from vesalius.errors import BadInput
from vesalius.model.specimen import Specimen, TextVocabulary


def list_specimens(*, as_json: bool) -> None:
    """Every specimen that needs no download."""
    found = all_specimens()
    if as_json:
        return print_json(found)
    # A name that is cut off cannot be typed again, so names are never shortened.
    table = Table("id", Column("name", no_wrap=True, overflow="ignore"), "shape", "components", box=None)
    for row in found:
        parts = row["components"]
        listed = " ".join(parts) if len(parts) <= 10 else f"{parts[0]} ... {parts[-1]} ({len(parts)})"
        table.add_row(row["id"], row["name"], f"{row['layers']} x {row['heads']} x {row['d_model']}", listed)
    stdout.print(table)
    stdout.print("shape: layers x heads x d_model")


def show(name: str, *, behaviour: str | None, as_json: bool) -> None:
    """One specimen in full."""
    specimen = open_specimen(name, behaviour)
    document = {
        **specimen.describe(),
        "examples": list(specimen.examples),
        "vocab": specimen.vocabulary.summary(),
        "max_len": specimen.vocabulary.max_len,
        "min_len": specimen.vocabulary.min_len,
    }
    if as_json:
        return print_json(document)
    stdout.print(
        f"[bold]{specimen.name}[/bold] ({specimen.kind}): {document['layers']} layers x {document['heads']} heads, "
        f"d_model {document['d_model']}"
    )
    parts = document["components"]
    stdout.print(f"components: {' '.join(parts[:12])}{f' ... ({len(parts)} in all)' if len(parts) > 12 else ''}")
    stdout.print(
        f"inputs: {document['min_len']} to {document['max_len']} tokens; vocabulary: {document['vocab']}", markup=False
    )
    for example in document["examples"]:
        stdout.print(f"  {example['input']!r} -> {example['output']!r}", markup=False)
    if not document["examples"]:
        stdout.print("give --behaviour to see examples: " + ", ".join(b.name for b in all_behaviours()))


def predict(name: str, given: str, *, as_json: bool) -> None:
    """Decoded outputs for a list of inputs."""
    inputs = read_inputs(given)
    outputs = open_specimen(name, None).predict(inputs)
    if as_json:
        return print_json({"outputs": outputs})
    for source, row in zip(inputs, outputs, strict=True):
        stdout.print(f"{source!r} -> {row!r}", markup=False)


def behaviours(name: str | None, *, n: int, seed: int, as_json: bool) -> None:
    """The behaviours, and whether a model performs them."""
    if name is None:
        listed = [{"name": b.name, "description": b.description} for b in all_behaviours()]
        if as_json:
            return print_json(listed)
        for row in listed:
            stdout.print(f"[bold]{row['name']}[/bold]: {row['description']}")
        return None
    specimen = open_specimen(name, None)
    if not isinstance(specimen.vocabulary, TextVocabulary):
        raise BadInput(f"specimen {name!r} is not a natural model; behaviours are for text models")
    rows = []
    with progress("measuring behaviours") as tell:
        for done, one in enumerate(all_behaviours(), 1):
            found = measure(one, specimen.model, specimen.vocabulary.tokenizer, n=n, seed=seed)
            rows.append({"name": one.name, **_fields(found)})
            tell(one.name, done, len(all_behaviours()))
    if as_json:
        return print_json(rows)
    table = Table("behaviour", "performs", "accuracy [95 %]", "logit difference [95 %]", "top-1", "n", box=None)
    for r in rows:
        table.add_row(
            r["name"],
            "yes" if r["performs"] else "no",
            f"{r['accuracy']:.2f} [{r['accuracy_low']:.2f}, {r['accuracy_high']:.2f}]",
            f"{r['logit_difference']:.2f} [{r['ld_low']:.2f}, {r['ld_high']:.2f}]",
            f"{r['top1']:.2f}",
            str(r["n"]),
        )
    stdout.print(table)
    return None


def open_specimen(name: str, behaviour: str | None, *, device: str = "cpu") -> Specimen:
    """Load a specimen with a progress bar on stderr."""
    with steps() as tell:
        return load(name, behaviour=behaviour, device=device, progress=tell)


def read_inputs(given: str) -> list[Any]:
    """A JSON list from the command line, @FILE or stdin."""
    text = given
    if given == "-":
        text = sys.stdin.read()
    elif given.startswith("@"):
        try:
            text = Path(given[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"{given[1:]}: cannot be read ({error})") from None
    try:
        inputs = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise BadInput(f'--input is not JSON ({error}); write for example \'[["a", "b"]]\'') from None
    if not isinstance(inputs, list) or not inputs:
        raise BadInput('--input must be a non-empty JSON list of inputs, for example \'[["a", "b"]]\'')
    return inputs


def _fields(found: Any) -> dict[str, Any]:
    names = (
        "performs",
        "accuracy",
        "accuracy_low",
        "accuracy_high",
        "logit_difference",
        "ld_low",
        "ld_high",
        "top1",
        "n",
        "rule",
    )
    return {name: getattr(found, name) for name in names}
