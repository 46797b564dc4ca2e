"""Which heads move the same thing and may back each other up: hypotheses, made on the selection pool alone.

1. Corrupt-operand patching: each candidate head gets its output at the answer position from a run with another token at
   one role. Heads whose output carries the answer towards that run's move this role; those of one role are a *group*.
2. All heads of the groups are zeroed at the answer position, alone and together. Where zeroing all costs no more than
   the sum, single heads explain the behaviour and the search ends.
3. For each member of a group: its effect once the strongest other member, the two strongest, or all others are zeroed.
   The smallest set that shows most of the largest gain is what it may be a backup of.
4. The member that costs most alone, zeroed or else resampled, may be the primary one.

Candidates are the heads with the largest single effects and are few, groups are cut to their strongest members, and all
sets of one step are run in one batch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from vesalius.components import Component
from vesalius.errors import BadInput
from vesalius.explanations.claims.ablation import MIN_EFFECT
from vesalius.explanations.natural.instruments import END, How, Instruments
from vesalius.explanations.natural.pool import Pool
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


class Backup(NamedTuple):
    """A head of a group, and the members that it may be a backup of."""

    role: str
    of: tuple[Component, ...]


class Leader(NamedTuple):
    """The member of a group that costs most alone, by one replacement."""

    head: Component
    how: How


@dataclass
class Groups:
    """`moves[head]` are the roles a head may move to the answer position, the one it moves most first;
    `members[role]` the heads of a group, strongest first; `backups[head]` what it may back up; `primary[role]` the head
    that may be the primary one, and the replacement that shows it.
    """

    moves: dict[Component, tuple[str, ...]] = field(default_factory=dict)
    members: dict[str, tuple[Component, ...]] = field(default_factory=dict)
    backups: dict[Component, tuple[Backup, ...]] = field(default_factory=dict)
    primary: dict[str, Leader] = field(default_factory=dict)


def propose_groups(pool: Pool, candidates: Sequence[Component], progress: Progress) -> Groups:
    """Group the candidate heads by the role they move, and find what each may be a backup of."""
    groups, tools = Groups(), Instruments(pool, piece=str)
    heads = sorted(head for head in candidates if head.is_head)
    if not heads:
        return groups
    progress(f"which roles {len(heads)} heads move to the answer position", 0, 0)
    shares = _moved(tools, heads)
    groups.moves = {head: roles for head in heads if (roles := _roles_of(head, shares))}
    for role, moved in shares.items():
        own = [head for head, roles in groups.moves.items() if role in roles]
        if len(own) > 1:
            groups.members[role] = tuple(sorted(own, key=lambda head: -moved[head])[:MEMBERS])
    if not groups.members or _singles_explain(tools, groups):
        return groups
    for role, members in groups.members.items():
        progress(f"which of {len(members)} heads that move {role} back each other up", 0, 0)
        _add_backups(tools, groups, role, members)
    return groups


def _moved(tools: Instruments, heads: Sequence[Component]) -> dict[str, dict[Component, float]]:
    """How far patching each head from runs with another token at each role moves the answer."""
    position = tools.prompts.position
    shares = {}
    for role, place in tools.prompts.roles.items():
        if bool((place == position).all()):
            continue
        try:
            tools.measure_moved([[head] for head in heads], role)
        except BadInput:  # the tokens there are all equal, or do not matter for the answer
            continue
        shares[role] = {head: float(tools.moved_shares([head], role)[1].mean()) for head in heads}
    return shares


def _roles_of(head: Component, shares: Mapping[str, Mapping[Component, float]]) -> tuple[str, ...]:
    """The roles that a head may move, the one it moves most first."""
    own = {role: moved[head] for role, moved in shares.items() if moved[head] >= MIN_MOVED}
    order = sorted(own, key=lambda role: -own[role])
    return tuple(role for role in order if role == order[0] or own[role] >= QUARTER * max(shares[role].values()))


def _singles_explain(tools: Instruments, groups: Groups) -> bool:
    """Whether zeroing all heads of the groups costs no more than the sum of what each costs alone."""
    heads = sorted({head for members in groups.members.values() for head in members})
    tools.measure([heads, *([head] for head in heads)], "zero", END)
    joint = [float(lost.mean()) for lost in tools.losses(heads, "zero", END)]
    singles = [[float(lost.mean()) for lost in tools.losses([head], "zero", END)] for head in heads]
    sums = [sum(max(0.0, one[place]) for one in singles) for place in (0, 1)]
    return all(joint[place] - sums[place] <= MIN_EFFECT for place in (0, 1))


def _add_backups(tools: Instruments, groups: Groups, role: str, members: Sequence[Component]) -> None:
    """What each member may be a backup of, and which member may be the primary one."""
    sizes = sorted({1, 2, len(members) - 1} & set(range(1, len(members))))
    others = {head: [one for one in members if one != head] for head in members}
    sets = [[*others[head][:size], *with_it] for head in members for size in sizes for with_it in ((), (head,))]
    tools.measure([*sets, *([head] for head in members)], "zero", END)
    for head in members:
        gains = {size: _gain(tools, head, others[head][:size]) for size in sizes}
        enough = max(MIN_EFFECT, MOST_OF_GAIN * max(gains.values()))
        best = next((size for size in sizes if gains[size] > enough), None)
        if best is not None:
            backup = Backup(role, tuple(sorted(others[head][:best])))
            groups.backups[head] = (*groups.backups.get(head, ()), backup)
    hows: tuple[How, ...] = ("zero", "resample")
    for how in hows:
        if (first := _leader(tools, members, how)) is not None:
            groups.primary[role] = Leader(first, how)
            break


def _leader(tools: Instruments, members: Sequence[Component], how: How) -> Component | None:
    """The member that costs most at the answer position, in right answers where any are lost, if it costs enough; by
    values of other prompts it must be well ahead of the others, for those disturb whatever reads them.
    """
    tools.measure([[head] for head in members], how, END)
    costs = {head: [float(lost.mean()) for lost in tools.losses([head], how, END)] for head in members}
    place = int(any(answers > MIN_EFFECT for _, answers in costs.values()))
    first, second = sorted(members, key=lambda head: -costs[head][place])[:2]
    ahead = how == "zero" or costs[first][place] - costs[second][place] > MIN_EFFECT
    return first if costs[first][place] > MIN_EFFECT and ahead else None


def _gain(tools: Instruments, head: Component, others: Sequence[Component]) -> float:
    """The larger of the gains in score and in right answers lost."""
    ((score, answers),) = tools.backup_gains([head], others, "zero", END)
    return max(float(score.mean()), float(answers.mean()))
