"""Names for the tables of a found program, and for the program as a whole.

Tables hold codes; names speak of values. The codes of tokens, positions, counts, shares and copies stand for values.
Those of a table stand for the values of its own name where it has one, for labels otherwise: classes are never ordered
or added up.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from vesalius.explanations.scientist.assemble import Program
from vesalius.explanations.scientist.gathering import Copy
from vesalius.explanations.scientist.inputs import Sequences
from vesalius.explanations.scientist.variables import INDICES, TOKENS, Hypothesis, Table, scale_of
from vesalius.model.specimen import FiniteVocabulary
from vesalius.rasp.draft import LENGTH, UNDEFINED
from vesalius.rasp.naming import Label, Operation, SequenceTask, name_sequence_task, name_table
from vesalius.rasp.naming.operation import compiled, evaluate

#: Larger tables are shown, not named: the search for a name would take longer than the explanation.
MOST_ENTRIES = 3000
_PASSED_ON = ("copy", "gated", "match", "extreme")


@dataclass(frozen=True)
class _Named:
    """The operation of every table that has a name (for a head: of the positions it looks up), and what the codes of
    each variable stand for.
    """

    operations: dict[str, Operation]
    values: dict[str, Mapping[int, Any]]


def name_tables(program: Program, vocabulary: FiniteVocabulary, seen: Sequences) -> dict[str, Operation]:
    """Name the tables of a program; `seen` are inputs whose arguments count as legal."""
    variables = {str(component): variable for component, variable in program.variables.items()}
    env = program.environment(seen)
    named = _Named({}, {TOKENS: dict(enumerate(vocabulary.tokens)), INDICES: _Same()})
    for name, variable in variables.items():
        if isinstance(variable, Table):
            if not any(read not in named.values for read in variable.reads) and len(variable.codes) <= MOST_ENTRIES:
                stacked = torch.stack([env[read][env.real] for read in variable.reads], -1)
                occurring = [tuple(row) for row in stacked.unique(dim=0).tolist()]
                _name(name, variable, named, occurring, _output_values(program, vocabulary, name))
            named.values.setdefault(name, _Labels())
            continue
        named.values[name] = _values_of(variable, named)
        if isinstance(variable, Copy) and variable.by is not None:
            _name_route(name, variable, named)
    return named.operations


class _Same(dict[int, Any]):
    """Codes that are their own values."""

    def __missing__(self, code: int) -> int:
        return code


class _Labels(dict[int, Any]):
    """Codes that are only labels."""

    def __missing__(self, code: int) -> Label:
        return Label(code)


class _Scaled(dict[int, Any]):
    """Codes that are values times a scale."""

    def __init__(self, scale: int) -> None:
        super().__init__()
        self.scale = scale

    def __missing__(self, code: int) -> float:
        return code / self.scale


def _values_of(variable: Hypothesis, named: _Named) -> Mapping[int, Any]:
    if variable.family in _PASSED_ON:
        return named.values.get(str(getattr(variable, "of", TOKENS)), _Labels())
    if variable.family in ("mean", "linear"):
        return _Scaled(scale_of(variable))
    return _Same() if variable.family == "count" else _Labels()


def _key(reads: Sequence[str], codes: Sequence[int], named: _Named) -> tuple[Any, ...]:
    return tuple(
        None if code == UNDEFINED else named.values[read][code] for read, code in zip(reads, codes, strict=True)
    )


def _name(
    name: str, table: Table, named: _Named, occurring: list[tuple[int, ...]], outputs: dict[Hashable, Any] | None
) -> None:
    """Name one table; its codes then stand for the values of the name."""
    entries: dict[tuple[Any, ...], int] = {}
    for codes, label in table.codes.items():
        if entries.setdefault(_key(table.reads, codes, named), label) != label:
            return  # two codes with the same value
    legal = [_key(table.reads, codes, named) for codes in occurring]
    known = outputs if outputs is not None and set(entries.values()) <= set(outputs) else None
    operation = name_table(entries, values=known, legal=legal)
    if operation is None:
        return
    named.operations[name] = operation
    function = compiled(operation.formula, len(table.reads))
    values: dict[int, Any] = {}
    for key, label in entries.items():
        if None not in key:
            values[label] = evaluate(function, key)
        elif operation.undefined == "apart":
            values[label] = None
    named.values[name] = _Labels(values)


def _name_route(name: str, copy: Copy, named: _Named) -> None:
    """Name the table of positions that a head looks up, where it has a name."""
    steering = _Same() if copy.by == LENGTH else named.values[str(copy.by)]
    entries = {
        (steering[value],) if copy.anywhere else (place, steering[value]): to
        for (place, value), to in copy.table.items()
        if value != UNDEFINED
    }
    operation = name_table(entries, values={to: to for to in entries.values()})
    if operation is not None and operation.exact == "values":
        named.operations[name] = operation


def operation_reads(variable: Hypothesis) -> tuple[str, ...]:
    """The arguments of a variable's operation: what a table reads, or what steers a head."""
    if isinstance(variable, Copy) and variable.by is not None:
        return (variable.by,) if variable.anywhere else (INDICES, variable.by)
    return variable.reads


def _output_values(program: Program, vocabulary: FiniteVocabulary, name: str) -> dict[Hashable, Any] | None:
    """What each class of the variable stands for, where the output is read off it alone and outputs are listed."""
    output = program.output
    if output is None or vocabulary.outputs is None or output.reads != (name,):
        return None
    return {codes[0]: vocabulary.outputs[int(value)] for codes, value in output.table.items()}


def name_task(program: Program, vocabulary: FiniteVocabulary, seen: Sequences) -> SequenceTask | None:
    """The task the program does on these inputs, where it has a name."""
    if program.output is None:
        return None
    predicted = program.predict(program.environment(seen)).tolist()
    pairs = []
    for codes, outputs, real in zip(seen.codes.tolist(), predicted, seen.real.tolist(), strict=True):
        length = sum(real)
        tokens = [vocabulary.tokens[code] for code in codes[:length]]
        listed = vocabulary.outputs
        pairs.append((tokens, [value if listed is None else listed[int(value)] for value in outputs[:length]]))
    return name_sequence_task(pairs, causal=program.causal)
