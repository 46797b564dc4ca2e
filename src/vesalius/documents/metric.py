"""A figure with its interval, its count and the baseline it has to beat.

Components of one circuit stand or fall together, so intervals resample circuits, not components. Where a bootstrap has
nothing to resample the Wilson interval takes its place: for a single circuit over its components, and where every
circuit has the same share over the circuits.
"""

from collections.abc import Sequence

import torch
from pydantic import BaseModel, ConfigDict

from vesalius.statistics import bootstrap_means, share_interval

LEVEL = 0.95


class Metric(BaseModel):
    """A share or a mean with its 95 % interval, its count and, where there is one, the baseline it has to beat."""

    model_config = ConfigDict(frozen=True)

    value: float
    low: float
    high: float
    n: int
    baseline: float | None = None

    @classmethod
    def of_share(cls, right: float, n: int, *, baseline: float | None = None) -> "Metric":
        """`right` out of `n` independent cases, with the Wilson interval."""
        low, high = share_interval(right, n)
        return cls(value=right / n if n else 0.0, low=low, high=high, n=n, baseline=baseline)

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
        counted = [(total, count) for total, count in zip(totals, counts, strict=True) if count]
        n = sum(count for _, count in counted)
        value = sum(total for total, _ in counted) / n if n else 0.0
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
