"""Names of tables and tasks: given where they are exact, refused where they are not."""

import math
import random
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vesalius.rasp.formula import read_formula
from vesalius_programs.naming import Operation, name_sequence_task
from vesalius_programs.naming.operation import Label
from vesalius_programs.naming.table import name_table

NUMBERS = range(6)


def classes_of(function: Callable[..., Any], *columns: Any) -> dict[tuple[Any, ...], int]:
    """The table of a function, with its values hidden behind class numbers in order of appearance."""
    codes: dict[Any, int] = {}
    return {key: codes.setdefault(function(*key), len(codes)) for key in product(*columns)}


def named(function: Callable[..., Any], *columns: Any) -> Operation | None:
    return name_table(classes_of(function, *columns))


def valued(function: Callable[..., Any], *columns: Any) -> Operation | None:
    table = {key: function(*key) for key in product(*columns)}
    return name_table(table, values={value: value for value in table.values()})


@pytest.mark.parametrize(
    ("function", "operation", "text"),
    [
        (lambda x: x % 2, "parity", "the parity of x"),
        (lambda x: x >= 3, "threshold", "whether x is at least 3"),
        (lambda x: x % 3, "modulo", "x modulo 3"),
        (lambda x: x % 3 == 0, "multiple", "whether x is a multiple of 3"),
        (lambda x: min(x, 3), "clamp", "x limited to at most 3"),
        (lambda x: max(1, min(x, 3)), "clamp", "x limited to the range from 1 to 3"),
        (lambda x: x == 4, "equality", "whether x is 4"),
        (lambda x: 7, "constant", "a constant"),
        (lambda x: -x, "identity", "x, all 6 values kept apart"),
        (lambda x: (x * 7 + 3) % 6, "identity", "x, all 6 values kept apart"),
    ],
)
def test_one_argument_by_its_classes(function: Callable[..., Any], operation: str, text: str) -> None:
    found = named(function, NUMBERS)
    assert found is not None
    assert (found.operation, found.text(["x"]), found.exact) == (operation, text, "classes")


@pytest.mark.parametrize(
    ("function", "values", "formula", "text"),
    [
        (lambda x: float(f"{math.cosh(x):.12g}"), range(9), "cosh(x)", "the hyperbolic cosine of x"),
        (math.sqrt, range(9), "sqrt(x)", "the square root of x"),
        (math.log10, range(1, 9), "log10(x)", "the logarithm to the base 10 of x"),
        (lambda x: math.sin(x) + 1e-6, range(9), None, None),
        (math.factorial, range(9), "factorial(x)", "the factorial of x"),
        (str.upper, ("ab", "b", "xyz"), "upper(x)", "x in capitals"),
        (lambda x: x[::-1], ("ab", "b", "xyz"), "reverse(x)", "x written backwards"),
        (lambda x: x in (2, 3, 5, 7, 11), range(13), "x in (2, 3, 5, 7, 11)", "whether x is a prime number"),
        (lambda x: x in (0, 1, 4, 9), range(13), "x in (0, 1, 4, 9)", "whether x is a square number"),
    ],
)
def test_functions_that_are_known_by_name(
    function: Callable[..., Any], values: Sequence[Any], formula: str | None, text: str | None
) -> None:
    found = valued(function, values)
    if formula is None:
        assert found is None or found.exact != "values"
        return
    assert found is not None
    assert (found.formula, found.text(["x"]), found.exact) == (formula, text, "values")


@pytest.mark.parametrize("formula", ["factorial(x)", "exp(x)", "sqrt(x)", "log(x)", "upper(x)", "reverse(x)", "tan(x)"])
@pytest.mark.parametrize("value", [10**6, 1e300, -1, float("nan"), True, "7" * 60, ()])
def test_what_a_function_has_no_value_for_is_none_at_once(formula: str, value: object) -> None:
    found = read_formula(formula, ("x",))(value)
    assert found is None or (isinstance(found, int | float) and abs(found) <= 1e9) or isinstance(found, str)


