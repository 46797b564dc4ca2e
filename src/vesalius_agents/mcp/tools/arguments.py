"""Types of arguments that several tools share."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field


def _as_text(given: Any) -> Any:
    """A specimen by its number, as other faces take it: 3 is "3"."""
    return str(given) if isinstance(given, int) and not isinstance(given, bool) else given


SpecimenName = Annotated[str, BeforeValidator(_as_text), Field(description="Name or id from list_specimens, or a path")]
BehaviourName = Annotated[str | None, Field(description="For natural models: ioi, induction, ... or a file")]
#: A list of tokens, or a text.
Prompt = Annotated[list[Any] | str, Field(description="List of tokens, or a text for natural models")]
Prompts = Annotated[int, Field(ge=1, le=512, description="Prompts")]
Seed = Annotated[int, Field(ge=0, le=2**31)]
Components = Annotated[list[str], Field(max_length=64, description="Such as L0H1, L1_MLP")]

MOST_LISTED = 12


def shown(value: float | None) -> str:
    """A figure in a text."""
    return "-" if value is None else f"{value:.3g}"


def cut(text: str, most: int) -> str:
    """A text that a conversation can hold."""
    return text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"
