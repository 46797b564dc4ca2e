"""Finds methods by name and runs them: a specimen and a number of prompts in, a circuit with scores and its cost out.

| method              | measures                                                            | forward-equivalents    |
|---------------------|---------------------------------------------------------------------|------------------------|
| `sweep`, `Sweep`    | clean minus edited score, each component resampled alone; no edges  | at most 1 per component|
| `best`, `Best`      | `eap-ig`, `relp` and `relp-qk`; the smallest circuit decides        | 24                     |
| `eap`, `EAP`        | first-order effect of every edge                                    | 4                      |
| `eap-ig`, `EAPIG`   | the same, gradient averaged between counterfactual and clean prompt | 1 + 3 per step         |
| `relp`, `RelP`      | as `eap` in a linearised model (`intervene.attribution`)              | 4                      |
| `relp-qk`, `RelPQK` | the same, attention patterns not frozen                             | 4                      |
| `gim`, `GIM`        | as `eap`, slopes of norms and attention changed                     | 4                      |
| `masks`, `Masks`    | masks of all components, learned together                           | 18 + a quarter a step  |
| `edge-masks`        | masks of the best edges, learned together                           | at most 19 + 3/4 a step|
| `ensemble`          | one over the mean place by several methods, or the best of them     | theirs                 |
| `elimination`       | groups removed one by one, attributed again in what is left         | a sweep + 4 a round    |
| `acdc`, `ACDC`      | largest threshold at which an edge survives greedy pruning          | thresholds x edges / 2 |

Others come by entry point (`vesalius.discovery_methods`): `bandit` and `rl` of `vesalius_mechrl`, and plug-ins.

A natural model is asked first whether it performs its behaviour at all. A backward pass counts as two forward passes.
Exchanges in place cannot see a component that holds the position alone. For specimens with a finite vocabulary, those
that such a method leaves without a score (where it estimates: all) are therefore also moved to other positions
(`moved`), one more forward pass each; `notes` names those that show.
"""

import math
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import MISSING, fields, replace
from numbers import Integral, Real
from typing import Any, cast, get_args, get_type_hints

import torch
from torch import Tensor

from vesalius.behaviours.natural import Spread, require_performance
from vesalius.behaviours.trial import Trial, note_limits, trial
from vesalius.components import Component, Edge
from vesalius.discovery.attribution import EAP, EAPIG, GIM, Best, RelP, RelPQK
from vesalius.discovery.combining import Elimination, Ensemble
from vesalius.discovery.masks import EdgeMasks, Masks
from vesalius.discovery.method import REGISTERED, Method, MethodInput, MethodResult, Scores
from vesalius.discovery.pruning import ACDC
from vesalius.discovery.sweep import Sweep, moved_effects, note_on_position, silent
from vesalius.documents.circuit import Circuit
from vesalius.errors import BadInput, quoted, require_signature, takes
from vesalius.intervene.edges import EdgeGraph
from vesalius.intervene.estimate import Workload
from vesalius.model.specimen import Specimen
from vesalius.model.transformer import metered
from vesalius.options.records import listed
from vesalius.plugins import DISCOVERY_METHODS, Plugin, all_names, find_plugin, installed
from vesalius.progress import Progress
from vesalius.statistics import means_interval

DEFAULT_PROMPTS = 32
#: The methods of the core. Each scores a whole circuit.
CORE: tuple[type[Method], ...] = (
    Sweep,
    Best,
    EAP,
    EAPIG,
    RelP,
    RelPQK,
    GIM,
    Masks,
    EdgeMasks,
    Ensemble,
    Elimination,
    ACDC,
)
CORE_NAMES = tuple(kind.name for kind in CORE)
#: Names that no plug-in may take.
TAKEN = (*CORE_NAMES, "sets")
#: What scores like a method of ours but has no options: a function of a specimen, its prompts and, if it takes one,
#: `seed=`. It returns `Scores`, or a dict of names of components and edges with their scores.
MethodFunction = Callable[..., Scores | Mapping[Any, Any]]
Named = Method | type[Method] | MethodFunction | str


