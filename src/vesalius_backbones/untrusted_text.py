"""Make untrusted text safe to include in a prompt.

A text that is graded may try to leave its block: by closing it and writing as the grader, by imitating a chat template,
by hiding either in characters that look alike or are invisible. Three measures prevent this:

1. A block's delimiters carry a key derived from every text of the call. The author of one text knows neither the others
   nor, therefore, the key; a key that occurs in a text is never used.
2. Anything that looks like a delimiter, a tag or a fence is rewritten, after look-alike characters are folded and
   invisible ones dropped.
3. Every line begins with a mark, so that no line of a text can be a line of the prompt.

All texts of a call are treated alike, so that the rewriting favours none. Plain sentences are kept: whether a judge is
persuaded by them is a property of the judge.
"""

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

MARK = "| "
#: Notes are a few sentences, plans a page; a longer text is cut and says so.
MAX_CHARACTERS = 8_000
_KEY_LENGTH = 16
#: Unicode's names of other ways to write an ordinary character. Superscripts and fractions are kept.
_VARIANTS = ("<wide>", "<narrow>", "<small>", "<font>", "<circle>", "<square>", "<vertical>", "<noBreak>")
_OPENING = "‹«〈⟨⟪《˂ᐸ❮❬❰≪⋘〈﹤＜⧼⦑⪡"
_CLOSING = "›»〉⟩⟫》˃ᐳ❯❭❱≫⋙〉﹥＞⧽⦒⪢"
_BRACKETS = str.maketrans(_OPENING + _CLOSING, "<" * len(_OPENING) + ">" * len(_CLOSING))
#: Blank characters that Unicode classifies as letters or symbols.
_BLANKS = "ᅟᅠㅤﾠ⠀"
_LINE_ENDS = re.compile("\r\n|[\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]")
_VARIATIONS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")
#: Names a tag may have with blanks around it; with other names `a < b and c > d` is a comparison.
_NAMES = "end|begin|task|reference|candidate|hypothesis|plan|observation|system|user|assistant|human|instructions?"
_REWRITES = (
    (re.compile(r"<(?:[ ]*<)+"), "("),
    (re.compile(r">(?:[ ]*>)+"), ")"),
    (re.compile(r"<([/|!?\\]*[^\W\d][^<>\n]{0,200})(?<![-=])>"), r"(\1)"),
    (re.compile(rf"<([ ]*(?:{_NAMES})\b[^<>\n]*)>", re.IGNORECASE), r"(\1)"),
    (re.compile(r"<(?=[ ]*[/|!?])"), "("),
    (re.compile(r"(?<=[/|])[ ]*>"), ")"),
    (re.compile(r"\[(\s*/?\s*[A-Z][A-Z_ ]*)\]"), r"(\1)"),
    (re.compile(r"([#=*_~`'\"-])\1{2,}"), r"\1"),
)


def fence_key(texts: Iterable[str]) -> str:
    """A key for the delimiters of these texts: derived from all of them, contained in none of them."""
    texts = list(texts)
    # The lengths distinguish two ways of dividing the same characters into texts.
    digest = _digest("".join(f"{len(text)}:{text}" for text in texts))
    while any(digest[:_KEY_LENGTH] in text for text in texts):
        digest = _digest(digest)
    return digest[:_KEY_LENGTH]


def neutralise(text: str, *, most: int = MAX_CHARACTERS) -> str:
    """The text in the form used in a block: visible, truncated, without anything like the prompt's own marks."""
    left_out = max(0, len(text) - most)
    # Truncated first, so that a text of any size costs little; again below, since folding may lengthen it.
    folded = "".join(_fold(character) for character in _VARIATIONS.sub("", text[:most]))
    lines = _LINE_ENDS.split(folded.translate(_BRACKETS))
    visible = "\n".join("".join(map(_visible, line)) for line in lines).strip()
    for pattern, replacement in _REWRITES:
        visible = pattern.sub(replacement, visible)
    left_out += max(0, len(visible) - most)
    visible = visible[:most] + (f" [cut here, {left_out} characters are left out]" if left_out else "")
    return "\n".join(f"{MARK}{line}" for line in visible.split("\n"))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@cache
def _fold(character: str) -> str:
    """The ordinary character of a variant."""
    variant = unicodedata.decomposition(character).partition(" ")[0]
    return unicodedata.normalize("NFKC", character) if variant in _VARIANTS else character


@cache
def _visible(character: str) -> str:
    """Nothing for an invisible character, a space for every kind of blank."""
    category = unicodedata.category(character)
    if category == "Zs" or character == "\t" or character in _BLANKS:
        return " "
    return "" if category[0] == "C" else character


