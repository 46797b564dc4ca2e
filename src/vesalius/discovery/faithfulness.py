"""How much of the behaviour a circuit keeps when everything else is ablated: the curve over circuit sizes.

1. Take the best k components (or edges) of a ranking for many k; ablate all others on every prompt.
2. faithfulness(k) = (score of the circuit - score with all ablated) / (score of the model - score with all ablated).
3. Over the share of the model that is kept (0 to 1, linear), joined by straight lines:
   CPR = area under the curve, CMD = area between the curve and 1. High CPR and low CMD are good; CPR has no upper
   bound, because a circuit without what hinders can score above the model.

These are the areas of the MIB benchmark, with a point at size 0, where faithfulness is 0 by definition. The caller
ranks, and so chooses the sign rule. Ablation of components is any kind the engine knows (default: resampled from the
counterfactual prompt) and leaves the embedding alone; an ablated edge carries what its sender writes on the
counterfactual prompt, and the embedding is a sender like any other.
"""

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vesalius.behaviours.trial import Trial
from vesalius.components import Component, Edge
from vesalius.documents.checks import Curve
from vesalius.documents.metric import Metric
from vesalius.errors import BadInput
from vesalius.intervene import Recordings, effects
from vesalius.intervene.ablations import Ablation, ablation_named
from vesalius.intervene.edges import EdgeGraph, SenderRecordings, run_edge_masks
from vesalius.model.transformer import Transformer
from vesalius.statistics import bootstrap_means

#: Shares of the model at which MIB reads the curve.
SHARES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
#: Up to this many candidates every size is read.
EVERY_SIZE = 40
#: A range of mean scores is none if it is smaller than this share of the scores' spread, or within their rounding.
_SMALLEST_RANGE = 1e-6
_ROUNDING = 4 * torch.finfo(torch.float32).eps
Ranking = Sequence[Component] | Sequence[Edge]


class NothingToKeep(BadInput):
    """Ablating everything does not change the score, so that faithfulness is undefined."""


def faithfulness_curve(
    model: Transformer,
    material: Trial,
    ranking: Ranking,
    sizes: Sequence[int] | None = None,
    *,
    kind: Ablation | str = "resample",
    memory: int | None = None,
) -> Curve:
    """The curve of one ranking of components or of edges, best first; see `faithfulness_curves`."""
    return faithfulness_curves(model, material, [ranking], sizes, kind=kind, memory=memory)[0]


def faithfulness_curves(
    model: Transformer,
    material: Trial,
    rankings: Sequence[Ranking],
    sizes: Sequence[int] | None = None,
    *,
    searched: Sequence[Component] | None = None,
    kind: Ablation | str = "resample",
    memory: int | None = None,
) -> list[Curve]:
    """Curves of several rankings, all of components or all of edges; a circuit that two of them share is run once.

    Candidates that a ranking leaves out come after all it names. `sizes` defaults to `default_sizes`; 0 and the whole
    model are always read. With `searched`, only these components are candidates and all others are kept throughout.
    Refused where ablating everything does not change the score.
    """
    kinds = {isinstance(item, Edge) for ranking in rankings for item in ranking}
    if len(kinds) != 1 or not all(rankings):
        raise BadInput("a ranking names components or edges, at least one, and all rankings the same kind")
    by_edges = kinds.pop()
    parts = model.components if searched is None else searched
    candidates: Sequence[Component | Edge] = EdgeGraph.of(model.config).edges if by_edges else parts
    read = _sizes(sizes, len(candidates))
    orders = [_completed(ranking, candidates) for ranking in rankings]
    circuits = [[frozenset(order[:size]) for size in read] for order in orders]
    return circuit_curves(model, material, circuits, read, candidates, kind=kind, memory=memory)


