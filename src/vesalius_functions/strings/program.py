"""A string program: operations one after the other, that can be run, said in words and written out as code.

The code is the source text of the operations themselves with the helpers they name, so it does what the program does
and needs nothing but Python.
"""

import ast
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from random import Random
from typing import Any

from vesalius.errors import BadInput
from vesalius_functions.answer import ENTRY, Mode
from vesalius_functions.strings.library import Operation, Parameters, operation


@dataclass(frozen=True)
class Step:
    """One operation with its parameters."""

    operation: Operation
    parameters: Parameters = ()

    def __call__(self, s: str) -> str:
        return self.operation.apply(s, *self.parameters)

    def __str__(self) -> str:
        return f"{self.operation.name}({', '.join(map(repr, self.parameters))})"


@dataclass(frozen=True)
class StringProgram:
    """Steps in the order in which they are applied; none at all is the identity."""

    steps: tuple[Step, ...]

    def __call__(self, s: str) -> str:
        for step in self.steps:
            s = step(s)
        return s

    def __str__(self) -> str:
        return " then ".join(map(str, self.steps)) or "identity"

    def draw(self, rng: Random) -> "StringProgram":
        """The same program with the random operations, if any, settled for one call."""
        if not self.random:
            return self
        return StringProgram(tuple(Step(s.operation, (rng.random(),)) if s.operation.random else s for s in self.steps))  # type: ignore[arg-type]

    @cached_property
    def random(self) -> bool:
        """Whether two calls with the same input can differ."""
        return any(step.operation.random for step in self.steps)

    @property
    def description(self) -> str:
        """What it does, as one sentence."""
        said = [step.operation.says(step.parameters) for step in self.steps]
        return _sentence(", then ".join(said) or "give the string back as it is")

    @property
    def structure(self) -> dict[str, Any]:
        """The operations by name, in the order in which they are applied."""
        return {"operations": [{"name": s.operation.name, "parameters": list(s.parameters)} for s in self.steps]}

    @property
    def code(self) -> str:
        """Python text that defines `f(s)` and needs nothing else."""
        texts = _sources(step.operation.apply for step in self.steps)
        calls = [f"    s = {_call(step)}\n" for step in self.steps]
        texts.append(f'def {ENTRY}(s: str) -> str:\n    """{self.description}"""\n{"".join(calls)}    return s\n')
        return ("import random\n\n\n" if self.random else "") + "\n\n".join(texts)


def program(steps: Iterable[tuple[str, Parameters]], mode: Mode) -> StringProgram:
    """The program with these operations by name, e.g. `[("reverse_string", ()), ("insert_letter", ("q",))]`."""
    made = []
    for name, parameters in steps:
        kind = operation(name, mode).kind
        if kind.complete and tuple(parameters) not in kind.values:
            raise BadInput(f"operation {name} takes no parameters {tuple(parameters)!r}; it takes a {kind.name}")
        made.append(Step(operation(name, mode), tuple(parameters)))
    return StringProgram(tuple(made))


def _call(step: Step) -> str:
    given = ["random.random()"] if step.operation.random else [repr(value) for value in step.parameters]
    return f"{step.operation.name}({', '.join(['s', *given])})"


def _sentence(text: str) -> str:
    plain = text.replace("\\", "\\\\").replace('"', "'")
    return plain[0].upper() + plain[1:] + "."


def _sources(functions: Iterable[Callable[..., str]]) -> list[str]:
    """The texts of functions and of everything of their modules that they name, helpers first, each once."""
    definitions: dict[str, str] = {}
    for function in functions:
        definitions.update(_needed(function))
    constants = [text for text in definitions.values() if not text.startswith("def ")]
    return ["".join(constants)] * bool(constants) + [text for text in definitions.values() if text.startswith("def ")]


@cache
def _needed(function: Callable[..., Any]) -> dict[str, str]:
    text = inspect.getsource(function)
    scope = function.__globals__
    definitions: dict[str, str] = {}
    for name in sorted({node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}):
        value = scope.get(name)
        if inspect.isfunction(value):
            definitions.update(_needed(value))
        elif isinstance(value, (str, list)):
            definitions[name] = f"{name} = {value!r}\n"
    return {**definitions, function.__name__: text}
