"""Operations of two and three arguments, simplest first; what reads only one of them is among those of `single`."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from vesalius.rasp.naming.operation import Candidate, Value, numbers, ordered
from vesalius.rasp.naming.single import LARGEST_CONSTANT

X, Y, Z = "{x}", "{y}", "{z}"
Columns = Sequence[Sequence[Value]]


def of_two(columns: Columns) -> Iterator[Candidate]:
    """Comparisons, then arithmetic, then remainders and limits of sums and differences."""
    left, right = columns
    yield Candidate("equality", "x == y", f"whether {X} equals {Y}")
    yield Candidate("equality", "x != y", f"whether {X} differs from {Y}")
    if ordered([*left, *right]) is not None:
        yield from _order()
    if numbers([*left, *right]) is None:
        return
    if set(left) | set(right) <= {0, 1}:
        yield from _logic()
    yield from _arithmetic()
    yield from _whole_arithmetic(left, right)
    yield from _limits(left, right)


def _order() -> Iterator[Candidate]:
    yield Candidate("order", "x < y", f"whether {X} is smaller than {Y}")
    yield Candidate("order", "x >= y", f"whether {X} is at least {Y}")
    yield Candidate("order", "x > y", f"whether {X} is larger than {Y}")
    yield Candidate("order", "x <= y", f"whether {X} is at most {Y}")
    yield Candidate("order", "(x > y) - (x < y)", f"whether {X} is smaller than, equal to or larger than {Y}")
    yield Candidate("minimum", "min(x, y)", f"the smaller of {X} and {Y}")
    yield Candidate("maximum", "max(x, y)", f"the larger of {X} and {Y}")


def _logic() -> Iterator[Candidate]:
    yield Candidate("conjunction", "x == 1 and y == 1", f"whether {X} and {Y} are both 1")
    yield Candidate("disjunction", "x == 1 or y == 1", f"whether {X} or {Y} is 1")
    yield Candidate("conjunction", "not (x == 1 and y == 1)", f"whether {X} and {Y} are not both 1")
    yield Candidate("disjunction", "not (x == 1 or y == 1)", f"whether neither {X} nor {Y} is 1")


def _arithmetic() -> Iterator[Candidate]:
    yield Candidate("sum", "x + y", f"the sum of {X} and {Y}")
    yield Candidate("difference", "x - y", f"{X} minus {Y}")
    yield Candidate("difference", "y - x", f"{Y} minus {X}")
    yield Candidate("distance", "abs(x - y)", f"the distance between {X} and {Y}")
    yield Candidate("product", "x * y", f"the product of {X} and {Y}")
    yield Candidate("quotient", "x / y", f"{X} divided by {Y}")
    yield Candidate("quotient", "y / x", f"{Y} divided by {X}")
    yield Candidate("mean", "(x + y) / 2", f"the mean of {X} and {Y}")


def _whole_arithmetic(left: Sequence[Value], right: Sequence[Value]) -> Iterator[Candidate]:
    if not all(isinstance(value, int) for value in (*left, *right)):
        return
    yield Candidate("parity", "(x + y) % 2", f"the parity of the sum of {X} and {Y}")
    yield Candidate("parity", "(x + y) % 2 == 0", f"whether the sum of {X} and {Y} is even")
    for a, b, one, two in (("x", "y", X, Y), ("y", "x", Y, X)):
        yield Candidate("multiple", f"{a} % {b} == 0", f"whether {one} is a multiple of {two}")
        yield Candidate("modulo", f"{a} % {b}", f"{one} modulo {two}")
        yield Candidate("quotient", f"{a} // {b}", f"{one} divided by {two}, rounded down")
    for k in range(2, LARGEST_CONSTANT + 1):
        yield Candidate("multiple", f"(x + y) % {k} == 0", f"whether the sum of {X} and {Y} is a multiple of {k}")
        yield Candidate("multiple", f"(x * y) % {k} == 0", f"whether the product of {X} and {Y} is a multiple of {k}")
        yield Candidate("modulo", f"(x + y) % {k}", f"the sum of {X} and {Y}, modulo {k}")
        yield Candidate("modulo", f"(x - y) % {k}", f"{X} minus {Y}, modulo {k}")
        yield Candidate("modulo", f"(x * y) % {k}", f"the product of {X} and {Y}, modulo {k}")
    for c in range(1, LARGEST_CONSTANT + 1):
        yield Candidate("sum", f"x + y + {c}", f"the sum of {X} and {Y}, plus {c}")
        yield Candidate("difference", f"x + y - {c}", f"the sum of {X} and {Y}, minus {c}")
        yield Candidate("difference", f"x - y - {c}", f"{X} minus {Y}, minus {c}")
        yield Candidate("difference", f"y - x - {c}", f"{Y} minus {X}, minus {c}")
    for k in (2, 3):
        yield Candidate("sum", f"{k} * x + y", f"{k} times {X} plus {Y}")
        yield Candidate("sum", f"x + {k} * y", f"{X} plus {k} times {Y}")
        yield Candidate("difference", f"x - {k} * y", f"{X} minus {k} times {Y}")
        yield Candidate("difference", f"{k} * x - y", f"{k} times {X} minus {Y}")


def _limits(left: Sequence[Value], right: Sequence[Value]) -> Iterator[Candidate]:
    """Thresholds and limits of a sum, a difference or a product, at the values these can have."""
    for formula, text, combine in (
        ("x + y", f"the sum of {X} and {Y}", lambda x, y: x + y),
        ("x - y", f"{X} minus {Y}", lambda x, y: x - y),
        ("abs(x - y)", f"the distance between {X} and {Y}", lambda x, y: abs(x - y)),
        ("x * y", f"the product of {X} and {Y}", lambda x, y: x * y),
    ):
        results = sorted({combine(x, y) for x in set(left) for y in set(right)})
        for below, value in pairwise(results):
            yield Candidate("threshold", f"{formula} >= {value!r}", f"whether {text} is at least {value:.6g}")
            yield Candidate("threshold", f"{formula} <= {below!r}", f"whether {text} is at most {below:.6g}")
        for value in results:
            yield Candidate("equality", f"{formula} == {value!r}", f"whether {text} is {value:.6g}")
            yield Candidate("equality", f"{formula} != {value!r}", f"whether {text} is not {value:.6g}")
        for limit in results[1:-1]:
            yield Candidate("clamp", f"min({formula}, {limit!r})", f"{text}, limited to at most {limit:.6g}")
            yield Candidate("clamp", f"max({formula}, {limit!r})", f"{text}, limited to at least {limit:.6g}")


def of_three(columns: Columns) -> Iterator[Candidate]:
    """Whether all are equal, the extremes, the sum; in terms of two, one decides between the others."""
    yield Candidate("equality", "x == y == z", f"whether {X}, {Y} and {Z} are all equal")
    values = [value for column in columns for value in column]
    if ordered(values) is not None:
        yield Candidate("minimum", "min(x, y, z)", f"the smallest of {X}, {Y} and {Z}")
        yield Candidate("maximum", "max(x, y, z)", f"the largest of {X}, {Y} and {Z}")
        yield Candidate("order", "x < y < z", f"whether {X}, {Y} and {Z} rise")
        yield Candidate("order", "x <= y <= z", f"whether {X}, {Y} and {Z} never fall")
    if numbers(values) is not None:
        yield Candidate("sum", "x + y + z", f"the sum of {X}, {Y} and {Z}")
        yield Candidate("sum", "x + y - z", f"the sum of {X} and {Y}, minus {Z}")
        yield Candidate("difference", "x - y - z", f"{X} minus {Y} and {Z}")
        yield Candidate("product", "x * y * z", f"the product of {X}, {Y} and {Z}")
        yield Candidate("parity", "(x + y + z) % 2", f"the parity of the sum of {X}, {Y} and {Z}")
