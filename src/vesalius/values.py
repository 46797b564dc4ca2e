"""When two values are the same: numbers that agree to twelve significant digits.

The last bits of a computed float are an accident of the machine: C libraries disagree about `cbrt(3)`, and 0.1 + 0.2 is
not 0.3. Values are classes (of a variable, of a model's output) and keys of tables, so they are never compared bit by
bit: whatever lists, looks up or compares them does so through `rounded`.
"""

import math
from typing import Any

#: Errors of arithmetic and of C libraries are a few units of the sixteenth digit, so a value computed in some steps is
#: safe to twelve; and twelve keep apart everything a float32 can (nine digits).
SIGNIFICANT_DIGITS = 12
#: An object of a JSON document, as it was read or will be written; who reads a field checks what it holds.
JsonObject = dict[str, Any]


def rounded(value: object) -> Any:
    """The value with every float, also inside tuples and lists, rounded to twelve significant digits."""
    if isinstance(value, float):
        # Fifteen digits first: an exact half such as 1 + 2**-12 and its neighbours must all go the same way.
        return float(f"{float(f'{value:.15g}'):.{SIGNIFICANT_DIGITS}g}") if math.isfinite(value) else value
    if isinstance(value, tuple):
        return tuple(map(rounded, value))
    return list(map(rounded, value)) if isinstance(value, list) else value


def from_json(value: object) -> Any:
    """A value read from a file: JSON turns tuples into lists, and values must be hashable, so turn them back."""
    return tuple(from_json(part) for part in value) if isinstance(value, list) else value
