"""Intervals: hand-worked, and how often they hold the truth."""

import numpy as np
import pytest

from vesalius.statistics import student_interval


def test_students_interval_by_hand() -> None:
    """1, 2, 3: mean 2, standard deviation 1, and 4.3027 standard errors of 1 / sqrt(3) on either side."""
    low, high = student_interval(np.array([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0]]))
    assert low == pytest.approx([2 - 2.48414, 5.0], abs=1e-5)
    assert high == pytest.approx([2 + 2.48414, 5.0], abs=1e-5)


def test_it_holds_the_truth_as_often_as_it_says() -> None:
    values = np.random.default_rng(0).normal(size=(5, 4000))
    low, high = student_interval(values)
    assert np.mean((low <= 0) & (high >= 0)) == pytest.approx(0.95, abs=0.01)
