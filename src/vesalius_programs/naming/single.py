"""Operations of one argument, simplest first.

`predicates` tell two cases apart and `functions` more; both can be recognised by their classes alone. `formulas` keep
all values apart, so that only known values can tell one from another. All are made from the values that occur: a
threshold stands at a value that does.
"""

import ast
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations, pairwise
from typing import NamedTuple

from vesalius.rasp.formula import ELEMENTARY
from vesalius_programs.naming.operation import (
    ARGUMENTS,
    KEPT,
    NOTHING,
    Candidate,
    Entries,
    Key,
    Value,
    class_of_value,
    compiled,
    described_sets,
    is_true,
    numbers,
    ordered,
    said_value,
)

#: Larger moduli, divisors and constants than this are not used in names.
LARGEST_CONSTANT = 10
#: What tells smaller, equal and larger apart.
ORDER = "(x > y) - (x < y)"
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
        values_in_order = tuple(numbers(members) or sorted(members, key=repr))
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
    """Operations that only known values can tell from others: arithmetic, elementary functions, spellings of texts."""
    in_order = numbers(values)
    if in_order is None:
        yield Candidate("spelling", "upper(x)", f"{X} in capitals")
        yield Candidate("spelling", "lower(x)", f"{X} in small letters")
        yield Candidate("spelling", "reverse(x)", f"{X} written backwards")
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
    for name, said in ELEMENTARY.items():
        yield Candidate(said, f"{name}(x)", f"the {said} of {X}")


def _whole(values: list[Value]) -> bool:
    return all(isinstance(value, int) for value in values)


# A candidate about other arguments than it was made for.


@lru_cache(maxsize=KEPT)
def renamed(candidate: Candidate, arguments: tuple[str, ...]) -> Candidate:
    """The candidate with its first argument called `arguments[0]`, and so on."""
    if arguments == ARGUMENTS[: len(arguments)]:
        return candidate
    to: dict[str, str] = dict(zip(ARGUMENTS, arguments, strict=False))
    marks = {old: f"\0{new}\0" for old, new in to.items()}
    template = escaped(candidate.template.format(**marks))
    for new in to.values():
        template = template.replace(f"\0{new}\0", "{" + new + "}")
    return Candidate(candidate.operation, in_arguments(candidate.formula, to), template)


def in_arguments(formula: str, to: Mapping[str, str]) -> str:
    """A formula with its variables renamed; texts in it stay as they are."""
    tree = ast.parse(formula, mode="eval")
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in to:
            node.id = to[node.id]
    return ast.unparse(tree)


# Operations of two and three arguments, simplest first; what reads only one of them is among those of `single`.

Y, Z = "{y}", "{z}"
Columns = Sequence[Sequence[Value]]


def of_two(columns: Columns) -> Iterator[Candidate]:
    """Comparisons, then arithmetic, then remainders and limits of sums and differences."""
    left, right = columns
    yield Candidate("equality", "x == y", f"whether {X} equals {Y}")
    yield Candidate("equality", "x != y", f"whether {X} differs from {Y}")
    flags = set(left) | set(right) <= {0, 1}
    if flags:
        yield from _logic()
    if ordered([*left, *right]) is not None:
        yield from _order()
    if numbers([*left, *right]) is None:
        return
    yield from _arithmetic()
    yield from _whole_arithmetic(left, right)
    yield from _pairs_limits(left, right)


def _order() -> Iterator[Candidate]:
    yield Candidate("order", "x < y", f"whether {X} is smaller than {Y}")
    yield Candidate("order", "x >= y", f"whether {X} is at least {Y}")
    yield Candidate("order", "x > y", f"whether {X} is larger than {Y}")
    yield Candidate("order", "x <= y", f"whether {X} is at most {Y}")
    yield Candidate("order", ORDER, f"whether {X} is smaller than, equal to or larger than {Y}")
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
    for k in range(2, LARGEST_CONSTANT + 1):
        yield Candidate("sum", f"{k} * x + y", f"{k} times {X} plus {Y}")
        yield Candidate("sum", f"x + {k} * y", f"{X} plus {k} times {Y}")
        yield Candidate("difference", f"x - {k} * y", f"{X} minus {k} times {Y}")
        yield Candidate("difference", f"{k} * x - y", f"{k} times {X} minus {Y}")


def _pairs_limits(left: Sequence[Value], right: Sequence[Value]) -> Iterator[Candidate]:
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


# Two conditions at once, and a value that passes only under a condition.


class _Condition(NamedTuple):
    """A condition on both arguments: its candidate, and the keys it holds for."""

    candidate: Candidate
    holds: frozenset[Key]


