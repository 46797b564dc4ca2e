"""Rules for a function that answers the same every time: a rule is right if it gives every answer up to rounding.

Rules are yielded one by one from the simplest to the most complex, so that the caller can test each on fresh points and
ask for the next. Where several settings of a shape (periods, widths, centres) give
all answers so far, the point where they disagree most is asked, until one is left.
"""

from collections.abc import Callable, Iterator

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from vesalius_functions.numeric.expressions import Atom, Reals
from vesalius_functions.numeric.interpreter import session as rationals
from vesalius_functions.numeric.interpreter import shapes, spaces
from vesalius_functions.numeric.interpreter.session import EDGE, Candidate, Points, Session, from_atom, meets, rounded
from vesalius_functions.numeric.interpreter.windows import Allowed, distinguished, windowed_rules

#: Two settings of a shape disagree about a point if their values differ by more than this share of its height.
_DISAGREE = 1e-6
_MOST_QUESTIONS = 14
_POOL = 600


def exact_rules(session: Session, points: Points, *, allowed: Allowed) -> Iterator[Candidate]:
    """Every rule that gives all the answers, simplest first. `allowed` says which points may be asked."""
    if len(points) < 8:
        return
    yield from spaces.exact_rules(spaces.ATOMIC, points)
    yield from curves_over_positive(points)
    for atom in (shapes.reciprocal(points), shapes.gaussian(points)):
        if atom is not None and meets(from_atom(atom, free=2), points):
            yield from_atom(atom, free=2)
    yield from _sinusoid(points)
    yield from _on_lattices(session, points, allowed)
    for atom in rationals.exact_rationals(points):
        if meets(from_atom(atom, free=11), points):
            yield from_atom(atom, free=11)
    yield from spaces.exact_rules(spaces.COMPOSED, points)
    yield from windowed_rules(session, points, allowed=allowed)


def curves_over_positive(points: Points) -> Iterator[Candidate]:
    """Logarithms and square roots: only where nothing is known below zero."""
    if (points.x <= 0).any():
        return
    for family in ("logarithm", "root"):
        atom = shapes.curve_over_positive(points, family)
        if atom is not None and meets(from_atom(atom, free=2), points):
            yield from_atom(atom, free=2)


def _sinusoid(points: Points) -> Iterator[Candidate]:
    rss, _ = shapes.sinusoid_fits(points)
    best = int(np.argmin(rss))
    if rss[best] < 1e-4 * ((points.y - points.y.mean()) ** 2).sum():
        rule = from_atom(shapes.refined_sinusoid(points, float(shapes.PERIODS[best])), free=4)
        if meets(rule, points):
            yield rule


def _on_lattices(session: Session, points: Points, allowed: Allowed) -> Iterator[Candidate]:
    """Rectangles, square waves and tanh."""
    levels = np.unique(np.round(points.y, 9))
    if set(levels) <= {0.0, 1.0}:
        yield from _settled(session, points, shapes.rectangles, "rectangle", allowed)
    if set(levels) <= {-1.0, 1.0}:
        yield from _settled(session, points, shapes.square_waves, "square_wave", allowed)
    far = points.where((points.x < -20) | (points.x > 27))
    if len(far) >= 2 and len(np.unique(np.round(far.y, 9))) <= 2:
        yield from _tanh(session, points, allowed)


def _settled(
    session: Session, points: Points, lattice: Callable[[Reals], shapes.Lattice], family: str, allowed: Allowed
) -> Iterator[Candidate]:
    """The one setting of a fixed shape that gives every answer, asking until only one is left."""
    table = lattice(points.x)
    settings = table.settings[(np.abs(table.values - points.y) < _DISAGREE).all(axis=1)]
    pool = _pool(session, allowed)
    for _ in range(_MOST_QUESTIONS):
        if len(settings) <= 1 or not session.left:
            break
        keep = (lattice(pool).settings[:, None] == settings[None]).all(axis=2).any(axis=1)
        values = lattice(pool).values[keep]
        spread = values.std(axis=0)
        if spread.max() < _DISAGREE:
            break
        place = int(np.argmax(spread))
        answer = session.ask(pool[place : place + 1])
        settings = lattice(pool).settings[keep][np.abs(values[:, place] - answer.y[0]) < _DISAGREE]
    rules = [from_atom(Atom(family, tuple(map(float, setting))), free=len(setting)) for setting in settings]
    waves = [(float(setting[0]), float(setting[-1])) for setting in settings]
    yield from distinguished(session, rules, waves, allowed)[:1]


def _tanh(session: Session, points: Points, allowed: Allowed) -> Iterator[Candidate]:
    for _ in range(_MOST_QUESTIONS):
        close = points.where((points.x > -25) & (points.x < 32))
        if len(close) < 4:
            return
        lattice = shapes.tanh_lattice(close.x)
        rss, scales, biases = shapes.affine_fits(lattice, close.y)
        good = rss < 1e-12 * len(close) * max(1.0, np.abs(close.y).max() ** 2)
        if not good.any():
            return
        chosen = np.flatnonzero(good)
        atoms = [_tanh_atom(lattice.settings[i], float(scales[i]), float(biases[i])) for i in chosen[:60]]
        candidates = [from_atom(atom, free=4) for atom in atoms]
        candidates = [candidate for candidate in candidates if meets(candidate, points)]
        if len(candidates) <= 1 or not session.left:
            yield from candidates[:1]
            return
        pool = np.linspace(-1, 8, 361) + 0.0123
        pool = pool[allowed(pool)]
        if not len(pool):
            yield candidates[0]
            return
        spread = np.std([candidate.predict(pool) for candidate in candidates], axis=0)
        if spread.max() < _DISAGREE:
            yield candidates[0]
            return
        points = points + session.ask(pool[[int(np.argmax(spread))]])


def _tanh_atom(setting: Float[ndarray, "2"], scale: float, bias: float) -> Atom:
    return Atom("tanh", (rounded(float(scale)), float(setting[0]), float(setting[1]), rounded(float(bias))))


def _pool(session: Session, allowed: Allowed) -> Reals:
    """Points that may be asked to tell settings apart: over the range, and between the decimals close to zero."""
    pool = np.concatenate([session.rng.uniform(-EDGE, EDGE, _POOL), np.arange(-120, 120) * 0.05 + 0.025])
    return pool[allowed(pool)]
