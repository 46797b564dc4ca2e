"""One circuit graded, and many circuits summed up.

`grade_circuit` gives every figure of one explanation beside those of its nulls; `circuit_metrics` makes the metrics of
a scorecard out of many. Both are plain data, so that a run can write them down and sum up later.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field

from vesalius.documents.base import FrozenDict, FrozenMap, ShownDocument
from vesalius.documents.explanation import Explanation
from vesalius.documents.metric import Metric, metric_facts, metric_sheet
from vesalius.documents.scorecard import HEADLINES, Baseline
from vesalius.documents.trace import ComponentTrace, Execution, Stage, Trace
from vesalius.documents.view import Answer, View
from vesalius.errors import BadInput
from vesalius_truth.grading.keys import graded_specimen, second_tags, true_tags
from vesalius_truth.grading.programs import GOOD_FROM, ComponentScore, Grader, ProgramGrade, fresh_seed
from vesalius_truth.grading.tags import TagRow, always, empty, generic, mixed, tag_metrics, tag_rows, turned_wrong

#: Tag accuracy of the best language-model agent in the paper that published the benchmark; not measured here.
PUBLISHED_AGENT = 0.79


class Graded(BaseModel):
    """Tags and program of one explanation, component by component.

    `alike` is for nulls: components of which the null predicts exactly what the explanation it was made from predicts.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    tags: dict[str, TagRow]
    program: ProgramGrade | None
    alike: tuple[str, ...] = ()

    @property
    def tags_right(self) -> int:
        """Components with the right tag."""
        return sum(row["tag"] == row["true"] for row in self.tags.values())

    @property
    def scores(self) -> list[ComponentScore]:
        """The components that some interchange shows."""
        return [] if self.program is None else [score for score in self.program.components.values() if not score.inert]

    def graded_instead(self, by: Callable[[], ProgramGrade]) -> "Graded":
        """The same with the components in `alike`, if there are any, graded by another program."""
        if not self.alike:
            return self
        assert self.program is not None
        other = by()
        parts = self.program.components | {name: other.components[name] for name in self.alike}
        return self.model_copy(update={"program": self.program.model_copy(update={"components": parts})})


