"""Which components a behaviour needs: a method's scores, graded where the answer is known, and the checks of them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from vesalius.api.dictionaries import require_fitting
from vesalius.api.door import note_unperformed, place_for, removed_if_empty, request_on, verb, with_page
from vesalius.behaviours.trial import Trial, trial
from vesalius.components import headless
from vesalius.discovery.attribution import Best
from vesalius.discovery.checks import held_out_prompts, run_checks
from vesalius.discovery.discover import Named, method_named
from vesalius.discovery.discover import discover as scored
from vesalius.discovery.faithfulness import NothingToKeep
from vesalius.discovery.method import Method, MethodInput, MethodResult
from vesalius.discovery.neurons import NeuronSet, keep_neurons
from vesalius.discovery.rivals import find_rivals, require_rivals, require_searchable, rival_prompts
from vesalius.discovery.selection import parse_rules, require_selectable, select_circuit, selectable_parts
from vesalius.discovery.sweep import Sweep
from vesalius.discovery.whole import Search, prompt_sets, whole_circuit
from vesalius.documents.checks import Checks, CircuitCut
from vesalius.documents.circuit import CIRCUIT_FILE, Circuit, Score
from vesalius.documents.discovery import Discovery
from vesalius.documents.metric import Metric
from vesalius.documents.neurons import LatentSet, NeuronCircuit
from vesalius.documents.request import Request
from vesalius.documents.rivals import By, Rivals
from vesalius.documents.whole import KEEP, KEEP_LISTED, WholeCircuit
from vesalius.errors import BadInput, note, result_kept
from vesalius.intervene.attribution import Rule
from vesalius.model.specimen import Specimen, TextVocabulary
from vesalius.model.states import fingerprint
from vesalius.model.transformer import Transformer
from vesalius.options import DISCOVERED, NEURONS, Checked, Cut, Draw, Force, Out, Parts, Scoring
from vesalius.plugins import VERBS, loaded_plugin
from vesalius.progress import Progress, silent
from vesalius.report.pages import render_discovery
from vesalius.runs.parts import parts_on


def require_discoverable(
    specimen: object, method: Named | None, cut: Cut, checked: Checked, material: Trial | None = None, **options: object
) -> Method:
    """The method with its options (None: the usual one of a natural model); refuses what does not go together before
    the model is loaded.
    """
    if checked.features is not None and material is not None:
        raise BadInput("`features`: latents are chosen on the behaviour's own prompts; leave out `material`")
    require_fitting(specimen, checked)
    scoring = method_named(Best.name if method is None else method, **options)
    if cut.keep is not None and not 0 < cut.keep < 1:
        raise BadInput(f"`keep` {cut.keep:g} is not a share to keep; give one between 0 and 1, such as 0.8")
    parse_rules(cut.select, cut.size)
    require_rivals(checked.rivals, cast(By, checked.rivals_by), scores_edges=scoring.scores_edges is not False)
    return scoring


@partial(verb, check=require_discoverable)
def discover(
    specimen: Specimen,
    method: Named | None = None,
    *,
    draw: Draw = DISCOVERED,
    cut: Cut,
    checked: Checked,
    force: Force,
    parts: Parts,
    material: Trial | None = None,
    out: Out = None,
    progress: Progress = silent,
    **options: object,
) -> Discovery:
    """The smallest connected circuit that keeps a share of a behaviour (`keep`), or the answer that there is none.

    Components are scored on `n` prompts, the size is chosen on others (of at most `most` components), and what the
    circuit keeps is measured on prompts that had no part in either: `answer`, `kept`, `size`, `connected`, `whole`.
    `method` is a method, such as `ves.EAPIG(steps=3)`, or the name of one: "best", "sweep", "eap", "eap-ig", "relp",
    "relp-qk", "gim", "masks", "edge-masks", "ensemble", "elimination", "acdc", "bandit", "rl" or that of a plug-in; by
    default "best", or "sweep" for a listed vocabulary. `options` are those of a method that is named: `"eap-ig",
    steps=3`, or `"eap-ig:steps=3"`.
    The result holds the `circuit`, its answer and its `checks`; `checks=False` leaves out both. A behaviour that a
    natural model does not perform is refused, unless `force`. `material` gives other prompts than the specimen's own,
    `behaviour` and `metric` are those of `ves.load`. With `out` (a directory, or True for one under `vesalius-runs`)
    the files and the page are written.

    `select` cuts the circuit to at most `size` edges (components, for methods that score no edges) by a rule: "top",
    "greedy", "exact", "bootstrap" or "positive-ratio". Of several rules the first makes the circuit and the others are
    compared with it. Without `size` the circuit is the smallest that keeps 0.9 of the behaviour on these prompts.

    `features` is a directory of transcoders: the smallest set of latents, heads and error terms (`L12F4711`, `L3H1`,
    `L12.error`) that keeps the same share is searched first, as `latents` does, and stands in the result as `latents`.

    `rivals` searches as many other circuits of components (`rivals_by` "edges": of edges) that keep the behaviour as
    well with little overlap, says what they share and what is exchangeable, and carries out the ablation that
    distinguishes two of them.

    `engine` ("local" processes or "ray") and `jobs` run parts elsewhere for a natural model: some components of a
    sweep, some prompts of EAP and EAP-IG, and each check. Other methods decide one step by the last; their checks are
    run elsewhere.
    """
    scoring = method_named(usual_method(specimen) if method is None else method, **options)
    checks, rules = checked.checks, parse_rules(cut.select, cut.size)
    require_selection(specimen.model, scoring, rules, cut.size)
    by = cast(By, checked.rivals_by)
    require_searchable(specimen.model, by)
    asked = (draw, replace(cut, select=rules or None), checked, force)
    request = request_on(specimen, "discover", *asked, material=material, method=scoring.name)
    request = _with_options(request, **scoring.options)
    spread = parts_on(parts, specimen, progress, material=material)
    if spread is not None and not checks and not scoring.in_parts:
        raise BadInput(
            f"method {scoring.name!r} decides one step by the last, so it has no parts; leave out the engine"
        )
    n, seed, split = draw.n, draw.seed, draw.split
    unseen = None
    if checked.rivals:
        unseen = rival_prompts(specimen, material or trial(specimen, n, seed=seed, split=split), seed=seed)
    directory = place_for(out, specimen, request, *asked, words=_words(scoring))
    with removed_if_empty(directory):
        latents, request = _latents(specimen, request, draw, cut, checked, force, progress)
        prompts = {"n": n, "seed": seed, "split": split, "material": material}
        result = scored(specimen, scoring, **prompts, force=force.force, spread=spread, progress=progress)
        note_unperformed(specimen.name, specimen.behaviour, result.performance, force=force.force)
        result, selection = _selected(specimen, result, rules, cut.size, seed=seed, checks=checks)
        whole = None
        if checks and not rules:
            result, whole = _whole(specimen, result, cut, draw, progress)
        cut_by = "rule" if rules else "whole" if whole else None
        how = {"seed": seed, "spread": spread, "progress": progress}
        figures = run_checks(specimen, result, cut=cut_by, **how) if checks else None
        compared = {"rivals": checked.rivals, "by": by, "seed": seed, "progress": progress}
        others = None if unseen is None else _rivals(specimen, result, unseen, **compared)
    found = {"selection": selection, "rivals": others, "whole": whole, "latents": latents}
    discovery = _discovery(specimen, request, result, figures).model_copy(update=found)
    return discovery if directory is None else _write_files(discovery, directory)


def _latents(
    specimen: Specimen, request: Request, draw: Draw, cut: Cut, checked: Checked, force: Force, progress: Progress
) -> tuple[LatentSet | None, Request]:
    """The smallest set of latents that keeps the share, where dictionaries are given, and the request with what they
    say of themselves.
    """
    if checked.features is None:
        return None, request
    asked = latent_options(specimen, draw, cut, checked)
    circuit = latent_verb("latents")(specimen, **asked, force=force.force, progress=progress)
    return circuit.part(), request.model_copy(update={"made_for": circuit.request.made_for})


def latent_options(specimen: Specimen, draw: Draw, cut: Cut, checked: Checked) -> dict[str, Any]:
    """The options of a search for latents beside a circuit: the same prompts and the same share."""
    return {"features": checked.features, "keep": cut.keep or usual_share(specimen), **draw.values()}


def latent_verb(name: str) -> Callable[..., Any]:
    """A verb of the package that finds circuits of latents."""
    found = loaded_plugin(VERBS, name, ())
    if found is None:
        raise BadInput("`features`: no package that finds circuits of latents is installed; leave it out")
    return found


def usual_share(specimen: Specimen) -> float:
    """The share that is kept where none is asked for."""
    return KEEP if isinstance(specimen.vocabulary, TextVocabulary) else KEEP_LISTED


def usual_method(specimen: Specimen) -> str:
    """The method where none is named: an exact sweep where the vocabulary is listed and components are few, and where
    edges cannot be cut.
    """
    edges = isinstance(specimen.vocabulary, TextVocabulary) and not specimen.model.config.mixers
    return Best.name if edges else Sweep.name


def _whole(
    specimen: Specimen, result: MethodResult, cut: Cut, draw: Draw, progress: Progress
) -> tuple[MethodResult, WholeCircuit | None]:
    """The result with its circuit cut to the smallest one that keeps the share, and what that keeps; as it was, without
    one, where there is nothing to search.
    """
    scores = result.scores
    assert scores is not None
    if mixers := specimen.model.config.mixers:
        why = headless(mixers[0], specimen.model.config)
        note(f"{why}: edges into it cannot be cut, so no connected circuit is searched")
        return result, None
    try:
        sets = prompt_sets(specimen, result.material, seed=draw.seed, split=draw.split)
        keep = cut.keep or usual_share(specimen)
        search = Search(specimen, sets, keep, cut.most, draw.seed, progress, searched=tuple(scores.components))
        asked = scores.rankings or {result.method.name: scores}
        rankings = {name: (one, one.forwards) for name, one in asked.items()}
        exact = (lambda: Sweep().score(MethodInput(specimen, sets.rank))) if scores.rankings else None
        whole, members, edges = whole_circuit(
            search, rankings or {result.method.name: (scores, scores.forwards)}, exact
        )
    except NothingToKeep as error:
        note(str(error))
        return result, None
    best = scores.rankings.get(whole.method)
    circuit = result.circuit
    if best is not None:
        config = specimen.model.config
        circuit = Circuit.scored(config, config.d_model, best.components, best.edges)
    return replace(result, circuit=circuit.cut_to(edges if circuit.edges else members), chose=sets.choose), whole


def require_selection(model: Transformer, method: Method, rules: Sequence[str], size: int | None) -> None:
    """Refuse a selection that a method's scores do not allow, before the work where it is known what it scores."""
    if rules and method.scores_edges is not None:
        candidates = len(selectable_parts(model, method))
        require_selectable(rules, size, by_edges=method.scores_edges, candidates=candidates)


