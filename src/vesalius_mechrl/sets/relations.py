"""Heads with a positive synergy: mutually redundant, one the backup of others, or neither.

Positive synergy says that together they cost more than the sum, not who stands behind whom. The rule is that of the
claims `redundant`, `backup_of` and `together`, on the prompts that the search did not see:

1. A head that helps when it is ablated lowers the sum, so that whatever it is ablated with seems to cost more. The
   *excess* counts it as nothing; where the excess does not hold, the heads are *opposed* and stand in for nobody.
2. A head *acts alone* where the interval of its own effect lies above the least that counts (the share of the clean
   score that claims use), and does not where it lies below.
3. All act alone, or none does: *redundant*. Some do and others do not: each that does not is a *backup of* those that
   do, if it costs enough once they are gone. Where an interval holds the bar, they matter *together*, and who acts
   alone is open.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float

from vesalius.documents.account import BAR
from vesalius.statistics import mean_interval
from vesalius_mechrl.sets.sources import HeadSet

Kind = Literal["redundant", "backup_of", "together", "opposed"]
Effects = Mapping[HeadSet, Float[np.ndarray, " prompt"]]


@dataclass(frozen=True)
class Relation:
    """What some heads are to each other: `acts` are those that act alone, `backups` those that act only once these are
    gone, `open` those of which the prompts do not tell.
    """

    kind: Kind
    acts: tuple[str, ...] = ()
    backups: tuple[str, ...] = ()
    open: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """The relation for JSON, beside the heads."""
        return {"relation": self.kind, "acts": self.acts, "backups": self.backups, "open": self.open}


@dataclass(frozen=True)
class Alone:
    """Which of some heads act alone, which do not, and of which it is open."""

    acts: HeadSet
    silent: HeadSet
    open: HeadSet

    @classmethod
    def of(cls, members: HeadSet, effects: Effects, *, clean: float, seed: int) -> "Alone":
        """By the intervals of their single effects, in shares of the clean score."""
        bar = BAR * abs(clean)
        ends = {head: _interval(effects[frozenset({head})], seed) for head in members}
        acts = frozenset(head for head, (low, _) in ends.items() if low > bar)
        silent = frozenset(head for head, (_, high) in ends.items() if high < bar)
        return cls(acts, silent, members - acts - silent)

    def sets(self) -> list[HeadSet]:
        """The sets whose effects say whether the silent heads are backups of those that act."""
        if self.open or not self.acts:
            return []
        return [self.acts, *(self.acts | {head} for head in sorted(self.silent))]


def excess_rows(members: HeadSet, effects: Effects) -> Float[np.ndarray, " prompt"]:
    """What all cost beyond the sum of those that cost something alone, on each prompt."""
    alone = [effects[frozenset({head})] for head in sorted(members)]
    return effects[members] - sum((rows for rows in alone if rows.mean() > 0), np.zeros_like(effects[members]))


def relation_of(
    alone: Alone, names: Mapping[int, str], effects: Effects, *, exceeds: bool, least: float, seed: int
) -> Relation:
    """The relation of heads whose excess was judged (`exceeds`) and whose `alone.sets()` were measured."""

    def named(heads: HeadSet) -> tuple[str, ...]:
        return tuple(names[head] for head in sorted(heads))

    if not exceeds:
        return Relation("opposed", acts=named(alone.acts), open=named(alone.open))
    if alone.open:
        return Relation("together", acts=named(alone.acts), open=named(alone.open))
    if not alone.acts or not alone.silent:
        return Relation("redundant", acts=named(alone.acts))
    backups = frozenset(head for head in alone.silent if _stands_in(head, alone.acts, effects, least, seed))
    return Relation("backup_of" if backups else "together", acts=named(alone.acts), backups=named(backups))


def _stands_in(head: int, acting: HeadSet, effects: Effects, least: float, seed: int) -> bool:
    """Whether a head costs enough once those that act are gone: its gain, and no more than what it then costs."""
    both, without, own = effects[acting | {head}], effects[acting], effects[frozenset({head})]
    bounds = (both - without - own, both - without, both)
    gain = min(bounds, key=lambda rows: float(rows.mean()))
    return float(gain.mean()) >= least and _interval(gain, seed)[0] > 0


def _interval(rows: Float[np.ndarray, " prompt"], seed: int) -> tuple[float, float]:
    low, high = mean_interval(torch.from_numpy(np.ascontiguousarray(rows))[:, None], seed=seed)
    return float(low[0]), float(high[0])
