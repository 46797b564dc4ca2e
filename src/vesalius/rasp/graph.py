"""A program as a graph: which nodes it has, in which order they are read, and what each is called."""

from graphlib import CycleError, TopologicalSorter

from vesalius.errors import BadInput
from vesalius.rasp.language import Expression, Indices, Select, SelectorWidth, Tokens, Variable, indices, tokens


def graph_order(output: Variable) -> list[Expression]:
    """Every node once, breadth first from the output; the order in which the published compiler numbers heads."""
    order: list[Expression] = [output]
    seen: set[Expression] = {output}
    for node in order:  # grows while it is read
        for operand in node.inputs:
            if operand not in seen:
                seen.add(operand)
                order.append(operand)
    return order


def evaluation_order(nodes: list[Expression]) -> list[Expression]:
    """The same nodes, inputs before readers; a cycle is refused by naming it."""
    try:
        return list(TopologicalSorter({node: node.inputs for node in nodes}).static_order())
    except CycleError as error:
        path = " -> ".join(node.name for node in reversed(error.args[1]))
        raise BadInput(f"program has a cycle: {path}; a variable cannot depend on itself") from error


def unique_names(order: list[Expression]) -> dict[Variable, str]:
    """Name every variable: given names first (a repeated one gets _2, _3, ...), unnamed ones kind_1, kind_2, ..."""
    variables = [node for node in order if isinstance(node, Variable)]
    names: dict[Variable, str] = {node: node.kind for node in variables if is_input(node)}
    taken = {tokens.kind, indices.kind}
    for node in sorted((node for node in variables if not is_input(node)), key=lambda node: node.given_name is None):
        number = 1
        while taken & _written(node, candidate := _numbered(node, number)):
            number += 1
        names[node] = candidate
        taken |= _written(node, candidate)
    return {node: names[node] for node in variables}


def _numbered(node: Variable, number: int) -> str:
    return node.given_name if node.given_name and number == 1 else f"{node.name}_{number}"


def _written(node: Variable, name: str) -> set[str]:
    return {name, head_name(name)} if isinstance(node, SelectorWidth) else {name}


def readers(order: list[Expression]) -> dict[Expression, list[Expression]]:
    """For every node the nodes that read it."""
    readers_of: dict[Expression, list[Expression]] = {node: [] for node in order}
    for node in order:
        for operand in node.inputs:
            readers_of[operand].append(node)
    return readers_of


def head_name(name: str) -> str:
    """The name of what a SelectorWidth's head writes, before its MLP decodes it."""
    return f"{name}_head"


def is_input(node: Expression) -> bool:
    """True for `tokens` and `indices`, which belong to no component."""
    return isinstance(node, Tokens | Indices)


def is_operator(node: Expression) -> bool:
    """True for a node that a component computes."""
    return not isinstance(node, Tokens | Indices | Select)