def method_named(method: Named, **options: object) -> Method:
    """The method of that name with these options; None leaves one out. A name may hold options: `masks:steps=300`. A
    method itself is returned as it is, and a function scores under its own name.
    """
    given = {name: value for name, value in options.items() if value is not None}
    if isinstance(method, str) and ":" in method:
        label, (method, written) = method, _with_options(method)
        try:
            return method_named(method, **(written | given))
        except BadInput as error:
            # What was written behind the name is no option of the command line.
            raise BadInput(f"method {quoted(label, 80)}: {str(error).replace('`', '')}") from None
    if isinstance(method, Method):
        return method.without_more(given)
    if isinstance(method, str):
        kind = method_class(method)
    elif isinstance(method, type) and issubclass(method, Method):
        kind = method
    elif callable(method) and not isinstance(method, type):
        kind = _scoring(method)
    else:
        raise BadInput(f"method {quoted(method, 80)} is no method; give a name, a Method or a function that scores")
    kind.require_options(given)
    lacking = [one.name for one in fields(kind) if one.default is MISSING and one.default_factory is MISSING]
    if lacking := [name for name in lacking if name not in given]:
        raise BadInput(f"method {kind.name!r} needs {listed(lacking)}; give {kind.name}:{lacking[0]}=...")
    hints = get_type_hints(kind)
    return kind(**{name: _fitting(kind.name, name, value, hints[name]) for name, value in given.items()})


def _with_options(label: str) -> tuple[str, dict[str, str]]:
    """A method's name and the options that are written behind it, as `Method.label` writes them."""
    name, *parts = label.split(":")
    known = method_class(name).option_help()
    given: dict[str, str] = {}
    for part in parts:
        option, equals, value = part.partition("=")
        if not equals or option not in known:
            has = f"its options are {listed(known)}" if known else "it has no options"
            raise BadInput(f"method {label!r}: {part!r} is no option of {name}; {has}, written as {name}:NAME=VALUE")
        given[option] = value
    return name, given


def _fitting(method: str, name: str, value: object, hint: object) -> object:
    """The value of an option as its field declares it, read from a text where it is one; refused where it is none."""
    kinds = [kind for kind in (get_args(hint) or (hint,)) if kind in _READ]
    if not kinds or type(value) in kinds:
        return value
    for kind in kinds:
        if isinstance(value, str):
            with suppress(ValueError, KeyError):
                return _READ[kind](value)
        elif isinstance(value, Real) and kind is float and not isinstance(value, bool):
            return float(value)
        elif isinstance(value, Integral) and kind is int and not isinstance(value, bool):
            return int(value)
    wanted = " or ".join(_WANTED[kind] for kind in kinds)
    raise BadInput(f"{name}={quoted(value, 40)} is not {wanted}; give method {method!r} one")


_READ: Mapping[Any, Callable[[str], Any]] = {
    bool: lambda text: {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}[text.lower()],
    int: int,
    float: float,
    str: str,
}
_WANTED = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


def method_names() -> list[str]:
    """Every name: those of the core, those of plug-ins, and those of classes that were defined since."""
    names = all_names(DISCOVERY_METHODS, TAKEN)
    return [name for name in dict.fromkeys([*names, *REGISTERED]) if name != "sets"]


def circuit_method_names() -> list[str]:
    """The methods that score a whole circuit; those of other packages are taken at their word."""
    heads_only = [
        plugin.name for plugin in installed(DISCOVERY_METHODS) if _is_ours(plugin) and plugin.load().heads_only
    ]
    return [name for name in method_names() if name not in heads_only]


def circuit_method(name: str, *, parameter: str = "circuit_from", **options: object) -> Method:
    """The method of that name; refused where it does not score a whole circuit."""
    if name.partition(":")[0] not in method_names() or (method := method_named(name, **options)).heads_only:
        raise BadInput(f"`{parameter}` {name!r} does not exist; use {', '.join(circuit_method_names())}")
    return method


