"""`train` and `generate`: make a specimen with a known answer, and make up new tasks.

A specimen directory gets the program under `answer_key/`, a room that only grading opens.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import torch

from vesalius.api import chosen_device
from vesalius.circuits.making import TrainedModel, make_many, write_trained
from vesalius.circuits.specimens import SPECIMEN_FILE
from vesalius.cli.console import print_json, progress, stderr, stdout
from vesalius.cli.places import out_directory
from vesalius.errors import BadInput, Failed
from vesalius.model.specimen import json_value
from vesalius.rasp import Program, generate, load_spec
from vesalius.training.fit import Retrying, Trained, fit
from vesalius.training.group import Written
from vesalius.training.setting import setting_of
from vesalius.training.trainer import Progress


def train(specs: list[str], *, out: str, seed: int, attempts: int, device: str, as_json: bool) -> None:
    """Train transformers that implement the programs of SPEC.py files in known components."""
    paths, directory = [Path(spec) for spec in specs], Path(out)
    programs = [load_spec(path) for path in paths]
    for program, path in zip(programs, paths, strict=True):
        _check_writable(program, path)
    where = chosen_device(device)
    out_directory(out)
    if len(paths) > 1:
        return _train_many(paths, directory, seed=seed, device=where, as_json=as_json)
    return _train_one(paths[0], programs[0], directory, seed=seed, attempts=attempts, device=where, as_json=as_json)


def _train_one(
    path: Path, program: Program, directory: Path, *, seed: int, attempts: int, device: torch.device, as_json: bool
) -> None:
    if (directory / SPECIMEN_FILE).exists():
        raise BadInput(f"--out {directory}: holds a specimen already; choose another directory or remove it")
    trained = _fit(program, directory, seed=seed, attempts=attempts, device=device)
    document = _document(trained, directory)
    if not trained.gate.passed:
        raise Failed(
            f"{path}: not accepted after {trained.attempts} tries: {'; '.join(trained.gate.shortfalls)}; "
            f"try --attempts {2 * attempts}, another --seed, or a simpler program"
        )
    how = f"--seed {seed}: {trained.steps} steps, learning rate {trained.learning_rate}"
    write_trained(TrainedModel(path, trained.setting, trained.model, trained.gate, how), directory)
    shutil.rmtree(directory / "checkpoint", ignore_errors=True)
    if as_json:
        return print_json(document)
    effort = f"{trained.attempts} tries, {document['params']} weights, {document['seconds']:.1f} s"
    stdout.print(f"[bold]{program.name}[/bold]: accepted after {effort}")
    for name, value in trained.gate.figures.items():
        stdout.print(f"  {name.replace('_', ' ')}: {value:.4f}")
    stdout.print(f"specimen: {directory}", soft_wrap=True)
    return None


def _train_many(paths: list[Path], directory: Path, *, seed: int, device: torch.device, as_json: bool) -> None:
    """All at once, in stacks; a program that is not accepted is said, and the others stay."""
    there = [path for path in paths if (directory / path.stem / SPECIMEN_FILE).exists()]
    rows: list[dict[str, Any]] = [{"name": path.stem, "accepted": True, "was_there": True} for path in there]
    with progress(f"training {len(paths) - len(there)} programs") as tell:
        for event in make_many(paths, out=directory, device=device, seed=seed):
            if isinstance(event, Progress):
                tell("training", event.step, event.steps)
            elif isinstance(event, Written):
                row = {"name": event.name, "accepted": event.gate.passed, **event.gate.figures}
                rows.append({**row, "shortfalls": event.gate.shortfalls, "directory": str(event.directory)})
    accepted = sum(row["accepted"] for row in rows)
    if not accepted:
        raise Failed(f"none of {len(rows)} programs was accepted; try another --seed, or one alone with --attempts 8")
    if as_json:
        return print_json({"n": len(rows), "accepted": accepted, "specimens": rows})
    for row in rows:
        if not row["accepted"]:
            stdout.print(f"{row['name']}: not accepted: {'; '.join(row['shortfalls'])}", markup=False)
    stdout.print(f"{accepted} of {len(rows)} programs accepted; specimens under {directory}", soft_wrap=True)
    return None


def make_tasks(*, seed: int, count: int, depth: int, out: str, as_json: bool) -> None:
    """Write fresh tasks as SPEC.py files."""
    directory = Path(out)
    out_directory(out)
    rows: list[dict[str, Any]] = []
    for task in generate(seed, count, depth):
        path = task.write(directory)
        parts = [str(placed.component) for placed in task.program.components]
        rows.append(
            {
                "name": task.name,
                "path": str(path),
                "components": parts,
                "vocab": list(task.program.vocab),
                "max_len": task.program.max_len,
            }
        )
    if as_json:
        return print_json({"seed": seed, "depth": depth, "tasks": rows})
    for row in rows:
        stdout.print(f"{row['path']}: {' '.join(row['components'])}", soft_wrap=True)
    stdout.print(f"train one with: vesalius train {rows[0]['path']} --out specimens/{rows[0]['name']}", soft_wrap=True)
    return None


def _fit(program: Program, directory: Path, *, seed: int, attempts: int, device: torch.device) -> Trained:
    trained: Trained | None = None
    with progress(f"training {program.name}") as tell:
        for event in fit(
            setting_of(program), device=device, seed=seed, attempts=attempts, checkpoint=directory / "checkpoint"
        ):
            if isinstance(event, Progress):
                tell("training", event.step, event.steps)
            elif isinstance(event, Retrying):
                stderr.print(f"{event.reason}; try {event.attempt} begins", markup=False)
            elif isinstance(event, Trained):
                trained = event
    assert trained is not None
    return trained


def _document(trained: Trained, directory: Path) -> dict[str, Any]:
    gate = trained.gate
    return {
        **gate.figures,
        "iia": gate.iia,
        "iia_changed": gate.iia_changed,
        "inert": list(gate.inert),
        "accepted": gate.passed,
        "n": gate.n,
        "params": sum(weight.numel() for weight in trained.model.parameters()),
        "attempts": trained.attempts,
        "seconds": trained.seconds,
        "directory": str(directory),
    }


def _check_writable(program: Program, path: Path) -> None:
    """Sets, and numbers of thousands of digits, do not go into JSON; better said before the training than after."""
    try:
        json.dumps([*program.vocab, *([] if program.numerical else map(json_value, program.outputs))])
    except (TypeError, ValueError):
        mend = "use strings, numbers of at most 4,300 digits and tuples of them"
        raise BadInput(f"{path}: a token or an output cannot be written to a file; {mend}") from None
