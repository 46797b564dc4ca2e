"""Answers as Python text that needs only `math`: a formula, an interval in which a constant is answered, or a table."""

from collections.abc import Sequence

from vesalius_functions.numeric.expressions import number
from vesalius_functions.numeric.function import Shape
from vesalius_functions.numeric.nets import Net


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
