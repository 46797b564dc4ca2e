"""How much each component matters: the per-prompt effect matrix.

`effects` replaces sets of components on every prompt and returns `matrix[prompt, set]` = clean score minus edited
score, so a positive entry means the component helped on that prompt. Everything later (rankings, bootstrap,
bandits, reinforcement learning) is a look-up in this matrix.
"""

import itertools
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vesalius.components import Component, parse_components
from vesalius.documents.answers import HALF_WIDTH, Effect, effects_answer
from vesalius.documents.performance import Contrast
from vesalius.documents.sweep import SIDES, SUMMARY_ROWS, SweepRow, largest_effects
from vesalius.documents.view import Answer, Facts, LateRows, Sheet, View, Viewable, made, prompts
from vesalius.errors import BadInput
from vesalius.files import write_json
from vesalius.intervene.ablations import Ablation, Replacement, ablation_named
from vesalius.intervene.engine import Cost, run
from vesalius.intervene.plan import Plan
from vesalius.intervene.readout import Readout
from vesalius.intervene.recordings import Recordings
from vesalius.intervene.signed import PHRASES, LogitSides, lost, parted, words_of
from vesalius.intervene.values import Batch
from vesalius.model.states import write_tensors
from vesalius.model.transformer import Transformer
from vesalius.progress import Progress
from vesalius.statistics import means_interval

ComponentSet = tuple[Component, ...]
#: The same of any sites (`vesalius.sites`).
NamedSet = tuple[Any, ...]
EFFECTS_FILE = "effects.json"


#: Sets whose means are resampled at a time: the resamples of all pairs of a large model would not fit into memory.
SETS_RESAMPLED = 4096


@dataclass(frozen=True, repr=False)
class Effects(Viewable):
    """Clean minus edited score of every prompt for every set of components, or of other sites; `contrast` is what
    replacing everything does, where values come from counterfactual prompts and it was asked. `sides` are the same
    differences of the logits of the right answer, the wrong one and the rest, where the score compares two answers.
    """

    sets: tuple[NamedSet, ...]
    baseline: Float[Tensor, " prompt"]
    matrix: Float[Tensor, "prompt set"]
    kind: str
    unit: str
    forwards: float
    seconds: float
    contrast: Contrast | None = None
    sides: LogitSides | None = None

    @property
    def mean(self) -> Float[Tensor, " set"]:
        """Mean effect of each set over the prompts."""
        return self.matrix.mean(0)

    def interval(self, *, level: float = 0.95, seed: int = 0) -> tuple[Float[Tensor, " set"], Float[Tensor, " set"]]:
        """Interval of each mean over the prompts: bootstrap, Student's below 8 prompts, NaN for one prompt."""
        return means_interval(self.matrix, level=level, seed=seed)

    def ranked(self) -> list[tuple[NamedSet, float]]:
        """Sets with their mean effects, most helpful first."""
        order = self.mean.argsort(descending=True, stable=True).tolist()
        return [(self.sets[i], float(self.mean[i])) for i in order]

    def save(self, directory: Path | str) -> Path:
        """Write the effects with their intervals (`effects.json`) and the matrix itself (`effects.safetensors`) into a
        directory; returns the path of the former.
        """
        path = made(directory) / EFFECTS_FILE
        tensors = {"matrix": self.matrix.contiguous(), "baseline": self.baseline.contiguous()}
        write_tensors(path.with_suffix(".safetensors"), tensors)
        named = ("kind", "unit", "forwards", "seconds")
        sets = [_name(members) for members in self.sets]
        data = {name: getattr(self, name) for name in named}
        write_json(path, {"schema": 1, **data, "sets": sets, "components": self.view().sheet().records()})
        return path

    def view(self) -> View:
        """The effects as a table, which is made when it is looked at."""
        strongest = self.mean.abs().argsort(descending=True, stable=True)[:SUMMARY_ROWS].tolist()
        largest = self.rows(strongest)
        order = self.mean.argsort(descending=True, stable=True).tolist()
        contrast = [] if self.contrast is None else self.contrast.facts()
        rows = LateRows(len(order), lambda most: self._rows_of(order[:most]))
        return View(
            f"{self.kind} ablation, {prompts(len(self.baseline))}",
            self._answer(largest),
            [
                Facts(
                    [
                        ("clean score", f"{float(self.baseline.mean()):.3f} {self.unit}"),
                        ("largest effects (clean minus edited)", largest_effects(largest)),
                        *contrast,
                    ]
                ),
                Sheet(
                    ("component", "effect", "low", "high", *(() if self.sides is None else (*SIDES, "acts")), "n"),
                    rows,
                    title=f"Effects ({self.unit}): clean minus edited",
                    signed=("effect", *SIDES),
                ),
            ],
        )

    def rows(self, columns: Sequence[int] | None = None, *, seed: int = 0) -> list[SweepRow]:
        """Sets (default: all) with their effects and intervals, in order."""
        columns, rows = range(len(self.sets)) if columns is None else columns, []
        for start in range(0, len(columns), SETS_RESAMPLED):
            part = list(columns[start : start + SETS_RESAMPLED])
            figures = _figures("effect", "ci_low", "ci_high", values=self.matrix[:, part], seed=seed)
            if self.sides is not None:
                sides = self.sides.take(part)
                for side, values in zip(SIDES, sides, strict=True):
                    name = f"effect_{side}"
                    figures |= _figures(name, f"{name}_low", f"{name}_high", values=values, seed=seed)
                figures["acts"] = [PHRASES.get(word or "") for word in words_of(sides, seed=seed)]
            every = zip(*figures.values(), strict=True)
            rows += [
                SweepRow(id=_name(self.sets[i]), **dict(zip(figures, row, strict=True)))
                for i, row in zip(part, every, strict=True)
            ]
        return rows

    def _rows_of(self, columns: Sequence[int]) -> list[tuple[Any, ...]]:
        """Rows of a table of some sets, with intervals."""
        signed, n = self.sides is not None, len(self.matrix)
        return [
            (row.id, row.effect, row.ci_low, row.ci_high, *((*row.sides(), row.acts or "") if signed else ()), n)
            for row in self.rows(columns)
        ]

    def _answer(self, largest: Sequence[SweepRow]) -> Answer:
        """Which effects are beyond chance. Intervals of the largest are resampled; those of the others, which are not
        printed, are of a normal distribution.
        """
        n, what = len(self.matrix), "component" if all(len(one) == 1 for one in self.sets) else "set"
        half = HALF_WIDTH * self.matrix.std(dim=0, correction=0) / n**0.5
        names, unknown = [_name(members) for members in self.sets], [None] * len(self.sets)
        lows, highs = ((self.mean - half).tolist(), (self.mean + half).tolist()) if n > 1 else (unknown, unknown)
        rows: Iterable[Effect] = zip(names, self.mean.tolist(), lows, highs, strict=True)
        every = {row[0]: row for row in rows}
        every |= {row.id: row.figures for row in largest}
        return effects_answer(
            list(every.values()), "the behaviour", kind=self.kind, n=n, what=what, contrast=self.contrast
        )


