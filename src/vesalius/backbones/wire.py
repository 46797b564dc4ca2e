"""What a backbone needs from whoever answers: one exchange at a time."""

from dataclasses import dataclass
from typing import Protocol

from vesalius.backbones.messages import Answer, Request


@dataclass(frozen=True)
class Abilities:
    """What a model does natively; the rest is done in text, and log-probabilities not at all."""

    tools: bool = True
    schema: bool = True
    logprobs: bool = False

    def unsupported(self) -> set[str]:
        """The features of a request that must be written as text from the start."""
        return {name for name, can in (("tools", self.tools), ("schema", self.schema)) if not can}


class Wire(Protocol):
    """Somebody who answers requests, or raises a `BackboneError`."""

    def complete(self, request: Request) -> Answer: ...

    def close(self) -> None: ...
