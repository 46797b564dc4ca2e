"""Where a head of a natural model attends and what that is worth: *attends*, *uses*, *reads role*, *composes*.

Roles are sets of (query, key) pairs: general ones (the previous token, earlier copies of the current token, the tokens
after those), and the behaviour's own, from the answer position. That a head *attends* to a role is about its attention
alone; that it *uses* or *reads* it is shown by cutting it; and a component *composes* with a head where its path into
the head's queries or keys makes the head find the role.
"""

from typing import ClassVar, Literal

import torch

from vesalius.components import Component
from vesalius.discovery.head_tests import Target, masses
from vesalius.documents.explanation import Evidence
from vesalius.errors import BadInput, choices
from vesalius.explanations.claims.base import (
    MIN_CUT_EFFECT,
    MIN_MASS,
    Claim,
    ComponentName,
    NaturalClaim,
    Outcome,
    above,
    against,
    bar_above,
    either,
    first_interval,
    given,
    judged,
    mean_evidence,
    named,
    rounded,
)
from vesalius.explanations.claims.paths import neighbours
from vesalius.explanations.laboratory import END, FIRST_LOOK, REPORTED, Lab, NaturalLab
from vesalius.explanations.laboratory.attending import score_terms
from vesalius.explanations.laboratory.base import PerPrompt
from vesalius.explanations.laboratory.natural import Losses
from vesalius.explanations.laboratory.runs import (
    MEANINGS,
    PORT_WORDS,
    SINKS,
    AttentionPort,
    HeadPaths,
    everywhere_in,
    random_keys,
    require_heads,
    shuffled,
)

#: Attention mass that must leave the target before a component counts as the feeder of a head.
MIN_ATTENTION_LOSS = 0.1
#: Controls of *composes* that a record shows.
SHOWN = 3


#: The experiment by which a role is moved.
PUT_IN = "tokens put in before the prompt, and before the answer position"
#: The outcome of *attends* where the role sits at the same position in every prompt, and cannot be moved.
ONE_PLACE = "the same position in every prompt"


def meaning(role: str) -> str:
    """A token role as a phrase."""
    return MEANINGS.get(role, f"{role} (from the answer position)")


class Attends(NaturalClaim, frozen=True):
    """Most of the head's attention lies on one role, more than other heads' and more than on shuffled keys."""

    functional: ClassVar[bool] = False

    kind: Literal["attends"] = "attends"
    role: str

    @property
    def text(self) -> str:
        return f"{self.component} attends mostly to {meaning(self.role)}."

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """The attention mass on the role, against other heads of the layer, the role's places in another prompt, and
        the same places where there is no copy. A role of the behaviour that sits at one position in every prompt is
        moved as well, by tokens that are put in: the attention must follow it.
        """
        lab = NaturalLab.require(lab, self.kind)
        head, target = _head_and_target(self, lab, self.role)
        if self.role in SINKS:  # all heads of a layer may attend to BOS, so the control is the key next to it
            controls = {"the key after it": lab.mass(head, target.roll(1, -1))}
        else:
            others = {f"other heads of layer {head.layer}": _other_heads(lab, head, target)}
            controls = others if lab.model.config.n_heads > 1 else {}
        fixed = bool((target == target[:1]).all())
        if self.role not in ("previous", *SINKS) and not fixed:  # where the place is the same, so is its control
            controls["places of another prompt"] = lab.mass(head, shuffled(target))
        if self.role in ("induction", "duplicate"):
            controls["same places, no copy there"] = _without_copies(lab, head, target, self.role)
        bar, own = bar_above(MIN_MASS, controls), lab.mass(head, target)
        empty = [name for name, values in controls.items() if not len(values)]
        remark = f"; undecided, since no prompt has a place for the control: {', '.join(empty)}" if empty else ""
        verdict, evidence = judged(lab, "attention", f"mass on {self.role}", own, bar, level=level, remark=remark)
        if empty and verdict == "supported":  # what could have refuted it was not there
            return "untested", (evidence.model_copy(update={"passed": None}),)
        if not fixed or self.role not in lab.prompts.roles or verdict != "supported":
            return verdict, (evidence,)
        follows = lab.follows(head, self.role)
        if follows is None:
            return verdict, (evidence.model_copy(update={"outcome": ONE_PLACE}),)
        moved = mean_evidence(
            lab,
            PUT_IN,
            measure=f"mass on {self.role} less that on its former place, after the move it follows less",
            values=follows,
            level=level,
            rule=f"interval above {MIN_ATTENTION_LOSS} (the least that counts)",
            bar=MIN_ATTENTION_LOSS,
        )
        return above(moved, MIN_ATTENTION_LOSS), (evidence, moved)


