"""What an interpreter says about a function, and what a grader says about that."""

import math
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, field_validator

from vesalius_functions.box import Box

#: `published` repeats the published benchmark with its faults, for comparison; `fixed` is the default.
Mode = Literal["fixed", "published"]
#: The name under which submitted code defines its function. Without it the last function defined counts, as published.
ENTRY = "f"
#: The published rule for numeric functions: a normalised squared error below this.
SUCCESS = 0.1
#: Integers of more bits are not floats either; such an input or output is only mentioned.
LONGEST_INTEGER = 1000


class Answer(BaseModel):
    """An interpretation: in words, where the function departs from its rule, and as code that can be run.

    `structure` holds the parts that a program can check, under the names of the function's truth (`family`, `noise`,
    `interval`, `operations`, `concepts`, `rule`, `exception`, ...). Built-in interpreters fill it; of a language model
    it holds the interval, where that was given in its structured form. `table` says that the code looks values up and
    names no rule: such an answer may predict, but does not count as understanding.
    """

    model_config = ConfigDict(frozen=True)

    description: str
    domain: str | None = None
    code: str | None = None
    structure: dict[str, Any] = Field(default_factory=dict)
    table: bool = False
    interpreter: str = ""
    queries: int = 0
    rounds: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    #: Outputs that a language model invented instead of asking for them.
    hallucinated: int | None = None

    @field_validator("description", "domain", "code")
    @classmethod
    def _can_be_written(cls, text: str | None) -> str | None:
        return None if text is None else writable(text)


def writable(text: str) -> str:
    """A text that a file can hold: halves of characters, which language models sometimes send, become `?`."""
    return text.encode("utf-8", "replace").decode("utf-8")


def json_value(value: Any) -> Any:
    """A value as JSON holds it: NaN, infinities, complex and endless numbers as texts, tuples as lists."""
    if isinstance(value, dict):
        return {writable(str(name)): json_value(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_value(item) for item in value]
    if isinstance(value, str):
        return writable(value)
    if value is None or isinstance(value, bool) or (isinstance(value, int) and value.bit_length() <= LONGEST_INTEGER):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return f"an integer of {value.bit_length()} bits" if isinstance(value, int) else writable(str(value))


class Grade(BaseModel):
    """How good one answer is: figures by name (None where a figure does not apply), and what a picture needs."""

    model_config = ConfigDict(frozen=True)

    metrics: dict[str, float | None]
    #: Points to draw, e.g. `{"x": [...], "truth": [...], "answer": [...]}`, or examples to list.
    picture: dict[str, Any] = Field(default_factory=dict)
    #: Why code could not be graded, if so.
    fault: str | None = None


class Interpreter(Protocol):
    """An interpreter explains a function from its box alone."""

    def __call__(self, box: Box, *, seed: int) -> Answer: ...
