"""From verdicts to a role: the name of a component, by rule, from the claims about it."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from vesalius.components import Component
from vesalius.documents.claims import NotAsked
from vesalius.documents.explanation import TOKENS, ClaimRecord, Tag, Verdict
from vesalius.documents.view import join_names
from vesalius.explanations.claims.base import MIN_EFFECT
from vesalius.explanations.laboratory import END, NaturalLab
from vesalius.explanations.laboratory.answers import ANSWER
from vesalius.explanations.laboratory.runs import MEANINGS, SINKS, AttentionPort
from vesalius.explanations.natural.ideas import Reading
from vesalius.intervene.written_tokens import last_norm, raised_and_lowered, with_neurons_kept
from vesalius.values import JsonObject

# What an MLP, or a few of its neurons, write in tokens: those that its output at one position raises most, beyond what
# it writes on the counterfactual prompt. It is read off the weights; no claim rests on it.

#: Prompts that are shown with so many tokens each; the answer is looked for among so many.
EXAMPLES, SHOWN, AMONG = 3, 3, 10


@dataclass(frozen=True)
class Written:
    """`examples` are prompts: the answer, and the tokens raised most. `answer` is the share of prompts whose answer is
    among the ten tokens raised most, `answers` the share of these tokens that are answers of the prompts.
    """

    at: str
    neurons: int | None
    examples: tuple[tuple[str, tuple[str, ...]], ...]
    answer: float
    answers: float
    n: int

    @property
    def sentence(self) -> str:
        """What it writes, with examples."""
        place = "the answer position" if self.at == END else self.at
        who = "what it writes" if self.neurons is None else f"what these {self.neurons} neurons write"
        shown = "; ".join(
            f"{', '.join(map(repr, raised))} where {answer!r} is right" for answer, raised in self.examples
        )
        return (
            f"Beyond the counterfactual prompt, {who} at {place} raises most {shown}. The answer is among the {AMONG} "
            f"tokens raised most on {self.answer:.2f} of {self.n} prompts."
        )

    @property
    def record(self) -> JsonObject:
        """The same for JSON."""
        examples = [{"answer": answer, "raises": list(raised)} for answer, raised in self.examples]
        shares = {"answer_among_ten": round(self.answer, 4), "answers_of_ten": round(self.answers, 4)}
        return {"at": self.at, "neurons": self.neurons, "examples": examples, **shares, "n": self.n}


def written_by(lab: NaturalLab, mlp: Component, at: str, neurons: Sequence[int] = ()) -> Written | None:
    """What an MLP writes at a role's position, or some of its neurons; None where tokens have no text."""
    if lab.vocabulary is None:
        return None
    rows, place, runs = torch.arange(lab.n), lab.place(at), lab.runs
    if neurons:
        inputs = {"read": runs.mlp_input(mlp.layer), "other": runs.mlp_input(mlp.layer, source=True)}
        some, none = (with_neurons_kept(lab.model, mlp, kept, **inputs) for kept in (neurons, ()))
        change = some - none
    else:
        change = -runs.change(mlp)
    raised, _ = raised_and_lowered(lab.model, last_norm(lab.model, change[rows, place]), top=AMONG)
    answers, piece = lab.prompts.correct, lab.vocabulary.tokenizer.piece
    first = {answer: row for row, answer in reversed(list(enumerate(answers.tolist())))}
    chosen = sorted(first.values())[:EXAMPLES]
    return Written(
        at,
        len(neurons) or None,
        tuple((piece(int(answers[row])), tuple(map(piece, raised[row, :SHOWN].tolist()))) for row in chosen),
        float((raised == answers[:, None]).any(1).float().mean()),
        float(torch.isin(raised, answers).float().mean()),
        lab.n,
    )


# What a necessary MLP is called: what its output stands for, where it acts, by which neurons, and by which paths.
#
# looks up the answer from X   it was shown to look it up (`looks_up`); the figure is how far its output alone, from
#                              prompts with another X, brings their answer
# carries X                    its output stands for X, the token of a role or the answer (`carries`)
# writes the answer            it acts mostly on its direct path to the logits
# supplies a constant          zeros in its place cost something, its values on other prompts nothing
# necessary at X               none of these was shown; where most of its effect arises, which inputs it needs and
#                              what it feeds, as far as that was decided