def _without_copies(lab: NaturalLab, head: Component, target: Target, role: str) -> PerPrompt:
    """The attention on the places of copies where there is none: in the counterfactual prompts, or, where all of these
    keep theirs, in the prompts with the copies exchanged for other tokens.
    """
    without = target & ~everywhere_in(lab.runs, lab.prompts.counterfactual)[role]
    if not bool(without.any()):
        return lab.mass_without_copies(head, role)
    return _finite(masses(lab.runs.source_pattern(head.layer)[:, [head.head]], without)[:, 0])


class Uses(NaturalClaim, frozen=True):
    """The head uses what it finds at a role: taking those keys out of its attention costs score."""

    kind: Literal["uses"] = "uses"
    role: str

    @property
    def text(self) -> str:
        return f"{self.component} uses what it finds at {meaning(self.role)}."

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """What cutting the role's keys out of the attention costs, against cutting as many others."""
        lab = NaturalLab.require(lab, self.kind)
        head, target = _head_and_target(self, lab, self.role)

        def lost(keys: Target, n: int | None = None) -> PerPrompt:
            return lab.without_keys(head, keys, positions=target.any(-1), n=n)

        def controls() -> dict[str, PerPrompt]:
            other = random_keys(target, lab.runs, seed=lab.seed)
            first = lost(other, FIRST_LOOK) if lab.looks_first else None
            settled = first is not None and first_interval(first)[1] < MIN_CUT_EFFECT
            return {"as many other keys": first if first is not None and settled else lost(other)}

        experiment = f"{self.role} keys cut out of the attention"
        own, least = lost(target), MIN_CUT_EFFECT
        verdict, evidence = against(lab, experiment, "effect", own, controls, least=least, level=level)
        return verdict, (evidence,)


class ReadsRole(NaturalClaim, frozen=True):
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
        lab = NaturalLab.require(lab, self.kind)
        head, suppressed = self.part.within(lab.model.config), named(self.suppressed, lab)
        masses = lab.attention_masses(head, self.query)
        if self.role not in masses:
            raise BadInput(f"role {self.role!r} is not a key here; the roles are {choices(masses)}")
        others = [role for role in masses if role not in (self.role, "itself")]
        rivals = {role: rounded(masses[role].mean()) for role in others}
        bar = max([1 / lab.batch.tokens.shape[1], *(mass or 0.0 for mass in rivals.values())])
        attention = mean_evidence(
            lab,
            f"attention from {self.query}",
            measure=f"mass on {self.role}",
            values=masses[self.role],
            level=level,
            rule=f"interval above {bar:.3f} (the most that another role gets)",
            bar=bar,
            controls=rivals,
        )

        if attention.passed is not True:  # cuts are whole runs, and without the attention they support nothing
            return above(attention, bar), (attention,)

        def lost(role: str) -> Losses:
            return lab.lost(*lab.cut([head], role, self.query, suppressed))

        verdict, evidence = either(
            lab,
            f"attention on {self.role} set to zero",
            lost(self.role),
            lambda: {role: lost(role) for role in others},
            least=MIN_CUT_EFFECT,
            level=level,
            before=(attention,),
        )
        cited = why_it_attends(lab, head, self.role, level) if verdict == "supported" and self.query == END else ()
        return verdict, (*evidence, *cited)


