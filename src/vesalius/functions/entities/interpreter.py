"""The built-in interpreter of entity functions: ask many words, look at what the highest scorers have in common.

1. Ask words from all over the vocabulary, then, three times, words near the highest scorers.
2. A theme: the high scorer that lies closest to the other high scorers, with those around it.
3. What else scores high, away from that theme, may be a second one; a third is looked for to choose between them.
4. A second theme counts as a second concept if the function scores its words high and it lies far from the first.
5. A theme is named by words that the function scores high and that lie near its centre.

It names concepts in the vocabulary's own words and knows no list of concepts. What is near is judged in a space of word
vectors (`space_name`), which should not be the one behind the function. Words that our tests use are neither asked nor
named, so the tests hold words that it has not seen; `without` leaves out more.
"""

import random
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from vesalius.functions.answer import Answer
from vesalius.functions.box import Box
from vesalius.functions.entities.concepts import listed
from vesalius.functions.knowledge.vectors import EMPTY_WORDS, Space, frequent_words, space

#: Words are asked and named from these ranks of frequency; before them come function words.
RANKS = slice(100, 15_000)
#: Queries of each step: words from everywhere, words near the best (three times), words of further themes (twice each).
EVERYWHERE, NEARBY, THEME = 900, 60, 40
MOST_QUERIES = EVERYWHERE + 3 * NEARBY + 4 * THEME
#: Of this many words near a high scorer, those not yet asked are.
NEIGHBOURS = 30
#: A theme is sought among this many of the highest scorers.
LEADERS = 20
#: Cosines: words of a theme are at least `AROUND` from its centre, words of another at most `AWAY`.
AROUND, AWAY = 0.25, 0.2
#: A second concept's best words have at least this mean log-odds, and its centre at most this cosine to the first.
STRONG, FAR = 2.5, 0.15
#: How many words describe a concept, and how many of them speak for its strength.
NAMED, TELLING = 8, 5
#: Scores are held this far from 0 and 1 before their log-odds are taken.
NEVER_SURE = 1e-6

Point = Float[np.ndarray, " dimensions"]


@dataclass
class Notebook:
    """What was asked so far, and a space to judge nearness in."""

    box: Box
    where: Space
    words: list[str]
    vectors: Float[np.ndarray, "words dimensions"]
    scores: dict[str, float] = field(default_factory=dict)

    def ask(self, words: Iterable[str], most: int) -> None:
        """Ask up to `most` words not yet asked, as far as the budget goes."""
        new = [word for word in dict.fromkeys(words) if word not in self.scores]
        new = new[: most if self.box.left is None else min(most, self.box.left)]
        for word, reply in zip(new, self.box.ask(new) if new else [], strict=True):
            usable = reply.error is None and isinstance(reply.value, int | float) and reply.value == reply.value
            self.scores[word] = float(reply.value) if usable else 0.0

    def best(self) -> list[str]:
        """All words asked, highest score first."""
        return sorted(self.scores, key=lambda word: -self.scores[word])

    def odds(self, words: Sequence[str]) -> Float[np.ndarray, " words"]:
        """Log-odds of the scores: they tell 0.99 from 0.999."""
        scores = np.clip([self.scores[word] for word in words], NEVER_SURE, 1 - NEVER_SURE)
        return np.log(scores / (1 - scores))

    def near(self, words: Sequence[str], point: Point) -> Float[np.ndarray, " words"]:
        """Cosines of words to a point."""
        return self.where.vectors(words) @ point

    def neighbours(self, words: Sequence[str]) -> list[str]:
        """Vocabulary words near any of the given, the nearest of each first."""
        order = np.argsort(-(self.where.vectors(words) @ self.vectors.T), axis=1)[:, :NEIGHBOURS]
        return [self.words[i] for i in order.T.ravel()]


@dataclass(frozen=True)
class Theme:
    """Something high scorers have in common: its centre, its words, and their mean log-odds."""

    centre: Point
    words: list[str]
    strength: float


