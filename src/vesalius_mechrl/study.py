"""The published tables on a measured suite, as published and corrected.

1. Policy and oracle per task. 2. Ranks of the induction heads. 3. Categories of heads among the ten most picked.
4. Transfer to tasks that were not trained on, with K = 1 and K = 5 in every priming condition. In addition, the ten
most picked heads of every policy, and the regret of every strategy by budget on every task.

As published (`paper`): policies trained with the quirks listed in `environment.PAPER_QUIRKS`; one head is drawn per
step at test time, whatever K the policy was trained with; policy and oracle are averaged over different numbers of
episodes, and held-out tasks are primed as the first training task in Table 1. Corrected: the same 50 queries for all on
the same episodes, ranks that average ties, no label for a held-out task, and K at test time with every candidate
counted as a query.

The heads of Tables 2 and 3 are the published ones for GPT-2 small and detected ones for any other model
(`suite.canonical_heads`).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from vesalius.errors import BadInput
from vesalius.statistics import average_ranks, student_interval
from vesalius_mechrl.environment import Episodes
from vesalius_mechrl.ppo import Policy, games_of, play
from vesalius_mechrl.settings import PER_HEAD_VIEW
from vesalius_mechrl.strategies import (
    BUDGETS,
    Comparison,
    Strategy,
    StrategyFactory,
    compare_strategies,
    episode_seeds,
    in_order,
    standard_strategies,
)
from vesalius_mechrl.suite import Canonical, Suite, canonical_heads
from vesalius_mechrl.tables import Tables
from vesalius_mechrl.trainings import (
    PAPER_ORACLE_EPISODES,
    PAPER_POLICY_EPISODES,
    PAPER_TRANSFER_EPISODES,
    PAPER_TRANSFER_ORACLE,
    PLANNED_K,
    Scope,
    entropies,
    is_learned,
    planned_name,
)

# Is a policy worth its queries? Trained policies compared with other strategies, and ranks by pick frequency.
#
# A policy observes what it was trained on (`Settings.view`); one that observes attribution pays for it first. A
# planner's candidates count as queries.

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
    games = games_of(settings, tables, len(numbers), policy.tasks, prime=prime, paper=settings.paper)
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


def study(
    suite: Suite,
    policies: Mapping[str, Sequence[Policy]],
    scope: Scope,
    *,
    canonical: Canonical | None = None,
    comparisons: Sequence[Comparison] | None = None,
) -> dict[str, Any]:
    """All tables of one mode as a document; `canonical` are the heads to look for (default: detected ones),
    `comparisons` those of every task (default: played now).
    """
    canonical = canonical or canonical_heads(suite)
    if comparisons is None:
        comparisons = [compare_on(suite, policies, task, scope) for task in suite.test.names]
    tables = {
        "table1": table_of_gaps(suite, policies, scope),
        "table2": table_of_ranks(suite, policies, scope, canonical),
        "table3": table_of_groups(suite, policies, scope, canonical),
        "table4": table_of_transfer(suite, policies, comparisons, scope),
    }
    return {
        "mode": "paper" if scope.paper else "corrected",
        "unit": suite.test.unit,
        "seeds": scope.seeds,
        "steps": scope.steps,
        "episodes": scope.episodes,
        "episode_picks": scope.picks,
        "batches": suite.batches,
        "heads": len(suite.test.heads),
        "rows_per_episode": suite.test.rows,
        "training_tasks": list(suite.train.names),
        "held_out": list(suite.held_out),
        "control": suite.control,
        "canonical": canonical.sources,
        **tables,
        "picks": table_of_picks(suite, policies, scope),
        "regret": [comparison.document() for comparison in comparisons],
        "verdicts": [] if scope.paper else verdicts(comparisons, suite.held_out),
        "entropy": entropies(policies),
        "curves": {name: [policy.curve for policy in trained] for name, trained in policies.items()},
    }


def table_of_gaps(suite: Suite, policies: Mapping[str, Sequence[Policy]], scope: Scope) -> list[dict[str, Any]]:
    """Table 1: best reward found in an episode, and the best that exists."""
    rows = []
    for name, trained in policies.items():
        for task in suite.test.names:
            prime = suite.train.names[0] if scope.paper and task in suite.held_out else None
            policy, oracle = [], []
            for seed, trained_policy in enumerate(trained):
                numbers = episode_seeds(seed, PAPER_POLICY_EPISODES if scope.paper else scope.episodes)
                policy.append(_mean_best(trained_policy, suite, task, numbers, seed, prime=prime))
                oracle_episodes = numbers[:PAPER_ORACLE_EPISODES] if scope.paper else numbers
                oracle.append(np.mean([suite.test.episode(task, number).max() for number in oracle_episodes]))
            gap = np.array(policy) - np.array(oracle)
            figures = {"policy": _figure(policy), "oracle": _figure(oracle), "gap": _figure(gap)}
            rows.append({"task": task, "held_out": task in suite.held_out, "method": name, **figures})
    return rows


def table_of_ranks(
    suite: Suite, policies: Mapping[str, Sequence[Policy]], scope: Scope, canonical: Canonical
) -> list[dict[str, Any]]:
    """Table 2: the ranks of the canonical heads of the first training task by pick frequency and by mean reward."""
    task = suite.train.names[0]
    episodes = PAPER_ORACLE_EPISODES if scope.paper else scope.episodes
    oracle = _oracle_ranks(suite, task, episodes)
    rows = []
    for name, trained in policies.items():
        ranks = _picks(trained, suite, task, scope)
        for head in canonical.ranked:
            place = suite.test.heads.index(head)
            row = {"head": head, "method": name, "policy_ranks": [float(each[place]) for each in ranks]}
            rows.append({**row, "oracle_rank": float(oracle[place])})
    return rows


def table_of_groups(
    suite: Suite, policies: Mapping[str, Sequence[Policy]], scope: Scope, canonical: Canonical
) -> list[dict[str, Any]]:
    """Table 3: how many heads of each category are among the ten most picked on the last training task.

    Heads tied across the tenth place count fractionally. A category without heads has no overlap.
    """
    task, rows = suite.train.names[-1], []
    for name, trained in policies.items():
        ranks = _picks(trained, suite, task, scope)
        for group in canonical.categories:
            members = [suite.test.heads.index(head) for head in group.heads or ()]
            overlap = [float(_in_top_ten(each)[members].sum()) for each in ranks] if group.heads is not None else []
            row = {"group": group.name, "size": group.size, "method": name, "overlap": overlap}
            rows.append({**row, "members": None if group.heads is None else list(group.heads)})
    return rows


def table_of_picks(suite: Suite, policies: Mapping[str, Sequence[Policy]], scope: Scope) -> list[dict[str, Any]]:
    """The ten most picked heads of every policy on every training task, in order, with how often each was picked."""
    rows = []
    for task in suite.train.names:
        for name, trained in policies.items():
            for seed, orders in enumerate(_orders(trained, suite, task, scope)):
                counts = most_picked(orders, len(suite.test.heads), paper=scope.paper)
                shown = counts[:PUBLISHED_PLACES]
                heads = [{"head": suite.test.heads[head], "count": count} for head, count in shown]
                tied = sum(count == shown[-1][1] for _, count in counts[PUBLISHED_PLACES:])
                row = {"task": task, "method": name, "seed": seed + 1, "episodes": len(orders)}
                rows.append({**row, "heads": heads, "tied_with_last": tied})
    return rows


def table_of_transfer(
    suite: Suite, policies: Mapping[str, Sequence[Policy]], comparisons: Sequence[Comparison], scope: Scope
) -> list[dict[str, Any]]:
    """Table 4: best reward found on held-out tasks with the queries of an episode (published: 50 steps)."""
    rows: list[dict[str, Any]] = []
    by_task = {comparison.task: comparison for comparison in comparisons}
    for task in suite.held_out:
        episodes = PAPER_TRANSFER_EPISODES if scope.paper else scope.episodes
        for name, trained in policies.items():
            labelled = trained[0].settings.view == "one-hot"
            planned = {name: 1} if scope.paper else {name: 1, planned_name(name): PLANNED_K}
            for method, k in planned.items():
                for prime in (None, *suite.train.names) if labelled else (None,):
                    best = [
                        _mean_best(each, suite, task, episode_seeds(seed, episodes), seed, prime=prime, k=k)
                        for seed, each in enumerate(trained)
                    ]
                    condition = "no label" if prime is None else f"primed {prime}"
                    rows.append({"task": task, "condition": condition, "method": method, "found": _figure(best)})
        comparison = by_task[task]
        others = ("static", "attribution", "thompson", "thompson-static", "halving")
        for regret in comparison.methods:
            if regret.method == "random" or (not scope.paper and regret.method in others):
                at = regret.budgets.index(min(float(scope.picks), regret.budgets[-1]))
                best = [_oracle(suite, task, seed, scope.episodes) - each[at] for seed, each in enumerate(regret.seeds)]
                rows.append({"task": task, "condition": "", "method": regret.method, "found": _figure(best)})
        oracle_episodes = PAPER_TRANSFER_ORACLE if scope.paper else scope.episodes
        best = [_oracle(suite, task, seed, oracle_episodes) for seed in range(scope.seeds)]
        rows.append({"task": task, "condition": "", "method": "oracle", "found": _figure(best)})
    return rows


def verdicts(comparisons: Sequence[Comparison], held_out: Sequence[str]) -> list[dict[str, Any]]:
    """Per task and budget: the other strategy with the least regret, and whether the best learned policy beats it.

    Both used the same episodes, so their regrets are compared seed by seed: `wins` and `loses` need a 95 % interval of
    the mean difference without 0; otherwise it is a draw. The best of either side is chosen on these same episodes.
    """
    rows = []
    for comparison in comparisons:
        for place, budget in enumerate(comparison.methods[0].budgets):
            policy = min((m for m in comparison.methods if is_learned(m.method)), key=lambda m: m.mean[place])
            rival = min((m for m in comparison.methods if not is_learned(m.method)), key=lambda m: m.mean[place])
            less = _figure([one[place] - other[place] for one, other in zip(policy.seeds, rival.seeds, strict=True)])
            result = "draw"
            if less["low"] is not None and not less["low"] <= 0 <= less["high"]:
                result = "wins" if less["value"] < 0 else "loses"
            regrets = {"policy_regret": policy.mean[place], "rival_regret": rival.mean[place], "difference": less}
            row = {
                "task": comparison.task,
                "held_out": comparison.task in held_out,
                "budget": budget,
                "policy": policy.method,
            }
            rows.append({**row, "rival": rival.method, **regrets, "result": result})
    return rows


def compare_on(suite: Suite, policies: Mapping[str, Sequence[Policy]], task: str, scope: Scope) -> Comparison:
    """Every policy and every other strategy on one task."""
    strategies = standard_strategies(suite.test, task, ranking=suite.train)
    for name, trained in policies.items():
        strategies[name] = policy_strategy(trained)
        if not scope.paper:
            strategies[planned_name(name)] = policy_strategy(trained, k=PLANNED_K)
    return compare_strategies(
        strategies, suite.test, task, seeds=scope.seeds, episodes=scope.episodes, budgets=scope.budgets_paid
    )


def _mean_best(
    policy: Policy, suite: Suite, task: str, numbers: Sequence[int], seed: int, *, prime: str | None = None, k: int = 1
) -> float:
    """Mean best reward of a policy over episodes, with best-of-`k` planning."""
    games = start_episodes(policy, suite.test, task, numbers, prime=prime)
    play(policy.network, games, k=k, generator=torch.Generator().manual_seed(seed))
    return float(games.best.mean())


def _oracle(suite: Suite, task: str, seed: int, episodes: int) -> float:
    return float(np.mean([suite.test.episode(task, number).max() for number in episode_seeds(seed, episodes)]))


def _oracle_ranks(suite: Suite, task: str, episodes: int) -> Float[np.ndarray, " head"]:
    mean = np.mean([suite.test.episode(task, number) for number in episode_seeds(0, episodes)], 0)
    return np.argsort(np.argsort(-mean, kind="stable"), kind="stable") + 1.0


def _picks(trained: Sequence[Policy], suite: Suite, task: str, scope: Scope) -> list[Float[np.ndarray, " head"]]:
    """Ranks by pick frequency, one array per seed."""
    heads = len(suite.test.heads)
    return [pick_ranks(orders, heads, paper=scope.paper) for orders in _orders(trained, suite, task, scope)]


def _orders(trained: Sequence[Policy], suite: Suite, task: str, scope: Scope) -> list[list[list[int]]]:
    """The heads picked in each episode, in order, one list of episodes per seed."""
    episodes = PAPER_POLICY_EPISODES if scope.paper else scope.episodes
    return [
        policy_orders(policy, suite.test, task, episode_seeds(seed, episodes), seed=seed)
        for seed, policy in enumerate(trained)
    ]


def _in_top_ten(ranks: Float[np.ndarray, " head"]) -> Float[np.ndarray, " head"]:
    """1 for a head within the first ten places, 0 beyond, a fraction for heads tied across the tenth."""
    inside = np.zeros(len(ranks))
    left = 10.0
    for rank in np.unique(ranks):
        tied = ranks == rank
        if rank > len(ranks) or left <= 0:
            break
        inside[tied] = min(1.0, left / tied.sum())
        left -= tied.sum()
    return inside


def _figure(values: Sequence[float] | Float[np.ndarray, " seed"]) -> dict[str, Any]:
    """Mean over seeds with its interval."""
    each = np.asarray(values, float)
    low, high = (None, None)
    if len(each) > 1:
        low, high = (float(bound[0]) for bound in student_interval(each[:, None]))
    return {"value": float(each.mean()), "low": low, "high": high, "n": len(each)}