# Read JSON written by a language model.
#
# Candidates are the whole reply, then the places where models put JSON: after their thoughts, in a fenced block, in the
# middle of prose; of several objects the last one counts, since models reason first and conclude last. Each is read by
# the strict parser, then by a tolerant one that accepts syntax errors (quotes, commas, comments, Python's constants,
# raw line breaks). Repairs never invent content: an object that is cut off is not closed; the model is asked again.

THOUGHTS = re.compile(r"<(think|thinking|reasoning)>.*?(</\1>|\Z)", re.DOTALL | re.IGNORECASE)
FENCE = re.compile(r"```[ \t]*[\w+-]*[ \t]*\r?\n(.*?)(?:\n[ \t]*```|```)", re.DOTALL)
NUMBER = re.compile(r"[+-]?(?:\d[\d_]*)?(?:\.\d+)?(?:\.(?=[,\s}\]]))?(?:[eE][+-]?\d+)?")
WORD = re.compile(r"[A-Za-z_$][\w$-]*")
CONSTANTS = {"true": True, "True": True, "false": False, "False": False, "null": None, "None": None}
QUOTES = {'"': '"', "'": "'", "“": "”", "”": "”", "‘": "’", "`": "`"}
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "/": "/", "\\": "\\", '"': '"', "'": "'"}
MAX_DEPTH = 64
#: Digits of a number that is read.
MOST_DIGITS = 300


class Unreadable(ValueError):
    """No JSON value can be read here."""


def objects(text: str) -> Iterator[tuple[dict[str, Any], tuple[str, ...]]]:
    """Every JSON object that can be read from a reply, the likeliest first, with the repairs it took."""
    seen: list[dict[str, Any]] = []
    for candidate, extraction in _candidates(text):
        try:
            value, repairs = read(candidate)
        except Unreadable:
            continue
        if isinstance(value, dict) and value not in seen:
            seen.append(value)
            yield value, (*extraction, *repairs)


def read(text: str) -> tuple[Any, tuple[str, ...]]:
    """A JSON value and the repairs needed to read it; raises `Unreadable`."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        parser = _Tolerant(text)
        return parser.document(), tuple(dict.fromkeys(parser.repairs))
    if _depth(value) > MAX_DEPTH:  # how deep json reads differs between versions of Python
        raise Unreadable(f"more than {MAX_DEPTH} levels deep")
    return value, ()


def _depth(value: Any) -> int:
    """How many levels of objects and lists there are, counted without recursion."""
    depth, level = 0, [value]
    while level := [part for part in level if isinstance(part, dict | list)]:
        depth += 1
        level = [child for part in level for child in (part.values() if isinstance(part, dict) else part)]
    return depth


def _candidates(text: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Parts of a reply that may be JSON, the likeliest first, with how each was extracted."""
    yield text, ()
    stripped = THOUGHTS.sub("", text.lstrip("﻿"))
    extraction = ("thoughts removed",) if stripped != text.lstrip("﻿") else ()
    if extraction:
        yield stripped, extraction
    for block in reversed(FENCE.findall(stripped)):
        yield block, (*extraction, "taken from a fenced block")
    from_text = (*extraction, "taken from the middle of text")
    for block in reversed(list(_balanced(stripped))):
        yield block, from_text
    first, last = stripped.find("{"), stripped.rfind("}")
    if 0 <= first < last:  # a quote or brace in the prose may have upset the balance
        yield stripped[first : last + 1], from_text
        yield stripped[stripped.rfind("{") : last + 1], from_text


def _balanced(text: str) -> Iterator[str]:
    """The outermost {...} spans; braces inside double-quoted strings do not count."""
    depth, start, position = 0, 0, 0
    in_string = False
    while position < len(text):
        character = text[position]
        if in_string:
            if character == "\\":
                position += 1
            in_string = character != '"'
        elif character == '"' and depth:
            in_string = True
        elif character == "{":
            start = position if depth == 0 else start
            depth += 1
        elif character == "}" and depth:
            depth -= 1
            if depth == 0:
                yield text[start : position + 1]
        position += 1


