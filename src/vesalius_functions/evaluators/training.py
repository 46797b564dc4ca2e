"""Train the adapter of an evaluator, choose by the validation split, and read the test split once.

The loss is the cross-entropy of the right example among the three. Batches follow from the seed and the epoch, so a
training that was killed continues from its last checkpoint with the same steps. What is kept is the adapter of the
check with the best validation accuracy, as a mean over categories.
"""

import json
import math
import os
import random
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from vesalius.errors import BadInput
from vesalius.files import read_json, write_json
from vesalius.model import Transformer
from vesalius.model.states import read_tensors, write_tensors
from vesalius.progress import Progress
from vesalius_functions.agents.evaluator import Split
from vesalius_functions.evaluators.adapter import Adapter
from vesalius_functions.evaluators.data import Row
from vesalius_functions.evaluators.forms import Asked, Form, Run
from vesalius_functions.options import Recipe

#: The share of the steps over which the learning rate rises.
WARM_UP = 0.05
CLIP = 1.0
#: Checks on the validation split per epoch, and the most tests of each.
CHECKS, CHECKED = 2, 1_500
#: Tokens that pass through the model at once, by kind of device.
AT_ONCE = {"cuda": 32_768, "cpu": 4_096}
#: Batches among which tests are sorted by length.
POOL = 16
#: What a checkpoint holds of every matrix: as it is, as it was at the best check, and Adam's moments.
PARTS = ("now", "best", "first", "second")
RECIPE_FILE, STATE_FILE = "recipe.json", "{}.safetensors"


def rate_at(recipe: Recipe, step: int, steps: int) -> float:
    """The learning rate of a step: it rises at first and then falls along a cosine to nothing."""
    rising = max(1, round(WARM_UP * steps))
    if step < rising:
        return recipe.rate * (step + 1) / rising
    return recipe.rate * 0.5 * (1 + math.cos(math.pi * (step - rising) / max(1, steps - rising)))


@dataclass(frozen=True)
class Trained:
    """The best adapter of one form, its validation accuracy, and the accuracy at every check by step."""

    form: str
    adapter: Adapter
    checks: tuple[tuple[int, float], ...]

    @property
    def best(self) -> tuple[int, float]:
        """The step and the accuracy of the check that is kept: the first of the best."""
        return max(self.checks, key=lambda check: (check[1], -check[0]))


class Measure:
    """Takes tests with a model, those of similar length together."""

    def __init__(self, form: Form, rows: Sequence[Row]) -> None:
        self.form, self.rows = form, rows
        self.asked = [form.asked(row.description, row.test.examples) for row in rows]
        self.right = torch.tensor([row.test.correct for row in rows])

    @torch.no_grad()
    def choices(self, run: Run, device: torch.device, report: Progress | None = None) -> list[int]:
        """The choice of every test."""
        order = sorted(range(len(self.asked)), key=lambda i: self.asked[i].longest)
        chosen = [0] * len(order)
        done = 0
        for part in pieces([self.asked[i] for i in order], device):
            scores = self.form.scores(run, [self.asked[order[i]] for i in part])
            for i, choice in zip(part, scores.argmax(1).tolist(), strict=True):
                chosen[order[i]] = choice
            done += len(part)
            if report is not None:
                report(f"taking tests ({self.form.NAME})", done, len(order))
        return chosen

    def hits(self, run: Run, device: torch.device, report: Progress | None = None) -> list[bool]:
        """Whether every choice is right."""
        return [a == b for a, b in zip(self.choices(run, device, report), self.right.tolist(), strict=True)]

    def accuracy(self, run: Run, device: torch.device, report: Progress | None = None) -> float:
        """The share right, as a mean over categories."""
        return by_category(self.rows, self.hits(run, device, report))


