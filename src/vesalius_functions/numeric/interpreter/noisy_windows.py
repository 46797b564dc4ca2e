"""Sums and products with a rectangle or a square wave under noise, by least squares over all widths or waves at once.

The best setting of a window is the one that leaves least beside the union of what the other operand can be; the other
operand is then fitted in each of its spaces.
"""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from vesalius_functions.numeric.expressions import Atom, Reals, evaluate
from vesalius_functions.numeric.interpreter import shapes, spaces
from vesalius_functions.numeric.interpreter.candidates import Candidate
from vesalius_functions.numeric.interpreter.session import Points
from vesalius_functions.numeric.interpreter.windows import ADDENDS, FACTORS, rectangle_combined, wave_combined

#: What the other operand is a sum of, roughly: enough to find the window by.
_UNION = (*((power, "1") for power in range(6)), (0, "step"), (1, "step"), (0, "ceil"))


def windowed_fits(points: Points) -> Iterator[Candidate]:
    """One rule per space of the other operand, for the best rectangle and the best square wave."""
    for operation in ("sum", "product"):
        for family, lattice in (
            ("rectangle", shapes.rectangles(points.x)),
            ("square_wave", shapes.square_waves(points.x)),
        ):
            setting = _best_setting(points, lattice, operation, family)
            yield from _beside(points, operation, Atom(family, tuple(map(float, setting))))


def _best_setting(points: Points, lattice: shapes.Lattice, operation: str, family: str) -> Float[ndarray, " numbers"]:
    if operation == "sum":
        basis = _basis(points.x)
        rest = points.y - basis @ (basis.T @ points.y)
        gain = 2 * lattice.values @ rest - (lattice.values**2).sum(axis=1) + ((lattice.values @ basis) ** 2).sum(axis=1)
        return lattice.settings[int(np.argmax(gain))]
    if family == "square_wave":
        explained = (((lattice.values * points.y) @ _basis(points.x)) ** 2).sum(axis=1)
        return lattice.settings[int(np.argmax(explained))]
    return lattice.settings[int(np.argmax([_explained_inside(points, row) for row in lattice.values]))]


def _explained_inside(points: Points, window: Float[ndarray, " points"]) -> float:
    """How much less is left if the other operand is fitted inside a rectangle and zero outside."""
    inside = np.flatnonzero(window)
    if len(inside) < 12:
        return -np.inf
    y = points.y[inside]
    explained = float(((_basis(points.x[inside]).T @ y) ** 2).sum())
    return explained - float((points.y**2).sum())


def _basis(x: Reals) -> Float[ndarray, "points terms"]:
    columns = np.stack([spaces.column(term, x) for term in _UNION], axis=1)
    norms = np.linalg.norm(columns, axis=0)
    basis, _ = np.linalg.qr(columns / np.where(norms > 0, norms, 1.0))
    return basis


def _beside(points: Points, operation: str, window: Atom) -> Iterator[Candidate]:
    """The other operand in each of its spaces, together with the window."""
    values = evaluate(window, points.x)
    is_wave = window.family == "square_wave"
    if operation == "sum":
        rest, others = Points(points.x, points.y - values), ADDENDS
    elif is_wave:
        rest, others = Points(points.x, points.y * values), FACTORS
    else:
        rest, others = points.where(values > 0), FACTORS
    if len(rest) < 8:
        return
    for space in others:
        for fit in spaces.fits(space, rest, np.ones(len(rest))):
            rule = fit.candidate()
            yield (
                wave_combined(operation, rule, window)
                if is_wave
                else rectangle_combined(operation, rule, window.params[0] / 2)
            )
