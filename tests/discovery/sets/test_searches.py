"""Searches against brute force, beam against greedy, group testing against hidden sets."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.discovery.sets.tables import FunctionSource, random_function, three_heads
from vesalius.errors import BadInput
from vesalius_mechrl.sets.searches import SEARCHES, beam, greedy, group, pairs, prune, search
from vesalius_mechrl.sets.sources import Goal, HeadSet, SetQueries

GOAL = Goal(price=0.05, least=0.1)


@given(seed=st.integers(0, 10_000), n=st.integers(2, 6))
def test_the_pair_oracle_is_brute_force(seed: int, n: int) -> None:
    effect = random_function(n, seed)
    queries = SetQueries(FunctionSource(n, effect))
    found, complete = search(queries, GOAL, pairs)
    sets = [frozenset(c) for size in (1, 2) for c in itertools.combinations(range(n), size)]
    slow = max(sets, key=lambda members: effect(members) - GOAL.price * len(members))
    assert (queries.best(GOAL), complete) == (slow, True)
    assert queries.paid == len(sets)
    synergy = {pair: effect(pair) - sum(effect(frozenset({i})) for i in pair) for pair in sets[n:]}
    assert set(found) == {pair for pair, value in synergy.items() if value >= GOAL.least}


@given(seed=st.integers(0, 10_000), n=st.integers(2, 6), width=st.integers(1, 4))
def test_a_beam_is_never_worse_than_greedy(seed: int, n: int, width: int) -> None:
    effect = random_function(n, seed)
    narrow, wide = (SetQueries(FunctionSource(n, effect), 2**n - 1) for _ in range(2))
    list(greedy(narrow, GOAL))
    list(beam(wide, GOAL, width=width))
    assert wide.value(wide.best(GOAL), GOAL) >= narrow.value(narrow.best(GOAL), GOAL) - 1e-12


@given(seed=st.integers(0, 10_000), n=st.integers(3, 6))
def test_no_search_pays_twice_or_beyond_its_budget(seed: int, n: int) -> None:
    for name, way in SEARCHES.items():
        source = FunctionSource(n, random_function(n, seed))
        queries = SetQueries(source, 2 * n if name != "pairs" else None)
        if name == "growth":  # it takes the gradients of a model
            with pytest.raises(BadInput, match="takes gradients"):
                search(queries, GOAL, way)
            continue
        search(queries, GOAL, way)
        assert len(source.asked) == len(set(source.asked)) == queries.paid <= queries.budget


@st.composite
def hidden(draw: st.DrawFn) -> tuple[int, list[HeadSet]]:
    """A number of heads and one to three minimal sets of two or three heads, none inside another."""
    n = draw(st.integers(6, 14))
    sets = draw(st.lists(st.frozensets(st.integers(0, n - 1), min_size=2, max_size=3), min_size=1, max_size=3))
    return n, [members for members in set(sets) if not any(other < members for other in sets)]


@given(hidden())
def test_group_testing_finds_every_minimal_set(case: tuple[int, list[HeadSet]]) -> None:
    """Removing any one of the hidden sets breaks everything, nothing less does."""
    n, sets = case
    source = FunctionSource(n, lambda members: float(any(one <= members for one in sets)))
    found, complete = search(SetQueries(source, 2**n - 1), GOAL, group)
    assert complete
    assert set(found) == set(sets)


def test_group_testing_is_cheap() -> None:
    """100 heads, one pair: 100 singles, the whole, and some halvings; all pairs would be 4,950."""
    pair = frozenset({17, 71})
    queries = SetQueries(FunctionSource(100, lambda members: float(pair <= members)))
    assert search(queries, GOAL, group) == ([pair], True)
    assert queries.paid <= 100 + 1 + 2 * 7 + 2 * 2


def test_group_testing_finds_who_stands_in_for_a_strong_head() -> None:
    """Head 0 matters alone; head 4 does its work, less well, once it is gone."""
    source = FunctionSource(8, lambda members: 0.3 * (0 in members) + 0.5 * ({0, 4} <= members))
    found, _ = search(SetQueries(source), GOAL, group)
    assert found == [frozenset({0, 4})]


def test_what_was_found_before_the_budget_ended_is_kept() -> None:
    sets = [frozenset({0, 1}), frozenset({2, 3})]
    source = FunctionSource(8, lambda members: 0.5 * sum(one <= members for one in sets))
    whole = SetQueries(source, 255)
    every, _ = search(whole, GOAL, group)
    short = SetQueries(source, 13)
    some, complete = search(short, GOAL, group)
    assert (set(every), complete) == (set(sets), False)
    assert len(some) == 1


def test_greedy_stops_at_heads_that_matter_alone() -> None:
    source = FunctionSource(6, lambda members: 0.1 * (0 in members) + 0.8 * ({3, 5} <= members))
    queries = SetQueries(source, 63)
    assert list(greedy(queries, GOAL)) == []
    assert queries.best(GOAL) == {0}
    assert list(prune(SetQueries(source, 63), GOAL)) == [frozenset({3, 5})]


def test_large_sets_need_the_model() -> None:
    for way in (prune, group):
        with pytest.raises(BadInput, match="run the model"):
            search(SetQueries(three_heads()), GOAL, way)
    with pytest.raises(BadInput, match="cost 6 queries and the budget is 5"):
        search(SetQueries(three_heads(), 5), GOAL, pairs)
    with pytest.raises(BadInput, match="width 0"):
        list(beam(SetQueries(three_heads()), GOAL, width=0))


def test_a_table_is_searched_up_to_pairs() -> None:
    queries = SetQueries(three_heads())
    list(greedy(queries, Goal(price=0.3, least=0.6)))
    assert max(map(len, queries.measured)) == 2
    assert queries.best(Goal(price=0.3, least=0.6)) == {1, 2}
    assert np.mean(queries.rows[frozenset({1, 2})]) == pytest.approx(5)
