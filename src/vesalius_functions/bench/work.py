"""What a worker does with a function: interpret it, grade the answer, have its description tested.

A worker makes the functions of the suite once and keeps one warm sandbox for all its cases; both end with its process.
What is kept on disk is JSON: numbers that JSON does not have become texts.
"""

import math
import time
from collections.abc import Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, field_validator

from vesalius.documents.base import Ran
from vesalius.json_lines import TIMEOUT
from vesalius.sandbox import Executions, RecordedSandbox
from vesalius.sandbox.command import NOTHING, Grants
from vesalius.sandbox.libraries import PRELOAD
from vesalius_backbones.runs.access import ModelAccess
from vesalius_functions.agents import DialogueLimits as Talk
from vesalius_functions.agents import take_unit_tests
from vesalius_functions.bench.settings import EvaluatedResult
from vesalius_functions.box import SUCCESS, Answer, Box, Function, json_value
from vesalius_functions.evaluators.trained import open_trained
from vesalius_functions.interpreters import interpret
from vesalius_functions.scripts import recorded
from vesalius_functions.suite import Suite


class Interpreted(BaseModel):
    """An answer as a run keeps it, with everything that was asked on the way."""

    model_config = ConfigDict(frozen=True)

    id: str
    family: str
    truth: dict[str, Any]
    answer: Answer
    #: Pairs of input and output; an output that failed is `{"error": why}`.
    log: list[tuple[Any, Any]]
    exemplar_overlap: int | None = None
    #: How the interpreter ran, where it is a foreign program.
    ran: Ran | None = None
    seconds: float


class Graded(BaseModel):
    """A grade as a run keeps it."""

    model_config = ConfigDict(frozen=True)

    id: str
    metrics: dict[str, float | None]
    picture: dict[str, Any]
    fault: str | None = None
    seconds: float

    @field_validator("picture")
    @classmethod
    def _drawable(cls, picture: dict[str, Any]) -> dict[str, Any]:
        """Refuse examples and tests that a page could not list."""
        for name, needed in (("examples", set()), ("triplets", {"true", "credit"})):
            rows = picture.get(name, [])
            if not isinstance(rows, list) or not all(isinstance(row, dict) and needed <= row.keys() for row in rows):
                raise ValueError(f"{name} is not a list of {name}")
        return picture


@dataclass(frozen=True)
class ToInterpret:
    """A case of the first step: which function of the suite, and which interpreter."""

    id: str
    index: int
    suite: Suite
    interpreter: str
    budget: int | None = None
    #: Whether the layers of nets are shown.
    white_box: bool = False
    talk: Talk = field(default_factory=Talk)
    #: Seconds that a command may be silent.
    timeout: float = TIMEOUT
    #: What a command is given, and the file that keeps what it used.
    grants: Grants = NOTHING
    programs: Path | None = None
    access: ModelAccess | None = None
    #: The language model behind the function, where there is one.
    function_access: ModelAccess | None = None
    #: Only where exemplars are shown that must not be inputs of unit tests.
    grading_seed: int | None = None
    executions: Path | None = None


@dataclass(frozen=True)
class ToGrade:
    """A case of the second step."""

    id: str
    index: int
    suite: Suite
    answer: Path | None
    grading_seed: int
    unsafe: bool = False
    executions: Path | None = None
    function_access: ModelAccess | None = None


@dataclass(frozen=True)
class ToTest:
    """A case of the third step: a description that an evaluator reads, a language model or a trained one by name."""

    id: str
    index: int
    suite: Suite
    answer: Path
    grading_seed: int
    evaluator: ModelAccess | str
    executions: Path | None = None
    function_access: ModelAccess | None = None


