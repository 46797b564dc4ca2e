"""Malformed JSON as models write it, and what is read from it."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vesalius_backbones.untrusted_text import MAX_DEPTH, Unreadable, objects, read

EXPECTED = {"tag": "MAPPER", "score": 2}

#: (reply, a repair that must be counted); every reply means EXPECTED.
REPAIRABLE = {
    "plain": ('{"tag": "MAPPER", "score": 2}', None),
    "white space": ('\n\n  {"tag": "MAPPER", "score": 2}  \n', None),
    "fence": ('```json\n{"tag": "MAPPER", "score": 2}\n```', "fenced"),
    "fence without language": ('```\n{"tag": "MAPPER", "score": 2}\n```', "fenced"),
    "fence with prose around": ('Here it is:\n```json\n{"tag": "MAPPER", "score": 2}\n```\nDone.', "fenced"),
    "fence closed on the same line": ('```json\n{"tag": "MAPPER", "score": 2}```', "fenced"),
    "two fences, the last counts": (
        '```json\n{"tag": "ROUTER", "score": 0}\n```\nNo:\n```json\n{"tag": "MAPPER", "score": 2}\n```',
        "fenced",
    ),
    "prose before": ('The answer is {"tag": "MAPPER", "score": 2}', "middle"),
    "prose after": ('{"tag": "MAPPER", "score": 2} I hope this helps!', "middle"),
    "an example first": ('Like {"tag": "X", "score": 9}. So {"tag": "MAPPER", "score": 2}.', "middle"),
    "a lone brace in the prose": ('The set {a, b is odd. {"tag": "MAPPER", "score": 2}', "middle"),
    "thoughts": ('<think>maybe {"tag": "ROUTER"}</think>{"tag": "MAPPER", "score": 2}', "thoughts"),
    "byte order mark": ('﻿{"tag": "MAPPER", "score": 2}', None),
    "trailing comma": ('{"tag": "MAPPER", "score": 2,}', "trailing comma"),
    "two commas": ('{"tag": "MAPPER",, "score": 2}', "extra comma"),
    "missing comma": ('{"tag": "MAPPER" "score": 2}', "missing comma"),
    "missing comma, new line": ('{"tag": "MAPPER"\n "score": 2}', "missing comma"),
    "single quotes": ("{'tag': 'MAPPER', 'score': 2}", "quotes"),
    "curly quotes": ("{“tag”: “MAPPER”, “score”: 2}", "quotes"),
    "backticks": ('{"tag": `MAPPER`, "score": 2}', "quotes"),
    "bare names": ('{tag: "MAPPER", score: 2}', "put in quotes"),
    "equals sign": ('{tag = "MAPPER", score = 2}', "colon"),
    "line comment": ('{"tag": "MAPPER", // sure\n "score": 2}', "comment"),
    "hash comment": ('{"tag": "MAPPER", # sure\n "score": 2}', "comment"),
    "block comment": ('{/* both */ "tag": "MAPPER", "score": 2}', "comment"),
    "plus sign": ('{"tag": "MAPPER", "score": +2}', "number"),
    "number with a dot": ('{"tag": "MAPPER", "score": 2.}', "number"),
    "all at once": ("Sure!\n```json\n{'tag': 'MAPPER', score: +2,} // end\n```", "trailing comma"),
}


@pytest.mark.parametrize("reply", REPAIRABLE)
def test_syntax_errors_are_repaired_and_listed(reply: str) -> None:
    text, repair = REPAIRABLE[reply]
    value, repairs = next(objects(text))
    assert value == EXPECTED
    assert repair is None or any(repair in done for done in repairs), repairs


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": "two\nlines"}', {"a": "two\nlines"}),
        ('{"a": "tab\there"}', {"a": "tab\there"}),
        ('{"a": True, "b": False, "c": None}', {"a": True, "b": False, "c": None}),
        (r'{"regex": "\d+\s"}', {"regex": r"\d+\s"}),
        ("{'a': 'it\\'s'}", {"a": "it's"}),
        ("{'a': '\\u00e9\\ud83d\\ude00'}", {"a": "é😀"}),
        ("{'a': [1, 2, 3,], 'b': {'c': [],},}", {"a": [1, 2, 3], "b": {"c": []}}),
        ("{'a': -1.5e3, b: .5, c: 1_000}", {"a": -1500.0, "b": 0.5, "c": 1000}),
        ('{"code": "if x:\n    print({1: 2})"}', {"code": "if x:\n    print({1: 2})"}),
    ],
)
def test_values_survive_repair(text: str, value: Any) -> None:
    assert next(objects(text))[0] == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "I cannot say.",
        "{}{",
        '{"tag": "MAPPER", "score": 2',
        '{"tag": "MAPPER", "sco',
        '{"tag": ',
        '{"tag" "MAPPER"}',
        '["a", "b"]',
        '"tag"',
        "{" * 100_000,
        "[" * 100_000,
        '{"a":' * 5000 + "1" + "}" * 5000,
        '{"tag": MAPPER}',
        "```json\n```",
    ],
    ids=lambda text: text[:12] or "empty",
)
def test_missing_content_is_not_invented(text: str) -> None:
    assert [value for value, _ in objects(text) if value] == []


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(), JSON, max_size=4), st.booleans())
def test_valid_json_is_read_unchanged(value: dict[str, Any], ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    assert read(text) == (value, ())
    assert next(objects(f"```json\n{text}\n```"))[0] == value or "```" in text


@given(JSON)
def test_the_tolerant_parser_agrees_with_the_strict_one(value: Any) -> None:
    spoiled = json.dumps([value])[:-1] + ",]"
    parsed, repairs = read(spoiled)
    assert parsed == [value]
    assert repairs == ("trailing comma removed",)


@given(st.text(alphabet="{}[]\"':,\\/ \n`tfn1.-#u", max_size=40))
def test_noise_never_raises_anything_else(text: str) -> None:
    list(objects(text))
    with suppress(Unreadable):
        read(text)


def test_the_deepest_object_is_the_same_whether_or_not_it_needs_repair() -> None:
    def nested(levels: int, end: str) -> str:
        return '{"a":' * levels + "1" + "}" * (levels - 1) + end

    for end in ("}", ",}"):  # the second needs a repair
        assert [value for value, _ in objects(nested(MAX_DEPTH, end)) if value]
        assert not [value for value, _ in objects(nested(MAX_DEPTH + 1, end)) if value]
