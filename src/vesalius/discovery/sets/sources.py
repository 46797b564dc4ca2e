"""Where the effect of a set of heads comes from: a table measured before, or the model itself.

A set is a `frozenset` of places in the source's list of heads. Its effect on a prompt is the clean score less the score
with all of its heads replaced together: positive where they helped. Both kinds of source answer alike, so a search does
not know which one it asks; a table knows no set of more than two heads.
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

from vesalius.behaviours.controls import Corpus
from vesalius.behaviours.trial import Trial
from vesalius.components import Component, all_components, parse_components
from vesalius.discovery.matrices import POOLS, PUBLISHED_KIND, Matrix, behaviour_matrix, control_matrix
from vesalius.errors import BadInput
from vesalius.intervene import Cost, Recordings
from vesalius.intervene.effects import Replacement, effect_columns
from vesalius.model.specimen import Specimen
from vesalius.progress import Progress

HeadSet = frozenset[int]
FINISHED_BLOCK = 8  # prompts between two saves of a pair matrix


class Source(Protocol):
    """Answers what sets of heads do to a fixed list of prompts."""

    @property
    def heads(self) -> tuple[str, ...]:
        """The heads a set may have."""
        ...

    @property
    def largest(self) -> int:
        """How many heads a set may have."""
        ...

    @property
    def unit(self) -> str:
        """What effects are measured in."""
        ...

    @property
    def clean(self) -> float:
        """The mean score with nothing replaced."""
        ...

    @property
    def forwards(self) -> float:
        """Forward passes of all prompts so far."""
        ...

    def effects(self, sets: Sequence[HeadSet]) -> Float[np.ndarray, "prompt set"]:
        """Effect of each set on each prompt; sets are not empty."""
        ...


class LiveSource:
    """Runs the model. The prompts' clean run and the replacement values are made once and kept."""

    def __init__(self, specimen: Specimen, material: Trial, heads: Sequence[Component], *, kind: str = "mean") -> None:
        self.components, self.kind, self.unit = tuple(heads), kind, material.readout.unit
        self._where = material.where if kind == "resample" else None
        model = specimen.model
        batch = material.batch.to(model.device)
        self._replacement = Replacement.of_kind(kind, model, batch, counterfactual=material.counterfactual)
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
        """Any set can be run."""
        return len(self.components)

    @property
    def clean(self) -> float:
        """The mean score with nothing replaced."""
        return float(self.baseline.mean())

    @property
    def forwards(self) -> float:
        """Forward passes of all prompts so far, the clean one included."""
        return self._cost.rows / len(self.baseline)

    def effects(self, sets: Sequence[HeadSet]) -> Float[np.ndarray, "prompt set"]:
        """Run every prompt with each set replaced."""
        chosen = [tuple(self.components[place] for place in sorted(members)) for members in sets]
        parts = effect_columns(
            self._recordings, self._replacement, chosen, positions=self._where, cost=self._cost, block=2048
        )
        edited = torch.cat([scores for _, scores in parts], 1).double().numpy()
        if not np.isfinite(edited).all():
            raise BadInput("the model's logits are not finite with these heads replaced; choose another --kind")
        return self.baseline[:, None] - edited


@dataclass(frozen=True)
class PairEffects:
    """Effect matrices of single heads and of all pairs of them, on the same prompts."""

    single: Matrix
    pairs: Matrix

    def __post_init__(self) -> None:
        one, two = self.single.identity, self.pairs.identity
        alike = all(getattr(one, name) == getattr(two, name) for name in ("model", "source", "kind", "seed", "heads"))
        if not alike or (one.size, two.size) != (1, 2) or one.pools != two.pools:
            raise BadInput(
                f"matrices of {one.source} and {two.source} are not single heads and pairs of the same heads on the "
                "same prompts; measure them alike"
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
    """Looks sets of one or two heads up in tables; pairs lie in the order of `itertools.combinations`."""

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
            raise BadInput(f"a table of pairs does not know sets of {len(members)} heads; run the model instead")
        first, last = min(members), max(members)
        return self.single[:, first] if first == last else self.pairs[:, pair_place(first, last, len(self.heads))]


def pair_place(i: int, j: int, n: int) -> int:
    """Where the pair i < j of n heads stands in the order of `itertools.combinations`."""
    return i * n - i * (i + 1) // 2 + j - i - 1


def pair_effects(
    specimen: Specimen,
    directory: Path,
    *,
    text: Corpus | None = None,
    text_length: int = 60,
    pools: Mapping[str, int] = POOLS,
    heads: Iterable[str | Component] | None = None,
    kind: str = PUBLISHED_KIND,
    seed: int = 0,
    block: int = FINISHED_BLOCK,
    progress: Progress | None = None,
) -> PairEffects:
    """Measure, or finish measuring, or load, what each head and each pair of heads does to the behaviour, or to
    ordinary `text` in rows of `text_length` tokens (nats of next-token loss).

    `directory/heads` and `directory/pairs` are effect matrices like any other (see `discovery.matrices`).
    """
    named = None if heads is None else list(heads)
    measure = behaviour_matrix if text is None else partial(control_matrix, corpus=text, length=text_length)
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
    """The heads to choose among, in order of layers; at least two different ones."""
    config = specimen.model.config
    chosen = all_components(config, mlps=False) if pool is None else sorted(set(parse_components(pool, config)))
    for component in chosen:
        if not component.is_head:
            raise BadInput(f"pool: {component} is an MLP; sets are made of heads such as L0H0")
    if len(chosen) < 2:
        raise BadInput(f"pool: {', '.join(map(str, chosen))} is one head and makes no pair; name at least two heads")
    return chosen
