"""Are heads backups of each other, or do they work in series?

The synergy of a set is the effect of ablating it minus the sum of its heads' single effects. For a pair:

    s(ij) = d(ij) - d(i) - d(j),    d = clean score minus ablated score, per prompt, averaged over prompts

Positive: *backup*; each compensated for the other while it was ablated, so together they cost more than the sum.
Negative: *series*; once one is ablated the other has no effect.

Rule of significance. Prompts are resampled 2,000 times, with the same resamples for every set. In each resample every
set has a t: the shift of its mean divided by its standard error *in that resample*. Let c be the 95 % quantile of the
largest |t| over all sets; a set's interval is its mean plus or minus c of its own standard errors. So *all* intervals
hold at once, however many sets were tested. Dividing by the resample's own error matters when prompts are few: the mean
and the error of a skewed column are correlated. A synergy counts as backup (or series) if its interval lies above
(below) zero and its mean is at least `least` in size, by default a tenth of the clean score: with enough prompts
everything differs from zero.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float

from vesalius.errors import BadInput
from vesalius.statistics import RESAMPLES, bootstrap_means
from vesalius_mechrl.sets.sources import HeadSet, Source

Verdict = Literal["backup", "series", "none"]
LEAST_PROMPTS = 8
ROUNDING = 1e-9
# A resample may miss the few prompts on which a sparse column is not zero. Its variance is then set to this share of
# the column's own; otherwise c would be infinite and no set could be significant.
LEAST_VARIANCE = 0.1
COLUMNS_AT_ONCE = 1024


@dataclass(frozen=True)
class Synergy:
    """The effect of a set beyond the sum of its single effects, with an interval that holds for all sets at once."""

    heads: tuple[str, ...]
    synergy: float
    low: float
    high: float
    verdict: Verdict

    def document(self) -> dict[str, Any]:
        """The synergy for JSON."""
        return {**asdict(self), "heads": list(self.heads)}


def synergy_rows(
    source: Source, sets: Sequence[HeadSet], effects: dict[HeadSet, Float[np.ndarray, " prompt"]] | None = None
) -> Float[np.ndarray, "prompt set"]:
    """Synergy of each set on each prompt; sets in `effects` are not measured again, and new ones are added to it."""
    effects = {} if effects is None else effects
    needed = [*(frozenset({head}) for members in sets for head in sorted(members)), *sets]
    missing = list(dict.fromkeys(members for members in needed if members not in effects))
    if missing:
        effects.update(zip(missing, source.effects(missing).T, strict=True))
    columns = [effects[members] - sum(effects[frozenset({head})] for head in sorted(members)) for members in sets]
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
    """Mean of each column and an interval around it; all intervals hold at once with the given confidence.

    A column that is constant (up to rounding) has no width and does not affect the others.
    """
    n = len(rows)
    if n < LEAST_PROMPTS:
        raise BadInput(f"{n} prompts are too few for an interval; use at least {LEAST_PROMPTS}")
    mean, deviation = rows.mean(0), rows.std(0, ddof=1)
    varies = deviation > ROUNDING * max(1.0, float(np.abs(rows).max()))
    half_width = np.zeros_like(mean)
    if varies.any():
        standardized = (rows[:, varies] - mean[varies]) / deviation[varies]
        half_width[varies] = _largest_t(standardized, level, seed) * deviation[varies] / math.sqrt(n)
    return mean, mean - half_width, mean + half_width


def _largest_t(standardized: Float[np.ndarray, "prompt column"], level: float, seed: int) -> float:
    """The quantile of the largest |t| over resamples of the prompts; columns have mean 0 and variance 1."""
    n, largest = len(standardized), np.zeros(RESAMPLES)
    for start in range(0, standardized.shape[1], COLUMNS_AT_ONCE):
        columns = torch.from_numpy(np.ascontiguousarray(standardized[:, start : start + COLUMNS_AT_ONCE], np.float64))
        means, squares = (bootstrap_means(values, seed=seed).numpy() for values in (columns, columns**2))
        variance = np.maximum((squares - means**2) * n / (n - 1), LEAST_VARIANCE)
        largest = np.maximum(largest, np.abs(means / np.sqrt(variance / n)).max(1))
    return float(np.quantile(largest, level, method="higher"))


def synergy_matrix(heads: Sequence[str], pairs: Sequence[Synergy]) -> Float[np.ndarray, "head head"]:
    """The synergies of pairs as a symmetric matrix, NaN for pairs that were not tested."""
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
