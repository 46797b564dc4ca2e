"""The circuits benchmark: explain every circuit, grade every explanation beside its nulls, have it judged, sum up.

Explaining a circuit and grading it are two cases, so that the scientist never sees the answer key. A circuit is graded
as soon as there is what it is graded with: a null may borrow another circuit's program. Each result is in the ledger as
soon as it is there; resuming a run does what is missing, failures included. Only this process writes the ledger;
workers write the calls of their case, each to its own file. When the spending cap is reached the run stops (see
`steps`); with a higher cap the same command continues.
"""

from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Unpack

from vesalius.api.benchmarks import absolute, note_errors, performed, selection_word
from vesalius.api.door import directory_for, findable_model, verb
from vesalius.documents.base import least_confined
from vesalius.documents.explanation import Explanation
from vesalius.documents.scorecard import Scorecard
from vesalius.errors import BadInput
from vesalius.explanations.scientists import Explained, Task
from vesalius.files import mark_of
from vesalius.json_lines import short_name
from vesalius.options import MAX_TOKENS, Ask, CircuitMethod, Judges, Out, Published, Who, Workers
from vesalius.progress import Progress, silent
from vesalius.report.pages import render_circuits
from vesalius.runs.directory import Run, read_explanation
from vesalius.runs.engine import Engine, Failure, engine_named
from vesalius.runs.kinds import Benchmark
from vesalius.runs.ledger import Totals
from vesalius.runs.steps import OpenStep, StepProgress
from vesalius_backbones.runs.access import ModelAccess, totals
from vesalius_backbones.runs.steps import AskingOptions, AskingSteps, RunLimits
from vesalius_bench.circuits.scorecard import EXPLAIN, GRADE, JUDGE, State, circuits_scorecard
from vesalius_bench.circuits.selection import CircuitCase, chosen_circuits
from vesalius_bench.circuits.settings import BENCHMARK, BenchmarkSettings
from vesalius_bench.circuits.work import ToExplain, ToGrade, ToJudge, by_kind, explain_case, grade_case, judge_case
from vesalius_session.scientist import Command
from vesalius_truth.grading.circuits import CircuitGrade
from vesalius_truth.grading.tags import donor_of


