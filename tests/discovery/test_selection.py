"""Rules that cut a circuit: worked by hand on a few scores, and through `discover` and `faithfulness`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import vesalius as ves
from vesalius.behaviours.trial import Trial
from vesalius.components import Component, Edge
from vesalius.discovery import faithfulness
from vesalius.discovery.checks import held_out_prompts
from vesalius.discovery.discover import discover
from vesalius.discovery.faithfulness import scores_without
from vesalius.discovery.selection import Scored, parse_rules, select_circuit
from vesalius.documents.circuit import Circuit
from vesalius.documents.discovery import Discovery
from vesalius.errors import BadInput
from vesalius.intervene.edges import EdgeGraph
from vesalius.model.transformer import Transformer

GRAPH = EdgeGraph(1, 1)
HEAD, MLP = Component(0, 0), Component(0)


def circuit_of(**scores: float) -> Circuit:
    """One layer with one head: edges by name, all others score 0."""
    named = {"iq": "input->a0.h0<q>", "iv": "input->a0.h0<v>", "im": "input->m0", "il": "input->logits"}
    named |= {"hm": "a0.h0->m0", "hl": "a0.h0->logits", "ml": "m0->logits"}
    edges = dict.fromkeys(GRAPH.edges, 0.0) | {Edge.parse(named[name]): score for name, score in scores.items()}
    return Circuit.scored(GRAPH, 4, dict.fromkeys((HEAD, MLP), 1.0), edges)


def names(parts: frozenset) -> set[str]:
    return set(map(str, parts))


def test_rules_by_hand() -> None:
    """Strong edges into the head lead to the logits by a weak edge only; the MLP's path is negative."""
    scored = Scored.of(circuit_of(iq=5.0, iv=6.0, hl=0.5, im=-2.0, ml=-3.0, il=0.6))
    assert names(scored.chosen("top", 3)) == set()
    assert names(scored.chosen("greedy", 3)) == {"m0->logits", "input->m0", "input->logits"}
    assert names(scored.chosen("exact", 3)) == {"input->a0.h0<q>", "input->a0.h0<v>", "a0.h0->logits"}
    # 2 of 3 go to positive scores: the direct edge (0.6) and none of the head, for which two are needed; then by size.
    assert "input->logits" in names(scored.chosen("positive-ratio", 3))
    assert "a0.h0->logits" in names(scored.chosen("positive-ratio", 4))


def test_bootstrap_drops_what_changes_its_sign() -> None:
    """Two direct paths: one of mean 1 that is 1 on every prompt, one of mean 2 that is 20 or -16 by turns."""
    per_prompt = torch.zeros(8, *GRAPH.real.shape)
    steady, changing = (GRAPH.edges.index(Edge.parse(name)) for name in ("input->logits", "m0->logits"))
    per_prompt[(slice(None), *GRAPH.places[steady])] = 1.0
    per_prompt[(slice(None), *GRAPH.places[changing])] = torch.tensor([20.0, -16.0] * 4)
    scored = Scored.of(circuit_of(il=1.0, ml=2.0), per_prompt)
    assert names(scored.chosen("bootstrap", 1)) == {"input->logits"}
    assert names(scored.chosen("bootstrap", 7)) == {"input->logits"}
    assert scored.reached[steady] == pytest.approx(1.0)
    assert "m0->logits" in names(scored.chosen("greedy", 2))


def test_components_are_chosen_by_strength() -> None:
    graph = EdgeGraph(2, 2)
    scores = dict(zip(graph.senders[1:], [3.0, -4.0, 1.0, 0.0, 2.0, -0.5], strict=True))
    circuit = Circuit.scored(graph, 4, {part: score for part, score in scores.items() if part}, {})
    scored = Scored.of(circuit)
    assert names(scored.chosen("top", 2)) == {"L0H1", "L0H0"}
    assert names(scored.chosen("positive-ratio", 4)) == {"L0H0", "L1H1", "L0_MLP", "L0H1"}
    assert len(scored.chosen("top", 6)) == 5  # what scores 0 is never in it


