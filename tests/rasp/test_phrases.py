"""Programs as formulas: what is written is read back by the same interpreter and gives the same outputs."""

import random
from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rasp.random_programs import random_program, random_sequence
from vesalius.errors import BadInput
from vesalius.rasp import (
    Aggregate,
    Comparison,
    LinearSequenceMap,
    Map,
    Select,
    SelectorWidth,
    SequenceMap,
    compile_program,
    indices,
    tokens,
)
from vesalius.rasp.language import Variable
from vesalius.rasp.program import Program
from vesalius_programs.phrase_reader import read_phrased
from vesalius_programs.phrases import phrased

WORDS, NUMBERS = ["a", "b", "x"], [0, 1, 2, 3]
BEFORE = Select(indices, indices, lambda key, query: key == query - 1)
SO_FAR = Select(indices, indices, Comparison.LEQ)


def of(output: Variable, vocab: list, *, causal: bool = False) -> Program:
    return compile_program(output, vocab, 5, causal=causal)


def is_x() -> Map:
    """An indicator in the arbitrary codes of a search."""
    return Map({"a": 0, "b": 0, "x": 1}, tokens)


def previous() -> Aggregate:
    return Aggregate(BEFORE, tokens, default="nothing")


def share(value: str) -> Aggregate:
    return Aggregate(SO_FAR, Map(lambda token: token == value, tokens), numerical=True)


def number(token: str) -> SelectorWidth:
    return SelectorWidth(Select(tokens, tokens, lambda key, query: key == token))


WRITTEN = [
    (Aggregate(SO_FAR, is_x(), numerical=True), WORDS, True, "share of positions so far where token == 'x'"),
    (Aggregate(Select(indices, tokens, Comparison.EQ), tokens), NUMBERS, False, "token at position token"),
    (
        SelectorWidth(Select(tokens, tokens, Comparison.LT)),
        NUMBERS,
        False,
        "number of positions where token < token here",
    ),
    (
        Map({"a": "a", "b": "b", "x": "x", "nothing": "-"}, previous()),
        WORDS,
        True,
        "token at position position - 1 else '-'",
    ),
    (
        Aggregate(Select(previous(), tokens, Comparison.EQ), tokens, default="-"),
        WORDS,
        True,
        "most frequent token over positions where (token at position position - 1 else 'nothing') == token here"
        " else '-'",
    ),
    (
        LinearSequenceMap(share("x"), share("a"), x_factor=-1, y_factor=1),
        WORDS,
        True,
        "(share of positions so far where token == 'a') - (share of positions so far where token == 'x')",
    ),
    (
        Aggregate(Select(tokens, indices, lambda token, place: token > 0), tokens, numerical=True),
        NUMBERS,
        True,
        "mean of token over positions where token != 0",
    ),
    (Map({0: 3, 1: 1, 2: 0, 3: 2}, tokens), NUMBERS, False, "{0: 3, 1: 1, 2: 0, 3: 2}[token]"),
    (SequenceMap(lambda a, b: a + 5 * b, indices, tokens), NUMBERS, False, "position + 5 * token"),
    (
        SequenceMap(lambda a, b: ("as it was", "up", "down")[(a > b) - (a < b)], tokens, Aggregate(BEFORE, tokens)),
        NUMBERS,
        True,
        "'up' if token > (token at position position - 1) else 'down' if token < (token at position position - 1) "
        "else 'as it was'",
    ),
    (Map(lambda a: "late" if a > 2 else "early", indices), NUMBERS, False, "'late' if position >= 3 else 'early'"),
    (
        SequenceMap(
            lambda a, b: int(a and b), Map({"a": 0, "b": 1, "x": 1}, tokens), Map(lambda i: int(i > 1), indices)
        ),
        WORDS,
        False,
        "token != 'a' and position >= 2",
    ),
    (
        SequenceMap(lambda n, t: (n + (t != "a")) % 2, number("x"), tokens),
        WORDS,
        True,
        "number of positions where token == 'x' % 2 != token != 'a'",
    ),
    (
        SequenceMap(lambda t, n: "odd" if (t in "bx") != (n > 1) else "even", tokens, indices),
        WORDS,
        True,
        "'odd' if token != 'a' != position >= 2 else 'even'",
    ),
    # Two heads that gather the same are one.
    (SequenceMap(min, previous(), previous()), WORDS, True, "token at position position - 1 else 'nothing'"),
]


@pytest.mark.parametrize("causal", [True, False])
def test_what_no_input_shows_does_not_stand_in_the_way_of_a_formula(causal: bool) -> None:
    """Of five tokens no six are x or a; a search that exchanges counts meets that, and what a model does there."""

    def compared(n: int, m: int) -> str:
        if n + m > 5:
            return "unseen" if n == 5 else "even"
        return "more" if n > m else "even" if n == m else "less"

    program = of(SequenceMap(compared, number("x"), number("a")), WORDS, causal=causal)
    text = phrased(program, unseen="unseen")
    assert text is not None
    more, less = "(number of positions where token == 'x')", "(number of positions where token == 'a')"
    assert text == f"return 'more' if {more} > {less} else 'less' if {more} < {less} else 'even'"
    again = read_phrased(text, vocab=program.vocab, max_len=5, causal=causal)
    rows = [list(row) for length in (1, 4, 5) for row in product(WORDS, repeat=length)]
    said, meant = (each.decode(each.run(*each.encode(rows)).output, each.encode(rows)[1]) for each in (again, program))
    assert said == meant


