"""What a plan is about: a model and its prompts, loaded, or of which only the shape is known (a directory with a
config.json and no weights); and the passes of what a discovery does besides its method.
"""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from vesalius.behaviours import behaviours
from vesalius.behaviours.performance import PROMPTS as PERFORMANCE_PROMPTS
from vesalius.behaviours.registry import behaviour_of, find_behaviour
from vesalius.behaviours.trial import trial
from vesalius.components import Component
from vesalius.discovery.attribution import Best
from vesalius.discovery.checks import HELD_OUT_PROMPTS, LARGEST_CIRCUIT
from vesalius.discovery.checks import PROMPTS as GUARANTEE_PROMPTS
from vesalius.discovery.faithfulness import default_sizes
from vesalius.discovery.head_tests import ROWS as ATTENTION_ROWS
from vesalius.discovery.method import Method
from vesalius.discovery.pruning import MAX_EDGES
from vesalius.discovery.selection import selectable_parts, selection_sizes
from vesalius.discovery.specificity import PROMPTS as SPECIFICITY_PROMPTS
from vesalius.discovery.specificity import RANDOM_SETS, TEXT_ROWS, own_and_others
from vesalius.discovery.whole import (
    CHOOSE,
    EDGE_POINTS,
    EDGE_REFINED,
    RANDOM_CIRCUITS,
    REFINED,
    REPORT,
    SHARES,
    TRIM_PROMPTS,
)
from vesalius.documents.whole import LEAST_MOST, MOST_SHARE
from vesalius.errors import BadInput
from vesalius.files import read_json
from vesalius.intervene.ablations import Ablation
from vesalius.intervene.edges import EdgeGraph
from vesalius.intervene.effects import ComponentSet
from vesalius.intervene.estimate import Prompts, Workload, seconds_per_row, seconds_per_token, sweep_forwards
from vesalius.intervene.recordings import DEFAULT_MEMORY, FREE_SHARE, activation_memory, shape_of
from vesalius.model.devices import (
    DTYPES,
    Devices,
    available_bytes,
    dtype_named,
    fitting_devices,
    free_bytes,
    gpus,
    named_devices,
    weight_bytes,
    weight_dtype,
)
from vesalius.model.families import family
from vesalius.model.mlp import HALF
from vesalius.model.precision import format_in_use
from vesalius.model.specimen import FiniteVocabulary, Specimen, TextVocabulary
from vesalius.model.tokenizer import Tokenizer
from vesalius.model.transformer import Transformer
from vesalius.options import Load
from vesalius.values import JsonObject

#: Devices that a plan proposes at the most.
MOST_DEVICES = 16
WEIGHTS = ("*.safetensors", "*.safetensors.index.json", "*.bin", "*.pt")


@dataclass(frozen=True)
class Shape:
    """A model without numbers, the bytes of its weights, how many of them a token passes, and its tokenizer."""

    model: Transformer
    dtype: torch.dtype
    weights: int
    active: int
    tokenizer: Tokenizer | None


def read_shape(source: object, *, dtype: str | torch.dtype, device: Devices = "auto") -> Shape | None:
    """The shape in a directory that holds a config.json and no weights; None for anything else."""
    directory = Path(str(source)).expanduser()
    where = directory / "config.json"
    if not where.is_file() or any(any(directory.glob(pattern)) for pattern in WEIGHTS):
        return None
    raw = read_json(where)
    config = family(raw, where=str(where)).read_config(raw, where=str(where))
    stored = str(raw.get("dtype") or raw.get("torch_dtype") or "float32")
    chosen = dtype_named(dtype) or format_in_use(DTYPES.get(stored, torch.float32), device)
    model = shape_of(config, chosen)
    tied = bool(raw.get("tie_word_embeddings", False)) * config.d_vocab * config.d_model
    named = any((directory / name).exists() for name in ("tokenizer.json", "vocab.json"))
    tokenizer = Tokenizer.from_directory(directory, bos=config.bos_token) if named else None
    passed = sum(weight.numel() for weight in model.parameters()) - config.d_vocab * config.d_model
    if config.experts is not None:
        idle = (config.experts.n_experts - config.experts.n_active) * 3 * config.d_model * config.experts.d_expert
        passed -= idle * len(config.experts.layers)
    return Shape(model, chosen, weight_bytes(model) - tied * chosen.itemsize, passed, tokenizer)


def rooms(devices: Devices) -> dict[torch.device, int]:
    """The devices to choose among, with the bytes that each has free."""
    candidates = gpus() or named_devices("cpu") if devices == "auto" else named_devices(devices)
    return {device: free_bytes(device) for device in candidates}


def memory_beside(device: torch.device, free: int, weights: int) -> int:
    """The bytes of activations that the engine would hold at once beside weights that are not loaded."""
    return max(1, int(FREE_SHARE * (free - weights))) if device.type == "cuda" else DEFAULT_MEMORY


