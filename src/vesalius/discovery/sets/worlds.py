"""What a game about sets is played on: something that knows the effect of every set of heads.

`QueriedWorld` is the real thing: it asks `Queries`, which counts. `planted_world` makes one up from a seed, so that a
policy can practise without a model. Effects are shares of the clean score in both.

A made-up world has one to three groups of one to three heads, and a few specialists; whatever is completely inside the
set takes its own share of what is left of the score, and every head adds a little noise of its own:

    effect(S) = 1 - product over groups inside S of (1 - weight) + sum over heads in S of noise
"""

from collections.abc import Callable
from typing import Protocol

import numpy as np
from jaxtyping import Bool

from vesalius.discovery.sets.queries import Queries

MOST_GROUPS, MOST_TOGETHER = 3, 3
GROUP_WEIGHT, SPECIALIST_WEIGHT, NOISE = (0.3, 1.0), (0.01, 0.2), 0.003


class World(Protocol):
    """Effects of sets, as shares of the clean score."""

    @property
    def heads(self) -> int:
        """How many heads there are."""
        ...

    @property
    def largest(self) -> int:
        """How many heads a set may have."""
        ...

    def effect(self, inside: Bool[np.ndarray, " head"]) -> float:
        """What removing these heads does."""
        ...


Worlds = Callable[[int], World]


class QueriedWorld:
    """The effects of a real source, every new set paid for."""

    def __init__(self, queries: Queries) -> None:
        self.queries, self._clean = queries, abs(queries.source.clean) or 1.0

    @property
    def heads(self) -> int:
        """How many heads the source has."""
        return self.queries.n

    @property
    def largest(self) -> int:
        """Two for a table of pairs."""
        return self.queries.source.largest

    def effect(self, inside: Bool[np.ndarray, " head"]) -> float:
        """Ask."""
        return self.queries.one(frozenset(np.flatnonzero(inside).tolist())) / self._clean


class PlantedWorld:
    """Groups with weights, and noise."""

    def __init__(
        self, groups: Bool[np.ndarray, "group head"], weights: np.ndarray, noise: np.ndarray | None = None
    ) -> None:
        self.groups, self.weights = groups, weights
        self.noise = np.zeros(groups.shape[1]) if noise is None else noise

    @property
    def heads(self) -> int:
        """How many heads there are."""
        return self.groups.shape[1]

    @property
    def largest(self) -> int:
        """Every set has an effect."""
        return self.heads

    def effect(self, inside: Bool[np.ndarray, " head"]) -> float:
        """What the groups inside take, and noise."""
        broken = ~(self.groups & ~inside).any(1)
        return float(1 - np.prod(1 - self.weights[broken]) + self.noise[inside].sum())


def planted_world(seed: int, *, heads: int = 16) -> PlantedWorld:
    """The made-up world of this seed."""
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
    filled = groups.any(1)  # the last ones find no head left where there are few
    return PlantedWorld(groups[filled], np.array(weights)[filled], rng.normal(0, NOISE, heads))
