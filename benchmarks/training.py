"""Stacked training against training the same models one after another, on one device.

    python benchmarks/training.py --device cuda --models 32 --steps 200 > training.json

Prints one JSON document: steps per second of the stack (one step trains every model once), model steps per second both
ways, models per minute at a full schedule, and their ratio. Compilation and graph capture are reported apart.
"""

import argparse
import json
import time
from collections.abc import Sequence

import torch

from vesalius.rasp import Comparison, Map, Program, Select, SelectorWidth, compile_program, frac_prevs, tokens
from vesalius.rasp.language import shift_by
from vesalius_truth.training.setting import Setting, setting_of
from vesalius_truth.training.siit import Curriculum, tabulate
from vesalius_truth.training.stack import Copy, Stack
from vesalius_truth.training.stepper import Recipe, Stepper

LETTERS = ("a", "b", "c", "d", "e", "f", "g", "h")


def programs() -> list[Program]:
    """Four small programs: a look-up, a running fraction, a count and a shift."""
    upper = Map(str.upper, tokens, name="upper")
    fraction = frac_prevs(Map(lambda token: token == "a", tokens))
    count = SelectorWidth(Select(tokens, tokens, Comparison.EQ), name="count")
    outputs = {"upper": upper, "fraction": fraction, "count": count, "shift": shift_by(1, tokens)}
    return [compile_program(output, LETTERS, 9, causal=False, name=name) for name, output in outputs.items()]


def timed(
    settings: Sequence[Setting], copies: Sequence[Copy], recipe: Recipe, device: torch.device
) -> dict[str, float]:
    """Seconds to get ready (tables, compilation) and seconds for the steps of one stack."""
    began = time.perf_counter()
    stack = Stack(settings, copies, device=device)
    tables = tabulate(settings, recipe.pairs, seed=0, device=device)
    stepper = Stepper(stack, tables, Curriculum(stack), recipe, seed=0)
    stepper.advance(1)
    _wait(device)
    ready = time.perf_counter()
    stepper.advance(recipe.steps)
    _wait(device)
    return {"ready": ready - began, "steps": time.perf_counter() - ready}


def compare(n_models: int, steps: int, batch: int, schedule: int, device: torch.device) -> dict[str, object]:
    """Time the stack, then each model of it alone."""
    settings = [setting_of(program) for program in programs()]
    copies = [Copy(i % len(settings), i, 5e-3) for i in range(n_models)]
    recipe = Recipe(steps, batch, pairs=4096)
    together = timed(settings, copies, recipe, device)
    alone = [
        timed([settings[copy.setting]], [Copy(0, copy.seed, 5e-3)], recipe, device) for copy in copies[: len(settings)]
    ]
    alone_step = sum(part["steps"] for part in alone) / len(alone) / steps
    stack_step = together["steps"] / steps
    return {
        "benchmark": "training",
        "device": str(device),
        "torch": str(torch.__version__),
        "models": n_models,
        "batch": batch,
        "measured_steps": steps,
        "schedule_steps": schedule,
        "stack": {
            "steps_per_second": 1 / stack_step,
            "model_steps_per_second": n_models / stack_step,
            "models_per_minute": 60 * n_models / (stack_step * schedule),
            "ready_seconds": together["ready"],
        },
        "one_after_another": {
            "steps_per_second": 1 / alone_step,
            "model_steps_per_second": 1 / alone_step,
            "models_per_minute": 60 / (alone_step * schedule),
            "ready_seconds_per_model": sum(part["ready"] for part in alone) / len(alone),
        },
        "speedup": n_models * alone_step / stack_step,
        "note": "one after another: mean over the four programs, one model each, compiled and captured the same way",
    }


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", help="where to train: cpu, cuda, cuda:1, ...")
    parser.add_argument("--models", type=int, default=16, help="models in the stack")
    parser.add_argument("--steps", type=int, default=100, help="steps to time")
    parser.add_argument("--batch", type=int, default=64, help="pairs per model and step")
    parser.add_argument("--schedule", type=int, default=2500, help="steps of a full training, for models per minute")
    given = parser.parse_args()
    result = compare(given.models, given.steps, given.batch, given.schedule, torch.device(given.device))
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
