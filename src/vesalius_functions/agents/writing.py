"""How inputs and outputs are written to a language model: numbers as they are, texts as JSON, long ones cut."""

import json
from collections.abc import Sequence
from typing import Any

from vesalius_functions.box import Asked, Layer, Reply

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
