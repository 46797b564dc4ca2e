"""Programs that differ from a claim in where the position comes in: what a moved output shows if the claim is wrong.

inside   the value has the position inside: own-position readers see the position it came from
outside  (a table that is claimed to read the position) only its other arguments travel; the position is the new one
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vesalius.errors import BadInput
from vesalius.rasp import Program, Variable
from vesalius.rasp.document import from_document, to_data, to_document

Entry = dict[str, Any]

#: Operations that read their operands at their own position.
OWN_POSITION = ("map", "sequence_map", "linear_sequence_map")
_INDICES = "indices"


@dataclass(frozen=True)
class Contestant:
    """A program and the variables of it that a component's output is said to bring along."""

    label: str
    program: Program
    carried: tuple[str, ...]


def rival_contestants(program: Program, carried: tuple[str, ...]) -> list[Contestant]:
    """The rivals of a claim about the position; none where the position plays no part beside the carried variables."""
    document = to_document(program)
    editor = _Editor(program, document["variables"], carried)
    rivals = []
    for label, edited in (("position inside", editor.inside()), ("position outside", editor.outside())):
        if edited is None:
            continue
        variables, names = edited
        try:
            rivals.append(Contestant(label, from_document({**document, "variables": variables}), names))
        except BadInput:  # the edited program has more values than a program may have
            continue
    return rivals


class _Editor:
    """Edits of a program's document that change where the position comes from."""

    def __init__(self, program: Program, entries: list[Entry], carried: tuple[str, ...]) -> None:
        self.program, self.entries = program, entries
        # The head of a count carries the count.
        self.carried = carried
        self.origins = {name.removesuffix("_head") if name.endswith("_head") else name for name in carried} | {*carried}
        self.by_name = {entry["name"]: entry for entry in entries}
        self.values = {program.name_of(node): node for node in program.expressions if isinstance(node, Variable)}

    def inside(self) -> tuple[list[Entry], tuple[str, ...]] | None:
        """Readers at the own position see the position that the value came from."""
        moved = _fresh("moved_position", self.by_name)
        copies: dict[str, Entry] = {}
        below = set(self.origins)
        variables, changed = [], False
        for entry in self.entries:
            if entry["op"] in OWN_POSITION and below & {*entry["of"]}:
                below.add(entry["name"])
                of = [self._from(moved, name, copies, below) for name in entry["of"]]
                changed |= of != entry["of"]
                entry = {**entry, "of": of}
                variables += [copies.pop(name) for name in list(copies)]
            variables.append(entry)
        if not changed:
            return None
        return [self._identity(_INDICES, moved), *variables], (*self.carried, moved)

    def _from(self, moved: str, name: str, copies: dict[str, Entry], below: set[str]) -> str:
        """The name to read instead of `name` when the position is another one."""
        if name == _INDICES:
            return moved
        if name in below or not self._is_of_position(name):
            return name
        copy = _fresh(f"{name} there", {**self.by_name, **copies})
        of = [self._from(moved, operand, copies, below) for operand in self.by_name[name]["of"]]
        copies[copy] = {**self.by_name[name], "name": copy, "of": of}
        return copy

    def _is_of_position(self, name: str) -> bool:
        return is_of_position(name, self.by_name)

    def outside(self) -> tuple[list[Entry], tuple[str, ...]] | None:
        """The other arguments of the carried table travel; the position is that of the place."""
        variables: list[Entry] = []
        names: list[str] = []
        stays: list[str] = []
        for entry in self.entries:
            if entry["name"] in self.carried and self._reads_position(entry["name"], entry["name"]):
                stays.append(entry["name"])
                of = [self._argument(name, entry["name"], variables, names) for name in entry["of"]]
                entry = {**entry, "of": of}
            variables.append(entry)
        if not stays or not names:
            return None
        return variables, (*names, *(name for name in self.carried if name not in stays))

    def _reads_position(self, name: str, table: str) -> bool:
        """Whether a table, or a step towards it (its name begins with the table's), reads the position."""
        entry = self.by_name.get(name)
        if entry is None or entry["op"] not in OWN_POSITION or self._is_of_position(name):
            return False
        return any(
            self._is_of_position(operand) or (operand.startswith(f"{table}_") and self._reads_position(operand, table))
            for operand in entry["of"]
        )

    def _argument(self, name: str, table: str, variables: list[Entry], names: list[str]) -> str:
        """What the table reads instead of `name`: the position of the place, or an argument that travels."""
        if self._is_of_position(name):
            return name
        taken = {**self.by_name, **{entry["name"]: entry for entry in variables}}
        if name.startswith(f"{table}_") and self._reads_position(name, table):
            copy = _fresh(f"{name} here", taken)
            of = [self._argument(operand, table, variables, names) for operand in self.by_name[name]["of"]]
            variables.append({**self.by_name[name], "name": copy, "of": of})
            return copy
        copy = _fresh(f"moved {name}", taken)
        variables.append(self._identity(name, copy))
        names.append(copy)
        return copy

    def _identity(self, name: str, copy: str) -> Entry:
        """A copy of a variable that can be exchanged by itself."""
        node = self.values[name]
        if node.numerical:
            return {"name": copy, "op": "linear_sequence_map", "of": [name, name], "factors": [1.0, 0.0]}
        values = [to_data(value) for value in self.program.value_list(node) if value is not None]
        return {"name": copy, "op": "sequence_map", "of": [name, name], "table": [[v, v, v] for v in values]}


def _fresh(name: str, taken: dict[str, Any]) -> str:
    while name in taken:
        name += "_"
    return name


def is_of_position(name: str, entries: Mapping[str, Entry]) -> bool:
    """Whether a variable is a function of the position alone."""
    if name == _INDICES:
        return True
    entry = entries.get(name)
    return entry is not None and entry["op"] in OWN_POSITION and all(is_of_position(of, entries) for of in entry["of"])
