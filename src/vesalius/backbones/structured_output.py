"""Objects of a given schema from a model that writes text: what to ask, how to read it, how to ask again."""

import json
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from vesalius.backbones.json_repair import objects
from vesalius.backbones.messages import Message, system, user

Schema = TypeVar("Schema", bound=BaseModel)
#: How many validation errors are reported to the model; a long list hides the important ones.
MAX_PROBLEMS = 4


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
