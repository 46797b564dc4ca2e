"""A survey in a run directory: every model on every behaviour, one cell at a time, each kept as soon as it is there.

The settings are what decides the cells; the engine and the number of jobs may change when a survey is resumed. A cell
that failed is tried again then, one that is finished is not.
"""

import hashlib
import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Unpack

from pydantic import JsonValue

from vesalius.behaviours.behaviour import label_of
from vesalius.documents.request import Request
from vesalius.errors import BadInput
from vesalius.files import sha256
from vesalius.runs.directory import Run
from vesalius.runs.ledger import LedgerState, LedgerStep
from vesalius.runs.steps import Options, StepProgress, Steps
from vesalius.version import __version__
from vesalius_bench.survey.documents import Survey, SurveyCell, short_name

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
            "models": {name: _model_mark(name) for name in self.models},
            "behaviours": {name: _file_mark(name) for name in self.behaviours},
        }

    def cells(self, directory: Path) -> list["CellCase"]:
        """Every cell, model by model; each has a directory of its own for its files."""
        models = _distinct_words([short_name(model) for model in self.models])
        behaviours = _distinct_words([label_of(behaviour) for behaviour in self.behaviours])
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
        object.__setattr__(self, "places", (_absolute(self.model), _absolute(self.behaviour)))


class SurveyRun(Steps):
    """A survey in an open run directory; `measure` is what is done with a cell."""

    def __init__(
        self,
        run: Run,
        settings: SurveySettings,
        measure: Callable[[CellCase], SurveyCell],
        **options: Unpack[Options],
    ) -> None:
        self.settings, self._measure = settings, measure
        self.cases = settings.cells(run.directory.absolute())
        step = LedgerStep(MEASURE, "measured", lambda record: SurveyCell.model_validate(record["cell"]))
        self.state = LedgerState([step], run.ledger.records)
        super().__init__(run, self.state, **options)

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
        place = _absolute(name)
        if place in same:
            twice = "" if same[place] == name else f" (as {same[place]!r} as well)"
            raise BadInput(f"{what} {name!r} is given twice{twice}; leave one out")
        same[place] = name


def _absolute(name: str) -> str:
    """The whole path of a file or a directory; any other name as it is."""
    try:
        path = Path(name).expanduser()
        return str(path.resolve()) if path.exists() else name
    except OSError:  # a row written out is not the name of a file
        return name


def _distinct_words(labels: Sequence[str]) -> list[str]:
    """Labels as words of a directory's name, numbered where two would be the same."""
    words = [re.sub(r"[^A-Za-z0-9._-]+", "_", label).strip(".") or "cell" for label in labels]
    return [word if words.count(word) == 1 else f"{word}_{place}" for place, word in enumerate(words, 1)]


def _file_mark(name: str) -> str | None:
    """What stands for the content of a file; None for a name."""
    path = Path(_absolute(name))
    return sha256(path)[:16] if path.is_absolute() and path.is_file() else None


def _model_mark(name: str) -> str | None:
    """What stands for the files of a model: the names and sizes of all, the content of its config."""
    path = Path(_absolute(name))
    if not path.is_absolute():
        return None
    files = [path] if path.is_file() else sorted(one for one in path.rglob("*") if one.is_file())
    parts = [f"{one.name} {one.stat().st_size}" for one in files]
    parts += [sha256(one) for one in files if one.name == "config.json"]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
