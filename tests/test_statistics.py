"""Intervals: hand-worked, and how often they hold the truth."""

import math

import numpy as np
import pytest
import torch

from vesalius.statistics import above_zero, mean_apart_from_zero, student_interval


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
