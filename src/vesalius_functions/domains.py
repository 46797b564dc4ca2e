"""Which part of its inputs a function of one number does not follow its rule on, as an answer says it.

Two forms are read. The structured one is a JSON object or list, or `none`:

    {"low": 10, "high": 20}                the function is corrupted from 10 to 20; null or left out means unbounded
    {"low": 10, "high": 20, "outside": true}    it is corrupted everywhere else
    [10, 20]

The written one is prose, as the paper asks for it: "for x in [10, 20] the outputs are random". It is read by rule,
sentence by sentence: an interval counts if its sentence, or the one before, says that the function behaves otherwise
there, and not if the sentence denies it or only says where the function is defined. What is not understood counts as
not said.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: Inputs go from minus this to this.
EDGE = 128.0
#: An interval that leaves less than this of the range on either side is the whole range.
_WHOLE = 2.0
_LONGEST_TEXT = 10_000
_N = (
    r"(?:(?:about|approximately|roughly|around|x\s*=)\s*)?"
    r"([-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?|[-+]?\s*(?:inf(?:inity)?\b))"
)
_COMPARED = r"(?:is\s+|are\s+)?(?:strictly\s+)?"
#: Each pattern with what its numbers are: both ends, the lower one, or the upper one.
_MENTIONS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("both", re.compile(rf"[\[(]\s*{_N}\s*[,;]\s*{_N}\s*[\])]")),
    ("both", re.compile(rf"{_N}\s*<=?\s*x\s*<=?\s*{_N}")),
    ("turned", re.compile(rf"{_N}\s*>=?\s*x\s*>=?\s*{_N}")),
    ("both", re.compile(rf"\bbetween\s+{_N}\s*(?:and|to|-)\s*{_N}")),
    ("both", re.compile(rf"\b(?:from|in|range|interval)\s+{_N}\s*(?:to|through|until|up to)\s*{_N}")),
    ("both", re.compile(rf"\b(?:bounds|ends|limits|boundaries|endpoints)\b[^.\d+-]{{0,40}}{_N}\s*(?:and|to|,)\s*{_N}")),
    ("low", re.compile(rf"\bx\s*>=?\s*{_N}")),
    ("high", re.compile(rf"\bx\s*<=?\s*{_N}")),
    ("low", re.compile(rf"\b{_COMPARED}(?:greater|larger|bigger|more|higher) than (?:or equal to )?{_N}")),
    ("high", re.compile(rf"\b{_COMPARED}(?:less|smaller|lower) than (?:or equal to )?{_N}")),
    ("low", re.compile(rf"\b(?:above|beyond|exceeds|exceeding)\s+{_N}")),
    ("high", re.compile(rf"\bbelow\s+{_N}")),
)
_ODD = re.compile(
    r"random|nois|corrupt|unexpected|differ|deviat|unusual|anomal|irregular|\bodd(?:ly)?\b|strange|erratic|scatter"
    r"|abnormal|(?:does|do|did)(?: not|n't) (?:hold|apply|follow)|breaks|fails|except|apart from|other than"
)
_DENIED = re.compile(
    r"\b(?:no|without(?: any)?|not any|none|never|neither)\b[^.]{0,60}?"
    r"(?:interval|unexpected|unusual|anomal|corrupt|differ|irregular|odd|deviat|behavio|exception|random|nois)"
    r"|\b(?:did|do|does|could|is|are|was|were)(?: not|n't) (?:\w+ ){0,4}"
    r"(?:find|found|observ|see|seen|detect|differ|display|show|any)"
)
_NONE = re.compile(r"^\W*(?:none|no|n/?a|null|nothing)\b\W*(?:\w+\W*){0,3}$")
_ELSEWHERE = re.compile(r"\b(?:elsewhere|otherwise|everywhere else|outside (?:of )?(?:this|that|the|it|these|those)\b)")
_OUTSIDE = re.compile(r"\boutside(?: of)?(?: the)?(?: (?:interval|range|domain))?(?: of)?\s*$")
_ONLY = re.compile(r"\bonly (?:\w+ ){0,4}$")
_SENTENCE = re.compile(r"(?<=[.!?])\s+|;|\n+|,?\s+\b(?:but|however|whereas|while)\b")


@dataclass(frozen=True)
class Corrupted:
    """The interval in which a function is said to be corrupted, or outside of which; None for an unbounded end."""

    low: float | None
    high: float | None
    outside: bool = False

    @property
    def regions(self) -> list[tuple[float, float]]:
        """The corrupted parts of the range."""
        low = -EDGE if self.low is None else min(max(self.low, -EDGE), EDGE)
        high = EDGE if self.high is None else min(max(self.high, low), EDGE)
        return [(-EDGE, low), (high, EDGE)] if self.outside else [(low, high)]

    def structure(self) -> dict[str, Any]:
        """As an answer's structure holds it."""
        return {"interval": [self.low, self.high], **({"outside": True} if self.outside else {})}


@dataclass(frozen=True)
class Reading:
    """What an answer says: where the function is corrupted, or (None) that it is not; `said` is whether it says so."""

    corrupted: Corrupted | None = None
    said: bool = False


