"""Typed claims about components of natural models, decided on held-out prompts by the instruments.

They speak of the behaviour's roles: a head *reads* a role, *inhibits*, *writes the answer*, favours it under the logit
lens *without being needed*, or *feeds* another component; those about heads that move a role are in `movers`. Each is a
`Claim` like those about programs: a prediction, an experiment with controls, a verdict by rule. Effects are shares of
the clean score; where the score saturates, right answers that are lost count beside it.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from vesalius.components import Component
from vesalius.documents.explanation import Evidence, Verdict
from vesalius.errors import BadInput, choices
from vesalius.explanations.claims import Claim, Lab, Necessary, Redundant, Sufficient
from vesalius.explanations.claims.ablation import MIN_EFFECT, bar_for
from vesalius.explanations.claims.base import (
    ComponentName,
    Outcome,
    above,
    all_of,
    marked,
    mean_evidence,
    rounded,
)
from vesalius.explanations.claims.reading import MIN_CUT_EFFECT
from vesalius.explanations.natural.deciding import (
    CANDIDATES,
    CONTROLS,
    LOSSES,
    PerPrompt,
    bar_of,
    below,
    either,
    given,
    instruments_of,
    weak_controls,
)
from vesalius.explanations.natural.instruments import END, How
from vesalius.explanations.natural.lens import direct_attribution, logit_difference_of
from vesalius.explanations.natural.movers import BacksUp, MovesRole, Primary, Together
from vesalius.explanations.natural.paths import edges_between, feeds
from vesalius.statistics import above_zero, mean_apart_from_zero


class ReadsRole(Claim, frozen=True):
    """The head attends from one role's position to another's more than to any other role, and needs what it finds."""

    kind: Literal["reads_role"] = "reads_role"
    role: str
    query: str = END
    suppressed: tuple[ComponentName, ...] = ()

    @property
    def text(self) -> str:
        return f"{self.component} reads {self.role} from {self.query}{given(self.suppressed)}."

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """Compare attention with that on other roles, then cutting it with cutting as much of the others'."""
        tools = instruments_of(lab)
        masses = tools.attention_masses(self.part, self.query)
        own = _named(masses, self.role, "key")
        rivals = {role: rounded(mass.mean()) for role, mass in masses.items() if role not in (self.role, "itself")}
        bar = max([1 / tools.pool.batch.tokens.shape[1], *(mass or 0.0 for mass in rivals.values())])
        attention = mean_evidence(
            lab,
            f"attention from {self.query}",
            measure=f"mass on {self.role}",
            values=own,
            level=level,
            rule=f"interval above {bar:.3f} (the most that another role gets)",
            bar=bar,
            controls=rivals,
        )
        others = [role for role in masses if role not in (self.role, "itself")]

        def lost(role: str):
            return tools.cut_losses(self.part, role, self.query, self.suppressed)

        return either(
            lab,
            f"attention on {self.role} set to zero",
            lost(self.role),
            lambda: {role: lost(role) for role in others},
            least=MIN_CUT_EFFECT,
            level=level,
            before=(attention,),
        )


class Inhibits(Claim, frozen=True):
    """Replacing the component raises the score: it works against the answer."""

    kind: Literal["inhibits"] = "inhibits"

    @property
    def text(self) -> str:
        return f"{self.component} works against the answer: replacing it by its values on other prompts helps."

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """The gain of the score, against that of matched components."""
        gains = -lab.effect([self.part], "resample")
        bar = bar_for(lab, self.part, "resample", gains, level=level, sign=-1.0)
        evidence = mean_evidence(
            lab,
            "resample replacement",
            measure="gain of the score",
            values=gains,
            level=level,
            rule=bar.rule,
            bar=bar.value,
            controls=bar.controls,
        )
        return above(evidence, bar.value), (evidence,)


class WritesAnswer(Claim, frozen=True):
    """What the component writes at the end favours the answer by itself, under the logit lens."""

    kind: Literal["writes_answer"] = "writes_answer"

    @property
    def text(self) -> str:
        return f"What {self.component} writes favours the answer by itself."

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """Its direct logit attribution, against that of matched components and with the answers of other prompts."""
        evidence, bar = _lens_evidence(lab, self.part, level=level)
        return above(evidence, bar), (evidence,)


