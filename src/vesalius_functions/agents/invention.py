"""Outputs that a language model made up: stated as observed, in its own turn, although the function did not give them.

Small models often write the function's reply themselves, as published for Llama-2. A statement counts as invented if it
gives an output, a number or a text in quotes, for an input, as if it had been observed, and the log of queries before
this turn has no such pair; numbers are compared to the digits that were stated. What is said to be expected does not
count, nor what stands in the answer's own parts: describing a rule is not claiming an observation. A `Response:` that a
model writes to itself counts at least once. This is a count by patterns, for comparing models and not for accusing one:
it misses free prose and texts without quotes, and it also counts a value that a model works out by a rule of its own,
where it says so as if it had been seen (`f(4) = 16`).
"""

import json
import re
from collections.abc import Iterable, Sequence
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from vesalius_functions.agents.commands import read_command
from vesalius_functions.box import Asked, Layer, Reply

# How inputs and outputs are written to a language model: numbers as they are, texts as JSON, long ones cut.

#: What is shown of one output, and of all outputs of a round.
MOST_OF_ONE, MOST_OF_ALL = 300, 12_000
#: Significant digits of a net's weights.
DIGITS = 6


def said_input(value: Any) -> str:
    """An input as the model reads it."""
    return _cut(json.dumps(value, ensure_ascii=False) if isinstance(value, str) else _number(value))


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


def _number(value: Any) -> str:
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
    said, true = _invention_number(stated), _invention_number(known)
    if said is None or true is None:
        return stated.strip("\"'") == known.strip("\"'")
    digits = -int(said.as_tuple().exponent)
    if whole and digits <= 0:
        return said == true
    return abs(float(said) - float(true)) <= 0.5 * 10.0**-digits * (1 + 1e-9)


def _invention_number(text: str) -> Decimal | None:
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
