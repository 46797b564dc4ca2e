"""The built-in interpreter: it finds what it can, says so where it cannot, and never asks too much."""

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vesalius.errors import BadInput
from vesalius_functions import Box, Reply
from vesalius_functions.box import Answer, Category, Mode
from vesalius_functions.strings import StringFunction, interpret, program, recover, sample
from vesalius_functions.strings.program import StringProgram
from vesalius_functions.strings.search.solve import permutation, replacement, suffixes
from vesalius_functions.strings.search.space import KEYS, PROBES, Observations, space

pytestmark = pytest.mark.slow

ROTATED = "bcdefghijklmnopqrstuvwxyza"
Steps = list[tuple[str, tuple[int | str, ...]]]


def function(steps: Steps, mode: Mode = "fixed") -> StringFunction:
    return StringFunction("f", program(steps, mode), mode, "test", ())


def right(answer: Answer, asked: StringFunction) -> float:
    """The share of fresh inputs on which the code is right."""
    scope: dict[str, Any] = {}
    exec(answer.code or "def f(s): pass", scope)
    pairs = asked.fresh(40, seed="search")
    return sum(scope["f"](s) == out for s, out in pairs) / len(pairs)


def test_functions_drawn_afresh_are_found_within_a_hundred_queries() -> None:
    scores = []
    for drawn in sample(20, seed=11):
        box = Box(drawn, budget=100)
        answer = interpret(box, seed=3, modes=("fixed",))
        assert answer.queries == box.asked <= 100
        scores.append(right(answer, drawn))
    assert sum(scores) / len(scores) >= 0.93


SOLVED: list[Steps] = [
    [("string_concatenate", ("xYz",))],
    [("replace_substring", ("e", "Q"))],
    [("map_string", (ROTATED,))],
    [("reverse_string", ()), ("string_concatenate", ("abc",))],
    [("string_concatenate", ("abc",)), ("reverse_string", ())],
    [("string_concatenate", ("eTq",)), ("count_vowels", ())],
    [("string_concatenate", ("eTq",)), ("count_character_repetitions", ("T",))],
    [("string_concatenate", ("fAY",)), ("replace_vowels_with_ind_of_count", ())],
    [("string_concatenate", ("lJRW",)), ("string_concatenate", ("VRB",))],
    [("string_concatenate", ("Anr",)), ("map_string", (ROTATED,))],
    [("string_concatenate", ("T",)), ("swap_first_last", ())],
    [("string_concatenate", ("JSGEP",)), ("remove_duplicates", ())],
    [("string_concatenate", ("EEyp",)), ("replace_vowels_with_ind_of_count", ())],
    [("get_string_length", ()), ("replace_substring", ("e", "Q"))],
    [("replace_substring", ("e", "Q")), ("add_len_to_string", ())],
    [("replace_substring", ("e", "Q")), ("string_concatenate", ("ab",))],
    [("replace_substring", ("T", "e")), ("map_string", (ROTATED,))],
    [("find_string", ("S",)), ("map_string", (ROTATED[::-1],))],
    [("string_concatenate", ("RiVpy",)), ("get_mid_character_ordinality", ())],
    [("reverse_words", ()), ("map_string", (ROTATED[::-1],))],
    [("shift_first_letter_rand", (17,)), ("shift_last_letter_predecessor_rand", (5,))],
    [("add_order_of_inx1_to_inx2", (7, 2)), ("swap_rand", (2, 9))],
]


@pytest.mark.parametrize("steps", SOLVED, ids=lambda steps: " ".join(name for name, _ in steps))
def test_parameters_are_solved_for(steps: Steps) -> None:
    asked = function(steps)
    answer = interpret(Box(asked, budget=100), modes=("fixed",))
    assert not answer.table
    assert right(answer, asked) == 1


@settings(max_examples=12)
@given(budget=st.integers(1, 130), number=st.integers(0, 19), limited=st.booleans())
def test_the_budget_holds(budget: int, number: int, limited: bool) -> None:
    box = Box(sample(20, seed=12)[number], budget=budget if limited else None)
    answer = interpret(box, modes=("fixed",))
    assert answer.queries == box.asked <= (min(budget, 100) if limited else 100)
    assert answer.description


def test_outside_its_library_the_search_says_how_little_it_knows() -> None:
    asked = function([("reverse_vowels", ()), ("add_len_to_string", ())])
    answer = interpret(Box(asked, budget=100), without=["reverse_vowels"], modes=("fixed",))
    assert answer.table or "only a part" in answer.description
    named = [operation["name"] for operation in answer.structure.get("operations", [])]
    assert "reverse_vowels" not in named
    assert right(answer, asked) < 1


def test_an_operation_that_does_not_exist_cannot_be_left_out() -> None:
    with pytest.raises(BadInput, match="'flip' cannot be left out"):
        interpret(Box(function([("reverse_string", ())])), without=["flip"])


def test_published_faults_are_found_with_the_published_operations() -> None:
    asked = function([("reverse_string", ()), ("shift_first_letter_rand", (9,))], "published")
    answer = interpret(Box(asked, budget=100), modes=("published",))
    assert right(answer, asked) == 1


