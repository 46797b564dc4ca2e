"""The built-in scientist first, a language model for the rest.

1. The built-in scientist explains the circuit; what its experiments support stands.
2. The language model studies only the components that are left open, by the typed protocol: it proposes, the engine
   decides. The built-in program is at hand as "last", and claims that were tried before count among those tried.
3. One last call asks for a sentence about every component and for the task. These are the model's words: they are set
   beside what was established, marked as such, and decide nothing.

Where everything is supported the third step is the only call.
"""

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from typing import Any

from vesalius.backbones import Backbone
from vesalius.components import Component
from vesalius.documents.explanation import ClaimRecord, ComponentExplanation, Evidence, Executable, Explanation
from vesalius.documents.trace import Attempt, ComponentTrace
from vesalius.errors import BadInput
from vesalius.explanations.claims import Claim, Computes, Hypothesis
from vesalius.explanations.hyve.asking import Desk
from vesalius.explanations.hyve.explain import HyveResult, stages_on, trace_of
from vesalius.explanations.hyve.loop import run_stages
from vesalius.explanations.hyve.setting import LazyWorkspace, listed_setting
from vesalius.explanations.hyve.shapes import Role
from vesalius.explanations.hyve.stages import Finding, Stages, State
from vesalius.explanations.hyve.tools import ComponentJudge
from vesalius.explanations.hyve.writing import component_explanation, lost_attempt, shared_program
from vesalius.explanations.scientist import explain_specimen
from vesalius.model.specimen import FiniteVocabulary, Specimen
from vesalius.progress import Progress
from vesalius.rasp.document import from_document
from vesalius.rasp.text import render
from vesalius.sandbox import Executions

HYBRID = "hybrid"
BY_BUILTIN = "(explained by the built-in scientist)"
IN_WORDS = "In the model's words:"
#: The longest program text of one component that the language model is shown.
LONGEST_PROGRAM = 600


def explain_hybrid(
    specimen: Specimen,
    *,
    backbone: Backbone,
    components: Iterable[str | Component] | None = None,
    seed: int = 0,
    compact: bool = False,
    sandbox_unsafe: bool = False,
    executions: Executions | None = None,
    progress: Progress | None = None,
) -> HyveResult:
    """Explain a specimen with listed tokens: the built-in scientist, then a language model for what it left open.

    The options are those of `explain_hyve`. Whatever the model says, what the built-in scientist established stays.
    """
    if not isinstance(specimen.vocabulary, FiniteVocabulary):
        raise BadInput(
            f"specimen {specimen.name!r} has a text vocabulary; hybrid asks a language model about listed tokens only"
        )
    started = time.monotonic()
    first = explain_specimen(specimen, components=components, seed=seed, progress=progress)

    def tell(message: str) -> None:
        if progress is not None:
            progress(f"{specimen.name}: {message}", 0, 0)

    desk = Desk(backbone, tell)
    with ExitStack() as stack:
        circuit = [part.id for part in first.components]
        setting = listed_setting(specimen, circuit, stack, seed=seed, compact=compact)
        workspace = LazyWorkspace(setting, stack, executions or Executions(), unsafe=sandbox_unsafe)
        stages = stages_on(setting, workspace, desk, "typed", seed=seed)
        state = run_stages(stages, _prepared(stages, first))
    merged = _merged(first, state, stages)
    figures = {"cost": desk.usage.cost or 0.0, "seconds": time.monotonic() - started}
    trace = trace_of(state, desk, specimen.id, "typed", backbone.name)
    return HyveResult(merged.model_copy(update=figures), trace)


