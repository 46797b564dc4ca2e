"""Every operation, worked by hand."""

import pytest

from vesalius.errors import BadInput
from vesalius_functions.box import Mode
from vesalius_functions.strings.program import PUBLISHED_ONLY, library, operation, program

LONG = "a" * 31

#: Operation, parameters, input, output.
FIXED = [
    ("convert_to_lowercase", (), "AbC 1", "abc 1"),
    ("convert_to_uppercase", (), "abC 1", "ABC 1"),
    ("capitalize_string", (), "heLLO World", "Hello world"),
    ("capitalize_alternating_letters", (), "hello world", "HeLlO WoRlD"),
    ("reverse_string", (), "abc", "cba"),
    ("reverse_string_first_half", (), "abcde", "bacde"),
    ("reverse_string_last_half", (), "abcde", "abedc"),
    ("reverse_words", (), "one  two", "eno owt"),
    ("reverse_vowels", (), "hello World", "hollo Werld"),
    ("swap_first_last", (), "abcd", "dbca"),
    ("swap_first_last", (), "a", "a"),
    ("swap_rand", (1, 3), "abcde", "adcbe"),
    ("swap_rand", (1, 3), "abc", "abc"),
    ("extract_digits", (), "a1b20", "one two zero"),
    ("remove_digits", (), "a1b2", "ab"),
    ("extract_uppers", (), "HeLLo", "HLL"),
    ("remove_whitespace", (), " a b\tc ", "abc"),
    ("remove_duplicates", (), "banana", "ban"),
    ("remove_substring", ("a",), "bAnana", "bAnn"),
    ("split_string", ("n",), "banana", "ba a a"),
    ("string_strip", (), "  a b ", "a b"),
    ("string_lstrip", (), "  a b ", "a b "),
    ("string_rstrip", (), "  a b ", "  a b"),
    ("get_first_character", (), "xyz", "x"),
    ("get_first_character", (), "", ""),
    ("get_last_character", (), "xyz", "z"),
    ("get_mid_character", (), "abcde", "c"),
    ("get_mid_character", (), "abcd", "bc"),
    ("get_string_length", (), "hello", "five"),
    ("get_string_length", (), LONG, "thirty-one"),
    ("get_digit_indexes", (), "a1b2", "one three"),
    ("get_alpha_indexes", (), "a-ba", "zero two three"),
    ("count_vowels", (), "Education", "five"),
    ("count_vowels", (), LONG, "thirty-one"),
    ("count_vowels", (), "a" * 105, "105"),
    ("count_consonants", (), "Banana a", "three"),
    ("count_uppercase", (), "HeLLo", "three"),
    ("count_lowercase", (), "HeLLo", "two"),
    ("count_character_repetitions", ("l",), "hello L", "two"),
    ("find_string", ("l",), "hello", "two"),
    ("find_string", ("z",), "hello", "none"),
    ("get_first_character_ordinality", (), "Cab", "three"),
    ("get_first_character_ordinality", (), "1ab", "zero"),
    ("get_last_character_ordinality", (), "abZ", "twenty-six"),
    ("get_mid_character_ordinality", (), "abcd", "three"),
    ("replace_substring", ("a", "X"), "banana", "bXnXnX"),
    ("replace_vowels_with_character", ("q",), "Open air", "qpqn qqr"),
    ("replace_vowels_with_first", (), "banana", "bbnbnb"),
    ("replace_vowels_with_last", (), "queen", "qnnnn"),
    ("replace_vowels_with_mid", (), "apple", "ppplp"),
    ("replace_vowels_with_ind_of_count", (), "banana", "bnnnnn"),
    ("replace_vowels_with_ind_of_count", (), "rhythm", "rhythm"),
    ("map_string", ("bcdefghijklmnopqrstuvwxyza",), "Zebra 1", "afcsb 1"),
    ("string_concatenate", ("xY",), "ab", "abxY"),
    ("add_letter_if_needed", ("a",), "banana", "banana"),
    ("add_letter_if_needed", ("a",), "ban", "bana"),
    ("insert_letter", ("q",), "abcd", "abqcd"),
    ("insert_letter", ("q",), "abc", "aqbc"),
    ("insert_number", (7,), "abcd", "ab7cd"),
    ("duplicate_first_letter", (), "abc", "abca"),
    ("duplicate_last_letter", (), "abc", "abcc"),
    ("duplicate_mid_letter", (), "abcd", "abcdc"),
    ("add_number_to_string", (3,), "xyz AB!", "abc DE!"),
    ("subtract_number_to_string", (3,), "abc DE!", "xyz AB!"),
    ("add_len_to_string", (), "abz", "dec"),
    ("add_len_to_middle", (), "abz", "aez"),
    ("add_len_to_middle", (), "ab", "ab"),
    ("add_number_to_middle", (2,), "abc", "adc"),
    ("add_number_to_middle", (2,), "abcd", "abcd"),
    ("subtract_middle_character", (2,), "abc", "azc"),
    ("advance_by_character_order", (1,), "ACe", "ceg"),
    ("advance_by_character_order", (5,), "AB", "AB"),
    ("substract_by_character_order", (1,), "ACe", "yac"),
    ("add_order_of_inx1_to_inx2", (2, 0), "abc", "cbc"),
    ("add_order_of_inx1_to_inx2", (2, 5), "abc", "abc"),
    ("sub_order_of_inx1_to_inx2", (2, 0), "abc", "ybc"),
    ("shift_first_letter_rand", (3,), "yes", "bes"),
    ("shift_last_letter_rand", (2,), "fuzz", "fuzb"),
    ("shift_first_letter_predecessor_rand", (2,), "bat", "zat"),
    ("shift_last_letter_predecessor_rand", (3,), "caB", "caY"),
]
#: Where the published edition does something else.
PUBLISHED = [
    ("get_string_length", (), "hello", "five"),
    ("get_string_length", (), LONG, "unknown"),
    ("get_digit_indexes", (), "1a1", "zero"),
    ("get_digit_indexes", (), "a1b", ""),
    ("get_alpha_indexes", (), "a-ba", "zero two zero"),
    ("count_vowels", (), "Education", "five"),
    ("count_consonants", (), "Banana a", "seven"),
    ("count_uppercase", (), "HeLLo", "three"),
    ("count_lowercase", (), "HeLLo", "two"),
    ("count_character_repetitions", ("l",), "hello L", "two"),
    ("count_substring", ("l",), "hello L", "two"),
    ("find_string", ("l",), "hello", "two"),
    ("sub_order_of_inx1_to_inx2", (2, 0), "abc", "cbc"),
    ("shift_first_letter_rand", (3,), "yes", "|es"),
    ("shift_first_letter_rand", (3,), "zoo", "aoo"),
    ("shift_first_letter_rand", (3,), "1st", "1st"),
    ("shift_last_letter_rand", (2,), "fuzz", "fuza"),
    ("shift_last_letter_rand", (0,), "ab", "ab"),
    ("shift_first_letter_predecessor_rand", (2,), "bat", "`at"),
    ("shift_first_letter_predecessor_rand", (5,), "at", "zt"),
    ("shift_last_letter_predecessor_rand", (3,), "cab", "ca_"),
    ("shift_last_letter_predecessor_rand", (4,), "TEA", "TEZ"),
    ("add_order_to_inx", (0.5,), "abcd", "abed"),
    ("sub_order_to_inx", (0.5,), "abcd", "abad"),
]


