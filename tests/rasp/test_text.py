"""Programs as text: what is written is the whole program, and nothing but a program is read."""

import contextlib
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rasp.random_programs import random_program
from tests.rasp.test_document import assert_same
from vesalius.errors import BadInput
from vesalius.rasp import Aggregate, Comparison, Map, Select, SequenceMap, compile_program, hist, indices, tokens
from vesalius.rasp.document import from_document, to_document
from vesalius.rasp.text import parse, render, render_variables
from vesalius_truth.fresh.generator import generate

SHARE = """\
name = 'share_of_x'
vocab = ['a', 'b', 'x']
max_len = 5
causal = True

is_x = Map({'a': False, 'b': False, 'x': True}, tokens)
share = Aggregate(Select(indices, indices, Comparison.LEQ), is_x, numerical=True)
return share"""


def share_of_x():
    is_x = Map(lambda token: token == "x", tokens, name="is_x")
    share = Aggregate(Select(indices, indices, Comparison.LEQ), is_x, numerical=True, name="share")
    return compile_program(share, ["a", "b", "x"], 5, causal=True, name="share_of_x")


def test_a_program_is_written_line_by_line_and_read_back():
    assert render(to_document(share_of_x())) == SHARE
    assert parse(SHARE) == to_document(share_of_x())
    assert parse(SHARE.replace("Comparison.LEQ", "LEQ")) == parse(SHARE)


