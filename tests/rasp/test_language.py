"""What the language refuses, at construction and on compiling: one line each, naming the input."""

import pytest

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
    frac_prevs,
    hist,
    indices,
    tokens,
)
from vesalius.rasp.language import shift_by

EVERYWHERE = Select(tokens, tokens, Comparison.TRUE)
SHARE = frac_prevs(Map(lambda t: t == "a", tokens), name="share")


def refusal(make):
    with pytest.raises(BadInput) as caught:
        make()
    message = str(caught.value)
    assert "\n" not in message
    return message


def compiled(variable, vocab=("a", "b"), max_len=4, *, causal=False):
    return compile_program(variable, vocab, max_len, causal=causal)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Map(3, tokens), "Map: function must be a function of one value, not int 3"),
        (lambda: Map(lambda x, y: x, tokens), "Map: function must be a function of one value, but it takes (x, y)"),
        (lambda: Map(str, "a"), "Map: x must be a variable (tokens, indices, Map, ...), not str 'a'"),
        (
            lambda: Map(str, EVERYWHERE),
            "Map: x is a Select, which has no values; wrap it in Aggregate or SelectorWidth",
        ),
        (
            lambda: Map(round, SHARE),
            "Map: x is the numerical variable 'share'; only LinearSequenceMap and a numerical Aggregate read "
            "numerical variables",
        ),
        (
            lambda: SequenceMap(lambda x: x, tokens, indices),
            "SequenceMap: function must be a function of two values, but it takes (x)",
        ),
        (
            lambda: SequenceMap(max, tokens, None),
            "SequenceMap: y must be a variable (tokens, indices, Map, ...), not NoneType None",
        ),
        (lambda: Select(tokens, tokens, Comparison), "Select: predicate is Comparison itself; choose one of EQ, LT,"),
        (
            lambda: Select(tokens, "a", Comparison.EQ),
            "Select: queries must be a variable (tokens, indices, Map, ...), not str 'a'",
        ),
        (lambda: Select(tokens, tokens, "EQ"), "Select: predicate 'EQ' is a string; write Comparison.EQ"),
        (
            lambda: Select(tokens, tokens, 1),
            "Select: predicate must be a Comparison or a function of two values (EQ, LT, LEQ, GT, GEQ, NEQ, TRUE, "
            "FALSE), not int 1",
        ),
        (
            lambda: Select(tokens, tokens, lambda key: True),
            "Select: predicate must be a Comparison or a function of two values, but it takes (key)",
        ),
        (
            lambda: SelectorWidth(tokens),
            "SelectorWidth: the first argument must be a Select, not Tokens <Tokens tokens()>",
        ),
        (
            lambda: Aggregate(tokens, tokens),
            "Aggregate: the first argument must be a Select, not Tokens <Tokens tokens()>",
        ),
        (
            lambda: Aggregate(EVERYWHERE, SHARE),
            "Aggregate: values is the numerical variable 'share'; average it with numerical=True",
        ),
        (
            lambda: Aggregate(EVERYWHERE, tokens, default=["a"]),
            "Aggregate: default=['a'] is not a value; give a string, number or tuple",
        ),
        (
            lambda: Aggregate(EVERYWHERE, tokens, default=tokens),
            "Aggregate: default is the Tokens 'tokens'; give a value",
        ),
        (
            lambda: Aggregate(EVERYWHERE, SHARE, numerical=True, default=1),
            "Aggregate: default=1 with numerical=True; an empty mean is always 0",
        ),
        (
            lambda: Aggregate(EVERYWHERE, tokens, numerical="yes"),
            "Aggregate: numerical='yes' is neither True nor False",
        ),
        (
            lambda: LinearSequenceMap(SHARE, SHARE, x_factor="1", y_factor=1),
            "LinearSequenceMap: x_factor='1' is not a finite number",
        ),
        (lambda: Map(str, tokens, name=""), "Map: name='' is not a name; give a non-empty string or leave it out"),
        (lambda: shift_by(0.5, tokens), "shift_by: offset must be a whole number of positions, not 0.5"),
    ],
)
def test_construction_refuses(make, message):
    assert refusal(make).startswith(message)


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        (
            Aggregate(EVERYWHERE, tokens, numerical=True, name="mean"),
            "numerical Aggregate 'mean' computes with 'tokens', which can be 'a'; Map it to numbers first",
        ),
        (
            LinearSequenceMap(tokens, indices, x_factor=1, y_factor=1, name="sum"),
            "LinearSequenceMap 'sum' computes with 'tokens', which can be 'a'; Map it to numbers first",
        ),
        (
            SelectorWidth(Select(tokens, indices, Comparison.EQ)),
            "Select(keys='tokens', queries='indices'): EQ compares strings with numbers; both must be of one type",
        ),
        (
            SelectorWidth(Select(tokens, indices, lambda k, q: k < q)),
            "Select(keys='tokens', queries='indices') fails on ('a', 0): TypeError: '<' not supported between "
            "instances of 'str' and 'int'; it must accept every value of its inputs",
        ),
        (
            SelectorWidth(Select(indices, indices, lambda k, q: q - k)),
            "Select(keys='indices', queries='indices'): predicate(0, 2) gave 2; it must give True or False",
        ),
        (
            Map({"a": 1}.__getitem__, tokens, name="code"),
            "Map 'code' fails on ('b'): KeyError: 'b'; it must accept every value of its inputs",
        ),
        (
            Map(lambda t: [t], tokens, name="boxed"),
            "Map 'boxed': the function gave the unhashable ['a']; return a string, number or tuple",
        ),
        (
            Map(lambda t: None, tokens, name="nothing"),
            "Map 'nothing' is undefined for every value of its inputs; let its function return something",
        ),
        (Map(lambda t: tokens, tokens, name="odd"), "Map 'odd': the function gave a Tokens; it must give a value"),
        (tokens, "program outputs 'tokens' itself and computes nothing; apply an operator to it"),
    ],
)
def test_compiling_refuses(variable, message):
    assert refusal(lambda: compiled(variable)) == message


