"""`bench discovery --hard`: models written by hand that mislead discovery, and what is asked of each method on them.

The models are those of `circuits.planted`, by seed, written beside the run directory. Each is there twice: as it is
(`hard-00`), and with a noisy behaviour (`wrong0.1-00`), in which a share of the answers that the method sees is wrong;
even seeds have the first share of `WRONG_ANSWERS`, odd ones the second. Specimens of the caller can be asked the same.

Beyond the figures of every discovery benchmark: precision at the true size, whether the guarantee of the chosen
components holds on many fresh prompts, and whether faithful circuits (the best and a rival) hold components that are
not in the known circuit. Wrong answers are in what a user would have, the prompts of the discovery and those that
rivals are confirmed on; faithfulness and guarantees are judged by the model's own outputs.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from vesalius.behaviours.trial import NothingUnseen, Trial, trial, with_wrong_answers
from vesalius.circuits.planted import plant_hard
from vesalius.circuits.specimens import SPECIMEN_FILE
from vesalius.components import Component
from vesalius.discovery.checks import circuit_size
from vesalius.discovery.faithfulness import NothingToKeep, scores_without
from vesalius.discovery.guarantee import guarantee
from vesalius.discovery.method import MethodResult
from vesalius.discovery.rivals import find_rivals
from vesalius.documents.circuit import Circuit
from vesalius.documents.metric import Metric
from vesalius.documents.scorecard import AREAS, DiscoveryFigures, HardFigures
from vesalius.grading.discovery import TrueCircuit, median_and_mean, precision_at_size
from vesalius.model.specimen import Specimen
from vesalius.runs.selection import CircuitCase

MODELS = 20
#: Shares of wrong answers in noisy behaviours.
WRONG_ANSWERS = (0.1, 0.3)
#: Fresh prompts on which a guarantee is judged, and the prompts that it is made on.
FRESH, FRESH_SEED, GUARANTEED_ON = 400, 9_000_011, 50


def hard_circuits(folder: Path, limit: int | None = None) -> list[CircuitCase]:
    """The hard models as specimens in a folder, `limit` of each kind; those that are there already stay."""
    clean, noisy = [], []
    for seed in range(MODELS if limit is None else limit):
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
