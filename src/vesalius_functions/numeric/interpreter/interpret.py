"""From a box to an answer."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from vesalius_functions.box import Answer, Box
from vesalius_functions.numeric.expressions import Atom, Reals
from vesalius_functions.numeric.function import NOISE
from vesalius_functions.numeric.interpreter import session as rationals
from vesalius_functions.numeric.interpreter import spaces
from vesalius_functions.numeric.interpreter import spaces as shapes
from vesalius_functions.numeric.interpreter import windows as exact
from vesalius_functions.numeric.interpreter.disturbance import NAME, Finding, NoiseSurvey, answer, look
from vesalius_functions.numeric.interpreter.session import EDGE, Candidate, Points, Session, from_atom, meets, sizes
from vesalius_functions.numeric.interpreter.windows import windowed_fits

# Rules for a function that answers differently every time, or that no rule gives exactly.

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


#: Fresh points that a rule must foretell.
_TESTS = 16
#: So many rules may fail the test before a table is made.
_MOST_RULES = 6
#: Fewer answers than this support no rule under noise.
_FEWEST_NOISY = 12
#: A rule that leaves less than this of the variance, or less than that of the size, of a function that no rule gives
#: exactly is offered in place of a table.
_CLOSE_IN_VARIANCE, _CLOSE_IN_SIZE = 1e-3, 1e-5
#: What a net is compared with families on, and how far it may be off, relative to its size, to resemble one.
_DOMAIN = np.linspace(-99.7, 99.9, 300)
_RESEMBLANCE = 0.1


def interpret(box: Box, *, seed: int = 0, without: frozenset[str] = frozenset()) -> Answer:
    """Find out what a numeric function computes, in at most 400 queries and never more than the box has left.

    Args:
        box: the function, which can only be asked.
        seed: of the points that are asked; one seed asks the same first 240 points of every function.
        without: families that the interpreter is to know nothing of, to measure what its list of families is worth.
    """
    before = box.asked
    session = Session(box, seed=seed)
    if session.budget < 1:
        return Answer(description="Nothing could be asked.", interpreter=NAME, table=True)
    with np.errstate(all="ignore"):  # rules that do not fit may overflow
        survey = look(session)
        points = survey.points + session.ask(_more_points(session, survey))
        finding = _under_noise(survey, points, without) if survey.noise else _exact(session, survey, points, without)
    return answer(survey, finding, queries=box.asked - before)


def _more_points(session: Session, survey: NoiseSurvey) -> Reals:
    """Points close to zero, unless they are corrupted; under noise everything that is left, over the range as well."""
    close = session.close_points()
    if survey.noise is not None:
        again = session.integers()
        spread = session.rng.uniform(-EDGE, EDGE, max(0, session.left - len(close) - 2 * len(again)))
        return np.concatenate([close, again, again, spread])
    if survey.stretch is None:
        return close
    clean = close[~survey.stretch.covers(close, margin=0.01)]
    low, high = survey.stretch.ends
    if survey.stretch.shape == "outside":
        return np.concatenate([clean, session.rng.uniform(low, high, len(close) - len(clean))])
    left, right = max(0.0, min(low, EDGE) + EDGE), max(0.0, EDGE - max(high, -EDGE))
    if left + right <= 0:
        return clean
    places = session.rng.uniform(0, left + right, len(close) - len(clean))
    return np.concatenate([clean, np.where(places < left, places - EDGE, EDGE - (places - left))])


def _clean(survey: NoiseSurvey, points: Points) -> Points:
    """Finite answers outside the corrupted stretch, each point once where answers repeat."""
    points = points.finite
    if survey.stretch is not None:
        points = points.where(~survey.stretch.covers(points.x, margin=0.01))
    if survey.noise is None:
        _, first = np.unique(points.x, return_index=True)
        points = Points(points.x[first], points.y[first])
    return points


def _real_part(points: Points) -> Points:
    """Of complex answers those above zero that are real, as a root's are."""
    above = points.where((points.x > 0) & (np.imag(points.y) == 0))
    return Points(above.x, np.real(above.y))


def _undefined_below_zero(points: Points) -> bool:
    below = points.y[points.x < 0]
    return bool(np.isnan(below).any() and not np.isfinite(below).any())


def _known_rules(rules: Iterator[Candidate], without: frozenset[str]) -> Iterator[Candidate]:
    return (rule for rule in rules if not without & {rule.family, *rule.operands})


