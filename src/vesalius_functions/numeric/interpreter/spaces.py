"""Rules that are linear in what is unknown: constants, lines, polynomials, kinks, steps, and most sums and products.

A space is a list of terms `x**power * factor`, in blocks: any number of blocks from the front, but at least one, is a
rule (a polynomial of degree 2, 3, 4, 5). One QR decomposition of all terms gives the misfit of every rule of a space.
A sum with ceil or floor has it with coefficient 1: that is the space's `offset`. The two differ by a constant but at
integers, so some of the points must be integers.
"""

from collections.abc import Iterator
from dataclasses import dataclass

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
