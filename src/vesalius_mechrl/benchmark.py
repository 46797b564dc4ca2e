"""`bench mechrl`: the published tables of MechRL on a natural model, as published and corrected.

Effect matrices are measured here, where the model is loaded; policies are trained a few at a time in separate
processes; then every task is played. The ledger of the run says what is done: a killed benchmark loses the block of
rows, the round of training and the task under way, and nothing else.

A policy is trained on one thread from tables that lie on the disk, so neither its weights nor what is found with it
depend on how many are trained at once.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from pydantic import JsonValue, TypeAdapter, ValidationError

from vesalius.api.door import directory_for, note_unperformed, verb
from vesalius.api.loading import loaded
from vesalius.behaviours.controls import FACTBOOK, WIKITEXT, Corpus, control_name, corpus_named, factbook
from vesalius.behaviours.natural import require_performance
from vesalius.documents.request import Request
from vesalius.errors import BadInput, Failed, choices, note
from vesalius.files import write_json
from vesalius.model.specimen import Specimen
from vesalius.options import Load, Out
from vesalius.progress import Progress, silent
from vesalius.report.plots import save_figure
from vesalius.runs.directory import EVENTS, Run
from vesalius.runs.engine import Engine
from vesalius.runs.kinds import Benchmark
from vesalius.runs.ledger import LedgerState, LedgerStep, Record, read_ledger
from vesalius.runs.steps import StepProgress, Steps
from vesalius.version import __version__
from vesalius_mechrl.documents import MechrlStudy
from vesalius_mechrl.environment import PAPER_QUIRKS, STEPS
from vesalius_mechrl.fresh import TEST, EpisodeMeasurement
from vesalius_mechrl.fresh import TRAIN as TRAINING_SPLIT
from vesalius_mechrl.options import Experiment
from vesalius_mechrl.pictures import draw_collapse, draw_learning, draw_regret
from vesalius_mechrl.ppo import Policy
from vesalius_mechrl.strategies import Comparison
from vesalius_mechrl.study import compare_on, study
from vesalius_mechrl.suite import (
    CONTROL,
    FRESH,
    HELD_OUT,
    LOGITS,
    PAPER_HELD_OUT,
    PAPER_TRAINING,
    POOLED,
    SIZES,
    TRAINING,
    Suite,
    SuitePlan,
    canonical_heads,
    load_suite,
    measure_source,
    missing_sources,
    require_text,
)
from vesalius_mechrl.trainings import (
    ENCODERS,
    PROMPTS,
    Episode,
    Scope,
    Training,
    episodes_of_tables,
    train_policies,
    training_episodes,
    trainings,
)

MEASURE, TRAIN, PLAY = "measure", "train", "play"
#: Folders of a run.
MATRICES, POLICIES, COMPARISONS = "matrices", "policies", "comparisons"
#: The case of the ledger that stands for all fresh batches.
FRESH_BATCHES = "fresh batches"
#: Heads of the model that the published episode of 50 picks is for.
PUBLISHED_HEADS = 144


@dataclass(frozen=True)
class TrainingCase:
    """A policy to train, and the measured suite it is trained on."""

    id: str
    training: Training
    matrices: Path
    plan: SuitePlan


def train_case(case: TrainingCase) -> None:
    """Train one policy into its directory, from its last checkpoint on."""
    case.training.run(load_suite(case.matrices, plan=case.plan))


class MechrlState(LedgerState):
    """Which sources are measured, which policies trained, and which tasks played."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        events = {MEASURE: "measured", TRAIN: "trained", PLAY: "played"}
        super().__init__([LedgerStep(name, event, lambda record: True) for name, event in events.items()], records)


