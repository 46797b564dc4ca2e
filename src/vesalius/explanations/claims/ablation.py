"""*Necessary*, *sufficient*, *redundant*, *backup of*: what happens when components are taken away.

An effect is how much worse a prompt gets: the share of outputs that change, or, for natural models, the part of the
clean score that is lost. Every effect stands beside that of matched components, the same kind but outside the circuit
and the claim, because replacing anything at all may hurt.

Two components' *interaction* is what replacing both costs beyond the sum of what each costs alone. It is positive where
one covers for the other.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.components import Component
from vesalius.errors import BadInput
from vesalius.explanations.claims.base import Claim, ComponentName, Outcome, above, all_of, figure, listed, rounded
from vesalius.explanations.claims.laboratory import Lab, Replacement

#: An effect below this share is too small to call a component necessary, redundant or a backup.
MIN_EFFECT = 0.05
#: What a circuit alone must keep: of the outputs, or of a natural model's clean score.
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
        """Its effect against that of matched components."""
        effect = lab.effect([self.part.within(lab.model.config)], self.replacement)
        controls = {f"{c}": lab.effect([c], self.replacement) for c in lab.matched(self.part)}
        bar = max([MIN_EFFECT, *(float(c.mean()) for c in controls.values())])
        evidence = figure(
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
        return (
            f"{listed(self.components)} suffice: with everything else at {_WORDS[self.replacement]} the output stays."
        )

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """What the circuit alone keeps, against what as many other components keep."""
        members = [Component.parse(name).within(lab.model.config) for name in self.components]
        if self.part not in members:
            raise BadInput(f"component {self.component} is not among the circuit {listed(self.components)}; add it")
        bar = MIN_KEPT if lab.finite else MIN_KEPT_NATURAL
        kept = 1 - self._lost_without(lab, members)
        others = _matched_set(lab, members)
        controls = {"other_components": 1 - self._lost_without(lab, others)} if others else {}
        evidence = figure(
            lab,
            f"{self.replacement} replacement of all others",
            measure="share kept",
            values=kept,
            level=level,
            rule=f"interval above {bar}, other_components below it",
            controls=_means(controls),
        )
        verdict = above(evidence, bar)
        control = evidence.controls.get("other_components")
        if verdict == "supported" and control is not None and control >= bar:
            return "untested", (evidence,)  # anything would do: this output needs no circuit
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
        """The interaction of the two, against that with matched partners; each alone must cost less than half."""
        pair = _Pair(lab, self.part, Component.parse(self.other), self.replacement)
        interaction = figure(
            lab,
            f"joint {self.replacement} replacement",
            measure="interaction",
            values=pair.interaction,
            level=level,
            rule=f"interval above {MIN_EFFECT} and above every control",
            controls=pair.controls,
        )
        spared = figure(
            lab,
            f"{self.replacement} replacement of one",
            measure="joint effect minus twice the larger single effect",
            values=pair.both - 2 * torch.maximum(pair.first, pair.second),
            level=level,
            rule="interval above 0",
            controls={"first": rounded(pair.first.mean()), "second": rounded(pair.second.mean())},
        )
        return all_of(above(interaction, pair.bar), above(spared, 0.0)), (interaction, spared)


class BackupOf(Claim, frozen=True):
    """The component steps in when another, the primary, is taken away."""

    kind: Literal["backup_of"] = "backup_of"
    primary: ComponentName
    replacement: Replacement = "mean"

    @property
    def text(self) -> str:
        return f"{self.component} is a backup of {self.primary}: it matters more once {self.primary} is replaced."

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """Its effect with the primary replaced beyond its effect alone, and the primary's lead while both are there."""
        pair = _Pair(lab, self.part, Component.parse(self.primary), self.replacement)
        gain = figure(
            lab,
            f"{self.replacement} replacement with and without {self.primary}",
            measure="gain in effect",
            values=pair.interaction,
            level=level,
            rule=f"interval above {MIN_EFFECT} and above every control partner",
            controls={"alone": rounded(pair.first.mean()), **pair.controls},
        )
        lead = figure(
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
        """The first one's interaction with components matched to the second."""
        found = {}
        for partner in self.lab.matched(self.b, exclude=[self.a]):
            joint = self.lab.effect([self.a, partner], self.replacement)
            found[f"with {partner}"] = joint - self.first - self.lab.effect([partner], self.replacement)
        return _means(found)

    @property
    def bar(self) -> float:
        """What the interaction must exceed."""
        return max([MIN_EFFECT, *(value for value in self.controls.values() if value is not None)])


def _matched_set(lab: Lab, members: Sequence[Component]) -> list[Component]:
    """As many components of each kind as the circuit has, all from outside it where there are enough."""
    chosen: list[Component] = []
    for is_head in (True, False):
        wanted = sum(member.is_head == is_head for member in members)
        like = next((member for member in members if member.is_head == is_head), None)
        if like is None:
            continue
        found = lab.matched(like, exclude=members, k=wanted)
        if len(found) < wanted:
            return []
        chosen += found
    return chosen


def _means(effects: dict[str, Tensor]) -> dict[str, float | None]:
    return {name: rounded(values.mean()) for name, values in effects.items()}