@pytest.mark.parametrize(
    ("function", "operation", "text"),
    [
        (lambda x, y: x == y, "equality", "whether x equals y"),
        (lambda x, y: x < y, "order", "whether x is smaller than y"),
        (min, "minimum", "the smaller of x and y"),
        (max, "maximum", "the larger of x and y"),
        (lambda x, y: x + y, "sum", "the sum of x and y"),
        (lambda x, y: x - y, "difference", "x minus y"),
        (lambda x, y: x * y, "product", "the product of x and y"),
        (lambda x, y: (x + y) % 2, "parity", "the parity of the sum of x and y"),
        (lambda x, y: (x + y) % 3, "modulo", "the sum of x and y, modulo 3"),
        (lambda x, y: x + y >= 5, "threshold", "whether the sum of x and y is at least 5"),
        (lambda x, y: min(x + y, 4), "clamp", "the sum of x and y, limited to at most 4"),
        (lambda x, y: x % 2, "parity", "the parity of x"),
        (lambda x, y: x > 2 and y % 2 == 0, "conjunction", "whether x is at least 3 and y is even"),
        (lambda x, y: x if y >= 3 else 0, "gate", "x where y is at least 3, otherwise 0"),
        (lambda x, y: (x, y), "pair", "both x and y"),
    ],
)
def test_two_arguments_by_their_classes(function: Callable[..., Any], operation: str, text: str) -> None:
    found = named(function, NUMBERS, NUMBERS)
    assert found is not None
    assert (found.operation, found.text(["x", "y"])) == (operation, text)


def test_known_values_tell_formulas_apart_that_classes_cannot() -> None:
    negation, shifted = valued(lambda x: -x, NUMBERS), valued(lambda x: 5 - x, NUMBERS)
    assert negation is not None
    assert shifted is not None
    assert (negation.formula, shifted.formula) == ("-x", "5 - x")
    assert negation.exact == shifted.exact == "values"


def test_values_without_a_formula_say_only_what_they_depend_on() -> None:
    found = valued(lambda x, y: {0: "no"}.get((x + y) % 2, "yes"), NUMBERS, NUMBERS)
    assert found is not None
    assert found.exact == "classes"
    assert found.text(["x", "y"]) == "a value that depends only on the parity of the sum of x and y"


@pytest.mark.parametrize(
    ("members", "text"),
    [
        ("ae", "whether the token is a vowel"),
        ("bcd", "whether the token is a vowel"),
        ("a", "whether the token is 'a'"),
        ("bd", None),
    ],
)
def test_a_set_is_named_only_if_it_has_a_description(members: str, text: str | None) -> None:
    found = named(lambda x: x in members, "abcde")
    assert (None if found is None else found.text(["the token"])) == text


def test_labels_are_neither_ordered_nor_added() -> None:
    labels = [Label(code) for code in range(4)]
    assert named(lambda x, y: x.code + y.code, labels, labels) is None
    kept = named(lambda x: x, labels)
    assert kept is not None
    assert kept.operation == "identity"


def test_an_undefined_argument_is_part_of_the_name() -> None:
    apart = name_table({(0,): 0, (1,): 1, (2,): 0, (3,): 1, (None,): 2})
    counted = name_table({(0,): 0, (1,): 1, (2,): 0, (3,): 1, (None,): 0})
    spread = name_table({(x, y): int(x == y) for x in range(3) for y in range(3)} | {(None, y): y for y in range(3)})
    assert apart is not None
    assert counted is not None
    assert spread is not None
    assert apart.text(["x"]) == "the parity of x, with a value of its own where x is undefined"
    assert counted.text(["x"]) == "the parity of x (0 where x is undefined)"
    assert spread.text(["x", "y"]) == "whether x equals y, wherever x and y are defined"


def test_names_that_differ_on_legal_arguments_are_not_given() -> None:
    seen = {(0, 0): 0, (0, 1): 1, (1, 0): 1}  # x + y, max(x, y) and x != y alike
    assert name_table(seen, legal=[(0, 0), (0, 1)]) is not None
    assert name_table(seen, legal=[(1, 1)]) is None


def test_a_gap_in_the_values_is_named() -> None:
    found = named(lambda x: x >= 5, (0, 1, 2, 5, 6, 7))
    assert found is not None
    assert found.text(["x"]) == "whether x is at least 5 (nothing between 2 and 5 occurs)"


def test_braces_in_tokens_are_texts() -> None:
    found = named(lambda x: x == "{x}", ["{x}", "{", "}"])
    assert found is not None
    assert found.text(["the token"]) == "whether the token is '{x}'"


VALUES = st.one_of(st.lists(st.integers(-4, 9), min_size=1, max_size=7, unique=True), st.just(list("abcdez")))
TABLES = st.one_of(
    VALUES.flatmap(lambda xs: st.fixed_dictionaries({(x,): st.integers(0, 2) for x in xs})),
    st.tuples(VALUES, VALUES).flatmap(
        lambda columns: st.fixed_dictionaries({key: st.integers(0, 1) for key in product(*(c[:3] for c in columns))})
    ),
)


