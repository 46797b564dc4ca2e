"""Grading of entity answers without a language model.

`unit_test`: an evaluator picks, from each triplet, the word that best fits the answer. It reads the answer's
`structure["concepts"]` (one list of words per concept), or runs the answer's code, or reads the words of its
description. The evaluator's word vectors are never those behind the function: an answer is right if it says in words
what the concept is, not if it repeats the function's own numbers. Chance is 1/3, and a tie earns its share; a word for
which the code gives no number is never picked.

`concept_named`: the share of the function's concepts that the answer names. A concept is named if half the words of its
name are among the answer's words, or if it is the nearest to them of all concepts and the function's own. Of an
answer only the first two concepts are read, and of each only the first words: an answer that lists everything names
nothing.
"""

from collections.abc import Sequence

import numpy as np

from vesalius.errors import BadInput
from vesalius.sandbox import Sandbox
from vesalius_functions.answer import Answer, Grade
from vesalius_functions.box import Function
from vesalius_functions.entities.functions import EntityFunction, all_concepts, unit_tests
from vesalius_functions.knowledge.scoring import VectorScorer
from vesalius_functions.knowledge.vectors import EMPTY_WORDS, other_space, words_of
from vesalius_functions.submitted import Refused, entry_of
from vesalius_functions.unit_tests import credit

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
