"""Five input-output pairs per task: short to long, chosen so that together they show what the task does.

For each length many random inputs are drawn and the most informative one is chosen: among those of the program branch
with the fewest examples so far, the one with the most new output values, then with the most distinct ones.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from vesalius.circuits.inputs import Sampler, draw_of_lengths
from vesalius.circuits.key.task import Task
from vesalius.model.specimen import Token

COUNT = 5
CANDIDATES = 400

# The condition each sampler balances: the examples must show both branches.
_BRANCHES: dict[Sampler, Callable[[tuple[Any, ...]], bool]] = {
    "uniform": lambda tokens: True,
    "often_sorted": lambda tokens: list(tokens) == sorted(tokens),
    "often_equal": lambda tokens: len(set(tokens)) == 1,
    "often_even": lambda tokens: all(token % 2 == 0 for token in tokens),
}


@dataclass(frozen=True)
class Example:
    """A sequence of tokens and the program's output for it."""

    input: tuple[Token, ...]
    output: tuple[Any, ...]


def examples(task: Task) -> tuple[Example, ...]:
    """Five examples of a task; the same ones on every call."""
    candidates = _candidates(task)
    chosen: list[Example] = []
    for length in _lengths(task.max_len):
        of_length = [example for example in candidates if len(example.input) == length and example not in chosen]
        chosen.append(max(of_length, key=lambda example: _novelty(task, example, chosen)))
    return tuple(chosen)


def _lengths(longest: int) -> list[int]:
    """Five lengths from 3, or 2 where sequences are very short, up to the longest (at most 12, to stay readable)."""
    top = min(longest, 12)
    bottom = 3 if top > 4 else 2
    return [bottom + round(step * (top - bottom) / (COUNT - 1)) for step in range(COUNT)]


def _candidates(task: Task) -> list[Example]:
    program = task.program()
    lengths = torch.tensor(_lengths(task.max_len)).repeat(CANDIDATES // COUNT)
    codes = draw_of_lengths(task.inputs, lengths, seed=int(task.id))
    outputs = program.decode(program.run(codes, lengths).output, lengths)
    return [
        Example(
            tuple(task.vocab[code] for code in row[: len(output)]),
            tuple(round(value, 6) for value in output) if task.numerical else tuple(output),
        )
        for row, output in zip(codes.tolist(), outputs, strict=True)
    ]


def _novelty(task: Task, example: Example, chosen: list[Example]) -> tuple[int, int, int]:
    branch = _BRANCHES[task.sampler]
    same_branch = sum(branch(other.input) == branch(example.input) for other in chosen)
    values = {value for other in chosen for value in other.output}
    return -same_branch, len(set(example.output) - values), len(set(example.output))