#: Prompts that a plan draws at most.
DRAWN = 512
#: The time of one row of a chunk.
Timer = Callable[[list[ComponentSet], Ablation], float]


@dataclass(frozen=True)
class Case(Workload):
    """A workload with the bytes of the weights, where the model is or would be, how many behaviours its tokenizer can
    say, on how many prompts it is asked first whether it performs (0: it has no behaviour), and the time that it takes.
    """

    weights: int
    devices: tuple[torch.device, ...]
    behaviours: int
    gate: int
    seconds_per_row: Timer
    #: Whether the length of prompts is a guess.
    tokens_assumed: bool = False


def case_of(specimen: Specimen, sizes: Prompts, timer: Timer, *, behaviours: int = 0, gate: int = 0) -> Case:
    """The case of a model that is there."""
    model = specimen.model
    return Case(
        model=model,
        dtype=weight_dtype(model),
        weights=weight_bytes(model),
        devices=model.devices,
        memory=activation_memory(model, None),
        sizes=sizes,
        finite=isinstance(specimen.vocabulary, FiniteVocabulary),
        circuit=tuple(specimen.components),
        behaviours=behaviours,
        gate=gate,
        seconds_per_row=timer,
    )


def loaded_case(specimen: Specimen, n: int, seed: int) -> Case:
    """A model that is there: some of its rows are run and timed. Of many prompts, a sample says how long they are; only
    a source that gives fewer than that has fewer than are asked for.
    """
    model, material = specimen.model, trial(specimen, min(n, DRAWN), seed=seed)

    def timed(sets: list[ComponentSet], kind: Ablation) -> float:
        return seconds_per_row(
            model, material.batch, material.readout, sets, kind, counterfactual=material.counterfactual
        )

    sizes = Prompts.of(material.batch, material.readout)
    if sizes.n == DRAWN:
        sizes = replace(sizes, n=n)
    return case_of(specimen, sizes, timed, behaviours=_measurable(specimen), gate=_gate(specimen, seed))


def _measurable(specimen: Specimen) -> int:
    """How many behaviours, the specimen's own included, its tokenizer can say."""
    if not isinstance(specimen.vocabulary, TextVocabulary) or specimen.behaviour is None:
        return 0
    config, tokenizer, fitting = specimen.model.config, specimen.vocabulary.tokenizer, 0
    for each in own_and_others(behaviour_of(specimen)):
        try:
            each.sample(tokenizer, 2, seed=0, split="validation", n_ctx=config.n_ctx, d_vocab=config.d_vocab)
        except BadInput:
            continue
        fitting += 1
    return fitting


def _gate(specimen: Specimen, seed: int) -> int:
    """Prompts by which it is decided whether a natural model performs its behaviour."""
    if not isinstance(specimen.vocabulary, TextVocabulary) or specimen.behaviour is None:
        return 0
    source, config = behaviour_of(specimen), specimen.model.config
    sizes = {"n_ctx": config.n_ctx, "d_vocab": config.d_vocab}
    drawn = source.sample(
        specimen.vocabulary.tokenizer, PERFORMANCE_PROMPTS, seed=seed, split=source.measured_split, **sizes
    )
    return len(drawn)


