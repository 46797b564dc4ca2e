"""A survey in a run directory: every model on every behaviour, one cell at a time, each kept as soon as it is there.

The settings are what decides the cells; the engine and the number of jobs may change when a survey is resumed. A cell
that failed is tried again then, one that is finished is not.
"""

import hashlib
import re
import time
import warnings
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from vesalius.api.discoveries import discover
from vesalius.api.loading import load, loaded
from vesalius.api.sweeps import sweep
from vesalius.behaviours.behaviour import label_of
from vesalius.behaviours.metrics import metric_name
from vesalius.behaviours.performance import PROMPTS, performance, undecided
from vesalius.behaviours.registry import behaviour_of
from vesalius.discovery.stability import LEAST_TO_HALVE, half_agreement
from vesalius.documents.base import FrozenDict
from vesalius.documents.metric import Figure
from vesalius.documents.request import Request
from vesalius.documents.sweep import SWEEP_FILE, Sweep
from vesalius.errors import BadInput, Note
from vesalius.explanations.atlas import standard_names
from vesalius.files import sha256
from vesalius.intervene import Recordings
from vesalius.model.specimen import Specimen, TextVocabulary
from vesalius.model.states import fingerprint
from vesalius.options import Load
from vesalius.progress import Progress
from vesalius.runs.directory import Run
from vesalius.runs.engine import Engine
from vesalius.runs.ledger import LedgerState, LedgerStep
from vesalius.runs.steps import StepProgress, Steps
from vesalius.statistics import interval_or_none
from vesalius.version import __version__
from vesalius_bench.survey.documents import CellDiscovery, CellSweep, Status, Survey, SurveyCell, short_name

BENCHMARK, MEASURE, CELLS = "survey", "measure", "cells"


@dataclass(frozen=True)
class SurveySettings:
    """What decides the cells of a survey: `kind`, `n` prompts and `top` components of the sweeps, the discovery method
    (None: none), the metric (None: each behaviour's own) and the number format.
    """

    models: tuple[str, ...]
    behaviours: tuple[str, ...]
    kind: str
    n: int
    top: int
    seed: int = 0
    discover: str | None = None
    metric: str | None = None
    dtype: str = "auto"
    device: str = "auto"

    def __post_init__(self) -> None:
        _require_several("model", self.models, "smollm2-135m")
        _require_several("behaviour", self.behaviours, "`behaviour` induction")

    def request(self) -> Request:
        """What was asked, so that it can be asked again."""
        options: dict[str, JsonValue] = {
            "models": list(self.models),
            "behaviour": list(self.behaviours),
            "kind": self.kind,
            "n": self.n,
            "top": self.top,
            "discover": self.discover,
            "metric": self.metric,
            "dtype": None if self.dtype == "auto" else self.dtype,
        }
        for name in [name for name, value in options.items() if value is None]:
            del options[name]
        return Request(command="survey", options=options, seed=self.seed)

    def as_data(self) -> dict[str, Any]:
        """The settings as run.json holds and compares them: files stand for their content."""
        fields = ("kind", "n", "top", "seed", "discover", "metric", "dtype")
        return {
            "benchmark": BENCHMARK,
            **{name: getattr(self, name) for name in fields},
            "version": __version__,
            "models": {name: model_mark(name) for name in self.models},
            "behaviours": {name: _file_mark(name) for name in self.behaviours},
        }

    def cells(self, directory: Path) -> list["CellCase"]:
        """Every cell, model by model; each has a directory of its own for its files."""
        models = distinct_words([short_name(model) for model in self.models])
        behaviours = distinct_words([label_of(behaviour) for behaviour in self.behaviours])
        return [
            CellCase(f"{word}-{end}", model, behaviour, self, directory / CELLS / f"{word}-{end}")
            for model, word in zip(self.models, models, strict=True)
            for behaviour, end in zip(self.behaviours, behaviours, strict=True)
        ]


@dataclass(frozen=True)
class CellCase:
    """One cell to be measured, and where its files go. `places` are the model and the behaviour as a worker finds them,
    wherever it runs.
    """

    id: str
    model: str
    behaviour: str
    settings: SurveySettings
    directory: Path
    places: tuple[str, str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "places", (whole_path(self.model), whole_path(self.behaviour)))


