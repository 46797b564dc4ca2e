"""What a placed component does, by rule: the first match decides.

1. The head of a SelectorWidth or of a numerical Aggregate: AGGREGATOR.
2. The head of a categorical Aggregate: ROUTER if `indices` is the key or the query of its Select, else AGGREGATOR.
3. An MLP with a SequenceMap or LinearSequenceMap of two different variables: COMBINER.
4. An MLP whose Map reads `tokens` and tells exactly two cases apart: INDICATOR (constants beside it are ignored).
5. Any other MLP: MAPPER.
"""

from collections.abc import Collection
from dataclasses import replace
from enum import StrEnum

from vesalius.components import Component
from vesalius.rasp.language import Aggregate, LinearSequenceMap, Map, SequenceMap, Tokens, Variable, indices
from vesalius.rasp.placement import Placed
from vesalius.rasp.program import Program


class Role(StrEnum):
    """The five tags."""

    INDICATOR = "INDICATOR"
    AGGREGATOR = "AGGREGATOR"
    ROUTER = "ROUTER"
    MAPPER = "MAPPER"
    COMBINER = "COMBINER"


def roles_of(program: Program) -> dict[Component, Role]:
    """The role of every component of the circuit, in order of computation."""
    return {placed.component: role_of(placed, program) for placed in program.components}


def role_of(placed: Placed, program: Program) -> Role:
    """The role of one placed component."""
    if placed.kind == "head":
        return _head_role(placed.expressions[0])
    if any(isinstance(node, SequenceMap | LinearSequenceMap) and node.combines for node in placed.expressions):
        return Role.COMBINER
    telling = [node for node in placed.expressions if len(program.value_list(node)) > 1]
    if telling and all(_is_indicator(node, program) for node in telling):
        return Role.INDICATOR
    return Role.MAPPER


def role_of_carrier(program: Program, variables: Collection[str], *, is_head: bool) -> Role | None:
    """The role of a component that carries some variables of a program; None where no component of its kind writes
    them, or where they have different roles.
    """
    roles = set()
    for placed in program.components:
        written = [name in variables for name in placed.variables]
        if any(written) and (placed.kind == "head") == is_head:
            kept = tuple(node for node, own in zip(placed.expressions, written, strict=True) if own)
            roles.add(role_of(replace(placed, expressions=kept), program))
    return roles.pop() if len(roles) == 1 else None


def _head_role(node: Variable) -> Role:
    if isinstance(node, Aggregate) and not node.numerical and indices in node.selector.inputs:
        return Role.ROUTER
    return Role.AGGREGATOR


def _is_indicator(node: Variable, program: Program) -> bool:
    return isinstance(node, Map) and isinstance(node.x, Tokens) and len(program.value_list(node)) == 2