@pytest.mark.slow
@given(st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_any_program_survives_the_round_trip(seed):
    try:
        program = random_program(seed)
    except BadInput:
        return
    text = render(to_document(program))
    assert parse(text) == to_document(program)
    assert_same(program, from_document(parse(text)))


@pytest.mark.slow
@given(st.integers(0, 500), st.integers(1, 4))
@settings(max_examples=12, deadline=None)
def test_generated_programs_survive_the_round_trip(seed, depth):
    for task in generate(seed, 1, depth):
        text = render(to_document(task.program))
        assert parse(text) == to_document(task.program)
        assert render(parse(text)) == text


def test_every_entry_of_a_long_table_is_written():
    product = SequenceMap(lambda x, y: x * 100 + y, tokens, indices, name="product")
    text = render(to_document(compile_program(product, list(range(30)), 20, causal=False)))
    assert all(f"({x}, {y}): {x * 100 + y}" in text for x in range(30) for y in range(20))
    assert max(map(len, text.splitlines())) <= 120


def test_names_and_values_that_python_could_not_tell_apart_are_kept():
    odd = Map({"it's": math.inf, "\n": (1, ("ü", -math.inf)), "a": 1.5}.get, tokens, name="2nd \u00fc")
    twice = hist(odd, name="vocab")
    both = SequenceMap(lambda x, y: None if y == 1.5 else x, twice, odd, name="return")
    program = compile_program(both, ["it's", "\n", "a"], 3, causal=False, description='say "hi"\n\'')
    text = render(to_document(program))
    assert "return_2" not in text
    assert "v_return = SequenceMap(" in text
    assert "name='return')" in text
    assert_same(program, from_document(parse(text)))


def test_a_select_with_two_readers_has_its_own_line():
    before = Select(indices, indices, Comparison.LT)
    pair = SequenceMap(lambda x, y: (x, y), Aggregate(before, tokens), Aggregate(before, indices, default=0), name="p")
    program = compile_program(pair, ["a", "b"], 3, causal=False)
    lines = render(to_document(program)).splitlines()
    assert "select_1 = Select(indices, indices, Comparison.LT)" in lines
    assert "aggregate_2 = Aggregate(select_1, indices, default=0)" in lines
    assert_same(program, from_document(parse("\n".join(lines))))


def test_a_select_that_selects_nothing_is_kept():
    program = compile_program(hist(tokens), ["a"], 2, causal=False)
    nothing = compile_program(Aggregate(Select(tokens, tokens, []), tokens, default="a"), ["a"], 2, causal=False)
    assert "Select(tokens, tokens, [])" in render(to_document(nothing))
    for each in (program, nothing):
        assert parse(render(to_document(each))) == to_document(each)


def test_some_variables_are_written_with_what_only_they_read():
    document = to_document(share_of_x())
    assert render_variables(document, ["share"], given=["is_x"]) == SHARE.splitlines()[-2]
    assert render_variables(document, ["share"]).splitlines() == SHARE.splitlines()[-3:-1]
    counted = to_document(compile_program(hist(tokens, name="n"), ["a"], 3, causal=False))
    assert render_variables(counted, ["n_head"]) == "n = SelectorWidth(Select(tokens, tokens, Comparison.EQ))"
    with pytest.raises(BadInput, match="program has no variable 'm'; it has"):
        render_variables(counted, ["m"])


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("return share", "", "the last line must return the output variable"),
        ("return share", "return shares", "line 8: 'shares' is not defined before it; there is tokens, indices, is_x"),
        ("return share", "return share\nx = Map({}, tokens)", "line 9: nothing may follow the return"),
        ("max_len = 5\n", "", "does not define max_len"),
        ("max_len = 5", "max_len = 2 + 3", "line 3: '2 \\+ 3' is not a value"),
        ("max_len = 5", "max_len = 0", "max_len=0"),
        ("max_len = 5", "max_len = __import__('os')", "line 3: 'max_len' is defined already"),
        ("vocab = ", "import os\nvocab = ", "line 2: 'import os' is not a line of a program"),
        ("'x': True", "'x': open('f')", "not a value"),
        ("'x': True", "'x': True, 'x': False", "two entries for 'x'"),
        ("'x': True", "'x': [1]", "not a value"),
        ("'x': True", "**tokens", "keys of a SequenceMap's table are pairs"),
        ("{'a': False, 'b': False, 'x': True}", "len", "must be a table"),
        (", numerical=True", ", how='mean'", "option 'how' does not exist"),
        (", numerical=True", ", **is_x", "option 'None' does not exist"),
        ("share = Aggregate", "share = os.system", "'os.system' is not an operator"),
        ("share = Aggregate", "share = Fold", "'Fold' is not an operator; use Map"),
        ("is_x = ", "tokens = ", "line 6: 'tokens' is defined already"),
        ("is_x, numerical", "Map({'a': 1}, tokens), numerical", "give its own line to everything but a Select"),
        ("Comparison.LEQ", "os.LEQ", "must be a comparison or a list of pairs"),
        ("Comparison.LEQ", "Comparison.LIKE", "comparison 'LIKE' does not exist"),
        ("Select(indices, indices, Comparison.LEQ)", "Select()", "must be a comparison or a list of pairs"),
        ("Select(indices, indices, Comparison.LEQ)", "Select(indices, EQ)", "select reads 2"),
        ("is_x =", "is_x, y =", "is not a line of a program"),
        ("is_x = Map({", "is_x = Map({{", "line 6: not written as assignments"),
        ("'x': True", f"'x': {'(' * 50}1{',)' * 50}", "is not a value"),
    ],
)
def test_anything_else_is_refused_in_one_line_that_names_the_place(old, new, line):
    assert old in SHARE
    with pytest.raises(BadInput, match=line) as refused:
        parse(SHARE.replace(old, new))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", [None, 3, "(" * 100_000, "-" * 100_000 + "1", "x" * 4_000_001, "\x00", ""])
def test_what_is_not_the_text_of_a_program_is_refused(text):
    with pytest.raises(BadInput, match=r"^program text"):
        parse(text)


@given(st.text(max_size=60), st.integers(0, len(SHARE)))
@settings(max_examples=100, deadline=None)
def test_rubbish_in_the_middle_never_gets_past_badinput(rubbish, place):
    with contextlib.suppress(BadInput):
        parse(SHARE[:place] + rubbish + SHARE[place:])