class CircuitGrade(BaseModel):
    """An explanation and its nulls, graded alike.

    `missed` are components of the key that are not explained: they count as wrong. `extra` are components explained
    that are not in the key: they count nowhere else.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    own: Graded
    nulls: dict[str, Graded]
    missed: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()


class Grade(ShownDocument):
    """The metrics of one explanation or of many, and what they rest on. Program metrics are None if not asked for."""

    SCHEMA = 1
    REMEDY = "grade again with ves.grade"

    schema_version: Literal[1] = Field(default=1, alias="schema")
    tag_accuracy: Metric
    tag_accuracy_experiment_only: Metric
    tag_accuracy_supported: Metric
    tag_accuracy_either_reading: Metric | None = None
    tag_accuracy_one_reading: Metric | None = None
    tag_accuracy_by_model: Metric | None = None
    component_iia: Metric | None = None
    component_iia_changed: Metric | None = None
    component_iia_changed_mean: Metric | None = None
    task_exact: Metric | None = None
    components: FrozenMap[str, TagRow]
    programs: FrozenMap[str, ProgramGrade] = FrozenDict()

    @property
    def metrics(self) -> dict[str, Metric]:
        """Every metric that was asked for."""
        named = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: value for name, value in named.items() if isinstance(value, Metric)}

    def view(self) -> View:
        """Every metric."""
        right = sum(row["tag"] == row["true"] for row in self.components.values())
        return View(
            f"Grade of {len(self.components)} components",
            Answer(f"Grade of {len(self.components)} components, {right} tags right"),
            [metric_facts(self.metrics, first=HEADLINES), metric_sheet(self.metrics, title="Metrics")],
        )


def grade(
    explanations: Explanation | Iterable[Explanation],
    *,
    directory: Path | str | None = None,
    programs: bool = True,
) -> Grade:
    """Grade explanations against the answer key and, with `programs`, their executables against the model.

    Benchmark circuits are found by their id. For a specimen made by `vesalius train`, `directory` is its place; for an
    original InterpBench model its folder, with its published annotation in `annotations/` beside it. A missing
    component counts as wrong, a missing program as 0.
    """
    if not isinstance(explanations, Iterable):  # an explanation is iterable, as all documents are
        raise BadInput(f"{type(explanations).__name__} is not an explanation; grade what ves.explain returned")
    given = [explanations] if isinstance(explanations, Explanation) else list(explanations)
    if strange := [one for one in given if not isinstance(one, Explanation)]:
        raise BadInput(f"{type(strange[0]).__name__} is not an explanation; grade what ves.explain returned")
    if not given:
        raise BadInput("there is no explanation to grade; give at least one")
    place = None if directory is None else Path(directory)
    graded = [_graded(explanation, place, programs=programs) for explanation in given]
    metrics = circuit_metrics(graded)
    pairs = list(zip(given, graded, strict=True))
    return Grade(
        **{name: metric for name, metric in metrics.items() if name in Grade.model_fields},  # type: ignore[arg-type]
        components={f"{e.specimen}/{component}": row for e, g in pairs for component, row in g.tags.items()},
        programs={e.specimen: g.program for e, g in pairs if g.program is not None},
    )


def grade_circuit(
    explanation: Explanation,
    *,
    donor: Explanation | None = None,
    directory: Path | None = None,
    annotation: Path | None = None,
) -> CircuitGrade:
    """One explanation and its nulls; `donor` is what `nulls.donor_of` found, `annotation` the key of an original."""
    truth = true_tags(explanation.specimen, directory, annotation)
    second = None if annotation is not None else second_tags(explanation.specimen, directory)
    grader = Grader(graded_specimen(explanation.specimen, directory), seed=fresh_seed(explanation.seed))

    def graded(given: Explanation) -> Graded:
        alike = () if given is explanation else grader.alike(given.executable, explanation.executable)
        return Graded(tags=tag_rows(given, truth, second), program=grader.grade(given.executable), alike=alike)

    mixed_up = graded(mixed(explanation, donor=donor, seed=explanation.seed))
    nulls = {
        "shuffled": mixed_up.graded_instead(lambda: grader.grade(turned_wrong(explanation.executable))),
        "mixed": mixed_up,
        "empty": graded(empty(explanation)),
        "generic": graded(generic(explanation)),
    }
    explained = [part.id for part in explanation.components]
    return CircuitGrade(
        own=graded(explanation),
        nulls=nulls,
        missed=tuple(part for part in truth if part not in explained),
        extra=tuple(part for part in explained if part not in truth),
    )


def circuit_metrics(graded: Sequence[Graded], *, null: Sequence[Graded] = ()) -> dict[str, Metric]:
    """The metrics of a scorecard over many circuits; `null`, the shuffled explanations, gives the baselines."""
    made = tag_metrics([list(one.tags.values()) for one in graded])
    if any(one.program is None for one in graded):
        return made
    made |= interchange_metrics(graded, null=null)
    exact = [one.program is not None and one.program.task_exact for one in graded]
    return {**made, "task_exact": Metric.of_share(sum(exact), len(exact))}


def interchange_metrics(graded: Sequence[Graded], *, null: Sequence[Graded] = ()) -> dict[str, Metric]:
    """Interchange accuracy over the components that interchange shows, and how far it lies above chance."""

    def mean(measure: Callable[[ComponentScore], float], *, smallest: float = 0.0) -> Metric:
        def over(circuits: Sequence[Graded], baseline: float | None) -> Metric:
            totals = [sum(map(measure, one.scores)) for one in circuits]
            return Metric.of_circuits(
                totals, [len(one.scores) for one in circuits], baseline=baseline, smallest=smallest
            )

        return over(graded, over(null, None).value if null else None)

    return {
        "component_iia": mean(lambda score: score.iia or 0.0),
        "component_iia_changed": mean(lambda score: float((score.iia_changed or 0.0) >= GOOD_FROM)),
        "component_iia_changed_mean": mean(lambda score: score.iia_changed or 0.0),
        "component_iia_above_chance": mean(lambda score: (score.iia or 0.0) - (score.chance or 0.0), smallest=-1.0),
        "component_iia_changed_above_chance": mean(
            lambda score: (score.iia_changed or 0.0) - (score.chance_changed or 0.0), smallest=-1.0
        ),
    }


def localisation_metrics(graded: Sequence[CircuitGrade]) -> dict[str, Metric]:
    """How well discovered circuits fit those of the key: share of the key's components found, share found that are in
    the key.
    """
    counts = [len(one.own.tags) - len(one.missed) for one in graded]
    recall = Metric.of_circuits(counts, [len(one.own.tags) for one in graded])
    precision = Metric.of_circuits(counts, [n + len(one.extra) for n, one in zip(counts, graded, strict=True)])
    return {"circuit_recall": recall, "circuit_precision": precision}


def null_metrics(null: Sequence[Graded]) -> dict[str, Metric]:
    """What a null explanation earns, over every component that interchange shows."""
    return {"tag_accuracy": circuit_metrics(null)["tag_accuracy"], **interchange_metrics(null)}


def tag_baselines(graded: Sequence[Graded]) -> tuple[Baseline, ...]:
    """Every figure a tag accuracy should be read beside."""
    rows = [list(one.tags.values()) for one in graded]
    by_kind = tag_metrics(rows)["tag_accuracy"].baseline
    return (
        Baseline(name="by_kind", value=by_kind, source="every head AGGREGATOR, every MLP MAPPER; measured here"),
        Baseline(name="always_MAPPER", value=always("MAPPER", rows), source="measured here"),
        Baseline(
            name="best_published_agent",
            value=PUBLISHED_AGENT,
            source="published for the best language-model agent on the 84 original circuits; not measured here",
        ),
    )


def _graded(explanation: Explanation, directory: Path | None, *, programs: bool) -> Graded:
    tags = tag_rows(
        explanation, true_tags(explanation.specimen, directory), second_tags(explanation.specimen, directory)
    )
    if not programs:
        return Graded(tags=tags, program=None)
    grader = Grader(graded_specimen(explanation.specimen, directory), seed=fresh_seed(explanation.seed))
    return Graded(tags=tags, program=grader.grade(explanation.executable))


# How explanations came about, counted from their traces: did the code run, how did it fail, when did it converge.
#
# The shares are over everything of all circuits; their intervals resample circuits, since what goes wrong in one
# circuit goes wrong together. The names of the failure categories are those the agent wrote down.

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
