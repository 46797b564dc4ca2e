"""What an explanation of SmolLM2 costs on a device: seconds after loading, how long the device works in them, and
whether faster number formats come to the same verdicts.

Every explanation runs in this process: once cold, once warm (the seconds that are reported), and once under torch's
profiler, which gives the time of the device's own work and how often the program waited for it. Formats are float32,
TF32 (float32 with the matrix products of ten bits) and bfloat16; verdicts are compared claim by claim with float32.

    python -m benchmarks.explain_gpu smollm2-135m --behaviours induction --device cuda
"""

import argparse
import json
import re
import time
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

import vesalius as ves

#: What a program calls when it waits for the device.
WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")
FORMATS = ("float32", "tf32", "bfloat16")


def explained(specimen: Any, seed: int, *, no_ladder: bool = True) -> tuple[Any, float]:
    """An explanation and its seconds."""
    if specimen.model.device.type == "cuda":
        torch.cuda.synchronize()
    begun = time.perf_counter()
    explanation = ves.explain(specimen, seed=seed, no_ladder=no_ladder, progress=False)
    if specimen.model.device.type == "cuda":
        torch.cuda.synchronize()
    return explanation, time.perf_counter() - begun


def profiled(specimen: Any, seed: int) -> dict[str, Any]:
    """The device's own seconds in an explanation, launches and waits."""
    with profile(activities=[ProfilerActivity.CUDA]) as run:
        _, seconds = explained(specimen, seed)
    busy, launches, waits = 0.0, 0, 0
    assert run.profiler is not None
    assert run.profiler.kineto_results is not None
    for event in run.profiler.kineto_results.events():  # averages over millions of events take minutes
        if str(event.device_type()).endswith("CUDA"):
            busy += event.duration_ns() / 1e9
        elif event.name().startswith(("cudaLaunchKernel", "cuLaunchKernel")):
            launches += 1
        elif event.name() in WAITS:
            waits += 1
    return {"profiled_seconds": seconds, "busy_seconds": busy, "launches": launches, "waits": waits}


def claims_of(explanation: Any) -> dict[str, str]:
    """The verdict of every claim under its component, its kind and its words, figures left out."""
    return {
        f"{part.id} {claim.kind}: {re.sub(r'(?<![A-Z])[-+]?[0-9.]+', '#', claim.text)}": claim.verdict
        for part in explanation.components
        for claim in part.claims
    }


def compared(one: Any, other: Any) -> dict[str, Any]:
    """What differs between two explanations."""
    first, second = claims_of(one), claims_of(other)
    parts = [{part.id for part in explanation.components} for explanation in (one, other)]
    both = first.keys() & second.keys()
    return {
        "components": [len(each) for each in parts],
        "only_in_one": sorted(parts[0] ^ parts[1]),
        "claims": [len(first), len(second)],
        "same_words": len(both),
        "verdicts_that_differ": {
            name: [first[name], second[name]] for name in sorted(both) if first[name] != second[name]
        },
        "supported": [sum(verdict == "supported" for verdict in each.values()) for each in (first, second)],
    }


def main() -> None:
    """Measure and print one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--behaviours", nargs="+", default=["induction", "ioi", "greater-than"])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--formats", default=",".join(FORMATS))
    parser.add_argument("--out", default=None)
    arguments = parser.parse_args()
    cuda = arguments.device.startswith("cuda")
    document: dict[str, Any] = {
        "benchmark": "explain_gpu",
        "machine": {"device": torch.cuda.get_device_name() if cuda else "cpu", "torch": torch.__version__},
        "rows": [],
    }

    def keep() -> None:
        if arguments.out:
            with open(arguments.out, "w", encoding="utf-8") as file:
                json.dump(document, file, indent=2)

    for behaviour in arguments.behaviours:
        reference = None
        for number_format in arguments.formats.split(","):
            torch.backends.cuda.matmul.allow_tf32 = number_format == "tf32"
            dtype = "float32" if number_format == "tf32" else number_format
            specimen = ves.load(arguments.model, behaviour=behaviour, device=arguments.device, dtype=dtype)
            row: dict[str, Any] = {"behaviour": behaviour, "format": number_format}
            document["rows"].append(row)
            if reference is None:
                _, row["cold_seconds"] = explained(specimen, 0)
            explanation, row["seconds"] = explained(specimen, 0)
            keep()
            if cuda and behaviour == "induction" and reference is None:
                row.update(profiled(specimen, 0))
                row["busy_share"] = row["busy_seconds"] / row["seconds"]
                keep()
            if behaviour == "induction" and reference is None:
                _, row["seconds_with_ladder"] = explained(specimen, 0, no_ladder=False)
                keep()
            if reference is None:
                reference = explanation
                row["again"] = compared(explanation, explained(specimen, 0)[0])
            else:
                row["beside_float32"] = compared(reference, explanation)
            keep()
    print(json.dumps(document, indent=2))


if __name__ == "__main__":
    main()
