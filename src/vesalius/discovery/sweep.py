"""The method `sweep`: a component's score is what replacing it alone by its counterfactual value costs.

With it: components that show only at another position, and how sweeps and edge attribution are cut into parts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.behaviours.natural import Spread
from vesalius.behaviours.prompts import Prompts
from vesalius.behaviours.trial import Trial
from vesalius.components import Component
from vesalius.discovery.method import Method, MethodInput, Scores
from vesalius.intervene import Cost, Recordings, Values, activations, effects
from vesalius.intervene.ablations import Ablation, Mean, Replacement, Resample, Zero, ablation_named
from vesalius.intervene.attribution import Rule, edge_attribution
from vesalius.intervene.effects import ComponentSet, effect_columns, has_units
from vesalius.intervene.estimate import Workload, sweep_forwards
from vesalius.intervene.signed import parted
from vesalius.model.specimen import Specimen
from vesalius.model.transformer import Transformer

# Components that show only when their output is moved to another position.
#
# A component that holds nothing but the position writes the same on every prompt, so whatever puts the value of another
# prompt in its place (a sweep, EAP, ACDC) sees no effect. Here its outputs on the counterfactual prompt are put in
# random order of positions. That needs prompts whose positions are comparable, so it is done for specimens with a
# finite vocabulary only. A method that measures effects leaves such a component without a score, so only those are
# looked at; the scores of EAP are estimates and can be anything, so all are. A moved output can also disturb readers
# that never use it, so a component must show when it is set to zero or to its mean as well, and not when it is
# exchanged in place.

#: A component is left without a score if it has less than this share of the largest one.
SILENT = 0.01
#: Moved outputs of components outside circuits change up to 6 % of the outputs; a position that is used, far more.
SHOWS = 0.1
#: What its removal must change, and an exchange in place must not.
REMOVAL = 0.01


@dataclass(frozen=True)
class MovedEffects:
    """Effects on every prompt of moving the outputs of some components, and the cost in forward passes."""

    components: tuple[Component, ...]
    matrix: Float[Tensor, "prompt component"]
    forwards: float

    @property
    def shown(self) -> dict[Component, float]:
        """The components that hold a position which is used, with their effects."""
        means = self.matrix.mean(0).tolist() if self.components else []
        return {part: mean for part, mean in zip(self.components, means, strict=True) if mean >= SHOWS}


def silent(scores: dict[Component, float]) -> list[Component]:
    """Components that a method left without a score worth the name."""
    largest = max(map(abs, scores.values()), default=0.0)
    return [part for part, score in scores.items() if abs(score) <= SILENT * largest]


def moved_effects(
    model: Transformer, material: Trial, components: Sequence[Component], *, seed: int = 0
) -> MovedEffects:
    """The effect of each component's outputs in random order of positions, prompt by prompt."""
    if not components or material.batch.tokens.shape[1] < 3:  # BOS and one position
        return MovedEffects((), torch.zeros(len(material.batch), 0), 0.0)
    other = material.counterfactual.to(model.device)
    real = torch.ones_like(other.tokens, dtype=torch.bool) if other.mask is None else other.mask.clone()
    real[:, 0] = False  # BOS stays where it is
    order = torch.rand(real.shape, generator=torch.Generator().manual_seed(seed)).to(real.device)
    # For every position the real one that is read there; positions that are not real read themselves.
    own = torch.arange(real.shape[1], device=real.device).expand_as(order)
    ranked = order.masked_fill(~real, 2.0).argsort(1)
    rank_of_place = real.long().cumsum(1) - 1
    places = torch.where(real, ranked.gather(1, rank_of_place.clamp(min=0)), own)
    recordings, cost = Recordings(model, material.batch, material.readout), Cost()
    baseline = recordings.scores().cpu()
    replacement = Replacement(_at(activations(model, other), places), torch.arange(len(material.batch)))
    sets = [(component,) for component in components]
    parts = effect_columns(recordings, replacement, sets, positions=real.cpu(), cost=cost)
    matrix = torch.cat([baseline[:, None] - scores for _, scores in parts], 1)
    moved = MovedEffects(tuple(components), matrix, cost.rows / len(material.batch) + 1)
    return _only_moved(model, material, moved)


