"""Ratings of people, with what judges said of the same texts: every rater, every pair, and one score for each text.

Of two raters the lower score is the published rule, of three the majority. A judge counts with the score it gave after
both orders of the texts; the lowest judge is held against the lowest human. The published tables of agreement stand
beside ours.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path

from vesalius.api.door import directory_for, require_place
from vesalius.api.runs import require_run
from vesalius.errors import BadInput, choices, result_kept
from vesalius.files import write_text
from vesalius.options import Out
from vesalius.runs.directory import EVENTS, read_run
from vesalius.runs.ledger import read_ledger
from vesalius_bench.circuits.scorecard import State
from vesalius_bench.judges.circuit import JudgedCircuit, score_metric
from vesalius_bench.papers import published
from vesalius_bench.papers.comparison import ComparedRow, ComparedTable, Comparison, beside
from vesalius_bench.papers.published import SOURCE, FigureRow
from vesalius_bench.ratings.annotation import csv_of, is_annotation, read_annotation
from vesalius_bench.ratings.documents import (
    RATINGS_FILE,
    AgentScore,
    PairKind,
    RatedItem,
    RaterKind,
    RaterPair,
    RaterSummary,
    Ratings,
)
from vesalius_bench.ratings.reading import (
    Rated,
    Rating,
    agreement_of,
    item_text,
    kappa_fields,
    majority,
    read_ratings,
    scores_by_rater,
)
from vesalius_bench.ratings.texts import chosen_specimens, same_specimen
from vesalius_truth.grading.ratings import MEASURES, Item, MeasureName

LOWEST_HUMAN, LOWEST_JUDGE = "lowest human", "lowest judge"
Scores = Mapping[Rated, int]


def rating_report(
    ratings: Sequence[Rating], judged: Mapping[str, Iterable[JudgedCircuit]], *, files: Sequence[str] = ()
) -> Ratings:
    """Everything that ratings and judges say together; `judged` holds the judged circuits of each run by its name."""
    people = scores_by_rater(ratings)
    judges = _judges(judged, {rated for scores in people.values() for rated in scores})
    items = list(dict.fromkeys(rated for scores in people.values() for rated in scores))
    rows = [_row(rated, people, judges) for rated in items]
    by_item = dict(zip(items, rows, strict=True))
    unmatched = judged and not judges
    return Ratings(
        files=tuple(files),
        raters=(
            *(_summary(name, people[name], "person") for name in sorted(people)),
            *(_summary(name, scores, "judge") for name, scores in judges.items()),
        ),
        pairs=tuple(_pairs(people, judges, by_item)),
        majority=tuple(_agents(by_item, lambda row: row.majority)),
        lowest=tuple(_agents(by_item, lambda row: row.lowest)),
        items=tuple(rows),
        notes=("No judged item of the runs was rated: their names or specimens differ.",) if unmatched else (),
    )


def _judges(judged: Mapping[str, Iterable[JudgedCircuit]], rated: set[Rated]) -> dict[str, dict[Rated, int]]:
    """What each judge gave to the texts that people rated."""
    keys: dict[tuple[str, Item], list[Rated]] = {}
    for one in rated:
        keys.setdefault((one.run, one.item._replace(explainer="")), []).append(one)
    given: dict[str, dict[Rated, int]] = {}
    for run, circuits in judged.items():
        name = run if any(one.run == run for one in rated) or len(judged) > 1 else ""
        for circuit in circuits:
            for item in circuit.items:
                key = Item(item.measure, circuit.specimen, item.component, item.iteration)
                for made in item.judgements:
                    if made.score is not None:
                        given.setdefault(made.judge, {}).update(dict.fromkeys(keys.get((name, key), ()), made.score))
    return {judge: scores for judge, scores in sorted(given.items()) if scores}


def _row(rated: Rated, people: Mapping[str, Scores], judges: Mapping[str, Scores]) -> RatedItem:
    scores = {name: given[rated] for name, given in sorted(people.items()) if rated in given}
    return RatedItem(
        run=rated.run,
        agent=rated.agent,
        item=item_text(rated.item),
        scores=scores,
        judges={name: given[rated] for name, given in judges.items() if rated in given},
        majority=majority(scores.values()),
        lowest=min(scores.values()),
    )


def _summary(name: str, scores: Scores, kind: RaterKind) -> RaterSummary:
    by_measure: dict[str, list[int]] = {}
    for rated, score in scores.items():
        by_measure.setdefault(rated.item.measure, []).append(score)
    means = {name: sum(given) / len(given) for name, given in by_measure.items()}
    return RaterSummary(rater=name, kind=kind, n=len(scores), means=means)


def _pairs(
    people: Mapping[str, Scores], judges: Mapping[str, Scores], by_item: Mapping[Rated, RatedItem]
) -> list[RaterPair]:
    """Every pair of people, every person with every judge, every pair of judges, and the lowest of either."""
    pairs: list[RaterPair] = []
    for first, second in combinations(sorted(people), 2):
        pairs += _pair(first, second, people[first], people[second], "human-human")
    for person in sorted(people):
        for judge in judges:
            pairs += _pair(person, judge, people[person], judges[judge], "human-judge")
    for first, second in combinations(judges, 2):
        pairs += _pair(first, second, judges[first], judges[second], "judge-judge")
    if judges:
        humans = {rated: row.lowest for rated, row in by_item.items() if row.lowest is not None}
        lowest = {rated: min(row.judges.values()) for rated, row in by_item.items() if row.judges}
        pairs += _pair(LOWEST_HUMAN, LOWEST_JUDGE, humans, lowest, "lowest human-lowest judge")
    return pairs


def _pair(a: str, b: str, first: Scores, second: Scores, kind: PairKind) -> list[RaterPair]:
    return [
        RaterPair(a=a, b=b, measure=name, **kappa_fields(kappa), kind=kind)
        for name, kappa in agreement_of(first, second).items()
    ]


def _agents(by_item: Mapping[Rated, RatedItem], score_of: Callable[[RatedItem], int | None]) -> list[AgentScore]:
    """The mean of one score per text, for every agent and measure; intervals resample specimens."""
    groups: dict[tuple[str, str, MeasureName], dict[str, list[int | None]]] = {}
    for rated, row in by_item.items():
        of_agent = groups.setdefault((rated.run, rated.agent, rated.item.measure), {})
        of_agent.setdefault(rated.item.specimen, []).append(score_of(row))
    scores = []
    for (run, agent, name), given in groups.items():
        metric = score_metric(MEASURES[name], list(given.values()))
        figures = {"value": metric.value, "low": metric.low, "high": metric.high, "n": metric.n}
        scores.append(AgentScore(run=run, agent=agent, measure=name, **figures, n_split=metric.n_error or 0))
    return scores


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


# Agreement of raters in the tables of the published benchmark, beside its rows.

SCALE = "Cohen's kappa, weighted on 0/1/2"
GROUNDING = "0 to 2; shares of 2 and 1; the number of hypotheses"


def judged_circuits(directory: Path) -> list[JudgedCircuit]:
    """What the judges of a run said; empty where it had none."""
    read_run(directory)
    state = State(read_ledger(directory / EVENTS))
    return [JudgedCircuit.model_validate(data) for data in state.judged.values()]


def rating_sheets(ratings: Ratings) -> list[ComparedTable]:
    """Tables 6 to 9 with these ratings: pairs of people, the lowest of either kind, each person with each judge, and
    how far hypotheses follow from observations, by the lowest score of the people.
    """
    people = _lines(ratings.pairs, "human-human", "lowest human-lowest judge")
    judged, judges = _lines(ratings.pairs, "human-judge"), _lines(ratings.pairs, "judge-judge")
    return [
        beside("Table 6", "agreement of people and judges, two backbones", people, published.TABLE_6, scale=SCALE),
        beside("Table 7", "the same on the outputs of four backbones", people, published.TABLE_7, scale=SCALE),
        beside("Table 8", "each person with each judge", judged, published.TABLE_8, scale=SCALE),
        beside("Table 9", "grounding of hypotheses", _grounding(ratings), published.TABLE_9, scale=GROUNDING),
        beside("judges", "each judge with each other", judges, {}, scale=SCALE),
    ]


def _grounding(ratings: Ratings) -> list[ComparedRow]:
    """Table 9 of every agent whose hypotheses people rated."""
    given: dict[str, list[int]] = {}
    for row in ratings.items:
        if row.item.startswith("grounding:") and row.lowest is not None:
            given.setdefault(", ".join(filter(None, (row.agent, row.run))) or "all", []).append(row.lowest)
    return [
        (
            name,
            f"rated by people here, n = {len(scores)}",
            {
                "grounding": sum(scores) / len(scores),
                "fully": scores.count(2) / len(scores),
                "partial": scores.count(1) / len(scores),
                "grounding_n": len(scores),
            },
        )
        for name, scores in given.items()
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
    first = comparison.tables[0].measured() if comparison.tables else ()
    measured = {name: row for name, _, row in first}
    return Comparison((*comparison.tables, _rated_sheet(rating_report(kept, {}), measured)), comparison.usage)


def _rated_sheet(ratings: Ratings, measured: Mapping[str, FigureRow]) -> ComparedTable:
    """What people gave the texts of each run and agent, beside the judges' figures of the run."""
    rows: dict[tuple[str, str], FigureRow] = {}
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
    return ComparedTable("Ratings", "texts rated by people", tuple(columns), (*ours, *theirs), scale)


def _lines(pairs: Iterable[RaterPair], *kinds: str) -> list[ComparedRow]:
    """A row for each pair of raters of these kinds."""
    rows: dict[str, FigureRow] = {}
    counts: dict[str, list[int]] = {}
    for pair in pairs:
        if pair.kind in kinds:
            name = f"{pair.a} | {pair.b}"
            row = rows.setdefault(name, {})
            row[pair.measure], row[f"{pair.measure}_n"] = pair.kappa, pair.n
            counts.setdefault(name, []).append(pair.n)
    spans = {name: " to ".join(map(str, sorted({min(ns), max(ns)}))) for name, ns in counts.items()}
    return [(name, f"measured here, n = {spans[name]}", row) for name, row in rows.items()]


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
    with result_kept(report):
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
