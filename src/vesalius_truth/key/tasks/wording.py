"""Text that several notes share: the two parts of a count, and the pair that measures the sequence length."""

from collections.abc import Callable, Iterable, Sequence
from string import ascii_lowercase
from typing import Any


def length_notes(use: str, *, longest: int = 9) -> dict[str, str]:
    """Notes of L0H0 and L0_MLP when they measure the sequence length; `use` says what for."""
    return {
        "L0H0": (
            "Spreads its attention over all positions without regard to content, so what it gathers depends only on "
            f"how many there are; L0_MLP reads the length off it, and the length is needed to {use}."
        ),
        "L0_MLP": (
            f"Turns L0H0's length signal into the sequence length itself, a whole number up to {longest}, the same at "
            f"every position; later components use it to {use}."
        ),
    }


def count_notes(counted: str, *, use: str, head: str = "L0H0", mlp: str = "L0_MLP") -> dict[str, str]:
    """Notes of a head that gathers a share and of the MLP that turns the share into a count."""
    return {
        head: f"Attends to exactly {counted}; how thinly its attention is spread tells {mlp} how many there are.",
        mlp: f"Turns {head}'s share into a count of {counted}; {use}.",
    }


def format_examples(function: Callable[[Any], Any], examples: Iterable[object]) -> str:
    """A function at a few inputs: `4 -> 24, 0 -> 1`."""
    return ", ".join(f"{format_value(value)} -> {format_value(function(value))}" for value in examples)


def format_value(value: object) -> str:
    """A value as text: strings in quotes, floats to five places."""
    if isinstance(value, float):
        return f"{value:.5f}".rstrip("0").rstrip(".")
    return repr(value)


def format_list(values: Sequence[object]) -> str:
    """`1, 2 and 3`."""
    texts = [format_value(value) for value in values]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


# The vocabularies that several tasks share. Numbers stand in ascending order, so a sorted code is a sorted value.

ABC = ("a", "b", "c")
LETTERS = tuple(ascii_lowercase)
WORDS = ("J", "LB", "TPSI", "V", "b", "no", "oCLrZaW", "poiVg")
ZERO_TO_TEN = tuple(range(11))
BELOW_TWENTY = tuple(range(20))
BELOW_THIRTY = tuple(range(30))
AROUND_ZERO = tuple(range(-10, 10))
# Tenths from -1 up to 0.9, as floating point gives them by this subtraction: 0.1 is 0.10000000000000009 here.
TENTHS = tuple(step / 10 - 1 for step in range(20))
QUARTERS = tuple(step / 4 for step in range(20))
