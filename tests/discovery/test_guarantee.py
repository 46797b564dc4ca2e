"""Guarantees: bounds worked by hand, coverage on planted truth, and that they are printed for held-out prompts."""

from pathlib import Path

import numpy as np
import pytest
import torch

import vesalius as ves
from vesalius.behaviours.trial import rows_of, trial
from vesalius.components import Component
from vesalius.discovery.checks import guarantee, guarantee_prompts, kept_bound
from vesalius.documents.checks import Guarantee
from vesalius.errors import BadInput
from vesalius.intervene.edges import EdgeGraph
from vesalius.statistics import mean_lower_bound, share_lower_bound


def test_binomial_bound_by_hand() -> None:
    """All of n right: 0.05 ** (1 / n). None right: 0. 8 of 10: the root of P(X >= 8) = 0.05."""
    assert share_lower_bound(20, 20) == pytest.approx(0.05 ** (1 / 20))
    assert share_lower_bound(0, 20) == 0.0
    share = share_lower_bound(8, 10)
    tail = 45 * share**8 * (1 - share) ** 2 + 10 * share**9 * (1 - share) + share**10
    assert tail == pytest.approx(0.05)


def test_betting_by_hand() -> None:
    """Draws of 1: against m = 0.5 the stake is at most 1, so that the capital is at most 1.5 ** n."""
    assert float(mean_lower_bound(np.ones(7))) < 0.5  # 1.5 ** 7 = 17.1 < 20
    assert float(mean_lower_bound(np.zeros(50))) == 0.0
    assert 0.9 < float(mean_lower_bound(np.ones(100))) < share_lower_bound(100, 100)


@pytest.mark.parametrize("noise", ["skewed to 1", "skewed to 0", "two-valued"])
def test_the_bound_of_the_mean_covers_the_truth(noise: str) -> None:
    """1,000 repetitions of 40 prompts; 0.93 is 0.95 less 2.9 standard errors."""
    rng, shape = np.random.default_rng(5), (1000, 40)
    draws = {
        "skewed to 1": (rng.beta(5, 0.3, shape), 5 / 5.3),
        "skewed to 0": (rng.beta(0.3, 5, shape), 0.3 / 5.3),
        "two-valued": ((rng.random(shape) < 0.8).astype(float), 0.8),
    }
    values, truth = draws[noise]
    low = mean_lower_bound(values, grid=200)
    assert (low <= truth).mean() >= 0.93
    assert low.mean() > truth / 4  # it says something


def test_shares_are_clipped_prompt_by_prompt() -> None:
    """Ablated, circuit, model: half kept; twice as much counts as all; below nothing as none; the last is undefined."""
    scores = torch.tensor([[0.0, 1.0, 2.0], [0.0, 4.0, 2.0], [0.0, -1.0, 2.0], [1.0, 1.0, 1.0]])
    bound = kept_bound(scores)
    assert bound is not None
    assert (bound.value, bound.n) == (pytest.approx(0.5), 3)
    assert kept_bound(scores[3:]) is None
    said = Guarantee(by="edges", size=3, level=0.95, n=4, kept=bound, rows=12.0).sentence()
    assert said == (
        "with 95 % confidence each, the 3 edges alone keep at least 0.000 of the score on average over prompts that "
        "lose by ablating everything, each clipped to 0 and 1 (observed 0.500 on 3)"
    )


def test_a_language_model_is_guaranteed_to_prefer_the_answer_not_to_say_it() -> None:
    """Three heads and all MLPs of the arithmetic model prefer the right answer nearly always and say it far less often;
    the sentence that spoke of prompts that the model "gets right" was read as the second.
    """
    specimen = ves.load("arithmetic")
    parts = specimen.model.components
    kept = [part for part in parts if not part.is_head or str(part) in ("L0H0", "L0H3", "L0H5")]
    bound = guarantee(specimen, trial(specimen, 8), kept, parts, n=24)
    assert bound.preferred
    assert "of the prompts on which the model prefers the right answer" in bound.sentence()


def test_a_circuit_without_its_head_is_guaranteed_less() -> None:
    specimen = ves.load("frac_prevs")
    seen, parts = trial(specimen, 8), specimen.model.components
    whole = guarantee(specimen, seen, [Component(0), Component(1, 2)], parts, n=40)
    half = guarantee(specimen, seen, [Component(0)], parts, n=40)
    assert whole.answers is not None
    assert "of the prompts that the model gets right" in whole.sentence()
    assert half.answers is not None
    assert whole.answers.value == 1.0
    assert whole.answers.low == pytest.approx(0.05 ** (1 / 40))
    assert half.answers.low < 0.5
    empty = guarantee(specimen, seen, [], parts, n=40).answers
    assert empty is not None
    assert empty.value == empty.baseline == half.answers.baseline == whole.answers.baseline
    assert 0 < empty.value < 1, "some outputs survive without any component"
    assert f"; {empty.value:.3f} with everything ablated" in whole.sentence()
    assert "40" in whole.sentence()


def test_prompts_are_independent_draws_with_their_own_seed() -> None:
    specimen = ves.load("frac_prevs")
    seen = trial(specimen, 32)
    drawn = [guarantee_prompts(specimen, seen, 50, seed=seed) for seed in (0, 0, 1)]
    assert torch.equal(drawn[0].batch.tokens, drawn[1].batch.tokens)
    assert rows_of(drawn[0]) != rows_of(drawn[2])
    assert len(rows_of(drawn[0]) - rows_of(seen)) > 20


@pytest.mark.slow
def test_discover_prints_and_keeps_it(tmp_path: Path) -> None:
    discovery = ves.discover("frac_prevs", "sweep", n=8, out=tmp_path, progress=False)
    checks = discovery.checks
    assert checks is not None
    assert checks.guarantee is not None
    assert checks.guarantee.answers is not None
    assert (checks.guarantee.size, checks.guarantee.n) == (2, 100)
    assert discovery.metrics["guaranteed_answers"] == checks.guarantee.answers.low == pytest.approx(0.05**0.01)
    assert "none of which had a part in choosing the circuit" in (tmp_path / "discovery.html").read_text()


def test_too_many_edges_are_refused() -> None:
    specimen, edges = ves.load("frac_prevs"), EdgeGraph(8, 8).edges
    with pytest.raises(BadInput, match="choose a circuit of components"):
        guarantee(specimen, trial(specimen, 2), edges[:3], edges)
