"""Two circuits on which true claims were refuted, with the script of a strong model (`benchmarks.scripted_records`)."""

import pytest
from benchmarks.scripted_records import explained

pytestmark = pytest.mark.slow


def test_a_head_that_counts_is_supported_by_both_kinds_of_claim() -> None:
    """Circuit 97, L1H0: `aggregates` was refuted and `computes` supported for the same program and carrier."""
    found = explained("97", ["L1H0"])
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
    found = explained("113", ["L0H0", "L0H1"])
    verdicts = {
        part["id"]: [(claim["kind"], claim["verdict"]) for claim in part["claims"]] for part in found["components"]
    }
    assert verdicts == {
        "L0H0": [("computes", "supported")],
        "L0H1": [("computes", "supported"), ("aggregates", "supported")],
    }
    assert found["carriers"] == {"L0H0": ["length_head"], "L0H1": ["before"]}
    assert [part["tag"] for part in found["components"]] == ["AGGREGATOR", "ROUTER"]
