"""Runs of circuits of edges against the engine's plans: what is outside of the circuit is never computed, and every
score is that of all other edges cut.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.intervene.pairs import engine_scores, prompt_pairs
from tests.models import configs, random_model, small_config
from vesalius.components import Component
from vesalius.intervene import Batch
from vesalius.intervene.circuits import CircuitRuns
from vesalius.intervene.edges import EdgeGraph
from vesalius.intervene.recordings import attention_share
from vesalius.model import Config


def random_set(graph: EdgeGraph, seed: int, share: float) -> torch.Tensor:
    """Edges between some of the components, the embedding and the logits."""
    generator = torch.Generator().manual_seed(seed)
    members = {None, *(part for part in graph.senders[1:] if float(torch.rand((), generator=generator)) < share)}
    senders = torch.tensor([part in members for part in graph.senders])
    receivers = torch.tensor([part in members for part, _ in graph.receivers])
    return senders[:, None] & receivers[None] & graph.real


def begin_alike(batch: Batch, other: Batch, n: int) -> Batch:
    return Batch(torch.cat([batch.tokens[:, :n], other.tokens[:, n:]], 1), other.mask)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(configs(), st.integers(0, 1000), st.sampled_from([0.3, 0.7]), st.sampled_from([0, 1, "where"]))
def test_a_circuit_scores_as_if_every_other_edge_were_cut(
    config: Config, seed: int, share: float, alike: int | str
) -> None:
    model, graph = random_model(config, seed), EdgeGraph.of(config)
    batch, other, readout = prompt_pairs(config, seed)
    where = torch.arange(5).expand(3, 5) < torch.tensor([[5], [2], [3]]) if alike == "where" else None
    other = other if where is not None else begin_alike(batch, other, int(alike))
    inside = random_set(graph, seed, share)
    kept = inside & (torch.rand(2, *inside.shape, generator=torch.Generator().manual_seed(seed)) < 0.6)
    runs = CircuitRuns(model, batch, readout, counterfactual=other, inside=inside, where=where)
    for row, chosen in zip(runs.scores(kept), kept, strict=True):
        cut = graph.real & ~chosen
        edges = [edge for edge, (s, r) in zip(graph.edges, graph.places.tolist(), strict=True) if cut[s, r]]
        assert torch.allclose(row, engine_scores(model, batch, readout, other, edges, where), atol=1e-4, rtol=1e-3)


def test_components_outside_and_tokens_that_are_alike_are_not_computed() -> None:
    model = random_model(small_config(n_layers=2, n_heads=2))
    graph = EdgeGraph.of(model.config)
    batch, other, readout = prompt_pairs(model.config)
    inside = torch.zeros_like(graph.real)
    inside[0, graph.receivers.index((Component(0, 1), "v"))] = True
    inside[graph.senders.index(Component(0, 1)), -1] = True
    inside[0, graph.receivers.index((Component(1), "mlp"))] = True  # nothing reads it
    runs = CircuitRuns(model, batch, readout, counterfactual=begin_alike(batch, other, 1), inside=inside)
    assert runs.members == [Component(0, 1)]
    assert (runs.first, runs.positions) == (1, 4)
    before = runs.cost
    runs.scores(inside[None])
    one_of_two_heads_in_one_of_two_layers = attention_share(model.blocks[0]) / 2 / 2
    assert runs.cost - before == pytest.approx(3 * one_of_two_heads_in_one_of_two_layers * (4 / 5))


def test_gradients_of_weights_are_differences_of_scores() -> None:
    model = random_model(small_config(n_layers=2)).double()
    graph = EdgeGraph.of(model.config)
    batch, other, readout = prompt_pairs(model.config)
    inside = random_set(graph, 3, 0.7)
    runs = CircuitRuns(model, batch, readout, counterfactual=other, inside=inside)
    weights = torch.full((1, *inside.shape), 0.5, dtype=torch.float64, requires_grad=True)
    runs.scores(weights).sum().backward()
    assert weights.grad is not None
    step = 1e-5
    for sender, receiver in inside.nonzero().tolist()[::7]:
        moved = torch.full((2, *inside.shape), 0.5, dtype=torch.float64)
        moved[:, sender, receiver] += torch.tensor([step, -step])
        above, below = runs.scores(moved).sum(1)
        assert abs(float(above - below) / (2 * step) - float(weights.grad[0, sender, receiver])) < 1e-5
    assert not bool(weights.grad[0][~inside].any())


def test_runs_may_start_after_the_layers_in_which_everything_is_kept() -> None:
    model = random_model(small_config(n_layers=3)).double()
    graph = EdgeGraph.of(model.config)
    batch, other, readout = prompt_pairs(model.config)
    inside = random_set(graph, 5, 0.8)
    runs = CircuitRuns(model, batch, readout, counterfactual=other, inside=inside)
    kept = inside & (torch.rand(3, *inside.shape, generator=torch.Generator().manual_seed(1)) < 0.5)
    kept[:, :, : graph.heads(1).start] = inside[:, : graph.heads(1).start]
    whole = runs.scores(kept)
    assert torch.allclose(runs.scores(kept, first_layer=1), whole, rtol=1e-9)
    assert torch.allclose(runs.scores(kept, memory=1), whole, rtol=1e-9)
