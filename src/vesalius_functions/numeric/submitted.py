"""Running the code of an answer: in the sandbox, on all points in one call, and whatever it does is only a result.

Read before it is run (see `vesalius_functions.submitted`), and it may import nothing but mathematics. What the function
returns at a point is a number, real or complex, or else that point's fault.
"""

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Complex
from numpy import ndarray

from vesalius.sandbox import Sandbox
from vesalius_functions.submitted import Refused, entry_in, read

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
