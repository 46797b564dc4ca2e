"""`vesalius neurons`: what it prints and writes, and the same again from its request."""

import json
from pathlib import Path

import vesalius as ves
from tests.cli.conftest import Vesalius
from vesalius.documents.circuit import Circuit
from vesalius.documents.neurons import NeuronCircuit

SPECIMEN = "frac_prevs"


def test_command_files_and_rerun(vesalius: Vesalius, tmp_path: Path) -> None:
    got = vesalius("neurons", SPECIMEN, "--keep", "0.5", "--n", "8", "--out", tmp_path / "kept", "--json")
    document = json.loads(got.out)
    assert document["size"] == len(document["components"])
    (first, *_), page = document["details"], (tmp_path / "kept" / "neurons.html").read_text()
    assert first["low"] <= first["score"] <= first["high"]
    assert len(first["tokens"]) == len(first["activations"])
    assert all(one["id"] in page for one in document["details"])
    # A benchmark circuit's outputs have no slope: neurons are scored by how far the logits move.
    assert (document["unit"], "score (share of the change)" in page) == ("share of the change", True)
    assert "share of neurons kept" in page
    assert document["n"] == 8
    assert "relp-qk on 8 prompts, seed 0" in page
    (row,) = ves.results(tmp_path).results
    assert (row.kind, row.state, "neurons keep" in row.figures) == ("neurons", "finished", True)
    planned = json.loads(vesalius("neurons", SPECIMEN, "--n", "8", "--plan", "--json").out)
    assert document["forwards"] <= planned["forwards"] < 2 * document["forwards"] + 20
    refusal = vesalius("neurons", SPECIMEN, "--keep", "2", "--plan")
    assert (refusal.code, "is not a share of the behaviour" in refusal.err) == (2, True)
    circuit = Circuit.read(tmp_path / "kept" / "circuit.json")
    assert [str(part) for part, _ in circuit.ranked()] == [one["id"] for one in document["components"]]
    assert all(part.is_neuron for part in circuit.components)
    again = ves.rerun(ves.neurons(SPECIMEN, keep=0.5, n=8))
    assert isinstance(again, NeuronCircuit)
    assert again.request.command_line() == f"vesalius neurons {SPECIMEN} --method relp-qk --keep 0.5 --n 8 --seed 0"
    assert [one.id for one in again.components] == [one["id"] for one in document["components"]]
    refused = vesalius("explain", SPECIMEN, "--circuit", tmp_path / "kept" / "circuit.json")
    assert (refused.code, "is a neuron; heads and MLPs are needed" in refused.err) == (2, True)