class CircuitsBenchmark(AskingSteps):
    """The benchmark in an open run directory; `work` yields progress, `scorecard` sums up."""

    def __init__(self, run: Run, settings: BenchmarkSettings, **options: Unpack[AskingOptions]) -> None:
        self.settings, self.state = settings, State(run.ledger.records)
        self._unexplained: set[str] = set()
        self._explanations: dict[str, Explanation] = {}
        super().__init__(run, self.state, prices=settings.prices, **options)

    def work(self, *, jobs: int = 2) -> Generator[StepProgress]:
        """Do what is not done yet."""
        self._open_cap()
        yield from self._explain_and_grade(jobs)
        if self.settings.judges:
            yield from self._judge(jobs)

    def scorecard(self) -> Scorecard:
        """The figures, written to the run directory and returned."""
        card = circuits_scorecard(self.run, self.settings, self.state)
        if isinstance(self.settings.explainer, Command):
            explained = (self.run.explanation(case) for case in self.state.explained)
            card = card.model_copy(update={"ran": least_confined(one.ran for one in explained if one)})
        self.run.write_scorecard(card)
        return card

    def _explain_and_grade(self, jobs: int) -> Generator[StepProgress]:
        """Longest first; a circuit is graded as soon as it is explained and what it may borrow a program from is."""
        chosen = self.settings.circuits
        missing = [c for c in chosen if not self._is_explained(c.id)]
        waiting = [c for c in chosen if c in missing or c.id in self.state.explained.keys() - self.state.graded]
        self._unexplained = {c.id for c in missing}
        explain = OpenStep(EXPLAIN, self._keep_explained, len(chosen), len(chosen) - len(missing))
        grade = OpenStep(GRADE, self._keep_graded, len(chosen), len(chosen) - len(waiting))
        steps = {ToExplain: explain, ToGrade: grade}
        to_explain, to_grade = (sorted(some, key=lambda c: -c.size) for some in (missing, waiting))
        cases = self._cases(to_explain, to_grade)
        work = partial(by_kind, {ToExplain: explain_case, ToGrade: grade_case})
        yield from self._in_turn(work, cases, lambda case: steps[type(case)], jobs=jobs)

    def _cases(
        self, to_explain: list[CircuitCase], to_grade: list[CircuitCase]
    ) -> Iterator[ToExplain | ToGrade | None]:
        """What can be done now, grading first; None while all that is left waits for an explanation."""
        while True:
            to_grade = [c for c in to_grade if c.id in self._unexplained or c.id in self.state.explained]
            ready = next((c for c in to_grade if self._can_be_graded(c)), None)
            if ready is not None:
                to_grade.remove(ready)
                yield self._to_grade(ready)
            elif to_explain:
                yield self._to_explain(to_explain.pop(0))
            elif to_grade:
                yield None
            else:
                return

    def _can_be_graded(self, circuit: CircuitCase) -> bool:
        """Explained; and where it is one component, which may borrow a program, so is every other of one component."""
        if circuit.id in self._unexplained:
            return False
        return len(self._explanation(circuit.id).components) != 1 or not self._unexplained & self._may_lend

    @cached_property
    def _may_lend(self) -> set[str]:
        """Circuits that may be of one component: all of those whose components are yet to be found."""
        found_first = self.settings.circuit_from is not None
        return {c.id for c in self.settings.circuits if found_first or c.card is None or len(c.card.components) == 1}

    def _note_failure(self, step: str, case: Any, failure: Failure) -> None:
        if step == EXPLAIN:
            if failure.kind == "refused" and self.settings.leave_out is not None:
                raise BadInput(failure.reason)  # the same for every case: the name of the family is wrong
            self._unexplained.discard(case.id)
        super()._note_failure(step, case, failure)

    def _to_explain(self, circuit: CircuitCase) -> ToExplain:
        model = self.settings.backbone
        return ToExplain(self._task(circuit), None if model is None else self._reach_backbone(model, circuit.id))

    def _keep_explained(self, case: ToExplain, result: Explained) -> None:
        if result.trace is not None:
            self.run.write_trace(case.id, result.trace)
        explanation = result.explanation
        if result.circuit is not None:
            explanation = _from_file(explanation, self.run.write_circuit(case.id, result.circuit))
        self.run.write_explanation(case.id, explanation)
        figures = {"seconds": round(explanation.seconds, 3), "cost": explanation.cost}
        traced = {} if result.trace is None else {"traced": True}
        self._note("explained", case.id, **figures, **traced, **self._used(EXPLAIN, case.id))
        self._unexplained.discard(case.id)

    def _keep_graded(self, case: ToGrade, result: tuple[CircuitGrade, float]) -> None:
        grade, seconds = result
        self._note("graded", case.id, grade=grade.model_dump(mode="json"), seconds=round(seconds, 3))

    def _reach_backbone(self, model: str, case: str) -> ModelAccess:
        access = self._reach(model, case)
        return replace(access, base_url=self.limits.base_url, max_tokens=self.settings.max_tokens)

    def _task(self, circuit: CircuitCase) -> Task:
        settings = self.settings
        return Task(
            circuit.id,
            circuit.directory,
            settings.seed,
            scientist=settings.explainer,
            sandbox_unsafe=self.limits.sandbox_unsafe,
            executions=self.run.executions_path(circuit.id),
            circuit_from=settings.circuit_from,
            source=circuit.source,
            backbone=settings.backbone,
            backbone_options={} if settings.max_tokens == MAX_TOKENS else {"max_tokens": settings.max_tokens},
            timeout=self.limits.timeout,
            grants=self.limits.grants,
            programs=self.run.programs_path(circuit.id),
        )

    def _judge(self, jobs: int) -> Generator[StepProgress]:
        explained = [c for c in self.settings.circuits if c.id in self.state.explained]
        cases = [self._to_judge(c) for c in explained if not self.state.settled(c.id)]

        def keep(case: ToJudge, judged: Mapping[str, object]) -> None:
            self._note("judged", case.id, judged=judged, **self._used(JUDGE, case.id))

        yield from self._each(JUDGE, judge_case, cases, keep, of=len(explained), jobs=jobs)

    def _finished(self) -> str:
        return f"{len(self.state.explained)} of {len(self.settings.circuits)} circuits are explained"

    def _to_grade(self, circuit: CircuitCase) -> ToGrade:
        own, path, lent = self._explanation(circuit.id), self.run.explanation_path, None
        if len(own.components) == 1:
            pool = {c.id: self._explanation(c.id) for c in self.settings.circuits if c.id in self.state.explained}
            donor = donor_of(own, list(pool.values()))
            lent = next((path(name) for name, each in pool.items() if each is donor), None)
        return ToGrade(circuit.id, circuit.directory, path(circuit.id), lent, circuit.annotation)

    def _explanation(self, case: str) -> Explanation:
        """What was kept of a circuit that is explained; read once."""
        if case not in self._explanations:
            self._explanations[case] = read_explanation(self.run.explanation_path(case))
        return self._explanations[case]

    def _to_judge(self, circuit: CircuitCase) -> ToJudge:
        trace = self.run.trace_path(circuit.id)
        judges = tuple(
            self._reach(judge, circuit.id, f"judge{number}") for number, judge in enumerate(self.settings.judges, 1)
        )
        return ToJudge(
            circuit.id,
            circuit.directory,
            self.run.explanation_path(circuit.id),
            trace if trace.exists() else None,
            judges,
            circuit.annotation,
            once=self.settings.protocol == "paper",
            sandbox_unsafe=self.limits.sandbox_unsafe,
        )

    def _used(self, step: str, case: str) -> dict[str, Any]:
        if step == GRADE:
            return {}
        roles = [""] if step == EXPLAIN else [f"judge{number}" for number, _ in enumerate(self.settings.judges, 1)]
        if step == EXPLAIN and self.settings.backbone is None:
            return {}
        paths = [self._reach("", case, role).calls for role in roles]
        return {"used": Totals.together(map(totals, paths)).model_dump()}

    def _is_explained(self, case: str) -> bool:
        if case not in self.state.explained or self.run.explanation(case) is None:
            return False
        return not self.state.explained[case] or self.run.trace(case) is not None


