"""One interface to all methods: a specimen and a number of prompts in, a circuit with scores and its cost out.

| method    | measures                                                             | edges | forward-equivalents    |
|-----------|----------------------------------------------------------------------|-------|------------------------|
| `sweep`   | clean minus edited score, each component resampled alone             | no    | at most 1 per component|
| `eap`     | first-order effect of every edge                                     | yes   | 4                      |
| `eap-ig`  | the same, gradient averaged between counterfactual and clean prompt  | yes   | 1 + 3 per step         |
| `relp`    | as `eap` in a linearised model (`intervene.relevance`)               | yes   | 4                      |
| `relp-qk` | the same, attention patterns not frozen                              | yes   | 4                      |
| `acdc`    | largest threshold at which an edge survives greedy pruning           | yes   | thresholds x edges / 2 |
| `bandit`  | as `sweep`, heads only, Thompson sampling under a budget             | no    | about the budget       |
| `rl`      | as `sweep`, heads only, in a policy's order under a budget           | no    | about the budget       |

A natural model is asked first whether it performs its behaviour at all. A backward pass counts as two forward passes.
Exchanges in place cannot see a component that holds the position alone. For specimens with a finite vocabulary, those
that a method leaves without a score (for EAP, EAP-IG and RelP, which estimate: all) are therefore also moved to other
positions (`moved`), one more forward pass each; `notes` names those that show.
Gradients need a readout with a slope; the share of unchanged outputs has none, so for specimens with a listed
vocabulary these read `contrast` instead and pay two more passes for it.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.behaviours.elsewhere import Spread
from vesalius.behaviours.natural import require_performance
from vesalius.behaviours.trial import Trial, note_limits, trial
from vesalius.components import Component, Edge, Shape
from vesalius.discovery.moved import moved_effects, note_on_position, silent
from vesalius.discovery.parts import attributed_in_parts, swept_in_parts
from vesalius.discovery.pruning import acdc, acdc_resampled, require_few_edges
from vesalius.discovery.stability import RESAMPLES, bootstrap_jaccard, pairwise_jaccard
from vesalius.documents.checks import Stability
from vesalius.documents.circuit import Circuit
from vesalius.documents.performance import Performance
from vesalius.errors import BadInput, choices
from vesalius.intervene import Batch, Readout, Recordings, effects
from vesalius.intervene.edge_attribution import edge_attribution
from vesalius.intervene.edge_graph import EdgeGraph
from vesalius.intervene.relevance import Rule
from vesalius.intervene.values import embeddings
from vesalius.model.hooks import HookPoint
from vesalius.model.specimen import Specimen
from vesalius.model.transformer import Transformer
from vesalius.plugins import DISCOVERY_METHODS, Plugin, all_names, find_plugin
from vesalius.progress import Progress
from vesalius.statistics import means_interval
from vesalius_mechrl.search.model_search import SEARCHES, MethodOptions, search_heads

DEFAULT_STEPS = 5
DEFAULT_PROMPTS = 32
#: The threshold at which ACDC is resampled.
STABLE_AT = 0.05
#: ACDC's work grows with edges times prompts: benchmarks prune models of more edges on this many prompts at most.
LARGE_EDGES, LARGE_PROMPTS = 1000, 8
#: Methods that score components and no edges.
BY_COMPONENTS = ("sweep", *SEARCHES)
#: Methods whose work can be cut into parts.
CUT_IN_PARTS = ("sweep", "eap", "eap-ig", "relp", "relp-qk")


@dataclass(frozen=True)
class MethodResult:
    """A method's circuit, its cost in forward passes of all prompts, the seconds it took and the prompts themselves
    (`material`).

    `per_prompt` holds the scores whose means over prompts the circuit's are: [prompt, component] of a sweep, [prompt,
    sender, receiver] of EAP and EAP-IG (tables of `EdgeGraph`), None for ACDC, whose scores are not means, and for
    searches, which look at some heads only. `unit` is what scores are measured in, `performance` how well a natural
    model does its behaviour.
    """

    method: str
    circuit: Circuit
    forwards: float
    seconds: float
    material: Trial = field(compare=False, repr=False)
    per_prompt: Tensor | None = field(default=None, compare=False, repr=False)
    metrics: Mapping[str, float] = field(default_factory=dict)
    unit: str = ""
    performance: Performance | None = None
    notes: tuple[str, ...] = ()

    def stability(self, top: int, *, resamples: int = RESAMPLES, seed: int = 0) -> Stability:
        """How alike the circuits of the `top` components are on bootstrap resamples of the prompts."""
        if self.method in SEARCHES:
            raise BadInput(
                f"{self.method} looks where its own draws lead it, so its scores cannot be resampled; `seeds` 5 "
                "compares five searches instead"
            )
        if self.per_prompt is None:
            raise BadInput(f"the scores of {self.method} are not means over prompts; use acdc_stability")
        options: dict[str, Any] = {"resamples": resamples, "seed": seed}
        if self.per_prompt.ndim == 2:
            return bootstrap_jaccard(self.per_prompt, top, **options)
        graph = EdgeGraph(self.circuit.n_layers, self.circuit.n_heads)
        shape = (len(graph.senders), len(graph.receivers))
        return bootstrap_jaccard(
            self.per_prompt.flatten(1),
            top,
            **options,
            combine=lambda means: graph.component_scores(means.unflatten(1, shape)),
        )


def acdc_stability(
    model: Transformer, material: Trial, *, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[Stability, float]:
    """The same for ACDC, pruned again on each resample at the threshold `STABLE_AT`, and the work that took.

    A circuit is every component with an edge that survives, however many those are.
    """
    kept, forwards = acdc_resampled(
        model,
        material.batch,
        material.readout,
        counterfactual=material.counterfactual,
        where=material.where,
        threshold=STABLE_AT,
        resamples=resamples,
        seed=seed,
    )
    return pairwise_jaccard(EdgeGraph.of(model.config).component_scores(kept.double())), forwards


@dataclass(frozen=True)
class Scores:
    """What a method found: a score per component and per edge (none where it does not look at edges), the forward
    passes of all prompts that it took, what the scores are measured in and, where they are means over prompts, those of
    each prompt.
    """

    components: dict[Component, float]
    edges: dict[Edge, float]
    forwards: float
    unit: str
    per_prompt: Tensor | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)


#: Scores a specimen's components and edges on prompts.
Method = Callable[[Specimen, Trial, MethodOptions, Spread | None, Progress | None], Scores]


def discover(
    specimen: Specimen,
    method: str = "sweep",
    *,
    n: int = DEFAULT_PROMPTS,
    seed: int = 0,
    split: str = "test",
    material: Trial | None = None,
    options: MethodOptions | None = None,
    force: bool = False,
    spread: Spread | None = None,
    progress: Progress | None = None,
) -> MethodResult:
    """Score the components (and edges) of a specimen on `n` prompts with a method of `METHODS` or of a plug-in, or its
    heads with one of `SEARCHES`. `options` are for these and for EAP-IG.

    A behaviour that a natural model does not perform is refused, unless `force`. `spread` runs parts of a sweep (some
    components) and of EAP, EAP-IG and RelP (some prompts) elsewhere; ACDC and searches decide one step by the last.
    """
    options = options or MethodOptions()
    require_method(method, options)
    if method == "acdc":
        require_few_edges(specimen.model.config)
    if method in SEARCHES:
        options.require(method, sum(part.is_head for part in specimen.model.components))
    material = material or trial(specimen, n, seed=seed, split=split, centred=method == "acdc")
    if progress is not None and material.prompts is not None:
        progress("running the clean prompts", 0, 0)
    _require_finite(specimen.model, material)
    performance = None if specimen.behaviour is None else require_performance(specimen, seed=seed, force=force)
    note_limits(specimen, material.prompts, resampled=True)
    start = time.perf_counter()
    notes: tuple[str, ...] = ()
    if method in SEARCHES:
        scores = _searched(specimen, material, method, options, seed, progress)
    elif method not in METHODS:
        scores = _plugin_scores(method, specimen, material, seed)
    else:
        scores = METHODS[method](specimen, material, options, spread, progress)
        if material.prompts is None:
            scores, notes = _with_moved(specimen, material, scores, method, seed)
    if not all(map(math.isfinite, [*scores.components.values(), *scores.edges.values()])):
        raise BadInput(f"{method}: some scores are not finite; check the model's weights and readout for overflow")
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
    )


def _intervals(scores: Scores) -> dict[Component, tuple[float, float]]:
    """The 95 % intervals of scores that are means over prompts, which those of components are in a sweep; none for one
    prompt.
    """
    if scores.per_prompt is None or scores.per_prompt.ndim != 2 or len(scores.per_prompt) == 1:
        return {}
    ends = zip(*(bounds.tolist() for bounds in means_interval(scores.per_prompt.cpu())), strict=True)
    return dict(zip(scores.components, ends, strict=True))


def require_circuit_method(method: str | None) -> None:
    """Refuse a method that does not score a whole circuit, where one is discovered before it is explained."""
    if method is not None and method not in METHODS and _plugin(method) is None:
        raise BadInput(f"`circuit_from` {method!r} does not exist; use {choices(method_names())}")


def _with_moved(
    specimen: Specimen, material: Trial, scored: Scores, method: str, seed: int
) -> tuple[Scores, tuple[str, ...]]:
    """The scores with those of components that hold the position alone, and what is to be said about these."""
    candidates = list(scored.components) if method in ESTIMATES else silent(scored.components)
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
    return scores, tuple(note_on_position(method, part, effect) for part, effect in moved.shown.items())


def require_method(method: str, options: MethodOptions | None = None) -> None:
    """Refuse a method that does not exist, and options of another method."""
    if method == "sets":
        raise BadInput("method 'sets' finds sets instead of scores; use ves.discover_sets")
    if method not in BUILT_IN and _plugin(method) is None:
        raise BadInput(
            f"method {method!r} does not exist; choose one of {choices(all_names(DISCOVERY_METHODS, BUILT_IN))}"
        )
    if method in SEARCHES or options is None:
        return
    if method == "eap-ig" and options.steps < 0:
        raise BadInput(f"`steps` {options.steps} is out of range; give at least 1, or 0 for {DEFAULT_STEPS}")
    if options != MethodOptions(steps=options.steps if method == "eap-ig" else 0):
        raise BadInput(
            f"`budget`, `paper`, `seeds` and `steps` are for `method` bandit and rl (`steps` also for eap-ig), "
            f"not {method}"
        )


def gradient_steps(method: str, options: MethodOptions) -> int:
    """At how many points a method of `ESTIMATES` takes the gradient."""
    return (options.steps or DEFAULT_STEPS) if method == "eap-ig" else 1


def _searched(
    specimen: Specimen, material: Trial, method: str, options: MethodOptions, seed: int, progress: Progress | None
) -> Scores:
    search = search_heads(specimen, material, method, options, smooth=smooth_readout, seed=seed, progress=progress)
    metrics = {} if search.jaccard is None else {"seeds_jaccard": search.jaccard}
    return Scores(search.components, {}, search.forwards, material.readout.unit, metrics=metrics)


def _sweep(
    specimen: Specimen, material: Trial, options: MethodOptions, spread: Spread | None, progress: Progress | None
) -> Scores:
    if spread is not None:
        return _swept_in_parts(specimen, material, spread)
    swept = effects(
        specimen.model,
        material.batch,
        material.readout,
        kind="resample",
        counterfactual=material.counterfactual,
        positions=material.where,
        progress=progress,
    )
    scores = {members[0]: float(mean) for members, mean in zip(swept.sets, swept.mean, strict=True)}
    return Scores(scores, {}, swept.forwards + 1, material.readout.unit, swept.matrix)


def _swept_in_parts(specimen: Specimen, material: Trial, spread: Spread) -> Scores:
    model, readout, n = specimen.model, material.readout, len(material.batch)
    sets = [(component,) for component in model.components]
    baseline = Recordings(model, material.batch.to(model.device), readout).scores().cpu()
    matrix, forwards = torch.empty(n, len(sets)), [2.0]

    def keep(span: range, scores: Tensor, rows: float) -> None:
        matrix[:, span.start : span.stop] = baseline[:, None] - scores
        forwards[0] += rows / n

    swept_in_parts(spread, material, "resample", sets, keep, largest=len(sets))
    scores = {members[0]: float(mean) for members, mean in zip(sets, matrix.mean(0), strict=True)}
    return Scores(scores, {}, forwards[0], readout.unit, matrix)


def _attribution(method: str) -> Method:
    """A method of `ESTIMATES`."""

    def attributed(
        specimen: Specimen, material: Trial, options: MethodOptions, spread: Spread | None, progress: Progress | None
    ) -> Scores:
        steps, rule = gradient_steps(method, options), RULE_OF.get(method, "gradient")
        readout, passes = smooth_readout(specimen.model, material)
        if spread is not None:
            scores = attributed_in_parts(spread, material, steps, rule)
        else:
            scores = edge_attribution(
                specimen.model,
                material.batch,
                readout,
                counterfactual=material.counterfactual,
                where=material.where,
                steps=steps,
                rule=rule,
            )
        forwards = 1 + 3 * steps + passes
        return replace(_by_edges(specimen, scores.mean(0), forwards, readout.unit), per_prompt=scores)

    return attributed


def _acdc(
    specimen: Specimen, material: Trial, options: MethodOptions, spread: Spread | None, progress: Progress | None
) -> Scores:
    pruned = acdc(
        specimen.model,
        material.batch,
        material.readout,
        counterfactual=material.counterfactual,
        where=material.where,
        progress=progress,
    )
    return _by_edges(specimen, pruned.scores, pruned.forwards, "threshold, share of the clean score")


#: Methods whose scores estimate effects: also a component that no exchange in place shows can have one.
ESTIMATES = ("eap", "eap-ig", "relp", "relp-qk")
#: Those that take another slope than the gradient.
RULE_OF: dict[str, Rule] = {"relp": "relp", "relp-qk": "relp-qk"}
METHODS: dict[str, Method] = {"sweep": _sweep, **{name: _attribution(name) for name in ESTIMATES}, "acdc": _acdc}
#: Every name that is taken.
BUILT_IN = (*METHODS, *SEARCHES, "sets")


def method_names() -> list[str]:
    """The methods that score a whole circuit: built-in ones, then those of plug-ins."""
    return [name for name in all_names(DISCOVERY_METHODS, BUILT_IN) if name in METHODS or name not in BUILT_IN]


def _plugin(method: str) -> Plugin | None:
    return find_plugin(DISCOVERY_METHODS, method, BUILT_IN)


def _plugin_scores(method: str, specimen: Specimen, material: Trial, seed: int) -> Scores:
    """What a plug-in's method gives: it is called with the specimen, the prompts and `seed=`, and returns `Scores`."""
    plugin = _plugin(method)
    assert plugin is not None
    scores = plugin.load()(specimen, material, seed=seed)
    if not isinstance(scores, Scores):
        raise plugin.refused(f"returned a {type(scores).__name__} instead of vesalius.discovery.methods.Scores")
    graph = EdgeGraph.of(specimen.model.config)
    foreign = [part for part in scores.components if part not in specimen.model.components]
    foreign += [edge for edge in scores.edges if edge not in graph.edges]
    if foreign:
        raise plugin.refused(f"scored {foreign[0]}, which the model does not have")
    return scores


