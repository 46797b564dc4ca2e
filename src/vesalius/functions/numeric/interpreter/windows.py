"""Sums and products with a rectangle or a square wave, whose width or period enters as a jump.

A sum with a rectangle is some other rule outside of +-5, and that rule plus one inside the rectangle. A product with
one is zero outside. A square wave is +-1: taken away from a sum, or multiplied out of a product, at the right period
and shift it leaves a rule of the linear spaces; all settings are tried at once against the union of those spaces.
"""

from collections.abc import Callable, Iterator

import numpy as np
from numpy import ndarray

from vesalius.functions.numeric.expressions import Reals
from vesalius.functions.numeric.interpreter import shapes, spaces
from vesalius.functions.numeric.interpreter.candidates import Candidate, meets
from vesalius.functions.numeric.interpreter.session import Points, Session

#: Half of the widest rectangle.
_WIDEST = 5.0
_CEIL_SUMS = tuple(space for space in spaces.COMPOSED if space.offset == 1 and space.operands == ("polynomial", "ceil"))
#: What the other operand of a sum or product can be.
_OTHERS = (*spaces.ATOMIC, *_CEIL_SUMS[:1])
_FACTORS = (*spaces.ATOMIC, *(s for s in spaces.COMPOSED if s.operands in (("polynomial", "ceil"), ("polynomial", "floor"))))
_MOST_WAVES = 12

Allowed = Callable[[Reals], ndarray]


def windowed_rules(session: Session, points: Points, *, allowed: Allowed) -> Iterator[Candidate]:
    """Rules with a rectangle, then rules with a square wave."""
    outside = points.where(np.abs(points.x) > _WIDEST + 0.01)
    if len(outside) >= 8:
        if (outside.y == 0).all():
            yield from _rectangle_products(session, points, allowed)
        else:
            yield from _rectangle_sums(session, points, outside, allowed)
    yield from _wave_rules(points)


def _rectangle_sums(session: Session, points: Points, outside: Points, allowed: Allowed) -> Iterator[Candidate]:
    for rule in spaces.exact_rules(_OTHERS, outside):
        inside = points.where(np.abs(points.x) <= _WIDEST + 0.01)
        rest = inside.y - rule.predict(inside.x)
        high = np.abs(rest - 1) < 1e-5
        if not (high | (np.abs(rest) < 1e-5)).all() or not high.any():
            continue
        edge = _edge(session, inside, high, allowed, is_high=lambda p, rule=rule: abs(p.y[0] - rule.predict(p.x)[0]) > 0.5)
        yield _combined("sum", rule, edge)


def _rectangle_products(session: Session, points: Points, allowed: Allowed) -> Iterator[Candidate]:
    high = points.y != 0
    if not high.any():
        return
    edge = _edge(session, points, high, allowed, is_high=lambda p: p.y[0] != 0)
    within = points.where(np.abs(points.x) <= edge)
    if len(within) < 24 and session.left:
        fresh = session.rng.uniform(-edge, edge, 24)
        within = within + session.ask(fresh[allowed(fresh)])
    for rule in spaces.exact_rules(_FACTORS, within.finite):
        yield _combined("product", rule, edge)


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


def _combined(operation: str, rule: Candidate, edge: float) -> Candidate:
    def predict(x: Reals) -> ndarray:
        window = (np.abs(x) <= edge).astype(float)
        return rule.predict(x) + window if operation == "sum" else rule.predict(x) * window

    sign = "+" if operation == "sum" else "*"
    other = rule.operands[-1] if rule.family == "sum" and rule.operands[0] == "constant" else rule.family
    if rule.family == "product":
        other = rule.operands[-1]
    return Candidate(
        operation,
        f"({rule.formula}) {sign} (abs(x) <= {edge:g})",
        predict,
        free=rule.free + 1,
        operands=(other, "rectangle"),
    )


def _wave_rules(points: Points) -> Iterator[Candidate]:
    """A square wave added to, or multiplied by, a rule of the linear spaces."""
    near = points.where(np.abs(points.x) <= 12)
    if len(near) < 20:
        return
    table = shapes.square_waves(near.x)
    terms = [*((power, "1") for power in range(6)), (0, "step"), (1, "step"), (0, "ceil")]
    columns = np.stack([spaces.column(term, near.x) for term in terms], axis=1)
    basis, _ = np.linalg.qr(columns / np.linalg.norm(columns, axis=0))
    for operation in ("sum", "product"):
        rests = near.y - table.values if operation == "sum" else near.y * table.values
        left = (rests**2).sum(axis=1) - ((rests @ basis) ** 2).sum(axis=1)
        size = 1e-9 * float((near.y**2).sum()) + 1e-6
        for index in np.argsort(left)[:_MOST_WAVES]:
            if left[index] > size + 1e-3 * len(near):
                break
            yield from _with_wave(points, operation, *table.settings[index])


def _with_wave(points: Points, operation: str, period: float, shift: float) -> Iterator[Candidate]:
    def wave(x: Reals) -> ndarray:
        return np.where(np.floor(2 * (x - shift) / period) % 2 == 0, 1.0, -1.0)

    rest = points.y - wave(points.x) if operation == "sum" else points.y * wave(points.x)
    for rule in spaces.exact_rules((*spaces.ATOMIC, *spaces.COMPOSED), Points(points.x, rest)):
        text = f"(1 if math.sin(2*math.pi*(x - {shift:g})/{period:g}) > 0 else -1)"

        def predict(x: Reals, rule: Candidate = rule) -> ndarray:
            return rule.predict(x) + wave(x) if operation == "sum" else rule.predict(x) * wave(x)

        other = rule.family if not rule.operands else rule.operands[-1]
        found = Candidate(
            operation,
            f"({rule.formula}) {'+' if operation == 'sum' else '*'} {text}",
            predict,
            free=rule.free + 2,
            operands=(other, "square_wave"),
        )
        if meets(found, points):
            yield found
        return
