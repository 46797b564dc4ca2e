"""The steps of the functions benchmark and what its ledger says.

Interpreting comes first for all functions, then grading, then an evaluator if there is one. An answer is a file of
`explanations/`, a grade a file of `grades/`; the ledger holds that they are there and what they are worth. A process
killed half way loses the cases under way and nothing else.
"""

import secrets
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from vesalius.documents.scorecard import Scorecard
from vesalius.files import write_json
from vesalius.runs.directory import EVENTS, EXPLANATIONS, Run, document_or_none
from vesalius.runs.ledger import read_ledger
from vesalius.runs.steps import Options, ScoredSteps, StepProgress
from vesalius.runs.work import ModelAccess, totals
from vesalius_functions.bench.scorecard import COUNTED, functions_scorecard
from vesalius_functions.bench.settings import FunctionSettings
from vesalius_functions.bench.state import (
    EVALUATE,
    FUNCTION_USED,
    GRADE,
    GRADING_SEED,
    INTERPRET,
    EvaluatedResult,
    FunctionState,
)
from vesalius_functions.bench.work import (
    Graded,
    Interpreted,
    ToGrade,
    ToInterpret,
    ToTest,
    evaluate_case,
    grade_case,
    interpret_case,
)
from vesalius_functions.box import Function
from vesalius_functions.interpreters import WITH_EXEMPLARS
from vesalius_functions.knowledge.models import REPLY_TOKENS
from vesalius_functions.suite import GRADING_SEEDS

GRADES = "grades"
_EVALUATOR, _FUNCTION = "evaluator", "function"


