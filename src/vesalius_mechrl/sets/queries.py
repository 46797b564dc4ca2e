"""Queries of sets and their cost: one query is one set of heads ablated on all prompts.

Every search measures through `SetQueries`. A measured set is cached and free from then on; the empty set has no effect
and is free. When the budget is spent, `BudgetSpent` ends the search, and its result is what was measured by then.

The worth of a set is its mean effect on the task minus `weight` times its mean effect on a control, if there is one;
its value is its worth minus a price for each of its heads.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from vesalius.errors import BadInput
from vesalius_mechrl.search.budget import BudgetSpent
from vesalius_mechrl.sets.sources import HeadSet, Source

PRICE_SHARE, LEAST_SHARE = 0.05, 0.1
BEAM_WIDTH = 4


@dataclass(frozen=True)
class Goal:
    """What a search optimises, in the unit of the effects.

    `price` is the cost of each head of a set. `least` is the smallest surplus (the effect of a set beyond the sum of
    its heads' single effects) that counts.
    """

    price: float
    least: float

    @classmethod
    def of(cls, source: Source, *, price: float = PRICE_SHARE, least: float = LEAST_SHARE) -> "Goal":
        """Both as shares of the clean score."""
        if not (0 <= price < 1 and 0 < least <= 1):
            raise BadInput(f"price {price:g} and least {least:g} must be shares of the clean score, from 0 to 1")
        clean = abs(source.clean)
        return cls(price * clean, least * clean)


class SetQueries:
    """Measures sets of a source under a budget and caches them."""

    def __init__(
        self, source: Source, budget: int | None = None, *, control: Source | None = None, weight: float = 1.0
    ) -> None:
        n = len(source.heads)
        if n < 2:
            raise BadInput(f"a pool of {n} head has no pair; name at least two heads")
        check_budget(budget, n)
        if control is not None and control.heads != source.heads:
            raise BadInput("the control has other heads than the task; measure both on the same heads")
        self.source, self.control, self.weight = source, control, weight
        self.budget = default_budget(n) if budget is None else budget
        self.rows: dict[HeadSet, Float[np.ndarray, " prompt"]] = {}
        self._worth: dict[HeadSet, float] = {frozenset(): 0.0}

    @property
    def n(self) -> int:
        """The number of heads."""
        return len(self.source.heads)

    @property
    def paid(self) -> int:
        """The number of queries so far."""
        return len(self.rows)

    @property
    def measured(self) -> list[HeadSet]:
        """The measured sets, in order."""
        return list(self.rows)

    def worth(self, sets: Iterable[HeadSet]) -> list[float]:
        """The worth of each set; new ones are measured in order, until the budget is spent."""
        requested = list(sets)
        missing = list(dict.fromkeys(members for members in requested if members not in self._worth))
        affordable = missing[: self.budget - self.paid]
        if affordable:
            self._pay(affordable)
        if len(affordable) < len(missing):
            raise BudgetSpent
        return [self._worth[members] for members in requested]

    def one(self, members: HeadSet) -> float:
        """The worth of one set."""
        return self.worth([members])[0]

    def recall(self, members: HeadSet) -> float | None:
        """The worth of a set if it was measured; costs nothing."""
        return self._worth.get(members)

    def best(self, goal: Goal) -> HeadSet:
        """The measured set with the highest value; ties go to the smaller set, then to the one measured first."""
        if not self.rows:
            return frozenset()
        return max(self.rows, key=lambda members: (round(self.value(members, goal), 12), -len(members)))

    def value(self, members: HeadSet, goal: Goal) -> float:
        """Worth of a measured set minus the price of its heads."""
        return self._worth[members] - goal.price * len(members)

    def names(self, members: HeadSet) -> list[str]:
        """The heads of a set, in the source's order."""
        return [self.source.heads[place] for place in sorted(members)]

    def _pay(self, sets: Sequence[HeadSet]) -> None:
        effects = self.source.effects(sets)
        worth = effects.mean(0)
        if self.control is not None:
            worth = worth - self.weight * self.control.effects(sets).mean(0)
        for members, rows, mean in zip(sets, effects.T, worth, strict=True):
            self.rows[members], self._worth[members] = rows, float(mean)


def check_budget(budget: int | None, n: int) -> None:
    """Refuse a budget of nothing, or of more sets than `n` heads have."""
    if budget is not None and budget < 1:
        raise BadInput(f"a budget of {budget} queries is too small; give at least 1")
    if budget is not None and budget >= 2**n:
        raise BadInput(f"a budget of {budget} queries is too large: {n} heads have {2**n - 1} sets; give at most that")


def default_budget(n: int) -> int:
    """The cost of all heads and all pairs of `n` heads."""
    return min(n * (n + 1) // 2, 2**n - 1)
