"""What a study found about each component, and the explanation that it makes: valid whatever an agent said.

A `Finding` rests on claims that the engine decided. Words and tags of an agent stand beside them: a tag that follows
from a supported program by rule goes before the one that the agent chose.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import BaseModel

from vesalius.components import Component
from vesalius.documents.explanation import (
    ClaimRecord,
    ComponentExplanation,
    Evidence,
    Executable,
    Explanation,
    NamedOperation,
    Tag,
    Verdict,
)
from vesalius.documents.trace import Attempt, ComponentTrace
from vesalius.explanations.claims import Aggregates, Claim, Computes, Hypothesis, check
from vesalius.explanations.claims.interchange import AGREEMENT
from vesalius.explanations.laboratory import CircuitLab, Lab
from vesalius.explanations.verdicts import FUNCTIONAL, FUNCTIONAL_NATURAL, record_text, verdict_of
from vesalius.rasp import Aggregate, Map, Program, SelectorWidth, SequenceMap, indices, tokens
from vesalius.rasp.document import to_document
from vesalius.rasp.language import Variable
from vesalius.rasp.program import role_of_carrier
from vesalius.rasp.text import render, render_variables
from vesalius_programs.draft import UNDEFINED
from vesalius_programs.naming.table import Codes, Labels, Same, Standing
from vesalius_programs.program import plain_name
from vesalius_programs.translation import recorded_operation

# The name of what a component does, from the program it was shown to carry a variable of.
#
# The rule is that of the built-in scientist (`vesalius_programs.naming`): an interchange shows which arguments count
# alike, not what a value is called, so what a language model wrote down are labels. Only tokens, positions, counts
# and what is copied from them stand for themselves, and the variable that the output is read off stands for the output.
# A table is made of the arguments that occur on held-out inputs; operators in between that no component carries belong
# to it.


def operation_of(hypothesis: Hypothesis, name: str, claims: tuple[ClaimRecord, ...], lab: Lab) -> NamedOperation | None:
    """The operation of the one variable that a component carries, where it is a table, or a head steered by one, and
    has a name.
    """
    carried = hypothesis.carried_by(name)
    naming = _Naming(hypothesis, CircuitLab.require(lab, "computes"))
    operation = naming.standing.operations.get(carried[0]) if len(carried) == 1 else None
    if operation is None:
        return None
    node = naming.nodes[carried[0]]
    arguments = [naming.carrier(read) for read in naming.reads(node)]
    text = operation.text([plain_name(argument) for argument in arguments])
    if isinstance(node, Aggregate):
        of = naming.carrier(hypothesis.program.name_of(node.values))
        text = f"{plain_name(of)} at the position that is {text}"
    return recorded_operation(operation, text=text, arguments=arguments, claims=claims)


class _Naming:
    """The variables of a hypothesis on the laboratory's inputs, and the names of those that some component carries."""

    def __init__(self, hypothesis: Hypothesis, lab: CircuitLab) -> None:
        self.program, self._lab = hypothesis.program, lab
        self._carriers = {variable: name for name, carried in hypothesis.carriers.items() for variable in carried}
        self._several = {name for name, carried in hypothesis.carriers.items() if len(carried) > 1}
        self.nodes = {
            self.program.name_of(node): node for node in self.program.expressions if isinstance(node, Variable)
        }

    def carrier(self, variable: str) -> str:
        """The component that carries a variable and no other, or else the variable's own name."""
        component = self._carriers.get(variable, variable)
        return variable if component in self._several else component

    def reads(self, node: Variable) -> tuple[str, ...]:
        """The arguments of a table, or of the table of positions by which a head finds its value."""
        if isinstance(node, Aggregate):
            return (self.program.name_of(node.selector.queries),)
        return tuple(dict.fromkeys(self.program.name_of(read) for read in self._arguments(node)))

    def _arguments(self, node: Variable) -> Iterator[Variable]:
        """The nearest variables below a table that are inputs, carried, or no tables."""
        for operand in node.inputs:
            assert isinstance(operand, Variable)
            if isinstance(operand, Map | SequenceMap) and self.program.name_of(operand) not in self._carriers:
                yield from self._arguments(operand)
            else:
                yield operand

    @cached_property
    def standing(self) -> Standing:
        """Every carried table and steered head with its name, in the program's order."""
        standing_now = Standing({}, {"tokens": dict(enumerate(self.program.vocab)), "indices": Same()})
        for name, node in self.nodes.items():
            if isinstance(node, Map | SequenceMap):
                if name in self._carriers and not any(self.nodes[read].numerical for read in self.reads(node)):
                    standing_now.name(name, self.reads(node), self._table(node), outputs=self._output_values(name))
            elif isinstance(node, SelectorWidth):
                standing_now.values[name] = Same()
            elif isinstance(node, Aggregate) and not node.numerical:
                standing_now.values[name] = self._passed_on(node, standing_now)
                if name in self._carriers and (positions := self._route(node)) is not None:
                    standing_now.name_route(name, self.reads(node), positions)
        return standing_now

    def _column(self, name: str) -> list[int]:
        """The codes of a variable at every position of the held-out inputs."""
        undefined = self.program.tables.domains[self.nodes[name]].size
        codes: list[int] = []
        for trace in self._lab.traces(self.program):
            codes += trace.values[name][trace.tokens >= 0].tolist()
        return [UNDEFINED if code == undefined else code for code in codes]

    def _table(self, node: Variable) -> dict[Codes, int]:
        columns = [self._column(read) for read in self.reads(node)]
        return dict(zip(zip(*columns, strict=True), self._column(self.program.name_of(node)), strict=True))

    def _output_values(self, name: str) -> dict[Any, Any] | None:
        """What each code of a variable stands for, where the output is that variable or read off it alone."""
        output = self.program.output
        if output.numerical or self._lab.numerical:
            return None
        if self.program.name_of(output) != name:
            if not isinstance(output, Map | SequenceMap) or self.program.name_of(output) in self._carriers:
                return None
            if self.reads(output) != (name,):
                return None
        output_values = (*self.program.tables.domains[output].values, None)
        shown = [output_values[code] for code in self._column(self.program.name_of(output))]
        return dict(zip(self._column(name), shown, strict=True))

    def _passed_on(self, node: Aggregate, found: Standing) -> Mapping[int, Any]:
        """The values of a copy are those of what is copied; a default that is none of them is a label."""
        of = self.program.tables.domains[node.values]
        standing = found.values.get(self.program.name_of(node.values))
        values = self.program.tables.domains[node].values
        known = {code: place for code, value in enumerate(values) if (place := of.code_of(value)) is not None}
        return Labels() if standing is None else Labels({code: standing[place] for code, place in known.items()})

    def _route(self, node: Aggregate) -> dict[Codes, int] | None:
        """The one position that each value of the query selects; None where the head finds its keys otherwise."""
        selector = node.selector
        if selector.keys is not indices or selector.queries in (indices, tokens) or selector.queries.numerical:
            return None
        selected = self.program.tables.selected[selector]
        positions: dict[Codes, int] = {}
        for query in set(self._column(self.program.name_of(selector.queries))) - {UNDEFINED}:
            keys = selected[: self.program.max_len, query].nonzero()[0]
            if len(keys) > 1:
                return None
            if len(keys):
                positions[query,] = int(keys[0])
        return positions or None


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
class Statement:
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
        "refuted" if verdict != "supported" and lost else verdict,
        records,
        tuple(kept),
    )


def explanation_of(
    findings: Sequence[Finding],
    said: Statement,
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
