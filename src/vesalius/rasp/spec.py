"""SPEC.py: a RASP program as a file.

The file defines `program()` (returns the output variable), `vocab`, `max_len`, `causal`, and may define `name` and
`description`. `load_spec` runs it, so load only files you would also run; `render_spec` writes any compiled program as
such a file, with every function spelled out as a look-up table, and loading that file gives the same program again.
"""

import keyword
import re
from collections.abc import Iterator
from math import isinf
from pathlib import Path
from typing import Any

from vesalius.errors import BadInput
from vesalius.rasp.graph import is_input
from vesalius.rasp.language import (
    USER_CODE_ERRORS,
    Aggregate,
    Comparison,
    Expression,
    LinearSequenceMap,
    Map,
    Select,
    SelectorWidth,
    SequenceMap,
    Value,
    Variable,
)
from vesalius.rasp.program import Program, compile_program

_REQUIRED = ("program", "vocab", "max_len", "causal")


def load_spec(path: str | Path) -> Program:
    """Run a SPEC.py and compile the program it defines; the program is named after the file unless it sets `name`."""
    path = Path(path)
    defined = _execute(path)
    missing = [attribute for attribute in _REQUIRED if attribute not in defined]
    if missing:
        raise BadInput(f"{path}: does not define {', '.join(missing)}; a spec defines {', '.join(_REQUIRED)}")
    name, description = defined.get("name", path.stem), defined.get("description", "")
    for attribute, text in (("name", name), ("description", description)):
        if not isinstance(text, str):
            raise BadInput(f"{path}: {attribute} must be a string, not {type(text).__name__} {text!r:.60}")
    output = _call_program(path, defined["program"])
    try:
        return compile_program(
            output,
            defined["vocab"],
            defined["max_len"],
            causal=defined["causal"],
            name=name,
            description=description,
        )
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from error


