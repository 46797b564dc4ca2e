"""Running the code of an answer: in the sandbox, on all points in one call, and whatever it does is only a result.

Read before it is run: it must parse, import nothing but mathematics, and define a function. What the function returns
at a point is a number, real or complex, or else that point's fault.
"""

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Complex
from numpy import ndarray

from vesalius.functions.answer import ENTRY
from vesalius.sandbox import Sandbox

#: Modules that code may import; the sandbox holds it in any case, this keeps answers to mathematics.
IMPORTS = (
    "bisect", "cmath", "collections", "decimal", "fractions", "functools", "itertools", "math", "numbers", "numpy",
    "operator", "random", "scipy", "statistics", "typing", "__future__",
)  # fmt: skip
#: Names with which code would leave mathematics.
_REFUSED = ("__builtins__", "__import__", "breakpoint", "compile", "eval", "exec", "globals", "input", "open")
#: More text than this is not read at all.
LONGEST_CODE = 100_000
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

    values: Complex[ndarray, "points"]
    #: By point; None where there is a value (which may itself be NaN).
    faults: list[str | None]


def run_code(code: str | None, points: Sequence[float], *, sandbox: Sandbox) -> Outputs:
    """Call the submitted function on every point."""
    entry = entry_of(code)
    if isinstance(entry, _Refused):
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


@dataclass(frozen=True)
class _Refused:
    why: str


def entry_of(code: str | None) -> str | _Refused:
    """The name of the function that counts: `f`, or else the last one defined; or why the code is not run."""
    if not code or not code.strip():
        return _Refused("there is no code")
    if len(code) > LONGEST_CODE:
        return _Refused(f"the code has {len(code)} characters, more than {LONGEST_CODE}")
    try:
        tree = ast.parse(code)
    except SyntaxError as error:
        return _Refused(f"the code does not parse: {error.msg} (line {error.lineno})")
    except (ValueError, RecursionError, MemoryError) as error:
        return _Refused(f"the code does not parse: {type(error).__name__}")
    if foreign := sorted(_imported(tree).difference(IMPORTS)):
        return _Refused(f"the code imports {foreign[0]}; it may import {', '.join(IMPORTS[:-1])}")
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    if refused := sorted(names.intersection(_REFUSED)):
        return _Refused(f"the code uses {refused[0]}; it may only compute")
    if ENTRY in _assigned(tree):
        return ENTRY
    defined = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    return defined[-1] if defined else _Refused("the code defines no function")


def length(code: str | None) -> int | None:
    """How long the code is without comments, docstrings and spacing; None if it cannot be read."""
    if isinstance(entry_of(code), _Refused):
        return None
    assert code is not None
    try:
        tree = ast.parse(code)
        for node in ast.walk(tree):
            body = getattr(node, "body", None)
            if isinstance(body, list) and len(body) > 1 and _is_text(body[0]):
                del body[0]
        return len(ast.unparse(tree))
    except (RecursionError, MemoryError):
        return None


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _imported(tree: ast.Module) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").split(".")[0])
    return found


def _assigned(tree: ast.Module) -> set[str]:
    """The names of functions, and of other values, that the top level of the code gives."""
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


def _number(value: Any) -> complex | None:
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
