"""The scorecard of a run, from the ledger and the files of explanations and traces alone.

Circuits are taken in the order of the benchmark, so nothing depends on who finished first. A metric carries its `n` and
`n_error`: circuits that the machinery failed on are counted there and are in no figure.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from vesalius.documents.metric import Metric
from vesalius.documents.scorecard import CircuitRow, InertComponents, NullFigures, Scorecard
from vesalius.errors import BadInput, Failed
from vesalius.runs.directory import Run
from vesalius.runs.ledger import LedgerState, LedgerStep, Record
from vesalius.runs.steps import mean, rounded_card
from vesalius_backbones.runs.usage import call_totals, model_name
from vesalius_bench.circuits.selection import CircuitCase
from vesalius_bench.circuits.settings import BENCHMARK, BenchmarkSettings
from vesalius_bench.circuits.work import judging_errors
from vesalius_bench.judges import JudgedCircuit, judged_metrics
from vesalius_truth.grading.circuits import (
    CircuitGrade,
    circuit_metrics,
    localisation_metrics,
    null_metrics,
    tag_baselines,
)
from vesalius_truth.grading.programs import fresh_seed
from vesalius_truth.grading.tags import NULLS

# What the ledger of the circuits benchmark says: which circuits are explained, graded and judged.

EXPLAIN, GRADE, JUDGE = "explain", "grade", "judge"


class State(LedgerState):
    """The state of the circuits benchmark."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        super().__init__(
            [
                LedgerStep(EXPLAIN, "explained", lambda record: bool(record.get("traced"))),
                LedgerStep(GRADE, "graded", _grade),
                LedgerStep(JUDGE, "judged", lambda record: record["judged"]),
            ],
            records,
        )

    @property
    def explained(self) -> Mapping[str, bool]:
        """The cases that are explained, and whether a trace of the explanation was kept."""
        return self.results[EXPLAIN]

    @property
    def graded(self) -> Mapping[str, tuple[CircuitGrade, float]]:
        """The grade of each case, and the seconds that grading took."""
        return self.results[GRADE]

    @property
    def judged(self) -> Mapping[str, dict[str, Any]]:
        """What the judges said, as data of a `JudgedCircuit`."""
        return self.results[JUDGE]

    def settled(self, case: str) -> bool:
        """Whether a case is judged without an error of the machinery."""
        return case in self.judged and next(judging_errors(self.judged[case]), None) is None


def _grade(record: Record) -> tuple[CircuitGrade, float]:
    return CircuitGrade.model_validate(record["grade"]), record["seconds"]


def circuits_scorecard(run: Run, settings: BenchmarkSettings, state: State) -> Scorecard:
    """The figures of a run; refused where no circuit could be graded."""
    grades = {c.id: state.graded[c.id][0] for c in settings.circuits if c.id in state.graded}
    if not grades:
        raise Failed(f"{run.directory}: no circuit could be explained and graded; the first: {state.first_failure}")
    rows = tuple(_row(run, settings, state, c) for c in settings.circuits if c.id in grades)
    own = [grade.own for grade in grades.values()]
    nulls = {name: [grade.nulls[name] for grade in grades.values()] for name in NULLS}
    n_error = len(settings.circuits) - len(grades)
    metrics = _with_errors(circuit_metrics(own, null=nulls["shuffled"]), n_error)
    sections = (
        _localisation(settings, grades, metrics) | _judgements(settings, state, metrics) | _traces(run, grades, metrics)
    )
    card = Scorecard(
        benchmark=BENCHMARK,
        subject=settings.scientist,
        request=settings.request(),
        seed=settings.seed,
        grading_seed=fresh_seed(settings.seed),
        leave_out=settings.leave_out,
        n=len(grades),
        n_error=n_error,
        errors=state.errors,
        metrics=metrics,
        baselines={"tag_accuracy": tag_baselines(own)},
        nulls={
            name: NullFigures(**null_metrics(circuits), alike=sum(len(circuit.alike) for circuit in circuits))
            for name, circuits in nulls.items()
        },
        inert=_inert(grades),
        specimens=rows,
        cost=state.total().cost if settings.models else sum(row.cost or 0.0 for row in rows),
        seconds=sum(row.seconds for row in rows),
        **_models(settings, state),
        **sections,
    )
    return rounded_card(card)


