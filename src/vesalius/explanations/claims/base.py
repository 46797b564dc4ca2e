"""What every claim has in common: a kind, a sentence rendered from its prediction, an experiment, a verdict by rule.

A kind of claim is one class, whoever proposes it and wherever it is tested again: the built-in scientists, language
models, other agents, a registration. A claim is data. `check` passes it a laboratory; the claim's experiment returns
evidence and the verdict of its rule. Verdicts: *supported* if the prediction held against its controls, *refuted* if it
failed, *undecided* if it was tested and stays open (the interval spans the bar, nothing changes, or the rivals predict
the same), *untested* if no experiment was made, as where no input has a case of it.

The more claims are tried on a component, the more likely one passes by chance, so every interval is taken at level
1 - 0.05 / tried (Bonferroni), and rules compare interval ends, not point values.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Annotated, Any, ClassVar, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer
from torch import Tensor

from vesalius.components import Component
from vesalius.documents.claims import NOT_DEFINED
from vesalius.documents.explanation import Evidence, Verdict
from vesalius.documents.view import join_names
from vesalius.errors import BadInput
from vesalius.explanations.laboratory import GrowingLab, Lab
from vesalius.explanations.laboratory.base import PerPrompt
from vesalius.explanations.laboratory.natural import Losses, NaturalLab
from vesalius.rasp import Program
from vesalius.rasp.document import from_document, to_document
from vesalius.statistics import means_interval, share_interval, student_interval

ALPHA = 0.05
#: Of an interval's error, the part that a first look at few prompts may take.
FIRST_LOOK_ERROR = 0.1
#: Fewer values than this have no interval, so that a claim about them stays undecided.
MIN_SAMPLES = 4

#: The least that counts: of an effect, a gain or a direct logit attribution, as a share of the score or of the outputs;
#: of cutting keys or one path; of a head's attention on what it is said to attend to.
MIN_EFFECT, MIN_CUT_EFFECT, MIN_MASS = 0.05, 0.02, 0.5
#: Matched components that are looked at, and how many of them serve as controls: one that is strong itself does not.
CANDIDATES, CONTROLS = 6, 2
LOSSES = ("effect", "right answers lost")
#: In a measure: its values count answers, 1 for one that is lost and -1 for one that is gained.
COUNTED = "right answers"
THE_LEAST = "the least that counts"

Outcome = tuple[Verdict, tuple[Evidence, ...]]


def _component_name(name: Any) -> str:
    return str(Component.parse(name))


def _program(value: object) -> Program:
    return value if isinstance(value, Program) else from_document(value)


#: A component's canonical name; validation accepts any notation.
ComponentName = Annotated[str, BeforeValidator(_component_name)]
#: A compiled program; read from and written as a document of `rasp.document`.
CompiledProgram = Annotated[Program, BeforeValidator(_program), PlainSerializer(to_document)]


class Hypothesis(BaseModel):
    """A hypothesised program, and which of its variables each component carries."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    program: CompiledProgram
    carriers: dict[ComponentName, tuple[str, ...]]

    def carried_by(self, component: str) -> tuple[str, ...]:
        """The variables a component carries; at least one."""
        carried = self.carriers.get(component, ())
        if not carried:
            raise BadInput(f"the hypothesis does not say what {component} carries; add it to carriers")
        return carried


class Claim(BaseModel, frozen=True, extra="forbid", arbitrary_types_allowed=True):
    """One falsifiable statement about a component. Subclasses add `kind`, the typed prediction and the experiment.

    The first sentence of a subclass's docstring is shown to language models (`session.grammar`). `tested_in` is the
    laboratory that the experiment needs; by default any will do. `functional` is True where the claim says what a
    component does, not merely that, where or beside which others it matters.
    """

    tested_in: ClassVar[type[Lab]] = Lab
    functional: ClassVar[bool] = True

    kind: str
    component: ComponentName

    @property
    def part(self) -> Component:
        """The component the claim is about."""
        return Component.parse(self.component)

    @property
    @abstractmethod
    def text(self) -> str:
        """The claim as one sentence."""

    @abstractmethod
    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """Run the experiment; intervals at `level`."""


