"""Many judged circuits together: the judged metrics of a scorecard, and how far the judges can be relied on."""

from collections.abc import Iterable, Sequence
from itertools import combinations

from vesalius.documents.metric import Metric
from vesalius.grading.agreement import Kappa, cohen_kappa
from vesalius.grading.judges.circuit import JudgedCircuit, JudgedItem
from vesalius.grading.judges.measures import MEASURES, Measure, MeasureName


def judged_metrics(judged: Sequence[JudgedCircuit]) -> dict[str, Metric]:
    """The judged metrics of a scorecard, for every measure that was asked.

    `description_quality` is the mean of 0/1/2 divided by 2, `task_accuracy` the share of right descriptions;
    `plan_soundness` and `grounding` are means on the scale from 0 to 2. `order_consistency` is the share of judgements
    that came out the same with the texts in either order. `n_error` items have no score and are in no figure.
    """
    metrics: dict[str, Metric] = {}
    for measure in MEASURES.values():
        circuits = [[item for item in circuit.items if item.measure == measure.name] for circuit in judged]
        if any(circuits):
            metrics[measure.name] = _metric(measure, circuits)
    seen = [[made.consistent for item in circuit.items for made in item.judgements] for circuit in judged]
    known = [[same for same in circuit if same is not None] for circuit in seen]
    if any(seen):
        consistency = Metric.of_circuits([sum(same) for same in known], [len(same) for same in known])
        metrics["order_consistency"] = consistency.with_errors(sum(map(len, seen)) - sum(map(len, known)))
    return metrics


def judge_agreement(judged: Iterable[JudgedCircuit]) -> dict[MeasureName, dict[str, Kappa]]:
    """Cohen's kappa of every pair of judges, by measure: weighted on 0/1/2, plain on 0/1. Pairs are `FIRST | SECOND`.

    Only items on which both gave a score count.
    """
    circuits = list(judged)
    agreement: dict[MeasureName, dict[str, Kappa]] = {}
    for name, measure in MEASURES.items():
        items = [item for circuit in circuits for item in circuit.items if item.measure == name and item.judgements]
        seats = max((len(item.judgements) for item in items), default=0)
        for first, second in combinations(range(seats), 2):
            pairs = [pair for item in items if (pair := _pair(item, first, second)) is not None]
            names = " | ".join(items[0].judgements[seat].judge for seat in (first, second))
            kappa = cohen_kappa(pairs, categories=measure.best + 1, weighted=measure.ordinal)
            agreement.setdefault(name, {})[names] = kappa
    return agreement


def _metric(measure: Measure, circuits: Sequence[Sequence[JudgedItem]]) -> Metric:
    return score_metric(measure, [[item.score for item in items] for items in circuits])


def score_metric(measure: Measure, circuits: Sequence[Sequence[int | None]]) -> Metric:
    """The metric of a measure from the scores of each circuit's items; items without a score are counted as errors."""
    scores = [[score for score in items if score is not None] for items in circuits]
    totals, counts = [sum(each) / measure.best for each in scores], [len(each) for each in scores]
    share = Metric.of_share(sum(totals), sum(counts)) if measure.per_circuit else Metric.of_circuits(totals, counts)
    return Metric(
        value=_scaled(share.value, measure.unit),
        low=_scaled(share.low, measure.unit),
        high=_scaled(share.high, measure.unit),
        n=share.n,
        statistic=share.statistic if measure.unit == 1 else "mean",
        n_error=sum(score is None for items in circuits for score in items),
    )


def _scaled(value: float | None, unit: int) -> float | None:
    return None if value is None else value * unit


def _pair(item: JudgedItem, first: int, second: int) -> tuple[int, int] | None:
    if len(item.judgements) <= second:
        return None
    one, other = item.judgements[first].score, item.judgements[second].score
    return None if one is None or other is None else (one, other)
