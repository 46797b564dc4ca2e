"""How what a component of a natural model writes reaches the answer: *feeds*, *hinders*, *acts at the answer* or *at a
role*, *acts directly*, *writes the answer*, *suppresses*, *lens only*.

A path claim has a direction, said before the path is measured: *feeds* that the path helps the answer, *hinders* that
it works against it. Each is one-sided: the lower end of a two-sided 95 % interval must lie above the bar, a nominal
error of 2.5 in 100 for a path whose effect lies at the bar. Whoever does not know the direction proposes both: they
count as two tries, which halves the error of each.

The logit lens shows what an output adds to the answer by itself; *lens only* says that the model does not need it. A
score of right minus wrong does not tell who brings the right answer up from who pushes the wrong one down, so *writes
the answer* needs the answer's own logit to gain, by itself and more than the rest, and *suppresses* the other to fall.
"""

from typing import ClassVar, Literal

import torch

from vesalius.behaviours.metrics import metric_name
from vesalius.components import Component
from vesalius.documents.explanation import Evidence, Verdict
from vesalius.errors import BadInput, choices
from vesalius.explanations.claims.base import (
    MIN_CUT_EFFECT,
    MIN_EFFECT,
    ComponentName,
    NaturalClaim,
    Outcome,
    above,
    against,
    all_of,
    bar_above,
    first_interval,
    judged,
    mean_evidence,
    named,
    rounded,
    weak_controls,
)
from vesalius.explanations.claims.necessary import CANDIDATES, CONTROLS, costs_nothing
from vesalius.explanations.laboratory import FIRST_LOOK, REPORTED, How, Lab, NaturalLab
from vesalius.explanations.laboratory.base import PerPrompt
from vesalius.explanations.laboratory.natural import MIN_WRITTEN
from vesalius.explanations.laboratory.runs import PORT_WORDS, edges_between, feeds

#: A component acts at the answer position if more than this part of its effect arises there.
MOST = 0.5
LENS = "logit lens on its output"
ANSWER, WRONG = "direct effect on the answer's logit", "direct effect on the wrong answer's logit"
_ANSWERS = {"wrong": "the wrong answer", "right": "the answer itself"}


class _Path(NaturalClaim, frozen=True):
    """The direct path from the component into a later one, or into one of its inputs."""

    sign: ClassVar[float] = 1.0

    receiver: ComponentName
    port: Literal["q", "k", "v", "mlp"] | None = None

    @property
    def text(self) -> str:
        port = f" (its {PORT_WORDS[self.port]})" if self.port in PORT_WORDS else ""
        against_it = "" if self.sign > 0 else ", against the answer"
        return f"{self.component} feeds {self.receiver}{port} directly{against_it}."

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """What replacing that path alone costs or gains, against the path of a neighbour of the sender. By which input
        of a head it goes is reported where it matters.
        """
        lab = NaturalLab.require(lab, self.kind)
        sender, receiver = named([self.component, self.receiver], lab)
        if not feeds(sender, receiver, parallel=lab.model.config.parallel):
            raise BadInput(f"{self.kind}: {receiver} does not read what {sender} writes; name a later receiver")
        inputs = [edge.port for edge in edges_between(sender, receiver)]
        if self.port not in (None, *inputs):
            raise BadInput(f"{self.kind}: {receiver} has no input {self.port!r}; it has {choices(inputs)}")
        verdict, whole = examine_whole_path(lab, sender, receiver, self.port, sign=self.sign, level=level)
        ports = [
            mean_evidence(
                lab,
                f"path into the {PORT_WORDS[port]} replaced",
                measure=f"effect by its {PORT_WORDS[port]}",
                values=lab.path(sender, receiver, port, n=REPORTED),
                level=level,
                rule="reported; the verdict rests on the whole path",
            )
            for port in ("qkv" if receiver.is_head and self.port is None and verdict == "supported" else "")
        ]
        return verdict, (whole, *ports)


class Feeds(_Path, frozen=True):
    """The direct path from the component into a later one, or into one of its inputs, helps the answer."""

    kind: Literal["feeds"] = "feeds"


class Hinders(_Path, frozen=True):
    """The direct path from the component into a later one, or into one of its inputs, works against the answer."""

    sign: ClassVar[float] = -1.0

    kind: Literal["hinders"] = "hinders"


