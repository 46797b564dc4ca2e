"""`bench discovery`: every method on circuits with known answers, and the scorecard of how well each finds them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vesalius.circuits.specimens import load_specimen
from vesalius.discovery.methods import METHODS, discover
from vesalius.errors import BadInput, choices
from vesalius.grading.discovery import centre, grade_circuit_scores, true_circuit
from vesalius.runs.engine import Failure, map_cases
from vesalius.runs.selection import Circuit

AREAS = ("node_auroc", "edge_auroc", "edge_auroc_all")


@dataclass(frozen=True)
class DiscoveryCase:
    """One method on one circuit."""

    method: str
    id: str
    directory: Path
    n: int
    seed: int


def discovery_scorecard(
    methods: Sequence[str],
    circuits: Sequence[Circuit],
    *,
    n: int,
    seed: int,
    jobs: int,
    progress: Callable[[str, int, int], None] | None = None,
) -> dict[str, Any]:
    """Run every method on every circuit; a case that fails counts as an error and enters no figure."""
    unknown = [name for name in methods if name not in METHODS]
    if unknown or not methods:
        raise BadInput(f"--methods: {', '.join(unknown) or 'none named'}; choose from {choices(METHODS)}")
    methods = list(dict.fromkeys(methods))
    cases = [DiscoveryCase(method, c.id, c.directory, n, seed) for c in circuits for method in methods]
    results: dict[DiscoveryCase, dict[str, Any] | Failure] = {}
    for case, result in map_cases(run_case, cases, jobs=jobs):
        results[case] = result
        if progress:
            progress(f"{case.method}: {case.id}", len(results), len(cases))
    found = {method: {c.id: results[c] for c in cases if c.method == method} for method in methods}
    errors = [
        {"method": c.method, "case": c.id, "kind": result.kind, "reason": result.reason}
        for c in cases
        if isinstance(result := results[c], Failure)
    ]
    return {
        "benchmark": "discovery",
        "n": len(circuits),
        "n_error": len({error["case"] for error in errors}),
        "prompts": n,
        "seed": seed,
        "methods": {method: _figures(list(of_method.values())) for method, of_method in found.items()},
        "cases": [
            {"id": circuit.id, "name": circuit.name, "methods": _kept(found, circuit.id)} for circuit in circuits
        ],
        "errors": errors,
    }


def run_case(case: DiscoveryCase) -> dict[str, Any]:
    """Discover one circuit by one method and grade the scores."""
    found = discover(load_specimen(case.directory), case.method, n=case.n, seed=case.seed)
    areas = grade_circuit_scores(found.circuit, true_circuit(case.id, case.directory))
    return {**areas.model_dump(), "forwards": found.forwards, "seconds": found.seconds}


def _figures(results: Sequence[dict[str, Any] | Failure]) -> dict[str, Any]:
    """The row of one method: areas over the circuits where they are defined, mean cost per circuit."""
    right = [result for result in results if not isinstance(result, Failure)]
    areas = {name: centre([result[name] for result in right if result[name] is not None]) for name in AREAS}
    return {
        **{name: None if area is None else area.model_dump() for name, area in areas.items()},
        "forwards": sum(result["forwards"] for result in right) / max(1, len(right)),
        "seconds": sum(result["seconds"] for result in right),
        "n": len(right),
        "n_error": len(results) - len(right),
    }


def _kept(found: dict[str, dict[str, dict[str, Any] | Failure]], id: str) -> dict[str, dict[str, Any]]:
    results = {method: of_method[id] for method, of_method in found.items()}
    return {method: result for method, result in results.items() if not isinstance(result, Failure)}
