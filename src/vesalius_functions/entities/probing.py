"""Which words to ask: a search through the vocabulary for those that the function scores highest.

Log-odds of the scores are fitted by ridge regression on word vectors that are not the function's own, and the words
with the highest predictions are asked next. A function of two concepts is not one direction: high scorers are divided
in two, and each side is searched as if the other did not exist.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float, Int

from vesalius_functions.box import Box
from vesalius_functions.entities.functions import all_concepts
from vesalius_functions.knowledge.vectors import EMPTY_WORDS, frequent_words, space

#: Words are asked and named from these ranks of frequency; before them come function words.
RANKS = slice(100, 15_000)
#: Words asked between two fits.
BATCH = 30
#: Strength of the ridge, for vectors of length one.
RIDGE = 10.0
#: Log-odds are cut to this range before a fit: how low a low score is says little about the concept.
LOWEST, HIGHEST = -2.0, 4.0
#: High scorers that are divided in two.
LEADERS = 40
#: Scores are held this far from 0 and 1 before their log-odds are taken.
NEVER_SURE = 1e-9

Vectors = Float[np.ndarray, "words dimensions"]
Numbers = Int[np.ndarray, " words"]


@dataclass
class Notebook:
    """What was asked so far. Words go by their number in `words`; `odds` are log-odds, NaN where not yet asked.

    At most `most` queries are made, and never more than the box has left.
    """

    box: Box
    words: Sequence[str]
    vectors: Vectors
    most: int
    odds: Float[np.ndarray, " words"] = field(init=False)

    def __post_init__(self) -> None:
        self.odds = np.full(len(self.words), np.nan)
        self._end = self.box.asked + (self.most if self.box.left is None else min(self.most, self.box.left))
        self.most = self._end - self.box.asked

    @property
    def left(self) -> int:
        """How many queries may still be made."""
        return self._end - self.box.asked

    @property
    def asked(self) -> Numbers:
        """Numbers of the words asked."""
        return np.flatnonzero(~np.isnan(self.odds))

    def ask(self, texts: Sequence[str]) -> Float[np.ndarray, " texts"]:
        """Log-odds of the scores of texts: they tell 0.99 from 0.999. Without a usable score, the lowest there are."""
        replies = self.box.ask(texts) if texts else []
        usable = [
            float(x.value) if x.error is None and isinstance(x.value, int | float) and x.value == x.value else 0.0
            for x in replies
        ]
        scores = np.clip(usable, NEVER_SURE, 1 - NEVER_SURE)
        return np.log(scores / (1 - scores))

    def ask_words(self, numbers: Iterable[int]) -> bool:
        """Ask the words not yet asked, as far as queries go; whether there were any."""
        new = [i for i in dict.fromkeys(numbers) if np.isnan(self.odds[i])][: self.left]
        self.odds[new] = self.ask([self.words[i] for i in new])
        return bool(new)

    def best(self, *, least: float = -np.inf) -> Numbers:
        """Words asked with log-odds of at least `least`, highest first."""
        asked = self.asked
        order = asked[np.argsort(-self.odds[asked], kind="stable")]
        return order[self.odds[order] >= least]


def open_notebook(box: Box, most: int, *, without: Collection[str], space_name: str) -> Notebook:
    """An empty notebook over the vocabulary, less the words of our tests and those of `without`."""
    unseen = {word for one in all_concepts() for word in one.tests} | {word.lower() for word in without}
    words = [
        word
        for word in frequent_words()[RANKS]
        if word.isalpha() and len(word) > 2 and word not in EMPTY_WORDS and word not in unseen
    ]
    return Notebook(box, words, space(space_name).vectors(words).astype(np.float32), most)


def search(notebook: Notebook, sides: Sequence[Sequence[int] | Numbers]) -> bool:
    """Ask a batch of words that promise a high score, the same number for each side; whether there were any.

    Each side is searched without the high scorers of the others. No side, or one, means the function as it is.
    """
    asked = notebook.asked
    odds = np.clip(notebook.odds[asked], LOWEST, HIGHEST)
    taken = ~np.isnan(notebook.odds)
    new: list[int] = []
    for strangers in _strangers(notebook, sides):
        kept = ~np.isin(asked, strangers)
        promise = notebook.vectors @ _ridge(notebook.vectors[asked[kept]], odds[kept])
        promise[taken] = -np.inf
        chosen = np.argsort(-promise)[: BATCH // max(len(sides), 1)]
        taken[chosen] = True
        new += chosen.tolist()
    return notebook.ask_words(new)


def halves(notebook: Notebook) -> list[Numbers]:
    """The highest scorers, divided in two by what is near in the notebook's vectors; one part if they cannot be."""
    leaders = notebook.best()[:LEADERS]
    odds = notebook.odds[leaders]
    side = _divide(notebook.vectors[leaders], odds - min(float(odds.min()), 0.0) + 0.5)
    return [part for part in (leaders[side], leaders[~side]) if len(part)]


def centre(notebook: Notebook, numbers: Sequence[int] | Numbers) -> Float[np.ndarray, " dimensions"]:
    """The direction of some words, the higher scorers weighing more."""
    chosen = np.asarray(numbers, int)
    return _unit(np.clip(notebook.odds[chosen], 0.1, 6.0) @ notebook.vectors[chosen])


def _strangers(notebook: Notebook, sides: Sequence[Sequence[int] | Numbers]) -> list[Numbers]:
    """For each side, the high scorers of the others; those on no side yet go where they are nearest."""
    if len(sides) < 2:
        return [np.zeros(0, int)]
    high = notebook.best(least=0.0)
    centres = np.stack([centre(notebook, side) for side in sides])
    nearest = np.argmax(notebook.vectors[high] @ centres.T, axis=1)
    for number, side in enumerate(sides):
        nearest[np.isin(high, side)] = number
    return [high[nearest != number] for number in range(len(sides))]


def _ridge(points: Vectors, values: Float[np.ndarray, " words"]) -> Float[np.ndarray, " dimensions"]:
    if not len(values):
        return np.zeros(points.shape[1])
    gram = points.T @ points + RIDGE * np.eye(points.shape[1])
    return np.linalg.solve(gram, points.T @ (values - values.mean())).astype(points.dtype)


def _divide(points: Vectors, weights: Float[np.ndarray, " words"]) -> Bool[np.ndarray, " words"]:
    """Two means of directions, begun with the point that has the best company and the one farthest from it."""
    company = np.maximum(points @ points.T, 0) @ weights
    one = points[int(np.argmax(company))]
    other = points[int(np.argmin(points @ one - 0.02 * weights))]
    for _ in range(6):
        side = points @ one >= points @ other
        if side.all() or not side.any():
            break
        one, other = _unit(weights[side] @ points[side]), _unit(weights[~side] @ points[~side])
    return points @ one >= points @ other


def _unit(vector: np.ndarray) -> np.ndarray:
    return vector / max(float(np.linalg.norm(vector)), 1e-9)
