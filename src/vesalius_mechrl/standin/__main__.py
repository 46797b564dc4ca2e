"""`python -m vesalius_mechrl.standin train|truth|write|pack DIRECTORY`."""

import argparse
import json
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from vesalius.errors import BadInput
from vesalius_mechrl.standin.packed import pack, unpack
from vesalius_mechrl.standin.training import Recipe, train
from vesalius_mechrl.standin.truth import establish


def main() -> int:
    """Train the stand-in, establish what its heads do, or write the packaged one."""
    parser = argparse.ArgumentParser(prog="python -m vesalius_mechrl.standin", description="Stand-in for GPT-2 small.")
    steps = parser.add_subparsers(dest="what", required=True)
    training = steps.add_parser("train", help="train it (continues a training that was stopped)")
    truth = steps.add_parser("truth", help="ablate every head and every pair, and write what each head does")
    writing = steps.add_parser("write", help="write the packaged one, trained and with its truth, to a new directory")
    packing = steps.add_parser("pack", help="write a trained one in half its size, as it is packaged")
    for step in (training, truth, writing, packing):
        step.add_argument("directory", type=Path, help="where its files are, or are to be")
    for step in (training, truth):
        step.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    training.add_argument("--until", type=int, help="end after that many of the steps; default: after all of them")
    packing.add_argument("--to", type=Path, required=True, help="the directory to write to")
    recipe = Recipe()
    for field in fields(Recipe):
        default = getattr(recipe, field.name)
        training.add_argument(f"--{field.name.replace('_', '-')}", type=type(default), default=default)
    given = vars(parser.parse_args())
    try:
        print(json.dumps(_done(given), indent=1))
    except BadInput as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _done(given: dict[str, Any]) -> dict[str, Any]:
    """What was trained, established or written, in short."""
    if given["what"] == "write":
        return {"written": str(unpack(given["directory"]))}
    if given["what"] == "pack":
        return {"written": str(pack(given["directory"], given["to"]))}
    if given["what"] == "train":
        chosen = Recipe(**{field.name: given[field.name] for field in fields(Recipe)})
        place, device, until = given["directory"], given["device"], given["until"]
        card = train(place, chosen, device=device, until=until, progress=_print)
        return {name: card[name] for name in ("recipe", "steps_taken", "loss_on_new_rows", "induction")}
    truth = establish(given["directory"], device=given["device"], progress=_print)
    kept = ("clean", "accuracy", "roles", "backups")
    alone = {
        task: [head for head, row in one["heads"].items() if row["says"] != "nothing alone"]
        for task, one in truth["tasks"].items()
    }
    return {task: {name: one[name] for name in kept} | {"alone": alone[task]} for task, one in truth["tasks"].items()}


def _print(label: str, done: int, total: int) -> None:
    print(f"{done}/{total} {label}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
