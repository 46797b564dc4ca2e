"""A figure with its interval, its count and the baseline it has to beat.

Components of one circuit stand or fall together, so intervals resample circuits, not components. Where a bootstrap has
nothing to resample the Wilson interval takes its place: for a single circuit over its components, and where every
circuit has the same share over the circuits.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from vesalius.documents.base import Record
from vesalius.documents.view import Facts, Sheet

if TYPE_CHECKING:  # the help of a command loads no torch
    from torch import Tensor

LEVEL = 0.95
#: Digits after the point that set a figure apart from a bar, at most.
MOST_DIGITS = 6
#: Metrics that a repr shows.
SHOWN_METRICS = 4
Statistic = Literal["share", "mean", "median"]


def digits_apart(figure: float | None, bar: float, digits: int = 2) -> int:
    """How many digits after the point show that a figure is not the bar: 0.7996 is no 0.80 where 0.8 is asked for."""
    if figure is None or abs(figure - bar) < 10.0**-MOST_DIGITS:
        return digits
    return next((n for n in range(digits, MOST_DIGITS) if round(figure, n) != round(bar, n)), MOST_DIGITS)


def figure_apart(figure: float, bar: float, digits: int = 2) -> str:
    """A figure as text, in as many digits as set it apart from a bar."""
    return f"{figure:.{digits_apart(figure, bar, digits)}f}"


class Figure(Record):
    """A mean with its 95 % interval over `n` prompts; one prompt has none."""

    value: float
    low: float | None
    high: float | None
    n: int


class Metric(Record):
    """A share, a mean or a median with its 95 % interval.

    `n` cases are in it and `n_error` (where counted) are not, because something failed on them. `baseline` is what a
    guess would earn. Over no cases there is no value and no interval.
    """

    ABSENT_IF_DEFAULT = ("baseline", "n_error")

    value: float | None
    low: float | None
    high: float | None
    n: int
    baseline: float | None = None
    n_error: int | None = None
    statistic: Statistic = "mean"

    @property
    def ends(self) -> tuple[float | None, float | None, float | None]:
        """The value and the ends of its interval, as tables and bars take them."""
        return self.value, self.low, self.high

    @classmethod
    def of_share(cls, right: float, n: int, *, baseline: float | None = None) -> "Metric":
        """`right` out of `n` independent cases, with the Wilson interval."""
        from vesalius.statistics import share_interval

        if not n:
            return cls(value=None, low=None, high=None, n=0, baseline=baseline, statistic="share")
        low, high = share_interval(right, n)
        return cls(value=right / n, low=low, high=high, n=n, baseline=baseline, statistic="share")

    @classmethod
    def of_mean(cls, values: "Tensor", *, seed: int = 0) -> "Metric":
        """The mean of one value for each case, with its interval over them; a single case has none."""
        from vesalius.statistics import interval_or_none

        low, high = interval_or_none(values, seed=seed)
        return cls(value=float(values.mean()), low=low, high=high, n=len(values))

    @classmethod
    def of_circuits(
        cls,
        totals: Sequence[float],
        counts: Sequence[int],
        *,
        baseline: float | None = None,
        smallest: float = 0.0,
    ) -> "Metric":
        """The mean over all components, from each circuit's total and count; values lie from `smallest` to 1."""
        import torch

        from vesalius.statistics import bootstrap_means, share_interval

        counted = [(total, count) for total, count in zip(totals, counts, strict=True) if count]
        n = sum(count for _, count in counted)
        if not n:
            return cls(value=None, low=None, high=None, n=0, baseline=baseline)
        value = sum(total for total, _ in counted) / n
        shares = {round(total / count, 12) for total, count in counted}
        if len(shares) > 1:
            means = bootstrap_means(torch.tensor(counted, dtype=torch.float64))
            ends = torch.tensor([(1 - LEVEL) / 2, (1 + LEVEL) / 2], dtype=torch.float64)
            low, high = torch.quantile(means[:, 0] / means[:, 1], ends).tolist()
        else:
            span, cases = 1 - smallest, n if len(counted) == 1 else len(counted)
            ends = share_interval((value - smallest) / span * cases, cases)
            low, high = (smallest + span * end for end in ends)
        return cls(value=value, low=min(low, value), high=max(high, value), n=n, baseline=baseline)

    def with_errors(self, n_error: int) -> "Metric":
        """The same, with the number of cases that something failed on."""
        return self.model_copy(update={"n_error": n_error})

    @property
    def figures(self) -> str:
        """The value with its interval, where it has one, as text."""
        return self.text(3)

    def text(self, digits: int = 2, *, bars: Sequence[float] = ()) -> str:
        """The same with so many digits after the point: two in sentences, more where the value or an end would look
        equal to one of the `bars` that they are compared with, and is not.
        """
        if self.value is None:
            return "no value"
        digits = max([digits, *(digits_apart(end, bar, digits) for end in self.ends for bar in bars)])
        value, low, high = (None if x is None else round(x, digits) + 0.0 for x in (self.value, self.low, self.high))
        ends = "" if low is None or high is None else f" [{low:.{digits}f}, {high:.{digits}f}]"
        return f"{value:.{digits}f}{ends}"


def metric_sheet(metrics: Mapping[str, Metric], **options: Any) -> Sheet:
    """Metrics as a table."""
    rows = [(name, one.value, one.low, one.high, one.n, one.baseline, one.statistic) for name, one in metrics.items()]
    return Sheet(("metric", "value", "low", "high", "n", "baseline", "statistic"), rows, **options)


def metric_facts(metrics: Mapping[str, Metric], *, first: Sequence[str] = (), most: int = SHOWN_METRICS) -> Facts:
    """A few metrics, those named `first` before others, one line each: value, interval, count and baseline. Pages have
    the table of all of them.
    """
    order = list(dict.fromkeys([*(name for name in first if name in metrics), *metrics]))
    lines = [
        f"{name} {metric.figures}, n {metric.n}"
        + ("" if metric.baseline is None else f", baseline {metric.baseline:.3f}")
        for name, metric in ((name, metrics[name]) for name in order[:most])
    ]
    left = len(metrics) - most
    more = [("", f"... {left} more metrics in .table()")] if left > 0 else []
    return Facts([*(("", line) for line in lines), *more], terminal_only=True)
