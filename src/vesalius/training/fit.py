"""One model until it is accepted: train, measure the gate, and try again if it falls short.

The second try takes the next seed, twice the steps and half the learning rate; every later one also a wider model. Each
try is announced, and the last event is `Trained` with the best model found and its gate, passed or not.
"""

import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from vesalius.errors import BadInput
from vesalius.files import read_json, write_json
from vesalius.model import Transformer
from vesalius.training.gate import Gate, headroom, measure
from vesalius.training.recipes import default_copies, default_recipe
from vesalius.training.setting import Setting
from vesalius.training.stepper import Recipe
from vesalius.training.trainer import Candidate, Event, Finished, train

_FAILED = "failed.json"


@dataclass(frozen=True)
class Retrying:
    """A try fell short of the gate and another begins."""

    attempt: int
    reason: str


@dataclass(frozen=True)
class Trained:
    """The end: the best model, the setting it was trained in (its size may have grown) and its gate."""

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
) -> Iterator[Event | Retrying | Trained]:
    """Train one setting until its gate passes, at most `attempts` times.

    With a `checkpoint` directory a killed call goes on where it was, and a call that was done gives its result again.
    """
    if attempts < 1:
        raise BadInput(f"attempts={attempts}: at least one is needed")
    device, began = torch.device(device), time.perf_counter()
    best: Trained | None = None
    for attempt in range(attempts):
        place = None if checkpoint is None else checkpoint / f"attempt-{attempt + 1}"
        is_last = attempt == attempts - 1
        reason = None if is_last else _known_failure(place)
        if reason is None:
            found = yield from _attempt(
                setting, attempt, recipe, device=device, seed=seed, n=gate_pairs, checkpoint=place
            )
            if best is None or headroom(found.gate.figures) > headroom(best.gate.figures):
                best = found
            if found.gate.passed or is_last:
                yield replace(best, attempts=attempt + 1, seconds=time.perf_counter() - began)
                return
            reason = f"try {attempt + 1} with d_model {found.setting.size.d_model}: {'; '.join(found.gate.shortfalls)}"
            if place is not None:
                write_json(place / _FAILED, {"reason": reason})
        yield Retrying(attempt + 2, reason)


def _attempt(
    setting: Setting,
    attempt: int,
    recipe: Recipe | None,
    *,
    device: torch.device,
    seed: int,
    n: int,
    checkpoint: Path | None,
) -> Generator[Event, None, Trained]:
    """One try: yields its events, returns its best model."""
    own, schedule = _harder(setting, recipe, attempt, device)
    copies = default_copies([own], seed=seed + attempt, device=device)
    slower = [(first, rate if attempt == 0 else rate / 2) for first, rate in copies]
    finished = None
    for event in train(
        [own], device=device, seed=seed + attempt, copies=slower, recipe=schedule, checkpoint=checkpoint
    ):
        yield event
        finished = event if isinstance(event, Finished) else None
    assert finished is not None
    candidate, gate = best_measured(own, finished.candidates[own.name], n=n)
    model, how = candidate.transformer(), (candidate.seed, candidate.learning_rate)
    return Trained(own, model, gate, *how, attempt + 1, finished.steps, finished.seconds)


def best_measured(setting: Setting, candidates: Sequence[Candidate], *, n: int) -> tuple[Candidate, Gate]:
    """Measure candidates in their order until one passes the gate; it, or the one that comes closest."""
    measured: list[tuple[Candidate, Gate]] = []
    for candidate in candidates:
        measured.append((candidate, measure(candidate.transformer(), setting, n=n)))
        if measured[-1][1].passed:
            break
    return max(measured, key=lambda pair: headroom(pair[1].figures))


def _harder(setting: Setting, recipe: Recipe | None, attempt: int, device: torch.device) -> tuple[Setting, Recipe]:
    """The setting and the schedule of a try, counted from 0."""
    size = setting.size
    for _ in range(attempt - 1):
        size = size.enlarged()
    own = replace(setting, size=size)
    schedule = recipe or default_recipe([own], device=device)
    if attempt:
        schedule = replace(schedule, steps=2 * schedule.steps, checks=2 * schedule.checks)
    return own, schedule


def _known_failure(place: Path | None) -> str | None:
    """The reason why a try of an earlier, killed call was given up."""
    if place is None or not (place / _FAILED).exists():
        return None
    return str(read_json(place / _FAILED).get("reason", "fell short of the gate"))
