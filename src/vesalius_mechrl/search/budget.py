"""The budget of one search: what was measured, what it cost, and which head is recommended so far.

Cost is counted in *queries*: one head ablated on all rows of the episode. One row of one head costs that fraction of a
query; a row is a task prompt and, if there is a control, a row of control text. Attribution costs three queries, since
a backward pass counts as two forward passes; the clean run itself is free for every strategy, as published.

Every recommendation is recorded with the cost so far, so that regret can be computed for any budget. Before the first
one the strategy has no information, and its choice is worth the mean over all heads.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int

from vesalius.errors import BadInput
from vesalius_mechrl.clean_features import ATTRIBUTION_PASSES

#: The rewards of one head on some rows of the episode.
RewardFunction = Callable[[int, Int[np.ndarray, " row"]], Float[np.ndarray, " row"]]


class BudgetSpent(Exception):
    """The next measurement costs more than is left of the budget; ends the search."""


@dataclass
class QueryBudget:
    """Measures the heads of one episode until `total` queries are spent; the rows of a head are measured in `order`
    (default: as they are).
    """

    rewards: RewardFunction
    heads: int
    rows: int
    total: float
    attribution: Callable[[], Float[np.ndarray, " head"]] | None = None
    layers: tuple[int, ...] | None = None
    order: Int[np.ndarray, " row"] | None = None
    spent: float = 0.0
    recommendations: list[tuple[float, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._order = np.arange(self.rows) if self.order is None else self.order
        self.samples: list[list[float]] = [[] for _ in range(self.heads)]
        self._best: tuple[float, int] | None = None

    def query(self, head: int) -> float:
        """The reward of a head on all rows; recommends the best head queried so far."""
        reward = float(np.mean(self.pull(head, self.rows - len(self.samples[head]))))
        if self._best is None or reward > self._best[0]:
            self._best = reward, head
        self.recommend(self._best[1])
        return reward

    def pull(self, head: int, n: int = 1) -> list[float]:
        """Measure `n` further rows of a head; returns all its samples so far."""
        left = self.rows - len(self.samples[head])
        n = min(n, left)
        if n > 0:
            self._spend(n / self.rows)
            rows = self._order[self.rows - left : self.rows - left + n]
            self.samples[head] += [float(value) for value in self.rewards(head, rows)]
        return self.samples[head]

    def attribute(self) -> Float[np.ndarray, " head"]:
        """Every head's reward as estimated by one backward pass, for the price of three queries."""
        if self.attribution is None:
            raise BadInput("this search has no attribution; measure it with `clean_features`")
        self._spend(ATTRIBUTION_PASSES)
        return self.attribution()

    def recommend(self, head: int) -> None:
        """Record the head that is considered best now."""
        self.recommendations.append((self.spent, head))

    def can_afford(self, price: float) -> bool:
        """Whether this price is left of the budget."""
        return self.spent + price <= self.total + 1e-9

    def recommended_at(self, budget: float) -> int | None:
        """The recommendation after spending at most this much; None before the first."""
        heads = [head for spent, head in self.recommendations if spent <= budget + 1e-9]
        return heads[-1] if heads else None

    def _spend(self, price: float) -> None:
        if not self.can_afford(price):
            raise BudgetSpent
        self.spent += price
