"""What a name is, and what it means for a formula to be exact on a table."""

import string
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isqrt
from typing import Any, Literal

from vesalius.rasp.formula import read_formula

Value = Any
Key = tuple[Value, ...]
#: Entries of a table: the values of the arguments, and the class or value they give.
Entries = Mapping[Key, Hashable]
#: What a formula cannot compute for these arguments.
FAILED = object()
#: What a closed gate gives, as a formula writes it.
NOTHING = "nothing"
#: Digits to which computed numbers are compared.
DIGITS = 9
ARGUMENTS = ("x", "y", "z")
#: Formulas that are kept as they were read: every table is compared with thousands, and most are the same for all.
KEPT = 2**14


@dataclass(frozen=True)
class Label:
    """A value that is only a class: it can be told from others, but neither ordered nor added."""

    code: int

    def __repr__(self) -> str:
        return f"class {self.code}"


@dataclass(frozen=True)
class Candidate:
    """One operation that a table may be: `formula` is written in x, y and z, `template` speaks of them as {x}, {y}
    and {z}.
    """

    operation: str
    formula: str
    template: str


@dataclass(frozen=True)
class Operation:
    """The name of a table.

    `formula` is written in x, y and z, the arguments in order, and can be read by `rasp.formula`. `exact` says what the
    formula gives: the values themselves, or only which arguments count alike. `undefined` says what happens where an
    argument is None: it does not occur, those entries are one class of their own, they count as the value `otherwise`,
    or they are left to the table.
    """

    operation: str
    formula: str
    template: str
    exact: Literal["values", "classes"]
    entries: int
    undefined: Literal["absent", "apart", "as", "table"] = "absent"
    otherwise: Value = None

    def text(self, names: Sequence[str]) -> str:
        """The name as a phrase, with the arguments written as `names`."""
        said = dict(zip(ARGUMENTS, names, strict=False))
        phrase = self.template.format(**said)
        used = [said[x] for x in ARGUMENTS[: len(names)] if "{" + x + "}" in self.template] or list(names[:1])
        return phrase + self._undefined_text(used)

    def _undefined_text(self, used: list[str]) -> str:
        arguments = " or ".join(used)
        if self.undefined == "apart":
            return f", with a value of its own where {arguments} is undefined"
        if self.undefined == "as":
            return f" ({said_value(self.otherwise)} where {arguments} is undefined)"
        if self.undefined == "table":
            return f", wherever {' and '.join(used)} {'is' if len(used) == 1 else 'are'} defined"
        return ""


