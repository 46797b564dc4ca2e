"""From the final state to an explanation: valid whatever the model said."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vesalius.documents.explanation import ComponentExplanation, Evidence, Executable, Explanation
from vesalius.documents.trace import Attempt
from vesalius.explanations.claims import Computes, Hypothesis, check
from vesalius.explanations.hyve.operations import operation_of
from vesalius.explanations.hyve.shapes import Role
from vesalius.explanations.hyve.stages import Finding, State
from vesalius.explanations.laboratory import Lab
from vesalius.rasp import Program
from vesalius.rasp.document import to_document
from vesalius.rasp.text import render, render_variables

NO_SUMMARY = "The language model gave no readable summary."
NOT_CLASSIFIED = "The language model gave this component no tag."


def explanation_of(
    state: State, lab: Callable[[], Lab], *, specimen: str, seed: int, cost: float, seconds: float
) -> Explanation:
    """The explanation that a run ended with; the laboratory checks who carries what in the final program."""
    findings, summary = state.findings, state.summary
    executable, agreement = shared_program(findings, lab)
    return Explanation(
        specimen=specimen,
        scientist="hyve",
        components=tuple(component_explanation(finding, state.roles, lab) for finding in findings),
        information_flow=summary.information_flow if summary else NO_SUMMARY,
        task_description=summary.derived_task_description if summary else NO_SUMMARY,
        program=render(executable.program) if executable else None,
        executable=executable,
        program_agreement=agreement,
        cost=cost,
        seconds=seconds,
        seed=seed,
    )


def component_explanation(finding: Finding, roles: Mapping[str, Role], lab: Callable[[], Lab]) -> ComponentExplanation:
    """One component as it was found, with the model's role for it."""
    name = finding.trace.component
    role = roles.get(name)
    own = finding.own_program
    by_model = role.tag if role else None
    by_experiment = finding.tag
    return ComponentExplanation(
        id=name,
        tag=by_experiment or by_model,
        tag_by_experiment=by_experiment,
        tag_by_model=by_model,
        note=_note(finding, role),
        verdict=finding.verdict,
        program=_program(own[0], name) if own else None,
        claims=finding.claims,
        refuted=tuple(lost_attempt(attempt) for attempt in finding.trace.attempts if attempt.verdict != "supported"),
        operation=operation_of(own[0], name, finding.claims, lab()) if own else None,
    )


def _note(finding: Finding, role: Role | None) -> str:
    """What the engine established, then what the model says, which may be more than was tested."""
    said = role.description if role else f"{finding.hypothesis} ({NOT_CLASSIFIED})"
    if finding.verdict != "supported":
        return f"{said} (Tentative: no hypothesis was supported.)"
    return f"Established: {finding.established} In the model's words: {said}" if finding.established else said


def _program(hypothesis: Hypothesis, name: str) -> str:
    """The lines of the component's variables, from the program it was shown to carry them in."""
    carried = hypothesis.carried_by(name)
    others = [variable for other in hypothesis.carriers.values() for variable in other if variable not in carried]
    return render_variables(to_document(hypothesis.program), carried, given=others)


def lost_attempt(attempt: Attempt) -> dict[str, Any]:
    """A hypothesis that was not supported, as an explanation keeps it."""
    return {
        "hypothesis": attempt.hypothesis or "(not readable)",
        "verdict": attempt.verdict,
        "against": attempt.reasoning,
        "decided_by": attempt.decided_by,
    }


def shared_program(findings: Sequence[Finding], lab: Callable[[], Lab]) -> tuple[Executable | None, Evidence | None]:
    """The program that most components were shown to carry variables of, and by whom; the later one on a draw.

    Components that were supported with another program are checked again with this one, if it has their variables:
    carriers of two programs cannot be mixed.
    """
    supported = {finding.trace.component: own for finding in findings if (own := finding.own_program)}
    documents = {name: to_document(own[0].program) for name, own in supported.items()}
    groups: dict[str, list[str]] = {}
    for name, document in documents.items():
        groups.setdefault(json.dumps(document, sort_keys=True), []).append(name)
    if not groups:
        return None, None
    members = groups[max(reversed(groups), key=lambda key: len(groups[key]))]
    hypothesis, agreement = supported[members[-1]]
    carriers = {name: supported[name][0].carried_by(name) for name in members}
    for name, (other, _) in supported.items():
        carried = other.carried_by(name)
        if name not in carriers and _carries(name, carried, hypothesis.program, lab):
            carriers[name] = carried
    return Executable(program=documents[members[-1]], carriers=carriers), agreement


def _carries(name: str, carried: tuple[str, ...], program: Program, lab: Callable[[], Lab]) -> bool:
    """Whether a component carries these variables of a program it was not yet checked with."""
    if not set(carried) <= {variable for placed in program.components for variable in placed.variables}:
        return False
    claim = Computes(component=name, hypothesis=Hypothesis(program=program, carriers={name: carried}))
    return check(claim, lab()).verdict == "supported"
