"""Ratings of people, with what judges said of the same texts: every rater, every pair, and one score for each text.

Of two raters the lower score is the published rule, of three the majority. A judge counts with the score it gave after
both orders of the texts; the lowest judge is held against the lowest human.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations

from vesalius.grading.agreement import MEASURES, Item, Measure, MeasureName
from vesalius.grading.judges.circuit import JudgedCircuit, score_metric
from vesalius_bench.ratings.documents_ratings import AgentScore, RatedItem, RaterKind, RaterPair, RaterSummary, Ratings
from vesalius_bench.ratings.grading_ratings import Rated, Rating, agreement_of, item_text, majority, scores_by_rater

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
    return RaterSummary(rater=name, kind=kind, n=len(scores), means=_means(scores))


def _means(scores: Scores) -> dict[str, float]:
    by_measure: dict[str, list[int]] = {}
    for rated, score in scores.items():
        by_measure.setdefault(rated.item.measure, []).append(score)
    return {name: sum(given) / len(given) for name, given in by_measure.items()}


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


def _pair(a: str, b: str, first: Scores, second: Scores, kind: str) -> list[RaterPair]:
    return [
        RaterPair.model_validate(
            {
                "a": a,
                "b": b,
                "measure": name,
                "kappa": kappa.value,
                "low": kappa.low,
                "high": kappa.high,
                "n": kappa.n,
                "agreement": kappa.agreement,
                "kind": kind,
            }
        )
        for name, kappa in agreement_of(first, second).items()
    ]


def _agents(by_item: Mapping[Rated, RatedItem], score_of: Callable[[RatedItem], int | None]) -> list[AgentScore]:
    """The mean of one score per text, for every agent and measure; intervals resample specimens."""
    groups: dict[tuple[str, str, MeasureName], dict[str, list[int | None]]] = {}
    for rated, row in by_item.items():
        of_agent = groups.setdefault((rated.run, rated.agent, rated.item.measure), {})
        of_agent.setdefault(rated.item.specimen, []).append(score_of(row))
    return [_agent(run, agent, MEASURES[name], list(scores.values())) for (run, agent, name), scores in groups.items()]


def _agent(run: str, agent: str, measure: Measure, scores: Sequence[Sequence[int | None]]) -> AgentScore:
    metric = score_metric(measure, scores)
    return AgentScore(
        run=run,
        agent=agent,
        measure=measure.name,
        value=metric.value,
        low=metric.low,
        high=metric.high,
        n=metric.n,
        n_split=metric.n_error or 0,
    )
