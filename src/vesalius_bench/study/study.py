"""Published studies repeated on a model: `af1`, the roles of components in three-operand addition.

1. Check that the model adds.
2. Localise: the circuit given, the published one for Llama-3-8B, or one that is discovered.
3. Intervene on each component at the last token, for the reader (no explainer sees this).
4. Explain the components with the built-in scientist, and with a language model where one is given.
5. Rate the roles against reference roles: by the majority of three raters, or by judges.
6. Set the counts beside the published rows of Table 4, in a document and on a page.

A study is a run directory. The same call continues it; another explainer, ratings or judges add to it. The answer key
is opened after everything is explained.
"""

import hashlib
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vesalius.api.circuit_sources import Given, Source
from vesalius.api.explanations import MAX_TOKENS, explain
from vesalius.api.loading import loaded
from vesalius.api.places import Out, directory_for, removed_if_empty, require_place
from vesalius.api.plans import plan
from vesalius.api.shapes import read_shape
from vesalius.backbones import TIMEOUT, Backbone, open_backbone
from vesalius.behaviours.behaviour import label_of
from vesalius.components import Component, split_names
from vesalius.discovery.known_heads import AF1_COMPONENTS, LLAMA_3_8B, is_llama_3_8b
from vesalius.documents.circuit import Circuit, Member
from vesalius.documents.discovery import Discovery
from vesalius.documents.printed import Plan
from vesalius.errors import BadInput, Failed, choices, require_whole
from vesalius.explanations.natural.explain import require_enough
from vesalius.explanations.scientists import BUILTIN, HYBRID, chosen_scientist
from vesalius.grading.keys import ReferenceRoles, known_roles
from vesalius.model.devices import Devices
from vesalius.model.specimen import Specimen
from vesalius.model.states import fingerprint
from vesalius.options import Load, require_drawable
from vesalius.progress import Progress, shown
from vesalius.runs.settings import RunLimits
from vesalius_bench.ratings.reading import Rating, read_ratings
from vesalius_bench.study.documents import Localisation, Study
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
    MOST_PRUNED,
    POOL,
    given_circuit,
    judged_roles,
    localise,
    measured_evidence,
    required_performance,
    required_sums,
    spending_cap,
    sums_of,
    with_sums,
)
from vesalius_bench.survey.documents import short_name
from vesalius_mechrl.sets.sources import default_budget
from vesalius_mechrl.sets.synergy import LEAST_PROMPTS

STUDIES = ("af1",)
PROMPTS, TOP = 32, 24
TASK = "Adds three whole numbers; the answer is read at the last token."


