"""Quotients of polynomials, numerator of lower degree, at most 4 over 5.

`n(x) - y d(x) = 0` is linear in the coefficients: they are the direction in which the matrix of all points vanishes.
Rows are weighted to make the error that of y rather than of y d(x), by the denominator found before.
"""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from vesalius_functions.numeric.expressions import Atom
from vesalius_functions.numeric.interpreter.session import Points

DEGREES = tuple((low, high) for high in range(1, 6) for low in range(high))
#: A direction vanishes if the matrix shrinks by this much along it.
_VANISHES = 1e-11
_ROUNDS = 3


def exact_rationals(points: Points) -> Iterator[Atom]:
    """Quotients that make the matrix vanish, of the lowest degrees first."""
    if len(points) < 14 or np.abs(points.y).max() == 0:
        return
    for low, high in DEGREES:
        coefficients, shrink = _vanishing(points, low, high)
        if shrink < _VANISHES:
            yield _atom(coefficients, low)


def fitted_rational(points: Points, low: int, high: int) -> tuple[Atom, float] | None:
    """The quotient of these degrees that fits noisy answers, and its residual sum of squares."""
    best: tuple[Atom, float] | None = None
    denominator = np.ones(len(points))
    for _ in range(_ROUNDS):
        columns = np.concatenate(
            [_powers(points.x, low), -points.y[:, None] * _powers(points.x, high)[:, 1:]], axis=1
        ) / np.abs(denominator[:, None])
        norms = np.linalg.norm(columns, axis=0) + 1e-300
        solution = np.linalg.lstsq(columns / norms, points.y / np.abs(denominator), rcond=1e-10)[0] / norms
        coefficients = np.concatenate([solution[: low + 1], [1.0], solution[low + 1 :]])
        denominator = _powers(points.x, high) @ coefficients[low + 1 :]
        if np.abs(denominator).min() < 1e-9:
            return best
        rest = points.y - (_powers(points.x, low) @ coefficients[: low + 1]) / denominator
        rss = float(rest @ rest)
        if best is None or rss < best[1]:
            best = Atom("rational", (tuple(coefficients[: low + 1]), tuple(coefficients[low + 1 :]))), rss
    return best


def _vanishing(points: Points, low: int, high: int) -> tuple[Float[ndarray, " coefficients"], float]:
    """The direction along which the matrix shrinks most, in the units of x, and by how much."""
    matrix = np.concatenate([_powers(points.x, low), -points.y[:, None] * _powers(points.x, high)], axis=1)
    matrix = matrix / np.linalg.norm(matrix, axis=1, keepdims=True)
    norms = np.linalg.norm(matrix, axis=0)
    if not (np.isfinite(norms).all() and norms.all()):  # answers near the ends of what floats can hold
        return np.ones(len(norms)), np.inf
    _, singular, directions = np.linalg.svd(matrix / norms, full_matrices=False)
    return directions[-1] / norms, float(singular[-1] / singular[0])


def _atom(coefficients: Float[ndarray, " coefficients"], low: int) -> Atom:
    """The quotient, scaled so that as many coefficients as possible are short decimals."""
    coefficients = coefficients / np.abs(coefficients).max()
    best, best_miss = coefficients * 10, np.inf
    for top in np.arange(1, 101) * 0.1:
        scaled = coefficients * top
        miss = float(np.abs(scaled - np.round(scaled, 1)).max())
        if miss < min(best_miss, 1e-4):
            best, best_miss = np.round(scaled, 1), miss
            break
    return Atom("rational", (tuple(best[: low + 1].tolist()), tuple(best[low + 1 :].tolist())))


def _powers(x: Float[ndarray, " points"], degree: int) -> Float[ndarray, "points powers"]:
    return x[:, None] ** np.arange(degree + 1)
