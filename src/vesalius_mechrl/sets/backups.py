"""Backup groups: heads linked by significant positive synergy, and the effect of ablating all of them.

The sets that a search suspects are tested on held-out prompts, together with every pair inside them, all at once by the
rule of `synergy`. Sets that are backups are links; heads connected by links form a group. For each group: the effect of
ablating it, and of each of its heads alone.
"""

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from vesalius.statistics import mean_interval
from vesalius_mechrl.sets.sources import HeadSet, Source
from vesalius_mechrl.sets.synergy import Synergy, judge, synergy_rows


@dataclass(frozen=True)
class MeanEffect:
    """A mean effect over the prompts with its 95 % interval."""

    effect: float
    low: float
    high: float


@dataclass(frozen=True)
class BackupGroup:
    """Heads that are backups of each other: their joint effect, single effects, and the links between them."""

    heads: tuple[str, ...]
    joint: MeanEffect
    alone: dict[str, MeanEffect]
    links: tuple[Synergy, ...]

    @property
    def sum_alone(self) -> float:
        """The joint effect that independent heads would have: the sum of the single effects."""
        return sum(effect.effect for effect in self.alone.values())

    def document(self) -> dict[str, Any]:
        """The group for JSON."""
        return {
            "heads": list(self.heads),
            **asdict(self.joint),
            "alone": [{"id": head, **asdict(effect)} for head, effect in self.alone.items()],
            "sum_alone": self.sum_alone,
            "synergy": self.joint.effect - self.sum_alone,
            "links": [link.document() for link in self.links],
        }


@dataclass(frozen=True)
class Confirmation:
    """The groups confirmed on held-out prompts, all tested sets, and the number of queries."""

    groups: tuple[BackupGroup, ...]
    tested: tuple[Synergy, ...]
    queries: int


def confirm(source: Source, suspected: Sequence[HeadSet], *, least: float, seed: int = 0) -> Confirmation:
    """Test suspected sets and the pairs inside them, and merge the confirmed ones into groups."""
    if not suspected:
        return Confirmation((), (), 0)
    inside = [frozenset(pair) for members in suspected for pair in itertools.combinations(sorted(members), 2)]
    sets = list(dict.fromkeys([*inside, *suspected]))
    effects: dict[HeadSet, np.ndarray] = {}
    rows = synergy_rows(source, sets, effects)
    names = [tuple(source.heads[head] for head in sorted(members)) for members in sets]
    tested = judge(rows, names, least=least, seed=seed)
    links = {members: synergy for members, synergy in zip(sets, tested, strict=True) if synergy.verdict == "backup"}
    merged = connected(list(links))
    missing = [members for members in merged if members not in effects]
    if missing:
        effects.update(zip(missing, source.effects(missing).T, strict=True))
    groups = []
    for members in merged:
        heads = tuple(source.heads[head] for head in sorted(members))
        alone = {source.heads[head]: _mean_effect(effects[frozenset({head})], seed) for head in sorted(members)}
        inside = tuple(synergy for linked, synergy in links.items() if linked <= members)
        groups.append(BackupGroup(heads, _mean_effect(effects[members], seed), alone, inside))
    groups.sort(key=lambda group: -(group.joint.effect - group.sum_alone))
    return Confirmation(tuple(groups), tuple(tested), len(effects))


def connected(links: Sequence[HeadSet]) -> list[HeadSet]:
    """Merge sets that share a head, directly or through others."""
    groups: list[HeadSet] = []
    for members in links:
        touching = [group for group in groups if group & members]
        groups = [group for group in groups if not group & members]
        groups.append(members.union(*touching))
    return groups


def _mean_effect(rows: np.ndarray, seed: int) -> MeanEffect:
    low, high = mean_interval(torch.from_numpy(np.ascontiguousarray(rows))[:, None], seed=seed)
    return MeanEffect(float(rows.mean()), float(low[0]), float(high[0]))
