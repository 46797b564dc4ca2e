"""A program as text that people read and `parse` reads back: one line per variable, every table whole.

    name = 'share_of_x'
    vocab = ['a', 'b', 'x']
    max_len = 5
    causal = True

    is_x = Map({'a': False, 'b': False, 'x': True}, tokens)
    share = Aggregate(Select(indices, indices, Comparison.LEQ), is_x, numerical=True)
    return share

The lines are those of the language itself, so they can be pasted into a SPEC.py. A Select that one variable reads is
written inside it. Long tables are wrapped, never cut. `parse` takes nothing but names, literals and the operators, and
evaluates no code.
"""

import ast
import json
import keyword
import re
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path
from textwrap import indent
from typing import Any

from vesalius.errors import BadInput, choices
from vesalius.rasp.document import FIELDS, MAX_DEPTH, MAX_VARIABLES, SCHEMA, from_document, to_document
from vesalius.rasp.language import USER_CODE_ERRORS, Comparison, Expression, Variable
from vesalius.rasp.placement import head_name
from vesalius.rasp.program import Program, compile_program
from vesalius.values import JsonObject

MAX_CHARACTERS = 4_000_000
WIDTH = 110
OPERATORS = {
    "map": "Map",
    "sequence_map": "SequenceMap",
    "linear_sequence_map": "LinearSequenceMap",
    "select": "Select",
    "selector_width": "SelectorWidth",
    "aggregate": "Aggregate",
}
_HEADER = ("name", "description", "vocab", "max_len", "causal")
_DEFAULTS = {"name": "program", "description": ""}
_OPTIONS = ("name", "otherwise", "x_factor", "y_factor", "numerical", "default")
_RESERVED = {
    *_HEADER,
    *OPERATORS.values(),
    "program",
    "tokens",
    "indices",
    "inf",
    "Comparison",
    *Comparison.__members__,
}
Entry = JsonObject


def render(document: object) -> str:
    """The whole program as text; `parse` gives an equal document back."""
    document = to_document(from_document(document))
    header = [
        f"{field} = {wrapped([literal(token) for token in document['vocab']], '[]')}"
        if field == "vocab"
        else f"{field} = {document[field]!r}"
        for field in _HEADER
        if document[field] != _DEFAULTS.get(field)
    ]
    lines = Lines(document["variables"])
    body = [lines.line(entry["name"]) for entry in lines.written]
    return "\n".join([*header, "", *body, f"return {lines.identifiers[document['output']]}"])


def render_variables(document: object, names: Collection[str], *, given: Collection[str] = ()) -> str:
    """The lines of some variables and of what they read, up to the inputs and the variables `given`.

    A count may also go by the name of its head.
    """
    document = to_document(from_document(document))
    lines = Lines(document["variables"])
    wanted = {lines.variable(name) for name in names}
    known = {lines.variable(name) for name in given} - wanted
    for entry in reversed(document["variables"]):
        if entry["name"] in wanted:
            wanted.update(name for name in entry["of"] if name not in known and name in lines.entries)
    return "\n".join(lines.line(entry["name"]) for entry in lines.written if entry["name"] in wanted)


class Lines:
    """The lines of a document's variables. With `named` every variable says its name, as a SPEC.py needs it."""

    def __init__(self, variables: Iterable[Entry], *, named: bool = False) -> None:
        self.entries: dict[str, Entry] = {entry["name"]: entry for entry in variables}
        self.named = named
        read = Counter(name for entry in self.entries.values() for name in entry["of"])
        self._inside = {name for name, entry in self.entries.items() if entry["op"] == "select" and read[name] == 1}
        self.identifiers = _identifiers(name for name in self.entries if name not in self._inside)

    @property
    def written(self) -> list[Entry]:
        """The variables that have a line."""
        return [entry for name, entry in self.entries.items() if name not in self._inside]

    def variable(self, name: str) -> str:
        """The variable of that name, or the count whose head has it."""
        for known in self.entries:
            if name in (known, head_name(known)):
                return known
        raise BadInput(f"program has no variable {name!r:.40}; it has {choices(self.entries)}")

    def line(self, name: str) -> str:
        """The definition of one variable."""
        entry = self.entries[name]
        says_name = entry["op"] != "select" and (self.named or self.identifiers[name] != name)
        return f"{self.identifiers[name]} = {self._call(entry, says_name=says_name)}"

    def _call(self, entry: Entry, *, says_name: bool = False) -> str:
        of = [
            self._call(self.entries[name]) if name in self._inside else self.identifiers.get(name, name)
            for name in entry["of"]
        ]
        if entry["op"] in ("map", "sequence_map"):
            of.insert(0, _table(entry))
        elif entry["op"] == "select":
            of.append(_selection(entry))
        factors = dict(zip(("x_factor", "y_factor"), entry.get("factors", ()), strict=False))
        flag = {"numerical": True} if entry.get("numerical") else {}
        rest = {field: entry[field] for field in ("otherwise", "default") if field in entry}
        options = {**factors, **flag, **rest, **({"name": entry["name"]} if says_name else {})}
        arguments = [*of, *(f"{field}={literal(value)}" for field, value in options.items())]
        return f"{OPERATORS[entry['op']]}({', '.join(arguments)})"