class NaturalClaim(Claim, frozen=True):
    """A claim that is tested in the laboratory of a natural model."""

    tested_in: ClassVar[type[Lab]] = NaturalLab

    def inside(self, lab: Lab) -> tuple[NaturalLab, Component]:
        """The laboratory as what it has to be, and the component in its model."""
        lab = NaturalLab.require(lab, self.kind)
        return lab, self.part.within(lab.model.config)


def level_for(tried: int) -> float:
    """The level of intervals when `tried` claims of a kind were tried on a component."""
    if isinstance(tried, bool) or not isinstance(tried, int) or tried < 1:
        raise BadInput(f"tried={tried!r} is not a count of claims; give an integer of at least 1 (this claim counts)")
    return 1 - ALPHA / tried


def share_interval_at(successes: float, n: int, level: float) -> tuple[float, float]:
    """Wilson interval of a share at a level."""
    return share_interval(round(successes), n, z=NormalDist().inv_cdf((1 + level) / 2))


def mean_and_interval(values: Float[Tensor, " sample"], level: float, *, seed: int) -> tuple[float, float, float]:
    """Mean and its interval at a level as `means_interval` has it, bootstrap or for few values Student's; the interval
    is NaN for fewer than `MIN_SAMPLES` values.
    """
    if len(values) < MIN_SAMPLES:
        return float(values.double().mean()), math.nan, math.nan
    low, high = means_interval(values.double()[:, None], level=level, seed=seed)
    return float(values.double().mean()), float(low[0]), float(high[0])


def measured(lab: Lab, values: Float[Tensor, " sample"], level: float, measure: str = "") -> tuple[float, float, float]:
    """Mean and interval of values by which a claim is decided, as the laboratory has them at this look; exact where the
    measure counts right answers.
    """
    if len(values) < MIN_SAMPLES or not bool(values.isfinite().all()):
        return mean_and_interval(values, level, seed=lab.seed)
    if COUNTED in measure and isinstance(lab, NaturalLab):
        low, high = lab.counted_ends(values, level)
    else:
        low, high = lab.ends(values, level)
    return float(values.double().mean()), low, high


def first_interval(
    values: Float[Tensor, " sample"], *, level: float = 1 - FIRST_LOOK_ERROR * ALPHA
) -> tuple[float, float]:
    """The interval of a mean by which a first look at a few prompts may settle what is not worth more of them: it
    leaves a tenth of the error that others do, and is Student's, for a bootstrap of few is too sure of itself.
    """
    low, high = student_interval(values.double()[:, None].numpy(), level=level)
    return float(low[0]), float(high[0])


def mean_evidence(
    lab: Lab,
    experiment: str,
    *,
    measure: str,
    values: Float[Tensor, " prompt"],
    level: float,
    rule: str,
    bar: float | None = None,
    controls: dict[str, float | None] | None = None,
    upper: float | None = None,
) -> Evidence:
    """Evidence from one value per prompt: their mean and its interval; marked by whether it lies above the bar. The
    upper end has a level of its own where `upper` gives one.
    """
    mean, low, high = measured(lab, values, level, measure) if len(values) else (None, None, None)
    if upper is not None and len(values):
        high = measured(lab, values, upper, measure)[2]
    evidence = Evidence(
        experiment=experiment,
        measure=measure,
        value=rounded(mean),
        low=rounded(low),
        high=rounded(high),
        n=len(values),
        controls=controls or {},
        rule=rule,
        seed=lab.seed,
        outcome=NOT_DEFINED if mean is not None and math.isnan(mean) else None,
        bar=rounded(bar) if isinstance(lab, NaturalLab) else None,
    )
    return evidence if bar is None else marked(evidence, above(evidence, bar))