def _only_moved(model: Transformer, material: Trial, moved: MovedEffects) -> MovedEffects:
    """Without those that show when moved but can be removed, or show in place already."""
    candidates = list(moved.shown)
    if not candidates:
        return moved
    sets = [(part,) for part in candidates]
    zero, mean = (effects(model, material.batch, material.readout, kind=kind, sets=sets) for kind in (Zero(), Mean()))
    in_place = effects(
        model,
        material.batch,
        material.readout,
        kind=Resample(),
        sets=sets,
        counterfactual=material.counterfactual,
        positions=material.where,
    )
    needed = torch.maximum(zero.mean, mean.mean) >= REMOVAL
    kept = needed & (in_place.mean < REMOVAL)
    matrix = moved.matrix.clone()
    for component, is_kept in zip(candidates, kept.tolist(), strict=True):
        if not is_kept:
            matrix[:, moved.components.index(component)] = 0.0
    forwards = sum(each.forwards for each in (moved, zero, mean, in_place))
    return MovedEffects(moved.components, matrix, forwards)


def moved_forwards(work: Workload, *, estimated: bool) -> float:
    """Passes of all prompts that this takes, for models with listed tokens: for components without a score, or for all
    where scores are estimates; there, what shows (the circuit, it is assumed) is then removed in three ways.
    """
    if not work.finite:
        return 0.0
    moved = [(part,) for part in work.model.components if estimated or part not in work.circuit]
    removed = 3 * sweep_forwards(work.model, [(part,) for part in work.circuit]) if estimated else 0.0
    return (sweep_forwards(work.model, moved) if moved else 0.0) + removed


def _at(values: Values, places: Tensor) -> Values:
    """A table read at other positions, row by row."""

    def moved(table: Tensor) -> Tensor:
        index = places.view(*places.shape, *([1] * (table.ndim - 2))).expand(-1, -1, *table.shape[2:])
        return table.gather(1, index)

    return Values(tuple(map(moved, values.z)), tuple(map(moved, values.mlp)), moved(values.embed))


def note_on_position(method: str, component: Component, effect: float) -> str:
    """What a method must say about a component it cannot see."""
    return (
        f"{component} shows only when its output is moved to another position ({effect:.0%} of the outputs change): "
        f"it holds the position, which is equal on both sides of an exchange in place, so {method} cannot see it. "
        "Its score here is the effect of moved outputs."
    )


# Sweeps and edge attribution in parts: some components, or some prompts, at a time, by whichever process is free.
#
# Each function here that takes a specimen and a part is run where the part is; the others cut and put together again. A
# part carries the prompts as token ids, so that every process runs the same ones.

#: Parts for each process that works at a time: some take longer than others.
PARTS_PER_JOB = 4


@dataclass(frozen=True)
class SweepPart:
    """Some sets of components to be replaced on every prompt."""

    prompts: Prompts
    kind: Ablation
    sets: tuple[ComponentSet, ...]


@dataclass(frozen=True)
class AttributionPart:
    """Some prompts on which every edge is attributed."""

    prompts: Prompts
    steps: int
    rule: Rule = "gradient"


