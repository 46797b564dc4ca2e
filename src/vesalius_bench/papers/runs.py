"""Finished runs and results: repeat one from its records, compare several with the published tables and by what they
asked, or two with each other.
"""

from collections.abc import Sequence
from pathlib import Path

from vesalius.api.places import RUNS, Out, directory_for, require_place
from vesalius.documents.difference import DIFFERENCE_FILE, Difference
from vesalius.documents.discovery import Discovery
from vesalius.documents.explanation import Explanation
from vesalius.documents.listing import ResultList
from vesalius.documents.sweep import Sweep
from vesalius.errors import BadInput
from vesalius.progress import Progress, shown
from vesalius.report.figures import save_figure
from vesalius.runs.difference import difference
from vesalius.runs.directory import is_run, read_run
from vesalius.runs.listing import ResultIndex, list_results
from vesalius.runs.published import NOT_MEASURED, SOURCE
from vesalius.runs.replay import Replayed
from vesalius.runs.replay import replay as replayed
from vesalius_bench.papers.comparison import FIGURE_5, Comparison, Sheet
from vesalius_bench.papers.comparison import compare as compared
from vesalius_bench.ratings.runs_rating_sources import read_ratings_of
from vesalius_bench.ratings.runs_rating_tables import with_ratings
from vesalius_functions.page_kinds import draw_kinds

__all__ = [
    "NOT_MEASURED",
    "SOURCE",
    "Comparison",
    "Replayed",
    "ResultIndex",
    "Sheet",
    "compare",
    "diff",
    "replay",
    "results",
]


def replay(
    run: str | Path, *, jobs: int = 2, execute: bool = False, progress: Progress | bool | None = None
) -> Replayed:
    """Repeat a finished run from its recorded calls, without network or key, and compare the scorecards.

    What executed code gave is read from the run as well; `execute` runs it again.
    """
    directory = require_run(run)
    names = read_run(directory).get("names", {})
    with shown(progress) as report:
        return replayed(
            directory,
            jobs=jobs,
            execute=execute,
            progress=lambda event: report(event.label(names, priced=False), event.done, event.total),
        )


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


def results(directory: str | Path = RUNS) -> ResultList:
    """Every run and every result below a directory, the latest first: what it is, how far, its figures and cost."""
    return list_results(Path(directory))


def diff(
    a: Explanation | Discovery | Sweep | str | Path, b: Explanation | Discovery | Sweep | str | Path, *, out: Out = None
) -> Difference:
    """What differs between two results of the same kind: claims that flipped, components that moved, figures side by
    side.

    Each is a result, a directory that `explain`, `discover`, `sweep` or `bench` wrote, or its JSON file: two seeds, two
    scientists, a base model and a fine-tuned one. Nothing is computed again. With `out` it is written there.
    """
    require_place(out)
    compared_results = difference(a, b)
    if out:
        compared_results.write(directory_for(out, "diff") / DIFFERENCE_FILE)
    return compared_results


def require_run(name: str | Path) -> Path:
    """The directory of a run of a benchmark."""
    if not is_run(Path(name)):
        raise BadInput(f"run {name}: no run there (expected {Path(name) / 'run.json'})")
    return Path(name)
