"""Which heads may stand in for each other: hypotheses, made on the selection pool alone.

By the role that they move: heads whose output carries the answer along are a group, zeroed at the answer position
alone and together (`propose_groups`). By what gradients propose: pairs of which one grows once the other has its values
on other prompts (`add_pairs`). Both say of each head whether it may be *redundant* with others or a *backup of* them.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.components import Component
from vesalius.discovery.rivals import growing_pairs, growth, strongest
from vesalius.errors import BadInput
from vesalius.explanations.claims.base import MIN_EFFECT, MIN_SAMPLES
from vesalius.explanations.claims.joint import costs, excess, measure_together
from vesalius.explanations.laboratory import END, How, NaturalLab
from vesalius.explanations.laboratory.base import PerPrompt
from vesalius.intervene import Replacement
from vesalius.progress import Progress

#: Heads that are tried.
CANDIDATES = 16
#: Members of one group.
MEMBERS = 6
#: A head moves a role if patching it carries the answer this share of the way, and the role is the one it moves most,
#: or it moves it a quarter as far as the strongest head does.
MIN_MOVED, QUARTER = 0.01, 0.25
#: The smallest set of others that shows this part of the largest gain is proposed.
MOST_OF_GAIN = 0.75


class Redundancy(NamedTuple):
    """What may be shown of a component beside others: mutually `redundant` with them or a `backup_of` them, by one
    replacement; `role` is the one that all of them move, where there is one.
    """

    kind: Literal["redundant", "backup_of"]
    others: tuple[Component, ...]
    how: How
    at: str | None = None
    role: str | None = None


class Leader(NamedTuple):
    """The member of a group that costs most alone, by one replacement."""

    head: Component
    how: How


@dataclass
class Groups:
    """`moves[head]` are the roles a head may move to the answer position, the one it moves most first;
    `members[role]` the heads of a group, strongest first; `joint[head]` what may be shown of it beside others, and
    `reads[head]` the roles of these that it attends to more than to any other; `primary[role]` the head that may be the
    primary one, and the replacement that shows it. `unclear` are heads with a role of which a few prompts cannot tell
    whether it moves, `unclear_joint[head]` what they cannot tell of it beside others.
    """

    moves: dict[Component, tuple[str, ...]] = field(default_factory=dict)
    members: dict[str, tuple[Component, ...]] = field(default_factory=dict)
    joint: dict[Component, tuple[Redundancy, ...]] = field(default_factory=dict)
    reads: dict[Component, tuple[str, ...]] = field(default_factory=dict)
    primary: dict[str, Leader] = field(default_factory=dict)
    unclear: set[tuple[Component, str]] = field(default_factory=set)
    unclear_joint: dict[Component, tuple[Redundancy, ...]] = field(default_factory=dict)

    def add(self, head: Component, found: Redundancy) -> None:
        """One more hypothesis about a component, unless it is there."""
        if found not in self.joint.get(head, ()):
            self.joint[head] = (*self.joint.get(head, ()), found)

    def leave_out(self, head: Component, found: Redundancy) -> None:
        """One more hypothesis about a component that is too close to call."""
        self.unclear_joint[head] = (*self.unclear_joint.get(head, ()), found)

    def alike(self) -> dict[Component, frozenset[Component]]:
        """For every component those that were seen to do the same, however clearly: they move a role that it moves, or
        stand in for it or it for them. They are no controls of it.
        """
        sets = [{head for head, roles in self.moves.items() if role in roles} for role in self._roles]
        sets += [
            {head, *one.others}
            for seen in (self.joint, self.unclear_joint)
            for head, found in seen.items()
            for one in found
        ]
        members = {head for some in sets for head in some}
        return {head: frozenset().union(*(some for some in sets if head in some)) - {head} for head in members}

    @property
    def _roles(self) -> list[str]:
        return list(dict.fromkeys(role for roles in self.moves.values() for role in roles))


def propose_groups(lab: NaturalLab, candidates: Sequence[Component], progress: Progress) -> Groups:
    """Group the candidate heads by the role they move, and find which of them may stand in for each other.

    1. Each candidate gets its output at the answer position from a run with another token at one role. Heads whose
       output carries the answer towards that run's move this role; those of one role are a *group*.
    2. All heads of the groups are zeroed at the answer position, alone and together. Where zeroing all costs no more
       than the sum, single heads explain the behaviour and the search ends.
    3. Of each group those that act alone and those that do not (`_stand_ins`): alike ones may be mutually redundant,
       the others backups of those that act.
    4. The member that costs most alone, zeroed or else resampled, may be the primary one.
    """
    groups = Groups()
    heads = sorted(head for head in candidates if head.is_head)
    if not heads:
        return groups
    progress(f"which roles {len(heads)} heads move to the answer position", 0, 0)
    each = _moved_shares(lab, heads)
    shares = {role: {head: float(share.mean()) for head, share in moved.items()} for role, moved in each.items()}
    groups.moves = {head: roles for head in heads if (roles := _roles_of(head, shares))}
    groups.unclear = _unclear_moves(lab, groups.moves, each)
    for role, moved in shares.items():
        own = [head for head, roles in groups.moves.items() if role in roles]
        if len(own) > 1:
            groups.members[role] = tuple(sorted(own, key=lambda head: -moved[head])[:MEMBERS])
    if not groups.members or _singles_explain(lab, groups):
        return groups
    for role, members in groups.members.items():
        progress(f"which of {len(members)} heads that move {role} stand in for each other", 0, 0)
        _add_stand_ins(lab, groups, role, members)
    return groups


def _moved_shares(lab: NaturalLab, heads: Sequence[Component]) -> dict[str, dict[Component, PerPrompt]]:
    """How far patching each head from runs with another token at each role moves the answer."""
    position, shares = lab.prompts.position, {}
    for role, place in lab.prompts.roles.items():
        if bool((place == position).all()):
            continue
        try:
            moved = lab.moved_shares([[head] for head in heads], role)
        except BadInput:  # the tokens there are all equal, or do not matter for the answer
            continue
        if len(moved[0][1]) >= min(MIN_SAMPLES, lab.n):  # elsewhere they seldom matter
            shares[role] = {head: share for head, (_, share) in zip(heads, moved, strict=True)}
    return shares


def _unclear_moves(
    lab: NaturalLab,
    moves: Mapping[Component, tuple[str, ...]],
    shares: Mapping[str, Mapping[Component, PerPrompt]],
) -> set[tuple[Component, str]]:
    """The heads and roles of which so few prompts cannot tell whether the head moves the role: by its output, or, where
    that is clear, by its values at other positions.
    """
    pairs = [(head, role) for head, roles in moves.items() for role in roles]
    unclear = {(head, role) for head, role in pairs if is_unclear([(shares[role][head], MIN_EFFECT)])}
    for role, moved in shares.items():
        clear = [head for head, roles in moves.items() if role in roles and lower_end_of(moved[head]) >= MIN_EFFECT]
        by_values = lab.moved_by_values([[head] for head in clear], role) if clear else []
        unclear |= {(head, role) for head, one in zip(clear, by_values, strict=True) if is_unclear([(one, MIN_EFFECT)])}
    return unclear


def _roles_of(head: Component, shares: Mapping[str, Mapping[Component, float]]) -> tuple[str, ...]:
    """The roles that a head may move, the one it moves most first."""
    own = {role: moved[head] for role, moved in shares.items() if moved[head] >= MIN_MOVED}
    order = sorted(own, key=lambda role: -own[role])
    return tuple(role for role in order if role == order[0] or own[role] >= QUARTER * max(shares[role].values()))


def _singles_explain(lab: NaturalLab, groups: Groups) -> bool:
    """Whether zeroing all heads of the groups costs no more than the sum of what each costs alone."""
    heads = sorted({head for members in groups.members.values() for head in members})
    lab.answers([heads, *([head] for head in heads)], "zero", END)
    joint = [float(lost.mean()) for lost in lab.losses(heads, "zero", END)]
    singles = [[float(lost.mean()) for lost in lab.losses([head], "zero", END)] for head in heads]
    sums = [sum(max(0.0, one[place]) for one in singles) for place in (0, 1)]
    return all(joint[place] - sums[place] <= MIN_EFFECT for place in (0, 1))


def _add_stand_ins(lab: NaturalLab, groups: Groups, role: str, members: Sequence[Component]) -> None:
    """Which members may stand in for each other, zeroed at the answer position, and which may be the primary one."""
    for head, found, clear in _stand_ins(lab, members, "zero", END, role):
        if not clear:
            groups.leave_out(head, found)
            continue
        groups.add(head, found)
        if _attends_most(lab, head, role) and role not in groups.reads.get(head, ()):
            groups.reads[head] = (*groups.reads.get(head, ()), role)
    hows: tuple[How, ...] = ("zero", "resample")
    for how in hows:
        if (first := _leader(lab, members, how)) is not None:
            groups.primary[role] = Leader(first, how)
            break


def _stand_ins(
    lab: NaturalLab, members: Sequence[Component], how: How, at: str | None = None, role: str | None = None
) -> Iterator[tuple[Component, Redundancy, bool]]:
    """What may be shown of members that are given strongest first, and whether it is clear by a standard error: those
    that act alone (or, where at most one does, those that do not) are mutually redundant if together they cost more
    than the sum; one that does not act is a backup of the fewest of those that act which show most of its gain.
    """
    measure_together(lab, [[member] for member in members], how, at)
    acting = [one for one in members if max(_means(costs(lab, [one], how, at))) > MIN_EFFECT]
    silent = [one for one in members if one not in acting]
    for some in (acting, silent):
        if len(some) < 2 or max(_means(beyond := excess(lab, some, how, at))) <= MIN_EFFECT:
            continue
        for head in some:
            others = tuple(sorted(one for one in some if one != head))
            yield head, Redundancy("redundant", others, how, at, role), _clear(beyond)
    for head in silent if acting else ():
        sizes = sorted({1, 2, len(acting)} & set(range(1, len(acting) + 1)))
        each = {size: _gain_once(lab, head, acting[:size], how, at) for size in sizes}
        gains = {size: max(_means(gain)) for size, gain in each.items()}
        enough = max(MIN_EFFECT, MOST_OF_GAIN * max(gains.values()))
        if (best := next((size for size in sizes if gains[size] > enough), None)) is not None:
            yield head, Redundancy("backup_of", tuple(sorted(acting[:best])), how, at, role), _clear(each[best])


def _gain_once(
    lab: NaturalLab, head: Component, others: Sequence[Component], how: How, at: str | None
) -> tuple[PerPrompt, ...]:
    """What a head costs once others are replaced beyond what it costs alone."""
    sets = [[*others, head], list(others), [head]]
    measure_together(lab, sets, how, at)
    both, rest, alone = (costs(lab, one, how, at) for one in sets)
    return tuple(x - y - z for x, y, z in zip(both, rest, alone, strict=True))


def _clear(losses: Sequence[PerPrompt]) -> bool:
    """Whether one of two losses lies above the least that counts by a standard error."""
    return any(lower_end_of(one) > MIN_EFFECT for one in losses)


def _means(values: Sequence[PerPrompt]) -> list[float]:
    return [float(one.mean()) for one in values]


def _attends_most(lab: NaturalLab, head: Component, role: str) -> bool:
    """Whether a head attends from the end to a role more than to each other one, by a standard error at least."""
    masses_of = lab.attention_masses(head)
    own = masses_of.pop(role, None)
    others = [mass for name, mass in masses_of.items() if name != "itself"]
    return own is not None and all(lower_end_of(own - other) > 0 for other in others)


def lower_end_of(values: Float[Tensor, " prompt"], *, errors: int = 1) -> float:
    """The mean less a standard error, or two where the candidates are the strongest of many: what a screening on a few
    prompts must show, so that those proposed are not the ones that were lucky there.
    """
    error = float(values.std()) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return float(values.mean()) - errors * error


def is_unclear(figures: Sequence[tuple[Float[Tensor, " prompt"], float]]) -> bool:
    """Whether figures lie within a standard error of their bars, so that more prompts seldom tell whether all reach
    them: not one is clearly below, and not all are clearly above.
    """
    below = any(-lower_end_of(-values) < bar for values, bar in figures)
    return not below and any(lower_end_of(values) < bar for values, bar in figures)


def _leader(lab: NaturalLab, members: Sequence[Component], how: How) -> Component | None:
    """The member that costs most at the answer position, in right answers where any are lost, if it costs enough; by
    values of other prompts it must be well ahead of the others, for those disturb whatever reads them.
    """
    lab.answers([[head] for head in members], how, END)
    costs = {head: [float(lost.mean()) for lost in lab.losses([head], how, END)] for head in members}
    place = int(any(answers > MIN_EFFECT for _, answers in costs.values()))
    first, second = sorted(members, key=lambda head: -costs[head][place])[:2]
    ahead = how == "zero" or costs[first][place] - costs[second][place] > MIN_EFFECT
    return first if costs[first][place] > MIN_EFFECT and ahead else None


#: Strong heads with each of which replaced the growth of others is estimated, pairs that are then measured, and pairs
#: that claims are made about.
GROWTH_FIRST, GROWTH_PAIRS, PAIRS = 12, 32, 6


def add_pairs(
    lab: NaturalLab,
    groups: Groups,
    effects: Mapping[Component, float],
    among: Sequence[Component] | None,
    progress: Progress,
) -> None:
    """Pairs of heads that may stand in for each other by values of other prompts, `among` some or all: those that grow
    most (`discovery.redundancy`) are measured, and the ones proposed that clearly cost more than the sum and of which
    nothing is proposed yet. `effects` are those of single components.
    """
    heads = [part for part in lab.model.components if part.is_head and (among is None or part in among)]
    first = strongest({head: effects.get(head, 0.0) for head in heads}, most=GROWTH_FIRST)
    if len(heads) < 2 or math.isnan(lab.scale):
        return
    progress(f"what other heads cost once each of {len(first)} is replaced", 0, 0)
    values = Replacement(lab.table("resample"), torch.arange(lab.n))
    grown = growth(lab.model, lab.batch, lab.runs.readout, values, heads, first, lab.cost)
    known = [{head, *one.others} for head, found in groups.joint.items() for one in found]
    grown_most = growing_pairs(grown, heads, first, most=GROWTH_PAIRS)
    pairs = [pair for pair in grown_most if not any(set(pair) <= one for one in known)]
    measure_together(lab, [*pairs, *([head] for head in {part for pair in pairs for part in pair})], "resample", None)
    figures = {pair: excess(lab, pair, "resample", None)[0] for pair in pairs}
    # Two standard errors: of many pairs some are lucky on a few prompts.
    beyond = {pair: lower_end_of(one, errors=2) for pair, one in figures.items()}
    shown = sorted((pair for pair in pairs if beyond[pair] > MIN_EFFECT), key=lambda pair: -beyond[pair])[:PAIRS]
    near = [pair for pair in pairs if float(figures[pair].mean()) > MIN_EFFECT >= beyond[pair]]
    for pair in [*shown, *near[: PAIRS - len(shown)]]:
        proposed = list(_stand_ins(lab, pair, "resample"))
        if pair not in shown:
            for head, found, _ in proposed[:1]:
                groups.leave_out(head, found)
            continue
        for head, found, _ in proposed:
            groups.add(head, found)
