"""Sources without a model: a hand-worked table, and any function of sets."""

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from vesalius_mechrl.sets.sources import HeadSet, TableSource


class FunctionSource:
    """A source that answers by a function; every prompt has the same effect."""

    unit, forwards, clean = "logits", 0.0, 1.0

    def __init__(self, n: int, effect: Callable[[HeadSet], float], *, prompts: int = 8) -> None:
        self.heads = tuple(f"L0H{i}" for i in range(n))
        self.largest, self._effect, self._prompts, self.asked = n, effect, prompts, []

    def effects(self, sets: Sequence[HeadSet]) -> np.ndarray:
        self.asked += sets
        return np.tile([self._effect(members) for members in sets], (self._prompts, 1))


def three_heads() -> TableSource:
    """Three heads on ten prompts, the same effects on each up to a wobble of 0.1 that averages out.

    d(0) = 1, d(1) = 2, d(2) = 0;  d(01) = 2, d(02) = 1, d(12) = 5
    so s(01) = -1 (series), s(02) = 0, s(12) = 3 (backup).
    """
    wobble = np.tile([0.1, -0.1], 5)[:, None]
    single = np.tile([1.0, 2.0, 0.0], (10, 1)) + wobble
    pairs = np.tile([2.0, 1.0, 5.0], (10, 1)) + wobble
    return TableSource(("L0H0", "L0H1", "L1H0"), single, pairs, clean=6.0)


def random_function(n: int, seed: int) -> Callable[[HeadSet], float]:
    """Independent normal effects for every set."""
    rng = np.random.default_rng(seed)
    table = {
        frozenset(members): float(rng.normal())
        for size in range(1, n + 1)
        for members in itertools.combinations(range(n), size)
    }
    return table.__getitem__