def affordable_prompts(method: str, shape: Shape, n: int) -> int:
    """How many of `n` prompts a benchmark gives a method: all, but for ACDC on large models."""
    large = EdgeGraph.of(shape).n_edges > LARGE_EDGES
    return min(n, LARGE_PROMPTS) if method == "acdc" and large else n


def smooth_readout(model: Transformer, material: Trial) -> tuple[Readout, int]:
    """A readout with a slope, and the forward passes of all prompts that it took to make."""
    return (material.readout, 0) if material.prompts is not None else (contrast(model, material), 2)


def contrast(model: Transformer, material: Trial) -> Readout:
    """How far the outputs lie from the counterfactual's towards the clean ones: linear in the logits.

    The direction is clean logits minus those of the run with the counterfactual's embedding patched in, at real
    positions after BOS. Dividing by its mean square makes a full switch cost 1 on average.
    """
    batch, other = material.batch.to(model.device), material.counterfactual.to(model.device)
    with torch.no_grad():
        clean = _answering(model(batch.tokens, mask=batch.mask), material.answers)
        direction = clean - _switched(model, batch, other, material.where)
    if clean.shape[-1] > 1:
        direction = direction - direction.mean(-1, keepdim=True)
    counted = torch.ones_like(batch.tokens, dtype=torch.bool) if batch.mask is None else batch.mask.clone()
    counted[:, 0] = False
    direction = direction * counted[:, :, None]
    direction = direction / direction.square().sum((1, 2)).mean().clamp(min=1e-12)

    def score(logits: Tensor, prompt: Tensor) -> Tensor:
        return (logits * direction.to(logits.device)[prompt]).sum((1, 2))

    return Readout(score, unit="share of the change")


