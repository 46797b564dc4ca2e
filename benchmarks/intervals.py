"""Do intervals that claim to hold for all sets at once do so? Families of columns whose true mean is zero.

    OMP_NUM_THREADS=1 python -m benchmarks.intervals --out benchmarks/results/intervals.json

A family is one table of prompts by sets; it is covered if every interval of `simultaneous_interval` holds zero. Four
kinds of noise: normal; skewed (exponential less its mean); shares (of ten outputs, each changed with probability 0.2,
less the mean); and pairs that share heads (the synergies of pairs of independent normal heads, so columns correlate).

Generator seed 2309. The way of studentising and its least variance were chosen on families of seed 12345.
"""

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from vesalius.files import write_json
from vesalius.statistics import share_interval
from vesalius_mechrl.sets.synergy import simultaneous_interval

SEED = 2309
FAMILIES, FAMILIES_OF_MANY, MANY = 1000, 250, 400
SHAPES = ((8, 28), (16, 66), (32, 496), (48, 11))
ROUNDING = 1e-12


def pairs_of_heads(rng: np.random.Generator, n: int, sets: int) -> np.ndarray:
    """The synergies of all pairs of as many heads as it takes for that many."""
    heads = math.ceil((1 + math.sqrt(1 + 8 * sets)) / 2)
    first, second = (side[:sets] for side in np.triu_indices(heads, 1))
    alone = rng.normal(size=(n, heads))
    return rng.normal(size=(n, sets)) - alone[:, first] - alone[:, second]


NOISE: dict[str, Callable[[np.random.Generator, int, int], np.ndarray]] = {
    "normal": lambda rng, n, sets: rng.normal(size=(n, sets)),
    "skewed": lambda rng, n, sets: rng.exponential(size=(n, sets)) - 1,
    "shares": lambda rng, n, sets: rng.binomial(10, 0.2, size=(n, sets)) / 10 - 0.2,
    "pairs that share heads": pairs_of_heads,
}


def coverage(noise: str, n: int, sets: int) -> dict[str, Any]:
    """The share of families that are covered, with its own 95 % interval."""
    rng = np.random.default_rng(SEED)
    families, covered = FAMILIES if sets < MANY else FAMILIES_OF_MANY, 0
    for family in range(families):
        _, low, high = simultaneous_interval(NOISE[noise](rng, n, sets), seed=family)
        covered += bool(((low <= ROUNDING) & (high >= -ROUNDING)).all())
    low, high = share_interval(covered, families)
    row = {"noise": noise, "prompts": n, "sets": sets, "families": families, "covered": covered / families}
    return {**row, "low": round(low, 3), "high": round(high, 3)}


def main() -> None:
    """Count, and say so."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rows = []
    for n, sets in SHAPES:
        for noise in NOISE:
            rows.append(coverage(noise, n, sets))
            print(json.dumps(rows[-1]), flush=True)
    if given.out:
        write_json(given.out, {"benchmark": "intervals", "level": 0.95, "seed": SEED, "rows": rows})


if __name__ == "__main__":
    main()
