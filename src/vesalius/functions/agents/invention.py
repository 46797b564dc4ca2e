"""Outputs that a language model made up: stated as seen, in its own turn, though nobody gave them.

Small models often write the function's reply themselves, as published for Llama-2. A statement counts as invented if it
gives an output for an input, as if it had been observed, and the log of queries before this turn has no such pair. What
is said to be expected or predicted does not count, nor what stands in the answer's own parts: describing a rule is not
claiming an observation. A `Response:` that a model writes to itself counts at least once. This is a count by
patterns: it misses free prose and is meant for comparing models, not for accusing one.
"""

import re
from collections.abc import Iterable, Sequence

from vesalius.functions.agents.commands import read_command
from vesalius.functions.agents.writing import said_input, said_output
from vesalius.functions.box import Asked

_ANSWER = re.compile(r"^[ \t#>*_]*(?:\[[ \t]*DESCRIPTION|DESCRIPTION[ \t*_]*:)", re.MULTILINE | re.IGNORECASE)
_FENCED = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_GUESS = re.compile(r"\b(?:expect|predict|hypothes|should|would|could|might|may|if|suppose|guess|perhaps|assum)", re.I)
_MARKER = re.compile(
    r"^[ \t>*_]*(?:RESPONSE|OUTPUTS?|Function input - output pairs)[ \t*_]*(?::|$)", re.I | re.MULTILINE
)
_INPUT = r"(?P<x>\"[^\"\n]*\"|'[^'\n]*'|[-+]?\d[\w.+-]*)"
_OUTPUT = r"(?P<y>\"[^\"\n]*\"|'[^'\n]*'|[^\s,;()]+)"
_STATED = (
    re.compile(rf"f\({_INPUT}\)\s*(?:=|->|→|:|returns?|returned|gives?|gave|is)\s*{_OUTPUT}"),
    re.compile(rf"^[ \t*-]*{_INPUT}\s*(?:->|→|=>|:)\s*{_OUTPUT}", re.MULTILINE),
    re.compile(rf"{_INPUT},? the function (?:returned|gave|output)(?: a value of)?\s*{_OUTPUT}"),
    re.compile(rf"\({_INPUT},\s*{_OUTPUT}\)"),
)


def invented(turn: str, log: Sequence[Asked]) -> int:
    """How many outputs a turn states that the log does not hold."""
    command = read_command(turn)
    written = _observations(turn)
    known = {_pair(said_input(asked.input), said_output(asked.reply)) for asked in log}
    stated = {pair for pair in _pairs(written, after_command=command is not None) if pair not in known}
    return max(len(stated), int(bool(_MARKER.search(written)) and not _all_known(written, known)))


def _observations(turn: str) -> str:
    """The turn without the answer, code and lines that only guess."""
    answer = _ANSWER.search(turn)
    text = _FENCED.sub("", turn[: answer.start()] if answer else turn)
    return "\n".join(line for line in text.split("\n") if not _GUESS.search(line))


def _pairs(text: str, *, after_command: bool) -> Iterable[tuple[str, str]]:
    # Bare brackets are pairs only where somebody plays the function: after a command or a marker.
    played = after_command or _MARKER.search(text) is not None
    for pattern in _STATED if played else _STATED[:3]:
        for found in pattern.finditer(text):
            yield _pair(found["x"], found["y"])


def _all_known(text: str, known: set[tuple[str, str]]) -> bool:
    stated = list(_pairs(text, after_command=True))
    return bool(stated) and all(pair in known for pair in stated)


def _pair(given: str, output: str) -> tuple[str, str]:
    return _plain(given), _plain(output)


def _plain(text: str) -> str:
    """A value without its quotes or, of a number, its spelling."""
    bare = text.strip().strip("\"'").rstrip(".,")
    try:
        return f"{float(bare):.4g}"
    except ValueError:
        return bare
