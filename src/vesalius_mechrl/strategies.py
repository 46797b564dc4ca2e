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
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from vesalius.components import Component
from vesalius.errors import BadInput
from vesalius.statistics import student_interval
from vesalius_mechrl.tables import ATTRIBUTION_PASSES, EVALUATION_SEED, Tables

# The budget of one search: what was measured, what it cost, and which head is recommended so far.
#
# Cost is counted in *queries*: one head ablated on all rows of the episode. One row of one head costs that fraction of
# a query; a row is a task prompt and, if there is a control, a row of control text. Attribution costs three queries,
# since a backward pass counts as two forward passes; the clean run itself is free for every strategy, as published.
#
# Every recommendation is recorded with the cost so far, so that regret can be computed for any budget. Before the first
# one the strategy has no information, and its choice is worth the mean over all heads.

#: The rewards of one head on some rows of the episode.
RewardFunction = Callable[[int, Int[np.ndarray, " row"]], Float[np.ndarray, " row"]]


class BudgetSpent(Exception):
    """The next measurement costs more than is left of the budget; ends the search."""


@dataclass
class QueryBudget:
    """Measures the heads of one episode until `total` queries are spent; the rows of a head are measured in `order`
    (default: as they are).
    """

    rewards: RewardFunction
    heads: int
    rows: int
    total: float
    attribution: Callable[[], Float[np.ndarray, " head"]] | None = None
    layers: tuple[int, ...] | None = None
    order: Int[np.ndarray, " row"] | None = None
    spent: float = 0.0
    recommendations: list[tuple[float, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._order = np.arange(self.rows) if self.order is None else self.order
        self.samples: list[list[float]] = [[] for _ in range(self.heads)]
        self._best: tuple[float, int] | None = None

    def query(self, head: int) -> float:
        """The reward of a head on all rows; recommends the best head queried so far."""
        reward = float(np.mean(self.pull(head, self.rows - len(self.samples[head]))))
        if self._best is None or reward > self._best[0]:
            self._best = reward, head
        self.recommend(self._best[1])
        return reward

    def pull(self, head: int, n: int = 1) -> list[float]:
        """Measure `n` further rows of a head; returns all its samples so far."""
        left = self.rows - len(self.samples[head])
        n = min(n, left)
        if n > 0:
            self._spend(n / self.rows)
            rows = self._order[self.rows - left : self.rows - left + n]
            self.samples[head] += [float(value) for value in self.rewards(head, rows)]
        return self.samples[head]

    def attribute(self) -> Float[np.ndarray, " head"]:
        """Every head's reward as estimated by one backward pass, for the price of three queries."""
        if self.attribution is None:
            raise BadInput("this search has no attribution; measure it with `clean_features`")
        self._spend(ATTRIBUTION_PASSES)
        return self.attribution()

    def recommend(self, head: int) -> None:
        """Record the head that is considered best now."""
        self.recommendations.append((self.spent, head))

    def can_afford(self, price: float) -> bool:
        """Whether this price is left of the budget."""
        return self.spent + price <= self.total + 1e-9

    def recommended_at(self, budget: float) -> int | None:
        """The recommendation after spending at most this much; None before the first."""
        heads = [head for spent, head in self.recommendations if spent <= budget + 1e-9]
        return heads[-1] if heads else None

    def _spend(self, price: float) -> None:
        if not self.can_afford(price):
            raise BudgetSpent
        self.spent += price


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


# Regret by budget, with every strategy on the same episodes.
#
# Regret at a budget is the episode's best reward minus the reward of the head recommended by then: never negative,
# because both come from the same episode. Before the first recommendation the reward is the mean over all heads. Each
# seed draws its own episodes; intervals are Student's, of the mean over seeds, so for trained policies they include the
# variation between training runs.

BUDGETS = (1, 2, 5, 10, 20, 50)
SEED_STEP = 100_000

#: From tables, a task, the seeds of its episodes and the comparison's seed to one strategy per episode.
StrategyFactory = Callable[[Tables, str, Sequence[int], int], Sequence[Strategy]]


@dataclass(frozen=True)
class Regret:
    """Mean regret of one strategy at each budget (in queries), with a 95 % interval over seeds (none for one seed)."""

    method: str
    budgets: tuple[float, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...] | None
    high: tuple[float, ...] | None
    seeds: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Comparison:
    """All strategies on one task; `oracle` is the mean best reward."""

    task: str
    unit: str
    episodes: int
    seeds: int
    oracle: float
    methods: tuple[Regret, ...]

    def document(self) -> dict[str, Any]:
        """The comparison for JSON."""
        return asdict(self)


def episode_seeds(seed: int, episodes: int) -> list[int]:
    """The seeds of the episodes that all strategies are compared on."""
    return [EVALUATION_SEED + SEED_STEP * seed + episode for episode in range(episodes)]


def for_every_episode(strategy: Strategy) -> StrategyFactory:
    """A factory that uses the same strategy in every episode."""
    return lambda tables, task, numbers, seed: [strategy] * len(numbers)


def standard_strategies(tables: Tables, task: str, *, ranking: Tables | None) -> dict[str, StrategyFactory]:
    """The strategies without training; `ranking` are training rows of several tasks, for the static ones."""
    strategies = {name: for_every_episode(strategy) for name, strategy in STANDARD.items()}
    if tables.features is not None:
        strategies["attribution"] = for_every_episode(by_attribution)
    scores = None if ranking is None else static_scores(ranking, task)
    if ranking is not None and scores is not None:
        strategies["static"] = for_every_episode(in_order(np.argsort(-scores, kind="stable").tolist()))
        strategies["thompson-static"] = for_every_episode(thompson(np.mean(_other_tasks(ranking, task), 0)))
    return strategies


def static_scores(ranking: Tables, task: str) -> Float[np.ndarray, " head"] | None:
    """Mean reward of every head over the other tasks, each divided by its largest reward; None without other tasks."""
    others = _other_tasks(ranking, task)
    if not others:
        return None
    return np.mean([reward / max(float(np.abs(reward).max()), 1e-12) for reward in others], 0)


def _other_tasks(ranking: Tables, task: str) -> list[Float[np.ndarray, " head"]]:
    """Mean reward of every head on each of the other tasks."""
    return [ranking.mean(name) for name in ranking.names if name != task]


def episode_budget(tables: Tables, task: str, number: int, *, budget: float) -> QueryBudget:
    """The query budget of one episode of the tables."""
    rows = tables.episode_rows(task, number)

    def rewards(head: int, index: Int[np.ndarray, " row"]) -> Float[np.ndarray, " row"]:
        return rows[index, head]

    attribution = None if tables.features is None else lambda: tables.attribution(task, number)
    return QueryBudget(rewards, len(tables.heads), tables.rows, budget, attribution, _layers(tables.heads))


@cache
def _layers(heads: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(Component.parse(head).layer for head in heads)


def compare_strategies(
    strategies: Mapping[str, StrategyFactory],
    tables: Tables,
    task: str,
    *,
    seeds: int = 5,
    episodes: int = 30,
    budgets: Sequence[float] = BUDGETS,
) -> Comparison:
    """Regret of every strategy on one task's held-out rows."""
    tables.only((task,))
    if min(seeds, episodes) < 1 or min(budgets, default=0) <= 0:
        raise BadInput("seeds, episodes and every budget must be at least 1")
    budgets_paid = sorted({min(float(budget), float(len(tables.heads))) for budget in budgets})
    curves: dict[str, list[np.ndarray]] = {}
    oracle = []
    for seed in range(seeds):
        numbers = episode_seeds(seed, episodes)
        rewards = np.stack([tables.episode(task, number) for number in numbers])
        oracle.append(rewards.max(1).mean())
        for name, factory in strategies.items():
            episode_strategies = factory(tables, task, numbers, seed)
            regrets = [
                _regrets(name, strategy, tables, task, number, reward, budgets_paid, seed)
                for strategy, number, reward in zip(episode_strategies, numbers, rewards, strict=True)
            ]
            curves.setdefault(name, []).append(np.mean(regrets, 0))
    methods = tuple(_summary(name, budgets_paid, np.stack(by_seed)) for name, by_seed in curves.items())
    return Comparison(task, tables.unit, episodes, seeds, float(np.mean(oracle)), methods)


def _regrets(
    name: str,
    strategy: Strategy,
    tables: Tables,
    task: str,
    number: int,
    rewards: Float[np.ndarray, " head"],
    budgets: Sequence[float],
    seed: int,
) -> Float[np.ndarray, " budget"]:
    """One strategy's regret in one episode, at every budget."""
    runs: list[QueryBudget] = []
    for budget in budgets if name in PLANNERS else budgets[-1:]:
        rng = np.random.default_rng([seed, number])
        runs.append(run_strategy(strategy, episode_budget(tables, task, number, budget=budget), rng))
    if name not in PLANNERS:
        runs *= len(budgets)
    recommended = [run.recommended_at(budget) for run, budget in zip(runs, budgets, strict=True)]
    return rewards.max() - np.array([rewards.mean() if head is None else rewards[head] for head in recommended])


def _summary(method: str, budgets: Sequence[float], regrets: Float[np.ndarray, "seed budget"]) -> Regret:
    mean, by_seed = tuple(regrets.mean(0).tolist()), tuple(tuple(row) for row in regrets.tolist())
    if len(regrets) < 2:
        return Regret(method, tuple(budgets), mean, None, None, by_seed)
    low, high = student_interval(regrets)
    return Regret(method, tuple(budgets), mean, tuple(np.maximum(low, 0).tolist()), tuple(high.tolist()), by_seed)
