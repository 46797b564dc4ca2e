"""The pages of a run of the circuits benchmark: one evidence page each, and the index over them."""

from pathlib import Path

from vesalius.circuits.originals import load_directory
from vesalius.documents.scorecard import CircuitRow
from vesalius.errors import BadInput
from vesalius.model.specimen import Specimen
from vesalius.progress import Progress
from vesalius.report.index import IndexRow, render_index
from vesalius.report.page import render_page
from vesalius.runs.directory import (
    INDEX,
    PAGES,
    explanation_path,
    read_explanation,
    read_scorecard,
    require_benchmark,
)
from vesalius.runs.settings import BENCHMARK


def render_circuits(directory: Path, *, progress: Progress | None = None) -> Path:
    """Write the pages of a finished run and return the path of the index."""
    places = require_benchmark(directory, BENCHMARK).get("places", {})
    scorecard = read_scorecard(directory)
    (directory / PAGES).mkdir(exist_ok=True)
    rows = []
    graded = scorecard.specimens or ()
    for done, figures in enumerate(graded, 1):
        rows.append(_render(directory, figures, places.get(figures.id)))
        if progress is not None:
            progress(f"page of {figures.name}", done, len(graded))
    title = f"{scorecard.benchmark} explained by {scorecard.subject}"
    return render_index(rows, directory / INDEX, title=title)


def _render(directory: Path, figures: CircuitRow, place: str | None) -> IndexRow:
    explanation = read_explanation(explanation_path(directory, figures.id))
    page = f"{PAGES}/{figures.id}.html"
    specimen = None if place is None else _specimen(Path(place))
    render_page(explanation, directory / page, specimen=specimen)
    agreement = explanation.program_agreement
    return IndexRow(
        id=figures.id,
        name=figures.name,
        components=figures.components,
        supported=figures.supported,
        seconds=figures.seconds,
        page=page,
        tags_right=figures.tags_right,
        agreement=None if agreement is None else agreement.value,
        iia=figures.iia,
        iia_changed=figures.iia_changed,
        exact=figures.task_exact,
    )


def _specimen(place: Path) -> Specimen | None:
    """The specimen, or None where it is no longer there."""
    try:
        return load_directory(place)
    except BadInput:
        return None
