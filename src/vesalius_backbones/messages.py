"""Messages to a model and its replies, independent of any provider's library.

A caller writes `Message`s and reads a `Reply`. Below that, one exchange with a provider is a `ModelRequest` and an
`Answer`: data that can be hashed, recorded and served again. `langchain_connection` converts them to and from
langchain's types.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vesalius.errors import BadInput
from vesalius.files import parse_json
from vesalius_backbones.untrusted_text import objects

Role = Literal["system", "user", "assistant", "tool"]
Finish = Literal["stop", "length", "tools", "refused"]
Parsed = TypeVar("Parsed", bound=BaseModel)


class FrozenModel(BaseModel):
    """Immutable data; an unknown field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ToolCall(FrozenModel):
    """A model's request to call a tool. `error` says why it cannot be carried out (else None)."""

    id: str
    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    error: str | None = None


class Message(FrozenModel):
    """One turn. `extras` holds what a provider needs back unchanged with its own turns (signatures of thoughts)."""

    role: Role
    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    extras: dict[str, Any] = Field(default_factory=dict)


def system(text: str) -> Message:
    """The system prompt."""
    return Message(role="system", text=text)


def user(text: str) -> Message:
    """A user's turn."""
    return Message(role="user", text=text)


def assistant(text: str, tool_calls: Iterable[ToolCall] = ()) -> Message:
    """An earlier turn of the model."""
    return Message(role="assistant", text=text, tool_calls=tuple(tool_calls))


def tool_result(call: ToolCall, text: str) -> Message:
    """A tool's result, or why it was not called."""
    return Message(role="tool", text=text, tool_call_id=call.id)


class Tool(BaseModel):
    """A tool the model may call; its arguments are a pydantic model, which is also how they are checked.

    `guide` is a narrower JSON schema of the arguments, for servers that hold a reply to one.
    """

    model_config = ConfigDict(frozen=True)

    name: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_-]{0,63}$")
    description: str
    arguments: type[BaseModel]
    guide: dict[str, Any] | None = None

    def specification(self) -> dict[str, Any]:
        """The tool as data: name, description and the JSON schema of the arguments."""
        parameters = self.arguments.model_json_schema()
        return {"name": self.name, "description": self.description, "parameters": parameters}

    def guided(self) -> dict[str, Any]:
        """The same, with the narrower schema where there is one."""
        told = self.specification()
        return told if self.guide is None else {**told, "parameters": self.guide}


class TokenUsage(FrozenModel):
    """Tokens of one or more calls; `cached` is the part of `input` that came from the provider's cache."""

    input: int = Field(ge=0)
    output: int = Field(ge=0)
    cached: int = Field(default=0, ge=0)

    def __add__(self, other: "TokenUsage") -> "TokenUsage":
        return TokenUsage(
            input=self.input + other.input, output=self.output + other.output, cached=self.cached + other.cached
        )


class Event(FrozenModel):
    """Something that happened on the way to a reply: a retry, a repair, a re-ask."""

    kind: str
    detail: str = ""


class CallSettings(FrozenModel):
    """Sampling settings; None leaves the provider's default."""

    temperature: float | None = 0.0
    max_tokens: int = Field(default=4096, gt=0)
    stop: tuple[str, ...] = ()


class ModelRequest(FrozenModel):
    """One exchange: everything that can change the answer, and a label that cannot."""

    provider: str
    model: str
    settings: CallSettings
    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...] = ()
    answer_schema: dict[str, Any] | None = None
    top_logprobs: int | None = None
    scope: str = ""
    repetition: int = 0
    label: str = Field(default="", exclude=True)

    def features(self) -> set[str]:
        """The parts of this request that some servers reject and that can be done without."""
        features = {
            "tools": self.tools,
            "schema": self.answer_schema,
            "stop": self.settings.stop,
            "temperature": self.settings.temperature is not None,
        }
        return {name for name, present in features.items() if present}


class TokenOptions(FrozenModel):
    """One generated token with the log-probabilities of the likeliest tokens at its place."""

    token: str
    options: tuple[tuple[str, float], ...]


class Answer(FrozenModel):
    """What a provider returned to a request, before it is interpreted."""

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    usage: TokenUsage | None = None
    finish: Finish = "stop"
    extras: dict[str, Any] = Field(default_factory=dict)
    logprobs: tuple[TokenOptions, ...] | None = None


