"""Messages to a model and its replies, independent of any provider's library.

A caller writes `Message`s and reads a `Reply`. Below that, one exchange with a provider is a `ModelRequest` and an
`Answer`: data that can be hashed, recorded and served again. `langchain_connection` converts them to and from
langchain's types.
"""

from collections.abc import Iterable
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

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


class Settings(FrozenModel):
    """Sampling settings; None leaves the provider's default."""

    temperature: float | None = 0.0
    max_tokens: int = Field(default=4096, gt=0)
    stop: tuple[str, ...] = ()


class ModelRequest(FrozenModel):
    """One exchange: everything that can change the answer, and a label that cannot."""

    provider: str
    model: str
    settings: Settings
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
