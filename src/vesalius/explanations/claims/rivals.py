"""The nearest rivals of a hypothesised program: the same program with one thing about one variable changed.

A claim that predicts well is worth little while a neighbour predicts as well. Rivals are edits of the program's
document, by kind:

    position     a selection over positions moved by one
    token        one table entry given another result, or a selection moved to the neighbouring token
    comparison   another comparison, a complemented selection, a changed sign
    upstream     another variable read in the place of an operand
"""

import copy
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from vesalius.errors import BadInput
from vesalius.rasp import Program, Select, Variable
from vesalius.rasp.document import from_document, to_document

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
_MAX_ENTRIES = 24  # of one table, drawn at random, that are each given another result

Document = dict[str, Any]


@dataclass(frozen=True)
class Rival:
    """A program that differs from a hypothesis in one thing, and what that is."""

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
    """Up to `limit` rivals that differ in one of these variables, kinds taking turns, drawn by the seed."""
    rng = random.Random(f"{seed}/{program.name}/{variables}")
    editor = _Editor(program, rng)
    edits = [edit for name in variables for edit in editor.edits(name)]
    by_kind = {kind: [edit for edit in edits if edit.kind == kind] for kind in kinds}
    for waiting in by_kind.values():
        rng.shuffle(waiting)
    found: list[Rival] = []
    while len(found) < limit and any(by_kind.values()):
        for waiting in by_kind.values():
            rival = _next_sound(waiting, variables)
            if rival is not None and len(found) < limit:
                found.append(rival)
    return found


def _next_sound(waiting: list[_Edit], variables: Sequence[str]) -> Rival | None:
    """The next edit that still is a program, which its types and domains decide, and still has the variables."""
    while waiting:
        edit = waiting.pop()
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
        self.nodes: list[dict[str, Any]] = self.document["nodes"]
        self.places = {node["name"]: place for place, node in enumerate(self.nodes) if "name" in node}

    def edits(self, name: str) -> Iterator[_Edit]:
        """Every edit of one variable; a count's head goes by the name of the count."""
        place = self.places.get(name, self.places.get(name.removesuffix("_head")))
        if place is None:
            return
        op = self.nodes[place]["op"]
        if op in ("map", "sequence_map"):
            yield from self._entries(place)
        elif op == "linear_sequence_map":
            yield from self._factors(place)
        else:
            yield from self._selections(place)
        yield from self._operands(place)

    def _entries(self, place: int) -> Iterator[_Edit]:
        node = self.nodes[place]
        table = node["table"]
        results = _distinct(row[-1] for row in table)
        chosen = self.rng.sample(range(len(table)), min(_MAX_ENTRIES, len(table)))
        for entry in chosen:
            others = [result for result in results if result != table[entry][-1]]
            if not others:
                continue
            result = self.rng.choice(others)
            changed = copy.deepcopy(table)
            changed[entry][-1] = result
            label = f"{node['name']}({', '.join(map(str, table[entry][:-1]))}) = {result} instead of {table[entry][-1]}"
            yield self._with(place, "token", label, table=changed)
        if node["op"] == "map" and len(table) > 1:
            moved = [[*row[:-1], before[-1]] for row, before in zip(table, table[-1:] + table[:-1], strict=True)]
            yield self._with(place, "token", f"{node['name']} of the neighbouring value", table=moved)

    def _factors(self, place: int) -> Iterator[_Edit]:
        node = self.nodes[place]
        x, y = node["factors"]
        for factors in ([x, -y], [-x, y], [y, x]):
            if factors != [x, y]:
                yield self._with(place, "comparison", f"{node['name']} with factors {factors}", factors=factors)

    def _selections(self, place: int) -> Iterator[_Edit]:
        selector_place = self.nodes[place]["inputs"][0]
        selector = self.program.expressions[selector_place]
        assert isinstance(selector, Select)
        entry = self.nodes[selector_place]
        for other in _OTHER_COMPARISONS.get(entry.get("comparison"), ()):
            yield self._selecting(place, "comparison", f"{other} instead of {entry['comparison']}", comparison=other)
        keys, queries = (self.program.value_list(operand) for operand in (selector.keys, selector.queries))
        selected = self.program.tables.selected[selector]
        if "pairs" in entry:
            rest = [[k, q] for i, k in enumerate(keys) for j, q in enumerate(queries) if not selected[i, j]]
            yield self._selecting(place, "comparison", "everything it does not select", pairs=_plain(rest))
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
                yield self._selecting(place, kind[operand.kind], label, pairs=_plain(pairs))

    def _operands(self, place: int) -> Iterator[_Edit]:
        """Another variable in the place of each operand, of the node itself or of its Select."""
        node = self.nodes[place]
        for slot, operand in enumerate(node["inputs"]):
            if self.nodes[operand]["op"] == "select":
                for inner, current in enumerate(self.nodes[operand]["inputs"]):
                    for other in self._replacements(current, operand, table=None):
                        inputs = list(self.nodes[operand]["inputs"])
                        inputs[inner] = other
                        label = f"{('keys', 'queries')[inner]} {self._name(other)} instead of {self._name(current)}"
                        yield self._selecting(place, "upstream", label, inputs=inputs)
                continue
            for other in self._replacements(operand, place, table=node.get("table"), slot=slot):
                inputs = list(node["inputs"])
                inputs[slot] = other
                label = f"{node['name']} of {self._name(other)} instead of {self._name(operand)}"
                yield self._with(place, "upstream", label, inputs=inputs)

    def _replacements(self, current: int, before: int, *, table: list | None, slot: int = 0) -> list[int]:
        """Earlier variables that could be read instead; where a table reads them, it must know half of their values."""
        found = []
        for place in range(before):
            variable = self.program.expressions[place]
            if place == current or not isinstance(variable, Variable):
                continue
            if table is not None:
                known = {_hashable(row[slot]) for row in table}
                values = self.program.value_list(variable)
                if 2 * sum(_hashable(_plain(value)) in known for value in values) < len(values) or not values:
                    continue
            found.append(place)
        return found

    def _with(self, place: int, kind: RivalKind, label: str, **changes: Any) -> _Edit:
        document = {**self.document, "nodes": copy.copy(self.nodes)}
        document["nodes"][place] = {**self.nodes[place], **changes}
        return _Edit(kind, label, document)

    def _selecting(self, place: int, kind: RivalKind, label: str, **changes: Any) -> _Edit:
        """The variable at `place` with a changed selection of its own; other readers of its Select keep the old one."""
        selector = dict(self.nodes[self.nodes[place]["inputs"][0]])
        if "pairs" in changes or "comparison" in changes:
            selector = {key: value for key, value in selector.items() if key not in ("pairs", "comparison")}
        nodes = copy.deepcopy(self.nodes)
        for node in nodes:
            node["inputs"] = [operand + (operand >= place) for operand in node.get("inputs", [])]
        nodes.insert(place, {**selector, **changes})
        nodes[place + 1]["inputs"][0] = place
        nodes = [node if node["op"] not in ("tokens", "indices") else {"op": node["op"]} for node in nodes]
        output = self.document["output"]
        name = self.nodes[place]["name"]
        return _Edit(kind, f"{name}: {label}", {**self.document, "nodes": nodes, "output": output + (output >= place)})

    def _name(self, place: int) -> str:
        return self.nodes[place].get("name", self.nodes[place]["op"])


def _distinct(values: Iterator[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found


def _plain(value: Any) -> Any:
    """Values as a document writes them: tuples as lists."""
    return [_plain(part) for part in value] if isinstance(value, tuple | list) else value


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value if not isinstance(value, dict) else "inf"
