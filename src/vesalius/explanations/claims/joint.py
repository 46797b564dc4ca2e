"""*Sufficient*, *redundant*, *backup of*, *covers*: what happens when several components are ablated together.

The *interaction* of two components is the effect of ablating both minus the sum of the single effects. It is positive
if one compensates for the other. The *gain* of a component is what it costs once others are replaced minus what it
costs alone.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.components import Component
from vesalius.documents.explanation import Evidence, Verdict
from vesalius.errors import BadInput
from vesalius.explanations.claims.base import (
    CONTROLS,
    MIN_EFFECT,
    Claim,
    ComponentName,
    Outcome,
    above,
    against,
    all_of,
    join_names,
    marked,
    mean_evidence,
    named,
    rounded,
)
from vesalius.explanations.claims.necessary import LEAST_BAR, WORDS
from vesalius.explanations.laboratory import Lab, NaturalLab, Replacement
from vesalius.explanations.laboratory.base import PerPrompt

#: What a circuit alone must preserve of a natural model's clean score.
MIN_KEPT_NATURAL = 0.8
#: A gain in effect once others are replaced, and what it may not exceed: the effect then, and that of all.
GAIN = ("gain in effect", "effect once they are replaced", "joint effect")


class Sufficient(Claim, frozen=True):
    """A circuit does the work alone: everything outside it is replaced and the output stays.

    Without a `replacement` a finite specimen must stand both the mean and the values of other inputs: what one of them
    leaves in place by chance (a reader that takes the mean for the right value) the other one takes away.
    """

    functional: ClassVar[bool] = False

    kind: Literal["sufficient"] = "sufficient"
    components: tuple[ComponentName, ...]
    replacement: Replacement | None = None

    @property
    def text(self) -> str:
        value = "replaced" if self.replacement is None else f"at {WORDS[self.replacement]}"
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
        bar=bar,
        controls=_means(controls),
    )
    verdict: Verdict = above(evidence, bar)
    other_share = evidence.controls.get("other_components")
    if verdict == "supported" and other_share is not None and other_share >= bar:
        verdict = "undecided"  # any components suffice: this output needs no circuit
    return verdict, marked(evidence, verdict)


def _lost_without(lab: Lab, members: Sequence[Component], kind: Replacement) -> Float[Tensor, " prompt"]:
    """What is lost when everything but some components is replaced."""
    return lab.effect([component for component in lab.model.components if component not in members], kind)


class Redundant(Claim, frozen=True):
    """Either of two components suffices: replacing one changes little, replacing both much."""

    functional: ClassVar[bool] = False

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

    functional: ClassVar[bool] = False

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


class Covers(Claim, frozen=True):
    """The component matters more once all the others of its group are replaced by values of other prompts."""

    tested_in: ClassVar[type[Lab]] = NaturalLab

    kind: Literal["covers"] = "covers"
    others: tuple[ComponentName, ...]

    @property
    def text(self) -> str:
        others = join_names(self.others)
        return f"{self.component} covers for {others}: it matters more once they are replaced."

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """The gain of its effect once the others are replaced (`bounded_gain`), against that of matched components."""
        component, rest = self.part.within(lab.model.config), others_of(self, self.others, lab)
        joint, without = lab.effect([*rest, component], "resample"), lab.effect(rest, "resample")
        measure, values = bounded_gain(gain(lab, component, rest), joint=joint, without=without)

        def controls() -> dict[str, PerPrompt]:
            matched = lab.matched(component, exclude=rest)[:CONTROLS]
            lab.measure([[*one, c] for c in matched for one in ([], rest)], ["resample"])
            return {f"{c} instead": gain(lab, c, rest) for c in matched}

        experiment = f"replacement with and without {join_names(rest)}"
        verdict, evidence = against(lab, experiment, measure, values, controls, least=MIN_EFFECT, level=level)
        return verdict, (evidence,)


def gain(lab: Lab, component: Component, rest: Sequence[Component]) -> PerPrompt:
    """A component's effect with `rest` replaced minus its effect alone, by values of other prompts."""
    both = lab.effect([*rest, component], "resample")
    return both - lab.effect(rest, "resample") - lab.effect([component], "resample")


def others_of(claim: Claim, names: tuple[str, ...], lab: Lab) -> list[Component]:
    """The other components that a claim names: at least one, and not its own."""
    others = named(names, lab)
    if not others or claim.part in others:
        raise BadInput(f"{claim.kind} {claim.component}: name one or more other components")
    return others


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
