"""Train one model until it is accepted: train, measure the gate, and try again if it fails.

The second try uses the next seed, twice the steps and half the learning rate; every later one also a wider model. Each
try is announced, and the last event is a `FitResult` with the best model and its gate, passed or not.
"""

import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from vesalius.errors import BadInput
from vesalius.files import read_json, write_json
from vesalius.model import Transformer
from vesalius.model.states import save_model
from vesalius_truth.training.gate import Gate, headroom, measure
from vesalius_truth.training.setting import Setting
from vesalius_truth.training.stepper import Checkpoint, Recipe, default_copies, default_recipe
from vesalius_truth.training.trainer import Candidate, Event, TrainingResult, train

_FAILED = "failed.json"


@dataclass(frozen=True)
class Retry:
    """A try failed the gate and another begins."""

    attempt: int
    reason: str


@dataclass(frozen=True)
class FitResult:
    """The best model, the setting it was trained in (its size may have grown) and its gate."""

    setting: Setting
    model: Transformer
    gate: Gate
    seed: int
    learning_rate: float
    attempts: int
    steps: int
    seconds: float


def fit(
    setting: Setting,
    *,
    device: torch.device | str,
    seed: int = 0,
    attempts: int = 4,
    recipe: Recipe | None = None,
    gate_pairs: int = 1024,
    checkpoint: Path | None = None,
) -> Iterator[Event | Retry | FitResult]:
    """Train one setting until its gate passes, at most `attempts` times.

    With a `checkpoint` directory a killed call resumes, and a finished one returns its result again.
    """
    if attempts < 1:
        raise BadInput(f"attempts={attempts}: at least one is needed")
    device, began = torch.device(device), time.perf_counter()
    best: FitResult | None = None
    for attempt in range(attempts):
        directory = None if checkpoint is None else checkpoint / f"attempt-{attempt + 1}"
        is_last = attempt == attempts - 1
        reason = None if is_last else _recorded_failure(directory)
        if reason is None:
            result = yield from _attempt(
                setting, attempt, recipe, device=device, seed=seed, n=gate_pairs, checkpoint=directory
            )
            if best is None or headroom(result.gate.metrics) > headroom(best.gate.metrics):
                best = result
            if result.gate.passed or is_last:
                yield replace(best, attempts=attempt + 1, seconds=time.perf_counter() - began)
                return
            reason = (
                f"try {attempt + 1} with d_model {result.setting.size.d_model}: {'; '.join(result.gate.shortfalls)}"
            )
            if directory is not None:
                write_json(directory / _FAILED, {"reason": reason})
        yield Retry(attempt + 2, reason)


def _attempt(
    setting: Setting,
    attempt: int,
    recipe: Recipe | None,
    *,
    device: torch.device,
    seed: int,
    n: int,
    checkpoint: Path | None,
) -> Generator[Event, None, FitResult]:
    """One try: yields its events, returns its best model."""
    setting, recipe = _adjusted(setting, recipe, attempt, device)
    copies = default_copies([setting], seed=seed + attempt, device=device)
    copies = [(first, rate if attempt == 0 else rate / 2) for first, rate in copies]
    result = None
    for event in train(
        [setting], device=device, seed=seed + attempt, copies=copies, recipe=recipe, checkpoint=checkpoint
    ):
        yield event
        result = event if isinstance(event, TrainingResult) else None
    assert result is not None
    candidate, gate = best_candidate(setting, result.candidates[setting.name], n=n)
    return FitResult(
        setting,
        candidate.transformer(),
        gate,
        candidate.seed,
        candidate.learning_rate,
        attempt + 1,
        result.steps,
        result.seconds,
    )


def best_candidate(setting: Setting, candidates: Sequence[Candidate], *, n: int) -> tuple[Candidate, Gate]:
    """Measure candidates in order until one passes the gate; returns it, or the one that comes closest."""
    gates: list[tuple[Candidate, Gate]] = []
    for candidate in candidates:
        gates.append((candidate, measure(candidate.transformer(), setting, n=n)))
        if gates[-1][1].passed:
            break
    return max(gates, key=lambda pair: headroom(pair[1].metrics))


def _adjusted(setting: Setting, recipe: Recipe | None, attempt: int, device: torch.device) -> tuple[Setting, Recipe]:
    """The setting and the recipe of a try, counted from 0."""
    size = setting.size
    for _ in range(attempt - 1):
        size = size.enlarged()
    setting = replace(setting, size=size)
    recipe = recipe or default_recipe([setting], device=device)
    if attempt:
        recipe = replace(recipe, steps=2 * recipe.steps, checks=2 * recipe.checks)
    return setting, recipe


def _recorded_failure(directory: Path | None) -> str | None:
    """Why a try of an earlier, killed call failed."""
    if directory is None or not (directory / _FAILED).exists():
        return None
    return str(read_json(directory / _FAILED).get("reason", "failed the gate"))


# Train many settings in one stack and write the accepted models to a directory.

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
