"""Black-box functions with known answers: to look at, and to serve to agents as the published scripts."""

import json
import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from vesalius.api.door import directory_for, verb
from vesalius.documents.metric import Metric
from vesalius.errors import BadInput, choices, note, quoted
from vesalius.files import write_text
from vesalius_backbones import Backbone, open_backbone
from vesalius_functions.agents import exemplars_for
from vesalius_functions.agents.commands import render, said_input, said_output, said_pairs, usable_input
from vesalius_functions.agents.dialogue import PARTS, WORDS
from vesalius_functions.agents.dialogue import DialogueLimits as Talk
from vesalius_functions.agents.evaluator import SPLITS, TESTED, TESTS, USUAL_SEED, evaluator_examples
from vesalius_functions.bench.scorecard import figures_of, metrics_of
from vesalius_functions.bench.settings import InterpretedResult
from vesalius_functions.bench.work import ToGrade, grade_answer
from vesalius_functions.box import Answer, Box, Function, Mode, json_value
from vesalius_functions.interpreters import BUILTIN, check_askable, check_interpreter, interpret
from vesalius_functions.options import Drawn, Functions
from vesalius_functions.serving import ServedFunctions
from vesalius_functions.suite import GRADING_SEEDS, SEED, Suite

#: How many are shown where nothing is said.
SHOWN = 5


@verb
def sample_functions(category: str, *, functions: Functions) -> list[dict[str, Any]]:
    """Functions of a category (numeric, strings, entities, relations) with their truth and a few examples.

    The first `count` (5 where nothing is said), or those that `ids` names, such as "f00042" or 42. `mode` is
    "fixed", or "published" with the published faults; `dataset` a folder of the published dataset.
    """
    if functions.count is None and functions.ids is None:
        functions = replace(functions, count=SHOWN)
    suite = chosen_suite(category, functions)
    return [_described(suite, function) for function in suite_functions(suite)]


@verb
@contextmanager
def serve_functions(
    category: str, out: str | Path, *, functions: Functions, budget: int | None = None
) -> Iterator[ServedFunctions]:
    """Put functions behind scripts in the published form (`python function.py x`) while the block runs.

    `out` gets a folder per function; the definitions are in no file there. `ids` names some of the functions that the
    other options choose, `budget` is the number of inputs that each may be asked. Every query is a line of
    `queries.jsonl`, also for a server that is started again. `bench_functions(interpreter="answers:DIR")` grades what
    an agent wrote into the folders.
    """
    served = {function.id: function for function in suite_functions(chosen_suite(category, functions))}
    for function in served.values():
        check_askable(function)
    with ServedFunctions(served, directory_for(out), budget=budget) as server:
        yield server


def evaluator_data(
    out: str | Path,
    *,
    categories: str | Sequence[str] = TESTED,
    tests: int = TESTS,
    seed: int = USUAL_SEED,
) -> dict[str, dict[str, int]]:
    """Write training data for an evaluator of descriptions to `out`: train.jsonl, validation.jsonl and test.jsonl.

    A line is a unit test of a true description with its answer, also as chat messages; no concept, relation or program
    is in two splits. `tests` is their number per category. Returns tests and functions of each split.
    """
    chosen = (categories,) if isinstance(categories, str) else tuple(dict.fromkeys(categories))
    examples = list(evaluator_examples(chosen, tests=tests, seed=seed))
    directory = directory_for(out)
    counts: dict[str, dict[str, int]] = {}
    for split in SPLITS:
        rows = [one for one in examples if one.split == split]
        lines = (json.dumps(row.as_data(), ensure_ascii=False) + "\n" for row in rows)
        write_text(directory / f"{split}.jsonl", "".join(lines))
        counts[split] = {"tests": len(rows), "functions": len({(row.category, row.function) for row in rows})}
    return counts


def chosen_suite(category: str, chosen: Drawn, function_backbone: str | None = None) -> Suite:
    """The functions that the options choose, not drawn yet."""
    if chosen.dataset is not None and not str(chosen.dataset).strip():
        raise BadInput("`dataset`: is empty; give the folder of a published dataset, or leave it out")
    ids = chosen.ids if isinstance(chosen, Functions) else None
    named = [one.strip() for one in ids.split(",") if one.strip()] if isinstance(ids, str) else ids
    return Suite(
        category,
        SEED if chosen.seed is None else chosen.seed,
        chosen.count,
        cast(Mode, chosen.mode or usual_mode(chosen.dataset)),
        None if chosen.dataset is None else str(Path(chosen.dataset).resolve()),
        None if named is None else tuple(map(str, named)),
        function_backbone,
    )


def suite_functions(suite: Suite) -> Sequence[Function]:
    """The functions of a suite; says how many records of a dataset were left out."""
    functions, left_out = suite.functions(), suite.left_out
    if left_out:
        name, reason = next(iter(left_out.items()))
        first = f"the first, {name}: {reason}"
        note(f"dataset {suite.dataset}: {len(functions)} functions, {len(left_out)} records left out; {first}")
    return functions


def usual_mode(dataset: str | Path | None) -> Mode:
    """Functions drawn afresh are without the published faults; those of a published folder are as published."""
    return "fixed" if dataset is None else "published"


def _described(suite: Suite, function: Function) -> dict[str, Any]:
    box = Box(function)
    box.ask(exemplars_for(function, suite).inputs)
    examples = [
        {
            "input": json_value(query.input),
            "output": json_value(query.reply.value),
            **({} if query.reply.error is None else {"error": query.reply.error}),
            "text": f"f({said_input(query.input)}) = {said_output(query.reply)}",
        }
        for query in box.log
    ]
    identity = {"id": function.id, "category": function.category, "family": function.family}
    return {**identity, "truth": json_value(function.truth()), "examples": examples}


# Single functions of the functions benchmark, for agents that ask them and harnesses that sum up themselves.
#
#     cases = FunctionCases.chosen("numeric", Drawn(count=20))
#     answer = cases.interpret("f00003")                        # or: asked(cases.box(...), inputs), and write an answer
#     figures = cases.grade("f00003", answer).metrics
#
# What a function is stays inside: a box replies, an answer is graded, and the figures are those of `bench functions`.

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
        drawn: Drawn,
        *,
        grading_seed: int | None = None,
        repeatable: bool = False,
        unsafe_sandbox: bool = False,
    ) -> "FunctionCases":
        """The functions that the options of `bench functions` choose. Where no grading seed is given it is drawn, or,
        if `repeatable`, follows from the seed of the functions.
        """
        if grading_seed is not None and not 0 <= grading_seed < GRADING_SEEDS:
            raise BadInput(f"grading seed {grading_seed}: give a number from 0 to {GRADING_SEEDS - 1}")
        suite = chosen_suite(category, drawn)
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


def asked(box: Box, inputs: Sequence[object]) -> list[dict[str, Any]]:
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


def ask_box(box: Box, inputs: Sequence[object]) -> str:
    """The same as text, one line each."""
    rows = asked(box, inputs)
    return said_pairs(box.log[-len(rows) :])


def category_words(category: str) -> str:
    """What the inputs of a category are, and what is wanted of an answer."""
    return render(category, asking=True)


def function_metrics(rows: Sequence[Mapping[str, float | None]]) -> dict[str, Metric]:
    """The metrics of a scorecard from the figures of each function."""
    return metrics_of([dict(row) for row in rows])
