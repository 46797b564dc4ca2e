"""From a box to an answer."""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool
from numpy import ndarray

from vesalius.functions.answer import Answer
from vesalius.functions.box import Box
from vesalius.functions.numeric.expressions import Atom, Reals, number
from vesalius.functions.numeric.function import NOISE
from vesalius.functions.numeric.interpreter import exact, noisy, shapes
from vesalius.functions.numeric.interpreter.candidates import Candidate, from_atom, meets
from vesalius.functions.numeric.interpreter.disturbance import Survey, look
from vesalius.functions.numeric.interpreter.session import EDGE, Points, Session
from vesalius.functions.numeric.programs import formula_program, table_program

NAME = "builtin"
#: Fresh points that a rule must foretell.
_TESTS = 16
#: A rule that explains this much of a smooth function's variance is given instead of a table, as an approximation.
_CLOSE_ENOUGH = 0.999
_MOST_RULES = 6


@dataclass(frozen=True)
class Finding:
    """What was found: a rule or None, how it was found, and all points seen."""

    rule: Candidate | None
    points: Points
    #: Of how many fresh points the rule foretold the answer.
    foretold: int = 0
    #: Set when the rule is only close: the share of variance it explains.
    explained: float | None = None
    complex_below_zero: bool = False
    undefined_below_zero: bool = False


def interpret(box: Box, *, seed: int = 0) -> Answer:
    """Find out what a numeric function computes, in at most 400 queries and never more than the box has left."""
    before = box.asked
    session = Session(box, seed=seed)
    if session.budget < 1:
        return Answer(description="Nothing could be asked.", interpreter=NAME, table=True)
    survey = look(session)
    points = survey.points + session.ask(_more_points(session, survey))
    finding = _noisy(session, survey, points) if survey.noise else _exact(session, survey, points)
    return _answer(survey, finding, queries=box.asked - before)


def _more_points(session: Session, survey: Survey) -> Reals:
    """Points close to zero, unless they are corrupted; under noise everything that is left, over the range as well."""
    close = session.close_points()
    if survey.noise is not None:
        spread = session.rng.uniform(-EDGE, EDGE, max(0, session.left - len(close)))
        return np.concatenate([close, spread])
    if survey.stretch is None:
        return close
    clean = close[~survey.stretch.covers(close, margin=0.01)]
    low, high = survey.stretch.ends
    left, right = max(0.0, min(low, EDGE) + EDGE), max(0.0, EDGE - max(high, -EDGE))
    if left + right <= 0:
        return clean
    places = session.rng.uniform(0, left + right, len(close) - len(clean))
    return np.concatenate([clean, np.where(places < left, places - EDGE, EDGE - (places - left))])


def _clean(survey: Survey, points: Points) -> Points:
    """Finite answers outside the corrupted stretch, each point once where answers repeat."""
    points = points.finite
    if survey.stretch is not None:
        points = points.where(~survey.stretch.covers(points.x, margin=0.01))
    if survey.noise is None:
        _, first = np.unique(points.x, return_index=True)
        points = Points(points.x[first], points.y[first])
    return points


def _exact(session: Session, survey: Survey, points: Points) -> Finding:
    def allowed(x: ndarray) -> Bool[ndarray, "points"]:
        return np.ones(len(x), dtype=bool) if survey.stretch is None else ~survey.stretch.covers(x, margin=0.02)

    known = _clean(survey, points)
    complex_root = np.iscomplexobj(known.y)
    if complex_root:
        known = Points(known.x[known.x > 0], known.y[known.x > 0].real)
    undefined = not complex_root and _undefined_below_zero(points)
    tried = 0
    for rule in exact.exact_rules(session, known, allowed=allowed):
        tests = _clean(survey, session.ask(_test_points(session, known, allowed)))
        tests = Points(tests.x[tests.x > 0], tests.y[tests.x > 0].real) if complex_root else tests
        if meets(rule, tests + known):
            rule, asked = _ceil_or_floor(session, rule, allowed)
            everything = points + tests + asked
            return Finding(rule, everything, len(tests), None, complex_root, undefined)
        points, known, tried = points + tests, known + tests, tried + 1
        if tried >= _MOST_RULES:
            break
    return _table(session, survey, points, known, undefined)


def _undefined_below_zero(points: Points) -> bool:
    below = points.x < 0
    return bool(below.any() and np.isnan(points.y[below]).any() and np.isfinite(points.y[below]).sum() == 0)


