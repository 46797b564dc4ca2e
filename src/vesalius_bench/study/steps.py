"""The steps of the AF1 study: which sums, which circuit, who explains it, how the roles are rated."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vesalius.api.circuit_sources import Given, Source, circuit_fields
from vesalius.api.discoveries import discover
from vesalius.behaviours.addition import ADDITION, Addition, addition
from vesalius.behaviours.behaviour import TooFewPrompts
from vesalius.behaviours.natural import with_behaviour
from vesalius.behaviours.performance import measure, undecided
from vesalius.behaviours.registry import find_behaviour
from vesalius.components import Component
from vesalius.discovery.known_heads import AF1_COMPONENTS, AF1_SOURCE, LLAMA_3_8B, is_llama_3_8b
from vesalius.documents.circuit import Circuit
from vesalius.documents.discovery import Discovery
from vesalius.documents.explanation import EXPLANATION_FILE
from vesalius.documents.performance import Performance
from vesalius.documents.view import join_names
from vesalius.errors import BadInput
from vesalius.explanations.claims import BackupOf, Redundant, Together, check
from vesalius.explanations.laboratory import END, NaturalLab
from vesalius.files import write_json
from vesalius.model.config import Config
from vesalius.model.specimen import Specimen, TextVocabulary
from vesalius.progress import Progress
from vesalius.runs.directory import CALLS, EXPLANATIONS, read_explanation
from vesalius.statistics import student_interval
from vesalius_backbones import CapReached, SpendingCap, open_backbone
from vesalius_backbones.runs.access import booked
from vesalius_bench.circuits.work import judging_errors
from vesalius_bench.judges import Judge
from vesalius_bench.study.documents import Localisation
from vesalius_bench.study.evidence import BackupGroup
from vesalius_bench.study.roles import RatedText, rated_by_judges
from vesalius_bench.study.run import StudyRun, StudySettings, folder_of
from vesalius_mechrl.sets.discover import discover_sets
from vesalius_truth.grading.keys import ReferenceRoles

# Which heads of a circuit stand in for each other, whoever named the circuit.
#
# 1. On training prompts, heads that bring the same operand to the last token are candidates of one group: their output
#    from a run with another operand moves the answer, by at least half of what the head moves by any operand.
# 2. On held-out prompts claims decide, with zeros at the last token: the group costs more than the sum of its heads
#    (`together`); its heads are mutually redundant, or one is a backup of the stronger ones (docs/decisions/0067).

#: A head belongs to the group of an operand that it moves at least this share as far as the one it moves most.
LEAST_SHARE = 0.5
ZERO = "zero"


def backup_groups(specimen: Specimen, components: Sequence[str], *, n: int, seed: int) -> tuple[BackupGroup, ...]:
    """The groups among the heads of a circuit, with what held-out prompts show of them."""
    heads = [part for name in components if (part := Component.parse(name)).is_head]
    if len(heads) < 2:
        return ()
    try:
        first = NaturalLab.draw(specimen, n, seed=seed, split="train")
    except TooFewPrompts as few:
        first = NaturalLab.draw(specimen, max(1, few.n // 2), seed=seed, split="train")
    candidates = {role: group for role, group in _movers(first, heads).items() if len(group) > 1}
    if not candidates:
        return ()
    lab = NaturalLab.draw(specimen, n, seed=seed, split="test", circuit=heads)
    return tuple(_group(lab, role, group) for role, group in candidates.items())


def _movers(lab: NaturalLab, heads: Sequence[Component]) -> dict[str, list[Component]]:
    """The heads that bring each operand to the last token."""
    moved: dict[str, list[float]] = {}
    for role in lab.prompts.roles:
        try:
            shares = [values for _, values in lab.moved_shares([[head] for head in heads], role)]
        except BadInput:  # no answer depends on it
            continue
        clear = [len(one) > 1 and float(student_interval(one[:, None].numpy())[0][0]) > 0 for one in shares]
        moved[role] = [float(one.mean()) if sure else 0.0 for one, sure in zip(shares, clear, strict=True)]
    most = [max((moved[role][place] for role in moved), default=0.0) for place in range(len(heads))]
    return {
        role: [
            head
            for head, own, largest in zip(heads, values, most, strict=True)
            if largest > 0 and own >= LEAST_SHARE * largest
        ]
        for role, values in moved.items()
    }


def _group(lab: NaturalLab, role: str, heads: Sequence[Component]) -> BackupGroup:
    """What the claims say of a group; heads that cost most alone come first."""
    losses = lab.answers([[head] for head in heads], ZERO, END)
    order = sorted(
        range(len(heads)),
        key=lambda i: (float(losses[i].right.float().mean()), float(losses[i].score.mean())),
    )
    names = [str(heads[place]) for place in order]
    first, *rest = names
    joint = check(Together(component=first, others=tuple(rest), replacement=ZERO, at=END), lab).verdict
    redundant = check(Redundant(component=first, others=tuple(rest), replacement=ZERO, at=END), lab).verdict
    if redundant == "supported":
        standing = {
            name: f"mutually redundant with {join_names([other for other in names if other != name])}" for name in names
        }
        return BackupGroup(operand=role, heads=tuple(names), joint=joint, standing=standing)
    standing: dict[str, str] = {}
    for place, name in enumerate(rest, 1):
        stronger = names[:place]
        claim = BackupOf(component=name, of=tuple(stronger), replacement=ZERO, at=END)
        if check(claim, lab).verdict == "supported":
            standing[name] = f"backup of {join_names(stronger)}"
    if standing:
        standing = {first: "primary", **standing}
    elif joint == "supported":
        standing = dict.fromkeys(names, "matters together with the others")
    return BackupGroup(operand=role, heads=tuple(names), joint=joint, standing=standing)


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


def with_groups(specimen: Specimen, localisation: Localisation, *, n: int, seed: int) -> Localisation:
    """A circuit, whoever named it, with the groups of its heads that stand in for each other."""
    started = time.perf_counter()
    groups = backup_groups(specimen, localisation.components, n=n, seed=seed)
    seconds = round(localisation.seconds + time.perf_counter() - started, 3)
    shown = tuple(group.heads for group in groups if group.shown)
    return localisation.model_copy(update={"groups": groups, "backup_groups": shown, "seconds": seconds})


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
    """What matters alone by resampling, and sets of heads that matter together: one head alone shows little where
    others stand in for it.
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
    backups = {Component.parse(head) for group in sets.backup_groups for head in group.heads}
    return Localisation(
        source="discovered",
        how=f"{how} (at most {settings.top}); and sets: heads that cost more together than alone, searched among the "
        f"{len(pool)} strongest by mean ablation of sets and confirmed on held-out prompts",
        components=tuple(map(str, sorted({*strongest, *backups}))),
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
            cap.restore(str(path.resolve()), *booked(path))
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