def _prepared(stages: Stages, first: Explanation) -> dict[str, Finding]:
    """What stands already, by component; the judges are told what was tried, and "last" is the built-in program."""
    executable = first.executable
    hypothesis = None if executable is None else _hypothesis(executable)
    if executable is not None:
        program = {name: executable.program[name] for name in ("variables", "output")}
        stages.memory.last = {"program": program, "carriers": {n: list(v) for n, v in executable.carriers.items()}}
    for part in first.components:
        component = Component.parse(part.id)
        tried = Counter({record.kind: record.tried for record in part.claims})
        earlier = {f"built-in {number}": number for number in range(1, tried["computes"] + 1)}
        stages.judges[component] = ComponentJudge(stages.lab, component, stages.prompts.read_claim, tried, earlier)
    return {part.id: _finding(part, hypothesis) for part in first.components if part.verdict == "supported"}


def _hypothesis(executable: Executable) -> Hypothesis:
    return Hypothesis(program=from_document(executable.program), carriers=dict(executable.carriers))


def _finding(part: ComponentExplanation, hypothesis: Hypothesis | None) -> Finding:
    """A supported component as the stages know it."""
    shown = f" Its program: {part.program[:LONGEST_PROGRAM]}" if part.program else ""
    attempt = Attempt(
        iteration=1, hypothesis=part.note + shown, verdict="supported", reasoning=BY_BUILTIN, decided_by="engine"
    )
    trace = ComponentTrace(component=part.id, observation=BY_BUILTIN, attempts=(attempt,))
    checked: tuple[tuple[Claim, ClaimRecord], ...] = ()
    record = next((one for one in part.claims if one.kind == "computes" and one.verdict == "supported"), None)
    if hypothesis is not None and record is not None and part.id in hypothesis.carriers:
        checked = ((Computes(component=part.id, hypothesis=hypothesis), record),)
    return Finding(trace, "supported", part.claims, checked)


def _merged(first: Explanation, state: State, stages: Stages) -> Explanation:
    """The built-in explanation, with what the engine supported for open components and the model's words."""
    findings = {finding.trace.component: finding for finding in state.findings}
    gained = {
        part.id for part in first.components if part.verdict != "supported" and findings[part.id].verdict == "supported"
    }
    parts = tuple(_part(part, findings[part.id], state.roles, stages) for part in first.components)
    said = "" if state.summary is None else f" {IN_WORDS} {state.summary.derived_task_description}"
    flow = "" if state.summary is None else f" {IN_WORDS} {state.summary.information_flow}"
    changes: dict[str, Any] = {
        "scientist": HYBRID,
        "components": parts,
        "task_description": first.task_description + said,
        "information_flow": first.information_flow + flow,
    }
    if gained:
        changes |= _program(first, *shared_program(state.findings, stages.lab))
    return first.model_copy(update=changes)


def _part(
    part: ComponentExplanation, finding: Finding, roles: Mapping[str, Role], stages: Stages
) -> ComponentExplanation:
    role = roles.get(part.id)
    by_model = role.tag if role else None
    if part.verdict == "supported":
        note = f"{part.note} {IN_WORDS} {role.description}" if role else part.note
        return part.model_copy(update={"note": note, "tag_by_model": by_model})
    lost = tuple(lost_attempt(one) for one in finding.trace.attempts if one.verdict != "supported" and one.hypothesis)
    if finding.verdict == "supported":
        new = component_explanation(finding, roles, stages.lab)
        kept = {"tag": new.tag_by_experiment or part.tag or by_model, "refuted": (*part.refuted, *lost)}
        return new.model_copy(update=kept)
    tentative = f" {IN_WORDS} {role.description} (Tentative: no experiment supported it.)" if role else ""
    changed = {"note": part.note + tentative, "tag_by_model": by_model, "refuted": (*part.refuted, *lost)}
    return part.model_copy(update=changed)


def _program(first: Explanation, executable: Executable | None, agreement: Evidence | None) -> dict[str, Any]:
    """The program that more components carry: the language model's where it takes in those explained before."""
    before = 0 if first.executable is None else len(first.executable.carriers)
    if executable is None or len(executable.carriers) < before:
        return {}
    return {"program": render(executable.program), "executable": executable, "program_agreement": agreement}