def test_a_cycle_is_found_and_named():
    first = Map(ord, tokens, name="first")
    second = SequenceMap(lambda a, b: a, first, tokens, name="second")
    first.inputs = (second,)
    assert refusal(lambda: compiled(second)) in (
        "program has a cycle: second -> first -> second; a variable cannot depend on itself",
        "program has a cycle: first -> second -> first; a variable cannot depend on itself",
    )


def test_exploding_values_are_refused():
    pair = SequenceMap(lambda a, b: (a, b), tokens, Map(lambda t: -t, tokens), name="pair")
    message = "SequenceMap 'pair' takes more than 5,000 values; use a smaller vocabulary or a coarser function"
    assert refusal(lambda: compiled(pair, range(100))) == message
    apart = SelectorWidth(Select(tokens, Map(lambda t: t + 1, tokens, name="next"), Comparison.EQ))
    assert refusal(lambda: compiled(apart, range(3_000))) == (
        "Select(keys='tokens', queries='next') needs a table of 3,000 x 3,000 = 9,000,000 cells, more than 4,000,000; "
        "use a smaller vocabulary or coarser functions"
    )
    assert refusal(lambda: compiled(Map(str, tokens), range(6_000))).startswith("tokens takes more than 5,000 values")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"vocab": "ab"}, "vocab is of type str; give a list of tokens, whose order fixes their codes"),
        ({"vocab": {"a", "b"}}, "vocab is of type set; give a list of tokens, whose order fixes their codes"),
        ({"vocab": []}, "vocab is empty; give at least one token"),
        ({"vocab": ["a", ("b",)]}, "vocab holds ('b',); tokens are strings or numbers"),
        ({"vocab": [1, 2, 1.0]}, "vocab holds 1.0 twice; every token must be different"),
        ({"max_len": 0}, "max_len=0 is not a whole number from 1 to 1000"),
        ({"max_len": 2.5}, "max_len=2.5 is not a whole number from 1 to 1000"),
        ({"causal": "yes"}, "causal='yes' is neither True nor False"),
    ],
)
def test_settings_are_checked(settings, message):
    full = {"vocab": ["a", "b"], "max_len": 4, "causal": False, **settings}
    assert refusal(lambda: compile_program(hist(tokens), **full)) == message


def test_the_output_must_be_a_variable():
    assert refusal(lambda: compiled(EVERYWHERE)).startswith("program 'program' must output a variable")


def test_a_table_looks_numbers_up_by_their_first_twelve_digits():
    third = Map({0.1 + 0.2: "found"}, Map(lambda token: 0.3, tokens), otherwise="missed")
    assert third.function("a") == "found"
    near = Select(tokens, tokens, [(0.1 + 0.2, "a")])
    assert near.predicate(0.3, "a")
    assert not near.predicate(0.3, "b")


def test_otherwise_goes_with_a_table():
    assert [Map({"a": 1}, tokens, otherwise=0).function(token) for token in "ab"] == [1, 0]
    assert SequenceMap({("a", 0): 1}, tokens, indices).function("a", 1) is None
    with pytest.raises(BadInput, match="otherwise=0 goes with a table"):
        Map(len, tokens, otherwise=0)
