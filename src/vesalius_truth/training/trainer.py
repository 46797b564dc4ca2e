"""Trains a stack of models and reports its progress.

`train` is a generator: it yields a `StepReport` as steps are done, a `CheckReport` after every check and one
`TrainingResult` at the end with the copies of every setting, best first. Models are accepted elsewhere, by the gate.
"""

import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vesalius.errors import BadInput
from vesalius.model import Config, Transformer
from vesalius.model.states import State, build
from vesalius_truth.training.gate import headroom
from vesalius_truth.training.setting import Setting, few_threads
from vesalius_truth.training.siit import Curriculum, Metrics, Tables, evaluate, tabulate
from vesalius_truth.training.stack import Copy, Stack
from vesalius_truth.training.stepper import Checkpoint, Recipe, Stepper, default_copies, default_recipe, identify

#: Training may stop when a copy's metrics have this much headroom at two checks in a row.
STOP_HEADROOM, STOP_CHECKS = 0.5, 2
_REPORTS_PER_CHECK = 4


@dataclass(frozen=True)
class StepReport:
    """Steps done so far; `loss` is the mean over copies."""

    step: int
    steps: int
    loss: float
    seconds: float


@dataclass(frozen=True)
class CheckReport:
    """Result of a check: for every setting the metrics of its best copy and how many copies reach all thresholds."""

    step: int
    steps: int
    best: dict[str, dict[str, float]]
    passing: dict[str, int]
    seconds: float


@dataclass(frozen=True)
class Candidate:
    """One trained copy with its metrics on the selection pairs."""

    config: Config
    state: State
    seed: int
    learning_rate: float
    metrics: dict[str, float]

    @property
    def headroom(self) -> float:
        """How far it is above the gate's thresholds."""
        return headroom(self.metrics)

    def transformer(self) -> Transformer:
        """The copy as a transformer."""
        return build(self.config, self.state, where=f"copy with seed {self.seed}")


@dataclass(frozen=True)
class TrainingResult:
    """The end of training: for every setting its copies, best first."""

    candidates: dict[str, tuple[Candidate, ...]]
    steps: int
    seconds: float


Event = StepReport | CheckReport | TrainingResult


def train(
    settings: Sequence[Setting],
    *,
    device: torch.device | str,
    seed: int = 0,
    copies: Sequence[tuple[int, float]] | None = None,
    recipe: Recipe | None = None,
    checkpoint: Path | None = None,
    stop_early: bool = True,
) -> Generator[Event, None, None]:
    """Train every setting with every `(seed, learning rate)` of `copies`, all in one stack.

    With a `checkpoint` directory a killed run resumes from its last check when it is called again with the same
    arguments, and ends with the same weights. With `stop_early` training ends when some copy of every setting is well
    above the gate's thresholds at two checks in a row.
    """
    names = [setting.name for setting in settings]
    if not names or len(set(names)) < len(names):
        raise BadInput(f"settings {names}: give at least one, with unique names")
    device = torch.device(device)
    recipe = recipe or default_recipe(settings, device=device)
    seeds_and_rates = default_copies(settings, seed=seed, device=device) if copies is None else copies
    stack_copies = [Copy(i, first, rate) for i in range(len(settings)) for first, rate in seeds_and_rates]
    return _Run(settings, stack_copies, recipe, device=device, seed=seed, checkpoint=checkpoint).events(stop_early)


