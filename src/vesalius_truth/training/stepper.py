"""Training steps of a stack: draw a batch, loss, gradient, Adam, all on the device.

On a CUDA device the loss is compiled and the whole step captured in one graph, since a step is hundreds of kernels too
small to launch one by one. Elsewhere the same step runs eagerly.

The random numbers of a sequence of steps are seeded by its first step, so a run that resumes at a check draws the same
batches as an uninterrupted one.
"""

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.errors import BadInput
from vesalius.files import read_json, write_json
from vesalius.model.states import read_tensors, write_tensors
from vesalius_truth.training.setting import Setting, few_threads
from vesalius_truth.training.siit import Curriculum, Tables, TrainingRows, Weights, copy_losses, draw_rows
from vesalius_truth.training.stack import Stack

_BETAS, _EPSILON = (0.9, 0.99), 1e-8
_WARM_UP, _FLAT, _LAST = 0.02, 0.3, 0.02
_SEED_STRIDE = 1_000_003  # seeds of different runs do not overlap for as many steps


@dataclass(frozen=True)
class Recipe:
    """How a stack is trained: `steps` of `batch` pairs from a table of `pairs`, with `checks` on `validation` pairs.

    The copies are ranked at the end on `selection` pairs. The learning rate warms up over the first 2 %, stays until
    30 % and falls along a cosine to 2 % of its peak. The gradient of each copy is clipped to the norm `clip`.
    """

    steps: int
    batch: int
    pairs: int = 32_768
    checks: int = 10
    validation: int = 256
    selection: int = 1024
    clip: float = 1.0
    weights: Weights = field(default_factory=Weights)

    def check_steps(self) -> list[int]:
        """The steps after which the copies are checked; the last one is the last step."""
        n = min(self.checks, self.steps)
        return [round(self.steps * (i + 1) / n) for i in range(n)]


def rate_at(step: int, steps: int) -> float:
    """The share of the peak learning rate at a step."""
    done = (step + 1) / steps
    if done < _WARM_UP:
        return done / _WARM_UP
    decay = max(0.0, (done - _FLAT) / (1 - _FLAT))
    return _LAST + (1 - _LAST) * 0.5 * (1 + math.cos(math.pi * decay))


