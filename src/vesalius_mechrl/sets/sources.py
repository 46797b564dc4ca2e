"""Sources of the effects of sets of heads: a table measured before, or the model itself.

A set is a `frozenset` of indices into the source's list of heads. Its effect on a prompt is the clean score minus the
score with all of its heads ablated together: positive if they helped. Both kinds of source have the same interface; a
table has no sets of more than two heads.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Float

from vesalius.behaviours.trial import Trial
from vesalius.components import Component, all_components, parse_components
from vesalius.discovery.rivals import growth
from vesalius.errors import BadInput
from vesalius.intervene import Cost, Recordings
from vesalius.intervene.ablations import Ablation, Replacement, ablation_named
from vesalius.intervene.effects import effect_columns
from vesalius.model.specimen import Specimen
from vesalius.progress import Progress
from vesalius_mechrl.matrices import POOLS, PUBLISHED_KIND, ControlText, Matrix, behaviour_matrix, control_matrix
from vesalius_mechrl.strategies import BudgetSpent

HeadSet = frozenset[int]
FINISHED_BLOCK = 8  # prompts between two saves of a pair matrix
GROWTH_PROMPTS = 8  # prompts that the growth of heads is estimated on


class Source(Protocol):
    """The effects of sets of heads on a fixed list of prompts."""

    @property
    def heads(self) -> tuple[str, ...]:
        """The candidate heads."""
        ...

    @property
    def largest(self) -> int:
        """The largest number of heads of a set."""
        ...

    @property
    def unit(self) -> str:
        """The unit of effects."""
        ...

    @property
    def clean(self) -> float:
        """The mean clean score."""
        ...

    @property
    def forwards(self) -> float:
        """Forward passes of all prompts so far."""
        ...

    def effects(self, sets: Sequence[HeadSet]) -> Float[np.ndarray, "prompt set"]:
        """Effect of each set on each prompt; sets are not empty."""
        ...


class LiveSource:
    """Runs the model. The clean run of the prompts and the replacement values are computed once."""

    def __init__(
        self, specimen: Specimen, material: Trial, heads: Sequence[Component], *, kind: Ablation | str = "mean"
    ) -> None:
        ablation = ablation_named(kind)
        self.components, self.kind, self.unit = tuple(heads), ablation.name, material.readout.unit
        self._where = material.where if ablation.from_counterfactual else None
        model = specimen.model
        batch = material.batch.to(model.device)
        self._replacement = ablation.table(model, batch, counterfactual=material.counterfactual)
        self._recordings = Recordings(model, batch, material.readout)
        self.baseline: Float[np.ndarray, " prompt"] = self._recordings.scores().double().cpu().numpy()
        if not np.isfinite(self.baseline).all():
            raise BadInput("the model's logits are not finite on these prompts; check its weights for overflow")
        self._cost = Cost(rows=float(len(batch)))

    @property
    def heads(self) -> tuple[str, ...]:
        """The names of the heads."""
        return tuple(map(str, self.components))

    @property
    def largest(self) -> int:
        """Sets of any size can be run."""
        return len(self.components)

    @property
    def clean(self) -> float:
        """The mean clean score."""
        return float(self.baseline.mean())

    @property
    def forwards(self) -> float:
        """Forward passes of all prompts so far, including the clean one."""
        return self._cost.rows / len(self.baseline)

    def growth(self, first: Sequence[int]) -> Float[np.ndarray, "first head"]:
        """How much more each head is estimated to cost once each of `first` is ablated, on some of the prompts."""
        some = torch.arange(min(GROWTH_PROMPTS, len(self.baseline)))
        model, readout = self._recordings.model, self._recordings.readout.take(some)
        batch = self._recordings.batch.take(some)
        heads = [self.components[place] for place in first]
        values = Replacement(self._replacement.values, self._replacement.choices[some])
        return growth(model, batch, readout, values, self.components, heads, self._cost).double().numpy()

    def effects(self, sets: Sequence[HeadSet]) -> Float[np.ndarray, "prompt set"]:
        """Run every prompt with each set ablated."""
        component_sets = [tuple(self.components[place] for place in sorted(members)) for members in sets]
        parts = effect_columns(
            self._recordings, self._replacement, component_sets, positions=self._where, cost=self._cost, block=2048
        )
        ablated = torch.cat([scores for _, scores in parts], 1).double().numpy()
        if not np.isfinite(ablated).all():
            raise BadInput("the model's logits are not finite with these heads ablated; choose another `kind`")
        return self.baseline[:, None] - ablated


@dataclass(frozen=True)
class PairEffects:
    """Effect matrices of single heads and of all pairs of them, on the same prompts."""

    single: Matrix
    pairs: Matrix

    def __post_init__(self) -> None:
        one, two = self.single.identity, self.pairs.identity
        equal = all(getattr(one, name) == getattr(two, name) for name in ("model", "source", "kind", "seed", "heads"))
        if not equal or (one.size, two.size) != (1, 2) or one.pools != two.pools:
            raise BadInput(
                f"matrices of {one.source} and {two.source} are not single heads and pairs of the same heads on the "
                "same prompts; measure both with the same options"
            )

    def source(self, split: str) -> "TableSource":
        """The effects of one pool as a source."""
        return TableSource(
            tuple(self.single.identity.heads),
            self.single.pool(split).double().numpy(),
            self.pairs.pool(split).double().numpy(),
            clean=float(self.single.baselines[split].double().mean()),
            unit=self.single.unit,
            forwards=self.single.forwards + self.pairs.forwards,
        )


class TableSource:
    """Tables of sets of one or two heads; pairs are in the order of `itertools.combinations`."""

    largest = 2

    def __init__(
        self,
        heads: tuple[str, ...],
        single: Float[np.ndarray, "prompt head"],
        pairs: Float[np.ndarray, "prompt pair"],
        *,
        clean: float,
        unit: str = "logits",
        forwards: float = 0.0,
    ) -> None:
        n = len(heads)
        if single.shape != (len(pairs), n) or pairs.shape[1] != math.comb(n, 2):
            raise BadInput(f"tables of shape {single.shape} and {pairs.shape} do not fit {n} heads and their pairs")
        self.heads, self.single, self.pairs, self.clean, self.unit = heads, single, pairs, clean, unit
        self.forwards = forwards

    def effects(self, sets: Sequence[HeadSet]) -> Float[np.ndarray, "prompt set"]:
        """The columns of these sets."""
        return np.stack([self._column(members) for members in sets], 1)

    def _column(self, members: HeadSet) -> Float[np.ndarray, " prompt"]:
        if len(members) > self.largest:
            raise BadInput(f"a table of pairs has no sets of {len(members)} heads; run the model instead")
        first, last = min(members), max(members)
        return self.single[:, first] if first == last else self.pairs[:, pair_place(first, last, len(self.heads))]


def pair_place(i: int, j: int, n: int) -> int:
    """The index of the pair i < j of n heads in the order of `itertools.combinations`."""
    return i * n - i * (i + 1) // 2 + j - i - 1


def pair_effects(
    specimen: Specimen,
    directory: Path,
    *,
    text: ControlText | None = None,
    pools: Mapping[str, int] = POOLS,
    heads: Iterable[str | Component] | None = None,
    kind: str = PUBLISHED_KIND,
    seed: int = 0,
    block: int = FINISHED_BLOCK,
    progress: Progress | None = None,
) -> PairEffects:
    """Measure, resume or load the effects of each head and each pair of heads on the behaviour, or on ordinary `text`
    (nats of next-token loss).

    `directory/heads` and `directory/pairs` are effect matrices (see `vesalius_mechrl.matrices`).
    """
    named = None if heads is None else list(heads)
    measure = behaviour_matrix if text is None else partial(control_matrix, text=text)
    matrices = [
        measure(
            specimen,
            directory=Path(directory) / folder,
            pools=pools,
            heads=named,
            kind=kind,
            size=size,
            seed=seed,
            block=block,
            progress=progress,
        )
        for folder, size in (("heads", 1), ("pairs", 2))
    ]
    return PairEffects(*matrices)


def head_pool(specimen: Specimen, pool: Iterable[str | Component] | None) -> list[Component]:
    """The candidate heads in order of layers; at least two."""
    config = specimen.model.config
    heads = all_components(config, mlps=False) if pool is None else sorted(set(parse_components(pool, config)))
    for component in heads:
        if not component.is_head:
            raise BadInput(f"pool: {component} is an MLP; sets consist of heads such as L0H0")
    if len(heads) < 2:
        raise BadInput(f"pool: {', '.join(map(str, heads))} is one head and has no pair; name at least two heads")
    return heads


# Queries of sets and their cost: one query is one set of heads ablated on all prompts.
#
# Every search measures through `SetQueries`. A measured set is cached and free from then on; the empty set has no
# effect and is free. When the budget is spent, `BudgetSpent` ends the search, and its result is what was measured by
# then.
#
# The worth of a set is its mean effect on the task minus `weight` times its mean effect on a control, if there is one;
# its value is its worth minus a price for each of its heads.

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
