"""Faithfulness curves: areas by hand, circuits run by the engine one by one, and what must be refused."""

import pytest
import torch

import vesalius as ves
from tests.intervene.pairs import engine_scores, prompt_pairs
from tests.models import random_model, small_config
from vesalius.behaviours.trial import Trial, trial
from vesalius.components import Component
from vesalius.discovery.faithfulness import (
    areas,
    default_sizes,
    faithfulness_curve,
    faithfulness_curves,
    scores_without,
)
from vesalius.errors import BadInput
from vesalius.intervene import effects
from vesalius.intervene.edges import EdgeGraph


def test_areas_by_hand() -> None:
    """Nothing scores 1, everything 3, half of it 4: faithfulness 0, 1.5, 1."""
    found = areas(torch.tensor([[1.0, 4.0, 3.0], [1.0, 4.0, 3.0]]), [0.0, 0.5, 1.0])
    assert found["faithfulness"] == (0.0, 1.5, 1.0)
    assert found["cpr"] == pytest.approx(0.5 * (0.75 + 1.25))
    assert found["cmd"] == pytest.approx(0.5 * (0.75 + 0.25))
    assert (found["full"], found["ablated"]) == (3.0, 1.0)
    assert (found["cmd_low"], found["cmd_high"]) == pytest.approx((found["cmd"], found["cmd"]))


def test_intervals_hold_the_area() -> None:
    scores = torch.rand(20, 4, generator=torch.Generator().manual_seed(0))
    scores[:, -1] += 2
    found = areas(scores, [0.0, 0.2, 0.5, 1.0])
    assert found["cpr_low"] < found["cpr"] < found["cpr_high"]
    assert found["cmd_low"] < found["cmd"] < found["cmd_high"]


def test_with_nothing_removed_the_score_is_the_models() -> None:
    specimen = ves.load("frac_prevs")
    scores, forwards = scores_without(specimen.model, trial(specimen, 3), [frozenset()])
    assert (scores.tolist(), forwards) == ([[1.0]] * 3, 1.0)


def test_sizes() -> None:
    assert default_sizes(3) == [0, 1, 2, 3]
    assert default_sizes(1000) == [0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]


def test_each_circuit_of_edges_is_what_the_engine_computes() -> None:
    model = random_model(small_config(n_heads=2, n_kv_heads=1))
    batch, other, readout = prompt_pairs(model.config)
    graph = EdgeGraph.of(model.config)
    ranking = list(reversed(graph.edges))
    curve = faithfulness_curve(model, Trial(batch, other, readout), ranking, [3, 9])
    assert curve.sizes == (0, 3, 9, len(graph.edges))
    truth = [float(engine_scores(model, batch, readout, other, ranking[size:]).mean()) for size in curve.sizes[:-1]]
    clean = float(engine_scores(model, batch, readout, other, []).mean())
    expected = [(score - truth[0]) / (clean - truth[0]) for score in [*truth, clean]]
    assert curve.faithfulness == pytest.approx(expected, rel=1e-3, abs=1e-4)


def test_each_circuit_of_components_is_what_the_engine_computes() -> None:
    specimen = ves.load("frac_prevs")
    drawn = trial(specimen, 8)
    ranking = list(specimen.components)
    curve = faithfulness_curve(specimen.model, drawn, ranking, [1, 2])
    others = [part for part in specimen.model.components if part not in ranking]
    found = effects(
        specimen.model,
        drawn.batch,
        drawn.readout,
        kind="resample",
        sets=[specimen.model.components, [ranking[1], *others], others],
        counterfactual=drawn.counterfactual,
        positions=drawn.where,
    )
    nothing, one, two = (found.baseline.mean() - found.mean).tolist()
    assert (curve.full, curve.ablated) == pytest.approx((1.0, nothing))
    assert curve.faithfulness[1:3] == pytest.approx([(x - nothing) / (1 - nothing) for x in (one, two)])


def test_the_true_circuit_first_keeps_the_behaviour() -> None:
    specimen = ves.load("frac_prevs")
    drawn = trial(specimen, 16)
    right = list(specimen.components)
    wrong = [part for part in specimen.model.components if part not in right]
    good, bad = faithfulness_curves(specimen.model, drawn, [right, wrong])
    assert good.faithfulness[len(right)] > 0.95
    assert good.cmd < bad.cmd
    assert good.cpr > bad.cpr
    alone = faithfulness_curve(specimen.model, drawn, right)
    assert (alone.cmd, alone.cpr) == pytest.approx((good.cmd, good.cpr), abs=1e-5)
    zero = faithfulness_curve(specimen.model, drawn, right, kind="zero")
    assert zero.ablated != good.ablated


def test_refusals() -> None:
    specimen = ves.load("frac_prevs")
    model, drawn, parts = specimen.model, trial(specimen, 4), list(specimen.components)
    with pytest.raises(BadInput, match="at least one"):
        faithfulness_curve(model, drawn, [])
    with pytest.raises(BadInput, match="L9H9 is not in this model"):
        faithfulness_curve(model, drawn, [Component(9, 9)])
    with pytest.raises(BadInput, match="twice"):
        faithfulness_curve(model, drawn, [parts[0], parts[0]])
    with pytest.raises(BadInput, match="size 99"):
        faithfulness_curve(model, drawn, parts, [99])
    with pytest.raises(BadInput, match="resampled only"):
        faithfulness_curve(model, drawn, EdgeGraph.of(model.config).edges, kind="zero")
    with pytest.raises(BadInput, match="undefined"):
        areas(torch.ones(3, 2), [0.0, 1.0])
    with pytest.raises(BadInput, match="undefined"):
        areas(1000 + 1e-5 * torch.rand(3, 2, generator=torch.Generator().manual_seed(0)), [0.0, 1.0])
    with pytest.raises(BadInput, match="not finite"):
        areas(torch.tensor([[0.0, float("nan")]]), [0.0, 1.0])


@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e9])
def test_faithfulness_does_not_depend_on_the_unit_of_the_score(unit: float) -> None:
    """By hand: means 1, 2 and 5, so faithfulness 0, 1/4 and 1; the areas are trapezoids over 0, 1/2 and 1."""
    scores = torch.tensor([[0.0, 2.0, 4.0], [2.0, 2.0, 6.0]], dtype=torch.float64) * unit
    got = areas(scores, [0.0, 0.5, 1.0])
    assert got["faithfulness"] == pytest.approx((0.0, 0.25, 1.0))
    assert got["cpr"] == pytest.approx(0.5 * (0.0 + 0.25) / 2 + 0.5 * (0.25 + 1.0) / 2)