def examine_whole_path(
    lab: NaturalLab, sender: Component | None, receiver: Component, port: str | None, *, sign: float, level: float
) -> tuple[Verdict, Evidence]:
    """The effect of a path (with `sign` -1: gain; without a sender: from the token embeddings) against that of a
    neighbour's path, of which few prompts are looked at where these show that it cannot raise the bar.
    """

    def controls() -> dict[str, PerPrompt]:
        control = None if sender is None else path_control(lab, sender, receiver)
        if control is None:
            return {}
        first = sign * lab.path(control, receiver, port, n=FIRST_LOOK) if lab.looks_first else None
        settled = first is not None and first_interval(first)[1] < MIN_CUT_EFFECT
        return {str(control): first if first is not None and settled else sign * lab.path(control, receiver, port)}

    measure, values = "effect" if sign > 0 else "gain", sign * lab.path(sender, receiver, port)
    return against(lab, "path replaced", measure, values, controls, least=MIN_CUT_EFFECT, level=level)


def path_control(lab: NaturalLab, sender: Component, receiver: Component) -> Component | None:
    """A neighbour of the sender that is not under study, as a control."""
    outside = [part for part in neighbours(lab, sender, receiver) if part not in lab.circuit]
    order = torch.randperm(len(outside), generator=torch.Generator().manual_seed(lab.seed + sender.layer))
    return outside[int(order[0])] if outside else None


def neighbours(lab: NaturalLab, sender: Component, receiver: Component) -> list[Component]:
    """Other heads of the sender's layer, or MLPs of nearby layers, that come before the receiver."""
    distance = 0 if sender.is_head else 2
    return [
        part
        for part in lab.model.components
        if part.is_head == sender.is_head
        and part != sender
        and abs(part.layer - sender.layer) <= distance
        and part.layer < receiver.layer
    ]


class ActsAtAnswer(NaturalClaim, frozen=True):
    """More than half of the component's effect arises at the answer position."""

    functional: ClassVar[bool] = False

    kind: Literal["acts_at_answer"] = "acts_at_answer"

    @property
    def text(self) -> str:
        return f"{self.component} acts mostly at the answer position."

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """The effect of replacing it there only, less half of its whole effect."""
        lab, component = self.inside(lab)
        return _mostly(lab, component, lab.at_role(component), "at the answer position only", level=level)


class ActsAt(NaturalClaim, frozen=True):
    """More than half of the component's effect arises at the position of a role."""

    functional: ClassVar[bool] = False

    kind: Literal["acts_at"] = "acts_at"
    role: str

    @property
    def text(self) -> str:
        return f"{self.component} acts mostly at {self.role}."

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """The effect of replacing it there only, less half of its whole effect."""
        lab, component = self.inside(lab)
        return _mostly(lab, component, lab.at_role(component, self.role), f"at {self.role} only", level=level)


class ActsDirectly(NaturalClaim, frozen=True):
    """More than half of the component's effect comes from its direct path to the logits."""

    functional: ClassVar[bool] = False

    kind: Literal["acts_directly"] = "acts_directly"

    @property
    def text(self) -> str:
        return f"{self.component} acts mostly on the logits directly, not through later components."

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """The effect of replacing it on its direct path to the logits only, less half of its whole effect."""
        lab, component = self.inside(lab)
        part = lab.path(component, None)
        return _mostly(lab, component, part, "on the direct path to the logits only", level=level)


def _mostly(lab: NaturalLab, component: Component, part: PerPrompt, where: str, *, level: float) -> Outcome:
    whole = lab.effect([component], "resample")
    evidence = mean_evidence(
        lab,
        f"replacement {where}",
        measure="its effect minus half of the whole effect",
        values=part - MOST * whole,
        level=level,
        rule="interval above 0",
        bar=0.0,
        controls={f"effect {where}": rounded(part.mean()), "whole effect": rounded(whole.mean())},
    )
    return above(evidence, 0.0), (evidence,)


class WritesAnswer(NaturalClaim, frozen=True):
    """What the component writes at the end favours the answer by itself under the logit lens, and the answer's own
    logit gains from it; one that only pushes the wrong answer down suppresses.
    """

    kind: Literal["writes_answer"] = "writes_answer"

    @property
    def text(self) -> str:
        return f"What {self.component} writes raises the answer by itself."

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """Its direct logit attribution, against that of matched components and with the answers of other prompts."""
        lab, component = self.inside(lab)
        verdict, evidence = _lens(lab, component, level)
        sides = lab.direct_sides(component)
        if sides is None:
            return verdict, (evidence,)
        gains = _written(lab, {ANSWER: sides.right, f"{ANSWER}, over the rest": sides.right - sides.rest}, level)
        wrong = _reported(lab, f"{WRONG}, over the rest", sides.wrong - sides.rest, level)
        gained: list[Verdict] = [above(one, MIN_WRITTEN) for one in gains]
        return all_of(verdict, *gained), (evidence, *gains, wrong)