@pytest.mark.slow
@given(TABLES)
@settings(max_examples=150, deadline=None)
def test_every_name_is_exact_on_every_entry(table: dict[tuple[Any, ...], int]) -> None:
    """The formula, read back by the reader of formulas, has the classes of the table: no more, no fewer."""
    found = name_table(table)
    if found is None or found.operation in ("pair", "identity"):
        return
    function = read_formula(found.formula, ("x", "y", "z")[: len(next(iter(table)))])
    of_value: dict[Any, set[int]] = {}
    for key, label in table.items():
        of_value.setdefault(function(*key), set()).add(label)
    assert all(len(labels) == 1 for labels in of_value.values())
    assert len(of_value) == len(set(table.values()))


@pytest.mark.slow
@given(TABLES)
@settings(max_examples=100, deadline=None)
def test_every_value_formula_gives_the_values(table: dict[tuple[Any, ...], int]) -> None:
    found = name_table(table, values={0: 0, 1: 1, 2: 2})
    if found is None or found.exact != "values":
        return
    function = read_formula(found.formula, ("x", "y", "z")[: len(next(iter(table)))])
    assert all(function(*key) == label for key, label in table.items())


def inputs(tokens: str | range, n: int = 60) -> list[list[Any]]:
    draw = random.Random(3)
    return [[draw.choice(tokens) for _ in range(draw.randint(1, 6))] for _ in range(n)]


@pytest.mark.parametrize(
    ("program", "tokens", "task"),
    [
        (lambda t: t[::-1], "abc", "reverse"),
        (sorted, "abc", "sort"),
        (lambda t: [t.count(x) for x in t], "abc", "histogram"),
        (lambda t: [t.count("b")] * len(t), "abc", "count"),
        (lambda t: [None, *t[:-1]], "abc", "shift"),
        (lambda t: [t == t[::-1]] * len(t), "ab", "palindrome"),
        (lambda t: [max(t)] * len(t), range(5), "maximum"),
        (lambda t: [-x for x in t], range(5), "negation"),
        (lambda t: [t[: i + 1].count("a") / (i + 1) for i in range(len(t))], "abc", "share so far"),
        (lambda t: [hash((x, i)) % 2 for i, x in enumerate(t)], range(5), None),
        (lambda t: ["same" for _ in t], "abc", None),
    ],
)
def test_tasks_by_inputs_and_outputs(program: Callable[..., Any], tokens: Any, task: str | None) -> None:
    found = name_sequence_task([(row, program(row)) for row in inputs(tokens)], causal=False)
    assert (None if found is None else found.task) == task


def test_one_wrong_output_forbids_the_name() -> None:
    pairs = [(row, row[::-1]) for row in inputs("abc")]
    tokens, outputs = next(pair for pair in pairs if len(pair[0]) > 2)
    wrong = [*outputs[:-1], "a" if outputs[-1] != "a" else "b"]
    assert name_sequence_task([*pairs, (tokens, wrong)], causal=False) is None


def test_a_causal_program_sees_only_what_comes_before() -> None:
    pairs = [(row, [row[: i + 1].count(row[i]) for i in range(len(row))]) for row in inputs("abc")]
    bidirectional, causal = (name_sequence_task(pairs, causal=flag) for flag in (False, True))
    assert bidirectional is not None
    assert causal is not None
    assert (bidirectional.task, causal.task) == ("occurrence number", "histogram")


def test_a_remainder_is_named_where_three_values_have_it() -> None:
    found = name_table({(place,): int(place in (2, 5, 8)) for place in range(9)})
    assert found is not None
    assert (found.operation, found.formula) == ("modulo", "x % 3 == 2")
    assert found.text(["the position"]) == "whether the position is 2 modulo 3"
    assert name_table({(place,): int(place in (1, 5)) for place in range(8)}) is None  # two are a list


def test_a_truth_value_is_passed_on_negated_or_opens_a_gate() -> None:
    def named(truth: dict[bool, bool]) -> str:
        table = {(argument,): int(result) for argument, result in truth.items()}
        found = name_table(table, values={0: False, 1: True})
        assert found is not None
        return found.text(["the flag"])

    assert named({False: False, True: True}) == "the flag"
    assert named({False: True, True: False}) == "whether the flag is no"
    gate = name_table(
        {(token, flag): 0 if flag else token for token in range(5) for flag in (False, True)},
        values={value: value for value in range(5)},
    )
    assert gate is not None
    assert gate.operation == "gate"
    assert "the flag is yes" in gate.text(["the token", "the flag"])