def overlap(first: Corrupted, second: Corrupted) -> float:
    """Intersection over union of what both say is corrupted, within the range."""
    shared = sum(max(0.0, min(a[1], b[1]) - max(a[0], b[0])) for a in first.regions for b in second.regions)
    union = sum(high - low for one in (first, second) for low, high in one.regions) - shared
    return shared / union if union > 0 else 0.0


def from_structure(structure: Mapping[str, object]) -> Reading:
    """What the structure of an answer says under `interval` and `outside`; nothing where it has no `interval`."""
    if "interval" not in structure:
        return Reading()
    given = structure["interval"]
    if not isinstance(given, (list, tuple)) or len(given) != 2:
        # Something that is no interval was given: a claim that covers nothing.
        return Reading(None if given is None else Corrupted(EDGE, EDGE), said=True)
    return Reading(Corrupted(_end(given[0]), _end(given[1]), structure.get("outside") is True), said=True)


def read_structured(text: str | None) -> Reading:
    """The structured form; nothing is said where it cannot be read."""
    text = (text or "")[:_LONGEST_TEXT].strip().strip("`").strip()
    if _NONE.match(text.lower()):
        return Reading(said=True)
    begin = re.search(r"[\[{]", text)
    try:
        value = json.JSONDecoder().raw_decode(text[begin.start() :])[0] if begin else None
    except (ValueError, RecursionError):
        return Reading()
    if isinstance(value, list) and len(value) == 2:
        value = {"low": value[0], "high": value[1]}
    if not isinstance(value, dict) or not {"low", "high"} & value.keys():
        return Reading()
    low, high = _end(value.get("low")), _end(value.get("high"))
    if low is None and high is None:
        return Reading(said=True)
    return Reading(Corrupted(low, high, value.get("outside") is True), said=True)


def read_written(text: str | None) -> Reading:
    """The written form: the first interval that the text says the function behaves otherwise in."""
    half_lines: list[Corrupted] = []
    before: list[Corrupted] = []
    announced = denied = False
    for sentence in _SENTENCE.split(_plain(text)):
        if _NONE.match(sentence) or _DENIED.search(sentence):
            denied, announced = True, False
            continue
        odd, mentions = bool(_ODD.search(sentence)), _mentions(sentence)
        if odd and not mentions and before and _ELSEWHERE.search(sentence):
            return Reading(Corrupted(before[0].low, before[0].high, outside=True), said=True)
        if odd or announced:
            finite = [one for one in mentions if None not in (one.low, one.high)]
            if finite:
                return Reading(finite[0], said=True)
            half_lines += mentions
        announced = (odd or announced) and not mentions
        before = mentions or before
    if half_lines:
        return Reading(_joined(half_lines), said=True)
    return Reading(said=denied)


def _joined(half_lines: list[Corrupted]) -> Corrupted:
    """Two half-lines with room between them are all outside of an interval; otherwise the first counts."""
    upper = [one.low for one in half_lines if one.low is not None]
    lower = [one.high for one in half_lines if one.high is not None]
    if upper and lower and lower[0] < upper[0]:
        return Corrupted(lower[0], upper[0], outside=True)
    return half_lines[0]


def _mentions(sentence: str) -> list[Corrupted]:
    """The intervals of a sentence in its order, without the whole range."""
    mentions: list[tuple[int, Corrupted]] = []
    for ends, pattern in _MENTIONS:
        for match in pattern.finditer(sentence):
            numbers = [_end(text) for text in match.groups()]
            low, high = {"both": (numbers[0], numbers[-1]), "turned": (numbers[-1], numbers[0])}.get(
                ends, (numbers[0], None) if ends == "low" else (None, numbers[0])
            )
            # What was read is blanked out, so that a wider pattern does not read a part of it again.
            sentence = sentence[: match.start()] + " " * len(match[0]) + sentence[match.end() :]
            if low is not None and high is not None and low > high:
                low, high = high, low
            if not _whole(low, high):
                mentions.append((match.start(), Corrupted(low, high, _is_outside(sentence[: match.start()]))))
    return [one for _, one in sorted(mentions, key=lambda pair: pair[0])]


def _is_outside(before: str) -> bool:
    return bool(_OUTSIDE.search(before) or _ONLY.search(before))


def _whole(low: float | None, high: float | None) -> bool:
    return (low is None or low < _WHOLE - EDGE) and (high is None or high > EDGE - _WHOLE)


def _plain(text: str | None) -> str:
    text = (text or "")[:_LONGEST_TEXT].lower()
    for mark, plain in {"−": "-", "–": "-", "≤": "<=", "≥": ">=", "∞": "inf", "\\leq": "<=", "\\geq": ">="}.items():
        text = text.replace(mark, plain)
    return re.sub(r"[*_`$]", "", text)


def _end(value: object) -> float | None:
    """An end as a number; None where it is unbounded or no number."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(str(value).replace(" ", ""))
    except ValueError:
        return None
    return number if math.isfinite(number) else None
