"""MIB circuit files: read, written, read again without loss; damaged ones refused in one line."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vesalius.components import Component, Edge
from vesalius.documents.circuit import Circuit, Member
from vesalius.errors import BadInput
from vesalius.intervene.edges import EdgeGraph

DOCUMENT = {
    "cfg": {"n_layers": 2, "n_heads": 2, "parallel_attn_mlp": False, "d_model": 8},
    "nodes": {
        "input": {"in_graph": True},
        "a0.h1": {"score": 0.25, "in_graph": True, "neurons": [True, False], "neurons_scores": [0.1, 0.2]},
        "m1": {"score": -1.5, "in_graph": False},
        "logits": {"in_graph": True},
    },
    "edges": {
        "input->a0.h1<q>": {"score": 0.125, "in_graph": True},
        "a0.h1->m1": {"score": -3.0, "in_graph": False},
        "m1->logits": {"in_graph": True},
    },
}


def test_a_document_comes_back_as_it_was(tmp_path: Path) -> None:
    circuit = Circuit.from_data(DOCUMENT)
    assert circuit.as_data() == {"schema": 1, **DOCUMENT}
    circuit.write(tmp_path / "circuit.json")
    assert Circuit.read(tmp_path / "circuit.json") == circuit
    assert circuit.components == {Component(0, 1): 0.25, Component(1): -1.5}
    assert circuit.edge_scores[Edge.parse("a0.h1->m1")] == -3.0
    assert circuit.ranked() == [(Component(1), -1.5), (Component(0, 1), 0.25)]


def test_which_components_are_worth_explaining() -> None:
    """A tenth of the largest score, zeros and what is not in the graph left out, in order of computation."""
    scores = {Component(1): -1.0, Component(0, 1): 0.1, Component(0, 0): 0.09, Component(0): 0.0}
    circuit = Circuit.scored(EdgeGraph(2, 2), 8, scores, {})
    assert circuit.chosen() == [Component(0, 1), Component(1)]
    assert circuit.chosen(share=0.05) == [Component(0, 0), Component(0, 1), Component(1)]
    assert circuit.chosen(share=0.0) == circuit.chosen(share=0.05)
    assert Circuit.from_data(DOCUMENT).chosen() == [Component(0, 1)]
    assert Circuit.scored(EdgeGraph(2, 2), 8, dict.fromkeys(scores, 0.0), {}).chosen() == []


def test_nodes_without_scores_are_chosen_by_their_edges_or_all() -> None:
    def circuit(**scores: float) -> Circuit:
        names = {"a0.h0->m0": "weak", "a0.h1->m0": "strong", "m0->logits": "middle"}
        edges = {
            Edge.parse(name): Member(score=scores.get(word), in_graph=word != "strong" or not scores)
            for name, word in names.items()
        }
        nodes: dict = dict.fromkeys([Component(0, 0), Component(0, 1), Component(0)], Member())
        return Circuit(n_layers=1, n_heads=2, d_model=8, nodes=nodes, edges=edges)

    assert circuit(weak=0.01, middle=-1.0, strong=50.0).chosen() == [Component(0)]
    assert circuit(weak=0.2, middle=-1.0, strong=50.0).chosen() == [Component(0, 0), Component(0)]
    assert circuit().chosen() == [Component(0, 0), Component(0, 1), Component(0)]


@pytest.mark.slow
@given(st.data())
def test_round_trip(data: st.DataObject) -> None:
    graph = EdgeGraph(data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3)))
    numbers = st.floats(allow_nan=False, allow_infinity=False)
    nodes = {part: data.draw(numbers) for part in graph.senders if part is not None}
    edges = {edge: data.draw(numbers) for edge in graph.edges[:: data.draw(st.integers(1, 9))]}
    circuit = Circuit.scored(graph, 4, nodes, edges)
    again = Circuit.from_data(circuit.as_data())
    assert again == circuit
    assert again.components == nodes
    assert again.edge_scores == edges
    assert all(member == Member(score=member.score, in_graph=member.score != 0) for member in again.edges.values())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"nodes": None}, "'nodes' is missing"),
        ({"cfg": {"n_layers": 2, "n_heads": 0, "d_model": 8}}, "cfg.n_heads is 0"),
        ({"nodes": {"a2.h0": {"in_graph": True}}}, "component L2H0 is not in this model"),
        ({"nodes": {"banana": {"in_graph": True}}}, "'banana' is not a name"),
        ({"nodes": {"m0": {}}}, "m0: 'in_graph' must be true or false"),
        ({"nodes": {"m0": {"in_graph": True}, "L0_MLP": {"in_graph": True}}}, "listed twice"),
        ({"nodes": {"m0": {"in_graph": True, "score": 10**400}}}, "is not a finite number"),
        ({"edges": {"m1->m0": {"in_graph": True}}}, "runs backwards"),
        ({"edges": {"m0->m1": {"in_graph": True, "score": float("nan")}}}, "m0->m1: score nan is not a finite number"),
    ],
)
def test_damaged_documents(change: dict, reason: str) -> None:
    with pytest.raises(BadInput, match=r"^here\.json: ") as refused:
        Circuit.from_data({**DOCUMENT, **change}, source="here.json")
    assert reason in str(refused.value)
