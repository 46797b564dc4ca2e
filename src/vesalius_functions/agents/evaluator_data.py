"""Training data for an evaluator: unit tests of true descriptions, split so that no function is in two splits.

The published evaluator was trained on descriptions of the very functions that it then graded. Here functions that have
a concept, a relation or a description in common stay together, and a pair of concepts is taken only where both fall
into one split. A line of a split is one test with its right answer, also as the messages of a chat.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal

from vesalius.errors import BadInput, choices
from vesalius_functions.agents.evaluator import evaluator_prompt
from vesalius_functions.answer import json_value
from vesalius_functions.box import Function
from vesalius_functions.categories import SUITE
from vesalius_functions.suite import SEED, Suite
from vesalius_functions.unit_tests import UnitTest

#: Categories with unit tests.
TESTED = ("strings", "entities", "relations")
Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")
#: Tests per category; the published data has 10,000.
TESTS = 1000
#: Of a hundred groups, those from here on are for validation and for the test.
VALIDATION, TEST = 80, 90
#: Apart from the seeds that benchmarks draw functions and tests with.
USUAL_SEED = SEED + 1
#: Draws of a function's tests, at most.
MOST_DRAWS = 50


@dataclass(frozen=True)
class EvaluatorExample:
    """One test of a true description."""

    split: Split
    category: str
    function: str
    group: tuple[str, ...]
    description: str
    test: UnitTest

    def as_data(self) -> dict[str, Any]:
        """The line of the file."""
        prompt = evaluator_prompt(self.description, self.test.examples)
        answer = json.dumps({"example": self.test.correct + 1})
        return {
            "category": self.category,
            "function": self.function,
            "group": list(self.group),
            "description": self.description,
            "examples": [json_value({"input": one.input, "output": one.output}) for one in self.test.examples],
            "answer": self.test.correct + 1,
            "messages": [
                *({"role": message.role, "content": message.text} for message in prompt),
                {"role": "assistant", "content": answer},
            ],
        }


def evaluator_examples(
    categories: Sequence[str] = TESTED, *, tests: int = TESTS, seed: int = USUAL_SEED
) -> Iterator[EvaluatorExample]:
    """`tests` of each category, functions in turn; one further draw of tests per round, until there are enough."""
    for name in categories:
        if name not in TESTED:
            raise BadInput(f"`category` {name!r:.40}: has no unit tests of descriptions; choose from {choices(TESTED)}")
    if tests < 1:
        raise BadInput(f"`tests` {tests}: give 1 or more")
    for name in categories:
        yield from _of_category(Suite(name, seed, min(tests, SUITE[name])), tests)


def _of_category(suite: Suite, tests: int) -> Iterator[EvaluatorExample]:
    placed: list[tuple[Function, Split]] = []
    for one in suite.functions():
        of_one = split_of(one, suite.seed)
        if of_one is not None:
            placed.append((one, of_one))
    made, seen = 0, set[tuple[str, UnitTest]]()
    for draw in count() if placed else ():
        before = made
        for function, split in placed:
            answer = suite.module.oracle(function)
            description = answer.description if not answer.domain else f"{answer.description}\n{answer.domain}"
            for test in suite.unit_tests(function, draw=draw):
                if (function.id, test) in seen:
                    continue
                seen.add((function.id, test))
                group = groups_of(function)
                yield EvaluatorExample(split, suite.category, function.id, group, description, test)
                made += 1
                if made == tests:
                    return
        if made == before or draw == MOST_DRAWS:
            return


def groups_of(function: Function) -> tuple[str, ...]:
    """What a function has in common with others: its concepts, its relation, or its description."""
    truth = function.truth()
    if function.category == "entities":
        return tuple(map(str, truth["concepts"]))
    if function.category == "relations":
        return (f"{truth['input']} -> {truth['output']}",)
    return (json.dumps(json_value(truth), sort_keys=True),)


def split_of(function: Function, seed: int) -> Split | None:
    """The split of all groups of a function; None where they are in several."""
    splits: list[Split] = [_split(group, seed) for group in groups_of(function)]
    return splits[0] if len(set(splits)) == 1 else None


def _split(group: str, seed: int) -> Split:
    place = int.from_bytes(hashlib.sha256(f"{seed}/{group}".encode()).digest()[:4], "big") % 100
    if place < VALIDATION:
        return "train"
    return "validation" if place < TEST else "test"
