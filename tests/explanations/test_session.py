"""One agent session: what is counted, remembered, shown with a refutation, and submitted."""

import json
from typing import Any

import pytest

import vesalius as ves
from vesalius.documents.explanation import ClaimRecord, Verdict
from vesalius.errors import BadInput
from vesalius.explanations.laboratory.circuits import CircuitLab
from vesalius.explanations.verdicts import record_text, verdict_of, verdict_of_kinds
from vesalius.model.specimen import Specimen
from vesalius_session.budget import Budget, OutOfBudget, Spending
from vesalius_session.findings import Said, Statement
from vesalius_session.session import Session
from vesalius_session.subject import Subject
from vesalius_session.toolbox.validation_tools import Validation

pytestmark = pytest.mark.usefixtures("shared_sandboxes")
#: Circuit 3: L0_MLP marks x, L1H2 averages the marks so far.
FLAG = {"name": "is_x", "op": "map", "of": ["tokens"], "formula": "x == 'x'"}
SO_FAR = {"name": "so_far", "op": "select", "of": ["indices", "indices"], "comparison": "LEQ"}
MEAN = {"name": "share", "op": "aggregate", "of": ["so_far", "is_x"], "numerical": True}
SHARE: dict[str, Any] = {"variables": [FLAG, SO_FAR, MEAN], "output": "share"}
CARRIERS = {"L0_MLP": ["is_x"], "L1H2": ["share"]}
CIRCUIT = {"kind": "circuit", "program": SHARE, "carriers": CARRIERS}


@pytest.fixture(scope="module")
def specimen() -> Specimen:
    return ves.load("3")


@pytest.mark.slow
def test_claims_and_programs_are_counted_when_they_are_asked_for(specimen: Specimen) -> None:
    """A claim that cannot be read counts one, one about the whole circuit counts one, and nothing counts afterwards."""
    with Session.open(specimen, budget=Budget(claims=3, executions=1)) as session:
        with pytest.raises(BadInput, match="nonsense"):
            session.check({"kind": "nonsense", "component": "L0_MLP"})
        decided = session.check(CIRCUIT)
        assert {claim.component: record.verdict for claim, record in decided.checked} == dict.fromkeys(
            CARRIERS, "supported"
        )
        assert decided.verdict == "supported"
        session.check({"kind": "computes", "component": "L1H2", "program": "last"})
        with pytest.raises(OutOfBudget, match="all 3 claims are used"):
            session.check({"kind": "necessary", "component": "L0_MLP"})
        with pytest.raises(BadInput, match="not a Python expression"):
            session.which_variable("L0_MLP", {"x": "import os"})
        assert session.spending.left() == {"executions": 1, "claims": 0}
        session.execute("result = 1")
        with pytest.raises(OutOfBudget, match="all 1 executions are used"):
            session.execute("result = 1")
        explanation = session.submit(Statement({"L0_MLP": Said(tag="ROUTER", description="It says.")}, "f", "t"))
        with pytest.raises(BadInput, match="submitted already"):
            session.submit(Statement({}))
        with pytest.raises(BadInput, match="nothing more to measure"):
            session.check(CIRCUIT)
    first, second = explanation.components
    assert (first.tag, first.tag_by_experiment, first.tag_by_model) == ("INDICATOR", "INDICATOR", "ROUTER")
    assert first.note.endswith("In the model's words: It says.")
    assert (second.tag, second.tag_by_model) == ("AGGREGATOR", None)
    assert explanation.executable is not None
    assert explanation.executable.carriers == {name: tuple(held) for name, held in CARRIERS.items()}


def test_a_program_that_gives_other_outputs_comes_back_with_inputs(specimen: Specimen) -> None:
    """What L0_MLP carries is right, so its claim is undecided; the circuit's is refuted, and inputs say why."""
    with Session.open(specimen) as session:
        decided = session.check({"kind": "circuit", "program": {"variables": [FLAG]}, "carriers": {"L0_MLP": ["is_x"]}})
    (record,) = decided.records
    assert (record.verdict, decided.verdict) == ("undecided", "refuted")
    assert "Inputs on which the program is wrong, drawn anew:" in record_text(record)
    assert len(record.counterexamples) == 3
    for one in record.counterexamples:
        assert one["predicted"] == [float(token == "x") for token in one["input"]]
        assert one["actual"] == pytest.approx(specimen.predict([one["input"]])[0], abs=1e-3)
        assert one["predicted"] != pytest.approx(one["actual"], abs=0.05)
    assert json.dumps(record.counterexamples[0]["input"]) in record_text(record)
    assert ClaimRecord.model_validate_json(record.model_dump_json()) == record


