"""Every benchmark replays its ledger the same way."""

import pytest

from vesalius.documents.scorecard import CaseError
from vesalius.errors import BadInput
from vesalius.runs.ledger import LedgerState, LedgerStep
from vesalius_bench.circuits.scorecard import State
from vesalius_bench.discovery.benchmark import DiscoveryState
from vesalius_functions.bench.settings import FunctionState

EVENTS = {"explain": "explained", "grade": "graded"}
STEPS = [LedgerStep(name, event, lambda record: record["value"]) for name, event in EVENTS.items()]


def failed(step: str, case: str = "3") -> dict:
    return {"event": "failed", "case": case, "step": step, "kind": "crashed", "reason": f"no {step}"}


def test_the_latest_result_counts_and_ends_a_failure() -> None:
    state = LedgerState(STEPS, [failed("explain"), {"event": "explained", "case": "3", "value": 1}])
    assert (state.results, state.failed) == ({"explain": {"3": 1}, "grade": {}}, {})
    state.note(failed("grade"))
    assert state.errors == (CaseError(case="3", step="grade", kind="crashed", reason="no grade"),)
    state.note({"event": "graded", "case": "3", "value": 2})
    assert (state.results["grade"], state.errors) == ({"3": 2}, ())


def test_a_new_first_step_makes_the_later_ones_void() -> None:
    records = [
        {"event": "explained", "case": "3", "value": 1},
        {"event": "graded", "case": "3", "value": 2},
        {"event": "explained", "case": "4", "value": 5},
        {"event": "graded", "case": "4", "value": 6},
        failed("explain"),
    ]
    state = LedgerState(STEPS, records)
    assert state.results == {"explain": {"4": 5}, "grade": {"4": 6}}
    assert state.first_failure == "no explain"


def test_calls_are_counted_by_case_and_step_the_latest_only() -> None:
    used = {"calls": 2, "cost": 0.5}
    state = LedgerState(STEPS, [{**failed("explain"), "used": used}])
    state.note({"event": "explained", "case": "3", "value": 1, "used": {"calls": 3, "cost": 0.75}})
    state.note({"event": "graded", "case": "3", "value": 1, "used": used})
    assert (state.total().calls, state.total().cost) == (5, 1.25)
    assert state.total("grade").calls == 2
    assert state.total(case="4").calls == 0


def test_events_of_no_step_are_passed_over() -> None:
    assert LedgerState(STEPS, [{"event": "noted", "case": "3"}]).results == {"explain": {}, "grade": {}}


@pytest.mark.parametrize(
    "record",
    [
        {"event": "failed", "case": "3"},
        {"event": "failed", "case": "3", "step": "dance", "kind": "crashed", "reason": "x"},
        {"event": "explained", "case": ["3"], "value": 1},
        {"event": "graded", "case": "3"},
        {"event": "explained", "case": "3", "value": 1, "used": 5},
    ],
)
def test_records_of_something_else_are_refused_by_their_number(record: dict) -> None:
    """Ledgers of before there were checksums may say anything."""
    with pytest.raises(BadInput, match=r"record 2: is not one of this benchmark .*; put back a good copy"):
        LedgerState(STEPS, [{"event": "noted"}, record])


def test_the_benchmarks_name_their_steps() -> None:
    functions = FunctionState([{"event": "interpreted", "case": "f1", "seconds": 2.0, "queries": 7, "time": 1.0}])
    assert functions.interpreted["f1"].queries == 7
    circuits = State([{"event": "explained", "case": "3", "traced": True}, {"event": "explained", "case": "4"}])
    assert circuits.explained == {"3": True, "4": False}
    refused = {"event": "failed", "method": "acdc", "case": "3", "kind": "refused", "reason": "too large"}
    error = DiscoveryState([refused]).failed[("acdc", "3"), "discover"]
    assert error.model_dump() == {"method": "acdc", "case": "3", "kind": "refused", "reason": "too large"}
