"""Components that show only when their output is moved to another position.

A component that holds nothing but the position writes the same on every prompt, so whatever puts the value of another
prompt in its place (a sweep, EAP, ACDC) sees no effect. Here its outputs on the counterfactual prompt are put in
random order of positions. That needs prompts whose positions are comparable, so it is done for specimens with a finite
vocabulary only. A method that measures effects leaves such a component without a score, so only those are looked at;
the scores of EAP are estimates and can be anything, so all are. A moved output can also disturb readers that never use
it, so a component must show when it is set to zero or to its mean as well, and not when it is exchanged in place.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.behaviours.trial import Trial
from vesalius.components import Component
from vesalius.intervene import Cost, Recordings, Values, activations, effects
from vesalius.intervene.ablations import Mean, Replacement, Resample, Zero
from vesalius.intervene.effects import effect_columns
from vesalius.intervene.estimate import Workload, sweep_forwards
from vesalius.model.transformer import Transformer

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
    places = _shuffled(order, real)
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


def _shuffled(order: Tensor, real: Tensor) -> Tensor:
    """For every position the real one that is read there; positions that are not real read themselves."""
    own = torch.arange(real.shape[1], device=real.device).expand_as(order)
    ranked = order.masked_fill(~real, 2.0).argsort(1)
    rank_of_place = real.long().cumsum(1) - 1
    return torch.where(real, ranked.gather(1, rank_of_place.clamp(min=0)), own)


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
