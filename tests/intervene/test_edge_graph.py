"""The table of edges: counts worked by hand and published, and every place under its own name."""

import torch

from vesalius.components import Component, Edge
from vesalius.intervene.edges import EdgeGraph


def test_gpt2_small_has_the_published_number_of_edges() -> None:
    assert int(EdgeGraph(12, 12).real.sum()) == EdgeGraph(12, 12).n_edges == 32_491


def test_edges_are_counted_without_listing_them() -> None:
    for graph in (EdgeGraph(1, 1), EdgeGraph(3, 2), EdgeGraph(2, 5, parallel=True)):
        assert graph.n_edges == len(graph.edges)
    assert EdgeGraph(80, 64).n_edges > 39_000_000


def test_one_layer_by_hand() -> None:
    graph = EdgeGraph(1, 2)
    assert graph.senders == (None, Component(0, 0), Component(0, 1), Component(0))
    names = {str(edge) for edge in graph.edges}
    into_heads = {f"input->a0.h{head}<{port}>" for head in (0, 1) for port in "qkv"}
    into_mlp = {"input->m0", "a0.h0->m0", "a0.h1->m0"}
    assert names == into_heads | into_mlp | {"input->logits", "a0.h0->logits", "a0.h1->logits", "m0->logits"}


def test_every_score_is_found_under_its_name() -> None:
    graph = EdgeGraph(2, 3)
    scores = torch.arange(graph.real.numel(), dtype=torch.float64).view_as(graph.real)
    by_edge = graph.by_edge(scores)
    assert len(by_edge) == len(set(by_edge)) == len(graph.edges)
    edge = Edge.parse("a0.h1->a1.h2<k>")
    assert by_edge[edge] == scores[2, graph.port(1, "k")][2]
    assert by_edge[Edge.parse("m1->logits")] == scores[-1, -1]


def test_a_component_scores_its_largest_outgoing_edge() -> None:
    graph = EdgeGraph(1, 1)
    scores = torch.zeros(graph.real.shape)
    scores[1, -2], scores[1, -1] = 0.5, -2.0  # a0.h0 -> m0, a0.h0 -> logits
    scores[2, 0] = 9.0  # m0 -> a0.h0<q> is no edge
    assert graph.by_sender(scores) == {Component(0, 0): 2.0, Component(0): 0.0}
