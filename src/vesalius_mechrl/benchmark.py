"""The published tables of MechRL on a natural model, as published and corrected."""

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from pydantic import JsonValue

from vesalius.api.loading import loaded
from vesalius.api.notes import note_unperformed
from vesalius.api.places import Out, directory_for
from vesalius.behaviours.controls import FACTBOOK, WIKITEXT, control_name, corpus_named
from vesalius.behaviours.natural import require_performance
from vesalius.documents.request import Request
from vesalius.errors import BadInput, Failed, choices, note
from vesalius.model.specimen import Specimen
from vesalius.options import Load
from vesalius.progress import Progress, shown
from vesalius.report.plots import save_figure
from vesalius.runs.engine import Engine, Failure, map_cases
from vesalius.runs.kinds import Benchmark
from vesalius_mechrl.documents import MechrlStudy
from vesalius_mechrl.environment import PAPER_QUIRKS
from vesalius_mechrl.pictures import draw_learning, draw_regret
from vesalius_mechrl.study import Scope, Training, study, train_policies, trainings
from vesalius_mechrl.suite import (
    CONTROL,
    HELD_OUT,
    LOGITS,
    PAPER_TRAINING,
    SIZES,
    TRAINING,
    SuitePlan,
    canonical_heads,
    load_suite,
    measure_suite,
    missing_sources,
    require_text,
)

# The policies of `bench mechrl`, trained a few at a time in separate processes.
#
# A policy is trained on one thread from tables that lie on the disk, so neither its weights nor what is found with it
# depend on how many are trained at once. A killed process is resumed from its last checkpoint.


@dataclass(frozen=True)
class TrainingCase:
    """A policy to train, and the measured suite it is trained on."""

    training: Training
    matrices: Path
    plan: SuitePlan


def train_case(case: TrainingCase) -> None:
    """Train one policy into its directory."""
    case.training.run(load_suite(case.matrices, plan=case.plan))


def train_apart(
    trainings: Sequence[Training], matrices: Path, plan: SuitePlan, *, jobs: int = 2, engine: Engine | None = None
) -> Generator[Training]:
    """Train every policy into its directory, `jobs` at a time; each is yielded when it is there."""
    cases = [TrainingCase(training, matrices, plan) for training in trainings]
    with closing((engine or map_cases)(train_case, cases, jobs=jobs)) as results:
        for case, result in results:
            if isinstance(result, Failure):
                if result.kind == "refused":
                    raise BadInput(result.reason)
                raise Failed(f"{case.training.directory}: the policy could not be trained: {result.reason}")
            yield case.training


def bench_mechrl(
    specimen: Specimen | str | Path = "smollm2-135m",
    *,
    paper: bool = False,
    seeds: int = 5,
    steps: int = 200_000,
    episodes: int = 30,
    size: str = "laptop",
    training: Sequence[str] = (),
    held_out: Sequence[str] = HELD_OUT,
    control: str = FACTBOOK,
    reward: str = LOGITS,
    context: bool = False,
    matrices: str | Path | None = None,
    jobs: int = 2,
    device: str | torch.device = "cpu",
    out: Out = None,
    progress: Progress | bool | None = None,
) -> MechrlStudy:
    """Measure effect matrices, train policies and play: the tables of MechRL with intervals, beside searches that learn
    nothing.

    `paper` reproduces what was published, quirks included. `size` is "laptop" or "full"; `training` are the behaviours
    to train on, `held_out` those that no policy is trained on; `control` is the ordinary text of the reward:
    "factbook", "wikitext:PATH" (as published) or a text file whose articles are separated by blank lines. `reward` is
    "logits" (as published: logits of the task less nats of the control) or "nats" (one unit on both sides); `context`
    also trains a policy that reads the prompts' embeddings through a learned encoder instead of a task label.
    `matrices` is a directory of effect matrices measured before. Tables 2 and 3 look for the published heads in a model
    of GPT-2 small's shape, and for heads identified by their attention in any other. What an interrupted call measured
    and trained is used again by the same call.
    """
    name = specimen.source or specimen.name if isinstance(specimen, Specimen) else str(specimen)
    text = control_name(control)
    if paper and (context or reward != LOGITS):
        raise BadInput("`reward` and `context` go beyond what was published; leave them out with `paper`")
    plan = _plan(size, tuple(training), tuple(held_out), paper=paper)
    plan = replace(plan, control=text, unit=reward, context=context)
    words = (None if text == FACTBOOK else text, None if reward == LOGITS else reward)
    directory = directory_for(out, "bench-mechrl", Path(name).name, size, *words)
    effects = Path(matrices) if matrices else directory / "matrices"
    if effects.exists() and not effects.is_dir():
        raise BadInput(f"`matrices` {effects}: not a directory; name one of effect matrices, or an empty one")
    for name, quirk in PAPER_QUIRKS.items() if paper else ():
        note(f"paper mode, {name}: {quirk}")
    if paper and not text.startswith(WIKITEXT):
        note(f"paper mode: the control text is {text}; published: wikitext-2 (`--control wikitext:PATH`)")
    scope = Scope(paper, seeds, steps, episodes, context=context)
    with shown(progress) as report:
        specimen = loaded(specimen, Load(device=device), progress=report)
        require_text(specimen)
        figures = _studied(specimen, plan, control, scope, directory, effects, jobs=jobs, progress=report)
    options: dict[str, JsonValue] = {
        "paper": paper,
        "seeds": seeds,
        "steps": steps,
        "episodes": episodes,
        "size": size,
        "training": list[JsonValue](plan.training),
        "held_out": list[JsonValue](plan.held_out),
        "control": control,
        "reward": reward,
        "context": context,
    }
    source = specimen.source or specimen.id
    request = Request(command="bench mechrl", specimen=source, options=options)
    return write_study(specimen, figures, request, directory)