def _answering(logits: Float[Tensor, "prompt pos out"], answers: Tensor | None) -> Float[Tensor, "prompt pos out"]:
    """The logits with the answer's exchanged for the largest."""
    if answers is None:
        return logits
    top, answer = logits.argmax(-1, keepdim=True), answers.to(logits.device)[:, :, None]
    return logits.scatter(-1, top, logits.gather(-1, answer)).scatter(-1, answer, logits.gather(-1, top))


def _switched(model: Transformer, batch: Batch, other: Batch, where: Tensor | None) -> Tensor:
    """Logits of a run with the counterfactual's embedding patched in."""
    embedding = embeddings(model, other)

    def switch(value: Tensor, hook: HookPoint) -> Tensor:
        return embedding if where is None else torch.where(where.to(value.device)[:, :, None], embedding, value)

    return model.run_with_hooks(batch.tokens, mask=batch.mask, fwd_hooks=[("blocks.0.hook_resid_pre", switch)])


def _by_edges(specimen: Specimen, scores: Tensor, forwards: float, unit: str) -> Scores:
    graph = EdgeGraph.of(specimen.model.config)
    return Scores(graph.by_sender(scores), graph.by_edge(scores), forwards, unit)


def _require_finite(model: Transformer, material: Trial) -> None:
    """Scores of a model that computes NaN mean nothing, and comparisons with NaN would hide it."""
    with torch.no_grad():
        batch = material.batch.take(slice(0, 1)).to(model.device)
        finite = bool(model(batch.tokens, mask=batch.mask).isfinite().all())
    if not finite or not all(bool(weight.isfinite().all()) for weight in model.parameters()):
        raise BadInput("the model's weights or logits are not finite; check the weights for overflow")