class FunctionsBenchmark(ScoredSteps):
    """The benchmark in an open run directory; `work` yields progress, `scorecard` sums up."""

    def __init__(self, run: Run, settings: FunctionSettings, **options: Unpack[Options]) -> None:
        self.settings, self.state = settings, FunctionState(run.ledger.records)
        super().__init__(run, self.state, prices=settings.prices, **options)
        self.functions: Sequence[Function] = settings.suite.functions()
        for folder in (EXPLANATIONS, GRADES):
            (run.directory / folder).mkdir(exist_ok=True)

    def work(self, *, jobs: int = 2) -> Generator[StepProgress]:
        """Do what is not done yet."""
        self._open_cap()
        yield from self._interpret(jobs)
        yield from self._grade(jobs)
        if self.settings.evaluator is not None:
            yield from self._evaluate(self.settings.evaluator, jobs)

    def scorecard(self) -> Scorecard:
        """The figures, written to the run directory and returned."""
        card = functions_scorecard(self.settings, self.functions, self.state, directory=self.run.directory)
        self.run.write_scorecard(card)
        return card

    def interpreted(self, case: str) -> Interpreted | None:
        """What is kept of a function's interpretation, if there is a whole file."""
        return document_or_none(Interpreted, self.run.explanation_path(case))

    def grade_path(self, case: str) -> Path:
        """Where the grade of a function is kept."""
        return self.run.directory / GRADES / f"{case}.json"

    def grading_seed(self) -> int:
        """The seed of test points, noise and unit tests: named, or drawn at the first call and kept in the ledger."""
        if self.settings.grading_seed is not None:
            return self.settings.grading_seed
        if self.state.grading_seed is None and self.state.graded:  # graded before seeds were drawn
            self.state.grading_seed = self.settings.suite.usual_grading_seed
        if self.state.grading_seed is None:
            self.state.grading_seed = secrets.randbelow(GRADING_SEEDS)
            self.run.ledger.append(GRADING_SEED, seed=self.state.grading_seed)
        return self.state.grading_seed

    def _interpret(self, jobs: int) -> Generator[StepProgress]:
        s = self.settings
        # Exemplars that a language model is shown must not be inputs of unit tests, so these are drawn before it.
        seed = self.grading_seed() if s.interpreter in WITH_EXEMPLARS else None
        missing = [(i, f) for i, f in enumerate(self.functions) if not self._is_interpreted(f.id)]
        cases = [
            ToInterpret(
                function.id,
                index,
                s.suite,
                s.interpreter,
                budget=s.budget,
                white_box=s.white_box,
                talk=s.talk,
                timeout=self.limits.timeout,
                access=None if s.backbone is None else self._reach(s.backbone, function.id),
                function_access=self._function_access(function.id),
                grading_seed=seed,
                executions=self.run.executions_path(function.id),
            )
            for index, function in missing
        ]

        def keep(case: ToInterpret, result: Interpreted) -> None:
            write_json(self.run.explanation_path(case.id), result.model_dump(mode="json"))
            counts = {"overlap": result.exemplar_overlap, "seconds": result.seconds, **_counts(result)}
            self._note("interpreted", case.id, **counts, **self._used(INTERPRET, case.id))

        yield from self._each(INTERPRET, interpret_case, cases, keep, of=len(self.functions), jobs=jobs)

    def _grade(self, jobs: int) -> Generator[StepProgress]:
        answered = [(i, f) for i, f in enumerate(self.functions) if f.id in self.state.interpreted]
        if not answered:
            return
        path, unsafe = self.run.explanation_path, self.limits.sandbox_unsafe
        seed = self.grading_seed()
        suite = self.settings.suite
        cases = [
            ToGrade(
                f.id,
                index,
                suite,
                path(f.id),
                seed,
                unsafe,
                self.run.executions_path(f.id),
                self._function_access(f.id),
            )
            for index, f in answered
            if not (f.id in self.state.graded and self.grade_path(f.id).exists())
        ]

        def keep(case: ToGrade, grade: Graded) -> None:
            write_json(self.grade_path(case.id), grade.model_dump(mode="json"))
            figures = {"metrics": grade.metrics, "fault": grade.fault, "seconds": grade.seconds}
            self._note("graded", case.id, **figures, **self._used(GRADE, case.id))

        yield from self._each(GRADE, grade_case, cases, keep, of=len(answered), jobs=jobs)

    def _evaluate(self, evaluator: str, jobs: int) -> Generator[StepProgress]:
        answered = [(i, f) for i, f in enumerate(self.functions) if f.id in self.state.interpreted]
        path, seed = self.run.explanation_path, self.grading_seed()
        cases = [
            ToTest(
                f.id,
                index,
                self.settings.suite,
                path(f.id),
                seed,
                self._reach(evaluator, f.id, _EVALUATOR),
                self.run.executions_path(f.id),
                self._function_access(f.id),
            )
            for index, f in answered
            if f.id not in self.state.evaluated
        ]

        def keep(case: ToTest, result: EvaluatedResult) -> None:
            self._note("evaluated", case.id, **result.model_dump(), **self._used(EVALUATE, case.id))

        yield from self._each(EVALUATE, evaluate_case, cases, keep, of=len(answered), jobs=jobs)

    def _is_interpreted(self, case: str) -> bool:
        return case in self.state.interpreted and self.interpreted(case) is not None

    def _finished(self) -> str:
        return f"{len(self.state.interpreted)} of {len(self.functions)} functions are interpreted"

    def _used(self, step: str, case: str) -> dict[str, Any]:
        model, role = (self.settings.backbone, "") if step == INTERPRET else (self.settings.evaluator, _EVALUATOR)
        used = {}
        if step != GRADE and model is not None:
            used["used"] = totals(self._reach("", case, role).calls).model_dump()
        if (access := self._function_access(case)) is not None:
            used[FUNCTION_USED] = totals(access.calls).model_dump()
        return used

    def _function_access(self, case: str) -> ModelAccess | None:
        """How a function reaches the language model that answers it: one record for all steps of the case."""
        model = self.settings.suite.function_backbone
        return None if model is None else replace(self._reach(model, case, _FUNCTION), max_tokens=REPLY_TOKENS)


def _counts(interpreted: Interpreted) -> dict[str, int | None]:
    """What an answer took."""
    return {name: getattr(interpreted.answer, name) for name in COUNTED}


def stored_seed(directory: Path, settings: FunctionSettings) -> int:
    """The grading seed that a run of functions has drawn."""
    drawn = FunctionState(read_ledger(directory / EVENTS)).grading_seed
    return settings.suite.usual_grading_seed if drawn is None else drawn
