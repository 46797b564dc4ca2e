"""Search strategies. Each is a function of a `QueryBudget` and a random generator that measures until all is spent.

| strategy      | measures                                                               | prior information         |
|---------------|------------------------------------------------------------------------|---------------------------|
| `random`      | whole heads in random order                                            | none                      |
| `layers`      | whole heads from the first layer up, in random order within a layer    | the layer                 |
| `sweep`       | every head; recommends one when all are measured                       | none                      |
| `static`      | whole heads by their mean reward on other tasks                        | other tasks' full tables  |
| `attribution` | whole heads by attribution, after paying for it                        | none                      |
| `halving`     | single rows: all heads, then the better half, ... (sequential halving) | none                      |
| `thompson`    | single rows of the head that is best in a draw from the posterior      | none                      |
| `thompson-static` | the same, with the other tasks' means as the prior mean            | other tasks' full tables  |

Sequential halving plans for its budget, so it is run once per budget; the others can be stopped at any time.

Thompson sampling models the rewards of a head as normal around its mean, and the means as normal around the prior mean.
Both variances are estimated from the samples so far (pooled over heads); until there are enough samples, both are 1.
The variance of the means is estimated from noisy sample means: too wide rather than too narrow. Heads with a large
effect are noisy and sampled often, so subtracting the pooled noise would often leave nothing, and a search that takes
all heads for equal stops exploring. This, and with how many heads halving begins, were chosen on validation rows.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np
from jaxtyping import Float

from vesalius_mechrl.search.budget import BudgetSpent, QueryBudget

Strategy = Callable[[QueryBudget, np.random.Generator], None]
#: Strategies that are run once per budget.
PLANNERS = frozenset({"halving"})
_MIN_TO_ESTIMATE = 8


def run_strategy(strategy: Strategy, budget: QueryBudget, rng: np.random.Generator) -> QueryBudget:
    """Run a strategy until it stops or its budget is spent."""
    with suppress(BudgetSpent):
        strategy(budget, rng)
    return budget


def in_order(order: Sequence[int], *, pay_attribution: bool = False) -> Strategy:
    """Query heads in a given order; with `pay_attribution` attribution is paid for first."""

    def strategy(budget: QueryBudget, rng: np.random.Generator) -> None:
        if pay_attribution:
            budget.attribute()
        for head in order:
            budget.query(int(head))

    return strategy


def random_order(budget: QueryBudget, rng: np.random.Generator) -> None:
    """Query heads in random order."""
    for head in rng.permutation(budget.heads):
        budget.query(int(head))


def layers_first(budget: QueryBudget, rng: np.random.Generator) -> None:
    """Query heads from the first layer up."""
    layers = np.asarray(budget.layers if budget.layers is not None else range(budget.heads))
    shuffled = rng.permutation(budget.heads)
    for head in shuffled[np.argsort(layers[shuffled], kind="stable")]:
        budget.query(int(head))


def full_sweep(budget: QueryBudget, rng: np.random.Generator) -> None:
    """Measure every head, then recommend the best."""
    rewards = [float(np.mean(budget.pull(head, budget.rows))) for head in range(budget.heads)]
    budget.recommend(int(np.argmax(rewards)))


def by_attribution(budget: QueryBudget, rng: np.random.Generator) -> None:
    """Pay for attribution, recommend its first head, then query in its order."""
    scores = budget.attribute()
    order = np.argsort(-scores, kind="stable")
    budget.recommend(int(order[0]))
    for head in order:
        budget.query(int(head))


def halving(budget: QueryBudget, rng: np.random.Generator) -> None:
    """Sequential halving: the rest of the budget is divided over the remaining rounds; each keeps the better half.

    It begins with every head, or with as many random ones as the budget allows at one row each.
    """
    candidates = [int(head) for head in rng.permutation(budget.heads)]
    while candidates := candidates[: _affordable(budget)]:
        rounds = max(1, math.ceil(math.log2(len(candidates))))
        rows_each = max(1, _affordable(budget) // (rounds * len(candidates)))
        for head in candidates:
            budget.pull(head, rows_each)
        candidates.sort(key=lambda head: -float(np.mean(budget.samples[head])))
        budget.recommend(candidates[0])
        candidates = candidates[: math.ceil(len(candidates) / 2)] if len(candidates) > 1 else []


def _affordable(budget: QueryBudget) -> int:
    """How many single rows the rest of the budget pays for."""
    return math.floor((budget.total - budget.spent) * budget.rows + 1e-9)


def thompson(prior: Float[np.ndarray, " head"] | None = None) -> Strategy:
    """Thompson sampling over heads, one row at a time; `prior` is the mean expected of each head (default 0)."""

    def strategy(budget: QueryBudget, rng: np.random.Generator) -> None:
        centre = np.zeros(budget.heads) if prior is None else np.asarray(prior, float)
        count, total, square = (np.zeros(budget.heads) for _ in range(3))
        mean, sd = _posterior(centre, count, total, square)
        while (count < budget.rows).any():
            draws = np.where(count < budget.rows, rng.normal(mean, sd), -np.inf)
            head = int(draws.argmax())
            value = budget.pull(head)[-1]
            count[head], total[head], square[head] = count[head] + 1, total[head] + value, square[head] + value**2
            mean, sd = _posterior(centre, count, total, square)
            budget.recommend(int(np.where(count > 0, mean, -np.inf).argmax()))

    return strategy


def _posterior(
    centre: Float[np.ndarray, " head"],
    count: Float[np.ndarray, " head"],
    total: Float[np.ndarray, " head"],
    square: Float[np.ndarray, " head"],
) -> tuple[Float[np.ndarray, " head"], Float[np.ndarray, " head"]]:
    """Posterior mean and standard deviation of every head's mean; both variances are estimated from the samples."""
    sampled = count > 0
    freedom = float((count[sampled] - 1).sum())
    within = float((square[sampled] - total[sampled] ** 2 / count[sampled]).sum())
    noise = within / freedom if freedom >= _MIN_TO_ESTIMATE else 1.0
    spread = 1.0
    if sampled.sum() >= _MIN_TO_ESTIMATE:
        spread = float(np.mean((total[sampled] / count[sampled] - centre[sampled]) ** 2))
    noise, spread = max(noise, 1e-6), max(spread, 1e-6)
    precision = 1 / spread + count / noise
    return (centre / spread + total / noise) / precision, np.sqrt(1 / precision)


#: The strategies that need nothing but the budget.
STANDARD: dict[str, Strategy] = {
    "random": random_order,
    "layers": layers_first,
    "sweep": full_sweep,
    "halving": halving,
    "thompson": thompson(),
}
