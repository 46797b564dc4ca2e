"""MIB's areas by hand, its published edge counts, what connecting leaves out, and files that must be refused."""

import json
from math import sqrt
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.intervene.hand_worked import hand_worked
from tests.intervene.pairs import prompt_pairs
from tests.models import random_model, small_config
from vesalius.behaviours.trial import Trial
from vesalius.components import Component, Edge
from vesalius.documents.circuit import Circuit
from vesalius.errors import BadInput
from vesalius.intervene.edges import EdgeGraph, SenderRecordings, run_edge_masks
from vesalius.model.specimen import IdVocabulary, Specimen
from vesalius_bench.mib.files import SHARES, read_folder, write_importances
from vesalius_bench.mib.submissions import circuits_of, connected, score_folder

#: Of the 23 edges of the hand-worked model, those that carry anything, best first.
BEST = [
    "a0.h0->logits",
    "input->a0.h0<v>",
    "input->a0.h0<k>",
    "input->a0.h0<q>",
    "a0.h0->m1",
    "input->m1",
    "m1->logits",
]


def worked_specimen() -> tuple[Specimen, Trial]:
    model, batch, other, readout = hand_worked()
    parts = tuple(model.components)
    specimen = Specimen("worked", "worked", "natural", model, IdVocabulary(2, 2), parts, (), lambda n, seed: [])
    return specimen, Trial(batch, other, readout)


def worked_circuit(signs: dict[str, int] | None = None) -> Circuit:
    graph = EdgeGraph(2, 1)
    scores = dict.fromkeys(graph.edges, 0.001)
    for place, name in enumerate(BEST):
        scores[Edge.parse(name)] = (len(BEST) - place) * (signs or {}).get(name, 1)
    return Circuit.scored(
        graph, 2, dict.fromkeys(map(Component.parse, ("L0H0", "L0_MLP", "L1H0", "L1_MLP")), 1.0), scores
    )


def test_both_areas_by_hand(tmp_path: Path) -> None:
    """Of 23 edges the shares keep 0 up to 0.02, then 1, 2, 4, 11 and 23.

    One edge, from the head to the logits, is fed by nothing. With the head's values it writes (38/3 - 6) / 2 = 10/3 of
    the evenly attending counterfactual; with keys and queries as well it writes 8. The neuron still writes (-6, 6). By
    score the values come last, so that nothing changes until all edges are kept. Four of the 11 edges lead to parts
    that feed nothing.
    """
    write_importances(worked_circuit({"input->a0.h0<v>": -1}), tmp_path / "hand_worked")
    specimen, material = worked_specimen()
    score = score_folder(specimen, material, read_folder(tmp_path / "hand_worked"))
    ablated, full = -4 / sqrt(13), 6 / 5
    two = (-5 - 25 / 3) / sqrt((25 + (25 / 3) ** 2) / 2)
    four = -18 / sqrt((25 + 169) / 2)
    expected = [0.0] * 6 + [(one - ablated) / (full - ablated) for one in (two, four)] + [1.0, 1.0]
    assert (score.full, score.ablated) == pytest.approx((full, ablated))
    assert score.by_magnitude == pytest.approx(expected, abs=1e-9)
    assert score.by_score == pytest.approx([0.0] * 9 + [1.0], abs=1e-9)
    assert score.cpr.value == pytest.approx(0.5 * 0.5)
    below = [1 - one for one in expected]
    cmd = 0.049 + 0.05 * (1 + below[6]) / 2 + 0.1 * (below[6] + below[7]) / 2 + 0.3 * below[7] / 2
    assert score.cmd.value == pytest.approx(cmd)
    assert score.edges == (0, 0, 0, 0, 0, 0, 2, 4, 7, 23)


def test_a_folder_of_nine_circuits_scores_as_its_circuits_do(tmp_path: Path) -> None:
    circuit, (specimen, material) = worked_circuit(), worked_specimen()
    write_importances(circuit, tmp_path / "one_worked")
    scored = read_folder(tmp_path / "one_worked")
    nine = tmp_path / "nine_worked"
    nine.mkdir()
    for place, share in enumerate(SHARES[:-1]):
        best = [edge for edge, _ in circuit.ranked_edges()][: int(share * 23)]
        circuit.cut_to(best).write(nine / f"{place}.json")
    own, other = (score_folder(specimen, material, one) for one in (scored, read_folder(nine)))
    assert (own.form, other.form) == ("importances", "circuits")
    assert (other.cpr.value, other.cmd.value) == pytest.approx((own.cpr.value, own.cmd.value))


def test_nodes_keep_all_their_outgoing_edges_and_the_embedding_is_always_in(tmp_path: Path) -> None:
    """Of 4 nodes the shares keep 0, 2 at a half and 4: at a half the head writes 8 and the neuron what it should."""
    scores = {Component.parse(name): score for name, score in (("L0H0", 2.0), ("L1_MLP", 1.0), ("L1H0", 0.1))}
    circuit = Circuit.scored(EdgeGraph(2, 1), 2, {**scores, Component(0): 0.2}, {})
    write_importances(circuit, tmp_path / "hand_worked")
    content = read_folder(tmp_path / "hand_worked")
    score = score_folder(*worked_specimen(), content)
    assert (content.description.level, content.description.items) == ("node", 4)
    assert score.by_magnitude == pytest.approx([0.0] * 8 + [1.0, 1.0], abs=1e-9)
    assert score.cpr.value == pytest.approx(0.3 / 2 + 0.5)


