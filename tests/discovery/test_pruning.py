"""ACDC: its walk against a naive twin of one engine run per edge."""

import pytest
import torch

from tests.intervene.pairs import engine_scores, prompt_pairs
from tests.models import random_model, small_config
from vesalius.components import Edge
from vesalius.discovery.pruning import acdc, acdc_resampled
from vesalius.errors import BadInput
from vesalius.intervene import Batch, Readout, Recordings
from vesalius.intervene.edges import EdgeGraph
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
    with pytest.raises(BadInput, match="use eap-ig"):
        acdc(large, batch, readout, counterfactual=other)