@pytest.mark.slow
def test_a_discovery_is_cut_and_its_circuit_holds_what_was_kept(tmp_path: Path) -> None:
    discovery = ves.discover("frac_prevs", "eap-ig", n=8, select="exact,top", size=6, out=tmp_path, progress=False)
    again = Discovery.read(tmp_path / "discovery.json")
    selection = again.selection
    assert selection is not None
    assert discovery.selection == selection
    assert (selection.by, selection.budget, selection.candidates, selection.least_kept) == ("edges", 6, 110, None)
    assert [row.rule for row in selection.rules] == ["exact", "top"]
    kept = again.circuit.kept_edges
    assert len(kept) == selection.rule.size <= 6
    scores = again.circuit.edge_scores
    assert selection.rule.value == pytest.approx(sum(abs(scores[edge]) for edge in kept))
    assert selection.rule.value >= selection.rules[1].value
    curve = selection.rule.curve
    assert curve is not None
    assert curve.faithfulness[curve.sizes.index(6)] == selection.rule.faithfulness
    assert "--select exact,top --size 6" in discovery.request.command_line()
    assert "Which of them are the circuit" in (tmp_path / "discovery.html").read_text()
    assert {str(part) for part in again.circuit.chosen()} == {"L0_MLP", "L1H2"}
    measured = ves.faithfulness("frac_prevs", circuit=again.circuit, n=8, progress=False)
    assert measured.size == len(kept)


def test_without_a_size_the_circuit_keeps_nine_tenths() -> None:
    discovery = ves.discover("frac_prevs", n=8, select="top", progress=False)
    selection = discovery.selection
    assert selection is not None
    assert selection.least_kept == 0.9
    assert (selection.by, selection.budget) == ("components", 2)
    inside = {node for node, member in discovery.circuit.nodes.items() if member.in_graph}
    assert inside == {"input", "logits", Component(0), Component(1, 2)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "rules", "size", "most"),
    [
        ("sweep", ["top"], None, None),
        # Of 110 edges 0, 1, 2, 6, 11, 22, 55 and 110 are kept, after two runs without cuts: on 8 prompts and on 12.
        ("eap", ["top"], None, 10 + 10 * 12 / 8),
        # These and 9, the first and the last once for both rules.
        ("eap", ["exact", "greedy"], 9, (2 + 2 + 2 * 7) * 12 / 8),
    ],
)
def test_the_plan_says_what_the_selection_takes_at_most(
    method: str, rules: list[str], size: int | None, most: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    specimen, rows = ves.load("frac_prevs"), []

    def counted(model: Transformer, material: Trial, removed: Sequence[frozenset], **options: Any) -> Any:
        scores, forwards = scores_without(model, material, removed, **options)
        rows.append(forwards * len(material.batch))
        return scores, forwards

    result = discover(specimen, method, n=8)
    monkeypatch.setattr(faithfulness, "scores_without", counted)
    held_out = held_out_prompts(specimen, result.material)
    options = {"size": size, "seen": result.material, "held_out": lambda: held_out}
    select_circuit(specimen.model, result.circuit, rules, **options)
    planned, quick = (
        ves.plan("discover", specimen, method=method, n=8, select=rules, size=size, checks=checks, progress=False)
        for checks in (True, False)
    )
    # A circuit that two sizes or two rules share is run once; which do is not known before the run.
    assert 0 < sum(rows) / 8 <= planned.select_forwards
    if most is not None:
        assert planned.select_forwards == most
    assert bool(quick.select_forwards) == (size is None)
    with pytest.raises(BadInput, match="does not exist; choose"):
        ves.plan("discover", specimen, select="best", progress=False)


def test_a_saved_circuit_is_cut_by_a_rule() -> None:
    circuit = ves.discover("frac_prevs", "eap", n=8, checks=False, progress=False).circuit
    cut = ves.faithfulness("frac_prevs", circuit=circuit, select="greedy", size=5, n=8, progress=False)
    assert cut.size == 5
    assert "--select greedy" in cut.request.command_line()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"select": "best"}, "'best' does not exist; choose"),
        ({"select": "top,top"}, "names a rule twice"),
        ({"size": 5}, "name a rule"),
        ({"select": "exact"}, "chooses among edges, and this method scores components"),
        ({"method": "eap", "select": "exact", "size": 111}, "has 110 edges"),
        ({"method": "acdc", "select": "bootstrap", "size": 5, "n": 2}, "cannot be resampled; select top"),
        ({"method": "sets", "select": "top"}, "use `vesalius sets`"),
    ],
)
def test_refusals(options: dict, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        ves.discover("frac_prevs", progress=False, **options)


def test_rules_are_named_in_a_text_or_a_list() -> None:
    assert parse_rules(" exact, top") == parse_rules(["exact", "top"]) == ("exact", "top")
    assert parse_rules(None) == ()


def test_parallel_blocks_have_their_own_network() -> None:
    graph = EdgeGraph(1, 1, parallel=True)
    edges = dict.fromkeys(graph.edges, 1.0)
    scored = Scored.of(Circuit.scored(graph, 4, {HEAD: 1.0, MLP: 1.0}, edges))
    assert len(scored.parts) == graph.n_edges
    assert np.all(scored.scores == 1)
