"""Single functions of the functions benchmark, for agents that ask them and harnesses that sum up themselves.

    cases = FunctionCases.chosen("numeric", count=20)
    answer = cases.interpret("f00003")                        # or: asked(cases.box(...), inputs), and write an answer
    figures = cases.grade("f00003", answer).metrics

What a function is stays inside: a box replies, an answer is graded, and the figures are those of `bench functions`.
"""

import secrets
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vesalius.backbones import Backbone, open_backbone
from vesalius.documents.metric import Metric
from vesalius.errors import BadInput, choices, quoted
from vesalius_functions.agents.commands import usable_input
from vesalius_functions.agents.dialogue import PARTS, WORDS
from vesalius_functions.agents.dialogue import DialogueLimits as Talk
from vesalius_functions.agents.invention import render, said_pairs
from vesalius_functions.answer import Answer
from vesalius_functions.bench.functions import chosen_suite, suite_functions
from vesalius_functions.bench.scorecard import figures_of, metrics_of
from vesalius_functions.bench.state import InterpretedResult
from vesalius_functions.bench.work import ToGrade, grade_answer, json_value
from vesalius_functions.box import Box, Function
from vesalius_functions.interpreters import BUILTIN, WITH_MODEL, check_askable, check_interpreter, interpret
from vesalius_functions.suite import GRADING_SEEDS, Suite

__all__ = [
    "WITH_MODEL",
    "Answer",
    "Box",
    "FunctionCases",
    "FunctionGrade",
    "ask_box",
    "asked",
    "category_words",
    "function_metrics",
]
#: Answers are graded in one sandbox of the process, one at a time.
_GRADING = threading.Lock()


_TAKES = {"numeric": "numbers", "strings": "texts", "entities": "words", "relations": "words"}


@dataclass(frozen=True)
class FunctionGrade:
    """The figures of one answer under the names of a scorecard (None: does not apply), and why its code could not be
    graded, if so; nothing of the function itself.
    """

    metrics: dict[str, float | None]
    fault: str | None = None


@dataclass(frozen=True)
class FunctionCases:
    """A choice of functions, and the seed of the points and tests that answers are graded on."""

    suite: Suite
    grading_seed: int
    unsafe_sandbox: bool = False

    @classmethod
    def chosen(
        cls,
        category: str,
        *,
        seed: int | None = None,
        count: int | None = None,
        mode: str | None = None,
        dataset: str | Path | None = None,
        grading_seed: int | None = None,
        repeatable: bool = False,
        unsafe_sandbox: bool = False,
    ) -> "FunctionCases":
        """The functions that the options of `bench functions` choose. Where no grading seed is given it is drawn, or,
        if `repeatable`, follows from the seed of the functions.
        """
        if grading_seed is not None and not 0 <= grading_seed < GRADING_SEEDS:
            raise BadInput(f"grading seed {grading_seed}: give a number from 0 to {GRADING_SEEDS - 1}")
        suite = chosen_suite(category, seed, count, mode, dataset)
        suite_functions(suite)
        if grading_seed is None:
            grading_seed = suite.usual_grading_seed if repeatable else secrets.randbelow(GRADING_SEEDS)
        return cls(suite, grading_seed, unsafe_sandbox)

    @property
    def ids(self) -> list[str]:
        """The names of the functions, which say nothing about them."""
        return [function.id for function in self.suite.functions()]

    def box(self, case: str, *, budget: int | None = None) -> Box:
        """A function that can only be asked."""
        function = self._function(case)[1]
        check_askable(function)
        return Box(function, budget=budget)

    def briefing(self, box: Box) -> str:
        """What an agent has to know to ask a box and describe what is in it."""
        parts = {part: WORDS[part] for part in PARTS[box.category]}
        budget = "" if box.budget is None else f" You may ask for {box.budget} outputs in all."
        wanted = "\n".join(f"- {part.lower()}: {words}" for part, words in parts.items())
        return (
            f"f is a black-box function. Find out what it does by asking for its outputs, then describe it.{budget}\n\n"
            f"{category_words(box.category)}\n\nSubmit once:\n{wanted}"
        )

    def require(self, interpreter: str, *, model: str | None) -> None:
        """Refuse an interpreter that does not exist, or does not go with the category or the language model."""
        check_interpreter(interpreter, self.suite.category, backbone=model)

    def interpret(
        self,
        case: str,
        interpreter: str = BUILTIN,
        *,
        backbone: str | Backbone | None = None,
        budget: int | None = None,
        rounds: int = 20,
    ) -> Answer:
        """What one of our interpreters says of a function."""
        function = self._function(case)[1]
        box = Box(function, budget=budget)
        with ExitStack() as stack:
            if isinstance(backbone, str):
                backbone = stack.enter_context(open_backbone(backbone)).within(case)
            result = interpret(
                interpreter,
                function,
                box,
                suite=self.suite,
                seed=self.suite.seed,
                backbone=backbone,
                limits=Talk(rounds=rounds),
                grading_seed=self.grading_seed,
            )
        update = {
            "interpreter": interpreter,
            "queries": box.asked,
            "structure": json_value(result.answer.structure),
        }
        return result.answer.model_copy(update=update)

    def grade(self, case: str, answer: Answer) -> FunctionGrade:
        """The figures of one answer; its code runs in the sandbox."""
        index, _ = self._function(case)
        to_grade = ToGrade(case, index, self.suite, None, self.grading_seed, unsafe=self.unsafe_sandbox)
        with _GRADING:
            graded = grade_answer(to_grade, answer)
        counts = {name: getattr(answer, name) for name in ("rounds", "input_tokens", "output_tokens", "hallucinated")}
        figures = figures_of(graded.metrics, InterpretedResult(seconds=0.0, queries=answer.queries, **counts))
        return FunctionGrade(figures, graded.fault)

    def _function(self, case: str) -> tuple[int, Function]:
        for index, function in enumerate(self.suite.functions()):
            if function.id == case:
                return index, function
        raise BadInput(f"function {case!r:.60} does not exist; choose one of {choices(self.ids)}")


def asked(box: Box, inputs: Sequence[Any]) -> list[dict[str, Any]]:
    """Ask a box: input and output of each as JSON, or the input and why there is no output. An input that cannot be
    taken asks nothing.
    """
    if not isinstance(inputs, list) or not inputs:
        raise BadInput("inputs: give a list with at least one input, such as [1, 2, 3]")
    taken = []
    for one in inputs:
        value, why = usable_input(one, box.category)
        if why is not None:
            takes = f"{box.category} functions take {_TAKES[box.category]}"
            raise BadInput(f"input {quoted(one, 60)}: {why}; {takes}, and nothing was asked")
        taken.append(value)
    replies = box.ask(taken)
    return [
        {"input": json_value(one), **({"error": reply.error} if reply.error else {"output": json_value(reply.value)})}
        for one, reply in zip(taken, replies, strict=True)
    ]


def ask_box(box: Box, inputs: Sequence[Any]) -> str:
    """The same as text, one line each."""
    rows = asked(box, inputs)
    return said_pairs(box.log[-len(rows) :])


def category_words(category: str) -> str:
    """What the inputs of a category are, and what is wanted of an answer."""
    return render(category, asking=True)


def function_metrics(rows: Sequence[Mapping[str, float | None]]) -> dict[str, Metric]:
    """The metrics of a scorecard from the figures of each function."""
    return metrics_of([dict(row) for row in rows])
