"""Programs as words and as code: the code does what the program does, on any string."""

from collections.abc import Callable
from functools import cache
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vesalius_functions.box import Mode
from vesalius_functions.strings.program import RANDOM, Step, StringProgram, library, program
from vesalius_functions.strings.search.space import attempt

TEXTS = st.text() | st.text("abzAZ0 '\"\\\n!e", max_size=40)


@cache
def code_of(made: StringProgram) -> Callable[[str], str]:
    scope: dict[str, Callable[[str], str]] = {}
    exec(made.code, scope)
    return scope["f"]


@pytest.mark.parametrize("mode", ["fixed", "published"])
@settings(max_examples=60)
@given(s=TEXTS, seed=st.integers(0, 3))
def test_the_code_of_every_operation_does_the_same(mode: Mode, s: str, seed: int) -> None:
    rng = Random(seed)
    for operation in library(mode).values():
        made = StringProgram((Step(operation, operation.kind.draw(rng)),))
        if not made.random:
            assert attempt(code_of(made), s) == attempt(made, s), operation.name


@settings(max_examples=60)
@given(s=TEXTS, seed=st.integers(0, 10_000))
def test_the_code_of_compositions_does_the_same_and_never_raises(s: str, seed: int) -> None:
    rng = Random(seed)
    steps = [Step(op, op.kind.draw(rng)) for op in rng.choices(list(library("fixed").values()), k=2)]
    made = StringProgram(tuple(steps))
    assert code_of(made)(s) == made(s)


def test_code_stands_alone_and_can_be_read() -> None:
    made = program([("reverse_string", ()), ("insert_letter", ("q",))], "fixed")
    assert "import" not in made.code
    assert made.code.endswith(
        'def f(s: str) -> str:\n    """Reverse the string, then insert \'q\' at the middle."""\n'
        "    s = reverse_string(s)\n    s = insert_letter(s, 'q')\n    return s\n"
    )


def test_a_program_without_steps_is_the_identity() -> None:
    assert code_of(StringProgram(()))("it's") == "it's"


@pytest.mark.parametrize("name", RANDOM)
def test_a_random_program_draws_once_per_call(name: str) -> None:
    made = program([(name, ())], "published")
    drawn = {made.draw(Random(i))("abcdefghij") for i in range(200)}
    sign = 1 if name.startswith("add") else -1
    letters = "abcdefghijklmnopqrstuvwxyz"
    possible = {"abcdefghij"[:i] + letters[(i + sign * i) % 26] + "abcdefghij"[i + 1 :] for i in range(10)}
    assert drawn == possible
    assert made.draw(Random(3))("abcdefghij") == made.draw(Random(3))("abcdefghij")
    assert code_of(made)("abcdefghij") in possible
