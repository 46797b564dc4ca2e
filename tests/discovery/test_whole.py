"""The smallest connected circuit: planted ones come out whole, paths are paths, and the sets of prompts are apart."""

import pytest
import torch

import vesalius as ves
from vesalius.behaviours.trial import rows_of, trial
from vesalius.components import Component
from vesalius.discovery.faithfulness import scores_without
from vesalius.discovery.method import MethodInput
from vesalius.discovery.shares import Shares
from vesalius.discovery.sweep import Sweep
from vesalius.discovery.whole import (
    Search,
    measured_circuit,
    prompt_sets,
    random_circuits,
    whole_circuit,
)
from vesalius.documents.whole import answer
from vesalius.intervene.edges import EdgeGraph, on_paths


@pytest.mark.parametrize("name", ["frac_prevs", "11"])
def test_a_planted_circuit_is_found_whole_and_connected(name: str) -> None:
    specimen = ves.load(name)
    rank = trial(specimen, 16)
    scores = Sweep().score(MethodInput(specimen, rank))
    search = Search(specimen, prompt_sets(specimen, rank), asked=0.95)
    whole, parts, edges = whole_circuit(search, {"sweep": (scores, scores.forwards)})
    assert set(parts) == set(specimen.components)
    assert whole.connected
    assert {edge.sender for edge in edges} - {None} == set(parts)
    assert answer(whole, name).verdict == "yes"


def test_the_share_kept_is_that_of_an_ablation_of_everything_else() -> None:
    specimen = ves.load("frac_prevs")
    material, circuit = trial(specimen, 8), specimen.components[:1]
    everything = frozenset(specimen.model.components)
    scores, _ = scores_without(
        specimen.model, material, [everything, everything - frozenset(circuit), frozenset()], kind="resample"
    )
    nothing, own, full = scores.double().mean(0).tolist()
    kept = Shares(specimen.model, material).kept([circuit])[0]
    assert kept.value == pytest.approx((own - nothing) / (full - nothing), abs=1e-6)


def test_the_three_sets_of_prompts_share_none() -> None:
    specimen = ves.load("frac_prevs")
    rank = trial(specimen, 16)
    sets = prompt_sets(specimen, rank)
    seen = [rows_of(one) for one in (sets.rank, sets.choose, sets.report)]
    batches = [{tuple(row) for row in one.batch.tokens.tolist()} for one in (sets.choose, sets.report)]
    assert not batches[0] & batches[1]
    assert not seen[0] & {row for one in seen[1:] for row in one}


def test_only_edges_between_tokens_and_logits_are_on_a_path() -> None:
    graph = EdgeGraph(2, 1)
    mask = torch.zeros_like(graph.real)

    def place(sender: Component | None, receiver: Component | None, port: str) -> tuple[int, int]:
        return graph.senders.index(sender), graph.receivers.index((receiver, port))  # type: ignore[arg-type]

    head, mlp, late = Component(0, 0), Component(0), Component(1, 0)
    good = [place(None, head, "v"), place(head, mlp, "mlp"), place(mlp, None, "logits")]
    dangling = [place(None, late, "q"), place(late, Component(1), "mlp")]  # nothing reads the last MLP
    for where in (*good, *dangling):
        mask[where] = True
    kept = on_paths(graph, mask)
    assert {tuple(where) for where in kept.nonzero().tolist()} == set(good)


def test_random_circuits_have_as_many_heads_and_mlps() -> None:
    parts = [*(Component(layer, head) for layer in range(3) for head in range(4)), *(Component(i) for i in range(3))]
    circuit = [Component(0, 0), Component(1, 2), Component(2)]
    for other in random_circuits(parts, circuit, seed=0):
        assert sorted(part.is_head for part in other) == [False, True, True]
        assert set(other) != set(circuit)


@pytest.mark.slow
def test_given_components_are_measured_and_judged_as_found_ones_are() -> None:
    specimen = ves.load("reverse")
    search = Search(specimen, prompt_sets(specimen, trial(specimen, 16)))
    everything = measured_circuit(search, specimen.model.components)
    assert everything.method == "given"
    assert everything.kept.value == pytest.approx(1.0)
    one = measured_circuit(search, specimen.components[:1])
    assert one.components == (str(specimen.components[0]),)
    judged = answer(one, "reverse")
    assert judged.verdict == "no"
    assert "given for reverse" in judged.text
