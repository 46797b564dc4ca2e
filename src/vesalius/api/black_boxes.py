"""Black-box functions that somebody asks and then describes; what they are stays inside.

functions = BlackBoxes("numeric", count=20)
box = functions.box("f00003", budget=100)
replies = box.ask([0, 1, 2])
grade = functions.grade("f00003", description="twice x", code="def f(x): return 2 * x")
"""

import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from vesalius.errors import BadInput, choices, quoted
from vesalius.functions.agents.commands import usable_input
from vesalius.functions.agents.prompting import render
from vesalius.functions.answer import Answer
from vesalius.functions.box import Box
from vesalius.functions.categories import CATEGORIES
from vesalius.functions.suite import SEED, Suite
from vesalius.runs.functions.work import baselines, json_value
from vesalius.sandbox import Sandbox
from vesalius.sandbox.libraries import PRELOAD

__all__ = ["CATEGORIES", "SEED", "BlackBoxes", "FunctionGrade", "asked", "category_words"]
COUNT = 50
_TAKES = {"numeric": "numbers", "strings": "texts", "entities": "words", "relations": "words"}


class FunctionGrade(BaseModel):
    """The figures of one answer, and why its code could not be graded, if so; nothing of the function itself."""

    model_config = ConfigDict(frozen=True)

    metrics: dict[str, float]
    fault: str | None = None


class BlackBoxes:
    """The functions of one category drawn by seed; submitted code runs in a sandbox that starts when first needed."""

    def __init__(self, category: str, *, seed: int = SEED, count: int = COUNT, unsafe: bool = False) -> None:
        self._suite = Suite(category, seed, count)
        self._functions = {function.id: function for function in self._suite.functions()}
        self._unsafe, self._sandbox, self._turn = unsafe, None, threading.Lock()

    @property
    def ids(self) -> list[str]:
        """The names of the functions, which say nothing about them."""
        return list(self._functions)

    def box(self, function: str, *, budget: int | None = None) -> Box:
        """A function that can only be asked."""
        return Box(self._function(function), budget=budget)

    def grade(
        self, function: str, *, description: str, code: str | None = None, domain: str | None = None
    ) -> FunctionGrade:
        """Grade an answer; its code runs in the sandbox."""
        answer = Answer(description=description, code=code, domain=domain)
        with self._turn:
            if self._sandbox is None:
                self._sandbox = Sandbox(PRELOAD, {"torch": False}, unsafe=self._unsafe).__enter__()
            seed = self._suite.usual_grading_seed
            graded = self._suite.module.grade(self._function(function), answer, sandbox=self._sandbox, seed=seed)
        figures = baselines(json_value(graded.picture)) | graded.metrics
        known = {name: float(value) for name, value in figures.items() if value is not None and value == value}
        return FunctionGrade(metrics=known, fault=graded.fault)

    def close(self) -> None:
        """End the sandbox."""
        if self._sandbox is not None:
            self._sandbox.close()
            self._sandbox = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _function(self, function: str) -> Any:
        if function not in self._functions:
            raise BadInput(f"function {function[:60]!r} does not exist; choose one of {choices(self._functions)}")
        return self._functions[function]


def asked(box: Box, inputs: Sequence[Any]) -> list[dict[str, Any]]:
    """Ask a box: input and output of each as JSON, or the input and why there is no output."""
    taken = []
    for one in inputs:
        value, why = usable_input(one, box.category)
        if why is not None:
            raise BadInput(f"input {quoted(one, 60)}: {why}; {box.category} functions take {_TAKES[box.category]}")
        taken.append(value)
    replies = box.ask(taken)
    return [
        {"input": json_value(one), **({"error": reply.error} if reply.error else {"output": json_value(reply.value)})}
        for one, reply in zip(taken, replies, strict=True)
    ]


def category_words(category: str) -> str:
    """What the inputs of a category are, and what is wanted of an answer."""
    if category not in CATEGORIES:
        raise BadInput(f"category {category!r} does not exist; choose one of {choices(CATEGORIES)}")
    return render(category, asking=True)
