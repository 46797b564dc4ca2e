"""How often the intervals of all looks hold together: `python -m benchmarks.looks` writes `results/looks.json`.

Values with a known mean are looked at 8, 16, 24, 32, 48, 64, 96 and 128 at a time, 1,000 times for each kind of noise.
An interval is right where it holds the mean at every look, so that whoever stops at any of them is not misled. Beside
it: Student's interval at the same error of each look, and what one look at 16 gave by resampling, the rule before. How
many prompts it takes is measured with the mean at several distances from the bar, in standard deviations.
"""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

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
NOISE: dict[str, Callable[[np.random.Generator, tuple[int, int]], np.ndarray]] = {
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


def _share(hits: int, n: int) -> dict[str, float]:
    low, high = share_interval(hits, n)
    return {"value": hits / n, "low": round(low, 4), "high": round(high, 4), "n": n}


if __name__ == "__main__":
    results = coverage()
    path = Path(__file__).parent / "results" / "looks.json"
    path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(results["noise"]))
