"""`train` and `generate`: make a specimen with a known answer, and make up new tasks.

A specimen directory gets the program under `answer_key/`, a room that only grading opens.
"""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vesalius.api import chosen_device
from vesalius.circuits.specimens import SPECIMEN_FILE, Card, as_examples, write_specimen
from vesalius.cli.console import print_json, progress, stderr, stdout
from vesalius.cli.places import out_directory
from vesalius.errors import BadInput, Failed
from vesalius.model.specimen import plain
from vesalius.rasp import Program, generate, load_spec, random_inputs
from vesalius.training.fit import Retrying, Trained, fit
from vesalius.training.gate import measure
from vesalius.training.setting import setting_of
from vesalius.training.trainer import Progress

KEY_FOLDER, KEY_FILE = "answer_key", "spec.py"
N_EXAMPLES = 5
#: The shortest inputs `setting_of` trains on.
TRAINED_FROM = 3


def train(spec: str, *, out: str, seed: int, attempts: int, device: str, as_json: bool) -> None:
    """Train a transformer that implements the program of a SPEC.py in known components."""
    path, directory = Path(spec), Path(out)
    program = load_spec(path)
    _check_writable(program, path)
    where = chosen_device(device)
    out_directory(out)
    if (directory / SPECIMEN_FILE).exists():
        raise BadInput(f"--out {directory}: holds a specimen already; choose another directory or remove it")
    trained = _fit(program, directory, seed=seed, attempts=attempts, device=where)
    document = _document(trained, directory)
    if not trained.gate.passed:
        raise Failed(
            f"{path}: not accepted after {trained.attempts} tries: {'; '.join(trained.gate.shortfalls)}; "
            f"try --attempts {2 * attempts}, another --seed, or a simpler program"
        )
    (directory / KEY_FOLDER).mkdir(exist_ok=True)
    shutil.copyfile(path, directory / KEY_FOLDER / KEY_FILE)
    # Last, because a directory with a card counts as finished.
    write_specimen(directory, trained.model.cpu(), _card(program, trained, path, seed))
    shutil.rmtree(directory / "checkpoint", ignore_errors=True)
    if as_json:
        return print_json(document)
    effort = f"{trained.attempts} tries, {document['params']} weights, {document['seconds']:.1f} s"
    stdout.print(f"[bold]{program.name}[/bold]: accepted after {effort}")
    for name, value in trained.gate.figures.items():
        stdout.print(f"  {name.replace('_', ' ')}: {value:.4f}")
    stdout.print(f"specimen: {directory}", soft_wrap=True)
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
                tell(event.step, event.steps)
            elif isinstance(event, Retrying):
                stderr.print(f"{event.reason}; try {event.attempt} begins", markup=False)
            elif isinstance(event, Trained):
                trained = event
    assert trained is not None
    return trained


def _card(program: Program, trained: Trained, path: Path, seed: int) -> Card:
    tokens, lengths = random_inputs(program, N_EXAMPLES, seed=seed)
    outputs = program.decode(program.run(tokens, lengths).output, lengths)
    inputs = [
        [program.vocab[code] for code in row[:length]]
        for row, length in zip(tokens.tolist(), lengths.tolist(), strict=True)
    ]
    size = trained.setting.size
    how = f"{trained.steps} steps, learning rate {trained.learning_rate}"
    return Card(
        id=path.stem,
        name=program.name or path.stem,
        kind="trained",
        vocab=program.vocab,
        max_len=program.max_len,
        min_len=_shortest_held(program, trained),
        outputs=None if program.numerical else program.outputs,
        components=tuple(str(component) for component in trained.setting.circuit),
        layers=size.n_layers,
        heads=size.n_heads,
        d_model=size.d_model,
        examples=as_examples(list(zip(inputs, outputs, strict=True))),
        gate=json.loads(trained.gate.model_dump_json()) | {"figures": trained.gate.figures},
        made_by=f"vesalius train {path.name} --seed {seed} ({how})",
    )


def _shortest_held(program: Program, trained: Trained) -> int:
    """1 if the model also passes the gate on the shortest inputs, else the shortest length it was trained on."""

    def draw(n: int, seed: int, device: torch.device) -> tuple[Tensor, Tensor]:
        return random_inputs(program, n, seed=seed, min_length=1, device=device)

    gate = measure(trained.model, replace(trained.setting, draw=draw), n=trained.gate.n)
    return 1 if gate.passed else min(TRAINED_FROM, program.max_len)


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
        json.dumps([*program.vocab, *([] if program.numerical else map(plain, program.outputs))])
    except (TypeError, ValueError):
        mend = "use strings, numbers of at most 4,300 digits and tuples of them"
        raise BadInput(f"{path}: a token or an output cannot be written to a file; {mend}") from None
