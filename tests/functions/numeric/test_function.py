"""Black boxes: seeded noise, corruption, and inputs that are no numbers."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vesalius_functions.box import Mode
from vesalius_functions.numeric.expressions import Atom, Expression, Pair
from vesalius_functions.numeric.function import NOISE, Corruption, Kind, NoiseKind, NumericFunction


def function(expression: Expression, *, kind: Kind = "clean", mode: Mode = "fixed", **parts: object) -> NumericFunction:
    return NumericFunction("f00000", expression, kind, mode, noise_key=12345, **parts)  # type: ignore[arg-type]


LINE = Atom("linear", (1.0, 0.0))


@pytest.mark.parametrize("noise", ["normal", "uniform", "poisson"])
def test_noise_has_its_mean_and_spread(noise: NoiseKind) -> None:
    values = function(LINE, kind="noised", noise=noise).values(np.zeros(40_000))
    mean, sd = NOISE[noise]
    assert values.mean() == pytest.approx(mean, abs=0.02)
    assert values.std() == pytest.approx(sd, rel=0.02)
    if noise == "uniform":
        assert np.abs(values).max() <= 1
    if noise == "poisson":
        assert set(values) <= set(range(12))


@given(st.integers(0, 10**6), st.integers(1, 30), st.integers(0, 30))
def test_noise_belongs_to_the_call_and_not_to_the_batch(first: int, count: int, cut: int) -> None:
    noised = function(LINE, kind="noised", noise="normal")
    whole = noised.values(np.ones(count), first_call=first)
    cut = min(cut, count)
    parts = [
        *noised.values(np.ones(cut), first_call=first),
        *noised.values(np.ones(count - cut), first_call=first + cut),
    ]
    assert whole.tolist() == parts
    assert len(set(whole)) == count


def test_corruption_by_hand() -> None:
    x = np.array([-10.0, 2.0, 2.1, 9.0, 10.0])
    inside = Corruption("inside", (2.0, 9.0), mean=50.0)
    assert inside.covers(x).tolist() == [False, False, True, False, False]
    assert Corruption("outside", (2.0, 9.0), 0.0).covers(x).tolist() == [True, True, False, True, True]
    assert Corruption("larger", (9.0,), 0.0).covers(x).tolist() == [False, False, False, True, True]
    assert Corruption("smaller", (2.0,), 0.0).covers(x).tolist() == [True, True, False, False, False]
    corrupted = function(LINE, kind="corrupted", corruption=inside)
    assert corrupted.mean(x).tolist() == [-10.0, 2.0, 50.0, 9.0, 10.0]
    values = corrupted.values(np.full(4000, 5.0))
    assert values.mean() == pytest.approx(50, abs=0.01)
    assert values.std() == pytest.approx(0.1, rel=0.05)


def test_faults_of_published_scripts_depend_on_the_script() -> None:
    wave = Atom("square_wave", (4.0, 0.0))
    at = np.array([3.0])
    assert function(wave, mode="published").clean(at)[0] == -1
    assert function(wave, mode="published", kind="noised", noise="normal").clean(at)[0] == 1
    assert function(wave, kind="noised", noise="normal").clean(at)[0] == -1
    assert function(Pair("sum", wave, Atom("constant", (1,))), mode="published").clean(at)[0] == 2
    root = Atom("root", (1.0, 0.0, 2))
    below = np.array([-4.0])
    assert function(root, mode="published").clean(below)[0] == pytest.approx(2j)
    corruption = Corruption("larger", (50.0,), 0.0)
    assert np.isnan(function(root, mode="published", kind="corrupted", corruption=corruption).clean(below)[0])
    assert np.isnan(function(root).clean(below)[0])
    assert function(Atom("absolute", (1.0, 9.0)), mode="published").clean(below)[0] == 4
    assert function(Atom("absolute", (1.0, 9.0))).clean(below)[0] == 13


def test_a_bad_input_costs_its_own_reply() -> None:
    replies = function(Atom("reciprocal", (2.0,))).replies(["a", 0, "0.5", 10**400, None, [1], 1, math.nan])
    assert [reply.value for reply in replies[:7]] == [None, None, 1.0, None, None, None, 0.5]
    assert replies[0].error == "'a' is not a number"
    assert replies[1].error == "division by zero"
    assert replies[7].error is None
    assert math.isnan(replies[7].value)


def test_truth_is_json() -> None:
    noised = function(Pair("sum", LINE, Atom("ceil")), kind="noised", noise="poisson")
    assert json.loads(json.dumps(noised.truth()))["operands"] == ["linear", "ceil"]
    assert noised.family == "sum"
