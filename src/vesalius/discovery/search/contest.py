"""Regret against what was paid, every rival on the same episodes.

Regret at a budget is the episode's best reward less the reward of the head named by then: never negative, whoever
searches, because both come from the same episode. A head named before anything was paid for is worth the mean of all.
Each seed draws its own episodes; intervals are Student's, of the mean over seeds, so for rivals that are trained they
hold the luck of training as well.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from vesalius.components import Component
from vesalius.discovery.mechrl.tables import EVALUATION_SEED, Tables
from vesalius.discovery.search.purse import Purse
from vesalius.discovery.search.rivals import PLAIN, PLANNERS, Search, by_attribution, in_order, spend, thompson
from vesalius.errors import BadInput
from vesalius.statistics import student_interval

BUDGETS = (1, 2, 5, 10, 20, 50)
SEED_STEP = 100_000

#: From tables, a task, the seeds of its episodes and the contest's seed to one search per episode.
Entrant = Callable[[Tables, str, Sequence[int], int], Sequence[Search]]


@dataclass(frozen=True)
class Regret:
    """Mean regret of one rival at each budget (in queries), with a 95 % interval over seeds (none for one seed)."""

    method: str
    budgets: tuple[float, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...] | None
    high: tuple[float, ...] | None
    seeds: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Comparison:
    """All rivals on one task; `oracle` is the mean best reward."""

    task: str
    unit: str
    episodes: int
    seeds: int
    oracle: float
    methods: tuple[Regret, ...]

    def document(self) -> dict[str, Any]:
        """The comparison as JSON can hold it."""
        return asdict(self)


def episode_seeds(seed: int, episodes: int) -> list[int]:
    """The seeds of the episodes on which everybody is judged."""
    return [EVALUATION_SEED + SEED_STEP * seed + episode for episode in range(episodes)]


def same_for_all(search: Search) -> Entrant:
    """An entrant that searches every episode alike."""
    return lambda tables, task, numbers, seed: [search] * len(numbers)


def standard_entrants(tables: Tables, task: str, *, ranking: Tables | None) -> dict[str, Entrant]:
    """The rivals that learn nothing in training; `ranking` are training rows of several tasks, for the static ones."""
    entrants = {name: same_for_all(search) for name, search in PLAIN.items()}
    if tables.known is not None:
        entrants["attribution"] = same_for_all(by_attribution)
    scores = None if ranking is None else static_scores(ranking, task)
    if ranking is not None and scores is not None:
        entrants["static"] = same_for_all(in_order(np.argsort(-scores, kind="stable").tolist()))
        entrants["thompson-static"] = same_for_all(thompson(np.mean(_elsewhere(ranking, task), 0)))
    return entrants


def static_scores(ranking: Tables, task: str) -> Float[np.ndarray, " head"] | None:
    """Mean reward of every head over the other tasks' rows, each task scaled to its largest; None without another."""
    others = _elsewhere(ranking, task)
    if not others:
        return None
    return np.mean([reward / max(float(np.abs(reward).max()), 1e-12) for reward in others], 0)


def _elsewhere(ranking: Tables, task: str) -> list[Float[np.ndarray, " head"]]:
    """Mean reward of every head on each of the other tasks."""
    return [ranking.mean(name) for name in ranking.names if name != task]


def purse_of(tables: Tables, task: str, number: int, *, budget: float) -> Purse:
    """The purse of one episode of the tables."""
    rows = tables.episode_rows(task, number)

    def look(head: int, which: Int[np.ndarray, " row"]) -> Float[np.ndarray, " row"]:
        return rows[which, head]

    attribution = None if tables.known is None else lambda: tables.attribution(task, number)
    return Purse(look, len(tables.heads), tables.rows, budget, attribution, _layers(tables.heads))


@cache
def _layers(heads: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(Component.parse(head).layer for head in heads)


def contest(
    entrants: Mapping[str, Entrant],
    tables: Tables,
    task: str,
    *,
    seeds: int = 5,
    episodes: int = 30,
    budgets: Sequence[float] = BUDGETS,
) -> Comparison:
    """Regret of every entrant on one task's held-out rows."""
    tables.only((task,))
    if min(seeds, episodes) < 1 or min(budgets, default=0) <= 0:
        raise BadInput("seeds, episodes and every budget must be at least 1")
    known = sorted({min(float(budget), float(len(tables.heads))) for budget in budgets})
    curves: dict[str, list[np.ndarray]] = {}
    oracle = []
    for seed in range(seeds):
        numbers = episode_seeds(seed, episodes)
        rewards = np.stack([tables.episode(task, number) for number in numbers])
        oracle.append(rewards.max(1).mean())
        for name, entrant in entrants.items():
            searches = entrant(tables, task, numbers, seed)
            found = [
                _regrets(name, search, tables, task, number, reward, known, seed)
                for search, number, reward in zip(searches, numbers, rewards, strict=True)
            ]
            curves.setdefault(name, []).append(np.mean(found, 0))
    methods = tuple(_summary(name, known, np.stack(found)) for name, found in curves.items())
    return Comparison(task, tables.unit, episodes, seeds, float(np.mean(oracle)), methods)


def _regrets(
    name: str,
    search: Search,
    tables: Tables,
    task: str,
    number: int,
    rewards: Float[np.ndarray, " head"],
    budgets: Sequence[float],
    seed: int,
) -> Float[np.ndarray, " budget"]:
    """One rival's regret in one episode, at every budget."""
    purses: list[Purse] = []
    for budget in budgets if name in PLANNERS else budgets[-1:]:
        rng = np.random.default_rng([seed, number])
        purses.append(spend(search, purse_of(tables, task, number, budget=budget), rng))
    if name not in PLANNERS:
        purses *= len(budgets)
    named = [purse.named_at(budget) for purse, budget in zip(purses, budgets, strict=True)]
    return rewards.max() - np.array([rewards.mean() if head is None else rewards[head] for head in named])


def _summary(method: str, budgets: Sequence[float], found: Float[np.ndarray, "seed budget"]) -> Regret:
    mean, each = tuple(found.mean(0).tolist()), tuple(tuple(row) for row in found.tolist())
    if len(found) < 2:
        return Regret(method, tuple(budgets), mean, None, None, each)
    low, high = student_interval(found)
    return Regret(method, tuple(budgets), mean, tuple(np.maximum(low, 0).tolist()), tuple(high.tolist()), each)
