"""Triplets: one word that relates to the function's concept among two that do not.

The function is the authority: a related word counts if the function gives it more than a half, a distractor if it gets
less than a fifth. Distractors are test words of other concepts. A published function keeps its own triplets.
"""

import random
from collections.abc import Sequence

from vesalius_functions.entities.concepts import all_concepts
from vesalius_functions.entities.functions import EntityFunction
from vesalius_functions.unit_tests import UnitTest

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
