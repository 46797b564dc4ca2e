"""Language models behind functions: one that is open and answers, or the name of one that is not open yet.

A suite lists functions by what they are; who answers is opened for the case that is worked on, with its record and its
share of the spending cap.
"""

from typing import Any, NoReturn

from vesalius.backbones import Backbone
from vesalius.errors import Failed

#: A fact is a few words; a small model that does not stop is cut here.
REPLY_TOKENS = 64
#: What is heard of an input that the model declined or gave nothing usable for. The failure itself, which is in the
#: record of calls, names the call by the function's definition, and may quote what the model was told.
NO_ANSWER = "the function gave no answer to this input"


class UnopenedModel:
    """A language model that functions name and cannot ask yet."""

    def __init__(self, name: str) -> None:
        self.name = name

    def chat(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse."""
        raise Failed(f"{self.name} answers this function and is not open; take the function with an open backbone")

    logprobs = chat


Model = Backbone | UnopenedModel
