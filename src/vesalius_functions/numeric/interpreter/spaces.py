"""Rules that are linear in what is unknown: constants, lines, polynomials, kinks, steps, and most sums and products.

A space is a list of terms `x**power * factor`, in blocks: any number of blocks from the front, but at least one, is a
rule (a polynomial of degree 2, 3, 4, 5). One QR decomposition of all terms gives the misfit of every rule of a space.
A sum with ceil or floor has it with coefficient 1: that is the space's `offset`. The two differ by a constant but at
integers, so some of the points must be integers.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from vesalius_functions.numeric.expressions import Atom, Reals, polynomial_text
from vesalius_functions.numeric.interpreter.session import EXACT, Candidate, Points, from_atom, rounded, sizes

Term = tuple[int, str]
SCALE = 128.0
_FACTORS = {
    "1": (lambda x: np.ones_like(x), ""),
    "step": (lambda x: (x > 0).astype(float), "(x > 0)"),
    "abs": (np.abs, "abs(x)"),
    "ceil": (np.ceil, "math.ceil(x)"),
    "floor": (np.floor, "math.floor(x)"),
    "ceil step": (lambda x: np.ceil(x) * (x > 0), "math.ceil(x) * (x > 0)"),
    "floor step": (lambda x: np.floor(x) * (x > 0), "math.floor(x) * (x > 0)"),
    "ceil ceil": (lambda x: np.ceil(x) ** 2, "math.ceil(x)**2"),
    "ceil floor": (lambda x: np.ceil(x) * np.floor(x), "math.ceil(x) * math.floor(x)"),
    "floor floor": (lambda x: np.floor(x) ** 2, "math.floor(x)**2"),
}


@dataclass(frozen=True)
class Space:
    """Rules of one name: blocks of terms, and the factors that are added once each."""

    family: str
    operands: tuple[str, ...]
    blocks: tuple[tuple[Term, ...], ...]
    offset: tuple[str, ...] = ()

    def named(self, blocks: int) -> tuple[str, tuple[str, ...]]:
        """The name of the rule with that many blocks: a polynomial of degree 1 is a line, of degree 0 a constant."""
        degree = max((power for block in self.blocks[:blocks] for power, _ in block), default=0)
        if self.family == "product" and "relu" in self.operands and self.operands != ("relu", "relu"):
            degree -= 1
        name = "polynomial" if degree > 1 else "linear" if degree == 1 else "constant"
        return self.family, tuple(name if operand == "polynomial" else operand for operand in self.operands)


def _powers(low: int, high: int) -> list[Term]:
    return [(power, "1") for power in range(low, high + 1)]


def _by_degree(first: list[Term], *, factors: tuple[str, ...], degrees: range) -> tuple[tuple[Term, ...], ...]:
    return (tuple(first), *(tuple((degree, factor) for factor in factors) for degree in degrees))


def _spaces() -> Iterator[Space]:
    line = _powers(0, 1)
    kink = [*line, (1, "step")]
    yield Space("constant", (), (((0, "1"),),))
    yield Space("linear", (), (tuple(line),))
    yield Space("absolute", (), (((0, "1"), (0, "abs")),))
    yield Space("step", (), (((0, "1"), (0, "step")),))
    yield Space("relu", (), (tuple(kink),))
    yield Space("polynomial", (), _by_degree(_powers(0, 2), factors=("1",), degrees=range(3, 6)))
    # Sums.
    yield Space("sum", ("polynomial", "step"), _by_degree([*line, (0, "step")], factors=("1",), degrees=range(2, 6)))
    yield Space("sum", ("polynomial", "relu"), _by_degree([*kink, (2, "1")], factors=("1",), degrees=range(3, 6)))
    yield Space("sum", ("step", "relu"), ((*kink, (0, "step")),))
    for edge in ("ceil", "floor"):
        rising = _by_degree([(0, "1")], factors=("1",), degrees=range(1, 6))
        yield Space("sum", ("polynomial", edge), rising, offset=(edge,))
        yield Space("sum", ("step", edge), (((0, "1"), (0, "step")),), offset=(edge,))
        yield Space("sum", ("relu", edge), (tuple(kink),), offset=(edge,))
        yield Space("sum", (edge, edge), ((),), offset=(edge, edge))
    yield Space("sum", ("ceil", "floor"), ((),), offset=("ceil", "floor"))
    # Products.
    yield Space(
        "product", ("polynomial", "polynomial"), _by_degree(_powers(0, 6), factors=("1",), degrees=range(7, 11))
    )
    both = ("1", "step")
    yield Space("product", ("polynomial", "step"), _by_degree([*kink, (0, "step")], factors=both, degrees=range(2, 6)))
    yield Space(
        "product", ("polynomial", "relu"), _by_degree([*kink, (2, "1"), (2, "step")], factors=both, degrees=range(3, 7))
    )
    for edge in ("ceil", "floor"):
        yield Space("product", ("polynomial", edge), _by_degree([(0, edge)], factors=(edge,), degrees=range(1, 6)))
        yield Space("product", ("step", edge), (((0, edge), (0, f"{edge} step")),))
        yield Space("product", ("relu", edge), (((0, edge), (1, edge), (1, f"{edge} step")),))
    yield Space("product", ("ceil", "ceil"), (((0, "ceil ceil"),),))
    yield Space("product", ("ceil", "floor"), (((0, "ceil floor"),),))
    yield Space("product", ("floor", "floor"), (((0, "floor floor"),),))


SPACES = tuple(_spaces())
ATOMIC = tuple(space for space in SPACES if not space.operands)
COMPOSED = tuple(space for space in SPACES if space.operands)


@dataclass(frozen=True)
class Fit:
    """A rule of a space fitted to points."""

    space: Space
    blocks: int
    terms: tuple[Term, ...]
    coefficients: Float[ndarray, " terms"]
    #: Sum of squares of what is left, weighted.
    rss: float
    #: Largest of what is left, weighted.
    worst: float

    def candidate(self, *, misfit: float = 0.0) -> Candidate:
        """The rule as text and function."""
        kept = {term: rounded(float(value)) for term, value in zip(self.terms, self.coefficients, strict=True)}
        if not self.space.operands and (atom := _atom(self.space.family, kept)) is not None:
            return from_atom(atom, free=len(kept), misfit=misfit)
        family, operands = ("sum", ("linear", "relu")) if self.space.family == "relu" else self.space.named(self.blocks)
        for factor in self.space.offset:
            kept[(0, factor)] = kept.get((0, factor), 0.0) + 1.0
        return Candidate(
            family, text(kept), lambda x: values(kept, x), free=len(self.terms), operands=operands, misfit=misfit
        )


def fits(space: Space, points: Points, weights: Float[ndarray, " points"]) -> list[Fit]:
    """Least squares for every rule of a space, from one decomposition."""
    terms = tuple(term for block in space.blocks for term in block)
    target = (points.y - sum(_FACTORS[factor][0](points.x) for factor in space.offset)) * weights
    if not terms:
        return [Fit(space, 1, (), np.zeros(0), rss=float(target @ target), worst=float(np.abs(target).max()))]
    columns = np.stack([column(term, points.x) for term in terms], axis=1) * weights[:, None]
    norms = np.linalg.norm(columns, axis=0)
    norms[norms == 0] = 1.0
    orthogonal, triangle = np.linalg.qr(columns / norms)
    along = orthogonal.T @ target
    solutions, end = [], 0
    for blocks, block in enumerate(space.blocks, 1):
        end += len(block)
        if end > len(points):
            break
        rest = target - orthogonal[:, :end] @ along[:end]
        coefficients = _solve(triangle[:end, :end], along[:end]) / norms[:end]
        coefficients = coefficients / np.array([SCALE**power for power, _ in terms[:end]])
        rss, worst = float(rest @ rest), float(np.abs(rest).max())
        solutions.append(Fit(space, blocks, terms[:end], coefficients, rss=rss, worst=worst))
    return solutions


def exact_rules(spaces: tuple[Space, ...], points: Points) -> Iterator[Candidate]:
    """Rules of the spaces that give every answer up to rounding, in the order of the spaces, shortest first."""
    weights = 1 / sizes(points)
    for space in spaces:
        for fit in fits(space, points, weights):
            if fit.worst < EXACT and len(points) >= len(fit.terms) + 4:
                yield _without_noughts(fit, points, weights).candidate()
                break


def _without_noughts(fit: Fit, points: Points, weights: Float[ndarray, " points"]) -> Fit:
    """The fit with terms of no consequence put to zero."""
    shares = [
        abs(c) * np.abs(column(term, points.x) * SCALE ** term[0] * weights).max()
        for term, c in zip(fit.terms, fit.coefficients, strict=True)
    ]
    kept = np.where(np.array(shares, dtype=float) > EXACT, fit.coefficients, 0.0)
    return Fit(fit.space, fit.blocks, fit.terms, kept, rss=fit.rss, worst=fit.worst)


def column(term: Term, x: Reals) -> Float[ndarray, " points"]:
    """Values of one term, with x in units of `SCALE` in its power."""
    power, factor = term
    return (x / SCALE) ** power * _FACTORS[factor][0](x)


def values(kept: dict[Term, float], x: Reals) -> Float[ndarray, " points"]:
    """The sum of terms."""
    return np.sum([c * SCALE ** term[0] * column(term, x) for term, c in kept.items()], axis=0)


def text(kept: dict[Term, float]) -> str:
    """The sum of terms as Python text, terms with the same factor together."""
    parts = []
    for factor, (_, written) in _FACTORS.items():
        powers = {power: c for (power, name), c in kept.items() if name == factor and c != 0}
        if not powers:
            continue
        inner = polynomial_text([powers.get(power, 0.0) for power in range(max(powers) + 1)])
        parts.append(inner if not written else written if inner == "1" else f"({inner}) * {written}")
    return " + ".join(parts) or "0"


def _solve(triangle: ndarray, right: ndarray) -> ndarray:
    diagonal = np.abs(np.diag(triangle))
    if diagonal.min() > 1e-13 * diagonal.max():
        return np.linalg.solve(triangle, right)
    return np.linalg.lstsq(triangle, right, rcond=1e-13)[0]


def _atom(family: str, kept: dict[Term, float]) -> Atom | None:
    """The parameters of a family from its terms; None where they are outside the family."""
    constant = kept.get((0, "1"), 0.0)
    if family == "constant":
        return Atom("constant", (constant,))
    if family == "linear":
        return Atom("linear", (kept[(1, "1")], constant))
    if family == "absolute":
        return Atom("absolute", (kept[(0, "abs")], constant))
    if family == "step":
        return Atom("step", (kept[(0, "step")], constant, 0.0))
    if family == "relu":
        scale = kept[(1, "1")] + kept[(1, "step")]
        leak = kept[(1, "1")] / scale if scale else 2.0
        return Atom("relu", (rounded(scale), constant, rounded(leak))) if -0.05 <= leak <= 1.05 else None
    powers = [kept.get((power, "1"), 0.0) for power in range(max(power for power, _ in kept) + 1)]
    return Atom("polynomial", tuple(reversed(powers)))


# Families that are not linear in what is unknown: waves, tanh, bells, boxes, reciprocals, logarithms, roots.
#
# Each one is a handful of lines that turn points into parameters. Where a period, a centre or a width is unknown, all
# values on the lattice of the generator (one decimal) are tried at once; that the true value lies there is prior
# knowledge, and stated as such in the documentation. Amplitudes and offsets are then linear and solved for.

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
