"""The script of a strong model (`benchmarks.scripted_records`): two circuits on which true claims were refuted, and
what a claim about the whole circuit saves.
"""

import pytest
from benchmarks.scripted_records import explained

pytestmark = pytest.mark.slow


def test_a_head_that_counts_is_supported_by_both_kinds_of_claim() -> None:
    """Circuit 97, L1H0: `aggregates` was refuted and `computes` supported for the same program and carrier."""
    found = explained("97", ["L1H0"], apart=True)
    (part,) = found["components"]
    assert [(claim["kind"], claim["verdict"]) for claim in part["claims"]] == [
        ("computes", "supported"),
        ("aggregates", "supported"),
    ]
    assert (part["verdict"], part["tag"]) == ("supported", "AGGREGATOR")
    assert found["carriers"] == {"L1H0": ["rank_head"]}
    assert "something beside" in part["claims"][1]["text"], "the swaps at equal counts are told, not held against it"


def test_the_exact_rule_of_a_head_is_supported_and_earlier_carriers_are_kept() -> None:
    """Circuit 113: L0H1's exact rule was refuted, and L0H0, supported with an earlier program, was said to carry
    nothing in the one that is kept.
    """
    found = explained("113", ["L0H0", "L0H1"], apart=True)
    verdicts = {
        part["id"]: [(claim["kind"], claim["verdict"]) for claim in part["claims"]] for part in found["components"]
    }
    assert verdicts == {
        "L0H0": [("computes", "supported")],
        "L0H1": [("computes", "supported"), ("aggregates", "supported")],
    }
    assert found["carriers"] == {"L0H0": ["length_head"], "L0H1": ["before"]}
    assert [part["tag"] for part in found["components"]] == ["AGGREGATOR", "ROUTER"]


@pytest.mark.parametrize("circuit", ["7", "39", "60"])
def test_a_claim_about_the_circuit_halves_calls_and_tokens(circuit: str) -> None:
    """Beside a strong model that was asked for plans and studied every component (`BEFORE`)."""
    found = explained(circuit)
    for figure in ("calls_per_component", "input_tokens_per_component"):
        assert found[figure]["now"] <= found[figure]["before"] / 2, figure
    assert [part["verdict"] for part in found["components"]] == ["supported"] * len(found["components"])
    assert all(part["tag"] == part["tag_by_experiment"] for part in found["components"])
    assert found["metrics"]["tag_accuracy"]["value"] == found["metrics"]["task_exact"]["value"] == 1.0
    assert found["problems"] == []
