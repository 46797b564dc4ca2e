"""One method on one circuit: discover, grade against the key, and say how faithful and how stable the circuit is.

Faithfulness is read on prompts that the method did not see, for circuits of the best k components (and, where the
method scores edges, of the best k edges), beside that of a random ranking; `held_out` counts those prompts, which can
be fewer than asked for where the vocabulary is small. Stability is that of the components that
would be explained (`Circuit.chosen`), beside that of random circuits of the same size.
"""

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vesalius.behaviours.trial import NothingUnseen, Trial, trial, with_wrong_answers
from vesalius.circuits.specimens import SPECIMEN_FILE, load_specimen
from vesalius.components import Component
from vesalius.discovery.checks import beside_random, circuit_size, guarantee
from vesalius.discovery.discover import discover
from vesalius.discovery.faithfulness import NothingToKeep, Ranking, scores_without
from vesalius.discovery.method import Method, MethodResult, NotResampled
from vesalius.discovery.rivals import find_rivals
from vesalius.discovery.stability import RESAMPLES
from vesalius.documents.checks import Stability
from vesalius.documents.circuit import Circuit
from vesalius.documents.metric import Metric
from vesalius.documents.scorecard import AREAS, DiscoveryFigures, HardFigures
from vesalius.intervene.edges import EdgeGraph
from vesalius.model.specimen import Specimen
from vesalius_bench.circuits.selection import CircuitCase
from vesalius_truth.grading.discovery import (
    TrueCircuit,
    grade_circuit_scores,
    median_and_mean,
    precision_at_size,
    true_circuit,
)
from vesalius_truth.planted import plant_hard

# `bench discovery --hard`: models written by hand that mislead discovery, and what is asked of each method on them.
#
# The models are those of `circuits.planted`, by seed, written beside the run directory. Each is there twice: as it is
# (`hard-00`), and with a noisy behaviour (`wrong0.1-00`), in which a share of the answers that the method sees is
# wrong; even seeds have the first share of `WRONG_ANSWERS`, odd ones the second. Specimens of the caller can be asked
# the same.
#
# Beyond the figures of every discovery benchmark: precision at the true size, whether the guarantee of the chosen
# components holds on many fresh prompts, and whether faithful circuits (the best and a rival) hold components that are
# not in the known circuit. Wrong answers are in what a user would have, the prompts of the discovery and those that
# rivals are confirmed on; faithfulness and guarantees are judged by the model's own outputs.

MODELS = 20
#: Shares of wrong answers in noisy behaviours.
WRONG_ANSWERS = (0.1, 0.3)
#: Fresh prompts on which a guarantee is judged, and the prompts that it is made on.
FRESH, FRESH_SEED, GUARANTEED_ON = 400, 9_000_011, 50


def hard_circuits(folder: Path, limit: int | None = None, *, first: int = 0) -> list[CircuitCase]:
    """The hard models from seed `first` on as specimens in a folder, `limit` of each kind; those that are there already
    stay.
    """
    clean, noisy = [], []
    for seed in range(first, first + (MODELS if limit is None else limit)):
        planted, place = plant_hard(seed), folder / f"hard-{seed:02d}"
        if not (place / SPECIMEN_FILE).is_file():
            planted.write(place)
        clean.append(CircuitCase(place.name, planted.name, place.resolve(), trained=True))
        share = WRONG_ANSWERS[seed % len(WRONG_ANSWERS)]
        noisy.append(replace(clean[-1], id=f"wrong{share:g}-{seed:02d}", wrong_answers=share))
    return clean + noisy


def kind_of(case: str) -> str:
    """The kind of a case by its id: what stands before the number."""
    return case.rpartition("-")[0] or case


def seen_by_user(specimen: Specimen, material: Trial, case: str, wrong_answers: float, *, seed: int) -> Trial:
    """A trial with the wrong answers of a noisy behaviour, others for each case; as it is where there are none."""
    if not wrong_answers:
        return material
    drawn = int.from_bytes(hashlib.sha256(f"wrong answers/{case}/{seed}".encode()).digest()[:4])
    return with_wrong_answers(specimen, material, wrong_answers, seed=drawn)