class LensOnly(Claim, frozen=True):
    """What the component writes favours the answer under the logit lens, and yet the model does not need it."""

    kind: Literal["lens_only"] = "lens_only"

    @property
    def text(self) -> str:
        return f"{self.component} favours the answer under the logit lens, but the model answers as well without it."

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """Its direct logit attribution must pass; no replacement may cost score or answers."""
        tools = instruments_of(lab)
        lens, bar = _lens_evidence(lab, self.part, level=level)
        verdicts: list[Verdict] = [above(lens, bar)]
        evidence = [lens]
        hows: tuple[How, ...] = ("zero", "mean", "token mean", "resample")
        for how in hows:
            for measure, lost in zip(LOSSES, tools.losses([self.part], how), strict=True):
                one = mean_evidence(
                    lab,
                    f"{how} replacement",
                    measure=measure,
                    values=lost,
                    level=level,
                    rule=f"interval below {MIN_EFFECT:.3f}",
                )
                verdict = below(one, MIN_EFFECT)
                verdicts.append(verdict)
                evidence.append(marked(one, verdict))
        return all_of(*verdicts), tuple(evidence)


class Feeds(Claim, frozen=True):
    """The direct path from the component into a later one carries an effect on the answer."""

    kind: Literal["feeds"] = "feeds"
    receiver: ComponentName
    port: Literal["q", "k", "v", "mlp"] | None = None

    @property
    def text(self) -> str:
        port = {"q": " (its queries)", "k": " (its keys)", "v": " (its values)"}.get(self.port or "", "")
        return f"{self.component} feeds {self.receiver}{port}."

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """The effect of resampling that path alone, in either direction, against the paths of matched senders."""
        tools, receiver = instruments_of(lab), Component.parse(self.receiver).within(lab.model.config)
        parallel = lab.model.config.parallel
        if not feeds(self.part.within(lab.model.config), receiver, parallel=parallel):
            raise BadInput(f"feeds: {self.receiver} does not read what {self.component} writes; name a later receiver")
        matched = [c for c in lab.matched(self.part, exclude=[receiver]) if feeds(c, receiver, parallel=parallel)]
        senders = [self.part, *matched[:CONTROLS]]
        paths = [[e for e in edges_between(one, receiver) if self.port in (None, e.port)] for one in senders]
        if not paths[0]:
            ports = choices(edge.port for edge in edges_between(self.part, receiver))
            raise BadInput(f"feeds: {self.receiver} has no input {self.port!r}; it has {ports}")
        effects = tools.pool.path_effects(paths) / tools.pool.scale
        # A path may help the answer or work against it; which is not said, so each is held to half of the error.
        helps = not float(effects[:, 0].mean()) < 0
        controls = {str(one): rounded(effects[:, i].mean().abs()) for i, one in enumerate(senders) if i}
        bar, rule = bar_of(MIN_CUT_EFFECT, controls)
        evidence = mean_evidence(
            lab,
            f"resampled path into {self.receiver}",
            measure="effect" if helps else "gain, against the answer",
            values=effects[:, 0] if helps else -effects[:, 0],
            level=1 - (1 - level) / 2,
            rule=rule,
            bar=bar,
            controls=controls,
        )
        return above(evidence, bar), (evidence,)


NaturalClaim = Annotated[
    BacksUp
    | Feeds
    | Inhibits
    | LensOnly
    | MovesRole
    | Necessary
    | Primary
    | ReadsRole
    | Redundant
    | Sufficient
    | Together
    | WritesAnswer,
    Field(discriminator="kind"),
]
_READER: TypeAdapter[Any] = TypeAdapter(NaturalClaim)


def natural_claim_from(data: Any) -> Claim:
    """Read a claim about a natural model from JSON data."""
    try:
        return _READER.validate_python(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "claim"
        raise BadInput(f"claim cannot be read: {where}: {' '.join(first['msg'].split())}") from None


def _named(values: dict[str, PerPrompt], role: str, what: str) -> PerPrompt:
    if role not in values:
        raise BadInput(f"role {role!r} is not a {what} here; the roles are {choices(values)}")
    return values[role]


def _lens_evidence(lab: Lab, part: Component, *, level: float) -> tuple[Evidence, float]:
    """The direct logit attribution as a share of the final logit difference, and the bar it must exceed."""
    pool = instruments_of(lab).pool
    scale = above_zero(mean_apart_from_zero(logit_difference_of(pool, pool.final_resid)))
    weak = weak_controls(
        lab, lab.matched(part, k=CANDIDATES), lambda parts: [direct_attribution(pool, one) / scale for one in parts]
    )
    controls = {str(one): rounded(share.mean()) for one, share in weak.items()}
    shuffled = direct_attribution(pool, part, shuffle=True).mean() / scale
    controls["answers of another prompt"] = rounded(shuffled)
    bar, rule = bar_of(MIN_EFFECT, controls)
    evidence = mean_evidence(
        lab,
        "logit lens on its output",
        measure="direct logit attribution, share of the logit difference",
        values=direct_attribution(pool, part) / scale,
        level=level,
        rule=rule,
        bar=bar,
        controls=controls,
    )
    return evidence, bar
