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

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vesalius.components import Component, parse_components
from vesalius.documents.contrast import Contrast
from vesalius.documents.sweep import SUMMARY_ROWS, effects_answer
from vesalius.documents.view import Answer, Facts, LateRows, Sheet, View, Viewable, made, prompts
from vesalius.errors import BadInput
from vesalius.files import write_json
from vesalius.intervene.ablations import Ablation, Replacement, ablation_named
from vesalius.intervene.engine import Cost, run
from vesalius.intervene.plan import Plan
from vesalius.intervene.readout import Readout
from vesalius.intervene.recordings import Recordings
from vesalius.intervene.values import Batch
from vesalius.model.states import write_tensors
from vesalius.model.transformer import Transformer
from vesalius.progress import Progress
from vesalius.statistics import means_interval

ComponentSet = tuple[Component, ...]
EFFECTS_FILE = "effects.json"


#: Sets whose means are resampled at a time: the resamples of all pairs of a large model would not fit into memory.
SETS_RESAMPLED = 4096


@dataclass(frozen=True, repr=False)
class Effects(Viewable):
    """Clean minus edited score of every prompt for every set of components; `contrast` is what replacing everything
    does, where values come from counterfactual prompts and it was asked.
    """

    sets: tuple[ComponentSet, ...]
    baseline: Float[Tensor, " prompt"]
    matrix: Float[Tensor, "prompt set"]
    kind: str
    unit: str
    forwards: float
    seconds: float
    contrast: Contrast | None = None

    @property
    def mean(self) -> Float[Tensor, " set"]:
        """Mean effect of each set over the prompts."""
        return self.matrix.mean(0)

    def interval(self, *, level: float = 0.95, seed: int = 0) -> tuple[Float[Tensor, " set"], Float[Tensor, " set"]]:
        """Interval of each mean over the prompts: bootstrap, Student's below 8 prompts, NaN for one prompt."""
        return means_interval(self.matrix, level=level, seed=seed)

    def ranked(self) -> list[tuple[ComponentSet, float]]:
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
        answer, largest = effects_answer(
            f"Effects of {self.kind} ablation",
            self._rows_of(strongest),
            baseline=f"{float(self.baseline.mean()):.3f} {self.unit}",
            total=len(self.sets),
        )
        order = self.mean.argsort(descending=True, stable=True).tolist()
        contrast = [] if self.contrast is None else self.contrast.facts()
        rows = LateRows(len(order), lambda most: self._rows_of(order[:most]))
        return View(
            f"{self.kind} ablation, {prompts(len(self.baseline))}",
            Answer(answer),
            [
                Facts([("largest effects (clean minus edited)", largest), *contrast]),
                Sheet(
                    ("component", "effect", "low", "high", "n"),
                    rows,
                    title=f"Effects ({self.unit}): clean minus edited",
                    signed=("effect",),
                ),
            ],
        )

    def _rows_of(self, columns: Sequence[int]) -> list[tuple[str, float, float | None, float | None, int]]:
        """Rows of some sets, with intervals."""
        rows: list[tuple[str, float, float | None, float | None, int]] = []
        for start in range(0, len(columns), SETS_RESAMPLED):
            part = columns[start : start + SETS_RESAMPLED]
            values = self.matrix[:, part]
            low, high = means_interval(values)
            rows += [
                (_name(self.sets[i]), effect, number(least), number(most), len(values))
                for i, effect, least, most in zip(
                    part, values.mean(0).tolist(), low.tolist(), high.tolist(), strict=True
                )
            ]
        return rows


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
    baseline = recordings.scores().cpu()
    cost.rows += len(batch)
    parts = effect_columns(
        recordings, replacement, chosen, positions=positions, memory=memory, cost=cost, progress=progress
    )
    matrix = torch.cat([baseline[:, None] - scores for _, scores in parts], 1)
    forwards = cost.rows / len(batch)
    return Effects(tuple(chosen), baseline, matrix, ablation.name, readout.unit, forwards, time.perf_counter() - start)


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
) -> Iterator[tuple[range, Float[Tensor, "prompt set"]]]:
    """Edited scores of every prompt, some sets at a time as they are ready, for callers that save as they go."""
    n = len(recordings.batch)
    at_once = max(1, block // n)
    for start in range(0, len(sets), at_once):
        part = sets[start : start + at_once]
        plan = Plan.grid(recordings.model.config, part, choices=replacement.choices, positions=positions)

        def report(step: str, done: int, total: int, start: int = start, size: int = len(part)) -> None:
            if progress:
                progress("ablation", start + size * done // total, len(sets))

        scores = run(recordings, plan, replacement.values, memory=memory, cost=cost, progress=report)
        yield range(start, start + len(part)), scores.cpu().view(len(part), n).T


def number(bound: float | Tensor) -> float | None:
    """The end of an interval; None where one prompt gives none."""
    return None if math.isnan(float(bound)) else float(bound)


def _name(members: ComponentSet) -> str:
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
