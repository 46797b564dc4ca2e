"""Whether a circuit's heads are known heads more often than expected by chance."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import comb
from typing import Any

from vesalius.components import Component
from vesalius.errors import BadInput


@dataclass(frozen=True)
class Overlap:
    """Of `chosen` heads out of `candidates`, `both` are among the `known` ones.

    `share` is the share of the chosen heads that are known, `expected` the same for heads drawn at random, `p` the
    probability that a random draw contains as many or more (hypergeometric).
    """

    both: tuple[Component, ...]
    chosen: int
    known: int
    candidates: int

    @property
    def share(self) -> float:
        """Share of the chosen heads that are known."""
        return len(self.both) / self.chosen

    @property
    def expected(self) -> float:
        """The share that random heads would have."""
        return self.known / self.candidates

    @property
    def p(self) -> float:
        """Probability of this many or more when heads are drawn at random."""
        others = self.candidates - self.known
        many = range(len(self.both), min(self.known, self.chosen) + 1)
        ways = sum(comb(self.known, both) * comb(others, self.chosen - both) for both in many)
        return ways / comb(self.candidates, self.chosen)

    def as_data(self) -> dict[str, Any]:
        """The overlap for JSON."""
        return {
            "both": [str(head) for head in self.both],
            "chosen": self.chosen,
            "known": self.known,
            "candidates": self.candidates,
            "share": self.share,
            "expected": self.expected,
            "p": self.p,
        }


def overlap(chosen: Sequence[Component], known: Collection[Component], *, candidates: int) -> Overlap:
    """Compare chosen heads with known ones; `candidates` is the number of heads there are to choose from."""
    if not chosen:
        raise BadInput("no heads were chosen to compare; name at least one")
    return Overlap(tuple(head for head in chosen if head in known), len(chosen), len(set(known)), candidates)