class MechrlBenchmark(Steps):
    """The benchmark in an open run directory; `work` yields progress, `figures` are all tables."""

    def __init__(
        self,
        run: Run,
        specimen: Specimen,
        plan: SuitePlan,
        scope: Scope,
        *,
        corpus: Callable[[], Corpus] = factbook,
        matrices: Path | None = None,
        progress: Progress = silent,
        engine: Engine | None = None,
    ) -> None:
        self.state = MechrlState(run.ledger.records)
        super().__init__(run, self.state, engine=engine)
        self.specimen, self.plan, self.scope = specimen, plan, scope
        self.corpus, self.progress = corpus, progress
        self.matrices = matrices or run.directory / MATRICES
        self.trainings = trainings(scope, run.directory / POLICIES)

    def work(self, *, jobs: int = 2) -> Generator[StepProgress]:
        """Do what is not done yet."""
        yield from self._measure()
        yield from self._train(jobs)
        yield from self._play()

    def figures(self) -> dict[str, Any]:
        """All tables."""
        comparisons = [self._comparison(task) for task in self.suite.test.names]
        played = [one for one in comparisons if one is not None]
        assert len(played) == len(comparisons), "every task is played first"
        canonical = canonical_heads(self.suite, self.specimen)
        return study(self.suite, self.policies, self.scope, canonical=canonical, comparisons=played)

    @cached_property
    def suite(self) -> Suite:
        """The measured suite."""
        return load_suite(self.matrices, plan=self.plan, model=self.specimen.model)

    @cached_property
    def policies(self) -> dict[str, list[Policy]]:
        """The trained policies."""
        return train_policies(self.suite, self.trainings)

    def _measure(self) -> Generator[StepProgress]:
        missing, sources = missing_sources(self.matrices, self.plan), self.plan.sources
        for name in (source for source in missing if source != CONTROL):
            # Heads that a model needs for what it does not do are noise; the tables are made all the same.
            on_behaviour = replace(self.specimen, behaviour=name, behaviour_source=None)
            performance = require_performance(on_behaviour, force=True)
            note_unperformed(self.specimen.name, name, performance, force=True)
        corpus = self.corpus() if missing else None
        for done, source in enumerate(sources, 1):
            if corpus is not None and source in missing:
                place = self.matrices / source
                measure_source(source, self.specimen, corpus, place, plan=self.plan, progress=self.progress)
            if source in missing or source not in self.state.results[MEASURE]:
                self._note("measured", source)
                yield StepProgress(MEASURE, source, done, len(sources))
        if self.plan.fresh and FRESH_BATCHES not in self.state.results[MEASURE]:
            self._measure_fresh(corpus or self.corpus())
            self._note("measured", FRESH_BATCHES)
            yield StepProgress(MEASURE, FRESH_BATCHES, 1, 1)

    def _measure_fresh(self, corpus: Corpus) -> None:
        """The batches of every episode that is trained or tested on."""
        heads = self.suite.test.heads
        wanted: dict[str, list[Episode]] = {
            TRAINING_SPLIT: training_episodes(self.trainings, self.plan.training, heads),
            TEST: list(episodes_of_tables(self.scope, self.suite.test.names, self.plan.held_out)),
        }
        rows, batches = self.plan.rows, sum(len(episodes) for episodes in wanted.values())
        note(
            f"{batches} episodes get fresh batches of {rows} prompts, each measured once for all {len(heads)} heads; "
            "`--batches pooled` measures a pool of rows instead"
        )
        for split, episodes in wanted.items():
            measurement = EpisodeMeasurement.of(
                self.specimen,
                corpus,
                self.matrices,
                split=split,
                rows=rows,
                heads=heads,
                length=self.plan.control_length,
            )
            measurement.measure(episodes, progress=self.progress)

    def _train(self, jobs: int) -> Generator[StepProgress]:
        cases = [
            TrainingCase(training.directory.name, training, self.matrices, self.plan)
            for training in self.trainings
            if training.directory.name not in self.state.results[TRAIN]
        ]
        _ = self.suite  # refuse matrices that do not fit before processes are started

        def keep(case: TrainingCase, result: None) -> None:
            self._note("trained", case.id)

        yield from self._each(TRAIN, train_case, cases, keep, of=len(self.trainings), jobs=jobs)
        for (case, step), error in self.state.failed.items():
            if step == TRAIN and error.kind == "refused":
                raise BadInput(error.reason)
            if step == TRAIN:
                place = self.run.directory / POLICIES / case
                raise Failed(f"{place}: the policy could not be trained: {error.reason}")

    def _play(self) -> Generator[StepProgress]:
        (self.run.directory / COMPARISONS).mkdir(exist_ok=True)
        tasks = self.suite.test.names
        for done, task in enumerate(tasks, 1):
            if task not in self.state.results[PLAY] or self._comparison(task) is None:
                comparison = compare_on(self.suite, self.policies, task, self.scope)
                write_json(self._comparison_path(task), comparison.document())
                self._note("played", task)
                yield StepProgress(PLAY, task, done, len(tasks))

    def _comparison(self, task: str) -> Comparison | None:
        """The comparison on a task, or None where there is no whole one."""
        try:
            return TypeAdapter(Comparison).validate_json(self._comparison_path(task).read_bytes())
        except (FileNotFoundError, ValidationError):
            return None

    def _comparison_path(self, task: str) -> Path:
        return self.run.directory / COMPARISONS / f"{task}.json"

    def _finished(self) -> str:
        return f"{len(self.state.results[TRAIN])} of {len(self.trainings)} policies are trained"


