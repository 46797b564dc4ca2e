"""How often the intervals of all looks hold together: `python -m benchmarks.looks` writes `results/looks.json`.

Values with a known mean are looked at 8, 16, 24, 32, 48, 64, 96 and 128 at a time, 1,000 times for each kind of noise.
An interval is right where it holds the mean at every look, so that whoever stops at any of them is not misled. Beside
it: Student's interval at the same error of each look, and what one look at 16 gave by resampling, the rule before. How
many prompts it takes is measured with the mean at several distances from the bar, in standard deviations.

Rules that join several figures are run on drawn values by their own code (`joint_errors`): *necessary* with four
replacements, a loss in score or in right answers, *not needed alone* and *small part*. All true figures lie at the
bar, where each decision is an error; of answers a twentieth is lost. *Necessary* can be refuted in three ways (no
replacement shows, zeros cost nothing, its mean costs nothing) whose errors add up, so it is run once more as the
scientist asks it, followed by *not needed alone* of zeros and of the mean where it stays open, and with no answer lost,
where these are supported most easily.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from vesalius.components import Component
from vesalius.explanations.claims import Necessary, SmallPart
from vesalius.explanations.claims.base import MIN_EFFECT, Outcome, either, may_decide
from vesalius.explanations.claims.necessary import MOST_SMALL, NEUTRAL, costs_nothing
from vesalius.explanations.laboratory import FIRST_LOOK, GrowingLab
from vesalius.statistics import (
    LOOKS,
    errors_of_looks,
    mean_interval,
    share_interval,
    skewed_interval,
    student_interval,
)

REPETITIONS, LEVEL, ONE_LOOK = 1000, 0.95, 16
DISTANCES = (0.0, 0.15, 0.3, 0.5, 0.8, 1.2, 2.0)
#: Draws with mean 0 and standard deviation 1: the exponential has skewness 2, the lognormal 6.2.
Noise = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]
NOISE: dict[str, Noise] = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "heavy-tailed": lambda rng, shape: rng.standard_t(3, size=shape) / math.sqrt(3),
    "skewed": lambda rng, shape: rng.exponential(size=shape) - 1,
    "very skewed": lambda rng, shape: (
        (np.exp(rng.normal(size=shape)) - math.exp(0.5)) / math.sqrt((math.e - 1) * math.e)
    ),
}


def holds_at_all_looks(values: np.ndarray, *, skewed: bool, level: float = LEVEL) -> bool:
    """Whether the interval of every look holds the mean, which is 0."""
    for n, error in zip(LOOKS, errors_of_looks(round(1 - level, 12), LOOKS), strict=True):
        if skewed:
            low, high = skewed_interval(values[:n], level=1 - error)
        else:
            low, high = (float(end[0]) for end in student_interval(values[:n, None], level=1 - error))
        if not low <= 0 <= high:
            return False
    return True


def first_decision(values: np.ndarray) -> tuple[bool, int]:
    """Whether an interval leaves 0 at some look, and the prompts drawn until then."""
    for n, error in zip(LOOKS, errors_of_looks(0.05, LOOKS), strict=True):
        low, high = skewed_interval(values[:n], level=1 - error)
        if low > 0 or high < 0:
            return True, n
    return False, LOOKS[-1]


def coverage(repetitions: int = REPETITIONS, *, seed: int = 0) -> dict[str, Any]:
    """For each kind of noise how often the intervals hold, and how many prompts a decision takes."""
    results: dict[str, Any] = {}
    for name, draw in NOISE.items():
        values = draw(np.random.default_rng(seed), (repetitions, LOOKS[-1]))
        low, high = mean_interval(torch.from_numpy(values[:, :ONE_LOOK].T.copy()), level=LEVEL)
        held = {
            "looks": sum(holds_at_all_looks(one, skewed=True) for one in values),
            "student": sum(holds_at_all_looks(one, skewed=False) for one in values),
            "one_look": int(((low <= 0) & (high >= 0)).sum()),
        }
        results[name] = {kind: _share(hits, repetitions) for kind, hits in held.items()}
        results[name]["decided"] = {
            str(distance): {
                "share": sum(decided for decided, _ in found) / len(found),
                "prompts": sum(n for _, n in found) / len(found),
            }
            for distance in DISTANCES
            for found in [[first_decision(one + distance) for one in values[:200]]]
        }
    return {"repetitions": repetitions, "level": LEVEL, "looks": list(LOOKS), "noise": results}


class Look(GrowingLab):
    """A look at values: `draws` are effects by replacement, `given` the right answers lost. No model is run."""

    def __init__(self, count: int) -> None:
        self.n, self.seed, self.settled = LOOKS[count], 0, {}
        self._looks, self._parts = LOOKS, (None,) * (count + 1)  # type: ignore[assignment]
        self.model = SimpleNamespace(config=SimpleNamespace(n_layers=1, n_heads=1))  # type: ignore[assignment]
        self.draws: dict[str, torch.Tensor] = {}
        self.given = torch.zeros(0)

    replacements = ("zero", "mean", "resample", "moved")  # type: ignore[assignment]

    def effect(self, components: Any, replacement: str) -> torch.Tensor:
        """The values that were given."""
        return self.draws[replacement][: self.n]

    def first_effect(self, components: Any, replacement: str) -> torch.Tensor:
        """The first of them."""
        return self.draws[replacement][:FIRST_LOOK]

    def measure(self, sets: Any, replacements: Any, *, n: int | None = None) -> None:
        """Everything is known."""

    @property
    def following(self) -> "Look | None":  # type: ignore[override]
        """A larger look, up to the last."""
        count = len(self._parts)
        return None if count == len(LOOKS) else Look(count)

    def losses(self, components: Any, how: str, at: str | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Those of a replacement, and the right answers."""
        return self.draws[how][: self.n], self.given[: self.n]

    def matched(self, component: Component, *, exclude: Any = (), k: int = 4) -> list[Component]:
        """No controls."""
        return []


