"""A specimen and a language model in, an explanation and its trace out.

The work is done on a copy of the specimen without name, id and kind: the language model sees the weights' behaviour,
the vocabulary or prompts, examples and the component list, and nothing that could give the task away (`setting`).

Everything a run does follows from the model's replies, so a run that was killed is run again with the same backbone
records and goes on where it stopped. Give each case a scope of its own (`backbone.within("case 3")`) where several
share one record.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack, get_args

from vesalius.components import Component
from vesalius.documents.base import FrozenDict
from vesalius.documents.explanation import ComponentExplanation, Evidence, Executable, Explanation
from vesalius.documents.trace import DEFAULT_PROTOCOL, Attempt, ComponentTrace, Protocol, Trace
from vesalius.documents.view import cut_text
from vesalius.errors import BadInput
from vesalius.explanations.claims import Computes, Hypothesis
from vesalius.explanations.natural.explain import PROMPTS, explain_natural
from vesalius.model.specimen import FiniteVocabulary, Specimen
from vesalius.progress import Progress
from vesalius.rasp.document import from_document
from vesalius.rasp.text import render
from vesalius.sandbox import Executions
from vesalius_agents.hyve.asking import TASK, Asker
from vesalius_agents.hyve.own_prompts import own_prompts
from vesalius_agents.hyve.stages import Stages, State, run_stages, study_components
from vesalius_backbones import Backbone
from vesalius_programs import explain_specimen
from vesalius_session.findings import (
    Checked,
    Finding,
    Said,
    Statement,
    component_explanation,
    lost_attempt,
    shared_program,
)
from vesalius_session.session import Session, Tries
from vesalius_session.setting import SettingOptions

HYVE = "hyve"


@dataclass(frozen=True)
class HyveResult:
    """What was found, and how."""

    explanation: Explanation
    trace: Trace


def explain_hyve(
    specimen: Specimen,
    *,
    backbone: Backbone,
    protocol: Protocol = DEFAULT_PROTOCOL,
    components: Iterable[str | Component] | None = None,
    seed: int = 0,
    sandbox_unsafe: bool = False,
    executions: Executions | None = None,
    prompts: str | Path | None = None,
    **options: Unpack[SettingOptions],
) -> HyveResult:
    """Let a language model explain a specimen, component by component.

    `protocol` is `typed` (claims that the engine decides) or `paper` (free code that the model judges itself).
    `components` names the circuit (default: the specimen's own; of a natural model what the built-in scientist
    selects). Whatever the model says, the explanation is valid: answers that cannot be read are counted in the trace
    and leave a component tentative. Failures that say nothing about the model (no connection, no credit, a spending
    cap) are raised. `sandbox_unsafe` runs the model's code even where it cannot be contained; `executions` keeps what
    it gave, and answers for it where it has been kept. `prompts` is a directory of your own prompts for the protocol
    `paper` (docs/how-to/hyve.md). `options` are those of a setting: `compact` leaves out free
    code, for models with a small context.
    """
    if protocol not in get_args(Protocol):
        raise BadInput(f"protocol {protocol!r} does not exist; use typed or paper")
    own = own_prompts(prompts, protocol)
    asker = Asker(backbone, teller(specimen, options.get("progress")))
    with Session.open(
        specimen, components, seed=seed, executions=executions, unsafe=sandbox_unsafe, **options
    ) as session:
        state = run_stages(Stages(asker, session, protocol == "typed", own))
    explanation = session.explained(state.findings, statement_of(state), scientist=HYVE, cost=asker.usage.cost or 0.0)
    if own is not None:
        explanation = explanation.model_copy(update={"prompts": FrozenDict(own.digests)})
    return HyveResult(explanation, trace_of(state, asker, specimen.id, protocol, backbone.name))


def teller(specimen: Specimen, progress: Progress | None) -> Callable[[str], None]:
    """Tells progress what the stages do."""

    def tell(message: str) -> None:
        if progress is not None:
            progress(f"{specimen.name}: {message}", 0, 0)

    return tell


def statement_of(state: State) -> Statement:
    """What the model says of each component and of the whole."""
    roles = {name: Said(tag=role.tag, description=role.description) for name, role in state.roles.items()}
    summary = state.summary
    if summary is None:
        return Statement(roles)
    return Statement(roles, summary.information_flow, summary.derived_task_description)


def trace_of(state: State, asker: Asker, specimen: str, protocol: Protocol, backbone: str) -> Trace:
    """How the state came about."""
    return Trace(
        specimen=specimen,
        protocol=protocol,
        backbone=backbone,
        components=tuple(finding.trace for finding in state.findings),
        usage=asker.usage,
        problems=tuple(asker.problems),
    )


# The built-in scientist first, a language model for the rest.
#
# 1. The built-in scientist explains the circuit, or the natural model; what its experiments support stands.
# 2. The language model studies only the components that are left open, by the typed protocol: it proposes, the engine
#    decides. The built-in program is at hand as "last", and claims that were tried before count among those tried.
# 3. One last call asks for a name of every component and for the task. These are the model's words: they are set beside
#    what was established, marked as such, and decide nothing.
#
# Where everything is supported the third step is the only call.

HYBRID = "hybrid"
BY_BUILTIN = "(explained by the built-in scientist)"
IN_WORDS = "In the model's words:"
#: The longest program text, and the longest words, of one component that the language model is shown.
LONGEST_PROGRAM, LONGEST_WORDS = 600, 240


def explain_hybrid(
    specimen: Specimen,
    *,
    backbone: Backbone,
    components: Iterable[str | Component] | None = None,
    seed: int = 0,
    sandbox_unsafe: bool = False,
    executions: Executions | None = None,
    first: Explanation | None = None,
    **options: Unpack[SettingOptions],
) -> HyveResult:
    """Explain a specimen: the built-in scientist, then a language model for what it left open.

    The options are those of `explain_hyve`. Whatever the model says, what the built-in scientist established stays.
    `first` is what it said before of the same specimen with the same seed; it is not asked again then.
    """
    started = time.monotonic()
    listed = isinstance(specimen.vocabulary, FiniteVocabulary)
    progress, n, top = options.get("progress"), options.get("n"), options.get("top")
    if first is not None:
        if (first.specimen, first.seed) != (specimen.id, seed):
            other = f"is of {first.specimen!r} with seed {first.seed}"
            raise BadInput(f"first: {other}; give the explanation of {specimen.id!r} with seed {seed}")
    elif listed:
        first = explain_specimen(specimen, components=components, seed=seed, progress=progress)
    else:
        first = explain_natural(
            specimen,
            components=components,
            n=PROMPTS if n is None else n,
            top=top,
            force=options.get("force", False),
            seed=seed,
            progress=progress,
        )
    asker = Asker(backbone, teller(specimen, progress))
    circuit = [part.id for part in first.components]
    with Session.open(specimen, circuit, seed=seed, executions=executions, unsafe=sandbox_unsafe, **options) as session:
        stages = Stages(asker, session, typed=True)
        state = study_components(stages, _prepared(stages, first, compact=options.get("compact", False)))
        names = stages.name([_told(part, finding) for part, finding in _paired(first, state)])
        proposed = session.last_proposal()
    merged = _merged(first, state, names, stages)
    figures = {"cost": asker.usage.cost or 0.0, "seconds": time.monotonic() - started, "proposed": proposed}
    trace = trace_of(state, asker, specimen.id, "typed", backbone.name)
    return HyveResult(merged.model_copy(update=figures), trace)


def _prepared(stages: Stages, first: Explanation, *, compact: bool) -> dict[str, Finding]:
    """What stands already, by component; the session is told what was tried, and "last" is the built-in program."""
    executable = first.executable
    hypothesis = (
        None
        if executable is None
        else Hypothesis(program=from_document(executable.program), carriers=dict(executable.carriers))
    )
    if executable is not None:
        program = {name: executable.program[name] for name in ("variables", "output")}
        stages.session.memory.last = {
            "program": program,
            "carriers": {n: list(v) for n, v in executable.carriers.items()},
        }
    for part in first.components:
        tried: Counter[str] = Counter()
        for record in part.claims:
            tried[record.kind] = max(tried[record.kind], record.tried)
        tries = Tries(tried, [f"built-in {number}" for number in range(1, tried["computes"] + 1)])
        stages.session.memory.tries[Component.parse(part.id)] = tries
    stands = [part for part in first.components if part.verdict == "supported"]
    return {part.id: _finding(part, hypothesis, compact=compact) for part in stands}


def _finding(part: ComponentExplanation, hypothesis: Hypothesis | None, *, compact: bool) -> Finding:
    """A supported component as the stages know it."""
    shown = f" Its program: {part.program[:LONGEST_PROGRAM]}" if part.program and not compact else ""
    words = _in_short(part.note) if compact else part.note
    attempt = Attempt(
        iteration=1, hypothesis=words + shown, verdict="supported", reasoning=BY_BUILTIN, decided_by="engine"
    )
    trace = ComponentTrace(component=part.id, observation=BY_BUILTIN, attempts=(attempt,))
    checked: tuple[Checked, ...] = ()
    record = next((one for one in part.claims if one.kind == "computes" and one.verdict == "supported"), None)
    if hypothesis is not None and record is not None and part.id in hypothesis.carriers:
        checked = ((Computes(component=part.id, hypothesis=hypothesis), record),)
    return Finding(trace, "supported", part.claims, checked)


def _paired(first: Explanation, state: State) -> list[tuple[ComponentExplanation, Finding]]:
    findings = {finding.trace.component: finding for finding in state.findings}
    return [(part, findings[part.id]) for part in first.components]


def _told(part: ComponentExplanation, finding: Finding) -> tuple[str, str]:
    """A component and what is known of it, for the call that asks for names."""
    if part.verdict == "supported":
        return part.id, _in_short(part.note)
    if finding.verdict == "supported":
        return part.id, cut_text(finding.established, LONGEST_WORDS)
    return part.id, f"(not established) {cut_text(finding.hypothesis, LONGEST_WORDS)}"


def _in_short(note: str) -> str:
    """The first sentences of a note: what is computed, and from what."""
    return cut_text(". ".join(note.split(". ")[:2]).rstrip(".") + ".", LONGEST_WORDS)


def _merged(first: Explanation, state: State, names: Mapping[str, str], stages: Stages) -> Explanation:
    """The built-in explanation, with what the engine supported for open components and the model's words."""
    pairs = _paired(first, state)
    gained = [part.id for part, finding in pairs if part.verdict != "supported" and finding.verdict == "supported"]
    parts = tuple(_part(part, finding, names.get(part.id, ""), stages) for part, finding in pairs)
    changes: dict[str, Any] = {
        "scientist": HYBRID,
        "components": parts,
        "task_description": _with_words(first.task_description, names.get(TASK, "")),
    }
    if gained and first.behaviour is None:
        changes |= _program(first, *shared_program(state.findings, stages.session.lab))
    return first.model_copy(update=changes)