def test_a_component_that_carries_something_else_is_refuted_by_interchanges(specimen: Specimen) -> None:
    """The program is right and L0_MLP is said to carry the share, which the head carries."""
    program = {**SHARE, "variables": [FLAG, SO_FAR, MEAN]}
    swapped = {"kind": "computes", "component": "L1H2", "program": program, "carriers": {"L1H2": ["is_x"]}}
    with Session.open(specimen) as session:
        (record,) = session.check(swapped).records
    assert record.verdict == "refuted"
    assert record.counterexamples
    tools = Validation(Subject(specimen.model, specimen.vocabulary))  # type: ignore[arg-type]
    for one in record.counterexamples:
        found = tools.interchange("L1H2", [one["base"]], [one["source"]])["patched"][0]
        assert one["actual"] == pytest.approx(found, abs=1e-3)
        assert one["predicted"] != pytest.approx(one["actual"], abs=0.05)


def test_what_contradicts_a_claim_is_not_among_what_decides(specimen: Specimen) -> None:
    with Session.open(specimen) as session:
        lab = session.lab()
        beside = session._beside(lab)
    assert isinstance(lab, CircuitLab)
    assert isinstance(beside, CircuitLab)
    assert (beside.seed, beside.n) != (lab.seed, lab.n)
    assert beside.inputs[0][:20] != lab.inputs[0][:20]


@pytest.mark.slow
def test_a_session_goes_on_from_what_was_decided_before(specimen: Specimen) -> None:
    with Session.open(specimen) as first:
        kept = first.check(CIRCUIT).singly()
        first.check({"kind": "necessary", "component": "L0_MLP"})
    with Session.open(specimen) as second:
        for one in json.loads(json.dumps(kept)):
            second.recall(one["claim"], one["record"])
        again = second.check({"kind": "computes", "component": "L1H2", "program": "last"})
        other = {**SHARE, "variables": [FLAG, {**SO_FAR, "comparison": "LT"}, MEAN]}
        new = second.check({"kind": "computes", "component": "L1H2", "program": other, "carriers": CARRIERS})
        assert (again.records[0].tried, new.records[0].tried) == (1, 2)
        assert [part.verdict for part in second.submit(Statement({})).components] == ["supported", "supported"]


@pytest.mark.parametrize(
    ("claims", "verdict"),
    [
        ([("computes", "refuted"), ("computes", "supported")], "supported"),
        ([("computes", "supported"), ("computes", "refuted")], "refuted"),
        ([("aggregates", "refuted"), ("computes", "supported")], "supported"),
        ([("depends_only_on", "refuted"), ("computes", "supported")], "refuted"),
        ([("necessary", "refuted"), ("necessary", "supported"), ("computes", "supported")], "refuted"),
        ([("necessary", "supported")], "untested"),
        ([("moves_role", "refuted"), ("moves_role", "supported")], "supported"),
        ([("computes", "refuted"), ("computes", "undecided")], "refuted"),
        ([("necessary", "supported"), ("computes", "undecided")], "undecided"),
        ([("necessary", "undecided")], "untested"),
        ([("free_code", "supported")], "untested"),
    ],
)
def test_a_supported_correction_replaces_what_it_corrects(claims: list[tuple[str, Verdict]], verdict: Verdict) -> None:
    assert verdict_of_kinds(claims) == verdict
    records = [ClaimRecord(kind=kind, text=".", verdict=decided, evidence=()) for kind, decided in claims]
    assert verdict_of(records) == verdict


def test_a_call_counts_on_from_what_its_connection_used() -> None:
    whole = Spending(Budget(executions=3, memory=1 << 20), "all {limit} {words}: {name}")
    whole.add(executions=2, looks=7)
    call = Spending(whole.budget, whole.refusal, whole)
    call.spend("executions")
    assert (call.used["executions"], whole.used["executions"]) == (1, 2)
    assert call.left() == {"executions": 0, "memory_mb": 1}
    with pytest.raises(OutOfBudget, match="all 3 executions of code: executions"):
        call.spend("executions")
    call.spend("looks")  # counted, not limited
    assert call.total("looks") == 8
    with pytest.raises(BadInput, match="claims -1 is less than none"):
        Budget(claims=-1)
    assert "1 MB per call" in whole.budget.in_words()
