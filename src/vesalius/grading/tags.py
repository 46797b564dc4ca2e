"""Are the roles right? Tags of an explanation against the answer key, beside the honest baseline.

The baseline needs no experiment: every head AGGREGATOR, every MLP MAPPER. It is right for 104 of the 163 benchmark
components, so a tag accuracy means something only above 0.64.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import get_args

from vesalius.components import Component
from vesalius.documents.explanation import Explanation, Tag
from vesalius.documents.metric import Metric

#: Per component: the true tag, the given ones, the verdict and the guess by kind.
TagRow = dict[str, str]


def guess_by_kind(component: str) -> Tag:
    """The tag that is likeliest before any experiment."""
    return "AGGREGATOR" if Component.parse(component).is_head else "MAPPER"


def tag_rows(explanation: Explanation, truth: Mapping[str, str]) -> dict[str, TagRow]:
    """Given and true tag of each component of the key; a component that is not explained has no tag, and no tag is
    wrong.
    """
    explained = {part.id: part for part in explanation.components}
    rows: dict[str, TagRow] = {}
    for component, tag in truth.items():
        own = explained.get(component)
        rows[component] = {
            "true": tag,
            "tag": (own.tag or "") if own else "",
            "by_experiment": (own.tag_by_experiment or "") if own else "",
            "by_model": (own.tag_by_model or "") if own else "",
            "verdict": own.verdict if own else "untested",
            "guess": guess_by_kind(component),
        }
    return rows


def tag_metrics(circuits: Sequence[Sequence[TagRow]]) -> dict[str, Metric]:
    """Tag accuracies over circuits: overall, by experiment alone, among supported components, by the language model
    where one chose tags, and tag by tag.
    """
    made = {
        "tag_accuracy": _accuracy(circuits, "tag"),
        "tag_accuracy_experiment_only": _accuracy(circuits, "by_experiment"),
        "tag_accuracy_supported": _accuracy(circuits, "tag", where=lambda row: row["verdict"] == "supported"),
    }
    if any(row.get("by_model") for circuit in circuits for row in circuit):
        made["tag_accuracy_by_model"] = _accuracy(circuits, "by_model")
    for tag in get_args(Tag):
        metric = _accuracy(circuits, "tag", where=lambda row, tag=tag: row["true"] == tag)
        if metric.n:
            made[f"tag_accuracy_{tag}"] = metric
    return made


def always(tag: Tag, circuits: Sequence[Sequence[TagRow]]) -> float:
    """The accuracy of giving every component the same tag."""
    rows = [row for circuit in circuits for row in circuit]
    return sum(row["true"] == tag for row in rows) / len(rows) if rows else 0.0


def _accuracy(
    circuits: Sequence[Sequence[TagRow]], column: str, *, where: Callable[[TagRow], bool] = lambda row: True
) -> Metric:
    chosen = [[row for row in circuit if where(row)] for circuit in circuits]

    def right(column: str) -> list[int]:
        return [sum(row.get(column, "") == row["true"] for row in rows) for rows in chosen]

    counts = [len(rows) for rows in chosen]
    baseline = sum(right("guess")) / sum(counts) if sum(counts) else None
    return Metric.of_circuits(right(column), counts, baseline=baseline)
