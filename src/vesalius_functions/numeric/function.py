"""A numeric black box: an expression, and at most one of noise, corruption, or a net that approximates it.

Noise is drawn from (function, number of the call) alone, so a run repeats exactly however the calls are batched: the
number of the call is hashed to one uniform value, and that is carried to the distribution by its inverse.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from scipy.special import ndtri

from vesalius_functions.box import Category, Mode, Reply
from vesalius_functions.numeric.expressions import (
    POLES,
    Expression,
    Pair,
    Quirks,
    Reals,
    evaluate,
    family,
    formula,
    number,
    operands,
)
from vesalius_functions.numeric.nets import Net

Kind = Literal["clean", "corrupted", "noised", "mlp"]
NoiseKind = Literal["normal", "uniform", "poisson"]
Shape = Literal["inside", "outside", "larger", "smaller"]

#: Mean and standard deviation of each kind of noise.
NOISE = {"normal": (0.0, 1.0), "uniform": (0.0, 1 / math.sqrt(3)), "poisson": (1.0, 1.0)}
CORRUPTION_SD = 0.1
_POISSON_STEPS = np.cumsum([math.exp(-1) / math.factorial(k) for k in range(30)])


@dataclass(frozen=True)
class Corruption:
    """Where the function answers with noise about a constant instead: an open interval, all outside of one, or a
    half-line with its end.
    """

    shape: Shape
    boundary: tuple[float, ...]
    mean: float

    def covers(self, x: Reals) -> Bool[ndarray, " points"]:
        """Which inputs are corrupted."""
        if self.shape == "inside":
            return (x > self.boundary[0]) & (x < self.boundary[1])
        if self.shape == "outside":
            return (x <= self.boundary[0]) | (x >= self.boundary[1])
        return x >= self.boundary[0] if self.shape == "larger" else x <= self.boundary[0]

    @property
    def interval(self) -> tuple[float | None, float | None]:
        """Its ends, None where it is unbounded; of `outside`, those of the interval that is left."""
        if self.shape in ("inside", "outside"):
            return self.boundary[0], self.boundary[1]
        return (self.boundary[0], None) if self.shape == "larger" else (None, self.boundary[0])


@dataclass(frozen=True)
class NumericFunction:
    """A function of one number. See `vesalius_functions.box.Function`."""

    id: str
    expression: Expression
    kind: Kind
    mode: Mode
    #: What its noise is drawn from, together with the number of the call.
    noise_key: int
    noise: NoiseKind | None = None
    corruption: Corruption | None = None
    net: Net | None = None
    #: The training error of the published net this one stands in for.
    published_mse: float | None = None
    category: Category = "numeric"

    @property
    def family(self) -> str:
        """The family, or `sum` or `product`."""
        return family(self.expression)

    @property
    def quirks(self) -> Quirks:
        """What the published script of this kind gets wrong; nothing in mode `fixed`. Nets learned the right thing."""
        if self.mode == "fixed" or self.kind == "mlp":
            return Quirks()
        return Quirks(
            no_absolute_bias=True,
            sign_square_wave=self.kind != "clean" or isinstance(self.expression, Pair),
            complex_root=self.kind != "corrupted",
        )

    def clean(self, x: Reals) -> ndarray:
        """Values without noise and corruption; of a net, what the net says."""
        return evaluate(self.expression, x, quirks=self.quirks) if self.net is None else self.net(x)

    def mean(self, x: Reals) -> ndarray:
        """The expected value at each input: what no interpreter can improve on."""
        values = self.clean(x)
        if self.noise is not None:
            values = values + NOISE[self.noise][0]
        if self.corruption is not None:
            values = np.where(self.corruption.covers(x), self.corruption.mean, values)
        return values

    def values(self, x: Reals, *, first_call: int = 0) -> ndarray:
        """What is answered, noise and all; call `first_call + i` draws its own."""
        if self.noise is None and self.corruption is None:
            return self.clean(x)
        chance = _chances(self.noise_key, np.arange(len(x), dtype=np.uint64) + np.uint64(first_call))
        if self.noise is not None:
            return self.clean(x) + _noise(self.noise, chance)
        assert self.corruption is not None
        return np.where(self.corruption.covers(x), self.corruption.mean + CORRUPTION_SD * ndtri(chance), self.clean(x))

    def replies(self, inputs: Sequence[object], *, first_call: int = 0) -> list[Reply]:
        """One reply per input; a division by zero or an input that is not a number is an error of that input alone."""
        x = [_as_number(value) for value in inputs]
        values = self.values(np.array([math.nan if value is None else value for value in x]), first_call=first_call)
        poles = np.isinf(values) & (self.family in POLES and self.net is None)
        replies = [Reply(value) for value in values.tolist()]
        for index, given in enumerate(inputs):
            if x[index] is None:
                replies[index] = Reply(error=f"{given!r:.40} is not a number")
            elif poles[index]:
                replies[index] = Reply(error="division by zero")
        return replies

    def truth(self) -> dict[str, Any]:
        """What the function is, as JSON: `family`, `operands`, `kind`, `noise`, `interval`, `formula`, `domain`.

        `outside` is there, and true, where everything outside the interval is corrupted instead of what is inside.
        """
        parts = operands(self.expression)
        return {
            "kind": self.kind,
            "mode": self.mode,
            "family": self.family,
            "operands": [atom.family for atom in parts] if isinstance(self.expression, Pair) else [],
            "params": [atom.params for atom in parts] if isinstance(self.expression, Pair) else parts[0].params,
            "formula": formula(self.expression, quirks=self.quirks),
            "noise": self.noise,
            "interval": None if self.corruption is None else list(self.corruption.interval),
            **({"outside": True} if self.corruption is not None and self.corruption.shape == "outside" else {}),
            "corrupted_mean": None if self.corruption is None else self.corruption.mean,
            "training_mse": None if self.net is None else self.net.mse,
            "published_mse": self.published_mse,
        }


def _as_number(value: object) -> float | None:
    """The input as a float, as a script would read it from its command line; None if it is not a number."""
    if not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _chances(key: int, calls: Int[ndarray, " calls"]) -> Float[ndarray, " calls"]:
    """One uniform value in (0, 1) per call: SplitMix64 of the key and the number of the call."""
    with np.errstate(over="ignore"):
        z = np.uint64(key) + (calls + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return ((z >> np.uint64(11)).astype(float) + 0.5) / 2**53


def _noise(kind: NoiseKind, chance: Float[ndarray, " calls"]) -> Float[ndarray, " calls"]:
    if kind == "normal":
        return ndtri(chance)
    if kind == "uniform":
        return 2 * chance - 1
    return np.searchsorted(_POISSON_STEPS, chance).astype(float)


# Answers as Python text that needs only `math`: a formula, an interval in which a constant is answered, or a table.


def formula_program(formula: str, *, interval: tuple[Shape, tuple[float, ...], float] | None = None) -> str:
    """A function that computes a formula in x, and inside the interval (shape, boundary, value) answers the value."""
    return "\n".join(["import math", "", "def f(x):", *_interval_lines(interval), f"    return {formula}", ""])


def table_program(
    x: Sequence[float],
    y: Sequence[float],
    *,
    interval: tuple[Shape, tuple[float, ...], float] | None = None,
    undefined_below: float | None = None,
) -> str:
    """A function that draws straight lines through points (sorted by x), and beyond the last ones goes on alike."""
    lines = ["from bisect import bisect", "", f"X = {_listed(x)}", f"Y = {_listed(y)}", "", "def f(x):"]
    lines += _interval_lines(interval)
    if undefined_below is not None:
        lines += [f"    if x < {number(undefined_below)}:", "        return float('nan')"]
    lines += [
        "    i = min(max(bisect(X, x), 1), len(X) - 1)",
        "    return Y[i - 1] + (Y[i] - Y[i - 1]) * (x - X[i - 1]) / (X[i] - X[i - 1])",
        "",
    ]
    return "\n".join(lines)


def net_program(net: Net) -> str:
    """The net itself, unit by unit."""
    units = ", ".join(
        f"({number(slope)}, {number(bias)}, {number(outer)})"
        for slope, bias, outer in zip(net.slopes, net.biases, net.outer, strict=True)
    )
    total = f"sum(v * max(w * x + b, 0.0) for w, b, v in UNITS) + {number(net.bias)}"
    return f"UNITS = [{units}]\n\ndef f(x):\n    return {total}\n"


def _interval_lines(interval: tuple[Shape, tuple[float, ...], float] | None) -> list[str]:
    if interval is None:
        return []
    shape, boundary, value = interval
    ends = [number(end) for end in boundary]
    test = {
        "inside": lambda: f"{ends[0]} < x < {ends[-1]}",
        "outside": lambda: f"x <= {ends[0]} or x >= {ends[-1]}",
        "larger": lambda: f"x >= {ends[0]}",
        "smaller": lambda: f"x <= {ends[0]}",
    }[shape]()
    return [f"    if {test}:", f"        return {number(value)}"]


def _listed(values: Sequence[float]) -> str:
    return "[" + ", ".join(f"{float(value):.9g}" for value in values) + "]"
