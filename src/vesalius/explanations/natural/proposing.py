"""Which claims the built-in scientist proposes about a component of a natural model, and in which order.

Hypotheses were made on other prompts (`selection`), so a claim counts as the first of its kind; those about
the roles that a head moves are counted together. What a claim is and how it is decided is in the catalogue
(`explanations.claims`); here is decided what is worth asking.
"""

from collections.abc import Sequence
from dataclasses import replace

from vesalius.components import Component
from vesalius.documents.claims import NotAsked
from vesalius.documents.explanation import ClaimRecord
from vesalius.documents.view import join_names
from vesalius.explanations.claims import (
    ActsAt,
    ActsAtAnswer,
    ActsDirectly,
    Attends,
    BackupOf,
    Carries,
    Claim,
    Composes,
    Feeds,
    FewNeurons,
    Hinders,
    Inhibits,
    LensOnly,
    LooksUp,
    MovesRole,
    Necessary,
    NeedsInput,
    NotNeededAlone,
    Primary,
    ReadsFrom,
    ReadsRole,
    Redundant,
    SmallPart,
    Suppresses,
    Together,
    Uses,
    WritesAnswer,
    check,
)
from vesalius.explanations.claims.base import MIN_EFFECT, level_for
from vesalius.explanations.claims.necessary import NEUTRAL, measure_necessary, shows_early, spared_by
from vesalius.explanations.claims.paths import examine_whole_path
from vesalius.explanations.laboratory import END, REPORTED, SECOND_LOOK, NaturalLab, Replacement
from vesalius.explanations.laboratory.answers import ANSWER
from vesalius.explanations.laboratory.attending import score_terms, terms_record
from vesalius.explanations.laboratory.runs import PORT_WORDS, SINKS, AttentionPort
from vesalius.explanations.natural.grouping import Redundancy
from vesalius.explanations.natural.ideas import Ideas, Inside
from vesalius.explanations.natural.roles import Findings, Written, written_by
from vesalius.explanations.natural.selection import ChosenComponents
from vesalius.intervene.signed import ANSWER_SUPPRESSOR, MOVER, SUPPRESSOR, word_of
from vesalius.values import JsonObject


def measure_ahead(lab: NaturalLab, selection: ChosenComponents, components: Sequence[Component]) -> None:
    """Measure in few large runs what the claims about these components will ask for.

    Paths first, and by which inputs they go where they matter; then components are replaced in as many ways as it takes
    to tell whether they are necessary, one batch for each way, and with those that may stand in for them.
    """
    pairs = [pair for pair in selection.paths if pair[0] in components]
    lab.measure_paths([(*pair, None) for pair in pairs])
    shown = [pair for pair in pairs if pair[1].is_head and _path_matters(lab, selection, *pair)]
    lab.measure_paths([(*pair, port) for pair in shown for port in "qkv"], n=REPORTED)
    measure_necessary(lab, components)
    found = [(one, stand) for one in components for stand in selection.groups.joint.get(one, ())]
    pairs = [set_ for one, stand in found if stand.how == "resample" for set_ in ([one, *stand.others], stand.others)]
    lab.measure(pairs, ["resample"])


def investigate(lab: NaturalLab, selection: ChosenComponents, component: Component, *, performs: bool) -> Findings:
    """Make and check the claims about one component. If the model does not perform the behaviour, there is no score to
    lose, and only attention is checked.
    """
    name, looks_at = str(component), selection.looks_at.get(component)
    own: list[ClaimRecord] = []
    left = [NotAsked(kind=kind, about=about) for part, kind, about in sorted(selection.unclear) if part == component]
    close = {(one.kind, one.about) for one in left}
    if looks_at is not None and ("attends", looks_at) not in close:
        own.append(check(Attends(component=name, role=looks_at), lab))
    if not performs:
        return Findings(component, looks_at, tuple(own), names=lab.standard_names.get(name, ()), not_asked=tuple(left))
    grouped = _group_claims(lab, selection, component, left) if component.is_head else []
    moving = ("moves_role", "redundant", "backup_of")
    moves = any(claim.kind in moving and claim.verdict == "supported" for _, claim in grouped)
    own += _causal_claims(lab, selection, component, left, moves=moves)
    fed = {id(claim) for claim in own if claim.kind == "needs_input" and _is_path(selection, component, claim)}
    incoming: list[tuple[Component, AttentionPort, ClaimRecord]] = [
        (sender, port, check(Composes(component=name, sender=str(sender), port=port, role=looks_at), lab))
        for (head, port), sender in selection.feeders.items()
        if head == component and looks_at is not None and ("composes", f"{PORT_WORDS[port]}, {sender}") not in close
    ]
    outgoing = [
        (receiver, check(_path_claim(selection, component, receiver), lab))
        for sender, receiver in selection.paths
        if sender == component
    ]
    sides = lab.at_least(SECOND_LOOK).sides([component], "resample")
    found = Findings(
        component,
        looks_at,
        tuple(claim for claim in own if id(claim) not in fed),
        tuple(incoming),
        tuple(outgoing),
        tuple(grouped),
        raises=sides is None or word_of(sides, seed=lab.seed) == MOVER,
        names=lab.standard_names.get(name, ()),
        written=_written(lab, selection.ideas, component, own),
        fed=tuple(claim for claim in own if id(claim) in fed),
        not_asked=tuple(left),
        reading=selection.ideas.reads.get(component),
    )
    return replace(found, why=_why(lab.at_least(SECOND_LOOK), found))


