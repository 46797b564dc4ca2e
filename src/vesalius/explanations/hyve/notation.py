"""A short way to write a RASP program as JSON, for a writer that pays by the token.

    {"variables": [{"name": "v1", "op": "map", "of": ["tokens"], "formula": "x == 'a'"},
                   {"name": "s1", "op": "select", "of": ["indices", "indices"], "comparison": "LEQ"},
                   {"name": "v2", "op": "aggregate", "of": ["s1", "v1"], "numerical": true}],
     "output": "v2"}

Variables refer to each other by name; a function is a formula or a table. Vocabulary, length and direction are those of
the specimen. What comes out is an ordinary program, and its document is what explanations keep.
"""

from collections.abc import Callable
from typing import Any

from vesalius.errors import BadInput, choices
from vesalius.explanations.hyve.formula import bounded, read_formula
from vesalius.model.specimen import FiniteVocabulary
from vesalius.rasp import (
    Aggregate,
    Comparison,
    LinearSequenceMap,
    Map,
    Program,
    Select,
    SelectorWidth,
    SequenceMap,
    compile_program,
    indices,
    tokens,
)
from vesalius.rasp.document import from_document, to_document
from vesalius.rasp.language import Expression

MOST_VARIABLES = 40
NAME = "the hypothesis"
#: Operators with what they read and what else they take; the prompt shows these lines.
OPERATORS = {
    "map": ("one variable", '"formula" of x, or "table": [[value, result], ...] with "otherwise"'),
    "sequence_map": ("two variables", '"formula" of x and y, or "table": [[x, y, result], ...] with "otherwise"'),
    "linear_sequence_map": ("two variables", '"factors": [a, b]; gives the number a*x + b*y'),
    "select": ("keys, queries", '"comparison" of key with query, or "pairs": [[key, query], ...]'),
    "selector_width": ("a select", "nothing; counts the selected positions (a head and an MLP)"),
    "aggregate": ("a select, a variable", '"numerical": true for the mean, else the most frequent; "default"'),
}
_OPERANDS = {name: 1 if name in ("map", "selector_width") else 2 for name in OPERATORS}


def read_program(given: Any, vocabulary: FiniteVocabulary, *, causal: bool) -> Program:
    """Compile a program from the short notation; anything malformed is refused in one line that names the place."""
    if not isinstance(given, dict) or not isinstance(given.get("variables", []), list):
        raise BadInput('program: expected {"variables": [...], "output": NAME}')
    known: dict[str, Expression] = {"tokens": tokens, "indices": indices}
    entries = given.get("variables", [])
    if len(entries) > MOST_VARIABLES:
        raise BadInput(f"program: {len(entries)} variables; use at most {MOST_VARIABLES}")
    for place, entry in enumerate(entries):
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str) or not name.strip() or name in known:
            raise BadInput(f"program, variable {place}: needs a name of its own, not {name!r:.40}")
        try:
            known[name] = _expression(entry, name, known)
        except BadInput as error:
            raise BadInput(f"program, variable {name!r}: {error}") from None
    output = known.get(str(given.get("output", list(known)[-1])))
    if output is None or isinstance(output, Select):
        raise BadInput(f"program: output {given.get('output')!r:.40} is no variable; it has {choices(known)}")
    try:
        program = compile_program(output, vocabulary.tokens, vocabulary.max_len, causal=causal, name=NAME)  # type: ignore[arg-type]
        return from_document(to_document(program))
    except (OverflowError, TypeError) as error:
        raise BadInput(f"program: its values cannot be listed ({error}); use plain texts and numbers") from None


def _expression(entry: dict[str, Any], name: str, known: dict[str, Expression]) -> Expression:
    op = entry.get("op")
    if not isinstance(op, str) or op not in OPERATORS:
        raise BadInput(f"op {op!r:.40} does not exist; use {choices(OPERATORS)}")
    of = entry.get("of", [])
    of = [of] if isinstance(of, str) else of
    if not isinstance(of, list) or len(of) != _OPERANDS[op]:
        raise BadInput(f'"of" names {_OPERANDS[op]} earlier variable(s) for {op} ({OPERATORS[op][0]})')
    for operand in of:
        if not isinstance(operand, str) or operand not in known:
            raise BadInput(f"{operand!r:.40} is not defined before it; there is {choices(known)}")
    return _MAKERS[op](entry, name, *(known[operand] for operand in of))


def _map(entry: dict[str, Any], name: str, x: Any) -> Expression:
    if isinstance(x, Map):
        raise BadInput(f"a map of the map {x.name!r} loses the inner one; write one map of what that reads")
    return Map(_function(entry, ("x",)), x, name=name)


