"""A program as plain data: JSON in, JSON out, and no code is ever run.

    {"schema": 2, "name": ..., "description": ..., "vocab": [...], "max_len": 9, "causal": false,
     "variables": [{"name": "is_x", "op": "map", "of": ["tokens"], "table": [["x", true], ["a", false]]},
                   {"name": "so_far", "op": "select", "of": ["indices", "indices"], "comparison": "LEQ"},
                   {"name": "share", "op": "aggregate", "of": ["so_far", "is_x"], "numerical": true}],
     "output": "share"}

Variables come in order, inputs before readers, and refer to each other by name; `tokens` and `indices` are always
there. Every function is its look-up table over the values of its inputs, where a missing entry means `otherwise`, or
None without one; a writer may give a `formula` instead, which is read into the table. A select has a `comparison` or
lists its selected (key, query) `pairs`; a categorical aggregate may have a `default`. Tuples are written as lists,
infinities as {"number": "inf"}.
"""

from collections.abc import Callable, Mapping, Sequence
from math import inf, isinf, isnan, prod
from typing import Any

import numpy as np

from vesalius.errors import BadInput, choices
from vesalius.rasp.formula import read_formula
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
from vesalius.rasp.placement import is_input
from vesalius.rasp.program import Program, compile_program
from vesalius.values import JsonObject

SCHEMA = 2
MAX_VARIABLES = 1_000
MAX_DEPTH = 20  # of a tuple within tuples
LARGEST = 2**1000  # of whole numbers; a float holds no much larger one
#: A longer table, most of whose entries have one result, is written without those and with `otherwise`.
LONG_TABLE = 64
FIELDS = ("schema", "name", "description", "vocab", "max_len", "causal", "variables", "output")
#: For every operator what it reads, and the fields it has beside name, op and of.
OPERATORS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "map": (("x",), ("table", "otherwise", "formula")),
    "sequence_map": (("x", "y"), ("table", "otherwise", "formula")),
    "linear_sequence_map": (("x", "y"), ("factors",)),
    "select": (("keys", "queries"), ("comparison", "pairs")),
    "selector_width": (("select",), ()),
    "aggregate": (("select", "values"), ("numerical", "default")),
}


def to_document(program: Program) -> JsonObject:
    """The program as JSON data; `from_document` gives an equal program back."""
    names = expression_names(program)
    return {
        "schema": SCHEMA,
        "name": program.name,
        "description": program.description,
        "vocab": list(program.vocab),
        "max_len": program.max_len,
        "causal": program.causal,
        "variables": [_entry(node, program, names) for node in program.expressions if not is_input(node)],
        "output": names[program.output],
    }


def from_document(document: object, *, defaults: Mapping[str, Any] | None = None) -> Program:
    """Compile a program from its JSON data; anything malformed is refused in one line that names the place.

    `defaults` holds fields that the document may leave out, such as the vocabulary of the specimen it is about.
    """
    if not isinstance(document, dict):
        raise BadInput(f"program document is {type(document).__name__}; expected an object with {', '.join(FIELDS)}")
    document = {**(defaults or {}), **document}
    _check_fields(document, required=FIELDS, allowed=FIELDS, where="program document")
    if document["schema"] != SCHEMA:
        raise BadInput(f"program document: schema {document['schema']!r:.40} is not known; this version reads {SCHEMA}")
    for field in ("name", "description"):
        if not isinstance(document[field], str):
            raise BadInput(f"program document: {field} is {document[field]!r:.40}; expected a string")
    # Every variable and select by name, the two inputs first.
    entries = document["variables"]
    if not isinstance(entries, list) or len(entries) > MAX_VARIABLES:
        raise BadInput(f"program document: variables must be a list of at most {MAX_VARIABLES} variables")
    known: dict[str, Expression] = {tokens.kind: tokens, indices.kind: indices}
    for place, entry in enumerate(entries):
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str) or not name.strip() or name in known:
            raise BadInput(f"program document, variable {place}: needs its own name, not {name!r:.40}")
        try:
            known[name] = _expression(entry, known)
        except BadInput as error:
            raise BadInput(f"program document, variable {name!r:.40}: {error}") from error
    output = known.get(document["output"]) if isinstance(document["output"], str) else None
    if not isinstance(output, Variable):
        shown = f"output {document['output']!r:.40}"
        raise BadInput(f"program document: {shown} is not a variable; it has {choices(known)}")
    try:
        return compile_program(
            output,
            document["vocab"],
            document["max_len"],
            causal=document["causal"],
            name=document["name"],
            description=document["description"],
        )
    except BadInput as error:
        raise BadInput(f"program document: {error}") from error


