"""Agreement of raters in the tables of the published benchmark, beside its rows."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from vesalius.documents.ratings import RaterPair, Ratings
from vesalius.grading.judges import JudgedCircuit
from vesalius.runs import published
from vesalius.runs.comparison import Sheet
from vesalius.runs.directory import EVENTS, read_run
from vesalius.runs.ledger import read_ledger
from vesalius.runs.published import SOURCE, Row
from vesalius.runs.state import State

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
