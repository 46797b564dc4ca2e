"""The commands of a language model and how its turns are parsed. No command reaches a shell.

A turn does one thing. Either it asks, with one command that stands on lines of its own,

    ASK [1, 2.5, -3]                       a JSON list; it may go on over several lines
    PYTHON(function.py a b c)              the published form: inputs between blanks; nothing else has a meaning

or it ends with the answer, whose parts begin with `[DESCRIPTION]:`, `[DOMAIN]:`, `[INTERVAL]:` and `[CODE]:`. Quotes,
commas, semicolons, dollar signs and brackets in an input are part of that input. A text with blanks in it needs `ASK`.
The line of a command may begin with `COMMAND:`. Whatever follows the command in the same turn is not read; outputs that
a model writes there are its own invention (see `invention`).
"""

import json
import math
import re
from dataclasses import dataclass
from typing import Any

from vesalius_functions.box import Category

#: The longest input that is handed to a function.
LONGEST_INPUT = 1_000
_COMMAND = re.compile(r"^[ \t>*`]*(?:COMMAND:[ \t]*)?(?:(?P<ask>ASK)\b|(?P<python>PYTHON)[ \t]*\()", re.MULTILINE)
_SCRIPT = re.compile(r"""^["'{]?(?:\S*/)?function\.py["'}]?$""")
_PART = re.compile(
    r"^[ \t#>*_]*(?:\[[ \t]*(?P<marked>DESCRIPTION|DOMAIN|INTERVAL|CODE)[ \t]*\][ \t*_]*:?"
    r"|(?P<plain>DESCRIPTION|DOMAIN|INTERVAL|CODE)[ \t*_]*:)[ \t*_]*",
    re.MULTILINE | re.IGNORECASE,
)
_FENCE = re.compile(r"```[^\n`]*\n(?P<code>.*?)(?:\n[ \t]*```|\Z)", re.DOTALL)
_CODE_LIKE = re.compile(r"^[ \t]*(?:def |import |from |\w+ *= *lambda\b)", re.MULTILINE)
_ADVICE = 'write a line such as ASK [1, 2, 3], with one JSON list of inputs; texts stand in double quotes: ASK ["a b"]'


@dataclass(frozen=True)
class Ask:
    """A command that could be read. `end` is where it ends in the turn."""

    inputs: tuple[Any, ...]
    end: int


@dataclass(frozen=True)
class Malformed:
    """A turn that asks nothing and answers nothing, and what to tell its author."""

    reason: str
    end: int


@dataclass(frozen=True)
class Parts:
    """The parts of an answer, stripped; None where a part is not there or empty."""

    description: str | None = None
    domain: str | None = None
    code: str | None = None
    interval: str | None = None


def read_command(turn: str) -> Ask | Malformed | None:
    """The first command of a turn; None if there is none."""
    header = _COMMAND.search(turn)
    if header is None:
        return None
    return _read_ask(turn, header.end()) if header["ask"] else _read_python(turn, header.end())


def read_answer(turn: str) -> Parts:
    """The parts of the last answer in a turn."""
    # A comment in code may begin like a part, so fenced blocks are blanked out for the search.
    marks = list(_PART.finditer(_FENCE.sub(lambda block: re.sub(r"[^\n]", " ", block[0]), turn)))
    first = max((i for i, mark in enumerate(marks) if _name(mark) == "description"), default=None)
    if first is None:
        return Parts()
    ends = [mark.start() for mark in marks[1:]] + [len(turn)]
    parts = {_name(mark): turn[mark.end() : end].strip() for mark, end in zip(marks, ends, strict=True)}
    last = marks[first]
    description = turn[last.end() : ends[first]].strip()
    interval = parts.get("interval") or None
    return Parts(description or None, parts.get("domain") or None, _code(parts.get("code", "")), interval)


def usable_input(value: Any, category: Category) -> tuple[Any, str | None]:
    """An input as the function takes it, or why it cannot: numbers for numeric functions, texts for the others."""
    if category == "numeric":
        return _number(value)
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return value, "not a text"
    text = value if isinstance(value, str) else json.dumps(value)
    if len(text) > LONGEST_INPUT:
        return text, f"longer than {LONGEST_INPUT} characters"
    return text, None


def _number(value: Any) -> tuple[Any, str | None]:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return value, "not a number"
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return value, "not a number"
    return (number, None) if math.isfinite(number) else (value, "not a finite number")


def _read_ask(turn: str, start: int) -> Ask | Malformed:
    line_end = turn.find("\n", start)
    begin = next((i for i in range(start, len(turn)) if not turn[i].isspace()), len(turn))
    here = line_end if line_end >= 0 else len(turn)
    if begin == len(turn) or turn[begin] != "[":
        return Malformed(f"ASK is followed by no JSON list; {_ADVICE}", here)
    try:
        inputs, length = json.JSONDecoder().raw_decode(turn[begin:])
    except (ValueError, RecursionError) as error:
        return Malformed(f"what follows ASK is not a JSON list ({error}); {_ADVICE}", here)
    if not inputs:
        return Malformed(f"ASK with an empty list asks nothing; {_ADVICE}", begin + length)
    return Ask(tuple(inputs), begin + length)


def _read_python(turn: str, start: int) -> Ask | Malformed:
    end = turn.find("\n", start)
    end = len(turn) if end < 0 else end
    line = turn[start:end].rstrip(" \t`*")
    if not line.endswith(")"):
        return Malformed(f"PYTHON(...) must close on its line and stand there alone; {_ADVICE}", end)
    script, *inputs = line[:-1].split() or [""]
    if not _SCRIPT.match(script):
        return Malformed(f"the only script is function.py, not {script[:60]!r}: PYTHON(function.py INPUT ...)", end)
    if not inputs:
        return Malformed("PYTHON(function.py) asks nothing; put inputs after the script's name", end)
    return Ask(tuple(inputs), end)


def _name(mark: re.Match[str]) -> str:
    return (mark["marked"] or mark["plain"]).lower()


def _code(text: str) -> str | None:
    """The last fenced block, or the whole part if it looks like code."""
    fenced = [block["code"] for block in _FENCE.finditer(text)]
    if fenced:
        return fenced[-1].strip("\n") or None
    return text if _CODE_LIKE.search(text) else None
