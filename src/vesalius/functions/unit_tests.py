"""Unit tests of a description: of three examples, which one is the function's?

A category package makes them (`unit_tests(function, seed)`), each in its own terms; `unit_test_of` puts them in ours,
which an LM evaluator takes (`agents.evaluator`).
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


def unit_test_of(triplet: Any) -> UnitTest:
    """A category's triplet as a unit test: words alone, pairs, or inputs and outputs side by side."""
    if isinstance(triplet, UnitTest):
        return triplet
    if hasattr(triplet, "words"):
        return UnitTest(tuple(Example(word) for word in triplet.words), triplet.true)
    if hasattr(triplet, "pairs"):
        return UnitTest(tuple(Example(*pair) for pair in triplet.pairs), triplet.true)
    return UnitTest(tuple(map(Example, triplet.inputs, triplet.outputs)), triplet.correct)
