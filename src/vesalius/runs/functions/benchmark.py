"""The steps of the functions benchmark and what its ledger says.

Interpreting comes first for all functions, then grading, then an evaluator if there is one. An answer is a file of
`explanations/`, a grade a file of `grades/`; the ledger holds that they are there and what they are worth. A process
killed half way loses the cases under way and nothing else.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vesalius.backbones import Totals
from vesalius.files import write_json
from vesalius.functions.box import Function
from vesalius.runs.directory import EXPLANATIONS, Run, document_or_none
from vesalius.runs.engine import Engine, Failure
from vesalius.runs.functions.settings import FunctionSettings
from vesalius.runs.functions.work import (
    Graded,
    Interpreted,
    ToGrade,
    ToInterpret,
    ToTest,
    evaluate_case,
    grade_case,
    interpret_case,
)
from vesalius.runs.settings import Limits
from vesalius.runs.steps import Progress, Steps
from vesalius.runs.work import Line, totals

INTERPRET, GRADE, EVALUATE = "interpret", "grade", "evaluate"
GRADES = "grades"
_EVALUATOR = "evaluator"


@dataclass
class FunctionState:
    """What the ledger says: which functions are interpreted, graded, evaluated or failed, and what calls used."""

    interpreted: dict[str, dict[str, Any]] = field(default_factory=dict)
    graded: dict[str, dict[str, Any]] = field(default_factory=dict)
    evaluated: dict[str, dict[str, Any]] = field(default_factory=dict)
    failed: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    used: dict[tuple[str, str], Totals] = field(default_factory=dict)

    def note(self, record: dict[str, Any]) -> None:
        """Take one record in; a new answer makes older grades void."""
        case, event = record["case"], record["event"]
        if event == "interpreted" or (event == "failed" and record["step"] == INTERPRET):
            for table in (self.interpreted, self.graded, self.evaluated):
                table.pop(case, None)
        tables = {"interpreted": self.interpreted, "graded": self.graded, "evaluated": self.evaluated}
        steps = {"interpreted": INTERPRET, "graded": GRADE, "evaluated": EVALUATE}
        step = record["step"] if event == "failed" else steps[event]
        if event == "failed":
            self.failed[case, step] = {name: record[name] for name in ("case", "step", "kind", "reason")}
        else:
            tables[event][case] = record
            self.failed.pop((case, step), None)
        if record.get("used"):
            self.used[case, step] = Totals.model_validate(record["used"])

    def total(self, step: str | None = None) -> Totals:
        """What calls used, over all steps or in one of them."""
        return Totals.together(used for (_, which), used in sorted(self.used.items()) if step in (None, which))


class FunctionsBenchmark(Steps):
    """The benchmark in an open run directory; `work` yields progress, `scorecard` sums up."""

    def __init__(
        self,
        run: Run,
        settings: FunctionSettings,
        *,
        limits: Limits | None = None,
        engine: Engine | None = None,
        line: Callable[[Line], Line] = lambda line: line,
    ) -> None:
        super().__init__(run, prices=settings.prices, limits=limits, engine=engine, line=line)
        self.settings = settings
        self.functions: Sequence[Function] = settings.suite.functions()
        self.state = FunctionState()
        for folder in (EXPLANATIONS, GRADES):
            (run.directory / folder).mkdir(exist_ok=True)
        for record in run.ledger.records:
            self.state.note(record)

    def work(self, *, jobs: int = 2) -> Generator[Progress]:
        """Do what is not done yet."""
        self._open_purse()
        yield from self._interpret(jobs)
        yield from self._grade(jobs)
        if self.settings.evaluator is not None:
            yield from self._evaluate(self.settings.evaluator, jobs)

    def scorecard(self) -> dict[str, Any]:
        """The figures, written to the run directory and returned."""
        from vesalius.runs.functions.scorecard import summed

        card = summed(self)
        self.run.write_scorecard(card)
        return card

    def interpreted(self, case: str) -> Interpreted | None:
        """What is kept of a function's interpretation, if there is a whole file."""
        return document_or_none(Interpreted, self.run.explanation_path(case))

    def grade_path(self, case: str) -> Path:
        """Where the grade of a function is kept."""
        return self.run.directory / GRADES / f"{case}.json"

    def _interpret(self, jobs: int) -> Generator[Progress]:
        s = self.settings
        missing = [(i, f) for i, f in enumerate(self.functions) if not self._is_interpreted(f.id)]
        cases = [
            ToInterpret(
                function.id,
                index,
                s.suite,
                s.interpreter,
                budget=s.budget,
                talk=s.talk,
                line=None if s.backbone is None else self._reach(s.backbone, function.id),
            )
            for index, function in missing
        ]

        def keep(case: ToInterpret, found: Interpreted) -> None:
            write_json(self.run.explanation_path(case.id), found.model_dump(mode="json"))
            said = {"overlap": found.exemplar_overlap, "seconds": found.seconds, **_counted(found)}
            self._note("interpreted", case.id, **said, **self._used(INTERPRET, case.id))

        yield from self._each(INTERPRET, interpret_case, cases, keep, of=len(self.functions), jobs=jobs)

    def _grade(self, jobs: int) -> Generator[Progress]:
        answered = [(i, f) for i, f in enumerate(self.functions) if f.id in self.state.interpreted]
        path, unsafe = self.run.explanation_path, self.limits.sandbox_unsafe
        cases = [
            ToGrade(f.id, index, self.settings.suite, path(f.id), unsafe)
            for index, f in answered
            if not (f.id in self.state.graded and self.grade_path(f.id).exists())
        ]

        def keep(case: ToGrade, found: Graded) -> None:
            write_json(self.grade_path(case.id), found.model_dump(mode="json"))
            self._note("graded", case.id, metrics=found.metrics, fault=found.fault, seconds=found.seconds)

        yield from self._each(GRADE, grade_case, cases, keep, of=len(answered), jobs=jobs)

    def _evaluate(self, evaluator: str, jobs: int) -> Generator[Progress]:
        answered = [(i, f) for i, f in enumerate(self.functions) if f.id in self.state.interpreted]
        path = self.run.explanation_path
        cases = [
            ToTest(f.id, index, self.settings.suite, path(f.id), self._reach(evaluator, f.id, _EVALUATOR))
            for index, f in answered
            if f.id not in self.state.evaluated
        ]

        def keep(case: ToTest, found: dict[str, Any]) -> None:
            self._note("evaluated", case.id, **found, **self._used(EVALUATE, case.id))

        yield from self._each(EVALUATE, evaluate_case, cases, keep, of=len(answered), jobs=jobs)

    def _is_interpreted(self, case: str) -> bool:
        return case in self.state.interpreted and self.interpreted(case) is not None

    def _note_failure(self, step: str, case: str, failure: Failure) -> None:
        used = {} if step == GRADE else self._used(step, case)
        self._note("failed", case, step=step, kind=failure.kind, reason=failure.reason, **used)

    def _cost(self) -> float | None:
        return self.state.total().cost

    def _finished(self) -> str:
        return f"{len(self.state.interpreted)} of {len(self.functions)} functions are interpreted"

    def _used(self, step: str, case: str) -> dict[str, Any]:
        """What the calls of a step used, for its record; nothing where no model is asked."""
        model, role = (self.settings.backbone, "") if step == INTERPRET else (self.settings.evaluator, _EVALUATOR)
        return {} if model is None else {"used": totals(self._reach("", case, role).calls).model_dump()}

    def _note(self, event: str, case: str, **fields: Any) -> None:
        self.state.note(self.run.ledger.append(event, case=case, **fields))


def _counted(found: Interpreted) -> dict[str, Any]:
    """What an answer took."""
    names = ("queries", "rounds", "input_tokens", "output_tokens", "hallucinated")
    return {name: getattr(found.answer, name) for name in names}