class Suppresses(NaturalClaim, frozen=True):
    """What the component writes at the end lowers the logit of the wrong answer, or of the right one, by itself and
    more than the rest, and does no more for the other.
    """

    kind: Literal["suppresses"] = "suppresses"
    answer: Literal["wrong", "right"] = "wrong"

    @property
    def text(self) -> str:
        return f"What {self.component} writes lowers {_ANSWERS[self.answer]}."

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """What it adds to the logit directly, to that logit against the rest, and that against what the other answer
        gains; no run is needed.
        """
        lab = NaturalLab.require(lab, self.kind)
        sides = lab.direct_sides(self.part.within(lab.model.config))
        if sides is None:
            metric = metric_name(lab.prompts.metric)
            raise BadInput(f"suppresses {self.component}: metric {metric} has no wrong answer; give `metric` another")
        falling, other = (sides.wrong, sides.right) if self.answer == "wrong" else (sides.right, sides.wrong)
        name, rival = (WRONG, ANSWER) if self.answer == "wrong" else (ANSWER, WRONG)
        fall = sides.rest - falling
        falls = _written(lab, {f"minus {name}": -falling, f"minus {name}, over the rest": fall}, level)
        lead = mean_evidence(
            lab,
            LENS,
            measure=f"the same, beyond the size of {rival}, over the rest",
            values=(fall - (other - sides.rest).abs()) / lab.lens_scale,
            level=level,
            rule="interval above 0",
            bar=0.0,
        )
        reported = _reported(lab, f"{rival}, over the rest", other - sides.rest, level)
        fallen: list[Verdict] = [above(one, MIN_WRITTEN) for one in falls]
        return all_of(*fallen, above(lead, 0.0)), (*falls, lead, reported)


class LensOnly(NaturalClaim, frozen=True):
    """What the component writes favours the answer under the logit lens, and yet the model does not need it."""

    kind: Literal["lens_only"] = "lens_only"

    @property
    def text(self) -> str:
        return f"{self.component} favours the answer under the logit lens, but the model answers as well without it."

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """Its direct logit attribution must pass; no replacement may cost score or answers."""
        lab, component = self.inside(lab)
        shown, lens = _lens(lab, component, level)
        hows: tuple[How, ...] = ("zero", "mean", "token mean", "resample")
        spared, evidence = costs_nothing(lab, component, hows, level=level)
        return all_of(shown, spared), (lens, *evidence)


def written_figures(lab: NaturalLab, component: Component) -> list[tuple[PerPrompt, float]]:
    """The figures of `writes_answer` without its controls, each with the least that counts."""
    figures = [(lab.lens(component), MIN_EFFECT)]
    if (sides := lab.direct_sides(component)) is not None:
        figures += [(gain / lab.lens_scale, MIN_WRITTEN) for gain in (sides.right, sides.right - sides.rest)]
    return figures


def _lens(lab: NaturalLab, component: Component, level: float) -> tuple[Verdict, Evidence]:
    """The direct logit attribution against matched components that do not write the answer themselves."""
    matched = lab.matched(component, k=CANDIDATES)
    weak = weak_controls(lab, matched, lambda parts: [lab.lens(one) for one in parts], count=CONTROLS)
    controls = {str(one): share for one, share in weak.items()}
    controls["answers of another prompt"] = lab.lens(component, shuffle=True)
    measure = f"direct logit attribution, share of the {lab.lens_unit}"
    bar = bar_above(MIN_EFFECT, controls)
    return judged(lab, LENS, measure, lab.lens(component), bar, level=level)


def _written(lab: NaturalLab, gains: dict[str, PerPrompt], level: float) -> list[Evidence]:
    """What is added to logits directly, as shares of the clean logit difference, against the least that counts."""
    rule = f"interval above {MIN_WRITTEN}"
    return [
        mean_evidence(lab, LENS, measure=measure, values=gain / lab.lens_scale, level=level, rule=rule, bar=MIN_WRITTEN)
        for measure, gain in gains.items()
    ]


def _reported(lab: NaturalLab, measure: str, gain: PerPrompt, level: float) -> Evidence:
    values = gain / lab.lens_scale
    return mean_evidence(lab, LENS, measure=measure, values=values, level=level, rule="reported")