#: Senders and receivers that a name lists.
LISTED = 3
SHARED = "supplies what the prompts share"
NOT_FOUND = "necessary, by a way that was not found"


def name_of_mlp(claims: Sequence[ClaimRecord], fed: Sequence[str]) -> str:
    """The name of an MLP that is necessary, from the claims about it and the components it feeds."""
    supported = [claim for claim in claims if claim.verdict == "supported"]
    kinds = {claim.kind for claim in supported}
    carried = [claim for claim in supported if claim.kind in ("looks_up", "carries")]
    direct = "acts_directly" in kinds
    if carried:
        name = _carried(carried[-1], direct=direct)
    elif direct:
        name = "writes the answer"
    else:
        name = SHARED if is_shared(claims) else "necessary"
        name += place_words(supported)
    name += "".join(f", through {_neurons(claim)}" for claim in supported if claim.kind == "few_neurons")
    name = by_ways(name, supported, () if direct or "looks_up" in kinds else fed)
    return NOT_FOUND if name == "necessary" else name


def place_words(supported: Sequence[ClaimRecord]) -> str:
    """Where most of a component's effect arises, as the end of a name."""
    if any(claim.kind == "acts_at_answer" for claim in supported):
        return " at the answer"
    roles = [str((claim.prediction or {}).get("role")) for claim in supported if claim.kind == "acts_at"]
    return f" at {roles[0]}" if roles else ""


def by_ways(name: str, supported: Sequence[ClaimRecord], fed: Sequence[str]) -> str:
    """A name with what the component was shown to need and to feed."""
    needed = senders_of(supported)
    return name + (f", reads {_listed(needed)}" if needed else "") + (f", feeds {_listed(fed)}" if fed else "")


def senders_of(supported: Sequence[ClaimRecord]) -> list[str]:
    """The inputs that an MLP was shown to need."""
    names = [str((claim.prediction or {}).get("sender")) for claim in supported if claim.kind == "needs_input"]
    return ["the tokens" if name == TOKENS else name for name in names]


def variable_of(claim: ClaimRecord) -> tuple[str, str]:
    """The variable that a claim of interchange is about, and the position."""
    prediction = claim.prediction or {}
    return str(prediction.get("variable")), str(prediction.get("at", END))


def is_shared(claims: Sequence[ClaimRecord]) -> bool:
    """Whether another replacement was shown to cost something, and more than its values on other prompts do."""
    shown = {one.experiment: one for claim in claims if claim.kind == "necessary" for one in claim.evidence}
    other = shown.pop("resample replacement", None)
    if other is None or other.high is None or other.passed:
        return False
    return any(one.passed and one.low is not None and one.low > other.high for one in shown.values())


def _carried(claim: ClaimRecord, *, direct: bool) -> str:
    variable, at = variable_of(claim)
    place = "the answer" if at == END else at
    figure = f"(interchange {claim.evidence[0].value:.2f})"
    if claim.kind == "looks_up":
        return f"looks up the answer from {variable} at {place} {figure}"
    if variable != ANSWER:
        return f"{'writes the answer, ' if direct else ''}carries {variable} at {place} {figure}"
    if direct:
        return f"writes the answer {figure}"
    return f"carries the answer{'' if at == END else f' at {at}'} {figure}"


def _neurons(claim: ClaimRecord) -> str:
    """How many of its neurons, from the experiment's name."""
    few, _, width = claim.evidence[0].experiment.removeprefix("all but ").partition(" of its ")
    return f"{few} of its {int(width.split()[0]):,} neurons"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - LISTED
    return join_names(names) if more <= 0 else f"{', '.join(names[:LISTED])} and {more} more"


