"""One method on one circuit: discover, grade against the key, and say how faithful and how stable the circuit is.

Faithfulness is read on prompts that the method did not see, for circuits of the best k components (and, where the
method scores edges, of the best k edges), beside that of a random ranking; `held_out` counts those prompts, which can
be fewer than asked for where the vocabulary is small. Stability is that of the components that
would be explained (`Circuit.chosen`), beside that of random circuits of the same size.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vesalius.behaviours.trial import NothingUnseen, Trial, trial
from vesalius.circuits.specimens import load_specimen
from vesalius.discovery.checks import beside_random
from vesalius.discovery.faithfulness import NothingToKeep, Ranking
from vesalius.discovery.method import Method, MethodResult, NotResampled
from vesalius.discovery.methods import discover
from vesalius.discovery.stability import RESAMPLES
from vesalius.documents.checks import Stability
from vesalius.documents.circuit import Circuit
from vesalius.documents.scorecard import DiscoveryFigures, HardFigures
from vesalius.grading.discovery import grade_circuit_scores, true_circuit
from vesalius.intervene.edge_graph import EdgeGraph
from vesalius.model.specimen import Specimen
from vesalius.runs.hard import hard_figures, seen_by_user

#: Added to the seed for the prompts that faithfulness is read on.
HELD_OUT = 500_003
#: ACDC is pruned again on every resample; on larger models (edges times d_model) on fewer.
MANY_RESAMPLED, FEW_RESAMPLES = 10_000, 20


@dataclass(frozen=True)
class DiscoveryCase:
    """One method on one circuit."""

    method: Method
    id: str
    directory: Path
    n: int
    seed: int
    hard: bool = False
    wrong_answers: float = 0.0

    @property
    def key(self) -> tuple[str, str]:
        """The method and the circuit."""
        return self.method.name, self.id


def run_case(case: DiscoveryCase) -> DiscoveryFigures:
    """Every figure of one method on one circuit."""
    started = time.perf_counter()
    specimen = load_specimen(case.directory)
    discovery = _discovered(specimen, case)
    graded = _graded(discovery.circuit, specimen, case, discovery.material)
    stability = _stability(specimen, discovery, max(1, len(graded.chosen)))
    return graded.model_copy(
        update={
            "jaccard": None if stability is None else stability.value,
            "jaccard_size": None if stability is None else stability.top,
            "chance": graded.chance | ({} if stability is None else {"jaccard": stability.chance}),
            "forwards": discovery.forwards,
            "seconds": discovery.seconds,
            "hard": _hard(specimen, discovery, case) if case.hard else None,
            "work_seconds": time.perf_counter() - started,
        }
    )


def _hard(specimen: Specimen, discovery: MethodResult, case: DiscoveryCase) -> HardFigures:
    held_out = _held_out(specimen, discovery.material, n=case.n, seed=case.seed)
    if held_out is not None:
        held_out = seen_by_user(specimen, held_out, case.id, case.wrong_answers, seed=case.seed + HELD_OUT)
    return hard_figures(specimen, discovery, true_circuit(case.id, case.directory), held_out, seed=case.seed)


def discover_case(case: DiscoveryCase) -> Circuit:
    """What the method finds on the case's prompts, ungraded."""
    specimen = load_specimen(case.directory)
    return _discovered(specimen, case).circuit


def _discovered(specimen: Specimen, case: DiscoveryCase) -> MethodResult:
    return discover(specimen, case.method, material=_material(specimen, case))


def grade_found(circuit: Circuit, case: DiscoveryCase) -> DiscoveryFigures:
    """The figures of scores from elsewhere: all but stability, which needs the method itself, and its cost."""
    specimen = load_specimen(case.directory)
    return _graded(circuit, specimen, case, _material(specimen, case))


def _material(specimen: Specimen, case: DiscoveryCase) -> Trial:
    """The prompts that the method sees."""
    material = trial(specimen, _prompts(specimen, case), seed=case.seed)
    return seen_by_user(specimen, material, case.id, case.wrong_answers, seed=case.seed)


def _prompts(specimen: Specimen, case: DiscoveryCase) -> int:
    return case.method.prompts(specimen.model.config, case.n)


def _graded(circuit: Circuit, specimen: Specimen, case: DiscoveryCase, material: Trial) -> DiscoveryFigures:
    areas = grade_circuit_scores(circuit, true_circuit(case.id, case.directory))
    held_out = _held_out(specimen, material, n=case.n, seed=case.seed)
    faithful, chance = _faithfulness(specimen, circuit, held_out, seed=case.seed)
    return DiscoveryFigures(
        **areas.model_dump(),
        **faithful,  # type: ignore[arg-type]
        jaccard=None,
        jaccard_size=None,
        chance=chance,
        chosen=tuple(str(part) for part in circuit.chosen()),
        prompts=_prompts(specimen, case),
        held_out=0 if held_out is None else len(held_out.batch),
        forwards=0.0,
        seconds=0.0,
        work_seconds=0.0,
        hard=None,
    )


def _stability(specimen: Specimen, discovery: MethodResult, top: int) -> Stability | None:
    """None where a method's scores cannot be resampled."""
    config = specimen.model.config
    large = EdgeGraph.of(config).n_edges * config.d_model > MANY_RESAMPLED
    resamples = FEW_RESAMPLES if large else RESAMPLES
    try:
        return discovery.method.stability(specimen, discovery, top, resamples=resamples)[0]
    except NotResampled:
        return None


def _held_out(specimen: Specimen, material: Trial, *, n: int, seed: int) -> Trial | None:
    """Up to `n` prompts that the method has not seen; None where there are none."""
    try:
        return trial(specimen, n, seed=seed + HELD_OUT, apart_from=material)
    except NothingUnseen:
        return None


def _faithfulness(
    specimen: Specimen, circuit: Circuit, held_out: Trial | None, *, seed: int
) -> tuple[dict[str, float | None], dict[str, float]]:
    """The areas of components and edges on held-out prompts, and those of a random ranking; None where undefined."""
    graph = EdgeGraph.of(specimen.model.config)
    rankings: dict[str, tuple[Ranking, Sequence[Any]]] = {
        "": ([part for part, _ in circuit.ranked()], specimen.model.components),
        "edge_": ([edge for edge, _ in circuit.ranked_edges()], graph.edges),
    }
    areas: dict[str, float | None] = {}
    chance: dict[str, float] = {}
    for prefix, (ranking, candidates) in rankings.items():
        areas |= {f"{prefix}cmd": None, f"{prefix}cpr": None}
        if not ranking or held_out is None:
            continue
        try:
            own, other = beside_random(specimen.model, held_out, ranking, candidates, draw=f"{seed}/{specimen.id}")
        except NothingToKeep:
            continue
        areas |= {f"{prefix}cmd": own.cmd, f"{prefix}cpr": own.cpr}
        chance |= {f"{prefix}cmd": other.cmd, f"{prefix}cpr": other.cpr}
    return areas, chance
