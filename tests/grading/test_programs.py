"""Executables against the model: the truth earns everything, errors cost what they should, nothing earns nothing."""

import copy
from typing import Any

import pytest

from tests.grading.explanations import explained, true_executable, truth
from vesalius.components import Component
from vesalius.documents.explanation import Executable
from vesalius.explanations.laboratory import CLAIM_SEED
from vesalius_truth.grading import grade
from vesalius_truth.grading.circuits import grade_circuit
from vesalius_truth.grading.keys import graded_specimen
from vesalius_truth.grading.programs import GRADING_SEED, Grader, ProgramGrade, fresh_seed
from vesalius_truth.key import INERT, task


def graded(specimen: str, executable: Executable | None, *, n: int = 600) -> ProgramGrade:
    return Grader(graded_specimen(specimen), n=n).grade(executable)


def edited(executable: Executable, **changes: Any) -> Executable:
    return Executable(program={**executable.program, **changes}, carriers=executable.carriers)


@pytest.mark.parametrize("specimen", ["3", "4", "8", "24", "97"])
def test_the_true_program_is_right_everywhere(specimen: str) -> None:
    found = graded(specimen, true_executable(specimen))
    assert found.task_agreement >= 0.99
    assert found.task_exact
    assert set(found.components) == {str(component) for component, _ in task(specimen).components}
    for score in found.components.values():
        assert not score.inert
        assert score.iia is not None
        assert score.iia >= 0.99
        assert score.iia_changed is not None
        assert score.iia_changed >= 0.99
        assert score.chance is not None
        assert score.chance < 0.9
        assert not score.reason


@pytest.mark.slow
def test_what_interchange_shows_is_decided_by_the_model() -> None:
    """Two components are shown only across positions, one by no interchange: as the key says, without reading it."""
    for (specimen, component), reason in INERT.items():
        found = graded(specimen, true_executable(specimen)).components[str(component)]
        assert (found.crossed, found.inert) == (reason == "position_only", reason == "constant")
        assert (found.iia is None) == found.inert
        nothing = graded(specimen, None).components[str(component)]
        assert (nothing.crossed, nothing.inert) == (found.crossed, found.inert)


def test_one_wrong_table_entry_costs_what_it_touches() -> None:
    """increment with one of 11 entries wrong: about a tenth of the positions, and most sequences hold one."""
    right = true_executable("60")
    program = copy.deepcopy(right.program)
    table = next(entry["table"] for entry in program["variables"] if "table" in entry)
    table[3][-1] = table[4][-1]
    found = graded("60", Executable(program=program, carriers=right.carriers))
    score = found.components["L0_MLP"]
    assert score.iia == pytest.approx(10 / 11, abs=0.03)
    assert score.iia_changed is not None
    assert score.iia_changed < 0.95
    # A sequence is right with chance (10/11) ** length, length uniform from the shortest to 9.
    shortest = graded_specimen("60").vocabulary.min_len
    lengths = range(shortest, 10)
    assert found.task_agreement == pytest.approx(sum((10 / 11) ** k for k in lengths) / len(lengths), abs=0.07)
    assert not found.task_exact


@pytest.mark.slow
def test_a_wrong_carrier_costs_and_a_missing_one_counts_as_zero() -> None:
    right = true_executable("4")
    names = list(right.carriers)
    swapped = dict(zip(names, [right.carriers[name] for name in [*names[1:], names[0]]], strict=True))
    wrong = graded("4", Executable(program=right.program, carriers=swapped))
    assert wrong.task_exact
    assert all((score.iia_changed or 0) < 0.8 for score in wrong.components.values())
    missing = graded("4", Executable(program=right.program, carriers={names[0]: right.carriers[names[0]]}))
    assert (missing.components[names[0]].iia or 0) >= 0.99
    for name in names[1:]:
        score = missing.components[name]
        assert (score.iia, score.iia_changed, score.inert) == (0.0, 0.0, False)
        assert score.reason == "nothing is said to be carried"
    unknown = graded("4", Executable(program=right.program, carriers={**right.carriers, names[1]: ("nosuch",)}))
    assert unknown.components[names[1]].iia == 0.0
    assert "nosuch" in unknown.components[names[1]].reason


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"schema": 7}, "schema"),
        ({"variables": {}}, "variables must be a list"),
        ({"vocab": ["a", "x"]}, "not in the vocabulary"),
        ({"max_len": 2}, "tokens; 1 to 2 are allowed"),
    ],
)
def test_a_program_that_cannot_be_read_scores_zero(changes: dict[str, Any], reason: str) -> None:
    found = graded("3", edited(true_executable("3"), **changes))
    assert (found.task_agreement, found.task_exact) == (0.0, False)
    for score in found.components.values():
        assert (score.iia, score.iia_changed) == (0.0, 0.0)
        assert reason in score.reason


def test_no_program_scores_zero_and_foreign_notations_are_read() -> None:
    assert [score.iia for score in graded("3", None).components.values()] == [0.0, 0.0]
    right = true_executable("3")
    carriers = {Component.parse(name).format("hook"): carried for name, carried in right.carriers.items()}
    found = graded("3", Executable(program=right.program, carriers=carriers))
    assert all((score.iia or 0) >= 0.99 for score in found.components.values())


def test_components_missed_count_as_wrong_and_extra_ones_apart() -> None:
    """What discovery did not find has no tag and no variable; what it found too much is only listed."""
    whole = truth("3")
    assert whole.executable is not None
    first, second = whole.components
    other = second.model_copy(update={"id": "L1H0"})
    kept = {first.id: whole.executable.carriers[first.id]}
    partial = whole.model_copy(
        update={"components": (first, other), "executable": whole.executable.model_copy(update={"carriers": kept})}
    )
    graded = grade_circuit(partial)
    assert (graded.missed, graded.extra) == ((second.id,), ("L1H0",))
    assert graded.own.tags_right == 1
    assert graded.own.program is not None
    assert (graded.own.program.components[first.id].iia, graded.own.program.components[second.id].iia) == (1.0, 0.0)
    assert set(graded.own.tags) == {first.id, second.id}
    complete = grade_circuit(whole)
    assert (complete.missed, complete.extra) == ((), ())


def test_grading_inputs_are_nobody_elses() -> None:
    assert abs(GRADING_SEED - CLAIM_SEED) > 1_000_000
    assert fresh_seed(0) == GRADING_SEED
    assert all(abs(fresh_seed(seed) - seed) >= 1_000_000 for seed in (GRADING_SEED, GRADING_SEED - 999_999, 10_000_000))
    specimen = graded_specimen("3")
    assert specimen.sample(50, GRADING_SEED) != specimen.sample(50, CLAIM_SEED)


@pytest.mark.slow
def test_grade_gives_tags_and_programs_together() -> None:
    found = grade([truth("3"), truth("8")])
    assert found.task_exact is not None
    assert (found.task_exact.value, found.task_exact.n) == (1.0, 2)
    assert found.component_iia is not None
    assert (found.component_iia.value, found.component_iia.n) == (1.0, 3)
    assert found.tag_accuracy.value == 1.0
    without = grade(explained("8", executable=None))
    assert without.component_iia_changed is not None
    assert (without.component_iia_changed.value, without.component_iia_changed.n) == (0.0, 1)
    assert grade(truth("3"), programs=False).component_iia is None
