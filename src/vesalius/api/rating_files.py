"""Ratings by people: read their files, hold them against each other and against the judges of runs."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from vesalius.api.places import Out, directory_for, require_place
from vesalius.api.runs import require_run
from vesalius.documents.ratings import RATINGS_FILE, Ratings
from vesalius.errors import BadInput
from vesalius.grading.rating_report import rating_report
from vesalius.grading.ratings import Rated, Rating, read_ratings
from vesalius.runs.rating_tables import judged_circuits, rating_sheets

__all__ = ["rating_sheets", "ratings"]


def ratings(
    files: str | Path | Iterable[str | Path],
    *,
    runs: Iterable[str | Path] = (),
    ids: Iterable[str] | None = None,
    out: Out = None,
) -> Ratings:
    """Every rater, the agreement of every pair, the majority and the lowest score of each agent.

    `files` are CSV or JSON files of ratings (docs/how-to/judges.md). `runs` are runs of `vesalius bench circuits`
    whose judges scored the same texts; `ids` keeps the ratings of these specimens only. With `out` the figures are
    written there.
    """
    require_place(out)
    paths = [Path(files)] if isinstance(files, str | Path) else [Path(file) for file in files]
    if not paths:
        raise BadInput("ratings: no file is named; give one or more .csv or .json files")
    given = _together(paths)
    kept = given if ids is None else _of_specimens(given, ids)
    directories = [require_run(run) for run in runs]
    judged = {directory.resolve().name: judged_circuits(directory) for directory in directories}
    report = rating_report(kept, judged, files=[str(path) for path in paths])
    if out:
        report.write(directory_for(out, "ratings") / RATINGS_FILE)
    return report


def _together(paths: Sequence[Path]) -> list[Rating]:
    """The ratings of all files; one rater scores a text once."""
    places: dict[tuple[Rated, str], Path] = {}
    together: list[Rating] = []
    for path in paths:
        for rating in read_ratings(path):
            key = rating.rated, rating.rater
            if key in places:
                raise BadInput(
                    f"ratings {path}: {rating.rater} has scored {rating.specimen} {rating.component} {rating.measure}"
                    f" already in {places[key]}; keep one of them"
                )
            places[key] = path
            together.append(rating)
    return together


def _of_specimens(given: Sequence[Rating], ids: Iterable[str]) -> list[Rating]:
    wanted = list(dict.fromkeys(str(name).strip() for name in ([ids] if isinstance(ids, str) else ids)))
    rated = {rating.specimen for rating in given}
    if missing := [name for name in wanted if name not in rated]:
        raise BadInput(
            f"`ids`: no rating is of {', '.join(missing[:3])}; rated are {', '.join(sorted(rated)[:5])}, ..."
        )
    return [rating for rating in given if rating.specimen in wanted]
