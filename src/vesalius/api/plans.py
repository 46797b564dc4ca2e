"""What a sweep, a discovery, a circuit of neurons or an explanation will cost: passes, memory and time, from one timed
chunk of it.

The passes of a sweep follow from its components alone and are exact; those of a discovery from the method's own rule;
those of searches, of checks and of explanations depend on what is found and are estimates. Memory is that of the
weights and of the activations at their peak (`intervene/estimate.py`). Nothing is written.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from vesalius.api.circuit_sources import Given, Source, circuit_fields
from vesalius.api.discoveries import discover, require_selection
from vesalius.api.door import VERBS
from vesalius.api.explanations import explain
from vesalius.api.loading import loaded
from vesalius.api.neuron_circuits import neurons
from vesalius.api.shapes import Shape, memory_beside, read_shape, rooms
from vesalius.api.sweeps import ROWS_BETWEEN_SAVES, component_sets_of, sweep
from vesalius.behaviours import behaviours
from vesalius.behaviours.registry import behaviour_of, find_behaviour
from vesalius.behaviours.trial import trial
from vesalius.components import Component, mlp_units, parse_components, split_names
from vesalius.discovery.checks import HELD_OUT_PROMPTS, LARGEST_CIRCUIT
from vesalius.discovery.detectors import ROWS as ATTENTION_ROWS
from vesalius.discovery.faithfulness import default_sizes
from vesalius.discovery.guarantee import PROMPTS as GUARANTEE_PROMPTS
from vesalius.discovery.method import Method
from vesalius.discovery.methods import circuit_method, method_named
from vesalius.discovery.neurons import most_passes
from vesalius.discovery.pruning import MAX_EDGES
from vesalius.discovery.rivals import most_searches, require_rivals, require_searchable, rival_prompts
from vesalius.discovery.selection import parse_rules, selectable_parts, selection_sizes
from vesalius.discovery.specificity import PROMPTS as SPECIFICITY_PROMPTS
from vesalius.discovery.specificity import RANDOM_SETS, TEXT_ROWS, own_and_others
from vesalius.documents.circuit import Circuit
from vesalius.documents.discovery import Discovery
from vesalius.documents.plan import Plan
from vesalius.errors import BadInput, choices
from vesalius.explanations.natural import PROMPTS as EXPLAIN_PROMPTS
from vesalius.explanations.natural import TOP
from vesalius.explanations.scientists import BUILTIN, check_builtin_options, check_scientist
from vesalius.intervene.ablations import Ablation, Resample, ablation_named
from vesalius.intervene.edge_graph import EdgeGraph
from vesalius.intervene.effects import ComponentSet
from vesalius.intervene.estimate import (
    Prompts,
    Workload,
    seconds_per_row,
    seconds_per_token,
    sweep_forwards,
    sweep_peak,
    unit_attribution_peak,
)
from vesalius.intervene.recordings import activation_memory
from vesalius.model.devices import available_bytes, fitting_devices, weight_bytes, weight_dtype
from vesalius.model.specimen import FiniteVocabulary, Specimen, TextVocabulary
from vesalius.model.transformer import Transformer
from vesalius.options import DISCOVERED, Checked, CircuitFrom, Load, Parts
from vesalius.progress import Progress, shown
from vesalius.runs.parts import parts_on

#: What can be planned.
COMMANDS = {one.__name__: one for one in (sweep, discover, neurons, explain)}
#: Passes of one prompt that explanations took: for a natural model as a multiple of its prompts times the components
#: studied, after the screening; for a listed vocabulary at all, and for each component (34,000 to 65,000 for circuits
#: of 1 and 2 components: what the first programs leave open decides).
NATURAL_PER_COMPONENT, FINITE_BASE, FINITE_PER_COMPONENT = 24, 30_000, 8_000
SCREENED, SELECTED = 4, 8
#: Length of the prompts of a model that is not there.
TOKENS = 64


def plan(
    command: str,
    specimen: Specimen | str | int | Path,
    *records: Any,
    tokens: int = TOKENS,
    progress: Progress | bool | None = None,
    **options: Any,
) -> Plan:
    """Passes of all prompts (`forwards`), bytes at the peak (`peak_bytes`) and estimated `seconds` of a command with
    its options; it is "sweep", "discover", "neurons" or "explain". One small chunk is run to time it. Options that the
    command would refuse are refused; the time is that of one process.

    A directory with a `config.json` and no weights can be planned too: time then follows from the speed of one matrix
    product, and prompts are `tokens` long unless there is a tokenizer to say how long those of `behaviour` are
    (`tokens_assumed`). `fits` says whether what is not loaded yet fits into the memory that is free (`free_bytes`).
    """
    if command not in COMMANDS:
        raise BadInput(f"command {command!r} has no plan; choose one of {choices(COMMANDS)}")
    flat = VERBS[command]
    asked = flat.gather((specimen, *records), options)
    load, study = asked["load"], asked.get("study")
    n, seed = (asked["draw"].n, asked["draw"].seed) if study is None else (study.n or EXPLAIN_PROMPTS, study.seed)
    circuit, circuit_from = _source(asked)
    components = asked["knockout"].components if command == "sweep" else asked.get("components")
    first = None if circuit_from is None else circuit_method(circuit_from)
    how: Ablation = ablation_named(asked["knockout"].kind) if command == "sweep" else Resample()
    scoring, rules, checked = None, (), asked.get("checked")
    if checked is not None:
        scoring = method_named(asked.get("method", "sweep"), **flat.further(asked))
        rules = parse_rules(asked["cut"].select, asked["cut"].size)
        require_rivals(checked.rivals, checked.rivals_by, scores_edges=scoring.scores_edges is not False)
    if study is not None:
        _require_builtin(study.scientist, asked["ask"].protocol, study.leave_out)
    with shown(progress) as report:
        shape = None if isinstance(specimen, Specimen) else read_shape(specimen, dtype=load.dtype)
        if shape is None:
            specimen = loaded(specimen, load, progress=report)
            parts_on(asked.get("parts", Parts()), specimen, report)
            if study is not None:
                check_builtin_options(specimen, n=study.n, top=study.top, force=study.force, leave_out=study.leave_out)
            fields = circuit_fields(specimen, components, circuit, circuit_from)
            case = _loaded_case(specimen, n, seed)
            if checked is not None and checked.rivals:
                rival_prompts(specimen, trial(specimen, n, seed=seed), seed=seed)
        else:
            fields = _shape_fields(components, circuit, circuit_from)
            case = _shape_case(shape, load, Prompts(n, tokens), seed)
        named = _named(fields, case.model)
        report("timing one chunk", 0, 0)
        pairs = command == "sweep" and asked["knockout"].pairs
        sets = component_sets_of(case.model, named if command == "sweep" else None, pairs=pairs)
        seconds = case.seconds_per_row(sets, how)
    if command == "sweep":
        passes = _Passes(sweep_forwards(case.model, sets))
    elif command == "neurons":
        passes = _Passes(most_passes(len(mlp_units(case.model.config))))
    elif scoring is not None:
        passes = _discovery_passes(case, scoring, rules, asked["cut"].size, asked["checked"])
    else:
        explaining = _explanation_rows(case, named, asked["study"].top or TOP)
        if first is not None and circuit is None:
            explaining += first.prompts(case.model.config, DISCOVERED.n) * first.cost(case)
        passes = _Passes(explaining / case.sizes.n)
    return Plan(
        command=command,
        **asdict(passes),
        **_memory(case, _activations(case, command, scoring, sets, how), loaded=shape is None),
        seconds=sum(asdict(passes).values()) * case.sizes.n * seconds,
        timed="one chunk" if shape is None else "one matrix product",
        n=case.sizes.n,
        tokens=case.sizes.width,
        tokens_assumed=case.tokens_assumed,
        device=",".join(map(str, case.devices)),
    )


@dataclass(frozen=True)
class _Passes:
    """Passes of all prompts: those of the work itself, and what a discovery's options add."""

    forwards: float
    checks_forwards: float = 0.0
    select_forwards: float = 0.0
    rivals_forwards: float = 0.0


