"""Are heads backups of each other, or do they work in series?

The synergy of a set is the effect of ablating it minus the sum of its heads' single effects. For a pair:

    s(ij) = d(ij) - d(i) - d(j),    d = clean score minus ablated score, per prompt, averaged over prompts

Positive: *backup*; one compensated for another while that was ablated, so together they cost more than the sum (what
they are to each other, `relations` says). Negative: *series*; once one is ablated the other has no effect.

Rule of significance. Prompts are resampled 2,000 times, with the same resamples for every set. In each resample every
set has a t: the shift of its mean divided by its standard error *in that resample*. Let c be the 95 % quantile of the
largest |t| over all sets; a set's interval is its mean plus or minus c of its own standard errors. So *all* intervals
hold at once, however many sets were tested. Dividing by the resample's own error matters when prompts are few: the mean
and the error of a skewed column are correlated. A synergy counts as backup (or series) if its interval lies above
(below) zero and its mean is at least `least` in size, by default a tenth of the clean score: with enough prompts
everything differs from zero.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float

from vesalius.documents.account import BAR
from vesalius.errors import BadInput
from vesalius.statistics import RESAMPLES, bootstrap_means, mean_interval
from vesalius_mechrl.sets.sources import HeadSet, Source

# Heads with a positive synergy: mutually redundant, one the backup of others, or neither.
#
# Positive synergy says that together they cost more than the sum, not who stands behind whom. The rule is that of the
# claims `redundant`, `backup_of` and `together`, on the prompts that the search did not see:
#
# 1. A head that helps when it is ablated lowers the sum, so that whatever it is ablated with seems to cost more. The
#    *excess* counts it as nothing; where the excess does not hold, the heads are *opposed* and stand in for nobody.
# 2. A head *acts alone* where the interval of its own effect lies above the least that counts (the share of the clean
#    score that claims use), and does not where it lies below.
# 3. All act alone, or none does: *redundant*. Some do and others do not: each that does not is a *backup of* those that
#    do, if it costs enough once they are gone. Where an interval holds the bar, they matter *together*, and who acts
#    alone is open.

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


Verdict = Literal["backup", "series", "none"]
LEAST_PROMPTS = 8
ROUNDING = 1e-9
# A resample may miss the few prompts on which a sparse column is not zero. Its variance is then set to this share of
# the column's own; otherwise c would be infinite and no set could be significant.
LEAST_VARIANCE = 0.1
COLUMNS_AT_ONCE = 1024


@dataclass(frozen=True)
class Synergy:
    """The effect of a set beyond the sum of its single effects, with an interval that holds for all sets at once;
    `relation` is given where it is positive and was tested on held-out prompts.
    """

    heads: tuple[str, ...]
    synergy: float
    low: float
    high: float
    verdict: Verdict
    relation: Relation | None = None

    def document(self) -> dict[str, Any]:
        """The synergy for JSON."""
        return {**asdict(self), "heads": list(self.heads), **_relation(self.relation)}


def synergy_rows(
    source: Source, sets: Sequence[HeadSet], effects: dict[HeadSet, Float[np.ndarray, " prompt"]] | None = None
) -> Float[np.ndarray, "prompt set"]:
    """Synergy of each set on each prompt; sets in `effects` are not measured again, and new ones are added to it."""
    effects = {} if effects is None else effects
    needed = [*(frozenset({head}) for members in sets for head in sorted(members)), *sets]
    _measure(source, needed, effects)
    columns = [effects[members] - sum(effects[frozenset({head})] for head in sorted(members)) for members in sets]
    return np.stack(columns, 1)


def judge(
    rows: Float[np.ndarray, "prompt set"], names: Sequence[tuple[str, ...]], *, least: float, seed: int = 0
) -> list[Synergy]:
    """Intervals and verdicts of sets tested together."""
    mean, low, high = simultaneous_interval(rows, seed=seed)
    return [
        Synergy(heads, float(m), float(a), float(b), _verdict(float(m), float(a), float(b), least))
        for heads, m, a, b in zip(names, mean, low, high, strict=True)
    ]


def simultaneous_interval(
    rows: Float[np.ndarray, "prompt column"], *, level: float = 0.95, seed: int = 0
) -> tuple[Float[np.ndarray, " column"], Float[np.ndarray, " column"], Float[np.ndarray, " column"]]:
    """Mean of each column and an interval around it; all intervals hold at once with the given confidence.

    A column that is constant (up to rounding) has no width and does not affect the others.
    """
    n = len(rows)
    if n < LEAST_PROMPTS:
        raise BadInput(f"{n} prompts are too few for an interval; use at least {LEAST_PROMPTS}")
    mean, deviation = rows.mean(0), rows.std(0, ddof=1)
    varies = deviation > ROUNDING * max(1.0, float(np.abs(rows).max()))
    half_width = np.zeros_like(mean)
    if varies.any():
        standardized = (rows[:, varies] - mean[varies]) / deviation[varies]
        half_width[varies] = _largest_t(standardized, level, seed) * deviation[varies] / math.sqrt(n)
    return mean, mean - half_width, mean + half_width


def _largest_t(standardized: Float[np.ndarray, "prompt column"], level: float, seed: int) -> float:
    """The quantile of the largest |t| over resamples of the prompts; columns have mean 0 and variance 1."""
    n, largest = len(standardized), np.zeros(RESAMPLES)
    for start in range(0, standardized.shape[1], COLUMNS_AT_ONCE):
        columns = torch.from_numpy(np.ascontiguousarray(standardized[:, start : start + COLUMNS_AT_ONCE], np.float64))
        means, squares = (bootstrap_means(values, seed=seed).numpy() for values in (columns, columns**2))
        variance = np.maximum((squares - means**2) * n / (n - 1), LEAST_VARIANCE)
        largest = np.maximum(largest, np.abs(means / np.sqrt(variance / n)).max(1))
    return float(np.quantile(largest, level, method="higher"))


def synergy_matrix(heads: Sequence[str], pairs: Sequence[Synergy]) -> Float[np.ndarray, "head head"]:
    """The synergies of pairs as a symmetric matrix, NaN for pairs that were not tested."""
    place = {head: i for i, head in enumerate(heads)}
    matrix = np.full((len(heads), len(heads)), np.nan)
    for pair in pairs:
        i, j = (place[head] for head in pair.heads)
        matrix[i, j] = matrix[j, i] = pair.synergy
    return matrix


def _verdict(mean: float, low: float, high: float, least: float) -> Verdict:
    if low > 0 and mean >= least:
        return "backup"
    return "series" if high < 0 and mean <= -least else "none"


def _relation(relation: Relation | None) -> dict[str, Any]:
    return {"relation": None} if relation is None else relation.document()


# Backup groups: heads linked by significant positive synergy, and the effect of ablating all of them.
#
# The sets that a search suspects are tested on held-out prompts, together with every pair inside them, all at once by
# the rule of `synergy`. Sets that are backups are links, unless a head that works against the answer makes them seem so
# (`relations`); heads connected by links form a group. For each group: the effect of ablating it, that of each of its
# heads alone, and what they are to each other.


@dataclass(frozen=True)
class MeanEffect:
    """A mean effect over the prompts with its 95 % interval."""

    effect: float
    low: float
    high: float


@dataclass(frozen=True)
class BackupGroup:
    """Heads that stand in for each other: their joint effect, single effects, the links between them, and what they are
    to each other.
    """

    heads: tuple[str, ...]
    joint: MeanEffect
    alone: dict[str, MeanEffect]
    links: tuple[Synergy, ...]
    relation: Relation

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
            **self.relation.document(),
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
    positive = {members: synergy for members, synergy in zip(sets, tested, strict=True) if synergy.verdict == "backup"}
    relations = _relations(source, list(positive), effects, least=least, seed=seed)
    links = {members: replace(positive[members], relation=relation) for members, relation in relations.items()}
    tested = [links.get(members, synergy) for members, synergy in zip(sets, tested, strict=True)]
    links = {members: link for members, link in links.items() if relations[members].kind != "opposed"}
    merged = connected(list(links))
    relations |= _relations(source, [one for one in merged if one not in relations], effects, least=least, seed=seed)
    groups = []
    for members in merged:
        heads = tuple(source.heads[head] for head in sorted(members))
        alone = {source.heads[head]: _mean_effect(effects[frozenset({head})], seed) for head in sorted(members)}
        inside = tuple(synergy for linked, synergy in links.items() if linked <= members)
        relation = relations[members]
        if relation.kind == "opposed":  # its links stand in for each other; all of them do no more than these
            relation = replace(relation, kind="together")
        groups.append(BackupGroup(heads, _mean_effect(effects[members], seed), alone, inside, relation))
    groups.sort(key=lambda group: -(group.joint.effect - group.sum_alone))
    return Confirmation(tuple(groups), tuple(tested), len(effects))


def _relations(
    source: Source, sets: Sequence[HeadSet], effects: dict[HeadSet, np.ndarray], *, least: float, seed: int
) -> dict[HeadSet, Relation]:
    """What the heads of each set are to each other; the excesses of all are judged at once, as synergies are."""
    if not sets:
        return {}
    _measure(source, sets, effects)
    judged = judge(np.stack([excess_rows(one, effects) for one in sets], 1), [()] * len(sets), least=least, seed=seed)
    alone = {members: Alone.of(members, effects, clean=source.clean, seed=seed) for members in sets}
    _measure(source, [one for members in sets for one in alone[members].sets()], effects)
    names = dict(enumerate(source.heads))
    return {
        members: relation_of(alone[members], names, effects, exceeds=one.verdict == "backup", least=least, seed=seed)
        for members, one in zip(sets, judged, strict=True)
    }


def _measure(source: Source, sets: Sequence[HeadSet], effects: dict[HeadSet, np.ndarray]) -> None:
    """Add the effects of sets that are not known."""
    missing = list(dict.fromkeys(members for members in sets if members not in effects))
    if missing:
        effects.update(zip(missing, source.effects(missing).T, strict=True))


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