def expression_names(program: Program) -> dict[Expression, str]:
    """The name of every variable and, made up, of every Select (select_1, select_2, ...), inputs before readers."""
    names: dict[Expression, str] = {
        node: program.name_of(node) for node in program.expressions if isinstance(node, Variable)
    }
    taken, number = set(names.values()), 0
    for node in program.expressions:
        while node not in names:
            number += 1
            if (name := f"{node.kind}_{number}") not in taken:
                names[node] = name
    return {node: names[node] for node in program.expressions}


def _entry(node: Expression, program: Program, names: Mapping[Expression, str]) -> JsonObject:
    entry: JsonObject = {"name": names[node], "op": node.kind, "of": [names[operand] for operand in node.inputs]}
    if isinstance(node, Map | SequenceMap):
        entry |= _shortened(_table(node, program), program.tables.codes[node])
    elif isinstance(node, LinearSequenceMap):
        entry["factors"] = [node.x_factor, node.y_factor]
    elif isinstance(node, Aggregate):
        entry["numerical"] = node.numerical
        if node.default is not None:
            entry["default"] = to_data(node.default)
    elif isinstance(node, Select) and isinstance(node.predicate, Comparison):
        entry["comparison"] = node.predicate.name
    elif isinstance(node, Select):
        keys, queries = (program.tables.domains[operand].values for operand in (node.keys, node.queries))
        selected = zip(*program.tables.selected[node].nonzero(), strict=True)
        entry["pairs"] = [[to_data(keys[row]), to_data(queries[column])] for row, column in selected]
    return entry


def _table(node: Map | SequenceMap, program: Program) -> list[list[Any]]:
    """[argument, ..., result] wherever the result is defined."""
    results, codes = program.tables.domains[node].values, program.tables.codes[node]
    operands = [program.tables.domains[operand].values for operand in node.inputs]  # type: ignore[index]
    return [
        [
            *(to_data(values[code]) for values, code in zip(operands, place, strict=True)),
            to_data(results[codes[place]]),
        ]
        for place in zip(*(codes < len(results)).nonzero(), strict=True)
    ]


def _shortened(table: list[list[object]], codes: np.ndarray) -> JsonObject:
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


def to_data(value: Value) -> Any:
    """A value as JSON data."""
    if isinstance(value, tuple):
        return [to_data(part) for part in value]
    if isinstance(value, float) and isinf(value):
        return {"number": "inf" if value > 0 else "-inf"}
    if value is None or isinstance(value, str | int | float):
        return value
    raise BadInput(f"value {value!r:.60} cannot be written as data; use strings, numbers and tuples of them")


def from_data(data: object, depth: int = 0) -> Value:
    """A value from JSON data."""
    if isinstance(data, list):
        if depth >= MAX_DEPTH:
            raise BadInput(f"a value is nested more than {MAX_DEPTH} deep; use flatter tuples")
        return tuple(from_data(part, depth + 1) for part in data)
    if isinstance(data, dict):
        if data in ({"number": "inf"}, {"number": "-inf"}):
            return inf if data["number"] == "inf" else -inf
        raise BadInput(f'value {data!r:.60} is not known; an infinity is {{"number": "inf"}}')
    if isinstance(data, float) and isnan(data):
        raise BadInput("a table holds NaN; leave the entry out where the result is undefined")
    if isinstance(data, int) and abs(data) > LARGEST:
        raise BadInput(f"the number {data:.3g} is too large" if abs(data) < 10**308 else "a number is too large")
    if data is None or isinstance(data, str | int | float):
        return data
    raise BadInput(f"value {data!r:.60} is not JSON data")


def _expression(entry: JsonObject, known: Mapping[str, Expression]) -> Expression:
    op = entry.get("op")
    if not isinstance(op, str) or op not in OPERATORS:
        raise BadInput(f"op {op!r:.40} does not exist; use {choices(OPERATORS)}")
    reads, fields = OPERATORS[op]
    _check_fields(entry, required=("name", "op", "of"), allowed=("name", "op", "of", *fields), where=op)
    of = [entry["of"]] if isinstance(entry["of"], str) else entry["of"]
    if not isinstance(of, list) or len(of) != len(reads):
        raise BadInput(f'"of" is {of!r:.40}; {op} reads {len(reads)}: {", ".join(reads)}')
    for operand in of:
        if not isinstance(operand, str) or operand not in known:
            raise BadInput(f"{operand!r:.40} is not defined before it; there is {choices(known)}")
    return _READERS[op](entry, *(known[operand] for operand in of))


