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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from vesalius_functions.box import Asked, Category, Layer, Reply

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


def usable_input(value: object, category: Category) -> tuple[Any, str | None]:
    """An input as the function takes it, or why it cannot: numbers for numeric functions, texts for the others."""
    if category == "numeric":
        return _usable_number(value)
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return value, "not a text"
    text = value if isinstance(value, str) else json.dumps(value)
    if len(text) > LONGEST_INPUT:
        return text, f"longer than {LONGEST_INPUT} characters"
    return text, None


def _usable_number(value: object) -> tuple[Any, str | None]:
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


# Outputs that a language model made up: stated as observed, in its own turn, although the function did not give them.
#
# Small models often write the function's reply themselves, as published for Llama-2. A statement counts as invented if
# it gives an output, a number or a text in quotes, for an input, as if it had been observed, and the log of queries
# before this turn has no such pair; numbers are compared to the digits that were stated. What is said to be expected
# does not count, nor what stands in the answer's own parts: describing a rule is not claiming an observation. A
# `Response:` that a model writes to itself counts at least once. This is a count by patterns, for comparing models and
# not for accusing one: it misses free prose and texts without quotes, and it also counts a value that a model works out
# by a rule of its own, where it says so as if it had been seen (`f(4) = 16`).

# How inputs and outputs are written to a language model: numbers as they are, texts as JSON, long ones cut.

#: What is shown of one output, and of all outputs of a round.
MOST_OF_ONE, MOST_OF_ALL = 300, 12_000
#: Significant digits of a net's weights.
DIGITS = 6


def said_input(value: object) -> str:
    """An input as the model reads it."""
    return _cut(json.dumps(value, ensure_ascii=False) if isinstance(value, str) else _number_text(value))


def said_output(reply: Reply) -> str:
    """An output as the model reads it, or why there is none."""
    if reply.error is not None:
        return f"none ({_cut(' '.join(reply.error.split()))})"
    return said_input(reply.value)


def said_pairs(asked: Sequence[Asked]) -> str:
    """One line per query; lines beyond the room of a round are left out, and that is said."""
    lines, room = [], MOST_OF_ALL
    for number, one in enumerate(asked):
        line = f"f({said_input(one.input)}) = {said_output(one.reply)}"
        room -= len(line) + 1
        if room < 0:
            lines.append(f"({len(asked) - number} more outputs are left out: ask fewer at a time)")
            break
        lines.append(line)
    return "\n".join(lines)


def said_layers(layers: Sequence[Layer]) -> str:
    """The layers of a net, three lines each, rounded."""
    lines = []
    for number, layer in enumerate(layers, 1):
        weights = "; ".join(_rounded(row) for row in layer["weights"])
        lines.append(f"Layer {number}: {len(layer['biases'])} units, activation {layer['activation']}")
        lines += [f"weights: {weights}", f"biases: {_rounded(layer['biases'])}"]
    return "\n".join(lines)


def _rounded(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.{DIGITS}g}" for value in values)


def _number_text(value: object) -> str:
    if isinstance(value, float):
        return repr(int(value)) if value.is_integer() and abs(value) < 1e15 else f"{value:.10g}"
    return str(value)


def _cut(text: str) -> str:
    return text if len(text) <= MOST_OF_ONE else f"{text[:MOST_OF_ONE]}... ({len(text)} characters)"


_ANSWER = re.compile(r"^[ \t#>*_]*(?:\[[ \t]*DESCRIPTION|DESCRIPTION[ \t*_]*:)", re.MULTILINE | re.IGNORECASE)
_FENCED = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_GUESS = re.compile(r"\b(?:expect|predict|hypothes|should|would|could|might|may|if|suppose|guess|perhaps|assum)", re.I)
_MARKER = re.compile(
    r"^[ \t>*_]*(?:RESPONSE|OUTPUTS?|Function input - output pairs)[ \t*_]*(?::|$)", re.I | re.MULTILINE
)
_QUOTED = r"\"[^\"\n]*\"|'[^'\n]*'"
_NUMBER = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?(?![\w*^/])"
_INPUT, _OUTPUT = rf"(?P<x>{_QUOTED}|{_NUMBER})", rf"(?P<y>{_QUOTED}|{_NUMBER})"
_STATED = (
    re.compile(rf"f\({_INPUT}\)\s*(?:=|->|→|:|returns?|returned|gives?|gave|is)\s*{_OUTPUT}"),
    re.compile(rf"^[ \t*-]*{_INPUT}\s*(?:->|→|=>)\s*{_OUTPUT}", re.MULTILINE),
    re.compile(rf"^[ \t*-]*(?P<x>{_QUOTED})\s*:\s*{_OUTPUT}", re.MULTILINE),
    re.compile(rf"{_INPUT},? the function (?:returned|gave|output)(?: a value of)?\s*{_OUTPUT}"),
)
#: Pairs only where the model plays the function: after a command or a marker.
_PLAYED = re.compile(rf"\({_INPUT},\s*{_OUTPUT}\)")

#: Numbers with more digits before or after the point are compared as texts.
LARGEST = 300

Pair = tuple[str, str]


def invented(turn: str, log: Sequence[Asked]) -> int:
    """How many outputs a turn states that the log does not hold."""
    written = _observations(turn)
    known = [(said_input(asked.input), said_output(asked.reply)) for asked in log]
    marked = _MARKER.search(written) is not None
    stated = set(_pairs(written, played=marked or read_command(turn) is not None))
    unknown = [pair for pair in stated if not any(_agree(pair, other) for other in known)]
    return max(len(unknown), int(marked and (bool(unknown) or not stated)))


def _observations(turn: str) -> str:
    """The turn without the answer, code and lines that only guess."""
    answer = _ANSWER.search(turn)
    text = _FENCED.sub("", turn[: answer.start()] if answer else turn)
    return "\n".join(line for line in text.split("\n") if not _GUESS.search(line))


def _pairs(text: str, *, played: bool) -> Iterable[Pair]:
    for pattern in (*_STATED, _PLAYED) if played else _STATED:
        for match in pattern.finditer(text):
            yield match["x"], match["y"]


def _agree(stated: Pair, known: Pair) -> bool:
    """Whether a pair was seen: its output to the digits stated, its input to the digits after the point."""
    return _says(stated[0], known[0], whole=True) and _says(stated[1], known[1], whole=False)


def _says(stated: str, known: str, *, whole: bool) -> bool:
    said, true = _stated_number(stated), _stated_number(known)
    if said is None or true is None:
        return stated.strip("\"'") == known.strip("\"'")
    digits = -int(said.as_tuple().exponent)
    if whole and digits <= 0:
        return said == true
    return abs(float(said) - float(true)) <= 0.5 * 10.0**-digits * (1 + 1e-9)


def _stated_number(text: str) -> Decimal | None:
    """The number a text is, also in quotes; None if it is none that a float can hold."""
    try:
        number = Decimal(text.strip("\"'"))
    except InvalidOperation:
        return None
    return number if number.is_finite() and abs(number.adjusted()) < LARGEST else None


# The prompts: templates in `templates/`, one per category inside one frame, filled with the limits of the run.


def render(template: str, **values: object) -> str:
    """A prompt from its template."""
    return _environment().get_template(f"{template}.md").render(**values).strip()


@cache
def _environment() -> Environment:
    loader = PackageLoader("vesalius_functions.agents", "templates")
    # Prompts are plain text: escaping for HTML would change what the model reads.
    return Environment(loader=loader, undefined=StrictUndefined, autoescape=False, trim_blocks=True, lstrip_blocks=True)
