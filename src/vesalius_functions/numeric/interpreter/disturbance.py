"""Noise and corruption: what differs when the same question is asked twice.

Noise is large, and its kind shows in the differences: whole numbers are Poisson, never above 2 is uniform, otherwise
normal. Small differences on one stretch, or at both ends of the range: there the function is replaced by noise about a
constant, and where that begins and ends is found by halving, each time asking a point twice.
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool
from numpy import ndarray

from vesalius_functions.box import Answer
from vesalius_functions.numeric.expressions import number
from vesalius_functions.numeric.function import NOISE, NoiseKind, Shape, formula_program, table_program
from vesalius_functions.numeric.interpreter.session import EDGE, Candidate, Points, Session

#: Two answers of a corrupted stretch differ by 0.1 as a rule, two with noise by 0.6 or more.
_NOISE_GAP = 0.3
#: Noise is everywhere; but of the largest answers rounding hides it, and of a short stretch there are few pairs.
_FEW_GAPS = 8
#: The ends of a stretch are found this closely, and rounded to a decimal where one lies within.
_END_WIDTH = 0.004


@dataclass(frozen=True)
class Stretch:
    """A corrupted part of the range: where, and about which value the answers scatter. `outside` has two parts."""

    shape: Shape
    boundary: tuple[float, ...]
    value: float

    def covers(self, x: ndarray, *, margin: float = 0.0) -> Bool[ndarray, " points"]:
        """Which points lie in it, or within `margin` of it."""
        low, high = self.ends
        if self.shape == "outside":
            return (x <= low + margin) | (x >= high - margin)
        return (x >= low - margin) & (x <= high + margin)

    @property
    def ends(self) -> tuple[float, float]:
        """Both ends, infinite where it is unbounded; of `outside`, those of the interval that is left."""
        low = -math.inf if self.shape == "smaller" else self.boundary[0]
        return low, math.inf if self.shape == "larger" else self.boundary[-1]

    @property
    def interval(self) -> list[float | None]:
        """Both ends as JSON: None where it is unbounded."""
        return [end if math.isfinite(end) else None for end in self.ends]


@dataclass(frozen=True)
class NoiseSurvey:
    """What two rounds of the same questions showed."""

    points: Points
    noise: NoiseKind | None = None
    sd: float = 0.0
    stretch: Stretch | None = None


def look(session: Session) -> NoiseSurvey:
    """Ask the survey and tell noise from corruption."""
    first, second = session.survey()
    count = min(len(first), len(second))
    pairs = Points(first.x[:count], first.y[:count]), Points(second.x[:count], second.y[:count])
    both = first + second
    differ = _differ(*pairs)
    if not differ.any():
        return NoiseSurvey(both)
    finite = np.isfinite(pairs[0].y) & np.isfinite(pairs[1].y)
    gaps = np.abs(pairs[0].y - pairs[1].y)[finite & differ]
    many = len(gaps) >= _FEW_GAPS or len(gaps) > 0.4 * finite.sum()
    if many and float(np.median(gaps)) > _NOISE_GAP:
        noise = _noise_kind(gaps, np.abs(pairs[0].y)[finite & differ])
        return NoiseSurvey(both, noise=noise, sd=NOISE[noise][1])
    stretch, asked = _stretch(session, pairs[0].x, differ)
    inside = (both + asked).where(stretch.covers((both + asked).x, margin=-_END_WIDTH)).finite
    value = float(np.real(inside.y).mean()) if len(inside) else 0.0
    return NoiseSurvey(both + asked, stretch=Stretch(stretch.shape, stretch.boundary, value))


def _differ(first: Points, second: Points) -> Bool[ndarray, " points"]:
    return (first.y != second.y) & ~(np.isnan(first.y) & np.isnan(second.y))


def _noise_kind(gaps: ndarray, heights: ndarray) -> NoiseKind:
    """By the differences of two answers, those to small values: of large ones rounding has taken part."""
    small = gaps[heights <= max(1e6, float(np.median(heights)))]
    if np.abs(small - np.round(small)).max() < 1e-6:
        return "poisson"
    return "uniform" if small.max() <= 2 else "normal"


def _stretch(session: Session, x: ndarray, differ: Bool[ndarray, " points"]) -> tuple[Stretch, Points]:
    """The stretch where answers differ, and what was asked to find its ends."""
    order = np.argsort(x)
    x, inside = x[order], np.flatnonzero(differ[order])
    first, last = int(inside[0]), int(inside[-1])
    if first == 0 and last == len(x) - 1 and len(inside) < len(x):
        return _around(session, x, inside)
    low, high, asked = -math.inf, math.inf, Points(np.zeros(0), np.zeros(0))
    if first > 0:
        low, more = _halve(session, x[first - 1], x[first])
        asked = asked + more
    if last < len(x) - 1:
        high, more = _halve(session, x[last + 1], x[last])
        asked = asked + more
    if math.isinf(low) and math.isinf(high):
        low = -EDGE
    if math.isinf(low):
        return Stretch("smaller", (high,), 0.0), asked
    return (Stretch("larger", (low,), 0.0) if math.isinf(high) else Stretch("inside", (low, high), 0.0)), asked


def _around(session: Session, x: ndarray, inside: ndarray) -> tuple[Stretch, Points]:
    """Both ends of the range are corrupted: the longest run of points that are not is in the interval that is left."""
    place = int(np.argmax(np.diff(inside)))
    before, after = int(inside[place]), int(inside[place + 1])
    low, asked = _halve(session, x[before + 1], x[before])
    high, more = _halve(session, x[after - 1], x[after])
    return Stretch("outside", (low, high), 0.0), asked + more


def _halve(session: Session, outside: float, inside: float) -> tuple[float, Points]:
    """The end between a point outside the stretch and one inside."""
    asked = Points(np.zeros(0), np.zeros(0))
    while abs(outside - inside) > _END_WIDTH and session.left >= 2:
        middle = float(outside + inside) / 2
        answers = session.ask([middle, middle])
        asked = asked + answers
        if _differ(Points(answers.x[:1], answers.y[:1]), Points(answers.x[1:], answers.y[1:]))[0]:
            inside = middle
        else:
            outside = middle
    end = float(outside + inside) / 2
    rounded = round(end, 1)
    return (rounded if abs(rounded - end) <= _END_WIDTH / 2 else end), asked


# What was found, and the answer it makes: words, the corrupted part of the domain, code, and structure.

NAME = "builtin"


@dataclass(frozen=True)
class Finding:
    """A rule, or none; what supports it; and the answers to draw lines between where there is no rule."""

    rule: Candidate | None
    #: Finite answers outside a corrupted stretch.
    known: Points
    #: On how many fresh points the rule predicted the answer.
    predicted: int = 0
    #: The rule only comes close, as a net does to what it was trained on.
    approximate: bool = False
    #: The family that comes closest where no rule holds.
    resembles: str | None = None
    complex_below_zero: bool = False
    undefined_below_zero: bool = False


def answer(survey: NoiseSurvey, finding: Finding, *, queries: int) -> Answer:
    """The finding in every form that an answer has."""
    rule = finding.rule
    return Answer(
        description=_description(survey, finding),
        domain=_domain(survey),
        code=_table(survey, finding) if rule is None else _formula(survey, finding, rule),
        structure={
            "family": finding.resembles if rule is None else rule.family,
            "operands": [] if rule is None else list(rule.operands),
            "params": [] if rule is None else list(rule.params),
            "noise": survey.noise,
            "interval": None if survey.stretch is None else survey.stretch.interval,
            **({"outside": True} if survey.stretch is not None and survey.stretch.shape == "outside" else {}),
        },
        table=rule is None,
        interpreter=NAME,
        queries=queries,
    )


def _formula(survey: NoiseSurvey, finding: Finding, rule: Candidate) -> str:
    text, stretch = rule.formula, survey.stretch
    if rule.family == "root" and finding.complex_below_zero:
        text = text.removesuffix(" if x >= 0 else math.nan")  # Python's own root of a negative number is complex
    if survey.noise is not None and NOISE[survey.noise][0]:
        text = f"({text}) + {number(NOISE[survey.noise][0])}"
    return formula_program(text, interval=None if stretch is None else (stretch.shape, stretch.boundary, stretch.value))


def _table(survey: NoiseSurvey, finding: Finding) -> str:
    stretch = survey.stretch
    x, first = np.unique(finding.known.x, return_index=True)
    y = np.real(finding.known.y[first])
    if len(x) < 2:
        x, y = np.array([0.0, 1.0]), np.full(2, y[0] if len(y) else 0.0)
    return table_program(
        x.tolist(),
        y.tolist(),
        interval=None if stretch is None else (stretch.shape, stretch.boundary, stretch.value),
        undefined_below=0.0 if finding.undefined_below_zero else None,
    )


def _description(survey: NoiseSurvey, finding: Finding) -> str:
    rule = finding.rule
    if rule is None:
        sentences = f"No rule was found; the code draws straight lines between {len(finding.known)} answers."
        if finding.resembles is not None:
            sentences += f" Of the families, {finding.resembles} comes closest."
    else:
        name = f"{rule.family} of {' and '.join(rule.operands)}" if rule.operands else rule.family
        sentences = f"f(x) = {rule.formula} ({name})."
        if finding.approximate:
            sentences += " The function comes close to it without being it, as a trained net would."
        elif survey.noise is None:
            sentences += f" It gives every answer seen, and predicted {finding.predicted} fresh ones."
    if survey.noise is not None:
        sentences += f" Every answer carries {survey.noise} noise with standard deviation {survey.sd:.2g}."
    if survey.stretch is not None:
        sentences += f" Corrupted: {_domain(survey)}"
    return sentences


def _domain(survey: NoiseSurvey) -> str | None:
    if survey.stretch is None:
        return None
    low, high = survey.stretch.ends
    if survey.stretch.shape == "outside":
        return f"for x <= {low:g} and for x >= {high:g} the answers are noise about {survey.stretch.value:g}."
    where = f"x <= {high:g}" if math.isinf(low) else f"x >= {low:g}" if math.isinf(high) else f"{low:g} < x < {high:g}"
    return f"for {where} the answers are noise about {survey.stretch.value:g}."
