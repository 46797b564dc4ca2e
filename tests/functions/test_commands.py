"""The grammar of a turn: one command or one answer, and everything inside an input is data."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vesalius_functions.agents.commands import Ask, Malformed, Parts, read_answer, read_command, usable_input

HOSTILE = [
    "; rm -rf /",
    "$(reboot)",
    "`id`",
    "a,b",
    "it's",
    'say "x"',
    "a\nb",
    "|cat",
    "&&",
    "..\\..",
    "(a)",
    "[1]",
    ")",
    "\\",
]


@pytest.mark.parametrize(
    ("turn", "inputs"),
    [
        ("ASK [1, 2.5, -3]", (1, 2.5, -3)),
        ('I will try words.\nASK ["New York", "a,b"]\n', ("New York", "a,b")),
        ('COMMAND: ASK ["a"]', ("a",)),
        ("`ASK [1]`", (1,)),
        ("ASK\n[\n 1,\n 2\n]\nand then", (1, 2)),
        ("PYTHON(function.py 1 2 -3.5)", ("1", "2", "-3.5")),
        ("COMMAND: PYTHON(function.py apple)", ("apple",)),
        ("PYTHON({function.py} a, b; 'c' $(d) e)f)", ("a,", "b;", "'c'", "$(d)", "e)f")),
        ("PYTHON(./temp0/function.py x)", ("x",)),
        ("ASK [1]\nASK [2]", (1,)),
    ],
)
def test_commands(turn: str, inputs: tuple[object, ...]) -> None:
    found = read_command(turn)
    assert isinstance(found, Ask)
    assert found.inputs == inputs


@given(st.lists(st.text(min_size=1), min_size=1, max_size=5) | st.lists(st.sampled_from(HOSTILE), min_size=1))
def test_every_text_reaches_the_function_unchanged(texts: list[str]) -> None:
    import json

    found = read_command(f"Now.\nASK {json.dumps(texts)}\nThanks")
    assert isinstance(found, Ask)
    assert list(found.inputs) == texts


@pytest.mark.parametrize("word", [text for text in HOSTILE if "\n" not in text and " " not in text])
def test_hostile_words_in_the_published_form_are_data(word: str) -> None:
    found = read_command(f"PYTHON(function.py {word})")
    assert isinstance(found, Ask)
    assert found.inputs == (word,)


@pytest.mark.parametrize(
    ("turn", "reason"),
    [
        ("ASK", "followed by no JSON list"),
        ("ASK 1, 2", "followed by no JSON list"),
        ("ASK [1, 2", "not a JSON list"),
        ("ASK ['a']", "not a JSON list"),
        ("ASK []", "asks nothing"),
        ("ASK " + "[" * 100_000, "not a JSON list"),
        ("PYTHON(function.py 1 2", "must close on its line"),
        ("PYTHON(function.py 1) to see", "must close on its line and stand there alone"),
        ("PYTHON(function.py)", "asks nothing"),
        ("PYTHON()", "the only script is function.py"),
        ("PYTHON(/etc/passwd x)", "the only script is function.py"),
    ],
)
def test_malformed_commands_say_what_is_wrong(turn: str, reason: str) -> None:
    found = read_command(turn)
    assert isinstance(found, Malformed)
    assert reason in found.reason


@pytest.mark.parametrize("turn", ["", "I would ask about 3.", "f(1) = 2", "TASK [1]", "Use PYTHON (not now)"])
def test_prose_is_no_command(turn: str) -> None:
    assert read_command(turn) is None


@pytest.mark.parametrize(
    ("turn", "parts"),
    [
        ("[DESCRIPTION]: doubles x", Parts("doubles x")),
        ("[DESCRIPTION]:doubles\n[DOMAIN]: all", Parts("doubles", "all")),
        ("**[DESCRIPTION]:** doubles\n\n### DOMAIN:\nall\n", Parts("doubles", "all")),
        (
            "Description: doubles\nCODE:\ndef f(x):\n    return 2 * x",
            Parts("doubles", None, "def f(x):\n    return 2 * x"),
        ),
        ("[DESCRIPTION]: old\n[DESCRIPTION]: new", Parts("new")),
        (
            "[DESCRIPTION]: a\n[CODE]:\n```python\nx = 1\n```\nor better\n```\n# code: mine\ndef f(x): return x\n```",
            Parts("a", None, "# code: mine\ndef f(x): return x"),
        ),
        ("[DESCRIPTION]: a\n[CODE]:\n```python\ndef f(x):\n    return 1", Parts("a", None, "def f(x):\n    return 1")),
        ("[DESCRIPTION]: a\n[CODE]: no idea", Parts("a")),
        ("[DESCRIPTION]:\n\n[CODE]:", Parts()),
        ("nothing of the kind", Parts()),
    ],
)
def test_answers(turn: str, parts: Parts) -> None:
    assert read_answer(turn) == parts


@pytest.mark.parametrize(
    ("value", "category", "found"),
    [
        ("1e3", "numeric", (1000.0, None)),
        (2, "numeric", (2.0, None)),
        ("two", "numeric", ("two", "not a number")),
        (True, "numeric", (True, "not a number")),
        ("1e999", "numeric", ("1e999", "not a finite number")),
        (10**400, "numeric", (10**400, "not a number")),
        ([1], "strings", ([1], "not a text")),
        (3, "strings", ("3", None)),
        ("x" * 1001, "strings", ("x" * 1001, "longer than 1000 characters")),
    ],
)
def test_inputs_are_checked_one_by_one(value: object, category: str, found: tuple[object, str | None]) -> None:
    assert usable_input(value, category) == found  # type: ignore[arg-type]