@verb
def bench_mechrl(
    specimen: Specimen | str | Path = "smollm2-135m",
    *,
    experiment: Experiment,
    matrices: str | Path | None = None,
    jobs: int = 2,
    device: str | torch.device = "cpu",
    out: Out = None,
    progress: Progress = silent,
) -> MechrlStudy:
    """Measure effect matrices, train policies and play: the tables of MechRL with intervals, beside searches that learn
    nothing.

    `paper` reproduces what was published, quirks included. `size` is "laptop" or "full"; `training` are the behaviours
    to train on, `held_out` those that no policy is trained on; `control` is the ordinary text of the reward:
    "factbook", "wikitext:PATH" (as published) or a text file whose articles are separated by blank lines. `reward` is
    "logits" (as published: logits of the task less nats of the control) or "nats" (one unit on both sides); `context`
    also trains policies that have an encoder instead of a task label: of the "rewards" seen in the episode, or of the
    "prompts". `batches` are "fresh" (prompts written for every episode, the default with `paper`) or "pooled"; `picks`
    is the length of an episode; `collapse` also trains in a single environment.
    `matrices` is a directory of effect matrices measured before. Tables 2 and 3 look for the published heads in a model
    of GPT-2 small's shape, and for heads identified by their attention in any other. An interrupted benchmark continues
    when the same call is made again.
    """
    asked, paper, size = experiment, experiment.paper, experiment.size
    name = specimen.source or specimen.name if isinstance(specimen, Specimen) else str(specimen)
    text = control_name(asked.control)
    encoders = _names(asked.context)
    if unknown := [name for name in encoders if name not in ENCODERS]:
        raise BadInput(f"`context` {unknown[0]!r}: no encoder reads that; choose {choices(ENCODERS)}")
    batches = asked.batches or (FRESH if paper else POOLED)
    if batches not in (FRESH, POOLED):
        raise BadInput(f"`batches` {batches!r} do not exist; choose {choices((FRESH, POOLED))}")
    if batches == FRESH and not paper:
        raise BadInput("`batches` fresh: only policies as published are trained on them; add `paper`, or use pooled")
    if paper and (asked.context or asked.reward != LOGITS):
        raise BadInput("`reward` and `context` go beyond what was published; leave them out with `paper`")
    plan = replace(
        SIZES[size],
        training=_names(asked.training) or (PAPER_TRAINING if paper else TRAINING),
        held_out=(PAPER_HELD_OUT if paper else HELD_OUT) if asked.held_out is None else _names(asked.held_out),
        control=text,
        unit=asked.reward,
        context=PROMPTS in encoders,
        fresh=batches == FRESH,
    )
    words = (None if text == FACTBOOK else text, None if asked.reward == LOGITS else asked.reward)
    directory = directory_for(out, "bench-mechrl", Path(name).name, size, "paper" if paper else None, *words)
    effects = directory / MATRICES if matrices is None else Path(matrices)
    if effects.exists() and not effects.is_dir():
        raise BadInput(f"`matrices` {effects}: not a directory; name one of effect matrices, or an empty one")
    for quirk, explanation in PAPER_QUIRKS.items() if paper else ():
        note(f"paper mode, {quirk}: {explanation}")
    if paper and not text.startswith(WIKITEXT):
        note(f"paper mode: the control text is {text}; published: wikitext-2 (`--control wikitext:PATH`)")
    specimen = loaded(specimen, Load(device=device), progress=progress)
    require_text(specimen)
    picks = _picks(asked.picks, sum(component.is_head for component in specimen.model.components))
    options: dict[str, JsonValue] = {
        **asked.values(),
        "training": list[JsonValue](plan.training),
        "held_out": list[JsonValue](plan.held_out),
        "batches": batches,
        "picks": picks,
    }
    source = specimen.source or specimen.id
    settings = {"benchmark": MechrlBench.NAME, "specimen": source, **options, "version": __version__}
    scope = Scope(
        paper,
        asked.seeds,
        asked.steps,
        asked.episodes,
        context=encoders,
        collapse=asked.collapse,
        picks=picks,
    )
    with Run(directory, settings=settings, notes={"matrices": str(effects)}) as run:
        corpus = partial(corpus_named, asked.control)
        work = MechrlBenchmark(run, specimen, plan, scope, corpus=corpus, matrices=effects, progress=progress)
        with closing(work.work(jobs=jobs)) as events:
            for event in events:
                progress(event.label({}, priced=False), event.done, event.total)
        request = Request(command="bench mechrl", specimen=source, options=options)
        return write_study(specimen, work.figures(), request, directory)


