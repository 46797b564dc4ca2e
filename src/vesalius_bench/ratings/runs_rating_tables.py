"""Agreement of raters in the tables of the published benchmark, beside its rows."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from vesalius.errors import BadInput, choices
from vesalius.grading.agreement import MEASURES
from vesalius.grading.judges import JudgedCircuit
from vesalius.runs.directory import EVENTS, read_run
from vesalius.runs.ledger import read_ledger
from vesalius.runs.scorecard import State
from vesalius_bench.papers import published
from vesalius_bench.papers.comparison import Comparison, Sheet
from vesalius_bench.papers.published import NOT_MEASURED, SOURCE, Row
from vesalius_bench.ratings.documents_ratings import RaterPair, Ratings
from vesalius_bench.ratings.grading_rating_report import rating_report
from vesalius_bench.ratings.grading_ratings import Rating

SCALE = "Cohen's kappa, weighted on 0/1/2"


def judged_circuits(directory: Path) -> list[JudgedCircuit]:
    """What the judges of a run said; empty where it had none."""
    read_run(directory)
    state = State(read_ledger(directory / EVENTS))
    return [JudgedCircuit.model_validate(data) for data in state.judged.values()]


def rating_sheets(ratings: Ratings) -> list[Sheet]:
    """Tables 6 to 8 with these ratings: pairs of people, the lowest of either kind, each person with each judge."""
    people = _rows(ratings.pairs, "human-human", "lowest human-lowest judge")
    return [
        _sheet("Table 6", "agreement of people and judges, two backbones", people, published.TABLE_6),
        _sheet("Table 7", "the same on the outputs of four backbones", people, published.TABLE_7),
        _sheet("Table 8", "each person with each judge", _rows(ratings.pairs, "human-judge"), published.TABLE_8),
        _sheet("judges", "each judge with each other", _rows(ratings.pairs, "judge-judge"), {}),
    ]


def with_ratings(comparison: Comparison, ratings: Sequence[Rating]) -> Comparison:
    """Runs side by side, with a table of what people gave their texts. Ratings of other runs are left out; those that
    name no run count for all.
    """
    runs = [one.run for one in comparison.usage]
    kept = [one for one in ratings if one.run in ("", *runs)]
    if not kept:
        rated = choices(sorted({one.run for one in ratings}), 5)
        raise BadInput(f"`ratings`: none is of these runs ({choices(runs, 5)}); rated are {rated or 'none'}")
    first = comparison.tables[0].rows if comparison.tables else ()
    measured = {name: row for name, source, row in first if NOT_MEASURED not in source}
    return Comparison((*comparison.tables, _rated_sheet(rating_report(kept, {}), measured)), comparison.usage)


def _rated_sheet(ratings: Ratings, measured: Mapping[str, Row]) -> Sheet:
    """What people gave the texts of each run and agent, beside the judges' figures of the run."""
    rows: dict[tuple[str, str], Row] = {}
    for kind, scores in (("lowest", ratings.lowest), ("majority", ratings.majority)):
        for one in scores:
            row = rows.setdefault((one.run, one.agent), {})
            row.setdefault(one.measure, measured.get(one.run, {}).get(one.measure))
            row[f"{one.measure}_{kind}"] = one.value
            if kind == "lowest":
                row[f"{one.measure}_n"] = one.n
    columns = [
        f"{measure}{ending}"
        for measure in MEASURES
        for ending in ("", "_lowest", "_majority", "_n")
        if any(measure in row for row in rows.values())
    ]
    ours = [(", ".join(filter(None, key)) or "all", "rated by people", row) for key, row in rows.items()]
    theirs = [
        (name, SOURCE, {column: row[column] for column in row if column in columns})
        for name, row in published.TABLE_2.items()
    ]
    scale = "by judges, then by people: the lowest score of each text, the majority of three, the number of texts"
    return Sheet("Ratings", "texts rated by people", tuple(columns), (*ours, *theirs), scale)


def _rows(pairs: Iterable[RaterPair], *kinds: str) -> dict[str, tuple[str, Row]]:
    rows: dict[str, tuple[str, Row]] = {}
    counts: dict[str, list[int]] = {}
    for pair in pairs:
        if pair.kind in kinds:
            name = f"{pair.a} | {pair.b}"
            rows.setdefault(name, ("", {}))[1][pair.measure] = pair.kappa
            counts.setdefault(name, []).append(pair.n)
    return {name: (f"measured here, n = {_span(counts[name])}", row) for name, (_, row) in rows.items()}


def _span(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"


def _sheet(id: str, title: str, ours: dict[str, tuple[str, Row]], theirs: dict[str, Row]) -> Sheet:
    measured = [(name, source, row) for name, (source, row) in ours.items()]
    columns = tuple(
        dict.fromkeys(column for row in [*theirs.values(), *(row for _, _, row in measured)] for column in row)
    )
    rows = [*measured, *((name, SOURCE, row) for name, row in theirs.items())]
    return Sheet(id, title, columns, tuple(rows), SCALE)
