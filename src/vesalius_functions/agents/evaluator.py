"""A language model takes the unit tests of a description: it reads the description and points at one of three examples.

The published evaluator accepted a reply that held the right digit anywhere. Here the reply is one JSON object; two
different numbers in one reply count as no answer, and a missing answer is wrong. The texts are fenced and neutralised,
so that a description cannot speak to the evaluator in the prompt's own voice. A call that fails raises `BackboneError`:
that is counted as an error of the machinery.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vesalius.backbones import Backbone, Garbled, Message, system, user
from vesalius.backbones.json_repair import objects
from vesalius.backbones.untrusted_text import fence_key, neutralise
from vesalius_functions.agents.prompting import render
from vesalius_functions.agents.writing import said_input
from vesalius_functions.unit_tests import Example, UnitTest

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
