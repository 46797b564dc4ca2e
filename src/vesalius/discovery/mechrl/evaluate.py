"""Is the policy worth its queries? Trained policies as rivals in the contest, and ranks by how often a head is picked.

A policy enters with its own way of seeing (`Settings.view`); one that sees attribution pays for it first. A planner's
candidates are queries like any other.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from scipy.stats import rankdata

from vesalius.discovery.mechrl.environment import Episodes
from vesalius.discovery.mechrl.ppo import Policy, play, view_of
from vesalius.discovery.mechrl.tables import Tables
from vesalius.discovery.search.contest import BUDGETS, Comparison, Entrant, contest, standard_entrants
from vesalius.discovery.search.rivals import Search, in_order
from vesalius.errors import BadInput

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
    """Regret of the policies and of every other rival on one task's held-out rows (`tables`).

    `ranking` are training rows; the static lists are made of its tasks other than `task`. `prime` shows the policy
    another task's label; a task it was not trained on shows no label. Seed i uses policy i (round and round).
    """
    if ranking.heads != tables.heads:
        raise BadInput("the tables to rank by have other heads than those to search; use matrices of one model")
    entrants = standard_entrants(tables, task, ranking=ranking)
    if policies:
        entrants["policy"] = policy_entrant(policies, prime=prime, k=k)
    return contest(entrants, tables, task, seeds=seeds, episodes=episodes, budgets=budgets)


def policy_entrant(policies: Sequence[Policy], *, prime: str | None = None, k: int = 1) -> Entrant:
    """Policies as an entrant: seed i plays policy i (round and round)."""
    if k < 1:
        raise BadInput(f"k={k} draws no candidate; at least 1 is needed")

    def searches(tables: Tables, task: str, numbers: Sequence[int], seed: int) -> Sequence[Search]:
        policy = policies[seed % len(policies)]
        orders = policy_orders(policy, tables, task, numbers, prime=prime, k=k, seed=seed)
        return [in_order(order, attributing=policy.settings.view == "per-head") for order in orders]

    return searches


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
    games = begun(policy, tables, task, numbers, prime=prime)
    return play(policy.network, games, k=k, generator=torch.Generator().manual_seed(seed))


def begun(policy: Policy, tables: Tables, task: str, numbers: Sequence[int], *, prime: str | None = None) -> Episodes:
    """The episodes of these seeds as a policy sees them, ready to be played."""
    settings = policy.settings
    if settings.view == "one-hot" and policy.heads != tables.heads:
        raise BadInput("the policy was trained on other heads than these tables have; use matrices of its model")
    games = Episodes(
        tables,
        len(numbers),
        paper=settings.paper,
        steps=settings.steps,
        labels=policy.tasks,
        prime=prime,
        view=view_of(settings, tables),
    )
    for game, number in enumerate(numbers):
        games.begin(game, number, task)
    return games


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
