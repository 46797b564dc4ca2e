"""What a study found about each component, and the explanation that it makes: valid whatever an agent said.

A `Finding` rests on claims that the engine decided. Words and tags of an agent stand beside them: a tag that follows
from a supported program by rule goes before the one that the agent chose.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from vesalius.components import Component
from vesalius.documents.explanation import (
    ClaimRecord,
    ComponentExplanation,
    Evidence,
    Executable,
    Explanation,
    Tag,
    Verdict,
)
from vesalius.documents.trace import Attempt, ComponentTrace
from vesalius.explanations.claims import Aggregates, Claim, Computes, Hypothesis, check
from vesalius.explanations.claims.interchange import AGREEMENT
from vesalius.explanations.hyve.operations import operation_of
from vesalius.explanations.laboratory import Lab
from vesalius.explanations.verdicts import FUNCTIONAL, FUNCTIONAL_NATURAL, record_text, verdict_of
from vesalius.rasp import Program
from vesalius.rasp.document import to_document
from vesalius.rasp.program import role_of_carrier
from vesalius.rasp.text import render, render_variables

NO_SUMMARY = "The language model gave no readable summary."
NOTHING_SAID = "(nothing was said about this component)"
NO_HYPOTHESIS = "(no readable hypothesis was given)"
NOT_CLASSIFIED = "The language model gave this component no tag."
Checked = tuple[Claim, ClaimRecord]


class Said(BaseModel):
    """What an agent says of a component in the end."""

    tag: Tag | None = None
    description: str


@dataclass(frozen=True)
class Account:
    """What an agent says of the whole: of each component by name, how information flows, and what the task is."""

    components: Mapping[str, Said]
    information_flow: str = NO_SUMMARY
    task_description: str = NO_SUMMARY


@dataclass(frozen=True)
class Finding:
    """What is left of a component when it was studied. `checked` are the claims that the verdict rests on."""

    trace: ComponentTrace
    verdict: Verdict
    claims: tuple[ClaimRecord, ...]
    checked: tuple[Checked, ...]

    @property
    def hypothesis(self) -> str:
        """The last hypothesis that could be read."""
        stated = [attempt.hypothesis for attempt in self.trace.attempts if attempt.hypothesis]
        return stated[-1] if stated else NO_HYPOTHESIS

    @property
    def program(self) -> dict[str, Any] | None:
        """The program and carriers, as the agent wrote them, that a supported claim rests on."""
        for attempt in reversed(self.trace.attempts):
            for given in reversed(attempt.claims):
                if given.get("verdict") == "supported" and "carriers" in given:
                    return {"program": given.get("program"), "carriers": given["carriers"]}
        return None

    @property
    def own_program(self) -> tuple[Hypothesis, Evidence | None] | None:
        """The last program that a supported claim says this component carries variables of, and its agreement."""
        if self.verdict != "supported":
            return None
        for claim, record in reversed(self.checked):
            if isinstance(claim, Computes | Aggregates) and record.verdict == "supported":
                agreement = next((one for one in record.evidence if one.measure == AGREEMENT), None)
                return claim.hypothesis, agreement
        return None

    @property
    def tag(self) -> Tag | None:
        """The role, by the rule of the roles, of what the component was shown to carry."""
        if self.own_program is None:
            return None
        name, hypothesis = self.trace.component, self.own_program[0]
        role = role_of_carrier(hypothesis.program, hypothesis.carried_by(name), is_head=Component.parse(name).is_head)
        return None if role is None else role.value

    @property
    def established(self) -> str:
        """What supported claims, as they were tested, say; empty where the model judged itself."""
        checked = [
            record
            for _, record in self.checked
            if record.kind in FUNCTIONAL | FUNCTIONAL_NATURAL and record.verdict == "supported"
        ]
        return " ".join(dict.fromkeys(record.text for record in checked)) if self.verdict == "supported" else ""


def finding_of(component: Component, checked: Sequence[Checked]) -> Finding:
    """What claims about a component say, for agents that state no hypotheses: those that hold or are open are what it
    rests on, those refuted are attempts that lost.
    """
    own = [(claim, record) for claim, record in checked if claim.part == component]
    lost = [record for _, record in own if record.verdict == "refuted"]
    kept = [(claim, record) for claim, record in own if record.verdict != "refuted"]
    records = tuple(record for _, record in kept)
    attempts = tuple(
        Attempt(
            iteration=number,
            hypothesis=record.text,
            claims=({"kind": record.kind, "verdict": record.verdict},),
            verdict=record.verdict,
            reasoning=record_text(record),
            decided_by="engine",
        )
        for number, record in enumerate(lost, 1)
    )
    verdict = verdict_of(records)
    return Finding(
        ComponentTrace(component=str(component), observation="", attempts=attempts),
        "refuted" if verdict == "untested" and lost else verdict,
        records,
        tuple(kept),
    )


def explanation_of(
    findings: Sequence[Finding],
    said: Account,
    lab: Callable[[], Lab],
    *,
    specimen: str,
    seed: int,
    cost: float,
    seconds: float,
) -> Explanation:
    """The explanation that a study ended with; the laboratory checks who carries what in the final program."""
    executable, agreement = shared_program(findings, lab)
    return Explanation(
        specimen=specimen,
        scientist="hyve",
        components=tuple(component_explanation(finding, said.components, lab) for finding in findings),
        information_flow=said.information_flow,
        task_description=said.task_description,
        program=render(executable.program) if executable else None,
        executable=executable,
        program_agreement=agreement,
        cost=cost,
        seconds=seconds,
        seed=seed,
    )


def component_explanation(finding: Finding, said: Mapping[str, Said], lab: Callable[[], Lab]) -> ComponentExplanation:
    """One component as it was found, with what the agent says of it."""
    name = finding.trace.component
    words = said.get(name)
    own = finding.own_program
    by_model = words.tag if words else None
    by_experiment = finding.tag
    return ComponentExplanation(
        id=name,
        tag=by_experiment or by_model,
        tag_by_experiment=by_experiment,
        tag_by_model=by_model,
        note=_note(finding, words),
        verdict=finding.verdict,
        program=_program(own[0], name) if own else None,
        claims=finding.claims,
        refuted=tuple(lost_attempt(attempt) for attempt in finding.trace.attempts if attempt.verdict != "supported"),
        operation=operation_of(own[0], name, finding.claims, lab()) if own else None,
    )


def _note(finding: Finding, words: Said | None) -> str:
    """What the engine established, then what the agent says, which may be more than was tested."""
    said = words.description if words else f"{finding.hypothesis} ({NOT_CLASSIFIED})"
    if finding.verdict != "supported":
        return f"{said} (Tentative: no hypothesis was supported.)"
    return f"Established: {finding.established} In the model's words: {said}" if finding.established else said


def _program(hypothesis: Hypothesis, name: str) -> str:
    """The lines of the component's variables, from the program it was shown to carry them in."""
    carried = hypothesis.carried_by(name)
    others = [variable for other in hypothesis.carriers.values() for variable in other if variable not in carried]
    return render_variables(to_document(hypothesis.program), carried, given=others)


def lost_attempt(attempt: Attempt) -> dict[str, Any]:
    """A hypothesis that was not supported, as an explanation keeps it, with how its claims were decided."""
    claims = Counter(str(given["verdict"]) for given in attempt.claims if "verdict" in given)
    return {
        "hypothesis": attempt.hypothesis or "(not readable)",
        "verdict": attempt.verdict,
        "against": attempt.reasoning,
        "decided_by": attempt.decided_by,
        **({"claims": dict(claims)} if claims else {}),
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