def _function(entry: dict[str, Any], names: tuple[str, ...]) -> Callable[..., Any]:
    if ("formula" in entry) == ("table" in entry):
        raise BadInput('give either a "formula" or a "table"')
    if "formula" in entry:
        return read_formula(entry["formula"], names)
    rows = _rows(entry["table"], len(names) + 1, "table")
    found, otherwise = {row[:-1]: row[-1] for row in rows}, _value(entry.get("otherwise"))
    one: Callable[..., Any] = lambda x: found.get((x,), otherwise)  # noqa: E731
    two: Callable[..., Any] = lambda x, y: found.get((x, y), otherwise)  # noqa: E731
    return one if len(names) == 1 else two


def _linear(entry: dict[str, Any], name: str, x: Any, y: Any) -> Expression:
    factors = entry.get("factors")
    if not isinstance(factors, list) or len(factors) != 2:
        raise BadInput('"factors" must be two numbers')
    return LinearSequenceMap(x, y, x_factor=factors[0], y_factor=factors[1], name=name)


def _select(entry: dict[str, Any], name: str, keys: Any, queries: Any) -> Expression:
    if ("comparison" in entry) == ("pairs" in entry):
        raise BadInput('give either a "comparison" or the selected "pairs"')
    if "pairs" in entry:
        pairs = set(_rows(entry["pairs"], 2, "pairs"))
        return Select(keys, queries, lambda key, query: (key, query) in pairs)
    comparison = str(entry["comparison"]).upper()
    if comparison not in Comparison.__members__:
        raise BadInput(f"comparison {comparison!r:.40} does not exist; use {choices(Comparison.__members__)}")
    return Select(keys, queries, Comparison[comparison])


def _aggregate(entry: dict[str, Any], name: str, selector: Any, values: Any) -> Expression:
    numerical = entry.get("numerical", False)
    if not isinstance(numerical, bool):
        raise BadInput('"numerical" must be true or false')
    # The mean of nothing is 0 whatever is asked for; a default of 0 says no more than that.
    default = None if numerical and entry.get("default") == 0 else _value(entry.get("default"))
    return Aggregate(selector, values, numerical=numerical, default=default, name=name)


_MAKERS: dict[str, Callable[..., Expression]] = {
    "map": _map,
    "sequence_map": lambda entry, name, x, y: SequenceMap(_function(entry, ("x", "y")), x, y, name=name),
    "linear_sequence_map": _linear,
    "select": _select,
    "selector_width": lambda entry, name, selector: SelectorWidth(selector, name=name),
    "aggregate": _aggregate,
}


def _rows(given: Any, width: int, field: str) -> list[tuple[Any, ...]]:
    rows = [[key, value] for key, value in given.items()] if isinstance(given, dict) and width == 2 else given
    if not isinstance(rows, list) or not all(isinstance(row, list) and len(row) == width for row in rows):
        raise BadInput(f'"{field}" must be a list of lists of {width}')
    return [tuple(_value(part) for part in row) for row in rows]


def _value(given: Any) -> Any:
    if given is None or (isinstance(given, str | int | float) and bounded(given) is not None):
        return given
    raise BadInput(f"{given!r:.40} is no value; use short texts, numbers, true, false")


def written(document: dict[str, Any]) -> str:
    """A program's document as lines that people read."""
    names = [node.get("name", node["op"]) for node in document["nodes"]]
    lines = []
    for place, node in enumerate(document["nodes"]):
        read = [names[operand] for operand in node.get("inputs", ())]
        if node["op"] == "select":
            rule = node.get("comparison") or f"{len(node['pairs'])} pairs"
            names[place] = f"select({', '.join(read)}, {rule})"
        elif node["op"] in ("map", "sequence_map"):
            lines.append(f"{names[place]} = {node['op']}({', '.join(read)}): {_table(node)}")
        elif read:
            more = f", factors {node['factors']}" if "factors" in node else ", mean" if node.get("numerical") else ""
            lines.append(f"{names[place]} = {node['op']}({', '.join(read)}{more})")
    return "\n".join([*lines, f"return {names[document['output']]}"])


def _table(node: dict[str, Any], most: int = 12) -> str:
    rows = node["table"]
    shown = [f"{', '.join(map(repr, row[:-1]))} -> {row[-1]!r}" for row in rows[:most]]
    if len(rows) > most:
        shown.append(f"... {len(rows) - most} more")
    if node.get("otherwise") is not None:
        shown.append(f"else {node['otherwise']!r}")
    return "; ".join(shown)