def said_value(value: Value) -> str:
    """A value in a phrase: yes and no for booleans, numbers without needless digits, the rest as Python writes it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else repr(value)


def plain(value: Value) -> Value:
    """A value that can be compared: numbers to `DIGITS` digits, of which no more count behind the point either, whole
    ones as int.
    """
    if isinstance(value, bool) or not isinstance(value, float):
        return value
    value = float(f"{round(value, DIGITS):.{DIGITS}g}")
    return int(value) if value == int(value) else value


@lru_cache(maxsize=KEPT)
def compiled(formula: str, arity: int) -> Callable[..., Value]:
    """The function a formula stands for; one that only names an argument also passes labels on."""
    if formula in ("(x, y)", "(x, y, z)"):
        return lambda *key: key
    if formula in ARGUMENTS[:arity]:
        place = ARGUMENTS.index(formula)
        return lambda *key: key[place]
    return read_formula(formula, ARGUMENTS[:arity])


def evaluate(function: Callable[..., Value], key: Key) -> Value:
    """The value of a formula, or FAILED where it has none."""
    value = plain(function(*key))
    return FAILED if value is None else value


def class_of_value(function: Callable[..., Value], entries: Entries) -> dict[Value, Hashable] | None:
    """The class each value of the formula stands for, if values and classes belong together one to one."""
    of_value: dict[Value, Hashable] = {}
    of_class: dict[Hashable, Value] = {}
    for key, label in entries.items():
        value = evaluate(function, key)
        if value is FAILED or of_value.setdefault(value, label) != label or of_class.setdefault(label, value) != value:
            return None
    return of_value


def gives_values(function: Callable[..., Value], entries: Entries, values: Mapping[Hashable, Value]) -> bool:
    """Whether the formula gives the value of every entry."""
    for key, label in entries.items():
        value = evaluate(function, key)
        if value is FAILED or not same_value(value, values[label]):
            return False
    return True


def same_value(left: Value, right: Value) -> bool:
    """Equal as values: a truth value is also 0 or 1, and None is what a closed gate gives."""
    return left == NOTHING if right is None else bool(plain(left) == plain(right))


def is_true(function: Callable[..., Value], key: Key) -> bool:
    """Whether a condition holds; where it cannot be computed it does not."""
    value = evaluate(function, key)
    return value is not FAILED and bool(value)


def is_number(value: Value) -> bool:
    """An int, a float or a truth value."""
    return isinstance(value, int | float)


def numbers(values: Iterable[Value]) -> list[Value] | None:
    """The distinct values in rising order if all are numbers, else None."""
    distinct = set(values)
    return sorted(distinct) if distinct and all(is_number(value) for value in distinct) else None


def ordered(values: Iterable[Value]) -> list[Value] | None:
    """The distinct values in rising order if they are all numbers or all texts, else None."""
    distinct = set(values)
    if distinct and all(isinstance(value, str) for value in distinct):
        return sorted(distinct)
    return numbers(distinct)


# Sets of tokens that have a description: vowels, digits, capitals, tokens of one length, a range in order.

VOWELS = "aeiou"
#: Larger whole numbers are not looked at.
LARGEST_PRIME = 10**6


def _is_prime(value: int) -> bool:
    return 1 < value <= LARGEST_PRIME and all(value % divisor for divisor in range(2, isqrt(value) + 1))


OF_NUMBERS: tuple[tuple[str, Callable[[int], bool]], ...] = (
    ("a prime number", _is_prime),
    ("a square number", lambda value: value >= 0 and isqrt(value) ** 2 == value),
)
PLURALS: tuple[tuple[str, Callable[[str], bool]], ...] = (
    ("a vowel", lambda text: len(text) == 1 and text.lower() in VOWELS),
    ("a consonant", lambda text: len(text) == 1 and text.isascii() and text.isalpha() and text.lower() not in VOWELS),
    ("a digit", lambda text: len(text) == 1 and text.isdigit()),
    ("a letter", lambda text: len(text) == 1 and text.isalpha()),
    ("a punctuation mark", lambda text: bool(text) and all(char in string.punctuation for char in text)),
    ("an opening bracket", lambda text: text in tuple("([{<")),
    ("a closing bracket", lambda text: text in tuple(")]}>")),
    ("in capital letters", lambda text: text.isupper()),
    ("in small letters", lambda text: text.islower()),
    ("capitalised", lambda text: text[:1].isupper() and not text.isupper()),
    ("a palindrome", lambda text: len(text) > 1 and text == text[::-1]),
    ("a number", lambda text: text.lstrip("+-").replace(".", "", 1).isdigit()),
)


def described_sets(values: Collection[Value]) -> Iterator[tuple[str, frozenset[Value]]]:
    """Proper, non-empty subsets of the values that a short phrase describes: ("a vowel", {"a", "e"})."""
    if all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        for description, of_number in OF_NUMBERS:
            yield from _proper(description, frozenset(filter(of_number, values)), values)
        return
    texts = [value for value in values if isinstance(value, str)]
    if len(texts) < len(values):
        return
    for description, holds in PLURALS:
        yield from _proper(description, frozenset(filter(holds, texts)), values)
    for length in sorted({len(text) for text in texts}):
        letters = "one character" if length == 1 else f"{length} characters"
        yield from _proper(f"{letters} long", frozenset(text for text in texts if len(text) == length), values)
        more = frozenset(text for text in texts if len(text) >= length)
        yield from _proper(f"at least {letters} long", more, values)
    for letter in sorted({text[0] for text in texts if len(text) > 1}):
        members = frozenset(text for text in texts if text[:1] == letter)
        yield from _proper(f"a token that starts with {letter!r}", members, values)


def _proper(
    description: str, members: frozenset[Value], values: Collection[Value]
) -> Iterator[tuple[str, frozenset[Value]]]:
    if 0 < len(members) < len(values):
        yield description, members
