"""Explanations that must not earn credit do not."""

import pytest

from tests.grading.explanations import explained, true_executable, truth
from vesalius.documents.explanation import Explanation
from vesalius.rasp.document import from_document
from vesalius_truth.grading.circuits import CircuitGrade, circuit_metrics, grade_circuit, null_metrics
from vesalius_truth.grading.tags import NULLS, donor_of, empty, generic, mixed

SAMPLE = ["3", "4", "8", "24", "46", "60", "97"]


@pytest.fixture(scope="module")
def pool() -> list[Explanation]:
    return [truth(specimen) for specimen in SAMPLE]


@pytest.fixture(scope="module")
def graded(pool: list[Explanation]) -> list[CircuitGrade]:
    return [grade_circuit(explanation, donor=donor_of(explanation, pool)) for explanation in pool]


@pytest.mark.slow
def test_the_truth_beside_its_nulls(graded: list[CircuitGrade]) -> None:
    nulls = {name: [grade.nulls[name] for grade in graded] for name in NULLS}
    found = circuit_metrics([grade.own for grade in graded], null=nulls["shuffled"])
    assert found["component_iia"].value >= 0.99
    assert found["component_iia_changed"].value == 1.0
    assert found["task_exact"].value == 1.0
    wrong, mixed_up = null_metrics(nulls["shuffled"]), null_metrics(nulls["mixed"])
    assert found["component_iia"].baseline == wrong["component_iia"].value < 0.6
    assert wrong["component_iia"].n == found["component_iia"].n
    assert wrong["component_iia_above_chance"].value <= 0.10
    assert wrong["component_iia_changed"].value == 0.0
    # Where mixing up changes no prediction, the null is as right as the truth: that is all that lifts it.
    alike = sum(len(null.alike) for null in nulls["mixed"])
    assert mixed_up["component_iia_changed"].value * mixed_up["component_iia"].n == pytest.approx(alike)
    for name in ("empty", "generic"):
        earned = null_metrics(nulls[name])
        for metric in earned:
            assert earned[metric].value == 0.0 or (name, metric) == ("generic", "tag_accuracy")
    assert null_metrics(nulls["generic"])["tag_accuracy"].value == found["tag_accuracy"].baseline


def test_shuffling_moves_everything_and_keeps_the_program(pool: list[Explanation]) -> None:
    own = pool[1]
    other = mixed(own, donor=None)
    assert own.executable is not None
    assert other.executable is not None
    assert other.executable.program == own.executable.program
    assert all(other.executable.carriers[name] != carried for name, carried in own.executable.carriers.items())
    assert sorted(other.executable.carriers.values()) == sorted(own.executable.carriers.values())
    assert sorted(part.tag for part in other.components) == sorted(part.tag for part in own.components)
    assert mixed(own, donor=None) == other


def test_a_single_component_borrows_a_program_of_its_shape(pool: list[Explanation]) -> None:
    by_id = {explanation.specimen: explanation for explanation in pool}
    lenders = {name: donor_of(explanation, pool) for name, explanation in by_id.items()}
    assert {name: lender and lender.specimen for name, lender in lenders.items()} == {
        "3": None,
        "4": None,
        "8": "46",
        "24": None,
        "46": "60",
        "60": "8",
        "97": None,
    }
    assert mixed(by_id["8"], donor=by_id["46"]).executable == by_id["46"].executable
    twin = by_id["8"].model_copy(update={"specimen": "other"})
    assert donor_of(by_id["8"], [by_id["8"], twin]) is None


@pytest.mark.parametrize("specimen", ["8", "24", "26"])
def test_without_a_lender_the_program_is_turned_wrong(specimen: str) -> None:
    own = truth(specimen)
    other = mixed(own, donor=None)
    assert other.executable is not None
    assert own.executable is not None
    inputs = [list(own.executable.program["vocab"][:3]), list(own.executable.program["vocab"][1:3])]
    right, wrong = (from_document(e.executable.program) for e in (own, other) if e.executable is not None)
    answers = [p.decode(p.run(*p.encode(inputs)).output, p.encode(inputs)[1]) for p in (right, wrong)]
    assert answers[0] != answers[1]
    assert other.components[0].tag != own.components[0].tag


def test_variables_that_pass_straight_on_cannot_be_told_apart() -> None:
    """In circuit 130 the second MLP only passes the first one's value on: mixing the two changes no prediction."""
    grade = grade_circuit(truth("130"))
    alike = grade.nulls["mixed"].alike
    assert set(alike) <= {"L1_MLP", "L2_MLP"}
    for name in alike:
        kept, instead = (grade.nulls[null].program.components[name] for null in ("mixed", "shuffled"))
        assert kept.iia_changed > 0.9 > instead.iia_changed
    assert len(grade.nulls["shuffled"].scores) == len(grade.own.scores) == 2
    assert grade.nulls["empty"].alike == ()


def test_nothing_to_shuffle_and_nothing_said() -> None:
    silent = explained("4", executable=None)
    assert mixed(silent, donor=None).executable is None
    assert mixed(explained("8", executable=None), donor=None).executable is None
    broken = true_executable("8")
    broken = broken.model_copy(update={"program": {**broken.program, "variables": "none"}})
    assert mixed(explained("8", executable=broken), donor=None).executable is None
    assert empty(truth("3")).components == ()
    said = generic(truth("3"))
    assert said.executable is None
    assert [part.tag for part in said.components] == ["MAPPER", "AGGREGATOR"]
