"""Functions drawn afresh: the rules of both suites, test inputs, repeats."""

from itertools import islice
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vesalius.errors import BadInput
from vesalius_functions.box import Mode
from vesalius_functions.strings import StringFunction, sample
from vesalius_functions.strings.program import LONGEST, library, program, varied
from vesalius_functions.strings.suite import (
    ATOMIC_SHARE,
    NEVER_FIRST,
    avoided,
    behaviour,
    is_one_operation,
    telling,
)

BOTH = pytest.mark.parametrize("mode", ["fixed", "published"])


@BOTH
@settings(max_examples=8)
@given(seed=st.integers(0, 1000), shorter=st.integers(1, 30))
def test_a_prefix_of_a_longer_draw_is_the_same(mode: Mode, seed: int, shorter: int) -> None:
    assert sample(shorter, seed=seed, mode=mode) == sample(30, seed=seed, mode=mode)[:shorter]


def test_seeds_differ() -> None:
    assert [f.program for f in sample(10, seed=1)] != [f.program for f in sample(10, seed=2)]


@BOTH
def test_three_in_ten_are_atomic(mode: Mode) -> None:
    drawn = sample(400, seed=5, mode=mode)
    share = sum(len(f.program.steps) == 1 for f in drawn) / len(drawn)
    assert abs(share - ATOMIC_SHARE) < 0.07
    assert not {f.program.steps[0].operation.name for f in drawn if len(f.program.steps) == 2} & set(NEVER_FIRST)


@BOTH
def test_every_function_has_ten_tests_that_it_passes(mode: Mode) -> None:
    for function in sample(60, seed=6, mode=mode):
        inputs = [s for s, _ in function.tests]
        assert len(set(inputs)) == 10
        for wanted in (str.isdigit, str.isspace, str.isupper, "'".__eq__):
            assert any(map(wanted, "".join(inputs)))
        if not function.program.random:
            assert [reply.value for reply in function.replies(inputs)] == [out for _, out in function.tests]


def test_fixed_functions_have_behaviours_of_their_own() -> None:
    drawn = sample(300, seed=7)
    seen = [behaviour(f.program) for f in drawn]
    assert len(set(seen)) == len(seen)
    assert telling() not in seen
    assert all(len(set(does)) > 1 for does in seen)
    assert not any(is_one_operation(does) for f, does in zip(drawn, seen, strict=True) if len(f.program.steps) == 2)
    assert not any(f.program.random for f in drawn)


@pytest.mark.parametrize(("steps", "same_as_one"), [
    ([("convert_to_lowercase", ()), ("convert_to_uppercase", ())], True),
    ([("string_concatenate", ("ab",)), ("string_concatenate", ("c",))], True),
    ([("add_number_to_string", (2,)), ("add_number_to_string", (3,))], True),
    ([("convert_to_uppercase", ()), ("map_string", ("qwertyuiopasdfghjklzxcvbnm",))], True),
    ([("remove_substring", ("a",)), ("reverse_string", ())], False),
    ([("string_concatenate", ("abc",)), ("string_concatenate", ("def",))], False),
])  # fmt: skip
def test_single_operations_in_disguise_are_recognised(
    steps: list[tuple[str, tuple[int | str, ...]]], same_as_one: bool
) -> None:
    assert is_one_operation(behaviour(program(steps, "fixed"))) is same_as_one


def test_the_published_table_has_its_intent_and_its_faults() -> None:
    assert "reverse_string" in avoided("reverse_string")
    assert "count_vowels" in avoided("count_uppercase")
    assert "string_rstrip" not in avoided("string_rstrip")  # a missing comma glued the name to the next
    pairs = sum(len(avoided(name) - set(NEVER_FIRST)) for name in library("published"))
    assert 200 < pairs < 450  # 356 in the table that was not kept


def test_published_functions_include_random_ones_that_repeat_by_call() -> None:
    function = next(f for f in sample(300, seed=1, mode="published") if f.program.random)
    given = ["Jackdaw's 4 big SphinX of quiz"] * 40
    first = function.replies(given)
    assert first == function.replies(given)
    assert first[7:] == function.replies(given[7:], first_call=7)
    assert len({reply.value for reply in first}) > 1


def test_an_input_that_fails_costs_its_own_reply() -> None:
    function = StringFunction("f", program([("count_vowels", ())], "published"), "published", "", ())
    fine, long, number, nothing = function.replies(["ae", "a" * 31, 3, None])
    assert fine.value == "two"
    assert long.error == "KeyError: 31"
    assert "takes a string" in (number.error or "")
    assert "NoneType" in (nothing.error or "")


@settings(max_examples=50)
@given(seed=st.integers(), letters=st.text("abQZ", max_size=3))
def test_inputs_are_short_and_do_not_repeat(seed: int, letters: str) -> None:
    drawn = list(islice(varied(Random(seed), 10, letters=letters), 30))
    assert len(set(drawn)) == 30
    assert max(map(len, drawn)) <= LONGEST


@pytest.mark.parametrize("count", [0, -1])
def test_an_empty_sample_is_refused(count: int) -> None:
    with pytest.raises(BadInput, match="give 1 or more"):
        sample(count, seed=0)
