"""Values that differ by an accident of the machine are one value."""

import math

import pytest

from vesalius.errors import BadInput
from vesalius.model.specimen import FiniteVocabulary
from vesalius.rasp import Aggregate, Comparison, Map, Select, compile_program, indices, tokens
from vesalius.values import from_json, rounded

CBRT_OF_3 = (1.4422495703074083, 1.4422495703074085)  # two C libraries


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.1 + 0.2, 0.3),
        (CBRT_OF_3[0], 1.44224957031),
        (CBRT_OF_3[1], 1.44224957031),
        (-1234567.890123456, -1234567.89012),
        (1e-300, 1e-300),
        (0.5, 0.5),
        (math.inf, math.inf),
        ((1, "a", (0.1 + 0.2, None)), (1, "a", (0.3, None))),
        ([0.1 + 0.2], [0.3]),
        (12345678901234567, 12345678901234567),
        (True, True),
        ("0.30000000000000004", "0.30000000000000004"),
    ],
)
def test_rounding_to_twelve_digits_by_hand(value: object, expected: object) -> None:
    assert repr(rounded(value)) == repr(expected)
    assert repr(rounded(rounded(value))) == repr(expected)


def test_neighbours_of_an_exact_half_go_the_same_way() -> None:
    """1 + 2**-12 = 1.000244140625 has thirteen digits, the last a 5."""
    half = 1 + 2**-12
    assert len({rounded(half), rounded(math.nextafter(half, 0)), rounded(math.nextafter(half, 2))}) == 1


def test_lists_of_a_file_become_tuples() -> None:
    assert from_json([1, ["a", [2.5]]]) == (1, ("a", (2.5,)))


def test_results_that_agree_are_one_class() -> None:
    both = dict(zip("ab", CBRT_OF_3, strict=True)) | {"c": 2.0}
    program = compile_program(Map(both.get, tokens), ["a", "b", "c"], 3, causal=False)
    assert program.outputs == (1.44224957031, 2.0)
    codes, lengths = program.encode([["b", "a", "c"]])
    assert program.decode(program.run(codes, lengths).output, lengths) == [[1.44224957031, 1.44224957031, 2.0]]


def test_functions_are_called_with_values_as_they_were_computed() -> None:
    """Or `t == math.pi` would fail for the token pi, and a table's keys would miss what another table gives."""
    named = Map(lambda t: "pi" if t == math.pi else "other", tokens)
    assert compile_program(named, [math.pi, math.e], 2, causal=False).outputs == ("pi", "other")


@pytest.mark.parametrize("comparison", [Comparison.EQ, Comparison.LEQ, Comparison.GEQ])
def test_comparisons_and_defaults_do_not_see_the_last_bits(comparison: Comparison) -> None:
    keys, queries = (Map(lambda _, value=value: value, indices) for value in (0.1 + 0.2, 0.3))
    found = Aggregate(Select(keys, queries, comparison), Map(lambda _: 0.3, tokens), default=0.1 + 0.2)
    program = compile_program(found, ["a"], 2, causal=False)
    assert program.outputs == (0.3,)
    assert bool(program.run(*program.encode([["a", "a"]])).output.eq(0).all())


def test_tokens_are_found_by_twelve_digits() -> None:
    program = compile_program(Map(lambda t: t, tokens), [0.1 + 0.2, 1], 2, causal=False)
    vocabulary = FiniteVocabulary((0.1 + 0.2, 1), (0.1 + 0.2, 1), 2)
    for written in (0.3, 0.1 + 0.2):
        assert program.encode([[written, 1]])[0].tolist() == [[0, 1]]
        assert vocabulary.tokenize([[written, 1]]).tolist() == [[2, 0, 1]]
    assert vocabulary.outputs == program.outputs == (0.3, 1)
    with pytest.raises(BadInput, match=r"vocab holds 0\.3 twice"):
        compile_program(tokens, [0.1 + 0.2, 0.3], 2, causal=False)
