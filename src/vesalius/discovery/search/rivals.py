"""Ways to spend a purse. Each is a function of the purse and a random generator that looks until nothing is left.

| rival         | looks at                                                               | knows beforehand          |
|---------------|------------------------------------------------------------------------|---------------------------|
| `random`      | whole heads in random order                                            | nothing                   |
| `layers`      | whole heads from the first layer up, in random order within a layer    | the layer                 |
| `sweep`       | every head; answers when all are paid for                              | nothing                   |
| `static`      | whole heads by their mean reward on other tasks                        | other tasks' full tables  |
| `attribution` | whole heads by attribution, after paying for it                        | nothing                   |
| `halving`     | single rows: all heads, then the better half, ... (sequential halving) | nothing                   |
| `thompson`    | single rows of the head that looks best in a draw from its posterior   | nothing                   |
| `thompson-static` | the same, the prior's mean being the other tasks'                  | other tasks' full tables  |

Sequential halving plans for its budget, so it is run anew for every budget; the others can be stopped at any time.

Thompson sampling holds every head to be normal about its mean, the means to be normal about the prior's. Both spreads
are estimated from what was seen so far (pooled over heads); until there is something to estimate from, both are 1. The
spread of the means is taken from the means seen with their noise: too wide rather than too narrow. Heads of large
effect are noisy and looked at often, so taking the pooled noise away would often leave nothing, and a search that holds
all heads to be alike looks no further. This and where halving begins were chosen on validation rows.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np
from jaxtyping import Float

from vesalius.discovery.search.purse import Purse, Spent

Search = Callable[[Purse, np.random.Generator], None]
#: Rivals that are run once per budget.
PLANNERS = frozenset({"halving"})
_FEWEST_TO_ESTIMATE = 8


def spend(search: Search, purse: Purse, rng: np.random.Generator) -> Purse:
    """Run a search until it stops or its purse is empty."""
    with suppress(Spent):
        search(purse, rng)
    return purse


def in_order(order: Sequence[int], *, attributing: bool = False) -> Search:
    """Query heads in a given order; `attributing` pays for attribution first."""

    def search(purse: Purse, rng: np.random.Generator) -> None:
        if attributing:
            purse.attribute()
        for head in order:
            purse.query(int(head))

    return search


def random_order(purse: Purse, rng: np.random.Generator) -> None:
    """Query heads in random order."""
    for head in rng.permutation(purse.heads):
        purse.query(int(head))


def layers_first(purse: Purse, rng: np.random.Generator) -> None:
    """Query heads from the first layer up."""
    layers = np.asarray(purse.layers if purse.layers is not None else range(purse.heads))
    shuffled = rng.permutation(purse.heads)
    for head in shuffled[np.argsort(layers[shuffled], kind="stable")]:
        purse.query(int(head))


def full_sweep(purse: Purse, rng: np.random.Generator) -> None:
    """Pay for every head, then name the best."""
    rewards = [float(np.mean(purse.pull(head, purse.rows))) for head in range(purse.heads)]
    purse.name(int(np.argmax(rewards)))


def by_attribution(purse: Purse, rng: np.random.Generator) -> None:
    """Pay for attribution, name its first, then query in its order."""
    scores = purse.attribute()
    order = np.argsort(-scores, kind="stable")
    purse.name(int(order[0]))
    for head in order:
        purse.query(int(head))


def halving(purse: Purse, rng: np.random.Generator) -> None:
    """Sequential halving: what is left of the budget is shared over the rounds to come, each keeps the better half.

    It begins with every head, or with as many, drawn at random, as the budget reaches for at one row each.
    """
    left = [int(head) for head in rng.permutation(purse.heads)]
    while left := left[: _affordable(purse)]:
        rounds = max(1, math.ceil(math.log2(len(left))))
        each = max(1, _affordable(purse) // (rounds * len(left)))
        for head in left:
            purse.pull(head, each)
        left.sort(key=lambda head: -float(np.mean(purse.seen[head])))
        purse.name(left[0])
        left = left[: math.ceil(len(left) / 2)] if len(left) > 1 else []


def _affordable(purse: Purse) -> int:
    """How many rows of one head each the rest of the budget pays for."""
    return math.floor((purse.budget - purse.spent) * purse.rows + 1e-9)


def thompson(prior: Float[np.ndarray, " head"] | None = None) -> Search:
    """Thompson sampling over heads, one row at a time; `prior` is the mean expected of each head (default 0)."""

    def search(purse: Purse, rng: np.random.Generator) -> None:
        centre = np.zeros(purse.heads) if prior is None else np.asarray(prior, float)
        count, total, square = (np.zeros(purse.heads) for _ in range(3))
        mean, sd = _posterior(centre, count, total, square)
        while (count < purse.rows).any():
            drawn = np.where(count < purse.rows, rng.normal(mean, sd), -np.inf)
            head = int(drawn.argmax())
            value = purse.pull(head)[-1]
            count[head], total[head], square[head] = count[head] + 1, total[head] + value, square[head] + value**2
            mean, sd = _posterior(centre, count, total, square)
            purse.name(int(np.where(count > 0, mean, -np.inf).argmax()))

    return search


def _posterior(
    centre: Float[np.ndarray, " head"],
    count: Float[np.ndarray, " head"],
    total: Float[np.ndarray, " head"],
    square: Float[np.ndarray, " head"],
) -> tuple[Float[np.ndarray, " head"], Float[np.ndarray, " head"]]:
    """Posterior mean and standard deviation of every head's mean, both spreads estimated from what was seen."""
    seen = count > 0
    freedom = float((count[seen] - 1).sum())
    within = float((square[seen] - total[seen] ** 2 / count[seen]).sum())
    noise = within / freedom if freedom >= _FEWEST_TO_ESTIMATE else 1.0
    spread = 1.0
    if seen.sum() >= _FEWEST_TO_ESTIMATE:
        spread = float(np.mean((total[seen] / count[seen] - centre[seen]) ** 2))
    noise, spread = max(noise, 1e-6), max(spread, 1e-6)
    precision = 1 / spread + count / noise
    return (centre / spread + total / noise) / precision, np.sqrt(1 / precision)


#: The rivals that need nothing but the purse.
PLAIN: dict[str, Search] = {
    "random": random_order,
    "layers": layers_first,
    "sweep": full_sweep,
    "halving": halving,
    "thompson": thompson(),
}
