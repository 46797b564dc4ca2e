"""*Necessary*, *sufficient*, *redundant*, *backup of*: what happens when components are ablated.

An effect is the damage per prompt: the share of outputs that change, or, for natural models, the share of the clean
score that is lost. Every effect is compared with that of matched components (same kind, outside the circuit and the
claim), because ablating any component may do damage. A matched component that is strong itself is not a control.

A component may show under one replacement and not under another: what depends on the position alone is the same in
every input, so only zeros, its mean and outputs moved to other positions can show it. `Necessary` goes through all
four; in a natural model it stops when one has passed and a second shows an effect, or when neither can come any more.

The *interaction* of two components is the effect of ablating both minus the sum of the single effects. It is positive
if one compensates for the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.components import Component
from vesalius.documents.explanation import Evidence, Verdict
from vesalius.errors import BadInput
from vesalius.explanations.claims.base import (
    ALPHA,
    Claim,
    ComponentName,
    Outcome,
    above,
    all_of,
    first_interval,
    join_names,
    lower_end,
    marked,
    mean_evidence,
    rounded,
)
from vesalius.explanations.claims.laboratory import FIRST_LOOK, Lab, Replacement

#: An effect below this share is too small to call a component necessary, redundant or a backup.
MIN_EFFECT = 0.05
#: What a circuit alone must preserve of a natural model's clean score.
MIN_KEPT_NATURAL = 0.8
#: Matched components that are looked at, and of these the controls.
CANDIDATES, CONTROLS = 12, 4

#: An effect of a finite specimen is judged by what can change: `MIN_EFFECT` of the outputs that differ between inputs.
LEAST_BAR = 0.002
#: Replacements that change fewer outputs than this do nothing.
INERT_BELOW = 0.01

#: The order in which a natural model's components are replaced: first by values that the model meets.
NATURAL_ORDER: tuple[Replacement, ...] = ("resample", "moved", "mean", "zero")
#: Level of the interval by which the first prompts show an effect that no verdict rests on alone.
SHOWN_LEVEL = 0.9
#: A gain in effect once others are replaced, and what it may not exceed: the effect then, and that of all.
GAIN = ("gain in effect", "effect once they are replaced", "joint effect")
_LEAST = f"the least effect that counts, {MIN_EFFECT:.0%}"
_WORDS = {
    "zero": "zero",
    "mean": "its mean",
    "resample": "its values on other inputs",
    "moved": "its values at other positions",
}


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
    """Replacing the component changes what the model does. Without a `replacement` the strongest of all is shown."""

    kind: Literal["necessary"] = "necessary"
    replacement: Replacement | None = None

    @property
    def text(self) -> str:
        value = "" if self.replacement is None else f" by {_WORDS[self.replacement]}"
        return f"{self.component} is necessary: replacing it{value} changes the output."

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """Compare its effects with those of matched components: one replacement must stand above its bar and, where
        all are made, a second one must change something too. In a natural model, where every run is expensive, no
        further one is made once that is shown.
        """
        component = self.part.within(lab.model.config)
        kinds = order_of(lab) if self.replacement is None else (self.replacement,)
        # One replacement that shows is enough, so each is held to its part of the error.
        each = 1 - (1 - level) / len(kinds)
        evidence: list[Evidence] = []
        for kind in kinds:
            evidence.append(_effect_evidence(lab, component, kind, each, before=evidence))
            if _is_settled(lab, evidence, kinds):
                break
        # What passed on all prompts is what decides, so the first figure is one of these, the largest.
        strongest_first = sorted(evidence, key=lambda one: (one.passed is not True, -one.n, -(one.value or 0.0)))
        return _verdict(lab, evidence, kinds), tuple(strongest_first)


def _effect_evidence(
    lab: Lab, component: Component, kind: Replacement, level: float, *, before: Sequence[Evidence]
) -> Evidence:
    """What one replacement of a component costs, against its bar. In a natural model where one has passed `before`, a
    second must only change something: a few prompts may show that, and nothing is compared.
    """
    second = not lab.finite and any(one.passed is True for one in before)
    early = shows_early(lab, component, kind) if second else None
    values = lab.effect([component], kind) if early is None else early
    if second:
        bar = Bar(MIN_EFFECT, f"{_LEAST}, beside another that passed", {})
    else:
        bar = bar_for(lab, component, kind, values, level=level)
    return mean_evidence(
        lab,
        f"{kind} replacement",
        measure="effect",
        values=values,
        level=level,
        rule=bar.rule,
        bar=bar.value,
        controls=bar.controls,
    )


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
    low = lower_end(effects, level=level, seed=lab.seed)
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
        return "untested"  # zeros, for one, may be far from anything the model ever meets
    return "untested" if None in passed else "refuted"


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
    it asks for. Returns the components that it does not support.
    """
    kinds, evidence = order_of(lab), {part: list[Evidence]() for part in components}
    level = 1 - ALPHA / len(kinds)
    for kind in kinds:
        wanted = [part for part in components if not _is_settled(lab, evidence[part], kinds)]
        passed = [part for part in wanted if any(one.passed is True for one in evidence[part])]
        if lab.looks_first:
            lab.measure([[part] for part in passed], [kind], n=FIRST_LOOK)
        lab.measure([[part] for part in wanted if part not in passed or shows_early(lab, part, kind) is None], [kind])
        for part in wanted:
            evidence[part].append(_effect_evidence(lab, part, kind, level, before=evidence[part]))
    return [part for part in components if not _shows(lab, evidence[part], least=min(2, len(kinds)))]


