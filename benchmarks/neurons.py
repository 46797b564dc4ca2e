"""Neurons: an exact sweep against a loop of hooked forwards, and the scores of all neurons of a large model.

    python -m benchmarks.neurons --out benchmarks/results/neurons.json
    python -m benchmarks.neurons --agreement --out benchmarks/results/neurons_agreement.json
    python -m benchmarks.neurons --large --device cuda --out FILE

The sweep replaces single neurons of SmolLM2-135M, numbers 0 and 768 of every layer, by their values on the
counterfactual prompt. The loop is what one writes: one forward of all prompts for each neuron, with a hook at
`hook_post`.

With `--agreement`, the smallest sets of neurons that keep 0.8 of subject-verb agreement (`examples/agreement.jsonl`),
by each way of scoring.

With `--large`, weights are random in the shape of an 8B model (`--shape`): seconds and peak memory, weights included,
of the scores of all neurons by RelP (counterfactual values, forward and backward pass), and by the gradient.
"""

import argparse
import platform
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import vesalius as ves
from benchmarks.large import SHAPES, Measurement, random_weights
from benchmarks.measure import rivals
from vesalius.behaviours.trial import Trial, trial
from vesalius.components import Component, mlp_units
from vesalius.files import write_json
from vesalius.intervene import Batch, ablation_named, attribute_units, effects
from vesalius.intervene.attribution import RULES, Rule
from vesalius.model.hooks import HookPoint
from vesalius.model.transformer import Transformer

N, SEED, SAMPLE, REPEATS = 4, 0, 60, 3


def swept(model: Transformer, material: Trial, neurons: list[Component]) -> Tensor:
    """The effects of single neurons by the engine."""
    return effects(
        model,
        material.batch,
        material.readout,
        kind="resample",
        sets=[(part,) for part in neurons],
        counterfactual=material.counterfactual,
    ).matrix


@torch.no_grad()
def looped(model: Transformer, material: Trial, neurons: list[Component]) -> Tensor:
    """The same by one hooked forward for each neuron."""
    batch, readout, rows = material.batch, material.readout, torch.arange(len(material.batch))
    other = ablation_named("resample").table(model, batch, counterfactual=material.counterfactual, neurons=True).values

    def scores(hooks: list[Any]) -> Tensor:
        logits = model.run_with_hooks(
            batch.tokens, mask=batch.mask, fwd_hooks=hooks, at=readout.at, choose=readout.choose
        )
        return readout.score(logits, rows)

    clean, columns = scores([]), []
    for part in neurons:

        def replace(post: Tensor, hook: HookPoint, part: Component = part) -> Tensor:
            post, new = post.clone(), other.units[part.layer][:, :, part.neuron]
            # In the last layer only the positions that are read are computed.
            last = part.layer == model.config.n_layers - 1 and readout.at is not None
            post[:, :, part.neuron] = new.gather(1, readout.at) if last and readout.at is not None else new
            return post

        columns.append(clean - scores([(f"blocks.{part.layer}.mlp.hook_post", replace)]))
    return torch.stack(columns, 1)


def sweep_against_loop() -> dict[str, Any]:
    """CPU seconds of both on the same neurons, and how far their effects are apart."""
    specimen = ves.load("smollm2-135m", behaviour="ioi")
    model, material = specimen.model, trial(specimen, N, seed=SEED)
    every = mlp_units(model.config)
    neurons = every[:: len(every) // SAMPLE][:SAMPLE]
    ours, theirs = swept(model, material, neurons), looped(model, material, neurons)
    times = rivals(
        lambda: swept(model, material, neurons),
        lambda: looped(model, material, neurons),
        repeats=REPEATS,
        warm_up=False,
    )
    return {
        "model": specimen.name,
        "behaviour": "ioi",
        "n": N,
        "neurons": len(neurons),
        "of": len(every),
        "largest_effect": float(theirs.abs().max()),
        "largest_difference": float((ours - theirs).abs().max()),
        **times,
    }


def all_scores(shape_name: str, device: torch.device) -> dict[str, Any]:
    """Seconds and peak bytes of the scores of all neurons of a model with random weights."""
    shape = SHAPES[shape_name]
    model, measurement = random_weights(shape, device), Measurement(shape, device)
    batch, other = Batch(measurement.tokens), Batch(measurement.others)
    document: dict[str, Any] = {
        "shape": shape_name,
        "device": str(device),
        "dtype": str(shape.dtype).removeprefix("torch."),
        "neurons": len(mlp_units(model.config)),
        "prompts": shape.prompts,
        "width": shape.width,
    }

    def scored(rule: Rule) -> Tensor:
        replacement = ablation_named("resample").table(model, batch, counterfactual=other, neurons=True)
        return attribute_units(model, batch, measurement.readout, replacement, rule=rule)

    for rule in RULES:
        for name in ("first", "second"):  # the first call includes what the libraries do once
            scores, seconds, peak = measurement.with_peak(partial(scored, rule))
            document[f"{rule}_{name}"] = {
                "seconds": seconds,
                "peak_bytes": peak,
                "finite": bool(scores.isfinite().all()),
                "largest": float(scores.abs().max()),
            }
    return document


def agreement() -> dict[str, Any]:
    """The circuits of subject-verb agreement, and the CPU seconds of each."""
    specimen = ves.load("smollm2-135m", behaviour="examples/agreement.jsonl")
    circuits = []
    for rule in RULES:
        start = time.process_time()
        circuit = ves.neurons(specimen, method=rule, keep=0.8, n=16, progress=False)
        circuits.append({**circuit.as_data(), "cpu_seconds": time.process_time() - start})
    return {"circuits": circuits}


def main() -> None:
    """Measure one of the two and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--agreement", action="store_true")
    parser.add_argument("--shape", default="8b", choices=SHAPES)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    machine = {"processor": platform.machine(), "torch": torch.__version__, "threads": torch.get_num_threads()}
    if given.large:
        measured = all_scores(given.shape, torch.device(given.device))
    else:
        measured = agreement() if given.agreement else sweep_against_loop()
    write_json(given.out, {"benchmark": "neurons", "schema": 1, "machine": machine, **measured})


if __name__ == "__main__":
    main()
