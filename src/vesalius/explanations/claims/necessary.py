"""*Necessary*, *inhibits*, *not needed alone*: what happens when one component is ablated.

An effect is the damage per prompt: the share of outputs that change, or, for natural models, the share of the clean
score that is lost. Every effect is compared with that of matched components (same kind, outside the circuit and the
claim), because ablating any component may do damage. A matched component that is strong itself is not a control.

A component may show under one replacement and not under another: what depends on the position alone is the same in
every input, so only zeros, its mean and outputs moved to other positions can show it. `Necessary` goes through all
four; in a natural model it stops when one has passed and a second shows an effect, or when neither can come any more.

A natural model may miss nothing where zeros, or its mean, stand in for a component, and be misled by its values on
other prompts: something else does the same. It is then *not needed alone* by that replacement, and `Necessary` is
refuted by the very figures that support this: of the two one stands.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal, get_args

from jaxtyping import Float
from torch import Tensor

from vesalius.components import Component
from vesalius.documents.explanation import Evidence, Verdict
from vesalius.documents.view import join_names
from vesalius.explanations.claims.base import (
    ALPHA,
    LOSSES,
    MIN_EFFECT,
    Bar,
    Claim,
    NaturalClaim,
    Outcome,
    above,
    all_of,
    below,
    first_interval,
    judged,
    lower_end,
    marked,
    mean_evidence,
    rounded,
)
from vesalius.explanations.laboratory import FIRST_LOOK, GrowingLab, How, Lab, NaturalLab, Replacement

#: Matched components that are looked at, and of these the controls.
CANDIDATES, CONTROLS = 12, 4

#: An effect of a finite specimen is judged by what can change: `MIN_EFFECT` of the outputs that differ between inputs.
LEAST_BAR = 0.002
#: Replacements that change fewer outputs than this do nothing.
INERT_BELOW = 0.01

#: The order in which a natural model's components are replaced: first by values that the model meets, then by what is
#: asked in any case (`spared`).
NATURAL_ORDER: tuple[Replacement, ...] = ("resample", "mean", "moved", "zero")
#: Level of the interval by which the first prompts show an effect that no verdict rests on alone.
SHOWN_LEVEL = 0.9
#: The most that a small part costs: three times the least that counts.
MOST_SMALL = round(3 * MIN_EFFECT, 12)
#: Replacements that know nothing of the prompt.
Neutral = Literal["zero", "mean"]
NEUTRAL: dict[Neutral, str] = {"zero": "zeros", "mean": "its mean"}
#: The rule of what a replacement must show to cost nothing.
COSTS_NOTHING = f"interval below {MIN_EFFECT:.3f}"
_LEAST = f"the least effect that counts, {MIN_EFFECT:.0%}"
WORDS = {
    "zero": "zero",
    "mean": "its mean",
    "resample": "its values on other inputs",
    "moved": "its values at other positions",
}


def effect_bar(lab: Lab, component: Component, replacement: Replacement, *, sign: float = 1.0) -> Bar:
    """The bar of an effect (or, with `sign` -1, of a gain): the least that counts, or what matched components reach
    that are not strong themselves.
    """
    least, source = MIN_EFFECT, _LEAST
    if lab.finite:
        least = max(LEAST_BAR, MIN_EFFECT * lab.variation)
        source = f"{MIN_EFFECT:.0%} of the {lab.variation:.1%} of outputs that differ between inputs"
    weak: dict[str, float] = {}
    strong: list[str] = []
    candidates = lab.matched(component, k=CANDIDATES)
    while candidates and len(weak) < CONTROLS:
        count = CONTROLS - len(weak)
        some, candidates = candidates[:count], candidates[count:]
        for candidate, effect in _control_effects(lab, some, replacement, least, sign=sign).items():
            if effect > least:
                strong.append(str(candidate))
            else:
                weak[str(candidate)] = effect
    controls = {name: rounded(effect) for name, effect in weak.items()}
    reached = max((value for value in controls.values() if value is not None), default=0.0)
    # Noise of components outside the circuit may reach twice what was drawn.
    if 2 * reached > least:
        least = 2 * reached
        source = f"twice the effect of {max(controls, key=lambda name: controls[name] or 0.0)}, outside the circuit"
    if strong:
        source += f"; {join_names(strong[:4])} matter{'s' * (len(strong) == 1)} too much to be a control"
    return Bar(least, source, controls)


def _control_effects(
    lab: Lab, candidates: Sequence[Component], replacement: Replacement, least: float, *, sign: float
) -> dict[Component, float]:
    """The mean effects of matched components: of the first few prompts where they show whether it is a control (it lies
    below half of the bar, so that twice its effect cannot raise it, or it is strong itself), else of all.
    """
    early: dict[Component, Float[Tensor, " prompt"]] = {}
    if lab.looks_first:
        lab.measure([[one] for one in candidates], [replacement], n=FIRST_LOOK)
        for one in candidates:
            first = lab.first_effect([one], replacement)
            assert first is not None
            strong = first_interval(sign * first, level=SHOWN_LEVEL)[0] > least
            if strong or first_interval(sign * first)[1] < least / 2:
                early[one] = first
    lab.measure([[one] for one in candidates if one not in early], [replacement])
    effects = {one: early[one] if one in early else lab.effect([one], replacement) for one in candidates}
    return {one: sign * float(values.mean()) for one, values in effects.items()}


def shows_early(lab: Lab, component: Component, replacement: Replacement) -> Float[Tensor, " prompt"] | None:
    """The effects of replacing a component on the first few prompts where these show that it is not negligible; else
    None. No verdict may rest on this alone.
    """
    first = lab.first_effect([component], replacement)
    return first if first is not None and first_interval(first, level=SHOWN_LEVEL)[0] > MIN_EFFECT else None


def is_inert(necessary: Sequence[Evidence]) -> bool:
    """Whether the evidence of `necessary` shows every replacement and none of them does anything."""
    shown = {one.experiment for one in necessary}
    every = all(f"{kind} replacement" in shown for kind in get_args(Replacement))
    return every and all(abs(one.value or 0.0) < INERT_BELOW for one in necessary)


class Necessary(Claim, frozen=True):
    """Replacing the component changes what the model does. Without a `replacement` the strongest of all is shown.

    In a natural model it is refuted where zeros, or its mean, at every position cost neither score nor right answers
    (`not_needed_alone`), whatever other replacements cost.
    """

    functional: ClassVar[bool] = False

    kind: Literal["necessary"] = "necessary"
    replacement: Replacement | None = None

    @property
    def text(self) -> str:
        value = "" if self.replacement is None else f" by {WORDS[self.replacement]}"
        return f"{self.component} is necessary: replacing it{value} changes the output."

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """Compare its effects with those of matched components: one replacement must stand above its bar and, where
        all are made, a second one must change something too. In a natural model, where every run is expensive, no
        further one is made once that is shown.
        """
        component = self.part.within(lab.model.config)
        kinds = order_of(lab) if self.replacement is None else (self.replacement,)
        evidence: list[Evidence] = []
        for kind in kinds:
            evidence.append(_effect_evidence(lab, component, kind, _levels(lab, level, kinds), before=evidence))
            if _is_settled(lab, evidence, kinds):
                break
        # What passed on all prompts is what decides, so the first figure is one of these, the largest.
        strongest_first = sorted(evidence, key=lambda one: (one.passed is not True, -one.n, -(one.value or 0.0)))
        verdict = _verdict(lab, evidence, kinds)
        if verdict == "refuted" or not isinstance(lab, NaturalLab):
            return verdict, tuple(strongest_first)
        needed, stands_in = _needed(lab, component, level=level)
        if needed == "supported" or (needed, verdict) == ("undecided", "undecided"):
            return verdict, tuple(strongest_first)
        return needed, (*stands_in, *(one for one in strongest_first if one.passed is True))


def _needed(lab: NaturalLab, component: Component, *, level: float) -> Outcome:
    """Whether a component whose replacement shows is needed: refuted, with the evidence, where zeros or its mean cost
    nothing; open while they may turn out to and more prompts can be drawn.
    """
    open_: tuple[Evidence, ...] = ()
    lab.measure([[component]], list(NEUTRAL))
    for how in NEUTRAL:
        if any(float(lost.mean()) >= MIN_EFFECT for lost in lab.losses([component], how)):
            continue
        verdict, evidence = costs_nothing(lab, component, [how], level=level)
        if verdict == "supported":
            return "refuted", evidence
        if verdict == "undecided" and isinstance(lab, GrowingLab) and lab.following is not None:
            open_ += evidence
    return ("undecided", open_) if open_ else ("supported", ())


def spared_by(necessity: Sequence[Evidence]) -> "Neutral | None":
    """The replacement that costs nothing by the evidence of a refuted `Necessary`; None where another thing refuted
    it.
    """
    shown = {one.experiment for one in necessity if one.rule == COSTS_NOTHING and one.passed is True}
    return next((how for how in NEUTRAL if f"{how} replacement" in shown), None)


def _levels(lab: Lab, level: float, kinds: Sequence[Replacement]) -> tuple[float, float]:
    """The levels of the lower and of the upper end of an effect. One replacement that shows is enough, so each lower
    end is held to its part of the error. All must fail to refute the claim, so that whoever refutes a true one has
    erred about the replacement that shows it: in a natural model each upper end may leave the whole error (an
    intersection-union test). Inputs of a finite specimen are many, and its intervals narrow as they are.
    """
    each = 1 - (1 - level) / len(kinds)
    return each, each if lab.finite else level


def _effect_evidence(
    lab: Lab, component: Component, kind: Replacement, levels: tuple[float, float], *, before: Sequence[Evidence]
) -> Evidence:
    """What one replacement of a component costs, against its bar. In a natural model where one has passed `before`, a
    second must only change something: a few prompts may show that, and nothing is compared.
    """
    level, upper = levels
    second = not lab.finite and any(one.passed is True for one in before)
    key = "effect", component, kind, levels, second
    if key in lab.settled:  # at an earlier look
        return lab.settled[key]
    early = shows_early(lab, component, kind) if second else None
    values = lab.effect([component], kind) if early is None else early
    if second:
        bar = Bar(MIN_EFFECT, f"{_LEAST}, beside another that passed", {})
    else:
        bar = bar_for(lab, component, kind, values, level=level)
    evidence = judged(lab, f"{kind} replacement", "effect", values, bar, level=level, upper=upper)[1]
    if isinstance(lab, GrowingLab) and evidence.passed is not None:
        lab.settled[key] = evidence
    return evidence


def bar_for(
    lab: Lab,
    component: Component,
    replacement: Replacement,
    values: Float[Tensor, " prompt"],
    *,
    level: float,
    sign: float = 1.0,
) -> Bar:
    """The bar of measured effects (or, with `sign` -1, gains), with controls where they can change what is shown."""
    if _needs_controls(lab, values, level):
        return effect_bar(lab, component, replacement, sign=sign)
    return Bar(MIN_EFFECT, _LEAST, {})


def _needs_controls(lab: Lab, effects: Float[Tensor, " prompt"], level: float) -> bool:
    """Whether controls can change what an effect shows. In a natural model the bar lies between the least that counts
    and twice that, for a control with a larger effect is strong itself: an interval that lies above both, or does not
    lie above the first, is decided without them.
    """
    if lab.finite:
        return True
    low = lower_end(lab, effects, level=level)
    return low is not None and MIN_EFFECT < low <= 2 * MIN_EFFECT


def order_of(lab: Lab) -> tuple[Replacement, ...]:
    """The order in which replacements are made. In a natural model those come first that keep to values which the model
    meets.
    """
    if lab.finite:
        return lab.replacements
    return tuple(kind for kind in NATURAL_ORDER if kind in lab.replacements)


def _verdict(lab: Lab, evidence: Sequence[Evidence], kinds: Sequence[Replacement]) -> Verdict:
    """What the replacements made show about *necessary*; `kinds` are all that may be made."""
    passed = [one.passed for one in evidence]
    if _shows(lab, evidence, least=min(2, len(kinds))):
        return "supported"
    if True in passed and not lab.finite:
        return "undecided"  # zeros, for one, may be far from anything the model ever meets
    return "undecided" if None in passed else "refuted"


def _is_settled(lab: Lab, evidence: Sequence[Evidence], kinds: Sequence[Replacement]) -> bool:
    """Whether no further replacement is made: in a natural model where *necessary* is shown, and where what is left
    can neither show nor refute it.
    """
    least, left = min(2, len(kinds)), len(kinds) - len(evidence)
    if lab.finite:
        return False
    if _shows(lab, evidence, least=least):
        return True
    hopeless = _n_shown(lab, evidence) + left < least
    return hopeless and any(one.passed is not False for one in evidence)


def _shows(lab: Lab, evidence: Sequence[Evidence], *, least: int) -> bool:
    """Whether a replacement stands above its bar and `least` of them change something: an output moved or replaced can
    disturb readers that never use it; what is used shows in a second way as well.
    """
    return any(one.passed is True for one in evidence) and _n_shown(lab, evidence) >= least


def _n_shown(lab: Lab, evidence: Sequence[Evidence]) -> int:
    """How many replacements change something."""
    changes = INERT_BELOW if lab.finite else MIN_EFFECT
    return sum((one.value or 0.0) >= changes or one.passed is True for one in evidence)


def measure_necessary(lab: Lab, components: Sequence[Component]) -> list[Component]:
    """Measure what `Necessary` asks of these components, one run for each kind of replacement: of each the kinds that
    it asks for, and zeros and the mean of those that show. Returns the components that do not show.
    """
    kinds, evidence = order_of(lab), {part: list[Evidence]() for part in components}
    levels = _levels(lab, 1 - ALPHA, kinds)
    for kind in kinds:
        wanted = [part for part in components if not _is_settled(lab, evidence[part], kinds)]
        passed = [part for part in wanted if any(one.passed is True for one in evidence[part])]
        if lab.looks_first:
            lab.measure([[part] for part in passed], [kind], n=FIRST_LOOK)
        lab.measure([[part] for part in wanted if part not in passed or shows_early(lab, part, kind) is None], [kind])
        for part in wanted:
            evidence[part].append(_effect_evidence(lab, part, kind, levels, before=evidence[part]))
    shown = [part for part in components if _shows(lab, evidence[part], least=min(2, len(kinds)))]
    if not lab.finite:
        lab.measure([[part] for part in shown], list(NEUTRAL))
    return [part for part in components if part not in shown]


class SmallPart(NaturalClaim, frozen=True):
    """Replacing the component by its values on other prompts costs something, but not much of the score."""

    functional: ClassVar[bool] = False

    kind: Literal["small_part"] = "small_part"

    @property
    def text(self) -> str:
        most = f"{MOST_SMALL:.0%} of the score"
        return f"{self.component} plays a small part: replacing it costs more than nothing and less than {most}."

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """Both ends of one interval: the lower one above nothing, the upper one below what is no small part. Both are
        needed, so that neither shares its error.
        """
        component = self.part.within(lab.model.config)
        effects = lab.effect([component], "resample")
        sides = (above, 0.0, "above 0.000: it does something"), (below, MOST_SMALL, f"below {MOST_SMALL:.3f}: not much")
        verdicts: list[Verdict] = []
        evidence: list[Evidence] = []
        for decide, bar, words in sides:
            one = mean_evidence(
                lab, "resample replacement", measure="effect", values=effects, level=level, rule=f"interval {words}"
            )
            verdicts.append(decide(one, bar))
            evidence.append(marked(one.model_copy(update={"bar": bar}), verdicts[-1]))
        return all_of(*verdicts), tuple(evidence)


class Inhibits(NaturalClaim, frozen=True):
    """Replacing the component raises the score: it works against the answer."""

    kind: Literal["inhibits"] = "inhibits"

    @property
    def text(self) -> str:
        return f"{self.component} works against the answer: replacing it by its values on other prompts helps."

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """The gain of the score, against that of matched components."""
        component = self.part.within(lab.model.config)
        gains = -lab.effect([component], "resample")
        bar = bar_for(lab, component, "resample", gains, level=level, sign=-1.0)
        verdict, evidence = judged(lab, "resample replacement", "gain of the score", gains, bar, level=level)
        return verdict, (evidence,)


class NotNeededAlone(NaturalClaim, frozen=True):
    """The model answers as well with zeros, or with the component's mean, at every position in its place."""

    functional: ClassVar[bool] = False

    kind: Literal["not_needed_alone"] = "not_needed_alone"
    replacement: Neutral

    @property
    def text(self) -> str:
        value = NEUTRAL[self.replacement]
        return f"{self.component} is not needed alone: {value} at every position in its place cost next to nothing."

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """Neither the score nor the right answers that are lost may reach the least that counts."""
        lab = NaturalLab.require(lab, self.kind)
        return costs_nothing(lab, self.part.within(lab.model.config), [self.replacement], level=level)


def costs_nothing(lab: NaturalLab, component: Component, hows: Sequence[How], *, level: float) -> Outcome:
    """Whether no replacement costs score or right answers: every interval below the least that counts. One that lies
    above refutes, by either measure.
    """
    verdicts: list[Verdict] = []
    evidence: list[Evidence] = []
    for how in hows:
        for measure, lost in zip(LOSSES, lab.losses([component], how), strict=True):
            experiment = f"{how} replacement"
            one = mean_evidence(lab, experiment, measure=measure, values=lost, level=level, rule=COSTS_NOTHING)
            verdicts.append(below(one, MIN_EFFECT))
            evidence.append(marked(one.model_copy(update={"bar": MIN_EFFECT}), verdicts[-1]))
    return all_of(*verdicts), tuple(evidence)