def _with_words(text: str, words: str) -> str:
    """What was established, and the model's words for it, if there are any."""
    return f"{text} {IN_WORDS} {words}" if words else text


def _part(part: ComponentExplanation, finding: Finding, name: str, stages: Stages) -> ComponentExplanation:
    if part.verdict == "supported":
        return part.model_copy(update={"note": _with_words(part.note, name)})
    lost = tuple(lost_attempt(one) for one in finding.trace.attempts if one.verdict != "supported" and one.hypothesis)
    refuted = (*part.refuted, *lost)
    if finding.verdict != "supported":
        tentative = f"{name} (Tentative: no experiment supported it.)" if name else ""
        return part.model_copy(update={"note": _with_words(part.note, tentative), "refuted": refuted})
    note = _with_words(f"Established: {finding.established}", name)
    if part.role is not None:  # a natural model: the profile that was measured stays
        changes = {"verdict": "supported", "claims": (*part.claims, *finding.claims)}
        return part.model_copy(update={**changes, "note": f"{part.note} {note}", "refuted": refuted})
    new = component_explanation(finding, {}, stages.session.lab)
    return new.model_copy(update={"tag": new.tag_by_experiment or part.tag, "note": note, "refuted": refuted})


def _program(first: Explanation, executable: Executable | None, agreement: Evidence | None) -> dict[str, Any]:
    """The program that more components carry: the language model's where it takes in those explained before."""
    before = 0 if first.executable is None else len(first.executable.carriers)
    if executable is None or len(executable.carriers) < before:
        return {}
    return {"program": render(executable.program), "executable": executable, "program_agreement": agreement}
