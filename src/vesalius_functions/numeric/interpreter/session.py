"""Asking the box: points chosen once for all functions, every answer kept, never more than the budget.

The survey asks 80 points over the whole range twice. No two of them are as far apart as the shortest corrupted interval
is long, and what differs between the two answers tells noise (everywhere) from corruption (one stretch). Then come
points close to zero, where most families differ, and a part of the budget is left for questions that arise.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from vesalius_functions.box import Box

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
