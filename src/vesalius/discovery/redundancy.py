"""Pairs of heads that may stand in for each other, proposed with few passes from the effects of single heads.

A pair shows as the effect of replacing both beyond the sum of the single effects. Of 270 heads there are 36,315 pairs;
a model with two heads that do the same has few. So:

1. The strongest heads by their single effect are replaced one after the other. With each, one forward and one backward
   pass estimate what every other head then costs, as `attribute` does for the model as it is.
2. What a head costs then beyond what it costs in the model as it is, its *growth*, estimates the synergy of the pair.
   The pairs that grow most are proposed.

The proposal is a guess: whoever asks measures the pairs, on the same prompts and then on others. It misses pairs of
which neither head is strong alone; group testing (`vesalius sets --search group`) looks for those.
"""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from vesalius.components import Component
from vesalius.intervene import Batch, Cost, Readout, Replacement
from vesalius.intervene.attribution import attribute, attribute_once_replaced
from vesalius.model.transformer import Transformer

#: A forward and a backward pass cost about as much as so many forward passes.
PASSES = 3
#: Heads that are replaced first, and pairs that are proposed, where the caller has passes to spend.
FIRST, PROPOSED = 32, 64


def growth(
    model: Transformer,
    batch: Batch,
    readout: Readout,
    replacement: Replacement,
    heads: Sequence[Component],
    first: Sequence[Component],
    cost: Cost,
) -> Float[Tensor, "first head"]:
    """How much more each head is estimated to cost once each of `first` is replaced, on average over prompts."""
    order = {part: place for place, part in enumerate(model.components)}
    places = [order[head] for head in heads]
    alone = attribute(model, batch, readout, replacement)[:, places].mean(0)
    then = attribute_once_replaced(model, batch, readout, replacement, first)[:, :, places].mean(1)
    cost.rows += PASSES * len(batch) * (1 + len(first))
    return then - alone


def growing_pairs(
    grown: Float[Tensor, "first head"], heads: Sequence[Component], first: Sequence[Component], *, most: int
) -> list[tuple[Component, Component]]:
    """The pairs that grow most, strongest first; of a pair that was estimated both ways the larger counts."""
    best: dict[tuple[Component, Component], float] = {}
    for one, row in zip(first, grown.tolist(), strict=True):
        for other, value in zip(heads, row, strict=True):
            if other != one:
                pair = (min(one, other), max(one, other))
                best[pair] = max(best[pair], value) if pair in best else value
    ranked = sorted(best, key=lambda pair: (-best[pair], pair))
    return [pair for pair in ranked[:most] if best[pair] > 0]


def strongest(effects: dict[Component, float], *, most: int) -> list[Component]:
    """The heads with the largest effects alone, of either sign."""
    heads = [part for part in effects if part.is_head]
    return sorted(heads, key=lambda head: (-abs(effects[head]), head))[:most]