def by_category(rows: Sequence[Row], hits: Sequence[bool]) -> float:
    """The mean over categories of the share right."""
    shares: dict[str, list[bool]] = {}
    for row, hit in zip(rows, hits, strict=True):
        shares.setdefault(row.category, []).append(hit)
    return sum(sum(one) / len(one) for one in shares.values()) / len(shares)


def pieces(asked: Sequence[Asked], device: torch.device) -> Iterator[list[int]]:
    """Consecutive tests whose padded prompts fit together."""
    most, part, longest, rows = AT_ONCE.get(device.type, AT_ONCE["cpu"]), list[int](), 0, 0
    for place, one in enumerate(asked):
        longest_then, rows_then = max(longest, one.longest), rows + len(one.rows)
        if part and longest_then * rows_then > most:
            yield part
            part, longest_then, rows_then = [], one.longest, len(one.rows)
        part.append(place)
        longest, rows = longest_then, rows_then
    if part:
        yield part


def batches(lengths: Sequence[int], recipe: Recipe, epoch: int) -> list[list[int]]:
    """The tests of each step of an epoch: shuffled, then sorted by length within pools of batches."""
    dice = random.Random(f"{recipe.seed}/{epoch}")
    order = list(range(len(lengths)))
    dice.shuffle(order)
    size, made = recipe.batch, list[list[int]]()
    for start in range(0, len(order), size * POOL):
        pool = sorted(order[start : start + size * POOL], key=lambda i: lengths[i])
        made += [pool[i : i + size] for i in range(0, len(pool), size)]
    dice.shuffle(made)
    return made