def _test_points(session: Session, known: Points, allowed: exact.Allowed) -> Reals:
    """Fresh points where answers are to be had: half over the range, half close to zero."""
    wide = session.rng.uniform(known.x.min(initial=0.0), known.x.max(initial=1.0), _TESTS // 2)
    close = session.rng.uniform(max(-6.0, known.x.min(initial=0.0)), min(6.0, known.x.max(initial=1.0)), _TESTS // 2)
    fresh = np.concatenate([wide, close])
    return fresh[allowed(fresh)]


def _ceil_or_floor(session: Session, rule: Candidate, allowed: exact.Allowed) -> tuple[Candidate, Points]:
    """A sum with ceil is one with floor, but for a constant, between integers: ask at an integer."""
    nothing = Points(np.zeros(0), np.zeros(0))
    if rule.family != "sum" or "ceil" not in rule.operands:
        return rule, nothing
    places = np.array([3.0, -3.0, 40.0, -40.0])
    places = places[allowed(places)][:1]
    asked = session.ask(places)
    if not len(asked.finite) or abs(asked.y[0] - rule.predict(asked.x)[0]) < 1e-6:
        return rule, asked
    missing = round(float(rule.predict(asked.x + 0.5)[0] - rule.predict(asked.x + 0.25)[0]), 9)  # never at a jump
    del missing
    return _with_floor(rule), asked


def _with_floor(rule: Candidate) -> Candidate:
    """The same rule between integers, with floor(x) + 1 in place of ceil(x)."""

    def predict(x: Reals) -> ndarray:
        whole = np.floor(x) == x
        return rule.predict(np.where(whole, x + 1e-9, x))

    operands = tuple("floor" if operand == "ceil" else operand for operand in rule.operands)
    return Candidate(
        rule.family,
        rule.formula.replace("math.ceil(x)", "(math.floor(x) + 1)"),
        predict,
        free=rule.free,
        operands=operands,
    )


def _noisy(session: Session, survey: Survey, points: Points) -> Finding:
    assert survey.noise is not None
    known = _clean(survey, points)
    complex_root = np.iscomplexobj(known.y)
    if complex_root:
        known = Points(known.x[known.x > 0], known.y[known.x > 0].real)
    known = Points(known.x, known.y.real - NOISE[survey.noise][0])
    if complex_root:
        atom = shapes.curve_over_positive(known, "root") or Atom("constant", (0.0,))
        return Finding(from_atom(atom, free=2), points, complex_below_zero=True)
    if len(known) < 12:
        return Finding(None, points)
    return Finding(noisy.best_rule(known, sd=survey.sd), points, undefined_below_zero=_undefined_below_zero(points))


def _table(session: Session, survey: Survey, points: Points, known: Points, undefined: bool) -> Finding:
    """No rule holds: ask where straight lines between neighbours are least to be trusted, until the budget is spent."""
    while session.left and len(known) >= 3:
        order = np.argsort(known.x)
        x, y = known.x[order], known.y[order]
        bend = np.abs(np.diff(np.diff(y) / np.diff(x)))
        doubt = (np.concatenate([bend, [0]]) + np.concatenate([[0], bend])) * np.diff(x) ** 2
        doubt = doubt + 1e-3 * doubt.max() * np.diff(x)
        chosen = np.argsort(doubt)[::-1][: min(20, session.left)]
        asked = session.ask((x[chosen] + x[chosen + 1]) / 2)
        points, known = points + asked, known + _clean(survey, asked)
        _, first = np.unique(known.x, return_index=True)
        known = Points(known.x[first], known.y[first])
    explained, rule = _approximation(known)
    if rule is not None and explained >= _CLOSE_ENOUGH:
        return Finding(rule, points, explained=explained, undefined_below_zero=undefined)
    return Finding(None, points, undefined_below_zero=undefined)


def _approximation(known: Points) -> tuple[float, Candidate | None]:
    """The rule that comes closest to a smooth function, and the share of the variance it explains."""
    if len(known) < 30:
        return 0.0, None
    variance = float(known.y.var())
    if variance == 0:
        return 0.0, None
    rule = noisy.best_rule(known, sd=math.sqrt(variance * 1e-3))
    with np.errstate(all="ignore"):
        rest = known.y - rule.predict(known.x)
    return float(1 - (rest @ rest) / (len(known) * variance)), rule


def _answer(survey: Survey, finding: Finding, *, queries: int) -> Answer:
    stretch, rule = survey.stretch, finding.rule
    interval = None if stretch is None else (stretch.shape, stretch.boundary, stretch.value)
    offset = NOISE[survey.noise][0] if survey.noise else 0.0
    if rule is None:
        known = _clean(survey, finding.points)
        order = np.argsort(known.x, kind="stable")
        x, y = known.x[order], known.y[order].real
        if len(x) < 2:
            x, y = np.array([0.0, 1.0]), np.full(2, y[0] if len(y) else 0.0)
        code = table_program(
            x.tolist(), y.tolist(), interval=interval, undefined_below=0.0 if finding.undefined_below_zero else None
        )
    else:
        text = rule.formula
        if rule.family == "root" and finding.complex_below_zero:
            text = text.removesuffix(" if x >= 0 else math.nan")
        code = formula_program(f"({text}) + {number(offset)}" if offset else text, interval=interval)
    return Answer(
        description=_description(survey, finding),
        domain=_domain(survey),
        code=code,
        structure=_structure(survey, finding),
        table=rule is None,
        interpreter=NAME,
        queries=queries,
    )


def _structure(survey: Survey, finding: Finding) -> dict[str, object]:
    rule = finding.rule
    return {
        "family": None if rule is None else rule.family,
        "operands": [] if rule is None else list(rule.operands),
        "params": [] if rule is None else list(rule.params),
        "noise": survey.noise,
        "interval": None if survey.stretch is None else survey.stretch.interval,
    }


def _description(survey: Survey, finding: Finding) -> str:
    rule = finding.rule
    if rule is None:
        said = f"No rule was found; the code draws straight lines between {len(finding.points)} answers."
    else:
        name = rule.family if not rule.operands else f"{rule.family} of {' and '.join(rule.operands)}"
        said = f"f(x) = {rule.formula} ({name})."
        if finding.explained is not None:
            said += f" It is an approximation, which explains {finding.explained:.2%} of the variance."
        elif survey.noise is None:
            said += f" It gives every answer seen, and foretold {finding.foretold} fresh ones."
    if survey.noise is not None:
        said += f" Every answer carries {survey.noise} noise with standard deviation {survey.sd:.2g}."
    if survey.stretch is not None:
        said += f" Corrupted: {_domain(survey)}"
    return said


def _domain(survey: Survey) -> str | None:
    if survey.stretch is None:
        return None
    low, high = survey.stretch.ends
    where = f"x <= {high:g}" if math.isinf(low) else f"x >= {low:g}" if math.isinf(high) else f"{low:g} < x < {high:g}"
    return f"for {where} the answers are noise about {survey.stretch.value:g}."
