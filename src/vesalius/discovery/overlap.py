"""Whether a circuit's heads are heads already known for something, more often than chance would have it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from scipy.stats import hypergeom

from vesalius.components import Component
from vesalius.errors import BadInput


@dataclass(frozen=True)
class Overlap:
    """Of `chosen` heads out of `candidates`, `both` are among the `known` ones.

    `share` is the part of the chosen that is known, `expected` the same for heads drawn at random, `p` the chance that
    a random draw holds as many or more (hypergeometric).
    """

    both: tuple[Component, ...]
    chosen: int
    known: int
    candidates: int

    @property
    def share(self) -> float:
        """Part of the chosen heads that is known."""
        return len(self.both) / self.chosen

    @property
    def expected(self) -> float:
        """The share that random heads would have."""
        return self.known / self.candidates

    @property
    def p(self) -> float:
        """Chance of this many or more by drawing heads at random."""
        return float(hypergeom.sf(len(self.both) - 1, self.candidates, self.known, self.chosen))

    def as_data(self) -> dict[str, Any]:
        """Plain JSON."""
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
