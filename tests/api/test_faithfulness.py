"""Faithfulness of a given circuit: against the checks of its discovery, against plain hooks, pruning, and refusals."""

from pathlib import Path
from typing import Any

import pytest
import torch

import vesalius as ves
from tests.closeness import assert_same_document
from vesalius.behaviours.trial import trial
from vesalius.components import Component, Edge
from vesalius.discovery.checks import HELD_OUT_SEED
from vesalius.documents import Circuit, Discovery, Faithfulness, Member
from vesalius.errors import BadInput
from vesalius.model.specimen import Specimen


@pytest.fixture(scope="module")
def specimen() -> Specimen:
    return ves.load("frac_prevs")


@pytest.fixture(scope="module")
def by_edges(specimen: Specimen) -> Discovery:
    return ves.discover(specimen, "eap", n=4, seed=2)


@pytest.mark.parametrize("method", ["sweep", "eap"])
def test_the_best_k_are_as_faithful_as_the_curve_of_the_checks_says(method: str, specimen: Specimen) -> None:
    found = ves.discover(specimen, method, n=4, seed=2)
    assert found.checks is not None
    curve = found.checks.edge_faithfulness or found.checks.faithfulness
    ranking = found.circuit.ranked_edges() or found.circuit.ranked()
    assert curve is not None
    size = next(size for size in curve.sizes[1:] if abs(ranking[size - 1][1]) > abs(ranking[size][1]))
    one = ves.faithfulness(specimen, found, least=abs(ranking[size - 1][1]), seed=2)
    assert (one.size, one.candidates, one.faithfulness.n) == (size, len(ranking), found.checks.n)
    assert one.faithfulness.value == pytest.approx(curve.faithfulness[curve.sizes.index(size)], abs=1e-4)
    assert (one.full, one.ablated) == pytest.approx((curve.full, curve.ablated), abs=1e-4)


def test_the_whole_model_keeps_all_and_nothing_keeps_nothing(specimen: Specimen) -> None:
    parts = list(specimen.model.components)
    whole = ves.faithfulness(specimen, parts, n=4)
    assert (whole.faithfulness.value, whole.random.value, whole.size) == (pytest.approx(1), pytest.approx(1), 10)
    nothing = ves.faithfulness(specimen, parts, n=4, prune=parts)
    assert (nothing.faithfulness.value, nothing.size) == (pytest.approx(0), 0)


def test_the_share_asked_for_decides(specimen: Specimen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    asked = {keep: ves.faithfulness(specimen, "L0_MLP", n=16, keep=keep, out=True) for keep in (0.1, 0.9)}
    assert asked[0.1].faithfulness == asked[0.9].faithfulness
    verdicts = {keep: one.answer and one.answer["verdict"] for keep, one in asked.items()}
    assert verdicts == {0.1: "yes", 0.9: "no"}
    assert len(list((tmp_path / "vesalius-runs").iterdir())) == 2  # neither takes the place of the other
    with pytest.raises(BadInput, match=r"keep=1\.5 is not a share of the behaviour"):
        ves.faithfulness(specimen, "L1H2", keep=1.5)


def scores_with_hooks(specimen: Specimen, kept: set[str], n: int, seed: int) -> torch.Tensor:
    """One run with plain hooks: what is not kept writes what it writes on the counterfactual."""
    drawn = trial(specimen, n, seed=HELD_OUT_SEED + seed, split="validation")
    model = specimen.model
    _, other = model.run_with_cache(drawn.counterfactual.tokens, mask=drawn.counterfactual.mask)
    assert drawn.where is not None
    where = drawn.where[:, :, None]

    def replaced(name: str, part: Component) -> Any:
        def hook(value: torch.Tensor, _: Any) -> torch.Tensor:
            value = value.clone()
            if part.is_head:
                value[:, :, part.head] = torch.where(where, other[name][:, :, part.head], value[:, :, part.head])
                return value
            return torch.where(where, other[name], value)

        return hook

    hooks = [
        (name, replaced(name, part))
        for part in model.components
        if str(part) not in kept
        for name in [f"blocks.{part.layer}." + ("attn.hook_z" if part.is_head else "hook_mlp_out")]
    ]
    logits = model.run_with_hooks(drawn.batch.tokens, mask=drawn.batch.mask, fwd_hooks=hooks)
    at = drawn.readout.at
    assert at is None
    return drawn.readout.score(logits, torch.arange(n))


def test_a_circuit_of_components_scores_as_with_plain_hooks(specimen: Specimen) -> None:
    everything = {str(part) for part in specimen.model.components}
    circuit = {"L0_MLP", "L1H2", "L0H1"}
    found = ves.faithfulness(specimen, ["L0_MLP", "L1H2", "L0H1", "L1_MLP"], prune=["L1_MLP"], n=6, seed=5)
    full, own, ablated = (
        float(scores_with_hooks(specimen, kept, 6, 5).mean()) for kept in (everything, circuit, set())
    )
    assert (found.full, found.score, found.ablated) == pytest.approx((full, own, ablated), abs=1e-5)
    assert found.faithfulness.value == pytest.approx((own - ablated) / (full - ablated), abs=1e-4)
    assert (found.by, found.size) == ("components", 3)


def circuit_by_hand() -> Circuit:
    """input -> L0H0 -> L1H1 -> logits with falling scores, and a stray edge."""
    names = {"input->a0.h0<v>": 0.9, "a0.h0->a1.h1<k>": -0.5, "a1.h1->logits": 0.4, "m0->logits": 0.1}
    parts = [Component.parse(name) for name in ("L0H0", "L1H1", "L0_MLP")]
    nodes: dict[Any, Member] = {"input": Member(), **{part: Member(score=0.0) for part in parts}, "logits": Member()}
    edges = {Edge.parse(name): Member(score=score) for name, score in names.items()}
    return Circuit(n_layers=2, n_heads=2, d_model=4, nodes=nodes, edges=edges)


def kept(circuit: Circuit) -> tuple[list[str], list[str]]:
    inside = [str(node) for node, member in circuit.nodes.items() if member.in_graph]
    return inside, [str(edge) for edge in circuit.kept_edges]


def test_pruning_by_hand() -> None:
    circuit = circuit_by_hand()
    assert kept(circuit.pruned())[1] == ["input->a0.h0<v>", "a0.h0->a1.h1<k>", "a1.h1->logits", "m0->logits"]
    weak = circuit.pruned(least=0.45)
    assert kept(weak) == (["input", "L0H0", "L1H1", "logits"], ["input->a0.h0<v>", "a0.h0->a1.h1<k>"])
    pinned = circuit.pruned(least=0.45, pin=["m0->logits", "a1.h1->logits"])
    assert kept(pinned)[1] == ["input->a0.h0<v>", "a0.h0->a1.h1<k>", "a1.h1->logits", "m0->logits"]
    without = circuit.pruned(prune=["L1H1"], pin=["a1.h1->logits"])
    assert kept(without) == (["input", "L0H0", "L0_MLP", "logits"], ["input->a0.h0<v>", "m0->logits"])
    assert kept(circuit.pruned(prune=["a0.h0->a1.h1<k>"]))[0] == ["input", "L0H0", "L1H1", "L0_MLP", "logits"]
    assert circuit.pruned().as_data() == circuit.as_data()


def test_pruning_components_by_hand() -> None:
    shape = circuit_by_hand()
    scores = {Component.parse(name): score for name, score in {"L0H0": 0.9, "L1H1": -0.5, "L0_MLP": 0.1}.items()}
    circuit = Circuit.scored(shape, 4, scores, {})
    assert kept(circuit.pruned(least=0.5))[0] == ["input", "L0H0", "L1H1", "logits"]
    assert kept(circuit.pruned(least=0.5, pin=["m0"], prune=["0.0"]))[0] == ["input", "L1H1", "L0_MLP", "logits"]


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        ({"least": -1}, "least=-1: is not a score"),
        ({"least": float("nan")}, "is not a score"),
        ({"pin": ["L7H7"]}, "pin: L7H7 is not in this circuit"),
        ({"prune": ["a0.h0->a1.h1<v>"]}, "is not in this circuit"),
        ({"prune": ["banana"]}, "'banana' is not a name"),
        ({"pin": ["L0H0"], "prune": ["a0.h0"]}, "is pinned and pruned"),
    ],
)
def test_pruning_refuses(edits: dict[str, Any], message: str) -> None:
    with pytest.raises(ves.BadInput, match=message):
        circuit_by_hand().pruned(**edits)


