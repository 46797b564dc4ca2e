"""Unit tests of a description: of three examples, which one is the function's?

A category makes them (`unit_tests(function, seed)`). Its grader takes them by running an answer, or an LM evaluator by
reading its description (`agents.evaluator`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

#: The score of a random choice.
CHANCE = 1 / 3
#: Fits this close are a tie.
_TIE = 1e-12


@dataclass(frozen=True)
class Example:
    """An input and, unless inputs alone are shown, the output that goes with it."""

    input: Any
    output: Any = None


@dataclass(frozen=True)
class UnitTest:
    """Three examples; the one at index `correct` is the function's own, the others come from other functions."""

    examples: tuple[Example, ...]
    correct: int

    def __post_init__(self) -> None:
        assert len(self.examples) == 3
        assert 0 <= self.correct < 3

    @classmethod
    def of_inputs(cls, inputs: Sequence[Any], correct: int) -> "UnitTest":
        """Inputs alone."""
        return cls(tuple(map(Example, inputs)), correct)

    @classmethod
    def of_pairs(cls, pairs: Sequence[tuple[Any, Any]], correct: int) -> "UnitTest":
        """Inputs with outputs."""
        return cls(tuple(Example(*pair) for pair in pairs), correct)

    @property
    def inputs(self) -> tuple[Any, ...]:
        """The three inputs."""
        return tuple(example.input for example in self.examples)

    @property
    def outputs(self) -> tuple[Any, ...]:
        """The three outputs; None where inputs alone are shown."""
        return tuple(example.output for example in self.examples)

    @property
    def right(self) -> Example:
        """The function's own example."""
        return self.examples[self.correct]


def credit(fits: Sequence[float | None], correct: int) -> float:
    """1 if the right example fits best, a share if it is tied, else 0; one without a fit (None) is never chosen."""
    known = [fit for fit in fits if fit is not None]
    if not known:
        return 0.0
    best = [index for index, fit in enumerate(fits) if fit is not None and fit >= max(known) - _TIE]
    return (correct in best) / len(best)