def marked(evidence: Evidence, verdict: Verdict) -> Evidence:
    """The evidence marked as passed or failed; an undecided one stays without a mark."""
    return evidence.model_copy(update={"passed": {"supported": True, "refuted": False}.get(verdict)})


def above(evidence: Evidence, bar: float) -> Verdict:
    """Supported if the whole interval lies above the bar, refuted if none of it does."""
    if evidence.low is None or evidence.high is None:
        return "undecided"
    return "supported" if evidence.low > bar else "refuted" if evidence.high <= bar else "undecided"


def exceeds(lab: Lab, values: Float[Tensor, " prompt"], least: float, *, level: float, measure: str = "") -> bool:
    """Whether the interval of a mean lies above the least that counts. Controls can only raise a bar, so in a natural
    model, where every run is expensive, they are measured for no other values: those support nothing with any bar.
    """
    low = lower_end(lab, values, level=level, measure=measure)
    return low is not None and low > least


def lower_end(lab: Lab, values: Float[Tensor, " prompt"], *, level: float, measure: str = "") -> float | None:
    """The lower end of the interval of a mean as evidence has it; None without an interval."""
    return rounded(measured(lab, values, level, measure)[1]) if len(values) else None


def below(evidence: Evidence, bar: float) -> Verdict:
    """Supported if the whole interval lies below the bar, refuted if none of it does."""
    if evidence.low is None or evidence.high is None:
        return "undecided"
    return "supported" if evidence.high < bar else "refuted" if evidence.low >= bar else "undecided"


def all_of(*verdicts: Verdict) -> Verdict:
    """The verdict of a claim with several parts: one refuted part refutes it."""
    if "refuted" in verdicts:
        return "refuted"
    return "undecided" if "undecided" in verdicts else "supported"


#: From this look on, a claim whose figures will not leave their bars is given up.
LEAST_BEFORE_GIVING_UP = 16


def may_decide(evidence: Sequence[Evidence], lab: Lab) -> bool:
    """Whether more prompts may decide what these do not: a figure has no interval yet, or its interval would leave the
    bar at the last look if the mean moved by a standard error. Whoever stops here supports and refutes nothing, so
    that no error is spent on it.
    """
    if not isinstance(lab, GrowingLab):
        return False
    open_ = [one for one in evidence if one.passed is None and one.bar is not None and one.outcome is None]
    return any(lab.n < LEAST_BEFORE_GIVING_UP or _may_leave(one, lab) for one in open_)


def _may_leave(evidence: Evidence, lab: GrowingLab) -> bool:
    value, low, high, bar = evidence.value, evidence.low, evidence.high, evidence.bar
    if value is None or low is None or high is None or bar is None:
        return True
    if not low <= bar <= high:
        return False  # it is open for another reason, which more prompts do not change
    error = (high - value if value < bar else value - low) / lab.limit()
    return abs(value - bar) + error > lab.limit(-1) * error * (lab.n / lab.most) ** 0.5


def rounded(value: float | Tensor | None) -> float | None:
    """A figure with the precision of a record: four places; None where it is not a number."""
    number = None if value is None else float(torch.as_tensor(value))
    return None if number is None or math.isnan(number) else round(number, 4)


# Comparing with controls.


@dataclass(frozen=True)
class Bar:
    """What an effect must exceed, where that comes from, and the controls it was compared with."""

    value: float
    source: str
    controls: dict[str, float | None]

    @property
    def rule(self) -> str:
        """The rule as evidence shows it."""
        return f"interval above {self.value:.3f} ({self.source})"


def bar_above(least: float, controls: Mapping[str, PerPrompt], *, shown: int | None = None) -> Bar:
    """The least that counts, or the largest mean of a control, as the record has it; `shown` is how many controls that
    keeps, largest first.
    """
    reached = {name: rounded(values.mean()) for name, values in controls.items() if len(values)}
    means = {name: mean for name, mean in reached.items() if mean is not None}
    if shown is not None:
        means = dict(sorted(means.items(), key=lambda item: -item[1])[:shown])
    strongest = max(means, key=lambda name: means[name], default=None)
    if strongest is None or means[strongest] <= least:
        return Bar(least, THE_LEAST, {**means})
    return Bar(means[strongest], f"the control: {strongest}", {**means})