def hard_figures(
    specimen: Specimen, result: MethodResult, truth: TrueCircuit, held_out: Trial | None, *, seed: int
) -> HardFigures:
    """What is asked of a method on a hard model."""
    circuit = result.circuit
    judged = {edge: score for edge, score in circuit.edge_scores.items() if truth.judges(edge)}
    return HardFigures(
        node_precision=precision_at_size(circuit.components, truth.components),
        edge_precision=precision_at_size(judged, truth.edges) if judged else None,
        **_guaranteed(specimen, result, circuit, seed=seed),
        **_rivals(specimen, result, truth, held_out, seed=seed),
    )


def _guaranteed(specimen: Specimen, result: MethodResult, circuit: Circuit, *, seed: int) -> dict:
    """The bound of the strongest components, and what they keep on fresh prompts."""
    ranked = [part for part, _ in circuit.ranked()]
    kept = ranked[: circuit_size(circuit)]
    bound = guarantee(specimen, result.material, kept, ranked, n=GUARANTEED_ON, seed=seed).answers
    if bound is None:
        return {}
    scores, _ = scores_without(
        specimen.model, trial(specimen, FRESH, seed=FRESH_SEED + seed), [frozenset(ranked) - frozenset(kept)]
    )
    truth = float((scores[:, 0] > 1 - 1e-6).double().mean())
    return {"guaranteed": bound.low, "kept_right": truth, "guarantee_held": bound.low <= truth}


def _rivals(specimen: Specimen, result: MethodResult, truth: TrueCircuit, held_out: Trial | None, *, seed: int) -> dict:
    if held_out is None:
        return {}
    try:
        rivals = find_rivals(specimen.model, result.circuit, result.material, held_out, rivals=1, shuffles=0, seed=seed)
    except (NothingToKeep, NothingUnseen):
        return {}
    alike = [set(map(Component.parse, row.components)) for row in rivals.circuits if row.as_faithful]
    false = [bool(parts - truth.components) for parts in alike]
    return {"rivals": len(false), "false_rivals": sum(false), "best_false": false[0] if false else None}


Read = Callable[[HardFigures], float | None]
PRECISIONS: dict[str, Read] = {
    "node_precision": lambda figures: figures.node_precision,
    "edge_precision": lambda figures: figures.edge_precision,
}


def hard_metrics(results: Mapping[str, DiscoveryFigures]) -> dict[str, Metric]:
    """The figures of one method over hard models by id: over all, and over each kind where there are several."""
    kinds = list(dict.fromkeys(map(kind_of, results)))
    metrics = _metrics(list(results.values()))
    for kind in kinds if len(kinds) > 1 else ():
        rows = [result for case, result in results.items() if kind_of(case) == kind]
        metrics |= {f"{kind}.{name}": metric for name, metric in (_areas(rows) | _metrics(rows)).items()}
    return metrics


def _areas(results: Sequence[DiscoveryFigures]) -> dict[str, Metric]:
    """Medians of the figures that every discovery benchmark has."""
    metrics: dict[str, Metric] = {}
    for name in AREAS:
        values = [value for result in results if (value := getattr(result, name)) is not None]
        if (both := median_and_mean(values)) is not None:
            metrics[name] = both[0]
    return metrics


def _metrics(results: Sequence[DiscoveryFigures]) -> dict[str, Metric]:
    """Medians, and shares with Wilson intervals."""
    rows = [result.hard for result in results if result.hard is not None]
    metrics: dict[str, Metric] = {}
    for name, read in PRECISIONS.items():
        values = [value for row in rows if (value := read(row)) is not None]
        if (both := median_and_mean(values)) is not None:
            metrics[name], metrics[f"{name}_mean"] = both
    held = [row.guarantee_held for row in rows if row.guarantee_held is not None]
    if held:
        metrics["guarantee_coverage"] = Metric.of_share(sum(held), len(held))
    if any(row.rivals for row in rows):
        best = [row.best_false for row in rows if row.best_false is not None]
        metrics["best_false"] = Metric.of_share(sum(best), len(best))
        extra = sum(row.rivals for row in rows) - len(best)
        metrics["false_rivals"] = Metric.of_share(sum(row.false_rivals for row in rows) - sum(best), extra)
    return metrics


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
    asked: str = ""

    @property
    def label(self) -> str:
        """The method as it was asked for."""
        return self.asked or self.method.label

    @property
    def key(self) -> tuple[str, str]:
        """The method and the circuit."""
        return self.label, self.id


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
