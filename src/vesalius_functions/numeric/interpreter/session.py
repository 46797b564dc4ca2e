"""Asking the box: points chosen once for all functions, every answer kept, never more than the budget.

The survey asks 80 points over the whole range twice. No two of them are as far apart as the shortest corrupted interval
is long, and what differs between the two answers tells noise (everywhere) from corruption (one stretch). Then come
points close to zero, where most families differ, and a part of the budget is left for questions that arise.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from vesalius_functions.box import Box
from vesalius_functions.numeric.expressions import Atom, Reals, evaluate, formula

BUDGET = 400
EDGE = 128.0
#: Of the budget: points of the survey (asked twice); points near zero, in general and at integers (asked once).
_SURVEY, _CLOSE, _GENERAL, _INTEGERS = 0.2, 0.16, 0.04, 0.02


@dataclass(frozen=True)
class Points:
    """Inputs with their answers: NaN where there was none; complex only where the box said so."""

    x: Float[ndarray, " points"]
    y: ndarray

    def where(self, chosen: Bool[ndarray, " points"]) -> "Points":
        """Some of them."""
        return Points(self.x[chosen], self.y[chosen])

    def __add__(self, other: "Points") -> "Points":
        return Points(np.concatenate([self.x, other.x]), np.concatenate([self.y, other.y]))

    def __len__(self) -> int:
        return len(self.x)

    @property
    def finite(self) -> "Points":
        """Those with a number as answer."""
        return self.where(np.isfinite(self.y))


class Session:
    """One interpreter's questions to one box."""

    def __init__(self, box: Box, *, seed: int) -> None:
        self._box = box
        self.budget = BUDGET if box.left is None else min(BUDGET, box.left)
        self._end = box.asked + self.budget
        self.rng = np.random.default_rng(seed)

    @property
    def left(self) -> int:
        """How many questions remain."""
        return self._end - self._box.asked

    def ask(self, x: Sequence[float] | ndarray) -> Points:
        """Ask as many of the points as the budget allows."""
        chosen = [float(value) for value in x][: self.left]
        answers = [_number(reply.value) for reply in self._box.ask(chosen)] if chosen else []
        values = np.array(answers, dtype=complex)
        return Points(np.array(chosen), values if np.iscomplex(values[np.isfinite(values)]).any() else np.real(values))

    def survey(self) -> tuple[Points, Points]:
        """Points over the range, each asked twice."""
        count = max(1, int(_SURVEY * self.budget))
        width = 2 * EDGE / count
        x = -EDGE + (np.arange(count) + 0.5 + self.rng.uniform(-0.25, 0.25, count)) * width
        x = x[: self.left // 2] if self.left >= 2 else x[:1]
        return self.ask(x), self.ask(x)

    def close_points(self) -> Float[ndarray, " points"]:
        """Where families differ: dense towards zero on both sides, and a few over the range."""
        count = int(_CLOSE * self.budget)
        signs = self.rng.choice([-1.0, 1.0], count)
        powers = 7 * self.rng.uniform(0, 1, count - count // 4) ** 1.5
        logs = np.exp(self.rng.uniform(math.log(0.02), math.log(1.5), count // 4))
        general = self.rng.uniform(-EDGE, EDGE, int(_GENERAL * self.budget))
        return np.concatenate([signs * np.concatenate([powers, logs]), general, self.integers()])

    def integers(self) -> Float[ndarray, " points"]:
        """Where ceil and floor agree, and so can be told apart from each other by their neighbours."""
        count = int(_INTEGERS * self.budget)
        return np.round(np.linspace(-0.9 * EDGE, 0.9 * EDGE, count))


def _number(value: object) -> complex:
    if isinstance(value, (bool, int, float, complex)):
        try:
            return complex(value)
        except OverflowError:
            return complex(math.nan)
    return complex(math.nan)


# A guess at what a function computes, and how well it meets the answers.

#: Of the size of a function: what rounding alone explains.
EXACT = 1e-8


@dataclass(frozen=True)
class Candidate:
    """A rule: its name, its formula as Python text and as array function, and how many numbers it was free to fit."""

    family: str
    formula: str
    predict: Callable[[Reals], ndarray]
    free: int
    operands: tuple[str, ...] = ()
    params: tuple[Any, ...] = ()
    #: Sum of squares of what it leaves unexplained, in units of the noise.
    misfit: float = 0.0


def from_atom(atom: Atom, *, free: int, misfit: float = 0.0) -> Candidate:
    """The candidate that a family with parameters is."""
    return Candidate(
        atom.family, formula(atom), lambda x: evaluate(atom, x), free=free, params=atom.params, misfit=misfit
    )


def sizes(points: Points) -> Float[ndarray, " points"]:
    """How large the function is about each point: the largest answer no farther from zero.

    Rounding in a polynomial is relative to its terms, and those grow with |x|: a residual is small or not in relation
    to this.
    """
    order = np.argsort(np.abs(points.x))
    magnitudes = np.empty(len(points))
    magnitudes[order] = np.maximum.accumulate(np.abs(points.y[order]))
    return np.maximum(magnitudes, 1e-12 * (np.abs(points.y).max(initial=0.0) + 1e-300)) + 1e-300


def meets(candidate: Candidate, points: Points) -> bool:
    """Whether a rule gives every answer, up to rounding."""
    with np.errstate(all="ignore"):
        error = np.abs(candidate.predict(points.x) - points.y)
    return bool((error <= EXACT * sizes(points)).all())


def rounded(value: float) -> float:
    """The number without digits that rounding made: to a short decimal where one is that close."""
    for digits in range(1, 6):
        near = round(value, digits)
        if abs(near - value) <= 1e-9 * max(abs(value), 0.1):
            return near
    return float(f"{value:.12g}")


# Quotients of polynomials, numerator of lower degree, at most 4 over 5.

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