def _models(settings: BenchmarkSettings, state: State) -> dict[str, Any]:
    """Which language models took part, and what they used."""
    sections: dict[str, Any] = {}
    if settings.backbone:
        sections |= {"backbone": model_name(settings.backbone), "protocol": settings.protocol}
    if settings.prompts:
        sections["own_prompts"] = settings.prompt_sums
    if settings.judges:
        sections["judges"] = tuple(model_name(judge) for judge in settings.judges)
    if settings.models:
        sections["usage"] = {
            "scientist": call_totals(state.total(EXPLAIN)),
            "judges": call_totals(state.total(JUDGE)),
        }
    return sections


def _localisation(
    settings: BenchmarkSettings, grades: Mapping[str, CircuitGrade], metrics: dict[str, Metric]
) -> dict[str, Any]:
    """How well the discovered circuits fit, where circuits were discovered."""
    if settings.circuit_from is None:
        return {}
    n_error = metrics["tag_accuracy"].n_error or 0
    metrics |= _with_errors(localisation_metrics(list(grades.values())), n_error)
    return {
        "circuit_from": settings.circuit_from,
        "missed": tuple(f"{case}/{part}" for case, grade in grades.items() for part in grade.missed),
        "extra": tuple(f"{case}/{part}" for case, grade in grades.items() for part in grade.extra),
    }


def _judgements(settings: BenchmarkSettings, state: State, metrics: dict[str, Metric]) -> dict[str, Any]:
    """What the judges say, over the circuits they judged; also how many hypotheses they found grounded how well."""
    data = [state.judged[c.id] for c in settings.circuits if c.id in state.judged]
    if not data:
        return {}
    circuits = [JudgedCircuit.model_validate(each) for each in data]
    metrics |= judged_metrics(circuits)
    grounding = [item.score for circuit in circuits for item in circuit.items if item.measure == "grounding"]
    scored = [score for score in grounding if score is not None]
    if not scored:
        return {}
    return {"grounding_levels": {str(level): scored.count(level) / len(scored) for level in (2, 1, 0)}}


def _traces(run: Run, cases: Mapping[str, CircuitGrade], metrics: dict[str, Metric]) -> dict[str, Any]:
    """What the traces say: did the code run, how did it fail, when were hypotheses supported."""
    traces = [trace for case in cases if (trace := run.trace(case)) is not None]
    if not traces:
        return {}
    from vesalius_truth.grading.circuits import convergence, error_categories, trace_metrics

    metrics |= _with_errors(trace_metrics(traces), metrics["tag_accuracy"].n_error or 0)
    return {"execution_errors": error_categories(traces), "convergence_by_iteration": convergence(traces)}


def _row(run: Run, settings: BenchmarkSettings, state: State, circuit: CircuitCase) -> CircuitRow:
    """One circuit in the scorecard."""
    grade, seconds = state.graded[circuit.id]
    explanation = run.explanation(circuit.id)
    if explanation is None:
        raise BadInput(f"{run.explanation_path(circuit.id)}: is gone; the same command makes it again")
    own, scores = grade.own, grade.own.scores
    assert own.program is not None
    return CircuitRow(
        id=circuit.id,
        name=circuit.name,
        components=len(own.tags),
        tags_right=own.tags_right,
        supported=sum(row["verdict"] == "supported" for row in own.tags.values()),
        iia=mean([score.iia or 0.0 for score in scores]),
        iia_changed=mean([score.iia_changed or 0.0 for score in scores]),
        task_agreement=own.program.task_agreement,
        task_exact=own.program.task_exact,
        cost=state.total(case=circuit.id).cost if settings.models else explanation.cost,
        seconds=explanation.seconds + seconds,
    )


def _inert(grades: Mapping[str, CircuitGrade]) -> InertComponents:
    names = [
        f"{case}/{name}"
        for case, grade in grades.items()
        if grade.own.program is not None
        for name, score in grade.own.program.components.items()
        if score.inert
    ]
    return InertComponents(n=len(names), components=tuple(names))


def _with_errors(metrics: Mapping[str, Metric], n_error: int) -> dict[str, Metric]:
    return {name: metric.with_errors(n_error) for name, metric in metrics.items()}
