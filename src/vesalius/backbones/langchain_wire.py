"""The edge where our messages become langchain's and back.

This is the only module that imports langchain's message types; it is imported when a provider is opened, never before.
Chat models are made without retries of their own, because waiting and counting is done above. Provider libraries raise
their own exceptions and, for a malformed answer, whatever their parsing stumbles over; both are classified.
"""

import importlib
import importlib.util
import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from langchain_core.exceptions import LangChainException
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from vesalius.backbones.classify import classify
from vesalius.backbones.failures import Garbled
from vesalius.backbones.messages import Answer, Finish, Message, Request, Settings, TokenOptions, ToolCall, Usage
from vesalius.backbones.repair import Unreadable, read

#: What a library's parser raises when a server answers with something else than it promised.
MISREAD = (ValueError, TypeError, KeyError, AttributeError, IndexError, LangChainException)
LENGTH = {"length", "max_tokens", "model_context_window_exceeded"}
REFUSALS = {"content_filter", "refusal", "safety", "prohibited_content", "blocklist", "recitation", "spii"}

ChatFactory = Callable[[Settings], BaseChatModel]
Options = Callable[[Request], dict[str, Any]]


class LangchainWire:
    """Answers requests with a langchain chat model.

    `make` builds the chat model for given settings; `options` are the provider's keyword arguments for a request
    (schema, log-probabilities); `errors` are the exceptions its library raises.
    """

    def __init__(self, make: ChatFactory, *, options: Options, errors: Iterable[type[BaseException]]) -> None:
        self._make = make
        self._options = options
        self._errors = (*errors, *_transport_errors(), *MISREAD)
        self._chats: dict[Settings, BaseChatModel] = {}

    def complete(self, request: Request) -> Answer:
        """One call to the provider."""
        who = f"{request.provider}:{request.model}"
        chat: Any = self._chat(request.settings)
        if request.tools:
            chat = chat.bind_tools([{"type": "function", "function": tool} for tool in request.tools])
        messages = [to_langchain(message) for message in request.messages]
        options = self._options(request)
        if request.settings.stop:
            options["stop"] = list(request.settings.stop)
        try:
            found = chat.invoke(messages, **options)
        except self._errors as error:
            raise classify(error, who) from error
        if not isinstance(found, AIMessage):
            raise Garbled(f"{who}: the library returned a {type(found).__name__}")
        return from_langchain(found)

    def close(self) -> None:
        """Nothing is held open beyond the library's own connection pool."""
        self._chats.clear()

    def _chat(self, settings: Settings) -> BaseChatModel:
        plain = settings.model_copy(update={"stop": ()})
        if plain not in self._chats:
            self._chats[plain] = self._make(plain)
        return self._chats[plain]


def _transport_errors() -> list[type[BaseException]]:
    """Errors of the two HTTP libraries that the clients stand on; some clients let them through."""
    modules = [importlib.import_module(name) for name in ("httpx", "httpx2") if importlib.util.find_spec(name)]
    return [module.HTTPError for module in modules]


def to_langchain(message: Message) -> BaseMessage:
    """Our message as langchain's."""
    if message.role == "system":
        return SystemMessage(message.text)
    if message.role == "user":
        return HumanMessage(message.text)
    if message.role == "tool":
        return ToolMessage(message.text, tool_call_id=message.tool_call_id or "")
    calls = [{"name": call.name, "args": call.arguments, "id": call.id} for call in message.tool_calls]
    return AIMessage(
        content=message.extras.get("content", message.text),
        tool_calls=calls,  # type: ignore[arg-type]
        additional_kwargs=message.extras.get("additional_kwargs", {}),
    )


def from_langchain(found: AIMessage) -> Answer:
    """Langchain's answer as ours."""
    metadata = found.response_metadata
    return Answer(
        text=str(found.text),
        tool_calls=tuple(_calls(found)),
        usage=_usage(found),
        finish=_finish(found, metadata),
        extras=_extras(found),
        logprobs=_logprobs(metadata.get("logprobs")),
    )


def _calls(found: AIMessage) -> Iterable[ToolCall]:
    for call in found.tool_calls:
        yield ToolCall(id=call["id"] or "", name=call["name"], arguments=call["args"])
    for call in found.invalid_tool_calls:
        try:
            value, _ = read(call["args"] or "{}")
        except Unreadable as problem:
            value, error = {}, f"the arguments are not readable as JSON: {problem}"
        else:
            error = None if isinstance(value, dict) else "the arguments are not a JSON object"
        arguments = value if isinstance(value, dict) else {}
        yield ToolCall(id=call["id"] or "", name=call["name"] or "unknown", arguments=arguments, error=error)


def _usage(found: AIMessage) -> Usage | None:
    counted = found.usage_metadata
    if not counted or not counted["input_tokens"]:
        return None
    cached = counted.get("input_token_details", {}).get("cache_read") or 0
    return Usage(input=counted["input_tokens"], output=counted["output_tokens"], cached=cached)


def _finish(found: AIMessage, metadata: Mapping[str, Any]) -> Finish:
    reason = str(metadata.get("finish_reason") or metadata.get("stop_reason") or "").lower()
    blocked = (metadata.get("prompt_feedback") or {}).get("block_reason")
    if reason in REFUSALS or found.additional_kwargs.get("refusal") or blocked:
        return "refused"
    if reason in LENGTH:
        return "length"
    return "tools" if found.tool_calls or found.invalid_tool_calls else "stop"


def _extras(found: AIMessage) -> dict[str, Any]:
    """What the provider wants back with this turn: blocks of thought and signatures; only if it is plain data."""
    extras: dict[str, Any] = {}
    if isinstance(found.content, list):
        extras["content"] = found.content
    kept = {name: value for name, value in found.additional_kwargs.items() if "signature" in name}
    if kept:
        extras["additional_kwargs"] = kept
    try:
        return json.loads(json.dumps(extras))
    except TypeError:
        return {}


def _logprobs(found: Mapping[str, Any] | None) -> tuple[TokenOptions, ...] | None:
    """Log-probabilities as OpenAI's chat API gives them."""
    if not found or not found.get("content"):
        return None
    return tuple(
        TokenOptions(
            token=place["token"],
            options=tuple(
                (option["token"], float(option["logprob"]))
                for option in place.get("top_logprobs", ())
                if math.isfinite(option["logprob"])
            ),
        )
        for place in found["content"]
    )
