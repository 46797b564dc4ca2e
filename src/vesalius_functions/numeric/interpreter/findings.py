"""What was found, and the answer it makes: words, the corrupted part of the domain, code, and structure."""

import math
from dataclasses import dataclass

import numpy as np

from vesalius_functions.answer import Answer
from vesalius_functions.numeric.expressions import number
from vesalius_functions.numeric.function import NOISE
from vesalius_functions.numeric.interpreter.candidates import Candidate
from vesalius_functions.numeric.interpreter.disturbance import NoiseSurvey
from vesalius_functions.numeric.interpreter.session import Points
from vesalius_functions.numeric.programs import formula_program, table_program

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
