"""Families that are not linear in what is unknown: waves, tanh, bells, boxes, reciprocals, logarithms, roots.

Each one is a handful of lines that turn points into parameters. Where a period, a centre or a width is unknown, all
values on the lattice of the generator (one decimal) are tried at once; that the true value lies there is prior
knowledge, and stated as such in the documentation. Amplitudes and offsets are then linear and solved for.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from vesalius_functions.numeric.expressions import Atom, Reals
from vesalius_functions.numeric.interpreter.session import Points, rounded

#: One-decimal values that the generator draws from.
PERIODS = np.round(np.arange(1, 64) * 0.1, 1)
CENTRES = PERIODS
WIDTHS = np.round(np.arange(10, 101) * 0.1, 1)
WAVE_PERIODS = WIDTHS
WAVE_SHIFTS = np.round(np.arange(-50, 51) * 0.1, 1)
MEANS = np.round(np.arange(-500, 501, 5) * 0.1, 1)
DEVIATIONS = np.round(np.exp(np.linspace(0, math.log(10), 12)), 2)


@dataclass(frozen=True)
class Lattice:
    """One shape at many settings: its values [settings, points], and what the settings are."""

    values: Float[ndarray, "settings points"]
    settings: Float[ndarray, "settings numbers"]


def affine_fits(lattice: Lattice, y: Float[ndarray, " points"]) -> tuple[ndarray, ndarray, ndarray]:
    """For every setting the best `scale * shape + bias`: residual sums of squares, scales, biases."""
    shape = lattice.values
    centred = shape - shape.mean(axis=1, keepdims=True)
    power = (centred * centred).sum(axis=1)
    y_centred = y - y.mean()
    scale = (centred @ y_centred) / np.where(power > 1e-12, power, np.inf)
    rest = y_centred - scale[:, None] * centred
    return (rest * rest).sum(axis=1), scale, y.mean() - scale * shape.mean(axis=1)


@lru_cache(maxsize=4)
def _tanh_table(x: bytes) -> Lattice:
    points = np.frombuffer(x)
    periods, centres = (grid.ravel() for grid in np.meshgrid(PERIODS, CENTRES, indexing="ij"))
    values = np.tanh(2 * math.pi / periods[:, None] * (points - centres[:, None]))
    return Lattice(values, np.stack([periods, centres], axis=1))


@lru_cache(maxsize=4)
def _wave_table(x: bytes) -> Lattice:
    points = np.frombuffer(x)
    periods, shifts = (grid.ravel() for grid in np.meshgrid(WAVE_PERIODS, WAVE_SHIFTS, indexing="ij"))
    phase = (points - shifts[:, None]) / periods[:, None]
    values = np.where(np.floor(2 * phase) % 2 == 0, 1.0, -1.0)
    return Lattice(values, np.stack([periods, shifts], axis=1))


def tanh_lattice(x: Reals) -> Lattice:
    """tanh at every period and centre; the same points come again for every function, so it is kept."""
    return _tanh_table(np.ascontiguousarray(x).tobytes())


def square_waves(x: Reals) -> Lattice:
    """Square waves of every period and shift."""
    return _wave_table(np.ascontiguousarray(x).tobytes())


def rectangles(x: Reals) -> Lattice:
    """Rectangles of every width."""
    return Lattice((np.abs(x) <= WIDTHS[:, None] / 2).astype(float), WIDTHS[:, None])


def bells(x: Reals) -> Lattice:
    """Normal densities over a coarse grid of means and deviations."""
    means, deviations = (grid.ravel() for grid in np.meshgrid(MEANS, DEVIATIONS, indexing="ij"))
    z = (x - means[:, None]) / deviations[:, None]
    values = np.exp(-0.5 * z * z) / (deviations[:, None] * math.sqrt(2 * math.pi))
    return Lattice(values, np.stack([means, deviations], axis=1))


def sinusoid_fits(points: Points) -> tuple[Float[ndarray, " periods"], Float[ndarray, "periods 3"]]:
    """For every period the best `a sin + b cos + c`: residual sums of squares and the three coefficients."""
    angle = 2 * math.pi / PERIODS[:, None] * points.x
    columns = np.stack([np.sin(angle), np.cos(angle), np.ones_like(angle)], axis=2)
    gram = columns.transpose(0, 2, 1) @ columns + 1e-9 * np.eye(3)
    coefficients = np.linalg.solve(gram, (columns.transpose(0, 2, 1) @ points.y)[..., None])
    rest = points.y - (columns @ coefficients)[..., 0]
    return (rest * rest).sum(axis=1), coefficients[..., 0]


def refined_sinusoid(points: Points, period: float) -> Atom:
    """The sinusoid of a period by least squares, as the family whose centre is a short decimal."""
    angle = 2 * math.pi / period * points.x
    columns = np.stack([np.sin(angle), np.cos(angle), np.ones_like(angle)], axis=1)
    along, across, bias = np.linalg.lstsq(columns, points.y, rcond=None)[0]
    return named_sinusoid(period, float(along), float(across), float(bias))


def named_sinusoid(period: float, along: float, across: float, bias: float) -> Atom:
    """`along sin + across cos + bias` as a sine or a cosine: whichever has a centre of one decimal in 0.1..6.3."""
    amplitude = math.hypot(along, across)
    start = math.atan2(-across, along) / (2 * math.pi) * period  # amplitude * sin(2 pi / period * (x - start))
    best: tuple[float, Atom] | None = None
    for name, lead in (("sin", 0.0), ("cos", period / 4)):
        for sign, half in ((1, 0.0), (-1, period / 2)):
            first = (start + lead + half) % period
            for centre in np.arange(first, 6.35, period) if period > 0 else ():
                if centre < 0.05:
                    continue
                miss = abs(centre - round(centre, 1))
                if best is None or miss < best[0] - 1e-6:
                    params = (rounded(sign * amplitude), period, rounded(float(centre)), rounded(bias))
                    best = miss, Atom(name, params)
    if best is None:
        return Atom("sin", (rounded(amplitude), period, rounded(start), rounded(bias)))
    return best[1]


def reciprocal(points: Points) -> Atom | None:
    """1 / (a x) from the product of x and answer."""
    with np.errstate(all="ignore"):
        a = float(np.median(1 / (points.x * points.y))) if len(points) else math.nan
    return Atom("reciprocal", (rounded(a),)) if math.isfinite(a) and a != 0 else None


def gaussian(points: Points) -> Atom | None:
    """A normal density from the parabola of its logarithm."""
    kept = points.where((points.y > 1e-200) & (points.y < 1))
    if len(kept) < 4 or (points.y < 0).any():
        return None
    quadratic, linear, _ = np.polyfit(kept.x / 64, np.log(kept.y), 2)
    if quadratic >= 0:
        return None
    mean, sd = -linear / (2 * quadratic) * 64, 64 / math.sqrt(-2 * quadratic)
    return Atom("gaussian", (rounded(float(mean)), rounded(float(sd))))


def curve_over_positive(points: Points, family: str) -> Atom | None:
    """A logarithm (to base e) or a square root from the points above zero."""
    kept = points.x > 0
    if kept.sum() < 3:
        return None
    shape = np.log(points.x[kept]) if family == "logarithm" else np.sqrt(points.x[kept])
    columns = np.stack([shape, np.ones_like(shape)], axis=1)
    scale, bias = np.linalg.lstsq(columns, np.real(points.y[kept]), rcond=None)[0]
    scale, bias = rounded(float(scale)), rounded(float(bias))
    return Atom("logarithm", (scale, bias, math.e)) if family == "logarithm" else Atom("root", (scale, bias, 2))