def study(
    name: str = "af1",
    model: Specimen | str | Path | None = None,
    *,
    circuit: Given | Source = None,
    behaviour: Any = None,
    scientist: str | None = None,
    backbone: str | Backbone | None = None,
    protocol: str | None = None,
    roles: str | Path | None = None,
    ratings: str | Path | None = None,
    judge: Sequence[str] = (),
    n: int = PROMPTS,
    top: int = TOP,
    seed: int = 0,
    quick: bool = False,
    dtype: str = "auto",
    device: Devices = "auto",
    base_url: str | None = None,
    max_tokens: int = MAX_TOKENS,
    max_cost: float | None = None,
    timeout: float = TIMEOUT,
    prices: str | Path | None = None,
    compact: bool = False,
    unsafe_sandbox: bool = False,
    out: Out = True,
    progress: Progress | bool | None = None,
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
    sums = required_sums(behaviour)
    require_drawable(n, seed)
    require_whole(top=top)
    require_enough(n, top)
    wanted = _wanted(scientist, backbone, protocol, base_url=base_url, max_tokens=max_tokens, compact=compact)
    if ratings is not None and judge:
        raise BadInput("`ratings` and `judge` both rate the roles; give one of them")
    if model is None or (isinstance(model, str) and not model.strip()):
        raise BadInput("`model`: name the model to study, such as arithmetic, a directory or a hub id")
    scores = () if ratings is None else read_ratings(ratings)
    own_roles = None if roles is None else read_roles(roles, task=TASK)
    limits = RunLimits(max_cost, unsafe_sandbox, timeout)
    asking: dict[str, Any] = {"timeout": timeout, "prices": prices}
    for which in [*judge, *([backbone] if isinstance(backbone, str) else [])]:
        own = {"base_url": base_url, "max_tokens": max_tokens} if which is backbone else {}
        open_backbone(which, cap=max_cost, **asking, **own).close()
    require_place(out)
    settings = StudySettings(
        study=name,
        model=_name(model),
        behaviour=sums and sums.name,
        **_circuit_settings(circuit),
        n=n,
        top=top,
        seed=seed,
        quick=quick,
        dtype=dtype,
    )
    directory = directory_for(out, *_words(settings))
    opened = open_study(directory, settings, limits)
    with removed_if_empty(directory), opened as work, shown(progress) as report:
        missing = [one for one in wanted if not work.is_explained(one)]
        if missing or work.evidence is None:
            specimen = loaded(model, Load(dtype=dtype, device=device), progress=report)
            _circuit(work, with_sums(specimen, sums), circuit, settings, report)
            specimen = _studied(work, specimen)
            _measure(work, specimen, settings, report)
            for one in missing:
                model_options: dict[str, Any] = {}
                if one.scientist != BUILTIN:
                    left = _left(work, one, max_cost)
                    model_options = {"backbone": backbone, "max_cost": left, "unsafe_sandbox": unsafe_sandbox}
                    model_options |= {**one.options, **asking}
                _explain(work, one, specimen, settings, report, model_options)
        references = own_roles or _known(work, settings)
        _require_known(work, own_roles, roles)
        rated = _rated(work, references, scores, judge, {**asking, "limit": max_cost, "progress": report})
        files = {"roles": roles, "ratings": ratings, "prices": prices}
        named = {key: str(file) for key, file in files.items() if file}
        request = study_request(work, settings, wanted[-1], judge, named)
        result = study_document(work, request, references, rated, scores, judge)
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


def _circuit_settings(circuit: Given | Source) -> dict[str, str | None]:
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


def _wanted(
    scientist: str | None, backbone: str | Backbone | None, protocol: str | None, **options: Any
) -> list[ExplainedBy]:
    """Who explains: the built-in scientist, and another one where a language model or a function is named."""
    first = ExplainedBy(BUILTIN, BUILTIN, None, None, {})
    chosen, protocol = chosen_scientist(scientist, backbone is not None, protocol)
    if backbone is None:
        own = chosen not in (BUILTIN, HYBRID)
        return [first, ExplainedBy(chosen, chosen, None, None, {})] if own else [first]
    usual = {"base_url": None, "max_tokens": MAX_TOKENS, "compact": False}
    given = {name: value for name, value in options.items() if value != usual[name]}
    called = backbone if isinstance(backbone, str) else backbone.name
    label = f"{chosen} {called}" + (f" {protocol}" if protocol == "paper" else "")
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
        if given is None and recognised is None and settings.n < LEAST_PROMPTS:
            needed = f"a circuit is discovered on at least {LEAST_PROMPTS} prompts"
            raise BadInput(f"`n` {settings.n}: {needed}; ask for more, or give `circuit`")
        work.note(
            PERFORMED,
            behaviour=specimen.behaviour,
            recognised_as=recognised,
            specimen=specimen.id,
            fingerprint=mark,
            performance=performance.as_data(),
        )
    if work.localisation is None:
        localisation = localisation or localise(specimen, None, settings, work.run.directory, progress)
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


def _studied(work: StudyRun, specimen: Specimen) -> Specimen:
    """The model with the sums of the study."""
    assert work.performed is not None
    return with_sums(specimen, required_sums(work.performed.behaviour))


def _measure(work: StudyRun, specimen: Specimen, settings: StudySettings, progress: Progress) -> None:
    """Do the third step where it is not done."""
    assert work.localisation is not None
    if work.evidence is None:
        progress(f"intervening on {len(work.localisation.components)} components", 0, 0)
        evidence = measured_evidence(specimen, work.localisation, n=settings.n, seed=settings.seed)
        work.note(MEASURED, evidence=evidence.as_data())


def _explain(
    work: StudyRun,
    wanted: ExplainedBy,
    specimen: Specimen,
    settings: StudySettings,
    progress: Progress,
    options: dict[str, Any],
) -> None:
    assert work.localisation is not None
    explain(
        specimen,
        work.localisation.components,
        scientist=wanted.scientist,
        protocol=wanted.protocol,
        n=settings.n,
        seed=settings.seed,
        out=work.directory_of(wanted.name),
        progress=progress,
        **options,
    )
    fields = {name: getattr(wanted, name) for name in ("name", "scientist", "backbone", "protocol", "options")}
    work.note(EXPLAINED, **fields)


def _left(work: StudyRun, wanted: ExplainedBy, max_cost: float | None) -> float | None:
    """What an explainer may spend: its own calls of before count again when they are opened."""
    directory = work.run.directory
    cap = spending_cap(directory, max_cost, without=work.directory_of(wanted.name))
    if cap is not None and cap.left <= 0:
        raise Failed(f"{directory}: other calls of the study have spent `max_cost` ${cap.limit:.2f}; raise it")
    return None if cap is None else cap.left


def _known(work: StudyRun, settings: StudySettings) -> ReferenceRoles | None:
    assert work.performed is not None
    return known_roles(work.performed.recognised_as or settings.model)


def _require_known(work: StudyRun, own: ReferenceRoles | None, file: str | Path | None) -> None:
    """Refuse reference roles of which none is about the circuit."""
    assert work.localisation is not None
    components = work.localisation.components
    if own is not None and not any(one in own.roles for one in components):
        raise BadInput(f"{file}: names none of the components of the circuit; it has {choices(components)}")


def _rated(
    work: StudyRun,
    references: ReferenceRoles | None,
    scores: Sequence[Rating],
    judges: Sequence[str],
    judging: dict[str, Any],
) -> dict[str, dict[str, RatedText]]:
    """The ratings by explainer and component; none where nobody rates."""
    assert work.localisation is not None
    assert work.performed is not None
    if not scores and not judges:
        return {}
    if references is None:
        raise BadInput("there are no reference roles for this model to rate against; give them with `roles`")
    if judges:
        return judged_roles(work, references, judges, **judging)
    rateable = [one for one in work.localisation.components if one in references.roles]
    return rated_by_people(scores, work.performed.specimen, dict.fromkeys(work.explainers, rateable))


# What a study will cost at most: passes, memory and time of the sweep, the sets, the interventions and the built-in
# explanation.

#: Passes of all prompts that the interventions on one component take, apart from the pruning of heads.
EVIDENCE_PASSES = 8


def study_plan(
    name: str,
    model: Specimen | str | Path,
    *,
    circuit: Given | Source = None,
    behaviour: Any = None,
    n: int = PROMPTS,
    top: int = TOP,
    seed: int = 0,
    quick: bool = False,
    dtype: str = "auto",
    device: Devices = "auto",
    progress: Progress | bool | None = None,
) -> Plan:
    """Passes, bytes at the peak and estimated seconds of a study without language models; `options` are those of
    `study`. One small chunk is run to time it, and nothing is written. A directory with a `config.json` and no weights
    can be planned too.
    """
    require_study(name)
    sums = required_sums(behaviour)
    with shown(progress) as report:
        shape = None if isinstance(model, Specimen) else read_shape(model, dtype=dtype)
        subject: dict[str, Any] = {"n": n, "seed": seed, "progress": report}
        if shape is None:
            model = with_sums(loaded(model, Load(dtype=dtype, device=device), progress=report), sums)
            config = model.model.config
        else:
            config = shape.model.config
            subject |= {"behaviour": sums_of(config, None, sums), "dtype": dtype, "device": device}
        names: tuple[str, ...] | None = None
        if circuit is not None and isinstance(model, Specimen):
            names = given_circuit(model, circuit).components
        elif circuit is not None:
            subject |= {"circuit": circuit}  # refused: a circuit is found in weights
        elif is_llama_3_8b(config):
            names = tuple(map(str, AF1_COMPONENTS))
        studied = top if names is None else len(names)
        explaining = _with_evidence(plan("explain", model, components=names, top=top, **subject), studied)
        if names is not None:
            return explaining.model_copy(update={"command": f"study {name}"})
        sweep = plan("discover", model, checks=not quick, **subject)
    sets = default_budget(min(POOL, config.n_layers * config.n_heads))
    per_pass = sweep.seconds / (sweep.forwards + sweep.checks_forwards)
    return explaining.model_copy(
        update={
            "command": f"study {name}",
            "forwards": math.fsum((explaining.forwards, sweep.forwards, sets)),
            "checks_forwards": sweep.checks_forwards,
            "peak_bytes": max(explaining.peak_bytes, sweep.peak_bytes),
            "fits": None if explaining.fits is None else explaining.fits and bool(sweep.fits),
            "seconds": math.fsum((explaining.seconds, sweep.seconds, sets * per_pass)),
        }
    )


def _with_evidence(explaining: Plan, components: int) -> Plan:
    """The plan of an explanation with the interventions on each component."""
    pruned = min(components, MOST_PRUNED)
    more = EVIDENCE_PASSES * components + pruned * (pruned + 1) / 2
    seconds = explaining.seconds * (1 + more / explaining.forwards)
    return explaining.model_copy(update={"forwards": explaining.forwards + more, "seconds": seconds})