class SurveyRun(Steps):
    """A survey in an open run directory; `measure` is what is done with a cell."""

    def __init__(
        self,
        run: Run,
        settings: SurveySettings,
        measure: Callable[[CellCase], SurveyCell],
        *,
        engine: Engine | None = None,
    ) -> None:
        self.settings, self._measure = settings, measure
        self.cases = settings.cells(run.directory.absolute())
        step = LedgerStep(MEASURE, "measured", lambda record: SurveyCell.model_validate(record["cell"]))
        self.state = LedgerState([step], run.ledger.records)
        super().__init__(run, self.state, engine=engine)

    def work(self, *, jobs: int = 1) -> Generator[StepProgress]:
        """Measure the cells that are not measured yet."""
        done = self.state.results[MEASURE]
        missing = [case for case in self.cases if case.id not in done]

        def keep(case: CellCase, cell: SurveyCell) -> None:
            self._note("measured", case.id, cell=cell.model_dump(mode="json"))

        yield from self._each(MEASURE, self._measure, missing, keep, of=len(self.cases), jobs=jobs)

    def survey(self) -> Survey:
        """What is known of every cell."""
        cells = tuple(map(self._cell, self.cases))
        return Survey(request=self.settings.request(), cells=cells, directory=str(self.run.directory))

    def _cell(self, case: CellCase) -> SurveyCell:
        if (cell := self.state.results[MEASURE].get(case.id)) is not None:
            return cell
        failure = self.state.failed.get((case.id, MEASURE))
        return SurveyCell(
            id=case.id,
            model=case.model,
            behaviour=case.behaviour,
            status="failed",
            error=failure.reason if failure else "not measured yet",
            error_kind=failure.kind if failure else "missing",
        )

    def _finished(self) -> str:
        return f"{len(self.state.results[MEASURE])} of {len(self.cases)} cells are measured"


def _require_several(what: str, given: Sequence[str], example: str) -> None:
    if not given:
        raise BadInput(f"a survey of no {what}s says nothing; name at least one, such as {example}")
    same: dict[str, str] = {}
    for name in given:
        if not name.strip():
            raise BadInput(f"{what} {name!r} is not a name; give one such as {example}")
        place = whole_path(name)
        if place in same:
            twice = "" if same[place] == name else f" (as {same[place]!r} as well)"
            raise BadInput(f"{what} {name!r} is given twice{twice}; leave one out")
        same[place] = name


def whole_path(name: str) -> str:
    """The whole path of a file or a directory; any other name as it is."""
    try:
        path = Path(name).expanduser()
        return str(path.resolve()) if path.exists() else name
    except OSError:  # a row written out is not the name of a file
        return name


def distinct_words(labels: Sequence[str]) -> list[str]:
    """Labels as words of a directory's name, numbered where two would be the same."""
    words = [re.sub(r"[^A-Za-z0-9._-]+", "_", label).strip(".") or "cell" for label in labels]
    return [word if words.count(word) == 1 else f"{word}_{place}" for place, word in enumerate(words, 1)]


def _file_mark(name: str) -> str | None:
    """What stands for the content of a file; None for a name."""
    path = Path(whole_path(name))
    return sha256(path)[:16] if path.is_absolute() and path.is_file() else None


def model_mark(name: str) -> str | None:
    """What stands for the files of a model: the names and sizes of all, the content of its config."""
    path = Path(whole_path(name))
    if not path.is_absolute():
        return None
    files = [path] if path.is_file() else sorted(one for one in path.rglob("*") if one.is_file())
    parts = [f"{one.name} {one.stat().st_size}" for one in files]
    parts += [sha256(one) for one in files if one.name == "config.json"]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


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


@lru_cache(maxsize=1)
def names_of_heads(model: str, dtype: str, device: str) -> dict[str, tuple[str, ...]]:
    """What the atlas calls the heads of a model, once for all behaviours; nothing where it cannot be asked."""
    return standard_names(loaded_model(model, dtype, device))


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
    names = names_of_heads(case.places[0], settings.dtype, settings.device)
    found = {"sweep": swept, "discovery": _discovered(case, specimen, progress), "names": FrozenDict(names)}
    return cell.model_copy(update=found)


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
