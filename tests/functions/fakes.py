"""A category small enough to work out by hand, and models that say what a test wants."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from vesalius.errors import BadInput
from vesalius.sandbox import Sandbox
from vesalius_backbones import Backbone, ModelRequest, RetryPolicy, Scripted, open_backbone
from vesalius_functions import Answer, Box, Grade, Mode, Reply
from vesalius_functions.box import Category, Example, UnitTest

SLOPES = (2, 3, -1)


class Line:
    """f(x) = slope * x; a text for strings: repeated."""

    def __init__(self, number: int, *, category: Category = "numeric", seed: int = 0) -> None:
        self.id, self.category, self.family = f"f{number:05d}", category, "steep" if number % 2 else "flat"
        self.slope = SLOPES[number % len(SLOPES)] + seed
        if category == "entities":
            self.hints: tuple[object, ...] = ("sun", "moon", "carrot")

    def truth(self) -> dict[str, Any]:
        return {"family": "linear", "slope": self.slope, "description": f"{self.slope} times x"}

    def replies(self, inputs: Sequence[Any], *, first_call: int = 0) -> list[Reply]:
        return [self._reply(value) for value in inputs]

    def _reply(self, value: Any) -> Reply:
        if self.category == "numeric":
            return Reply(self.slope * value)
        return Reply(value[::-1])


# What `Rooms` asks of a category; this module stands in for one.


def sample(count: int, *, seed: int, mode: Mode = "fixed") -> list[Line]:
    return [Line(number, seed=seed) for number in range(count)]


def load_published(directory: Path, *, mode: Mode = "published") -> list[Line]:
    if not (directory / "data.json").is_file():
        raise BadInput(f"dataset {directory}: data.json is missing")
    return sample(3, seed=0)


def interpret(box: Box, *, seed: int = 0) -> Answer:
    (reply,) = box.ask([1])
    code = f"def f(x):\n    return {reply.value} * x\n"
    return Answer(description=f"{reply.value} times x", code=code, structure={"family": "linear"}, queries=box.asked)


def careless(box: Box, *, seed: int) -> str:
    return "an answer, but no Answer"


def odd(box: Box, *, seed: int) -> Answer:
    """Asks and says what files and pages cannot hold as it is."""
    box.ask([10**400, float("nan"), 1.0])
    structure = {"\ud800": complex(1, 2)}
    return Answer(description="half a character: \ud800", code="def f(x):\n    return '\ud800'\n", structure=structure)


def oracle(function: Line) -> Answer:
    return Answer(description="the truth", code=f"def f(x):\n    return {function.slope} * x\n")


def grade(function: Line, answer: Answer, *, sandbox: Sandbox, seed: int = 0) -> Grade:
    xs = [-1.0, 0.5, 2.0]
    truth = [function.slope * x for x in xs]
    if not answer.code:
        return Grade(metrics={"success": 0.0, "family_named": None}, fault="no code")
    found = sandbox.call_many(answer.code, "f", xs, per_call_seconds=30)
    values = [one.value for one in found]
    fault = next((one.error for one in found if one.error), None)
    named = answer.structure.get("family")
    return Grade(
        metrics={
            "success": float(values == truth),
            "success_baseline": 0.25,
            "family_named": None if named is None else float(named == "linear"),
        },
        picture={"x": xs, "truth": truth, "answer": values},
        fault=fault,
    )


def unit_tests(function: Line, seed: int = 0) -> list[UnitTest]:
    wrong = Example(1, "banana"), Example(1, "cherry")
    return [UnitTest((wrong[0], Example(1, function.slope), wrong[1]), 1) for _ in range(2)]


def speaking(*replies: str | Callable[[ModelRequest], str]) -> tuple[Backbone, Scripted]:
    """A model that says these things in this order, or what a function of the request says."""
    script = Scripted(replies[0] if callable(replies[0]) else list(replies))  # type: ignore[arg-type]
    return open_backbone(script, retry=RetryPolicy(tries=1)), script


def asks(*inputs: Any) -> str:
    return f"Let me see.\nASK {json.dumps(list(inputs))}"
