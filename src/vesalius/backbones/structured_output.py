"""Objects of a given schema from a model that writes text: what to ask, how to read it, how to ask again."""

import json
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from vesalius.backbones.json_repair import objects
from vesalius.backbones.messages import Message, system, user

Schema = TypeVar("Schema", bound=BaseModel)
#: How many validation errors are reported to the model; a long list hides the important ones.
MAX_PROBLEMS = 4
#: Characters that a text may always have, and the longest limit that a grammar is made for.
SHORTEST_TEXT, LONGEST_BOUND = 40, 800


def parse_object(text: str, schema: type[Schema]) -> tuple[Schema | None, tuple[str, ...], str]:
    """The object in a reply with the repairs it took, or None and a description of the problem for the model."""
    problem = "there is no complete JSON object in it"
    for first, (value, repairs) in enumerate(objects(text)):
        try:
            return schema.model_validate(value), repairs, ""
        except ValidationError as error:
            if first == 0:
                problem = _describe(error)
    return None, (), problem


def _describe(error: ValidationError) -> str:
    problems = [f"{'.'.join(map(str, item['loc'])) or 'object'}: {item['msg']}" for item in error.errors()]
    more = f"; and {len(problems) - MAX_PROBLEMS} more" if len(problems) > MAX_PROBLEMS else ""
    return "; ".join(problems[:MAX_PROBLEMS]) + more


def with_instructions(messages: tuple[Message, ...], instructions: str) -> tuple[Message, ...]:
    """The conversation with instructions added to its system message, or with one put before it."""
    if messages and messages[0].role == "system":
        return (system(f"{messages[0].text}\n\n{instructions}"), *messages[1:])
    return (system(instructions), *messages)


def schema_instructions(schema: dict[str, Any]) -> str:
    """Instructions for an object of a JSON schema, as text."""
    return (
        "Answer with one JSON object and nothing else. It must match this JSON schema:\n"
        f"{json.dumps(schema, ensure_ascii=False)}"
    )


def reask(problem: str) -> Message:
    """The message after a reply that could not be parsed."""
    return user(f"That reply cannot be used: {problem}. Answer again with only the corrected JSON object.")


def strict_schema(schema: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """The schema with every object closed, and whether strict mode accepts it: all properties are required."""
    strict = True

    def close(part: Any) -> Any:
        nonlocal strict
        if isinstance(part, list):
            return [close(item) for item in part]
        if not isinstance(part, dict):
            return part
        closed = {name: close(value) for name, value in part.items()}
        if isinstance(part.get("properties"), dict) and part.get("type") == "object":
            strict = strict and set(part["properties"]) == set(part.get("required", ()))
            closed.setdefault("additionalProperties", False)
        elif part.get("type") == "object":
            strict = False
        return closed

    return close(schema), strict


def bounded_schema(schema: dict[str, Any], max_tokens: int) -> dict[str, Any]:
    """The schema with texts short enough that an object of it fits a reply, for servers that sample by schema.

    Such a server ends a text where the schema does; without that a small model fills the whole reply with one text.
    Every text may have its share of two characters per token; limits that are too long for a grammar are left out.
    """
    longest = 2 * max_tokens // max(1, _texts(schema, schema.get("$defs", {})))
    return _bounded(schema, max(SHORTEST_TEXT, longest))


def _texts(part: Any, definitions: dict[str, Any]) -> int:
    """How many texts of free length an object of a schema holds; of alternatives, the most."""
    if not isinstance(part, dict):
        return 0
    if isinstance(part.get("$ref"), str):
        return _texts(definitions.get(part["$ref"].rpartition("/")[2]), {})
    alternatives = [_texts(one, definitions) for name in ("anyOf", "oneOf") for one in part.get(name, ())]
    inside = sum(_texts(one, definitions) for one in part.get("properties", {}).values())
    return max(alternatives, default=0) + inside + _is_text(part)


def _is_text(part: dict[str, Any]) -> bool:
    return part.get("type") == "string" and not {"enum", "const", "pattern"} & part.keys()


def _bounded(part: Any, longest: int) -> Any:
    if isinstance(part, list):
        return [_bounded(one, longest) for one in part]
    if not isinstance(part, dict):
        return part
    bounded = {name: _bounded(value, longest) for name, value in part.items()}
    if _is_text(part):
        most = min(part.get("maxLength", longest), longest)
        bounded = {name: value for name, value in bounded.items() if name != "maxLength"}
        bounded |= {"maxLength": most} if most <= LONGEST_BOUND else {}
    return bounded
