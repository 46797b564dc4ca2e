"""Searches for sets under a budget of queries, all with the same signature.

| search   | idea                                                                            | queries, n heads       |
|----------|---------------------------------------------------------------------------------|------------------------|
| `pairs`  | every head and every pair: exact for pairs                                      | n(n+1)/2               |
| `greedy` | add the head that gains most, until none is worth its price                     | n + (n-1) + ...        |
| `beam`   | the same with several sets at a time; greedy's set is always among them         | about width times that |
| `prune`  | ablate everything, then restore each head that is not needed; in three orders   | 3n + 1 and a few       |
| `group`  | group testing for heads that together do more than the sum of each alone        | n + a few log2(n)      |
| `growth` | pairs whose second head is estimated to grow once a strong first one is ablated | n + 64, 33 gradients   |

A search queries `SetQueries` and yields the sets it suspects of being backups, so that those found before the budget is
spent are kept; the best set is the best of all measured ones. `greedy` and `beam` build on single effects and so cannot
detect two heads without single effects. `prune` and `group` start with everything ablated, where backups have already
failed; where many heads carry a behaviour in series nothing is left to show by then. `growth` ablates two at a time.

`group`, in steps. (1) Measure every head alone; call those below `goal.least` weak. (2) The surplus of a set is its
effect minus the sum of its heads' single effects. If all weak heads together have a surplus of at least `least`,
bisect: find the shortest prefix of the weak heads that has it; its last head is needed; keep that head and continue
with the prefix before it, until the kept heads have the surplus themselves. (3) Exclude one head of the set found and
search again, for each of its heads: Reiter's hitting-set tree, which finds every minimal set if surplus grows with the
set. (4) Then, for each head that is not weak, the same with that head always ablated: weak heads that are its backups.

Surplus need not grow with the set: heads that work in series have negative surplus and can hide a backup in a large
set. What `group` finds exists; it may miss others.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import torch

from vesalius.discovery.rivals import FIRST, PROPOSED, growing_pairs
from vesalius.errors import BadInput
from vesalius_mechrl.sets.sources import BEAM_WIDTH, Goal, HeadSet, LiveSource, SetQueries
from vesalius_mechrl.strategies import BudgetSpent

STARTS = 3
Search = Callable[[SetQueries, Goal], Iterator[HeadSet]]


def search(queries: SetQueries, goal: Goal, strategy: Search) -> tuple[list[HeadSet], bool]:
    """Run a search; returns the suspected sets, and whether it finished before the budget was spent."""
    suspected: list[HeadSet] = []
    try:
        for members in strategy(queries, goal):
            suspected.append(members)
    except BudgetSpent:
        return suspected, False
    return suspected, True


def pairs(queries: SetQueries, goal: Goal) -> Iterator[HeadSet]:
    """Every head, then every pair; suspects the pairs whose surplus is at least `goal.least`."""
    needed = queries.n * (queries.n + 1) // 2
    if queries.budget < needed:
        raise BadInput(
            f"all heads and pairs of {queries.n} heads cost {needed} queries and the budget is {queries.budget}; "
            "raise it, name fewer heads, or search by group"
        )
    queries.worth(_singles(queries))
    all_pairs = [frozenset(pair) for pair in itertools.combinations(range(queries.n), 2)]
    queries.worth(all_pairs)
    yield from (members for members in all_pairs if surplus(queries, members) >= goal.least)


def greedy(queries: SetQueries, goal: Goal) -> Iterator[HeadSet]:
    """Add the head that gains most, as long as its gain exceeds its price."""
    return _grow(queries, goal, width=1)


def beam(queries: SetQueries, goal: Goal, *, width: int = BEAM_WIDTH) -> Iterator[HeadSet]:
    """Grow several sets at a time."""
    return _grow(queries, goal, width=width)


def prune(queries: SetQueries, goal: Goal, *, starts: int = STARTS, seed: int = 0) -> Iterator[HeadSet]:
    """From all heads, restore one after the other whenever the set's value does not fall.

    The remaining set depends on the order, so several are used: the order of the layers, then random ones.
    """
    _needs_large_sets(queries)
    rng = np.random.default_rng(seed)
    for start in range(starts):
        current = frozenset(range(queries.n))
        queries.one(current)
        for head in rng.permutation(queries.n).tolist() if start else range(queries.n):
            without = current - {head}
            queries.one(without)
            if queries.value(without, goal) >= queries.value(current, goal):
                current = without
    yield from suspects(queries, goal, queries.best(goal))


def group(queries: SetQueries, goal: Goal) -> Iterator[HeadSet]:
    """Group testing on surplus; suspected sets are minimal."""
    _needs_large_sets(queries)
    alone = queries.worth(_singles(queries))
    weak = [head for head in range(queries.n) if alone[head] < goal.least]
    unassigned = set(weak)
    for members in _minimal_sets(queries, goal, weak, frozenset()):
        unassigned -= members
        yield members
    for head in sorted(set(range(queries.n)) - set(weak), key=lambda head: -alone[head]):
        for members in _minimal_sets(queries, goal, sorted(unassigned), frozenset({head})):
            yield members | {head}


def growth(queries: SetQueries, goal: Goal) -> Iterator[HeadSet]:
    """Every head, then the pairs that gradients propose (`vesalius.discovery.rivals`); suspects those whose surplus
    is at least `goal.least`.
    """
    source = queries.source
    if not isinstance(source, LiveSource):
        raise BadInput("this search takes gradients and a table has none; run the model instead")
    alone = queries.worth(_singles(queries))
    first = sorted(range(queries.n), key=lambda head: (-abs(alone[head]), head))[:FIRST]
    place = {part: i for i, part in enumerate(source.components)}
    grown, heads = torch.from_numpy(source.growth(first)), source.components
    proposed = growing_pairs(grown, heads, [heads[head] for head in first], most=PROPOSED)
    sets = [frozenset(place[part] for part in pair) for pair in proposed]
    queries.worth(sets)
    yield from (members for members in sets if surplus(queries, members) >= goal.least)


SEARCHES: dict[str, Search] = {
    "pairs": pairs,
    "greedy": greedy,
    "beam": beam,
    "prune": prune,
    "group": group,
    "growth": growth,
}


def surplus(queries: SetQueries, members: HeadSet, given: HeadSet = frozenset()) -> float:
    """The effect of a set, with `given` ablated as well, minus its heads' single effects: above 0 for backups, below 0
    for heads in series.
    """
    alone = sum(queries.worth(frozenset({head}) for head in sorted(members)))
    return queries.one(members | given) - queries.one(given) - alone


def suspects(queries: SetQueries, goal: Goal, members: HeadSet) -> list[HeadSet]:
    """The heads of a set whose effect in it exceeds their single effect by `goal.least`, as one suspected group."""
    if len(members) < 2:
        return []
    whole = queries.one(members)
    order = sorted(members)
    without = queries.worth(members - {head} for head in order)
    alone = queries.worth(frozenset({head}) for head in order)
    suspected = frozenset(
        head for head, rest, single in zip(order, without, alone, strict=True) if whole - rest - single >= goal.least
    )
    return [suspected] if len(suspected) > 1 else []


def _singles(queries: SetQueries) -> list[HeadSet]:
    return [frozenset({head}) for head in range(queries.n)]


def _needs_large_sets(queries: SetQueries) -> None:
    if queries.source.largest < queries.n:
        raise BadInput("this search ablates many heads at once and a table has only pairs; run the model instead")


def _grow(queries: SetQueries, goal: Goal, *, width: int) -> Iterator[HeadSet]:
    """Grow sets level by level: the greedy set, and beside it the best others of the level."""
    if width < 1:
        raise BadInput(f"a beam of width {width} is empty; give at least 1")
    greedy_set, others, best = frozenset(), [], 0.0
    greedy_continues = True
    for _ in range(min(queries.n, queries.source.largest)):
        level = _extensions(queries, [greedy_set, *others] if greedy_continues else others)
        queries.worth(level)
        if greedy_continues:
            longer = max(_extensions(queries, [greedy_set]), key=lambda members: queries.value(members, goal))
            greedy_continues = queries.value(longer, goal) > queries.value(greedy_set, goal)
            greedy_set = longer if greedy_continues else greedy_set
        ranked = sorted(level, key=lambda members: -queries.value(members, goal))
        top = queries.value(ranked[0], goal)
        if not greedy_continues and top <= best:
            break
        best = max(best, top)
        others = [members for members in ranked if members != greedy_set][: width - greedy_continues]
        if not greedy_continues and not others:
            break
    yield from suspects(queries, goal, queries.best(goal))


def _extensions(queries: SetQueries, sets: Iterable[HeadSet]) -> list[HeadSet]:
    """Every set with one more head, without repeats."""
    longer = (members | {head} for members in sets for head in range(queries.n) if head not in members)
    return list(dict.fromkeys(longer))


def _minimal_sets(queries: SetQueries, goal: Goal, heads: Sequence[int], given: HeadSet) -> Iterator[HeadSet]:
    """Minimal sets among `heads` with enough surplus once `given` is ablated, by excluding heads of earlier ones."""
    minimal: list[HeadSet] = []
    queue: list[HeadSet] = [frozenset()]
    seen = set(queue)
    while queue:
        excluded = queue.pop(0)
        members = next((candidate for candidate in minimal if not candidate & excluded), None)
        if members is None:
            remaining = [head for head in heads if head not in excluded]
            members = _one_minimal_set(queries, goal, remaining, given)
            if members is None:
                continue
            minimal.append(members)
            yield members
        for head in sorted(members):
            branch = excluded | {head}
            if branch not in seen:
                seen.add(branch)
                queue.append(branch)


def _one_minimal_set(queries: SetQueries, goal: Goal, heads: Sequence[int], given: HeadSet) -> HeadSet | None:
    """A minimal set with enough surplus, or None if all heads together have too little."""

    def enough(members: Iterable[int]) -> bool:
        chosen = frozenset(members)
        return bool(chosen) and surplus(queries, chosen, given) >= goal.least

    remaining = list(heads)
    if not enough(remaining):
        return None
    needed: list[int] = []
    while not enough(needed):
        low, high = 0, len(remaining)
        while high - low > 1:
            middle = (low + high) // 2
            if enough([*needed, *remaining[:middle]]):
                high = middle
            else:
                low = middle
        needed.append(remaining[high - 1])
        remaining = remaining[: high - 1]
    for head in list(needed):
        shorter = [other for other in needed if other != head]
        if enough(shorter):
            needed = shorter
    return frozenset(needed)
