"""The results that the tables of the papers are filled from, told by their files.

A result is a directory: a finished run of a benchmark, a study, MechRL's tables, ratings, or an explanation with its
trace. Its document alone, under any name, is a result too: so results are recorded in `benchmarks/results`, and
scorecards of several runs of functions in one file by the names of the runs. A directory without a result is searched
for those below it, and then for such files.

Recorded results fill the tables that no run of the user fills (`recorded_sources`). They lie in the checkout, or in the
wheel.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args

from vesalius.documents.base import Document
from vesalius.documents.scorecard import Scorecard
from vesalius.documents.trace import TRACE_FILE, Trace
from vesalius.errors import BadInput, Failed, note
from vesalius.files import read_json
from vesalius.runs.directory import RUN, SCORECARD, read_run, read_scorecard
from vesalius_backbones.runs.usage import model_name
from vesalius_bench.papers.comparison import run_label
from vesalius_bench.papers.documents import Cell, PaperRow
from vesalius_bench.papers.published import ResultKind
from vesalius_bench.ratings.documents import RATINGS_FILE, Ratings
from vesalius_bench.study.documents import STUDY_FILE, Study
from vesalius_functions.documents import RELIABILITY_FILE, UNIT_TESTS_FILE, Reliability, UnitTests
from vesalius_functions.evaluators.documents import EvaluatorTraining
from vesalius_functions.evaluators.naming import EVALUATOR_FILE
from vesalius_functions.suite import SUITE
from vesalius_mechrl.documents import MechrlStudy

KINDS: tuple[ResultKind, ...] = get_args(ResultKind)
#: What makes each kind of result.
MAKERS: dict[ResultKind, str] = {
    "circuits": "`vesalius bench circuits`",
    "functions": "`vesalius bench functions`",
    "study": "`vesalius study af1`",
    "mechrl": "`vesalius bench mechrl`",
    "ratings": "`vesalius ratings --out`",
    "explanation": "`vesalius explain --backbone`",
    "reliability": "`vesalius functions reliability`",
    "unit tests": "`vesalius functions unit-tests --out`",
    "evaluator": "`vesalius functions evaluator-train`",
}
_FILES: dict[str, tuple[ResultKind, type[Document]]] = {
    STUDY_FILE: ("study", Study),
    RATINGS_FILE: ("ratings", Ratings),
    TRACE_FILE: ("explanation", Trace),
    RELIABILITY_FILE: ("reliability", Reliability),
    UNIT_TESTS_FILE: ("unit tests", UnitTests),
    EVALUATOR_FILE: ("evaluator", EvaluatorTraining),
}
MECHRL_FILES = "mechrl-*.json"
#: Directories this far below one are looked at.
DEPTH = 4
#: The recorded results by their place in a checkout; those with names fill these entries alone: a few functions or one
#: circuit show what was said and what it took, not how often that is right.
_EXAMPLES = ("Figure 3", "Figure 4", "Figure A1", "Figure A2", "Figure A3", "Figure A5")
RECORDED: dict[str, tuple[str, ...]] = {
    "benchmarks/results/circuits.json": (),
    "benchmarks/results/circuits_agent.json": ("Table 11", "Figure 4"),
    "examples/recorded/hybrid": (),
    "benchmarks/results/study_arithmetic.json": (),
    "benchmarks/results/mechrl_paper.json": (),
    "benchmarks/results/mechrl_corrected.json": (),
    "benchmarks/results/mechrl_standin.json": (),
    "benchmarks/results/mechrl_standin_seeds.json": (),
    "benchmarks/results/mechrl_standin_context.json": (),
    "benchmarks/results/mechrl_smollm2_batches.json": (),
    "benchmarks/results/function_scorecards.json": (),
    "benchmarks/results/entity_reliability.json": (),
    "benchmarks/results/evaluator_trained.json": (),
    **{f"benchmarks/results/functions/{category}": _EXAMPLES for category in SUITE},
}
#: What the short scorecards of functions leave out; no table shows it.
_LEFT_OUT = {"benchmark": "functions", "cost": 0.0, "seconds": 0.0}


@dataclass(frozen=True)
class SourceResult:
    """One result: its document, the directory or file that holds it, and the name that tables give it. `run` says
    which run it is, `only` which entries it fills where those are not all that read its kind.
    """

    kind: ResultKind
    directory: Path
    label: str
    document: Any
    run: str
    only: tuple[str, ...] = ()

    @property
    def model(self) -> str:
        """The model that the figures were made with: the one that was studied, or the language model that was asked."""
        one = self.document
        if self.kind in ("circuits", "functions"):
            return model_name(one.backbone) or f"{one.subject}, no language model"
        if self.kind == "study":
            return one.model
        if self.kind == "mechrl":
            return one.specimen
        if self.kind == "evaluator":
            return one.base
        if self.kind == "ratings":
            agents = dict.fromkeys(score.agent for score in one.lowest if score.agent)
            return f"texts of {' and '.join(agents)}" if agents else "texts of unnamed agents"
        if self.kind == "explanation":
            return one.backbone
        if self.kind == "reliability":
            return " and ".join(dict.fromkeys(category.backbone for category in one.categories.values()))
        return one.interpreter

    def row(self, name: str, values: dict[str, Cell], details: str = "") -> PaperRow:
        """A row of this result: it names the run that it comes from and the model it was made with."""
        source = ", ".join(filter(None, (f"measured: {self.run}", self.model, details)))
        return PaperRow(name=name, source=source, run=self.run, model=self.model, values=values)


@dataclass(frozen=True)
class Sources:
    """Every result that may fill a table."""

    results: tuple[SourceResult, ...] = ()

    def of(self, kind: ResultKind) -> list[SourceResult]:
        """The results of one kind."""
        return [result for result in self.results if result.kind == kind]

    def documents(self, kind: ResultKind) -> dict[str, Any]:
        """The documents of one kind by label."""
        return {result.label: result.document for result in self.of(kind)}

    def filling(self, id: str, reads: Iterable[ResultKind]) -> "Sources":
        """The results that one entry reads."""
        wanted = set(reads)
        return Sources(tuple(one for one in self.results if one.kind in wanted and (not one.only or id in one.only)))


def read_sources(runs: Sequence[Path], *, reads: Iterable[ResultKind], subject: str) -> Sources:
    """The results that the caller names; one of another kind than `subject` reads is refused."""
    wanted = tuple(dict.fromkeys(reads))
    if runs and not wanted:
        raise BadInput(f"{subject}: is computed from the code and reads no run; leave the runs out")
    places = [place for run in runs for place in _named(run)]
    results = []
    for place, searched in places:
        for kind, document, mark in _documents(place):
            if kind in wanted:
                label = run_label(place.with_suffix("") if place.is_file() else place, [one for one, _ in places])
                results.append(SourceResult(kind, place, label + mark, document, str(place) + mark))  # type: ignore[arg-type]
            elif not searched:
                makers = ", ".join(MAKERS[one] for one in wanted)
                raise BadInput(f"{place}: a result of {_maker(kind)}; {subject} reads those of {makers}")
    if runs and not results:
        makers = ", ".join(MAKERS[one] for one in wanted)
        raise BadInput(f"run {runs[0]}: no result there that {subject} reads; it reads those of {makers}")
    return Sources(tuple(results))


def find_sources(place: Path, *, reads: Iterable[ResultKind]) -> Sources:
    """The results below a directory; what cannot be read or is of other kinds is left out, the former with a note."""
    wanted = set(reads)
    directories = list(_below(place)) if wanted and place.is_dir() else []
    results = []
    for directory in directories:
        try:
            documents = _documents(directory)
        except (BadInput, Failed) as error:
            note(f"left out: {error}")
            continue
        label = run_label(directory, directories)
        results += [
            SourceResult(kind, directory, label + mark, one, str(directory) + mark)  # type: ignore[arg-type]
            for kind, one, mark in documents
            if kind in wanted
        ]
    return Sources(tuple(results))


@cache
def recorded_sources() -> Sources:
    """The results that were measured for the documentation and are kept with the code."""
    package = Path(__file__).parent
    root = package / "recorded" if (package / "recorded").is_dir() else package.parents[2]
    results = []
    for name, only in RECORDED.items():
        if (root / name).exists():
            for kind, document, mark in _documents(root / name):
                label = mark.removeprefix(", ") or Path(name).stem
                results.append(SourceResult(kind, root / name, label, document, name + mark, only))  # type: ignore[arg-type]
    return Sources(tuple(results))


def _maker(kind: str) -> str:
    return MAKERS[kind] if kind in KINDS else f"`vesalius bench {kind}`"


def _named(run: Path) -> list[tuple[Path, bool]]:
    """The directory or file of a result that the caller names, or those below it: then what the table does not read is
    passed over.
    """
    if run.is_file() and run.name not in (RUN, SCORECARD, *_FILES):
        return [(run, False)]
    place = run.parent if run.is_file() else run
    if not place.is_dir():
        raise BadInput(f"run {run}: there is no such directory")
    if _holds_result(place):
        return [(place, False)]
    files = [file for file in sorted(place.glob("*.json")) if _of_file(file)]
    found = [*_below(place), *files]
    if not found:
        raise BadInput(f"run {run}: no finished result there; the tables read those of {', '.join(MAKERS.values())}")
    return [(one, bool(files)) for one in found]


def _holds_result(place: Path) -> bool:
    return (place / RUN).is_file() or any((place / name).is_file() for name in _FILES) or bool(_mechrl(place))


def _mechrl(place: Path) -> list[Path]:
    return sorted(place.glob(MECHRL_FILES))


def _below(top: Path) -> Iterator[Path]:
    """Directories with a finished result; inside one nothing else is looked for."""
    for place, directories, _ in os.walk(top, followlinks=False):
        path = Path(place)
        holds = _holds_result(path)
        deep = len(path.relative_to(top).parts) >= DEPTH
        directories[:] = [] if holds or deep else sorted(directories)
        finished = any((path / file).is_file() for file in (STUDY_FILE, SCORECARD)) or bool(_mechrl(path))
        if holds and (finished or not (path / RUN).is_file()):
            yield path


def _documents(place: Path) -> list[tuple[str, Any, str]]:
    """Kind and document of what a directory or file holds, and what is added to its label; other benchmarks have their
    own name as kind.
    """
    if place.is_file():
        if documents := _of_file(place):
            return documents
        raise BadInput(f"run {place}: not a result; the tables read those of {', '.join(MAKERS.values())}")
    for name, (kind, document) in _FILES.items():
        if (place / name).is_file():
            return [(kind, document.read(place / name), "")]
    if files := _mechrl(place):
        studies = [MechrlStudy.read(file) for file in files]
        return [("mechrl", one, f", {one.mode}" if len(studies) > 1 else "") for one in studies]
    benchmark = str(read_run(place)["settings"].get("benchmark"))
    if benchmark in ("circuits", "functions") or (place / SCORECARD).is_file():
        card = read_scorecard(place)
        return [(card.benchmark, card, "")]
    return [(benchmark, None, "")]


def _of_file(path: Path) -> list[tuple[str, Any, str]]:
    """What one file holds: a document that the tables read, told by the fields it must have, or scorecards by name.
    Nothing where it is something else.
    """
    data = read_json(path)
    if not isinstance(data, Mapping):
        return []
    for kind, document in (("", Scorecard), ("mechrl", MechrlStudy), *_FILES.values()):
        if {field.alias or name for name, field in document.model_fields.items() if field.is_required()} <= set(data):
            one = document.from_data(data, source=str(path))
            return [(kind or one.benchmark, one, "")]  # type: ignore[attr-defined]
    if data and all(isinstance(card, Mapping) and {"category", "metrics"} <= set(card) for card in data.values()):
        cards = {name: Scorecard.from_data({**_LEFT_OUT, **card}, source=str(path)) for name, card in data.items()}
        return [("functions", card, f", {name}") for name, card in cards.items()]
    return []
