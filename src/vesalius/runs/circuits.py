"""The circuits benchmark: explain every circuit, then grade every explanation beside its nulls, then sum up.

The two steps are apart because a null may borrow another circuit's program, and so that whoever explains is done before
the answer key is opened. Each result is in the ledger as soon as it is there; taking a run up again does what is
missing, failures included. The scorecard is made from the ledger and the explanations alone, in the order of the
circuits, so it does not depend on who finished first.
"""

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vesalius.circuits.specimens import load_specimen
from vesalius.errors import BadInput, Failed, choices
from vesalius.explain.explanation import Explanation
from vesalius.explain.scientist import explain_specimen
from vesalius.grading.circuits import (
    CircuitGrade,
    Graded,
    circuit_metrics,
    grade_circuit,
    null_metrics,
    tag_baselines,
)
from vesalius.grading.metrics import Metric
from vesalius.grading.nulls import NULLS, donor_of
from vesalius.grading.programs import fresh_seed
from vesalius.runs.directory import Run, read_explanation
from vesalius.runs.engine import Failure, map_cases
from vesalius.runs.selection import Circuit
from vesalius.version import __version__

SCHEMA = 1
BENCHMARK = "circuits"
SCIENTISTS: dict[str, Callable[..., Explanation]] = {"builtin": explain_specimen}


@dataclass(frozen=True)
class Settings:
    """What decides the results of a run."""

    circuits: tuple[Circuit, ...]
    scientist: str = "builtin"
    seed: int = 0
    leave_out: str | None = None

    def __post_init__(self) -> None:
        if self.scientist not in SCIENTISTS:
            raise BadInput(f"scientist {self.scientist!r} does not exist; use {choices(SCIENTISTS)}")
        if not self.circuits:
            raise BadInput("a benchmark of no circuits says nothing; choose at least one")

    def as_data(self) -> dict[str, Any]:
        """The settings as run.json holds and compares them."""
        return {
            "benchmark": BENCHMARK,
            "scientist": self.scientist,
            "seed": self.seed,
            "leave_out": self.leave_out,
            "version": __version__,
            "specimens": {circuit.id: circuit.fingerprint for circuit in self.circuits},
        }

    def places(self) -> dict[str, str]:
        """Where the specimens were, for pages made later."""
        return {circuit.id: str(circuit.directory) for circuit in self.circuits}


@dataclass(frozen=True)
class Progress:
    """One more case is done. `step` is `explain` or `grade`."""

    step: str
    case: str
    done: int
    total: int


@dataclass(frozen=True)
class ToExplain:
    """A case of the first step."""

    id: str
    directory: Path
    scientist: str
    seed: int
    leave_out: str | None


@dataclass(frozen=True)
class ToGrade:
    """A case of the second step: an explanation, and the one its shuffled null borrows a program from."""

    id: str
    directory: Path
    explanation: Path
    donor: Path | None


def explain_case(case: ToExplain) -> Explanation:
    """Explain one circuit."""
    options: dict[str, Any] = {} if case.leave_out is None else {"without": frozenset({case.leave_out})}
    return SCIENTISTS[case.scientist](load_specimen(case.directory), seed=case.seed, **options)


def grade_case(case: ToGrade) -> tuple[CircuitGrade, float]:
    """Grade one explanation and its nulls; also how many seconds that took."""
    started = time.monotonic()
    donor = None if case.donor is None else read_explanation(case.donor)
    graded = grade_circuit(read_explanation(case.explanation), donor=donor, directory=case.directory)
    return graded, time.monotonic() - started


@dataclass
class _State:
    """What the ledger says is done."""

    explained: set[str] = field(default_factory=set)
    graded: dict[str, tuple[CircuitGrade, float]] = field(default_factory=dict)
    failed: dict[str, dict[str, Any]] = field(default_factory=dict)

    def note(self, record: dict[str, Any]) -> None:
        """Take one record in; a new explanation makes an older grade and an older failure void."""
        case = record.get("case", "")
        if record["event"] == "explained":
            self.explained.add(case)
            self.graded.pop(case, None)
            self.failed.pop(case, None)
        elif record["event"] == "graded":
            self.graded[case] = CircuitGrade.model_validate(record["grade"]), record["seconds"]
            self.failed.pop(case, None)
        elif record["event"] == "failed":
            if record["step"] == "explain":
                self.explained.discard(case)
            self.failed[case] = {name: record[name] for name in ("case", "step", "kind", "reason")}


