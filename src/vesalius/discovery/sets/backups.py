"""Backup groups: heads linked by significant positive synergy, and what losing all of them does.

A search suspects sets; whether they hold is decided on prompts it never saw. Tested there are the suspected sets and
every pair inside them, all judged together by the rule of `synergy`. Sets found to be backups are links; heads
connected by links are a group. For each group: what removing it does, beside what each of its heads does alone.
"""

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from vesalius.discovery.sets.sources import HeadSet, Source
from vesalius.discovery.sets.synergy import Synergy, judge, synergy_rows
from vesalius.statistics import mean_interval


@dataclass(frozen=True)
class Measured:
    """A mean effect over the prompts with its own 95 % interval."""

    effect: float
    low: float
    high: float


@dataclass(frozen=True)
class BackupGroup:
    """Heads that stand in for each other: together, alone, and the links that make them a group."""

    heads: tuple[str, ...]
    joint: Measured
    alone: dict[str, Measured]
    links: tuple[Synergy, ...]

    @property
    def sum_alone(self) -> float:
        """What the heads would do together if they had nothing to do with each other."""
        return sum(measured.effect for measured in self.alone.values())

    def document(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {
            "heads": list(self.heads),
            **asdict(self.joint),
            "alone": [{"id": head, **asdict(measured)} for head, measured in self.alone.items()],
            "sum_alone": self.sum_alone,
            "synergy": self.joint.effect - self.sum_alone,
            "links": [link.document() for link in self.links],
        }


@dataclass(frozen=True)
class Confirmation:
    """What became of the suspected sets on prompts the search did not see."""

    groups: tuple[BackupGroup, ...]
    tested: tuple[Synergy, ...]
    queries: int


def confirm(source: Source, suspected: Sequence[HeadSet], *, least: float, seed: int = 0) -> Confirmation:
    """Test suspected sets and the pairs inside them, and join those that hold into groups."""
    if not suspected:
        return Confirmation((), (), 0)
    inside = [frozenset(pair) for members in suspected for pair in itertools.combinations(sorted(members), 2)]
    sets = list(dict.fromkeys([*inside, *suspected]))
    known: dict[HeadSet, np.ndarray] = {}
    rows = synergy_rows(source, sets, known)
    names = [tuple(source.heads[head] for head in sorted(members)) for members in sets]
    tested = judge(rows, names, least=least, seed=seed)
    links = {members: found for members, found in zip(sets, tested, strict=True) if found.verdict == "backup"}
    joined = connected(list(links))
    missing = [members for members in joined if members not in known]
    if missing:
        known.update(zip(missing, source.effects(missing).T, strict=True))
    groups = []
    for members in joined:
        heads = tuple(source.heads[head] for head in sorted(members))
        alone = {source.heads[head]: _measured(known[frozenset({head})], seed) for head in sorted(members)}
        inside = tuple(found for linked, found in links.items() if linked <= members)
        groups.append(BackupGroup(heads, _measured(known[members], seed), alone, inside))
    groups.sort(key=lambda group: -(group.joint.effect - group.sum_alone))
    return Confirmation(tuple(groups), tuple(tested), len(known))


def connected(links: Sequence[HeadSet]) -> list[HeadSet]:
    """Join sets that share a head, directly or through others."""
    joined: list[HeadSet] = []
    for members in links:
        touching = [group for group in joined if group & members]
        joined = [group for group in joined if not group & members]
        joined.append(members.union(*touching))
    return joined


def _measured(rows: np.ndarray, seed: int) -> Measured:
    low, high = mean_interval(torch.from_numpy(np.ascontiguousarray(rows))[:, None], seed=seed)
    return Measured(float(rows.mean()), float(low[0]), float(high[0]))
