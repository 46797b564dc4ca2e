"""Ways of looking for a set under a budget of queries, all with the same signature.

| search   | idea                                                                            | queries, n heads       |
|----------|---------------------------------------------------------------------------------|------------------------|
| `pairs`  | every head and every pair: exact for pairs                                      | n(n+1)/2               |
| `greedy` | add the head that gains most, until none is worth its price                     | n + (n-1) + ...        |
| `beam`   | the same with several sets at a time; greedy's own line is always among them    | about width times that |
| `prune`  | remove everything, then give back each head that can be spared; in three orders | 3n + 1 and a few       |
| `group`  | group testing for heads that together do more than the sum of each alone        | n + a few log2(n)      |

A search asks `Queries` and yields the sets it suspects of backing each other up, so that those found before the budget
was spent are kept; the best set is read off what became known. `greedy` and `beam` build on what heads do alone and so
cannot see two heads that do nothing alone. `prune` and `group` start from the other end, where everything is removed
and the backup is already broken.

`group`, in steps. (1) Every head alone; call those below `goal.least` weak. (2) The surplus of a set is what it does
less the sum of what its heads do alone. If all weak heads together have a surplus of at least `least`, halve: find the
shortest run of weak heads that has it; its last head is needed; keep that head and go on with the run before it, until
the heads kept have the surplus themselves. (3) Spare one head of the set found and look again, for each of its heads:
Reiter's hitting-set tree, which finds every minimal set if surplus grows with the set. (4) Then, for each head that is
not weak, the same with that head removed throughout: weak heads that stand in for it.

Surplus need not grow with the set: heads that work in series have negative surplus and can hide a backup in a large
set. What `group` finds is there; what it does not find may still be.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from vesalius.discovery.sets.queries import BEAM_WIDTH, BudgetSpent, Goal, Queries
from vesalius.discovery.sets.sources import HeadSet
from vesalius.errors import BadInput

STARTS = 3
Search = Callable[[Queries, Goal], Iterator[HeadSet]]


def search(queries: Queries, goal: Goal, way: Search) -> tuple[list[HeadSet], bool]:
    """Run a search; the suspected sets, and whether it came to its end before the budget did."""
    found: list[HeadSet] = []
    try:
        for members in way(queries, goal):
            found.append(members)
    except BudgetSpent:
        return found, False
    return found, True


def pairs(queries: Queries, goal: Goal) -> Iterator[HeadSet]:
    """Every head, then every pair; suspected are pairs whose surplus is at least `goal.least`."""
    needed = queries.n * (queries.n + 1) // 2
    if queries.budget < needed:
        raise BadInput(
            f"all heads and pairs of {queries.n} heads cost {needed} queries and the budget is {queries.budget}; "
            "raise it, name fewer heads, or search by group"
        )
    queries.worth(_singles(queries))
    found = [frozenset(pair) for pair in itertools.combinations(range(queries.n), 2)]
    queries.worth(found)
    yield from (members for members in found if surplus(queries, members) >= goal.least)


def greedy(queries: Queries, goal: Goal) -> Iterator[HeadSet]:
    """Add the head that gains most as long as one is worth its price."""
    return _grow(queries, goal, width=1)


def beam(queries: Queries, goal: Goal, *, width: int = BEAM_WIDTH) -> Iterator[HeadSet]:
    """Grow several sets at a time."""
    return _grow(queries, goal, width=width)


def prune(queries: Queries, goal: Goal, *, starts: int = STARTS, seed: int = 0) -> Iterator[HeadSet]:
    """From all heads, give back one after the other whenever the set's value does not fall.

    Which set is left depends on the order, so it is done in several: that of the layers, then random ones.
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


def group(queries: Queries, goal: Goal) -> Iterator[HeadSet]:
    """Group testing on surplus; no head can be left out of a suspected set."""
    _needs_large_sets(queries)
    alone = queries.worth(_singles(queries))
    weak = [head for head in range(queries.n) if alone[head] < goal.least]
    left = set(weak)
    for members in _minimal_sets(queries, goal, weak, frozenset()):
        left -= members
        yield members
    for head in sorted(set(range(queries.n)) - set(weak), key=lambda head: -alone[head]):
        for members in _minimal_sets(queries, goal, sorted(left), frozenset({head})):
            yield members | {head}