def cut(n: int, jobs: int, *, largest: int | None = None) -> list[range]:
    """`n` places in runs of almost equal length: several for each job, none longer than `largest`."""
    size = max(1, min(largest or n, -(-n // (PARTS_PER_JOB * jobs))))
    return [range(start, min(n, start + size)) for start in range(0, n, size)]


def swept_in_parts(
    spread: Spread,
    material: Trial,
    kind: Ablation | str,
    sets: Sequence[ComponentSet],
    keep: Callable[[range, Float[Tensor, "prompt set *signed"], float], None],
    *,
    largest: int,
) -> None:
    """Edited readings of every prompt and set (signed where the metric compares two answers), given to `keep` with the
    rows that were run, as parts are finished.
    """
    assert material.prompts is not None
    prompts, ablation = material.prompts, ablation_named(kind)
    spans = cut(len(sets), spread.jobs, largest=largest)
    parts = [SweepPart(prompts, ablation, tuple(sets[i] for i in span)) for span in spans]
    spread(sweep_part, parts, step=f"{ablation} ablation", keep=lambda place, result: keep(spans[place], *result))


def sweep_part(specimen: Specimen, part: SweepPart) -> tuple[Float[Tensor, "prompt set *signed"], float]:
    """The edited readings of one part, and the rows that were run for them."""
    model, cost, prompts = specimen.model, Cost(), part.prompts
    batch = prompts.batch
    recordings = Recordings(model, batch.to(model.device), prompts.signed(prompts.readout(model), model))
    recordings.scores()  # the clean run, which is counted once for all parts
    sources = {"counterfactual": part.prompts.counterfactual_batch, "neurons": has_units(part.sets)}
    replacement = part.kind.table(model, batch, **sources)
    columns = [scores for _, scores in effect_columns(recordings, replacement, part.sets, cost=cost)]
    return torch.cat(columns, 1), cost.rows


def attributed_in_parts(
    spread: Spread, material: Trial, steps: int, rule: Rule = "gradient"
) -> Float[Tensor, "prompt sender receiver"]:
    """The edge scores of every prompt."""
    assert material.prompts is not None
    prompts = material.prompts
    spans = cut(len(prompts), spread.jobs)
    parts = [AttributionPart(prompts.take(slice(span.start, span.stop)), steps, rule) for span in spans]
    return torch.cat(spread(attribution_part, parts, step="attributing edges"))


def attribution_part(specimen: Specimen, part: AttributionPart) -> Float[Tensor, "prompt sender receiver"]:
    """The edge scores of one part's prompts."""
    prompts, model = part.prompts, specimen.model
    return edge_attribution(
        model,
        prompts.batch,
        prompts.readout(model),
        counterfactual=prompts.counterfactual_batch,
        steps=part.steps,
        rule=part.rule,
    ).cpu()


@dataclass(frozen=True)
class Sweep(Method):
    """Clean minus edited score, each component resampled alone."""

    name = "sweep"
    meaning = "A component's score is the clean minus the edited score when it alone is replaced."
    scores_edges = False
    in_parts = True
    sees_position = False

    def score(self, given: MethodInput) -> Scores:
        """One row of interventions for every component and prompt."""
        specimen, material = given.specimen, given.material
        if given.spread is not None:
            return _swept_in_parts(specimen, material, given.spread)
        swept = effects(
            specimen.model,
            material.batch,
            material.readout,
            kind=Resample(),
            counterfactual=material.counterfactual,
            positions=material.where,
            progress=given.progress,
        )
        scores = {members[0]: float(mean) for members, mean in zip(swept.sets, swept.mean, strict=True)}
        return Scores(scores, {}, swept.forwards + 1, material.readout.unit, swept.matrix)

    def cost(self, work: Workload) -> float:
        """The part of the model after each component, the clean run and the counterfactual's."""
        every = [(component,) for component in work.model.components]
        return sweep_forwards(work.model, every) + 1 + moved_forwards(work, estimated=False)


def _swept_in_parts(specimen: Specimen, material: Trial, spread: Spread) -> Scores:
    model, readout, n = specimen.model, material.readout, len(material.batch)
    sets = [(component,) for component in model.components]
    baseline = Recordings(model, material.batch.to(model.device), readout).scores().cpu()
    matrix, forwards = torch.empty(n, len(sets)), [2.0]

    def keep(span: range, scores: Tensor, rows: float) -> None:
        matrix[:, span.start : span.stop] = baseline[:, None] - parted(scores, 2)[0]
        forwards[0] += rows / n

    swept_in_parts(spread, material, Resample(), sets, keep, largest=len(sets))
    scores = {members[0]: float(mean) for members, mean in zip(sets, matrix.mean(0), strict=True)}
    return Scores(scores, {}, forwards[0], readout.unit, matrix)