def _is_path(selection: ChosenComponents, mlp: Component, claim: ClaimRecord) -> bool:
    """Whether that an MLP needs an input is claimed of the sender, as a path from it."""
    sender = str((claim.prediction or {}).get("sender"))
    return any(str(one) == sender and receiver == mlp for one, receiver in selection.paths)


def _why(lab: NaturalLab, found: Findings) -> JsonObject | None:
    """Why a head attends where it was shown to; of a sink there is nothing to tell."""
    shown = found.looks_at if found.supported("attends") else next(iter(found.roles("reads_role")), None)
    if not found.component.is_head or shown is None or shown in SINKS:
        return None
    terms = score_terms(lab, found.component, shown)
    return None if terms is None else terms_record(lab, terms)


def _written(lab: NaturalLab, ideas: Ideas, component: Component, own: Sequence[ClaimRecord]) -> Written | None:
    """What an MLP writes, or the few neurons that do its work, where it was shown to write the answer or to carry it or
    a role: elsewhere tokens say nothing.
    """
    supported = {claim.kind for claim in own if claim.verdict == "supported"}
    if component.is_head or not supported & {"acts_directly", "carries", "writes_answer"}:
        return None
    neurons = ideas.inside.get(component, Inside()).neurons if "few_neurons" in supported else ()
    at = END if "acts_at_answer" in supported else ideas.places.get(component, END)
    return written_by(lab.at_least(SECOND_LOOK), component, at, neurons)


def _path_claim(selection: ChosenComponents, sender: Component, receiver: Component) -> Claim:
    """That a path helps or hinders, as it did on the prompts of the selection."""
    kind = Feeds if selection.paths[sender, receiver] >= 0 else Hinders
    return kind(component=str(sender), receiver=str(receiver))


def _path_matters(lab: NaturalLab, selection: ChosenComponents, sender: Component, receiver: Component) -> bool:
    sign = 1.0 if selection.paths[sender, receiver] >= 0 else -1.0
    return examine_whole_path(lab, sender, receiver, None, sign=sign, level=level_for(1))[0] == "supported"


def _causal_claims(
    lab: NaturalLab, selection: ChosenComponents, component: Component, left: list[NotAsked], *, moves: bool
) -> list[ClaimRecord]:
    """The claims about what replacing a component does; questions that are not asked are added to `left`."""
    name, looks_at = str(component), selection.looks_at.get(component)
    necessity = check(Necessary(component=name), lab)
    spared = _spared_by(lab, component, necessity, moves=moves)
    alone = None if spared is None else check(spared, lab)
    necessity = refuted_by(alone, necessity)
    claims = _how_much(lab, necessity, name)
    if necessity not in claims:
        left.append(NotAsked(kind=necessity.kind, why="narrower"))
    if alone is not None and not (alone.verdict == necessity.verdict == "undecided"):  # else it is one open question
        claims.append(alone)
    if float(lab.effect([component], "resample").mean()) < -MIN_EFFECT:
        claims.append(check(Inhibits(component=name), lab))
    elif necessity.verdict == "supported" and _passed(necessity, "resample"):  # where it acts is measured by that
        claims += _ways(lab, selection.ideas, component, left)
    elif necessity.verdict == "supported" and component in selection.ideas.places:
        claims += _acts_at(lab, component, selection.ideas, left)  # values of other prompts cost a little only
    claims += _reads(lab, component, selection, left)
    pairs = [found for found in selection.groups.joint.get(component, ()) if found.role is None]
    claims += [claim for found in pairs for claim in _beside(lab, name, found, tried=len(pairs))]
    if (word := lab.at_least(SECOND_LOOK).word(component)) in (SUPPRESSOR, ANSWER_SUPPRESSOR):
        answer = "wrong" if word == SUPPRESSOR else "right"
        claims.append(check(Suppresses(component=name, answer=answer), lab))
    if not any(one.kind == "writes_answer" for one in left):
        claims.append(check(WritesAnswer(component=name), lab))
        if claims[-1].verdict == "supported" and necessity.verdict != "supported":
            claims.append(check(LensOnly(component=name), lab))
    if looks_at is not None and looks_at not in SINKS:
        claims.append(check(Uses(component=name, role=looks_at), lab))
    if looks_at == "previous" and necessity.verdict == "supported":
        claims.append(check(ReadsFrom(component=name, offset=1), lab))
    return claims