class Reply(BaseModel, Generic[Parsed]):
    """What `Backbone.chat` returns.

    `parsed` is the object requested with `schema`. `usage` and `cost` sum over every call that was needed; `cost` is
    None where a price or a token count is not known. `attempts` counts calls, `events` says what else happened.
    `replayed` is True if every call was served from the record, so that nothing was paid now.
    """

    model_config = ConfigDict(frozen=True)

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    parsed: Parsed | None = None
    usage: TokenUsage | None = None
    cost: float | None = None
    attempts: int = 0
    events: tuple[Event, ...] = ()
    finish: Finish = "stop"
    replayed: bool = False
    extras: dict[str, Any] = Field(default_factory=dict)

    def message(self) -> Message:
        """This reply as the assistant's turn, to continue the conversation."""
        return Message(role="assistant", text=self.text, tool_calls=self.tool_calls, extras=self.extras)

    def count(self, kind: str) -> int:
        """How many events of a kind happened."""
        return sum(event.kind == kind for event in self.events)


# What a backbone needs from a provider: answers to requests, one at a time.


@dataclass(frozen=True)
class Abilities:
    """What a model supports natively. Tools and schemas are otherwise written as text; log-probabilities are not
    available. `constrained` says that the server samples only what a schema allows, so tool calls that are written as
    text are held to their schema too.
    """

    tools: bool = True
    schema: bool = True
    logprobs: bool = False
    constrained: bool = False

    def unsupported(self) -> set[str]:
        """The features of a request that must be written as text from the start."""
        return {name for name, can in (("tools", self.tools), ("schema", self.schema)) if not can}


class Connection(Protocol):
    """Answers requests, or raises a `BackboneError`."""

    def complete(self, request: ModelRequest) -> Answer: ...

    def close(self) -> None: ...


# Objects of a given schema from a model that writes text: what to ask, how to read it, how to ask again.

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


# What a call costs, from a dated table that the user can override.
#
# The table names its date and where each price was read. A model that is not in it has no price: its cost is None and
# is never counted as zero. An entry `provider:*` holds for every model of a provider that is not listed.

MILLION = 1_000_000
#: A dated snapshot costs what its model costs: gpt-5.4-2026-03-05 is gpt-5.4.
SNAPSHOT = re.compile(r"-\d{4}-?\d{2}-?\d{2}$")
EXAMPLE = '{"schema": 1, "date": "2026-11-01", "models": {"openai:NAME": {"input": 2.5, "output": 15.0}}}'


class LongPrompt(BaseModel):
    """The price of a whole call whose prompt has more than `above` tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    above: int = Field(gt=0)
    input: float = Field(ge=0, allow_inf_nan=False)
    output: float = Field(ge=0, allow_inf_nan=False)


class Price(BaseModel):
    """US dollars per million tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    input: float = Field(ge=0, allow_inf_nan=False)
    output: float = Field(ge=0, allow_inf_nan=False)
    cached_input: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    long: LongPrompt | None = None
    source: str = ""

    def cost(self, usage: TokenUsage) -> float:
        """What these tokens cost. Tokens from the provider's cache count in full unless their price is known."""
        if self.long and usage.input > self.long.above:
            return (usage.input * self.long.input + usage.output * self.long.output) / MILLION
        cached = min(usage.cached, usage.input) if self.cached_input is not None else 0
        fresh = usage.input - cached
        return (fresh * self.input + cached * (self.cached_input or 0.0) + usage.output * self.output) / MILLION


class Prices(BaseModel):
    """A dated price table."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: int = Field(default=1, alias="schema")
    date: str = Field(pattern=r"^\d{4}-\d{2}-\d{2}$")
    unit: str = "US dollars per million tokens"
    models: dict[str, Price]

    @classmethod
    def load(cls, override: Path | str | None = None) -> "Prices":
        """The table of this package; entries of the user's file replace it or are added."""
        shipped = cls.model_validate_json(
            resources.files("vesalius_backbones").joinpath("prices.json").read_text("utf-8")
        )
        if override is None:
            return shipped
        try:
            table = cls.model_validate(parse_json(Path(override).read_bytes(), source=f"prices {override}"))
        except BadInput as error:
            raise BadInput(f"{error}: not a price table; an example is {EXAMPLE}") from None
        except OSError as error:
            raise BadInput(f"prices {override}: could not be read ({error.strerror})") from None
        except ValidationError as error:
            problem = str(error).splitlines()[0]
            raise BadInput(f"prices {override}: not a price table ({problem}); an example is {EXAMPLE}") from None
        return cls(schema=1, date=table.date, models=shipped.models | table.models)

    def of(self, provider: str, model: str) -> Price | None:
        """The price of a model, or None if it is not known."""
        names = [f"{provider}:{model}", f"{provider}:{SNAPSHOT.sub('', model)}", f"{provider}:*"]
        return next((self.models[name] for name in names if name in self.models), None)
