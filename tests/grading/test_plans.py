"""Plans tried where their hypotheses are wrong: worlds that are what they say, and outcomes told apart by the rule."""

from dataclasses import replace
from typing import Any

import pytest
import torch

import vesalius as ves
from vesalius.components import Component
from vesalius.documents.trace import Attempt, ComponentTrace, Execution, Trace
from vesalius.model.specimen import Specimen
from vesalius_truth.grading.plans import (
    PlanTest,
    outputs_of,
    plan_metrics,
    planted_worlds,
    programs_of,
    same_outcome,
    stilled,
    try_plans,
    with_heads_swapped,
    with_tokens_swapped,
)

MLP, HEAD = Component(0), Component(1, 2)


@pytest.fixture(scope="module")
def specimen() -> Specimen:
    return ves.load("frac_prevs")


def test_a_stilled_component_gives_one_output_and_the_model_loses_its_task(specimen: Specimen) -> None:
    inputs = specimen.sample(32, 5)
    for component in (MLP, HEAD):
        still = type(specimen)(**{**vars(specimen), "model": stilled(specimen, component)})
        outputs = torch.tensor([value for row in still.predict(inputs) for value in row])
        assert float(outputs.std()) < 0.05  # whatever the input, nearly one number
        if component == MLP:
            assert torch.allclose(outputs_of(still, MLP, inputs).std(0), torch.zeros(()), atol=1e-6)


def test_swapped_heads_change_the_component_but_not_the_model(specimen: Specimen) -> None:
    inputs = specimen.sample(32, 5)
    other = type(specimen)(**{**vars(specimen), "model": with_heads_swapped(specimen.model, HEAD, Component(1, 0))})
    assert torch.allclose(specimen.model(specimen.tokenize(inputs)), other.model(specimen.tokenize(inputs)), atol=1e-5)
    assert torch.allclose(outputs_of(other, HEAD, inputs), outputs_of(specimen, Component(1, 0), inputs), atol=1e-6)
    again = with_heads_swapped(other.model, HEAD, Component(1, 0))
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), specimen.model.parameters(), strict=True))


def test_a_renamed_token_is_taken_for_the_other(specimen: Specimen) -> None:
    tokens = specimen.vocabulary.tokens  # type: ignore[attr-defined]
    a, x = tokens.index("a"), tokens.index("x")
    other = type(specimen)(**{**vars(specimen), "model": with_tokens_swapped(specimen.model, a, x)})
    assert other.predict([["a", "b", "x"]]) == specimen.predict([["x", "b", "a"]])


def test_which_worlds_there_are_follows_from_what_the_hypothesis_quotes(specimen: Specimen) -> None:
    def worlds(component: Component, hypothesis: str) -> dict[str, bool]:
        return {one.world: one.wrong for one in planted_worlds(specimen, component, hypothesis)}

    assert worlds(MLP, "It detects 'x'.") == {"still": True, "renamed": True, "alike": False, "redrawn": False}
    assert worlds(HEAD, "It averages what L0_MLP wrote.") == {
        "still": True,
        "swapped": True,
        "alike": False,
        "redrawn": False,
    }
    # 'a' and 'b' are alike to it, so that only exchanging 'x' makes a hypothesis about both of them wrong.
    (named,) = [one for one in planted_worlds(specimen, MLP, "It detects 'a' or 'b'.") if one.world == "renamed"]
    assert named.specimen.predict([["x"]]) == [[pytest.approx(0.0, abs=0.05)]]


