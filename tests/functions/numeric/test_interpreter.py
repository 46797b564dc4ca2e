"""The built-in interpreter: every family recovered, disturbances named, budgets kept, tables admitted."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vesalius_functions import Box, Reply
from vesalius_functions.box import Answer, Mode
from vesalius_functions.numeric import NumericFunction, interpret
from vesalius_functions.numeric.expressions import Atom, Expression, Pair
from vesalius_functions.numeric.function import Corruption, Kind, NoiseKind
from vesalius_functions.numeric.interpreter.session import Candidate, Points, meets, sizes
from vesalius_functions.numeric.nets import train
from vesalius_functions.numeric.sampling import draw_expression


def function(expression: Expression, *, kind: Kind = "clean", mode: Mode = "fixed", **parts: Any) -> NumericFunction:
    return NumericFunction("f00000", expression, kind, mode, noise_key=99, **parts)


def answered(expression: Expression, *, kind: Kind = "clean", mode: Mode = "fixed", **parts: Any) -> Answer:
    return interpret(Box(function(expression, kind=kind, mode=mode, **parts), budget=400))


def defined(answer: Answer) -> Any:
    """The answer's function; its code was written by the interpreter under test, so it may run here."""
    names: dict[str, Any] = {}
    assert answer.code is not None
    exec(answer.code, names)
    return names["f"]


ALONE = [
    Atom("linear", (2.5, -1.1)),
    Atom("polynomial", (1.5, 0.0, -3.2, 4.0)),
    Atom("absolute", (-7.3, 2.0)),
    Atom("root", (4.4, -6.6, 2)),
    Atom("logarithm", (-2.2, 4.9, 3.1)),
    Atom("step", (7.4, -7.2, 12.6)),
    Atom("relu", (-20.5, 9.4, 0.6)),
    Atom("tanh", (3.5, 3.4, 5.4, 6.0)),
    Atom("tanh", (3.5, 0.1, 5.4, 6.0)),
    Atom("sin", (3.9, 3.8, 0.6, -0.5)),
    Atom("cos", (-4.5, 2.7, 2.0, -1.7)),
    Atom("constant", (45,)),
    Atom("reciprocal", (5.9,)),
    Atom("gaussian", (-9.2, 6.0)),
    Atom("rational", ((-1.6, 0.7, -8.9), (5.6, -6.5, 6.2, 7.6))),
    Atom("rectangle", (1.3,)),
    Atom("square_wave", (8.8, -0.9)),
]
TOGETHER = [
    Pair("sum", Atom("polynomial", (0.4, 1.2, -4.0)), Atom("step", (3.0, 1.0, 0.0))),
    Pair("sum", Atom("linear", (1.5, 2.0)), Atom("floor")),
    Pair("sum", Atom("ceil"), Atom("constant", (9,))),
    Pair("sum", Atom("relu", (3.0, 1.0, 0.2)), Atom("rectangle", (4.7,))),
    Pair("sum", Atom("linear", (0.5, 1.0)), Atom("square_wave", (6.4, 1.3))),
    Pair("product", Atom("polynomial", (2.0, 1.0, -3.0)), Atom("relu", (3.0, 1.0, 0.2))),
    Pair("product", Atom("linear", (1.2, -9.9)), Atom("rectangle", (3.1,))),
    Pair("product", Atom("constant", (7,)), Atom("square_wave", (3.0, -2.5))),
    Pair("product", Atom("step", (3.0, 1.0, 0.0)), Atom("ceil")),
]


@pytest.mark.parametrize("expression", [*ALONE, *TOGETHER], ids=lambda e: str(e)[:60])
def test_a_clean_function_is_recovered_everywhere(expression: Expression) -> None:
    answer = answered(expression)
    assert not answer.table
    f, known = defined(answer), function(expression)
    x = np.random.default_rng(5).uniform(-128, 128, 300)
    for point, expected in zip(x, known.clean(x), strict=True):
        if np.isfinite(expected):
            size = max(1.0, abs(expected))
            assert f(float(point)) == pytest.approx(expected, rel=1e-6, abs=1e-6 * size)


