"""Rules for a function that answers differently every time, or that no rule gives exactly.

Every rule is fitted by least squares and scored: misfit in units of the noise, plus the logarithm of the number of
points for each number it was free to fit, plus what the name costs under the generator's odds. The lowest score wins.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from vesalius_functions.numeric.expressions import Atom
from vesalius_functions.numeric.interpreter import rationals, shapes, spaces
from vesalius_functions.numeric.interpreter.candidates import Candidate, from_atom, sizes
from vesalius_functions.numeric.interpreter.noisy_windows import windowed_fits
from vesalius_functions.numeric.interpreter.session import Points

#: -2 log of the odds of one family by itself, and of one sum or product.
ATOM_COST = -2 * math.log(0.85 / 16)
PAIR_COST = -2 * math.log(0.15 / 81)
#: Answers are doubles: what is left of a large one after rounding.
_ROUNDING = 1e-12


def likeliest(rules: Iterable[Candidate], *, count: int) -> Candidate | None:
    """The rule with the lowest score for so many answers; None if there is no rule."""
    price = math.log(count)
    return min(rules, key=lambda rule: rule.misfit + rule.free * price + name_cost(rule), default=None)


def name_cost(rule: Candidate) -> float:
    """What the name costs under the generator's odds."""
    return PAIR_COST if rule.operands else ATOM_COST


def fitted_rules(points: Points, *, sd: float, composed: bool = True) -> Iterator[Candidate]:
    """Every rule, fitted, with its misfit; sums and products only if asked for."""
    spread = np.sqrt(sd**2 + (_ROUNDING * sizes(points)) ** 2)
    if (points.x > 0).all():
        yield from _curves(points, spread)
    for space in spaces.SPACES if composed else spaces.ATOMIC:
        for fit in spaces.fits(space, points, 1 / spread):
            yield fit.candidate(misfit=fit.rss)
    yield from _shapes(points, spread)
    if composed:
        yield from (_measured(rule, points, spread) for rule in windowed_fits(points))


def _curves(points: Points, spread: Float[ndarray, " points"]) -> Iterator[Candidate]:
    for family in ("logarithm", "root"):
        atom = shapes.curve_over_positive(points, family)
        if atom is not None:
            yield _measured(from_atom(atom, free=2), points, spread)


def _shapes(points: Points, spread: Float[ndarray, " points"]) -> Iterator[Candidate]:
    rss, _ = shapes.sinusoid_fits(points)
    period = float(shapes.PERIODS[int(np.argmin(rss))])
    yield _measured(from_atom(shapes.refined_sinusoid(points, period), free=4), points, spread)
    lattice = shapes.tanh_lattice(points.x)
    rss, scales, biases = shapes.affine_fits(lattice, points.y)
    best = int(np.argmin(rss))
    tanh = Atom("tanh", (float(scales[best]), *map(float, lattice.settings[best]), float(biases[best])))
    yield _measured(from_atom(tanh, free=4), points, spread)
    for family, lattice in (
        ("gaussian", shapes.bells(points.x)),
        ("rectangle", shapes.rectangles(points.x)),
        ("square_wave", shapes.square_waves(points.x)),
    ):
        # The sum of squares of y - shape, without what all settings share.
        misfit = (lattice.values**2).sum(axis=1) - 2 * lattice.values @ points.y
        setting = lattice.settings[int(np.argmin(misfit))]
        atom = Atom(family, tuple(float(value) for value in setting))
        yield _measured(from_atom(atom, free=len(setting)), points, spread)
    inverse = 1 / points.x
    slope = float((inverse @ points.y) / (inverse @ inverse))
    if slope:
        yield _measured(from_atom(Atom("reciprocal", (1 / slope,)), free=1), points, spread)
    for low, high in rationals.DEGREES:
        if (fitted := rationals.fitted_rational(points, low, high)) is not None:
            yield _measured(from_atom(fitted[0], free=low + high + 1), points, spread)


def _measured(candidate: Candidate, points: Points, spread: Float[ndarray, " points"]) -> Candidate:
    with np.errstate(all="ignore"):
        rest = (candidate.predict(points.x) - points.y) / spread
        misfit = float(rest @ rest)
    return replace(candidate, misfit=misfit if math.isfinite(misfit) else math.inf)