def _picks(asked: int | None, heads: int) -> int:
    """The picks of an episode: as asked, or the published share of the heads, 50 at most."""
    if asked is None:
        return min(STEPS, max(1, round(heads * STEPS / PUBLISHED_HEADS)))
    if not 1 <= asked <= heads:
        raise BadInput(f"`picks` {asked}: an episode has 1 to {heads} picks, one a head of the model")
    return asked


def _names(names: str | Sequence[str] | None) -> tuple[str, ...]:
    if isinstance(names, str):
        return tuple(name.strip() for name in names.split(",") if name.strip())
    return tuple(names or ())


def write_study(specimen: Specimen, figures: dict[str, Any], request: Request, directory: Path) -> MechrlStudy:
    """The document and its pictures; `numbers` and `pictures` say where they are."""
    mode, held_out = figures["mode"], figures["held_out"]
    title, numbers = f"{specimen.name}, {mode}", directory / f"mechrl-{mode}.json"
    pictures = [
        save_figure(draw_regret(figures["regret"], title=title, held_out=held_out), directory / f"regret-{mode}.png"),
        save_figure(draw_learning(figures["curves"], title=title), directory / f"learning-{mode}.png"),
    ]
    if figures["entropy"]:
        picture = draw_collapse(figures["entropy"], figures["heads"], title=title)
        pictures.append(save_figure(picture, directory / f"collapse-{mode}.png"))
    document = MechrlStudy(
        request=request,
        specimen=specimen.name,
        **figures,
        quirks=PAPER_QUIRKS if request.options["paper"] else {},
        numbers=str(numbers),
        pictures=tuple(map(str, pictures)),
    )
    document.write(numbers)
    return document


class MechrlBench(Benchmark):
    """`vesalius bench mechrl`."""

    NAME = "mechrl"

    def run(self, *arguments: Any, **options: Any) -> MechrlStudy:
        """Measure, train and play."""
        return bench_mechrl(*arguments, **options)

    def listed(self, directory: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Its verdicts, or how many policies are trained by now."""
        title = f"bench mechrl, {Path(str(settings.get('specimen'))).name}"
        for file in sorted(directory.glob("mechrl-*.json")):
            table = MechrlStudy.read(file)
            return {"title": title, "figures": table.view().answer.text, "done": table.seeds, "total": table.seeds}
        done = len(MechrlState(read_ledger(directory / EVENTS)).results[TRAIN])
        return {"title": title, "state": "unfinished", "done": done, "total": None}
