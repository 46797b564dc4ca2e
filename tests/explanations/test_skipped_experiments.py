"""Experiments that are left out change nothing that is supported: beside a twin that makes all of them."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.components import Component
from vesalius.explanations.claims.base import against, either
from vesalius.explanations.claims.necessary import NATURAL_ORDER, Necessary
from vesalius.explanations.laboratory import Replacement
from vesalius.statistics import means_interval

PROMPTS = 11
PARTS = [Component(0, head) for head in range(13)]
SEED, DRAWS, LEAST = 7, 2000, 0.05
PerPrompt = Float[np.ndarray, " prompt"]


def _ends(values: Float[Tensor, " prompt"], level: float) -> tuple[float, float]:
    low, high = means_interval(values.double()[:, None], level=level, seed=SEED)
    return float(low[0]), float(high[0])


class Outcomes:
    """A laboratory of a natural model in which every replacement of every component costs something at random: the
    first component is the one that a claim is about, the others are matched with it. It counts what is asked for.
    """

    finite, looks_first, seed = False, False, SEED
    replacements: tuple[Replacement, ...] = ("zero", "mean", "resample", "moved")

    def __init__(self, rng: np.random.Generator) -> None:
        self.model = SimpleNamespace(config=SimpleNamespace(n_layers=1, n_heads=len(PARTS)))
        self.effects = {(part, kind): _random_effects(rng) for part in PARTS for kind in NATURAL_ORDER}
        self.asked: set[tuple[Component, Replacement]] = set()
        self.settled: dict[Any, Any] = {}

    def effect(self, components: list[Component], kind: Replacement) -> Float[Tensor, " prompt"]:
        self.asked.add((components[0], kind))
        return torch.from_numpy(self.effects[components[0], kind])

    def matched(self, component: Component, *, k: int) -> list[Component]:
        return PARTS[1 : 1 + k]

    def first_effect(self, components: list[Component], kind: Replacement) -> None:
        return None

    def ends(self, values: Float[Tensor, " prompt"], level: float) -> tuple[float, float]:
        return _ends(values, level)

    def measure(self, sets: list[list[Component]], kinds: list[Replacement]) -> None:
        return None


def _random_effects(rng: np.random.Generator) -> PerPrompt:
    """Effects around the bar, of one sign or both, skewed or not, the same for all prompts or not defined."""
    mean, spread = rng.choice([0.0, 0.02, 0.04, 0.05, 0.06, 0.1, 0.2, -0.1]), rng.choice([0.0, 0.01, 0.03, 0.1])
    noise = [rng.normal(size=PROMPTS), rng.exponential(size=PROMPTS) - 1, 1 - rng.exponential(size=PROMPTS)]
    return mean + spread * noise[rng.integers(3)] + (np.nan if rng.random() < 0.02 else 0.0)


def _interval(effects: PerPrompt, level: float) -> tuple[float, float]:
    """The percentile interval of the mean, with the draws of the product: to four places as in a record."""
    n = len(effects)
    draws = np.random.default_rng(SEED).multinomial(n, np.full(n, 1 / n), size=DRAWS) / n
    low, high = np.quantile(draws @ effects, [(1 - level) / 2, (1 + level) / 2])
    return round(float(max(low, effects.min())), 4), round(float(min(high, effects.max())), 4)


def _necessary_by_all(outcomes: Outcomes) -> bool:
    """Every replacement against the first four matched components that are not strong themselves: one must exceed its
    bar, and two must cost at least the least that counts.
    """
    passed, costs = [], []
    for kind in NATURAL_ORDER:
        effects = outcomes.effects[PARTS[0], kind]
        others = [float(outcomes.effects[part, kind].mean()) for part in PARTS[1:]]
        weak = [mean for mean in others if not mean > LEAST][:4]
        bar = max([LEAST, *(2 * round(mean, 4) for mean in weak if not np.isnan(mean))])
        passed.append(_interval(effects, 1 - 0.05 / 4)[0] > bar)
        costs.append(passed[-1] or round(float(effects.mean()), 4) >= LEAST)
    return any(passed) and sum(costs) >= 2


@pytest.mark.slow
def test_necessary_is_supported_where_every_replacement_and_control_supports_it() -> None:
    rng, verdicts, asked = np.random.default_rng(0), [], 0
    for _ in range(120):
        outcomes: Any = Outcomes(rng)
        verdict, _ = Necessary(component="L0H0").examine(outcomes, level=0.95)
        verdicts.append(verdict == "supported")
        asked += len(outcomes.asked)
        assert verdicts[-1] == _necessary_by_all(outcomes), outcomes.effects
    assert 20 < sum(verdicts) < 100
    assert asked < 0.5 * 120 * len(NATURAL_ORDER) * 5, "most controls are left out"


@pytest.mark.slow
@pytest.mark.parametrize("kinds", [1, 2])
def test_a_figure_is_supported_where_it_exceeds_the_least_and_its_controls(kinds: int) -> None:
    """Controls are measured where one of the figures exceeds the least that counts; `either` holds two of them."""
    rng = np.random.default_rng(1)
    lab: Any = SimpleNamespace(seed=SEED, ends=_ends)
    verdicts = []
    for _ in range(100):
        own, other = ([torch.from_numpy(_random_effects(rng)) for _ in range(kinds)] for _ in range(2))
        verdicts.append(_decided(lab, own, other))
        level, means = 1 - 0.05 / kinds, [round(float(one.mean()), 4) for one in other]
        bars = [LEAST if np.isnan(mean) else max(LEAST, mean) for mean in means]
        exceeded = [_interval(one.numpy(), level)[0] > bar for one, bar in zip(own, bars, strict=True)]
        assert (verdicts[-1] == "supported") == any(exceeded)
    assert 10 < verdicts.count("supported") < 90


def _decided(lab: Any, own: list[Tensor], other: list[Tensor]) -> str:
    if len(own) == 1:
        return against(lab, "", "", own[0], lambda: {"other": other[0]}, least=LEAST, level=0.95)[0]
    (a, b), (c, d) = own, other
    return either(lab, "", (a, b), lambda: {"other": (c, d)}, least=LEAST, level=0.95)[0]
