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
import re
import unicodedata
from collections.abc import Iterable
from functools import cache

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
