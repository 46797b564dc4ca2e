"""SPEC.py: a RASP program as a file.

The file defines `program()` (returns the output variable), `vocab`, `max_len`, `causal`, and may define `name` and
`description`. `load_spec` runs it, so load only files you would also run; a sandbox does that for files of other people
(`names`). `render_spec` writes any compiled program as such a file, with every function spelled out as a look-up table,
and loading that file gives the same program again.
"""

import ast
import json
from pathlib import Path
from textwrap import indent
from typing import Any

from vesalius.errors import BadInput
from vesalius.rasp.document import to_document
from vesalius.rasp.language import USER_CODE_ERRORS, Expression, Variable
from vesalius.rasp.program import Program, compile_program
from vesalius.rasp.text import OPERATORS, Lines, literal, wrapped

_REQUIRED = ("program", "vocab", "max_len", "causal")


def load_spec(path: str | Path) -> Program:
    """Run a SPEC.py and compile the program it defines; the program is named after the file unless it sets `name`."""
    path = Path(path)
    return compile_spec(_text(path), path)


def compile_spec(text: str, path: Path) -> Program:
    """Run the text of a SPEC.py and compile its program; `path` only names it."""
    defined = _execute(text, path)
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


def names(argument: None) -> dict[str, Any]:
    """What a program in a sandbox starts with: `document(text, name)`, the JSON text of the program of a SPEC.py."""

    def document(text: str, name: str) -> str:
        return json.dumps(to_document(compile_spec(text, Path(name))))

    return {"document": document}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(
            f"{path}: cannot be read ({_one_line(error)}); give a Python file that defines a program"
        ) from error


def _execute(text: str, path: Path) -> dict[str, Any]:
    defined: dict[str, Any] = {"__name__": path.stem, "__file__": str(path)}
    try:
        exec(compile(text, str(path), "exec"), defined)
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from error
    except (*USER_CODE_ERRORS, SystemExit) as error:
        raise BadInput(
            f"{path}: running the file failed ({_one_line(error)}); fix it so that Python can run it"
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
    document = to_document(program)
    lines = Lines(document["variables"], named=True)
    body = [lines.line(entry["name"]) for entry in lines.written]
    code = "\n".join([*body, f"return {lines.identifiers[document['output']]}"])
    used = {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}
    imported = used & {*OPERATORS.values(), "Comparison", "indices", "tokens"}
    return "\n".join(
        [
            f'"""RASP program {program.name}; every function is a look-up table."""',
            "",
            *(["from math import inf", ""] if "inf" in used else []),
            f"from vesalius.rasp import {', '.join(sorted(imported))}",
            "",
            f"name = {program.name!r}",
            f"description = {program.description!r}",
            f"vocab = {wrapped([literal(token) for token in document['vocab']], '[]')}",
            f"max_len = {program.max_len}",
            f"causal = {program.causal}",
            "",
            "",
            "def program():",
            indent(code, "    "),
            "",
        ]
    )