def discover(
    specimen: Specimen,
    method: Named = "sweep",
    *,
    n: int = DEFAULT_PROMPTS,
    seed: int = 0,
    split: str = "test",
    material: Trial | None = None,
    force: bool = False,
    spread: Spread | None = None,
    progress: Progress | None = None,
) -> MethodResult:
    """Score the components (and edges) of a specimen on `n` prompts with a method.

    A behaviour that a natural model does not perform is refused, unless `force`. `spread` runs parts of a method that
    has some elsewhere; others decide one step by the last.
    """
    method = method_named(method)
    method.require(specimen.model.config)
    material = material or trial(specimen, n, seed=seed, split=split, centred=method.centred)
    if progress is not None and material.prompts is not None:
        progress("running the clean prompts", 0, 0)
    # Scores of a model that computes NaN mean nothing, and comparisons with NaN would hide it.
    with torch.no_grad():
        batch = material.batch.take(slice(0, 1)).to(specimen.model.device)
        finite = bool(specimen.model(batch.tokens, mask=batch.mask).isfinite().all())
    if not finite or not all(bool(weight.isfinite().all()) for weight in specimen.model.parameters()):
        raise BadInput("the model's weights or logits are not finite; check the weights for overflow")
    performance = None if specimen.behaviour is None else require_performance(specimen, seed=seed, force=force)
    note_limits(specimen, material.prompts, resampled=True)
    start = time.perf_counter()
    notes: tuple[str, ...] = ()
    given = MethodInput(specimen, material, seed, progress, spread if method.in_parts else None)
    if isinstance(method, CORE):
        scores = method.score(given)
    else:
        with running(method):
            scores = method.score(given)
        _require_fitting(given, method, scores)
    if material.prompts is None and not method.sees_position:
        scores, notes = _with_moved(specimen, material, scores, method, seed)
    if not all(map(math.isfinite, [*scores.components.values(), *scores.edges.values()])):
        raise BadInput(f"{method.name}: some scores are not finite; check the model's weights and readout for overflow")
    config = specimen.model.config
    circuit = Circuit.scored(config, config.d_model, scores.components, scores.edges, intervals=_intervals(scores))
    return MethodResult(
        method,
        circuit,
        scores.forwards,
        time.perf_counter() - start,
        material,
        scores.per_prompt,
        scores.metrics,
        scores.unit,
        performance,
        notes,
        scores,
    )


def _is_ours(plugin: Plugin) -> bool:
    return plugin.package == "vesalius"


def method_class(name: str) -> type[Method]:
    """The class of the method of that name; that of a plug-in is imported."""
    if name == "sets":
        raise BadInput("method 'sets' finds sets instead of scores; use `vesalius sets` or ves.discover_sets")
    if name in CORE_NAMES:
        return REGISTERED[name]
    ours = [plugin for plugin in installed(DISCOVERY_METHODS) if plugin.name == name and _is_ours(plugin)]
    plugin = ours[0] if ours else find_plugin(DISCOVERY_METHODS, name, TAKEN)
    if plugin is None:
        if name not in REGISTERED:
            raise BadInput(f"method {name!r} does not exist; choose one of {', '.join(method_names())}")
        return REGISTERED[name]
    loaded = plugin.load()
    if isinstance(loaded, type) and issubclass(loaded, Method):
        if loaded.name != name:
            raise plugin.refused(f"is a method of the name {loaded.name!r}")
        return loaded
    if not callable(loaded):
        raise plugin.refused("is neither a Method nor a function")
    return _scoring(cast(MethodFunction, loaded), name)


def _scoring(function: MethodFunction, name: str | None = None) -> type[Method]:
    """A method that calls a function; its `cost`, if it has one, is that of a `Workload` in passes of all prompts."""
    seeded = takes(function, "seed")
    require_signature("method", function, "specimen", "prompts", **({"seed": "0"} if seeded else {}))

    class Function(Method):
        def score(self, given: MethodInput) -> Scores:
            passes = 0.0

            def spend(forwards: float) -> None:
                nonlocal passes
                passes += forwards

            with metered(given.specimen.model, spend):
                scores = function(given.specimen, given.material, **({"seed": given.seed} if seeded else {}))
            if not isinstance(scores, Mapping):
                return scores
            return _scores_of(scores, passes / len(given.material.batch), self.name)

        def cost(self, work: Workload) -> float:
            own = getattr(function, "cost", None)
            return super().cost(work) if own is None else own(work)

        def __reduce__(self) -> tuple[Any, ...]:  # a class of a call cannot be found by another process
            return _of_function, (function, self.name)

    Function.name = name or getattr(function, "__name__", type(function).__name__)
    return Function


def _scores_of(scores: Mapping[object, object], forwards: float, name: str) -> Scores:
    """Scores by name: edges are those with an arrow, and a component without a score of its own has the largest
    magnitude of the edges that leave it.
    """
    components: dict[Component, float] = {}
    edges: dict[Edge, float] = {}
    for part, score in scores.items():
        try:
            number = float(score) if isinstance(score, Tensor | Real) else None
        except (OverflowError, RuntimeError, TypeError, ValueError):
            number = None
        if number is None:
            raise BadInput(f"method {name!r} gave {quoted(str(part), 40)} {quoted(score, 40)}; give one number")
        one = Edge.parse(str(part)) if "->" in str(part) else Component.parse(str(part))
        if one in edges or one in components:
            raise BadInput(f"method {name!r} scored {one} twice, under two names; give one score")
        if isinstance(one, Edge):
            edges[one] = number
        else:
            components[one] = number
    scored = set(components)
    for edge, number in edges.items():
        if edge.sender is not None and edge.sender not in scored:
            components[edge.sender] = max(components.get(edge.sender, 0.0), abs(number))
    return Scores(components, edges, forwards, "score")


