"""Which heads of a circuit stand in for each other, whoever named the circuit.

1. On training prompts, heads that bring the same operand to the last token are candidates of one group: their output
   from a run with another operand moves the answer, by at least half of what the head moves by any operand.
2. On held-out prompts claims decide, with zeros at the last token: the group costs more than the sum of its heads
   (`together`); its heads are mutually redundant, or one is a backup of the stronger ones (docs/decisions/0067).
"""

from collections.abc import Sequence

from vesalius.behaviours.behaviour import TooFewPrompts
from vesalius.components import Component
from vesalius.errors import BadInput
from vesalius.explanations.claims import BackupOf, Redundant, Together, check
from vesalius.explanations.claims.base import join_names
from vesalius.explanations.laboratory import END, NaturalLab
from vesalius.model.specimen import Specimen
from vesalius.statistics import student_interval
from vesalius_bench.study.evidence import BackupGroup

#: A head belongs to the group of an operand that it moves at least this share as far as the one it moves most.
LEAST_SHARE = 0.5
ZERO = "zero"


def backup_groups(specimen: Specimen, components: Sequence[str], *, n: int, seed: int) -> tuple[BackupGroup, ...]:
    """The groups among the heads of a circuit, with what held-out prompts show of them."""
    heads = [part for name in components if (part := Component.parse(name)).is_head]
    if len(heads) < 2:
        return ()
    try:
        first = NaturalLab.draw(specimen, n, seed=seed, split="train")
    except TooFewPrompts as few:
        first = NaturalLab.draw(specimen, max(1, few.n // 2), seed=seed, split="train")
    candidates = {role: group for role, group in _movers(first, heads).items() if len(group) > 1}
    if not candidates:
        return ()
    lab = NaturalLab.draw(specimen, n, seed=seed, split="test", circuit=heads)
    return tuple(_group(lab, role, group) for role, group in candidates.items())


def _movers(lab: NaturalLab, heads: Sequence[Component]) -> dict[str, list[Component]]:
    """The heads that bring each operand to the last token."""
    moved: dict[str, list[float]] = {}
    for role in lab.prompts.roles:
        try:
            shares = [values for _, values in lab.moved_shares([[head] for head in heads], role)]
        except BadInput:  # no answer depends on it
            continue
        clear = [len(one) > 1 and float(student_interval(one[:, None].numpy())[0][0]) > 0 for one in shares]
        moved[role] = [float(one.mean()) if sure else 0.0 for one, sure in zip(shares, clear, strict=True)]
    most = [max((moved[role][place] for role in moved), default=0.0) for place in range(len(heads))]
    return {
        role: [
            head
            for head, own, largest in zip(heads, values, most, strict=True)
            if largest > 0 and own >= LEAST_SHARE * largest
        ]
        for role, values in moved.items()
    }


def _group(lab: NaturalLab, role: str, heads: Sequence[Component]) -> BackupGroup:
    """What the claims say of a group; heads that cost most alone come first."""
    losses = lab.answers([[head] for head in heads], ZERO, END)
    order = sorted(
        range(len(heads)),
        key=lambda i: (float(losses[i].right.float().mean()), float(losses[i].score.mean())),
    )
    names = [str(heads[place]) for place in order]
    first, *rest = names
    joint = check(Together(component=first, others=tuple(rest), replacement=ZERO, at=END), lab).verdict
    redundant = check(Redundant(component=first, others=tuple(rest), replacement=ZERO, at=END), lab).verdict
    if redundant == "supported":
        standing = {
            name: f"mutually redundant with {join_names([other for other in names if other != name])}" for name in names
        }
        return BackupGroup(operand=role, heads=tuple(names), joint=joint, standing=standing)
    standing: dict[str, str] = {}
    for place, name in enumerate(rest, 1):
        stronger = names[:place]
        claim = BackupOf(component=name, of=tuple(stronger), replacement=ZERO, at=END)
        if check(claim, lab).verdict == "supported":
            standing[name] = f"backup of {join_names(stronger)}"
    if standing:
        standing = {first: "primary", **standing}
    elif joint == "supported":
        standing = dict.fromkeys(names, "matters together with the others")
    return BackupGroup(operand=role, heads=tuple(names), joint=joint, standing=standing)
