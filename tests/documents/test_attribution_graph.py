"""Attribution graphs: a hand-made file is read, circuits come back from theirs, foreign parts are refused."""

import json
from pathlib import Path

import pytest

from vesalius.components import Component, Edge
from vesalius.documents.attribution_graph import circuit_of, graph_of, read_graph, write_graph
from vesalius.documents.circuit import Circuit
from vesalius.errors import BadInput

CIRCUIT = {
    "schema": 1,
    "cfg": {"n_layers": 2, "n_heads": 2, "parallel_attn_mlp": False, "d_model": 8},
    "nodes": {
        "input": {"in_graph": True},
        "a0.h1": {"score": 0.25, "in_graph": True, "neurons": [True, False]},
        "m0.n17": {"score": 2.5, "in_graph": True},
        "m1": {"score": -1.5, "in_graph": False},
        "logits": {"in_graph": True},
    },
    "edges": {
        "a0.h1->m1": {"score": -3.0, "in_graph": False},
        "a0.h1->a1.h0<q>": {"score": 0.75, "in_graph": True},
        "a0.h1->a1.h0<k>": {"score": 0.5, "in_graph": True},
        "input->a0.h1<q>": {"score": 0.125, "in_graph": True},
        "m1->logits": {"in_graph": True},
    },
}


def node(name: str, layer: str, feature: int, position: int, kind: str, influence: float | None = None) -> dict:
    """A node as circuit-tracer writes one."""
    return {
        "node_id": name,
        "feature": feature,
        "layer": layer,
        "ctx_idx": position,
        "feature_type": kind,
        "token_prob": 0.0,
        "is_target_logit": False,
        "run_idx": 0,
        "reverse_ctx_idx": 0,
        "jsNodeId": name,
        "clerp": "",
        "influence": influence,
        "activation": 1.0,
    }


#: Two tokens, one neuron at both positions, an MLP, a head, and the logit.
FOREIGN = {
    "metadata": {"slug": "s", "scan": "m", "transcoder_list": [], "prompt_tokens": ["a", "b"], "prompt": "a b"},
    "qParams": {"pinnedIds": [], "supernodes": [], "linkType": "both", "clickedId": "", "sg_pos": ""},
    "nodes": [
        node("E_5_0", "E", 0, 0, "embedding"),
        node("E_6_1", "E", 1, 1, "embedding"),
        node("0_17_0", "0", 17, 0, "neuron", 0.25),
        node("0_17_1", "0", 17, 1, "neuron", 0.5),
        node("0_1_1", "0", 1, 1, "attention head", 0.125),
        node("1_0_1", "1", 0, 1, "mlp", 1.0),
        node("3_9_1", "3", 9, 1, "logit"),
    ],
    "links": [
        {"source": "E_5_0", "target": "0_17_0", "weight": 2.0},
        {"source": "E_5_0", "target": "1_0_1", "weight": 1.5},
        {"source": "E_6_1", "target": "1_0_1", "weight": 0.25},
        {"source": "0_1_1", "target": "1_0_1", "weight": -0.5},
        {"source": "1_0_1", "target": "3_9_1", "weight": 4.0},
    ],
}


class _Shape:
    n_layers, n_heads = 2, 2


def test_a_circuit_comes_back_from_its_graph(tmp_path: Path) -> None:
    circuit = Circuit.from_data({**CIRCUIT, "nodes": {**CIRCUIT["nodes"], "a1.h0": {"in_graph": True}}})
    write_graph(circuit, tmp_path / "graph.json", slug="s", scan="m", prompt="p")
    graph = json.loads((tmp_path / "graph.json").read_text())
    assert {"node_id", "feature", "layer", "ctx_idx", "feature_type", "jsNodeId", "clerp"} <= graph["nodes"][0].keys()
    assert {link["source"] for link in graph["links"]} <= {entry["node_id"] for entry in graph["nodes"]}
    assert len({entry["node_id"] for entry in graph["nodes"]}) == len(graph["nodes"])
    again = read_graph(tmp_path / "graph.json")
    assert again.as_data() == circuit.as_data()
    assert list(again.ranked()) == list(circuit.ranked())


def test_a_graph_made_by_hand() -> None:
    with pytest.warns(match="1 links of neurons or experts are left out"):
        circuit = circuit_of(FOREIGN, shape=_Shape(), d_model=8, source="hand")
    assert circuit.components == {Component(0, neuron=17): 0.75, Component(0, 1): 0.125, Component(1): 1.0}
    assert circuit.edge_scores == {
        Edge.parse("input->m1"): 1.75,
        Edge.parse("a0.h1->m1"): -0.5,
        Edge.parse("m1->logits"): 4.0,
    }
    assert (circuit.n_layers, circuit.n_heads, circuit.d_model) == (2, 2, 8)


def test_strongest_edges_only() -> None:
    circuit = Circuit.from_data(CIRCUIT)
    with pytest.warns(match="3 strongest of 5 edges"):
        graph = graph_of(circuit, slug="s", scan="m", prompt="p", most_links=2)
    assert [link["weight"] for link in graph["links"]] == [-3.0, 0.75, 0.0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nodes": [node("20_5_1", "20", 5, 1, "cross layer transcoder")]}, "'20_5_1' is a 'cross layer transcoder'"),
        ({"links": [{"source": "0_1_1", "target": "nowhere", "weight": 1}]}, "does not name two nodes"),
        ({"links": [{"source": "E_5_0", "target": "0_1_1", "weight": 1}]}, "enters a head; add 'port'"),
        ({"nodes": [node("0_1_1", "0", 7, 1, "attention head")], "links": []}, "L0H7 is not in this model"),
    ],
)
def test_refusals(changes: dict, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        circuit_of({**FOREIGN, **changes}, shape=_Shape(), source="hand")
