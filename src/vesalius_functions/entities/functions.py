"""Functions that score how strongly a word relates to one concept, or to either of two.

A suite of 200 has 140 concepts and 60 pairs, seven and three in every ten, so that any first part of it is mixed alike.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from vesalius.errors import BadInput
from vesalius.sandbox import Sandbox
from vesalius_functions.box import Answer, Category, Function, Grade, Mode, Reply, UnitTest, credit
from vesalius_functions.knowledge.scoring import (
    EMPTY_WORDS,
    Concept,
    Model,
    ModelScorer,
    Scorer,
    VectorScorer,
    frequent_words,
    other_space,
    words_of,
)
from vesalius_functions.own_prompts import FunctionPrompts
from vesalius_functions.published import Loaded, Unusable, functions_of, hints, tests_with_places, texts
from vesalius_functions.submitted import Refused, entry_of

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


#: Words that are offered for the tests of a concept that has none of its own, and the ranks that they are taken from.
OFFERED, FREQUENT = 40, slice(300, 20_300)


@lru_cache(maxsize=1)
def published_concepts() -> tuple[Listed, ...]:
    """The entities that FIND lists, by name; the words to test with are those nearest to the name in GloVe."""
    lines = Path(__file__).with_name("published.txt").read_text(encoding="utf-8").splitlines()
    names = [line for line in lines if not line.startswith("#")]
    own = {one.concept.name: one for one in all_concepts()}
    words = [word for word in frequent_words()[FREQUENT] if word.isalpha()]
    near = np.argsort(-VectorScorer("glove").similarity(words, [(name,) for name in names]), axis=1)[:, :OFFERED]
    listed = []
    for name, row in zip(names, near, strict=True):
        tests = tuple(words[place] for place in row if words[place] not in words_of(name))
        listed.append(own.get(name) or Listed(Concept(name), tests))
    return tuple(listed)


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

    def answered_by(self, backbone: Model, prompts: FunctionPrompts | None = None) -> "EntityFunction":
        """The same function with this language model behind it, asked by the user's own prompts where there are any."""
        return replace(self, scorer=ModelScorer(backbone, mode=self.mode, prompts=prompts))

    def replies(self, inputs: Sequence[Any], *, first_call: int = 0) -> list[Reply]:
        """One score per word. `first_call` does not matter: nothing here is random."""
        scores = self.scorer.score(inputs, self.concepts)
        if self.mode == "fixed":
            return scores
        return [reply if reply.error else Reply(round(reply.value, DECIMALS)) for reply in scores]


def sample(count: int, *, seed: int, mode: Mode = "fixed", backbone: Model | str = "glove") -> list[EntityFunction]:
    """Functions from our own list of concepts, or in mode `published` from the names that FIND lists (its pairs are not
    in the paper and are drawn); after the last concept the list starts again in another order.

    Args:
        count: how many; the first of a longer draw are the same.
        seed: chooses order and pairs.
        mode: `published` also rounds to four decimals and words a language model's prompt as published.
        backbone: `glove` or `wordllama` for word vectors, or a language model.
    """
    if count < 0:
        raise BadInput(f"count {count}: give 0 or more functions")
    scorer = scorer_of(backbone, mode)
    listed = published_concepts() if mode == "published" else all_concepts()
    singles = _rounds(listed, random.Random(f"entities/{seed}"))
    pairing = random.Random(f"entities/pairs/{seed}")
    functions = []
    for i in range(count):
        chosen = pairing.sample(listed, 2) if i % 10 in PAIRS else [next(singles)]
        concepts, words = zip(*((one.concept, one.tests) for one in chosen), strict=True)
        functions.append(EntityFunction(f"f{i:05d}", concepts, scorer, mode, words))
    return functions


def scorer_of(backbone: Model | str, mode: Mode) -> Scorer:
    """Word vectors by name, or a language model."""
    return VectorScorer(backbone) if isinstance(backbone, str) else ModelScorer(backbone, mode=mode)


def _rounds(listed: Sequence[Listed], rng: random.Random):
    """The concepts in a random order, again and again."""
    while True:
        order: list[Listed] = list(listed)
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


# Grading of entity answers without a language model.
#
# `unit_test`: an evaluator picks, from each triplet, the word that best fits the answer. It reads the answer's
# `structure["concepts"]` (one list of words per concept), or runs the answer's code, or reads the words of its
# description. The evaluator's word vectors are never those behind the function: an answer is right if it says in words
# what the concept is, not if it repeats the function's own numbers. Chance is 1/3, and a tie earns its share; a word
# for which the code gives no number is never picked.
#
# `concept_named`: the share of the function's concepts that the answer names. A concept is named if half the words of
# its name are among the answer's words, or if it is the nearest to them of all concepts and the function's own. Of an
# answer only the first two concepts are read, and of each only the first words: an answer that lists everything names
# nothing.

SECONDS_PER_WORD = 1.0
#: A function has at most two concepts. So many words are read of each, and of a description as a whole.
MOST_CONCEPTS, MOST_WORDS, MOST_OF_DESCRIPTION = 2, 16, 32
#: Words that describe any function of this category, not its concept.
BOILERPLATE = """
function word words input inputs output outputs score scores value values relates related relate concept concepts
association associated associates high low near close returns return strongly how which such
"""


