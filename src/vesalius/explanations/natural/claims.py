"""Typed claims about components of natural models, decided on held-out prompts by the instruments.

They speak of the behaviour's roles: a head *reads* a role, *moves* it to a position, *backs up* others, *inhibits*,
*writes the answer*, favours it under the logit lens *without being needed*, or *feeds* another component. Each is a
`Claim` like those about programs: a prediction, an experiment with controls, a verdict by rule. Effects are shares of
the clean score; where the score saturates, right answers that are lost count beside it.
"""

from typing import Annotated, Any, Literal
from weakref import WeakKeyDictionary

from jaxtyping import Float
from pydantic import Field, TypeAdapter, ValidationError
from torch import Tensor

from vesalius.components import Component
from vesalius.documents.explanation import Evidence, Verdict
from vesalius.errors import BadInput, choices
from vesalius.explanations.claims import Claim, Lab, Necessary, Redundant, Sufficient
from vesalius.explanations.claims.ablation import MIN_EFFECT, effect_bar
from vesalius.explanations.claims.base import (
    ComponentName,
    Outcome,
    above,
    all_of,
    join_names,
    marked,
    mean_and_interval,
    mean_evidence,
    rounded,
)
from vesalius.explanations.claims.reading import MIN_CUT_EFFECT
from vesalius.explanations.natural.instruments import END, How, Instruments
from vesalius.explanations.natural.lens import direct_attribution, logit_difference_of
from vesalius.explanations.natural.paths import edges_between, feeds
from vesalius.explanations.natural.pool import Pool
from vesalius.model.specimen import TextVocabulary

#: Matched components that are looked at, and how many of them serve as controls: one that is strong itself does not.
CANDIDATES, CONTROLS = 6, 2
PerPrompt = Float[Tensor, " prompt"]
_LOSSES = ("effect", "right answers lost")
_INSTRUMENTS: WeakKeyDictionary[Lab, Instruments] = WeakKeyDictionary()


def instruments_of(lab: Lab) -> Instruments:
    """The instruments on the laboratory's own prompts; made once for each."""
    if lab.finite:
        raise BadInput(f"claims about roles need a natural model with a behaviour, not {lab.specimen.name!r}")
    if lab not in _INSTRUMENTS:
        vocabulary = lab.specimen.vocabulary
        assert isinstance(vocabulary, TextVocabulary)
        pool = Pool.draw(lab.specimen, lab.n, seed=lab.seed, split="test")
        _INSTRUMENTS[lab] = Instruments(pool, piece=vocabulary.tokenizer.piece)
    return _INSTRUMENTS[lab]


class ReadsRole(Claim, frozen=True):
    """The head attends from one role's position to another's more than to any other role, and needs what it finds."""

    kind: Literal["reads_role"] = "reads_role"
    role: str
    query: str = END
    suppressed: tuple[ComponentName, ...] = ()

    @property
    def text(self) -> str:
        return f"{self.component} reads {self.role} from {self.query}{_given(self.suppressed)}."

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
        lost = {role: tools.cut_losses(self.part, role, self.query, self.suppressed) for role in [self.role, *others]}
        return _either(
            lab,
            f"attention on {self.role} set to zero",
            lost[self.role],
            {role: lost[role] for role in others},
            least=MIN_CUT_EFFECT,
            level=level,
            before=(attention,),
        )


class MovesRole(Claim, frozen=True):
    """The component's output at a position carries the token of a role there: with the output from a run that has
    another token at the role, the answer moves towards that run's.
    """

    kind: Literal["moves_role"] = "moves_role"
    role: str
    to: str = END
    suppressed: tuple[ComponentName, ...] = ()

    @property
    def text(self) -> str:
        return f"{self.component} moves {self.role} to {self.to}{_given(self.suppressed)}."

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """Patch its output from runs with another token at the role; matched components are the control."""
        tools = instruments_of(lab)
        matched = lab.matched(self.part, exclude=_parts(self.suppressed), k=CANDIDATES)
        moved = tools.moved_shares([[part] for part in (self.part, *matched)], self.role, self.to, self.suppressed)
        weak = _weak(dict(zip(map(str, matched), moved[1:], strict=True)), lab)
        controls = {name: rounded(share.mean()) for name, share in weak.items()}
        bar, rule = _bar(MIN_EFFECT, controls)
        evidence = mean_evidence(
            lab,
            f"output at {self.to} from runs with another token at {self.role}",
            measure="share of the way to that run's answer",
            values=moved[0],
            level=level,
            rule=rule,
            bar=bar,
            controls=controls,
        )
        return above(evidence, bar), (evidence,)


class BacksUp(Claim, frozen=True):
    """The component matters more once others are replaced than it does alone: it is a backup of them."""

    kind: Literal["backs_up"] = "backs_up"
    of: tuple[ComponentName, ...]
    replacement: How = "zero"
    at: str | None = None

    @property
    def text(self) -> str:
        return f"{self.component} is a backup of {join_names(self.of)}: it matters more once they are replaced."

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """The gain of its effect once the others are replaced, against that of matched components."""
        tools, others = instruments_of(lab), _parts(self.of)
        if not others or self.part in others:
            raise BadInput(f"backs_up {self.component}: `of` must name one or more other components")
        matched = lab.matched(self.part, exclude=others, k=CANDIDATES)
        gains = {part: tools.backup_gains(part, others, self.replacement, self.at) for part in (self.part, *matched)}
        weak = _weak({f"{part} instead": gains[part][0] for part in matched}, lab)
        controls = {f"{part} instead": gains[part] for part in matched if f"{part} instead" in weak}
        experiment = f"{self.replacement} replacement with and without {join_names(self.of)}"
        return _either(lab, experiment, gains[self.part], controls, least=MIN_EFFECT, level=level, gain=True)