def test_random_functions_are_named_as_such() -> None:
    asked = function([("convert_to_uppercase", ()), ("add_order_to_inx", ())], "published")
    answer = interpret(Box(asked, budget=100), modes=("published",))
    assert "random" in answer.description
    assert {op["name"] for op in answer.structure["operations"]} == {"convert_to_uppercase", "add_order_to_inx"}


class Failing:
    """Raises on everything, or answers with numbers."""

    id, family = "f", "none"
    category: Category = "strings"

    def __init__(self, reply: Reply) -> None:
        self.reply = reply

    def truth(self) -> dict[str, Any]:
        return {}

    def replies(self, inputs: Sequence[Any], *, first_call: int = 0) -> list[Reply]:
        return [self.reply for _ in inputs]


@pytest.mark.parametrize("reply", [Reply(error="KeyError: 31"), Reply(5), Reply(None)])
def test_a_function_that_answers_nothing_is_not_explained(reply: Reply) -> None:
    answer = interpret(Box(Failing(reply), budget=100))
    assert answer.table
    assert answer.code is None
    assert "Nothing was seen" in answer.description


def test_a_constant_is_not_a_crash() -> None:
    answer = interpret(Box(Failing(Reply("same"))), modes=("fixed",))
    scope: dict[str, Any] = {}
    exec(answer.code or "", scope)
    assert scope["f"](KEYS[0]) == "same"


def test_the_table_finds_what_trying_everything_finds() -> None:
    searched = space("fixed")
    target = program([("count_vowels", ()), ("insert_letter", ("q",))], "fixed")
    evidence = Observations(list(PROBES), [target(s) for s in PROBES])
    found = {str(made) for made in searched.compositions(evidence)}
    rng = Random(0)
    tried = [
        StringProgram(first.steps + then.steps)
        for first in [*rng.sample(searched.steps, 60), *(s for s in searched.steps if "count_vowels" in str(s))]
        for then in searched.steps
        if "insert" in str(then)
    ]
    assert {str(made) for made in tried if evidence.fits(made)} <= found
    assert str(target) in found


def test_half_matches_are_right_on_the_first_key() -> None:
    target = program([("reverse_vowels", ()), ("insert_letter", ("q",))], "fixed")
    evidence = Observations(list(PROBES), [target(s) for s in PROBES])
    halves = list(space("fixed").half_matches(evidence))
    assert halves
    assert all(made(KEYS[0]) == target(KEYS[0]) for made in halves)


@pytest.mark.parametrize(("given", "wanted", "pair"), [
    (["abc", "cab"], ["xbc", "cxb"], ("a", "x")),
    (["abc", "bac"], ["xbc", "bac"], None),
    (["abc"], ["abc"], None),
    (["abc"], ["abcd"], None),
    ([None, "abc"], ["a", "xbc"], None),
    (["a c"], ["aqc"], None),
])  # fmt: skip
def test_a_replacement_is_read_off(given: list[str | None], wanted: list[str], pair: tuple[str, str] | None) -> None:
    assert replacement(given, wanted) == pair


def test_a_permutation_is_read_off_and_filled_up() -> None:
    alphabet = permutation(["Hello", "zoo 1"], ["ifmmp", "app 1"])
    assert alphabet is not None
    assert sorted(alphabet) == sorted(ROTATED)
    assert (alphabet[7], alphabet[25], alphabet[14]) == ("i", "a", "p")
    assert permutation(["ab"], ["cc"]) is None
    assert permutation(["aa"], ["bc"]) is None
    assert permutation(["a1"], ["b2"]) is None


def test_suffixes_are_what_all_outputs_share() -> None:
    assert suffixes(["abcXy", "XYcXy", None]) == ["y", "Xy", "cXy"]
    assert suffixes(["ab", "cd"]) == []
    assert suffixes([None]) == []
    assert suffixes(["1", "21"]) == []


@pytest.mark.parametrize("steps", [
    [("reverse_string", ())],
    [("get_string_length", ()), ("advance_by_character_order", (2,))],
    [("string_strip", ()), ("string_concatenate", ("qRs",))],
], ids=str)  # fmt: skip
def test_stored_pairs_are_enough_to_recover_a_program(steps: Steps) -> None:
    pairs = function(steps, "published").fresh(10, seed=0)
    found = recover(pairs)
    assert found is not None
    assert [found(s) for s, _ in pairs] == [out for _, out in pairs]


def test_pairs_of_no_program_recover_nothing() -> None:
    assert recover([("abc", "q1"), ("abd", "zz-top"), ("it's", "\n")]) is None


@pytest.mark.parametrize("suffix", ["Exg", None])
def test_random_pairs_recover_a_random_program_that_can_give_them(suffix: str | None) -> None:
    steps: Steps = [("add_order_to_inx", ()), *([("string_concatenate", (suffix,))] if suffix else [])]
    drawn = program(steps, "published")
    pairs = [(s, drawn.draw(Random(i))(s)) for i, s in enumerate(PROBES[:30]) if len(s) > 3]
    found = recover(pairs)
    assert found is not None
    assert found.random
    assert {step.operation.name for step in found.steps} == {name for name, _ in steps}