def circuit_curves(
    model: Transformer,
    material: Trial,
    circuits: Sequence[Sequence[frozenset]],
    sizes: Sequence[int],
    candidates: Sequence[Component | Edge],
    *,
    kind: Ablation | str = "resample",
    memory: int | None = None,
) -> list[Curve]:
    """One curve for each row of circuits: sets of candidates of at most `sizes`, the first empty, the last all."""
    whole = frozenset(candidates)
    removed = [[whole - circuit for circuit in row] for row in circuits]
    different = list(dict.fromkeys(one for row in removed for one in row))
    scores, forwards = scores_without(model, material, different, kind=kind, memory=memory)
    place = {one: i for i, one in enumerate(different)}
    shares = [size / len(candidates) for size in sizes]
    rows = [areas(scores[:, [place[one] for one in row]], shares) for row in removed]
    return [
        Curve(
            sizes=tuple(sizes),
            shares=tuple(shares),
            **one,
            unit=material.readout.unit,
            n=len(material.batch),
            forwards=forwards / len(circuits),
        )
        for one in rows
    ]


def default_sizes(candidates: int) -> list[int]:
    """Every size of a small model; of a larger one MIB's shares, rounded, each size once."""
    if candidates <= EVERY_SIZE:
        return list(range(candidates + 1))
    return sorted({0, candidates, *(round(share * candidates) for share in SHARES)})


def areas(scores: Float[Tensor, "prompt size"], shares: Sequence[float]) -> dict:
    """Faithfulness and its areas from the scores of every prompt at every size, from nothing kept to everything."""
    scores, x = scores.double(), torch.tensor(shares, dtype=torch.float64)
    mean, curve, drawn = resampled_faithfulness(scores)
    ends = torch.tensor([0.025, 0.975], dtype=torch.float64)
    cpr, cmd = (torch.trapezoid(y, x) for y in (curve, (1 - curve).abs()))
    cpr_ends, cmd_ends = (torch.trapezoid(y, x).quantile(ends).tolist() for y in (drawn, (1 - drawn).abs()))
    return {
        "faithfulness": tuple(curve[0].tolist()),
        "cmd": float(cmd),
        "cmd_low": cmd_ends[0],
        "cmd_high": cmd_ends[1],
        "cpr": float(cpr),
        "cpr_low": cpr_ends[0],
        "cpr_high": cpr_ends[1],
        "full": float(mean[-1]),
        "ablated": float(mean[0]),
    }


def resampled_faithfulness(
    scores: Float[Tensor, "prompt size"],
) -> tuple[Float[Tensor, " size"], Float[Tensor, "1 size"], Float[Tensor, "draw size"]]:
    """Mean scores, their faithfulness, and that of resampled prompts, where it is defined. The first column is
    everything ablated, the last nothing.
    """
    if not bool(scores.isfinite().all()):
        raise BadInput("some scores are not finite; faithfulness by them says nothing")
    mean = scores.mean(0)
    spread, largest = float(scores.max() - scores.min()), float(scores.abs().max())
    if abs(float(mean[-1] - mean[0])) <= max(_SMALLEST_RANGE * spread, _ROUNDING * largest):
        raise NothingToKeep(
            f"faithfulness is undefined: the mean score is {float(mean[-1]):.4g} also with everything ablated; "
            "choose prompts or a readout that the ablation changes"
        )
    drawn = _faithfulness(bootstrap_means(scores))
    return mean, _faithfulness(mean[None]), drawn[drawn.isfinite().all(1)]


def _faithfulness(means: Float[Tensor, "draw size"]) -> Float[Tensor, "draw size"]:
    nothing, everything = means[:, :1], means[:, -1:]
    return (means - nothing) / (everything - nothing)


def scores_without(
    model: Transformer,
    material: Trial,
    removed: Sequence[frozenset],
    *,
    kind: Ablation | str = "resample",
    memory: int | None = None,
) -> tuple[Float[Tensor, "prompt set"], float]:
    """The score of every prompt with each set of components, or of edges, ablated, and the work done."""
    if not any(isinstance(part, Edge) for one in removed for part in one):
        return scores_without_components(model, material, removed, kind, memory)
    if not ablation_named(kind).from_counterfactual:
        raise BadInput(f"edges can be resampled only, not {str(kind)!r}; leave out the kind, or choose components")
    edges = cast("Sequence[frozenset[Edge]]", removed)
    return scores_without_edges(model, material, edges, memory), float(len(removed) + 2)


