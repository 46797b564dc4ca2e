"""What a sweep will cost, before it is run: passes, memory, and time from one timed chunk.

A row joins the walk where it first differs from the clean run and computes nothing that it replaces whole, so its share
of a pass follows from its components. Memory is that of the weights and of the activations at their peak; the latter
are found by running the same code on a model without numbers (`recordings.LiveMemory`). The library's own workspace
comes on top.
"""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vesalius.components import Component
from vesalius.intervene.ablations import Ablation, Resample, ablation_named
from vesalius.intervene.attribution import Portions, Rule, attribute_units, edge_attribution, position_bytes, run_bytes
from vesalius.intervene.effects import ComponentSet, effect_columns, has_units
from vesalius.intervene.engine import Cost, row_bytes
from vesalius.intervene.readout import Readout
from vesalius.intervene.recordings import LiveMemory, Recordings, attention_share, prompt_bytes, runnable_shape
from vesalius.intervene.values import Batch
from vesalius.model.config import Config
from vesalius.model.transformer import Transformer

#: Prompts and rows of the timed chunk.
TIMED_PROMPTS, TIMED_ROWS = 4, 64
#: Seconds after which a larger matrix product need not be timed.
LONG_ENOUGH = 0.02
#: Layers of the short models by which memory is found: of a sweep (rows join in the first, pass the second and are read
#: after the last), and the step between those of edge attribution.
SHORT, STEP = 3, 2


def sweep_forwards(model: Transformer, sets: Sequence[ComponentSet]) -> float:
    """Passes of all prompts that replacing each set takes, the clean run included."""
    return 1.0 + sum(_share_of_pass(model, members) for members in sets)


def _share_of_pass(model: Transformer, members: ComponentSet) -> float:
    """The part of a pass that is run for a row: what follows the earliest component, but for later MLPs and attentions
    of which all is replaced.
    """
    layers, first = model.config.n_layers, min(members)
    later = layers - 1 - first.layer
    if first.is_unit and model.config.parallel:  # such rows join before attention
        return (later + 1) / layers
    attention = attention_share(model.blocks[0])
    with_mlp = (first.is_head or first.is_unit) and not model.config.parallel
    computed = later + (1 - attention) * with_mlp
    if not any(part.is_unit for part in members):
        heads = Counter(part.layer for part in members if part.is_head and part.layer > first.layer)
        whole = sum(count == model.config.n_heads for count in heads.values())
        mlps = sum(not part.is_head and part.layer >= first.layer + (not with_mlp) for part in members)
        computed -= attention * whole + (1 - attention) * mlps
    return computed / layers


@dataclass(frozen=True)
class Prompts:
    """The size of the prompts of an experiment and of what is read of them: `queries` positions (None: all of them) and
    `choices` tokens (None: the whole vocabulary) of each.
    """

    n: int
    width: int
    queries: int | None = 1
    choices: int | None = 2

    @classmethod
    def of(cls, batch: Batch, readout: Readout) -> "Prompts":
        """The sizes of real prompts."""
        queries, choices = (None if x is None else x.shape[1] for x in (readout.at, readout.choose))
        return cls(len(batch), batch.tokens.shape[1], queries, choices)

    def batch(self) -> Batch:
        """Prompts without content."""
        return Batch(torch.zeros(self.n, self.width, dtype=torch.long, device="meta"))

    def readout(self) -> Readout:
        """A readout of the same logits."""
        at, choose = (
            None if size is None else torch.zeros(self.n, size, dtype=torch.long, device="meta")
            for size in (self.queries, self.choices)
        )
        whole = self.choices is None
        return Readout(lambda logits, _: (logits.log_softmax(-1) if whole else logits).sum((1, 2)), at, choose)


@dataclass(frozen=True)
class Workload:
    """What the cost of work follows from: a model, there or not, the sizes of the prompts it would be run on, and the
    bytes that the engine may use. `finite` says that its vocabulary is listed, `circuit` which components are assumed
    to matter there.
    """

    model: Transformer
    dtype: torch.dtype
    sizes: Prompts
    memory: int
    finite: bool
    circuit: tuple[Component, ...]


