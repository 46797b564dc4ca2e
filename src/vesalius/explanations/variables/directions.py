"""A subspace of a place that carries a variable: the first principal directions of how sources differ from bases, and
where those fall short, directions trained by gradients (distributed alignment search, DAS).

Training starts from the principal directions and minimises -log P(what the algorithm predicts), over the pairs that
change and those that stay; the columns are kept orthonormal by a QR decomposition of the parameters.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vesalius.explanations.variables.pairs import CHANGES, STAYS, Graded, Pairs
from vesalius.intervene.exchanging import NOTHING, Place

#: Steps of training, pairs of each, and the rate of Adam.
STEPS, PAIRS, RATE = 60, 24, 0.05
#: Principal directions that reach this share of what the whole place reaches are not trained further.
ENOUGH = 0.9
PRINCIPAL, TRAINED = "principal directions of the differences", "trained (DAS)"


@dataclass(frozen=True)
class Subspace:
    """A place within some directions, how they were found, and its grade on the pairs that they were fitted to."""

    place: Place
    how: str
    fitted: Graded


def fit(pairs: Pairs, variable: str, place: Place, k: int, *, enough: float, seed: int) -> Subspace:
    """The best `k` directions of a place; they are trained where the principal ones reach less than `enough`."""
    rows = _rows(pairs, variable)
    start = place.within(principal(pairs, pairs.rows(variable, CHANGES), place, k))
    first = Subspace(start, PRINCIPAL, graded(pairs, variable, start, rows))
    if first.fitted.score >= ENOUGH * enough:
        return first
    assert start.directions is not None
    trained = place.within(train(pairs, variable, place, start.directions, wanted=pairs.wanted[variable], seed=seed))
    second = Subspace(trained, TRAINED, graded(pairs, variable, trained, rows))
    return max(first, second, key=lambda one: one.fitted.score)


def graded(pairs: Pairs, variable: str, place: Place, rows: Int[Tensor, " some"]) -> Graded:
    """The grade of a place on some rows."""
    return pairs.grade(variable, pairs.exchange.answers(place, rows), rows)


def principal(pairs: Pairs, rows: Int[Tensor, " some"], place: Place, k: int) -> Float[Tensor, "d_model k"]:
    """The first principal directions (not centred) of source minus base in these rows."""
    differences = pairs.exchange.differences(place, rows).double()
    directions = torch.linalg.svd(differences, full_matrices=True).Vh[:k].T
    return directions.to(pairs.exchange.dtype).contiguous()


def random_directions(d_model: int, k: int, *, seed: int) -> Float[Tensor, "d_model k"]:
    """`k` random orthonormal directions."""
    return torch.linalg.qr(torch.randn(d_model, k, generator=torch.Generator().manual_seed(seed)))[0]


def shuffled(pairs: Pairs, variable: str, place: Place, k: int, *, seed: int) -> Float[Tensor, "d_model k"]:
    """Directions trained on the predictions of other pairs: what training reaches where there is nothing to learn."""
    wanted = list(pairs.wanted[variable])
    rng = random.Random(seed)
    for part in (CHANGES, STAYS):
        rows = pairs.rows(variable, part).tolist()
        others = rng.sample(rows, len(rows))
        for row, one in zip(rows, [pairs.wanted[variable][other] for other in others], strict=True):
            wanted[row] = one
    start = random_directions(pairs.exchange.model.config.d_model, k, seed=seed)
    return train(pairs, variable, place, start, wanted=wanted, seed=seed)


@torch.enable_grad()
def train(
    pairs: Pairs,
    variable: str,
    place: Place,
    start: Float[Tensor, "d_model k"],
    *,
    wanted: Sequence[frozenset[int] | None],
    seed: int,
) -> Float[Tensor, "d_model k"]:
    """Orthonormal directions that make the outputs come out as `wanted`."""
    rng, exchange = random.Random(seed), pairs.exchange
    changes, stays = (pairs.rows(variable, part).tolist() for part in (CHANGES, STAYS))
    weights = start.clone().requires_grad_()
    optimizer = torch.optim.Adam([weights], lr=RATE)
    for _ in range(STEPS):
        half = PAIRS // 2 if stays else PAIRS
        rows = [*rng.sample(changes, min(half, len(changes))), *rng.sample(stays, min(PAIRS - half, len(stays)))]
        chosen = torch.tensor(rows)
        options = None if exchange.options is None else exchange.options[chosen]
        logits = exchange.patched(
            place.within(torch.linalg.qr(weights)[0]), chosen, choose=None if options is None else options.clamp(min=0)
        )
        right = _right(logits, [wanted[row] or frozenset() for row in rows], options)
        if options is not None:
            logits = logits.masked_fill((options == NOTHING).to(logits.device), -torch.inf)
        use = right.any(1)
        log_p = logits.log_softmax(1).masked_fill(~right, -torch.inf)[use].logsumexp(1)
        optimizer.zero_grad()
        (-log_p.mean()).backward()
        optimizer.step()
    return torch.linalg.qr(weights.detach())[0]


def _right(logits: Tensor, wanted: list[frozenset[int]], options: Tensor | None) -> Tensor:
    """Which columns of the logits are right in each row."""
    right = torch.zeros(logits.shape, dtype=torch.bool)
    for row, tokens in enumerate(wanted):
        columns = (
            list(tokens) if options is None else [i for i, one in enumerate(options[row].tolist()) if one in tokens]
        )
        right[row, columns] = True
    return right.to(logits.device)


def _rows(pairs: Pairs, variable: str) -> Int[Tensor, " some"]:
    return torch.cat([pairs.rows(variable, part) for part in (CHANGES, STAYS)])