@pytest.mark.parametrize("causal", [True, False])
def test_a_formula_has_no_value_where_none_is_the_answer(causal: bool) -> None:
    """A model that says None says so where nothing stands before; a formula that says no there is not the program."""
    before = Aggregate(BEFORE, tokens)
    program = of(Map({"a": 0, "b": 0, "x": 1}, before), WORDS, causal=causal)
    gathered = of(Map({"a": 0, "b": 0, "x": 1, "nothing": None}, previous()), WORDS, causal=causal)
    assert phrased(gathered) == "return (token at position position - 1 else 'nothing') == 'x'"
    expected = "return (token at position position - 1) == 'x'"
    assert phrased(program, none_is_said=True) == phrased(gathered, none_is_said=True) == expected
    again = read_phrased(expected, vocab=WORDS, max_len=5, causal=causal)
    inputs, lengths = again.encode([["x", "a", "x"]])
    assert again.decode(again.run(inputs, lengths).output, lengths) == [[None, True, False]]


def test_what_is_answered_where_nothing_stands_keeps_its_word() -> None:
    program = of(Map({"a": "p", "b": "q", "x": "q", "nothing": "p"}, previous()), WORDS)
    text = phrased(program, none_is_said=True)
    assert text is not None
    assert "else 'nothing'" in text


def test_an_argument_that_was_never_seen_is_no_value() -> None:
    program = of(Map({"a": 1, "b": 2, "x": "unseen"}, tokens), WORDS)
    assert phrased(program) == "return {'a': 1, 'b': 2, 'x': 'unseen'}[token]"
    assert "unseen" not in str(phrased(program, unseen="unseen"))


@settings(max_examples=60)
@given(st.lists(st.sampled_from("pqr"), min_size=16, max_size=16))
def test_any_table_of_two_variables_is_written_so_that_it_reads_back(values: list[str]) -> None:
    program = of(SequenceMap(lambda a, b: values[4 * a + b], tokens, Aggregate(BEFORE, tokens, default=0)), NUMBERS)
    assert phrased(program) is not None


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: "p" if a == b else "q" if b % 4 == 3 else "r",
        lambda a, b: ("p", "q")[a if b >= 2 else 0] if a < 2 else "r",
        lambda a, b: ("p", "q", "r")[(a + b) % 3],
    ],
)
def test_gates_and_remainders_with_words_for_values_read_back(function: Callable[[int, int], str]) -> None:
    text = phrased(of(SequenceMap(function, tokens, Aggregate(BEFORE, tokens, default=0)), NUMBERS))
    assert text is not None


@pytest.mark.parametrize(("output", "vocab", "causal", "formula"), WRITTEN, ids=[row[-1] for row in WRITTEN])
def test_a_program_is_written_by_substitution(output: Variable, vocab: list, causal: bool, formula: str) -> None:
    text = phrased(of(output, vocab, causal=causal))
    assert text is not None
    assert text.removeprefix("return ").replace("(", "").replace(")", "") == formula.replace("(", "").replace(")", "")


@given(st.integers(0, 10**6))
@settings(max_examples=60)
def test_every_formula_that_is_shown_runs_as_the_program(seed: int) -> None:
    """Where the program has a value, on sequences that the writer did not look at."""
    try:
        program = random_program(seed)
    except BadInput:
        return
    text = phrased(program)
    if text is None:
        return
    again = read_phrased(text, vocab=program.vocab, max_len=program.max_len, causal=program.causal)
    rng = random.Random(seed)
    batch = [random_sequence(rng, program) for _ in range(30)]
    inputs, lengths = program.encode(batch)
    said, meant = (each.decode(each.run(inputs, lengths).output, lengths) for each in (again, program))
    for row, expected in zip(said, meant, strict=True):
        for value, wanted in zip(row, expected, strict=True):
            if isinstance(wanted, float):
                assert value == pytest.approx(wanted, abs=1e-4)
            else:
                assert wanted is None or value == wanted


def test_a_variable_that_several_read_has_a_line_of_its_own() -> None:
    before = previous()
    output = SequenceMap(lambda a, b: a == b, before, Aggregate(BEFORE, before, default="nothing"))
    text = phrased(of(output, WORDS, causal=True))
    assert text is not None
    first, last = text.splitlines()
    assert first == "gathered_token = token at position position - 1 else 'nothing'"
    assert last.count("gathered_token") == 2


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("return __import__('os')", "is not allowed"),
        ("return share of positions where token == 'x'", "say which positions"),
        ("return mean of token", "'over'"),
        ("return number of tokens", "not a selection"),
        ("token = 3 +", "not a"),
        ("share", "neither"),
        ("return (token", "do not close"),
        ("x = token", "must return"),
    ],
)
def test_what_is_not_a_formula_is_refused_in_one_line(text: str, reason: str) -> None:
    with pytest.raises(BadInput, match=reason) as refusal:
        read_phrased(text, vocab=WORDS, max_len=4, causal=True)
    assert "\n" not in str(refusal.value)
