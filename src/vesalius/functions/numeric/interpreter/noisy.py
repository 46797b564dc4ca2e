"""Rules for a function that answers differently every time, or that no rule gives exactly.

Every rule is fitted by least squares and scored: misfit in units of the noise, plus the logarithm of the number of
points for each number it was free to fit, plus what the name costs under the generator's odds. The lowest score wins.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from vesalius.functions.numeric.expressions import Atom
from vesalius.functions.numeric.interpreter import rationals, shapes, spaces
from vesalius.functions.numeric.interpreter.candidates import Candidate, from_atom, sizes
from vesalius.functions.numeric.interpreter.session import Points

#: -2 log of the odds of one family by itself, and of one sum or product.
ATOM_COST = -2 * math.log(0.85 / 16)
PAIR_COST = -2 * math.log(0.15 / 81)
#: Answers are doubles: what is left of a large one after rounding.
_ROUNDING = 1e-12


def best_rule(points: Points, *, sd: float) -> Candidate:
    """The rule with the lowest score for answers with noise of this standard deviation."""
    return min(scored_rules(points, sd=sd), key=lambda candidate: candidate.score)


def scored_rules(points: Points, *, sd: float) -> Iterator[Candidate]:
    """Every rule, fitted and scored."""
    spread = np.sqrt(sd**2 + (_ROUNDING * sizes(points)) ** 2)
    price = math.log(len(points))
    if (points.x > 0).all():
        yield from _curves(points, spread, price)
    for space in spaces.SPACES:
        for fit in spaces.fits(space, points, 1 / spread):
            cost = ATOM_COST if not space.operands else PAIR_COST
            yield fit.candidate(score=fit.rss + len(fit.terms) * price + cost)
    yield from _shapes(points, spread, price)


def _curves(points: Points, spread: Float[ndarray, "points"], price: float) -> Iterator[Candidate]:
    for family in ("logarithm", "root"):
        atom = shapes.curve_over_positive(points, family)
        if atom is not None:
            yield _scored(from_atom(atom, free=2), points, spread, price)


def _shapes(points: Points, spread: Float[ndarray, "points"], price: float) -> Iterator[Candidate]:
    rss, _ = shapes.sinusoid_fits(points)
    period = float(shapes.PERIODS[int(np.argmin(rss))])
    yield _scored(from_atom(shapes.refined_sinusoid(points, period), free=4), points, spread, price)
    lattice = shapes.tanh_lattice(points.x)
    rss, scales, biases = shapes.affine_fits(lattice, points.y)
    best = int(np.argmin(rss))
    tanh = Atom("tanh", (float(scales[best]), *map(float, lattice.settings[best]), float(biases[best])))
    yield _scored(from_atom(tanh, free=4), points, spread, price)
    for family, lattice in (
        ("gaussian", shapes.bells(points.x)),
        ("rectangle", shapes.rectangles(points.x)),
        ("square_wave", shapes.square_waves(points.x)),
    ):
        # The sum of squares of y - shape, without what all settings share.
        misfit = (lattice.values**2).sum(axis=1) - 2 * lattice.values @ points.y
        setting = lattice.settings[int(np.argmin(misfit))]
        atom = Atom(family, tuple(float(value) for value in setting))
        yield _scored(from_atom(atom, free=len(setting)), points, spread, price)
    inverse = 1 / points.x
    slope = float((inverse @ points.y) / (inverse @ inverse))
    if slope:
        yield _scored(from_atom(Atom("reciprocal", (1 / slope,)), free=1), points, spread, price)
    for low, high in rationals.DEGREES:
        if (fitted := rationals.fitted_rational(points, low, high)) is not None:
            yield _scored(from_atom(fitted[0], free=low + high + 1), points, spread, price)


def _scored(candidate: Candidate, points: Points, spread: Float[ndarray, "points"], price: float) -> Candidate:
    with np.errstate(all="ignore"):
        rest = (candidate.predict(points.x) - points.y) / spread
        rss = float(rest @ rest)
    cost = ATOM_COST if not candidate.operands else PAIR_COST
    return replace(candidate, score=rss + candidate.free * price + cost if math.isfinite(rss) else math.inf)
