"""How explanations came about, counted from their traces: did the code run, how did it fail, when did it converge.

The shares are over everything of all circuits; their intervals resample circuits, since what goes wrong in one
circuit goes wrong together. The names of the failure categories are those the agent wrote down.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar, get_args

from vesalius.documents.metric import Metric
from vesalius.documents.trace import ComponentTrace, Execution, Stage, Trace

#: The published budget: iterations of hypothesis and validation per component.
BUDGET = 3
UNRESOLVED = "unresolved"
Thing = TypeVar("Thing")


def trace_metrics(traces: Sequence[Trace]) -> dict[str, Metric]:
    """The two metrics of a scorecard: `execution_success`, the share of code executions that ran and gave a result, and
    `convergence`, the share of components on which some hypothesis was supported. Each is left out where there is
    nothing to count.
    """
    executions = [list(_executions(trace)) for trace in traces]
    components = [trace.components for trace in traces]
    made = {
        "execution_success": _share(executions, lambda execution: execution.succeeded),
        "convergence": _share(components, lambda component: component.resolved_at is not None),
    }
    return {name: metric for name, metric in made.items() if metric.n}


def success_by_stage(traces: Sequence[Trace]) -> dict[Stage, Metric]:
    """The share of executions that succeeded, for every stage in which code was run."""
    by_stage: dict[Stage, Metric] = {}
    for stage in get_args(Stage):
        executions = [[run for run in _executions(trace) if run.stage == stage] for trace in traces]
        if any(executions):
            by_stage[stage] = _share(executions, lambda execution: execution.succeeded)
    return by_stage


def error_categories(traces: Sequence[Trace]) -> dict[str, Metric]:
    """Of the executions that failed, the share of each category, the commonest first; `n` is the number of failures."""
    failed = [[run for run in _executions(trace) if not run.succeeded] for trace in traces]
    names = {run.category for runs in failed for run in runs if run.category is not None}
    shares = {name: _share(failed, lambda run, name=name: run.category == name) for name in names}
    return dict(sorted(shares.items(), key=lambda pair: (-(pair[1].value or 0.0), pair[0])))


def convergence(traces: Sequence[Trace], *, budget: int = BUDGET) -> dict[str, Metric]:
    """The share of components resolved at iteration `"1"`, `"2"`, ... and left `"unresolved"`; the shares sum to 1.

    Iterations beyond `budget` are listed where a trace has any that resolved a component.
    """
    components = [trace.components for trace in traces]
    resolved = [part.resolved_at for parts in components for part in parts if part.resolved_at is not None]
    places: list[int | None] = [*range(1, max([budget, *resolved]) + 1), None]

    def at(place: int | None) -> Callable[[ComponentTrace], bool]:
        return lambda component: component.resolved_at == place

    return {UNRESOLVED if place is None else str(place): _share(components, at(place)) for place in places}


def _executions(trace: Trace) -> Iterable[Execution]:
    for component in trace.components:
        yield from component.executions
        for attempt in component.attempts:
            yield from attempt.executions


def _share(circuits: Sequence[Sequence[Thing]], holds: Callable[[Thing], bool]) -> Metric:
    totals = [sum(map(holds, things)) for things in circuits]
    return Metric.of_circuits(totals, [len(things) for things in circuits])