def test_a_pruned_circuit_is_saved_read_and_explained(specimen: Specimen, tmp_path: Path) -> None:
    scored = ves.discover(specimen, "eap", n=8, checks=False)  # every edge is in it
    scored.save(tmp_path)
    edges = scored.circuit.ranked_edges()
    pruned = scored.circuit.pruned(least=abs(edges[9][1]), prune=[edges[0][0]])
    pruned.write(tmp_path / "pruned.json")
    edited = ves.faithfulness(specimen, circuit=tmp_path, least=abs(edges[9][1]), prune=[str(edges[0][0])], n=4)
    saved = ves.faithfulness(specimen, circuit=tmp_path / "pruned.json", n=4)
    assert saved.size == edited.size == 9
    assert saved.faithfulness == edited.faithfulness
    explained = ves.explain(specimen, circuit=tmp_path / "pruned.json")
    assert {part.id for part in explained.components} <= {str(node) for node in pruned.nodes}


def test_a_document_is_written_and_asked_again(specimen: Specimen, by_edges: Discovery, tmp_path: Path) -> None:
    first = ves.faithfulness(specimen, by_edges, least=0.01, n=3, seed=1, out=tmp_path)
    assert first.request.circuit == str(tmp_path / "circuit" / "circuit.json")
    read = Faithfulness.read(tmp_path / "faithfulness.json")
    again = ves.rerun(read)
    assert_same_document(again.as_data(), read.as_data(), leave_out=("seconds",))
    assert "--least 0.01" in first.request.command_line()
    named = ves.faithfulness(specimen, "L0_MLP,L1H2", prune="L0_MLP", kind="zero", n=3)
    assert_same_document(ves.rerun(named).as_data(), named.as_data(), leave_out=("seconds",))


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        (None, {}, "give either"),
        (["L9H9"], {}, "L9H9 is not in this model"),
        ([], {}, "list of components is empty"),
        (["L0H0"], {"kind": "x"}, "kind 'x'"),
        (["L0H0"], {"n": 0}, "0"),
        (["L0H0"], {"circuit": "x"}, "give either"),
        (None, {"circuit": "nowhere"}, "nowhere"),
        (None, {"circuit": 5}, "give a path"),
    ],
)
def test_bad_input_is_refused(given: Any, options: dict[str, Any], message: str, specimen: Specimen) -> None:
    with pytest.raises(ves.BadInput, match=message):
        ves.faithfulness(specimen, given, **options)


def test_edges_are_resampled_only(specimen: Specimen, by_edges: Discovery) -> None:
    with pytest.raises(ves.BadInput, match="resampled only"):
        ves.faithfulness(specimen, by_edges, kind="zero")
