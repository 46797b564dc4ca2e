"""The built-in interpreter of entity functions: look for the words that score highest, and sort them by concept.

1. Ask words from all over the vocabulary, then words that promise a high score (`probing`).
2. Sort the high scorers into groups by asking two words together (`sorting`).
3. Search on for each of the two main groups, and sort again.
4. Each group with enough words is a concept, two at most, named by its highest scorers.

It names concepts in the vocabulary's own words and knows no list of concepts. What is near is judged in a space of word
vectors (`space_name`), which should not be the one behind the function. Words that our tests use are neither asked nor
named, so the tests hold words that it has not seen; `without` leaves out more.
"""

import random
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float, Int

from vesalius_functions.box import Answer, Box
from vesalius_functions.entities.functions import all_concepts
from vesalius_functions.knowledge.scoring import EMPTY_WORDS, frequent_words, space

# Which words to ask: a search through the vocabulary for those that the function scores highest.
#
# Log-odds of the scores are fitted by ridge regression on word vectors that are not the function's own, and the words
# with the highest predictions are asked next. A function of two concepts is not one direction: high scorers are divided
# in two, and each side is searched as if the other did not exist.

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


# Whether high scorers belong to one concept or to two: words are asked together.

#: High scorers have at least these log-odds.
HIGH = 0.5
#: Words sorted: the highest scorers, then as many high scorers far from the first group as may be another concept's.
FIRST, FAR_AWAY = 24, 20
#: How much lying away from the first group counts against a lower score, and from where on scores count no more.
AWAY, ENOUGH = 10.0, 3.0
#: A word is asked together with this many of a group, those of the most similar scores.
COMPANIONS = 2
#: How many of the highest and of the lowest scorers the control takes, and how far the mean of the highs has to fall
#: for texts to tell anything.
CONTROLS, FALL = 4, 1.0
LOW = -HIGH
#: Two halves by nearness are two concepts if their centres have at most this cosine.
APART = 0.15

Group = list[int]


@dataclass
class Sorter:
    """Sorts high scorers into groups, one for each concept. Texts are asked once."""

    notebook: Notebook
    _texts: dict[tuple[int, int], float] = field(default_factory=dict)
    _telling: bool | None = None

    def groups(self, *, keep: int = 0) -> list[Group]:
        """Groups of high scorers, the one with most behind it first, made with all queries but `keep`."""
        high = self.notebook.best(least=HIGH)
        if not len(high):
            return []
        if not self._tells(keep):
            return self._by_nearness()
        groups: list[Group] = []
        self._place(groups, high[:FIRST], keep)
        if groups:
            self._place(groups, self._elsewhere(max(groups, key=self._weight), high[FIRST:]), keep)
        return sorted(groups, key=self._weight, reverse=True)

    def above_mean(self, one: int, others: Sequence[int]) -> list[float]:
        """How far the text of a word and another lies above the mean of both, for each of the others."""
        odds = self.notebook.odds
        new = [other for other in others if _key(one, other) not in self._texts]
        words = self.notebook.words
        texts = [f"{words[one]} {words[other]}" for other in new]
        for other, value in zip(new, self.notebook.ask(texts), strict=True):
            self._texts[_key(one, other)] = float(value - (odds[one] + odds[other]) / 2)
        return [self._texts[_key(one, other)] for other in others]

    def _place(self, groups: list[Group], numbers: Numbers, keep: int) -> None:
        """Put each word into the group it goes with best, or into a new one."""
        for number in numbers.tolist():
            companions = [self._companions(number, group) for group in groups]
            if sum(map(len, companions)) > self.notebook.left - keep:
                return
            fits = [float(np.mean(self.above_mean(number, some))) for some in companions]
            if fits and max(fits) >= 0:
                groups[int(np.argmax(fits))].append(number)
            else:
                groups.append([number])

    def _companions(self, number: int, group: Group) -> Group:
        odds = self.notebook.odds
        return sorted(group, key=lambda other: abs(odds[other] - odds[number]))[:COMPANIONS]

    def _elsewhere(self, main: Group, rest: Numbers) -> Numbers:
        """Of the remaining high scorers, those that the first group explains least, highest first."""
        near = self.notebook.vectors[rest] @ centre(self.notebook, main)
        merit = np.minimum(self.notebook.odds[rest], ENOUGH) - AWAY * near
        return self._in_order(rest[np.argsort(-merit)[:FAR_AWAY]])

    def _in_order(self, numbers: Numbers) -> Numbers:
        return numbers[np.argsort(-self.notebook.odds[numbers], kind="stable")]

    def _weight(self, group: Group) -> float:
        return float(self.notebook.odds[group].sum())

    def _tells(self, keep: int) -> bool:
        """The control, made once: whether strangers that score low pull down words that score high."""
        if self._telling is None:
            best = self.notebook.best()
            high = best[:CONTROLS].tolist()
            low = [number for number in best[-CONTROLS:].tolist() if self.notebook.odds[number] < LOW]
            if not low or len(high) * len(low) > self.notebook.left - keep:
                return False
            odds = self.notebook.odds
            falls = [
                (odds[one] - odds[other]) / 2 - above
                for one in high
                for other, above in zip(low, self.above_mean(one, low), strict=True)
            ]
            self._telling = bool(np.mean(falls) >= FALL)
        return self._telling

    def _by_nearness(self) -> list[Group]:
        """Two groups if the halves of the best lie far apart, else one."""
        parts = [part[self.notebook.odds[part] >= HIGH] for part in halves(self.notebook)]
        parts = [part for part in parts if len(part)]
        if len(parts) == 2 and float(centre(self.notebook, parts[0]) @ centre(self.notebook, parts[1])) > APART:
            parts = [self._in_order(np.concatenate(parts))]
        return sorted((part.tolist() for part in parts), key=self._weight, reverse=True)


