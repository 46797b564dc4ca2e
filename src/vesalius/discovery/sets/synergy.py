"""Do heads back each other up, or work in series?

The synergy of a set is what removing it does less the sum of what removing each of its heads alone does. For a pair:

    s(ij) = d(ij) - d(i) - d(j),    d = clean score less edited score, per prompt, averaged over prompts

Positive: *backup*; together they hurt more than the sum, each did the other's work while it was missing. Negative:
*series*; once one is gone the other has nothing left to do.

Rule of significance. Prompts are drawn again 2,000 times, the same draws for every set tested. Each draw gives every
set a t: how far its mean moved, over its standard error *in that draw*. The largest |t| of any set has some 95 %
quantile c; a set's interval is its mean give or take c of its own standard errors. So *all* intervals hold at once,
however many sets were tested. Dividing by the draw's own error matters when prompts are few: the mean and the error of
a skewed column go astray together. A synergy counts as backup (or series) if its interval lies above (below) zero and
its mean is at least `least` in size, by default a tenth of the clean score: with enough prompts everything differs from
zero.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float

from vesalius.discovery.sets.sources import HeadSet, Source
from vesalius.errors import BadInput
from vesalius.statistics import RESAMPLES, bootstrap_means

Verdict = Literal["backup", "series", "none"]
LEAST_PROMPTS = 8
ROUNDING = 1e-9
# A draw may miss the few prompts on which a sparse column is not zero. Its variance is then taken for this share of the
# column's own, or c would be infinite and one such column would silence all others.
LEAST_VARIANCE = 0.1
COLUMNS_AT_ONCE = 1024


@dataclass(frozen=True)
class Synergy:
    """What a set of heads does beyond the sum of its heads, with an interval that holds for all sets at once."""

    heads: tuple[str, ...]
    synergy: float
    low: float
    high: float
    verdict: Verdict

    def document(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {**asdict(self), "heads": list(self.heads)}


def synergy_rows(
    source: Source, sets: Sequence[HeadSet], known: dict[HeadSet, Float[np.ndarray, " prompt"]] | None = None
) -> Float[np.ndarray, "prompt set"]:
    """Synergy of each set on each prompt; effects in `known` are not measured again, and new ones are added to it."""
    known = {} if known is None else known
    wanted = [*(frozenset({head}) for members in sets for head in sorted(members)), *sets]
    missing = list(dict.fromkeys(members for members in wanted if members not in known))
    if missing:
        known.update(zip(missing, source.effects(missing).T, strict=True))
    columns = [known[members] - sum(known[frozenset({head})] for head in sorted(members)) for members in sets]
    return np.stack(columns, 1)


def judge(
    rows: Float[np.ndarray, "prompt set"], names: Sequence[tuple[str, ...]], *, least: float, seed: int = 0
) -> list[Synergy]:
    """Intervals and verdicts of sets tested together."""
    mean, low, high = simultaneous_interval(rows, seed=seed)
    return [
        Synergy(heads, float(m), float(a), float(b), _verdict(float(m), float(a), float(b), least))
        for heads, m, a, b in zip(names, mean, low, high, strict=True)
    ]


def simultaneous_interval(
    rows: Float[np.ndarray, "prompt column"], *, level: float = 0.95, seed: int = 0
) -> tuple[Float[np.ndarray, " column"], Float[np.ndarray, " column"], Float[np.ndarray, " column"]]:
    """Mean of each column and an interval around it; all intervals hold together with the given confidence.

    A column that is the same on every prompt (up to rounding) has no width and takes no part in the others'.
    """
    n = len(rows)
    if n < LEAST_PROMPTS:
        raise BadInput(f"intervals over {n} prompts say nothing; use at least {LEAST_PROMPTS}")
    mean, deviation = rows.mean(0), rows.std(0, ddof=1)
    varies = deviation > ROUNDING * max(1.0, float(np.abs(rows).max()))
    reach = np.zeros_like(mean)
    if varies.any():
        standard = (rows[:, varies] - mean[varies]) / deviation[varies]
        reach[varies] = _largest_t(standard, level, seed) * deviation[varies] / math.sqrt(n)
    return mean, mean - reach, mean + reach


def _largest_t(standard: Float[np.ndarray, "prompt column"], level: float, seed: int) -> float:
    """The quantile of the largest |t| over draws of the prompts; columns have mean 0 and variance 1."""
    n, largest = len(standard), np.zeros(RESAMPLES)
    for start in range(0, standard.shape[1], COLUMNS_AT_ONCE):
        columns = torch.from_numpy(np.ascontiguousarray(standard[:, start : start + COLUMNS_AT_ONCE], np.float64))
        moved, squares = (bootstrap_means(values, seed=seed).numpy() for values in (columns, columns**2))
        variance = np.maximum((squares - moved**2) * n / (n - 1), LEAST_VARIANCE)
        largest = np.maximum(largest, np.abs(moved / np.sqrt(variance / n)).max(1))
    return float(np.quantile(largest, level, method="higher"))


def synergy_matrix(heads: Sequence[str], pairs: Sequence[Synergy]) -> Float[np.ndarray, "head head"]:
    """The synergies of pairs as a symmetric matrix, NaN where a pair was not tested."""
    place = {head: i for i, head in enumerate(heads)}
    matrix = np.full((len(heads), len(heads)), np.nan)
    for pair in pairs:
        i, j = (place[head] for head in pair.heads)
        matrix[i, j] = matrix[j, i] = pair.synergy
    return matrix


def _verdict(mean: float, low: float, high: float, least: float) -> Verdict:
    if low > 0 and mean >= least:
        return "backup"
    return "series" if high < 0 and mean <= -least else "none"
