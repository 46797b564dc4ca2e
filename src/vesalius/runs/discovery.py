"""`bench discovery`: every method on circuits with known answers, in a run directory that can be taken up again.

A case is one method on one circuit. Its record is in the ledger as soon as it is there; a run that was killed does what
is missing, failures included, and the scorecard is made from the ledger alone, in the order of the benchmark.
"""

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from vesalius.behaviours.trial import require_drawable
from vesalius.discovery.methods import LARGE_EDGES, LARGE_PROMPTS, METHODS
from vesalius.errors import BadInput, Failed, choices
from vesalius.grading.discovery import Centre, centre
from vesalius.runs.circuits import Progress
from vesalius.runs.directory import Run
from vesalius.runs.engine import Engine, Failure, map_cases
from vesalius.runs.methods import AREAS, DiscoveryCase, run_case
from vesalius.runs.selection import Circuit
from vesalius.version import __version__

BENCHMARK, SCHEMA = "discovery", 1
#: What a ranking that knows nothing earns; those of the other areas are measured.
AUROC_OF_CHANCE = 0.5


@dataclass(frozen=True)
class DiscoverySettings:
    """What decides the results of a run."""

    circuits: tuple[Circuit, ...]
    methods: tuple[str, ...]
    n: int
    seed: int

    def __post_init__(self) -> None:
        unknown = [name for name in self.methods if name not in METHODS]
        if unknown or not self.methods:
            raise BadInput(f"--methods: {', '.join(unknown) or 'none named'}; choose from {choices(METHODS)}")
        if len(set(self.methods)) < len(self.methods):
            raise BadInput(f"--methods: {', '.join(self.methods)} names one twice; name each once")
        if not self.circuits:
            raise BadInput("a benchmark of no circuits says nothing; choose at least one")
        if self.n < 2:
            raise BadInput(f"--n {self.n}: prompts are resampled to see how stable circuits are; give at least 2")
        require_drawable(self.n, self.seed)

    @property
    def cases(self) -> list[DiscoveryCase]:
        """Every method on every circuit."""
        return [DiscoveryCase(m, c.id, c.directory, self.n, self.seed) for c in self.circuits for m in self.methods]

    def as_data(self) -> dict[str, Any]:
        """The settings as run.json holds and compares them."""
        return {
            "benchmark": BENCHMARK,
            "methods": list(self.methods),
            "prompts": self.n,
            "checked_on": "inputs that the discovery has not seen",
            "seed": self.seed,
            "version": __version__,
            "specimens": {circuit.id: circuit.fingerprint for circuit in self.circuits},
        }

    def notes(self) -> dict[str, Any]:
        """Where the specimens were."""
        return {
            "places": {circuit.id: str(circuit.directory) for circuit in self.circuits},
            "names": {circuit.id: circuit.name for circuit in self.circuits},
        }


class DiscoveryBenchmark:
    """The benchmark in an open run directory; `work` yields progress, `scorecard` sums up."""

    def __init__(self, run: Run, settings: DiscoverySettings, *, engine: Engine | None = None) -> None:
        self.run, self.settings, self._engine = run, settings, engine or map_cases
        self.found: dict[tuple[str, str], dict[str, Any]] = {}
        self.failed: dict[tuple[str, str], dict[str, str]] = {}
        for record in run.ledger.records:
            self._note(record)

    def work(self, *, jobs: int = 2) -> Generator[Progress]:
        """Do what is not done yet; a case that fails is an error and enters no figure."""
        cases = self.settings.cases
        missing = [case for case in cases if case.key not in self.found]
        done = len(cases) - len(missing)
        with closing(self._engine(run_case, missing, jobs=jobs)) as results:
            for case, result in results:
                if isinstance(result, Failure):
                    self._write("failed", case, kind=result.kind, reason=result.reason)
                else:
                    self._write("discovered", case, figures=result)
                done += 1
                yield Progress(case.method, case.id, done, len(cases))

    def scorecard(self) -> dict[str, Any]:
        """The figures, written to the run directory and returned; refused where every case failed."""
        if not self.found:
            reason = next((failure["reason"] for failure in self.failed.values()), "nothing was run")
            raise Failed(f"{self.run.directory}: no circuit could be discovered; the first: {reason}")
        card = scorecard_of(self.settings, self.found, self.failed)
        self.run.write_scorecard(card)
        return card

    def _write(self, event: str, case: DiscoveryCase, **fields: Any) -> None:
        self._note(self.run.ledger.append(event, case=case.id, method=case.method, **fields))

    def _note(self, record: dict[str, Any]) -> None:
        key = record.get("method", ""), record.get("case", "")
        if record["event"] == "discovered":
            self.found[key] = record["figures"]
            self.failed.pop(key, None)
        elif record["event"] == "failed":
            self.failed[key] = {name: record[name] for name in ("method", "case", "kind", "reason")}


def scorecard_of(
    settings: DiscoverySettings,
    found: dict[tuple[str, str], dict[str, Any]],
    failed: dict[tuple[str, str], dict[str, str]],
) -> dict[str, Any]:
    """The scorecard from the figures of every case, by (method, circuit)."""
    keys = [case.key for case in settings.cases]
    errors = [failed[key] for key in keys if key in failed]
    methods = {
        method: _figures([found[key] for key in keys if key[0] == method and key in found], len(settings.circuits))
        for method in settings.methods
    }
    return {
        "benchmark": BENCHMARK,
        "subject": ", ".join(settings.methods),
        "schema": SCHEMA,
        "n": len(settings.circuits),
        "n_error": len({error["case"] for error in errors}),
        "prompts": settings.n,
        "held_out_prompts": min((found[key]["held_out"] for key in keys if key in found), default=0),
        "prompts_of_acdc": f"{LARGE_PROMPTS} at most for models of more than {LARGE_EDGES} edges",
        "seed": settings.seed,
        "metrics": {
            f"{method}.{name}": area
            for method, figures in methods.items()
            for name in AREAS
            if (area := figures[name]) is not None
        },
        "methods": methods,
        "cost": 0.0,
        "seconds": sum(found[key]["work_seconds"] for key in keys if key in found),
        "cases": [
            {
                "id": circuit.id,
                "name": circuit.name,
                "methods": {m: found[m, circuit.id] for m in settings.methods if (m, circuit.id) in found},
            }
            for circuit in settings.circuits
        ],
        "errors": errors,
    }


def _figures(results: Sequence[dict[str, Any]], asked: int) -> dict[str, Any]:
    """The row of one method: areas over the circuits where they are defined, mean cost per circuit."""
    areas = {name: _area(name, results) for name in AREAS}
    return {
        **{name: None if area is None else area.model_dump() for name, area in areas.items()},
        "forwards": sum(result["forwards"] for result in results) / max(1, len(results)),
        "seconds": sum(result["seconds"] for result in results),
        "n": len(results),
        "n_error": asked - len(results),
    }


def _area(name: str, results: Sequence[dict[str, Any]]) -> Centre | None:
    known = [result for result in results if result[name] is not None]
    if "auroc" in name:
        return centre([result[name] for result in known], baseline=AUROC_OF_CHANCE)
    chance = centre([result["chance"][name] for result in known])
    return centre([result[name] for result in known], baseline=None if chance is None else chance.median)