def _exact(session: Session, survey: NoiseSurvey, points: Points, without: frozenset[str]) -> Finding:
    """The first rule that gives every answer and foretells fresh ones; else the closest thing."""

    def allowed(x: ndarray) -> Bool[ndarray, "points"]:
        return np.ones(len(x), dtype=bool) if survey.stretch is None else ~survey.stretch.covers(x, margin=0.02)

    known = _clean(survey, points)
    is_complex = np.iscomplexobj(known.y)
    undefined = not is_complex and _undefined_below_zero(points)
    known = _real_part(known) if is_complex else known
    failed = 0
    for rule in _known_rules(exact.exact_rules(session, known, allowed=allowed), without):
        tests = _clean(survey, session.ask(_test_points(session, survey, known, allowed)))
        tests = _real_part(tests) if np.iscomplexobj(tests.y) else tests
        known, failed = known + tests, failed + 1
        if meets(rule, known):
            return Finding(
                rule, known, predicted=len(tests), complex_below_zero=is_complex, undefined_below_zero=undefined
            )
        if failed >= _MOST_RULES:
            break
    known = _filled_in(session, survey, known)
    return _closest(known, without, undefined=undefined)


def _test_points(session: Session, survey: NoiseSurvey, known: Points, allowed: exact.Allowed) -> Reals:
    """Fresh points where answers are to be had: half over the range, half close to zero."""
    if survey.stretch is not None and survey.stretch.shape == "outside":
        fresh = session.rng.uniform(*survey.stretch.ends, _TESTS)
        return fresh[allowed(fresh)]
    low, high = known.x.min(initial=0.0), known.x.max(initial=1.0)
    wide = session.rng.uniform(low, high, _TESTS // 2)
    close = session.rng.uniform(max(-6.0, low), max(min(6.0, high), low), _TESTS // 2)
    fresh = np.concatenate([wide, close])
    return fresh[allowed(fresh)]


def _filled_in(session: Session, survey: NoiseSurvey, known: Points) -> Points:
    """More answers where straight lines between neighbours are least to be trusted, until the budget is spent."""
    while session.left and len(known) >= 3:
        x, first = np.unique(known.x, return_index=True)
        y = known.y[first]
        bend = np.abs(np.diff(np.diff(y) / np.diff(x)))
        doubt = (np.concatenate([bend, [0]]) + np.concatenate([[0], bend])) * np.diff(x) ** 2
        doubt = doubt + 1e-3 * doubt.max() * np.diff(x)
        chosen = np.argsort(doubt)[::-1][: min(20, session.left)]
        known = known + _clean(survey, session.ask((x[chosen] + x[chosen + 1]) / 2))
    return known


def _closest(known: Points, without: frozenset[str], *, undefined: bool) -> Finding:
    """The family that comes closest to a function that no rule gives: as the rule if it is close enough."""
    plain = Finding(None, known, undefined_below_zero=undefined)
    if len(known) < 30 or undefined:
        return plain
    x, first = np.unique(known.x, return_index=True)
    y = known.y[first]
    rule = _likeliest_alone(Points(_DOMAIN, np.interp(_DOMAIN, x, y)), without)
    if rule is None:
        return plain
    wide = np.linspace(x[0], x[-1], 300)
    seen = np.interp(wide, x, y)
    with np.errstate(all="ignore"):
        rest = float(np.mean((seen - rule.predict(wide)) ** 2))
    if rest <= _CLOSE_IN_VARIANCE * seen.var() or rest <= _CLOSE_IN_SIZE * np.mean(seen**2):
        return Finding(rule, known, approximate=True)
    return Finding(None, known, resembles=rule.family)


def _likeliest_alone(points: Points, without: frozenset[str]) -> Candidate | None:
    """The single family that comes closest, if any number is different from zero."""
    size = float(np.sqrt(np.mean(points.y**2)))
    if not size or not np.isfinite(size):
        return None
    rules = _known_rules(fitted_rules(points, sd=_RESEMBLANCE * size, composed=False), without)
    return likeliest(rules, count=len(points))


def _under_noise(survey: NoiseSurvey, points: Points, without: frozenset[str]) -> Finding:
    assert survey.noise is not None
    known = _clean(survey, points)
    is_complex, undefined = np.iscomplexobj(known.y), _undefined_below_zero(points)
    known = _real_part(known) if is_complex else known
    lowered = Points(known.x, known.y - NOISE[survey.noise][0])
    if is_complex:
        atom = shapes.curve_over_positive(lowered, "root") or Atom("constant", (0.0,))
        return Finding(from_atom(atom, free=2), known, complex_below_zero=True)
    if len(known) < _FEWEST_NOISY:
        return Finding(None, known, undefined_below_zero=undefined)
    rules = _known_rules(fitted_rules(lowered, sd=survey.sd), without)
    return Finding(likeliest(rules, count=len(lowered)), known, undefined_below_zero=undefined)