def interpret(box: Box, *, seed: int = 0, without: Collection[str] = (), space_name: str = "wordllama") -> Answer:
    """Say which concept, or which two, a function responds to, with at most 1,240 queries or what the budget has left.

    `without` are words that are neither asked nor named. `space_name` says which word vectors judge what is near.
    """
    notebook = _notebook(box, without, space_name)
    scale = 1.0 if box.left is None else min(1.0, box.left / MOST_QUERIES)
    rng = random.Random(f"entities/probes/{seed}")
    notebook.ask(rng.sample(notebook.words, len(notebook.words)), max(1, int(EVERYWHERE * scale)))
    for _ in range(3):
        notebook.ask(notebook.neighbours(notebook.best()[:12]), int(NEARBY * scale))
    first = _theme(notebook, notebook.best()[:LEADERS], [])
    themes = [first]
    for _ in range(2):
        themes += _another(notebook, themes, int(THEME * scale))
    second = max(themes[1:], key=lambda theme: theme.strength - 8 * _between(first, theme), default=None)
    two = second is not None and second.strength >= STRONG and _between(first, second) <= FAR
    chosen = [first, second] if second is not None and two else [first]
    told = " or to ".join(f"{', '.join(x.words[:3])} (words such as {', '.join(x.words[3:])})" for x in chosen)
    return Answer(
        description=f"The function scores how strongly a word relates to {told}.",
        structure={"concepts": [theme.words for theme in chosen]},
        interpreter="builtin",
        queries=box.asked,
    )


def _notebook(box: Box, without: Collection[str], space_name: str) -> Notebook:
    unseen = {word for one in listed() for word in one.tests} | {word.lower() for word in without}
    words = [
        word
        for word in frequent_words()[RANKS]
        if word.isalpha() and len(word) > 2 and word not in EMPTY_WORDS and word not in unseen
    ]
    where = space(space_name)
    return Notebook(box, where, words, where.vectors(words))


def _another(notebook: Notebook, themes: Sequence[Theme], most: int) -> list[Theme]:
    """The theme of what scores high away from the themes found so far; none if nothing does."""
    centres = np.stack([theme.centre for theme in themes])
    for _ in range(2):
        high = [word for word in notebook.best() if notebook.scores[word] >= 0.5]
        away = [word for word in high if float((centres @ notebook.where.vectors([word])[0]).max()) < AWAY][:15]
        if len(away) < 3:
            return []
        centre = _centre(notebook, away)
        outside = notebook.vectors @ centre - 2.0 * ((centres @ notebook.vectors.T).max(0) >= AWAY)
        closest = [notebook.words[i] for i in np.argsort(-outside)[: NEIGHBOURS + most]]
        notebook.ask([*closest[:NEIGHBOURS], *notebook.neighbours(away[:6])], most)
    return [_theme(notebook, away, themes)]


def _theme(notebook: Notebook, leaders: Sequence[str], others: Sequence[Theme]) -> Theme:
    """The theme of some high scorers, named in words that are not those of other themes."""
    centre = _centre(notebook, leaders)
    asked = notebook.best()[: 20 * NAMED]
    allowed = [word for word in asked if all(notebook.near([word], x.centre)[0] < AWAY + 0.1 for x in others)]
    words = allowed or list(leaders)
    merit = (notebook.odds(words) + 2) * np.maximum(notebook.near(words, centre) + 0.2, 0)
    named = [words[i] for i in np.argsort(-merit)[:NAMED]]
    return Theme(centre, named, float(notebook.odds(named[:TELLING]).mean()))


def _centre(notebook: Notebook, leaders: Sequence[str]) -> Point:
    """The middle of the leaders around the one that has the most and best company."""
    points = notebook.where.vectors(leaders)
    weights = np.clip(notebook.odds(leaders) + 1, 0.01, 8)
    company = np.maximum(points @ points.T, 0) @ weights
    centre = points[int(np.argmax(company * weights))]
    for _ in range(3):
        close = points @ centre >= AROUND
        if not close.any():
            break
        total = (points * weights[:, None])[close].sum(0)
        centre = total / max(float(np.linalg.norm(total)), 1e-9)
    return centre


def _between(one: Theme, other: Theme) -> float:
    return float(one.centre @ other.centre)