def judged(
    lab: Lab,
    experiment: str,
    measure: str,
    values: PerPrompt,
    bar: Bar,
    *,
    level: float,
    upper: float | None = None,
    remark: str = "",
) -> tuple[Verdict, Evidence]:
    """The verdict of values against a bar, and the evidence that shows both; levels as in `mean_evidence`."""
    evidence = mean_evidence(
        lab,
        experiment,
        measure=measure,
        values=values,
        level=level,
        rule=bar.rule + remark,
        bar=bar.value,
        controls=bar.controls,
        upper=upper,
    )
    return above(evidence, bar.value), evidence


def against(
    lab: Lab,
    experiment: str,
    measure: str,
    values: PerPrompt,
    controls: Callable[[], Mapping[str, PerPrompt]],
    *,
    least: float,
    level: float,
) -> tuple[Verdict, Evidence]:
    """The verdict of values against the least that counts and the controls, which are measured only where the values
    exceed the least that counts.
    """
    shows = exceeds(lab, values, least, level=level)
    return judged(lab, experiment, measure, values, bar_above(least, controls() if shows else {}), level=level)


def either(
    lab: Lab,
    experiment: str,
    values: Losses,
    controls: Callable[[], Mapping[str, Losses]],
    *,
    least: float,
    level: float,
    measures: tuple[str, str] = LOSSES,
    before: tuple[Evidence, ...] = (),
) -> Outcome:
    """A loss shown by the score or by right answers, each at half the error; `before` must hold as well. `controls`
    are measured where one of the two exceeds the least that counts.

    The score refutes alone: right answers are yes or no, and a hundred prompts do not bound the share that is lost
    below a twentieth. They must only not point the other way (`_not_against`).
    """
    evidence, verdicts, half = [], [], 1 - (1 - level) / 2
    pairs = zip(values, measures, strict=True)
    shows = any(exceeds(lab, one, least, level=half, measure=measure) for one, measure in pairs)
    others = controls() if shows else {}
    for place, measure in enumerate(measures):
        bar = bar_above(least, {name: pair[place] for name, pair in others.items()})
        remark = "; either shows it, and the score refutes it"
        verdict, one = judged(lab, experiment, measure, values[place], bar, level=half, remark=remark)
        evidence.append(one)
        verdicts.append(verdict)
    shown: Verdict = "supported" if "supported" in verdicts else verdicts[0]
    if shown == "refuted" and not _not_against(lab, evidence[1]):
        shown = "undecided"
    marks: dict[bool | None, Verdict] = {True: "supported", False: "refuted", None: "undecided"}
    needed: list[Verdict] = [marks[one.passed] for one in before]
    return all_of(shown, *needed), (*before, *evidence)


def _not_against(lab: Lab, answers: Evidence) -> bool:
    """Whether the right answers do not speak against a score that shows no loss: they show none either, or, on enough
    prompts, their mean does not lie above the bar.
    """
    if answers.passed is not None:
        return not answers.passed
    enough = answers.n >= LEAST_BEFORE_GIVING_UP or not isinstance(lab, GrowingLab)
    return enough and answers.value is not None and answers.bar is not None and answers.value <= answers.bar


Measured = TypeVar("Measured", bound=Tensor | tuple[Tensor, ...])


