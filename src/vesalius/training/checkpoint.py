"""Saved training runs: one safetensors file per check, and a JSON file that names the last complete one.

The JSON is replaced atomically after its tensors are on disk, so a run killed at any moment finds either the old check
or the new one. A checkpoint belongs to one run: other settings, copies, recipe or seed are refused.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from vesalius.errors import BadInput
from vesalius.files import read_json, write_json
from vesalius.model.files import read_tensors, write_tensors
from vesalius.training.stack import Stack
from vesalius.training.stepper import Recipe
from vesalius.training.tables import Tables

SCHEMA = 1
_INDEX = "checkpoint.json"
_HASHED_PAIRS = 64


class Checkpoint:
    """The directory of one run's checks."""

    def __init__(self, directory: Path, identity: str) -> None:
        self.directory, self.identity = directory, identity

    def load(self) -> tuple[dict[str, Tensor], float] | None:
        """The tensors of the last check and the seconds spent up to it; None if nothing was saved yet."""
        index = self.directory / _INDEX
        if not index.exists():
            return None
        data = read_json(index)
        if data.get("schema") != SCHEMA or data.get("identity") != self.identity:
            raise BadInput(
                f"{self.directory}: holds the checkpoint of another run; choose an empty directory or delete it"
            )
        return read_tensors(self.directory / str(data.get("file"))), float(data.get("seconds", 0.0))

    def save(self, tensors: Mapping[str, Tensor], *, step: int, seconds: float) -> None:
        """Write a check, then delete the one before."""
        self.directory.mkdir(parents=True, exist_ok=True)
        name = f"step-{step:08d}.safetensors"
        write_tensors(self.directory / name, {key: value.detach().cpu().contiguous() for key, value in tensors.items()})
        index = {"schema": SCHEMA, "identity": self.identity, "file": name, "step": step, "seconds": seconds}
        write_json(self.directory / _INDEX, index)
        for old in self.directory.glob("step-*.safetensors"):
            if old.name != name:
                old.unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove the files of a finished run."""
        for path in [self.directory / _INDEX, *self.directory.glob("step-*.safetensors")]:
            path.unlink(missing_ok=True)
        if self.directory.exists() and not any(self.directory.iterdir()):
            self.directory.rmdir()


def identify(stack: Stack, tables: Tables, recipe: Recipe, seed: int) -> str:
    """A hash of everything that determines a run: models, copies, recipe, seed and the first training pairs."""
    description: dict[str, Any] = {
        "settings": [
            [s.name, asdict(s.size), [(str(x.component), x.crossed, x.inert) for x in s.slots]] for s in stack.settings
        ],
        "copies": [asdict(copy) for copy in stack.copies],
        "recipe": asdict(recipe),
        "seed": seed,
    }
    digest = hashlib.sha256(json.dumps(description, sort_keys=True).encode())
    for column in (tables.base, tables.source, tables.answers):
        rounded = column[:, :_HASHED_PAIRS].cpu().double().round(decimals=3)
        digest.update((rounded + 0.0).numpy().tobytes())  # adding 0 turns -0 into 0
    return digest.hexdigest()
