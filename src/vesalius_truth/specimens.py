"""Specimens with a known answer: train programs into transformers, and generate programs to train."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from vesalius.api.door import directory_for
from vesalius.circuits.specimens import SPECIMEN_FILE
from vesalius.documents.printed import (
    GeneratedTask,
    GeneratedTasks,
    TrainedSpecimen,
    TrainedSpecimens,
    TrainingRow,
)
from vesalius.errors import BadInput, Failed, note
from vesalius.model.devices import chosen_device
from vesalius.model.specimen import json_value
from vesalius.progress import Progress, shown
from vesalius.rasp import Program, load_spec
from vesalius_truth.fresh.generator import generate as generated_tasks
from vesalius_truth.making import TrainedModel, make_many, write_trained
from vesalius_truth.training.fit import FitResult, Retry, SettingResult, fit
from vesalius_truth.training.setting import setting_of
from vesalius_truth.training.trainer import StepReport

CHECKPOINT = "checkpoint"


def train(
    specs: str | Path | Sequence[str | Path],
    *,
    out: str | Path,
    seed: int = 0,
    attempts: int = 4,
    device: str | torch.device = "cpu",
    progress: Progress | bool | None = None,
) -> TrainedSpecimen | TrainedSpecimens:
    """Train transformers that implement the programs of SPEC.py files in known components, and check that they do.

    One file is trained into the directory `out` with up to `attempts` tries and its figures are returned. Several are
    trained together, one try each, into a directory each under `out`; the figures are then those of every program. An
    interrupted training continues when the same call is made again.
    """
    paths = [Path(spec) for spec in ([specs] if isinstance(specs, str | Path) else specs)]
    programs = [load_spec(path) for path in paths]
    for program, path in zip(programs, paths, strict=True):
        _check_writable(program, path)
    where, directory = chosen_device(device), directory_for(out)
    with shown(progress) as report:
        if len(paths) > 1:
            return _train_many(paths, directory, seed=seed, device=where, progress=report)
        options = {"seed": seed, "attempts": attempts, "device": where, "progress": report}
        return _train_one(paths[0], programs[0], directory, **options)


def generate(
    *, seed: int, out: str | Path, count: int = 20, depth: int = 4, kinds: Sequence[str] = ("plain",)
) -> GeneratedTasks:
    """Write fresh RASP tasks over renamed vocabularies as SPEC.py files; the same seed gives the same tasks.

    `kinds` take turns: `"plain"` is the free grammar, which `depth` bounds; `"redundant"`, `"rare"`, `"pointer"`,
    `"induction"`, `"sort"`, `"mean"`, `"two"` and `"deep"` are small families that it seldom draws (`fresh/kinds.py`).
    """
    drawn = list(generated_tasks(seed, count, depth, kinds))
    directory = directory_for(out)
    tasks = [
        GeneratedTask(
            name=task.name,
            path=str(task.write(directory)),
            components=tuple(str(placed.component) for placed in task.program.components),
            vocab=tuple(task.program.vocab),
            max_len=task.program.max_len,
            kind=task.kind,
        )
        for task in drawn
    ]
    return GeneratedTasks(seed=seed, depth=depth, tasks=tuple(tasks))


def _train_one(
    path: Path,
    program: Program,
    directory: Path,
    *,
    seed: int,
    attempts: int,
    device: torch.device,
    progress: Progress,
) -> TrainedSpecimen:
    # A checkpoint beside the specimen: it was killed between writing the one and removing the other.
    if (directory / SPECIMEN_FILE).exists() and not (directory / CHECKPOINT).exists():
        raise BadInput(f"`out` {directory}: holds a specimen already; choose another directory or remove it")
    trained = _fit(program, directory, seed=seed, attempts=attempts, device=device, progress=progress)
    if not trained.gate.passed:
        raise Failed(
            f"{path}: not accepted after {trained.attempts} tries: {'; '.join(trained.gate.shortfalls)}; "
            f"try `attempts` {2 * attempts}, another `seed`, or a simpler program"
        )
    how = f"seed {seed}: {trained.steps} steps, learning rate {trained.learning_rate}"
    write_trained(TrainedModel(path, trained.setting, trained.model, trained.gate, how), directory)
    shutil.rmtree(directory / CHECKPOINT, ignore_errors=True)
    return _figures(program.name, trained, directory)


def _train_many(
    paths: list[Path], directory: Path, *, seed: int, device: torch.device, progress: Progress
) -> TrainedSpecimens:
    """All at once, in stacks; a program that is not accepted is reported, and the others are kept."""
    finished = [path for path in paths if (directory / path.stem / SPECIMEN_FILE).exists()]
    rows = [TrainingRow(name=path.stem, accepted=True, was_there=True) for path in finished]
    for event in make_many(paths, out=directory, device=device, seed=seed):
        if isinstance(event, StepReport):
            progress(f"training {len(paths) - len(finished)} programs", event.step, event.steps)
        elif isinstance(event, SettingResult):
            outcome = {"shortfalls": tuple(event.gate.shortfalls), "directory": str(event.directory)}
            figures: dict[str, Any] = {**event.gate.metrics, **outcome}
            rows.append(TrainingRow(name=event.name, accepted=event.gate.passed, **figures))
    accepted = sum(row.accepted for row in rows)
    if not accepted:
        raise Failed(f"none of {len(rows)} programs was accepted; try another `seed`, or one alone with `attempts` 8")
    return TrainedSpecimens(n=len(rows), accepted=accepted, specimens=tuple(rows))


def _fit(
    program: Program, directory: Path, *, seed: int, attempts: int, device: torch.device, progress: Progress
) -> FitResult:
    setting, checkpoint = setting_of(program), directory / CHECKPOINT
    for event in fit(setting, device=device, seed=seed, attempts=attempts, checkpoint=checkpoint):
        if isinstance(event, StepReport):
            progress(f"training {program.name}", event.step, event.steps)
        elif isinstance(event, Retry):
            note(f"{event.reason}; try {event.attempt} begins")
        elif isinstance(event, FitResult):
            return event
    raise AssertionError("training ends with a FitResult")


def _figures(name: str, trained: FitResult, directory: Path) -> TrainedSpecimen:
    gate = trained.gate
    return TrainedSpecimen(
        name=name,
        **gate.metrics,
        iia=gate.iia,
        iia_changed=gate.iia_changed,
        moved=gate.crossed_changed,
        inert=gate.inert,
        accepted=gate.passed,
        n=gate.n,
        params=sum(weight.numel() for weight in trained.model.parameters()),
        attempts=trained.attempts,
        seconds=trained.seconds,
        directory=str(directory),
    )


def _check_writable(program: Program, path: Path) -> None:
    """Sets, and numbers of thousands of digits, cannot be written as JSON; refused before the training, not after."""
    try:
        json.dumps([*program.vocab, *([] if program.numerical else map(json_value, program.outputs))])
    except (TypeError, ValueError):
        fix = "use strings, numbers of at most 4,300 digits and tuples of them"
        raise BadInput(f"{path}: a token or an output cannot be written to a file; {fix}") from None
