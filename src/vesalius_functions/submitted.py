"""Submitted code, read before it runs: which of its functions counts, and whether it is small enough to say a rule.

A rule is told from a table by its size alone: characters without comments, docstrings and spacing; what its literals
hold, together and in the longest list or text; and how many parts the syntax tree has, since a table can also be spelt
in names or brackets. Code that looks at itself (docstrings, names, byte code) could keep a table where none of that
counts, and says no rule. A table small enough passes, so this does not prove understanding.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass

import numpy as np
from jaxtyping import Complex
from numpy import ndarray

from vesalius.sandbox import Sandbox
from vesalius_functions.box import ENTRY

#: More text than this is not read at all.
LONGEST_CODE = 100_000
#: A longer name counts as a literal.
LONGEST_NAME = 40
#: Names with which code reads itself, or text as code; so do all attributes between double underscores.
SELF_READING = frozenset(
    {"__doc__", "compile", "dir", "eval", "exec", "getattr", "globals", "inspect", "locals", "sys", "vars"}
)
_NO_PARTS = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)


@dataclass(frozen=True)
class Refused:
    """Why code is not run."""

    why: str


@dataclass(frozen=True)
class Size:
    """How large code is, without comments, docstrings and spacing."""

    characters: int
    #: Characters of all literals.
    literals: int
    #: Items of the longest list, tuple, set or dictionary, or characters of the longest text.
    longest: int
    #: Nodes of the syntax tree without operators.
    parts: int

    def within(self, most: "Size") -> bool:
        """Whether it is no larger in any respect."""
        return all(own <= limit for own, limit in zip(astuple(self), astuple(most), strict=True))


def read(code: str | None) -> ast.Module | Refused:
    """The syntax tree, or why there is none."""
    if not code or not code.strip():
        return Refused("there is no code")
    if len(code) > LONGEST_CODE:
        return Refused(f"the code has {len(code)} characters, more than {LONGEST_CODE}")
    try:
        return ast.parse(code)
    except SyntaxError as error:
        return Refused(f"the code does not parse: {error.msg} (line {error.lineno})")
    except (ValueError, RecursionError, MemoryError) as error:
        return Refused(f"the code does not parse: {type(error).__name__}")


def entry_in(tree: ast.Module) -> str | Refused:
    """The name of the function that counts: `f`, also as a value, or else the last one defined."""
    defined = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    targets = [target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets]
    if ENTRY in defined or any(isinstance(target, ast.Name) and target.id == ENTRY for target in targets):
        return ENTRY
    return defined[-1] if defined else Refused("the code defines no function")


def entry_of(code: str | None) -> str | Refused:
    """`entry_in` of a text."""
    tree = read(code)
    return tree if isinstance(tree, Refused) else entry_in(tree)


def size_of(code: str | None) -> Size | None:
    """How large the code is without comments, docstrings and spacing; None if it cannot be read."""
    tree = read(code)
    if isinstance(tree, Refused):
        return None
    try:
        _drop_docstrings(tree)
        characters = len(ast.unparse(tree))
    except (RecursionError, MemoryError):
        return None
    nodes = list(ast.walk(tree))
    literals = sum(len(str(node.value)) for node in nodes if isinstance(node, ast.Constant))
    literals += sum(len(name) for node in nodes for name in _names(node) if len(name) > LONGEST_NAME)
    longest = max(map(_items, nodes))
    return Size(characters, literals, longest, parts=sum(not isinstance(node, _NO_PARTS) for node in nodes))


def _items(node: ast.AST) -> int:
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return len(node.elts)
    if isinstance(node, ast.Dict):
        return len(node.values)
    return len(node.value) if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)) else 0


def says_a_rule(code: str | None, *, most: Size) -> bool:
    """Whether code is small enough to say a rule instead of listing cases, and does not read itself."""
    tree, size = read(code), size_of(code)
    return not isinstance(tree, Refused) and size is not None and size.within(most) and not _reads_itself(tree)


def _reads_itself(tree: ast.Module) -> bool:
    names = {name.split(".")[0] for node in ast.walk(tree) for name in _names(node)}
    attributes = (node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    return bool(names & SELF_READING) or any(name.startswith("__") for name in attributes)


def _drop_docstrings(tree: ast.Module) -> None:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            node.body = [line for line in node.body if not _is_text(line)] or [ast.Pass()]


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _names(node: ast.AST) -> Iterator[str]:
    """Every name that a node gives: of a value, an attribute, an argument, a function, a module."""
    if not isinstance(node, ast.Constant):
        yield from (value for _, value in ast.iter_fields(node) if isinstance(value, str))


# Running the code of an answer: in the sandbox, on all points in one call, and whatever it does is only a result.
#
# Read before it is run (see `vesalius_functions.submitted`), and it may import nothing but mathematics. What the
# function returns at a point is a number, real or complex, or else that point's fault.

#: Modules that code may import; the sandbox holds it in any case, this keeps answers to mathematics.
IMPORTS = (
    "bisect", "cmath", "collections", "decimal", "fractions", "functools", "itertools", "math", "numbers", "numpy",
    "operator", "random", "scipy", "statistics", "typing", "__future__",
)  # fmt: skip
#: Names with which code would leave mathematics.
_REFUSED = ("__builtins__", "__import__", "breakpoint", "compile", "eval", "exec", "globals", "input", "open")
PER_CALL_SECONDS = 0.5
TOTAL_SECONDS = 10.0
#: Calls the function and hands on a text, which is a fault in any case, only in part.
_SHORTENED_NAME = "_with_short_texts"
_SHORTENED = f"""
def {_SHORTENED_NAME}(x):
    value = {{entry}}(x)
    return value[:40] if isinstance(value, str) else value
