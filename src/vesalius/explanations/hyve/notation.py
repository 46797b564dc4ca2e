"""Programs as a language model writes them: documents of `rasp` without the fields that the specimen gives.

{"variables": [{"name": "v1", "op": "map", "of": ["tokens"], "formula": "x == 'a'"},
               {"name": "s1", "op": "select", "of": ["indices", "indices"], "comparison": "LEQ"},
               {"name": "v2", "op": "aggregate", "of": ["s1", "v1"], "numerical": true}],
 "output": "v2"}
"""

from typing import Any

from vesalius.errors import BadInput
from vesalius.model.specimen import FiniteVocabulary
from vesalius.rasp import Program
from vesalius.rasp.document import OPERATORS as FIELDS_OF
from vesalius.rasp.document import SCHEMA, from_document, to_document

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


def read_program(given: Any, vocabulary: FiniteVocabulary, *, causal: bool) -> Program:
    """Compile a program about a specimen; anything malformed is refused in one line that names the place.

    Fields that no operator has, such as a comment, are left out: a model pays for every claim that is refused.
    """
    if not isinstance(given, dict) or not isinstance(given.get("variables"), list):
        raise BadInput('program: expected {"variables": [...], "output": NAME}')
    entries = [_known_fields(entry) for entry in given["variables"]]
    if len(entries) > MOST_VARIABLES:
        raise BadInput(f"program: {len(entries)} variables; use at most {MOST_VARIABLES}")
    last = entries[-1].get("name") if entries and isinstance(entries[-1], dict) else None
    specimen = {"vocab": vocabulary.tokens, "max_len": vocabulary.max_len, "causal": causal}
    document = {"variables": entries, "output": given.get("output", last)}
    program = from_document(document, defaults={"schema": SCHEMA, "name": NAME, "description": "", **specimen})
    return from_document(to_document(program))  # formulas as their tables


def _known_fields(entry: Any) -> Any:
    if not isinstance(entry, dict) or entry.get("op") not in list(FIELDS_OF):
        return entry
    return {field: entry[field] for field in ("name", "op", "of", *FIELDS_OF[entry["op"]][1]) if field in entry}
