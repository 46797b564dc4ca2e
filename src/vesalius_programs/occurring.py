"""Which values of a program's variables occur together on any input, and which heads gather the same.

A search sees arguments that no input has: a count exchanged for that of another input may be larger than the sequence
is long. What a table gives there is no part of what a program computes of its inputs, and hides its name.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import product

import torch
from jaxtyping import Int
from torch import Tensor

from vesalius.rasp.language import Aggregate, Expression, Map, SelectorWidth, Value, Variable, apply
from vesalius.rasp.program import Program

#: Programs with more inputs than this are not run on all of them.
MOST_INPUTS = 50_000
#: Maps of more values are not compared.
MOST_VALUES = 200


class Occurring:
    """A program run on every input that there is; where there are too many, anything may occur."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def together(self, variables: Sequence[Variable]) -> set[tuple[Value, ...]] | None:
        """The values that these variables have at one position of some input; None where it is not known."""
        if self._values is None or any(variable.numerical for variable in variables):
            return None
        columns = [self._values[self.program.name_of(variable)] for variable in variables]
        lists = [self.program.value_list(variable) for variable in variables]
        codes = torch.stack(columns, -1).unique(dim=0).tolist()
        return {tuple(values[code] for values, code in zip(lists, row, strict=True)) for row in codes}

    @cached_property
    def _values(self) -> Mapping[str, Int[Tensor, " place"]] | None:
        program = self.program
        n_tokens = len(program.vocab)
        # What a causal program computes so far does not hang on what comes after.
        lengths = [program.max_len] if program.causal else list(range(1, program.max_len + 1))
        if sum(n_tokens**length for length in lengths) > MOST_INPUTS:
            return None
        rows = [row for length in lengths for row in product(range(n_tokens), repeat=length)]
        sizes = torch.tensor([len(row) for row in rows])
        tokens = torch.tensor([[*row, *[-1] * (program.max_len - len(row))] for row in rows])
        real = tokens >= 0
        return {name: value[real] for name, value in program.run(tokens, sizes).values.items()}


def same_heads(program: Program) -> dict[Expression, Expression]:
    """For every variable the first one that gathers the same value from the same positions; most are their own."""
    first: dict[tuple[object, ...], Expression] = {}
    same: dict[Expression, Expression] = {}
    for node in program.expressions:
        key: tuple[object, ...] = (node,)
        if isinstance(node, Map) and len(values := program.tables.domains[node.x].values) <= MOST_VALUES:
            key = "map", same[node.x], tuple(repr(apply(node.function, value)) for value in values)
        elif isinstance(node, Aggregate | SelectorWidth):
            select = node.selector
            key = same[select.keys], same[select.queries], program.tables.selected[select].tobytes()
            if isinstance(node, Aggregate):
                key = *key, same[node.values], repr(node.default), node.numerical
        same[node] = first.setdefault(key, node)
    return same
