"""A language model takes the unit tests of a description: it reads the description and points at one of three examples.

The published evaluator accepted a reply that held the right digit anywhere. Here the reply is one JSON object; two
different numbers in one reply count as no answer, and a missing answer is wrong. The texts are fenced and neutralised,
so that a description cannot speak to the evaluator in the prompt's own voice. A call that fails raises `BackboneError`:
that is counted as an error of the machinery.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vesalius.errors import BadInput, choices
from vesalius_backbones import Backbone, Garbled, Message, system, user
from vesalius_backbones.untrusted_text import fence_key, neutralise, objects
from vesalius_functions.agents.commands import render, said_input
from vesalius_functions.box import Example, Function, UnitTest, json_value
from vesalius_functions.suite import SEED, SUITE, Suite

#: A description is a few sentences; one as long as a table of values is cut.
LONGEST_DESCRIPTION = 4_000


class _Choice(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, title="Choice")

    example: int = Field(ge=1, le=3)


@dataclass(frozen=True)
class Tested:
    """How the tests went: the choices (0-based; None where no answer could be read) and the share that was right."""

    choices: tuple[int | None, ...]
    score: float


def take_unit_tests(
    backbone: Backbone, description: str, tests: Sequence[UnitTest], *, matching: bool = False
) -> Tested:
    """Let the evaluator take every test. A description that says nothing earns nothing.

    With `matching` the three examples are descriptions, one of them of the same function.
    """
    if not tests or not description.strip():
        return Tested((None,) * len(tests), 0.0)
    choices = tuple(
        _chosen(backbone, evaluator_prompt(description, test.examples, matching=matching), number)
        for number, test in enumerate(tests, 1)
    )
    right = sum(choice == test.correct for choice, test in zip(choices, tests, strict=True))
    return Tested(choices, right / len(tests))


def evaluator_prompt(description: str, examples: Sequence[Example], *, matching: bool = False) -> list[Message]:
    """The messages that ask for one choice."""
    texts = {"DESCRIPTION": description[:LONGEST_DESCRIPTION]}
    texts |= {
        f"EXAMPLE {number}": str(example.input) if matching else _said(example)
        for number, example in enumerate(examples, 1)
    }
    blocks = [(title, neutralise(text)) for title, text in texts.items()]
    key = fence_key([text for _, text in blocks])
    inputs_only = not matching and all(example.output is None for example in examples)
    return [
        system(render("evaluator", key=key, inputs_only=inputs_only, matching=matching)),
        user(render("blocks", blocks=blocks, key=key)),
    ]


def _chosen(backbone: Backbone, messages: Sequence[Message], number: int) -> int | None:
    try:
        reply = backbone.chat(messages, schema=_Choice, label=f"unit test {number}")
    except Garbled:
        return None
    chosen = {choice.example for choice in _choices(reply.text)}
    return chosen.pop() - 1 if len(chosen) == 1 else None


def _choices(text: str) -> list[_Choice]:
    try:
        return [_Choice.model_validate_json(text)]
    except ValidationError:
        pass
    chosen = []
    for value, _ in objects(text):
        try:
            chosen.append(_Choice.model_validate(value))
        except ValidationError:
            continue
    return chosen


def _said(example: Example) -> str:
    if example.output is None:
        return f"input: {said_input(example.input)}"
    return f"input: {said_input(example.input)}\noutput: {said_input(example.output)}"


# Training data for an evaluator: unit tests of true descriptions, split so that no function is in two splits.

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
