"""What a worker does with a case: explain it, grade it, or have it judged.

Cases are sent between processes, so they are small frozen data and functions are looked up by name. Heavy modules are
imported when a case needs them.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vesalius.explanations.scientists import Explained, Task, explain_task
from vesalius.runs.directory import read_explanation, read_trace
from vesalius_backbones import CapReached
from vesalius_backbones.runs.access import ModelAccess

if TYPE_CHECKING:
    from vesalius.documents.trace import Trace
    from vesalius_truth.grading.circuits import CircuitGrade
    from vesalius_truth.grading.plans import PlanTest


@dataclass(frozen=True)
class ToExplain:
    """A case of the first step."""

    task: Task
    access: ModelAccess | None = None

    @property
    def id(self) -> str:
        return self.task.id


@dataclass(frozen=True)
class ToGrade:
    """A case of the second step: an explanation, and the one its shuffled null borrows a program from."""

    id: str
    directory: Path
    explanation: Path
    donor: Path | None
    annotation: Path | None = None


@dataclass(frozen=True)
class ToJudge:
    """A case of the third step: an explanation, the way to it, and the models that judge them, each asked `once` as
    published, or in both orders. The programs of plans run again, `sandbox_unsafe` even where they cannot be contained.
    """

    id: str
    directory: Path
    explanation: Path
    trace: Path | None
    judges: tuple[ModelAccess, ...]
    annotation: Path | None = None
    once: bool = False
    sandbox_unsafe: bool = False


def by_kind(work: Mapping[type, Callable[[Any], Any]], case: object) -> Any:
    """What is done with a case of its kind, where cases of several are mixed."""
    return work[type(case)](case)


def explain_case(case: ToExplain) -> Explained:
    """Explain one circuit."""
    if case.access is None:
        return explain_task(case.task)
    with case.access.open() as backbone:
        return explain_task(case.task, backbone.within(case.id))


def grade_case(case: ToGrade) -> "tuple[CircuitGrade, float]":
    """Grade one explanation and its nulls; also how many seconds that took."""
    from vesalius_truth.grading.circuits import grade_circuit

    started = time.monotonic()
    donor = None if case.donor is None else read_explanation(case.donor)
    explanation = read_explanation(case.explanation)
    graded = grade_circuit(explanation, donor=donor, directory=case.directory, annotation=case.annotation)
    return graded, time.monotonic() - started


def judge_case(case: ToJudge) -> dict[str, Any]:
    """Have one explanation judged and its plans tried; JSON data of a `JudgedCircuit`. A cap that was reached is
    raised, not kept.
    """
    from vesalius_bench.judges import Judge, PluginJudge, judge_explanation, judge_plugin

    trace = None if case.trace is None else read_trace(case.trace)
    with ExitStack() as stack:
        judges = [
            Judge(stack.enter_context(access.open()), once=case.once) if plugin is None else PluginJudge(plugin)
            for access in case.judges
            for plugin in [judge_plugin(access.model)]
        ]
        explanation = read_explanation(case.explanation)
        given = judge_explanation(
            explanation, trace, judges=judges, directory=case.directory, annotation=case.annotation
        )
    plans = () if trace is None else _plans(trace, case, seed=explanation.seed)
    judged = given.model_copy(update={"plans": plans}).model_dump(mode="json")
    capped = next((error for error in judging_errors(judged) if error["kind"] == CapReached.kind), None)
    if capped:
        raise CapReached(capped["error"])
    return judged


def _plans(trace: "Trace", case: ToJudge, *, seed: int) -> "tuple[PlanTest, ...]":
    """The validation plans of a trace, tried where their hypotheses are wrong."""
    from vesalius_truth.grading.keys import graded_specimen
    from vesalius_truth.grading.plans import programs_of, try_plans

    if not any(programs_of(attempt) for part in trace.components for attempt in part.attempts):
        return ()
    specimen = graded_specimen(trace.specimen, case.directory)
    return try_plans(trace, specimen, seed=seed, unsafe=case.sandbox_unsafe)


def judging_errors(judged: Any) -> Iterator[dict[str, Any]]:
    """Every opinion in a judged circuit that is an error instead of a score."""
    if isinstance(judged, dict):
        if judged.get("error") and "kind" in judged:
            yield judged
        judged = list(judged.values())
    for part in judged if isinstance(judged, list) else ():
        yield from judging_errors(part)