def _source(asked: Mapping[str, Any]) -> tuple[Any, str | None]:
    """The circuit that is explained, and the method that finds it first."""
    source = asked.get("source", CircuitFrom())
    return source.circuit, source.circuit_from


def _discovery_passes(
    case: "_Case", method: Method, rules: Sequence[str], size: int | None, checked: Checked
) -> _Passes:
    """Those of a discovery, its circuit cut by rules to a size, and rivals searched of a kind."""
    n = case.sizes.n
    require_selection(case.model, method, rules, size)
    require_searchable(case.model, checked.rivals_by)
    return _Passes(
        method.cost(case),
        _check_rows(case, method) / n if checked.checks else 0.0,
        _selection_rows(case, method, rules, size, checks=checked.checks) / n,
        most_searches(case.model, checked.rivals, checked.rivals_by) if checked.rivals else 0.0,
    )


def _memory(case: "_Case", activations: int, *, loaded: bool) -> dict[str, Any]:
    """The peak, and whether what is not loaded yet fits into what the devices have free."""
    room = [available_bytes(one) for one in case.devices]
    free = None if None in room else sum(bytes_free for bytes_free in room if bytes_free)
    unloaded = activations + (0 if loaded else case.weights)
    return {
        "peak_bytes": case.weights + activations,
        "weight_bytes": case.weights,
        "free_bytes": free,
        "fits": None if free is None else unloaded <= free,
    }


def _require_builtin(scientist: str | None, protocol: str | None, leave_out: str | None) -> None:
    if scientist not in (None, BUILTIN):
        check_scientist(scientist, backbone=True, protocol=protocol, leave_out=leave_out)
        raise BadInput(f"scientist {scientist!r} has no plan: only the built-in one's cost is known before the run")
    check_scientist(BUILTIN, backbone=False, protocol=protocol, leave_out=leave_out)