class CircuitsBenchmark:
    """The benchmark in an open run directory; `work` yields progress, `scorecard` sums up."""

    def __init__(self, run: Run, settings: Settings) -> None:
        self.run, self.settings = run, settings
        self.state = _State()
        for record in run.ledger.records:
            self.state.note(record)

    def work(self, *, jobs: int = 2) -> Generator[Progress]:
        """Do what is not done yet."""
        yield from self._explain(jobs)
        yield from self._grade(jobs)

    def scorecard(self) -> dict[str, Any]:
        """The figures, written to the run directory and returned."""
        graded = {c.id: self.state.graded[c.id] for c in self.settings.circuits if c.id in self.state.graded}
        if not graded:
            reason = next(iter(self.state.failed.values()), {"reason": "nothing was run"})["reason"]
            raise Failed(f"{self.run.directory}: no circuit could be explained and graded; the first: {reason}")
        card = self._summed({name: grade for name, (grade, _) in graded.items()})
        card["specimens"] = [self._row(c, *graded[c.id]) for c in self.settings.circuits if c.id in graded]
        card["cost"] = sum(row["cost"] for row in card["specimens"])
        card["seconds"] = sum(row["seconds"] for row in card["specimens"])
        card = _rounded(card)
        self.run.write_scorecard(card)
        return card

    def _explain(self, jobs: int) -> Generator[Progress]:
        missing = [c for c in self.settings.circuits if not self._is_explained(c.id)]
        s = self.settings
        cases = [ToExplain(c.id, c.directory, s.scientist, s.seed, s.leave_out) for c in missing]
        done, total = len(s.circuits) - len(cases), len(s.circuits)
        with closing(map_cases(explain_case, cases, jobs=jobs)) as results:
            for case, result in results:
                if isinstance(result, Failure):
                    if s.leave_out is not None and result.kind == "refused":
                        raise BadInput(result.reason)  # the same for every case: the name of the family is wrong
                    self._note("failed", case.id, step="explain", kind=result.kind, reason=result.reason)
                else:
                    self.run.write_explanation(case.id, result)
                    self._note("explained", case.id, seconds=round(result.seconds, 3), cost=result.cost)
                done += 1
                yield Progress("explain", case.id, done, total)

    def _grade(self, jobs: int) -> Generator[Progress]:
        explained = [c for c in self.settings.circuits if c.id in self.state.explained]
        found = {c.id: self.run.explanation(c.id) for c in explained}
        pool = [explanation for explanation in found.values() if explanation is not None]
        missing = [c for c in explained if c.id not in self.state.graded]
        cases = [self._to_grade(c, found, pool) for c in missing]
        done, total = len(explained) - len(cases), len(explained)
        with closing(map_cases(grade_case, cases, jobs=jobs)) as results:
            for case, result in results:
                if isinstance(result, Failure):
                    self._note("failed", case.id, step="grade", kind=result.kind, reason=result.reason)
                else:
                    grade, seconds = result
                    self._note("graded", case.id, grade=grade.model_dump(mode="json"), seconds=round(seconds, 3))
                done += 1
                yield Progress("grade", case.id, done, total)

    def _to_grade(self, circuit: Circuit, found: dict[str, Explanation | None], pool: Sequence[Explanation]) -> ToGrade:
        own = found[circuit.id]
        donor = None if own is None else donor_of(own, pool)
        lender = next((name for name, explanation in found.items() if donor is not None and explanation is donor), None)
        path = self.run.explanation_path
        return ToGrade(circuit.id, circuit.directory, path(circuit.id), None if lender is None else path(lender))

    def _is_explained(self, case: str) -> bool:
        return case in self.state.explained and self.run.explanation(case) is not None

    def _note(self, event: str, case: str, **fields: Any) -> None:
        self.state.note(self.run.ledger.append(event, case=case, **fields))

    def _summed(self, graded: dict[str, CircuitGrade]) -> dict[str, Any]:
        own = [grade.own for grade in graded.values()]
        nulls = {name: [grade.nulls[name] for grade in graded.values()] for name in NULLS}
        inert = [f"{case}/{part}" for case, grade in graded.items() for part in _inert(grade.own)]
        errors = [failure for case, failure in sorted(self.state.failed.items()) if case not in graded]
        return {
            "benchmark": BENCHMARK,
            "subject": self.settings.scientist,
            "schema": SCHEMA,
            "seed": self.settings.seed,
            "grading_seed": fresh_seed(self.settings.seed),
            "leave_out": self.settings.leave_out,
            "n": len(graded),
            "n_error": len(errors),
            "errors": errors,
            "metrics": _plain(circuit_metrics(own, null=nulls["shuffled"])),
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

    def _row(self, circuit: Circuit, grade: CircuitGrade, seconds: float) -> dict[str, Any]:
        """One circuit in the scorecard."""
        explanation = self.run.explanation(circuit.id)
        if explanation is None:
            raise BadInput(f"{self.run.explanation_path(circuit.id)}: is gone; the same command makes it again")
        own, scores = grade.own, grade.own.scores
        assert own.program is not None
        return {
            "id": circuit.id,
            "name": circuit.name,
            "components": len(own.tags),
            "tags_right": own.tags_right,
            "supported": sum(row["verdict"] == "supported" for row in own.tags.values()),
            "iia": _mean([score.iia or 0.0 for score in scores]),
            "iia_changed": _mean([score.iia_changed or 0.0 for score in scores]),
            "task_agreement": own.program.task_agreement,
            "task_exact": own.program.task_exact,
            "cost": explanation.cost,
            "seconds": explanation.seconds + seconds,
        }


def _inert(graded: Graded) -> list[str]:
    return [] if graded.program is None else [name for name, score in graded.program.components.items() if score.inert]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _plain(metrics: dict[str, Metric]) -> dict[str, Any]:
    return {name: metric.model_dump(exclude_none=True) for name, metric in metrics.items()}


def _rounded(data: Any) -> Any:
    """Figures to six places: what lies beyond is arithmetic, not measurement."""
    if isinstance(data, dict):
        return {name: _rounded(value) for name, value in data.items()}
    if isinstance(data, list):
        return [_rounded(value) for value in data]
    return round(data, 6) if isinstance(data, float) else data
