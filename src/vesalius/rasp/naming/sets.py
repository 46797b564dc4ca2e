"""Sets of tokens that have a description: vowels, digits, capitals, tokens of one length, a range in order."""

import string
from collections.abc import Callable, Collection, Iterator

from vesalius.rasp.naming.operation import Value

VOWELS = "aeiou"
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
    ("a number", lambda text: _is_numeral(text)),
)


def described_sets(values: Collection[Value]) -> Iterator[tuple[str, frozenset[Value]]]:
    """Proper, non-empty subsets of the values that a short phrase describes: ("a vowel", {"a", "e"})."""
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


def _is_numeral(text: str) -> bool:
    return text.lstrip("+-").replace(".", "", 1).isdigit()