def _table(entry: Entry) -> str:
    keys = (literal(row[0] if len(row) == 2 else list(row[:-1])) for row in entry["table"])
    return wrapped([f"{key}: {literal(row[-1])}" for key, row in zip(keys, entry["table"], strict=True)], "{}")


def _selection(entry: Entry) -> str:
    if "comparison" in entry:
        return f"Comparison.{entry['comparison']}"
    return wrapped([literal(pair) for pair in entry["pairs"]], "[]")


def literal(data: object) -> str:
    """A value of a document as it is written in the language."""
    if isinstance(data, list):
        return f"({', '.join(map(literal, data))}{',' * (len(data) == 1)})"
    return data["number"] if isinstance(data, dict) else repr(data)


def wrapped(items: list[str], brackets: str) -> str:
    """Items between brackets: on one line where they fit, else as many to a line as fit."""
    whole = ", ".join(items)
    if len(whole) <= WIDTH:
        return f"{brackets[0]}{whole}{brackets[1]}"
    lines = [""]
    for item in items:
        if lines[-1] and len(lines[-1]) + len(item) > WIDTH:
            lines.append("")
        lines[-1] += f"{item}, "
    return "\n".join([brackets[0], *(f"    {line.rstrip()}" for line in lines), brackets[1]])


def _identifiers(names: Iterable[str]) -> dict[str, str]:
    """What each variable is called in the text: its name where that can stand in Python, else one made from it."""
    given = list(names)
    identifiers = {name: name for name in given if _can_stand(name)}
    taken = _RESERVED | set(identifiers)
    for name in given:
        if name in identifiers:
            continue
        start = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or "variable"
        start = start if not start[0].isdigit() and not keyword.iskeyword(start) else f"v_{start}"
        number, candidate = 1, start
        while candidate in taken:
            number, candidate = number + 1, f"{start}_{number + 1}"
        identifiers[name] = candidate
        taken.add(candidate)
    return identifiers


def _can_stand(name: str) -> bool:
    return name.isascii() and name.isidentifier() and not keyword.iskeyword(name) and name not in _RESERVED


# Reading.


def parse(text: str) -> JsonObject:
    """The document of a program in this form; anything else is refused in one line that names the place."""
    if not isinstance(text, str) or len(text) > MAX_CHARACTERS:
        raise BadInput(f"program text must be a string of at most {MAX_CHARACTERS:,} characters")
    try:
        statements = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        raise BadInput(f"program text{line}: not written as assignments and a return; see `render`") from None
    if len(statements) > MAX_VARIABLES + len(_HEADER) + 1:
        raise BadInput(f"program text has {len(statements):,} lines; at most {MAX_VARIABLES:,} variables can be read")
    reader = _Reader()
    for statement in statements:
        try:
            reader.read(statement)
        except (BadInput, RecursionError) as error:
            reason = "nested too deeply" if isinstance(error, RecursionError) else error
            raise BadInput(f"program text, line {statement.lineno}: {reason}") from None
    return to_document(from_document(reader.document()))