class Sufficient(Claim, frozen=True):
    """A circuit does the work alone: everything outside it is replaced and the output stays.

    Without a `replacement` a finite specimen must stand both the mean and the values of other inputs: what one of them
    leaves in place by chance (a reader that takes the mean for the right value) the other one takes away.
    """

    kind: Literal["sufficient"] = "sufficient"
    components: tuple[ComponentName, ...]
    replacement: Replacement | None = None

    @property
    def text(self) -> str:
        value = "replaced" if self.replacement is None else f"at {_WORDS[self.replacement]}"
        return f"{join_names(self.components)} suffice: with everything else {value} the output stays."

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """Compare what the circuit alone preserves with what as many other components preserve."""
        members = [Component.parse(name).within(lab.model.config) for name in self.components]
        if self.part not in members:
            raise BadInput(f"component {self.component} is not among the circuit {join_names(self.components)}; add it")
        kinds: tuple[Replacement, ...] = ("mean", "resample") if lab.finite else ("mean",)
        if self.replacement is not None:
            kinds = (self.replacement,)
        verdicts: list[Verdict] = []
        evidence: list[Evidence] = []
        for kind in kinds:
            verdict, measured = _kept_by(lab, members, kind, level)
            verdicts.append(verdict)
            evidence.append(measured)
        return all_of(*verdicts), tuple(evidence)


def _kept_by(lab: Lab, members: Sequence[Component], kind: Replacement, level: float) -> tuple[Verdict, Evidence]:
    """What stays under one replacement of everything else."""
    bar, source = MIN_KEPT_NATURAL, ""
    if lab.finite:
        bar = 1 - max(LEAST_BAR, MIN_EFFECT * lab.variation)
        source = f" (losing at most {MIN_EFFECT:.0%} of the {lab.variation:.1%} of outputs that differ)"
    other_components = _matched_set(lab, members)
    controls = {"other_components": 1 - _lost_without(lab, other_components, kind)} if other_components else {}
    evidence = mean_evidence(
        lab,
        f"{kind} replacement of all others",
        measure="share kept",
        values=1 - _lost_without(lab, members, kind),
        level=level,
        rule=f"interval above {bar:.3f}{source}, other_components below it",
        controls=_means(controls),
    )
    verdict: Verdict = above(evidence, bar)
    other_share = evidence.controls.get("other_components")
    if verdict == "supported" and other_share is not None and other_share >= bar:
        verdict = "untested"  # any components suffice: this output needs no circuit
    return verdict, marked(evidence, verdict)


def _lost_without(lab: Lab, members: Sequence[Component], kind: Replacement) -> Float[Tensor, " prompt"]:
    """What is lost when everything but some components is replaced."""
    return lab.effect([component for component in lab.model.components if component not in members], kind)


class Redundant(Claim, frozen=True):
    """Either of two components suffices: replacing one changes little, replacing both much."""

    kind: Literal["redundant"] = "redundant"
    other: ComponentName
    replacement: Replacement = "mean"

    @property
    def text(self) -> str:
        return f"{self.component} and {self.other} are redundant: replacing both costs more than each alone together."

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """Compare the interaction with matched partners; each single effect must be less than half the joint one."""
        pair = _Pair(lab, self.part, Component.parse(self.other), self.replacement)
        interaction = mean_evidence(
            lab,
            f"joint {self.replacement} replacement",
            measure="interaction",
            values=pair.interaction,
            level=level,
            rule=f"interval above {MIN_EFFECT} and above every control: {pair.bar:.3f}",
            bar=pair.bar,
            controls=pair.controls,
        )
        excess = mean_evidence(
            lab,
            f"{self.replacement} replacement of one",
            measure="joint effect minus twice the larger single effect",
            values=pair.both - 2 * torch.maximum(pair.first, pair.second),
            level=level,
            rule="interval above 0",
            bar=0.0,
            controls={"first": rounded(pair.first.mean()), "second": rounded(pair.second.mean())},
        )
        return all_of(above(interaction, pair.bar), above(excess, 0.0)), (interaction, excess)


