"""The answer on circuits with known truth: a handful of the cases that `benchmarks/answers.py` counts."""

from dataclasses import replace

import pytest
from benchmarks.answers import (
    Case,
    Subject,
    empty_case,
    few_case,
    given_cases,
    kept_by,
    memorised_case,
    search_case,
    table,
)

import vesalius as ves
from vesalius.behaviours.trial import trial
from vesalius.components import Component
from vesalius.discovery.whole import RANDOM_CIRCUITS, random_circuits
from vesalius_truth.grading.discovery import true_circuit


def subject(name: str) -> Subject:
    return Subject(name, 1, ves.load(name), true_circuit(name).components)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["frac_prevs", "sum_digits", "clip"])
def test_a_true_circuit_is_one_and_neither_half_of_it_nor_a_random_set_is(name: str) -> None:
    one = subject(name)
    cases = list(given_cases(one, trial(one.specimen, 256, seed=11)))
    assert {case.kind for case in cases} >= {"true circuit", "half a circuit"}
    assert all(case.right is not False for case in cases), [case.text for case in cases]


def test_a_search_says_yes_and_what_it_found_keeps_the_share_on_fresh_inputs() -> None:
    one = subject("frac_prevs")
    (case,) = search_case(one, trial(one.specimen, 256, seed=11))
    assert case.verdict == "yes"
    assert case.kept is not None
    assert case.kept >= 0.8


@pytest.mark.slow
def test_two_or_three_prompts_are_too_few_for_a_yes() -> None:
    one = subject("sum_digits")
    for number in (1, 2):
        (case,) = few_case(replace(one, number=number), trial(one.specimen, 64, seed=11))
        assert case.verdict != "yes"
        assert "too few" in case.text or case.verdict == "refused"


def test_counterfactuals_with_the_same_outputs_are_refused() -> None:
    one = subject("count")
    (case,) = empty_case(one, trial(one.specimen, 16))
    assert case.verdict == "refused"
    assert "empty" in case.text


@pytest.mark.slow
def test_a_ranking_at_random_is_no_yes_unless_it_keeps_the_share() -> None:
    one = subject("reverse")
    (case,) = memorised_case(one, trial(one.specimen, 128, seed=11))
    assert case.verdict != "yes" or (case.kept is not None and case.kept >= 0.8)


def test_truth_is_nothing_for_no_component_and_all_for_all() -> None:
    specimen = ves.load("frac_prevs")
    assert kept_by(specimen, trial(specimen, 64), [[], specimen.model.components]) == pytest.approx([0.0, 1.0])


def test_random_circuits_are_others_even_where_all_mlps_belong_to_the_circuit() -> None:
    parts = [*(Component(layer, head) for layer in range(3) for head in range(4)), *(Component(i) for i in range(3))]
    circuit = {Component(0), Component(1), Component(2), Component(0, 0)}
    drawn = random_circuits(parts, circuit, seed=0)
    assert len(drawn) == RANDOM_CIRCUITS
    assert all(len(one) == len(circuit) and len(one & circuit) <= 2 for one in drawn)
    assert random_circuits(parts, parts, seed=0) == []


def test_cases_too_close_to_call_are_counted_apart() -> None:
    told = [
        Case("search", "a", "reported", "yes", ("yes",), 0.9, ""),
        Case("search", "b", "reported", "partly", ("yes",), 0.9, ""),
        Case("search", "c", "reported", "yes", None, 0.75, ""),
    ]
    row = next(row for row in table(told) if (row["half"], row["kind"]) == ("reported", "search"))
    assert (row["right"], row["n"], row["left_out"]) == (1, 2, 1)
