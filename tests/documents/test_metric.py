"""Figures and their intervals, by hand."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vesalius.documents.metric import Metric, figure_apart


def test_a_share_of_independent_cases_has_the_wilson_interval() -> None:
    found = Metric.of_share(9, 10)
    assert (found.value, found.n) == (0.9, 10)
    assert (found.low, found.high) == pytest.approx((0.596, 0.982), abs=5e-4)


def test_a_mean_of_a_few_has_students_interval_and_one_value_has_none() -> None:
    """1, 2, 3: mean 2, deviation 1, and Student's 0.975 quantile of two degrees is 4.3027."""
    found = Metric.of_mean(torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64))
    assert (found.value, found.n) == (2.0, 3)
    assert (found.low, found.high) == pytest.approx((2 - 4.3027 / 3**0.5, 2 + 4.3027 / 3**0.5), abs=1e-4)
    assert Metric.of_mean(torch.tensor([5.0])) == Metric(value=5.0, low=None, high=None, n=1)


@given(st.floats(0.0, 2.0), st.sampled_from([0.5, 0.8, 1.2]))
def test_a_figure_is_printed_on_the_side_of_the_bar_where_it_is(figure: float, bar: float) -> None:
    printed = float(figure_apart(figure, bar))
    assert abs(figure - bar) < 1e-5 or (printed < bar) == (figure < bar)
    assert printed == pytest.approx(figure, abs=0.005 + 1e-9)


def test_all_ends_have_the_digits_that_one_of_them_needs() -> None:
    close = Metric(value=0.79961, low=0.7, high=0.9, n=8)
    assert close.text() == "0.80 [0.70, 0.90]"
    assert close.text(bars=(0.8,)) == "0.7996 [0.7000, 0.9000]"
    assert close.text(bars=(0.5,)) == "0.80 [0.70, 0.90]"


def test_two_circuits_by_hand() -> None:
    """One circuit with 3 of 3 right, one with 0 of 1: resamples give 1, 3/4 and 0 with chances 1/4, 1/2, 1/4."""
    found = Metric.of_circuits([3, 0], [3, 1], baseline=0.5)
    assert found == Metric(value=0.75, low=0.0, high=1.0, n=4, baseline=0.5)


def test_components_that_hang_together_count_less() -> None:
    """Forty components in 10 circuits, each all right or all wrong, are worth 10 cases, not 40."""
    clustered = Metric.of_circuits([4] * 8 + [0] * 2, [4] * 10)
    apart = Metric.of_circuits([1] * 32 + [0] * 8, [1] * 40)
    assert clustered.value == apart.value == 0.8
    assert (clustered.high - clustered.low) / (apart.high - apart.low) == pytest.approx(2, abs=0.25)


def test_where_nothing_can_be_resampled_the_interval_is_wilsons() -> None:
    one, share = Metric.of_circuits([1], [2]), Metric.of_share(1, 2)
    assert (one.value, one.low, one.high, one.n) == (share.value, share.low, share.high, share.n)
    assert (one.statistic, share.statistic) == ("mean", "share")
    everything = Metric.of_circuits([2, 3, 1], [2, 3, 1])
    assert (everything.value, everything.n) == (1.0, 6)
    assert (everything.low, everything.high) == (pytest.approx(0.4385, abs=1e-4), 1.0)  # 3 of 3 circuits
    difference = Metric.of_circuits([0.0, 0.0], [2, 2], smallest=-1.0)
    assert difference.value == 0
    assert difference.low == -difference.high < -0.5


def test_circuits_without_components_say_nothing() -> None:
    assert Metric.of_circuits([1, 0], [2, 0]) == Metric.of_circuits([1], [2])
    nothing = Metric(value=None, low=None, high=None, n=0)
    assert Metric.of_circuits([], []) == Metric.of_circuits([1.0], [0]) == nothing
    assert Metric.of_share(0, 0) == nothing.model_copy(update={"statistic": "share"})
    assert Metric.model_validate(nothing.model_dump()) == nothing
    assert nothing.figures == "no value"


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=12))
def test_the_interval_holds_the_value_and_is_the_same_every_time(given_pairs: list[tuple[int, int]]) -> None:
    rights, wrongs = zip(*given_pairs, strict=True)
    counts = [right + wrong for right, wrong in given_pairs]
    found = Metric.of_circuits(rights, counts)
    assert found == Metric.of_circuits(rights, counts)
    if found.value is None or found.low is None or found.high is None:
        assert sum(counts) == found.n == 0
        return
    assert 0 <= found.low <= found.value <= found.high <= 1
    assert sum(wrongs) + found.value * found.n == pytest.approx(sum(counts))
