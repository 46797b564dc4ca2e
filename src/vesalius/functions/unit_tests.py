"""Unit tests of a description: of three examples, which one is the function's?

A category package makes them (`unit_tests(function, seed)`); an LM evaluator takes them (`agents.evaluator`).
"""

from dataclasses import dataclass
from typing import Any


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