class Inhibits(Claim, frozen=True):
    """Replacing the component raises the score: it works against the answer."""

    kind: Literal["inhibits"] = "inhibits"

    @property
    def text(self) -> str:
        return f"{self.component} works against the answer: replacing it by its values on other prompts helps."

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """The gain of the score, against that of matched components."""
        bar = effect_bar(lab, self.part, "resample", sign=-1.0)
        evidence = mean_evidence(
            lab,
            "resample replacement",
            measure="gain of the score",
            values=-lab.effect([self.part], "resample"),
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
            for measure, lost in zip(("effect", "right answers lost"), tools.losses([self.part], how), strict=True):
                one = mean_evidence(
                    lab,
                    f"{how} replacement",
                    measure=measure,
                    values=lost,
                    level=level,
                    rule=f"interval below {MIN_EFFECT:.3f}",
                )
                verdict = _below(one, MIN_EFFECT)
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
        """The effect of resampling that path alone, against the paths of matched senders."""
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
        controls = {str(one): rounded(effects[:, i].mean()) for i, one in enumerate(senders) if i}
        bar, rule = _bar(MIN_CUT_EFFECT, controls)
        evidence = mean_evidence(
            lab,
            f"resampled path into {self.receiver}",
            measure="effect",
            values=effects[:, 0],
            level=level,
            rule=rule,
            bar=bar,
            controls=controls,
        )
        return above(evidence, bar), (evidence,)


NaturalClaim = Annotated[
    BacksUp | Feeds | Inhibits | LensOnly | MovesRole | Necessary | ReadsRole | Redundant | Sufficient | WritesAnswer,
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


def _given(suppressed: tuple[str, ...]) -> str:
    return f" once {join_names(suppressed)} {'is' if len(suppressed) == 1 else 'are'} zeroed" if suppressed else ""


def _parts(names: tuple[str, ...]) -> list[Component]:
    return [Component.parse(name) for name in names]


def _named(values: dict[str, PerPrompt], role: str, what: str) -> PerPrompt:
    if role not in values:
        raise BadInput(f"role {role!r} is not a {what} here; the roles are {choices(values)}")
    return values[role]


def _weak(candidates: dict[str, PerPrompt], lab: Lab) -> dict[str, PerPrompt]:
    """The first matched components that are not strong themselves: no interval lies above the least that counts."""
    weak = {
        name: values
        for name, values in candidates.items()
        if not mean_and_interval(values, 0.95, seed=lab.seed)[1] > MIN_EFFECT
    }
    return dict(list(weak.items())[:CONTROLS])


def _bar(least: float, controls: dict[str, float | None]) -> tuple[float, str]:
    """What an effect must exceed, the least that counts or the strongest control, and the rule as evidence shows it."""
    bar = max([least, *(value or 0.0 for value in controls.values())])
    return bar, f"interval above {bar:.3f} ({'the least that counts' if bar == least else 'the strongest control'})"


def _below(evidence: Evidence, bar: float) -> Verdict:
    """Supported if the whole interval lies below the bar, refuted if none of it does."""
    if evidence.low is None or evidence.high is None:
        return "untested"
    return "supported" if evidence.high < bar else "refuted" if evidence.low >= bar else "untested"


def _either(
    lab: Lab,
    experiment: str,
    values: tuple[PerPrompt, PerPrompt],
    controls: dict[str, tuple[PerPrompt, PerPrompt]],
    *,
    least: float,
    level: float,
    gain: bool = False,
    before: tuple[Evidence, ...] = (),
) -> Outcome:
    """A loss shown by the score or by right answers, each at half the error; `before` must hold as well."""
    evidence, verdicts = [], []
    for place, measure in enumerate(("gain in effect", "gain in right answers lost") if gain else _LOSSES):
        reached = {name: rounded(pair[place].mean()) for name, pair in controls.items()}
        bar, rule = _bar(least, reached)
        one = mean_evidence(
            lab,
            experiment,
            measure=measure,
            values=values[place],
            level=1 - (1 - level) / 2,
            rule=f"{rule}; one of the two decides",
            bar=bar,
            controls=reached,
        )
        evidence.append(one)
        verdicts.append(above(one, bar))
    shown: Verdict = (
        "supported" if "supported" in verdicts else "refuted" if set(verdicts) == {"refuted"} else "untested"
    )
    needed = [{True: "supported", False: "refuted", None: "untested"}[one.passed] for one in before]
    return all_of(shown, *needed), (*before, *evidence)  # type: ignore[arg-type]


def _lens_evidence(lab: Lab, part: Component, *, level: float) -> tuple[Evidence, float]:
    """The direct logit attribution as a share of the final logit difference, and the bar it must exceed."""
    pool = instruments_of(lab).pool
    scale = max(float(logit_difference_of(pool, pool.final_resid).mean()), 1e-6)
    weak = _weak({str(c): direct_attribution(pool, c) / scale for c in lab.matched(part, k=CANDIDATES)}, lab)
    controls = {name: rounded(share.mean()) for name, share in weak.items()}
    shuffled = direct_attribution(pool, part, shuffle=True).mean() / scale
    controls["answers of another prompt"] = rounded(shuffled)
    bar, rule = _bar(MIN_EFFECT, controls)
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
