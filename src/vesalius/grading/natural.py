"""Supported claims about a natural model against established roles, where there are some: the arithmetic model's.

Interventions on sets of heads established which heads move which operand, and how much moves with each group. A claim
is decided where these figures decide it:

- `moves_role`, `primary` and `backs_up` say that a head moves an operand: false where no group that the head belongs to
  switches any answer with that operand;
- `necessary` says that a component is needed: false for the heads whose whole group can be zeroed without loss.

Other claims are left open.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from vesalius.circuits.key.arithmetic import established_roles
from vesalius.documents.explanation import ClaimRecord
from vesalius.model.arithmetic import NAME as ARITHMETIC

MOVES = ("moves_role", "primary", "backs_up")
#: The groups by operand, as the key names them, and the heads that nothing needs.
OPERANDS, UNNEEDED = ("A", "B", "C"), "none"


@dataclass(frozen=True)
class Decided:
    """How many claims the established roles decide, and the texts of those they contradict."""

    n: int
    false: tuple[str, ...]


def false_claims(model: str, supported: Iterable[tuple[str, ClaimRecord]]) -> Decided | None:
    """Supported claims, each with its component, against the roles of a model; None where none are established."""
    if model != ARITHMETIC:
        return None
    groups = established_roles()["groups"]
    verdicts = [(record.text, _holds(groups, part, record)) for part, record in supported]
    known = [(text, holds) for text, holds in verdicts if holds is not None]
    return Decided(len(known), tuple(text for text, holds in known if not holds))


def _holds(groups: Mapping[str, Any], component: str, record: ClaimRecord) -> bool | None:
    own = [groups[name] for name in (*OPERANDS, UNNEEDED) if component in groups[name]["members"]]
    if not own:
        return None  # an MLP, of which no group was established
    if record.kind == "necessary":
        return False if component in groups[UNNEEDED]["members"] else None
    operand = str((record.prediction or {}).get("role", "")).rpartition(" ")[2]
    if record.kind not in MOVES or operand not in OPERANDS:
        return None
    return any(group["switch rate"][operand] > 0 for group in own)
