"""Functions that score how strongly a word relates to one concept, or to either of two.

A suite of 200 has 140 concepts and 60 pairs, seven and three in every ten, so that any first part of it is mixed alike.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from vesalius.errors import BadInput
from vesalius_functions.answer import Mode
from vesalius_functions.box import Category, Reply
from vesalius_functions.knowledge.models import Model
from vesalius_functions.knowledge.published import functions_of, hints, tests_with_places, texts
from vesalius_functions.knowledge.scoring import Concept, ModelScorer, Scorer, VectorScorer
from vesalius_functions.published import Loaded, Unusable
from vesalius_functions.unit_tests import UnitTest

# Our own list of 140 concepts, each with words that define it and other words to test with.


@dataclass(frozen=True)
class Listed:
    """A concept of the list. `tests` are words related to it, none of which defines it."""

    concept: Concept
    tests: tuple[str, ...]


@lru_cache(maxsize=1)
def all_concepts() -> tuple[Listed, ...]:
    """The list, in the order of its file."""
    lines = Path(__file__).with_name("concepts.txt").read_text(encoding="utf-8").splitlines()
    fields = [[part.strip() for part in line.split(";")] for line in lines if not line.startswith("#")]
    return tuple(Listed(Concept(name, tuple(words.split())), tuple(tests.split())) for name, words, tests in fields)


#: Places in every ten that hold a pair.
PAIRS = (2, 5, 8)
#: As published: this many decimals.
DECIMALS = 4


@dataclass(frozen=True)
class EntityFunction:
    """A word to a number from 0 to 1.

    `words` are related words for tests, one group per concept; a published function has `triplets` of its own instead.
    """

    id: str
    concepts: tuple[Concept, ...]
    scorer: Scorer
    mode: Mode = "fixed"
    words: tuple[tuple[str, ...], ...] = ()
    triplets: tuple[UnitTest, ...] = ()
    #: The words a published interpreter was given to start with.
    hints: tuple[str, ...] = ()
    category: Category = "entities"

    @property
    def family(self) -> str:
        """`concept` or `pair`."""
        return "concept" if len(self.concepts) == 1 else "pair"

    def truth(self) -> dict[str, Any]:
        """The concepts, and who scores."""
        return {
            "concepts": [concept.name for concept in self.concepts],
            "defining_words": [list(concept.words) for concept in self.concepts],
            "backbone": self.scorer.name,
            "mode": self.mode,
        }

    def answered_by(self, backbone: Model) -> "EntityFunction":
        """The same function with this language model behind it."""
        return replace(self, scorer=ModelScorer(backbone, mode=self.mode))

    def replies(self, inputs: Sequence[Any], *, first_call: int = 0) -> list[Reply]:
        """One score per word. `first_call` does not matter: nothing here is random."""
        scores = self.scorer.score(inputs, self.concepts)
        if self.mode == "fixed":
            return scores
        return [reply if reply.error else Reply(round(reply.value, DECIMALS)) for reply in scores]


def sample(count: int, *, seed: int, mode: Mode = "fixed", backbone: Model | str = "glove") -> list[EntityFunction]:
    """Functions from our own list of concepts; after 140 concepts the list starts again in another order.

    Args:
        count: how many; the first of a longer draw are the same.
        seed: chooses order and pairs.
        mode: `published` rounds to four decimals and words a language model's prompt as published.
        backbone: `glove` or `wordllama` for word vectors, or a language model.
    """
    if count < 0:
        raise BadInput(f"count {count}: give 0 or more functions")
    scorer = scorer_of(backbone, mode)
    singles = _rounds(random.Random(f"entities/{seed}"))
    pairing = random.Random(f"entities/pairs/{seed}")
    functions = []
    for i in range(count):
        chosen = pairing.sample(all_concepts(), 2) if i % 10 in PAIRS else [next(singles)]
        concepts, words = zip(*((one.concept, one.tests) for one in chosen), strict=True)
        functions.append(EntityFunction(f"f{i:05d}", concepts, scorer, mode, words))
    return functions


def scorer_of(backbone: Model | str, mode: Mode) -> Scorer:
    """Word vectors by name, or a language model."""
    return VectorScorer(backbone) if isinstance(backbone, str) else ModelScorer(backbone, mode=mode)


def _rounds(rng: random.Random):
    """The concepts in a random order, again and again."""
    while True:
        order: list[Listed] = list(all_concepts())
        rng.shuffle(order)
        yield from order


# The published entity functions, run on word vectors or on a language model; their unit tests are the published ones.


def load_published(
    directory: Path, *, mode: Mode = "published", backbone: Model | str = "glove"
) -> Loaded[EntityFunction]:
    """The functions of `neurons_entities` in a published folder, on the backbone given."""
    scorer = scorer_of(backbone, mode)

    def made(name: str, record: dict[str, Any], test: dict[str, Any]) -> EntityFunction:
        concepts = [texts(record, key) for key in ("concept1", "concept2") if key == "concept1" or record.get(key)]
        triplets = tuple(_triplet(words, place) for words, place in tests_with_places(test))
        named = tuple(Concept(concept) for concept in concepts)
        return EntityFunction(name, named, scorer, mode, triplets=triplets, hints=hints(record))

    return functions_of(directory, "neurons_entities", made)


def _triplet(words: Any, place: int) -> UnitTest:
    if not isinstance(words, list) or len(words) != 3:
        raise Unusable(f"a test has {words!r:.60}, not three words")
    return UnitTest.of_inputs([str(word) for word in words], place)


# Triplets: one word that relates to the function's concept among two that do not.

TRIPLETS = 10
RELATED, UNRELATED = 0.5, 0.2
#: Distractors are asked for in batches, since a language model answers one at a time.
PORTION = 10


def unit_tests(function: EntityFunction, seed: int = 0) -> list[UnitTest]:
    """Ten triplets, half of them from each concept of a pair; fewer where the function accepts fewer of the words."""
    if function.triplets:
        return list(function.triplets)
    rng = random.Random(f"entities/tests/{seed}/{function.id}/{function.truth()['concepts']}")
    related = _related(function, rng)
    unrelated = _unrelated(function, 2 * len(related), rng)
    tests = []
    for word in related[: len(unrelated) // 2]:
        others = [unrelated.pop(), unrelated.pop()]
        place = rng.randrange(3)
        tests.append(UnitTest.of_inputs([*others[:place], word, *others[place:]], place))
    return tests


def _related(function: EntityFunction, rng: random.Random) -> list[str]:
    """Words of each concept in turn that the function accepts."""
    share = TRIPLETS // len(function.words)
    chosen = []
    for words in function.words:
        order = rng.sample(words, len(words))
        chosen += [word for word, value in zip(order, _values(function, order), strict=True) if value > RELATED][:share]
    return chosen


def _unrelated(function: EntityFunction, count: int, rng: random.Random) -> list[str]:
    own = {word for words in function.words for word in words}
    others = sorted({word for one in all_concepts() for word in one.tests} - own)
    rng.shuffle(others)
    fillers: list[str] = []
    for start in range(0, len(others), PORTION):
        portion = others[start : start + PORTION]
        fillers += [
            word for word, value in zip(portion, _values(function, portion), strict=True) if 0 <= value < UNRELATED
        ]
        if len(fillers) >= count:
            break
    return fillers[:count]


def _values(function: EntityFunction, words: Sequence[str]) -> list[float]:
    """The function's value for each word, -1 where it has none."""
    return [-1.0 if reply.error else float(reply.value) for reply in function.replies(words)]