@pytest.mark.parametrize("expression", ALONE, ids=lambda e: str(e)[:60])
def test_a_family_is_named_with_its_parameters(expression: Atom) -> None:
    structure = answered(expression).structure
    assert structure["family"] == expression.family
    assert structure["noise"] is structure["interval"] is None
    if expression.family in ("linear", "polynomial", "relu", "sin", "cos", "tanh", "gaussian", "rectangle"):
        np.testing.assert_allclose(structure["params"], expression.params, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("noise", ["normal", "uniform", "poisson"])
@pytest.mark.parametrize(
    "expression", [Atom("constant", (-94,)), Atom("sin", (8.0, 5.8, 3.3, 8.4)), TOGETHER[0]], ids=str
)
def test_noise_is_named_and_does_not_hide_the_rule(expression: Expression, noise: NoiseKind) -> None:
    noised = function(expression, kind="noised", noise=noise)
    answer = interpret(Box(noised, budget=400))
    assert answer.structure["noise"] == noise
    assert answer.structure["interval"] is None
    f, x = defined(answer), np.linspace(-120, 120, 100) + 0.03
    mean = noised.mean(x)
    error = np.array([f(float(point)) for point in x]) - mean
    assert np.sqrt((error**2).mean()) < 0.35  # noise of 400 answers on a handful of numbers


@pytest.mark.parametrize(
    ("corruption", "interval"),
    [
        (Corruption("inside", (-30.7, -19.63), 4.0), [-30.7, -19.63]),
        (Corruption("inside", (99.9, 104.95), 4.0), [99.9, 104.95]),
        (Corruption("larger", (-62.4,), 900.0), [-62.4, None]),
        (Corruption("smaller", (83.0,), -2.0), [None, 83.0]),
        (Corruption("outside", (41.3, 46.4), 9.0), [41.3, 46.4]),
        (Corruption("outside", (-12.8, 6.05), -3.0), [-12.8, 6.05]),
    ],
)
def test_both_ends_of_a_corrupted_stretch_are_found(corruption: Corruption, interval: list[float | None]) -> None:
    corrupted = function(Atom("linear", (2.5, -1.1)), kind="corrupted", corruption=corruption)
    answer = interpret(Box(corrupted, budget=400))
    assert answer.structure["family"] == "linear"
    for said, true in zip(answer.structure["interval"], interval, strict=True):
        assert (said is None) if true is None else said == pytest.approx(true, abs=0.003)
    f = defined(answer)
    assert answer.structure.get("outside", False) == (corruption.shape == "outside")
    inside = corruption.boundary[0] + (-0.5 if corruption.shape in ("smaller", "outside") else 0.5)
    assert f(inside) == pytest.approx(corruption.mean, abs=0.1)
    assert answer.domain is not None


def test_the_shortest_stretch_is_not_taken_for_noise() -> None:
    """A stretch of length 5 is met by one or two pairs of answers; now and then those lie as far apart as noise."""
    corruption = Corruption("inside", (10.0, 15.05), 40.0)
    for key in range(60):
        corrupted = NumericFunction(
            "f", Atom("absolute", (2.0, 1.0)), "corrupted", "fixed", noise_key=key, corruption=corruption
        )
        structure = interpret(Box(corrupted, budget=400)).structure
        assert (structure["noise"], structure["family"]) == (None, "absolute")
        assert structure["interval"] == pytest.approx([10.0, 15.05], abs=0.003)


def test_a_published_root_is_complex_below_zero() -> None:
    f = defined(answered(Atom("root", (2.0, 1.0, 2)), mode="published"))
    assert f(-4.0) == pytest.approx(1 + 4j)
    assert math.isnan(defined(answered(Atom("root", (2.0, 1.0, 2))))(-4.0))


def test_a_function_without_a_rule_becomes_a_table_that_says_so() -> None:
    waves = Pair("sum", Atom("square_wave", (6.4, 1.3)), Atom("square_wave", (2.3, 0.4)))
    answer = answered(waves)
    assert answer.table
    assert answer.queries == 400
    assert "No rule was found" in answer.description


def test_a_net_is_recognised_for_what_it_approximates() -> None:
    expression = Atom("absolute", (2.0, 5.0))
    net = train([expression], steps=2500, points=400)[0]
    answer = answered(expression, kind="mlp", net=net)
    assert answer.structure["family"] == "absolute"
    assert "as a trained net would" in answer.description or answer.table


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.integers(1, 400), st.integers(0, 3), st.sampled_from(["clean", "corrupted", "noised"]))
def test_the_budget_is_never_exceeded(seed: int, budget: int, asked: int, kind: Kind) -> None:
    expression = draw_expression(np.random.default_rng(seed), composed=bool(seed % 2), mode="published")
    parts: dict[str, Any] = {"noised": {"noise": "poisson"}}.get(kind, {})
    if kind == "corrupted":
        parts = {"corruption": Corruption("inside", (3.0, 20.0), 1.0)}
    box = Box(function(expression, kind=kind, mode="published", **parts), budget=budget + asked)
    box.ask([1.0] * asked)
    answer = interpret(box, seed=seed % 7)
    assert box.asked <= budget + asked
    assert answer.queries == box.asked - asked <= 400
    assert answer.code is not None
    defined(answer)


