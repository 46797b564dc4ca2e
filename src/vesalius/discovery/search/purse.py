"""The account of one search: what was looked at, what it cost, and which head would be named now.

The currency is the *query*: one head replaced on all rows of the episode. One row of one head costs the part of it
that a row is; a row is a task prompt and, where there is a control, a row of control text. Attribution costs three
queries, since a backward pass counts as two forward passes; the clean run itself is free for everybody, as published.

Every look and every naming is written down with the sum paid so far, so that regret can be read off at any budget.
Who has paid for nothing yet names a head blindly.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int

from vesalius.discovery.clean_features import ATTRIBUTION_PASSES
from vesalius.errors import BadInput

#: The rewards of one head on some rows of the episode.
Look = Callable[[int, Int[np.ndarray, " row"]], Float[np.ndarray, " row"]]


class Spent(Exception):
    """The budget does not reach for this."""


@dataclass
class Purse:
    """Pays for looks at the heads of one episode until `budget` queries are spent; rows of a head are looked at in
    `order` (default: as they are).
    """

    look: Look
    heads: int
    rows: int
    budget: float
    attribution: Callable[[], Float[np.ndarray, " head"]] | None = None
    layers: tuple[int, ...] | None = None
    order: Int[np.ndarray, " row"] | None = None
    spent: float = 0.0
    trace: list[tuple[float, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._order = np.arange(self.rows) if self.order is None else self.order
        self.seen: list[list[float]] = [[] for _ in range(self.heads)]
        self._best: tuple[float, int] | None = None

    def query(self, head: int) -> float:
        """The reward of a head on all rows; names it if no head queried so far is better."""
        reward = float(np.mean(self.pull(head, self.rows - len(self.seen[head]))))
        if self._best is None or reward > self._best[0]:
            self._best = reward, head
        self.name(self._best[1])
        return reward

    def pull(self, head: int, n: int = 1) -> list[float]:
        """Look at `n` further rows of a head; everything seen of it."""
        left = self.rows - len(self.seen[head])
        n = min(n, left)
        if n > 0:
            self._pay(n / self.rows)
            fresh = self._order[self.rows - left : self.rows - left + n]
            self.seen[head] += [float(value) for value in self.look(head, fresh)]
        return self.seen[head]

    def attribute(self) -> Float[np.ndarray, " head"]:
        """Every head's reward as one backward pass estimates it, for the price of three queries."""
        if self.attribution is None:
            raise BadInput("this search has no attribution to offer; measure it with `beforehand`")
        self._pay(ATTRIBUTION_PASSES)
        return self.attribution()

    def name(self, head: int) -> None:
        """Say which head is held to be best now."""
        self.trace.append((self.spent, head))

    def affords(self, price: float) -> bool:
        """Whether the budget reaches for this price."""
        return self.spent + price <= self.budget + 1e-9

    def _pay(self, price: float) -> None:
        if not self.affords(price):
            raise Spent
        self.spent += price

    def named_at(self, budget: float) -> int | None:
        """The head named when this much had been paid; None before the first naming."""
        heads = [head for paid, head in self.trace if paid <= budget + 1e-9]
        return heads[-1] if heads else None
