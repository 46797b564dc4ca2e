"""The name of what a component does, from the program it was shown to carry a variable of.

The rule is that of the built-in scientist (`rasp.naming.standing`): an interchange shows which arguments count alike,
not what a value is called, so the values that a language model wrote down are labels. Only tokens, positions, counts
and what is copied from them stand for themselves, and the variable that the output is read off stands for the output.
A table is made of the arguments that occur on held-out inputs; operators in between that no component carries belong
to it.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from vesalius.documents.explanation import ClaimRecord, NamedOperation
from vesalius.explanations.claims import Hypothesis
from vesalius.explanations.laboratory import CircuitLab, Lab
from vesalius.explanations.scientist.operations import recorded_operation
from vesalius.explanations.scientist.variables import plain_name
from vesalius.rasp import Aggregate, Map, SelectorWidth, SequenceMap, indices, tokens
from vesalius.rasp.draft import UNDEFINED
from vesalius.rasp.language import Variable
from vesalius.rasp.naming.table import Codes, Labels, Same, Standing


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