def _selected(
    specimen: Specimen, result: MethodResult, rules: Sequence[str], size: int | None, *, seed: int, checks: bool
) -> tuple[MethodResult, CircuitCut | None]:
    """The result with its circuit cut by the first rule, and what each rule gives; as it was without rules."""
    if not rules:
        return result, None
    circuit, selection = select_circuit(
        specimen.model,
        result.circuit,
        rules,
        size=size,
        per_prompt=result.per_prompt,
        seen=result.material,
        held_out=(lambda: held_out_prompts(specimen, result.material, seed=seed)) if checks else None,
    )
    return replace(result, circuit=circuit), selection


def _rivals(
    specimen: Specimen, result: MethodResult, unseen: Trial, *, rivals: int, by: By, seed: int, progress: Progress
) -> Rivals:
    progress("searching rival circuits", 0, 0)
    return find_rivals(specimen.model, result.circuit, result.material, unseen, rivals=rivals, by=by, seed=seed)


def _discovery(specimen: Specimen, request: Request, result: MethodResult, checks: Checks | None) -> Discovery:
    """What a method found, graded where the answer is known; says what there is to know about it."""
    quirks = result.method.quirks
    for remark in result.notes:
        note(remark)
    if quirks:
        note(f"paper mode: {'; '.join(quirks)} (docs/background/mechrl.md explains them)")
    return Discovery(
        request=_with_options(request, n=len(result.material.batch)),  # rows of one's own may be fewer
        circuit=result.circuit,
        unit=result.unit,
        performance=result.performance,
        metrics={**_areas(specimen, result.circuit), **result.metrics, **(checks.metrics if checks else {})},
        forwards=result.forwards,
        seconds=result.seconds,
        model=fingerprint(specimen.model),
        checks=checks,
        quirks=dict(quirks),
        notes=result.notes,
        meaning=result.method.meaning,
    )


