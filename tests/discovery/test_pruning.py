"""ACDC: its walk against a naive twin of one engine run per edge."""

import pytest
import torch

import vesalius as ves
from tests.intervene.pairs import engine_scores, prompt_pairs
from tests.models import random_model, small_config
from vesalius.behaviours.trial import Trial, trial
from vesalius.components import Edge
from vesalius.discovery.method import MethodInput
from vesalius.discovery.pruning import ACDC, acdc, acdc_inside, acdc_resampled
from vesalius.errors import BadInput
from vesalius.intervene import Batch, Readout, Recordings
from vesalius.intervene.edges import EdgeGraph, on_paths
from vesalius.model import Transformer
from vesalius.statistics import bootstrap_means


def naive(model: Transformer, batch: Batch, readout: Readout, other: Batch, threshold: float) -> set[Edge]:
    """ACDC as the paper tells it, one engine run per edge; the edges that survive."""
    graph, cut = EdgeGraph.of(model.config), []
    current = Recordings(model, batch, readout).scores().mean()
    limit = threshold * float(current.abs())
    for receiver, port in reversed(graph.receivers):
        entering = [edge for edge in graph.edges if (edge.receiver, edge.port) == (receiver, port)]
        for edge in reversed(entering):
            score = engine_scores(model, batch, readout, other, [*cut, edge]).mean()
            if current - score < limit:
                cut.append(edge)
                current = score
    return set(graph.edges) - set(cut)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_the_walk_is_that_of_a_naive_twin(seed: int) -> None:
    model = random_model(small_config(n_heads=2, n_kv_heads=1), seed).double()
    batch, other, readout = prompt_pairs(model.config, seed)
    thresholds = (0.003, 0.03, 0.3)
    scores = EdgeGraph.of(model.config).by_edge(
        acdc(model, batch, readout, counterfactual=other, thresholds=thresholds).scores
    )
    truth = dict.fromkeys(scores, 0.0)
    sizes = []
    for threshold in thresholds:
        survivors = naive(model, batch, readout, other, threshold)
        sizes.append(len(survivors))
        truth.update(dict.fromkeys(survivors, threshold))
    assert sizes[0] > sizes[-1] > 0
    assert scores == pytest.approx(truth, rel=1e-6)


@pytest.mark.slow
def test_each_resample_walks_as_it_would_alone() -> None:
    """A resample is a batch in which some prompts stand several times and others not at all."""
    model = random_model(small_config(n_heads=2, n_kv_heads=1), 3).double()
    batch, other, readout = prompt_pairs(model.config, 3)
    together, _ = acdc_resampled(model, batch, readout, counterfactual=other, threshold=0.03, resamples=5, seed=1)
    counts = (bootstrap_means(torch.eye(3, dtype=torch.float64), resamples=5, seed=1) * 3).round().long()
    assert len({tuple(row) for row in counts.tolist()}) > 1
    for kept, count in zip(together, counts, strict=True):
        rows = torch.arange(3).repeat_interleave(count)
        drawn = (model, batch.take(rows), readout.take(rows))
        alone = acdc(*drawn, counterfactual=other.take(rows), thresholds=(0.03,)).scores
        assert torch.equal(kept, alone > 0)


def test_refusals() -> None:
    model = random_model(small_config())
    batch, other, readout = prompt_pairs(model.config)
    with pytest.raises(BadInput, match="thresholds"):
        acdc(model, batch, readout, counterfactual=other, thresholds=())
    large = Transformer(small_config(n_layers=12, n_heads=8))
    with pytest.raises(BadInput, match="walk candidates"):
        acdc(large, batch, readout, counterfactual=other)


@pytest.mark.slow
@pytest.mark.parametrize("together", [1, 3, 16])
def test_cuts_tried_together_are_those_tried_one_after_the_other(together: int) -> None:
    """Among candidates, all other edges cut: by one engine run for each edge."""
    model = random_model(small_config(n_heads=2, n_kv_heads=1), 1).double()
    batch, other, readout = prompt_pairs(model.config, 1)
    graph = EdgeGraph.of(model.config)
    generator = torch.Generator().manual_seed(0)
    inside = on_paths(graph, (torch.rand(graph.real.shape, generator=generator) < 0.6) & graph.real)
    thresholds = (0.01, 0.1)
    pruned = acdc_inside(model, Trial(batch, other, readout), inside, thresholds=thresholds, together=together)
    outside = [edge for edge, (s, r) in zip(graph.edges, graph.places.tolist(), strict=True) if not inside[s, r]]
    truth = dict.fromkeys(graph.edges, 0.0)
    for threshold in thresholds:
        cut = list(outside)
        current = engine_scores(model, batch, readout, other, cut).mean()
        limit = threshold * float(current.abs())
        for receiver, port in reversed(graph.receivers):
            entering = [e for e in graph.edges if (e.receiver, e.port) == (receiver, port) and e not in outside]
            for edge in reversed(entering):
                score = engine_scores(model, batch, readout, other, [*cut, edge]).mean()
                if current - score < limit:
                    cut.append(edge)
                    current = score
        truth.update(dict.fromkeys(set(graph.edges) - set(cut), threshold))
    assert 0 < sum(score > 0 for score in truth.values()) < len(graph.edges)
    assert graph.by_edge(pruned.scores) == pytest.approx(truth, rel=1e-6)


def test_candidates_hold_the_planted_circuit() -> None:
    specimen = ves.load("frac_prevs")
    found = ACDC(candidates=60).score(MethodInput(specimen, trial(specimen, 8, centred=True)))
    senders = {edge.sender for edge, score in found.edges.items() if score > 0} - {None}
    assert senders == set(specimen.components)
    assert sum(score > 0 for score in found.edges.values()) <= 60
    with pytest.raises(BadInput, match="`candidates` -1 is out of range"):
        ACDC(candidates=-1)
