"""The model of an inspect_ai evaluation as a backbone: inspect retries, limits and keeps the transcript itself.

Needs the extra `inspect`; imported only by an evaluation, which has it.
"""

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio.from_thread
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageUser,
    GenerateConfig,
    Model,
    ModelOutput,
)

from vesalius_backbones import Backbone, ModelRequest, Redactor, RetryPolicy, Unreachable
from vesalius_backbones import TokenUsage as Tokens
from vesalius_backbones.failures import Retrier, SystemClock
from vesalius_backbones.messages import Abilities, Answer, CallSettings, Finish

_FINISHES: dict[str, Finish] = {"max_tokens": "length", "model_length": "length", "content_filter": "refused"}
_ROLES: dict[str, Callable[..., ChatMessage]] = {
    "system": ChatMessageSystem,
    "assistant": ChatMessageAssistant,
}


class InspectConnection:
    """The model of an inspect evaluation as our backbones see one; called from the solver's thread."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def complete(self, request: ModelRequest) -> Answer:
        """One call through inspect, which tries again and keeps the transcript itself."""
        asked = request.settings
        config = GenerateConfig(
            temperature=asked.temperature, max_tokens=asked.max_tokens, stop_seqs=list(asked.stop) or None
        )
        turns: list[Any] = [
            _ROLES.get(message.role, ChatMessageUser)(content=message.text) for message in request.messages
        ]
        output: ModelOutput = anyio.from_thread.run(partial(self._model.generate, turns, config=config))
        if output.error or not output.choices:
            raise Unreachable(f"inspect model {self._model.name}: {output.error or 'no answer'}")
        used = output.usage
        return Answer(
            text=output.completion,
            usage=None if used is None else Tokens(input=used.input_tokens, output=used.output_tokens),
            finish=_FINISHES.get(output.stop_reason, "stop"),
        )

    def close(self) -> None:
        """The model belongs to inspect."""


def inspect_backbone(model: Model) -> Backbone:
    """A backbone over an inspect model; tools and objects are asked for in words, which every model understands."""
    return Backbone(
        "inspect",
        model.name,
        settings=CallSettings(),
        connection=InspectConnection(model),
        abilities=Abilities(tools=False, schema=False),
        retrier=Retrier(RetryPolicy(), SystemClock(), random.Random(0)),
        redactor=Redactor([]),
    )
