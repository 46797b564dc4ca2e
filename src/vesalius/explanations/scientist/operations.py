"""Names for the tables of a found program, and for the program as a whole (`rasp.naming` has the rules)."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from vesalius.documents.explanation import ClaimRecord, NamedOperation
from vesalius.explanations.claims.moved import FIXED
from vesalius.explanations.scientist.assemble import CircuitProgram
from vesalius.explanations.scientist.gathering import Copy
from vesalius.explanations.scientist.inputs import Sequences
from vesalius.explanations.scientist.variables import INDICES, TOKENS, Hypothesis, Table, scale_of
from vesalius.model.specimen import FiniteVocabulary, json_value
from vesalius.rasp.draft import LENGTH
from vesalius.rasp.naming import Operation, SequenceTask, name_sequence_task
from vesalius.rasp.naming.table import MOST_ENTRIES, Labels, Same, Scaled, Standing

_PASSED_ON = ("copy", "gated", "match", "extreme")


def name_tables(program: CircuitProgram, vocabulary: FiniteVocabulary, seen: Sequences) -> dict[str, Operation]:
    """Name the tables of a program; `seen` are inputs whose arguments count as legal."""
    variables = {str(component): variable for component, variable in program.variables.items()}
    env = program.environment(seen)
    standing = Standing({}, {TOKENS: dict(enumerate(vocabulary.tokens)), INDICES: Same()})
    for name, variable in variables.items():
        if isinstance(variable, Table):
            occurring: list[tuple[int, ...]] = []
            if len(variable.codes) <= MOST_ENTRIES:
                stacked = torch.stack([env[read][env.real] for read in variable.reads], -1)
                occurring = [tuple(row) for row in stacked.unique(dim=0).tolist()]
            outputs = _output_values(program, vocabulary, name)
            standing.name(name, variable.reads, variable.codes, occurring=occurring, outputs=outputs)
            continue
        standing.values[name] = _values_of(variable, standing)
        if isinstance(variable, Copy) and variable.by is not None:
            _name_route(name, variable, standing)
    return standing.operations


def _values_of(variable: Hypothesis, standing: Standing) -> Mapping[int, Any]:
    if variable.family in _PASSED_ON:
        return standing.values.get(str(getattr(variable, "of", TOKENS)), Labels())
    if variable.family in ("mean", "linear"):
        return Scaled(scale_of(variable))
    return Same() if variable.family == "count" else Labels()


def _name_route(name: str, copy: Copy, standing: Standing) -> None:
    """Name the table of positions that a head looks up, where it has a name."""
    steered = replace(standing, values={**standing.values, LENGTH: Same()})
    positions = {(value,) if copy.anywhere else (place, value): to for (place, value), to in copy.table.items()}
    steered.name_route(name, operation_reads(copy), positions)


def operation_reads(variable: Hypothesis) -> tuple[str, ...]:
    """The arguments of a variable's operation: what a table reads, or what steers a head."""
    if isinstance(variable, Copy) and variable.by is not None:
        return (variable.by,) if variable.anywhere else (INDICES, variable.by)
    return variable.reads


def _output_values(program: CircuitProgram, vocabulary: FiniteVocabulary, name: str) -> dict[Hashable, Any] | None:
    """What each class of the variable stands for, where the output is read off it alone and outputs are listed."""
    output = program.output
    if output is None or vocabulary.outputs is None or output.reads != (name,):
        return None
    return {codes[0]: vocabulary.outputs[int(value)] for codes, value in output.table.items()}


def name_task(program: CircuitProgram, vocabulary: FiniteVocabulary, seen: Sequences) -> SequenceTask | None:
    """The task the program does on these inputs, where it has a name."""
    if program.output is None:
        return None
    predicted = program.predict(program.environment(seen)).tolist()
    pairs = []
    for codes, outputs, real in zip(seen.codes.tolist(), predicted, seen.real.tolist(), strict=True):
        length = sum(real)
        tokens = [vocabulary.tokens[code] for code in codes[:length]]
        output_tokens = vocabulary.outputs
        pairs.append(
            (tokens, [value if output_tokens is None else output_tokens[int(value)] for value in outputs[:length]])
        )
    return name_sequence_task(pairs, causal=program.causal)


def recorded_operation(
    operation: Operation, *, text: str, arguments: Sequence[str], claims: Sequence[ClaimRecord]
) -> NamedOperation:
    """An operation's record; `claims` are those about the component, which say whether its output was moved."""
    return NamedOperation(
        operation=operation.operation,
        text=text,
        formula=operation.formula,
        arguments=tuple(arguments),
        exact=operation.exact,
        entries=operation.entries,
        undefined=operation.undefined,
        otherwise=json_value(operation.otherwise),
        at_own_position=any(claim.kind == "computes" and claim.text.startswith(FIXED) for claim in claims),
    )