def grade(function: Function, answer: Answer, *, sandbox: Sandbox, seed: int = 0) -> Grade:
    """Score an answer on the function's triplets; its code runs in the sandbox only."""
    own = _entity(function)
    evaluator = VectorScorer(other_space(own.scorer.name))
    tests = unit_tests(own, seed)
    words = [word for test in tests for word in test.inputs]
    groups = _groups(answer)
    read_from, fault = "structure", None
    if groups or not answer.code:
        read_from = "structure" if answer.structure.get("concepts") else "description"
        fits = evaluator.similarity(words, groups).max(0).tolist() if groups and words else [None] * len(words)
    else:
        read_from = "code"
        fits, fault = _run(answer.code, words, sandbox)
    credits = [credit(fits[3 * i : 3 * i + 3], test.correct) for i, test in enumerate(tests)]
    named = _named(own, groups, evaluator) if groups else [False] * len(own.concepts)
    metrics: dict[str, float | None] = {
        "unit_test": float(np.mean(credits)) if credits else None,
        "concept_named": float(np.mean(named)),
        "concepts_counted": float(len(groups) == len(own.concepts)) if read_from == "structure" else None,
    }
    examples = [
        {"words": list(test.inputs), "true": test.correct, "credit": earned}
        for test, earned in zip(tests, credits, strict=True)
    ]
    return Grade(
        metrics=metrics,
        picture={"triplets": examples, "read_from": read_from, "evaluator": evaluator.name},
        fault=fault,
    )


def oracle(function: Function) -> Answer:
    """The answer of an interpreter that knows the concepts: its score is what the evaluator can distinguish."""
    own = _entity(function)
    names = " or to ".join(concept.name for concept in own.concepts)
    return Answer(
        description=f"The function scores how strongly a word relates to {names}.",
        structure={"concepts": [list(concept.texts) for concept in own.concepts]},
        interpreter="oracle",
    )


def _entity(function: Function) -> EntityFunction:
    if not isinstance(function, EntityFunction):
        raise BadInput(f"function {function.id} is of category {function.category}; entities can be graded here")
    return function


def _groups(answer: Answer) -> list[list[str]]:
    """The answer's words, one list per concept; the description's telling words if it has no structure and no code."""
    given = answer.structure.get("concepts")
    if isinstance(given, list) and given:
        groups = [list(map(str, item)) if isinstance(item, list | tuple) else [str(item)] for item in given]
        return [read for group in groups[:MOST_CONCEPTS] if (read := _first_words(group))]
    if answer.code:
        return []
    boilerplate = set(BOILERPLATE.split())
    telling = [word for word in words_of(answer.description) if word not in EMPTY_WORDS and word not in boilerplate]
    return [telling[:MOST_OF_DESCRIPTION]] if telling else []


def _first_words(group: Sequence[str]) -> list[str]:
    """The texts of a group up to `MOST_WORDS` words; the last one may be cut."""
    concepts_named: list[str] = []
    room = MOST_WORDS
    for text in group:
        words = text.split()[:room]
        concepts_named += [" ".join(words)] if words else []
        room -= len(words)
    return concepts_named


def _run(code: str, words: Sequence[str], sandbox: Sandbox) -> tuple[list[float | None], str | None]:
    """What the answer's code gives for each word, None where it gives no number, and why not."""
    entry = entry_of(code)
    if isinstance(entry, Refused):
        return [None] * len(words), entry.why
    answers = sandbox.call_many(code, entry, list(words), per_call_seconds=SECONDS_PER_WORD)
    values = [None if answer.error else _number(answer.value) for answer in answers]
    faults = [
        answer.error or f"it returned a {type(answer.value).__name__}, not a finite number"
        for answer, value in zip(answers, values, strict=True)
        if value is None
    ]
    return values, faults[0] if faults else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and abs(value) < np.inf else None


def _named(function: EntityFunction, groups: Sequence[Sequence[str]], evaluator: VectorScorer) -> list[bool]:
    """For each concept of the function: whether some group of the answer's words names it."""
    own = [concept.texts for concept in function.concepts]
    rivals = [one.concept.texts for one in all_concepts() if one.concept not in function.concepts]
    texts = [*own, *rivals]
    # Rivals and truth alike are points; each group of the answer is asked which point it fits best.
    fits = evaluator.similarity([" ".join(text) for text in texts], groups)
    nearest = set(np.argmax(fits, axis=1).tolist())
    said = {_stem(word) for group in groups for word in group}
    return [_says(said, text[0]) or i in nearest for i, text in enumerate(own)]


def _says(said: set[str], name: str) -> bool:
    """Whether at least half of the telling words of a name were said."""
    telling = {_stem(word) for word in words_of(name) if word not in EMPTY_WORDS}
    return len(telling & said) * 2 >= max(len(telling), 1)


def _stem(word: str) -> str:
    return word.lower().removesuffix("s")
