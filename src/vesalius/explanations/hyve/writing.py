"""From the final state to an explanation: valid whatever the model said."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from vesalius.components import Component
from vesalius.documents.explanation import ComponentExplanation, Evidence, Executable, Explanation, Tag
from vesalius.documents.trace import Attempt
from vesalius.explanations.claims import Aggregates, Computes, Hypothesis
from vesalius.explanations.claims.interchange import AGREEMENT
from vesalius.explanations.hyve.shapes import Role
from vesalius.explanations.hyve.stages import Finding, State
from vesalius.rasp.document import to_document
from vesalius.rasp.text import render, render_variables

NO_SUMMARY = "The language model gave no readable summary."
#: What the kind of a component alone suggests: the most frequent tag of heads, and of MLPs.
BY_KIND: dict[bool, Tag] = {True: "AGGREGATOR", False: "MAPPER"}


def explanation_of(state: State, *, specimen: str, seed: int, cost: float, seconds: float) -> Explanation:
    """The explanation that a run ended with."""
    findings, summary = state.findings, state.summary
    executable, agreement = shared_program(findings)
    return Explanation(
        specimen=specimen,
        scientist="hyve",
        components=tuple(_component(finding, state.roles) for finding in findings),
        information_flow=summary.information_flow if summary else NO_SUMMARY,
        task_description=summary.derived_task_description if summary else NO_SUMMARY,
        program=render(executable.program) if executable else None,
        executable=executable,
        program_agreement=agreement,
        cost=cost,
        seconds=seconds,
        seed=seed,
    )


def _component(finding: Finding, roles: Mapping[str, Role]) -> ComponentExplanation:
    name = finding.trace.component
    role = roles.get(name)
    tag: Tag = role.tag if role else BY_KIND[Component.parse(name).is_head]
    note = role.description if role else f"{finding.hypothesis} (Not classified by the model; tag by kind.)"
    own = _supported_program(finding)
    return ComponentExplanation(
        id=name,
        tag=tag,
        tag_by_experiment=tag,
        note=note if finding.verdict == "supported" else f"{note} (Tentative: no hypothesis was supported.)",
        verdict=finding.verdict,
        program=_program(own[0], name) if own else None,
        claims=finding.claims,
        refuted=tuple(_lost(attempt) for attempt in finding.trace.attempts if attempt.verdict != "supported"),
    )


def _program(hypothesis: Hypothesis, name: str) -> str:
    """The lines of the component's variables, from the program it was shown to carry them in."""
    carried = hypothesis.carried_by(name)
    others = [variable for other in hypothesis.carriers.values() for variable in other if variable not in carried]
    return render_variables(to_document(hypothesis.program), carried, given=others)


def _lost(attempt: Attempt) -> dict[str, Any]:
    return {
        "hypothesis": attempt.hypothesis or "(not readable)",
        "verdict": attempt.verdict,
        "against": attempt.reasoning,
        "decided_by": attempt.decided_by,
    }


def _supported_program(finding: Finding) -> tuple[Hypothesis, Evidence | None] | None:
    """The last program that a supported claim says this component carries variables of."""
    if finding.verdict != "supported":
        return None
    for claim, record in reversed(finding.checked):
        if isinstance(claim, Computes | Aggregates) and record.verdict == "supported":
            agreement = next((one for one in record.evidence if one.measure == AGREEMENT), None)
            return claim.hypothesis, agreement
    return None


def shared_program(findings: Sequence[Finding]) -> tuple[Executable | None, Evidence | None]:
    """The program that most components were shown to carry variables of, and by whom; the later one on a draw.

    Components that were supported with another program are left out: carriers of two programs cannot be mixed.
    """
    groups: dict[str, dict[str, tuple[str, ...]]] = {}
    programs: dict[str, tuple[dict[str, Any], Evidence | None]] = {}
    for finding in findings:
        if own := _supported_program(finding):
            hypothesis, agreement = own
            document = to_document(hypothesis.program)
            key = json.dumps(document, sort_keys=True)
            name = finding.trace.component
            groups.setdefault(key, {})[name] = hypothesis.carried_by(name)
            programs[key] = document, agreement
    if not groups:
        return None, None
    best = max(reversed(groups), key=lambda key: len(groups[key]))
    document, agreement = programs[best]
    return Executable(program=document, carriers=groups[best]), agreement
