"""Is the policy worth its queries? Regret against queries paid, every method on the same episodes.

Regret after q queries is the episode's best reward less the best among the q heads paid for: never negative, whoever
searches, because both come from the same episode. A planner's candidates are queries like any other. Compared are

- `policy`: heads in the order the trained policy pays for them;
- `random`: heads in random order;
- `static`: heads by their mean reward on the training rows of the other tasks, one list for every episode;
- `sweep`: every head, in order of layers; exact once all are paid for.

Each seed draws its own episodes and picks (and may have its own policy); intervals are over seeds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.stats import rankdata

from vesalius.discovery.mechrl.environment import Episodes
from vesalius.discovery.mechrl.ppo import EVALUATION_SEED, Policy, play
from vesalius.discovery.mechrl.tables import Tables
from vesalius.errors import BadInput
from vesalius.intervene.statistics import mean_interval

BUDGETS = (1, 2, 5, 10, 20, 50)
SEED_STEP = 100_000
PUBLISHED_PLACES = 10


@dataclass(frozen=True)
class Regret:
    """Mean regret of one method at each budget, with a 95 % interval over seeds (none for a single seed)."""

    method: str
    budgets: tuple[int, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...] | None
    high: tuple[float, ...] | None


@dataclass(frozen=True)
class Comparison:
    """All methods on one task."""

    task: str
    unit: str
    episodes: int
    seeds: int
    oracle: float
    methods: tuple[Regret, ...]

    def document(self) -> dict[str, Any]:
        """The comparison as JSON can hold it."""
        return asdict(self)


def regret_curve(
    rewards: Float[np.ndarray, "episode head"], orders: Sequence[Sequence[int]], budgets: Sequence[int]
) -> Float[np.ndarray, " budget"]:
    """Mean regret after each number of queries; a method that stopped earlier keeps what it had."""
    best = rewards.max(1)
    found = np.zeros(len(budgets))
    for row, order, top in zip(rewards, orders, best, strict=True):
        so_far = np.maximum.accumulate(row[list(order)])
        found += [top - so_far[min(budget, len(order)) - 1] for budget in budgets]
    return found / len(rewards)


def compare(
    policies: Sequence[Policy],
    tables: Tables,
    task: str,
    *,
    ranking: Tables,
    prime: str | None = None,
    k: int = 1,
    seeds: int = 5,
    episodes: int = 30,
    budgets: Sequence[int] = BUDGETS,
) -> Comparison:
    """Regret of every method on one task's held-out rows (`tables`).

    `ranking` are training rows; the static list is made of its tasks other than `task`. `prime` shows the policy
    another task's label; a task it was not trained on shows no label. Seed i uses policy i (round and round).
    """
    tables.only((task,))
    if min(seeds, episodes, k, *budgets) < 1:
        raise BadInput("seeds, episodes, k and every budget must be at least 1")
    if ranking.heads != tables.heads:
        raise BadInput("the tables to rank by have other heads than those to search; use matrices of one model")
    for policy in policies:
        if policy.heads != tables.heads:
            raise BadInput("the policy was trained on other heads than these tables have; use matrices of its model")
    known = sorted({min(int(budget), len(tables.heads)) for budget in (*budgets, len(tables.heads))})
    curves: dict[str, list[np.ndarray]] = {}
    oracle = []
    for seed in range(seeds):
        numbers = [EVALUATION_SEED + SEED_STEP * seed + episode for episode in range(episodes)]
        rewards = np.stack([tables.episode(task, number) for number in numbers])
        oracle.append(rewards.max(1).mean())
        orders: dict[str, Sequence[Sequence[int]]] = dict(_fixed_orders(ranking, task, episodes, seed))
        if policies:
            policy = policies[seed % len(policies)]
            orders["policy"] = policy_orders(policy, tables, task, numbers, prime=prime, k=k, seed=seed)
        for method, order in orders.items():
            curves.setdefault(method, []).append(regret_curve(rewards, order, known))
    methods = tuple(_summary(method, known, np.stack(found)) for method, found in curves.items())
    return Comparison(task, tables.unit, episodes, seeds, float(np.mean(oracle)), methods)


def policy_orders(
    policy: Policy,
    tables: Tables,
    task: str,
    numbers: Sequence[int],
    *,
    prime: str | None = None,
    k: int = 1,
    seed: int = 0,
) -> list[list[int]]:
    """The heads a policy pays for in the episodes of these seeds, in order."""
    games = Episodes(
        tables, len(numbers), paper=policy.settings.paper, steps=policy.settings.steps, labels=policy.tasks, prime=prime
    )
    for game, number in enumerate(numbers):
        games.begin(game, number, task)
    return play(policy.network, games, k=k, generator=torch.Generator().manual_seed(seed))


def pick_ranks(orders: Sequence[Sequence[int]], heads: int, *, paper: bool = False) -> Float[np.ndarray, " head"]:
    """Rank of each head by how often it was picked, 1 for the most.

    Heads picked equally often share the mean of their places. Published: whichever was picked first goes first, and
    all beyond ten places count as one more than the number of heads.
    """
    counts: dict[int, int] = {}
    for order in orders:
        for head in order:
            counts[head] = counts.get(head, 0) + 1
    if not paper:
        return rankdata([-counts.get(head, 0) for head in range(heads)], method="average")
    ranks = np.full(heads, heads + 1.0)
    listed = sorted(counts, key=lambda head: -counts[head])[:PUBLISHED_PLACES]
    ranks[listed] = np.arange(1, len(listed) + 1)
    return ranks


def static_order(ranking: Tables, task: str) -> Int[np.ndarray, " head"] | None:
    """Heads by mean reward over the other tasks, each scaled to its largest; None if there is no other task."""
    others = [ranking.mean(name) for name in ranking.names if name != task]
    if not others:
        return None
    scaled = [reward / max(float(np.abs(reward).max()), 1e-12) for reward in others]
    return np.argsort(-np.mean(scaled, 0), kind="stable")


def _fixed_orders(ranking: Tables, task: str, episodes: int, seed: int) -> Mapping[str, list[list[int]]]:
    """Orders that need no policy."""
    heads, rng = len(ranking.heads), np.random.default_rng(seed)
    orders = {
        "random": [rng.permutation(heads).tolist() for _ in range(episodes)],
        "sweep": [list(range(heads))] * episodes,
    }
    order = static_order(ranking, task)
    return orders if order is None else {**orders, "static": [order.tolist()] * episodes}


def _summary(method: str, budgets: Sequence[int], found: Float[np.ndarray, "seed budget"]) -> Regret:
    mean = tuple(found.mean(0).tolist())
    if len(found) < 2:
        return Regret(method, tuple(budgets), mean, None, None)
    low, high = mean_interval(torch.from_numpy(found))
    return Regret(method, tuple(budgets), mean, tuple(low.tolist()), tuple(high.tolist()))
