"""The steps of the AF1 study: which sums, which circuit, who explains it, how the roles are rated."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from vesalius.api.circuit_sources import Given, Source, circuit_fields
from vesalius.api.discoveries import discover
from vesalius.api.looking import instruments
from vesalius.behaviours.addition import ADDITION, Addition, addition
from vesalius.behaviours.natural import with_behaviour
from vesalius.behaviours.performance import measure, undecided
from vesalius.behaviours.registry import find_behaviour
from vesalius.components import Component
from vesalius.discovery.known_heads import AF1_COMPONENTS, AF1_SOURCE, LLAMA_3_8B, is_llama_3_8b
from vesalius.documents.circuit import Circuit
from vesalius.documents.discovery import Discovery
from vesalius.documents.explanation import EXPLANATION_FILE
from vesalius.documents.performance import Performance
from vesalius.errors import BadInput
from vesalius.explanations.laboratory import END
from vesalius.explanations.natural.instruments import MOST_SETS, Instruments
from vesalius.files import write_json
from vesalius.grading.keys import ReferenceRoles
from vesalius.model.config import Config
from vesalius.model.specimen import Specimen, TextVocabulary
from vesalius.progress import Progress
from vesalius.runs.directory import CALLS, EXPLANATIONS, read_explanation
from vesalius_backbones import CapReached, SpendingCap, open_backbone
from vesalius_backbones.runs.access import totals
from vesalius_bench.circuits.work import judging_errors
from vesalius_bench.judges import Judge
from vesalius_bench.study.documents import CircuitEvidence, ComponentEvidence, Localisation, PruningStep
from vesalius_bench.study.roles import RatedText, rated_by_judges
from vesalius_bench.study.run import StudyRun, StudySettings, folder_of
from vesalius_mechrl.sets.discover import discover_sets

#: Heads among which sets are searched: the strongest of the sweep.
POOL = 24
JUDGED = "judged"


def required_sums(behaviour: object) -> Addition | None:
    """The sums that are asked for; anything but addition is refused."""
    if behaviour is None:
        return None
    source = find_behaviour(behaviour)
    if not isinstance(source, Addition):
        raise BadInput(f"behaviour {source.name!r}: the study is about addition; give addition:OPTION=VALUE,...")
    return source


def with_sums(specimen: Specimen, sums: Addition | None) -> Specimen:
    """The model with the sums it is studied for: those asked for, the model's own, the published ones for a model of
    that shape, or sums of digits. Experiments use only prompts that the model answers correctly.
    """
    if not isinstance(specimen.vocabulary, TextVocabulary):
        raise BadInput(f"model {specimen.name!r} is not a natural model; the study is of models that read texts")
    return with_behaviour(specimen, sums_of(specimen.model.config, specimen.behaviour_source, sums))


def sums_of(config: Config, own: object, sums: Addition | None) -> Addition:
    """As in `with_sums`; `own` is the behaviour that the model comes with, if any."""
    if sums is None and isinstance(own, Addition):
        sums = own
    if sums is None:
        sums = addition(high=100, shots=0) if is_llama_3_8b(config) else ADDITION
    options = {name: value for name, value in asdict(sums.options).items() if value is not None}
    return addition(metric=sums.metric, **{**options, "keep": "right"})


def required_performance(specimen: Specimen, *, seed: int) -> Performance:
    """How well the model adds, on sums that are not chosen by its answers; a model that does not add is refused."""
    assert isinstance(specimen.vocabulary, TextVocabulary)
    source = specimen.behaviour_source
    assert isinstance(source, Addition)
    performance = measure(source, specimen.model, specimen.vocabulary.tokenizer, seed=seed)
    if not performance.performs and not undecided(performance):
        raise BadInput(
            f"model {specimen.name!r} does not add: {performance.describe()}; give easier sums, such as `behaviour` "
            "addition:high=9,shots=4, or another model"
        )
    return performance


def localise(
    specimen: Specimen, given: Given | Source, settings: StudySettings, directory: Path, progress: Progress
) -> Localisation:
    """The circuit: the one given, the published one for a model of that shape, or one that is discovered."""
    if given is not None:
        return given_circuit(specimen, given)
    if is_llama_3_8b(specimen.model.config):
        how = f"the model has the shape of {LLAMA_3_8B}: the ten components that were published ({AF1_SOURCE})"
        return Localisation(source="published", how=how, components=tuple(map(str, AF1_COMPONENTS)))
    return _discovered(specimen, settings, directory, progress)


def given_circuit(specimen: Specimen, given: Given | Source) -> Localisation:
    """The circuit that the caller names, if the model has its components."""
    if isinstance(given, str | Path | Circuit | Discovery):
        fields = circuit_fields(specimen, None, given, None)
        how = "given" if isinstance(given, Circuit | Discovery) else f"from {given}"
    else:
        fields, how = circuit_fields(specimen, given, None, None), "named by the caller"
    circuit = fields.get("circuit")
    components = fields.get("components", ()) if circuit is None else tuple(map(str, circuit.chosen()))
    if not components:
        raise BadInput(f"circuit {given if isinstance(given, str | Path) else ''}: is empty; name at least one head")
    return Localisation(source="given", how=how, components=components)


def _discovered(specimen: Specimen, settings: StudySettings, directory: Path, progress: Progress) -> Localisation:
    """What matters alone by resampling, and the groups of heads that back each other up: one head alone shows little
    where others stand in for it.
    """
    shared: dict[str, Any] = {"n": settings.n, "seed": settings.seed, "progress": progress}
    swept = discover(specimen, checks=not settings.quick, out=directory / "discovery", **shared)
    strongest = [part for part, _ in swept.circuit.ranked() if part in set(swept.circuit.chosen())][: settings.top]
    pool = [part for part, score in swept.circuit.ranked() if part.is_head and score > 0][:POOL]
    how = f"sweep: each component resampled alone on {settings.n} prompts, those with a tenth of the largest effect"
    if len(pool) < 2:
        return Localisation(
            source="discovered",
            how=how,
            components=tuple(map(str, sorted(strongest))),
            forwards=swept.forwards,
            seconds=swept.seconds,
        )
    sets = discover_sets(specimen, "group", pool=pool, kind="mean", out=directory / "sets", **shared)
    groups = tuple(group.heads for group in sets.backup_groups)
    backups = {Component.parse(head) for group in groups for head in group}
    return Localisation(
        source="discovered",
        how=f"{how} (at most {settings.top}); and sets: heads that back each other up, searched among the {len(pool)} "
        "strongest by mean ablation of sets and confirmed on held-out prompts",
        components=tuple(map(str, sorted({*strongest, *backups}))),
        backup_groups=groups,
        forwards=swept.forwards + sets.forwards,
        seconds=round(swept.seconds + sets.seconds, 3),
    )


def spending_cap(directory: Path, limit: float | None, *, without: Path | None = None) -> SpendingCap | None:
    """A cap on all calls of a study; what was spent before is counted, apart from the calls in `without`."""
    if limit is None:
        return None
    cap = SpendingCap(limit)
    files = [*directory.glob(f"{CALLS}/*.jsonl"), *directory.glob(f"{EXPLANATIONS}/*/calls.jsonl")]
    for path in files:
        if path.parent != without:
            cap.restore(str(path.resolve()), totals(path).at_most)
    return cap


def judged_roles(
    work: StudyRun,
    references: ReferenceRoles,
    judges: Sequence[str],
    *,
    limit: float | None,
    progress: Progress,
    **options: object,
) -> dict[str, dict[str, RatedText]]:
    """What judges say about every explainer's roles. Their calls are recorded, so that none is made twice."""
    directory, components, rated = work.run.directory, work.circuit.components, {}
    cap = spending_cap(directory, limit)
    (directory / CALLS).mkdir(exist_ok=True)
    (directory / JUDGED).mkdir(exist_ok=True)
    for done, name in enumerate(work.explainers):
        progress(f"judging {name}", done, len(work.explainers))
        with ExitStack() as stack:
            seats = []
            for number, judge in enumerate(judges, 1):
                calls = work.run.calls_path(folder_of(name), f"judge{number}")
                seats.append(Judge(stack.enter_context(open_backbone(judge, record=calls, cap=cap, **options))))
            explanation = read_explanation(work.directory_of(name) / EXPLANATION_FILE)
            rated[name], said = rated_by_judges(explanation, components, references, seats)
        data = said.model_dump(mode="json")
        if capped := next((error for error in judging_errors(data) if error["kind"] == CapReached.kind), None):
            raise CapReached(capped["error"])
        write_json(directory / JUDGED / f"{folder_of(name)}.json", data)
    return rated


