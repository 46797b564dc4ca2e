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
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from vesalius_functions.answer import Answer
from vesalius_functions.box import Box
from vesalius_functions.entities.probing import Notebook, Numbers, centre, halves, open_notebook, search

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
