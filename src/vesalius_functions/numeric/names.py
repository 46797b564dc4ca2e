"""Other names that a function has: whether some member of a family, or of a sum or product of two, is that function.

A line is a polynomial, and a sum of two lines is a line. Families that are linear in their parameters are spaces of
terms, and least squares says whether a function lies in one. Of the others (waves, bells, boxes, roots) only those that
the function itself is made of come into question, with their own parameters.
"""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from vesalius_functions.numeric.expressions import FAMILIES, OPERANDS, evaluate, operands
from vesalius_functions.numeric.function import NumericFunction

#: Relative to the size of the function: two ways to write the same function differ by less.
SAME = 1e-6
SCALE = 128.0
_SPANS: dict[str, tuple[Callable[[ndarray], ndarray], ...]] = {
    "constant": (np.ones_like,),
    "linear": (np.ones_like, lambda x: x),
    "polynomial": tuple(lambda x, power=power: (x / SCALE) ** power for power in range(6)),
    "absolute": (np.ones_like, np.abs),
    "step": (np.ones_like, lambda x: (x > 0) * 1.0),
    "relu": (np.ones_like, lambda x: np.minimum(x, 0), lambda x: np.maximum(x, 0)),
    "reciprocal": (lambda x: 1 / x,),
    "logarithm": (np.ones_like, np.log),
    "ceil": (np.ceil,),
    "floor": (np.floor,),
}
#: Not free in size where they stand alone or in a sum.
_FIXED = ("ceil", "floor", "rectangle", "square_wave", "gaussian")
Columns = list[Float[ndarray, " points"]]


def can_express(family: str, parts: Sequence[str], function: NumericFunction, points: ndarray) -> bool:
    """Whether a family, or the sum or product of two, has a member that is the function at the points."""
    composed = family in ("sum", "product")
    names = list(parts) if composed else [family]
    if len(names) != 1 + composed or not set(names) <= set(OPERANDS if composed else FAMILIES):
        return False
    with np.errstate(all="ignore"):
        y = function.clean(points)
        defined = np.isfinite(np.abs(y)) & (points != 0)
        x, y = points[defined], y[defined]
        if not len(x) or np.iscomplexobj(y):
            return False
        columns = [_columns(name, function, x) for name in names]
        if family == "product":
            products = [one * other for one in columns[0] for other in columns[1]]
            return any(_is_zero(y - one, y) for one in products) if _all_fixed(names) else _in_span(y, products, y)
        # Where a function has two members of a fixed family, the second time the name is said it is the second.
        fixed = [(which, name) for which, name in enumerate(names) if name in _FIXED]
        if not all(columns[which] for which in range(len(names))):
            return False
        rest = y - sum(columns[which][min(names[:which].count(name), len(columns[which]) - 1)] for which, name in fixed)
        free = [column for name, own in zip(names, columns, strict=True) if name not in _FIXED for column in own]
        return _in_span(rest, free, y) and (family != "relu" or _leaks(x, y))


def _all_fixed(names: Sequence[str]) -> bool:
    return all(name in _FIXED for name in names)


def _columns(name: str, function: NumericFunction, x: ndarray) -> Columns:
    """The terms of a family; of one that is not linear in its parameters, the function's own members."""
    if name in _SPANS:
        return [term(x) for term in _SPANS[name]]
    own = [atom for atom in operands(function.expression) if atom.family == name]
    members = [evaluate(atom, x, quirks=function.quirks) for atom in own]
    return members if name in _FIXED else [*members, np.ones_like(x)] if members else []


def _in_span(y: ndarray, columns: Columns, size: ndarray) -> bool:
    """Whether y is a combination of the columns, but for rounding relative to the size."""
    if not columns:
        return _is_zero(y, size)
    # Values of high powers span many orders of magnitude: each point counts relative to its own.
    weights = 1 / _rounding(size)
    terms = np.stack(columns, axis=1) * weights[:, None]
    norms = np.linalg.norm(terms, axis=0)
    if not np.isfinite(norms).all():
        return False
    terms = terms / np.where(norms > 0, norms, 1.0)
    coefficients, *_ = np.linalg.lstsq(terms, y * weights, rcond=1e-14)
    return bool((np.abs(terms @ coefficients - y * weights) <= 1).all())


def _is_zero(y: ndarray, size: ndarray) -> bool:
    return bool((np.abs(y) <= _rounding(size)).all())


def _rounding(size: ndarray) -> Float[ndarray, " points"]:
    return SAME * (np.abs(size) + np.sqrt(np.mean(size**2))) + 1e-300


def _leaks(x: ndarray, y: ndarray) -> bool:
    """Whether a kink is a leaky one: below zero it falls no faster than above, and in the same direction."""
    bias, below, above = np.linalg.lstsq(np.stack([term(x) for term in _SPANS["relu"]], axis=1), y, rcond=None)[0]
    slack = SAME * (abs(below) + abs(above) + abs(bias) / SCALE)
    return bool(min(0.0, above) - slack <= below <= max(0.0, above) + slack)
