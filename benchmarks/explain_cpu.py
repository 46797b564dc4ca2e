"""What an explanation of SmolLM2 takes on one core: CPU seconds of the whole, and of the runs of the engine that it is
made of. Seconds are those of the process, the least of a few repeats for single runs: a shared machine changes them by
tens of percent. `PYTHONPATH` of another checkout measures that one.

    OMP_NUM_THREADS=1 python -m benchmarks.explain_cpu smollm2-135m --behaviour capitals --top 2 -n 8
"""

import argparse
import json
import random
import time
from collections.abc import Callable
from typing import Any

import torch

import vesalius as ves
from vesalius.components import Component
from vesalius.explanations.laboratory import NaturalLab
from vesalius.explanations.laboratory.runs import edges_between
from vesalius.intervene import zeros

PROMPTS, REPEATS = 8, 4


def runs_of(lab: NaturalLab) -> dict[str, Callable[[], Any]]:
    """Runs as claims ask for them, of eight prompts each, about half way up the model."""
    model, layers = lab.model, lab.model.config.n_layers
    head, mlp, early = Component(layers // 2 - 1, 3), Component(layers // 2), Component(layers // 6, 2)
    parts, drawn = list(model.components), random.Random(0)
    circuits = [set(drawn.sample(parts, 24)) for _ in range(6)]
    some = range(layers // 3, layers // 3 + 8)
    return {
        "a head by other prompts at the answer": lambda: lab.patch_effects([[head]], positions=lab.mask("end")),
        "64 heads by other prompts at the answer": lambda: lab.patch_effects(
            [[Component(layer, place)] for layer in some for place in range(8)], positions=lab.mask("end")
        ),
        "a head by zeros at the answer, with answers": lambda: lab.edited([[head]], zeros(model), at="end"),
        "a head by other prompts": lambda: lab.patch_effects([[head]]),
        "24 heads by other prompts": lambda: lab.patch_effects(
            [[Component(layer, 3)] for layer in range(3, min(27, layers))]
        ),
        "six circuits of 24 alone": lambda: lab.patch_effects([[p for p in parts if p not in c] for c in circuits]),
        "a path into an MLP": lambda: lab.path_effects([edges_between(early, mlp)]),
        "a path to the logits": lambda: lab.path_effects([edges_between(early, None)]),
        "attention on a role cut": lambda: lab.cut([head], next(iter(lab.prompts.roles)), "end"),
        "what a head adds to the logits": lambda: lab.direct_sides(head),
    }


def least(run: Callable[[], Any]) -> float:
    """CPU seconds of a run that has been made once."""
    run()
    seconds = []
    for _ in range(REPEATS):
        begun = time.process_time()
        run()
        seconds.append(time.process_time() - begun)
    return round(min(seconds), 4)


def main() -> None:
    """Measure and print one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--behaviour", default="induction")
    parser.add_argument("--top", type=int, default=None, help="components that are described (default: as usual)")
    parser.add_argument("-n", type=int, default=None, help="the most prompts of a claim (default: as usual)")
    parser.add_argument("--ladder", action="store_true")
    parser.add_argument("--only-runs", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    specimen = ves.load(arguments.model, behaviour=arguments.behaviour)
    found: dict[str, Any] = {"behaviour": arguments.behaviour, "torch": torch.__version__}
    if not arguments.only_runs:
        how = {name: value for name in ("top", "n") if (value := getattr(arguments, name)) is not None}
        begun = time.process_time()
        explanation = ves.explain(specimen, seed=0, no_ladder=not arguments.ladder, progress=False, **how)
        found |= {"cpu_s": round(time.process_time() - begun, 1), "rows": explanation.rows, **how}
    lab = NaturalLab.draw(specimen, PROMPTS)
    found["runs_cpu_s"] = {name: least(run) for name, run in runs_of(lab).items()}
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
