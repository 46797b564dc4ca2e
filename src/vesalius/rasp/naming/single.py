"""Operations of one argument, simplest first.

`predicates` tell two cases apart and `functions` more; both can be recognised by their classes alone. `formulas` keep
all values apart, so that only known values can tell one from another. All are made from the values that occur: a
threshold stands at a value that does.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise

from vesalius.rasp.naming.operation import Candidate, Value, numbers, ordered, said_value
from vesalius.rasp.naming.sets import described_sets

#: Larger moduli, divisors and constants than this are not used in names.
LARGEST_CONSTANT = 10
#: A range in the order of texts has this many texts inside and outside, or it is a list.
FEWEST_IN_RANGE = 2
#: So many values with the same remainder make it a pattern; fewer are a list.
FEWEST_WITH_REST = 3
X = "{x}"


def predicates(values: Sequence[Value]) -> Iterator[Candidate]:
    """Conditions on one argument: one value, a threshold, parity, remainders, a range, a set with a description."""
    if all(isinstance(value, bool) for value in values):
        yield Candidate("identity", "x", X)
        yield Candidate("equality", "x == True", f"whether {X} is yes")
        yield Candidate("negation", "x == False", f"whether {X} is no")
        return
    for value in sorted(set(values), key=repr):
        if isinstance(value, str | int | float):
            yield from _either("equality", f"x == {value!r}", f"x != {value!r}", said_value(value))
    in_order = numbers(values)
    if in_order is not None:
        yield from _thresholds(in_order)
        yield from _parity(in_order)
        for low, high in combinations(in_order[1:-1], 2):
            inside = f"{low!r} <= x <= {high!r}"
            yield from _either("threshold", inside, f"not ({inside})", f"from {low:.6g} to {high:.6g}")
    for description, members in described_sets(set(values)):
        values_in_order = tuple(sorted(members, key=repr))
        yield from _either("membership", f"x in {values_in_order!r}", f"x not in {values_in_order!r}", description)
    texts = ordered(values)
    if texts is not None and in_order is None:
        yield from _text_ranges(texts)


def _either(operation: str, formula: str, opposite: str, description: str) -> Iterator[Candidate]:
    """A condition and its negation: they have the same classes but other values."""
    yield Candidate(operation, formula, f"whether {X} is {escaped(description)}")
    yield Candidate(operation, opposite, f"whether {X} is not {escaped(description)}")


def escaped(text: str) -> str:
    """A text that stands in a template: braces are not arguments."""
    return text.replace("{", "{{").replace("}", "}}")


def _thresholds(values: list[Value]) -> Iterator[Candidate]:
    for below, value in pairwise(values):
        adjacent = isinstance(below, int) and isinstance(value, int) and value - below == 1
        gap = "" if adjacent else f" (nothing between {below:.6g} and {value:.6g} occurs)"
        yield Candidate("threshold", f"x >= {value!r}", f"whether {X} is at least {value:.6g}{gap}")
        yield Candidate("threshold", f"x <= {below!r}", f"whether {X} is at most {below:.6g}{gap}")


def _parity(values: list[Value]) -> Iterator[Candidate]:
    if not _whole(values):
        return
    yield Candidate("parity", "x % 2", f"the parity of {X}")
    yield Candidate("parity", "x % 2 == 0", f"whether {X} is even")
    yield Candidate("parity", "x % 2 == 1", f"whether {X} is odd")
    for k in range(3, LARGEST_CONSTANT + 1):
        yield from _either("multiple", f"x % {k} == 0", f"x % {k} != 0", f"a multiple of {k}")
        for rest in range(1, k):
            if sum(value % k == rest for value in values) >= FEWEST_WITH_REST:
                yield from _either("modulo", f"x % {k} == {rest}", f"x % {k} != {rest}", f"{rest} modulo {k}")


def _text_ranges(texts: list[str]) -> Iterator[Candidate]:
    """Texts up to one, or from one on, in alphabetical order."""
    for place in range(FEWEST_IN_RANGE, len(texts) - FEWEST_IN_RANGE + 1):
        before, first = texts[place - 1], texts[place]
        later, earlier = (escaped(f"{text!r}") for text in (first, before))
        yield Candidate("membership", f"x >= {first!r}", f"whether {X} is {later} or later in alphabetical order")
        yield Candidate("membership", f"x <= {before!r}", f"whether {X} is {earlier} or earlier in alphabetical order")


def functions(values: Sequence[Value]) -> Iterator[Candidate]:
    """Operations with more than two results: the value itself, its distance from zero, remainders, limits."""
    yield Candidate("identity", "x", X)
    in_order = numbers(values)
    if in_order is None:
        if all(isinstance(value, str) for value in values):
            yield Candidate("length of a token", "len(x)", f"the number of characters of {X}")
            yield Candidate("parity", "len(x) % 2", f"the parity of the number of characters of {X}")
            yield Candidate("parity", "len(x) % 2 == 0", f"whether the number of characters of {X} is even")
        return
    if in_order[0] < 0:
        yield Candidate("absolute value", "abs(x)", f"the absolute value of {X}")
        yield Candidate("sign", "(x > 0) - (x < 0)", f"the sign of {X}")
    if _whole(in_order):
        for k in range(3, LARGEST_CONSTANT + 1):
            yield Candidate("modulo", f"x % {k}", f"{X} modulo {k}")
        for k in range(2, LARGEST_CONSTANT + 1):
            yield Candidate("quotient", f"x // {k}", f"{X} divided by {k}, rounded down")
    else:
        yield Candidate("rounding", "(2 * x + 1) // 2", f"{X} rounded to the nearest whole number")
        yield Candidate("rounding", "x // 1", f"{X} rounded down")
    yield from _limits(in_order)
    for centre in in_order[1:-1]:
        yield Candidate("distance", f"abs(x - {centre!r})", f"the distance of {X} from {centre:.6g}")


def _limits(values: list[Value]) -> Iterator[Candidate]:
    for limit in values[1:-1]:
        yield Candidate("clamp", f"min(x, {limit!r})", f"{X} limited to at most {limit:.6g}")
        yield Candidate("clamp", f"max(x, {limit!r})", f"{X} limited to at least {limit:.6g}")
    for low, high in combinations(values[1:-1], 2):
        text = f"{X} limited to the range from {low:.6g} to {high:.6g}"
        yield Candidate("clamp", f"min(max(x, {low!r}), {high!r})", text)


def formulas(values: Sequence[Value]) -> Iterator[Candidate]:
    """Arithmetic that gives every value another: minus, plus, times, squares, multiples next to a number."""
    in_order = numbers(values)
    if in_order is None:
        return
    yield Candidate("negation", "-x", f"minus {X}")
    if set(in_order) <= {0, 1}:
        yield Candidate("negation", "1 - x", f"the opposite of {X}")
    yield Candidate("product", "x * x", f"the square of {X}")
    yield Candidate("product", "x * x * x", f"the cube of {X}")
    for c in range(1, LARGEST_CONSTANT + 1):
        yield Candidate("sum", f"x + {c}", f"{X} plus {c}")
        yield Candidate("difference", f"x - {c}", f"{X} minus {c}")
        yield Candidate("difference", f"{c} - x", f"{c} minus {X}")
    for c in range(2, LARGEST_CONSTANT + 1):
        yield Candidate("product", f"{c} * x", f"{c} times {X}")
        yield Candidate("product", f"-{c} * x", f"minus {c} times {X}")
        yield Candidate("quotient", f"x / {c}", f"{X} divided by {c}")
        if _whole(in_order):
            yield Candidate("multiple", f"x - x % {c}", f"the largest multiple of {c} up to {X}")
            yield Candidate("multiple", f"x + -x % {c}", f"the smallest multiple of {c} from {X} on")
    yield Candidate("quotient", "1 / x", f"one divided by {X}")
    for c in range(1, LARGEST_CONSTANT + 1):
        yield Candidate("sum", f"2 * x + {c}", f"twice {X} plus {c}")
        yield Candidate("difference", f"2 * x - {c}", f"twice {X} minus {c}")


def _whole(values: list[Value]) -> bool:
    return all(isinstance(value, int) for value in values)
