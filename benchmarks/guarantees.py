"""Do the guarantees of circuits hold? Coverage of the lower bounds on planted truth, 1,000 repetitions each.

    OMP_NUM_THREADS=1 python -m benchmarks.guarantees --out benchmarks/results/guarantees.json

Right and wrong answers: shares from 0.5 to 0.99, the exact binomial bound. Shares of the score kept: uniform; skewed
(most prompts keep nearly all, some nothing; and the reverse); two-valued; a noisy ratio, where circuit, ablated and
full score each carry skewed (exponential) noise, so that the truth is the mean of the clipped share over a million
prompts. Nominal 0.95. `slack` is the mean distance from the bound to the truth, beside that of the empirical Bernstein
bound of Maurer and Pontil. Seed 7741.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from vesalius.files import write_json
from vesalius.statistics import mean_lower_bound, share_interval, share_lower_bound

SEED, REPETITIONS, SIZES, SHARES = 7741, 1000, (20, 50, 100), (0.5, 0.8, 0.9, 0.99)


def noisy_scores(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Ablated, circuit and full scores with skewed noise; the circuit keeps 0.8 of the gap before the noise."""
    noise = rng.exponential(0.4, size=(*shape, 3))
    return np.array([0.0, 1.6, 2.0]) + noise


def noisy_shares(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Their clipped shares; prompts on which the model does not score above the ablated one are drawn again."""
    scores = noisy_scores(rng, *shape)
    gap = scores[..., 2] - scores[..., 0]
    while (gap <= 0).any():
        scores[gap <= 0] = noisy_scores(rng, int((gap <= 0).sum()))
        gap = scores[..., 2] - scores[..., 0]
    return np.clip((scores[..., 1] - scores[..., 0]) / gap, 0, 1)


KEPT: dict[str, Callable[..., np.ndarray]] = {
    "uniform": lambda rng, *shape: rng.random(shape),
    "skewed to 1": lambda rng, *shape: rng.beta(5, 0.3, shape),
    "skewed to 0": lambda rng, *shape: rng.beta(0.3, 5, shape),
    "0 or 1": lambda rng, *shape: (rng.random(shape) < 0.9).astype(float),
    "noisy ratio": noisy_shares,
}
EXACT_MEANS = {"uniform": 0.5, "skewed to 1": 5 / 5.3, "skewed to 0": 0.3 / 5.3, "0 or 1": 0.9}


def empirical_bernstein(values: np.ndarray, level: float = 0.95) -> np.ndarray:
    """The lower bound of Maurer and Pontil (2009)."""
    n, doubt = values.shape[-1], np.log(2 / (1 - level))
    spread = np.sqrt(2 * values.var(-1, ddof=1) * doubt / n)
    return np.maximum(0, values.mean(-1) - spread - 7 * doubt / (3 * (n - 1)))


def coverage(quantity: str, noise: str, n: int, truth: float, low: np.ndarray) -> dict[str, Any]:
    """How often the bound is below the truth, with the interval of that share."""
    covered = int((low <= truth + 1e-12).sum())
    ends = share_interval(covered, len(low))
    row: dict[str, Any] = {"quantity": quantity, "noise": noise, "n": n, "repetitions": len(low)}
    row |= {"truth": truth, "covered": covered / len(low), "low": ends[0], "high": ends[1]}
    return row | {"slack": float((truth - low).mean())}


def rows() -> list[dict[str, Any]]:
    """Every quantity, noise and number of prompts."""
    rng, found = np.random.default_rng(SEED), []
    for n in SIZES:
        for share in SHARES:
            right = rng.binomial(n, share, size=REPETITIONS)
            low = np.array([share_lower_bound(int(one), n) for one in right])
            found.append(coverage("answers", f"right with chance {share}", n, share, low))
        for noise, draw in KEPT.items():
            truth = EXACT_MEANS.get(noise) or float(draw(np.random.default_rng(SEED + 1), 1_000_000).mean())
            values = draw(rng, REPETITIONS, n)
            row = coverage("kept", noise, n, truth, mean_lower_bound(values))
            found.append(row | {"slack_of_bernstein": float((truth - empirical_bernstein(values)).mean())})
    return found


def main() -> None:
    """Count, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    out, found = parser.parse_args().out, rows()
    for row in found:
        print(json.dumps(row))
    document = {"benchmark": "guarantees", "level": 0.95, "seed": SEED, "least": min(row["covered"] for row in found)}
    print(json.dumps(document))
    if out:
        write_json(out, {**document, "rows": found})


if __name__ == "__main__":
    main()
