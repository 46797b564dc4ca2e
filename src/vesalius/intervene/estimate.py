"""What a sweep will cost, before it is run: passes, memory, and time from one timed chunk.

A row joins the walk where it first differs from the clean run, so its share of a pass follows from its earliest
component alone. Memory is the weights, the clean run that is kept, the replacement values and the rows under way, as
the engine sizes its chunks; the library's own workspace comes on top.
"""

import time
from collections.abc import Sequence

import torch

from vesalius.intervene.effects import ComponentSet, Replacement, effect_columns
from vesalius.intervene.engine import Cost, row_bytes
from vesalius.intervene.readout import Readout
from vesalius.intervene.recordings import Recordings, attention_share, memory_for, prompt_bytes
from vesalius.intervene.values import Batch
from vesalius.model.transformer import Transformer

#: Prompts and rows of the timed chunk.
TIMED_PROMPTS, TIMED_ROWS = 4, 64


def sweep_forwards(model: Transformer, sets: Sequence[ComponentSet]) -> float:
    """Passes of all prompts that replacing each set takes, the clean run included."""
    return 1.0 + sum(_share_of_pass(model, members) for members in sets)


def _share_of_pass(model: Transformer, members: ComponentSet) -> float:
    """The part of a pass that is run for a row: what follows the earliest component."""
    layers, first = model.config.n_layers, min(members)
    later = layers - 1 - first.layer
    with_mlp = first.is_head and not model.config.parallel
    return (later + (1 - attention_share(model.blocks[0])) * with_mlp) / layers


def peak_bytes(
    model: Transformer,
    width: int,
    n: int,
    rows: int,
    *,
    resampled: bool,
    vocabulary: int,
    memory: int | None = None,
) -> int:
    """Bytes of the weights, the clean run, the replacement values and the rows under way; `vocabulary` is the number of
    logits that are read of a row.
    """
    memory = memory_for(model.device, memory)
    weights = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    clean = prompt_bytes(model, width)
    kept = clean * min(n, max(1, memory // clean))
    values = clean // 2 * n if resampled else 0
    row = row_bytes(model, width)
    under_way = min(rows, max(1, memory // row))
    return weights + kept + values + under_way * (row + vocabulary * model.W_E.element_size())


def seconds_per_row(
    model: Transformer,
    batch: Batch,
    readout: Readout,
    sets: Sequence[ComponentSet],
    kind: str,
    *,
    counterfactual: Batch,
) -> float:
    """Run one chunk, some sets from the middle of the model on a few prompts, and time it."""
    few = torch.arange(min(TIMED_PROMPTS, len(batch)))
    batch, counterfactual = batch.take(few).to(model.device), counterfactual.take(few).to(model.device)
    recordings = Recordings(model, batch, readout.take(few))
    recordings.scores()
    replacement = Replacement.of_kind(kind, model, batch, counterfactual=counterfactual)
    count = max(1, TIMED_ROWS // len(few))
    start = max(0, len(sets) // 2 - count // 2)
    cost = Cost()
    begun = time.perf_counter()
    for _ in effect_columns(recordings, replacement, list(sets[start : start + count]), cost=cost):
        pass
    if model.device.type == "cuda":
        torch.cuda.synchronize(model.device)
    return (time.perf_counter() - begun) / max(cost.rows, 1e-9)