# Interventions on every component of a circuit at the last token: the figures that reference roles are annotated from.

ZERO = "zero"
#: Heads that are pruned one after another: the work grows with the square of their number.
MOST_PRUNED = 24


def measured_evidence(specimen: Specimen, localisation: Localisation, *, n: int, seed: int) -> CircuitEvidence:
    """The interventions on each component of a circuit."""
    tools = instruments(specimen, n=n, seed=seed)
    names = list(localisation.components)
    heads = [name for name in names if Component.parse(name).is_head]
    operands = [role for role in tools.prompts.roles if role != END]
    zeroed = _by_name(names, _each(names, partial(tools.replace, how=ZERO, at=END)))
    attention = tools.attention(heads) if heads else {}
    cuts = {role: _by_name(heads, _each(heads, partial(tools.cut_attention, role=role))) for role in operands}
    corrupted = {role: _by_name(names, _corrupted(tools, names, role)) for role in operands}
    lens, backups = tools.lens(names), _backups(tools, localisation.backup_groups)
    parts = [
        ComponentEvidence(
            component=name,
            zeroed=zeroed[name]["accuracy"],
            attention={role: one["mass"][0] for role, one in attention.get(name, {}).items()},
            cut={role: by_head[name]["accuracy"] for role, by_head in cuts.items() if name in by_head},
            moved={role: one[name]["moved"][0] for role, one in corrupted.items() if name in one},
            switched={role: one[name]["switched"][0] for role, one in corrupted.items() if name in one},
            lens_answer=lens[name]["answer"][0],
            lens_top_5=lens[name]["in_top_5"],
            **backups.get(name, {}),
        )
        for name in names
    ]
    steps = tools.prune(heads[:MOST_PRUNED], how=ZERO, at=END) if heads else []
    pruning = tuple(PruningStep(component=step["replaced"], accuracy=step["accuracy"]) for step in steps)
    return CircuitEvidence(n=len(tools.prompts), components=tuple(parts), pruning=pruning)


