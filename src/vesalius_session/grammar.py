"""Claims as a language model writes them: the grammar it is shown, and how its JSON is read.

The grammar is made from the claim classes themselves, so it cannot drift from what is checked. `hypothesis` is
written flat: a program and its carriers beside each other. Programs are documents of `rasp` without the fields that the
specimen gives:

    {"variables": [{"name": "v1", "op": "map", "of": ["tokens"], "formula": "x == 'a'"},
                   {"name": "s1", "op": "select", "of": ["indices", "indices"], "comparison": "LEQ"},
                   {"name": "v2", "op": "aggregate", "of": ["s1", "v1"], "numerical": true}],
     "output": "v2"}
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from vesalius.components import Component
from vesalius.errors import BadInput, choices
from vesalius.explanations.claims import CIRCUIT_KINDS, Claim, Hypothesis, claim_from
from vesalius.explanations.claims.interchange import Computes
from vesalius.model.specimen import FiniteVocabulary
from vesalius.rasp import Comparison, Program
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


#: The claim that every component carries what `carriers` says; checked as one `computes` each.
CIRCUIT = "circuit"
#: Stands for the program given before.
LAST = "last"
#: A program that holds the two inputs and does nothing, for claims about tokens and positions.
INPUTS_ONLY = {
    "variables": [
        {"name": "here", "op": "select", "of": ["indices", "indices"], "comparison": "EQ"},
        {"name": "itself", "op": "aggregate", "of": ["here", "tokens"]},
    ],
    "output": "itself",
}


#: The kinds that compact prompts describe: what a component does, and that it matters. All others are read as well.
COMPACT_KINDS = {
    name: kind
    for name, kind in CIRCUIT_KINDS.items()
    if name in ("aggregates", "computes", "copies", "depends_only_on", "necessary", "reads_from")
}
_VARIABLE_SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 16},
        "op": {"enum": list(OPERATORS)},
        "of": {"type": "array", "items": {"type": "string", "maxLength": 16}, "minItems": 1, "maxItems": 2},
        "formula": {"type": "string", "maxLength": 80},
        "comparison": {"enum": list(Comparison.__members__)},
        "numerical": {"type": "boolean"},
    },
    "required": ["name", "op", "of"],
}
_PROGRAM_SCHEMA = {
    "anyOf": [
        {"const": LAST},
        {
            "type": "object",
            "properties": {
                "variables": {"type": "array", "items": _VARIABLE_SCHEMA, "minItems": 1, "maxItems": 6},
                "output": {"type": "string", "maxLength": 16},
            },
            "required": ["variables", "output"],
        },
    ]
}
_CARRIERS_FORM = "{COMPONENT: [VARIABLE]}"
_NAMES_SCHEMA = {"type": "array", "items": {"type": "string", "maxLength": 16}, "minItems": 1, "maxItems": 4}


def claims_schema(
    component: str, circuit: Sequence[str], kinds: Mapping[str, type[Claim]] = CIRCUIT_KINDS
) -> dict[str, Any]:
    """The JSON schema of the arguments that put a claim about a component to the engine, for constrained replies.

    It is narrower than what is read: tables are left out, texts are short, and only the circuit carries variables.
    """
    carriers = {"type": "object", "properties": dict.fromkeys(circuit, _NAMES_SCHEMA), "required": [component]}
    claims = [_claim_schema(kind, component, carriers) for kind in kinds.values()]
    return {"type": "object", "properties": {"claim": {"anyOf": claims}}, "required": ["claim"]}


def _claim_schema(kind: type[Claim], component: str, carriers: dict[str, Any]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for name, field in kind.model_fields.items():
        if field.annotation is Hypothesis:
            properties |= {"program": _PROGRAM_SCHEMA, "carriers": carriers}
        elif name == "kind":
            properties[name] = {"const": field.default}
        elif name == "component":
            properties[name] = {"const": component}
        elif name == "carriers":  # who holds what a claim names: optional, and not of the component itself
            properties[name] = {field: value for field, value in carriers.items() if field != "required"}
        else:
            properties[name] = _field_schema(field.annotation)
    required = [
        name
        for name in properties
        if name in ("kind", "component") or name not in kind.model_fields or _is_required(kind, name)
    ]
    return {"type": "object", "properties": properties, "required": required}


def _is_required(kind: type[Claim], name: str) -> bool:
    return kind.model_fields[name].is_required() and name != "program"


def _field_schema(annotation: Any) -> dict[str, Any]:
    given = [one for one in get_args(annotation) if one is not NoneType]
    if get_origin(annotation) in (Union, UnionType) and len(given) == 1:
        return _field_schema(given[0])
    if get_origin(annotation) is Literal:
        return {"enum": list(get_args(annotation))}
    if get_origin(annotation) is tuple:
        return _NAMES_SCHEMA
    if annotation is Program:
        return _PROGRAM_SCHEMA
    return {"type": {bool: "boolean", int: "integer"}.get(annotation, "string")}


def describe_claims(kinds: Mapping[str, type[Claim]] = CIRCUIT_KINDS) -> str:
    """Every kind of claim: what it says, and its JSON form."""
    return "\n".join(f"- {name}: {_first_sentence(kind)}\n  {_form(kind)}" for name, kind in sorted(kinds.items()))


def example_claims(component: str, vocabulary: FiniteVocabulary) -> list[dict[str, Any]]:
    """Well-formed claims in this specimen's own words; they show the form and mean nothing."""
    flag = {"name": "v1", "op": "map", "of": ["tokens"], "table": [[vocabulary.tokens[0], True]], "otherwise": False}
    program = {"variables": [flag], "output": "v1"}
    return [
        {"kind": "necessary", "component": component, "replacement": "resample"},
        {"kind": "depends_only_on", "component": component, "variables": ["tokens"]},
        {"kind": "computes", "component": component, "program": program, "carriers": {component: ["v1"]}},
    ]


