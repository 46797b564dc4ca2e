"""One cell of a survey: does this model perform this behaviour, and if so, which components matter and how surely?

Everything is composed of what single calls do: the measure of performance, `sweep`, `discover`. The sweep is kept in
the cell's directory as it grows, so that a cell that was interrupted continues as well.
"""

import time
import warnings
from functools import lru_cache

from vesalius.api.discoveries import discover
from vesalius.api.loading import load, loaded
from vesalius.api.sweeps import sweep
from vesalius.behaviours.metrics import metric_name
from vesalius.behaviours.performance import PROMPTS, performance, undecided
from vesalius.behaviours.registry import behaviour_of
from vesalius.discovery.stability import LEAST_TO_HALVE, half_agreement
from vesalius.documents.metric import Figure
from vesalius.documents.sweep import SWEEP_FILE, Sweep
from vesalius.errors import BadInput, Note
from vesalius.intervene import Recordings
from vesalius.model.specimen import Specimen, TextVocabulary
from vesalius.model.states import fingerprint
from vesalius.options import Load
from vesalius.progress import Progress
from vesalius.statistics import interval_or_none
from vesalius_bench.survey.documents import CellDiscovery, CellSweep, Status, SurveyCell
from vesalius_bench.survey.run import CellCase

DISCOVERY = "discovery"
#: Halves compare at most one in so many components: of all of them any two halves would agree.
LARGEST_SHARE = 3


def measure_cell(case: CellCase, progress: Progress | bool = False) -> SurveyCell:
    """Measure one cell; what cannot be loaded or asked is refused."""
    started = time.monotonic()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", Note)
        specimen = _studied(case)
        cell = _measured(case, specimen, progress)
    notes = tuple(dict.fromkeys(str(one.message) for one in caught if issubclass(one.category, Note)))
    return cell.model_copy(update={"notes": notes, "seconds": round(time.monotonic() - started, 3)})


@lru_cache(maxsize=1)
def loaded_model(name: str, dtype: str, device: str) -> Specimen:
    """A natural model; the last one stays for the next cell."""
    specimen = load(name, dtype=dtype, device=device, progress=False)
    if not isinstance(specimen.vocabulary, TextVocabulary):
        raise BadInput(f"specimen {specimen.name!r} is not a model that reads texts; behaviours are for those")
    return specimen


def _studied(case: CellCase) -> Specimen:
    model, behaviour = case.places
    specimen = loaded_model(model, case.settings.dtype, case.settings.device)
    return loaded(specimen, Load(behaviour=behaviour, metric=case.settings.metric))


def _measured(case: CellCase, specimen: Specimen, progress: Progress | bool) -> SurveyCell:
    settings, source, model = case.settings, behaviour_of(specimen), specimen.model
    assert isinstance(specimen.vocabulary, TextVocabulary)
    prompts = source.sample(
        specimen.vocabulary.tokenizer,
        PROMPTS,
        seed=settings.seed,
        split=source.measured_split,
        n_ctx=model.config.n_ctx,
        d_vocab=model.config.d_vocab,
    )
    measured = performance(model, prompts)
    scores = Recordings(model, prompts.batch.to(model.device), prompts.readout(model)).scores().cpu().double()
    low, high = interval_or_none(scores)
    status: Status = "performed" if measured.performs else "undecided" if undecided(measured) else "not performed"
    cell = SurveyCell(
        id=case.id,
        model=case.model,
        behaviour=case.behaviour,
        status=status,
        performance=measured,
        metric=Figure(value=float(scores.mean()), low=low, high=high, n=len(scores)),
        metric_name=metric_name(prompts.metric),
        fingerprint=fingerprint(model),
    )
    if status == "not performed":
        return cell
    swept = _swept(case, specimen, progress)
    return cell.model_copy(update={"sweep": swept, "discovery": _discovered(case, specimen, progress)})


def _swept(case: CellCase, specimen: Specimen, progress: Progress | bool) -> CellSweep:
    settings, config = case.settings, specimen.model.config
    directory = case.directory
    effects = sweep(specimen, kind=settings.kind, n=settings.n, seed=settings.seed, out=directory, progress=progress)
    document = Sweep.read(directory / SWEEP_FILE)
    few, top = len(effects.matrix) < LEAST_TO_HALVE, min(settings.top, max(1, len(effects.sets) // LARGEST_SHARE))
    return CellSweep(
        baseline=Figure(
            value=document.baseline, low=document.baseline_low, high=document.baseline_high, n=len(effects.matrix)
        ),
        unit=document.unit,
        components=document.components,
        agreement=None if few else half_agreement(effects.matrix, top, seed=settings.seed),
        layers=config.n_layers,
        heads=config.n_heads,
        forwards=document.forwards,
    )


def _discovered(case: CellCase, specimen: Specimen, progress: Progress | bool) -> CellDiscovery | None:
    method, settings = case.settings.discover, case.settings
    if method is None:
        return None
    directory = case.directory / DISCOVERY
    discovery = discover(specimen, method, n=settings.n, seed=settings.seed, out=directory, progress=progress)
    strongest = tuple(score for score in discovery.components[: settings.top] if score.score)
    return CellDiscovery(
        method=method,
        components=strongest,
        metrics=discovery.metrics,
        directory=str(directory.relative_to(case.directory.parent.parent)),
    )
