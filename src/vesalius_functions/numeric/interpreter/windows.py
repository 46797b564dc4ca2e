"""Sums and products with a rectangle or a square wave, whose width or period enters as a jump.

A sum with a rectangle is some other rule outside of +-5, and that rule plus one inside the rectangle. A product with
one is zero outside. A square wave is +-1: taken away from a sum, or multiplied out of a product, at the right period
and shift it leaves a rule of the linear spaces; all settings are tried at once against the union of those spaces.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from vesalius_functions.numeric.expressions import OPERANDS, Atom, Reals, evaluate, formula
from vesalius_functions.numeric.interpreter import session as rationals
from vesalius_functions.numeric.interpreter import spaces
from vesalius_functions.numeric.interpreter import spaces as shapes
from vesalius_functions.numeric.interpreter.session import EDGE, Candidate, Points, Session, from_atom, meets, rounded

# Telling waves apart that differ by whole periods: they are the same function but for rounding at their own jumps.

Allowed = Callable[[Reals], Bool[ndarray, " points"]]
_QUESTIONS = 12


def distinguished(
    session: Session, candidates: list[Candidate], waves: list[tuple[float, float]], allowed: Allowed
) -> list[Candidate]:
    """The candidate that agrees best at the jumps of its waves (period, shift); all of them if there is one or none."""
    if len(candidates) < 2:
        return candidates
    jumps = np.concatenate([np.arange(-256, 257) * period / 2 + shift for period, shift in waves[:4]])
    jumps = np.unique(np.round(jumps[np.abs(jumps) < EDGE], 1))
    jumps = jumps[allowed(jumps)]
    values = np.array([candidate.predict(jumps) for candidate in candidates])
    size = np.abs(values).max(axis=0)
    telling = jumps[(np.abs(values - values[0]) > 1e-6 * size).any(axis=0)]
    asked = session.ask(session.rng.permutation(telling)[:_QUESTIONS])
    if not len(asked):
        return candidates[:1]
    misses = [float(np.abs(candidate.predict(asked.x) - asked.y).sum()) for candidate in candidates]
    return [candidates[int(np.argmin(misses))]]


#: Half of the widest rectangle.
_WIDEST = 5.0


def _whole(*, offset: bool) -> tuple[spaces.Space, ...]:
    """Spaces of ceil and floor: by themselves up to a constant that is added, or that they are multiplied by."""
    return tuple(
        replace(space, blocks=space.blocks[:1])
        for space in spaces.COMPOSED
        if bool(space.offset) == offset and space.operands in (("polynomial", "ceil"), ("polynomial", "floor"))
    )


#: What the other operand of a sum, or of a product, can be.
_ALONE = tuple(space for space in spaces.ATOMIC if space.family in OPERANDS)
ADDENDS = (*_ALONE, *_whole(offset=True))
FACTORS = (*_ALONE, *_whole(offset=False))
_MOST_WAVES = 12
#: Settings of waves are compared on this many points, those closest to zero: there large powers hide them least.
_NEAREST = 90


def windowed_rules(session: Session, points: Points, *, allowed: Allowed) -> Iterator[Candidate]:
    """Rules with a rectangle, then rules with a square wave."""
    outside = points.where(np.abs(points.x) > _WIDEST + 0.01)
    if len(outside) >= 8:
        if (outside.y == 0).all():
            yield from _rectangle_products(session, points, allowed)
        else:
            yield from _rectangle_sums(session, points, outside, allowed)
    yield from _wave_rules(session, points, allowed)


def _rectangle_sums(session: Session, points: Points, outside: Points, allowed: Allowed) -> Iterator[Candidate]:
    for rule in chain(spaces.exact_rules(ADDENDS, outside), _waves(outside)):
        inside = points.where(np.abs(points.x) <= _WIDEST + 0.01)
        rest = inside.y - rule.predict(inside.x)
        high = np.abs(rest - 1) < 1e-5
        if not (high | (np.abs(rest) < 1e-5)).all() or not high.any():
            continue

        def is_high(point: Points, rule: Candidate = rule) -> bool:
            return bool(abs(point.y[0] - rule.predict(point.x)[0]) > 0.5)

        edge = _edge(session, inside, high, allowed, is_high=is_high)
        yield rectangle_combined("sum", rule, edge)


def _waves(points: Points) -> Iterator[Candidate]:
    """A square wave that gives these answers."""
    if (np.abs(points.y) == 1).all():
        table = shapes.square_waves(points.x)
        for setting in table.settings[(table.values == points.y).all(axis=1)][:1]:
            yield from_atom(Atom("square_wave", tuple(float(value) for value in setting)), free=2)


def _rectangle_products(session: Session, points: Points, allowed: Allowed) -> Iterator[Candidate]:
    high = points.y != 0
    if not high.any():
        return
    edge = _edge(session, points, high, allowed, is_high=lambda point: bool(point.y[0] != 0))
    within = points.where(np.abs(points.x) <= edge)
    if len(within) < 24 and session.left:
        fresh = session.rng.uniform(-edge, edge, 24)
        within = within + session.ask(fresh[allowed(fresh)])
    for rule in spaces.exact_rules(FACTORS, within.finite):
        yield rectangle_combined("product", rule, edge)


def _edge(
    session: Session, points: Points, high: ndarray, allowed: Allowed, *, is_high: Callable[[Points], bool]
) -> float:
    """Half the width of the rectangle, to a multiple of 0.05, by halving on the side where it was seen farthest out."""
    farthest = int(np.argmax(np.where(high, np.abs(points.x), -1)))
    side = np.sign(points.x[farthest]) or 1.0
    low = abs(points.x[farthest])
    beyond = np.abs(points.x)[~high & (np.abs(points.x) > low)]
    top = min(float(beyond.min(initial=_WIDEST + 0.01)), _WIDEST + 0.01)
    while top - low > 0.02 and session.left:
        middle = (low + top) / 2
        if not allowed(np.array([side * middle]))[0]:
            break
        low, top = (middle, top) if is_high(session.ask([side * middle])) else (low, middle)
    return round(round((low + top) / 2 / 0.05) * 0.05, 2)


def rectangle_combined(operation: str, rule: Candidate, edge: float) -> Candidate:
    def predict(x: Reals) -> ndarray:
        window = (np.abs(x) <= edge).astype(float)
        return rule.predict(x) + window if operation == "sum" else rule.predict(x) * window

    sign = "+" if operation == "sum" else "*"
    other = rule.operands[-1] if rule.operands else rule.family
    return Candidate(
        operation,
        f"({rule.formula}) {sign} (abs(x) <= {edge:g})",
        predict,
        free=rule.free + 1,
        operands=(other, "rectangle"),
    )


def _wave_rules(session: Session, points: Points, allowed: Allowed) -> Iterator[Candidate]:
    """A square wave added to, or multiplied by, a rule of the linear spaces."""
    between = points.where(points.x != np.round(points.x))  # where ceil and floor differ by a constant
    near = between.where(np.argsort(np.argsort(np.abs(between.x))) < _NEAREST)
    if len(near) < 20:
        return
    table = shapes.square_waves(near.x)
    terms = [*((power, "1") for power in range(6)), (0, "step"), (1, "step"), (0, "ceil")]
    columns = np.stack([spaces.column(term, near.x) for term in terms], axis=1)
    basis, _ = np.linalg.qr(columns / np.linalg.norm(columns, axis=0))
    for operation in ("sum", "product"):
        rests = near.y - table.values if operation == "sum" else near.y * table.values
        left = (rests**2).sum(axis=1) - ((rests @ basis) ** 2).sum(axis=1)
        bound = 1e-9 * float((near.y**2).sum()) + 1e-3 * len(near)
        close = [int(index) for index in np.argsort(left)[:_MOST_WAVES] if left[index] <= bound]
        waves = [(float(table.settings[index, 0]), float(table.settings[index, 1])) for index in close]
        rules = {wave: rule for wave in waves if (rule := with_wave(points, operation, *wave)) is not None}
        yield from distinguished(session, list(rules.values()), list(rules), allowed)


def with_wave(points: Points, operation: str, period: float, shift: float) -> Candidate | None:
    """The rule that gives every answer together with this square wave."""
    atom = Atom("square_wave", (period, shift))
    wave = evaluate(atom, points.x)
    rest = Points(points.x, points.y - wave if operation == "sum" else points.y * wave)
    rule = next(spaces.exact_rules(ADDENDS if operation == "sum" else FACTORS, rest), None)
    return None if rule is None else wave_combined(operation, rule, atom)


def wave_combined(operation: str, rule: Candidate, wave: Atom) -> Candidate:
    """A rule and a square wave, added or multiplied."""

    def predict(x: Reals) -> ndarray:
        return rule.predict(x) + evaluate(wave, x) if operation == "sum" else rule.predict(x) * evaluate(wave, x)

    return Candidate(
        operation,
        f"({rule.formula}) {'+' if operation == 'sum' else '*'} ({formula(wave)})",
        predict,
        free=rule.free + 2,
        operands=(rule.operands[-1] if rule.operands else rule.family, "square_wave"),
    )


# Sums and products with a rectangle or a square wave under noise, by least squares over all widths or waves at once.

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


# Rules for a function that answers the same every time: a rule is right if it gives every answer up to rounding.
#
# Rules are yielded one by one from the simplest to the most complex, so that the caller can test each on fresh points
# and ask for the next. Where several settings of a shape (periods, widths, centres) give all answers so far, the point
# where they disagree most is asked, until one is left.

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