class Composes(NaturalClaim, frozen=True):
    """An earlier component makes the queries or keys by which the head finds a role."""

    kind: Literal["composes"] = "composes"
    sender: ComponentName
    port: AttentionPort
    role: str

    @property
    def text(self) -> str:
        return f"{self.sender} makes the {PORT_WORDS[self.port]} by which {self.component} finds {meaning(self.role)}."

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """The attention that leaves the role where the sender's path into the queries or keys carries its value on the
        counterfactual, against that of its neighbours' paths; what that costs is reported.
        """
        lab = NaturalLab.require(lab, self.kind)
        head, target = _head_and_target(self, lab, self.role)
        (sender,) = named([self.sender], lab)
        if sender.layer >= head.layer:
            raise BadInput(f"composes: {head} does not read what {sender} writes; name an earlier sender")
        inputs = HeadPaths(lab.runs, head)

        def lost(part: Component) -> PerPrompt:
            return _finite(inputs.mass_lost(part, self.port, target))

        controls = {str(part): lost(part) for part in neighbours(lab, sender, head)}
        bar = bar_above(MIN_ATTENTION_LOSS, controls, shown=SHOWN)
        experiment = f"path into the {PORT_WORDS[self.port]} replaced"
        measure = "attention that leaves the target"
        verdict, attention = judged(lab, experiment, measure, lost(sender), bar, level=level)
        effect = mean_evidence(
            lab,
            experiment,
            measure="effect",
            values=lab.path(sender, head, self.port, n=REPORTED),
            level=level,
            rule="reported; the verdict rests on the attention",
        )
        cited = _score_terms(lab, self, level) if verdict == "supported" else ()
        return verdict, (attention, effect, *cited)


def why_it_attends(lab: NaturalLab, head: Component, role: str, level: float) -> tuple[Evidence, ...]:
    """The score of a role beyond other keys, which is the sum over all pairs of sources, and the sources at the key and
    at the query that add most; reported. Empty where no prompt has the role with other keys beside it.
    """
    if role not in lab.answer_targets and role not in lab.general_targets:
        return ()
    terms = score_terms(lab, head, role)
    if terms is None:
        return ()
    ports: tuple[tuple[AttentionPort, str], ...] = (("k", "key"), ("q", "query"))
    evidence = mean_evidence(
        lab,
        "attention score as a sum over sources at the query and at the key",
        measure="score beyond other keys",
        values=terms.pairs.sum((1, 2)),
        level=level,
        rule="reported; the verdict rests on the attention and its cut",
        controls={
            f"{source} at the {side} adds": rounded(value)
            for port, side in ports
            for source, value in terms.leading(port)
        },
    )
    return (evidence,)


def _score_terms(lab: NaturalLab, claim: Composes, level: float) -> tuple[Evidence, ...]:
    """What the sender adds to the score of the role beyond other keys, among the sources that add most; reported."""
    terms = score_terms(lab, claim.part, claim.role)
    if terms is None:
        return ()
    side = "query" if claim.port == "q" else "key"
    evidence = mean_evidence(
        lab,
        f"attention score as a sum over sources at the {side}",
        measure=f"what {claim.sender} adds beyond other keys",
        values=terms.at[claim.port][:, terms.sources.index(str(named([claim.sender], lab)[0]))],
        level=level,
        rule="reported; the verdict rests on the attention",
        controls={f"{source} adds": rounded(value) for source, value in terms.leading(claim.port)},
    )
    return (evidence,)


def _head_and_target(claim: Claim, lab: NaturalLab, role: str) -> tuple[Component, Target]:
    head = claim.part.within(lab.model.config)
    require_heads([head])
    return head, lab.target(role)


def _other_heads(lab: NaturalLab, head: Component, target: Target) -> PerPrompt:
    """Mean attention of the layer's other heads on a target."""
    mass = masses(lab.runs.pattern(head.layer), target)
    others = [h for h in range(mass.shape[1]) if h != head.head]
    return _finite(mass[:, others].mean(1)) if others else mass[:0, 0]


def _finite(values: PerPrompt) -> PerPrompt:
    """The values that are not NaN."""
    return values[~torch.isnan(values)]
