"""Which claims the built-in scientist proposes about a component of a natural model, and in which order.

Hypotheses were made on other prompts (`selection`, `groups`), so a claim counts as the first of its kind; those about
the roles that a head moves are counted together. What a claim is and how it is decided is in the catalogue
(`explanations.claims`); here is decided what is worth asking.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from vesalius.components import Component
from vesalius.documents.explanation import ClaimRecord
from vesalius.explanations.claims import (
    ActsAtAnswer,
    ActsDirectly,
    Attends,
    BacksUp,
    BackupOf,
    Claim,
    Composes,
    Covers,
    Feeds,
    Hinders,
    Inhibits,
    LensOnly,
    MovesRole,
    Necessary,
    NotNeededAlone,
    Primary,
    ReadsFrom,
    ReadsRole,
    Together,
    Uses,
    WritesAnswer,
    check,
)
from vesalius.explanations.claims.base import ALPHA, MIN_EFFECT, level_for, mean_and_interval, rounded
from vesalius.explanations.claims.necessary import NEUTRAL, measure_necessary, shows_early
from vesalius.explanations.claims.paths import examine_whole_path
from vesalius.explanations.laboratory import END, REPORTED, NaturalLab, Replacement
from vesalius.explanations.laboratory.attention import SINKS, AttentionPort
from vesalius.explanations.natural.roles import Findings
from vesalius.explanations.natural.selection import Selection

#: Members of the group of a component whose role no other component has.
GROUP = 4
#: Components with a larger effect than this share leave too little score to lose and are not put into such a group.
TOO_STRONG = 0.5


@dataclass(frozen=True)
class Group:
    """Components that are replaced together; `members` includes the component whose group it is."""

    name: str
    members: tuple[Component, ...]

    def without(self, component: Component) -> list[Component]:
        """The other members."""
        return [member for member in self.members if member != component]


def group_of(lab: NaturalLab, selection: Selection, component: Component) -> Group:
    """The components it is replaced together with: the other heads with the same hypothesised role, or else the
    strongest components of its kind.
    """
    role = selection.looks_at.get(component)
    peers = selection.looking_at(role) if role and role not in SINKS else []
    if len(peers) > 1:
        return Group(f"heads that look at {role}", tuple(peers))
    same_kind = [c for c in selection.components if c.is_head == component.is_head and c != component]
    same_kind.sort(key=lambda c: -selection.effect.get(c, 0.0))
    limit = TOO_STRONG * lab.scale
    strongest = [c for c in same_kind if 0 < selection.effect.get(c, 0.0) < limit][:GROUP]
    name = f"the strongest {'heads' if component.is_head else 'MLPs'}"
    return Group(name, tuple(sorted([component, *strongest])))


def measure_ahead(lab: NaturalLab, selection: Selection, components: Sequence[Component]) -> None:
    """Measure in few large runs what the claims about these components will ask for.

    Paths first, and by which inputs they go where they matter; then components are replaced in as many ways as it takes
    to tell whether they are necessary, one batch for each way, and the groups, with and without the component, of those
    that are not: sets that begin alike share their runs.
    """
    pairs = [pair for pair in selection.paths if pair[0] in components]
    lab.measure_paths([(*pair, None) for pair in pairs])
    shown = [pair for pair in pairs if pair[1].is_head and _path_matters(lab, selection, *pair)]
    lab.measure_paths([(*pair, port) for pair in shown for port in "qkv"], n=REPORTED)
    groups = [(one, group_of(lab, selection, one)) for one in measure_necessary(lab, components)]
    without = [rest for component, group in groups if (rest := group.without(component))]
    lab.measure([*(group.members for _, group in groups), *without], ["resample"])


def investigate(lab: NaturalLab, selection: Selection, component: Component, *, performs: bool) -> Findings:
    """Make and check the claims about one component. If the model does not perform the behaviour, there is no score to
    lose, and only attention is checked.
    """
    name, looks_at = str(component), selection.looks_at.get(component)
    own: list[ClaimRecord] = []
    if looks_at is not None:
        own.append(check(Attends(component=name, role=looks_at), lab))
    if not performs:
        return Findings(component, looks_at, tuple(own))
    grouped = _group_claims(lab, selection, component) if component.is_head else []
    moves = any(claim.kind in ("moves_role", "backs_up") and claim.verdict == "supported" for _, claim in grouped)
    own += _causal_claims(lab, selection, component, moves=moves)
    incoming: list[tuple[Component, AttentionPort, ClaimRecord]] = [
        (sender, port, check(Composes(component=name, sender=str(sender), port=port, role=looks_at), lab))
        for (head, port), sender in selection.feeders.items()
        if head == component and looks_at is not None
    ]
    outgoing = [
        (receiver, check(_path_claim(selection, component, receiver), lab))
        for sender, receiver in selection.paths
        if sender == component
    ]
    return Findings(component, looks_at, tuple(own), tuple(incoming), tuple(outgoing), tuple(grouped))


def _path_claim(selection: Selection, sender: Component, receiver: Component) -> Claim:
    """That a path helps or hinders, as it did on the prompts of the selection."""
    kind = Feeds if selection.paths[sender, receiver] >= 0 else Hinders
    return kind(component=str(sender), receiver=str(receiver))


def _path_matters(lab: NaturalLab, selection: Selection, sender: Component, receiver: Component) -> bool:
    sign = 1.0 if selection.paths[sender, receiver] >= 0 else -1.0
    return examine_whole_path(lab, sender, receiver, None, sign=sign, level=level_for(1))[0] == "supported"


def _causal_claims(lab: NaturalLab, selection: Selection, component: Component, *, moves: bool) -> list[ClaimRecord]:
    name, looks_at = str(component), selection.looks_at.get(component)
    necessity = check(Necessary(component=name), lab)
    claims = [necessity]
    if (necessity.verdict != "refuted" or moves) and (spared := _spared_by(lab, component, necessity, moves=moves)):
        claims.append(check(spared, lab))
    if float(lab.effect([component], "resample").mean()) < -MIN_EFFECT:
        claims.append(check(Inhibits(component=name), lab))
    elif necessity.verdict == "supported":
        if _passed(necessity, "resample"):  # where it acts is measured by resampling
            claims += [check(ActsAtAnswer(component=name), lab), check(ActsDirectly(component=name), lab)]
    elif rest := group_of(lab, selection, component).without(component):
        claims.append(check(Covers(component=name, others=tuple(map(str, rest))), lab))
        if claims[-1].verdict == "supported":
            primary = max(rest, key=lambda c: selection.effect.get(c, 0.0))
            claims.append(check(BackupOf(component=name, primary=str(primary), replacement="resample"), lab))
    claims.append(check(WritesAnswer(component=name), lab))
    if claims[-1].verdict == "supported" and necessity.verdict != "supported":
        claims.append(check(LensOnly(component=name), lab))
    if looks_at is not None and looks_at not in SINKS:
        claims.append(check(Uses(component=name, role=looks_at), lab))
    if looks_at == "previous" and necessity.verdict == "supported":
        claims.append(check(ReadsFrom(component=name, offset=1), lab))
    return claims


def _passed(necessity: ClaimRecord, replacement: Replacement) -> bool:
    return any(one.passed is True for one in necessity.evidence if one.experiment == f"{replacement} replacement")


def _spared_by(lab: NaturalLab, component: Component, necessity: ClaimRecord, *, moves: bool) -> NotNeededAlone | None:
    """The claim that zeros, or else its mean, cost neither score nor right answers. None where the score alone shows
    that they do, or the component is necessary by others and its role does not depend on these: it does where the
    component was shown to move a role or to back up others (`moves`).
    """
    shown = {one.experiment: one for one in necessity.evidence}
    for how in NEUTRAL:
        score = shown.get(f"{how} replacement")
        if score is not None:
            most = score.high
        elif moves and shows_early(lab, component, how) is None:
            level = 1 - ALPHA / len(lab.replacements)
            most = rounded(mean_and_interval(lab.effect([component], how), level, seed=lab.seed)[2])
        else:
            continue
        if most is not None and most < MIN_EFFECT:
            return NotNeededAlone(component=str(component), replacement=how)
    return None


def _group_claims(lab: NaturalLab, selection: Selection, head: Component) -> list[tuple[str, ClaimRecord]]:
    """Which roles a head moves to the answer position, what it backs up, and whether it is the primary one or matters
    together with others; each with the role it is about. What a backup reads and moves is asked with the heads zeroed
    that it stands behind.
    """
    groups, name = selection.groups, str(head)
    roles, backups = groups.moves.get(head, ()), groups.backups.get(head, ())
    found = [(role, check(MovesRole(component=name, role=role), lab, tried=len(roles))) for role in roles]
    moved = [role for role, claim in found if claim.verdict == "supported"]
    for role, of in backups:
        others = tuple(map(str, of))
        backup = BacksUp(component=name, of=others, replacement="zero", at=END)
        found.append((role, check(backup, lab, tried=len(backups))))
        if found[-1][1].verdict != "supported":
            continue
        if role not in moved:
            then = MovesRole(component=name, role=role, suppressed=others)
            found.append((role, check(then, lab, tried=len(roles) + len(backups))))
        reads = ReadsRole(component=name, role=role, suppressed=others)
        found.append((role, check(reads, lab, tried=len(backups))))
    for role, members in groups.members.items():
        rest = tuple(str(member) for member in members if member != head)
        leader = groups.primary.get(role)
        if leader is not None and leader.head == head:
            claim = Primary(component=name, role=role, over=rest, replacement=leader.how)
            found.append((role, check(claim, lab)))
        if members[0] == head and any(backup.role == role for backup in backups):
            found.append((role, check(Together(component=name, others=rest, replacement="zero", at=END), lab)))
    return found
