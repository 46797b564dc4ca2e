"""Do heads back each other up, or work in series?

The synergy of a set is what removing it does less the sum of what removing each of its heads alone does. For a pair:

    s(ij) = d(ij) - d(i) - d(j),    d = clean score less edited score, per prompt, averaged over prompts

Positive: *backup*; together they hurt more than the sum, each did the other's work while it was missing. Negative:
*series*; once one is gone the other has nothing left to do.

Rule of significance. Prompts are resampled 2,000 times, the same draws for every set tested. The largest deviation of
any set's mean from its own, in standard errors, has some 95 % quantile c; a set's interval is its mean give or take c
standard errors. So with 95 % confidence *all* intervals hold at once, however many sets were tested. A synergy counts
as backup (or series) if its interval lies above (below) zero and its mean is at least `least` in size, by default a
tenth of the clean score: with enough prompts everything differs from zero.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float

from vesalius.discovery.sets.sources import HeadSet, Source
from vesalius.errors import BadInput
from vesalius.intervene.statistics import bootstrap_means

Verdict = Literal["backup", "series", "none"]
LEAST_PROMPTS = 8
ROUNDING = 1e-9


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

    A column that is the same on every prompt has no width and takes no part in the others'.
    """
    if len(rows) < LEAST_PROMPTS:
        raise BadInput(f"intervals over {len(rows)} prompts say nothing; use at least {LEAST_PROMPTS}")
    mean = rows.mean(0)
    spread = bootstrap_means(torch.from_numpy(np.ascontiguousarray(rows, np.float64)), seed=seed).numpy() - mean
    error = spread.std(0)
    varies = error > ROUNDING * max(1.0, float(np.abs(rows).max()))
    if not varies.any():
        return mean, mean.copy(), mean.copy()
    largest = (np.abs(spread[:, varies]) / error[varies]).max(1)
    reach = np.where(varies, float(np.quantile(largest, level)) * error, 0.0)
    return mean, mean - reach, mean + reach


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