def _of_function(function: MethodFunction, name: str) -> Method:
    return _scoring(function, name)()


def running(method: Method) -> AbstractContextManager[None]:
    """While a method runs: what the one of another package raises becomes one line that names the package."""
    plugin = _offered(method)
    return nullcontext() if plugin is None else plugin.running()


def planned_cost(method: Method, work: Workload) -> float:
    """Passes of all prompts that a method says it takes; refused where it says no number."""
    with running(method):
        passes = method.cost(work)
    if isinstance(passes, bool) or not isinstance(passes, Real) or not math.isfinite(passes) or passes < 0:
        raise _refused(method, f"says that it costs {quoted(passes, 40)}, not a number of passes")
    return float(passes)


def _offered(method: Method) -> Plugin | None:
    return None if method.name in TAKEN else find_plugin(DISCOVERY_METHODS, method.name, TAKEN)


def _refused(method: Method, problem: str) -> BadInput:
    plugin = _offered(method)
    return BadInput(f"method {method.name!r} {problem}") if plugin is None else plugin.refused(problem)


def _require_fitting(given: MethodInput, method: Method, scores: Scores) -> None:
    """Refuse what a method from elsewhere returned if it is not about this model and these prompts."""
    model, prompts = given.specimen.model, len(given.material.batch)
    if not isinstance(scores, Scores):
        raise _refused(method, f"returned a {type(scores).__name__} instead of a dict of names and scores, or Scores")
    foreign: list[object] = [part for part in scores.components if part not in model.components]
    edges = set(EdgeGraph.of(model.config).edges) if scores.edges else set()
    foreign += [edge for edge in scores.edges if edge not in edges]
    if foreign:
        raise _refused(method, f"scored {quoted(str(foreign[0]), 40)}, which the model does not have")
    if not scores.components:
        raise _refused(method, "scored no component")
    for part, score in (*scores.components.items(), *scores.edges.items()):
        if not isinstance(score, float | int) or not math.isfinite(score):
            raise _refused(method, f"gave {part} the score {quoted(score, 40)}, which is not a finite number")
    if not isinstance(scores.forwards, float | int) or not 0 <= scores.forwards < math.inf:
        raise _refused(method, f"says that it took {quoted(scores.forwards, 40)} passes; give a number")
    if not isinstance(scores.unit, str):
        raise _refused(method, f"has the unit {quoted(scores.unit, 40)}; give a text")
    if scores.per_prompt is not None:
        shape, graph = tuple(getattr(scores.per_prompt, "shape", ())), EdgeGraph.of(model.config)
        by_component = (prompts, len(scores.components))
        if shape not in (by_component, (prompts, len(graph.senders), len(graph.receivers))):
            raise _refused(method, f"has scores of each prompt of the shape {shape}; give {by_component}")


def _intervals(scores: Scores) -> dict[Component, tuple[float, float]]:
    """The 95 % intervals of scores that are means over prompts, which those of components are in a sweep; none for one
    prompt.
    """
    if scores.per_prompt is None or scores.per_prompt.ndim != 2 or len(scores.per_prompt) == 1:
        return {}
    ends = zip(*(bounds.tolist() for bounds in means_interval(scores.per_prompt.cpu())), strict=True)
    return dict(zip(scores.components, ends, strict=True))


def _with_moved(
    specimen: Specimen, material: Trial, scored: Scores, method: Method, seed: int
) -> tuple[Scores, tuple[str, ...]]:
    """The scores with those of components that hold the position alone, and what is to be said about these."""
    candidates = list(scored.components) if method.estimates else silent(scored.components)
    moved = moved_effects(specimen.model, material, candidates, seed=seed)
    per_prompt = scored.per_prompt
    if moved.shown and per_prompt is not None and per_prompt.ndim == 2:
        per_prompt = per_prompt.clone()
        columns = list(scored.components)
        for component in moved.shown:
            per_prompt[:, columns.index(component)] = moved.matrix[:, moved.components.index(component)]
    scores = replace(
        scored,
        components={**scored.components, **moved.shown},
        forwards=scored.forwards + moved.forwards,
        per_prompt=per_prompt,
    )
    return scores, tuple(note_on_position(method.name, part, effect) for part, effect in moved.shown.items())
