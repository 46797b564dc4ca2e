"""What was found, put as typed claims and handed to the laboratory.

The search chose its hypotheses on its own inputs; verdicts come from here only, on inputs that the search has not used,
by the rules of `explanations.claims`. Every component gets the claims its note rests on: whether it matters at all,
what it computes, and what follows from the kind of variable it carries, such as where a head reads or which variables
an MLP does not see.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from vesalius.components import Component
from vesalius.documents.explanation import ClaimRecord
from vesalius.explanations.claims import (
    Aggregates,
    Claim,
    Combines,
    Computes,
    Copies,
    DependsOnlyOn,
    IndependentOf,
    Necessary,
    ReadsFrom,
    check,
    worded,
)
from vesalius.explanations.claims import Hypothesis as ClaimedProgram
from vesalius.explanations.laboratory import CircuitLab
from vesalius.explanations.scientist.classify import Facts
from vesalius.explanations.scientist.executable import Translation
from vesalius.explanations.scientist.gathering import Copy, Mean
from vesalius.explanations.scientist.variables import INDICES, TOKENS, Hypothesis
from vesalius.explanations.scientist.words import Names

#: Routes that are one step for every position, by how far before the query the key stands.
_OFFSETS = {"self": 0, "previous": 1, "previous_but_one": 2, "next": -1, "next_but_one": -2}


@dataclass(frozen=True)
class ClaimJudge:
    """The laboratory, the program on trial, and how many hypotheses were tried on each component before it."""

    lab: CircuitLab
    translation: Translation | None
    facts: Facts
    tried: dict[Component, int]
    names: Names

    def records(self, component: Component) -> tuple[ClaimRecord, ...]:
        """Every claim about a component with its verdict; what it computes comes first, where anything was found."""
        variable = self.facts.variable(component)
        records: list[ClaimRecord] = []
        if self.translation is not None and str(component) in self.translation.carriers:
            for claim in self._about_variable(component, variable, self.translation):
                is_program = isinstance(claim, Computes | Aggregates | Copies)
                tried = max(1, self.tried[component]) if is_program else 1
                record = check(claim, self.lab, tried=tried, carriers=self.translation.carriers)
                records.append(self._worded(record, component, claim))
        return (*records, check(Necessary(component=str(component)), self.lab))

    def _about_variable(self, component: Component, variable: Hypothesis, translation: Translation) -> Iterator[Claim]:
        name = str(component)
        whole = ClaimedProgram(program=translation.program, carriers=translation.carriers)
        yield Computes(component=name, hypothesis=whole)
        if component.is_head:
            yield from _about_head(name, variable, whole)
            return
        reads, carried = variable.reads, translation.carriers[name]
        others = tuple(read for read in reads if read != INDICES)
        if others:  # what depends on the position alone never differs in a swap; the moved output decides `computes`
            yield DependsOnlyOn(component=name, program=translation.program, variables=reads, carried=carried)
        if len(reads) == 2:
            pair = reads[0], reads[1]
            yield Combines(
                component=name,
                program=translation.program,
                variables=pair,
                carried=carried,
                carriers=translation.carriers,
            )
        if TOKENS not in reads and others:
            yield IndependentOf(component=name, program=translation.program, variable=TOKENS, given=others)

    def _worded(self, record: ClaimRecord, component: Component, claim: Claim) -> ClaimRecord:
        """The record with its sentence in the scientist's words, where the claim can only name variables."""
        words = self.names.words(str(component))
        if isinstance(claim, Computes):
            text = f"{component} computes {words}."
        elif isinstance(claim, DependsOnlyOn) and claim.variables == (str(component),):
            text = f"{component} depends on nothing but {words}."
        else:
            return record
        return record.model_copy(update={"text": worded(text, record.verdict, record.evidence)})


def _about_head(name: str, variable: Hypothesis, whole: ClaimedProgram) -> Iterator[Claim]:
    """Where it reads and what it brings for a fixed route; otherwise that the gathered value is all it stands for."""
    program = whole.program
    if isinstance(variable, Copy) and variable.by is None and (variable.route in _OFFSETS or variable.route == "first"):
        offset = _OFFSETS.get(variable.route)
        position = 0 if offset is None else None
        yield ReadsFrom(component=name, offset=offset, position=position)
        yield Copies(
            component=name,
            program=program,
            variable=variable.of,
            offset=offset,
            position=position,
            carried=whole.carried_by(name),
        )
    elif isinstance(variable, Mean) and not _is_numerical(whole, name):
        # Written as a table of two counts, so there is no one Aggregate to name.
        yield DependsOnlyOn(component=name, program=program, variables=(name,), carried=whole.carried_by(name))
    else:
        yield Aggregates(component=name, hypothesis=whole)


def _is_numerical(whole: ClaimedProgram, name: str) -> bool:
    placed = (part for part in whole.program.components if name in part.variables)
    return any(node.numerical for part in placed for node in part.expressions if whole.program.name_of(node) == name)
