"""The second judge of claims about circuits, on a model whose weights are set by hand."""

from types import SimpleNamespace

import pytest
from benchmarks.circuit_claims import Judge, summary

from tests.test_key_of_weights import keyed
from tests.training.programs import place_added
from vesalius.rasp import Map, SequenceMap, compile_program, indices, tokens
from vesalius.rasp.document import to_document


def judge(program=None) -> Judge:
    """The model that computes 2 - t and then adds the position, with an explanation whose program this is."""
    program = place_added() if program is None else program
    carriers = {f"L{i}_MLP": placed.variables for i, placed in enumerate(program.components)}
    executable = SimpleNamespace(program=to_document(program), carriers=carriers)
    return Judge(keyed(place_in_first=False), SimpleNamespace(executable=executable))


def other(first, second):
    """A program of two tables, as the explanation of another circuit would be."""
    key = place_added()
    inner = Map(first, tokens, name="inner")
    return compile_program(SequenceMap(second, inner, indices, name="outer"), key.vocab, key.max_len, causal=key.causal)


def outcome(judge: Judge, component: str, kind: str, verdict: str) -> str:
    return judge.outcome(SimpleNamespace(id=component), SimpleNamespace(kind=kind, verdict=verdict))[0]


def test_what_the_key_says_is_followed_and_true() -> None:
    own = judge()
    for component in ("L0_MLP", "L1_MLP"):
        assert outcome(own, component, "computes", "supported") == "holds"
        assert outcome(own, component, "computes", "refuted") == "true"
        assert outcome(own, component, "necessary", "supported") == "holds"
    assert outcome(own, "L0_MLP", "depends_only_on", "supported") == "not judged"


def test_a_supported_claim_with_a_wrong_entry_is_false() -> None:
    wrong = judge(other(lambda t: {0: 2, 1: 1, 2: 1}[t], lambda x, place: x + place))
    assert outcome(wrong, "L0_MLP", "computes", "supported") == "false"
    assert outcome(wrong, "L0_MLP", "computes", "refuted") == "not the key's"


def test_a_refuted_claim_is_true_whatever_its_values_are_called_and_what_follows_is() -> None:
    renamed = judge(other(lambda t: "abc"[t], lambda x, place: place))
    assert outcome(renamed, "L0_MLP", "computes", "refuted") == "true"
    assert outcome(renamed, "L1_MLP", "computes", "refuted") == "not the key's"


def test_counts_by_hand() -> None:
    rows = [
        {"circuit": "a", "component": "L0_MLP", "kind": kind, "verdict": verdict, "outcome": outcome, "figure": None}
        for kind, verdict, outcome in (
            ("computes", "supported", "holds"),
            ("copies", "supported", "false"),
            ("computes", "supported", "not judged"),
            ("computes", "refuted", "true"),
            ("necessary", "undecided", "false"),
            ("combines", "supported", "not judged"),
        )
    ]
    every = summary(rows)["all but dependence"]
    assert (every["supported and false"]["hits"], every["supported and false"]["n"]) == (1, 2)
    assert (every["refuted and true"]["hits"], every["refuted and true"]["n"]) == (1, 1)
    assert every["undecided"]["share"] == pytest.approx(1 / 5)
    assert summary(rows)["dependence, by verdict"]["combines"] == {"supported": 1}
