"""Several models on several behaviours: who performs what, which components matter, how stable that is.

A survey is a run directory. It can be ended at any moment; the same call continues it, and finished cells are not
measured again. A cell that fails is a line of the table and the others go on.
"""

import math
from collections.abc import Iterable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from vesalius.api.door import directory_for, verb
from vesalius.api.plans import plan
from vesalius.behaviours.behaviour import label_of
from vesalius.behaviours.metrics import require_metric
from vesalius.behaviours.registry import find_behaviour
from vesalius.discovery.discover import method_named
from vesalius.documents.printed import CellPlan, SurveyPlan
from vesalius.errors import BadInput, Failed
from vesalius.intervene.ablations import ablation_named
from vesalius.model.devices import dtype_named
from vesalius.options import Out, Parts, require_drawable
from vesalius.progress import Progress, silent
from vesalius.runs.directory import Run
from vesalius.runs.engine import chosen_engine, in_process
from vesalius_bench.options import SurveyOptions
from vesalius_bench.survey.documents import SURVEY_FILE, Survey, short_name
from vesalius_bench.survey.run import CellCase, SurveyRun, SurveySettings, loaded_model, measure_cell, names_of_heads

Named = str | Path


@verb
def survey(
    models: Named | Iterable[Named],
    behaviours: Named | Iterable[Named],
    *,
    surveyed: SurveyOptions,
    parts: Parts,
    out: Out = True,
    progress: Progress = silent,
) -> Survey:
    """Measure every model on every behaviour, in a directory that the same call continues.

    `models` are names, directories, GGUF files or hub ids of natural models; `behaviours` are names or files. Each cell
    says whether the model performs the behaviour. Where it does, every component is replaced as in `sweep` (`kind`,
    "resample"; `n`, 32 prompts; `seed`, 0), and two halves of the prompts are compared in their `top` components (10)
    and in their ranks. `discover` names a discovery method that is run as well, with its checks. `metric`, `dtype` and
    `device` are those of `load`. `engine` ("local" or "ray") and `jobs` measure cells
    in parallel; by default they are measured one after the other, in this process.
    """
    settings = _settings(models, behaviours, surveyed)
    runs_on, at_a_time = chosen_engine(parts.engine, parts.jobs)
    first = f"{short_name(settings.models[0])}-{label_of(settings.behaviours[0])}"
    count = f"{len(settings.models)}x{len(settings.behaviours)}"
    words = ("survey", first, count, settings.kind, f"n{settings.n}", f"seed{settings.seed}")
    directory = directory_for(out, *words)
    names = {case.id: f"{short_name(case.model)}, {label_of(case.behaviour)}" for case in settings.cells(directory)}
    try:
        with Run(directory, settings=settings.as_data()) as run:
            measure = partial(measure_cell, progress=progress) if runs_on is in_process else measure_cell
            work = SurveyRun(run, settings, measure, engine=runs_on)
            progress("measuring cells", 0, len(names))
            with closing(work.work(jobs=at_a_time)) as events:
                for event in events:
                    progress(event.label(names, priced=False), event.done, event.total)
            result = work.survey()
            result.write(directory / SURVEY_FILE)
            result.page(directory)
    finally:
        loaded_model.cache_clear()
        names_of_heads.cache_clear()
    return result


@verb
def survey_plan(
    models: Named | Iterable[Named],
    behaviours: Named | Iterable[Named],
    *,
    surveyed: SurveyOptions,
    progress: Progress = silent,
) -> SurveyPlan:
    """The cells of a survey with the passes, memory and time that each takes at most: a behaviour that is not performed
    costs no sweep. One small chunk of each is run to time it, and nothing is written. `options` are those of `survey`.
    """
    cases = _settings(models, behaviours, surveyed).cells(Path())
    cells = []
    try:
        for done, case in enumerate(cases):
            progress(f"timing {short_name(case.model)}, {label_of(case.behaviour)}", done, len(cases))
            cells.append(_cell_plan(case))
    finally:
        loaded_model.cache_clear()
    return SurveyPlan(
        cells=tuple(cells),
        forwards=math.fsum(cell.forwards or 0.0 for cell in cells),
        peak_bytes=max((cell.peak_bytes or 0 for cell in cells), default=0),
        seconds=math.fsum(cell.seconds or 0.0 for cell in cells),
    )


def _cell_plan(case: CellCase) -> CellPlan:
    settings = case.settings
    model, behaviour = case.places
    given = {"behaviour": behaviour, "metric": settings.metric, "n": settings.n, "seed": settings.seed}
    subject = {"model": case.model, "behaviour": case.behaviour}
    try:
        specimen = loaded_model(model, settings.dtype, settings.device)
        parts = [plan("sweep", specimen, kind=settings.kind, progress=False, **given)]
        if settings.discover is not None:
            parts.append(plan("discover", specimen, method=settings.discover, progress=False, **given))
    except (BadInput, Failed) as error:
        return CellPlan(**subject, forwards=None, peak_bytes=None, seconds=None, error=str(error))
    return CellPlan(
        **subject,
        forwards=math.fsum(part.forwards + part.contrast_forwards + part.checks_forwards for part in parts),
        peak_bytes=max(part.peak_bytes for part in parts),
        seconds=math.fsum(part.seconds for part in parts),
        error=None,
    )


def _settings(
    models: Named | Iterable[Named], behaviours: Named | Iterable[Named], surveyed: SurveyOptions
) -> SurveySettings:
    """What was asked, checked before any model is loaded."""
    settings = SurveySettings(_names("model", models), _names("behaviour", behaviours), **surveyed.values())
    ablation_named(settings.kind)
    if settings.top < 1:
        raise BadInput(f"top={settings.top} compares no components; compare at least 1")
    require_drawable(settings.n, settings.seed)
    if settings.discover is not None:
        method_named(settings.discover)
    if settings.metric is not None and not isinstance(settings.metric, str):
        raise BadInput("a survey is continued by its settings, so its metric is a name, such as probability")
    require_metric(settings.metric)
    dtype_named(settings.dtype)
    for behaviour in settings.behaviours:
        find_behaviour(behaviour, metric=settings.metric)
    return settings


def _names(what: str, given: Named | Iterable[Named]) -> tuple[str, ...]:
    several: Sequence[Any] = [given] if isinstance(given, Named) else list(given)
    wrong = next((one for one in several if not isinstance(one, Named)), None)
    if wrong is not None:
        raise BadInput(
            f"{what} {type(wrong).__name__} cannot be found again when the survey is continued; give a name or a path "
            "(.save(directory) writes a model that is loaded)"
        )
    return tuple(map(str, several))
