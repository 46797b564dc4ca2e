"""A program as plain data: JSON in, JSON out, and no code is ever run.

    {"schema": 1, "name": ..., "description": ..., "vocab": [...], "max_len": 9, "causal": false, "output": 4,
     "nodes": [{"op": "tokens"},
               {"op": "map", "inputs": [0], "name": "is_x", "table": [["x", true], ["a", false]]},
               {"op": "indices"},
               {"op": "select", "inputs": [2, 2], "comparison": "LEQ"},
               {"op": "aggregate", "inputs": [3, 1], "name": "share", "numerical": true}]}

Nodes come in order, inputs before readers, and refer to each other by place. Every function is its look-up table over
the values of its inputs: a missing entry means the node's `otherwise`, or None without one. A Select has a `comparison`
or lists its selected (key, query) `pairs`; a categorical Aggregate may have a `default`. Tuples are written as lists,
infinities as {"number": "inf"}.
"""

from collections.abc import Callable, Sequence
from math import inf, isinf, isnan, prod
from typing import Any

import numpy as np

from vesalius.errors import BadInput, choices
from vesalius.rasp.graph import is_input
from vesalius.rasp.language import (
    Aggregate,
    Comparison,
    Expression,
    LinearSequenceMap,
    Map,
    Select,
    SelectorWidth,
    SequenceMap,
    Value,
    Variable,
    indices,
    tokens,
)
from vesalius.rasp.program import Program, compile_program

SCHEMA = 1
MAX_NODES = 1_000
MAX_DEPTH = 20  # of a tuple within tuples
#: A longer table, most of whose entries have one result, is written without those and with `otherwise`.
LONG_TABLE = 64
_FIELDS = ("schema", "name", "description", "vocab", "max_len", "causal", "output", "nodes")
_OPERANDS = {
    "tokens": 0,
    "indices": 0,
    "map": 1,
    "sequence_map": 2,
    "linear_sequence_map": 2,
    "select": 2,
    "selector_width": 1,
    "aggregate": 2,
}
_NODE_FIELDS = {
    "tokens": (),
    "indices": (),
    "map": ("name", "table", "otherwise"),
    "sequence_map": ("name", "table", "otherwise"),
    "linear_sequence_map": ("name", "factors"),
    "select": ("comparison", "pairs"),
    "selector_width": ("name",),
    "aggregate": ("name", "numerical", "default"),
}


def to_document(program: Program) -> dict[str, Any]:
    """The program as JSON data; `from_document` gives an equal program back."""
    place_of = {node: place for place, node in enumerate(program.expressions)}
    return {
        "schema": SCHEMA,
        "name": program.name,
        "description": program.description,
        "vocab": list(program.vocab),
        "max_len": program.max_len,
        "causal": program.causal,
        "output": place_of[program.output],
        "nodes": [_written(node, program, place_of) for node in program.expressions],
    }


def from_document(document: Any) -> Program:
    """Compile a program from its JSON data; anything malformed is refused in one line that names the place."""
    if not isinstance(document, dict):
        raise BadInput(f"program document is {type(document).__name__}; expected an object with {', '.join(_FIELDS)}")
    _check_fields(document, required=_FIELDS, allowed=_FIELDS, where="program document")
    if document["schema"] != SCHEMA:
        raise BadInput(f"program document: schema {document['schema']!r:.40} is not known; this version reads {SCHEMA}")
    for field in ("name", "description"):
        if not isinstance(document[field], str):
            raise BadInput(f"program document: {field} is {document[field]!r:.40}; expected a string")
    if not isinstance(document["nodes"], list) or not 1 <= len(document["nodes"]) <= MAX_NODES:
        raise BadInput(f"program document: nodes must be a list of 1 to {MAX_NODES} nodes")
    nodes: list[Expression] = []
    for place, entry in enumerate(document["nodes"]):
        try:
            nodes.append(_read(entry, nodes))
        except BadInput as error:
            raise BadInput(f"program document, node {place}: {error}") from error
    output = nodes[_place(document["output"], nodes, "program document: output")]
    try:
        return compile_program(
            output,  # type: ignore[arg-type]
            document["vocab"],
            document["max_len"],
            causal=document["causal"],
            name=document["name"],
            description=document["description"],
        )
    except BadInput as error:
        raise BadInput(f"program document: {error}") from error


