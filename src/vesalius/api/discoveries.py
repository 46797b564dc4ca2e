"""Which components a behaviour needs: a method's scores, graded where the answer is known, and the checks of them."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal, Unpack, overload

import torch

from vesalius.api.notes import note_unperformed
from vesalius.api.options import DiscoverOptions, Names, SetOptions
from vesalius.api.places import Out, directory_for, removed_if_empty, require_place
from vesalius.api.subjects import Subject, request_on
from vesalius.behaviours.behaviour import label_of
from vesalius.behaviours.metrics import BehaviourMetric
from vesalius.behaviours.trial import Trial, trial
from vesalius.circuits.foreign_spec import KEY_FILE, KEY_FOLDER
from vesalius.circuits.specimens import benchmark_directory
from vesalius.discovery.checks import held_out_prompts, run_checks
from vesalius.discovery.methods import (
    BY_COMPONENTS,
    CUT_IN_PARTS,
    DEFAULT_PROMPTS,
    METHODS,
    MethodResult,
    require_method,
)
from vesalius.discovery.methods import discover as scored
from vesalius.discovery.rivals import find_rivals, require_rivals, require_searchable, rival_prompts
from vesalius.discovery.selection import parse_rules, require_selectable, select_circuit, selectable_parts
from vesalius.documents.checks import Checks
from vesalius.documents.circuit import Circuit
from vesalius.documents.discovery import METHOD_DEFAULTS, Discovery
from vesalius.documents.request import MATERIAL, Request
from vesalius.documents.rivals import By, Rivals
from vesalius.documents.selection import Selection
from vesalius.errors import BadInput, note, require_whole
from vesalius.grading.discovery import grade_circuit_scores, true_circuit
from vesalius.model.devices import Devices
from vesalius.model.specimen import Specimen
from vesalius.model.states import fingerprint
from vesalius.model.transformer import Transformer
from vesalius.options import Parts, require_drawable
from vesalius.progress import Progress, shown
from vesalius.report.discovery import render_discovery
from vesalius.runs.parts import parts_on
from vesalius_mechrl.api_sets import SETS, discover_sets, set_options
from vesalius_mechrl.environment import PAPER_QUIRKS
from vesalius_mechrl.search.model_search import SEARCHES, MethodOptions
from vesalius_mechrl.sets.document import HeadSets

DEFAULT_SPLIT = "test"


@overload
def discover(
    specimen: Specimen | str | int | Path, method: Literal["sets"], **options: Unpack[SetOptions]
) -> HeadSets: ...


@overload
def discover(
    specimen: Specimen | str | int | Path, method: str = "sweep", **options: Unpack[DiscoverOptions]
) -> Discovery: ...


def discover(
    specimen: Specimen | str | int | Path,
    method: str = "sweep",
    *,
    n: int = DEFAULT_PROMPTS,
    seed: int = 0,
    checks: bool = True,
    force: bool = False,
    budget: int | None = None,
    paper: bool = False,
    seeds: int = 1,
    steps: int = 0,
    split: str = DEFAULT_SPLIT,
    material: Trial | None = None,
    select: str | Sequence[str] | None = None,
    size: int | None = None,
    rivals: int = 0,
    rivals_by: By = "components",
    search: str | None = None,
    pool: Names | None = None,
    kind: str | None = None,
    least: float | None = None,
    behaviour: Any = None,
    metric: BehaviourMetric | None = None,
    tokenizer: Any = None,
    revision: str | None = None,
    dtype: str | torch.dtype = "auto",
    device: Devices = "auto",
    engine: str | None = None,
    jobs: int | None = None,
    out: Out = None,
    progress: Progress | bool | None = None,
) -> Discovery | HeadSets:
    """Score the components (and edges) of a specimen on `n` prompts, and check the circuit on prompts not seen.

    `method` is "sweep", "eap", "eap-ig", "relp", "relp-qk", "acdc", or a search of heads, "bandit" or "rl": `budget`,
    `paper`, `seeds` and `steps` are for those, and `steps` also for "eap-ig": the gradients that it averages (0: 5).
    The result holds the `circuit` and its `checks`, which `checks=False` leaves out. A behaviour that a natural model
    does not perform is refused, unless `force`. `material` gives other prompts than the specimen's own, `behaviour` and
    `metric` are those of `ves.load`. With `out` (a directory, or True for one under `vesalius-runs`) the files and the
    page are written.

    `select` cuts the circuit to at most `size` edges (components, for methods that score no edges) by a rule: "top",
    "greedy", "exact", "bootstrap" or "positive-ratio". Of several rules the first makes the circuit and the others are
    compared with it. Without `size` the circuit is the smallest that keeps 0.9 of the behaviour on these prompts.

    `rivals` searches as many other circuits of components (`rivals_by` "edges": of edges) that keep the behaviour as
    well with little overlap, says what they share and what is exchangeable, and carries out the ablation that
    distinguishes two of them.

    The method "sets" finds heads that matter together instead, as `ves.discover_sets` does: `search`, `pool`, `kind`,
    `least` and `budget` are its options, and the result are the sets.

    `engine` ("local" processes or "ray") and `jobs` run parts elsewhere for a natural model: some components of a
    sweep, some prompts of EAP and EAP-IG, and each check. ACDC and searches decide one step by the last; their checks
    are run elsewhere.
    """
    subject = Subject(behaviour, metric, tokenizer, revision, dtype, device)
    of_sets = set_options(method, search=search, pool=pool, kind=kind, least=least)
    if method == SETS:
        _refuse_scoring_options(paper, seeds, steps, checks, split, material, engine, jobs)
        _refuse_selection(select, size, rivals)
        shared = {"budget": budget, "n": n, "seed": seed, "force": force, "out": out, "progress": progress}
        return discover_sets(specimen, **of_sets, **shared, **subject.keywords())
    require_drawable(n, seed)
    require_whole(budget=0 if budget is None else budget, seeds=seeds, steps=steps)
    options = MethodOptions(budget, paper, seeds, steps)
    require_method(method, options)
    rules = parse_rules(select, size)
    require_whole(rivals=rivals)
    require_rivals(rivals, rivals_by, scores_edges=method not in (*BY_COMPONENTS, *SEARCHES))
    require_place(out)
    with shown(progress) as report:
        specimen = subject.load(specimen, report)
        require_selection(specimen.model, method, rules, size)
        require_searchable(specimen.model, rivals_by)
        chosen = _option_values(options, n, force=force, checks=checks, split=split)
        chosen |= _circuit_options(rules, size, rivals, rivals_by)
        request = request_on(specimen, "discover", method=method, options=chosen, seed=seed, material=material)
        spread = parts_on(Parts(engine, jobs), specimen, report, material=material)
        if spread is not None and not checks and method not in CUT_IN_PARTS:
            raise BadInput(f"method {method!r} decides one step by the last, so it has no parts; leave out the engine")
        unseen = None
        if rivals:
            unseen = rival_prompts(specimen, material or trial(specimen, n, seed=seed, split=split), seed=seed)
        directory = directory_for(out, *_words(specimen, request)) if out else None
        with removed_if_empty(directory):
            prompts = {"n": n, "seed": seed, "split": split, "material": material}
            result = scored(specimen, method, **prompts, options=options, force=force, spread=spread, progress=report)
            note_unperformed(specimen.name, specimen.behaviour, result.performance, force=force)
            result, selection = _selected(specimen, result, rules, size, seed=seed, checks=checks)
            how = {"cut": bool(rules), "seed": seed, "spread": spread, "progress": report}
            checked = run_checks(specimen, result, **how) if checks else None
            compared = {"rivals": rivals, "by": rivals_by, "seed": seed, "progress": report}
            others = None if unseen is None else _rivals(specimen, result, unseen, **compared)
    parts = {"selection": selection, "rivals": others}
    discovery = _discovery(specimen, request, result, checked).model_copy(update=parts)
    return discovery if directory is None else _write_files(discovery, directory)


def _refuse_scoring_options(
    paper: bool,
    seeds: int,
    steps: int,
    checks: bool,
    split: str,
    material: Trial | None,
    engine: str | None,
    jobs: int | None,
) -> None:
    """Refuse what the method "sets" does not know."""
    if paper or steps or seeds != 1 or not checks:
        raise BadInput(
            "`paper`, `seeds`, `steps` and leaving out the checks do not go with `method` sets; leave them out"
        )
    if split != DEFAULT_SPLIT or material is not None:
        raise BadInput("`method` sets searches and confirms on prompts of its own; leave out `split` and `material`")
    if engine is not None or jobs is not None:
        raise BadInput("`engine` and `jobs` do not go with `method` sets, which has no parts; leave them out")


def _refuse_selection(select: str | Sequence[str] | None, size: int | None, rivals: int) -> None:
    if select is not None or size is not None or rivals:
        raise BadInput(
            "`select`, `size` and `rivals` do not go with `method` sets, which scores no circuit; leave them out"
        )


def require_selection(model: Transformer, method: str, rules: Sequence[str], size: int | None) -> None:
    """Refuse a selection that a built-in method's scores do not allow, before the work."""
    if not rules or method not in (*METHODS, *SEARCHES):
        return
    by_edges, candidates = method not in BY_COMPONENTS, len(selectable_parts(model, method))
    require_selectable(rules, size, by_edges=by_edges, candidates=candidates)