RULES: dict[str, tuple[float, Callable[[Look], Outcome]]] = {
    "necessary": (MIN_EFFECT, lambda look: Necessary(component="L0H0").examine(look, level=LEVEL)),
    "loss in score or answers": (
        MIN_EFFECT,
        lambda look: either(look, "", look.losses((), "zero"), dict, least=MIN_EFFECT, level=LEVEL),
    ),
    "not needed alone": (MIN_EFFECT, lambda look: costs_nothing(look, Component(0, 0), ["zero"], level=LEVEL)),
    "small part, at nothing": (0.0, lambda look: SmallPart(component="L0H0").examine(look, level=LEVEL)),
    "small part, at its most": (MOST_SMALL, lambda look: SmallPart(component="L0H0").examine(look, level=LEVEL)),
}
#: The rule that the scientist follows, and the share of answers that is lost under it.
AS_ASKED, LOST = "necessary, then not needed alone", (MIN_EFFECT, 0.0)
#: Standard deviation of effects as a share of the score, and what replacements share of their noise.
SPREAD, SHARED = 0.2, 0.8


def joint_errors(repetitions: int = REPETITIONS, *, seed: int = 0) -> dict[str, Any]:
    """How often each joint rule decides where its true figures lie at the bar."""
    results: dict[str, Any] = {}
    for name in ("normal", "skewed"):
        rng, results[name] = np.random.default_rng(seed), {}
        for rule, (bar, examine) in RULES.items():
            verdicts = [_decided(_drawn(rng, NOISE[name], bar, MIN_EFFECT), examine) for _ in range(repetitions)]
            results[name][rule] = _counted(verdicts)
        results[name] |= as_asked(name, repetitions, seed=seed)
    return {"repetitions": repetitions, "spread": SPREAD, "shared": SHARED, "noise": results}


def as_asked(name: str, repetitions: int = REPETITIONS, *, seed: int = 0) -> dict[str, Any]:
    """How often *necessary* is decided at the bar as the scientist asks it, by the share of answers that is lost."""
    results, rng = {}, np.random.default_rng(seed)
    for lost in LOST:
        draws = [_drawn(rng, NOISE[name], MIN_EFFECT, lost) for _ in range(repetitions)]
        results[f"{AS_ASKED}, {lost:.0%} of answers lost"] = _counted([_as_asked(one) for one in draws])
    return results


def _counted(verdicts: Sequence[str]) -> dict[str, Any]:
    kinds = ("supported", "refuted", "undecided")
    return {kind: _share(sum(one == kind for one in verdicts), len(verdicts)) for kind in kinds}


@dataclass(frozen=True)
class Drawn:
    """Effects of every replacement, and the right answers that are lost, of as many prompts as are ever drawn."""

    effects: dict[str, torch.Tensor]
    lost: torch.Tensor


def _drawn(rng: np.random.Generator, noise: Noise, bar: float, lost: float) -> Drawn:
    """Values whose true effects lie at the bar; of right answers the share `lost` is lost."""
    common, *own = noise(rng, (5, LOOKS[-1]))
    values = [bar + SPREAD * (math.sqrt(SHARED) * common + math.sqrt(1 - SHARED) * one) for one in own]
    effects = {kind: torch.from_numpy(one) for kind, one in zip(Look.replacements, values, strict=True)}
    return Drawn(effects, torch.from_numpy((rng.random(LOOKS[-1]) < lost).astype(float)))


def _decided(drawn: Drawn, examine: Callable[[Look], Outcome]) -> str:
    """The verdict of one claim on drawn values, at the look that decides it or the last that may."""
    settled: dict[Any, Any] = {}
    verdict = "undecided"
    for count in range(len(LOOKS)):
        look = Look(count)
        look.settled, look.draws, look.given = settled, drawn.effects, drawn.lost
        verdict, evidence = examine(look)
        if verdict != "undecided" or not may_decide(evidence, look):
            break
    return verdict


def _as_asked(drawn: Drawn) -> str:
    """*Necessary* as the scientist decides it: where it stays open, by whether zeros or its mean cost nothing."""
    verdict = _decided(drawn, RULES["necessary"][1])
    if verdict != "undecided":
        return verdict
    spared = (
        _decided(drawn, lambda look, how=how: costs_nothing(look, Component(0, 0), [how], level=LEVEL))  # pyrefly: ignore[bad-argument-type]
        for how in NEUTRAL
    )
    return "refuted" if "supported" in spared else verdict


def _share(hits: int, n: int) -> dict[str, float]:
    low, high = share_interval(hits, n)
    return {"value": hits / n, "low": round(low, 4), "high": round(high, 4), "n": n}


if __name__ == "__main__":
    results = coverage() | {"joint": joint_errors()}
    path = Path(__file__).parent / "results" / "looks.json"
    path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(results["noise"]))