# A role has two halves. Where a head attends, if the claim that it attends there is supported: *reads X* (a token role
# of the behaviour; *attends to X* where it was not shown to use what is there) or *BOS sink*. *Induction head*,
# *prefix-matching head*, *previous-token head* and *duplicate-token head* need the tests of the atlas as well, which
# hold no behaviour; without them a head *attends to ..., in this template*. Where a head costs most at another
# position than the answer's, and was shown to read a role from there, that is where it attends: *reads X from Y*. A
# head that suppresses what it reads by the atlas is a *copy-suppression head* in every behaviour. What part it plays:
#
#     inhibits the answer          replacing it helps
#     primary mover of X           of the heads that move X it costs most when replaced at the answer position
#     primary mover                a head that is necessary, mostly at the answer position, and was shown to use what is
#                                  where it attends or to move a role
#     necessary at the answer      the same, where neither was shown, where it also stands in for others, or was tested
#                                  and is not the primary one
#     suppressor of ...            in place of mover: what it writes lowers the wrong answer (or the right one)
#     carrier of X                 in place of mover: it moves X, and the answer's logit was not shown to gain from that
#     necessary at X               a head that is necessary, mostly at the position of X
#     necessary upstream           a head that is necessary, mostly elsewhere
#     necessary                    a head that is necessary; where it acts is undecided. What it feeds follows, where
#                                  that was shown. Names of necessary MLPs: `names_of_mlps`
#     backup mover, backup MLP     it acts only once others are gone; of X, where it moves X; a backup head, where it
#                                  was shown neither to move a role nor where it attends
#     redundant mover, ...         the same of a mutually redundant one: it and others cost more together than the sum
#     mover of X, not needed alone it moves X, and zeros or its mean in its place cost next to nothing
#     mover of X                   it moves X; whether it is needed is undecided
#     matters together with ...    it and others cost more together than the sum; which of them act alone is undecided
#     a small part                 replacing it costs something and not much; whether it is necessary is undecided
#     lens-positive but redundant  its output favours the answer, and replacing it costs next to nothing
#     no effect alone              replacing it costs next to nothing
#
# A component is *not needed alone*, and then not *necessary*, where zeros or its mean, at every position, can stand in
# for it: values of other prompts may disturb what reads them even where nothing would be missed. Neither half: *no role
# established*.

NO_ROLE, NO_EFFECT = "no role established", "no effect alone"
#: The names of the atlas that go with a role that a head attends to, and that of a head that writes against it.
STANDARD = {
    "induction": ("induction head", "prefix-matching head"),
    "duplicate": ("duplicate-token head",),
    "previous": ("previous-token head",),
}
SUPPRESSING = "copy-suppression head"
SUPPRESSED = {"wrong": "the wrong answer", "right": "the answer"}
#: What a component that stands in for others is called, by the claim that says so.
STANDS_IN = {"backup_of": "backup", "redundant": "redundant"}