def refuted_by(alone: ClaimRecord | None, necessity: ClaimRecord) -> ClaimRecord:
    """That a component is necessary, refuted where it is open and a replacement was shown to cost nothing, on as many
    prompts as that took. The claim has three ways to be refuted, whose errors add up: that no replacement shows, that
    zeros cost nothing, and that its mean costs nothing. With all figures at the bar they refute it in 0.015 of draws
    (`benchmarks/looks.py`), for the second and the third need the right answers as well, which few prompts bound.
    """
    if alone is None or (alone.verdict, necessity.verdict) != ("supported", "undecided"):
        return necessity
    return necessity.model_copy(update={"verdict": "refuted", "evidence": alone.evidence})


def _ways(lab: NaturalLab, ideas: Ideas, component: Component, left: list[NotAsked]) -> list[ClaimRecord]:
    """Where a necessary component acts, and of an MLP what it reads, by which neurons it works and what it carries."""
    name, place = str(component), ideas.places.get(component, END)
    claims = [check(ActsAtAnswer(component=name), lab), check(ActsDirectly(component=name), lab)]
    if place != END and claims[0].verdict != "supported":
        claims += _acts_at(lab, component, ideas, left)
    inside = ideas.inside.get(component, Inside())
    left += [NotAsked(kind=kind, about=about) for kind, about in inside.unclear]
    claims += [check(NeedsInput(component=name, sender=one), lab) for one in inside.senders]
    if inside.neurons:
        claims.append(check(FewNeurons(component=name, neurons=inside.neurons), lab))
    if inside.variable is not None:
        claims.append(check(Carries(component=name, variable=inside.variable, at=place), lab))
        if claims[-1].verdict == "supported" and inside.variable != ANSWER:
            claims.append(check(LooksUp(component=name, variable=inside.variable, at=place), lab))
    return claims


def _acts_at(lab: NaturalLab, component: Component, ideas: Ideas, left: list[NotAsked]) -> list[ClaimRecord]:
    """The claim that most of its effect arises at its place, unless a few prompts leave that at about half."""
    role = ideas.places[component]
    if component in ideas.unclear:
        left.append(NotAsked(kind="acts_at", about=role))
        return []
    name = str(component)
    return [check(ActsAtAnswer(component=name) if role == END else ActsAt(component=name, role=role), lab)]


def _reads(
    lab: NaturalLab, component: Component, selection: ChosenComponents, left: list[NotAsked]
) -> list[ClaimRecord]:
    """The claim that a head reads a role from where it acts, unless a few prompts leave that too close to call, or that
    is the token before, of which `reads_from` is asked.
    """
    reading = selection.ideas.reads.get(component)
    if reading is None or reading.general == selection.looks_at.get(component) == "previous":
        return []
    place = selection.ideas.places[component]
    if not reading.clear:
        left.append(NotAsked(kind="reads_role", about=f"{reading.role} from {place}"))
        return []
    return [check(ReadsRole(component=str(component), role=reading.role, query=place), lab)]


def _how_much(lab: NaturalLab, necessity: ClaimRecord, name: str) -> list[ClaimRecord]:
    """What is said of how much a component matters: that it is necessary or not, or, where its effect is too close to
    the bar for that, that it plays a small part. Both rest on intervals that hold together, so that asking the second
    after the first costs no error.
    """
    if necessity.verdict != "undecided":
        return [necessity]
    small = check(SmallPart(component=name), lab)
    return {"supported": [small], "refuted": [necessity, small]}.get(small.verdict, [necessity])


