"""Published studies repeated on a model: `af1`, the roles of components in three-operand addition.

1. Check that the model adds.
2. Localise: the circuit given, the published one for Llama-3-8B, or one that is discovered.
3. Intervene on each component at the last token, for the reader (no explainer sees this): the figures of Tables 13 and
   14, on the heads that stand in for each other as well.
4. Explain the components with the built-in scientist, and with a language model where one is given.
5. Rate the roles against reference roles: by the majority of three raters, or by judges.
6. Set the counts beside the published rows of Table 4, in a document and on a page.

A study is a run directory. The same call continues it; another explainer, ratings or judges add to it. The answer key
is opened after everything is explained.
"""

import dataclasses
import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vesalius.api.benchmarks import absolute
from vesalius.api.circuit_sources import Given, Source
from vesalius.api.door import directory_for, removed_if_empty, verb
from vesalius.api.explanations import explain
from vesalius.api.loading import loaded
from vesalius.api.plans import plan
from vesalius.api.workloads import read_shape
from vesalius.behaviours.behaviour import label_of
from vesalius.components import Component, split_names
from vesalius.discovery.known_heads import AF1_COMPONENTS, LLAMA_3_8B, is_llama_3_8b
from vesalius.documents.circuit import Circuit, Member
from vesalius.documents.discovery import Discovery
from vesalius.documents.printed import Plan
from vesalius.errors import BadInput, Failed, choices
from vesalius.explanations.natural.explain import require_enough
from vesalius.explanations.scientists import BUILTIN, HYBRID, chosen_scientist, protocol_of
from vesalius.model.specimen import Specimen
from vesalius.model.states import fingerprint
from vesalius.options import Foreign, Load, Out, require_drawable
from vesalius.progress import Progress, silent
from vesalius_backbones import open_backbone
from vesalius_backbones.runs.steps import RunLimits
from vesalius_bench.options import Explainer, RatedBy, StudyOptions
from vesalius_bench.ratings.reading import Rating, read_ratings
from vesalius_bench.study.documents import Localisation, Study
from vesalius_bench.study.measuring import (
    MOST_PRUNED,
    PASSES,
    SUPPRESSED_PASSES,
    measured_evidence,
    usable_prompts,
)
from vesalius_bench.study.roles import RatedText, rated_by_people, read_roles
from vesalius_bench.study.run import (
    EXPLAINED,
    LOCALISED,
    MEASURED,
    PERFORMED,
    ExplainedBy,
    StudyRun,
    StudySettings,
    file_mark,
    open_study,
    study_document,
    study_request,
    write_study,
)
from vesalius_bench.study.steps import (
    POOL,
    given_circuit,
    judged_roles,
    localise,
    required_performance,
    required_sums,
    spending_cap,
    sums_of,
    with_groups,
    with_sums,
)
from vesalius_bench.survey.documents import short_name
from vesalius_mechrl.sets.sources import default_budget
from vesalius_mechrl.sets.synergy import LEAST_PROMPTS
from vesalius_truth.grading.keys import ReferenceRoles, known_roles

STUDIES = ("af1",)
TASK = "Adds three whole numbers; the answer is read at the last token."