def _shape_fields(components: Given, circuit: Source, circuit_from: str | None) -> dict[str, Any]:
    """What is explained in a model without weights, where no circuit can have been found."""
    if circuit is not None or isinstance(components, Circuit | Discovery):
        raise BadInput("a circuit is found in weights, and this model has none; name its components instead")
    if components is not None and circuit_from is not None:
        raise BadInput("components and circuit_from both say what to explain; choose one")
    return {} if components is None else {"components": tuple(map(str, split_names(components)))}


def _named(fields: dict[str, Any], model: Transformer) -> list[Component] | None:
    """The components that are asked for; None where the command chooses them."""
    if fields.get("circuit") is not None:
        return list(fields["circuit"].chosen())
    names = fields.get("components")
    return None if names is None else parse_components(names, model.config) if names else []


@dataclass(frozen=True)
class _Case(Workload):
    """A workload with the bytes of the weights, where the model is or would be, how many behaviours its tokenizer can
    say, and the time that it takes.
    """

    weights: int
    devices: tuple[torch.device, ...]
    behaviours: int
    seconds_per_row: Callable[[list[ComponentSet], Ablation], float]
    #: Whether the length of prompts is a guess.
    tokens_assumed: bool = False


def _loaded_case(specimen: Specimen, n: int, seed: int) -> _Case:
    """A model that is there: some of its rows are run and timed."""
    model, material = specimen.model, trial(specimen, n, seed=seed)

    def timed(sets: list[ComponentSet], kind: Ablation) -> float:
        return seconds_per_row(
            model, material.batch, material.readout, sets, kind, counterfactual=material.counterfactual
        )

    return _Case(
        model=model,
        dtype=weight_dtype(model),
        weights=weight_bytes(model),
        devices=model.devices,
        memory=activation_memory(model, None),
        sizes=Prompts.of(material.batch, material.readout),
        finite=isinstance(specimen.vocabulary, FiniteVocabulary),
        circuit=tuple(specimen.components),
        behaviours=_measurable(specimen),
        seconds_per_row=timed,
    )


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


def _shape_case(shape: Shape, load: Load, sizes: Prompts, seed: int) -> _Case:
    """A model without weights: memory follows from its shape, time from one matrix product of its size."""
    source = None if load.behaviour is None else find_behaviour(load.behaviour, metric=load.metric)
    if source is not None and shape.tokenizer is not None:
        config = shape.model.config
        drawn = source.sample(
            shape.tokenizer, sizes.n, seed=seed, split="test", n_ctx=config.n_ctx, d_vocab=config.d_vocab
        )
        sizes = Prompts(*drawn.batch.tokens.shape)
    room = rooms(load.device)
    devices = fitting_devices(shape.weights, room) if load.device == "auto" else tuple(room)
    memory = min(memory_beside(one, room[one], shape.weights // len(devices)) for one in devices)
    per_token = seconds_per_token(shape.model.config, shape.dtype, devices[0], shape.active)
    return _Case(
        model=shape.model,
        dtype=shape.dtype,
        weights=shape.weights,
        devices=devices,
        memory=memory,
        sizes=sizes,
        finite=False,
        circuit=tuple(shape.model.components),
        behaviours=len({each.family for each in behaviours()}),
        seconds_per_row=lambda sets, kind: per_token * sizes.width,
        tokens_assumed=source is None or shape.tokenizer is None,
    )


def _activations(case: _Case, command: str, method: Method | None, sets: list[ComponentSet], kind: Ablation) -> int:
    """Bytes of activations at the peak: of the sweep, of a method, or of rows of interventions."""
    config = case.model.config
    if command == "neurons":
        return unit_attribution_peak(config, case.dtype, case.sizes)
    if method is not None:
        return method.peak(case)
    block = ROWS_BETWEEN_SAVES if command == "sweep" else 4096
    return sweep_peak(config, case.dtype, case.sizes, sets, kind, memory=case.memory, block=block)


def _check_rows(case: _Case, method: Method) -> float:
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


def _selection_rows(case: _Case, method: Method, rules: Sequence[str], size: int | None, *, checks: bool) -> float:
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


def _explanation_rows(case: _Case, components: list[Component] | None, top: int) -> float:
    """Passes of one prompt for an explanation; what is found decides how many there really are. Of an empty circuit
    nothing is measured.
    """
    if components == []:
        return 0.0
    if case.finite:
        return float(FINITE_BASE + FINITE_PER_COMPONENT * len(case.circuit if components is None else components))
    studied = round(top * 4 / 3) if components is None else len(components)
    screening = 0.0
    if components is None:
        screening = SCREENED * (sweep_forwards(case.model, [(part,) for part in case.model.components]) - 1)
    return 64 + screening + (SELECTED + case.sizes.n) * NATURAL_PER_COMPONENT / 2 * studied
