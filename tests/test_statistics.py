"""Intervals: hand-worked, and how often they hold the truth."""

import math
import statistics

import numpy as np
import pytest
import torch
from benchmarks.looks import NOISE, holds_at_all_looks

from vesalius.statistics import (
    LOOKS,
    above_zero,
    errors_of_looks,
    looks_up_to,
    mean_apart_from_zero,
    skewed_interval,
    student_interval,
)


def test_students_interval_by_hand() -> None:
    """1, 2, 3: mean 2, standard deviation 1, and 4.3027 standard errors of 1 / sqrt(3) on either side."""
    low, high = student_interval(np.array([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0]]))
    assert low == pytest.approx([2 - 2.48414, 5.0], abs=1e-5)
    assert high == pytest.approx([2 + 2.48414, 5.0], abs=1e-5)


def test_it_holds_the_truth_as_often_as_it_says() -> None:
    values = np.random.default_rng(0).normal(size=(5, 4000))
    low, high = student_interval(values)
    assert np.mean((low <= 0) & (high >= 0)) == pytest.approx(0.95, abs=0.01)


@pytest.mark.parametrize(
    ("values", "mean"),
    [
        ([1.0, 2.0, 3.0, 2.0] * 4, 2.0),
        ([-1.0, -2.0, -3.0, -2.0] * 4, -2.0),
        ([-1.0, 1.0] * 8, None),  # the mean is 0
        ([-3.0, 4.0] * 8, None),  # the mean is 0.5, and its interval holds 0
        ([0.25], 0.25),
        ([0.0], None),
        ([], None),
        ([1e-9, 2e-9, 3e-9, 2e-9] * 4, 2e-9),  # small is not zero
    ],
)
def test_a_mean_apart_from_zero(values: list[float], mean: float | None) -> None:
    got = mean_apart_from_zero(torch.tensor(values))
    assert math.isnan(got) if mean is None else got == pytest.approx(mean)


def test_above_zero() -> None:
    assert above_zero(0.5) == 0.5
    assert math.isnan(above_zero(-0.5))
    assert math.isnan(above_zero(0.0))
    assert math.isnan(above_zero(math.nan))


def test_one_look_spends_all_of_the_error() -> None:
    assert errors_of_looks(0.05, (16,)) == pytest.approx((0.05,), abs=1e-6)


def test_the_errors_of_looks_add_up_to_what_was_to_be_spent() -> None:
    """The first look's is the spending function itself, by hand: 0.05 ln(1 + 1.71828 / 16). Of sums of normal values
    0.05 leave their limits at some look, counted in another way: by drawing them.
    """
    errors = errors_of_looks(0.05, LOOKS)
    assert errors[0] == pytest.approx(0.05 * math.log(1 + (math.e - 1) / 16), abs=1e-5)
    assert list(errors) == sorted(errors)
    assert sum(errors) > 0.05, "looks overlap, so that each may take more than its part"
    sums = np.random.default_rng(3).normal(size=(20_000, LOOKS[-1])).cumsum(1)
    limits = [
        statistics.NormalDist().inv_cdf(1 - error / 2) * math.sqrt(n) for n, error in zip(LOOKS, errors, strict=True)
    ]
    left = np.abs(sums[:, [n - 1 for n in LOOKS]]) > limits
    assert left.any(1).mean() == pytest.approx(0.05, abs=0.005)
    assert left[:, :4].any(1).mean() == pytest.approx(0.05 * math.log(1 + (math.e - 1) / 4), abs=0.003)


def test_looks_end_with_all_prompts() -> None:
    assert looks_up_to(128) == LOOKS
    assert looks_up_to(21) == (8, 16, 21)
    assert looks_up_to(8) == (8,)
    assert looks_up_to(5) == (5,)


def test_an_interval_reaches_farther_on_the_side_of_the_long_tail() -> None:
    values = np.array([0.0, 0.1, 0.1, 0.2, 0.2, 0.3, 0.4, 2.0])
    (low, high), plain = skewed_interval(values, level=0.95), student_interval(values[:, None])
    assert low == pytest.approx(plain[0][0])
    assert high > plain[1][0]
    mirrored = skewed_interval(-values, level=0.95)
    assert mirrored == pytest.approx((-high, -low))
    even = np.array([-2.0, -1, 0, 1, 2])
    plain = tuple(float(end[0]) for end in student_interval(even[:, None]))
    assert skewed_interval(even, level=0.95) == pytest.approx(plain)
    assert skewed_interval(np.full(5, 0.25), level=0.95) == (0.25, 0.25)


@pytest.mark.parametrize(("noise", "least"), [("normal", 0.92), ("heavy-tailed", 0.92), ("skewed", 0.90)])
def test_the_intervals_of_all_looks_hold_together(noise: str, least: float) -> None:
    """A smaller version of `benchmarks.looks`: 0.95 is asked for."""
    draws = NOISE[noise](np.random.default_rng(11), (200, LOOKS[-1]))
    assert np.mean([holds_at_all_looks(one, skewed=True) for one in draws]) >= least