def _selected(
    specimen: Specimen, result: MethodResult, rules: Sequence[str], size: int | None, *, seed: int, checks: bool
) -> tuple[MethodResult, Selection | None]:
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


def _circuit_options(rules: Sequence[str], size: int | None, rivals: int, rivals_by: By) -> dict[str, Any]:
    """The options of a request about the circuit: how it is cut, and how many rivals of which kind."""
    options: dict[str, Any] = {"select": list(rules)} if rules else {}
    options |= {} if size is None else {"size": size}
    options |= {"rivals": rivals} if rivals else {}
    return options | ({"rivals_by": rivals_by} if rivals and rivals_by != "components" else {})


def _option_values(method: MethodOptions, n: int, *, force: bool, checks: bool, split: str) -> dict[str, Any]:
    """The options of a request: those that are not the usual ones, and the number of prompts."""
    options = {"n": n, **{name: value for name, value in asdict(method).items() if value != METHOD_DEFAULTS[name]}}
    options |= {"force": True} if force else {}
    options |= {} if checks else {"quick": True}
    return options | ({} if split == DEFAULT_SPLIT else {"split": split})


def _discovery(specimen: Specimen, request: Request, result: MethodResult, checks: Checks | None) -> Discovery:
    """What a method found, graded where the answer is known; says what there is to know about it."""
    paper = bool(request.options.get("paper"))
    for remark in result.notes:
        note(remark)
    if paper:
        note(f"paper mode: {'; '.join(PAPER_QUIRKS)} (docs/background/mechrl.md explains them)")
    return Discovery(
        request=_with_prompts(request, len(result.material.batch)),
        circuit=result.circuit,
        unit=result.unit,
        performance=result.performance,
        metrics={**_areas(specimen, result.circuit), **result.metrics, **(checks.metrics if checks else {})},
        forwards=result.forwards,
        seconds=result.seconds,
        model=fingerprint(specimen.model),
        checks=checks,
        quirks=PAPER_QUIRKS if paper else {},
        notes=result.notes,
    )