class Training:
    """The training of one form on one base; its state is the step, the adapter, Adam's moments and the checks."""

    def __init__(self, model: Transformer, form: Form, recipe: Recipe, rows: Mapping[Split, Sequence[Row]]) -> None:
        self.model, self.form, self.recipe = model, form, recipe
        self.taught = Measure(form, rows["train"])
        held = list(rows["validation"])
        self.held = Measure(form, random.Random(f"{recipe.seed}/validation").sample(held, min(CHECKED, len(held))))
        self.adapter = Adapter.fresh(model, recipe.rank, recipe.seed)
        self.best = {name: tensor.clone() for name, tensor in self.adapter.tensors().items()}
        self.step, self.checks = 0, list[tuple[int, float]]()
        self.per_epoch = math.ceil(len(self.taught.asked) / recipe.batch)
        self.steps = recipe.epochs * self.per_epoch
        self.parts = self.adapter.tensors()
        for part in self.parts.values():
            part.requires_grad_()
        self.optimizer = torch.optim.Adam(list(self.parts.values()), betas=(0.9, 0.99))

    def run(self, state: Path, progress: Progress) -> Trained:
        """Do what is not done yet; the checkpoint `state` is written after every check."""
        if state.exists():
            self._restore(state)
        ends = {round(self.steps * (i + 1) / n) for n in [CHECKS * self.recipe.epochs] for i in range(n)}
        device = self.model.device
        while self.step < self.steps:
            epoch, first = divmod(self.step, self.per_epoch)
            order = batches([one.longest for one in self.taught.asked], self.recipe, epoch)
            for batch in order[first:]:
                progress(f"training {self.form.NAME}", self.step, self.steps)
                self._learn(batch, device)
                self.step += 1
                if self.step in ends:
                    self._check(device)
                    self._save(state)
        best = Adapter.of(self.best, self.model, source=state)
        return Trained(self.form.NAME, best, tuple(self.checks))

    def _learn(self, batch: Sequence[int], device: torch.device) -> None:
        asked = [self.taught.asked[i] for i in batch]
        right = self.taught.right[list(batch)]
        self.optimizer.zero_grad()
        for part in pieces(asked, device):
            run = partial(functional_call, self.model, self.adapter.weights(self.model))
            scores = self.form.scores(lambda tokens, run=run, **rest: run((tokens,), rest), [asked[i] for i in part])
            loss = cross_entropy(scores.float(), right[part].to(scores.device), reduction="sum") / len(batch)
            loss.backward()
        torch.nn.utils.clip_grad_norm_(list(self.parts.values()), CLIP)
        for group in self.optimizer.param_groups:
            group["lr"] = rate_at(self.recipe, self.step, self.steps)
        self.optimizer.step()

    def _check(self, device: torch.device) -> None:
        with torch.no_grad():
            changed = self.adapter.weights(self.model)
            accuracy = self.held.accuracy(
                lambda tokens, **rest: functional_call(self.model, changed, (tokens,), rest), device
            )
        if all(accuracy > before for _, before in self.checks):
            self.best = {name: tensor.detach().clone() for name, tensor in self.adapter.tensors().items()}
        self.checks.append((self.step, accuracy))

    def _save(self, path: Path) -> None:
        tensors = {"step": torch.tensor(self.step), "checks": torch.tensor(self.checks, dtype=torch.float64)}
        for name, part in self.parts.items():
            moments = self.optimizer.state[part]
            tensors |= {
                f"now/{name}": part,
                f"best/{name}": self.best[name],
                f"first/{name}": moments["exp_avg"],
                f"second/{name}": moments["exp_avg_sq"],
            }
        write_tensors(path, {name: tensor.detach().to("cpu").contiguous() for name, tensor in tensors.items()})

    @torch.no_grad()
    def _restore(self, path: Path) -> None:
        saved = read_tensors(path)
        expected = {f"{kind}/{name}" for kind in PARTS for name in self.parts}
        if saved.keys() != expected | {"step", "checks"} or not self._fits(saved):
            raise BadInput(f"{path}: is not a checkpoint of this training; remove it to begin again")
        self.step = int(saved["step"])
        self.checks = [(int(step), accuracy) for step, accuracy in saved["checks"].tolist()]
        for name, part in self.parts.items():
            part.copy_(saved[f"now/{name}"])
            self.best[name].copy_(saved[f"best/{name}"])
            self.optimizer.state[part] = {
                "step": torch.tensor(float(self.step)),
                "exp_avg": saved[f"first/{name}"].to(part.device),
                "exp_avg_sq": saved[f"second/{name}"].to(part.device),
            }

    def _fits(self, saved: Mapping[str, Tensor]) -> bool:
        """Whether tensors have the sizes of this training and hold numbers, with a step of it and the checks so far."""
        step, checks = saved["step"], saved["checks"]
        if step.shape != () or step.dtype != torch.int64 or checks.ndim != 2 or checks.shape[1] != 2:
            return False
        sizes = all(saved[f"{kind}/{name}"].shape == part.shape for kind in PARTS for name, part in self.parts.items())
        numbers = all(bool(one.isfinite().all()) for one in saved.values())
        return sizes and numbers and len(checks) > 0 and 0 < int(step) <= self.steps


@contextmanager
def repeatable(device: torch.device) -> Iterator[None]:
    """The same sums every time, and on a GPU products of float32 on its tensor cores."""
    precision, strict = torch.get_float32_matmul_precision(), torch.are_deterministic_algorithms_enabled()
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when a GPU's first product is made
    torch.use_deterministic_algorithms(True, warn_only=True)
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*deterministic")
            yield
    finally:
        torch.use_deterministic_algorithms(strict)
        torch.set_float32_matmul_precision(precision)


def claim(directory: Path, asked: Mapping[str, object]) -> None:
    """Note what a directory's checkpoints are of; refuse one that holds those of another training."""
    path = directory / RECIPE_FILE
    if path.exists():
        before = read_json(path)
        if different := [name for name in asked if before.get(name) != json.loads(json.dumps(asked[name]))]:
            raise BadInput(
                f"`out` {directory.parent}: holds a training with other {', '.join(different)}; choose another place"
            )
        return
    directory.mkdir(exist_ok=True)
    write_json(path, dict(asked))