def scores_without_components(
    model: Transformer, material: Trial, removed: Sequence[frozenset], kind: Ablation | str, memory: int | None
) -> tuple[Float[Tensor, "prompt set"], float]:
    """The score of every prompt with each set of components ablated, and the work done."""
    ablation, some = ablation_named(kind), [one for one in removed if one]
    if not some:
        clean = Recordings(model, material.batch.to(model.device), material.readout).scores().cpu()
        return torch.stack([clean for _ in removed], 1), 1.0
    ablated = effects(
        model,
        material.batch,
        material.readout,
        kind=ablation,
        sets=[[part for part in model.components if part in one] for one in some],
        counterfactual=material.counterfactual,
        positions=material.where if ablation.from_counterfactual else None,
        memory=memory,
    )
    edited = dict(zip(some, (ablated.baseline[:, None] - ablated.matrix).T, strict=True))
    forwards = ablated.forwards + ablation.from_counterfactual
    return torch.stack([edited.get(one, ablated.baseline) for one in removed], 1), forwards


@torch.no_grad()
def scores_without_edges(
    model: Transformer, material: Trial, removed: Sequence[frozenset[Edge]], memory: int | None
) -> Float[Tensor, "prompt set"]:
    """The score of every prompt with each set of edges cut over to the counterfactual."""
    graph = EdgeGraph.of(model.config)
    cuts: Bool[Tensor, "set edge"] = torch.tensor([[edge in one for edge in graph.edges] for one in removed])
    cut = torch.zeros(len(cuts), *graph.real.shape, dtype=torch.bool)
    cut[:, graph.places[:, 0], graph.places[:, 1]] = cuts
    recordings = SenderRecordings(
        model, material.batch, material.readout, counterfactual=material.counterfactual, where=material.where
    )
    return run_edge_masks(recordings, cut, memory=memory).T.cpu()


def _completed(ranking: Ranking, candidates: Sequence[Component | Edge]) -> list[Component | Edge]:
    known = set(candidates)
    stranger = next((item for item in ranking if item not in known), None)
    if stranger is not None:
        raise BadInput(f"ranking: {stranger} is not in this model, or not among what is searched")
    if len(set(ranking)) < len(ranking):
        raise BadInput("ranking: an item is listed twice; list each once")
    named = set(ranking)
    return [*ranking, *(item for item in candidates if item not in named)]


def _sizes(sizes: Sequence[int] | None, total: int) -> list[int]:
    if sizes is None:
        return default_sizes(total)
    outside = next((size for size in sizes if not 0 <= size <= total), None)
    if outside is not None:
        raise BadInput(f"size {outside} does not fit this model; sizes go from 0 to {total}")
    return sorted({0, total, *sizes})


# How much of the behaviour one given circuit keeps, beside random circuits of its size.
#
# The measure is that of `faithfulness`: 0 with everything ablated, 1 for the whole model. The control is the mean of a
# few circuits of as many components (or edges), drawn among the same candidates.

#: Random circuits that the control is the mean of.
RANDOM_CIRCUITS = 5
CircuitPart = Component | Edge


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


def candidates_of(model: Transformer, *, by_edges: bool, heads_only: bool = False) -> Sequence[CircuitPart]:
    """What a circuit may hold: every edge, every component or every head."""
    if by_edges:
        return EdgeGraph.of(model.config).edges
    return [part for part in model.components if part.is_head or not heads_only]


def kept_faithfulness(
    model: Transformer,
    material: Trial,
    kept: Collection[CircuitPart],
    candidates: Sequence[CircuitPart],
    *,
    kind: str = "resample",
    draw: str = "",
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
    scores, forwards = scores_without(model, material, different, kind=kind)
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
