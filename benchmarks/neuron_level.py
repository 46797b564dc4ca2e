"""Does it help to look at neurons? On known circuits, and by what circuits of neurons and of MLPs keep.

    python -m benchmarks.neuron_level --out benchmarks/results/neuron_level.json
    python -m benchmarks.neuron_level --natural --out benchmarks/results/neuron_level_natural.json

On known circuits (those of the 84 that have MLPs inside and outside the circuit): is an MLP of the circuit scored above
the others? An MLP's own score is the magnitude of its mean attribution; by its neurons it is the sum, or the largest,
of the magnitudes of their mean attributions. (Their plain sum is the MLP's own.) The exact effect of resampling the MLP
stands beside. The figure is the ROC area over the MLPs of a model, mean over models, with intervals and paired
differences over models.

On SmolLM2: the share of a behaviour that the k best MLPs keep, all neurons of the others resampled, against as many
single neurons as k MLPs have; both ranked by `relp-qk` and read on held-out prompts.
"""

import argparse
import platform
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

import vesalius as ves
from vesalius.behaviours.trial import Trial, trial
from vesalius.components import Component
from vesalius.discovery.attribution import smooth_readout
from vesalius.discovery.neurons import HELD_OUT_SEED, HELD_OUT_SPLIT, Keeping
from vesalius.files import write_json
from vesalius.intervene import Cost, ablation_named, attribute_units, effects
from vesalius.intervene.attribution import Rule
from vesalius.model.specimen import Specimen
from vesalius.model.transformer import Transformer
from vesalius.statistics import mean_interval
from vesalius_truth.grading.discovery import auroc

N, SEED = 32, 0
BEHAVIOURS = ("examples/agreement.jsonl", "ioi", "induction", "greater-than", "capitals")
KEPT_MLPS = (1, 2, 4, 8, 15)


def neuron_scores(model: Transformer, material: Trial, rule: Rule) -> Float[Tensor, "layer neuron"]:
    """Every neuron's mean attribution over the prompts."""
    replacement = ablation_named("resample").table(
        model, material.batch, counterfactual=material.counterfactual, neurons=True
    )
    readout, _ = smooth_readout(model, material)
    scores = attribute_units(model, material.batch, readout, replacement, rule=rule).mean(0)
    return scores.view(model.config.n_layers, -1)


def mlp_scores(specimen: Specimen) -> dict[str, Float[Tensor, " layer"]]:
    """Each way to score the MLPs of a model."""
    model, material = specimen.model, trial(specimen, N, seed=SEED)
    mlps = [Component(layer) for layer in range(model.config.n_layers)]
    exact = effects(
        model,
        material.batch,
        material.readout,
        kind="resample",
        sets=[(part,) for part in mlps],
        counterfactual=material.counterfactual,
        positions=material.where,
    )
    scores = neuron_scores(model, material, "gradient")
    return {
        "exact": exact.mean.abs(),
        "own": scores.sum(1).abs(),
        "sum of neurons": scores.abs().sum(1),
        "largest neuron": scores.abs().amax(1),
    }


def areas() -> dict[str, Any]:
    """ROC areas of every score over the models with MLPs inside and outside the circuit."""
    rows, models = [], 0
    for name in (row.name for row in ves.specimens() if row.kind == "benchmark"):
        specimen, models = ves.load(name), models + 1
        true = [Component(layer) in specimen.components for layer in range(specimen.model.config.n_layers)]
        if len(set(true)) == 2:
            scores = mlp_scores(specimen)
            rows.append({name: auroc(list(zip(x.tolist(), true, strict=True))) for name, x in scores.items()})
    return _summary(rows, models)


def _summary(rows: list[dict[str, Any]], models: int) -> dict[str, Any]:
    """Means over models and differences to the MLP's own score."""

    def figure(values: list[float]) -> dict[str, float]:
        column = torch.tensor(values, dtype=torch.float64)[:, None]
        low, high = mean_interval(column)
        return {"mean": float(column.mean()), "low": float(low), "high": float(high)}

    names = rows[0].keys()
    return {
        "models": models,
        "n": len(rows),
        "area": {name: figure([row[name] for row in rows]) for name in names},
        "less_own": {name: figure([row[name] - row["own"] for row in rows]) for name in names if name != "own"},
    }


def natural(behaviour: str) -> dict[str, Any]:
    """Shares that MLPs and as many neurons keep on held-out prompts."""
    specimen = ves.load("smollm2-135m", behaviour=behaviour)
    model, material = specimen.model, trial(specimen, 16, seed=SEED)
    held_out = trial(specimen, 16, seed=HELD_OUT_SEED + SEED, split=HELD_OUT_SPLIT, apart_from=material)
    scores, width = neuron_scores(model, material, "relp-qk"), model.config.d_mlp
    best = scores.sum(1).abs().argsort(descending=True, stable=True)
    orders = {
        "mlps": (best[:, None] * width + torch.arange(width)).flatten(),
        "neurons": scores.flatten().abs().argsort(descending=True, stable=True),
    }
    keeping, sizes = Keeping(model, held_out, Cost()), [width * k for k in KEPT_MLPS]
    shares = {name: keeping.shares(order, sizes) for name, order in orders.items()}
    few = keeping.shares(orders["neurons"], [width // 8, width // 2])
    return {
        "behaviour": behaviour,
        "n": len(held_out.batch),
        "sizes": sizes,
        "few_neurons": {str(size): share for size, share in zip((width // 8, width // 2), few, strict=True)},
        **shares,
    }


def main() -> None:
    """Measure one of the two and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--natural", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    machine = {"processor": platform.machine(), "torch": torch.__version__, "threads": torch.get_num_threads()}
    result = {"behaviours": [natural(one) for one in BEHAVIOURS]} if given.natural else areas()
    write_json(given.out, {"benchmark": "neuron level", "schema": 1, "machine": machine, **result})


if __name__ == "__main__":
    main()
