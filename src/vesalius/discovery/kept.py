"""How much of the behaviour one given circuit keeps, beside random circuits of its size.

The measure is that of `faithfulness`: 0 with everything ablated, 1 for the whole model. The control is the mean of a
few circuits of as many components (or edges), drawn among the same candidates.
"""

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.behaviours.trial import Trial
from vesalius.components import Component, Edge
from vesalius.discovery.faithfulness import resampled_faithfulness, scores_without
from vesalius.documents.metric import Metric
from vesalius.errors import BadInput
from vesalius.intervene.edge_graph import EdgeGraph
from vesalius.model.transformer import Transformer

#: Random circuits that the control is the mean of.
RANDOM_CIRCUITS = 5
Part = Component | Edge


@dataclass(frozen=True)
class Kept:
    """The faithfulness of a circuit and of random ones of its size; `full` and `ablated` are the mean scores of the
    model and of nothing, `score` that of the circuit, `forwards` the work in forward passes of all prompts.
    """

    faithfulness: Metric
    random: Metric
    score: float
    full: float
    ablated: float
    forwards: float


def candidates_of(model: Transformer, *, by_edges: bool, heads_only: bool = False) -> Sequence[Part]:
    """What a circuit may hold: every edge, every component or every head."""
    if by_edges:
        return EdgeGraph.of(model.config).edges
    return [part for part in model.components if part.is_head or not heads_only]


def kept_faithfulness(
    model: Transformer,
    material: Trial,
    kept: Collection[Part],
    candidates: Sequence[Part],
    *,
    kind: str = "resample",
    draw: str = "",
    memory: int | None = None,
) -> Kept:
    """Ablate every candidate that is not kept. `draw` decides the random circuits. What is no candidate stays as it is.

    Refused where ablating all candidates does not change the score.
    """
    whole, inside = frozenset(candidates), frozenset(kept)
    if (stranger := next((part for part in kept if part not in whole), None)) is not None:
        raise BadInput(f"circuit: {stranger} is not in this model, or not among what is searched")
    order = list(candidates)
    drawn = [frozenset(random.Random(f"{draw}/{place}").sample(order, len(inside))) for place in range(RANDOM_CIRCUITS)]
    removed = [whole, whole - inside, *(whole - one for one in drawn), frozenset()]
    different = list(dict.fromkeys(removed))
    scores, forwards = scores_without(model, material, different, kind=kind, memory=memory)
    place = {one: i for i, one in enumerate(different)}
    columns = scores[:, [place[one] for one in removed]].double()
    nothing, own, everything = columns[:, 0], columns[:, 1], columns[:, -1]
    table = torch.stack([nothing, own, columns[:, 2:-1].mean(1), everything], 1)
    mean, value, resampled = resampled_faithfulness(table)
    return Kept(
        faithfulness=interval_metric(value[0, 1], resampled[:, 1], len(table)),
        random=interval_metric(value[0, 2], resampled[:, 2], len(table)),
        score=float(mean[1]),
        full=float(mean[-1]),
        ablated=float(mean[0]),
        forwards=forwards,
    )


def interval_metric(value: Tensor, drawn: Float[Tensor, " draw"], n: int) -> Metric:
    """A figure with its bootstrap interval over the prompts; a single prompt has none."""
    middle = float(value)
    if n < 2 or not len(drawn):
        return Metric(value=middle, low=None, high=None, n=n)
    low, high = drawn.quantile(torch.tensor([0.025, 0.975], dtype=drawn.dtype)).tolist()
    return Metric(value=middle, low=min(low, middle), high=max(high, middle), n=n)