@dataclass(frozen=True)
class Findings:
    """The claims about one component and what follows from them.

    `names` are those of the atlas, `reading` what it may read from where it acts, `written` the tokens that an MLP
    writes, `why` what makes a head attend. `raises`: the right answer's own logit falls when it is resampled, so it
    gains from the component, by whichever way.
    `own` holds the claims about the component alone, `incoming` those about the components that write its queries and
    keys (sender, port, claim), `outgoing` those about the components it feeds (receiver, claim), `grouped` those about
    the roles it moves and the heads that move them too (role, claim). `fed` says which inputs an MLP needs by the paths
    that are claimed of their senders: one question, which has one claim, at the sender. `not_asked` are the questions
    without a claim.
    """

    component: Component
    looks_at: str | None
    own: tuple[ClaimRecord, ...]
    incoming: tuple[tuple[Component, AttentionPort, ClaimRecord], ...] = ()
    outgoing: tuple[tuple[Component, ClaimRecord], ...] = ()
    grouped: tuple[tuple[str, ClaimRecord], ...] = ()
    raises: bool = True
    names: tuple[str, ...] = ()
    written: Written | None = None
    why: JsonObject | None = None
    fed: tuple[ClaimRecord, ...] = ()
    not_asked: tuple[NotAsked, ...] = ()
    reading: Reading | None = None

    @property
    def claims(self) -> tuple[ClaimRecord, ...]:
        """Every claim, those about the component alone first; one that is made for two roles once."""
        paths = (*(claim for _, _, claim in self.incoming), *(claim for _, claim in self.outgoing))
        grouped = {(claim.kind, claim.text): claim for _, claim in reversed(self.grouped)}
        return (*self.own, *reversed(grouped.values()), *paths)

    def roles(self, *kinds: str) -> list[str]:
        """The roles of the prompts that a supported claim of these kinds about heads that move them is about."""
        found = [role for role, claim in self.grouped if claim.kind in kinds and claim.verdict == "supported"]
        return list(dict.fromkeys(found))

    def verdict(self, kind: str) -> Verdict | None:
        """The verdict of the first claim of a kind, None if there is none."""
        return next((claim.verdict for claim in self.own if claim.kind == kind), None)

    def supported(self, kind: str) -> bool:
        """Whether there is a claim of this kind and it is supported."""
        return self.verdict(kind) == "supported"

    @property
    def pattern(self) -> str | None:
        """Where it attends, if that was established, and what it is by the atlas, if it was shown here as well."""
        where = self._where
        if SUPPRESSING not in self.names:
            return where
        return SUPPRESSING if where is None or where == SUPPRESSING else f"{SUPPRESSING}, {where}"

    @property
    def _where(self) -> str | None:
        if self.reading is not None and self.supported("reads_role") and not self.supported("acts_at_answer"):
            claim = next(claim for claim in self.own if claim.kind == "reads_role")
            there = f"reads {self.reading.role} from {(claim.prediction or {})['query']}"
            return self._standard(self.reading.general) or there
        if self.looks_at is None or not self._attends:
            return None
        if self.looks_at in SINKS:
            return f"{self.looks_at} sink"
        verb = "reads" if self.supported("uses") else "attends to"
        if self.looks_at not in STANDARD:
            return f"{verb} {self.looks_at}"
        standard = self._standard(self.looks_at)
        if standard is not None or SUPPRESSING in self.names:
            return standard or f"{verb} {MEANINGS[self.looks_at]}"
        return f"{verb} {MEANINGS[self.looks_at]}, in this template"

    def _standard(self, general: str | None) -> str | None:
        """Its name of the atlas that goes with a general role."""
        return next((name for name in STANDARD.get(general or "", ()) if name in self.names), None)

    @property
    def _attends(self) -> bool:
        """Whether it was shown to attend to a role."""
        return self.looks_at is not None and self.supported("attends")

    @property
    def part(self) -> str | None:
        """The part it plays for the answer, if one was established."""
        head = self.component.is_head
        if self.supported("inhibits"):
            lowers = "right" in self._suppressed
            return f"suppressor of {SUPPRESSED['right']}" if lowers else "inhibits the answer"
        if self.roles("primary"):
            return self._moving("primary ", self.roles("primary"))
        if self.supported("necessary"):
            fed = [str(receiver) for receiver, claim in self.outgoing if claim.verdict == "supported"]
            if not head:
                return name_of_mlp((*self.own, *self.fed), fed)
            second = self.roles(*STANDS_IN) or any(
                claim.kind == "primary" and claim.verdict == "refuted" for _, claim in self.grouped
            )
            moves = self.roles("moves_role") or (self._attends_elsewhere and self.supported("uses"))
            supported = [claim for claim in self.own if claim.verdict == "supported"]
            at_answer = by_ways("necessary at the answer", supported, fed)
            if moves and not second and (self.supported("writes_answer") or self._suppressed):
                at_answer = self._moving("primary ", [])
            if self.supported("acts_at_answer"):
                return at_answer
            place = place_words(supported) or " upstream" * (self.verdict("acts_at_answer") == "refuted")
            return by_ways(f"necessary{place}", supported, fed)
        if not head and is_shared(self.own):
            return SHARED
        for kind, rank in STANDS_IN.items():
            if shared := [role for role in self.roles(kind) if role in self.roles("moves_role")]:
                return self._moving(f"{rank} ", shared)
            if self.roles(kind) or any(one.kind == kind and one.verdict == "supported" for one in self.own):
                moves = self.roles("moves_role") or self._attends_elsewhere  # alone it need not use what is there
                writes = self.supported("writes_answer") or bool(self._suppressed)
                named = self._moving(f"{rank} ", []) if moves and writes else f"{rank} head"
                return named if head else f"{rank} MLP"
        if self.supported("lens_only"):
            return "lens-positive but redundant"
        if self.roles("moves_role"):
            alone = ", not needed alone" if self.supported("not_needed_alone") else ""
            return f"{self._moving('', self.roles('moves_role'))}{alone}"
        if self._beside:
            return f"matters together with {join_names(self._beside)}"
        if self.supported("small_part"):
            return "a small part"
        if not _costs_nothing(self):
            return None
        return "lens-positive but redundant" if self.supported("writes_answer") else NO_EFFECT

    @property
    def _beside(self) -> list[str]:
        """The components that cost more with it than the sum, where it was not decided which of them act alone."""
        claims = [claim for claim in (*self.own, *(one for _, one in self.grouped)) if claim.kind == "together"]
        shown = next((claim for claim in claims if claim.verdict == "supported"), None)
        return [] if shown is None else list((shown.prediction or {})["others"])

    @property
    def _suppressed(self) -> list[str]:
        """The answers, wrong or right, that what it writes was shown to lower."""
        shown = [claim for claim in self.own if claim.kind == "suppresses" and claim.verdict == "supported"]
        return [str((claim.prediction or {}).get("answer", "wrong")) for claim in shown]

    def _moving(self, rank: str, roles: list[str]) -> str:
        """The name of a head that brings something to the answer position, by what becomes of the answers: a mover only
        if the right one gains, from what it writes or, where it was shown to move a role, through later components.
        """
        if self._suppressed:
            return f"{rank}suppressor of {SUPPRESSED[self._suppressed[0]]}"
        mover = self.supported("writes_answer") or (self.raises and bool(roles))
        return f"{rank}{'mover' if mover else 'carrier'}{self._of(roles) if roles else ''}"

    @property
    def _attends_elsewhere(self) -> bool:
        """Whether it was shown to attend to another position that is not a sink."""
        return self._attends and self.looks_at not in SINKS

    def _of(self, roles: list[str]) -> str:
        """Which roles it moves, unless where it attends says so already."""
        named = self._attends and self.looks_at in STANDARD
        return "" if named else f" of {join_names(roles)}"

    @property
    def role(self) -> str:
        """Both halves, or that neither was established."""
        return ", ".join(half for half in (self.pattern, self.part) if half) or NO_ROLE

    @property
    def established(self) -> bool:
        """Whether it was shown to do something: a component without an effect leaves open what it is there for."""
        return self.role not in (NO_ROLE, NO_EFFECT)

    @property
    def tag(self) -> Tag:
        """The tag by experiment; without one AGGREGATOR for heads and MAPPER for MLPs, which the note says."""
        return self.tag_by_experiment or ("AGGREGATOR" if self.component.is_head else "MAPPER")

    @property
    def tag_by_experiment(self) -> Tag | None:
        """ROUTER for a head whose attention was shown to lie on one token role, MAPPER for an MLP that was shown what
        its output stands for; nothing else settles a tag.
        """
        if not self.component.is_head:
            return "MAPPER" if self.supported("carries") else None
        return "ROUTER" if self._attends_elsewhere or self.supported("reads_role") else None


def _costs_nothing(findings: Findings) -> bool:
    """Whether the whole interval of its single effect lies below the smallest effect that counts, however it was
    replaced.
    """
    claim = next((claim for claim in findings.own if claim.kind == "necessary"), None)
    return claim is not None and all(one.high is not None and one.high < MIN_EFFECT for one in claim.evidence)