def _plan(size: str, training: tuple[str, ...], held_out: tuple[str, ...], *, paper: bool) -> SuitePlan:
    if size not in SIZES:
        raise BadInput(f"size {size!r} does not exist; choose one of {choices(SIZES)}")
    return replace(SIZES[size], training=training or (PAPER_TRAINING if paper else TRAINING), held_out=held_out)


def _studied(
    specimen: Specimen,
    plan: SuitePlan,
    control: str,
    scope: Scope,
    directory: Path,
    effects: Path,
    *,
    jobs: int,
    progress: Progress,
) -> dict[str, Any]:
    """Measure what is missing, train what is missing, and play."""
    if missing := missing_sources(effects, plan):
        _note_unperformed(specimen, [source for source in missing if source != CONTROL])
        measure_suite(specimen, corpus_named(control), effects, plan=plan, progress=progress)
    suite = load_suite(effects, plan=plan, model=specimen.model)
    jobs_to_train = trainings(scope, directory / "policies")
    progress("training policies", 0, len(jobs_to_train))
    for done, training in enumerate(train_apart(jobs_to_train, effects, plan, jobs=jobs), 1):
        progress(f"trained {training.name}, seed {training.settings.seed}", done, len(jobs_to_train))
    policies = train_policies(suite, jobs_to_train)
    progress("playing", 0, 0)
    return study(suite, policies, scope, canonical=canonical_heads(suite, specimen))


def write_study(specimen: Specimen, figures: dict[str, Any], request: Request, directory: Path) -> MechrlStudy:
    """The document and its pictures; `numbers` and `pictures` say where they are."""
    mode, held_out = figures["mode"], figures["held_out"]
    title, numbers = f"{specimen.name}, {mode}", directory / f"mechrl-{mode}.json"
    pictures = [
        save_figure(draw_regret(figures["regret"], title=title, held_out=held_out), directory / f"regret-{mode}.png"),
        save_figure(draw_learning(figures["curves"], title=title), directory / f"learning-{mode}.png"),
    ]
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


def _note_unperformed(specimen: Specimen, behaviours: Sequence[str]) -> None:
    """Heads that a model needs for what it does not do are noise; the tables are made all the same."""
    for name in behaviours:
        performance = require_performance(replace(specimen, behaviour=name, behaviour_source=None), force=True)
        note_unperformed(specimen.name, name, performance, force=True)


class MechrlBench(Benchmark):
    """`vesalius bench mechrl`; it keeps effect matrices and policies, not a ledger."""

    NAME = "mechrl"

    def run(self, *arguments: Any, **options: Any) -> MechrlStudy:
        """Measure, train and play."""
        return bench_mechrl(*arguments, **options)
