"""Areas under the ROC curve, by hand and by definition; the true edges of programs worked out by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vesalius.circuits.specimens import benchmark_cards
from vesalius.documents import Metric
from vesalius.documents.circuit import Circuit
from vesalius.intervene.edges import EdgeGraph
from vesalius.rasp import Comparison, Map, Select, SelectorWidth, SequenceMap, compile_program, indices, tokens
from vesalius_truth.grading.discovery import auroc, circuit_of, grade_circuit_scores, median_and_mean, true_circuit
from vesalius_truth.key import all_tasks


def test_auroc_by_hand() -> None:
    assert auroc([(3, True), (2, True), (1, False)]) == 1.0
    assert auroc([(1, True), (2, False)]) == 0.0
    assert auroc([(0, True), (0, False), (0, False)]) == 0.5
    # Pairs: 3 beats 2 and 1 (2), 1 loses to 2 (0) and ties with 1 (half): 2.5 of 4.
    assert auroc([(3, True), (1, True), (2, False), (1, False)]) == 0.625
    assert auroc([(1, True)]) is None
    assert auroc([(1, False)]) is None
    assert auroc([]) is None


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=20))
def test_auroc_is_the_share_of_pairs_in_order(scored: list[tuple[int, bool]]) -> None:
    pairs = [(t, f) for t, truth in scored for f, lie in scored if truth and not lie]
    found = auroc(scored)
    if not pairs:
        assert found is None
        return
    assert found == pytest.approx(sum((t > f) + (t == f) / 2 for t, f in pairs) / len(pairs))


def test_the_median_and_the_mean_are_two_metrics() -> None:
    assert median_and_mean([]) is None
    one = median_and_mean([0.75], baseline=0.5)
    assert one is not None
    assert one[0] == Metric(value=0.75, low=0.75, high=0.75, n=1, baseline=0.5, statistic="median")
    assert one[1] == Metric(value=0.75, low=0.75, high=0.75, n=1, statistic="mean")
    many = median_and_mean([0.5, 0.5, 0.5, 1.0])
    assert many is not None
    assert (many[0].value, many[1].value) == (0.5, 0.625)
    assert many[1].low < 0.625 < many[1].high
    assert many == median_and_mean([0.5, 0.5, 0.5, 1.0])


def test_true_edges_of_frac_prevs() -> None:
    """An MLP says which tokens are x; a head averages it over the positions so far."""
    truth = true_circuit("frac_prevs")
    assert len(truth.components) == 2
    head = next(part for part in truth.components if part.is_head).format("eap")
    assert {str(edge) for edge in truth.edges} == {"input->m0", f"m0->{head}<v>", f"{head}->logits"}
    assert {str(edge) for edge in truth.constant} == {f"input->{head}<k>", f"input->{head}<q>"}


def test_true_edges_of_a_count() -> None:
    """How many equal tokens, less the position: the head counts, its MLP decodes, the next MLP subtracts."""
    count = SelectorWidth(Select(tokens, tokens, Comparison.EQ))
    program = compile_program(SequenceMap(lambda c, i: c - i, count, indices), ["a", "b"], 3, causal=False)
    truth = circuit_of(program, {})
    assert {str(edge) for edge in truth.edges} == {
        "input->a0.h0<k>",
        "input->a0.h0<q>",
        "a0.h0->m0",
        "m0->m1",
        "m1->logits",
    }
    assert {str(edge) for edge in truth.constant} == {"input->m1"}
    graph = EdgeGraph(2, 1)
    left_out = {str(edge) for edge in graph.edges if not truth.judges(edge)}
    assert left_out == {"input->a0.h0<v>", "input->m1"}


def test_an_edge_that_also_carries_tokens_is_true() -> None:
    program = compile_program(
        SequenceMap(lambda t, i: t == "a" and i == 0, Map(lambda t: t, tokens), indices), ["a", "b"], 3, causal=False
    )
    truth = circuit_of(program, {})
    assert {str(edge) for edge in truth.constant} <= {"input->m1"}
    assert "input->m0" in {str(edge) for edge in truth.edges}


def test_perfect_and_reversed_scores() -> None:
    truth, graph = true_circuit("frac_prevs"), EdgeGraph(2, 4)
    for right, wrong, expected in ((-2.0, 1.0, 1.0), (0.0, 1.0, 0.0), (1.0, 1.0, 0.5)):
        nodes = {part: right if part in truth.components else wrong for part in graph.senders if part is not None}
        edges = {edge: right if edge in truth.edges else wrong for edge in graph.edges}
        areas = grade_circuit_scores(Circuit.scored(graph, 8, nodes, edges), truth)
        assert (areas.node_auroc, areas.edge_auroc) == (expected, expected)
    nothing = grade_circuit_scores(Circuit.scored(graph, 8, {}, {}), truth)
    assert nothing.node_auroc is nothing.edge_auroc is None


def test_every_benchmark_circuit_has_a_truth_that_fits_its_model() -> None:
    cards = {card.id: card for card in benchmark_cards()}
    for task in all_tasks():
        truth, card = true_circuit(task.id), cards[task.id]
        assert {str(part) for part in truth.components} == set(card.components), task.name
        edges = set(EdgeGraph(card.layers, card.heads).edges)
        assert truth.edges <= edges
        assert truth.constant <= edges - truth.edges
        assert any(edge.port == "logits" for edge in truth.edges)
