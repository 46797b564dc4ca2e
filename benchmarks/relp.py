"""How well attribution agrees with exact patching: EAP, EAP-IG and RelP, heads and MLPs apart, and what each costs.

    python -m benchmarks.relp --out benchmarks/results/relp.json smollm2-135m:ioi smollm2-135m:induction
    python -m benchmarks.relp --out benchmarks/results/relp.json models/gemma-3-270m-q4_k_m.gguf:ioi

For every component: the exact effect of putting the counterfactual's output in its place, and its estimate, the sum of
its edges. Correlations (Pearson) are over components, of means over the prompts. At equal passes EAP-IG, which takes
four times as many, sees a quarter of the prompts. Every pair of model and behaviour is written as soon as it is there;
a file that holds some of them already is completed.
"""

import argparse
import platform
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import vesalius as ves
from vesalius.behaviours.trial import Trial, trial
from vesalius.files import read_json, write_json
from vesalius.intervene import effects
from vesalius.intervene.attribution import edge_attribution
from vesalius.intervene.edges import EdgeGraph
from vesalius.model.transformer import Transformer

N, SEED, STEPS = 8, 0, 5
METHODS: dict[str, dict[str, Any]] = {
    "eap": {},
    "relp": {"rule": "relp"},
    "relp-qk": {"rule": "relp-qk"},
    "eap-ig": {"steps": STEPS},
}


def correlation(one: Tensor, other: Tensor) -> float:
    """Pearson's."""
    return float(torch.corrcoef(torch.stack([one.double(), other.double()]))[0, 1])


def estimates(model: Transformer, material: Trial, options: dict[str, Any]) -> tuple[Tensor, float]:
    """The estimated effect of every component on every prompt, and the CPU seconds it took."""
    start = time.process_time()
    scores = edge_attribution(
        model,
        material.batch,
        material.readout,
        counterfactual=material.counterfactual,
        where=material.where,
        **options,
    )
    seconds = time.process_time() - start
    return torch.where(EdgeGraph.of(model.config).real, scores, 0.0).sum(-1)[:, 1:], seconds


def measured(model_name: str, behaviour: str) -> dict[str, Any]:
    """One behaviour of one model."""
    specimen = ves.load(model_name, behaviour=behaviour)
    model, material = specimen.model, trial(specimen, N, seed=SEED)
    start = time.process_time()
    exact = effects(
        model,
        material.batch,
        material.readout,
        kind="resample",
        counterfactual=material.counterfactual,
        positions=material.where,
    )
    exact_seconds = time.process_time() - start
    kinds = {
        "heads": torch.tensor([part.is_head for part in model.components]),
        "mlps": torch.tensor([not part.is_head for part in model.components]),
    }
    estimates(model, material, {})  # warm-up
    methods = {}
    for name, options in METHODS.items():
        scores, seconds = estimates(model, material, options)
        passes = 1 + 3 * options.get("steps", 1)
        methods[name] = {
            "passes": passes,
            "cpu_seconds": seconds,
            **{kind: correlation(scores[:, own].mean(0), exact.mean[own]) for kind, own in kinds.items()},
        }
        if name == "eap-ig":
            few = scores[: N // 4].mean(0)
            methods["eap-ig, a quarter of the prompts"] = {
                "passes": passes / 4,
                **{kind: correlation(few[own], exact.mean[own]) for kind, own in kinds.items()},
            }
    return {
        "model": specimen.name,
        "behaviour": behaviour,
        "n": N,
        "seed": SEED,
        "components": len(model.components),
        "exact_forwards": exact.forwards,
        "exact_cpu_seconds": exact_seconds,
        "methods": methods,
        "time_ratio_to_eap": {
            name: methods[name]["cpu_seconds"] / methods["eap"]["cpu_seconds"] for name in METHODS if name != "eap"
        },
    }


def main() -> None:
    """Measure what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="+", help="MODEL:BEHAVIOUR")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    runs = read_json(given.out)["runs"] if given.out.exists() else []
    machine = {"processor": platform.machine(), "torch": torch.__version__, "threads": torch.get_num_threads()}
    for model, behaviour in (case.rsplit(":", 1) for case in given.cases):
        done = {(run["model"], run["behaviour"]) for run in runs}
        if (Path(model).stem, behaviour) not in done:
            runs.append(measured(model, behaviour))
            write_json(given.out, {"benchmark": "relp", "schema": 1, "machine": machine, "runs": runs})


if __name__ == "__main__":
    main()