@verb
def study(
    name: str = "af1",
    model: Specimen | str | Path | None = None,
    *,
    studied: StudyOptions,
    explainer: Explainer,
    rated: RatedBy,
    out: Out = True,
    progress: Progress = silent,
) -> Study:
    """Repeat a published study on a model: "af1", the components of three-operand addition and their roles.

    `behaviour` are the sums, as "addition:high=99,shots=0" (default: those of the publication for Llama-3-8B, the
    model's own for `arithmetic`, else sums of digits after four examples); experiments use those that the model gets
    right. `circuit` is a file, a circuit, a discovery or names; by default it is the published one for a model of
    Llama-3-8B's shape, else it is discovered: a sweep (at most `top` components) and sets of heads, with checks unless
    `quick`. The built-in scientist explains it on `n` held-out prompts; with `backbone` a language model does as well,
    with the options of `explain`, or a `scientist` of one's own, `package.module:function`.

    `ratings` is a file of scores by at least three people (`rating-sheet.csv` in the directory is one to fill in),
    `judge` names language models that rate instead. They compare with reference roles: ours for Llama-3-8B and
    `arithmetic`, or those of the file `roles`.
    """
    require_study(name)
    sums = required_sums(studied.behaviour)
    require_drawable(studied.n, studied.seed)
    require_enough(studied.n, studied.top)
    wanted = _wanted(explainer)
    if rated.ratings is not None and rated.judge:
        raise BadInput("`ratings` and `judge` both rate the roles; give one of them")
    if model is None or (isinstance(model, str) and not model.strip()):
        raise BadInput("`model`: name the model to study, such as arithmetic, a directory or a hub id")
    scores = () if rated.ratings is None else read_ratings(rated.ratings)
    own_roles = None if rated.roles is None else read_roles(rated.roles, task=TASK)
    asking: dict[str, Any] = {"timeout": explainer.timeout, "prices": explainer.prices}
    for which in [*rated.judge, *([explainer.backbone] if isinstance(explainer.backbone, str) else [])]:
        own = {one: getattr(explainer, one) for one in ("base_url", "max_tokens") if which is explainer.backbone}
        open_backbone(which, cap=explainer.max_cost, **asking, **own).close()
    settings = StudySettings(
        study=name,
        model=_name(model),
        behaviour=sums.name if sums else None,
        **_circuit_settings(studied.circuit),
        **{field: getattr(studied, field) for field in ("n", "top", "seed", "quick", "dtype")},
    )
    directory = directory_for(out, *_words(settings))
    limits = RunLimits.of(explainer)
    with removed_if_empty(directory), open_study(directory, settings, limits) as work:
        missing = [one for one in wanted if not work.is_explained(one)]
        if missing or work.evidence is None:
            specimen = loaded(model, Load(dtype=studied.dtype, device=studied.device), progress=progress)
            _circuit(work, with_sums(specimen, sums), studied.circuit, settings, progress)
            specimen = with_sums(specimen, required_sums(work.adds.behaviour))
            if work.evidence is None:
                progress(f"intervening on {len(work.circuit.components)} components", 0, 0)
                how = {"n": work.adds.n, "seed": studied.seed, "drawn": work.adds.drawn}
                evidence = measured_evidence(specimen, work.circuit, **how)
                work.note(MEASURED, evidence=evidence.as_data())
            for one in missing:
                _explain(work, one, specimen, settings, explainer, progress)
        references = own_roles or known_roles(work.adds.recognised_as or settings.model)
        components = work.circuit.components
        if own_roles is not None and not any(one in own_roles.roles for one in components):
            raise BadInput(f"{rated.roles}: names none of the components of the circuit; it has {choices(components)}")
        judging = {**asking, "limit": explainer.max_cost, "progress": progress}
        texts = _rated(work, references, scores, rated.judge, judging)
        files = {"roles": rated.roles, "ratings": rated.ratings, "prices": explainer.prices}
        named = {key: str(file) for key, file in files.items() if file}
        request = study_request(work, settings, wanted[-1], rated.judge, named)
        result = study_document(work, request, references, texts, scores, rated.judge)
        write_study(work, result)
    return result


def require_study(name: object) -> None:
    """Refuse a study that does not exist."""
    if name not in STUDIES:
        raise BadInput(f"study {name!r} does not exist; there is {choices(STUDIES)}")


def _name(model: Specimen | str | Path) -> str:
    if isinstance(model, Specimen):
        return model.source or model.id
    if not isinstance(model, str | Path):
        raise BadInput(f"{type(model).__name__} is not a model; give a name, a path or what ves.load returned")
    return str(model)


def _circuit_settings(circuit: Given | Source) -> dict[str, Any]:
    """How a request names the circuit, and what stands for its content."""
    if circuit is None:
        return {"circuit": None, "circuit_mark": None}
    if isinstance(circuit, str | Path):
        path = Path(circuit).expanduser()
        if not path.exists():
            raise BadInput(f"circuit {path}: there is no such file; give one that `vesalius discover` wrote")
        return {"circuit": str(circuit), "circuit_mark": file_mark(path)}
    if isinstance(circuit, Discovery):
        circuit = circuit.circuit
    if isinstance(circuit, Circuit):
        text = json.dumps(circuit.as_data(), sort_keys=True)
        return {"circuit": None, "circuit_mark": hashlib.sha256(text.encode()).hexdigest()[:16]}
    return {"circuit": None, "circuit_mark": ",".join(map(str, split_names(circuit)))}