class _Run:
    """One call of `train`."""

    def __init__(
        self,
        settings: Sequence[Setting],
        copies: Sequence[Copy],
        recipe: Recipe,
        *,
        device: torch.device,
        seed: int,
        checkpoint: Path | None,
    ) -> None:
        self.recipe, self.began = recipe, time.perf_counter()
        training, validation, selection = (
            tabulate(settings, n, seed=3 * seed + part, device=device)
            for part, n in enumerate((recipe.pairs, recipe.validation, recipe.selection))
        )
        self.validation, self.selection = validation, selection
        self.stack = Stack(settings, copies, device=device)
        self.curriculum = Curriculum(self.stack)
        self.stepper = Stepper(self.stack, training, self.curriculum, recipe, seed=seed)
        self.streak: Int[Tensor, " copy"] = torch.zeros(len(copies), dtype=torch.long)
        self.iia: Float[Tensor, "copy slot"] = torch.ones(self.curriculum.present.shape, device=device)
        identity = "" if checkpoint is None else identify(self.stack, training, recipe, seed)
        self.checkpoint = None if checkpoint is None else Checkpoint(checkpoint, identity)
        self._resume()

    def events(self, stop_early: bool) -> Generator[Event, None, None]:
        for target in self.recipe.check_steps():
            if target <= self.stepper.step:
                continue
            if stop_early and self._good_enough():
                break
            yield from self._advance(target)
            report = self._check()
            self._save()
            yield report
        yield TrainingResult(self._candidates(), self.stepper.step, self._seconds())

    def _advance(self, target: int) -> Iterator[StepReport]:
        start = self.stepper.step
        for i in range(_REPORTS_PER_CHECK):
            until = start + round((target - start) * (i + 1) / _REPORTS_PER_CHECK)
            if until > self.stepper.step:
                loss = float(self.stepper.advance(until - self.stepper.step).mean())
                yield StepReport(self.stepper.step, self.recipe.steps, loss, self._seconds())

    def _check(self) -> CheckReport:
        metrics = self._evaluate(self.validation)
        self.iia = metrics.iia
        self.curriculum.adapt(metrics.iia)
        headrooms = [headroom(metrics.of(copy)) for copy in range(len(self.stack))]
        good = torch.tensor(headrooms) >= STOP_HEADROOM
        self.streak = torch.where(good, self.streak + 1, 0)
        best, passing = {}, {}
        for name, members in self._members().items():
            best[name] = metrics.of(max(members, key=lambda copy: headrooms[copy]))
            passing[name] = sum(headrooms[copy] >= 0 for copy in members)
        return CheckReport(self.stepper.step, self.recipe.steps, best, passing, self._seconds())

    def _evaluate(self, tables: Tables) -> Metrics:
        with few_threads(self.stack.largest_activation(tables.n_pairs)):
            return evaluate(self.stack, tables, self.curriculum)

    def _good_enough(self) -> bool:
        return all(bool((self.streak[members] >= STOP_CHECKS).any()) for members in self._members().values())

    def _candidates(self) -> dict[str, tuple[Candidate, ...]]:
        metrics = self._evaluate(self.selection)
        ranked = {}
        for name, members in self._members().items():
            candidates = [self._candidate(copy, metrics) for copy in members]
            ranked[name] = tuple(sorted(candidates, key=lambda candidate: -candidate.headroom))
        return ranked

    def _candidate(self, copy: int, metrics: Metrics) -> Candidate:
        config, state, origin = self.stack.configs[copy], self.stack.export(copy), self.stack.copies[copy]
        return Candidate(config, state, origin.seed, origin.learning_rate, metrics.of(copy))

    def _members(self) -> dict[str, list[int]]:
        """The copies of every setting."""
        return {
            setting.name: [i for i, copy in enumerate(self.stack.copies) if copy.setting == number]
            for number, setting in enumerate(self.stack.settings)
        }

    def _seconds(self) -> float:
        return time.perf_counter() - self.began

    def _save(self) -> None:
        if self.checkpoint is not None:
            tensors = self.stepper.tensors() | {"iia": self.iia, "streak": self.streak}
            self.checkpoint.save(tensors, step=self.stepper.step, seconds=self._seconds())

    def _resume(self) -> None:
        saved = None if self.checkpoint is None else self.checkpoint.load()
        if saved is not None:
            tensors, seconds = saved
            self.stepper.restore(tensors)
            self.iia, self.streak = tensors["iia"].to(self.stack.device), tensors["streak"]
            self.curriculum.adapt(self.iia)
            self.began -= seconds
