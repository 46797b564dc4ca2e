"""Runs under masks of cut edges against one hooked forward per prompt, and against the engine's plans."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.intervene.pairs import engine_scores, prompt_pairs
from tests.intervene.twin import naive_logits
from tests.models import configs, random_model, small_config
from vesalius.components import Edge
from vesalius.intervene import Batch, Readout, Row, activations
from vesalius.intervene.edges import EdgeGraph, SenderRecordings, run_edge_masks
from vesalius.model import Config


def random_masks(graph: EdgeGraph, n: int, seed: int, share: float = 0.4) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(n, *graph.real.shape, generator=generator) < share) & graph.real


def edges_of(graph: EdgeGraph, mask: torch.Tensor) -> list[Edge]:
    return [edge for edge, (s, r) in zip(graph.edges, graph.places.tolist(), strict=True) if mask[s, r]]


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(configs(), st.integers(0, 1000), st.booleans())
def test_any_set_of_cuts_is_what_the_engine_computes(config: Config, seed: int, everywhere: bool) -> None:
    model, graph = random_model(config, seed), EdgeGraph.of(config)
    batch, other, readout = prompt_pairs(config, seed)
    where = None if everywhere else torch.arange(5).expand(3, 5) < torch.tensor([[5], [2], [3]])
    cut = random_masks(graph, 2, seed)
    scores = run_edge_masks(SenderRecordings(model, batch, readout, counterfactual=other, where=where), cut)
    for row, chosen in zip(scores, cut, strict=True):
        truth = engine_scores(model, batch, readout, other, edges_of(graph, chosen), where)
        assert torch.allclose(row, truth, atol=1e-4, rtol=1e-3)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(configs(), st.integers(0, 1000), st.sampled_from([0.1, 0.5, 0.9]))
def test_every_logit_is_that_of_the_naive_twin(config: Config, seed: int, share: float) -> None:
    model, graph = random_model(config, seed).double(), EdgeGraph.of(config)
    generator = torch.Generator().manual_seed(seed)
    tokens, other = torch.randint(0, config.d_vocab, (2, 2, 4), generator=generator)
    cut, values = random_masks(graph, 3, seed, share), activations(model, Batch(other))
    readout = Readout(lambda logits, prompt: (logits + logits.square()).sum((1, 2)))
    scores = run_edge_masks(SenderRecordings(model, Batch(tokens), readout, counterfactual=Batch(other)), cut)
    for i, chosen in enumerate(cut):
        for prompt in range(2):
            row = Row(prompt, edges=dict.fromkeys(edges_of(graph, chosen), prompt))
            logits = naive_logits(model, Batch(tokens), row, values)
            assert float(scores[i, prompt]) == pytest.approx(float((logits + logits.square()).sum()), rel=1e-9)


def test_runs_may_start_where_the_first_edge_is_cut_and_in_any_number_of_parts() -> None:
    model = random_model(small_config(n_layers=3)).double()
    graph = EdgeGraph.of(model.config)
    batch, other, readout = prompt_pairs(model.config)
    recordings = SenderRecordings(model, batch, readout, counterfactual=other)
    cut = random_masks(graph, 4, seed=1)
    cut[:, :, : graph.heads(1).start] = False
    whole = run_edge_masks(recordings, cut)
    assert torch.allclose(run_edge_masks(recordings, cut, first_layer=1), whole, rtol=1e-9)
    assert torch.allclose(run_edge_masks(recordings, cut, memory=1), whole, rtol=1e-9)
    nothing = run_edge_masks(recordings, torch.zeros_like(cut[:1]), first_layer=3)[0]
    assert torch.allclose(nothing, engine_scores(model, batch, readout, other, []), rtol=1e-9)