def _key(one: int, other: int) -> tuple[int, int]:
    return min(one, other), max(one, other)


MOST_QUERIES = 1240
#: Shares of the queries made when words have been asked from everywhere, sorting begins, and searching ends.
EVERYWHERE, SORTING, SEARCHED = 300 / MOST_QUERIES, 500 / MOST_QUERIES, 1060 / MOST_QUERIES
#: Groups to search on for have this many words, concepts this many.
PROMISING, MEMBERS = 2, 3
CONCEPTS = 2
#: How many words describe a concept, and how many of them come first.
NAMED, FOREMOST = 8, 3


def interpret(box: Box, *, seed: int = 0, without: Collection[str] = (), space_name: str = "wordllama") -> Answer:
    """Say which concept, or which two, a function responds to, with at most 1,240 queries or what the budget has left.

    `without` are words that are neither asked nor named. `space_name` says which word vectors judge what is near.
    """
    notebook = open_notebook(box, MOST_QUERIES, without=without, space_name=space_name)
    rng = random.Random(f"entities/probes/{seed}")
    everywhere = max(1, int(EVERYWHERE * notebook.most))
    notebook.ask_words(rng.sample(range(len(notebook.words)), min(everywhere, len(notebook.words))))
    _search_until(SORTING, notebook, [])
    sorter = Sorter(notebook)
    promising = [group for group in sorter.groups(keep=notebook.most // 3) if len(group) >= PROMISING][:CONCEPTS]
    _search_until(SEARCHED, notebook, promising)
    concepts = [[notebook.words[i] for i in group] for group in _concepts(notebook, sorter.groups())]
    names = " or to ".join(map(_in_words, concepts))
    return Answer(
        description=f"The function scores how strongly a word relates to {names}.",
        structure={"concepts": concepts},
        interpreter="builtin",
        queries=box.asked,
    )


def _search_until(share: float, notebook: Notebook, groups: list[Group]) -> None:
    """Search until a share of the queries is made: for two groups, or else for all and for either half in turn."""
    turn, least_left = 0, notebook.most - int(share * notebook.most)
    while notebook.left > least_left:
        turn += 1
        whole = bool(groups) and turn % 2 == 1
        sides = groups if len(groups) > 1 else [] if whole else halves(notebook)
        if not search(notebook, sides):
            return


def _concepts(notebook: Notebook, groups: list[Group]) -> list[Group]:
    """The words that name each concept; where nothing scores high, the best there are."""
    large_groups = [group for group in groups if len(group) >= MEMBERS][:CONCEPTS] or groups[:1]
    if not large_groups:
        return [notebook.best()[:NAMED].tolist()]
    return [sorted(group, key=lambda number: -notebook.odds[number])[:NAMED] for group in large_groups]


def _in_words(words: list[str]) -> str:
    further = f" (words such as {', '.join(words[FOREMOST:])})" if len(words) > FOREMOST else ""
    return ", ".join(words[:FOREMOST]) + further