def _written(node: Expression, program: Program, place_of: dict[Expression, int]) -> dict[str, Any]:
    if is_input(node):
        return {"op": node.kind}
    entry: dict[str, Any] = {"op": node.kind, "inputs": [place_of[operand] for operand in node.inputs]}
    if isinstance(node, Variable):
        entry["name"] = program.name_of(node)
    if isinstance(node, Map | SequenceMap):
        entry |= _shortened(_table(node, program), program.tables.codes[node])
    elif isinstance(node, LinearSequenceMap):
        entry["factors"] = [node.x_factor, node.y_factor]
    elif isinstance(node, Aggregate):
        entry["numerical"] = node.numerical
        if node.default is not None:
            entry["default"] = _plain(node.default)
    elif isinstance(node, Select) and isinstance(node.predicate, Comparison):
        entry["comparison"] = node.predicate.name
    elif isinstance(node, Select):
        keys, queries = (program.tables.domains[operand].values for operand in (node.keys, node.queries))
        chosen = zip(*program.tables.selected[node].nonzero(), strict=True)
        entry["pairs"] = [[_plain(keys[row]), _plain(queries[column])] for row, column in chosen]
    return entry


def _table(node: Map | SequenceMap, program: Program) -> list[list[Any]]:
    """[argument, ..., result] wherever the result is defined."""
    results, codes = program.tables.domains[node].values, program.tables.codes[node]
    operands = [program.tables.domains[operand].values for operand in node.inputs]  # type: ignore[index]
    return [
        [*(_plain(values[code]) for values, code in zip(operands, place, strict=True)), _plain(results[codes[place]])]
        for place in zip(*(codes < len(results)).nonzero(), strict=True)
    ]


def _shortened(table: list[list[Any]], codes: np.ndarray) -> dict[str, Any]:
    """A table's fields; what most entries of a long one have in common is said once, where none is undefined."""
    complete = len(table) == prod(n - 1 for n in codes.shape)  # the last row and column stand for None
    if len(table) <= LONG_TABLE or not complete:
        return {"table": table}
    results = codes[tuple(slice(-1) for _ in codes.shape)].flatten()
    common = int(np.bincount(results).argmax())
    if 2 * int((results == common).sum()) <= len(table):
        return {"table": table}
    otherwise = next(row[-1] for row, code in zip(table, results.tolist(), strict=True) if code == common)
    rest = [row for row, code in zip(table, results.tolist(), strict=True) if code != common]
    return {"table": rest, "otherwise": otherwise}


def _plain(value: Value) -> Any:
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float) and isinf(value):
        return {"number": "inf" if value > 0 else "-inf"}
    if value is None or isinstance(value, str | int | float):
        return value
    raise BadInput(f"value {value!r:.60} cannot be written as data; use strings, numbers and tuples of them")


def _value(data: Any, depth: int = 0) -> Value:
    if isinstance(data, list):
        if depth >= MAX_DEPTH:
            raise BadInput(f"a value is nested more than {MAX_DEPTH} deep; use flatter tuples")
        return tuple(_value(part, depth + 1) for part in data)
    if isinstance(data, dict):
        if data in ({"number": "inf"}, {"number": "-inf"}):
            return inf if data["number"] == "inf" else -inf
        raise BadInput(f'value {data!r:.60} is not known; an infinity is {{"number": "inf"}}')
    if isinstance(data, float) and isnan(data):
        raise BadInput("a table holds NaN; leave the entry out where the result is undefined")
    if data is None or isinstance(data, str | int | float):
        return data
    raise BadInput(f"value {data!r:.60} is not JSON data")


