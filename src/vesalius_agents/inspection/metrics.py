"""Our figures over samples, with our intervals: what a scorecard of `vesalius bench` would say of the same answers.

Beside inspect's own `mean` and `stderr`, each gives `value`, `low` and `high`. Samples that ended in an error are in
none of them.
"""

import math
from collections.abc import Callable, Sequence

from inspect_ai.scorer import Metric, SampleScore, mean, metric, stderr

from vesalius.documents.metric import Metric as Figure
from vesalius_agents.cases import median_over_cases, pooled_over_components
from vesalius_agents.inspection.sessions import ours
from vesalius_functions.bench.functions import function_metrics

#: Of a score's metadata: how many components each of its figures is of.
COUNTS = "counts"


@metric
@ours
def over_components(figure: str) -> Metric:
    """The mean over all components of all samples; resamples circuits."""

    def compute(scores: list[SampleScore]) -> dict[str, float]:
        counts = [int((one.score.metadata or {}).get(COUNTS, {}).get(figure, 1)) for one in scores]
        return _ends(pooled_over_components(_values(scores), counts))

    return compute  # type: ignore[return-value]


@metric
@ours
def share() -> Metric:
    """The share of samples, with the Wilson interval."""

    def compute(scores: list[SampleScore]) -> dict[str, float]:
        values = _values(scores)
        return _ends(Figure.of_share(sum(values), len(values)))

    return compute  # type: ignore[return-value]


@metric
@ours
def median() -> Metric:
    """The median over samples; resamples circuits."""

    def compute(scores: list[SampleScore]) -> dict[str, float]:
        return _ends(median_over_cases(_values(scores)))

    return compute  # type: ignore[return-value]


@metric
@ours
def over_functions(figure: str) -> Metric:
    """The mean over functions; the Wilson interval where all figures are yes or no, else resampled."""

    def compute(scores: list[SampleScore]) -> dict[str, float]:
        found = function_metrics([{figure: value} for value in _values(scores)])
        return _ends(found.get(figure))

    return compute  # type: ignore[return-value]


def with_ours(names: Sequence[str], ours: Callable[[str], Metric]) -> dict[str, list[Metric]]:
    """inspect's mean and standard error, and ours, for each figure."""
    return {name: [mean(), stderr(), ours(name)] for name in names}


def number(value: float | None) -> float:
    """A figure as inspect takes it: one that does not apply is NaN, which inspect counts as unscored."""
    return math.nan if value is None else float(value)


def _values(scores: list[SampleScore]) -> list[float]:
    return [one.score.as_float() for one in scores]


def _ends(found: Figure | None) -> dict[str, float]:
    names = ("value", "low", "high")
    return {name: math.nan if found is None else number(getattr(found, name)) for name in names}