def shape_case(shape: Shape, load: Load, sizes: Prompts, seed: int) -> Case:
    """A model without weights: memory follows from its shape, time from one matrix product of its size."""
    source = None if load.behaviour is None else find_behaviour(load.behaviour, metric=load.metric)
    if source is not None and shape.tokenizer is not None:
        config = shape.model.config
        drawn = source.sample(
            shape.tokenizer, min(sizes.n, DRAWN), seed=seed, split="test", n_ctx=config.n_ctx, d_vocab=config.d_vocab
        )
        drawn_n, width = drawn.batch.tokens.shape
        sizes = Prompts(sizes.n if drawn_n == DRAWN else drawn_n, width)
    room = rooms(load.device)
    devices = fitting_devices(shape.weights, room) if load.device == "auto" else tuple(room)
    memory = min(memory_beside(one, room[one], shape.weights // len(devices)) for one in devices)
    per_token = seconds_per_token(shape.model.config, shape.dtype, devices[0], shape.active)
    return Case(
        model=shape.model,
        dtype=shape.dtype,
        weights=shape.weights,
        devices=devices,
        memory=memory,
        sizes=sizes,
        finite=False,
        circuit=tuple(shape.model.components),
        behaviours=len({each.family for each in behaviours()}),
        gate=0 if source is None else PERFORMANCE_PROMPTS,
        seconds_per_row=lambda sets, kind: per_token * sizes.width,
        tokens_assumed=source is None or shape.tokenizer is None,
    )


def memory_of(case: Case, activations: int, *, loaded: bool) -> JsonObject:
    """The peak, and whether what is not loaded yet fits into what the devices have free."""
    room = [available_bytes(one) for one in case.devices]
    free = None if None in room else sum(bytes_free for bytes_free in room if bytes_free)
    unloaded = activations + (0 if loaded else case.weights)
    fits = None if free is None else unloaded <= free
    return {
        "peak_bytes": case.weights + activations,
        "weight_bytes": case.weights,
        "free_bytes": free,
        "fits": fits,
        "makes_it_fit": remedy(case, unloaded, free) if free is not None and not fits else "",
    }


def remedy(case: Case, needed: int, free: int) -> str:
    """The option that makes work fit which needs more than there is free: what it takes is named."""
    if case.dtype not in HALF and needed / 2 <= free:
        return f"with --dtype bfloat16 it takes about {needed / 2 / 2**20:,.0f} MB"
    here = case.devices[0].type
    if here != "cuda":
        gpu = "a GPU" if case.dtype in HALF else "--dtype bfloat16 and a GPU"
        return f"take fewer or shorter prompts, or {gpu} with {needed / 2**30:,.0f} GB: --device cuda"
    devices = math.ceil(needed / max(1, free // len(case.devices)))
    if devices > MOST_DEVICES:
        return "take shorter prompts, or a smaller model"
    names = ",".join(f"cuda:{number}" for number in range(devices))
    return f"{devices} such devices hold it: --device {names}"


# Passes of what a discovery does besides its method: its checks, the search of the smallest circuit, and cutting it by
# rules. What is found is not known yet; random circuits stand for it.


def check_rows(case: Case, method: Method) -> float:
    """Passes of one prompt for the checks: two curves, that of the edges where they are few, other behaviours, and the
    attention of every head. Which components the circuits hold is not known yet: random ones stand for them.
    """
    model, parts = case.model, case.model.components
    rng = random.Random(0)
    removed = _random_removed(rng, parts, default_sizes(len(parts)), orders=2)
    rows = HELD_OUT_PROMPTS * (1 + sweep_forwards(model, list(dict.fromkeys(removed))))
    n_edges = EdgeGraph.of(model.config).n_edges
    if method.scores_edges and n_edges <= MAX_EDGES:
        rows += HELD_OUT_PROMPTS * (2 + len(default_sizes(n_edges)))
    rows += GUARANTEE_PROMPTS * (1 + sweep_forwards(model, removed[:2]))
    if not case.finite:
        heads = [part for part in parts if part.is_head]
        circuits = [tuple(sorted(rng.sample(heads, min(len(heads), LARGEST_CIRCUIT)))) for _ in range(1 + RANDOM_SETS)]
        others = case.behaviours * SPECIFICITY_PROMPTS + TEXT_ROWS
        rows += TEXT_ROWS + others * sweep_forwards(model, circuits)
    return rows + ATTENTION_ROWS


def whole_rows(case: Case, method: Method) -> float:
    """Passes of one prompt for the search of the smallest circuit, about: how far a circuit can be trimmed, and whether
    a further ranking is needed, is not known before.
    """
    parts, rankings = len(case.model.components), 1 + (len(method.beside) if isinstance(method, Best) else 0)
    limit = min(parts, max(LEAST_MOST, round(MOST_SHARE * parts)))
    read = min(parts, len(SHARES) + 1) + REFINED
    ranked = rankings * (CHOOSE * (read + 2 * REFINED) + 2 * TRIM_PROMPTS * limit)
    edges = CHOOSE * (EDGE_POINTS + EDGE_REFINED + 2)
    return ranked + edges + 2 * CHOOSE + (3 + RANDOM_CIRCUITS) * REPORT + (0 if case.finite else 3 * CHOOSE)


def _random_removed(
    rng: random.Random, parts: Sequence[Component], sizes: Sequence[int], *, orders: int
) -> list[ComponentSet]:
    """What random circuits of these sizes leave out: stands for circuits that are not known yet."""
    return [
        tuple(sorted(order[size:]))
        for order in (rng.sample(parts, len(parts)) for _ in range(orders))
        for size in sizes
        if size < len(parts)
    ]


def selection_rows(case: Case, method: Method, rules: Sequence[str], size: int | None, *, checks: bool) -> float:
    """Passes of one prompt for a circuit cut by rules: the first at several sizes on the discovery's prompts, and the
    curves of all on held-out ones. Circuits that two rules share are run once, which is not known yet.
    """
    if not rules:
        return 0.0
    parts = selectable_parts(case.model, method)
    tried, compared = selection_sizes(len(parts), size)

    def passes(sizes: Sequence[int], orders: int) -> float:
        components = [part for part in parts if isinstance(part, Component)]
        if not sizes:
            return 0.0
        if not components:  # both runs without cuts, then every cut: nothing and all are the same for every rule
            return 2 + 2 + orders * (len(sizes) - 2)
        removed = _random_removed(random.Random(0), components, sizes, orders=orders)
        return 1 + sweep_forwards(case.model, list(dict.fromkeys(removed)))

    return case.sizes.n * passes(tried, 1) + (HELD_OUT_PROMPTS * passes(compared, len(rules)) if checks else 0.0)