def _from_file(explanation: Explanation, circuit: Path) -> Explanation:
    """The explanation of a discovered circuit, whose request names the circuit's file."""
    request = explanation.request
    if request is None:
        return explanation
    update = {"circuit": str(circuit), "components": None}
    return explanation.model_copy(update={"request": request.model_copy(update=update)})


@verb
def bench_circuits(
    *,
    who: Who,
    ask: Ask,
    judged: Judges,
    chosen: Published,
    source: CircuitMethod,
    workers: Workers,
    out: Out = None,
    progress: Progress = silent,
) -> Scorecard:
    """Explain circuits with known answers, grade tags and programs, and draw a page for each.

    `scientist` is "builtin", "hyve" (the default where there is a `backbone`) or `package.module:function`. `specimens`
    is a directory of specimens made by `vesalius train` instead of the 84, or of the published InterpBench models (a
    directory with one folder per case, or a hub id), which are graded against the published `annotations` (a directory
    or a hub dataset; default: `annotations` in or beside it). `ids` chooses among the 84, or among the cases;
    `circuit_from` names a method that discovers the circuit instead of taking the given one. `base_url`, `max_tokens`
    and `compact` are for the scientist's language model: where it is served, its longest reply, and short typed
    prompts; `prompts` is a directory of your own for the protocol "paper".
    """
    model, annotations = ask.backbone, None if chosen.annotations is None else str(chosen.annotations)
    circuits = chosen_circuits(chosen.folder, chosen.names, chosen.limit, annotations)
    places = {"prices": absolute(ask.prices), "prompts": absolute(ask.prompts)}
    ask = replace(ask, backbone=findable_model(ask.backbone), **places)
    judges = tuple(findable_model(judge) or "" for judge in judged.judges)
    settings = BenchmarkSettings.of(circuits, who, ask, judges, source.circuit_from)
    if ask.base_url is not None and ask.backbone is None:
        raise BadInput("`base_url`: the scientist asks no language model; leave it out")
    limits, runs_on = RunLimits.of(ask, base_url=ask.base_url), engine_named(workers.engine)
    limits.check_models(settings.models, settings.prices)
    directory = directory_for(
        out,
        "bench-circuits",
        short_name(settings.scientist),
        None if model is None else model.replace(":", "_"),
        settings.protocol,
        "compact" if settings.compact else None,
        f"prompts-{mark_of(settings.prompt_sums)[:6]}" if settings.prompts else None,
        selection_word(chosen.folder, chosen.names, chosen.limit),
        None if source.circuit_from is None else f"from-{source.circuit_from}",
        None if settings.leave_out is None else f"without-{settings.leave_out}",
        f"seed{who.seed}",
    )

    def benchmark(run: Run) -> CircuitsBenchmark:
        return CircuitsBenchmark(run, settings, limits=limits, engine=runs_on)

    names = {circuit.id: circuit.name for circuit in settings.circuits}
    card = performed(directory, settings, benchmark, limits, names=names, jobs=workers.jobs, progress=progress)
    note_errors(card, len(settings.circuits), "circuits")
    return card


class CircuitsBench(Benchmark):
    """`vesalius bench circuits`."""

    NAME = BENCHMARK

    def run(self, **options: Any) -> Scorecard:
        """Explain and grade."""
        return bench_circuits(**options)

    def settings_of(self, directory: Path, asked: dict[str, Any]) -> BenchmarkSettings:
        """What was asked."""
        return BenchmarkSettings.of_run(asked)

    def steps(
        self, run: Run, settings: BenchmarkSettings, replayed: Path, *, engine: Engine | None, sandbox_unsafe: bool
    ) -> CircuitsBenchmark:
        """Explain, grade, judge."""
        limits = RunLimits(sandbox_unsafe=sandbox_unsafe)
        return CircuitsBenchmark(run, settings, limits=limits, engine=engine, replayed=replayed)

    def page(self, directory: Path, *, progress: Progress | None = None) -> Path:
        """The index page, and one page per circuit."""
        return render_circuits(directory, progress=progress)
