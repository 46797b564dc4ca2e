"""Where a program sits in a transformer: the layer rule of the published compiler, on the graph alone.

1. The depth of an operator is the longest path to it from the inputs, counting operators and not Selects.
2. Map, SequenceMap and LinearSequenceMap are MLPs, Aggregate is a head, SelectorWidth a head and the MLP of its layer.
3. One pass from shallow to deep: where everything at a depth is a head and everything at the next an MLP, the deeper
   levels all move up by one, because a layer runs its heads before its MLP.
4. Depth d is layer d - 1. All MLP operators of a layer share its MLP; its heads are numbered in graph order.

The widths are those of the compiled one-hot model; the published sizes of trained models are computed from them.
"""

from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Literal

from vesalius.components import Component
from vesalius.errors import BadInput
from vesalius.rasp.language import (
    Aggregate,
    Expression,
    Indices,
    LinearSequenceMap,
    Map,
    Select,
    SelectorWidth,
    SequenceMap,
    Tokens,
    Variable,
    indices,
    tokens,
)
from vesalius.rasp.values import Tables

# A program as a graph: which nodes it has, in which order they are read, and what each is called.


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


Kind = Literal["head", "mlp"]
_SPECIAL_TOKENS = 2  # BOS and PAD have a direction of their own


@dataclass(frozen=True)
class Placed:
    """A component of the circuit, the variables it writes and the expressions that compute them."""

    component: Component
    variables: tuple[str, ...]
    expressions: tuple[Variable, ...]
    kind: Kind


@dataclass(frozen=True)
class Widths:
    """The size of the compiled one-hot model: `d_head` is its widest query-key side, `d_model` its residual stream."""

    n_layers: int
    n_heads: int
    d_head: int
    d_model: int


def place(order: list[Expression], names: dict[Variable, str], output: Variable) -> tuple[Placed, ...]:
    """Assign every operator to its component; `order` has inputs before readers. Components in order of computation."""
    layers = _layers(order, output)
    if not layers:
        raise BadInput(f"program outputs {names[output]!r} itself and computes nothing; apply an operator to it")
    placed: list[Placed] = []
    for layer in range(max(layers.values()) + 1):
        here = [node for node in layers if layers[node] == layer]
        heads = [node for node in here if isinstance(node, Aggregate | SelectorWidth)]
        for number, node in enumerate(heads):
            written = head_name(names[node]) if isinstance(node, SelectorWidth) else names[node]
            placed.append(Placed(Component(layer, number), (written,), (node,), "head"))
        mlp = tuple(node for node in here if not isinstance(node, Aggregate))
        if mlp:
            placed.append(Placed(Component(layer), tuple(names[node] for node in mlp), mlp, "mlp"))
    return tuple(placed)


def depths(order: list[Expression]) -> dict[Expression, int]:
    """The longest path from the inputs to each node, counting operators; a Select adds nothing."""
    depth_of: dict[Expression, int] = {}
    for node in order:
        depth_of[node] = max((depth_of[operand] for operand in node.inputs), default=0) + is_operator(node)
    return depth_of


def _layers(order: list[Expression], output: Variable) -> dict[Variable, int]:
    """The layer of every operator, operators in graph order."""
    depth_of = depths(order)
    operators = [node for node in graph_order(output) if isinstance(node, Variable) and is_operator(node)]
    levels = [[node for node in operators if depth_of[node] == depth] for depth in range(1, depth_of[output] + 1)]
    level = 0
    while level + 1 < len(levels):
        only_heads = all(isinstance(node, Aggregate) for node in levels[level])
        only_mlps = all(not isinstance(node, Aggregate | SelectorWidth) for node in levels[level + 1])
        if only_heads and only_mlps:
            levels[level] += levels.pop(level + 1)
        level += 1
    layer_of = {node: layer for layer, nodes in enumerate(levels) for node in nodes}
    return {node: layer_of[node] for node in operators}


def measure(
    order: list[Expression], placed: tuple[Placed, ...], tables: Tables, *, vocab_size: int, max_len: int
) -> Widths:
    """The layers, heads and widths of the compiled model."""
    heads = [part for part in placed if part.kind == "head"]
    per_layer = [sum(head.component.layer == part.component.layer for head in heads) for part in heads]
    operators = [node for node in order if isinstance(node, Variable) and is_operator(node)]
    read_by = readers(order)
    needs_one = bool(heads) or any(isinstance(node, SequenceMap) and node.combines for node in operators)
    inputs = vocab_size + _SPECIAL_TOKENS + max_len + needs_one
    return Widths(
        n_layers=placed[-1].component.layer + 1,
        n_heads=max(per_layer, default=1),
        d_head=max((_query_key_side(part.expressions[0], tables) for part in heads), default=1),
        d_model=inputs + sum(_width(node, read_by[node], tables) for node in operators),
    )


def _query_key_side(node: Variable, tables: Tables) -> int:
    """Queries also carry the constant one and BOS, keys also BOS."""
    select = node.inputs[0]
    keys, queries = (tables.domains[operand].size for operand in select.inputs)  # type: ignore[index]
    return max(queries + 2, keys + 1)


def _width(node: Variable, read_by: list[Expression], tables: Tables) -> int:
    """One direction per value; one in all for a number, or for a Map that only numerical operators read."""
    if node.numerical or (isinstance(node, Map) and _read_as_number(node, read_by)):
        return 1
    return tables.domains[node].size + isinstance(node, SelectorWidth)  # a head's count has a direction of its own


def _read_as_number(node: Map, read_by: list[Expression]) -> bool:
    return bool(read_by) and all(
        isinstance(reader, LinearSequenceMap)
        or (isinstance(reader, Aggregate) and reader.numerical and reader.values is node)
        for reader in read_by
    )