def _wanted(asked: Explainer) -> list[ExplainedBy]:
    """Who explains: the built-in scientist, and another one where a language model or a function is named."""
    first = ExplainedBy(BUILTIN, BUILTIN, None, None, {})
    own = {"protocol": asked.protocol, "compact": asked.compact or None, "prompts": absolute(asked.prompts)}
    scientist = chosen_scientist(asked.scientist, asked.backbone is not None, **own)
    scientist.require_model(asked.backbone is not None)
    chosen, protocol = scientist.label, protocol_of(scientist)
    if asked.backbone is None:
        own = chosen not in (BUILTIN, HYBRID)
        return [first, ExplainedBy(chosen, chosen, None, None, {})] if own else [first]
    usual = Explainer()
    options = {name: getattr(asked, name) for name in ("base_url", "max_tokens", "compact")}
    given = {name: value for name, value in options.items() if value != getattr(usual, name)}
    given |= {} if asked.prompts is None else {"prompts": own["prompts"]}
    called = asked.backbone if isinstance(asked.backbone, str) else asked.backbone.name
    label = f"{chosen} {called}" + (f" {protocol}" if protocol == "paper" else "")
    label += " own prompts" if asked.prompts is not None else ""
    return [first, ExplainedBy(label, chosen, called, protocol, given)]


def _words(settings: StudySettings) -> tuple[str | None, ...]:
    """The parts of the directory's name: whatever decides the circuit."""
    mark = settings.circuit_mark and f"circuit{hashlib.sha256(settings.circuit_mark.encode()).hexdigest()[:8]}"
    sums = settings.behaviour and label_of(settings.behaviour)
    return "study", settings.study, short_name(settings.model), sums, mark, f"n{settings.n}", f"seed{settings.seed}"


def _circuit(
    work: StudyRun, specimen: Specimen, given: Given | Source, settings: StudySettings, progress: Progress
) -> None:
    """Do the first two steps where they are not done; other weights than before are refused."""
    mark = fingerprint(specimen.model)
    if work.performed is not None and work.performed.fingerprint != mark:
        raise BadInput(
            f"{work.run.directory}: holds a study of other weights ({work.performed.fingerprint}, now {mark}); choose "
            "another `out`"
        )
    localisation = None if given is None else localise(specimen, given, settings, work.run.directory, progress)
    if work.performed is None:
        progress(f"{specimen.name}: does it add?", 0, 0)
        performance = required_performance(specimen, seed=settings.seed)
        recognised = LLAMA_3_8B if is_llama_3_8b(specimen.model.config) else None
        n, drawn = usable_prompts(specimen, settings.n, seed=settings.seed)
        if given is None and recognised is None and n < LEAST_PROMPTS:
            needed = f"a circuit is discovered on at least {LEAST_PROMPTS} prompts that the model answers correctly"
            raise BadInput(f"`n` {n}: {needed}; ask for more, or give `circuit`")
        work.note(
            PERFORMED,
            behaviour=specimen.behaviour,
            recognised_as=recognised,
            specimen=specimen.id,
            fingerprint=mark,
            n=n,
            drawn=drawn,
            performance=performance.as_data(),
        )
    if work.localisation is None:
        settings = replace(settings, n=work.adds.n)
        localisation = localisation or localise(specimen, None, settings, work.run.directory, progress)
        progress("which heads stand in for each other", 0, 0)
        localisation = with_groups(specimen, localisation, n=settings.n, seed=settings.seed)
        _circuit_of(specimen, localisation).save(work.run.directory)
        work.note(LOCALISED, localisation=localisation.as_data())


def _circuit_of(specimen: Specimen, localisation: Localisation) -> Circuit:
    """The components as a circuit without scores."""
    config = specimen.model.config
    return Circuit(
        n_layers=config.n_layers,
        n_heads=config.n_heads,
        d_model=config.d_model,
        nodes={Component.parse(name): Member() for name in localisation.components},
        edges={},
    )


