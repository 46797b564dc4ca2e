"""*Necessary*, *sufficient*, *redundant*, *backup of*: what happens when components are ablated.

An effect is the damage per prompt: the share of outputs that change, or, for natural models, the share of the clean
score that is lost. Every effect is compared with that of matched components (same kind, outside the circuit and the
claim), because ablating any component may do damage.

The *interaction* of two components is the effect of ablating both minus the sum of the single effects. It is positive
if one compensates for the other.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.components import Component
from vesalius.errors import BadInput
from vesalius.explanations.claims.base import (
    Claim,
    ComponentName,
    Outcome,
    above,
    all_of,
    join_names,
    mean_evidence,
    rounded,
)
from vesalius.explanations.claims.laboratory import Lab, Replacement

#: An effect below this share is too small to call a component necessary, redundant or a backup.
MIN_EFFECT = 0.05
#: What a circuit alone must preserve: share of the outputs, or of a natural model's clean score.
MIN_KEPT = 0.9
MIN_KEPT_NATURAL = 0.8

_WORDS = {"zero": "zero", "mean": "its mean", "resample": "its values on other inputs"}


class Necessary(Claim, frozen=True):
    """Replacing the component changes what the model does."""

    kind: Literal["necessary"] = "necessary"
    replacement: Replacement = "resample"

    @property
    def text(self) -> str:
        return f"{self.component} is necessary: replacing it by {_WORDS[self.replacement]} changes the output."

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """Compare its effect with that of matched components."""
        effect = lab.effect([self.part.within(lab.model.config)], self.replacement)
        controls = {f"{c}": lab.effect([c], self.replacement) for c in lab.matched(self.part)}
        bar = max([MIN_EFFECT, *(float(c.mean()) for c in controls.values())])
        evidence = mean_evidence(
            lab,
            f"{self.replacement} replacement",
            measure="effect",
            values=effect,
            level=level,
            rule=f"interval above {bar:.3f}",
            controls=_means(controls),
        )
        return above(evidence, bar), (evidence,)


class Sufficient(Claim, frozen=True):
    """A circuit does the work alone: everything outside it is replaced and the output stays."""

    kind: Literal["sufficient"] = "sufficient"
    components: tuple[ComponentName, ...]
    replacement: Replacement = "mean"

    @property
    def text(self) -> str:
        names, value = join_names(self.components), _WORDS[self.replacement]
        return f"{names} suffice: with everything else at {value} the output stays."

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """Compare what the circuit alone preserves with what as many other components preserve."""
        members = [Component.parse(name).within(lab.model.config) for name in self.components]
        if self.part not in members:
            raise BadInput(f"component {self.component} is not among the circuit {join_names(self.components)}; add it")
        bar = MIN_KEPT if lab.finite else MIN_KEPT_NATURAL
        share_kept = 1 - self._lost_without(lab, members)
        other_components = _matched_set(lab, members)
        controls = {"other_components": 1 - self._lost_without(lab, other_components)} if other_components else {}
        evidence = mean_evidence(
            lab,
            f"{self.replacement} replacement of all others",
            measure="share kept",
            values=share_kept,
            level=level,
            rule=f"interval above {bar}, other_components below it",
            controls=_means(controls),
        )
        verdict = above(evidence, bar)
        other_share = evidence.controls.get("other_components")
        if verdict == "supported" and other_share is not None and other_share >= bar:
            return "untested", (evidence,)  # any components suffice: this output needs no circuit
        return verdict, (evidence,)

    def _lost_without(self, lab: Lab, members: Sequence[Component]) -> Float[Tensor, " prompt"]:
        rest = [component for component in lab.model.components if component not in members]
        return lab.effect(rest, self.replacement)


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
            rule=f"interval above {MIN_EFFECT} and above every control",
            controls=pair.controls,
        )
        excess = mean_evidence(
            lab,
            f"{self.replacement} replacement of one",
            measure="joint effect minus twice the larger single effect",
            values=pair.both - 2 * torch.maximum(pair.first, pair.second),
            level=level,
            rule="interval above 0",
            controls={"first": rounded(pair.first.mean()), "second": rounded(pair.second.mean())},
        )
        return all_of(above(interaction, pair.bar), above(excess, 0.0)), (interaction, excess)


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
        gain = mean_evidence(
            lab,
            f"{self.replacement} replacement with and without {self.primary}",
            measure="gain in effect",
            values=pair.interaction,
            level=level,
            rule=f"interval above {MIN_EFFECT} and above every control partner",
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