def weak_controls(
    lab: Lab,
    matched: Sequence[Component],
    measure: Callable[[list[Component]], Sequence[Measured]],
    *,
    count: int = CONTROLS,
) -> dict[Component, Measured]:
    """The first `count` matched components that are not strong themselves: no interval lies above the least that
    counts, by any measure. Only as many are measured as are needed.
    """
    weak: dict[Component, Measured] = {}
    for start in range(0, len(matched), count):
        some = list(matched[start : start + count])
        for part, values in zip(some, measure(some), strict=True):
            measures = values if isinstance(values, tuple) else (values,)
            strong = any(mean_and_interval(one, 0.95, seed=lab.seed)[1] > MIN_EFFECT for one in measures)
            if len(weak) < count and not strong:
                weak[part] = values
        if len(weak) == count:
            break
    return weak


def named(names: Sequence[str], lab: Lab) -> list[Component]:
    """Components of the model from their names."""
    return [Component.parse(name).within(lab.model.config) for name in names]


def given(suppressed: Sequence[str]) -> str:
    """The condition of a claim, as the end of its sentence."""
    return f" once {join_names(suppressed)} {'is' if len(suppressed) == 1 else 'are'} zeroed" if suppressed else ""


# The worst cell of an experiment: the argument value, or the position, where a claim fares worst.
#
# An average hides one value that always fails. So an experiment is also read cell by cell, and the cell counts whose
# accuracy is lowest for certain: its interval has the lowest upper end. A cell that fails in a few of a dozen cases is
# not bad yet, and one with fewer cases is left out and counted.

#: A cell needs so many cases.
CELL_CASES = 12
#: A claim fails where the upper end of a cell's interval lies below this.
MIN_WORST_CELL = 0.8
#: Intervals of single cells have this level, however many claims were tried.
CELL_LEVEL = 0.95
_WORST_IS = "; worst: "


@dataclass(frozen=True)
class Cell:
    """One cell: how often the claim was right in its cases, with an interval."""

    label: str
    value: float
    low: float
    high: float
    n: int


def worst_cell(shares: Mapping[str, tuple[float, int]]) -> tuple[Cell | None, dict[str, float | None]]:
    """The worst of cells given as their share of right answers and their number of cases, and how many were looked at
    and left out.
    """
    cells = [
        Cell(label, share, *share_interval_at(share * n, n, CELL_LEVEL), n)
        for label, (share, n) in shares.items()
        if n >= CELL_CASES
    ]
    counted: dict[str, float | None] = {
        "cells": float(len(cells)),
        "with_too_few_cases": float(len(shares) - len(cells)),
    }
    return min(cells, key=lambda cell: (cell.high, cell.label), default=None), counted


def cells_by(
    label: Int[Tensor, " row"], right: Bool[Tensor, "row pos"], cases: Bool[Tensor, "row pos"]
) -> dict[int, tuple[float, int]]:
    """For each label of rows the share of their cases that are right, and the number of rows with a case: answers of
    one input are not independent. Rows labelled -1 are left out.
    """
    cells = {}
    for value in label[label >= 0].unique().tolist():
        here = label == value
        n = int(cases[here].sum())
        if n:
            cells[value] = float((right & cases)[here].sum() / n), int(cases[here].any(1).sum())
    return cells


def worst_evidence(
    experiment: str,
    *,
    measure: str,
    cell: Cell | None,
    controls: dict[str, float | None],
    seed: int,
    bar: float = MIN_WORST_CELL,
) -> Evidence:
    """The worst cell by name, with its interval; marked by whether its upper end reaches the bar."""
    return Evidence(
        experiment=experiment if cell is None else f"{experiment}{_WORST_IS}{cell.label}",
        measure=measure,
        value=None if cell is None else rounded(cell.value),
        low=None if cell is None else rounded(cell.low),
        high=None if cell is None else rounded(cell.high),
        n=0 if cell is None else cell.n,
        controls=controls,
        rule=f"no upper end below {bar}, for each with >= {CELL_CASES} cases",
        seed=seed,
        passed=None if cell is None else cell.high >= bar,
    )


def worst_of(evidence: Evidence) -> str:
    """The argument value or position that evidence of this kind is about."""
    return evidence.experiment.partition(_WORST_IS)[2]
