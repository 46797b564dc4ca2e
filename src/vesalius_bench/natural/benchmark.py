"""`bench natural`: scientists explain natural models, and what they say is run in the models' place.

A case is one scientist on one model and behaviour. First every scientist proposes, the null last, for it takes the
names of the built-in one's; then every proposal is run on prompts that none of them has seen. Both results are in the
ledger as soon as they are there: a run that was ended does what is missing.
"""

from collections.abc import Generator, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from vesalius.api.door import directory_for, verb
from vesalius.documents.explanation import Explanation
from vesalius.errors import Failed, note
from vesalius.explanations.scientists import BUILTIN
from vesalius.options import Foreign, Jobs, Out
from vesalius.progress import Progress, silent
from vesalius.runs.directory import Run
from vesalius.runs.engine import Engine
from vesalius.runs.kinds import Benchmark
from vesalius.runs.ledger import LedgerState, LedgerStep
from vesalius.runs.steps import StepProgress, Steps
from vesalius.sandbox.command import Grants
from vesalius_bench.natural.documents import BENCH_FILE, NULL, NaturalBench, NaturalFigures
from vesalius_bench.natural.planted import planted_models
from vesalius_bench.natural.settings import BENCHMARK, MODELS_FOLDER, PLANTED, NaturalSettings
from vesalius_bench.natural.work import NaturalCase, Proposed, ToPropose, ToRun, propose, run_it
from vesalius_bench.options import NaturalOptions
from vesalius_bench.survey.documents import short_name

PROPOSE, RUN = "propose", "run in its place"


class NaturalSteps(Steps):
    """The benchmark in an open run directory."""

    def __init__(
        self,
        run: Run,
        settings: NaturalSettings,
        *,
        engine: Engine | None = None,
        unsafe: bool = False,
        grants: Grants | None = None,
    ) -> None:
        self.settings, self._grants = settings, grants or Grants(unsafe=unsafe)
        self.cases = settings.cases(run.directory.absolute(), unsafe=unsafe)
        steps = [
            LedgerStep(PROPOSE, "proposed", lambda record: Proposed.model_validate(record["proposed"])),
            LedgerStep(RUN, "run", lambda record: NaturalFigures.model_validate(record["figures"])),
        ]
        self.state = LedgerState(steps, run.ledger.records)
        super().__init__(run, self.state, engine=engine)

    @property
    def proposed(self) -> Mapping[str, Proposed]:
        """What every finished case proposes."""
        return self.state.results[PROPOSE]

    @property
    def figures(self) -> Mapping[str, NaturalFigures]:
        """What every proposal is worth."""
        return self.state.results[RUN]

    def work(self, *, jobs: int = 2) -> Generator[StepProgress]:
        """Propose and run what is not there yet."""
        if PLANTED in self.settings.models:
            for one in planted_models():
                one.write(self.run.directory / MODELS_FOLDER)
        first = [case for case in self.cases if case.scientist != NULL]
        yield from self._propose([self._to_propose(case) for case in self._missing(first)], of=len(first), jobs=jobs)
        last = [case for case in self.cases if case.scientist == NULL]
        drawn = [ToPropose(case, None, names=own) for case in self._missing(last) if (own := self._names_of(case))]
        yield from self._propose(drawn, of=len(drawn), jobs=jobs)
        missing = [
            ToRun(case, self.proposed[case.id])
            for case in self.cases
            if case.id in self.proposed and case.id not in self.figures
        ]

        def keep(work: ToRun, figures: dict[str, Any]) -> None:
            self._note("run", work.id, figures=figures)

        yield from self._each(RUN, run_it, missing, keep, of=len(self.figures) + len(missing), jobs=jobs)

    def result(self, *, seconds: float = 0.0) -> NaturalBench:
        """What is known of every case."""
        rows = [self.figures[case.id] for case in self.cases if case.id in self.figures]
        failed = [
            self.state.failed[case.id, step].model_copy(update={"method": case.scientist})
            for case in self.cases
            for step in (PROPOSE, RUN)
            if (case.id, step) in self.state.failed
        ]
        if not rows and failed:
            raise Failed(f"{self.run.directory}: no explanation could be graded; the first: {failed[0].reason}")
        return NaturalBench(
            request=self.settings.request(),
            scientists=self.settings.scientists,
            n=self.settings.options.n,
            seed=self.settings.options.seed,
            rows=tuple(rows),
            errors=tuple(failed),
            seconds=round(sum(row.cpu_seconds for row in rows), 2),
            directory=str(self.run.directory),
        )

    def _missing(self, cases: Iterable[NaturalCase]) -> list[NaturalCase]:
        return [case for case in cases if case.id not in self.proposed]

    def _to_propose(self, case: NaturalCase) -> ToPropose:
        return ToPropose(
            case,
            self.settings.scientist(case.scientist),
            programs=self.run.programs_path(case.id),
            executions=self.run.executions_path(case.id),
            grants=self._grants,
        )

    def _names_of(self, case: NaturalCase) -> Proposed | None:
        """What the built-in scientist proposes of the same model and behaviour."""
        own = (BUILTIN, case.model, case.behaviour)
        same = next(one for one in self.cases if (one.scientist, one.model, one.behaviour) == own)
        return self.proposed.get(same.id)

    def _propose(self, work: list[ToPropose], *, of: int, jobs: int) -> Generator[StepProgress]:
        def keep(one: ToPropose, result: tuple[Proposed, Explanation | None]) -> None:
            proposed, explanation = result
            if explanation is not None:
                self.run.write_explanation(one.id, explanation)
            self._note("proposed", one.id, proposed=proposed.model_dump(mode="json"))

        yield from self._each(PROPOSE, propose, work, keep, of=of, jobs=jobs)

    def _finished(self) -> str:
        return f"{len(self.figures)} of {len(self.cases)} explanations are graded"