def effects(
    model: Transformer,
    batch: Batch,
    readout: Readout,
    *,
    kind: Ablation | str = "zero",
    sets: Sequence[Iterable[str | Component]] | None = None,
    counterfactual: Batch | None = None,
    reference: Batch | None = None,
    positions: Bool[Tensor, "prompt pos"] | None = None,
    memory: int | None = None,
    progress: Progress | None = None,
) -> Effects:
    """Effects of replacing each set of components (default: every single head and MLP) on every prompt."""
    chosen = component_sets(model, sets)
    ablation = ablation_named(kind)
    sources = {"counterfactual": counterfactual, "reference": reference}
    replacement = ablation.table(model, batch, **sources, neurons=has_units(chosen))
    start, cost = time.perf_counter(), Cost()
    recordings = Recordings(model, batch, readout, memory=memory)
    clean = recordings.scores().cpu()
    cost.rows += len(batch)
    parts = effect_columns(
        recordings, replacement, chosen, positions=positions, memory=memory, cost=cost, progress=progress
    )
    matrix, sides = parted(lost(clean, torch.cat([scores for _, scores in parts], 1)), 2)
    forwards, seconds = cost.rows / len(batch), time.perf_counter() - start
    baseline = parted(clean)[0]
    return Effects(tuple(chosen), baseline, matrix, ablation.name, readout.unit, forwards, seconds, sides=sides)


def effect_columns(
    recordings: Recordings,
    replacement: Replacement,
    sets: Sequence[ComponentSet],
    *,
    positions: Bool[Tensor, "prompt pos"] | None = None,
    memory: int | None = None,
    cost: Cost | None = None,
    progress: Progress | None = None,
    block: int = 4096,
) -> Iterator[tuple[range, Float[Tensor, "prompt set *signed"]]]:
    """Edited scores of every prompt (of a signed readout, its readings), some sets at a time as they are ready, for
    callers that save as they go.
    """
    n = len(recordings.batch)
    at_once = max(1, block // n)
    for start in range(0, len(sets), at_once):
        part = sets[start : start + at_once]
        plan = Plan.grid(recordings.model.config, part, choices=replacement.choices, positions=positions)

        def report(step: str, done: int, total: int, start: int = start, size: int = len(part)) -> None:
            if progress:
                progress("ablation", start + size * done // total, len(sets))

        scores = run(recordings, plan, replacement.values, memory=memory, cost=cost, progress=report)
        yield range(start, start + len(part)), scores.cpu().unflatten(0, (len(part), n)).transpose(0, 1)


def number(bound: float | Tensor) -> float | None:
    """The end of an interval; None where one prompt gives none."""
    return None if math.isnan(float(bound)) else float(bound)


def _figures(*names: str, values: Float[Tensor, "prompt set"], seed: int) -> dict[str, list[Any]]:
    """Means with both ends of their intervals, by these names."""
    low, high = means_interval(values, seed=seed)
    return dict(zip(names, (values.mean(0).tolist(), *(list(map(number, end)) for end in (low, high))), strict=True))


def _name(members: NamedSet) -> str:
    return "+".join(map(str, members))


def component_sets(model: Transformer, sets: Sequence[Iterable[str | Component]] | None) -> list[ComponentSet]:
    """Parse sets of component names; None means every component alone."""
    if sets is None:
        return [(component,) for component in model.components]
    if not len(sets):
        raise BadInput("the list of component sets is empty; name at least one, such as [['L0H0'], ['L0H0', 'L1_MLP']]")
    return [tuple(parse_components(names, model.config, neurons=True)) for names in sets]


def has_units(sets: Iterable[ComponentSet]) -> bool:
    """Whether a set holds a neuron or an expert, so that tables need their values."""
    return any(part.is_unit for members in sets for part in members)


def pairs(components: Iterable[Component]) -> list[ComponentSet]:
    """Every unordered pair."""
    return list(itertools.combinations(components, 2))
