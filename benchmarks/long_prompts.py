"""Long prompts at the shape of an 8B model: sweeps as a share of the device's matrix limit, with peak memory, fused
attention beside the table of scores, and edge attribution of one prompt of 4,096 tokens.

Weights are random, made on the device. The limit is the best of several products of square matrices in the model's
number format. Work is counted operation by operation in a run of its own (`torch.utils.flop_counter`); fused attention
counts half of its table, because what a causal mask hides is not needed. Every row is measured after a warm run.

    python -m benchmarks.long_prompts --shape 8b --device cuda
    python -m benchmarks.long_prompts --shape tiny --device cpu
"""

import argparse
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.large import SHAPES, Measurement, random_weights
from vesalius.intervene import Batch, effects
from vesalius.intervene.attribution import Portions, edge_attribution
from vesalius.intervene.estimate import Prompts, attribution_peak, sweep_peak
from vesalius.intervene.recordings import activation_memory
from vesalius.model import Transformer, fused
from vesalius.model.devices import weight_bytes

#: Prompts, tokens, and every which component is swept.
ROWS = {"8b": ((8, 32, 1), (2, 256, 4), (1, 1024, 4), (1, 4096, 16)), "tiny": ((4, 16, 1), (2, 160, 2))}
#: Sides of the squares whose product is timed.
SQUARES = {"cuda": (4096, 8192, 16384), "cpu": (256, 512)}
ATTRIBUTED = {"8b": (1024, 2048, 4096), "tiny": (64, 160)}


def matrix_limit(dtype: torch.dtype, device: torch.device) -> float:
    """Operations per second of the fastest product of squares."""
    best = 0.0
    for size in SQUARES[device.type]:
        a, b = (torch.randn(size, size, dtype=dtype, device=device) for _ in "ab")
        for _ in range(6):
            _wait(device)
            begun = time.perf_counter()
            for _ in range(4):
                a @ b
            _wait(device)
            best = max(best, 4 * 2 * size**3 / (time.perf_counter() - begun))
    return best


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@contextmanager
def table_of_scores(wanted: bool) -> Iterator[None]:
    """Attention by its table of scores, as it was, or fused where it may be."""
    before = fused.FUSED_FROM
    fused.FUSED_FROM = 10**9 if wanted else before
    try:
        yield
    finally:
        fused.FUSED_FROM = before


def operations(work: Any) -> float:
    """Floating point operations of a run, counted one by one; the counter does not know shared keys."""
    with patch.object(fused, "shares_keys", lambda *tensors: False), FlopCounterMode(display=False) as counter:
        work()
    counts = counter.get_flop_counts()["Global"]
    return sum(count / (2 if "attention" in str(name) else 1) for name, count in counts.items())


def swept(model: Transformer, measured: Measurement, every: int, limit: float) -> dict[str, Any]:
    """Seconds, share of the limit, and memory against the plan of one sweep."""
    batch, readout = Batch(measured.tokens), measured.readout
    sets, shape = [(part,) for part in model.components][::every], measured.shape
    memory = activation_memory(model, None)

    def work() -> Any:
        return effects(model, batch, readout, sets=sets, memory=memory)

    work()
    result, seconds, peak = measured.with_peak(work)
    done = operations(work)
    planned = weight_bytes(model) + sweep_peak(
        model.config, shape.dtype, Prompts(*measured.tokens.shape), sets, "zero", memory=memory
    )
    return {
        "components": len(sets),
        "seconds": seconds,
        "forwards": result.forwards,
        "operations": done,
        "share_of_limit": done / seconds / limit,
        "peak_bytes": peak,
        "planned_bytes": planned,
    }


def attributed(model: Transformer, measured: Measurement) -> dict[str, Any]:
    """Seconds and memory of the edges of one prompt."""
    batch, other, shape = Batch(measured.tokens), Batch(measured.others), measured.shape
    memory, width = activation_memory(model, None), measured.tokens.shape[1]
    portions = Portions.within(model.config, shape.dtype, width, memory)
    edge_attribution(model, batch, measured.readout, counterfactual=other, memory=memory)
    scores, seconds, peak = measured.with_peak(
        lambda: edge_attribution(model, batch, measured.readout, counterfactual=other, memory=memory)
    )
    planned = attribution_peak(model.config, shape.dtype, Prompts(1, width), steps=1, memory=memory)
    return {
        "tokens": width,
        "positions_at_once": portions.positions,
        "seconds": seconds,
        "finite": bool(scores.isfinite().all()),
        "peak_bytes": peak,
        "planned_bytes": weight_bytes(model) + planned,
    }


def attempted(work: Any) -> dict[str, Any]:
    """What `work` gives, or that it ran out of memory."""
    try:
        return work()
    except torch.cuda.OutOfMemoryError as error:
        return {"error": str(error).splitlines()[0]}
    finally:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def main() -> None:
    """Measure and print one JSON document; a line of it is written as soon as it is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=list(ROWS), default="8b")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", default=None)
    arguments = parser.parse_args()
    device, start = torch.device(arguments.device), time.perf_counter()
    device = torch.device("cuda", torch.cuda.current_device()) if device.type == "cuda" else device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    shape = SHAPES[arguments.shape]
    limit = matrix_limit(shape.dtype, device)
    document: dict[str, Any] = {
        "benchmark": "long_prompts",
        "machine": {"device": name, "torch": torch.__version__},
        "shape": arguments.shape,
        "dtype": str(shape.dtype).removeprefix("torch."),
        "limit_tflops": limit / 1e12,
        "sweeps": [],
        "edges": [],
    }

    def keep() -> None:
        document["seconds"] = time.perf_counter() - start
        if arguments.out:
            with open(arguments.out, "w", encoding="utf-8") as file:
                json.dump(document, file, indent=2)

    model = random_weights(shape, device)
    for prompts, width, every in ROWS[arguments.shape]:
        measured = Measurement(replace(shape, prompts=prompts, width=width), device)
        for table in (False, True):
            if table and width < fused.FUSED_FROM:
                continue
            with table_of_scores(table):
                row = attempted(lambda m=measured, e=every: swept(model, m, e, limit))
            document["sweeps"].append(
                {"prompts": prompts, "tokens": width, "attention": "table" if table else "as shipped", **row}
            )
            keep()
    for width in ATTRIBUTED[arguments.shape]:
        measured = Measurement(replace(shape, prompts=1, width=width), device)
        document["edges"].append({"tokens": width, **attempted(lambda m=measured: attributed(model, m))})
        keep()
    keep()
    print(json.dumps(document, indent=2))


if __name__ == "__main__":
    main()
