"""The results that the tables of the papers are filled from, told by their files.

A result is a directory: a finished run of a benchmark, a study, MechRL's tables, ratings, or an explanation with its
trace. A directory without a result is searched for those below it.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from vesalius.documents.base import Document
from vesalius.documents.trace import TRACE_FILE, Trace
from vesalius.errors import BadInput, Failed, note
from vesalius.runs.directory import RUN, SCORECARD, read_run, read_scorecard
from vesalius_bench.papers.comparison import run_label
from vesalius_bench.papers.published import ResultKind
from vesalius_bench.ratings.documents import RATINGS_FILE, Ratings
from vesalius_bench.study.documents import STUDY_FILE, Study
from vesalius_functions.documents import RELIABILITY_FILE, UNIT_TESTS_FILE, Reliability, UnitTests
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
}
_FILES: dict[str, tuple[ResultKind, type[Document]]] = {
    STUDY_FILE: ("study", Study),
    RATINGS_FILE: ("ratings", Ratings),
    TRACE_FILE: ("explanation", Trace),
    RELIABILITY_FILE: ("reliability", Reliability),
    UNIT_TESTS_FILE: ("unit tests", UnitTests),
}
MECHRL_FILES = "mechrl-*.json"
#: Directories this far below one are looked at.
DEPTH = 4


@dataclass(frozen=True)
class SourceResult:
    """One result: its document, and the name that tables give it."""

    kind: ResultKind
    directory: Path
    label: str
    document: Any


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


def read_sources(runs: Sequence[Path], *, reads: Iterable[ResultKind], subject: str) -> Sources:
    """The results that the caller names; one of another kind than `subject` reads is refused."""
    wanted = tuple(dict.fromkeys(reads))
    if runs and not wanted:
        raise BadInput(f"{subject}: is computed from the code and reads no run; leave the runs out")
    directories = [place for run in runs for place in _named(run)]
    results = []
    for directory in directories:
        for kind, document, mark in _documents(directory):
            if kind not in wanted:
                makers = ", ".join(MAKERS[one] for one in wanted)
                raise BadInput(f"{directory}: a result of {_maker(kind)}; {subject} reads those of {makers}")
            label = run_label(directory, directories) + mark
            results.append(SourceResult(kind, directory, label, document))  # type: ignore[arg-type]
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
        results += [SourceResult(kind, directory, label + mark, one) for kind, one, mark in documents if kind in wanted]  # type: ignore[arg-type]
    return Sources(tuple(results))


def _maker(kind: str) -> str:
    return MAKERS[kind] if kind in KINDS else f"`vesalius bench {kind}`"


def _named(run: Path) -> list[Path]:
    """The directory of a result that the caller names, or those of the results below it."""
    place = run.parent if run.is_file() else run
    if not place.is_dir():
        raise BadInput(f"run {run}: there is no such directory")
    directories = [place] if _holds_result(place) else list(_below(place))
    if not directories:
        raise BadInput(f"run {run}: no finished result there; the tables read those of {', '.join(MAKERS.values())}")
    return directories


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
    """Kind and document of what a directory holds, and what is added to its label; other benchmarks have their own
    name as kind.
    """
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
