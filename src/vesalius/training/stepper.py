"""Training steps of a stack: draw a batch, loss, gradient, Adam, all on the device.

On a CUDA device the loss is compiled and the whole step captured in one graph, since a step is hundreds of kernels too
small to launch one by one. Elsewhere the same step runs eagerly.

The random numbers of a sequence of steps are seeded by its first step, so a run that resumes at a check draws the same
batches as an uninterrupted one.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.training.siit import Curriculum, Rows, Weights, copy_losses, draw_rows
from vesalius.training.stack import Stack
from vesalius.training.tables import Tables
from vesalius.training.threads import few_threads

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
        self._losses: Callable[[Tensor, Rows], Tensor] = self._copy_losses
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

    def _copy_losses(self, parameters: Tensor, rows: Rows) -> Tensor:
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
