"""Do neurons say more than components on the hard models of `circuits.planted`, whose units are known?

    python -m benchmarks.hard_neurons --models 64 --out benchmarks/results/hard_neurons.json

Every MLP of these models belongs to the circuit, but of its units only those that look the chain's pairs up, or take
the backups' majority, are of the task; others are idle, or serve the second task. For each model, the smallest set of
neurons that keeps 0.9 of the behaviour on 8 prompts by `vesalius neurons`: which share of it is true (precision), which
share of the true units it holds (recall), and whether it is false, that is, holds a unit that is not. `share` is what
it keeps on held-out prompts, `chance` the precision of random neurons.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import torch

from vesalius.circuits.specimens import load_specimen
from vesalius.components import Component
from vesalius.discovery.faithfulness import NothingToKeep
from vesalius.discovery.neurons import keep_neurons
from vesalius.documents.metric import Metric
from vesalius.files import write_json
from vesalius.statistics import mean_interval
from vesalius_truth.planted import PlantedCircuit, Q, plant_hard

KEEP, PROMPTS = 0.9, 8


def true_units(planted: PlantedCircuit) -> set[Component]:
    """The units of the chain, the first of each layer, and those of the backups' majority behind it."""
    depth, config = len(planted.squares), planted.model.config
    counts = [Q * Q] * depth + [2 * Q] * (config.n_layers - depth)
    return {Component(layer, neuron=unit) for layer, count in enumerate(counts) for unit in range(count)}


def measured(seed: int, folder: Path) -> dict[str, Any] | None:
    """The figures of one model; None where ablating every neuron changes nothing."""
    planted = plant_hard(seed)
    specimen, true = load_specimen(planted.write(folder / str(seed))), true_units(planted)
    try:
        result = keep_neurons(specimen, keep=KEEP, n=PROMPTS)
    except NothingToKeep:
        return None
    kept = {part for part, _ in result.neurons}
    share = next(point.share for point in result.curve if point.size == len(kept))
    return {
        "seed": seed,
        "second_task": "second task" in planted.features,
        "noise": planted.noise,
        "neurons": result.n_neurons,
        "kept": len(kept),
        "share": share,
        "precision": len(kept & true) / len(kept),
        "recall": len(kept & true) / len(true),
        "chance": len(true) / result.n_neurons,
        "false": bool(kept - true),
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Means with intervals over models, and the share of false sets."""
    figures: dict[str, Any] = {"n": len(rows)}
    for name in ("precision", "recall", "chance", "share"):
        values = torch.tensor([row[name] for row in rows], dtype=torch.float64)
        low, high = (float(end) for end in mean_interval(values[:, None]))
        figures[name] = {"mean": float(values.mean()), "low": low, "high": high}
    return figures | {"false": Metric.of_share(sum(row["false"] for row in rows), len(rows)).as_data()}


def main() -> None:
    """Print and write the figures: of all models, and of those with and without a second task."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=64)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = [row for seed in range(given.models) if (row := measured(seed, Path(folder))) is not None]
    groups = {"all": rows, "second task": [row for row in rows if row["second_task"]]}
    groups |= {"one task": [row for row in rows if not row["second_task"]]}
    figures = {name: summary(some) for name, some in groups.items() if some}
    document = {"benchmark": "hard_neurons", "keep": KEEP, "prompts": PROMPTS, "figures": figures, "models": rows}
    print(json.dumps({name: document[name] for name in ("figures",)}, indent=1))
    if given.out:
        write_json(given.out, document)


if __name__ == "__main__":
    main()
