"""Components whose tag the published rule leaves open: the second tag by which a program of the same values is tagged.

The rule tags a component by how its program is written: a table of two variables combines, a table of one maps, a head
that selects by position routes. The same values can often be computed by another program, in which a component has
another tag, and then no experiment decides between the two:

- a table of two variables that are both made of one value at the same position is a table of that value;
- where a table takes the position in beside one value, the position may have come in at the table below it instead;
- an MLP that holds one table for each of two heads is a table of both;
- a head that hands a value on in place selects by position as well as by value.

`second_roles` lists these components. All others have one reading.
"""

from collections.abc import Iterable

from vesalius.components import Component
from vesalius.rasp.language import Aggregate, Expression, SelectorWidth, Variable, indices
from vesalius.rasp.program import Program, Role, roles_of


def second_roles(program: Program) -> dict[Component, Role]:
    """The second reading of every component of the circuit that has one."""
    first, second = roles_of(program), {}
    below: set[Component] = set()
    for placed in program.components:
        role, written = first[placed.component], placed.expressions
        if placed.kind == "head":
            if any(_hands_on_in_place(node, program) for node in written):
                second[placed.component] = Role.AGGREGATOR if role is Role.ROUTER else Role.ROUTER
            continue
        made_of = _made_of(written)
        values = made_of - {indices}
        if role is Role.COMBINER and len(values) <= 1:
            second[placed.component] = Role.MAPPER
            if indices in made_of:
                below |= _tables_below(placed.component, program)
        elif role is not Role.COMBINER and len(values) >= 2:
            second[placed.component] = Role.COMBINER
    return second | {part: Role.COMBINER for part in below if first[part] is not Role.COMBINER}


def _made_of(nodes: Iterable[Expression]) -> set[Expression]:
    """What heads write, tokens and the position, as far as they are met going back at the same position."""
    found: set[Expression] = set()
    for node in nodes:
        operands = [] if isinstance(node, Aggregate | SelectorWidth) else list(node.inputs)
        found |= _made_of(operands) if operands else {node}
    return found


def _tables_below(component: Component, program: Program) -> set[Component]:
    """The MLPs of whose values an MLP is made at the same position."""
    writers = {node: placed.component for placed in program.components for node in placed.expressions}
    own = next(placed for placed in program.components if placed.component == component)
    below: set[Component] = set()
    left = [operand for node in own.expressions for operand in node.inputs]
    while left:
        node = left.pop()
        if isinstance(node, Aggregate | SelectorWidth):
            continue
        if (writer := writers.get(node)) is not None and writer != component:  # type: ignore[call-overload]
            below.add(writer)
        left += node.inputs
    return below


def _hands_on_in_place(node: Variable, program: Program) -> bool:
    """Whether a head passes the value of its own position on, and nothing else."""
    if not isinstance(node, Aggregate) or node.numerical or not node.values.inputs:
        return False
    selector = node.selector
    if not (selector.keys is selector.queries is indices):
        return False
    selected = program.tables.selected[selector]
    return all(int(key) == int(query) for key, query in zip(*selected.nonzero(), strict=True))
