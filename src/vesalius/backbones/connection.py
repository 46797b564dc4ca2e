"""What a backbone needs from a provider: answers to requests, one at a time."""

from dataclasses import dataclass
from typing import Protocol

from vesalius.backbones.messages import Answer, ModelRequest


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