class _Reader:
    """Reads statement by statement into the entries of a document."""

    def __init__(self) -> None:
        self.header: JsonObject = dict(_DEFAULTS)
        self.variables: list[Entry] = []
        self.names = {"tokens": "tokens", "indices": "indices"}  # by identifier
        self.output: str | None = None

    def document(self) -> JsonObject:
        if self.output is None:
            raise BadInput("program text: the last line must return the output variable, as in `return share`")
        missing = [field for field in _HEADER if field not in self.header]
        if missing:
            raise BadInput(f"program text does not define {missing[0]}; it begins with {', '.join(_HEADER)}")
        whole = {"schema": SCHEMA, **self.header, "variables": self.variables, "output": self.output}
        return {field: whole[field] for field in FIELDS}

    def read(self, statement: ast.stmt) -> None:
        if self.output is not None:
            raise BadInput("nothing may follow the return")
        match statement:
            case ast.Assign(targets=[ast.Name(id=target)], value=ast.Call() as call):
                self._variable(target, call)
            case ast.Assign(targets=[ast.Name(id=target)], value=value) if target in _HEADER:
                is_list = isinstance(value, ast.List)
                self.header[target] = [_data(token) for token in value.elts] if is_list else _data(value)
            case ast.Return(value=ast.Name(id=identifier)):
                self.output = self._named(identifier)
            case _:
                raise BadInput(f"{_shown(statement)} is not a line of a program; write `x = Map({{...}}, tokens)`")

    def _variable(self, identifier: str, call: ast.Call) -> None:
        if identifier in self.names or identifier in _RESERVED:
            raise BadInput(f"{identifier!r:.40} is defined already; every variable needs its own name")
        self.names[identifier] = self._entry(call, identifier)

    def _entry(self, call: ast.Call, identifier: str | None) -> str:
        """Add the entry of an expression and return its name."""
        ops = {written: op for op, written in OPERATORS.items()}
        if not isinstance(call.func, ast.Name) or call.func.id not in ops:
            raise BadInput(f"{_shown(call.func)} is not an operator; use {choices(ops)}")
        op, arguments = ops[call.func.id], list(call.args)
        unknown = [str(option.arg) for option in call.keywords if option.arg not in _OPTIONS]
        if unknown:
            raise BadInput(f"{call.func.id}: option {unknown[0]!r:.40} does not exist; use {choices(_OPTIONS)}")
        options: Entry = {str(option.arg): _data(option.value) for option in call.keywords}
        fields: Entry = {}
        if op in ("map", "sequence_map"):
            fields["table"] = _rows(arguments.pop(0) if arguments else None, pairs=op == "sequence_map")
        elif op == "select":
            fields |= _predicate(arguments.pop() if arguments else None)
        elif op == "linear_sequence_map":
            fields["factors"] = [options.pop("x_factor", None), options.pop("y_factor", None)]
        of = [self._operand(argument) for argument in arguments]
        name = options.pop("name", identifier)
        if name is None:
            name = f" select {len(self.variables)}"  # no line can give a name like this; selects are named anew anyway
        self.variables.append({"name": name, "op": op, "of": of, **fields, **options})
        return name

    def _operand(self, argument: ast.expr) -> str:
        if isinstance(argument, ast.Name):
            return self._named(argument.id)
        if isinstance(argument, ast.Call) and isinstance(argument.func, ast.Name) and argument.func.id == "Select":
            return self._entry(argument, None)
        raise BadInput(f"{_shown(argument)} is not a variable; give its own line to everything but a Select")

    def _named(self, identifier: str) -> str:
        if identifier not in self.names:
            raise BadInput(f"{identifier!r:.40} is not defined before it; there is {choices(self.names)}")
        return self.names[identifier]


def _rows(node: ast.expr | None, *, pairs: bool) -> list[list[Any]]:
    if not isinstance(node, ast.Dict):
        raise BadInput("the first argument of Map and SequenceMap must be a table, as in {'a': 1}")
    rows: dict[str, list[object]] = {}
    for key, result in zip(node.keys, node.values, strict=True):
        argument = None if key is None else _data(key)
        if key is None or (pairs and not (isinstance(argument, list) and len(argument) == 2)):
            raise BadInput("the keys of a SequenceMap's table are pairs, as in {('a', 0): 1}")
        shown = literal(argument)
        if shown in rows:
            raise BadInput(f"the table has two entries for {shown:.40}")
        rows[shown] = [*(argument if pairs else [argument]), _data(result)]  # type: ignore[misc]
    return list(rows.values())


def _predicate(node: ast.expr | None) -> Entry:
    match node:
        case ast.Attribute(value=ast.Name(id="Comparison"), attr=name) | ast.Name(id=name):
            return {"comparison": name}
        case ast.List(elts=pairs):
            return {"pairs": [_data(pair) for pair in pairs]}
    raise BadInput("the last argument of Select must be a comparison or a list of pairs")


def _data(node: ast.expr, depth: int = 0) -> object:
    """A literal as JSON data: no name but `inf` is looked up, nothing is called."""
    match node:
        case ast.Constant(value=value) if value is None or isinstance(value, bool | str | int | float):
            return {"number": "inf"} if value == float("inf") else value
        case ast.Name(id="inf"):
            return {"number": "inf"}
        case ast.UnaryOp(op=ast.USub(), operand=ast.Name(id="inf")):
            return {"number": "-inf"}
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.Tuple(elts=parts) if depth < MAX_DEPTH:
            return [_data(part, depth + 1) for part in parts]
    raise BadInput(f"{_shown(node)} is not a value; use strings, numbers and tuples of them")


def _shown(node: ast.AST) -> str:
    return f"{' '.join(ast.unparse(node).split())!r:.60}"


# SPEC.py: a RASP program as a file.
#
# The file defines `program()` (returns the output variable), `vocab`, `max_len`, `causal`, and may define `name` and
# `description`. `load_spec` runs it, so load only files you would also run; a sandbox does that for files of other
# people (`names`). `render_spec` writes any compiled program as such a file, with every function spelled out as a look-
# up table, and loading that file gives the same program again.

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


def names(argument: None) -> JsonObject:
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


def _execute(text: str, path: Path) -> JsonObject:
    defined: dict[str, object] = {"__name__": path.stem, "__file__": str(path)}
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