def _map(entry: JsonObject, x: Variable) -> Map:
    # A Map of a Map would be fused into one and the inner variable lost, so that nothing could carry it.
    if isinstance(x, Map):
        raise BadInput(f"reads the map {x.name!r}; write one map with the composed table")
    function, otherwise = _function(entry)
    return Map(function, x, otherwise=otherwise, name=entry["name"])


def _sequence_map(entry: JsonObject, x: Variable, y: Variable) -> SequenceMap:
    function, otherwise = _function(entry)
    return SequenceMap(function, x, y, otherwise=otherwise, name=entry["name"])


def _function(entry: JsonObject) -> tuple[Any, Value]:
    """The table, or the function of the formula, and what other arguments give."""
    if ("formula" in entry) == ("table" in entry):
        raise BadInput('give either a "formula" or a "table"')
    arguments = OPERATORS[entry["op"]][0]
    if "formula" in entry:
        if "otherwise" in entry:
            raise BadInput('"otherwise" goes with a "table"; a formula gives every result')
        return read_formula(entry["formula"], arguments), None
    rows = entry["table"]
    if isinstance(rows, dict) and len(arguments) == 1:  # a table over texts
        rows = [[argument, result] for argument, result in rows.items()]
    table = {row[:-1]: row[-1] for row in _rows(rows, len(arguments) + 1, "table")}
    if len(arguments) == 1:
        table = {argument: result for (argument,), result in table.items()}
    return table, from_data(entry.get("otherwise"))


def _linear(entry: JsonObject, x: Variable, y: Variable) -> LinearSequenceMap:
    factors = entry.get("factors")
    if not isinstance(factors, list) or len(factors) != 2:
        raise BadInput(f'"factors" is {factors!r:.40}; expected two numbers')
    x_factor, y_factor = map(from_data, factors)
    return LinearSequenceMap(x, y, x_factor=x_factor, y_factor=y_factor, name=entry["name"])


def _select(entry: JsonObject, keys: Variable, queries: Variable) -> Select:
    if ("comparison" in entry) == ("pairs" in entry):
        raise BadInput('give either a "comparison" or the selected "pairs"')
    if "pairs" in entry:
        return Select(keys, queries, _rows(entry["pairs"], 2, "pairs"))  # type: ignore[arg-type]
    name = entry["comparison"].upper() if isinstance(entry["comparison"], str) else ""
    if name not in Comparison.__members__:
        shown = f"comparison {entry['comparison']!r:.40}"
        raise BadInput(f"{shown} does not exist; use {choices(Comparison.__members__)}")
    return Select(keys, queries, Comparison[name])


def _aggregate(entry: JsonObject, selector: Select, values: Variable) -> Aggregate:
    numerical, default = entry.get("numerical", False), from_data(entry.get("default"))
    # The mean of nothing is 0 whatever is asked for; a default of 0 says no more than that.
    default = None if numerical is True and default == 0 else default
    return Aggregate(selector, values, numerical=numerical, default=default, name=entry["name"])


_READERS: dict[str, Callable[..., Expression]] = {
    "map": _map,
    "sequence_map": _sequence_map,
    "linear_sequence_map": _linear,
    "select": _select,
    "selector_width": lambda entry, selector: SelectorWidth(selector, name=entry["name"]),
    "aggregate": _aggregate,
}


def _rows(rows: object, width: int, field: str) -> list[tuple[Value, ...]]:
    if not isinstance(rows, list) or not all(isinstance(row, list) and len(row) == width for row in rows):
        raise BadInput(f'"{field}" must be a list of lists of {width}')
    return [tuple(from_data(part) for part in row) for row in rows]


def _check_fields(data: JsonObject, *, required: Sequence[str], allowed: Sequence[str], where: str) -> None:
    missing = [field for field in required if field not in data]
    unknown = [field for field in data if field not in allowed]
    if missing or unknown:
        problem = f"lacks {missing[0]!r}" if missing else f"has the unknown field {unknown[0]!r:.40}"
        raise BadInput(f"{where} {problem}; its fields are {', '.join(allowed)}")