def read_claim(given: Any, component: Component, vocabulary: FiniteVocabulary, *, causal: bool) -> Claim:
    """A claim about `component` from a model's JSON; what is wrong is said in one line for the model."""
    if not isinstance(given, dict) or not isinstance(given.get("kind"), str) or given["kind"] not in CIRCUIT_KINDS:
        kind = given.get("kind") if isinstance(given, dict) else given
        raise BadInput(
            f"claim of kind {kind!r:.40} does not exist; the kinds are {choices(sorted([*CIRCUIT_KINDS, CIRCUIT]))}"
        )
    fields, kind = dict(given), CIRCUIT_KINDS[given["kind"]]
    for name in ("offset", "position"):
        if isinstance(fields.get(name), int) and abs(fields[name]) > vocabulary.max_len:
            raise BadInput(f"{name} {fields[name]:.6g} is beyond the longest input, {vocabulary.max_len} tokens")
    fields.setdefault("component", str(component))
    if not isinstance(fields["component"], str) or Component.parse(fields["component"]) != component:
        raise BadInput(
            f"claim is about {fields['component']!r:.40}; in this stage claims are about {component} "
            f"or of the kind {CIRCUIT}"
        )
    if "hypothesis" in kind.model_fields:
        nested = fields.pop("hypothesis", None)
        flat = nested if isinstance(nested, dict) else fields
        program = read_program(flat.get("program"), vocabulary, causal=causal)
        fields["hypothesis"] = {"program": program, "carriers": read_carriers(flat.get("carriers"), program)}
        fields = {name: value for name, value in fields.items() if name not in ("program", "carriers")}
    elif "program" in kind.model_fields:
        program = fields["program"] = read_program(fields.get("program", INPUTS_ONLY), vocabulary, causal=causal)
        if fields.get("carriers") in (None, {}):
            fields.pop("carriers", None)
        else:
            fields["carriers"] = read_carriers(fields["carriers"], program)
        if fields.get("carried"):
            fields["carried"] = read_carriers({str(component): fields["carried"]}, program)[str(component)]
    claim = claim_from(fields, CIRCUIT_KINDS)
    if isinstance(claim, Computes):
        claim.hypothesis.carried_by(str(component))
    return claim


def read_circuit(
    given: dict[str, Any], circuit: Sequence[Component], vocabulary: FiniteVocabulary, *, causal: bool
) -> list[Computes]:
    """A claim about a whole circuit as one claim per component that its carriers name, in the circuit's order."""
    program = read_program(given.get("program"), vocabulary, causal=causal)
    carriers = {
        str(Component.parse(name)): names for name, names in read_carriers(given.get("carriers"), program).items()
    }
    named = [str(component) for component in circuit]
    if strangers := sorted(set(carriers) - set(named)):
        raise BadInput(f"carriers: {strangers[0]} is not in the circuit; its components are {choices(named)}")
    hypothesis = Hypothesis(program=program, carriers=carriers)
    return [Computes(component=name, hypothesis=hypothesis) for name in named if name in carriers]


def read_carriers(given: Any, program: Program) -> dict[str, tuple[str, ...]]:
    """Who carries what, every variable being one that a component of the program writes."""
    if not isinstance(given, dict) or not given:
        raise BadInput('carriers must say which variables each component carries, as in {"L0_MLP": ["v1"]}')
    writable = [name for placed in program.components for name in placed.variables]
    carriers = {}
    for component, names in given.items():
        variable_names = [names] if isinstance(names, str) else names
        if not isinstance(variable_names, list) or not variable_names:
            raise BadInput(f"carriers: {component} must have a list of variables")
        for name in variable_names:
            if name not in writable:
                raise BadInput(
                    f"carriers: {component} is said to carry {name!r:.40}, which no component of the program writes; "
                    f"the program's output must depend on it; written are {choices(writable) or 'none'}"
                )
        carriers[str(component)] = tuple(variable_names)
    return carriers


def _first_sentence(kind: type[Claim]) -> str:
    return " ".join((kind.__doc__ or "").split()).split(". ")[0].rstrip(".") + "."


def _form(kind: type[Claim]) -> str:
    parts = []
    for name, field in kind.model_fields.items():
        if field.annotation is Hypothesis:
            parts += ['"program": PROGRAM', f'"carriers": {_CARRIERS_FORM}']
            continue
        shown = " | ".join(_kinds(field.annotation, name))
        optional = field.default is None or name == "program" or (not field.is_required() and name != "kind")
        parts.append(f'"{name}"{"?" if optional else ""}: {shown}')
    return "{" + ", ".join(parts) + "}"


def _kinds(annotation: Any, name: str) -> Iterator[str]:
    """How the values of a field are written."""
    origin = get_origin(annotation)
    if origin in (Union, UnionType):
        for one in get_args(annotation):
            if one is not NoneType:
                yield from _kinds(one, name)
    elif origin is Literal:
        yield from (json.dumps(value) for value in get_args(annotation))
    elif origin is tuple:
        components = ("components", "of", "suppressed", "others", "over")
        yield f"[{'TOKEN' if name == 'tokens' else 'COMPONENT' if name in components else 'VARIABLE'}, ...]"
    elif origin is dict:
        yield _CARRIERS_FORM
    elif annotation is Program:
        yield "PROGRAM"
    elif annotation is bool:
        yield "true"
    elif annotation is int:
        yield "INTEGER"
    else:
        known = {
            "variable": "VARIABLE",
            "given": "VARIABLE",
            "role": "ROLE",
            "query": "ROLE",
            "to": "ROLE",
            "at": "ROLE",
        }
        yield known.get(name, "COMPONENT")
