"""What a numeric function computes: one of 16 families, or a sum or product of two.

An expression is a value: families with their parameters, and nothing about noise, corruption or nets. `evaluate` gives
its values on an array, `formula` the same as Python text. Parameters stand in the order of the published records:

    linear (m, b)        polynomial (highest power first)    absolute (s, b)       root (s, b, n)
    logarithm (s, b, base)    step (s, b, value at 0)        relu (s, b, leak)     tanh, sin, cos (A, P, c, b)
    constant (a,)        reciprocal (a,)                     gaussian (mean, sd)   rational ((num), (den)), lowest first
    rectangle (width,)   square_wave (period, shift)         ceil ()               floor ()

The published scripts do not compute what the records say in three cases. `Quirks` says which of them to repeat.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from numpy import ndarray

Operation = Literal["sum", "product"]
Reals = Float[ndarray, "points"]

#: The families a function can be of by itself, and those that sums and products are made of.
FAMILIES = (
    "linear", "polynomial", "absolute", "root", "logarithm", "step", "relu", "tanh", "sin", "cos", "constant",
    "reciprocal", "gaussian", "rational", "rectangle", "square_wave",
)  # fmt: skip
OPERANDS = ("linear", "polynomial", "step", "relu", "constant", "ceil", "floor", "rectangle", "square_wave")
#: Dividing by zero is an error in these; elsewhere an infinite value is a value.
POLES = ("reciprocal", "rational")


@dataclass(frozen=True)
class Quirks:
    """Which faults of the published scripts to repeat; none by default."""

    #: `absolute` forgets its bias.
    no_absolute_bias: bool = False
    #: `square_wave` is +1 for x > 0 and -1 otherwise.
    sign_square_wave: bool = False
    #: The square root of a negative number is complex instead of undefined.
    complex_root: bool = False


@dataclass(frozen=True)
class Atom:
    """One family with its parameters."""

    family: str
    params: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Pair:
    """A sum or a product of two families."""

    operation: Operation
    first: Atom
    second: Atom


Expression = Atom | Pair
CORRECT = Quirks()


def operands(expression: Expression) -> tuple[Atom, ...]:
    """The families an expression is made of."""
    return (expression,) if isinstance(expression, Atom) else (expression.first, expression.second)


def family(expression: Expression) -> str:
    """The name it is counted under: its family, or `sum` or `product`."""
    return expression.family if isinstance(expression, Atom) else expression.operation


def evaluate(expression: Expression, x: Reals, *, quirks: Quirks = CORRECT) -> ndarray:
    """Values at x: NaN where undefined, infinite at poles, complex only where a quirk makes them so."""
    with np.errstate(all="ignore"):
        if isinstance(expression, Atom):
            return _VALUES[expression.family](x, expression.params, quirks)
        first = evaluate(expression.first, x, quirks=quirks)
        second = evaluate(expression.second, x, quirks=quirks)
        return first + second if expression.operation == "sum" else first * second


def domain(expression: Expression) -> tuple[float, float]:
    """Where the function is defined, within the range the generator considers."""
    name = family(expression)
    return {"root": (0.0, 100.0), "logarithm": (1.0, 100.0)}.get(name, (-100.0, 100.0))


def _absolute(x: Reals, params: tuple[Any, ...], quirks: Quirks) -> ndarray:
    scale, bias = params
    return scale * np.abs(x) + (0.0 if quirks.no_absolute_bias else bias)


def _root(x: Reals, params: tuple[Any, ...], quirks: Quirks) -> ndarray:
    scale, bias, degree = params
    if degree == 1:
        return scale * x + bias
    if quirks.complex_root and (x < 0).any():
        return scale * x.astype(complex) ** (1 / degree) + bias
    return scale * np.where(x < 0, np.nan, np.abs(x)) ** (1 / degree) + bias


def _logarithm(x: Reals, params: tuple[Any, ...], quirks: Quirks) -> ndarray:
    scale, bias, base = params
    return scale * np.log(x) / np.log(base) + bias


def _rational(x: Reals, params: tuple[Any, ...], quirks: Quirks) -> ndarray:
    numerator, denominator = params
    return np.polyval(numerator[::-1], x) / np.polyval(denominator[::-1], x)


def _gaussian(x: Reals, params: tuple[Any, ...], quirks: Quirks) -> ndarray:
    mean, sd = params
    return np.exp(-0.5 * ((x - mean) / sd) ** 2) / (sd * math.sqrt(2 * math.pi))


def _square_wave(x: Reals, params: tuple[Any, ...], quirks: Quirks) -> ndarray:
    period, shift = params
    wave = x if quirks.sign_square_wave else np.sin(2 * math.pi * (x - shift) / period)
    return np.where(wave > 0, 1.0, -1.0)


def _wave(shape: Callable[[ndarray], ndarray]) -> Callable[[Reals, tuple[Any, ...], Quirks], ndarray]:
    def values(x: Reals, params: tuple[Any, ...], quirks: Quirks) -> ndarray:
        amplitude, period, centre, bias = params
        return amplitude * shape(2 * math.pi / period * (x - centre)) + bias

    return values


_VALUES: dict[str, Callable[[Reals, tuple[Any, ...], Quirks], ndarray]] = {
    "linear": lambda x, p, _: p[0] * x + p[1],
    "polynomial": lambda x, p, _: np.polyval(p, x),
    "absolute": _absolute,
    "root": _root,
    "logarithm": _logarithm,
    "step": lambda x, p, _: p[0] * np.heaviside(x, p[2]) + p[1],
    "relu": lambda x, p, _: p[0] * np.where(x > 0, x, p[2] * x) + p[1],
    "tanh": _wave(np.tanh),
    "sin": _wave(np.sin),
    "cos": _wave(np.cos),
    "constant": lambda x, p, _: np.full_like(x, p[0]),
    "reciprocal": lambda x, p, _: 1 / (p[0] * x),
    "gaussian": _gaussian,
    "rational": _rational,
    "rectangle": lambda x, p, _: np.where(np.abs(x) <= p[0] / 2, 1.0, 0.0),
    "square_wave": _square_wave,
    "ceil": lambda x, p, _: np.ceil(x),
    "floor": lambda x, p, _: np.floor(x),
}


def number(value: float) -> str:
    """A number as Python text that reads back as the same number, without a needless `.0`."""
    value = float(value)
    if not math.isfinite(value):
        return f"float({str(value)!r})"
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


def polynomial_text(ascending: tuple[float, ...] | list[float]) -> str:
    """`c0 + c1*x + c2*x**2 ...` without the zero terms."""
    powers = ("", "*x", *(f"*x**{power}" for power in range(2, len(ascending))))
    terms = [f"{number(c)}{power}" for c, power in zip(ascending, powers, strict=False) if c != 0]
    return " + ".join(reversed(terms)).replace("+ -", "- ") or "0"


def formula(expression: Expression, *, quirks: Quirks = CORRECT) -> str:
    """The expression as one line of Python in `x` and `math`; `evaluate` says the same in numpy."""
    if isinstance(expression, Pair):
        parts = [formula(atom, quirks=quirks) for atom in operands(expression)]
        return f"({parts[0]}) {'+' if expression.operation == 'sum' else '*'} ({parts[1]})"
    return _TEXTS[expression.family](expression.params, quirks)


def _root_text(p: tuple[Any, ...], quirks: Quirks) -> str:
    if p[2] == 1:
        return polynomial_text([p[1], p[0]])
    text = f"{number(p[0])} * x**(1/{p[2]}) + {number(p[1])}"  # of a negative float this is complex
    return text if quirks.complex_root else f"{text} if x >= 0 else math.nan"


def _square_wave_text(p: tuple[Any, ...], quirks: Quirks) -> str:
    if quirks.sign_square_wave:
        return "1 if x > 0 else -1"
    return f"1 if math.sin(2*math.pi*(x - {number(p[1])})/{number(p[0])}) > 0 else -1"


def _wave_text(name: str) -> Callable[[tuple[Any, ...], Quirks], str]:
    def text(p: tuple[Any, ...], _: Quirks) -> str:
        return f"{number(p[0])} * math.{name}(2*math.pi/{number(p[1])} * (x - {number(p[2])})) + {number(p[3])}"

    return text


_TEXTS: dict[str, Callable[[tuple[Any, ...], Quirks], str]] = {
    "linear": lambda p, _: polynomial_text(p[::-1]),
    "polynomial": lambda p, _: polynomial_text(p[::-1]),
    "absolute": lambda p, q: f"{number(p[0])} * abs(x) + {number(0 if q.no_absolute_bias else p[1])}",
    "root": _root_text,
    "logarithm": lambda p, _: (
        f"{number(p[0])} * math.log(x) / math.log({number(p[2])}) + {number(p[1])} if x > 0 else math.nan"
    ),
    "step": lambda p, _: f"{number(p[0])} * (1 if x > 0 else {number(p[2])} if x == 0 else 0) + {number(p[1])}",
    "relu": lambda p, _: f"{number(p[0])} * (x if x > 0 else {number(p[2])} * x) + {number(p[1])}",
    "tanh": _wave_text("tanh"),
    "sin": _wave_text("sin"),
    "cos": _wave_text("cos"),
    "constant": lambda p, _: number(p[0]),
    "reciprocal": lambda p, _: f"1 / ({number(p[0])} * x)",
    "gaussian": lambda p, _: (
        f"math.exp(-0.5 * ((x - {number(p[0])}) / {number(p[1])})**2) / ({number(p[1])} * math.sqrt(2*math.pi))"
    ),
    "rational": lambda p, _: f"({polynomial_text(p[0])}) / ({polynomial_text(p[1])})",
    "rectangle": lambda p, _: f"1 if abs(x) <= {number(p[0])} / 2 else 0",
    "square_wave": _square_wave_text,
    "ceil": lambda p, _: "math.ceil(x)",
    "floor": lambda p, _: "math.floor(x)",
}