class Stepper:
    """Advances a stack; its state is `step`, the two moments and the stack's weights."""

    def __init__(self, stack: Stack, tables: Tables, curriculum: Curriculum, recipe: Recipe, *, seed: int) -> None:
        self.stack, self.tables, self.curriculum, self.recipe, self.seed = stack, tables, curriculum, recipe, seed
        device = stack.device
        self.first, self.second = torch.zeros_like(stack.weights), torch.zeros_like(stack.weights)
        self.loss = torch.zeros(len(stack), device=device)
        self.count = torch.zeros((), dtype=torch.long, device=device)
        self.peak = torch.tensor([copy.learning_rate for copy in stack.copies], device=device)[:, None]
        self.schedule = torch.tensor([rate_at(step, recipe.steps) for step in range(recipe.steps)], device=device)
        self.generator = torch.Generator(device=device)
        self._losses: Callable[[Tensor, TrainingRows], Tensor] = self._copy_losses
        self._replay: Callable[[], None] | None = None

    @property
    def step(self) -> int:
        """Steps done."""
        return int(self.count)

    def tensors(self) -> dict[str, Tensor]:
        """Everything that changes from step to step."""
        return {"weights": self.stack.weights, "first": self.first, "second": self.second, "step": self.count}

    @torch.no_grad()
    def restore(self, saved: dict[str, Tensor]) -> None:
        """Continue from saved tensors."""
        for name, tensor in self.tensors().items():
            tensor.copy_(saved[name])

    def advance(self, steps: int) -> Float[Tensor, " copy"]:
        """Do some steps and return the loss of every copy at the last one."""
        if self.stack.device.type == "cuda" and self._replay is None:
            self._capture()
        self.generator.manual_seed(self.seed * _SEED_STRIDE + self.step)
        with few_threads(self.stack.largest_activation(4 * self.recipe.batch)):
            for _ in range(steps):
                (self._replay or self._one_step)()
        return self.loss

    def _copy_losses(self, parameters: Tensor, rows: TrainingRows) -> Tensor:
        return copy_losses(self.stack, self.curriculum, self.recipe.weights, parameters, rows)

    def _one_step(self) -> None:
        rows = draw_rows(self.stack, self.tables, self.curriculum, self.recipe.batch, self.generator)
        losses = self._losses(self.stack.weights, rows)
        (gradient,) = torch.autograd.grad(losses.sum(), self.stack.weights)
        self.loss.copy_(losses.detach())
        self._adam(gradient * self.stack.mask)

    @torch.no_grad()
    def _adam(self, gradient: Float[Tensor, "copy parameter"]) -> None:
        """One step of Adam with the gradient of every copy clipped separately.

        A gradient that is not finite counts as zero, so that weights stay finite.
        """
        norm = gradient.norm(dim=1, keepdim=True)
        clipped = gradient * (self.recipe.clip / norm.clamp(min=self.recipe.clip))
        gradient = torch.where(norm.isfinite(), clipped, 0.0)
        rate = self.peak * self.schedule.gather(0, self.count.clamp(max=len(self.schedule) - 1)[None])
        self.count.add_(1)
        self.first.lerp_(gradient, 1 - _BETAS[0])
        self.second.lerp_(gradient.square(), 1 - _BETAS[1])
        correction_first, correction_second = (1 - torch.pow(beta, self.count) for beta in _BETAS)
        change = self.first / correction_first / ((self.second / correction_second).sqrt() + _EPSILON)
        self.stack.weights.sub_(rate * change)

    def _capture(self) -> None:
        """Compile the loss, run a few steps to warm it up, capture one, and restore the state."""
        saved = {name: tensor.detach().clone() for name, tensor in self.tensors().items()}
        # Shapes never change within a stack; by default a second stack would be compiled for dynamic shapes.
        self._losses = torch.compile(self._copy_losses, dynamic=False)
        with torch.cuda.device(self.stack.device):
            side_stream = torch.cuda.Stream()
            side_stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side_stream):
                for _ in range(3):
                    self._one_step()
            torch.cuda.current_stream().wait_stream(side_stream)
            graph = torch.cuda.CUDAGraph()
            graph.register_generator_state(self.generator)
            with torch.cuda.graph(graph):
                self._one_step()
        self.restore(saved)
        self._replay = graph.replay


# Default recipes: steps, batch size and learning rate, by the size of the model and the device.

_LONG = 30  # tokens; from here on attention dominates and fewer rows are enough
_DEEP = 5  # layers


def default_recipe(settings: Sequence[Setting], *, device: torch.device) -> Recipe:
    """The recipe for the largest of the settings."""
    width = max(setting.size.d_model for setting in settings)
    depth = max(setting.size.n_layers for setting in settings)
    long = max(setting.program.max_len for setting in settings) >= _LONG
    if device.type == "cpu":
        steps = 1500 if width <= 8 and depth <= 2 else 2500
        return Recipe(steps, 32 if long else 48, pairs=8_192, checks=steps // 50, validation=128 if long else 256)
    pairs = 32_768 if long else 262_144
    if long:
        return Recipe(2500, 48, pairs=pairs)
    if depth >= _DEEP:
        return Recipe(30_000, 256, pairs=pairs, validation=512)
    if width <= 8 and depth <= 2:
        return Recipe(2500, 64, pairs=pairs, validation=512)
    return Recipe(8000, 128, pairs=pairs, validation=512)


def default_copies(settings: Sequence[Setting], *, seed: int, device: torch.device) -> list[tuple[int, float]]:
    """Two learning rates with two seeds each on a GPU, one of each on a CPU."""
    width = max(setting.size.d_model for setting in settings)
    depth = max(setting.size.n_layers for setting in settings)
    rates = (1e-2, 5e-3) if width <= 8 else (5e-3, 4e-3) if width <= 40 and depth < _DEEP else (3e-3, 2e-3)
    if device.type == "cpu":
        return [(seed, rates[0])]
    return [(seed + i, rate) for i in range(2) for rate in rates]


# Saved training runs: one safetensors file per check, and a JSON file that names the last complete one.

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