SEARCHES: dict[str, Search] = {"pairs": pairs, "greedy": greedy, "beam": beam, "prune": prune, "group": group}


def surplus(queries: Queries, members: HeadSet, given: HeadSet = frozenset()) -> float:
    """What a set does, with `given` removed anyway, less what its heads do alone: above 0 backup, below 0 series."""
    alone = sum(queries.worth(frozenset({head}) for head in sorted(members)))
    return queries.one(members | given) - queries.one(given) - alone


def suspects(queries: Queries, goal: Goal, members: HeadSet) -> list[HeadSet]:
    """The heads of a set that matter in it by `goal.least` more than they do alone, as one suspected group."""
    if len(members) < 2:
        return []
    whole = queries.one(members)
    order = sorted(members)
    without = queries.worth(members - {head} for head in order)
    alone = queries.worth(frozenset({head}) for head in order)
    flagged = frozenset(
        head for head, rest, single in zip(order, without, alone, strict=True) if whole - rest - single >= goal.least
    )
    return [flagged] if len(flagged) > 1 else []


def _singles(queries: Queries) -> list[HeadSet]:
    return [frozenset({head}) for head in range(queries.n)]


def _needs_large_sets(queries: Queries) -> None:
    if queries.source.largest < queries.n:
        raise BadInput("this search removes many heads at once and a table knows only pairs; run the model instead")


def _grow(queries: Queries, goal: Goal, *, width: int) -> Iterator[HeadSet]:
    """Levels of growing sets. Place 0 of the frontier is greedy's line, the others are the best of the level."""
    if width < 1:
        raise BadInput(f"a beam of width {width} holds nothing; give at least 1")
    line, others, best = frozenset(), [], 0.0
    line_goes_on = True
    for _ in range(min(queries.n, queries.source.largest)):
        level = _extensions(queries, [line, *others] if line_goes_on else others)
        queries.worth(level)
        if line_goes_on:
            longer = max(_extensions(queries, [line]), key=lambda members: queries.value(members, goal))
            line_goes_on = queries.value(longer, goal) > queries.value(line, goal)
            line = longer if line_goes_on else line
        ranked = sorted(level, key=lambda members: -queries.value(members, goal))
        top = queries.value(ranked[0], goal)
        if not line_goes_on and top <= best:
            break
        best = max(best, top)
        others = [members for members in ranked if members != line][: width - line_goes_on]
        if not line_goes_on and not others:
            break
    yield from suspects(queries, goal, queries.best(goal))


def _extensions(queries: Queries, sets: Iterable[HeadSet]) -> list[HeadSet]:
    """Every set with one more head, each once."""
    longer = (members | {head} for members in sets for head in range(queries.n) if head not in members)
    return list(dict.fromkeys(longer))


def _minimal_sets(queries: Queries, goal: Goal, heads: Sequence[int], given: HeadSet) -> Iterator[HeadSet]:
    """Minimal sets among `heads` with enough surplus once `given` is removed, by sparing heads of those found."""
    found: list[HeadSet] = []
    waiting: list[HeadSet] = [frozenset()]
    seen = set(waiting)
    while waiting:
        spared = waiting.pop(0)
        members = next((known for known in found if not known & spared), None)
        if members is None:
            left = [head for head in heads if head not in spared]
            members = _one_minimal_set(queries, goal, left, given)
            if members is None:
                continue
            found.append(members)
            yield members
        for head in sorted(members):
            branch = spared | {head}
            if branch not in seen:
                seen.add(branch)
                waiting.append(branch)


def _one_minimal_set(queries: Queries, goal: Goal, heads: Sequence[int], given: HeadSet) -> HeadSet | None:
    """A set with enough surplus from which no head can be left out, or None if all heads together have too little."""

    def enough(members: Iterable[int]) -> bool:
        chosen = frozenset(members)
        return bool(chosen) and surplus(queries, chosen, given) >= goal.least

    left = list(heads)
    if not enough(left):
        return None
    kept: list[int] = []
    while not enough(kept):
        low, high = 0, len(left)
        while high - low > 1:
            middle = (low + high) // 2
            if enough([*kept, *left[:middle]]):
                high = middle
            else:
                low = middle
        kept.append(left[high - 1])
        left = left[: high - 1]
    for head in list(kept):
        shorter = [other for other in kept if other != head]
        if enough(shorter):
            kept = shorter
    return frozenset(kept)
