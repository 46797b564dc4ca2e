"""Regret by budget, with every strategy on the same episodes.

Regret at a budget is the episode's best reward minus the reward of the head recommended by then: never negative,
because both come from the same episode. Before the first recommendation the reward is the mean over all heads. Each
seed draws its own episodes; intervals are Student's, of the mean over seeds, so for trained policies they include the
variation between training runs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from vesalius.components import Component
from vesalius.errors import BadInput
from vesalius.statistics import student_interval
from vesalius_mechrl.search.budget import QueryBudget
from vesalius_mechrl.search.strategies import (
    PLANNERS,
    STANDARD,
    Strategy,
    by_attribution,
    in_order,
    run_strategy,
    thompson,
)
from vesalius_mechrl.tables import EVALUATION_SEED, Tables

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
