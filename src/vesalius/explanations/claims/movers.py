"""Claims about heads that move something: *moves role*, *primary*.

A head *moves* a role if its values carry what depends on the token of that role, the token itself or what was made of
it before, from other positions to one: where the token only decides where the head attends, something else is moved,
and what is at the position already is not moved there. Of several heads that move one role, the *primary* one costs
more than each of the others when it is replaced there. Whether they stand in for each other is in `joint`.
"""

from collections.abc import Sequence
from typing import Literal

from vesalius.components import Component
from vesalius.documents.view import join_names
from vesalius.errors import BadInput
from vesalius.explanations.claims.base import (
    CANDIDATES,
    LOSSES,
    MIN_EFFECT,
    ComponentName,
    NaturalClaim,
    Outcome,
    above,
    all_of,
    bar_above,
    either,
    exceeds,
    given,
    judged,
    mean_evidence,
    named,
    rounded,
    weak_controls,
)
from vesalius.explanations.claims.joint import others_of
from vesalius.explanations.laboratory import END, How, Lab, NaturalLab
from vesalius.explanations.laboratory.base import PerPrompt
from vesalius.explanations.laboratory.natural import Losses


class MovesRole(NaturalClaim, frozen=True):
    """A head carries the token of a role to a position, and the answer depends on it: with the output from a run that
    has another token at the role, the answer moves towards that run's, and so it does where the head attends as before
    and its values at other positions alone come from that run. The second fails where the token is the key by which the
    head finds something else, and where another head has brought it to the position already.
    """

    kind: Literal["moves_role"] = "moves_role"
    role: str
    to: str = END
    suppressed: tuple[ComponentName, ...] = ()

    @property
    def text(self) -> str:
        return f"{self.component} moves {self.role} to {self.to}{given(self.suppressed)}."

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """Patch its output from runs with another token at the role; matched components are the control. Where that
        moves the answer, the same by its values at other positions.
        """
        lab = NaturalLab.require(lab, self.kind)
        head, suppressed = self.part.within(lab.model.config), named(self.suppressed, lab)
        if not head.is_head:
            raise BadInput(f"moves_role {self.component}: an MLP reads and writes at one position; name a head")

        def shares(parts: Sequence[Component]) -> list[PerPrompt]:
            return [moved for part in parts for _, moved in lab.moved_shares([[part]], self.role, self.to, suppressed)]

        ((switched, moved),) = lab.moved_shares([[head]], self.role, self.to, suppressed)
        shows = exceeds(lab, moved, MIN_EFFECT, level=level)
        matched = lab.matched(head, exclude=suppressed, k=CANDIDATES) if shows else []
        weak = weak_controls(lab, matched, shares)
        bar = bar_above(MIN_EFFECT, {str(part): share for part, share in weak.items()})
        experiment = f"output at {self.to} from runs with another token at {self.role}"
        measure = "share of the way to that run's answer"
        verdict, evidence = judged(lab, experiment, measure, moved, bar, level=level)
        rate = mean_evidence(
            lab,
            experiment,
            measure="share of answers that become that run's",
            values=switched,
            level=level,
            rule="reported; the verdict rests on the logits",
        )
        if verdict != "supported":
            return verdict, (evidence, rate)
        by_values = mean_evidence(
            lab,
            f"{experiment}, attending as on the clean prompts",
            measure="share of the way by its values at other positions",
            values=lab.moved_by_values([[head]], self.role, self.to, suppressed)[0],
            level=level,
            rule=bar.rule,
            bar=bar.value,
        )
        return above(by_values, bar.value), (evidence, rate, by_values)


class Primary(NaturalClaim, frozen=True):
    """The component moves a role, and replacing it there costs more than replacing any of the others that do."""

    kind: Literal["primary"] = "primary"
    role: str
    over: tuple[ComponentName, ...]
    to: str = END
    replacement: How = "zero"

    @property
    def text(self) -> str:
        return f"{self.component} is the primary mover of {self.role} to {self.to}, ahead of {join_names(self.over)}."

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """It moves the role; replacing it costs something; and more than replacing the strongest of the others."""
        lab = NaturalLab.require(lab, self.kind)
        component, others = self.part.within(lab.model.config), others_of(self, self.over, lab)
        moves, evidence = MovesRole(component=self.component, role=self.role, to=self.to).examine(lab, level=level)
        lab.answers([[part] for part in (component, *others)], self.replacement, self.to)  # in one run

        def losses(parts: Sequence[Component]) -> list[Losses]:
            return [lab.losses([part], self.replacement, self.to) for part in parts]

        def controls() -> dict[str, Losses]:
            weak = weak_controls(lab, lab.matched(component, exclude=others, k=CANDIDATES), losses)
            return {str(part): pair for part, pair in weak.items()}

        own, rest = losses([component])[0], losses(others)
        experiment = f"{self.replacement} replacement{_at(self.to)}"
        costs, cost = either(lab, experiment, own, controls, least=MIN_EFFECT, level=level)
        # Which of the two losses compares components: right answers where any of them loses some, else the score.
        place = int(any(float(answers.mean()) > MIN_EFFECT for _, answers in [own, *rest]))
        strongest = max(range(len(others)), key=lambda i: float(rest[i][place].mean()))
        lead = mean_evidence(
            lab,
            f"{experiment} of one",
            measure=f"{LOSSES[place]}, minus that of {others[strongest]}",
            values=own[place] - rest[strongest][place],
            level=level,
            rule="interval above 0",
            bar=0.0,
            controls={str(other): rounded(pair[place].mean()) for other, pair in zip(others, rest, strict=True)},
        )
        return all_of(moves, costs, above(lead, 0.0)), (*evidence, *cost, lead)


def _at(place: str | None) -> str:
    return "" if place is None else f" at {place}"