@verb
def bench_natural(
    models: str | Path | Iterable[str | Path] = PLANTED,
    *,
    options: NaturalOptions,
    foreign: Foreign,
    workers: Jobs,
    out: Out = None,
    progress: Progress = silent,
) -> NaturalBench:
    """Have scientists explain natural models, and run what they say in the models' place.

    `models` are names, directories or hub ids of natural models, each with every one of `behaviours`; "planted" are
    models whose weights are written by hand, each with its own behaviour and a known answer. `scientists` are
    "builtin", "scripted", "null", `command:PROGRAM` or `package.module:function`. Every explanation is graded on `n`
    prompts of the test split, by the share that it keeps beside controls, the accuracy of its variables, whether it
    says which components can stand in for each other, its size and its cost. The same call continues a run that was
    ended.
    """
    several = [models] if isinstance(models, str | Path) else list(models)
    settings = NaturalSettings(tuple(map(str, several)), options)
    word = "_".join(short_name(name) for name in settings.models)[:60]
    who = None if not options.scientists else "_".join(name.partition(":")[0] for name in options.scientists)
    directory = directory_for(out, "bench-natural", word, who, f"n{options.n}", f"seed{options.seed}")
    with Run(directory, settings=settings.as_data()) as run:
        work = NaturalSteps(run, settings, unsafe=foreign.unsafe_sandbox, grants=Grants(**foreign.granted))
        names = {case.id: f"{case.scientist} on {case.model}, {case.behaviour}" for case in work.cases}
        with closing(work.work(jobs=workers.jobs)) as events:
            for event in events:
                progress(event.label(names, priced=False), event.done, event.total)
        result = work.result()
        result.write(directory / BENCH_FILE)
        result.page(directory)
    if result.errors:
        first = result.errors[0]
        note(
            f"{len(result.errors)} cases have no figures (the first, {first.case}: {first.reason}); the same command "
            "tries them again"
        )
    return result


class NaturalBenchmark(Benchmark):
    """`vesalius bench natural`."""

    NAME = BENCHMARK

    def run(self, *arguments: Any, **options: Any) -> NaturalBench:
        """Explain and grade."""
        return bench_natural(*arguments, **options)