def test_an_empty_box_is_not_asked() -> None:
    box = Box(function(Atom("constant", (1,))), budget=1)
    box.ask([0.0])
    assert interpret(box).queries == 0


def test_the_same_seed_gives_the_same_answer() -> None:
    noised = function(TOGETHER[0], kind="noised", noise="normal")
    assert interpret(Box(noised), seed=3) == interpret(Box(noised), seed=3)


def test_a_family_left_out_is_not_named() -> None:
    box = Box(function(Atom("sin", (3.9, 3.8, 0.6, -0.5))), budget=400)
    answer = interpret(box, without=frozenset({"sin", "cos"}))
    assert answer.table
    assert answer.structure["family"] not in ("sin", "cos")


def test_a_rule_must_meet_every_answer() -> None:
    points = Points(np.array([1.0, 2.0, -3.0]), np.array([1.0, 4.0, 9.0]))
    assert sizes(points).tolist() == [1.0, 4.0, 9.0]
    square = Candidate("polynomial", "x**2", lambda x: x**2, free=3)
    assert meets(square, points)
    assert not meets(square, points + Points(np.array([4.0]), np.array([16.001])))


class Odd:
    """Any Python function of x behind the door."""

    id, family, category = "f0", "odd", "numeric"

    def __init__(self, rule: Callable[[float], Any]) -> None:
        self.rule = rule

    def truth(self) -> dict[str, Any]:
        return {}

    def replies(self, inputs: Sequence[float], *, first_call: int = 0) -> list[Reply]:
        return [Reply(self.rule(x)) for x in inputs]


@pytest.mark.parametrize(
    "rule",
    [
        lambda x: 1e308,
        lambda x: 1e308 if abs(x) > 1 else 1e308 * x,
        lambda x: 1e-300 * x,
        lambda x: 10**400,
        lambda x: math.inf,
        lambda x: "a" * 20_000,
        lambda x: None,
        lambda x: complex(x, 1),
        lambda x: 1e300 if 3 < x < 6 else x,
    ],
)
@pytest.mark.parametrize("budget", [1, 17, 400])
def test_whatever_a_function_answers_there_is_an_answer(rule: Callable[[float], Any], budget: int) -> None:
    box = Box(Odd(rule), budget=budget)
    answer = interpret(box)
    assert answer.queries == box.asked <= budget
    assert callable(defined(answer))


def test_numbers_with_an_imaginary_part_everywhere_are_not_their_real_part() -> None:
    assert interpret(Box(Odd(lambda x: complex(x, 1)), budget=400)).table
