"""The nearest rivals of a hypothesised program: the same program with one change to one variable.

A claim that predicts well is worth little if a similar program predicts as well. Rivals are edits of the program's
document, by kind:

    position     a selection over positions moved by one
    token        one table entry given another result, or a selection moved to the neighbouring token
    comparison   another comparison, a complemented selection, a changed sign
    upstream     another variable read in the place of an operand

`rival_contestants` differ from a claim in where the position comes in, which a moved output shows:

    inside       the value has the position inside: own-position readers see the position it came from
    outside      (a table that is claimed to read the position) only its other arguments travel; the position is new
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from vesalius.errors import BadInput
from vesalius.rasp import Program, Select, Variable
from vesalius.rasp.document import expression_names, from_document, to_data, to_document
from vesalius.values import JsonObject

RivalKind = Literal["position", "token", "comparison", "upstream"]
RIVAL_KINDS: tuple[RivalKind, ...] = ("position", "token", "comparison", "upstream")

_OTHER_COMPARISONS = {
    "EQ": ("NEQ", "LEQ", "GEQ"),
    "NEQ": ("EQ", "TRUE"),
    "LT": ("LEQ", "GT"),
    "LEQ": ("LT", "GEQ"),
    "GT": ("GEQ", "LT"),
    "GEQ": ("GT", "LEQ"),
    "TRUE": ("LEQ", "EQ", "NEQ"),
    "FALSE": ("TRUE",),
}
_MAX_ENTRIES = 24  # of one table, drawn at random, one rival each

Document = Entry = JsonObject


@dataclass(frozen=True)
class Rival:
    """A program that differs from a hypothesis in one change, which `label` describes."""

    kind: RivalKind
    label: str
    program: Program


@dataclass(frozen=True)
class _Edit:
    kind: RivalKind
    label: str
    document: Document


def rivals(
    program: Program,
    variables: Sequence[str],
    *,
    seed: int,
    limit: int,
    kinds: Sequence[RivalKind] = RIVAL_KINDS,
) -> list[Rival]:
    """Up to `limit` rivals that differ in one of these variables, taken in turn from each kind in a seeded order."""
    rng = random.Random(f"{seed}/{program.name}/{variables}")
    editor = _Editor(program, rng)
    edits = [edit for name in variables for edit in editor.edits(name)]
    by_kind = {kind: [edit for edit in edits if edit.kind == kind] for kind in kinds}
    for queue in by_kind.values():
        rng.shuffle(queue)
    result: list[Rival] = []
    while len(result) < limit and any(by_kind.values()):
        for queue in by_kind.values():
            rival = _next_valid(queue, variables)
            if rival is not None and len(result) < limit:
                result.append(rival)
    return result


def _next_valid(queue: list[_Edit], variables: Sequence[str]) -> Rival | None:
    """The next edit that compiles (types and domains fit) and still has the variables."""
    while queue:
        edit = queue.pop()
        try:
            program = from_document(edit.document)
        except BadInput:
            continue
        if set(variables) <= {name for placed in program.components for name in placed.variables}:
            return Rival(edit.kind, edit.label, program)
    return None


class _Editor:
    """Makes the edits of one program, variable by variable."""

    def __init__(self, program: Program, rng: random.Random) -> None:
        self.program, self.rng = program, rng
        self.document = to_document(program)
        self.entries: dict[str, Entry] = {entry["name"]: entry for entry in self.document["variables"]}
        self.expressions = {name: node for node, name in expression_names(program).items()}

    def edits(self, name: str) -> Iterator[_Edit]:
        """Every edit of one variable; the head of a count is edited as the count."""
        entry = self.entries.get(name, self.entries.get(name.removesuffix("_head")))
        if entry is None:
            return
        if entry["op"] in ("map", "sequence_map"):
            yield from self._results(entry)
        elif entry["op"] == "linear_sequence_map":
            x, y = entry["factors"]
            for factors in ([x, -y], [-x, y], [y, x]):
                if factors != [x, y]:
                    yield self._with(entry, "comparison", f"{entry['name']} with factors {factors}", factors=factors)
        else:
            yield from self._selections(entry)
        yield from self._operands(entry)

    def _results(self, entry: Entry) -> Iterator[_Edit]:
        name, table = entry["name"], entry["table"]
        results: list[object] = []
        for value in (row[-1] for row in table):
            if value not in results:
                results.append(value)
        for place in self.rng.sample(range(len(table)), min(_MAX_ENTRIES, len(table))):
            *arguments, own = table[place]
            others = [result for result in results if result != own]
            if not others:
                continue
            result = self.rng.choice(others)
            changed = [*table[:place], [*arguments, result], *table[place + 1 :]]
            label = f"{name}({', '.join(map(str, arguments))}) = {result} instead of {own}"
            yield self._with(entry, "token", label, table=changed)
        if entry["op"] == "map" and len(table) > 1:
            shifted = [[*row[:-1], before[-1]] for row, before in zip(table, table[-1:] + table[:-1], strict=True)]
            yield self._with(entry, "token", f"{name} of the neighbouring value", table=shifted)

    def _selections(self, entry: Entry) -> Iterator[_Edit]:
        selection = self.entries[entry["of"][0]]
        selector = self.expressions[selection["name"]]
        assert isinstance(selector, Select)
        for other in _OTHER_COMPARISONS.get(selection.get("comparison", ""), ()):
            label = f"{other} instead of {selection['comparison']}"
            yield self._with_selection(entry, "comparison", label, comparison=other)
        keys, queries = (self.program.value_list(operand) for operand in (selector.keys, selector.queries))
        selected = self.program.tables.selected[selector]
        if "pairs" in selection:
            rest = [[k, q] for i, k in enumerate(keys) for j, q in enumerate(queries) if not selected[i, j]]
            yield self._with_selection(entry, "comparison", "everything it does not select", pairs=_as_lists(rest))
        kind: dict[str, RivalKind] = {"indices": "position", "tokens": "token"}
        for operand, values, along in ((selector.keys, keys, 0), (selector.queries, queries, 1)):
            if operand.kind not in kind:
                continue
            for step in (1, -1):
                pairs = []
                for i, k in enumerate(keys):
                    for j, q in enumerate(queries):
                        at = (i if along == 0 else j) + step
                        inside = 0 <= at < len(values)
                        if inside and (selected[at, j] if along == 0 else selected[i, at]):
                            pairs.append([k, q])
                label = f"{'keys' if along == 0 else 'queries'} moved by {-step} {operand.kind}"
                yield self._with_selection(entry, kind[operand.kind], label, pairs=_as_lists(pairs))

    def _operands(self, entry: Entry) -> Iterator[_Edit]:
        """Another variable instead of each operand, of the variable itself or of its Select."""
        for slot, operand in enumerate(entry["of"]):
            selection = self.entries.get(operand, {})
            if selection.get("op") == "select":
                for inner, current in enumerate(selection["of"]):
                    for other in self._replacements(current, operand, table=None):
                        label = f"{('keys', 'queries')[inner]} {other} instead of {current}"
                        yield self._with_selection(
                            entry, "upstream", label, of=_replace_at(selection["of"], inner, other)
                        )
                continue
            for other in self._replacements(operand, entry["name"], table=entry.get("table"), slot=slot):
                label = f"{entry['name']} of {other} instead of {operand}"
                yield self._with(entry, "upstream", label, of=_replace_at(entry["of"], slot, other))

    def _replacements(self, current: str, reader: str, *, table: list | None, slot: int = 0) -> list[str]:
        """Earlier variables that could be read instead; a table that reads them must cover half of their values."""
        names = []
        for name, node in self.expressions.items():
            if name == reader:
                break
            if name == current or not isinstance(node, Variable):
                continue
            if table is not None:
                covered = {_hashable(row[slot]) for row in table}
                values = self.program.value_list(node)
                if 2 * sum(_hashable(_as_lists(value)) in covered for value in values) < len(values) or not values:
                    continue
            names.append(name)
        return names

    def _with(self, entry: Entry, kind: RivalKind, label: str, **changes: object) -> _Edit:
        changed = {**self.entries, entry["name"]: {**entry, **changes}}
        return _Edit(kind, label, {**self.document, "variables": list(changed.values())})

    def _with_selection(self, entry: Entry, kind: RivalKind, label: str, **changes: object) -> _Edit:
        """The variable with a changed copy of its Select; other readers of the Select keep the old one."""
        selection = {**self.entries[entry["of"][0]], "name": f"selected for {entry['name']}"}
        if "pairs" in changes or "comparison" in changes:
            selection = {key: value for key, value in selection.items() if key not in ("pairs", "comparison")}
        selection |= changes
        variables = []
        for other in self.document["variables"]:
            reads_it = other["name"] == entry["name"]
            variables += (
                [selection, {**entry, "of": _replace_at(entry["of"], 0, selection["name"])}] if reads_it else [other]
            )
        return _Edit(kind, f"{entry['name']}: {label}", {**self.document, "variables": variables})


def _replace_at(names: list[str], place: int, name: str) -> list[str]:
    return [*names[:place], name, *names[place + 1 :]]


def _as_lists(value: object) -> object:
    """A value in the form of a document: tuples as lists."""
    return [_as_lists(part) for part in value] if isinstance(value, tuple | list) else value


def _hashable(value: object) -> object:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value if not isinstance(value, dict) else "inf"


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
    editor = _PositionEditor(program, document["variables"], carried)
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


class _PositionEditor:
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


def _fresh(name: str, taken: JsonObject) -> str:
    while name in taken:
        name += "_"
    return name


def is_of_position(name: str, entries: Mapping[str, Entry]) -> bool:
    """Whether a variable is a function of the position alone."""
    if name == _INDICES:
        return True
    entry = entries.get(name)
    return entry is not None and entry["op"] in OWN_POSITION and all(is_of_position(of, entries) for of in entry["of"])