def _execute(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(
            f"{path}: cannot be read ({_one_line(error)}); give a Python file that defines a program"
        ) from error
    defined: dict[str, Any] = {"__name__": path.stem, "__file__": str(path)}
    try:
        exec(compile(text, str(path), "exec"), defined)
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from error
    except (*USER_CODE_ERRORS, SystemExit) as error:
        raise BadInput(
            f"{path}: running the file failed ({_one_line(error)}); mend it so that Python can run it"
        ) from error
    return defined


def _call_program(path: Path, program: object) -> Variable:
    if not callable(program) or isinstance(program, Expression):
        raise BadInput(
            f"{path}: program must be a function without arguments, not {type(program).__name__} {program!r:.60}"
        )
    try:
        output = program()
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from error
    except (*USER_CODE_ERRORS, SystemExit) as error:
        raise BadInput(f"{path}: program() failed ({_one_line(error)}); it must return the output variable") from error
    if not isinstance(output, Variable):
        shown = f"{type(output).__name__} {output!r:.60}"
        raise BadInput(f"{path}: program() must return a variable (Map, Aggregate, ...), not {shown}")
    return output


def _one_line(error: BaseException) -> str:
    return " ".join([f"{type(error).__name__}:", *str(error).split()]).rstrip(":")[:200]


def render_spec(program: Program) -> str:
    """The text of a SPEC.py that defines this program."""
    writer = _Writer(program)
    for node in program.expressions:
        writer.write(node)
    used = sorted({type(node).__name__ for node in program.expressions if not is_input(node)} | writer.also_used)
    inputs = [node.name for node in program.expressions if is_input(node)]
    return "\n".join(
        [
            f'"""RASP program {program.name}; every function is a look-up table."""',
            "",
            *(["from math import inf", ""] if writer.has_infinity else []),
            f"from vesalius.rasp import {', '.join([*used, *sorted(inputs)])}",
            "",
            f"name = {program.name!r}",
            f"description = {program.description!r}",
            f"vocab = {_wrapped([repr(token) for token in program.vocab], '[]')}",
            f"max_len = {program.max_len}",
            f"causal = {program.causal}",
            "",
            *writer.tables,
            "",
            "",
            "def program():",
            *(f"    {line}" for line in writer.lines),
            f"    return {writer.identifiers[program.output]}",
            "",
        ]
    )


class _Writer:
    """Collects the module-level tables and the lines of `program()`, node by node, inputs before readers."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.tables: list[str] = []
        self.lines: list[str] = []
        self.identifiers: dict[Expression, str] = {}
        self.also_used: set[str] = set()
        self.has_infinity = False
        self._taken = {"program", "name", "description", "vocab", "max_len", "causal", "inf", "tokens", "indices"}

    def write(self, node: Expression) -> None:
        if is_input(node):
            self.identifiers[node] = node.name
            return
        called = self.program.name_of(node) if isinstance(node, Variable) else node.kind
        identifier = self.identifiers[node] = self._identifier(called)
        arguments = self._arguments(node, f"{identifier}_table".upper())
        if isinstance(node, Variable):
            arguments.append(f"name={called!r}")
        self.lines.append(f"{identifier} = {type(node).__name__}({', '.join(arguments)})")

    def _arguments(self, node: Expression, table: str) -> list[str]:
        operands = [self.identifiers[operand] for operand in node.inputs]
        if isinstance(node, Map):
            self._table(table, self._entries(node), mapping=True)
            return [f"{table}.get", *operands]
        if isinstance(node, SequenceMap):
            self._table(table, self._entries(node), mapping=True)
            return [f"lambda x, y: {table}.get((x, y))", *operands]
        if isinstance(node, LinearSequenceMap):
            return [*operands, f"x_factor={node.x_factor!r}", f"y_factor={node.y_factor!r}"]
        if isinstance(node, Select):
            return [*operands, self._predicate(node, table)]
        if isinstance(node, Aggregate) and node.numerical:
            return [*operands, "numerical=True"]
        if isinstance(node, Aggregate) and node.default is not None:
            self.has_infinity |= any(isinstance(atom, float) and isinf(atom) for atom in _atoms(node.default))
            return [*operands, f"default={node.default!r}"]
        assert isinstance(node, Aggregate | SelectorWidth)
        return operands

    def _entries(self, node: Map | SequenceMap) -> list[tuple[Value, Value]]:
        """(argument or pair of arguments, result) wherever the result is defined."""
        results = self.program.tables.domains[node].values
        operands = [self.program.tables.domains[operand].values for operand in node.inputs]  # type: ignore[index]
        entries = []
        codes = self.program.tables.codes[node]
        for place in zip(*(codes < len(results)).nonzero(), strict=True):
            arguments: tuple[Value, ...] = tuple(values[code] for values, code in zip(operands, place, strict=True))
            entries.append((arguments[0] if isinstance(node, Map) else arguments, results[codes[place]]))
        return entries

    def _predicate(self, node: Select, table: str) -> str:
        if isinstance(node.predicate, Comparison):
            self.also_used.add("Comparison")
            return f"Comparison.{node.predicate.name}"
        keys, queries = (self.program.tables.domains[operand].values for operand in (node.keys, node.queries))
        rows, columns = self.program.tables.selected[node].nonzero()
        self._table(table, [(keys[row], queries[column]) for row, column in zip(rows, columns, strict=True)])
        return f"lambda key, query: (key, query) in {table}"

    def _table(self, name: str, entries: list[tuple[Value, Value]], *, mapping: bool = False) -> None:
        """A dict of the entries, or a set of them as they are."""
        atoms = [atom for entry in entries for atom in _atoms(entry)]
        self.has_infinity |= any(isinstance(atom, float) and isinf(atom) for atom in atoms)
        items = [f"{argument!r}: {result!r}" for argument, result in entries] if mapping else [repr(e) for e in entries]
        self.tables.append(f"{name} = {_wrapped(items, '{}') if items else 'set()'}")

    def _identifier(self, name: str) -> str:
        plain = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_").lower() or "variable"
        if plain[0].isdigit() or keyword.iskeyword(plain):
            plain = f"v_{plain}"
        candidate, number = plain, 2
        while candidate in self._taken:
            candidate, number = f"{plain}_{number}", number + 1
        self._taken.add(candidate)
        return candidate


def _wrapped(items: list[str], brackets: str) -> str:
    """Items between brackets, as many to a line as fit."""
    lines, width = [""], 0
    for item in items:
        if lines[-1] and width + len(item) > 100:
            lines.append("")
            width = 0
        lines[-1] += f"{item}, "
        width += len(item) + 2
    body = "\n".join(f"    {line.rstrip()}" for line in lines)
    return f"{brackets[0]}\n{body}\n{brackets[1]}"


def _atoms(value: Value) -> Iterator[str | int | float]:
    """The strings and numbers a value is made of; anything else cannot be written down."""
    if isinstance(value, tuple):
        for part in value:
            yield from _atoms(part)
    elif isinstance(value, str | int | float):
        yield value
    else:
        raise BadInput(f"value {value!r:.60} cannot be written to a SPEC.py; use strings, numbers and tuples of them")
