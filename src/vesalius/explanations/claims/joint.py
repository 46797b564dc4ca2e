"""*Sufficient*, *together*, *redundant*, *backup of*: what happens when several components are ablated together.

The *excess* of a set is the effect of ablating all of it minus the sum of the single effects. It is positive if one
compensates for another. The *gain* of a component is what it costs once others are replaced minus what it costs alone.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.components import Component
from vesalius.documents.explanation import Evidence, Verdict
from vesalius.documents.view import join_names
from vesalius.errors import BadInput
from vesalius.explanations.claims.base import (
    CANDIDATES,
    LOSSES,
    MIN_EFFECT,
    Claim,
    ComponentName,
    NaturalClaim,
    Outcome,
    above,
    against,
    all_of,
    either,
    marked,
    mean_evidence,
    named,
    rounded,
    weak_controls,
)
from vesalius.explanations.claims.necessary import LEAST_BAR, WORDS
from vesalius.explanations.laboratory import How, Lab, NaturalLab, Replacement
from vesalius.explanations.laboratory.base import PerPrompt

#: What a circuit alone must preserve of a natural model's clean score.
MIN_KEPT_NATURAL = 0.8
#: A gain in effect once others are replaced, and what it may not exceed: the effect then, and that of all.
GAIN = ("gain in effect", "effect once they are replaced", "joint effect")


class Sufficient(Claim, frozen=True):
    """A circuit does the work alone: everything outside it is replaced and the output stays."""

    functional: ClassVar[bool] = False

    kind: Literal["sufficient"] = "sufficient"
    components: tuple[ComponentName, ...]
    replacement: Replacement | None = None

    @property
    def text(self) -> str:
        value = "replaced" if self.replacement is None else f"at {WORDS[self.replacement]}"
        return f"{join_names(self.components)} suffice: with everything else {value} the output stays."

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """Compare what the circuit alone preserves with what as many other components preserve.

        Without a `replacement` a finite specimen must stand both the mean and the values of other inputs: what one of
        them leaves in place by chance (a reader that takes the mean for the right value) the other one takes away.
        """
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
        controls={name: rounded(values.mean()) for name, values in controls.items()},
    )
    verdict: Verdict = above(evidence, bar)
    other_share = evidence.controls.get("other_components")
    if verdict == "supported" and other_share is not None and other_share >= bar:
        verdict = "undecided"  # any components suffice: this output needs no circuit
    return verdict, marked(evidence, verdict)


def _lost_without(lab: Lab, members: Sequence[Component], kind: Replacement) -> Float[Tensor, " prompt"]:
    """What is lost when everything but some components is replaced."""
    return lab.effect([component for component in lab.model.components if component not in members], kind)


# Several components that do the same. One claim for each meaning:
#
#     together     replacing all of them costs more than the sum of what each costs alone: some stand in for others
#     redundant    the same, and they are alike: each of them acts alone, or none does (symmetric)
#     backup_of    one acts only once others are gone: alone it costs less than the least that counts, while one of the
#                  others, the primary, has an effect of its own (one-sided)
#
# *Acts alone* is decided by intervals and can fail either way: it acts where one lies above the least that counts, it
# does not where that of the score lies below (`acts_alone`). Where neither is so, *together* may stand alone. A backup
# and a redundant set need opposite figures of the same components, so that not both can be supported of these.


class Together(NaturalClaim, frozen=True):
    """Replacing all of the components costs more than the sum of what each costs alone."""

    functional: ClassVar[bool] = False

    kind: Literal["together"] = "together"
    others: tuple[ComponentName, ...]
    replacement: How = "resample"
    at: str | None = None

    @property
    def text(self) -> str:
        names = _sorted_names(self.component, self.others)
        by = _by(self.replacement, self.at)
        return f"{names} matter together: replacing all of them{by} costs more than the sum of what each costs alone."

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """The excess of the joint cost, and the joint cost itself, which is reported."""
        members = [self.part.within(lab.model.config), *others_of(self, self.others, lab)]
        verdict, evidence = _excess(lab, members, self.replacement, self.at, level)
        joint = [
            mean_evidence(
                lab,
                f"{self.replacement} replacement{_place(self.at)} of all",
                measure=measure,
                values=values,
                level=level,
                rule="reported; the verdict rests on the excess",
            )
            for measure, values in zip(LOSSES, costs(lab, members, self.replacement, self.at), strict=False)
        ]
        return verdict, (*evidence, *joint)


class Redundant(Claim, frozen=True):
    """Replacing all costs more than the sum of each; all act alone, or none."""

    functional: ClassVar[bool] = False

    kind: Literal["redundant"] = "redundant"
    others: tuple[ComponentName, ...]
    replacement: How = "resample"
    at: str | None = None

    @property
    def text(self) -> str:
        names, by = _sorted_names(self.component, self.others), _by(self.replacement, self.at)
        return (
            f"{names} are mutually redundant: replacing all of them{by} costs more than the sum of what each costs "
            "alone, and alone each of them acts or none does."
        )

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """The excess of the joint cost, and what each costs alone."""
        members = sorted([self.part.within(lab.model.config), *others_of(self, self.others, lab)])
        verdict, evidence = _excess(lab, members, self.replacement, self.at, level)
        acts = [acts_alone(lab, member, self.replacement, self.at, level) for member in members]
        said = {one for one, _ in acts}
        alike: Verdict = "undecided"
        if "undecided" not in said and len(said) == 1:
            alike = "supported"
        elif {"supported", "refuted"} <= said:
            alike = "refuted"
        return all_of(verdict, alike), (*evidence, *(one for _, shown in acts for one in shown))


class BackupOf(Claim, frozen=True):
    """It acts only once others are replaced."""

    functional: ClassVar[bool] = False

    kind: Literal["backup_of"] = "backup_of"
    of: tuple[ComponentName, ...]
    replacement: How = "resample"
    at: str | None = None

    @property
    def text(self) -> str:
        return (
            f"{self.component} is a backup of {join_names(self.of)}: it acts only once they are "
            f"replaced{_by(self.replacement, self.at)}."
        )

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """Its gain in effect once the others are replaced (`bounded_gain`), its effect alone, and that of the primary,
        the strongest of the others.
        """
        component, others = self.part.within(lab.model.config), others_of(self, self.of, lab)
        how, at = self.replacement, self.at
        measure_together(lab, [[component], others, [*others, component], *([one] for one in others)], how, at)

        def gains(parts: Sequence[Component]) -> list[tuple[PerPrompt, ...]]:
            measure_together(lab, [set_ for part in parts for set_ in ([part], [*others, part])], how, at)
            rest = costs(lab, others, how, at)
            return [
                tuple(
                    both - without - alone
                    for both, without, alone in zip(
                        costs(lab, [*others, part], how, at), rest, costs(lab, [part], how, at), strict=True
                    )
                )
                for part in parts
            ]

        def controls() -> dict[str, tuple[PerPrompt, ...]]:
            weak = weak_controls(lab, lab.matched(component, exclude=others, k=CANDIDATES), gains)
            return {f"{part} instead": values for part, values in weak.items()}

        (gain,) = gains([component])
        joint, rest = costs(lab, [*others, component], how, at), costs(lab, others, how, at)
        bounded = [
            bounded_gain(one, joint=whole, without=without, measures=measures)
            for one, whole, without, measures in zip(gain, joint, rest, (GAIN, GAIN_IN_ANSWERS), strict=False)
        ]
        experiment = f"{how} replacement{_place(at)} with and without {join_names(self.of)}"
        names, values = tuple(name for name, _ in bounded), tuple(one for _, one in bounded)
        verdict, evidence = shown_by(lab, experiment, values, controls, level=level, measures=names)
        acts, alone = acts_alone(lab, component, how, at, level)
        primary = max(others, key=lambda one: max(float(lost.mean()) for lost in costs(lab, [one], how, at)))
        leads, own = acts_alone(lab, primary, how, at, level)
        silent: Verdict = "undecided" if acts == "undecided" else "refuted" if acts == "supported" else "supported"
        return all_of(verdict, silent, leads), (*evidence, *alone, *own)


#: As `GAIN`, in right answers.
GAIN_IN_ANSWERS = (
    "gain in right answers lost",
    "right answers lost once they are replaced",
    "right answers lost by all",
)


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


def acts_alone(lab: Lab, component: Component, how: How, at: str | None, level: float) -> Outcome:
    """Whether a component acts alone: supported where the interval of what it costs lies above the least that counts,
    refuted where it lies below. Of two measures either supports it, and the score refutes it (`either`).
    """
    values, experiment = costs(lab, [component], how, at), f"{how} replacement{_place(at)} of {component} alone"
    return shown_by(lab, experiment, values, dict, level=level, measures=LOSSES[: len(values)])


def costs(lab: Lab, members: Sequence[Component], how: How, at: str | None) -> tuple[PerPrompt, ...]:
    """What replacing a set costs: score, and right answers where zeros or a mean take its place or a position is
    given. Values of other prompts everywhere are what a sweep uses; of these the score is known already.
    """
    if not isinstance(lab, NaturalLab):
        if at is not None or how == "token mean":
            raise BadInput(f"replacement {how!r} at {at!r} needs a natural model; name zero, mean or resample alone")
        return (lab.effect(members, how),)
    if how == "resample" and at is None:
        return (lab.effect(members, how),)
    return lab.losses(members, how, at)


def measure_together(lab: Lab, sets: Sequence[Sequence[Component]], how: How, at: str | None) -> None:
    """Measure in one run what `costs` will ask of these sets."""
    if not isinstance(lab, NaturalLab) or (how == "resample" and at is None):
        if how != "token mean":
            lab.measure(sets, [how])
    else:
        lab.answers(sets, how, at)


def shown_by(
    lab: Lab,
    experiment: str,
    values: tuple[PerPrompt, ...],
    controls: Callable[[], Mapping[str, tuple[PerPrompt, ...]]],
    *,
    level: float,
    measures: tuple[str, ...],
) -> Outcome:
    """A loss shown by the score, or where there are two measures by either (`either`)."""
    if len(values) == 2:
        pair = (values[0], values[1])
        two = {"least": MIN_EFFECT, "level": level, "measures": (measures[0], measures[1])}
        return either(lab, experiment, pair, lambda: {name: (a, b) for name, (a, b) in controls().items()}, **two)
    verdict, evidence = against(
        lab,
        experiment,
        measures[0],
        values[0],
        lambda: {name: one[0] for name, one in controls().items()},
        least=MIN_EFFECT,
        level=level,
    )
    return verdict, (evidence,)


def excess(lab: Lab, members: Sequence[Component], how: How, at: str | None) -> tuple[PerPrompt, ...]:
    """What replacing all members costs beyond the sum of what each costs alone. A member that helps when it is replaced
    costs nothing, it does not lower the sum.
    """
    measure_together(lab, [members, *([member] for member in members)], how, at)
    joint, singles = costs(lab, members, how, at), [costs(lab, [member], how, at) for member in members]
    return tuple(
        whole - sum((one[place] for one in singles if float(one[place].mean()) > 0), torch.zeros_like(whole))
        for place, whole in enumerate(joint)
    )


def _excess(lab: Lab, members: Sequence[Component], how: How, at: str | None, level: float) -> Outcome:
    """The excess of the joint cost over the sum of the single ones, against that of as many matched components."""
    members = sorted(members)

    def controls() -> dict[str, tuple[PerPrompt, ...]]:
        matched = lab.matched(members[0], exclude=members, k=len(members))
        return {} if len(matched) < 2 else {join_names(matched): excess(lab, matched, how, at)}

    experiment = f"{how} replacement{_place(at)} of all and of each"
    measures = ("excess of the joint effect", "excess of the right answers lost")
    return shown_by(lab, experiment, excess(lab, members, how, at), controls, level=level, measures=measures)


def others_of(claim: Claim, names: tuple[str, ...], lab: Lab) -> list[Component]:
    """The other components that a claim names: at least one, and not its own."""
    others = named(names, lab)
    if not others or claim.part in others:
        raise BadInput(f"{claim.kind} {claim.component}: name one or more other components")
    return others


def _sorted_names(component: str, others: Sequence[str]) -> str:
    return join_names(sorted([component, *others], key=Component.parse))


def _by(how: How, at: str | None) -> str:
    """The replacement in a claim's sentence; values of other prompts are not named."""
    value = {"zero": " by zeros", "mean": " by their means", "token mean": " by the means of their tokens"}
    return value.get(how, "") + _place(at)


def _place(at: str | None) -> str:
    return "" if at is None else f" at {at}"


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
