"""A guess at what a function computes, and how well it meets the answers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from vesalius_functions.numeric.expressions import Atom, Reals, evaluate, formula
from vesalius_functions.numeric.interpreter.session import Points

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