@pytest.mark.parametrize(
    ("layers", "heads", "edges"), [(12, 12, 32_491), (24, 14, 179_749), (26, 8, 74_218), (6, 4, 1_108)]
)
def test_models_have_as_many_edges_as_mib_says(layers: int, heads: int, edges: int) -> None:
    """GPT-2 small, Qwen2.5 0.5B, Gemma 2 2B and the InterpBench model, as published."""
    assert EdgeGraph(layers, heads).n_edges == edges


def test_unconnected_edges_change_no_score_on_prompts_of_one_length() -> None:
    model = random_model(small_config(n_heads=2, n_kv_heads=1))
    batch, other, readout = prompt_pairs(model.config)
    graph = EdgeGraph.of(model.config)
    some = graph.real & (torch.rand(graph.real.shape, generator=torch.Generator().manual_seed(3)) < 0.3)
    fewer = connected(some, graph)
    assert 0 < int(fewer.sum()) < int(some.sum())
    recordings = SenderRecordings(model, batch, readout, counterfactual=other)
    whole, pruned = run_edge_masks(recordings, torch.stack([graph.real & ~some, graph.real & ~fewer]))
    assert torch.allclose(whole, pruned, atol=1e-5)


def test_tensor_files_say_what_json_files_say(tmp_path: Path) -> None:
    circuit = worked_circuit()
    write_importances(circuit, tmp_path / "json_worked")
    json_content = read_folder(tmp_path / "json_worked").files[0]
    (tmp_path / "pt_worked").mkdir()
    data = tensors(circuit)
    torch.save(data, tmp_path / "pt_worked" / "importances.pt")
    content = read_folder(tmp_path / "pt_worked").files[0]
    assert torch.equal(circuits_of(content, "edge", signed=False), circuits_of(json_content, "edge", signed=False))
    torch.save({**data, "edges_scores": data["edges_scores"][:2]}, tmp_path / "pt_worked" / "importances.pt")
    with pytest.raises(BadInput, match=r"edges_scores has shape \[2, 9\], this model needs \[5, 9\]"):
        read_folder(tmp_path / "pt_worked")
    (tmp_path / "pt_worked" / "importances.pt").write_bytes(b"no archive")
    with pytest.raises(BadInput, match="is not a plain dictionary of tensors"):
        read_folder(tmp_path / "pt_worked")


def tensors(circuit: Circuit) -> dict[str, Any]:
    graph = EdgeGraph(2, 1)
    scores = torch.full(graph.real.shape, -torch.inf)
    scores[graph.real] = torch.tensor([circuit.edge_scores[edge] for edge in graph.edges])
    return {
        "cfg": {"n_layers": 2, "n_heads": 1, "parallel_attn_mlp": False, "d_model": 2},
        "edges_scores": scores,
        "edges_in_graph": graph.real,
        "nodes_in_graph": torch.ones(5, dtype=torch.bool),
    }


def damaged(data: dict[str, Any], what: str) -> dict[str, Any]:
    if what == "part":
        data["edges"].pop("m1->logits")
    elif what == "none":
        data["edges"] = {}
    elif what == "strange":
        data["edges"]["m1->m0"] = {"score": 1.0, "in_graph": True}
    elif what == "neurons":
        data["nodes"]["m1"]["neurons_scores"] = [1.0, 2.0]
    return data


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("part", "scores 22 of 23 edges; score every edge"),
        ("none", "has no scores; score every edge, or every node, or give nine circuits"),
        ("strange", "edge L1_MLP -> L0_MLP runs backwards"),
        ("neurons", "scores neurons; circuits of edges or of heads and MLPs are read here"),
    ],
)
def test_wrong_and_partial_files_are_refused(what: str, line: str, tmp_path: Path) -> None:
    path = write_importances(worked_circuit(), tmp_path / "hand_worked")
    path.write_text(json.dumps(damaged(json.loads(path.read_text()), what)))
    with pytest.raises(BadInput, match=line):
        read_folder(tmp_path / "hand_worked")


def test_wrong_folders_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "hand_worked"
    write_importances(worked_circuit(), folder)
    with pytest.raises(BadInput, match="is there already"):
        write_importances(worked_circuit(), folder)
    with pytest.raises(BadInput, match="is not named TASK_MODEL"):
        read_folder(tmp_path / "ioi")
    worked_circuit().write(folder / "second.json")
    with pytest.raises(BadInput, match="holds 2 circuit files; it needs one of scores, or 9 circuits"):
        read_folder(folder)
    for place in range(3, 10):
        worked_circuit().write(folder / f"{place}.json")
    with pytest.raises(BadInput, match=r"has 23 of 23 edges and is the circuit of at most 0\.1%"):
        read_folder(folder)
    (folder / "notes.txt").write_text("")
    with pytest.raises(BadInput, match=r"notes.txt: is neither .json nor .pt"):
        read_folder(folder)