def bounded_gain(
    gain: Float[Tensor, " prompt"],
    *,
    joint: Float[Tensor, " prompt"],
    without: Float[Tensor, " prompt"],
    measures: tuple[str, str, str] = GAIN,
) -> tuple[str, Float[Tensor, " prompt"]]:
    """What a component gains in effect once others are replaced, and under which of the `measures` it is shown. It
    counts at most as what replacing it costs then (what all cost, `joint`, less what the others do, `without`), and as
    what all cost: a component that works against the answer, or whose work another undoes, gains by comparison and is
    not a backup.
    """
    bounds = dict(zip(measures, (gain, joint - without, joint), strict=True))
    measure = min(bounds, key=lambda name: float(bounds[name].mean()))
    return measure, bounds[measure]


class BackupOf(Claim, frozen=True):
    """The component steps in when another, the primary, is taken away."""

    kind: Literal["backup_of"] = "backup_of"
    primary: ComponentName
    replacement: Replacement = "mean"

    @property
    def text(self) -> str:
        return f"{self.component} is a backup of {self.primary}: it matters more once {self.primary} is replaced."

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """Its effect with the primary ablated minus its effect alone, and the primary's lead while both are intact."""
        pair = _Pair(lab, self.part, Component.parse(self.primary), self.replacement)
        measure, values = bounded_gain(pair.interaction, joint=pair.both, without=pair.second)
        gain = mean_evidence(
            lab,
            f"{self.replacement} replacement with and without {self.primary}",
            measure=measure,
            values=values,
            level=level,
            rule=f"interval above {MIN_EFFECT} and above every control partner: {pair.bar:.3f}",
            bar=pair.bar,
            controls={"alone": rounded(pair.first.mean()), **pair.controls},
        )
        lead = mean_evidence(
            lab,
            f"{self.replacement} replacement of one",
            measure=f"effect of {self.primary} minus that of {self.component}",
            values=pair.second - pair.first,
            level=level,
            rule="interval not below 0",
        )
        overtaken = lead.high is not None and lead.high < 0
        lead = marked(lead, "refuted" if overtaken else "supported")
        return ("refuted" if overtaken else above(gain, pair.bar)), (gain, lead)


class _Pair:
    """Effects of two components, alone and together, and of the first with matched partners."""

    def __init__(self, lab: Lab, first: Component, second: Component, replacement: Replacement) -> None:
        if first == second:
            raise BadInput(f"component {first} is named twice; a claim about a pair needs two components")
        self.lab = lab
        self.replacement: Replacement = replacement
        self.a, self.b = first.within(lab.model.config), second.within(lab.model.config)
        self.first, self.second = lab.effect([first], replacement), lab.effect([second], replacement)
        self.both = lab.effect([first, second], replacement)
        self.interaction = self.both - self.first - self.second

    @cached_property
    def controls(self) -> dict[str, float | None]:
        """The first component's interaction with components matched to the second."""
        interactions = {}
        for partner in self.lab.matched(self.b, exclude=[self.a]):
            joint = self.lab.effect([self.a, partner], self.replacement)
            interactions[f"with {partner}"] = joint - self.first - self.lab.effect([partner], self.replacement)
        return _means(interactions)

    @property
    def bar(self) -> float:
        """What the interaction must exceed."""
        return max([MIN_EFFECT, *(value for value in self.controls.values() if value is not None)])


def _matched_set(lab: Lab, members: Sequence[Component]) -> list[Component]:
    """As many components of each kind as the circuit has, all from outside it; empty if there are too few."""
    matched: list[Component] = []
    for is_head in (True, False):
        of_kind = [member for member in members if member.is_head == is_head]
        if not of_kind:
            continue
        others = lab.matched(of_kind[0], exclude=members, k=len(of_kind))
        if len(others) < len(of_kind):
            return []
        matched += others
    return matched


def _means(effects: dict[str, Tensor]) -> dict[str, float | None]:
    return {name: rounded(values.mean()) for name, values in effects.items()}