def conjunctions(entries: Entries) -> Iterator[Candidate]:
    """Two-class tables whose one class is a product of two named sets (its complement: a disjunction)."""
    labels = sorted(set(entries.values()), key=repr)
    if len(labels) != 2:
        return
    for label in labels:
        members = [key for key, each in entries.items() if each == label]
        columns = [frozenset(key[i] for key in members) for i in (0, 1)]
        if any(key[0] in columns[0] and key[1] in columns[1] and each != label for key, each in entries.items()):
            continue
        first, second = (_named_set(columns[i], {key[i] for key in entries}, ARGUMENTS[i]) for i in (0, 1))
        if first is not None and second is not None:
            conditions = _bare(first), _bare(second)
            both = f"({first.formula}) and ({second.formula})"
            yield Candidate("conjunction", both, f"whether {conditions[0]} and {conditions[1]}")
            yield Candidate(
                "conjunction", f"not ({both})", f"whether it is not so that {conditions[0]} and {conditions[1]}"
            )


def _named_set(members: frozenset[Value], values: set[Value], argument: str) -> Candidate | None:
    """The condition on one argument that holds for the members and no other value."""
    for candidate in _whether(values):
        function = compiled(candidate.formula, 1)
        if all(is_true(function, (value,)) == (value in members) for value in values):
            return renamed(candidate, (argument,))
    return None


def _whether(values: set[Value]) -> Iterator[Candidate]:
    """The conditions on one argument that can be said as "if ..."."""
    return (each for each in predicates(sorted(values, key=repr)) if each.template.startswith("whether "))


def _bare(condition: Candidate) -> str:
    return condition.template.removeprefix("whether ")


def gates(entries: Entries, *, valued: bool) -> Iterator[Candidate]:
    """One argument, or a function of it, under a condition; elsewhere one class. With `valued` the entries are values,
    else they are only classes.
    """
    for condition in _conditions(entries):
        for is_open in (True, False):
            inside = {key: each for key, each in entries.items() if (key in condition.holds) == is_open}
            outside = {each for key, each in entries.items() if (key in condition.holds) != is_open}
            if len(outside) == 1 and len(set(inside.values())) > 1:
                yield from _passing(condition.candidate, inside, outside.pop(), is_open=is_open, valued=valued)


def _passing(
    condition: Candidate, inside: Entries, closed: Hashable, *, is_open: bool, valued: bool
) -> Iterator[Candidate]:
    test = condition.formula if is_open else f"not ({condition.formula})"
    when = f"where {_bare(condition)}, otherwise" if is_open else f"except where {_bare(condition)}: there"
    for place in (0, 1):
        table = {(key[place],): each for key, each in inside.items()}
        if any(table[(key[place],)] != each for key, each in inside.items()):
            continue
        for candidate in functions([key[0] for key in table]):
            of_value = class_of_value(compiled(candidate.formula, 1), table)
            if of_value is None:
                continue
            shut, said = _shut(of_value, closed, valued=valued)
            passed = renamed(candidate, (ARGUMENTS[place],))
            formula = f"{passed.formula} if {test} else {shut!r}"
            yield Candidate("gate", formula, f"{passed.template} {when} {escaped(said)}")
            break


def _shut(of_value: dict[Value, Hashable], closed: Hashable, *, valued: bool) -> tuple[Value, str]:
    """What a closed gate gives, as a value and in words."""
    if valued:
        return (NOTHING, "nothing") if closed is None else (closed, said_value(closed))
    for value, each in of_value.items():
        if each == closed and isinstance(value, str | int | float):
            return value, said_value(value)
    return NOTHING, "nothing"


def _conditions(entries: Entries) -> Iterator[_Condition]:
    for place in (0, 1):
        values = {key[place] for key in entries}
        for candidate in _whether(values):
            function = compiled(candidate.formula, 1)
            members = {value for value in values if is_true(function, (value,))}
            holds = frozenset(key for key in entries if key[place] in members)
            yield _Condition(renamed(candidate, (ARGUMENTS[place],)), holds)
    yield _condition(Candidate("equality", "x == y", "whether {x} equals {y}"), entries)
    if ordered(value for key in entries for value in key) is not None:
        yield _condition(Candidate("order", "x < y", "whether {x} is smaller than {y}"), entries)
        yield _condition(Candidate("order", "x <= y", "whether {x} is at most {y}"), entries)


def _condition(candidate: Candidate, keys: Iterable[Key]) -> _Condition:
    function = compiled(candidate.formula, 2)
    return _Condition(candidate, frozenset(key for key in keys if is_true(function, key)))