def interpret_case(case: ToInterpret) -> Interpreted:
    """Interpret one function."""
    started = time.monotonic()
    options: dict[str, Any] = {"suite": case.suite, "seed": case.suite.seed, "limits": case.talk}
    options |= {"grading_seed": case.grading_seed, "timeout": case.timeout}
    options |= {"grants": case.grants, "log": case.programs}
    with ExitStack() as stack:
        function = stack.enter_context(_function(case))
        box = Box(function, budget=case.budget, white_box=case.white_box)
        if case.access is not None:
            options["backbone"] = stack.enter_context(case.access.open()).within(case.id)
        result = interpret(case.interpreter, function, box, **options)
    answer = result.answer.model_copy(
        update={"interpreter": case.interpreter, "queries": box.asked or result.answer.queries}
    )
    log = [
        (json_value(asked.input), {"error": asked.reply.error} if asked.reply.error else json_value(asked.reply.value))
        for asked in box.log
    ]
    return Interpreted(
        id=case.id,
        family=function.family,
        truth=json_value(function.truth()),
        answer=answer.model_copy(update={"structure": json_value(answer.structure)}),
        log=log,
        exemplar_overlap=result.exemplar_overlap,
        ran=result.ran,
        seconds=round(time.monotonic() - started, 3),
    )


def grade_case(case: ToGrade) -> Graded:
    """Grade one answer; its code runs in this worker's sandbox."""
    assert case.answer is not None
    return grade_answer(case, _answer(case.answer))


def grade_answer(case: ToGrade, answer: Answer) -> Graded:
    """Grade an answer that is given, not read from the case's file."""
    started = time.monotonic()
    sandbox = _sandbox(case.unsafe)
    sandbox.executions = executions = Executions(case.executions)
    with _function(case, executions) as function:
        grade = case.suite.module.grade(function, answer, sandbox=sandbox, seed=case.grading_seed)
    picture = json_value(grade.picture)
    return Graded(
        id=case.id,
        metrics={name: _finite(value) for name, value in (baselines(picture) | grade.metrics).items()},
        picture=picture,
        fault=grade.fault,
        seconds=round(time.monotonic() - started, 3),
    )


def evaluate_case(case: ToTest) -> EvaluatedResult:
    """Let the evaluator take the unit tests of one description."""
    answer = _answer(case.answer)
    with _function(case) as function:
        tests = case.suite.unit_tests(function, grading_seed=case.grading_seed)
        unseen = open_trained(case.evaluator).is_new(function) if isinstance(case.evaluator, str) else None
    description = answer.description if not answer.domain else f"{answer.description}\n{answer.domain}"
    if isinstance(case.evaluator, str):
        tested = open_trained(case.evaluator).take(description, tests)
    else:
        with case.evaluator.open() as backbone:
            tested = take_unit_tests(backbone.within(case.id), description, tests)
    return EvaluatedResult(
        tests=len(tests),
        score=tested.score if tests else None,
        unanswered=sum(choice is None for choice in tested.choices),
        unseen=unseen,
    )


@contextmanager
def askable(
    suite: Suite, index: int, *, access: ModelAccess | None = None, executions: Executions | None = None
) -> Generator[Function]:
    """A function while its replies are kept: those of code by `executions`, a language model's as calls."""
    with ExitStack() as stack:
        scope = suite.functions()[index].id
        backbone = None if access is None else stack.enter_context(access.open()).within(scope)
        function = suite.function(index, backbone)
        stack.enter_context(recorded(function, executions or Executions(None)))
        yield function


def _function(
    case: ToInterpret | ToGrade | ToTest, executions: Executions | None = None
) -> AbstractContextManager[Function]:
    kept = executions or Executions(case.executions)
    return askable(case.suite, case.index, access=case.function_access, executions=kept)


def baselines(picture: dict[str, Any]) -> dict[str, float | None]:
    """What no understanding at all would earn by the published rules: the best constant, and the input given back."""
    if isinstance(picture.get("truth"), list):
        values = [value for value in picture["truth"] if isinstance(value, (int, float))]
        square = sum(value * value for value in values)
        explained = sum(values) ** 2 / len(values) if values else 0.0
        return {"success_baseline": float(square == 0 or 1 - explained / square < SUCCESS)}
    rows = picture.get("examples")
    if rows:
        return {"exact_match_baseline": sum(row["input"] == row["truth"] for row in rows) / len(rows)}
    return {}


def _answer(path: Path) -> Answer:
    return Interpreted.model_validate_json(path.read_bytes()).answer


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


@cache
def _sandbox(unsafe: bool) -> RecordedSandbox:
    """This process's sandbox, with what submitted code usually imports at hand. Its warm process ends with ours."""
    return RecordedSandbox(PRELOAD, {"torch": False}, unsafe=unsafe).__enter__()