@pytest.mark.parametrize(("name", "parameters", "given", "wanted"), FIXED)
def test_corrected_operations(name: str, parameters: tuple[int | str, ...], given: str, wanted: str) -> None:
    assert operation(name, "fixed").apply(given, *parameters) == wanted


@pytest.mark.parametrize(("name", "parameters", "given", "wanted"), PUBLISHED)
def test_published_operations(name: str, parameters: tuple[int | str, ...], given: str, wanted: str) -> None:
    assert operation(name, "published").apply(given, *parameters) == wanted


def test_all_operations_are_worked_by_hand() -> None:
    assert {row[0] for row in FIXED} == set(library("fixed"))
    differing = {
        name
        for name, op in library("published").items()
        if name not in library("fixed") or op.apply is not library("fixed")[name].apply
    }
    assert {row[0] for row in PUBLISHED} == differing


def test_the_editions_have_64_and_67_operations() -> None:
    assert (len(library("fixed")), len(library("published"))) == (64, 67)
    assert set(library("published")) - set(library("fixed")) == set(PUBLISHED_ONLY)


@pytest.mark.parametrize(("kind", "published", "count"), [
    ("nothing", 42, 1),
    ("digit", 7, 9),
    ("letter", 8, 52),
    ("two indexes", 3, 90),
    ("shift", 4, 26),
])  # fmt: skip
def test_parameters_are_those_published(kind: str, published: int, count: int) -> None:
    found = [op.kind for op in library("published").values() if op.kind.name == kind]
    assert len(found) == published
    assert all(len(set(each.values)) == count for each in found)


@pytest.mark.parametrize("name", ["count_lowercase", "count_vowels", "count_consonants", "get_alpha_indexes"])
def test_published_number_words_end_at_thirty(name: str) -> None:
    assert "thirty" in operation(name, "published").apply("?" * 30 + "A" if "index" in name else "a" * 30)
    with pytest.raises(KeyError):
        operation(name, "published").apply("?" * 31 + "A" if "index" in name else "a" * 31)


@pytest.mark.parametrize(("steps", "mode", "said"), [
    ([("reverse", ())], "fixed", "operation 'reverse' does not exist"),
    ([("count_substring", ("a",))], "fixed", "'count_substring' does not exist in the fixed library"),
    ([("insert_number", (0,))], "fixed", "insert_number takes no parameters (0,)"),
    ([("reverse_string", (1,))], "published", "reverse_string takes no parameters (1,)"),
])  # fmt: skip
def test_wrong_names_and_parameters_are_refused(
    steps: list[tuple[str, tuple[int | str, ...]]], mode: Mode, said: str
) -> None:
    with pytest.raises(BadInput) as refusal:
        program(steps, mode)
    assert said in str(refusal.value)
