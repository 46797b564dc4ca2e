"""A candidate about other arguments than it was made for."""

import ast
from collections.abc import Mapping, Sequence

from vesalius.rasp.naming.operation import ARGUMENTS, Candidate
from vesalius.rasp.naming.single import escaped


def renamed(candidate: Candidate, arguments: Sequence[str]) -> Candidate:
    """The candidate with its first argument called `arguments[0]`, and so on."""
    if tuple(arguments) == ARGUMENTS[: len(arguments)]:
        return candidate
    to: dict[str, str] = dict(zip(ARGUMENTS, arguments, strict=False))
    marks = {old: f"\0{new}\0" for old, new in to.items()}
    template = escaped(candidate.template.format(**marks))
    for new in to.values():
        template = template.replace(f"\0{new}\0", "{" + new + "}")
    return Candidate(candidate.operation, in_arguments(candidate.formula, to), template)


def in_arguments(formula: str, to: Mapping[str, str]) -> str:
    """A formula with its variables renamed; texts in it stay as they are."""
    tree = ast.parse(formula, mode="eval")
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in to:
            node.id = to[node.id]
    return ast.unparse(tree)
