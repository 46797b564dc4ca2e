"""What is known about natural circuits: which components count, what each reads or carries, which stand in for others.

- `arithmetic`: the study of all 4,095 sets of its first twelve heads (`arithmetic.json`). Heads with an operand belong
  to the circuit, and the MLPs; a group holds the heads that bring one operand.
- a stand-in for GPT-2 small: every head and every pair of heads ablated, on each of its tasks (`answer_key/truth.json`
  of its directory). MLPs were not ablated and are not judged. Of each backup it has the partner that counts most, so
  that only heads that act neither alone nor beside another are known to stand in for nobody.

Only grading imports it.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vesalius.circuits.specimens import KEY_FOLDER
from vesalius.errors import BadInput
from vesalius.files import read_json
from vesalius_truth.key.other_keys import established_roles
from vesalius_truth.planted import TRUTH_FILE

#: What claims call the place that a role of a stand-in is named after, where that is not the prompts' own word.
_OTHER_WORDS = {"B": ("induction",), "first A": ("previous",), "S1": ("duplicate",)}
#: The roles of a stand-in, and the place that each attends to.
_PLACES = {
    "induction head": "B",
    "previous-token head": "first A",
    "name mover": "IO",
    "duplicate-token head": "S1",
    "parameter mover": "defined 5",
}
_OPERANDS = ("A", "B", "C")

Pair = frozenset[str]


@dataclass(frozen=True)
class NaturalKey:
    """The answer for one model and behaviour.

    `judged` are the components that something is known about, `members` those that belong to the circuit, `places` what
    a member reads or carries, in all words for it, and `groups` sets of components that stand in for each other.

    A key is silent about what was not looked for: places that are not `sought` (None: all were), partners of components
    that are not `closed` (None: all are; of these every partner is in a group), and, with `pairs_only`, what more than
    two components do together.
    """

    judged: frozenset[str]
    members: frozenset[str]
    places: Mapping[str, frozenset[str]]
    groups: tuple[frozenset[str], ...]
    sought: frozenset[str] | None = None
    closed: frozenset[str] | None = None
    pairs_only: bool = False

    @property
    def pairs(self) -> frozenset[Pair]:
        """All pairs within one group."""
        return frozenset(frozenset(pair) for group in self.groups for pair in itertools.combinations(sorted(group), 2))

    def decides(self, pair: Pair) -> bool:
        """Whether the key says that two components stand in for each other, or that they do not."""
        closed = self.judged if self.closed is None else self.closed
        return pair <= self.judged and (pair in self.pairs or bool(pair & closed))


def arithmetic_key() -> NaturalKey:
    """The answer for `arithmetic` on its own task."""
    roles = established_roles()
    groups = {operand: frozenset(roles["groups"][operand]["members"]) for operand in _OPERANDS}
    heads = frozenset().union(*groups.values())
    mlps = frozenset(name for name in roles["components"] if name.endswith("_MLP"))
    places = {
        head: frozenset(f"operand {operand}" for operand, members in groups.items() if head in members)
        for head in heads
    }
    return NaturalKey(frozenset(roles["components"]), heads | mlps, places, tuple(groups.values()))


def standin_keys(directory: Path) -> dict[str, NaturalKey]:
    """The answers for a stand-in, by task."""
    file = Path(directory) / KEY_FOLDER / TRUTH_FILE
    if not file.is_file():
        raise BadInput(
            f"{directory}: has no answer key; establish it with `python -m vesalius_mechrl.standin truth {directory}`"
        )
    data = read_json(file)
    if not isinstance(data.get("tasks"), dict) or not isinstance(data.get("heads"), list):
        raise BadInput(f"{file}: is not the truth about a stand-in; establish it again")
    return {task: _of_task(one, data["heads"]) for task, one in data["tasks"].items()}


def _of_task(task: Mapping[str, Any], heads: list[str]) -> NaturalKey:
    alone = {head for head, row in task["heads"].items() if row["says"] != "nothing alone"}
    backups = {row["head"] for row in task["backups"]}
    places: dict[str, set[str]] = {}
    sought: set[str] = set()
    for role, members in task["roles"].items():
        words = {_PLACES[role], *_OTHER_WORDS.get(_PLACES[role], ())}
        sought |= words
        for head in members:
            places.setdefault(head, set()).update(words)
    return NaturalKey(
        frozenset(heads),
        frozenset(alone | backups),
        {head: frozenset(words) for head, words in places.items()},
        tuple(frozenset((row["head"], row["of"])) for row in task["backups"]),
        sought=frozenset(sought),
        closed=frozenset(heads) - alone - backups,
        pairs_only=True,
    )
