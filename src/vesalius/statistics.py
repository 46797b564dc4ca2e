"""Intervals, the same way everywhere: by resampling for means over prompts, Student's for the few seeds of a study,
and intervals that stay right when one looks at more and more prompts until a question is decided.
"""

import math
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float
from scipy.special import betaincinv, ndtr, stdtr, stdtrit
from torch import Tensor

RESAMPLES = 2000
#: Below this many samples a bootstrap of the mean is too sure of itself.
FEW = 8
#: How many prompts are looked at, one after the other, until a question is decided.
LOOKS = (8, 16, 24, 32, 48, 64, 96, 128)


def bootstrap_means(
    values: Float[Tensor, "sample column"], *, resamples: int = RESAMPLES, seed: int = 0
) -> Float[Tensor, "resample column"]:
    """Means of `resamples` draws of the samples with replacement, the same draws for every column."""
    return torch.from_numpy(_draws(len(values), resamples, seed)).to(values.dtype) @ values.cpu()


@lru_cache(maxsize=1)  # drawing takes longer than the rest; the evidence of one claim after another has the same n
def _draws(n: int, resamples: int, seed: int) -> Float[np.ndarray, "resample sample"]:
    """How often each sample is drawn, as a share of the draws."""
    return np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=resamples) / n


def mean_interval(
    values: Float[Tensor, "sample column"], *, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[Float[Tensor, " column"], Float[Tensor, " column"]]:
    """Percentile bootstrap interval of each column's mean. It lies within the column's values, to the last bit."""
    means = bootstrap_means(values, resamples=resamples, seed=seed)
    tail = (1 - level) / 2
    bounds = torch.quantile(means, torch.tensor([tail, 1 - tail], dtype=means.dtype), dim=0)
    smallest, largest = values.cpu().aminmax(dim=0)
    low, high = bounds.clamp(smallest, largest)  # how a matrix product rounds differs between machines
    return low, high


def student_interval(
    values: Float[np.ndarray, "sample column"], *, level: float = 0.95
) -> tuple[Float[np.ndarray, " column"], Float[np.ndarray, " column"]]:
    """Student's interval of each column's mean: for a handful of samples, where resampling is too sure of itself."""
    n = len(values)
    half = stdtrit(n - 1, (1 + level) / 2) * values.std(0, ddof=1) / n**0.5
    return values.mean(0) - half, values.mean(0) + half


def interval_or_none(values: Float[Tensor, " sample"], *, seed: int = 0) -> tuple[float | None, float | None]:
    """The 95 % interval of one mean as `means_interval` has it; None and None for one sample."""
    low, high = (float(bound[0]) for bound in means_interval(values[:, None], seed=seed))
    return (None, None) if len(values) == 1 else (low, high)


def means_interval(
    values: Float[Tensor, "sample column"], *, level: float = 0.95, seed: int = 0
) -> tuple[Float[Tensor, " column"], Float[Tensor, " column"]]:
    """The interval of each column's mean, whatever the number of samples: bootstrap, Student's below `FEW`, NaN for
    one sample, which says nothing about others.
    """
    if len(values) >= FEW:
        return mean_interval(values, level=level, seed=seed)
    if len(values) == 1:
        nothing = torch.full((values.shape[1],), torch.nan)
        return nothing, nothing.clone()
    low, high = student_interval(values.cpu().double().numpy(), level=level)
    return torch.from_numpy(low).to(values.dtype), torch.from_numpy(high).to(values.dtype)


# Looking again. Whoever looks at 8 prompts, then at 16, and stops when an interval leaves the bar has several chances
# to be wrong. So the error is spent over the looks, by a function of the share of all prompts that a look has (Lan and
# DeMets, of Pocock's type): all intervals hold together with the stated level, whenever one stops.


def looks_up_to(most: int) -> tuple[int, ...]:
    """The looks at up to `most` prompts; the last one has all of them."""
    return (*(look for look in LOOKS if look < most), most)


@lru_cache(maxsize=256)
def errors_of_looks(error: float, looks: tuple[int, ...]) -> tuple[float, ...]:
    """The two-sided error of each look's own interval, so that those of all looks together leave `error`.

    At look k the chance that a sum of normal values first leaves its limits there is what the spending function adds,
    error * ln(1 + (e - 1) * n_k / n). The density of the sums that have stayed within is carried from look to look
    (Armitage, McPherson and Rowe, 1969).
    """
    errors, spent = [], 0.0
    sums, density = np.zeros(1), np.ones(1)  # before the first look: a sum of 0, with all of the weight
    for before, now in zip((0, *looks), looks, strict=False):
        step = error * math.log1p((math.e - 1) * now / looks[-1]) - spent
        spent += step
        spread = math.sqrt(now - before)

        def leaving(limit: float, sums: np.ndarray = sums, density: np.ndarray = density, spread: float = spread):
            return float(density @ (ndtr((-limit - sums) / spread) + ndtr((sums - limit) / spread)))

        low, high = 0.0, 12.0 * math.sqrt(now)
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if leaving(middle) > step else (low, middle)
        errors.append(2 * float(ndtr(-high / math.sqrt(now))))
        points = np.linspace(-high, high, 401)
        kernel = np.exp(-(((points[:, None] - sums) / spread) ** 2) / 2) / (spread * math.sqrt(2 * math.pi))
        weights = np.full(len(points), 2.0)  # Simpson's rule
        weights[1::2], weights[[0, -1]] = 4.0, 1.0
        sums, density = points, (kernel @ density) * weights * (points[1] - points[0]) / 3
    return tuple(errors)


def skewed_interval(values: Float[np.ndarray, " sample"], *, level: float) -> tuple[float, float]:
    """The interval of a mean for few values of an unknown shape: the wider, on each side, of Student's and of the one
    that is corrected for the values' skewness (Hall, 1992).
    """
    n, mean, spread = len(values), float(values.mean()), float(values.std(ddof=1))
    if spread <= 1e-12 * max(1.0, abs(mean)):
        return mean, mean
    error, limit = spread / math.sqrt(n), float(stdtrit(n - 1, (1 + level) / 2))
    third = float(((values - mean) ** 3).mean()) / float(values.std()) ** 3 / math.sqrt(n)

    def corrected(t: float) -> float:
        bend = third / 3
        return t if abs(bend) < 1e-6 else (float(np.cbrt(1 + 3 * bend * (t - third / 6))) - 1) / bend

    return mean - max(limit, corrected(limit)) * error, mean - min(-limit, corrected(-limit)) * error


def mean_apart_from_zero(values: Float[Tensor, " sample"]) -> float:
    """The mean where its 95 % interval does not hold 0, else NaN: a share of it is not defined. One sample has no
    interval; its value counts unless it is 0.
    """
    if not len(values):
        return math.nan
    mean = float(values.double().mean())
    low, high = interval_or_none(values.double())
    apart = mean != 0 if low is None or high is None else low > 0 or high < 0
    return mean if apart else math.nan


def above_zero(value: float) -> float:
    """The value if it is positive, else NaN."""
    return value if value > 0 else math.nan


def share_interval(successes: float, n: int, *, z: float = 1.959964) -> tuple[float, float]:
    """Wilson interval of a share: right also near 0 and 1 and for small n. None of n begins at 0, n of n ends at 1."""
    if n == 0:
        return 0.0, 1.0
    share, spread = successes / n, z * z / n
    centre = (share + spread / 2) / (1 + spread)
    half = z / (1 + spread) * ((share * (1 - share) + spread / 4) / n) ** 0.5
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    return low, 1.0 if successes == n else min(1.0, centre + half)


def exact_share_interval(successes: int, n: int, *, level: float = 0.95) -> tuple[float, float]:
    """The exact (Clopper-Pearson) interval of a share, honest at the edge: none of n leaves about 3.7 / n at 95 %."""
    tail = (1 - level) / 2
    low = 0.0 if not successes else float(betaincinv(successes, n - successes + 1, tail))
    return low, 1.0 if successes == n else float(betaincinv(successes + 1, n - successes, 1 - tail))


def counted_interval(values: Float[np.ndarray, " sample"], *, level: float) -> tuple[float, float]:
    """The interval of a mean of whole numbers such as 1 for an answer lost and -1 for one gained: the exact one of the
    share above 0, less that of the share below 0 where there are such, then each at half the error. Values beyond 1
    widen it to as many times the largest.
    """
    both = bool((values > 0).any() and (values < 0).any())

    def share(values: Float[np.ndarray, " sample"]) -> tuple[float, float]:
        part = 1 - (1 - level) / 2 if both else level
        low, high = exact_share_interval(int((values > 0).sum()), len(values), level=part)
        return low, high * max(1.0, float(values.max()))

    if both:
        (low, high), (lower, upper) = share(values), share(-values)
        return low - upper, high - lower
    if (values < 0).any():
        low, high = share(-values)
        return -high, -low
    return share(values)


def share_lower_bound(successes: int, n: int, *, level: float = 0.95) -> float:
    """The exact (Clopper-Pearson) lower bound of a share: with `level` confidence the true share is at least this."""
    return 0.0 if not successes else float(betaincinv(successes, n - successes + 1, 1 - level))


def mean_lower_bound(
    values: Float[np.ndarray, "*family sample"], *, level: float = 0.95, grid: int = 1_000
) -> Float[np.ndarray, "*family"]:
    """Lower bound of the mean of values between 0 and 1, whatever their distribution, by betting (Waudby-Smith and
    Ramdas, 2024): independent draws, no assumption on skew.

    A gambler who bets against the mean being m multiplies a capital by 1 + bet * (x - m) at each draw. Where m is the
    mean or more the capital is a supermartingale, so that it ever reaches 1 / (1 - level) with chance 1 - level at
    most. The bound is the largest m of the grid up to which every m is refuted so. Bets are set by the draws before.
    """
    n = values.shape[-1]
    candidates, refuted_at = np.arange(grid) / grid, np.log(1 / (1 - level))
    count = np.arange(1, n + 1)
    mean = (0.5 + values.cumsum(-1)) / (count + 1)
    variance = (0.25 + ((values - mean) ** 2).cumsum(-1)) / (count + 1)
    before = np.concatenate([np.full((*values.shape[:-1], 1), 0.25), variance[..., :-1]], -1)
    bet = np.sqrt(2 * refuted_at / (n * before))
    log_capital = np.zeros((*values.shape[:-1], grid))
    highest = log_capital.copy()
    with np.errstate(divide="ignore"):
        largest = 0.5 / candidates
    for draw in range(n):
        stake = np.minimum(bet[..., draw, None], largest)
        log_capital += np.log1p(stake * (values[..., draw, None] - candidates))
        np.maximum(highest, log_capital, out=highest)
    standing = highest < refuted_at
    first = np.where(standing.any(-1), standing.argmax(-1), grid)
    return np.maximum(first - 1, 0) / grid


def average_ranks(values: Float[np.ndarray, " sample"]) -> Float[np.ndarray, " sample"]:
    """Ranks from 1; equal values share the mean of their ranks."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[which]


def spearman(a: Float[np.ndarray, " sample"], b: Float[np.ndarray, " sample"]) -> float:
    """Spearman's rank correlation: Pearson's of the average ranks, right with ties too; NaN where one is constant."""
    x, y = (ranks - ranks.mean() for ranks in (average_ranks(a), average_ranks(b)))
    scale = math.sqrt(float(x @ x) * float(y @ y))
    return float(x @ y) / scale if scale > 0 else math.nan


def spearman_p(rho: float, n: int) -> float:
    """The two-sided p-value of a rank correlation by Student's t with n - 2 degrees of freedom."""
    if abs(rho) >= 1:
        return 0.0
    return float(2 * stdtr(n - 2, -abs(rho) * math.sqrt((n - 2) / (1 - rho * rho))))


def spearman_interval(
    a: Float[np.ndarray, " sample"], b: Float[np.ndarray, " sample"], *, resamples: int = RESAMPLES
) -> tuple[float, float]:
    """Percentile bootstrap interval of Spearman's correlation; draws in which one is constant do not count."""
    picks = np.random.default_rng(0).integers(len(a), size=(resamples, len(a)))
    rhos = np.array([spearman(a[pick], b[pick]) for pick in picks])
    low, high = np.nanquantile(rhos, [0.025, 0.975])
    return float(low), float(high)
