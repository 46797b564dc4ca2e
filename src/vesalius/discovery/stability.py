"""Would other prompts have given the same circuit? Circuits are compared over bootstrap resamples of the prompts.

Each resample draws as many prompts as there are, with replacement, and ranks the items (components or edges) by the
magnitude of their mean score. Its circuit is the first `top`; items that score exactly zero are in no circuit.
Stability is the mean Jaccard index, |both| / |either|, over all pairs of resamples; two empty circuits count as equal.

If scores are means over prompts, this needs no run of the model. A method whose scores are not means passes one row of
scores per resample to `pairwise_jaccard`. `half_agreement` compares disjoint halves of the prompts instead.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vesalius.documents.checks import Stability
from vesalius.documents.sweep import HalfAgreement
from vesalius.errors import BadInput
from vesalius.statistics import average_ranks, bootstrap_means

RESAMPLES = 100
#: Random halvings of the prompts, and the fewest prompts that can be halved with a mean on either side.
HALVINGS, LEAST_TO_HALVE = 200, 4


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
        raise BadInput("one prompt cannot be resampled; discover on at least two (`n` 2)")
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


def half_agreement(
    per_prompt: Float[Tensor, "prompt item"], top: int, *, halvings: int = HALVINGS, seed: int = 0
) -> HalfAgreement:
    """How alike the `top` items and the ranks of all items are on two halves of the prompts, over random halvings; an
    odd prompt is left out of either half.
    """
    scores = _finite(per_prompt).cpu().double()
    n, n_items = scores.shape
    if n < LEAST_TO_HALVE:
        raise BadInput(f"{n} prompts are too few to halve; use at least {LEAST_TO_HALVE} (`n` {LEAST_TO_HALVE})")
    half, rng = n // 2, np.random.default_rng(seed)
    order = rng.permuted(np.tile(np.arange(n), (halvings, 1)), axis=1)
    first, second = (_means_of(scores, order[:, place : place + half]) for place in (0, half))
    ours, theirs = (top_items(means, top).double() for means in (first, second))
    both = (ours * theirs).sum(1)
    either = ours.sum(1) + theirs.sum(1) - both
    indices = torch.where(either > 0, both / either.clamp(min=1), 1.0).numpy()
    correlations = _rank_correlations(first.numpy(), second.numpy())
    (low, high), (rank_low, rank_high) = (np.quantile(x, [0.025, 0.975]).tolist() for x in (indices, correlations))
    return HalfAgreement(
        jaccard=float(indices.mean()),
        jaccard_low=low,
        jaccard_high=high,
        chance=chance_jaccard(min(top, n_items), n_items),
        rank_correlation=float(correlations.mean()),
        rank_low=rank_low,
        rank_high=rank_high,
        top=min(top, n_items),
        items=n_items,
        half=half,
        halvings=halvings,
    )


def _means_of(scores: Float[Tensor, "prompt item"], chosen: np.ndarray) -> Float[Tensor, "halving item"]:
    """The mean scores of the prompts that each halving chose."""
    weights = np.zeros((len(chosen), len(scores)))
    np.put_along_axis(weights, chosen, 1 / chosen.shape[1], axis=1)
    return torch.from_numpy(weights) @ scores


def _rank_correlations(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Spearman's correlation of each pair of rows; 0 where all items of a row are equal."""
    ranks = [np.stack([average_ranks(row) for row in scores]) for scores in (first, second)]
    ours, theirs = (rank - rank.mean(1, keepdims=True) for rank in ranks)
    scale = np.sqrt((ours**2).sum(1) * (theirs**2).sum(1))
    return np.divide((ours * theirs).sum(1), scale, out=np.zeros(len(first)), where=scale > 0)


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