def _explain(
    work: StudyRun,
    wanted: ExplainedBy,
    specimen: Specimen,
    settings: StudySettings,
    asked: Explainer,
    progress: Progress,
) -> None:
    directory, options = work.run.directory, {}
    if wanted.scientist != BUILTIN:
        # its own calls of before count again when they are opened
        cap = spending_cap(directory, asked.max_cost, without=work.directory_of(wanted.name))
        if cap is not None and cap.left <= 0:
            raise Failed(f"{directory}: other calls of the study have spent `max_cost` ${cap.limit:.2f}; raise it")
        taken = ("backbone", "timeout", "prices", *(field.name for field in dataclasses.fields(Foreign)))
        options = {name: getattr(asked, name) for name in taken}
        options |= {"max_cost": None if cap is None else cap.left, **wanted.options}
    explain(
        specimen,
        work.circuit.components,
        scientist=wanted.scientist,
        protocol=wanted.protocol,
        n=work.adds.n,
        seed=settings.seed,
        out=work.directory_of(wanted.name),
        progress=progress,
        **options,
    )
    fields = {name: getattr(wanted, name) for name in ("name", "scientist", "backbone", "protocol", "options")}
    work.note(EXPLAINED, **fields)


def _rated(
    work: StudyRun,
    references: ReferenceRoles | None,
    scores: Sequence[Rating],
    judges: Sequence[str],
    judging: dict[str, Any],
) -> dict[str, dict[str, RatedText]]:
    """The ratings by explainer and component; none where nobody rates."""
    if not scores and not judges:
        return {}
    if references is None:
        raise BadInput("there are no reference roles for this model to rate against; give them with `roles`")
    if judges:
        return judged_roles(work, references, judges, **judging)
    rateable = [one for one in work.circuit.components if one in references.roles]
    return rated_by_people(scores, work.adds.specimen, dict.fromkeys(work.explainers, rateable))


# What a study will cost at most: passes, memory and time of the sweep, the sets, the interventions and the built-in
# explanation.


@verb
def study_plan(name: str, model: Specimen | str | Path, *, studied: StudyOptions, progress: Progress = silent) -> Plan:
    """Passes, bytes at the peak and estimated seconds of a study without language models; `options` are those of
    `study`. One small chunk is run to time it, and nothing is written. A directory with a `config.json` and no weights
    can be planned too.
    """
    require_study(name)
    sums = required_sums(studied.behaviour)
    subject: dict[str, Any] = {"n": studied.n, "seed": studied.seed, "progress": progress}
    shape = None if isinstance(model, Specimen) else read_shape(model, dtype=studied.dtype)
    if shape is None:
        load = Load(dtype=studied.dtype, device=studied.device)
        model = with_sums(loaded(model, load, progress=progress), sums)
        config = model.model.config
    else:
        config = shape.model.config
        subject |= {"behaviour": sums_of(config, None, sums), "dtype": studied.dtype, "device": studied.device}
    names: tuple[str, ...] | None = None
    if studied.circuit is not None and isinstance(model, Specimen):
        names = given_circuit(model, studied.circuit).components
    elif studied.circuit is not None:
        subject |= {"circuit": studied.circuit}  # refused: a circuit is found in weights
    elif is_llama_3_8b(config):
        names = tuple(map(str, AF1_COMPONENTS))
    explaining = plan("explain", model, components=names, top=studied.top, **subject)
    components = studied.top if names is None else len(names)
    heads = components if names is None else sum(Component.parse(name).is_head for name in names)
    pruned = min(heads, MOST_PRUNED)
    more = PASSES * components + pruned * (pruned + 1) / 2 + SUPPRESSED_PASSES * heads * (heads - 1) / 2
    seconds = explaining.seconds * (1 + more / (explaining.forwards + explaining.contrast_forwards))
    explaining = explaining.model_copy(
        update={"command": f"study {name}", "forwards": explaining.forwards + more, "seconds": seconds}
    )
    if names is not None:
        return explaining
    sweep = plan("discover", model, checks=not studied.quick, **subject)
    sets = default_budget(min(POOL, config.n_layers * config.n_heads))
    per_pass = sweep.seconds / (sweep.forwards + sweep.contrast_forwards + sweep.checks_forwards)
    return explaining.model_copy(
        update={
            "forwards": math.fsum((explaining.forwards, sweep.forwards, sets)),
            "contrast_forwards": explaining.contrast_forwards + sweep.contrast_forwards,
            "checks_forwards": sweep.checks_forwards,
            "peak_bytes": max(explaining.peak_bytes, sweep.peak_bytes),
            "fits": None if explaining.fits is None else explaining.fits and bool(sweep.fits),
            "seconds": math.fsum((explaining.seconds, sweep.seconds, sets * per_pass)),
        }
    )
