"""Train generated programs into models with weaker strictness, for `vesalius bench discovery --hard --specimens DIR`.

    python -m benchmarks.loose_models --count 16 --out loose --jobs 16
    vesalius bench discovery --hard --specimens loose --n 8 --out run

The strict term of the training loss, which keeps the other components from mattering, has the weight 0.1 in every
second model and 0 in the others (models of the benchmark: 1). What is written computes its program (accuracy 0.99) in
its own components (interchange 0.9); `strict_worst` and `strict_all` of its card say how much the others matter.
"""

import argparse
import json
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from vesalius import api
from vesalius.rasp import load_spec
from vesalius_truth.making import TrainedModel, write_trained
from vesalius_truth.training.fit import best_candidate
from vesalius_truth.training.setting import setting_of
from vesalius_truth.training.siit import Weights
from vesalius_truth.training.stepper import default_recipe
from vesalius_truth.training.trainer import TrainingResult, train

STRICT = (0.1, 0.0)
LEAST_ACCURACY, LEAST_INTERCHANGE = 0.99, 0.9
DEPTH = 3


def make(place: tuple[int, Path], *, out: Path, steps: int | None, seed: int) -> dict[str, object]:
    """Train one program, write it where it is accurate, and say how strict it is."""
    number, path = place
    torch.set_num_threads(1)
    strict, setting, device = STRICT[number % len(STRICT)], setting_of(load_spec(path)), torch.device("cpu")
    recipe = default_recipe([setting], device=device)
    recipe = replace(recipe, weights=Weights(strict=strict), steps=steps or recipe.steps)
    result = None
    for event in train([setting], device=device, seed=seed + number, recipe=recipe):
        result = event if isinstance(event, TrainingResult) else None
    assert result is not None
    best, gate = best_candidate(setting, result.candidates[setting.name], n=512)
    accepted = gate.accuracy >= LEAST_ACCURACY and gate.iia_worst >= LEAST_INTERCHANGE
    name = f"strict{strict:g}-{number:02d}"
    if accepted:
        how = f"benchmarks.loose_models: {path.stem}, strict weight {strict:g}, {recipe.steps} steps"
        write_trained(TrainedModel(path, setting, best.transformer(), gate, how), out / name)
    figures = {"accuracy": gate.accuracy, "iia_worst": gate.iia_worst}
    figures |= {"strict_worst": gate.strict_worst, "strict_all": gate.strict_all}
    return {"name": name, "program": path.stem, "strict": strict, "accepted": accepted, **figures}


def main() -> None:
    """Generate, train, write, and list the models."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=16)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--seed", type=int, default=81_001)
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    specs = given.out.with_name(f"{given.out.name}-programs")
    api.generate(seed=given.seed, out=specs, count=given.count, depth=DEPTH)
    places = list(enumerate(sorted(specs.glob("*.py"))))
    with ProcessPoolExecutor(given.jobs) as pool:
        rows = list(pool.map(partial(make, out=given.out, steps=given.steps, seed=given.seed), places))
    print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
