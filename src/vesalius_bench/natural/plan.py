"""What `bench natural` takes at most: the passes and seconds of every case, before any is run."""

import math
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from vesalius.api.door import verb
from vesalius.api.plans import plan
from vesalius.documents.printed import CellPlan, SurveyPlan
from vesalius.errors import BadInput, Failed
from vesalius.explanations.running.explained import FIT
from vesalius.explanations.scientists import BUILTIN, LADDER, LADDER_PER_PROMPT
from vesalius.progress import Progress, silent
from vesalius_bench.natural.documents import NULL
from vesalius_bench.natural.grading import STRONGEST
from vesalius_bench.natural.planted import planted_models
from vesalius_bench.natural.settings import MODELS_FOLDER, PLANTED, NaturalSettings
from vesalius_bench.natural.work import ALIGNED, GRADED, NaturalCase, has_algorithm
from vesalius_bench.options import NaturalOptions


@verb
def bench_natural_plan(
    models: str | Path | Iterable[str | Path] = PLANTED, *, options: NaturalOptions, progress: Progress = silent
) -> SurveyPlan:
    """The cases of `bench_natural` with the passes, memory and time that each takes at most. One small chunk of each
    model is run to time it, and nothing is kept. A scientist that decides for itself what it measures has no plan, and
    only its grading is counted.
    """
    several = [models] if isinstance(models, str | Path) else list(models)
    settings = NaturalSettings(tuple(map(str, several)), options)
    with TemporaryDirectory(prefix="vesalius-planted-") as place:
        if PLANTED in settings.models:
            for one in planted_models():
                one.write(Path(place) / MODELS_FOLDER)
        cases = settings.cases(Path(place))
        cells = []
        for done, case in enumerate(cases):
            progress(f"timing {case.model}, {case.behaviour}", done, len(cases))
            cells.append(_cell(case))
    return SurveyPlan(
        of="bench natural",
        cells=tuple(cells),
        forwards=math.fsum(cell.forwards or 0.0 for cell in cells),
        peak_bytes=max((cell.peak_bytes or 0 for cell in cells), default=0),
        seconds=math.fsum(cell.seconds or 0.0 for cell in cells),
    )


def _cell(case: NaturalCase) -> CellPlan:
    named = {"model": f"{case.scientist} on {case.model}", "behaviour": case.behaviour}
    try:
        specimen = case.specimen()
        explained = plan("explain", specimen, n=case.claims, top=case.top, seed=case.seed, progress=False)
        parts = [explained] if case.scientist == BUILTIN else []
        if case.scientist == BUILTIN and has_algorithm(specimen):
            parts.append(plan("align", specimen, n=ALIGNED, held_out=GRADED, seed=case.seed, progress=False))
    except (BadInput, Failed) as error:
        return CellPlan(**named, forwards=None, peak_bytes=None, seconds=None, error=str(error))
    graded = grading_passes(case.n)
    each = explained.seconds / max(1e-9, explained.n * explained.forwards)
    own = case.scientist in (BUILTIN, NULL)
    return CellPlan(
        **named,
        forwards=round(graded + math.fsum(one.n * one.forwards for one in parts), 1),
        peak_bytes=max(one.peak_bytes for one in (explained, *parts)),
        seconds=round(graded * each + math.fsum(one.seconds for one in parts), 2),
        error=None if own else "its own measurements are not known before the run; counted is its grading",
    )


def grading_passes(n: int) -> float:
    """Passes of one prompt that grading an explanation takes at most: the ladder, its stand-ins, and their pairs."""
    pairs = STRONGEST * (STRONGEST + 1) / 2
    return LADDER + FIT + n * (LADDER_PER_PROMPT + 4 + pairs)