def _passed(necessity: ClaimRecord, replacement: Replacement) -> bool:
    return any(one.passed is True for one in necessity.evidence if one.experiment == f"{replacement} replacement")


def _spared_by(lab: NaturalLab, component: Component, necessity: ClaimRecord, *, moves: bool) -> NotNeededAlone | None:
    """The claim that zeros, or else its mean, cost neither score nor right answers: by that which refuted that it is
    necessary. None of a component that is necessary; of another one, where its role depends on it, as where it was
    shown to move a role or to stand in for others (`moves`), unless the score speaks against it.
    """
    if necessity.verdict == "supported":
        return None
    if (how := spared_by(necessity.evidence)) is not None:
        return NotNeededAlone(component=str(component), replacement=how)
    shown = {one.experiment: one for one in necessity.evidence}
    for how in NEUTRAL:
        score = shown.get(f"{how} replacement")
        if moves and (score is not None or shows_early(lab, component, how) is None):
            # The claim draws as many prompts as it takes; the few of a first look seldom have so narrow an interval.
            most = float(lab.effect([component], how).mean()) if score is None else score.value
        elif necessity.verdict != "refuted" and score is not None:
            most = score.high
        else:
            continue
        if most is not None and most < MIN_EFFECT:
            return NotNeededAlone(component=str(component), replacement=how)
    return None


def _beside(lab: NaturalLab, name: str, found: Redundancy, *, tried: int) -> list[ClaimRecord]:
    """The claims about a component beside others, the last of which stands where any does: that it is redundant with
    them or a backup of them, as it seemed to be on other prompts; where that is refuted the other one; and where it is
    open that they matter together, which then takes its place. All three read the same runs.
    """
    others, how = tuple(map(str, found.others)), {"replacement": found.how, "at": found.at}
    pair: list[Claim] = [Redundant(component=name, others=others, **how), BackupOf(component=name, of=others, **how)]
    first, second = pair if found.kind == "redundant" else reversed(pair)
    claims = [check(first, lab, tried=tried)]
    if claims[-1].verdict == "refuted":
        other = check(second, lab, tried=tried)
        return [*claims, other] if other.verdict == "supported" else claims
    if claims[-1].verdict == "undecided":
        weaker = check(Together(component=name, others=others, **how), lab, tried=tried)
        return [weaker] if weaker.verdict == "supported" else claims
    return claims


def _group_claims(
    lab: NaturalLab, selection: ChosenComponents, head: Component, left: list[NotAsked]
) -> list[tuple[str, ClaimRecord]]:
    """Which roles a head moves to the answer position, what it stands in for there, and whether it is the primary one;
    each with the role it is about. What a head that stands in for others reads and moves is asked with these zeroed.
    """
    groups, name = selection.groups, str(head)
    roles = groups.moves.get(head, ())
    joint = [found for found in groups.joint.get(head, ()) if found.role is not None]
    clear = [role for role in roles if (head, role) not in groups.unclear]
    left += [NotAsked(kind="moves_role", about=role) for role in roles if role not in clear]
    left += [NotAsked(kind=one.kind, about=join_names(one.others)) for one in groups.unclear_joint.get(head, ())]
    found = [(role, check(MovesRole(component=name, role=role), lab, tried=len(roles))) for role in clear]
    moved = [role for role, claim in found if claim.verdict == "supported"]
    for one in joint:
        others, role = tuple(map(str, one.others)), one.role or ""
        found += [(role, claim) for claim in _beside(lab, name, one, tried=len(joint))]
        if found[-1][1].verdict != "supported":
            continue
        if role not in moved:
            then = MovesRole(component=name, role=role, suppressed=others)
            found.append((role, check(then, lab, tried=len(roles) + len(joint))))
        if role in groups.reads.get(head, ()):
            reads = ReadsRole(component=name, role=role, suppressed=others)
            found.append((role, check(reads, lab, tried=len(joint))))
    for role, members in groups.members.items():
        rest = tuple(str(member) for member in members if member != head)
        leader = groups.primary.get(role)
        if leader is not None and leader.head == head:
            claim = Primary(component=name, role=role, over=rest, replacement=leader.how)
            found.append((role, check(claim, lab)))
    return found
