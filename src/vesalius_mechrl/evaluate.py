"""Is a policy worth its queries? Trained policies compared with other strategies, and ranks by pick frequency.

A policy observes what it was trained on (`Settings.view`); one that observes attribution pays for it first. A planner's
candidates count as queries.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float

from vesalius.errors import BadInput
from vesalius.statistics import average_ranks
from vesalius_mechrl.environment import Episodes
from vesalius_mechrl.ppo import CONTEXT_VIEW, PER_HEAD_VIEW, Policy, play, view_of
from vesalius_mechrl.search.comparison import (
    BUDGETS,
    Comparison,
    StrategyFactory,
    compare_strategies,
    standard_strategies,
)
from vesalius_mechrl.search.strategies import Strategy, in_order
from vesalius_mechrl.tables import Tables

PUBLISHED_PLACES = 10


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
    budgets: Sequence[float] = BUDGETS,
) -> Comparison:
    """Regret of the policies and of every other strategy on one task's held-out rows (`tables`).

    `ranking` are training rows; the static strategies use its tasks other than `task`. `prime` gives the policy another
    task's label; a task it was not trained on has no label. Seed i uses policy i modulo their number.
    """
    if ranking.heads != tables.heads:
        raise BadInput("the tables to rank by have other heads than those to search; use matrices of one model")
    strategies = standard_strategies(tables, task, ranking=ranking)
    if policies:
        strategies["policy"] = policy_strategy(policies, prime=prime, k=k)
    return compare_strategies(strategies, tables, task, seeds=seeds, episodes=episodes, budgets=budgets)


def policy_strategy(policies: Sequence[Policy], *, prime: str | None = None, k: int = 1) -> StrategyFactory:
    """Policies as a strategy: seed i uses policy i modulo their number."""
    if k < 1:
        raise BadInput(f"k={k} draws no candidate; at least 1 is needed")

    def factory(tables: Tables, task: str, numbers: Sequence[int], seed: int) -> Sequence[Strategy]:
        policy = policies[seed % len(policies)]
        orders = policy_orders(policy, tables, task, numbers, prime=prime, k=k, seed=seed)
        return [in_order(order, pay_attribution=policy.settings.view == PER_HEAD_VIEW) for order in orders]

    return factory


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
    """The heads a policy queries in the episodes of these seeds, in order."""
    games = start_episodes(policy, tables, task, numbers, prime=prime)
    return play(policy.network, games, k=k, generator=torch.Generator().manual_seed(seed))


def start_episodes(
    policy: Policy, tables: Tables, task: str, numbers: Sequence[int], *, prime: str | None = None
) -> Episodes:
    """Start the episodes of these seeds with the observations of a policy."""
    settings = policy.settings
    if settings.view != PER_HEAD_VIEW and policy.heads != tables.heads:
        raise BadInput("the policy was trained on other heads than these tables have; use matrices of its model")
    games = Episodes(
        tables,
        len(numbers),
        paper=settings.paper,
        steps=settings.steps,
        labels=policy.tasks,
        prime=prime,
        view=view_of(settings, tables),
        context=settings.view == CONTEXT_VIEW,
    )
    for game, number in enumerate(numbers):
        games.begin(game, number, task)
    return games


def pick_ranks(orders: Sequence[Sequence[int]], heads: int, *, paper: bool = False) -> Float[np.ndarray, " head"]:
    """Rank of each head by how often it was picked, 1 for the most.

    Heads picked equally often share the mean of their ranks. Published: ties go to the head that was picked first, and
    all beyond ten places get the number of heads plus one.
    """
    if not paper:
        counts = _pick_counts(orders)
        return average_ranks(np.array([-counts[head] for head in range(heads)]))
    ranks = np.full(heads, heads + 1.0)
    ranking = [head for head, _ in most_picked(orders, heads, paper=True)[:PUBLISHED_PLACES]]
    ranks[ranking] = np.arange(1, len(ranking) + 1)
    return ranks


def most_picked(orders: Sequence[Sequence[int]], heads: int, *, paper: bool = False) -> list[tuple[int, int]]:
    """Heads with how often each was picked, the most first; those never picked are left out.

    Heads picked equally often follow in the order of the model. Published: in the order in which they were first
    picked.
    """
    counts = _pick_counts(orders)
    if paper:
        return counts.most_common()
    return sorted(((head, counts[head]) for head in range(heads) if counts[head]), key=lambda pick: -pick[1])


def _pick_counts(orders: Sequence[Sequence[int]]) -> Counter[int]:
    return Counter(head for order in orders for head in order)
