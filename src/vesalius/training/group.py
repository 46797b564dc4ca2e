"""Train many settings in one stack and write the accepted models to a directory.

    out/NAME/model.json, model.safetensors   the accepted model of each setting
    out/NAME/training.json                   its gate, how it was trained, and what the other copies reached

A setting without a copy that passes the gate gets `training.json` with the best copy's metrics and no model.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from vesalius.errors import BadInput
from vesalius.files import write_json
from vesalius.model.files import save_model
from vesalius.training.checkpoint import Checkpoint
from vesalius.training.fit import best_candidate
from vesalius.training.gate import Gate
from vesalius.training.recipes import default_recipe
from vesalius.training.setting import Setting
from vesalius.training.stepper import Recipe
from vesalius.training.trainer import Event, TrainingResult, train

SCHEMA = 1


@dataclass(frozen=True)
class SettingResult:
    """One setting's gate on fresh inputs, and the directory of its files."""

    name: str
    gate: Gate
    directory: Path


def train_group(
    settings: Sequence[Setting],
    *,
    device: torch.device | str,
    out: Path,
    seed: int = 0,
    copies: Sequence[tuple[int, float]] | None = None,
    steps: int | None = None,
    batch: int | None = None,
    recipe: Recipe | None = None,
    gate_pairs: int = 1024,
    stop_early: bool = False,
) -> Iterator[Event | SettingResult]:
    """Train all settings together, each with every `(seed, learning rate)` of `copies`, and write the accepted models.

    `steps` and `batch` change the recipe. A killed call resumes from its last check, saved under `out/checkpoint`, when
    it is called again with the same arguments.
    """
    for setting in settings:
        if Path(setting.name).name != setting.name:
            raise BadInput(f"setting name {setting.name!r} cannot be the name of a directory; rename it")
    device = torch.device(device)
    recipe = recipe or default_recipe(settings, device=device)
    recipe = replace(recipe, steps=steps or recipe.steps, batch=batch or recipe.batch)
    checkpoint = out / "checkpoint"
    result = None
    for event in train(
        settings, device=device, seed=seed, copies=copies, recipe=recipe, checkpoint=checkpoint, stop_early=stop_early
    ):
        yield event
        result = event if isinstance(event, TrainingResult) else None
    assert result is not None
    for setting in settings:
        yield _accept(setting, result, recipe, seed=seed, gate_pairs=gate_pairs, directory=out / setting.name)
    Checkpoint(checkpoint, "").clear()


def _accept(
    setting: Setting, result: TrainingResult, recipe: Recipe, *, seed: int, gate_pairs: int, directory: Path
) -> SettingResult:
    """Measure the copies best first until one passes, and write it."""
    candidates = result.candidates[setting.name]
    best, gate = best_candidate(setting, candidates, n=gate_pairs)
    directory.mkdir(parents=True, exist_ok=True)
    if gate.passed:
        save_model(best.transformer(), directory)
    record = {
        "schema": SCHEMA,
        "name": setting.name,
        "accepted": gate.passed,
        "size": asdict(setting.size),
        "circuit": [str(component) for component in setting.circuit],
        "gate": gate.model_dump(mode="json"),
        "figures": gate.metrics,
        "recipe": asdict(recipe),
        "stack_seed": seed,
        "seed": best.seed,
        "learning_rate": best.learning_rate,
        "steps": result.steps,
        "continued": setting.start is not None,
        "copies": [{"seed": c.seed, "learning_rate": c.learning_rate, "figures": c.metrics} for c in candidates],
        "torch": str(torch.__version__),
    }
    write_json(directory / "training.json", record)
    return SettingResult(setting.name, gate, directory)
