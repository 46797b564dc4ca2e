"""The effect of every set of heads, as the environment needs it.

`QueriedEffects` measures a model through `SetQueries`, which counts. `planted_effects` simulates effects from a seed,
so that a policy can be trained without a model. Both give effects as shares of the clean score.

A simulation has one to three groups of one to three heads, and a few specialists; every group that is completely inside
the set takes its weight of the remaining score, and every head adds some noise:

    effect(S) = 1 - product over groups inside S of (1 - weight) + sum over heads in S of noise
"""

from collections.abc import Callable
from typing import Protocol

import numpy as np
from jaxtyping import Bool

from vesalius_mechrl.sets.queries import SetQueries

MOST_GROUPS, MOST_TOGETHER = 3, 3
GROUP_WEIGHT, SPECIALIST_WEIGHT, NOISE = (0.3, 1.0), (0.01, 0.2), 0.003


class EffectModel(Protocol):
    """Effects of sets, as shares of the clean score."""

    @property
    def heads(self) -> int:
        """The number of heads."""
        ...

    @property
    def largest(self) -> int:
        """The largest number of heads of a set."""
        ...

    def effect(self, inside: Bool[np.ndarray, " head"]) -> float:
        """The effect of ablating these heads."""
        ...


EffectModels = Callable[[int], EffectModel]


class QueriedEffects:
    """The effects of a real source; every new set is a query."""

    def __init__(self, queries: SetQueries) -> None:
        self.queries, self._clean = queries, abs(queries.source.clean) or 1.0

    @property
    def heads(self) -> int:
        """The number of heads of the source."""
        return self.queries.n

    @property
    def largest(self) -> int:
        """Two for a table of pairs."""
        return self.queries.source.largest

    def effect(self, inside: Bool[np.ndarray, " head"]) -> float:
        """Query the set."""
        return self.queries.one(frozenset(np.flatnonzero(inside).tolist())) / self._clean


class PlantedEffects:
    """Simulated effects: groups with weights, and noise."""

    def __init__(
        self, groups: Bool[np.ndarray, "group head"], weights: np.ndarray, noise: np.ndarray | None = None
    ) -> None:
        self.groups, self.weights = groups, weights
        self.noise = np.zeros(groups.shape[1]) if noise is None else noise

    @property
    def heads(self) -> int:
        """The number of heads."""
        return self.groups.shape[1]

    @property
    def largest(self) -> int:
        """Every set has an effect."""
        return self.heads

    def effect(self, inside: Bool[np.ndarray, " head"]) -> float:
        """The effect of the groups inside the set, and noise."""
        complete = ~(self.groups & ~inside).any(1)
        return float(1 - np.prod(1 - self.weights[complete]) + self.noise[inside].sum())


def planted_effects(seed: int, *, heads: int = 16) -> PlantedEffects:
    """The simulated effects of this seed."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, MOST_TOGETHER + 1, rng.integers(1, MOST_GROUPS + 1)).tolist()
    specialists = int(rng.integers(0, heads // 3 + 1))
    weights = [*rng.uniform(*GROUP_WEIGHT, len(sizes)), *rng.uniform(*SPECIALIST_WEIGHT, specialists)]
    sizes += [1] * specialists
    order = rng.permutation(heads)
    groups, first = np.zeros((len(sizes), heads), bool), 0
    for number, size in enumerate(sizes):
        groups[number, order[first : first + size]] = True
        first += size
    filled = groups.any(1)  # with few heads, the last groups are empty
    return PlantedEffects(groups[filled], np.array(weights)[filled], rng.normal(0, NOISE, heads))
