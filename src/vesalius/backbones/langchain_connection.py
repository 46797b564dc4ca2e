"""Converts our messages to langchain's and back.

This is the only module that imports langchain's message types; it is imported when a provider is opened, never before.
Chat models are made without retries, because `Backbone` retries and counts. Provider libraries raise their own
exceptions and, for a malformed answer, whatever their parser raises; both are classified.
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
from vesalius.backbones.json_repair import Unreadable, read
from vesalius.backbones.messages import (
    Answer,
    Finish,
    Message,
    ModelRequest,
    Settings,
    TokenOptions,
    TokenUsage,
    ToolCall,
)

#: What a library's parser raises on an unexpected answer.
PARSE_ERRORS = (ValueError, TypeError, KeyError, AttributeError, IndexError, LangChainException)
LENGTH = {"length", "max_tokens", "model_context_window_exceeded"}
REFUSALS = {"content_filter", "refusal", "safety", "prohibited_content", "blocklist", "recitation", "spii"}

ChatFactory = Callable[[Settings], BaseChatModel]
Options = Callable[[ModelRequest], dict[str, Any]]


class LangchainConnection:
    """Answers requests with a langchain chat model.

    `make` builds the chat model for given settings; `options` are the provider's keyword arguments for a request
    (schema, log-probabilities); `errors` are the exceptions its library raises.
    """

    def __init__(self, make: ChatFactory, *, options: Options, errors: Iterable[type[BaseException]]) -> None:
        self._make = make
        self._options = options
        self._errors = (*errors, *_transport_errors(), *PARSE_ERRORS)
        self._chats: dict[Settings, BaseChatModel] = {}

    def complete(self, request: ModelRequest) -> Answer:
        """One call to the provider."""
        model = f"{request.provider}:{request.model}"
        chat: Any = self._chat(request.settings)
        if request.tools:
            chat = chat.bind_tools([{"type": "function", "function": tool} for tool in request.tools])
        messages = [to_langchain(message) for message in request.messages]
        options = self._options(request)
        if request.settings.stop:
            options["stop"] = list(request.settings.stop)
        try:
            message = chat.invoke(messages, **options)
        except self._errors as error:
            raise classify(error, model) from error
        if not isinstance(message, AIMessage):
            raise Garbled(f"{model}: the library returned a {type(message).__name__}")
        return from_langchain(message)

    def close(self) -> None:
        """Drop the clients; the library manages its connection pool."""
        self._chats.clear()

    def _chat(self, settings: Settings) -> BaseChatModel:
        without_stop = settings.model_copy(update={"stop": ()})
        if without_stop not in self._chats:
            self._chats[without_stop] = self._make(without_stop)
        return self._chats[without_stop]


def _transport_errors() -> list[type[BaseException]]:
    """Errors of the two HTTP libraries that the clients use; some clients do not wrap them."""
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


def from_langchain(message: AIMessage) -> Answer:
    """Langchain's answer as ours."""
    metadata = message.response_metadata
    return Answer(
        text=str(message.text),
        tool_calls=tuple(_tool_calls(message)),
        usage=_usage(message),
        finish=_finish(message, metadata),
        extras=_extras(message),
        logprobs=_logprobs(metadata.get("logprobs")),
    )


def _tool_calls(message: AIMessage) -> Iterable[ToolCall]:
    for call in message.tool_calls:
        yield ToolCall(id=call["id"] or "", name=call["name"], arguments=call["args"])
    for call in message.invalid_tool_calls:
        try:
            value, _ = read(call["args"] or "{}")
        except Unreadable as problem:
            value, error = {}, f"the arguments are not readable as JSON: {problem}"
        else:
            error = None if isinstance(value, dict) else "the arguments are not a JSON object"
        arguments = value if isinstance(value, dict) else {}
        yield ToolCall(id=call["id"] or "", name=call["name"] or "unknown", arguments=arguments, error=error)


def _usage(message: AIMessage) -> TokenUsage | None:
    usage = message.usage_metadata
    if not usage or not usage["input_tokens"]:
        return None
    cached = usage.get("input_token_details", {}).get("cache_read") or 0
    return TokenUsage(input=usage["input_tokens"], output=usage["output_tokens"], cached=cached)


def _finish(message: AIMessage, metadata: Mapping[str, Any]) -> Finish:
    reason = str(metadata.get("finish_reason") or metadata.get("stop_reason") or "").lower()
    blocked = (metadata.get("prompt_feedback") or {}).get("block_reason")
    if reason in REFUSALS or message.additional_kwargs.get("refusal") or blocked:
        return "refused"
    if reason in LENGTH:
        return "length"
    return "tools" if message.tool_calls or message.invalid_tool_calls else "stop"


def _extras(message: AIMessage) -> dict[str, Any]:
    """What the provider needs back with this turn: blocks of thought and signatures; only if it is JSON."""
    extras: dict[str, Any] = {}
    if isinstance(message.content, list):
        extras["content"] = message.content
    signatures = {name: value for name, value in message.additional_kwargs.items() if "signature" in name}
    if signatures:
        extras["additional_kwargs"] = signatures
    try:
        return json.loads(json.dumps(extras))
    except TypeError:
        return {}


def _logprobs(logprobs: Mapping[str, Any] | None) -> tuple[TokenOptions, ...] | None:
    """Log-probabilities as OpenAI's chat API gives them."""
    if not logprobs or not logprobs.get("content"):
        return None
    return tuple(
        TokenOptions(
            token=token["token"],
            options=tuple(
                (option["token"], float(option["logprob"]))
                for option in token.get("top_logprobs", ())
                if math.isfinite(option["logprob"])
            ),
        )
        for token in logprobs["content"]
    )