def _each(
    names: Sequence[str], call: Callable[[Sequence[Sequence[str]]], list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """What an instrument says about each component alone."""
    sets = [[name] for name in names]
    return [one for start in range(0, len(sets), MOST_SETS) for one in call(sets[start : start + MOST_SETS])]


def _corrupted(tools: Instruments, names: Sequence[str], role: str) -> list[dict[str, Any]]:
    """Each component patched from a run with another operand; nothing where no answer changes with it."""
    try:
        return _each(names, partial(tools.corrupt, role=role))
    except BadInput:
        return []


def _by_name(names: Sequence[str], rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return dict(zip(names, rows, strict=True)) if rows else {}


def _backups(tools: Instruments, groups: Sequence[Sequence[str]]) -> Mapping[str, dict[str, Any]]:
    """For each head of a backup group, the accuracy with the others zeroed, and with all zeroed."""
    backups: dict[str, dict[str, Any]] = {}
    for group in groups:
        without = [[other for other in group if other != head] for head in group]
        *alone, whole = (one["accuracy"] for one in tools.replace([*without, list(group)], how=ZERO, at=END))
        for head, others, rest in zip(group, without, alone, strict=True):
            backups[head] = {"others": tuple(others), "once_others_zeroed": (rest, whole)}
    return backups
