"""Diagnostics of traces, by hand."""

import pytest

from vesalius.documents.metric import Metric
from vesalius.documents.trace import Attempt, ComponentTrace, Execution, Stage, Trace
from vesalius_truth.grading.circuits import (
    convergence,
    error_categories,
    success_by_stage,
    trace_metrics,
)


def runs(stage: Stage, *categories: str | None) -> tuple[Execution, ...]:
    return tuple(Execution(stage=stage, code="result = 1", category=category) for category in categories)


def resolved(name: str, at: int | None, *, executions: tuple[Execution, ...] = ()) -> ComponentTrace:
    """A component whose hypotheses are refuted until iteration `at`, or all three of them."""
    attempts = [
        Attempt(iteration=step, hypothesis="h", verdict="supported" if step == at else "refuted")
        for step in range(1, (at or 3) + 1)
    ]
    last = attempts[-1].model_copy(update={"executions": runs("validate", None)})
    return ComponentTrace(component=name, observation="o", executions=executions, attempts=(*attempts[:-1], last))


def trace(*components: ComponentTrace) -> Trace:
    return Trace(specimen="3", protocol="paper", backbone="x:y", components=components)


#: Executions: 2 of 4 succeed in the first circuit, 3 of 5 in the second.
TRACES = [
    trace(resolved("L0_MLP", 1, executions=runs("observe", None, "tensor shape", "missing result"))),
    trace(
        resolved("L0_MLP", 2, executions=runs("observe", None, "tensor shape")),
        resolved("L1H0", None),
        ComponentTrace(component="L1_MLP", observation="", executions=runs("observe", "api")),
    ),
]


def test_execution_success_counts_every_execution() -> None:
    made = trace_metrics(TRACES)
    assert made["execution_success"] == Metric.of_circuits([2, 3], [4, 5])
    assert made["execution_success"].value == pytest.approx(5 / 9)
    by_stage = success_by_stage(TRACES)
    assert {stage: (metric.value, metric.n) for stage, metric in by_stage.items()} == {
        "observe": (pytest.approx(2 / 6), 6),
        "validate": (1.0, 3),
    }


def test_error_categories_are_shares_of_failures() -> None:
    found = error_categories(TRACES)
    assert list(found) == ["tensor shape", "api", "missing result"]
    assert [(metric.value, metric.n) for metric in found.values()] == [(0.5, 4), (0.25, 4), (0.25, 4)]
    assert error_categories([trace(resolved("L0_MLP", 1))]) == {}


def test_convergence_by_iteration() -> None:
    found = convergence(TRACES)
    assert {name: metric.value for name, metric in found.items()} == {"1": 0.25, "2": 0.25, "3": 0.0, "unresolved": 0.5}
    assert {metric.n for metric in found.values()} == {4}
    assert trace_metrics(TRACES)["convergence"] == Metric.of_circuits([1, 1], [1, 3])


def test_a_longer_budget_shows() -> None:
    found = convergence([trace(resolved("L0_MLP", 5))])
    assert [name for name, metric in found.items() if metric.value] == ["5"]
    assert list(found) == ["1", "2", "3", "4", "5", "unresolved"]


def test_where_no_code_ran_nothing_is_said_about_it() -> None:
    silent = trace(ComponentTrace(component="L0_MLP", observation=""))
    assert set(trace_metrics([silent])) == {"convergence"}
    assert trace_metrics([]) == {}
    assert success_by_stage([silent]) == {}
