"""Many settings in one stack, each accepted or not, written to a directory.

    out/NAME/model.json, model.safetensors   the accepted model of each setting
    out/NAME/training.json                   its gate, how it was trained, and what the other copies reached

A setting that no copy of which passes the gate gets `training.json` with the best copy's figures and no model.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from vesalius.errors import BadInput
from vesalius.files import write_json
from vesalius.model.files import save_model
from vesalius.training.checkpoint import Checkpoint
from vesalius.training.fit import best_measured
from vesalius.training.gate import Gate
from vesalius.training.recipes import default_recipe
from vesalius.training.setting import Setting
from vesalius.training.stepper import Recipe
from vesalius.training.trainer import Event, Finished, train

SCHEMA = 1


@dataclass(frozen=True)
class Written:
    """One setting is done: its gate on fresh inputs, and where its files are."""

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
) -> Iterator[Event | Written]:
    """Train all settings together, each with every `(seed, learning rate)` of `copies`, and write the accepted models.

    `steps` and `batch` change the default recipe (or the given one). A killed call goes on from its last check, kept
    under `out/checkpoint`, when called again with the same arguments.
    """
    for setting in settings:
        if Path(setting.name).name != setting.name:
            raise BadInput(f"setting name {setting.name!r} cannot be the name of a directory; rename it")
    device = torch.device(device)
    recipe = recipe or default_recipe(settings, device=device)
    recipe = replace(recipe, steps=steps or recipe.steps, batch=batch or recipe.batch)
    kept = out / "checkpoint"
    finished = None
    for event in train(
        settings, device=device, seed=seed, copies=copies, recipe=recipe, checkpoint=kept, stop_early=stop_early
    ):
        yield event
        finished = event if isinstance(event, Finished) else None
    assert finished is not None
    for setting in settings:
        yield _accept(setting, finished, recipe, seed=seed, gate_pairs=gate_pairs, directory=out / setting.name)
    Checkpoint(kept, "").clear()


def _accept(
    setting: Setting, finished: Finished, recipe: Recipe, *, seed: int, gate_pairs: int, directory: Path
) -> Written:
    """Measure the copies best first until one passes, and write it."""
    candidates = finished.candidates[setting.name]
    chosen, gate = best_measured(setting, candidates, n=gate_pairs)
    directory.mkdir(parents=True, exist_ok=True)
    if gate.passed:
        save_model(chosen.transformer(), directory)
    record = {
        "schema": SCHEMA,
        "name": setting.name,
        "accepted": gate.passed,
        "size": asdict(setting.size),
        "circuit": [str(component) for component in setting.circuit],
        "gate": gate.model_dump(mode="json"),
        "figures": gate.figures,
        "recipe": asdict(recipe),
        "stack_seed": seed,
        "seed": chosen.seed,
        "learning_rate": chosen.learning_rate,
        "steps": finished.steps,
        "copies": [{"seed": c.seed, "learning_rate": c.learning_rate, "figures": c.figures} for c in candidates],
        "torch": str(torch.__version__),
    }
    write_json(directory / "training.json", record)
    return Written(setting.name, gate, directory)
