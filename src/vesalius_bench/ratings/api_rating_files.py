"""Ratings by people: read their files, hold them against each other and against the judges of runs."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from vesalius.api.places import Out, directory_for, require_place
from vesalius.api.runs import require_run
from vesalius.errors import BadInput, choices
from vesalius.files import write_text
from vesalius_bench.ratings.documents_ratings import RATINGS_FILE, Ratings
from vesalius_bench.ratings.grading_annotation import chosen_specimens, same_specimen
from vesalius_bench.ratings.grading_rating_report import rating_report
from vesalius_bench.ratings.grading_ratings import Rating
from vesalius_bench.ratings.runs_annotation import csv_of
from vesalius_bench.ratings.runs_rating_sources import read_ratings_of
from vesalius_bench.ratings.runs_rating_tables import judged_circuits, rating_sheets

__all__ = ["rating_sheets", "ratings"]


def ratings(
    files: str | Path | Iterable[str | Path],
    *,
    runs: Iterable[str | Path] = (),
    ids: Iterable[str] | None = None,
    csv: str | Path | None = None,
    out: Out = None,
) -> Ratings:
    """Every rater, the agreement of every pair, the majority and the lowest score of each agent.

    `files` are CSV or JSON files of ratings (docs/how-to/judges.md) or directories of an annotation. `runs` are runs of
    `vesalius bench circuits` whose judges scored the same texts; `ids` keeps the ratings of these specimens only,
    "human-subset" those of ten circuits with 17 components. With `csv` the ratings are written to that file as one
    table, with `out` the figures are written there.
    """
    require_place(out)
    paths = [Path(files)] if isinstance(files, str | Path) else [Path(file) for file in files]
    if not paths:
        raise BadInput("ratings: no file is named; give one or more .csv or .json files")
    given = read_ratings_of(paths)
    kept = given if ids is None else _of_specimens(given, ids)
    directories = [require_run(run) for run in runs]
    judged = {directory.resolve().name: judged_circuits(directory) for directory in directories}
    report = rating_report(kept, judged, files=[str(path) for path in paths])
    if csv is not None:
        write_text(Path(csv), csv_of(kept))
    if out:
        report.write(directory_for(out, "ratings") / RATINGS_FILE)
    return report


def _of_specimens(given: Sequence[Rating], ids: Iterable[str]) -> list[Rating]:
    names = [str(name).strip() for name in ([ids] if isinstance(ids, str) else ids)]
    rated = {same_specimen(rating.specimen) for rating in given}
    if missing := [name for name in names if not chosen_specimens([name]) & rated]:
        raise BadInput(f"`ids`: no rating is of {', '.join(missing[:3])}; rated are {choices(sorted(rated), 5)}")
    wanted = chosen_specimens(names)
    return [rating for rating in given if same_specimen(rating.specimen) in wanted]