def _with_options(request: Request, **options: object) -> Request:
    return request.model_copy(update={"options": {**request.options, **options}})


def _words(method: Method) -> tuple[str, ...]:
    """What the name of a directory says of a method and its options."""
    flags = [name for name, value in method.options.items() if value is True]
    return method.name, *flags, *(f"{name}{value}" for name, value in method.options.items() if value is not True)


def _areas(specimen: Specimen, circuit: Circuit) -> dict[str, float]:
    """The areas against the true circuit, where it is known to a package that holds answers."""
    circuit_areas = loaded_plugin(VERBS, "circuit_areas", ())
    return {} if circuit_areas is None else circuit_areas(specimen, circuit)


def _write_files(discovery: Discovery, directory: Path) -> Discovery:
    """The discovery with its files and its page in a directory."""
    with result_kept(discovery):
        discovery.save(directory)
        render_discovery(directory)
    return discovery.model_copy(update={"directory": str(directory)})


# Which single neurons carry a behaviour.


@verb
def neurons(
    specimen: Specimen,
    *,
    scoring: Scoring,
    draw: Draw = NEURONS,
    force: Force,
    out: Out = None,
    progress: Progress = silent,
) -> NeuronCircuit:
    """Find the smallest set of neurons that keeps the share `keep` of a behaviour, all other neurons replaced by their
    values on the counterfactual prompt.

    `method` is how neurons are scored: "relp", "relp-qk" or "gradient". With `out` (a directory, or True for one under
    `vesalius-runs`) `neurons.json` is written with its page `neurons.html`, and `circuit.json` with the neurons as
    nodes.
    """
    asked = (scoring, draw, force)
    request = request_on(specimen, "neurons", *asked)
    directory = place_for(out, specimen, request, *asked)
    with removed_if_empty(directory):
        result = keep_neurons(
            specimen,
            rule=cast(Rule, scoring.method),  # `Scoring` refuses other names
            keep=scoring.keep,
            n=draw.n,
            seed=draw.seed,
            split=draw.split,
            force=force.force,
            progress=progress,
        )
    note_unperformed(specimen.name, specimen.behaviour, result.performance, force=force.force)
    document = _document(result, request, scoring.keep)
    if directory is not None:
        config = specimen.model.config
        with result_kept(document):
            Circuit.scored(config, config.d_model, dict(result.neurons), {}).write(directory / CIRCUIT_FILE)
    return with_page(document, directory)


def _document(result: NeuronSet, request: Request, keep: float) -> NeuronCircuit:
    size = len(result.neurons)
    point = next(point for point in result.curve if point.size == size)
    share = Metric(value=point.share, low=point.low, high=point.high, n=result.n_held_out, baseline=point.random)
    return NeuronCircuit(
        request=request,
        components=tuple(Score(id=str(part), score=score) for part, score in result.neurons),
        n=result.n,
        size=size,
        n_neurons=result.n_neurons,
        keep=keep,
        share_chosen=result.share_chosen,
        share=share,
        curve=result.curve,
        details=result.details,
        unit=result.unit,
        forwards=result.forwards,
        seconds=result.seconds,
        performance=result.performance,
    )
