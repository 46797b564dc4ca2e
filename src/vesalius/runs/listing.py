"""What lies below a directory: every run and every result, told by its files.

Links are not followed, so nothing outside the directory is read. A result that cannot be read is listed with the
reason; it does not stop the others.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from vesalius.documents.base import Document
from vesalius.documents.difference import DIFFERENCE_FILE, Difference
from vesalius.documents.discovery import DISCOVERY_FILE, Discovery
from vesalius.documents.explanation import EXPLANATION_FILE, Explanation
from vesalius.documents.faithfulness import FAITHFULNESS_FILE, Faithfulness
from vesalius.documents.listing import ResultList, ResultRow
from vesalius.documents.ratings import RATINGS_FILE, Ratings
from vesalius.documents.scorecard import Scorecard
from vesalius.documents.sets import SETS_FILE, HeadSets
from vesalius.documents.study import STUDY_FILE, Study
from vesalius.documents.survey import SURVEY_FILE, Survey
from vesalius.documents.sweep import SWEEP_FILE, Sweep
from vesalius.documents.views import subject_of
from vesalius.documents.what_if import WHAT_IF_FILE, WhatIf
from vesalius.errors import BadInput, Failed
from vesalius.runs.directory import EVENTS, RUN, SCORECARD, read_run
from vesalius.runs.ledger import read_ledger

#: Directories this far below are looked at, and so many results are listed.
DEPTH, MOST = 6, 2_000
#: The first main metrics of a scorecard.
MAIN = ("tag_accuracy", "task_exact", "success", "exact_match", "sweep.node_auroc_mean")
Described = dict[str, Any]


def list_results(directory: Path) -> ResultList:
    """Every result below a directory, the latest first."""
    if not directory.is_dir():
        raise BadInput(f"{directory}: no such directory; name one that holds results, such as vesalius-runs")
    rows = [_row(directory, place, file) for place, file in _places(directory)]
    rows.sort(key=lambda row: -row.modified)
    return ResultList(directory=str(directory), results=tuple(rows[:MOST]), left_out=max(0, len(rows) - MOST))


def _places(top: Path) -> Iterator[tuple[Path, str]]:
    """Directories with a result, and the file that tells. Inside a run of a benchmark nothing else is looked for."""
    for place, directories, files in os.walk(top, followlinks=False):
        inside = Path(place)
        deep = len(inside.relative_to(top).parts) >= DEPTH
        file = next((name for name in (STUDY_FILE, RUN, *KINDS) if name in files), None)
        directories[:] = [] if deep or file in (RUN, STUDY_FILE) else sorted(directories)
        if file is not None:
            yield inside, file


def _row(top: Path, place: Path, file: str) -> ResultRow:
    path = place / file
    common = {"path": str(place.relative_to(top)), "modified": _modified(path)}
    kind = "benchmark" if file == RUN else KINDS[file][0] if file in KINDS else "study"
    try:
        described = _run(place) if file == RUN else _study(path) if file == STUDY_FILE else _document(file, path)
    except (BadInput, Failed, OSError) as error:
        return ResultRow(**common, kind=kind, state="unreadable", problem=" ".join(str(error).split())[:400])
    return ResultRow(**common, kind=kind, **{"state": "finished", **described})


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _run(place: Path) -> Described:
    """A run of a benchmark: its scorecard, or how many of its cases have a result by now."""
    settings = read_run(place)["settings"]
    benchmark = str(settings.get("benchmark"))
    title = ", ".join(str(settings[name]) for name in ("scientist", "backbone", "interpreter") if settings.get(name))
    if (place / SCORECARD).is_file():
        card = Scorecard.read(place / SCORECARD)
        main = [name for name in MAIN if name in card.metrics] or list(card.metrics)[:2]
        figures = ", ".join(f"{name} {card.metrics[name].figures}" for name in main[:2])
        totals = {"done": card.n, "total": card.n + card.n_error}
        title = f"bench {benchmark}, {card.subject}"
        return {"title": title, "figures": figures, "cost": card.cost, "seconds": card.seconds, **totals}
    cases = settings.get("specimens")
    done = Counter(str(record.get("event")) for record in read_ledger(place / EVENTS))
    finished = {"done": max(done.values(), default=0), "total": len(cases) if isinstance(cases, dict) else None}
    return {"title": f"bench {benchmark}, {title}", "state": "unfinished", **finished}


def _study(path: Path) -> Described:
    study = Study.read(path)
    figures = f"{len(study.localisation.components)} components, {len(study.explainers)} explainers"
    return {"title": f"{study.study}, {study.model}", "figures": figures, "seconds": study.seconds}


def _document(file: str, path: Path) -> Described:
    _, kind, describe = KINDS[file]
    return describe(kind.read(path))


def _explanation(one: Explanation) -> Described:
    verdicts = Counter(claim.verdict for part in one.components for claim in part.claims)
    figures = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
    figures = f"{len(one.components)} components{f', claims: {figures}' if figures else ''}"
    return {"title": one.title, "figures": figures, "cost": one.cost, "seconds": one.seconds}


def _discovery(one: Discovery) -> Described:
    figures = ", ".join(f"{name} {value:.3g}" for name, value in list(one.metrics.items())[:3])
    title = f"{subject_of(one.specimen, one.behaviour)}, {one.method}"
    return {"title": title, "figures": figures, "seconds": one.seconds}


def _sweep(one: Sweep) -> Described:
    strongest = sorted(one.components, key=lambda row: -abs(row.effect))[:3]
    figures = ", ".join(f"{row.id} {row.effect:+.3g}" for row in strongest)
    title = f"{subject_of(one.specimen, one.behaviour)}, {one.kind}"
    return {"title": title, "figures": figures, "seconds": one.seconds}


def _what_if(one: WhatIf) -> Described:
    request = one.request
    title = f"{subject_of(request.specimen, request.behaviour)}, {'+'.join(request.components or ())}"
    return {"title": title, "figures": f"effect {one.effect.figures}", "seconds": one.seconds}


def _faithfulness(one: Faithfulness) -> Described:
    title = f"{subject_of(one.request.specimen, one.request.behaviour)}, {one.size} {one.by}"
    figures = f"faithfulness {one.faithfulness.figures}, random {one.random.figures}"
    return {"title": title, "figures": figures, "seconds": one.seconds}


def _survey(one: Survey) -> Described:
    return {"title": "survey", "figures": repr(one).splitlines()[0][:120]}


def _sets(one: HeadSets) -> Described:
    return {"title": subject_of(one.specimen, one.behaviour), "figures": repr(one).splitlines()[0][:120]}


def _difference(one: Difference) -> Described:
    figures = f"{len(one.claims_flipped)} claims flipped, {len(one.components_moved)} components moved"
    return {"title": f"{one.a} and {one.b}", "figures": figures}


def _ratings(one: Ratings) -> Described:
    return {"title": ", ".join(rater.rater for rater in one.raters), "figures": f"{len(one.items)} texts"}


#: File, kind, class, and what a row says of it.
KINDS: dict[str, tuple[str, type[Document], Callable[[Any], Described]]] = {
    EXPLANATION_FILE: ("explanation", Explanation, _explanation),
    DISCOVERY_FILE: ("discovery", Discovery, _discovery),
    SWEEP_FILE: ("sweep", Sweep, _sweep),
    WHAT_IF_FILE: ("what-if", WhatIf, _what_if),
    FAITHFULNESS_FILE: ("faithfulness", Faithfulness, _faithfulness),
    SETS_FILE: ("sets", HeadSets, _sets),
    SURVEY_FILE: ("survey", Survey, _survey),
    DIFFERENCE_FILE: ("difference", Difference, _difference),
    RATINGS_FILE: ("ratings", Ratings, _ratings),
}