def _read(entry: Any, nodes: Sequence[Expression]) -> Expression:
    if not isinstance(entry, dict) or not isinstance(entry.get("op"), str) or entry["op"] not in _OPERANDS:
        raise BadInput(f'{entry!r:.60} is not a node; expected {{"op": ...}} with one of {choices(_OPERANDS)}')
    op = entry["op"]
    if not _OPERANDS[op]:
        _check_fields(entry, required=("op",), allowed=("op",), where=op)
        return tokens if op == "tokens" else indices
    _check_fields(entry, required=("op", "inputs"), allowed=("op", "inputs", *_NODE_FIELDS[op]), where=op)
    places = entry["inputs"]
    if not isinstance(places, list) or len(places) != _OPERANDS[op]:
        raise BadInput(f"{op}: inputs is {places!r:.40}; expected a list of {_OPERANDS[op]} earlier nodes")
    operands = [nodes[_place(place, nodes, f"{op}: inputs")] for place in places]
    return _READERS[op](entry, *operands)


def _map(entry: dict[str, Any], x: Any) -> Map:
    # A Map of a Map would be fused into one and the inner variable lost, so that nothing could carry it.
    if isinstance(x, Map):
        raise BadInput(f"map: reads the map {x.name!r}; write one map with the composed table")
    table, otherwise = dict(_rows(entry, "table", 2)), _value(entry.get("otherwise"))
    return Map(lambda value: table.get(value, otherwise), x, name=entry.get("name"))


def _sequence_map(entry: dict[str, Any], x: Any, y: Any) -> SequenceMap:
    table = {(left, right): result for left, right, result in _rows(entry, "table", 3)}
    otherwise = _value(entry.get("otherwise"))
    return SequenceMap(lambda left, right: table.get((left, right), otherwise), x, y, name=entry.get("name"))


def _linear(entry: dict[str, Any], x: Any, y: Any) -> LinearSequenceMap:
    factors = entry.get("factors")
    if not isinstance(factors, list) or len(factors) != 2:
        raise BadInput(f"linear_sequence_map: factors is {factors!r:.40}; expected two numbers")
    return LinearSequenceMap(x, y, x_factor=factors[0], y_factor=factors[1], name=entry.get("name"))


def _select(entry: dict[str, Any], keys: Any, queries: Any) -> Select:
    if ("comparison" in entry) == ("pairs" in entry):
        raise BadInput("select: give either a comparison or the selected pairs")
    if "pairs" in entry:
        pairs = set(_rows(entry, "pairs", 2))
        return Select(keys, queries, lambda key, query: (key, query) in pairs)
    name = entry["comparison"]
    if not isinstance(name, str) or name not in Comparison.__members__:
        raise BadInput(f"select: comparison {name!r:.40} does not exist; use {choices(Comparison.__members__)}")
    return Select(keys, queries, Comparison[name])


_READERS: dict[str, Callable[..., Expression]] = {
    "map": _map,
    "sequence_map": _sequence_map,
    "linear_sequence_map": _linear,
    "select": _select,
    "selector_width": lambda entry, selector: SelectorWidth(selector, name=entry.get("name")),
    "aggregate": lambda entry, selector, values: Aggregate(
        selector,
        values,
        numerical=entry.get("numerical", False),
        default=_value(entry.get("default")),
        name=entry.get("name"),
    ),
}


def _rows(entry: dict[str, Any], field: str, width: int) -> list[tuple[Value, ...]]:
    rows = entry.get(field)
    if not isinstance(rows, list) or not all(isinstance(row, list) and len(row) == width for row in rows):
        raise BadInput(f"{entry['op']}: {field} must be a list of lists of {width}")
    return [tuple(_value(part) for part in row) for row in rows]


def _place(place: Any, nodes: Sequence[Expression], where: str) -> int:
    if isinstance(place, bool) or not isinstance(place, int) or not 0 <= place < len(nodes):
        raise BadInput(f"{where}: {place!r:.40} is no earlier node; {len(nodes)} come before")
    return place


def _check_fields(data: dict[str, Any], *, required: Sequence[str], allowed: Sequence[str], where: str) -> None:
    missing = [field for field in required if field not in data]
    unknown = [field for field in data if field not in allowed]
    if missing or unknown:
        problem = f"lacks {missing[0]!r}" if missing else f"has the unknown field {unknown[0]!r:.40}"
        raise BadInput(f"{where} {problem}; its fields are {', '.join(allowed)}")
