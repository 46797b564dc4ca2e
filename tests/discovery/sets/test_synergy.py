"""Synergy by hand, the interval's promise on pure noise, and groups from links."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.discovery.sets.tables import FunctionSource, three_heads
from vesalius.errors import BadInput
from vesalius_mechrl.sets import synergy
from vesalius_mechrl.sets.searches import surplus
from vesalius_mechrl.sets.sources import Goal, HeadSet, SetQueries, pair_place
from vesalius_mechrl.sets.synergy import (
    LEAST_VARIANCE,
    confirm,
    connected,
    judge,
    simultaneous_interval,
    synergy_matrix,
    synergy_rows,
)

PAIRS = [frozenset({0, 1}), frozenset({0, 2}), frozenset({1, 2})]


def test_synergies_of_three_heads_by_hand() -> None:
    source = three_heads()
    rows = synergy_rows(source, PAIRS)
    assert rows.mean(0) == pytest.approx([-1, 0, 3])
    names = [tuple(source.heads[i] for i in sorted(pair)) for pair in PAIRS]
    judged = judge(rows, names, least=0.6)
    assert [found.verdict for found in judged] == ["series", "none", "backup"]
    matrix = synergy_matrix(source.heads, judged)
    assert matrix[0, 1] == matrix[1, 0] == pytest.approx(-1)
    assert np.isnan(np.diag(matrix)).all()


def test_a_synergy_below_the_least_size_does_not_count() -> None:
    judged = judge(synergy_rows(three_heads(), PAIRS), [("a", "b")] * 3, least=3.5)
    assert [found.verdict for found in judged] == ["none"] * 3


def test_surplus_is_the_synergy_of_the_mean_and_can_be_conditional() -> None:
    queries = SetQueries(three_heads())
    assert surplus(queries, PAIRS[2]) == pytest.approx(3)
    assert surplus(queries, frozenset({2}), frozenset({1})) == pytest.approx(5 - 2 - 0)


def test_the_order_of_pairs_is_that_of_combinations() -> None:
    assert [pair_place(i, j, 4) for i in range(4) for j in range(i + 1, 4)] == list(range(6))


def test_many_columns_are_taken_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(3).normal(size=(12, 10))
    whole = simultaneous_interval(rows)
    monkeypatch.setattr(synergy, "COLUMNS_AT_ONCE", 3)
    for one, other in zip(simultaneous_interval(rows), whole, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)  # twelve products per sum, half a unit of float64 each


@pytest.mark.parametrize(
    "noise", [lambda rng: rng.normal(size=(16, 66)), lambda rng: rng.exponential(size=(16, 66)) - 1]
)
def test_all_intervals_hold_at_once(noise: Callable[[np.random.Generator], np.ndarray]) -> None:
    """An alarm anywhere among 66 columns of noise is rare, also when prompts are few and the noise is skewed.

    Of 60 families 3 may fail; 10 or more would in one of 1,000 tests. One standard error for all draws fails 14 times,
    and 51 times when the noise is skewed.
    """
    rng, alarms = np.random.default_rng(0), 0
    for repeat in range(60):
        _, low, high = simultaneous_interval(noise(rng), seed=repeat)
        alarms += bool(((low > 0) | (high < 0)).any())
    assert alarms < 10


def test_the_interval_is_that_of_a_slow_twin() -> None:
    """The same draws, one by one and column by column."""
    rows = np.random.default_rng(3).exponential(size=(12, 4))
    n, mean, error = 12, rows.mean(0), rows.std(0, ddof=1) / np.sqrt(12)
    largest = []
    for counts in np.random.default_rng(5).multinomial(n, np.full(n, 1 / n), size=2000):
        drawn = np.repeat(rows, counts, 0)
        least = np.sqrt(LEAST_VARIANCE) * error
        t = [
            abs(d.mean() - m) / max(d.std(ddof=1) / np.sqrt(n), e) for d, m, e in zip(drawn.T, mean, least, strict=True)
        ]
        largest.append(max(t))
    reach = sorted(largest)[1900] * error
    _, low, high = simultaneous_interval(rows, seed=5)
    assert low == pytest.approx(mean - reach)
    assert high == pytest.approx(mean + reach)


@settings(max_examples=25)
@given(seed=st.integers(0, 1000), scale=st.floats(0.01, 100), shift=st.floats(-10, 10))
def test_intervals_move_with_the_unit(seed: int, scale: float, shift: float) -> None:
    rows = np.random.default_rng(seed).normal(size=(9, 3))
    before, after = simultaneous_interval(rows, seed=seed), simultaneous_interval(scale * rows + shift, seed=seed)
    assert np.stack(after) == pytest.approx(scale * np.stack(before) + shift)


@pytest.mark.parametrize("rounding", [0.0, 1e-16])
def test_a_constant_column_has_no_width_and_widens_nobody(rounding: float) -> None:
    rng = np.random.default_rng(0)
    rows, constant = rng.normal(size=(32, 1)), np.ones((32, 1)) + rounding * rng.normal(size=(32, 1))
    alone = simultaneous_interval(rows)
    beside = simultaneous_interval(np.hstack([rows, constant]))
    assert [side[1] for side in beside] == [1, 1, 1]
    assert [side[0] for side in beside] == pytest.approx([float(side[0]) for side in alone])
    assert [side.tolist() for side in simultaneous_interval(constant)] == [[1], [1], [1]]


def test_columns_that_are_zero_on_nearly_all_prompts_silence_nobody() -> None:
    """Draws that miss the one prompt would have no error at all; the clear effect beside them stays clear."""
    sparse, clear = np.eye(16)[:, :8], 1 + 0.1 * np.random.default_rng(0).normal(size=(16, 1))
    _, low, high = simultaneous_interval(np.hstack([sparse, clear]))
    assert np.isfinite([low, high]).all()
    assert (low[:8] < 0).all()
    assert low[8] > 0.5


def test_few_prompts_are_refused() -> None:
    with pytest.raises(BadInput, match="at least 8"):
        simultaneous_interval(np.zeros((7, 1)))


def test_links_that_share_a_head_become_one_group() -> None:
    links = [frozenset({0, 1}), frozenset({2, 3}), frozenset({1, 4}), frozenset({4, 2})]
    assert connected(links) == [frozenset({0, 1, 2, 3, 4})]
    assert connected(links[:2]) == links[:2]


def _triple_and_pair(members: HeadSet) -> float:
    """Heads 0, 1, 2 hurt only all together; 3 and 4 only both; 5 hurts alone."""
    return 0.4 * ({0, 1, 2} <= members) + 0.3 * ({3, 4} <= members) + 0.2 * (5 in members)


def test_confirming_drops_what_does_not_hold() -> None:
    suspected = [frozenset({0, 1, 2}), frozenset({3, 4}), frozenset({0, 5})]
    found = confirm(FunctionSource(6, _triple_and_pair), suspected, least=0.1)
    assert [group.heads for group in found.groups] == [("L0H0", "L0H1", "L0H2"), ("L0H3", "L0H4")]
    triple = found.groups[0].document()
    assert (triple["effect"], triple["sum_alone"], triple["synergy"]) == pytest.approx((0.4, 0, 0.4))
    assert [len(link["heads"]) for link in triple["links"]] == [3]
    # six heads, three pairs inside the triple, two other pairs, the triple
    assert found.queries == 6 + 3 + 2 + 1


def test_nothing_suspected_costs_nothing() -> None:
    found = confirm(FunctionSource(6, _triple_and_pair), [], least=0.1)
    assert (found.groups, found.queries) == ((), 0)


def test_the_goal_is_in_shares_of_the_clean_score() -> None:
    goal = Goal.of(three_heads(), price=0.05, least=0.1)
    assert (goal.price, goal.least) == pytest.approx((0.3, 0.6))
    with pytest.raises(BadInput, match="shares"):
        Goal.of(three_heads(), price=-1)
