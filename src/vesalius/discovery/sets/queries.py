"""What was asked, and what it cost: one query is one set of heads evaluated on all prompts of the episode.

Every search asks through `Queries`. A set that was paid for is known and free from then on; the empty set does nothing
and is free. When the budget is spent, `BudgetSpent` ends the search, and what is known by then is its result.

The worth of a set is its mean effect on the task, less `weight` times its mean effect on a control if there is one; its
value is its worth less a price for each of its heads.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from vesalius.discovery.sets.sources import HeadSet, Source
from vesalius.errors import BadInput

PRICE_SHARE, LEAST_SHARE = 0.05, 0.1
BEAM_WIDTH = 4


class BudgetSpent(Exception):
    """Another query was wanted and the budget does not hold it."""


@dataclass(frozen=True)
class Goal:
    """What is looked for, in the unit of the effects.

    `price` is what each head of a set costs. `least` is the smallest surplus (what a set does beyond the sum of its
    heads alone) that counts.
    """

    price: float
    least: float

    @classmethod
    def of(cls, source: Source, *, price: float = PRICE_SHARE, least: float = LEAST_SHARE) -> "Goal":
        """Both as shares of the clean score."""
        if not (0 <= price < 1 and 0 < least <= 1):
            raise BadInput(f"price {price:g} and least {least:g} do not fit; they are shares of the clean score")
        clean = abs(source.clean)
        return cls(price * clean, least * clean)


class Queries:
    """The counted door to a source."""

    def __init__(
        self, source: Source, budget: int | None = None, *, control: Source | None = None, weight: float = 1.0
    ) -> None:
        n = len(source.heads)
        if n < 2:
            raise BadInput(f"a pool of {n} head makes no pair; name at least two heads")
        check_budget(budget, n)
        if control is not None and control.heads != source.heads:
            raise BadInput("the control's heads are not the task's; measure both on the same heads")
        self.source, self.control, self.weight = source, control, weight
        self.budget = default_budget(n) if budget is None else budget
        self.rows: dict[HeadSet, Float[np.ndarray, " prompt"]] = {}
        self._worth: dict[HeadSet, float] = {frozenset(): 0.0}

    @property
    def n(self) -> int:
        """How many heads there are."""
        return len(self.source.heads)

    @property
    def paid(self) -> int:
        """Queries so far."""
        return len(self.rows)

    @property
    def known(self) -> list[HeadSet]:
        """The sets paid for, in the order they were."""
        return list(self.rows)

    def worth(self, sets: Iterable[HeadSet]) -> list[float]:
        """The worth of each set; those not known are paid for, in order, as far as the budget goes."""
        wanted = list(sets)
        missing = list(dict.fromkeys(members for members in wanted if members not in self._worth))
        affordable = missing[: self.budget - self.paid]
        if affordable:
            self._pay(affordable)
        if len(affordable) < len(missing):
            raise BudgetSpent
        return [self._worth[members] for members in wanted]

    def one(self, members: HeadSet) -> float:
        """The worth of one set."""
        return self.worth([members])[0]

    def recall(self, members: HeadSet) -> float | None:
        """The worth of a set if it is known; asks nothing."""
        return self._worth.get(members)

    def best(self, goal: Goal) -> HeadSet:
        """The known set of the highest value; of equals the smaller one, then the one paid for first."""
        if not self.rows:
            return frozenset()
        return max(self.rows, key=lambda members: (round(self.value(members, goal), 12), -len(members)))

    def value(self, members: HeadSet, goal: Goal) -> float:
        """Worth of a known set less the price of its heads."""
        return self._worth[members] - goal.price * len(members)

    def names(self, members: HeadSet) -> list[str]:
        """The heads of a set, in the source's order."""
        return [self.source.heads[place] for place in sorted(members)]

    def _pay(self, sets: Sequence[HeadSet]) -> None:
        found = self.source.effects(sets)
        worth = found.mean(0)
        if self.control is not None:
            worth = worth - self.weight * self.control.effects(sets).mean(0)
        for members, rows, mean in zip(sets, found.T, worth, strict=True):
            self.rows[members], self._worth[members] = rows, float(mean)


def check_budget(budget: int | None, n: int) -> None:
    """Refuse a budget that pays for nothing, or for more sets than `n` heads make."""
    if budget is not None and budget < 1:
        raise BadInput(f"a budget of {budget} queries pays for nothing; take at least 1")
    if budget is not None and budget >= 2**n:
        raise BadInput(f"a budget of {budget} queries does not fit: {n} heads make {2**n - 1} sets; take at most that")


def default_budget(n: int) -> int:
    """What all heads and all pairs of `n` heads cost."""
    return min(n * (n + 1) // 2, 2**n - 1)
