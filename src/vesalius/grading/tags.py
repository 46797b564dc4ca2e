"""Are the roles right? Tags of an explanation against the answer key, beside the honest baseline.

The baseline needs no experiment: every head AGGREGATOR, every MLP MAPPER. It is right for 104 of the 163 benchmark
components, so a tag accuracy means something only above 0.64.
"""

from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict

from vesalius.circuits.key import answer
from vesalius.errors import BadInput
from vesalius.explain.explanation import Explanation
from vesalius.intervene.statistics import share_interval
from vesalius.model.components import Component


class Metric(BaseModel):
    """A share with its Wilson interval, its count and, where there is one, the baseline it has to beat."""

    model_config = ConfigDict(frozen=True)

    value: float
    low: float
    high: float
    n: int
    baseline: float | None = None

    @classmethod
    def of_share(cls, right: int, n: int, *, baseline: float | None = None) -> "Metric":
        """`right` out of `n`."""
        low, high = share_interval(right, n)
        return cls(value=right / n if n else 0.0, low=low, high=high, n=n, baseline=baseline)


class Grade(BaseModel):
    """The graded tags of one explanation or of many."""

    model_config = ConfigDict(frozen=True)

    tag_accuracy: Metric
    tag_accuracy_experiment_only: Metric
    tag_accuracy_supported: Metric
    components: dict[str, dict[str, str]]


def grade(explanations: Explanation | Iterable[Explanation]) -> Grade:
    """Grade the tags of benchmark explanations against the answer key; a missing component counts as wrong."""
    given = [explanations] if isinstance(explanations, Explanation) else list(explanations)
    if not given:
        raise BadInput("there is no explanation to grade; give at least one")
    rows: dict[str, dict[str, str]] = {}
    for explanation in given:
        found = {part.id: part for part in explanation.components}
        for part in answer(explanation.specimen).components:
            own = found.get(part.id)
            rows[f"{explanation.specimen}/{part.id}"] = {
                "true": part.tag,
                "tag": own.tag if own else "",
                "by_experiment": own.tag_by_experiment if own else "",
                "verdict": own.verdict if own else "untested",
                "guess": "AGGREGATOR" if Component.parse(part.id).is_head else "MAPPER",
            }
    return _summary(rows)


def _summary(rows: dict[str, dict[str, str]]) -> Grade:
    def right(column: str, chosen: Iterable[dict[str, str]]) -> int:
        return sum(row[column] == row["true"] for row in chosen)

    everything = list(rows.values())
    supported = [row for row in everything if row["verdict"] == "supported"]
    n = len(everything)
    baseline = right("guess", everything) / n
    return Grade(
        tag_accuracy=Metric.of_share(right("tag", everything), n, baseline=baseline),
        tag_accuracy_experiment_only=Metric.of_share(right("by_experiment", everything), n, baseline=baseline),
        tag_accuracy_supported=Metric.of_share(right("tag", supported), len(supported)),
        components=rows,
    )
