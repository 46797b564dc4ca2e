"""Functions that score how strongly a word relates to one concept, or to either of two.

A suite of 200 has 140 concepts and 60 pairs, seven and three in every ten, so that any first part of it is mixed alike.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from vesalius.errors import BadInput
from vesalius_functions.answer import Mode
from vesalius_functions.box import Category, Reply
from vesalius_functions.entities.concepts import Listed, all_concepts
from vesalius_functions.knowledge.models import Model
from vesalius_functions.knowledge.scoring import Concept, ModelScorer, Scorer, VectorScorer
from vesalius_functions.unit_tests import UnitTest

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
