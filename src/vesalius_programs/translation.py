"""The scientist's program in RASP: the document that is shown, run and graded, with names for its tables and itself.

`naming` has the rules of naming.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from vesalius.documents.explanation import ClaimRecord, Executable, NamedOperation
from vesalius.explanations.claims.moved import FIXED
from vesalius.model.specimen import FiniteVocabulary, json_value
from vesalius.rasp import Program as RaspProgram
from vesalius.rasp import SelectorWidth, Variable
from vesalius.rasp.document import to_document
from vesalius.rasp.language import Value
from vesalius.rasp.placement import head_name
from vesalius_programs.draft import LENGTH, Draft
from vesalius_programs.gathering import Copy
from vesalius_programs.naming import Operation, SequenceTask, name_sequence_task
from vesalius_programs.naming.table import MOST_ENTRIES, Labels, Same, Scaled, Standing
from vesalius_programs.program import (
    INDICES,
    TOKENS,
    CircuitProgram,
    Hypothesis,
    Linear,
    OutputMap,
    Table,
    scale_of,
)
from vesalius_programs.runs import Sequences

NAME = "circuit"


@dataclass(frozen=True)
class Translation:
    """A compiled program and the variables each component carries; components without a variable are left out. `open`
    counts, for a table with arguments that were never seen, these and all there are: the program leaves them open, and
    gives the word `unseen` there. `none_is_said` where None is among the model's answers.
    """

    program: RaspProgram
    carriers: dict[str, tuple[str, ...]]
    open: dict[str, tuple[int, int]]
    unseen: str
    none_is_said: bool

    def executable(self) -> Executable:
        """The same as plain data."""
        return Executable(program=to_document(self.program), carriers=self.carriers)


def translate(program: CircuitProgram, vocabulary: FiniteVocabulary) -> Translation:
    """The program in RASP. BadInput where RASP cannot say it: too many values, or a causal model that is said to know
    the length.
    """
    numerical = _numerical(program)
    draft = Draft(
        vocabulary.tokens,
        vocabulary.max_len,
        causal=program.causal,
        numerical=numerical,
        outputs=vocabulary.outputs or (),
    )
    carriers: dict[str, tuple[str, ...]] = {}
    left_open: dict[str, tuple[int, int]] = {}
    for component, hypothesis in program.variables.items():
        if hypothesis.family == "nothing":
            continue
        name = str(component)
        coded = draft.variables[name] = hypothesis.define(draft, name)
        if isinstance(hypothesis, Table) and (unseen := draft.unlisted(hypothesis.reads, hypothesis.codes)):
            left_open[name] = unseen, draft.combinations(hypothesis.reads)
        carriers[name] = (head_name(name) if isinstance(coded.variable, SelectorWidth) else name,)
    assert program.output is not None
    output = _output(draft, program.output, vocabulary.outputs)
    compiled = draft.compile(output, carriers, name=NAME)
    return Translation(compiled, carriers, left_open, draft.unseen, None in (vocabulary.outputs or ()))


def _output(draft: Draft, output: OutputMap, outputs: tuple[Value, ...] | None) -> Variable:
    if output.line is not None:
        return draft.line(output.reads[0], output.line.factor, output.line.offset, scale=output.line.scale)

    def answer(value: float) -> Value:
        return value if outputs is None else outputs[int(value)]

    table = {key: answer(value) for key, value in output.table.items()}
    return draft.output_table(output.reads, table)


def _numerical(program: CircuitProgram) -> set[str]:
    """Shares and sums of shares that only sums and a straight-line output read: RASP's numerical variables."""
    by_name = {str(component): variable for component, variable in program.variables.items()}
    shares = {name for name, variable in by_name.items() if variable.family in ("mean", "linear")}
    sums = {name for name in shares if isinstance(by_name[name], Linear) and shares.issuperset(by_name[name].reads)}
    output, numerical = program.output, set()
    for name in reversed(by_name) if program.numeric else ():
        if not (by_name[name].family == "mean" or name in sums):
            continue
        readers = {reader for reader, variable in by_name.items() if name in variable.reads}
        on_a_line = output is None or name not in output.reads or output.line is not None
        if on_a_line and readers <= sums & numerical:
            numerical.add(name)
    return numerical


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
    return Same() if variable.family in ("count", "sum") else Labels()


def _name_route(name: str, copy: Copy, standing: Standing) -> None:
    """Name the table of positions that a head looks up, where it has a name."""
    steered = replace(standing, values={**standing.values, LENGTH: Same()})
    positions: dict[tuple[int, ...], int] = {
        (value,) if copy.anywhere else (place, value): to for (place, value), to in copy.table.items()
    }
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
