"""Every family by hand, and its text against its values."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vesalius_functions.numeric.expressions import FAMILIES, OPERANDS, Atom, Expression, Pair, Quirks, evaluate, formula
from vesalius_functions.numeric.sampling import draw_expression

WORKED = [
    (Atom("linear", (2.0, 1.0)), 3.0, 7.0),
    (Atom("polynomial", (1.0, 0.0, -2.0)), 3.0, 7.0),
    (Atom("absolute", (2.0, 5.0)), -3.0, 11.0),
    (Atom("root", (2.0, 1.0, 2)), 9.0, 7.0),
    (Atom("root", (2.0, 1.0, 1)), -4.0, -7.0),
    (Atom("logarithm", (2.0, 1.0, 2.0)), 8.0, 7.0),
    (Atom("step", (3.0, -1.0, 50.0)), 0.5, 2.0),
    (Atom("step", (3.0, -1.0, 50.0)), -0.5, -1.0),
    (Atom("step", (3.0, -1.0, 50.0)), 0.0, 149.0),
    (Atom("relu", (2.0, 1.0, 0.5)), 3.0, 7.0),
    (Atom("relu", (2.0, 1.0, 0.5)), -3.0, -2.0),
    (Atom("tanh", (4.0, 2 * math.pi, 1.0, 3.0)), 1.0, 3.0),
    (Atom("sin", (4.0, 2.0, 0.0, 3.0)), 0.5, 7.0),
    (Atom("cos", (4.0, 2.0, 0.5, 3.0)), 0.5, 7.0),
    (Atom("constant", (-7,)), 100.0, -7.0),
    (Atom("reciprocal", (0.5,)), 4.0, 0.5),
    (Atom("gaussian", (5.0, 2.0)), 5.0, 1 / (2 * math.sqrt(2 * math.pi))),
    (Atom("rational", ((1.0, 2.0), (0.0, 0.0, 1.0))), 2.0, 1.25),
    (Atom("rectangle", (3.0,)), 1.5, 1.0),
    (Atom("rectangle", (3.0,)), 1.51, 0.0),
    (Atom("square_wave", (4.0, 1.0)), 2.0, 1.0),
    (Atom("square_wave", (4.0, 1.0)), 4.0, -1.0),
    (Pair("sum", Atom("ceil"), Atom("constant", (2,))), 1.5, 4.0),
    (Pair("product", Atom("floor"), Atom("linear", (1.0, 1.0))), 2.5, 7.0),
]


@pytest.mark.parametrize(("expression", "x", "expected"), WORKED, ids=lambda value: str(value)[:40])
def test_by_hand(expression: Expression, x: float, expected: float) -> None:
    assert evaluate(expression, np.array([x]))[0] == pytest.approx(expected, abs=1e-12)


def test_every_family_is_worked_by_hand() -> None:
    seen = {atom.family for e, _, _ in WORKED for atom in ((e,) if isinstance(e, Atom) else (e.first, e.second))}
    assert seen == {*FAMILIES, *OPERANDS}


def test_undefined_infinite_and_complex() -> None:
    below = np.array([-4.0])
    root = Atom("root", (2.0, 1.0, 2))
    assert np.isnan(evaluate(root, below)[0])
    assert evaluate(root, below, quirks=Quirks(complex_root=True))[0] == pytest.approx(1 + 4j)
    assert np.isnan(evaluate(Atom("logarithm", (1.0, 0.0, 2.0)), below)[0])
    assert np.isinf(evaluate(Atom("reciprocal", (2.0,)), np.array([0.0]))[0])


def test_published_faults() -> None:
    x = np.array([-1.0, 1.0, 3.0])
    faults = Quirks(no_absolute_bias=True, sign_square_wave=True)
    assert evaluate(Atom("absolute", (2.0, 5.0)), x, quirks=faults).tolist() == [2.0, 2.0, 6.0]
    assert evaluate(Atom("square_wave", (4.0, 0.0)), x).tolist() == [-1.0, 1.0, -1.0]
    assert evaluate(Atom("square_wave", (4.0, 0.0)), x, quirks=faults).tolist() == [-1.0, 1.0, 1.0]


@given(st.integers(0, 2**32), st.booleans(), st.floats(-128, 128))
def test_text_and_values_say_the_same(seed: int, composed: bool, x: float) -> None:
    expression = draw_expression(np.random.default_rng(seed), composed=composed, mode="published")
    value = evaluate(expression, np.array([x]))[0]
    if not np.isfinite(value):
        return
    text = eval(formula(expression), {"math": math}, {"x": x})
    size = max(
        abs(value), *(abs(float(v)) for v in evaluate(expression, np.array([x + 1, x - 1])) if np.isfinite(v)), 1
    )
    assert text == pytest.approx(value, rel=1e-6, abs=1e-6 * size)