def test_a_hypothesis_is_wrong_only_where_the_component_gives_something_else(specimen: Specimen) -> None:
    """Of a head that writes a constant nothing is taken when it writes its mean, nor by a head of the same weights."""
    alike = with_heads_swapped(specimen.model, HEAD, Component(1, 0))
    with torch.no_grad():
        for head in range(alike.config.n_heads):
            for name in ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V"):
                weights = getattr(alike.blocks[1].attn, name)
                weights[head] = weights[HEAD.head]
    worlds = planted_worlds(replace(specimen, model=alike), HEAD, "It averages.")
    assert {one.world for one in worlds if one.wrong} == {"still"}
    silent = replace(specimen, model=stilled(specimen, HEAD))
    for head in range(silent.model.config.n_heads):
        silent = replace(silent, model=stilled(silent, Component(1, head)))
    assert not [one for one in planted_worlds(silent, HEAD, "It averages.") if one.wrong]


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        (0.97, 0.9, True),
        (1.0, 0.5, False),
        (0.5, 1.0, False),
        (1, 2, False),
        (2, 1, True),
        (1, 1.05, True),
        (float("nan"), float("nan"), True),
        (float("inf"), float("inf"), True),
        (float("nan"), 0.5, False),
        ("acc 0.912, L0H3", "acc 0.911, L0H3", True),
        ("acc 0.912, L0H3", "acc 0.911, L0H4", False),
        ("acc 91.2%", "acc 48 %", False),
        ("855 of 900", "600 of 900.", False),
        ("855 of 900.", "600 of 900.", True),
        ("nan", "nan", True),
        (0.02, 0.09, True),
        (855, 600, True),
        (True, False, False),
        (True, 1, True),
        ("yes", "no", False),
        (None, None, True),
        ({"effect": 1.0}, {"effect": 0.9}, True),
        ({"effect": 1.0}, {"other": 1.0}, False),
        ([1.0, 0.5], [1.0], False),
        ([[1.0], {"a": [0.0]}], [[1.0], {"a": [0.3]}], False),
    ],
)
def test_when_outcomes_are_the_same(before: Any, after: Any, same: bool) -> None:
    assert same_outcome(before, after) is same


def attempt(code: str, **changes: Any) -> Attempt:
    execution = Execution(stage="validate", code=code, result="1")
    given = {"verdict": "supported", "decided_by": "model", "executions": (execution,), **changes}
    return Attempt(iteration=1, hypothesis="L0_MLP detects 'x'.", **given)


def test_only_programs_that_an_agent_read_as_support_are_tried() -> None:
    assert programs_of(attempt("result = 1")) == ["result = 1"]
    assert programs_of(attempt("result = 1", verdict="refuted")) == []
    assert programs_of(attempt("result = 1", decided_by="engine")) == []


@pytest.mark.slow
def test_a_plan_that_looks_at_the_component_has_power_and_one_that_does_not_has_none(specimen: Specimen) -> None:
    # Against one token alone it could not tell a detector of 'x' from one of that token: both change places.
    exchange = "result = [patch('L0_MLP', ['x'], [other])['effect'] or 0.0 for other in ('a', 'b', 'c')]"
    parts = tuple(
        ComponentTrace(component="L0_MLP", observation="", attempts=(attempt(code),))
        for code in (exchange, "result = len(vocab)", "result = 1 / (model.W_E[0, 0].item() != 7) / len(inputs)")
    )
    tests = try_plans(Trace(specimen="3", protocol="paper", backbone="m", components=parts), specimen)
    count = len(tests) // 3
    by_plan = [tests[start : start + count] for start in range(0, len(tests), count)]
    assert {one.world for one in by_plan[0]} == {"still", "renamed", "alike", "redrawn"}
    assert all((one.outcome == "changed") is one.wrong for one in by_plan[0])
    for blind in by_plan[1:]:
        assert {one.outcome for one in blind} == {"same"}


def test_the_figures_by_hand() -> None:
    def row(wrong: bool, outcome: str) -> PlanTest:
        return PlanTest.model_validate(
            {"component": "L0_MLP", "iteration": 1, "world": "still", "wrong": wrong, "outcome": outcome}
        )

    metrics = plan_metrics(
        [
            [row(True, "changed"), row(True, "same"), row(False, "same")],
            [row(True, "changed"), row(True, "failed"), row(False, "changed")],
        ]
    )
    assert {name: (metric.value, metric.n) for name, metric in metrics.items()} == {
        "plan_power": (0.5, 4),
        "plan_acceptance": (0.5, 2),
        "plan_undecided": (pytest.approx(1 / 6), 6),
    }
    assert plan_metrics([[], []]) == {}