def _with_prompts(request: Request, n: int) -> Request:
    """The request with the number of prompts there were: rows of one's own may be fewer than were asked for."""
    return request.model_copy(update={"options": {**request.options, "n": n}})


def _words(specimen: Specimen, request: Request) -> tuple[str | None, ...]:
    """The parts of the directory's name: whatever decides the scores."""
    options = request.options
    return (
        "discover",
        specimen.name,
        request.behaviour and label_of(request.behaviour),
        str(options.get("metric") or "") or None,
        request.method,
        "paper" if options.get("paper") else None,
        *(f"{name}{options[name]}" if name in options else None for name in ("budget", "steps", "seeds", "split")),
        request.keywords().get("select") and "_".join(request.keywords()["select"]),
        *(f"{name}{options[name]}" if name in options else None for name in ("size", "rivals", "rivals_by")),
        None if MATERIAL not in options else f"material{options[MATERIAL]}",
        f"n{options['n']}",
        f"seed{request.seed}",
    )


def _areas(specimen: Specimen, circuit: Circuit) -> dict[str, float]:
    """The areas against the true circuit, where it is known; `auroc` is that of the nodes."""
    name = specimen.source or specimen.id
    shipped = benchmark_directory(name)
    directory = shipped or Path(name).expanduser()
    if shipped is None and not (directory / KEY_FOLDER / KEY_FILE).is_file():
        return {}
    areas = grade_circuit_scores(circuit, true_circuit(name, directory)).model_dump()
    return {name: area for name, area in {"auroc": areas["node_auroc"], **areas}.items() if area is not None}


def _write_files(discovery: Discovery, directory: Path) -> Discovery:
    """The discovery with its files and its page in a directory."""
    discovery.save(directory)
    render_discovery(directory)
    return discovery.model_copy(update={"directory": str(directory)})
