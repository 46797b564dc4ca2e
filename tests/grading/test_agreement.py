"""Cohen's kappa against tables worked out by hand and a slow twin in exact fractions."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vesalius.errors import BadInput
from vesalius_truth.grading.ratings import cohen_kappa

Pairs = list[tuple[int, int]]


def spread(table: list[list[int]]) -> Pairs:
    """The items of a table of counts: rows are the first rater's scores."""
    return [(i, j) for i, row in enumerate(table) for j, count in enumerate(row) for _ in range(count)]


def twin(pairs: Pairs, *, weighted: bool) -> Fraction | None:
    """Kappa by its definition: disagreement of the pairs over disagreement of every first with every second score."""

    def apart(first: int, second: int) -> int:
        return abs(first - second) if weighted else int(first != second)

    seen = Fraction(sum(apart(first, second) for first, second in pairs), len(pairs))
    expected = Fraction(sum(apart(a, b) for a, _ in pairs for _, b in pairs), len(pairs) ** 2)
    return None if expected == 0 else 1 - seen / expected


def test_the_textbook_table() -> None:
    """50 items, [[20, 5], [10, 15]]: seen 35/50 = 0.7, by chance 0.5 * 0.6 + 0.5 * 0.4 = 0.5, kappa 0.2 / 0.5 = 0.4."""
    found = cohen_kappa(spread([[20, 5], [10, 15]]), categories=2)
    assert found.value == pytest.approx(0.4)
    assert (found.n, found.agreement, found.weighted) == (50, 0.7, False)
    assert found.low is not None
    assert found.high is not None
    # The large-sample standard error of this table is 0.127, so the interval is about 0.15 to 0.65.
    assert found.low == pytest.approx(0.15, abs=0.05)
    assert found.high == pytest.approx(0.65, abs=0.05)


def test_three_steps_by_hand() -> None:
    """[[4, 1, 0], [1, 2, 1], [0, 0, 3]], 12 items. Rows sum to 5, 4, 3, columns to 5, 3, 4.

    Weighted: seen (1 + 1 + 1 + 0) / 12 = 3/12. Expected: distance 1 has 5*3 + 4*5 + 4*4 + 3*3 = 60, distance 2 has
    5*4 + 3*5 = 35, so (60 + 70) / 144 = 130/144. Kappa 1 - 36/130 = 47/65.
    Plain: seen 3/12, expected 95/144, kappa 1 - 36/95 = 59/95.
    """
    pairs = spread([[4, 1, 0], [1, 2, 1], [0, 0, 3]])
    assert cohen_kappa(pairs, categories=3, weighted=True).value == pytest.approx(47 / 65)
    assert cohen_kappa(pairs, categories=3).value == pytest.approx(59 / 95)


def test_a_far_miss_weighs_twice_as_much_as_a_near_one() -> None:
    """Four items each with margins alike; only the distance of the one miss differs."""
    near = cohen_kappa([(0, 0), (1, 1), (2, 2), (0, 1)], categories=3, weighted=True).value
    far = cohen_kappa([(0, 0), (1, 1), (2, 2), (0, 2)], categories=3, weighted=True).value
    # near: seen 1/4; rows 2,1,1, columns 1,2,1: (2*2 + 1*1 + 1*1 + 1*2 + 2*(2*1 + 1*1)) / 16 = 14/16 -> 1 - 4/14
    # far: seen 2/4; rows 2,1,1, columns 1,1,2: (2*1 + 1*1 + 1*2 + 1*1 + 2*(2*2 + 1*1)) / 16 = 16/16 -> 1 - 8/16
    assert (near, far) == (pytest.approx(10 / 14), pytest.approx(0.5))


def test_perfect_chance_and_opposite() -> None:
    perfect = cohen_kappa(spread([[3, 0], [0, 5]]), categories=2)
    assert (perfect.value, perfect.low, perfect.high, perfect.agreement) == (1.0, 1.0, 1.0, 1.0)
    assert cohen_kappa(spread([[4, 4], [4, 4]]), categories=2).value == 0.0
    assert cohen_kappa(spread([[0, 5], [5, 0]]), categories=2).value == -1.0


def test_where_nothing_can_be_expected_there_is_no_kappa() -> None:
    empty = cohen_kappa([], categories=3)
    assert (empty.value, empty.low, empty.high, empty.n, empty.agreement) == (None, None, None, 0, None)
    same = cohen_kappa([(1, 1)] * 7, categories=3, weighted=True)
    assert (same.value, same.low, same.high, same.n, same.agreement) == (None, None, None, 7, 1.0)


def test_one_rater_with_one_score_agrees_no_more_than_by_chance() -> None:
    """The second always says 1: seen and expected disagreement are the same, so kappa is 0, not undefined."""
    assert cohen_kappa([(0, 1), (1, 1), (1, 1)], categories=2).value == 0.0


def test_a_score_off_the_scale_is_refused() -> None:
    with pytest.raises(BadInput, match="from 0 to 1"):
        cohen_kappa([(0, 2)], categories=2)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=30), st.booleans())
def test_it_is_the_twin(pairs: Pairs, weighted: bool) -> None:
    found, exact = cohen_kappa(pairs, categories=3, weighted=weighted, resamples=200), twin(pairs, weighted=weighted)
    assert found.value == (None if exact is None else pytest.approx(float(exact)))
    swapped = cohen_kappa([(second, first) for first, second in pairs], categories=3, weighted=weighted, resamples=2)
    assert swapped.value == (None if found.value is None else pytest.approx(found.value))


def test_the_interval_is_that_of_drawing_items() -> None:
    """The same as resampling the list itself, by another generator."""
    pairs = spread([[9, 2, 1], [3, 8, 2], [0, 2, 13]])
    found = cohen_kappa(pairs, categories=3, weighted=True)
    draws = np.random.default_rng(7).integers(len(pairs), size=(800, len(pairs)))
    values = [twin([pairs[i] for i in draw], weighted=True) for draw in draws.tolist()[:300]]
    low, high = np.quantile([float(value) for value in values if value is not None], [0.025, 0.975])
    assert (found.low, found.high) == (pytest.approx(low, abs=0.05), pytest.approx(high, abs=0.05))
