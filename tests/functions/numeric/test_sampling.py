"""Draws: a shorter one begins a longer one, shares, and parameters that mean what the family says."""

from collections import Counter
from functools import partial

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vesalius.errors import BadInput
from vesalius_functions.box import Mode
from vesalius_functions.numeric import nets, sample, sample_at
from vesalius_functions.numeric.expressions import Atom, Pair
from vesalius_functions.numeric.sampling import suite_expressions


@pytest.fixture(autouse=True)
def short_training(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setenv("VESALIUS_CACHE", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setattr(nets, "train", partial(nets.train, steps=2, points=50))


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**31), st.integers(0, 30), st.integers(0, 30), st.sampled_from(["fixed", "published"]))
def test_a_shorter_draw_begins_a_longer_one(seed: int, short: int, more: int, mode: Mode) -> None:
    first = sample(short, seed=seed, mode=mode)
    longer = sample(short + more, seed=seed, mode=mode)
    assert [f.truth() for f in first] == [f.truth() for f in longer[:short]]
    x = np.linspace(-120, 120, 7)
    for one, other in zip(first, longer, strict=False):
        np.testing.assert_array_equal(one.values(x, first_call=3), other.values(x, first_call=3))
    some = list(range(0, short + more, 3))
    assert [f.truth() for f in sample_at(some, seed=seed, mode=mode)] == [longer[place].truth() for place in some]


def test_shares_are_exact_in_every_twenty() -> None:
    drawn = sample(60, seed=5)
    for block in range(3):
        part = drawn[20 * block : 20 * block + 20]
        assert Counter(f.kind for f in part) == {"mlp": 3, "corrupted": 3, "noised": 3, "clean": 11}
        assert sum(isinstance(f.expression, Pair) for f in part) == 3


def test_published_shares_are_those_measured() -> None:
    drawn = sample(3000, seed=5, mode="published")
    kinds = Counter(f.kind for f in drawn)
    assert kinds["mlp"] / 3000 == pytest.approx(0.150, abs=0.02)
    assert kinds["corrupted"] / 3000 == pytest.approx(0.191, abs=0.02)
    assert kinds["noised"] / 3000 == pytest.approx(0.176, abs=0.02)
    assert sum(isinstance(f.expression, Pair) for f in drawn) / 3000 == pytest.approx(0.15, abs=0.02)


def test_fixed_parameters_mean_what_the_family_says() -> None:
    atoms = [e for e in suite_expressions(4000, seed=1, kind="clean") if isinstance(e, Atom)]
    assert all(a.params[2] == 2 for a in atoms if a.family == "root")
    assert all(a.params[2] != 1 for a in atoms if a.family == "relu")
    assert all(a.params[0] != 0 for a in atoms if a.family in ("linear", "sin", "step", "reciprocal", "constant"))
    loose = [e for e in suite_expressions(4000, seed=1, kind="clean", mode="published") if isinstance(e, Atom)]
    assert any(a.params[2] == 1 for a in loose if a.family == "root")


def test_corruption_lies_where_published_ones_do() -> None:
    corrupted = [f.corruption for f in sample(600, seed=2) if f.corruption]
    assert len(corrupted) == 90
    for corruption in corrupted:
        assert -100 <= corruption.boundary[0] <= 100
        if corruption.shape == "inside":
            assert 5 <= corruption.boundary[1] - corruption.boundary[0] <= 25


def test_published_draws_have_the_intervals_and_scales_of_the_paper() -> None:
    drawn = sample(1200, seed=2, mode="published")
    corrupted = [f.corruption for f in drawn if f.corruption]
    assert {corruption.shape for corruption in corrupted} == {"inside", "outside", "larger", "smaller"}
    lengths = [c.boundary[1] - c.boundary[0] for c in corrupted if len(c.boundary) == 2]
    assert 5 <= min(lengths) < 8 < 17 < max(lengths) <= 20
    atoms = [f.expression for f in drawn if isinstance(f.expression, Atom)]
    pairs = [a.params[:2] for a in atoms if a.family in ("absolute", "root", "logarithm", "step", "relu")]
    biases = [bias for _, bias in pairs] + [a.params[3] for a in atoms if a.family in ("tanh", "sin", "cos")]
    for value in [scale for scale, _ in pairs] + biases:
        assert value == int(value)
        assert -30 <= value <= 30
    assert max(biases) > 20
    # The default keeps to the published data.
    corrupted = [f.corruption for f in sample(600, seed=2) if f.corruption]
    assert {corruption.shape for corruption in corrupted} == {"inside", "larger", "smaller"}


@pytest.mark.parametrize(("count", "seed"), [(-1, 0), (10**9, 0), (3, -1)])
def test_impossible_draws_are_refused(count: int, seed: int) -> None:
    with pytest.raises(BadInput):
        sample(count, seed=seed)
