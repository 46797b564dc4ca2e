"""Finished runs beside each other: in the published tables, and by what they asked of a language model."""

from collections.abc import Sequence
from pathlib import Path

from vesalius.api.places import Out, directory_for, require_place
from vesalius.errors import BadInput
from vesalius.report.plots import save_figure
from vesalius_bench.papers.comparison import FIGURE_5, Comparison
from vesalius_bench.papers.comparison import compare as compared
from vesalius_bench.papers.published import NOT_MEASURED
from vesalius_bench.ratings.agreement import read_ratings_of, with_ratings
from vesalius_functions.page_kinds import draw_kinds


def compare(
    runs: Sequence[str | Path], *, ratings: str | Path | Sequence[str | Path] = (), out: Out = None
) -> Comparison:
    """Runs side by side: of the circuits and the functions benchmark in the published tables, and of runs of circuits
    and of explanations (made by
    `ves.explain` with `out`) the calls, tokens, cost and seconds by stage and by component.

    `ratings` are files of ratings or directories of an annotation: what people gave the texts of these runs then stands
    beside what judges gave them. With `out`, Figure 5 of the functions runs is drawn there as SVG and PNG.
    """
    require_place(out)
    comparison = compared([Path(run) for run in runs])
    if out:
        _draw_kinds(comparison, out)
    files = [Path(ratings)] if isinstance(ratings, str | Path) else [Path(file) for file in ratings]
    return with_ratings(comparison, read_ratings_of(files)) if files else comparison


def _draw_kinds(comparison: Comparison, out: Out) -> None:
    """Figure 5 of the functions runs, as two files."""
    sheet = next((sheet for sheet in comparison.tables if sheet.id == FIGURE_5), None)
    measured = [] if sheet is None else [(name, row) for name, source, row in sheet.rows if NOT_MEASURED not in source]
    if sheet is None or not any(row for _, row in measured):
        raise BadInput("`out`: there is nothing to draw; give a finished run of `vesalius bench functions`")
    figure = draw_kinds(measured, title=sheet.title)
    for ending in ("svg", "png"):
        save_figure(figure, directory_for(out, "compare") / f"find-figure-5.{ending}")
