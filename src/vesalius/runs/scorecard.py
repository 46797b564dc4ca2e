"""The scorecard of a run, from the ledger and the files of explanations and traces alone.

Circuits are taken in the order of the benchmark, so nothing depends on who finished first. A metric carries its `n` and
`n_error`: circuits that the machinery failed on are counted there and are in no figure.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vesalius.backbones import Totals
from vesalius.documents.metric import Metric
from vesalius.errors import BadInput, Failed
from vesalius.grading.circuits import (
    CircuitGrade,
    Graded,
    circuit_metrics,
    localisation_metrics,
    null_metrics,
    tag_baselines,
)
from vesalius.grading.nulls import NULLS
from vesalius.grading.programs import fresh_seed
from vesalius.runs.directory import Run
from vesalius.runs.selection import Circuit
from vesalius.runs.settings import BENCHMARK, Settings
from vesalius.runs.state import EXPLAIN, JUDGE, State

SCHEMA = 1


def summed(run: Run, settings: Settings, state: State) -> dict[str, Any]:
    """The figures of a run; refused where no circuit could be graded."""
    graded = {c.id: state.graded[c.id] for c in settings.circuits if c.id in state.graded}
    if not graded:
        reason = next(iter(state.failed.values()), {"reason": "nothing was run"})["reason"]
        raise Failed(f"{run.directory}: no circuit could be explained and graded; the first: {reason}")
    card = _figures(settings, state, {name: grade for name, (grade, _) in graded.items()})
    card |= _localised(settings, {name: grade for name, (grade, _) in graded.items()}, card["metrics"])
    card |= _judged(settings, state, card["metrics"]) | _diagnosed(run, list(graded), card["metrics"])
    card["specimens"] = [_row(run, settings, state, c) for c in settings.circuits if c.id in graded]
    if settings.models:
        card["usage"] = {"scientist": _usage(state.total(EXPLAIN)), "judges": _usage(state.total(JUDGE))}
        card["cost"] = state.total().cost
    else:
        card["cost"] = sum(row["cost"] for row in card["specimens"])
    card["seconds"] = sum(row["seconds"] for row in card["specimens"])
    return rounded(card)


def _figures(settings: Settings, state: State, graded: dict[str, CircuitGrade]) -> dict[str, Any]:
    own = [grade.own for grade in graded.values()]
    nulls = {name: [grade.nulls[name] for grade in graded.values()] for name in NULLS}
    inert = [f"{case}/{part}" for case, grade in graded.items() for part in _inert(grade.own)]
    n_error = sum(circuit.id not in graded for circuit in settings.circuits)
    asked = {"backbone": model_name(settings.backbone), "protocol": settings.protocol} if settings.backbone else {}
    return {
        "benchmark": BENCHMARK,
        "subject": settings.scientist,
        **asked,
        **({"judges": [model_name(judge) for judge in settings.judges]} if settings.judges else {}),
        "schema": SCHEMA,
        "seed": settings.seed,
        "grading_seed": fresh_seed(settings.seed),
        "leave_out": settings.leave_out,
        "n": len(graded),
        "n_error": n_error,
        "errors": [failure for _, failure in sorted(state.failed.items())],
        "metrics": _plain(circuit_metrics(own, null=nulls["shuffled"]), n_error=n_error),
        "baselines": {"tag_accuracy": tag_baselines(own)},
        "nulls": {
            name: {
                **_plain(null_metrics(circuits)),
                "alike": sum(len(circuit.alike) for circuit in circuits),
            }
            for name, circuits in nulls.items()
        },
        "inert": {"n": len(inert), "components": inert},
    }


def _localised(settings: Settings, graded: dict[str, CircuitGrade], metrics: dict[str, Any]) -> dict[str, Any]:
    """How well the discovered circuits fit, where circuits were discovered."""
    if settings.circuit_from is None:
        return {}
    metrics |= _plain(localisation_metrics(list(graded.values())), n_error=metrics["tag_accuracy"]["n_error"])
    parts = {
        what: [f"{case}/{part}" for case, grade in graded.items() for part in getattr(grade, what)]
        for what in ("missed", "extra")
    }
    return {"circuit_from": settings.circuit_from, **parts}


def _judged(settings: Settings, state: State, metrics: dict[str, Any]) -> dict[str, Any]:
    """What the judges say, over the circuits they judged; also how many hypotheses they found grounded how well."""
    found = [state.judged[c.id] for c in settings.circuits if c.id in state.judged]
    if not found:
        return {}
    from vesalius.grading.judges import JudgedCircuit, judged_metrics

    circuits = [JudgedCircuit.model_validate(one) for one in found]
    metrics |= _plain(judged_metrics(circuits))
    grounding = [item.score for circuit in circuits for item in circuit.items if item.measure == "grounding"]
    scored = [score for score in grounding if score is not None]
    if not scored:
        return {}
    return {"grounding_levels": {str(level): scored.count(level) / len(scored) for level in (2, 1, 0)}}


def _diagnosed(run: Run, cases: Sequence[str], metrics: dict[str, Any]) -> dict[str, Any]:
    """What the traces say: did the code run, how did it fail, when were hypotheses supported."""
    traces = [trace for case in cases if (trace := run.trace(case)) is not None]
    if not traces:
        return {}
    from vesalius.grading.diagnostics import convergence, error_categories, trace_metrics

    metrics |= _plain(trace_metrics(traces), n_error=metrics["tag_accuracy"]["n_error"])
    return {
        "execution_errors": _plain(error_categories(traces)),
        "convergence_by_iteration": _plain(convergence(traces)),
    }


def _row(run: Run, settings: Settings, state: State, circuit: Circuit) -> dict[str, Any]:
    """One circuit in the scorecard."""
    grade, seconds = state.graded[circuit.id]
    explanation = run.explanation(circuit.id)
    if explanation is None:
        raise BadInput(f"{run.explanation_path(circuit.id)}: is gone; the same command makes it again")
    own, scores = grade.own, grade.own.scores
    assert own.program is not None
    return {
        "id": circuit.id,
        "name": circuit.name,
        "components": len(own.tags),
        "tags_right": own.tags_right,
        "supported": sum(row["verdict"] == "supported" for row in own.tags.values()),
        "iia": mean([score.iia or 0.0 for score in scores]),
        "iia_changed": mean([score.iia_changed or 0.0 for score in scores]),
        "task_agreement": own.program.task_agreement,
        "task_exact": own.program.task_exact,
        "cost": state.total(case=circuit.id).cost if settings.models else explanation.cost,
        "seconds": explanation.seconds + seconds,
    }


def model_name(model: str | None) -> str | None:
    """A model's name as its calls have it: of a script the file's name alone."""
    provider, _, name = (model or "").partition(":")
    return f"{provider}:{Path(name).name}" if provider == "scripted" else model


def _usage(used: Totals) -> dict[str, Any]:
    return used.model_dump(exclude={"at_most"})


def _inert(graded: Graded) -> list[str]:
    return [] if graded.program is None else [name for name, score in graded.program.components.items() if score.inert]


def mean(values: Sequence[float]) -> float | None:
    """The mean; None of no values."""
    return sum(values) / len(values) if values else None


def _plain(metrics: Mapping[str, Metric], *, n_error: int | None = None) -> dict[str, Any]:
    errors = {} if n_error is None else {"n_error": n_error}
    return {name: {**metric.model_dump(exclude_none=True), **errors} for name, metric in metrics.items()}


def rounded(data: Any) -> Any:
    """Figures to six places: what lies beyond is arithmetic, not measurement."""
    if isinstance(data, dict):
        return {name: rounded(value) for name, value in data.items()}
    if isinstance(data, list):
        return [rounded(value) for value in data]
    return round(data, 6) if isinstance(data, float) else data
