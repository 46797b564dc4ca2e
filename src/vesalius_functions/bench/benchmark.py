"""The steps of the functions benchmark and what its ledger says.

Interpreting comes first for all functions, then grading, then an evaluator if there is one. An answer is a file of
`explanations/`, a grade a file of `grades/`; the ledger holds that they are there and what they are worth. A process
killed half way loses the cases under way and nothing else.
"""

import secrets
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Unpack

from vesalius.api.benchmarks import absolute, note_errors, performed, selection_word
from vesalius.api.door import directory_for, findable_model, verb
from vesalius.documents.base import least_confined
from vesalius.documents.difference import Compared, ComponentDifference
from vesalius.documents.scorecard import Scorecard
from vesalius.files import mark_of, write_json
from vesalius.json_lines import short_name
from vesalius.options import Out, Spend
from vesalius.progress import Progress, silent
from vesalius.runs.directory import EVENTS, EXPLANATIONS, Run, document_or_none, read_document
from vesalius.runs.engine import Engine, engine_named
from vesalius.runs.kinds import Benchmark
from vesalius.runs.ledger import read_ledger
from vesalius.runs.steps import StepProgress
from vesalius_backbones.runs.access import ModelAccess, totals
from vesalius_backbones.runs.steps import AskingOptions, AskingSteps, RunLimits
from vesalius_functions.agents import DialogueLimits as Talk
from vesalius_functions.bench.functions import chosen_suite, suite_functions, usual_mode
from vesalius_functions.bench.scorecard import COUNTED, deciding, functions_scorecard
from vesalius_functions.bench.settings import (
    BENCHMARK,
    EVALUATE,
    FUNCTION_USED,
    GRADE,
    GRADES,
    GRADING_SEED,
    INTERPRET,
    EvaluatedResult,
    FunctionSettings,
    FunctionState,
    own_prompts,
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
from vesalius_functions.evaluators.naming import is_trained
from vesalius_functions.evaluators.trained import findable_evaluator
from vesalius_functions.interpreters import NAMES as INTERPRETERS
from vesalius_functions.interpreters import WITH_EXEMPLARS, may_be_foreign
from vesalius_functions.knowledge.scoring import REPLY_TOKENS
from vesalius_functions.options import Functions, Interpreting
from vesalius_functions.page import render_functions
from vesalius_functions.suite import GRADING_SEEDS

_EVALUATOR, _FUNCTION = "evaluator", "function"


class FunctionsBenchmark(AskingSteps):
    """The benchmark in an open run directory; `work` yields progress, `scorecard` sums up."""

    def __init__(self, run: Run, settings: FunctionSettings, **options: Unpack[AskingOptions]) -> None:
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
        if may_be_foreign(self.settings.interpreter):
            answers = (self.interpreted(case) for case in self.state.interpreted)
            card = card.model_copy(update={"ran": least_confined(one.ran for one in answers if one is not None)})
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
                grants=self.limits.grants,
                programs=self.run.programs_path(function.id),
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
                evaluator if is_trained(evaluator) else self._reach(evaluator, f.id, _EVALUATOR),
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
        if step != GRADE and model is not None and not is_trained(model):
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
    """The grading seed that a run of functions was given or has drawn."""
    if settings.grading_seed is not None:
        return settings.grading_seed
    drawn = FunctionState(read_ledger(directory / EVENTS)).grading_seed
    return settings.suite.usual_grading_seed if drawn is None else drawn


# `vesalius bench functions`: run the benchmark of black-box functions, and what its run directories are.


@verb
def bench_functions(
    *,
    category: str,
    interpreting: Interpreting,
    functions: Functions,
    spend: Spend,
    jobs: int = 2,
    engine: str = "local",
    out: Out = None,
    progress: Progress = silent,
) -> Scorecard:
    """Find the rules of black-box functions from queries alone, grade the answers, and draw a page.

    `category` is numeric, strings, entities or relations; `interpreter` is "builtin", "oracle", "table", "aia",
    "milan", "aia+milan" or `package.module:function`; `evaluator` a language model that takes the unit tests of
    descriptions, or `trained:DIR` of `evaluator_train`; `function_backbone` one that answers entities and relations
    in place of our knowledge; `count` takes the first functions, `ids` those of that name; `budget` is the number
    of queries per function; `white_box` gives the interpreter the layers of numeric functions that are nets;
    `system_prompt` "llama-2" is the paper's stricter one, in mode "published", and `prompts` a directory of your own
    prompts for it. The seed of the test points is drawn when the answers are written; the scorecard names it, and
    `grading_seed` repeats it.
    """
    asked = interpreting
    answering = findable_model(asked.function_backbone)
    suite = chosen_suite(category, functions, answering)
    if asked.prompts is not None:
        folder = str(absolute(asked.prompts))
        own = own_prompts(folder, suite, asked.interpreter, white_box=asked.white_box)
        suite = replace(suite, prompts=own)
    settings = FunctionSettings(
        suite=suite,
        interpreter=asked.interpreter,
        backbone=findable_model(asked.backbone),
        evaluator=findable_evaluator(asked.evaluator),
        budget=asked.budget,
        white_box=asked.white_box,
        talk=Talk(rounds=asked.rounds, system=asked.system_prompt or "gpt"),
        prices=absolute(spend.prices),
        grading_seed=asked.grading_seed,
    )
    limits = RunLimits.of(spend)
    runs_on = engine_named(engine)
    limits.check_models(settings.models, settings.prices)
    suite_functions(suite)
    dataset, mode = functions.dataset, functions.mode
    directory = directory_for(
        out,
        "bench-functions",
        category,
        short_name(asked.interpreter),
        None if asked.backbone is None else Path(asked.backbone.replace(":", "_")).name,
        None if answering is None else f"on-{Path(answering.replace(':', '_')).name}",
        None if mode == usual_mode(dataset) else mode,
        None if dataset is None else Path(dataset).resolve().name,
        None if suite.count is None else f"first{suite.count}",
        None if suite.ids is None else selection_word(None, suite.ids, None),
        None if asked.budget is None else f"budget{asked.budget}",
        "white-box" if asked.white_box else None,
        None if asked.system_prompt is None else f"system-{asked.system_prompt}",
        None if suite.prompts is None else f"prompts-{mark_of(suite.prompts.digests)[:8]}",
        f"seed{suite.seed}",
    )

    def benchmark(run: Run) -> FunctionsBenchmark:
        return FunctionsBenchmark(run, settings, limits=limits, engine=runs_on)

    card = performed(directory, settings, benchmark, limits, jobs=jobs, progress=progress)
    note_errors(card, card.n + card.n_error, "functions")
    return card


def decisions(run: Path) -> dict[str, tuple[str, float]]:
    """The figure that says whether an answer is right, with its name, of every graded function."""
    figures = {
        path.stem: deciding(dict(read_document(Graded, path).metrics)) for path in (run / "grades").glob("*.json")
    }
    return {name: figure for name, figure in sorted(figures.items()) if figure is not None}


class FunctionsBench(Benchmark):
    """`vesalius bench functions`."""

    NAME = BENCHMARK
    BUILT_IN: ClassVar[Mapping[str, tuple[str, ...]]] = {"vesalius.interpreters": INTERPRETERS}

    def run(self, **options: Any) -> Scorecard:
        """Interpret and grade."""
        return bench_functions(**options)

    def settings_of(self, directory: Path, asked: dict[str, Any]) -> FunctionSettings:
        """What was asked, with the grading seed that was drawn."""
        settings = FunctionSettings.of_run(asked)
        return replace(settings, grading_seed=stored_seed(directory, settings))

    def steps(
        self, run: Run, settings: FunctionSettings, replayed: Path, *, engine: Engine | None, sandbox_unsafe: bool
    ) -> FunctionsBenchmark:
        """Interpret, grade, evaluate."""
        limits = RunLimits(sandbox_unsafe=sandbox_unsafe)
        return FunctionsBenchmark(run, settings, limits=limits, engine=engine, replayed=replayed)

    def page(self, directory: Path, *, progress: Progress | None = None) -> Path:
        """The page of all functions."""
        return render_functions(directory, progress=progress)

    def compared(self, a: Path, b: Path) -> Compared:
        """Functions that one run has right and the other has not, or to another degree."""
        first, second = decisions(a), decisions(b)
        shared = [name for name in first if name in second]
        moved = [
            ComponentDifference(component=name, what=first[name][0], a=first[name][1], b=second[name][1])
            for name in shared
            if first[name] != second[name]
        ]
        left_out = len(first) + len(second) - 2 * len(shared)
        return Compared(
            components_moved=moved,
            components_same=len(shared) - len(moved),
            rule="here functions: the figure that says whether an answer is right is another one",
            notes=(f"{left_out} functions are graded in one run alone; they are left out",) if left_out else (),
        )