"""
#: How a complex number leaves the sandbox, which has no JSON for it.
_COMPLEX = re.compile(r"\(?[-+0-9.einfa]+j\)?")


@dataclass(frozen=True)
class Outputs:
    """What code answered at each point: NaN where it gave no number, with the reason of each."""

    values: Complex[ndarray, " points"]
    #: By point; None where there is a value (which may itself be NaN).
    faults: list[str | None]


def run_code(code: str | None, points: Sequence[float], *, sandbox: Sandbox) -> Outputs:
    """Call the submitted function on every point."""
    entry = checked_entry(code)
    if isinstance(entry, Refused):
        return Outputs(np.full(len(points), np.nan, dtype=complex), [entry.why] * len(points))
    assert code is not None
    answers = sandbox.call_many(
        f"{code}\n{_SHORTENED.format(entry=entry)}",
        _SHORTENED_NAME,
        [float(x) for x in points],
        per_call_seconds=PER_CALL_SECONDS,
        total_seconds=TOTAL_SECONDS,
    )
    values = np.full(len(points), np.nan, dtype=complex)
    faults: list[str | None] = []
    for index, answer in enumerate(answers):
        value = None if answer.error is not None else _number(answer.value)
        if value is None:
            why = f"it returned a {type(answer.value).__name__}" if answer.error is None else _last_line(answer.error)
            faults.append(f"f({points[index]:g}): {why}")
        else:
            values[index] = value
            faults.append(None)
    return Outputs(values, faults)


def checked_entry(code: str | None) -> str | Refused:
    """The name of the function that counts, or why the code is not run."""
    tree = read(code)
    if isinstance(tree, Refused):
        return tree
    if foreign := sorted(_imported(tree).difference(IMPORTS)):
        return Refused(f"the code imports {foreign[0]}; it may import {', '.join(IMPORTS[:-1])}")
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    if refused := sorted(names.intersection(_REFUSED)):
        return Refused(f"the code uses {refused[0]}; it may only compute")
    return entry_in(tree)


def _imported(tree: ast.Module) -> set[str]:
    modules: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules.add((node.module or "").split(".")[0])
    return modules


def _number(value: object) -> complex | None:
    if isinstance(value, (bool, int, float)):
        try:
            return complex(value)
        except OverflowError:
            return None
    if isinstance(value, str) and len(value) < 100 and _COMPLEX.fullmatch(value):
        try:
            return complex(value)
        except ValueError:
            return None
    return None


def _last_line(error: str) -> str:
    return error.strip().splitlines()[-1][:200] if error.strip() else "it failed"
