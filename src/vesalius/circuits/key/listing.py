"""A program as text: the functions it applies, then one line per variable, inputs first and the output last.

The text is executable: where `vesalius.rasp` and `math` are imported, it rebuilds the variables.
"""

import builtins
import inspect
from collections.abc import Iterator
from textwrap import dedent
from types import BuiltinFunctionType, CodeType, FunctionType

from vesalius.rasp import (
    Aggregate,
    Expression,
    LinearSequenceMap,
    Map,
    Select,
    SelectorWidth,
    SequenceMap,
    Variable,
)


def program_text(output: Variable) -> str:
    """The listing of the program that ends in `output`."""
    nodes = _inputs_first(output)
    definitions = dict.fromkeys(text for node in nodes for text in _definitions(_function(node)))
    lines = [f"{node.name} = {_formula(node)}" for node in nodes if isinstance(node, Variable) and node.inputs]
    return "\n\n".join([*definitions, "\n".join(lines)])


def _inputs_first(output: Variable) -> list[Expression]:
    nodes: dict[Expression, None] = {}

    def visit(node: Expression) -> None:
        for operand in node.inputs:
            visit(operand)
        nodes.setdefault(node)

    visit(output)
    return list(nodes)


def _formula(node: Expression) -> str:
    match node:
        case Select():
            return f"Select({node.keys.name}, {node.queries.name}, {_function_name(node.predicate)})"
        case SelectorWidth():
            return f"SelectorWidth({_formula(node.selector)})"
        case Aggregate():
            kind = ", numerical=True" if node.numerical else ""
            return f"Aggregate({_formula(node.selector)}, {node.values.name}{kind})"
        case LinearSequenceMap():
            x, y = node.inputs
            return f"LinearSequenceMap({x.name}, {y.name}, x_factor={node.x_factor:g}, y_factor={node.y_factor:g})"
        case Map() | SequenceMap():
            operands = ", ".join(operand.name for operand in node.inputs)
            return f"{type(node).__name__}({_function_name(node.function)}, {operands})"
    raise TypeError(f"{type(node).__name__} has no formula")


def _function_name(function: object) -> str:
    """The name of a function in the listing: our own and builtins by name, others with their module."""
    if isinstance(function, FunctionType):
        return function.__name__
    if isinstance(function, BuiltinFunctionType):
        module = function.__module__
        return function.__name__ if module == builtins.__name__ else f"{module}.{function.__name__}"
    return str(function)


def _function(node: Expression) -> object:
    return node.predicate if isinstance(node, Select) else getattr(node, "function", None)


def _definitions(function: object) -> Iterator[str]:
    """The source of one of our functions, after the source of what it uses from its module."""
    if not isinstance(function, FunctionType):
        return
    for name in _names(function.__code__):
        used = function.__globals__.get(name)
        if isinstance(used, dict | frozenset):
            yield f"{name} = {used if isinstance(used, dict) else sorted(used)}"
        elif used is not function:
            yield from _definitions(used)
    yield dedent(inspect.getsource(function)).strip()


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