def sweep_peak(
    config: Config,
    dtype: torch.dtype,
    prompts: Prompts,
    sets: Sequence[ComponentSet],
    kind: Ablation | str,
    *,
    memory: int,
    block: int = 4096,
) -> int:
    """Bytes of activations that a sweep holds at its peak when the engine may use `memory`; less where prompts
    and counterfactuals begin alike.

    Most rows are under way in the last layer but one (in the last, only the readout's positions are computed). A short
    model of the same width runs that many rows; every layer that it lacks adds a clean run and replacement values.
    """
    layers = min(config.n_layers, SHORT)
    short, at_once = config.model_copy(update=_of_layers(config, layers)), max(1, block // prompts.n)
    first = [min(members).layer for members in sets]
    portions = [first[start : start + at_once] for start in range(0, len(sets), at_once)]
    busiest = max(sum(layer < max(1, config.n_layers - 1) for layer in portion) for portion in portions)
    model, batch = runnable_shape(short, dtype), prompts.batch()
    kept_memory = memory * layers // config.n_layers
    # The engine splits the rows of some prompts by what `memory` holds: one full chunk is as large as a hundred.
    together = max(1, min(prompts.n, kept_memory // prompt_bytes(model, prompts.width)))
    full = 1 + max(1, memory // row_bytes(model, prompts.width)) // together
    one = [(Component(0, 0),)] * max(1, min(busiest, full))
    with torch.no_grad(), LiveMemory("meta", model.parameters()) as live:
        recordings = Recordings(model, batch, prompts.readout(), memory=kept_memory)
        recordings.scores()
        replacement = ablation_named(kind).table(model, batch, counterfactual=batch)
        kept = live.current
        for _ in effect_columns(recordings, replacement, one, memory=memory, block=block):
            pass
    return live.peak + kept * (config.n_layers - layers) // layers


def attribution_peak(
    config: Config, dtype: torch.dtype, prompts: Prompts, *, steps: int, memory: int, rule: Rule = "gradient"
) -> int:
    """The same for edge attribution. Its steps are alike, and its tables grow with the layers: linearly, and the one of
    the scores with their square; three short models say by how much.
    """

    def peak(layers: int) -> int:
        model, batch = runnable_shape(config.model_copy(update=_of_layers(config, layers)), dtype), at_once.batch()
        with LiveMemory("meta", model.parameters()) as live:
            few, readout = min(steps, 2), at_once.readout()
            edge_attribution(model, batch, readout, counterfactual=batch, steps=few, rule=rule, memory=portions)
        return live.peak

    portions = Portions.within(config, dtype, prompts.width, memory)
    if portions.positions < prompts.width:  # the run decides, and a short model would not show it
        return run_bytes(config, dtype, prompts.width) + portions.positions * position_bytes(config, dtype)
    at_once, n = replace(prompts, n=min(prompts.n, portions.rows)), config.n_layers
    if n <= 3 * STEP:
        return peak(n)
    one, two, three = (peak(STEP * times) for times in (1, 2, 3))
    times, bend = n / STEP - 1, three - 2 * two + one
    return round(one + (two - one) * times + bend * times * (times - 1) / 2)


def unit_attribution_peak(config: Config, dtype: torch.dtype, prompts: Prompts) -> int:
    """Bytes of activations that scoring all neurons holds at its peak, replacement values included. Of a deep model two
    short ones are run: every layer adds as much as another.
    """

    def peak(layers: int) -> int:
        model = runnable_shape(config.model_copy(update=_of_layers(config, layers)), dtype)
        batch = prompts.batch()
        with LiveMemory("meta", model.parameters()) as live:
            replacement = Resample().table(model, batch, counterfactual=batch, neurons=True)
            attribute_units(model, batch, prompts.readout(), replacement, rule="relp-qk")
        return live.peak

    if config.n_layers <= 2 * STEP:
        return peak(config.n_layers)
    one, two = peak(STEP), peak(2 * STEP)
    return one + (two - one) * (config.n_layers - STEP) // STEP


def _of_layers(config: Config, layers: int) -> dict[str, object]:
    """A config's settings for its first layers alone."""
    return {
        "n_layers": layers,
        **{name: getattr(config, name)[:layers] for name in ("windows", "chunks", "layer_rotary", "layer_qk_norm")},
    }


def seconds_per_row(
    model: Transformer,
    batch: Batch,
    readout: Readout,
    sets: Sequence[ComponentSet],
    kind: Ablation | str,
    *,
    counterfactual: Batch,
) -> float:
    """Run one chunk, some sets from the middle of the model on a few prompts, and time it."""
    few = torch.arange(min(TIMED_PROMPTS, len(batch)))
    batch, counterfactual = batch.take(few).to(model.device), counterfactual.take(few).to(model.device)
    recordings = Recordings(model, batch, readout.take(few))
    recordings.scores()
    replacement = ablation_named(kind).table(model, batch, counterfactual=counterfactual, neurons=has_units(sets))
    count = max(1, TIMED_ROWS // len(few))
    start = max(0, len(sets) // 2 - count // 2)
    cost = Cost()
    begun = time.perf_counter()
    for _ in effect_columns(recordings, replacement, list(sets[start : start + count]), cost=cost):
        pass
    _wait(model.device)
    return (time.perf_counter() - begun) / max(cost.rows, 1e-9)


def seconds_per_token(config: Config, dtype: torch.dtype, device: torch.device, weights: int) -> float:
    """Time of one token in one pass of a model that is not there, from the speed of one matrix product of its MLP. A
    small part of it is tried first: half precision is slow on many processors.
    """
    for rows, wide in ((4, 256), (64, 2048), (4096, config.d_mlp)):
        x = torch.zeros(rows, config.d_model, dtype=dtype, device=device)
        weight = torch.zeros(config.d_model, min(wide, config.d_mlp), dtype=dtype, device=device)
        spent = min(_timed_product(x, weight) for _ in range(3))
        if spent > LONG_ENOUGH or (device.type != "cuda" and rows == 64):
            break
    return spent / (len(x) * weight.numel()) * weights


def _timed_product(x: Tensor, weight: Tensor) -> float:
    _wait(x.device)
    begun = time.perf_counter()
    torch.matmul(x, weight)
    _wait(x.device)
    return time.perf_counter() - begun


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
