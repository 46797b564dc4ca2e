"""Would other prompts have given the same circuit? Circuits are compared over bootstrap resamples of the prompts.

Each resample draws as many prompts as there are, with replacement, and ranks the items (components or edges) by the
magnitude of their mean score. Its circuit is the first `top`; items that score exactly zero are in no circuit.
Stability is the mean Jaccard index, |both| / |either|, over all pairs of resamples; two empty circuits count as equal.

If scores are means over prompts, this needs no run of the model. A method whose scores are not means passes one row of
scores per resample to `pairwise_jaccard`.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vesalius.documents.checks import Stability
from vesalius.errors import BadInput
from vesalius.statistics import bootstrap_means

RESAMPLES = 100


def bootstrap_jaccard(
    per_prompt: Float[Tensor, "prompt item"],
    top: int,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    combine: Callable[[Float[Tensor, "resample item"]], Float[Tensor, "resample component"]] | None = None,
) -> Stability:
    """Stability of the `top` items by mean score; `combine` maps mean scores to scores of other items, such as edges to
    components.
    """
    if per_prompt.ndim != 2 or not per_prompt.numel():
        raise BadInput(f"scores of shape {list(per_prompt.shape)} cannot be resampled; give [prompt, item]")
    scores = _finite(per_prompt).double()
    if len(scores) < 2:
        raise BadInput("one prompt cannot be resampled; discover on at least two (--n 2)")
    means = bootstrap_means(scores, resamples=resamples, seed=seed)
    return pairwise_jaccard(means if combine is None else combine(means), top)


def pairwise_jaccard(scores: Float[Tensor, "resample item"], top: int | None = None) -> Stability:
    """Stability of the `top` items over the given resamples; None means all items that do not score zero."""
    if scores.ndim != 2 or len(scores) < 2:
        raise BadInput(f"scores of shape {list(scores.shape)} have fewer than two resamples; give at least two")
    n_items = scores.shape[1]
    circuits = top_items(_finite(scores), n_items if top is None else top).double()
    both = circuits @ circuits.T
    either = circuits.sum(1)[:, None] + circuits.sum(1)[None] - both
    first, second = torch.triu_indices(len(circuits), len(circuits), 1)
    indices = torch.where(either > 0, both / either.clamp(min=1), 1.0)[first, second]
    low, high = torch.quantile(indices, torch.tensor([0.025, 0.975], dtype=indices.dtype)).tolist()
    size = round(float(circuits.sum(1).mean())) if top is None else min(top, n_items)
    return Stability(
        value=float(indices.mean()),
        low=low,
        high=high,
        top=size,
        items=n_items,
        resamples=len(scores),
        chance=chance_jaccard(max(1, size), n_items),
        inclusion=tuple(circuits.mean(0).tolist()),
    )


def top_items(scores: Float[Tensor, "resample item"], top: int) -> Bool[Tensor, "resample item"]:
    """The `top` items of each row by magnitude, ties in order of items; never one that scores zero."""
    if top < 1:
        raise BadInput(f"top={top} makes an empty circuit; keep at least one item")
    magnitude = scores.abs()
    order = magnitude.argsort(dim=1, descending=True, stable=True)[:, :top]
    in_top = torch.zeros_like(magnitude, dtype=torch.bool).scatter_(1, order, True)
    return in_top & (magnitude > 0)


def chance_jaccard(top: int, items: int) -> float:
    """The mean Jaccard index of two random circuits of `top` among `items`."""
    ways = math.comb(items, top)
    return sum(
        math.comb(top, both) * math.comb(items - top, top - both) / ways * both / (2 * top - both)
        for both in range(max(1, 2 * top - items), top + 1)
    )


def _finite(scores: Tensor) -> Tensor:
    if not bool(scores.isfinite().all()):
        raise BadInput("some scores are not finite, so they cannot be ranked; check the model's weights for overflow")
    return scores
