"""Objects of a given shape from a model that writes text: what to ask, how to read it, how to ask again."""

import json
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from vesalius.backbones.messages import Message, system, user
from vesalius.backbones.repair import objects

Shape = TypeVar("Shape", bound=BaseModel)
#: Enough for a model to find its slip; a page of errors only hides it.
MOST_PROBLEMS = 4


def read_shape(text: str, shape: type[Shape]) -> tuple[Shape | None, tuple[str, ...], str]:
    """The object in a reply with the repairs it took, or None and what is wrong in words for the model."""
    problem = "there is no complete JSON object in it"
    for first, (value, repairs) in enumerate(objects(text)):
        try:
            return shape.model_validate(value), repairs, ""
        except ValidationError as error:
            if first == 0:
                problem = _in_words(error)
    return None, (), problem


def _in_words(error: ValidationError) -> str:
    slips = [f"{'.'.join(map(str, slip['loc'])) or 'object'}: {slip['msg']}" for slip in error.errors()]
    more = f"; and {len(slips) - MOST_PROBLEMS} more" if len(slips) > MOST_PROBLEMS else ""
    return "; ".join(slips[:MOST_PROBLEMS]) + more


def with_instructions(messages: tuple[Message, ...], instructions: str) -> tuple[Message, ...]:
    """The conversation with instructions added to its system message, or with one put before it."""
    if messages and messages[0].role == "system":
        return (system(f"{messages[0].text}\n\n{instructions}"), *messages[1:])
    return (system(instructions), *messages)


def shape_instructions(schema: dict[str, Any]) -> str:
    """How to ask in words for an object of a JSON schema."""
    return (
        "Answer with one JSON object and nothing else. It must match this JSON schema:\n"
        f"{json.dumps(schema, ensure_ascii=False)}"
    )


def asked_again(problem: str) -> Message:
    """The question to ask after a reply that could not be read."""
    return user(f"That reply cannot be used: {problem}. Answer again with only the corrected JSON object.")


def strict_schema(schema: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """The schema with every object closed, and whether it may be asked for strictly: all its properties required."""
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