class _Tolerant:
    """A JSON parser that accepts common syntax errors and lists what it repaired."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.repairs: list[str] = []

    def document(self) -> Any:
        value = self._value(0)
        self._skip()
        if self.at < len(self.text):
            raise Unreadable(f"text after the value at character {self.at}")
        return value

    def _peek(self) -> str:
        return self.text[self.at] if self.at < len(self.text) else ""

    def _skip(self) -> None:
        """Skip white space and comments."""
        while self.at < len(self.text):
            if self.text[self.at].isspace() or self.text[self.at] == "﻿":
                self.at += 1
            elif self.text.startswith("//", self.at) or self._peek() == "#":
                self.repairs.append("comment removed")
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif self.text.startswith("/*", self.at):
                self.repairs.append("comment removed")
                end = self.text.find("*/", self.at)
                self.at = len(self.text) if end < 0 else end + 2
            else:
                return

    def _value(self, depth: int) -> Any:
        self._skip()
        if depth > MAX_DEPTH:
            raise Unreadable(f"more than {MAX_DEPTH} levels deep")
        character = self._peek()
        if character == "{":
            return self._object(depth)
        if character == "[":
            return self._array(depth)
        if character in QUOTES and character:
            return self._string()
        return self._bare()

    def _object(self, depth: int) -> dict[str, Any]:
        items: dict[str, Any] = {}
        self.at += 1
        while not self._closed("}", items):
            name = self._name()
            self._skip()
            if self._peek() not in (":", "="):
                raise Unreadable(f"no colon after {name!r}")
            if self._peek() == "=":
                self.repairs.append("= read as colon")
            self.at += 1
            items[name] = self._value(depth + 1)
        return items

    def _array(self, depth: int) -> list[Any]:
        items: list[Any] = []
        self.at += 1
        while not self._closed("]", items):
            items.append(self._value(depth + 1))
        return items

    def _closed(self, bracket: str, items: dict[str, Any] | list[Any]) -> bool:
        """Step over commas up to the next item (False) or the closing bracket (True)."""
        commas = 0
        self._skip()
        while self._peek() == ",":
            commas += 1
            self.at += 1
            self._skip()
        if self._peek() == bracket:
            if commas:
                self.repairs.append("trailing comma removed")
            self.at += 1
            return True
        if not self._peek():
            raise Unreadable("the value breaks off before its closing bracket")
        if items and not commas:
            self.repairs.append("missing comma added")
        elif commas > (1 if items else 0):
            self.repairs.append("extra comma removed")
        return False

    def _name(self) -> str:
        if self._peek() in QUOTES:
            return self._string()
        word = WORD.match(self.text, self.at)
        if not word:
            raise Unreadable(f"no name at character {self.at}")
        self.repairs.append("name put in quotes")
        self.at = word.end()
        return word.group()

    def _string(self) -> str:
        opening = self._peek()
        closing = QUOTES[opening]
        if opening != '"':
            self.repairs.append("quotes replaced")
        self.at += 1
        parts: list[str] = []
        while (character := self._peek()) != closing:
            if not character:
                raise Unreadable("a string breaks off")
            if character == "\\":
                parts.append(self._escape())
                continue
            if character in "\n\r\t":
                self.repairs.append("raw line break or tab escaped")
            parts.append(character)
            self.at += 1
        self.at += 1
        return "".join(parts)

    def _escape(self) -> str:
        following = self.text[self.at + 1 : self.at + 2]
        digits = self.text[self.at + 2 : self.at + 6]
        if following == "u" and re.fullmatch(r"[0-9a-fA-F]{4}", digits):
            # The strict parser joins surrogate pairs, so it reads the whole run of \uXXXX.
            run = re.compile(r"(?:\\u[0-9a-fA-F]{4})+").match(self.text, self.at)
            assert run is not None
            self.at = run.end()
            return json.loads(f'"{run.group()}"')
        if not following:
            raise Unreadable("a string breaks off")
        self.at += 2
        if following in ESCAPES:
            return ESCAPES[following]
        self.repairs.append("lone backslash kept")
        return "\\" + following

    def _bare(self) -> Any:
        number = NUMBER.match(self.text, self.at)
        if number and any(character.isdigit() for character in number.group()):
            return self._number(number.group())
        word = WORD.match(self.text, self.at)
        if word and word.group() in CONSTANTS:
            if word.group()[0].isupper():
                self.repairs.append("Python constant read")
            self.at = word.end()
            return CONSTANTS[word.group()]
        raise Unreadable(f"no value at character {self.at}")

    def _number(self, text: str) -> int | float:
        self.at += len(text)
        try:
            return json.loads(text)
        except ValueError:
            self.repairs.append("number respelled")
        digits = text.replace("_", "").rstrip(".")
        if len(digits) > MOST_DIGITS:
            raise Unreadable(f"a number of {len(digits):,} digits")
        return int(digits) if re.fullmatch(r"[+-]?\d+", digits) else float(digits)
