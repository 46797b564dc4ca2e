"""Where ratings come from: CSV and JSON files, and directories of an annotation."""

from collections.abc import Sequence
from pathlib import Path

from vesalius.errors import BadInput
from vesalius_bench.ratings.grading_ratings import Rated, Rating, read_ratings
from vesalius_bench.ratings.runs_annotation import is_annotation, read_annotation


def read_ratings_of(paths: Sequence[Path]) -> list[Rating]:
    """The ratings of all files and directories together; one rater scores a text once."""
    places: dict[tuple[Rated, str], Path] = {}
    together: list[Rating] = []
    for path in paths:
        for rating in read_annotation(path) if is_annotation(path) else read_ratings(path):
            key = rating.rated, rating.rater
            if key in places:
                raise BadInput(
                    f"ratings {path}: {rating.rater} has scored {rating.specimen} {rating.component} {rating.measure}"
                    f" already in {places[key]}; keep one of them"
                )
            places[key] = path
            together.append(rating)
    return together
