"""Blind rating by people: open the texts of several runs for it."""

from collections.abc import Iterable
from pathlib import Path

from vesalius.api.places import Out, directory_for, require_place
from vesalius.errors import BadInput
from vesalius_bench.ratings.grading_ratings import read_csv_or_json
from vesalius_bench.ratings.runs_annotation import Annotating, annotation_name, collect_texts

__all__ = ["Annotating", "annotate"]


def annotate(
    runs: str | Path | Iterable[str | Path],
    *,
    reference: bool = False,
    ids: Iterable[str] | None = None,
    ratings: Iterable[str | Path] = (),
    out: Out = True,
) -> Annotating:
    """Open the notes and task descriptions of runs for blind rating; close it, or use it in a `with` block.

    `runs` are finished or unfinished runs of `vesalius bench circuits` and directories made by `explain`. `reference`
    lets raters see the reference texts, which are those of the answer key for benchmark circuits. `ids` keeps some
    specimens; "human-subset" names ten circuits with 17 components. `ratings` are CSV files to import. The directory
    is `out`, or one under `vesalius-runs` that the same choice finds again.
    """
    directories = [Path(runs)] if isinstance(runs, str | Path) else [Path(run) for run in runs]
    if not directories:
        raise BadInput("annotation: no run is named; give one or more")
    require_place(out)
    chosen = None if ids is None else [ids] if isinstance(ids, str) else list(ids)
    texts = collect_texts(directories, reference=reference, ids=chosen)
    files = [read_csv_or_json(path, "ratings") for path in ratings]
    place = directory_for(out, annotation_name(directories, reference=reference, ids=chosen))
    opened = Annotating(place, texts, reference=reference)
    try:
        for path, text in files:
            opened.import_ratings(text, source=str(path), csv_text=path.suffix.lower() == ".csv")
    except BadInput:
        opened.close()
        raise
    return opened
