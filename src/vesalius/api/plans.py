"""What a sweep, a discovery or an explanation will cost: passes, memory and time, from one timed chunk of it.

The passes of a sweep follow from its components alone and are exact; those of a discovery from the method's own rule;
those of searches, of checks and of explanations depend on what is found and are estimates. Nothing is written.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from vesalius.api.catalogue import loaded
from vesalius.api.sweeps import PROMPTS, ROWS_BETWEEN_SAVES, component_sets_of
from vesalius.behaviours.metrics import Metric
from vesalius.behaviours.trial import Trial, trial
from vesalius.components import Component
from vesalius.discovery.checks import HELD_OUT_PROMPTS
from vesalius.discovery.faithfulness import default_sizes
from vesalius.discovery.methods import DEFAULT_PROMPTS, DEFAULT_STEPS, require_method
from vesalius.discovery.pruning import MAX_EDGES, THRESHOLDS, require_few_edges
from vesalius.discovery.search.model_search import SEARCHES, SearchOptions
from vesalius.errors import BadInput, choices
from vesalius.explanations.natural import PROMPTS as EXPLAIN_PROMPTS
from vesalius.explanations.natural import TOP
from vesalius.intervene.edge_graph import EdgeGraph
from vesalius.intervene.effects import KINDS, ComponentSet
from vesalius.intervene.estimate import Prompts, attribution_peak, seconds_per_row, sweep_forwards, sweep_peak
from vesalius.intervene.recordings import activation_memory
from vesalius.model.devices import Devices, weight_bytes, weight_dtype
from vesalius.model.specimen import FiniteVocabulary, Specimen
from vesalius.progress import Progress, shown

COMMANDS = ("sweep", "discover", "explain")
#: Passes of one prompt that explanations took, as multiples: for a natural model of its prompts times the components
#: studied, after the screening; for a listed vocabulary of its components.
NATURAL_PER_COMPONENT, FINITE_PER_COMPONENT = 24, 6_000
SCREENED, SELECTED = 4, 8


def plan(
    command: str,
    specimen: Specimen | str | int | Path,
    *,
    method: str = "sweep",
    kind: str = "zero",
    components: Iterable[str | Component] | None = None,
    pairs: bool = False,
    n: int | None = None,
    top: int | None = None,
    budget: int | None = None,
    checks: bool = True,
    seed: int = 0,
    behaviour: Any = None,
    metric: Metric | None = None,
    dtype: str | torch.dtype = "auto",
    device: Devices = "auto",
    progress: Progress | bool | None = None,
) -> dict[str, Any]:
    """Passes of all prompts (`forwards`), bytes at the peak (`peak_bytes`) and estimated `seconds` of a command with
    its options; it is "sweep", "discover" or "explain". One small chunk is run to time it.
    """
    if command not in COMMANDS:
        raise BadInput(f"command {command!r} has no plan; choose one of {choices(COMMANDS)}")
    if kind not in KINDS:
        raise BadInput(f"kind {kind!r} does not exist; choose one of {choices(KINDS)}")
    if command == "discover":
        require_method(method, SearchOptions(budget) if budget is not None else None)
    usual = {"sweep": PROMPTS, "discover": DEFAULT_PROMPTS, "explain": EXPLAIN_PROMPTS}[command]
    with shown(progress) as report:
        specimen = loaded(specimen, behaviour=behaviour, metric=metric, dtype=dtype, device=device, progress=report)
        material = trial(specimen, usual if n is None else n, seed=seed)
        report("timing one chunk", 0, 0)
        sets = component_sets_of(specimen, components if command == "sweep" else None, pairs=pairs)
        how = kind if command == "sweep" else "resample"
        seconds = seconds_per_row(
            specimen.model, material.batch, material.readout, sets, how, counterfactual=material.counterfactual
        )
    prompts = len(material.batch)
    more = 0.0
    if command == "sweep":
        forwards = sweep_forwards(specimen.model, sets)
    elif command == "discover":
        forwards = _method_forwards(specimen, method, budget)
        more = _check_rows(specimen) if checks else 0.0
    else:
        forwards = _explanation_rows(specimen, components, prompts, top or TOP) / prompts
    rows = forwards * prompts + more
    return {
        "command": command,
        "forwards": forwards,
        "peak_bytes": weight_bytes(specimen.model) + _activations(specimen, material, command, method, sets, how),
        "seconds": rows * seconds,
        "n": prompts,
        "checks_forwards": more / prompts,
        "device": str(specimen.model.device),
    }


def _activations(
    specimen: Specimen, material: Trial, command: str, method: str, sets: list[ComponentSet], kind: str
) -> int:
    """Bytes of activations at the peak: of the sweep, of edge attribution, or of rows of interventions."""
    model, sizes = specimen.model, Prompts.of(material.batch, material.readout)
    dtype, memory = weight_dtype(model), activation_memory(model, None)
    if command == "discover" and method in ("eap", "eap-ig"):
        return attribution_peak(model.config, dtype, sizes, steps=1 + (method == "eap-ig"), memory=memory)
    block = ROWS_BETWEEN_SAVES if command == "sweep" else 4096
    return sweep_peak(model.config, dtype, sizes, sets, kind, memory=memory, block=block)


def _method_forwards(specimen: Specimen, method: str, budget: int | None) -> float:
    """Passes of all prompts, by the rule of each method."""
    model = specimen.model
    every = [(component,) for component in model.components]
    if method == "sweep":
        return sweep_forwards(model, every) + 1
    if method in SEARCHES:
        heads = [members for members in every if members[0].is_head]
        queries = SearchOptions(budget).budget_of(len(heads))
        return 2 + queries * (sweep_forwards(model, heads) - 1) / len(heads)
    if method == "acdc":
        require_few_edges(model.config)
        return len(THRESHOLDS) * len(EdgeGraph.of(model.config).edges) / 2
    # With listed tokens: two passes for a readout with a slope, and every component moved to other positions.
    more = 2 + sweep_forwards(model, every) if isinstance(specimen.vocabulary, FiniteVocabulary) else 0
    return 1 + 3 * (DEFAULT_STEPS if method == "eap-ig" else 1) + more


def _check_rows(specimen: Specimen) -> float:
    """Passes of one prompt for the checks: two curves, that of the edges where they are few, other behaviours."""
    config = specimen.model.config
    curves = 2 * len(default_sizes(len(specimen.model.components)))
    edges = len(EdgeGraph.of(config).edges)
    curves += len(default_sizes(edges)) if edges <= MAX_EDGES else 0
    others = 0 if isinstance(specimen.vocabulary, FiniteVocabulary) else 7 * 5
    return HELD_OUT_PROMPTS * (curves + others)


def _explanation_rows(
    specimen: Specimen, components: Iterable[str | Component] | None, prompts: int, top: int
) -> float:
    """Passes of one prompt for an explanation; what is found decides how many there really are."""
    named = None if components is None else len(list(components))
    if isinstance(specimen.vocabulary, FiniteVocabulary):
        return float(FINITE_PER_COMPONENT * (named or len(specimen.components)))
    studied = named or round(top * 4 / 3)
    screening = 0.0
    if named is None:
        screening = SCREENED * (sweep_forwards(specimen.model, [(part,) for part in specimen.model.components]) - 1)
    return 64 + screening + (SELECTED + prompts) * NATURAL_PER_COMPONENT / 2 * studied
